#include "kernels/jax/jax_experts.h"

#include "base/memory.h"

#include <string.h>

/* What the buffers of a call say of its sizes; SPW_JAX_ANY: nothing. */
typedef struct sizes {
    size_t experts, rows, in, out, tokens, top_k;
    size_t offsets, scratch, parts; /* of offset, scratch and row_sum */
    size_t wide, ffn;               /* columns of h and of act */
} sizes;

static spw_status read_flag(const XLA_FFI_CallFrame *frame, const char *name, size_t most, int *out) {
    size_t number = 0;
    const spw_status status = spw_jax_read_number(frame, name, 0, most, &number);
    *out = (int)number;
    return status;
}

static spw_status read_attributes(const XLA_FFI_CallFrame *frame, spw_experts_call *c) {
    const int of = c->operation;
    spw_status status = SPW_OK;
    if (of != SPW_EXPERTS_PLAN && of != SPW_EXPERTS_COMBINE && of != SPW_EXPERTS_ROW_SUMS)
        SPW_TRY(read_flag(frame, "transposed", 1, &c->transposed));
    if (of == SPW_EXPERTS_WEIGHT_GRADIENT) SPW_TRY(read_flag(frame, "gathers", 2, &c->gathers));
    if (of != SPW_EXPERTS_UP && of != SPW_EXPERTS_DOWN_GRADIENT) return SPW_OK;
    c->gathers = 1;
    SPW_TRY(read_flag(frame, "activation", SPW_EXPERTS_ACTIVATIONS - 1, &c->activation));
    SPW_TRY(read_flag(frame, "pairs", 1, &c->pairs));
    SPW_TRY(spw_jax_read_real(frame, "limit", &c->limit));
    SPW_TRY(spw_jax_read_real(frame, "alpha", &c->alpha));
cleanup:
    return status;
}

/* The buffers of one operation: `arguments` rows, of which the last may be missing where `maybe` says so, then `results`. */
typedef struct places {
    size_t arguments, maybe, results;
    spw_jax_buffer buffer[SPW_JAX_BUFFERS_MAX];
} places;

static spw_status read_places(const XLA_FFI_CallFrame *frame, places p, spw_experts_call *c) {
    if (p.maybe && (size_t)frame->args.size + 1 == p.arguments) {
        memmove(p.buffer + p.arguments - 1, p.buffer + p.arguments, p.results * sizeof p.buffer[0]);
        p.arguments--;
    }
    for (size_t i = 0; i < p.arguments; i++) p.buffer[i].data = &c->operand[i];
    for (size_t i = 0; i < p.results; i++) p.buffer[p.arguments + i].data = (const void **)&c->result[i];
    return spw_jax_read_buffers(frame, p.buffer, p.arguments, p.results);
}

static spw_status read_arrays(const XLA_FFI_CallFrame *frame, spw_experts_call *c, sizes *n) {
    spw_jax_type element = SPW_JAX_BF16 | SPW_JAX_F16 | SPW_JAX_F32, integer = SPW_JAX_S32,
                 real = SPW_JAX_F32;
    const bool down = c->operation == SPW_EXPERTS_DOWN_GRADIENT, sums = c->operation == SPW_EXPERTS_ROW_SUMS;
    size_t *const one = c->transposed ? &n->out : &n->in, *const other = c->transposed ? &n->in : &n->out;
    size_t *const of_x = c->gathers == 1 ? &n->tokens : &n->rows;
    size_t *const of_dy = down || c->gathers == 2 ? &n->tokens : &n->rows;
    const spw_jax_buffer expert = {"expert", &integer, {&n->tokens, &n->top_k}, NULL},
                         row = {"row", &integer, {&n->tokens, &n->top_k}, NULL},
                         weight = {"weight", &real, {&n->tokens, &n->top_k}, NULL},
                         assignment = {"assignment", &integer, {&n->rows}, NULL},
                         offset = {"offset", &integer, {&n->offsets}, NULL},
                         scratch = {"scratch", &integer, {&n->scratch}, NULL},
                         w = {"w", &element, {&n->experts, one, other}, NULL},
                         dw = {"dw", &element, {&n->experts, one, other}, NULL},
                         bias = {"bias", &element, {&n->experts, &n->out}, NULL},
                         x = {"x", &element, {of_x, &n->in}, NULL},
                         dy = {"dy", &element, {of_dy, &n->out}, NULL},
                         rows = {"rows", &element, {&n->rows, &n->in}, NULL},
                         y_rows = {"y", &element, {&n->rows, &n->out}, NULL},
                         y = {"y", &element, {&n->tokens, &n->in}, NULL},
                         h = {"h", &element, {&n->rows, &n->wide}, NULL},
                         d_h = {"d_h", &element, {&n->rows, &n->wide}, NULL},
                         dx = {"dx", &element, {&n->rows, &n->in}, NULL},
                         act = {"act", &element, {&n->rows, down ? &n->in : &n->ffn}, NULL},
                         row_sum = {"row_sum", &real, {sums ? &n->out : &n->parts, &n->rows}, NULL};
    const places of[SPW_EXPERTS_OPERATIONS] = {
        [SPW_EXPERTS_PLAN] = {1, 0, 4, {expert, row, assignment, offset, scratch}},
        [SPW_EXPERTS_FORWARD] = {3, 0, 1, {x, w, offset, y_rows}},
        [SPW_EXPERTS_INPUT_GRADIENT] = {3, 0, 1, {dy, w, offset, dx}},
        [SPW_EXPERTS_WEIGHT_GRADIENT] = {4, 0, 1, {x, dy, offset, assignment, dw}},
        [SPW_EXPERTS_UP] = {5, 1, 2, {x, w, offset, assignment, bias, h, act}},
        [SPW_EXPERTS_DOWN_GRADIENT] = {6, 0, 3, {dy, w, offset, assignment, h, weight, d_h, act, row_sum}},
        [SPW_EXPERTS_COMBINE] = {3, 1, 1, {rows, row, weight, y}},
        [SPW_EXPERTS_ROW_SUMS] = {2, 0, 1, {row_sum, row, weight}},
    };
    const spw_status status = read_places(frame, of[c->operation], c);
    c->element = element == SPW_JAX_F32   ? SPW_EXPERTS_FP32
                 : element == SPW_JAX_F16 ? SPW_EXPERTS_FP16
                                          : SPW_EXPERTS_BF16;
    return status;
}

/* A size that another one settles. */
static spw_status expect(const char *what, size_t found, size_t right) {
    if (found == SPW_JAX_ANY || found == right) return SPW_OK;
    return spw_fail(SPW_EARG, "%s: %zu; %zu would be right", what, found, right);
}

/* Sizes that no two buffers share, so that no array is read or written behind its end. */
static spw_status check(const spw_experts_call *c, sizes *n) {
    const size_t columns = c->activation == SPW_EXPERTS_RELU2 ? 1 : 2;
    size_t choices = 0;
    spw_status status = SPW_OK;
    if (c->operation == SPW_EXPERTS_PLAN) n->experts = n->offsets > 0 ? n->offsets - 1 : 0;
    const size_t all[] = {n->experts, n->rows, n->in, n->out, n->tokens, n->top_k};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] == 0)
            SPW_TRY(spw_fail(
                SPW_EARG, "an array without elements; at least one expert, token and choice would be right"));
    if (n->top_k == SPW_JAX_ANY && n->tokens != SPW_JAX_ANY) n->top_k = n->rows / n->tokens;
    if (n->tokens != SPW_JAX_ANY) {
        if (!spw_mul_size(n->tokens, n->top_k, &choices) || choices > INT32_MAX)
            SPW_TRY(spw_fail(SPW_EARG, "%zu tokens of %zu choices; below 2^31 in all would be right",
                             n->tokens, n->top_k));
        SPW_TRY(expect("rows of sorted choices", n->rows, choices));
    }
    SPW_TRY(expect("numbers of offset", n->offsets, n->experts + 1));
    if (c->operation == SPW_EXPERTS_PLAN)
        SPW_TRY(expect("numbers of scratch", n->scratch,
                       n->experts * ((n->rows - 1) / SPW_EXPERTS_PLAN_CHUNK + 2)));
    if (c->operation == SPW_EXPERTS_UP) {
        SPW_TRY(expect("columns of act", n->ffn, n->out / columns));
        SPW_TRY(expect("columns of h", n->wide, n->out));
    }
    if (c->operation == SPW_EXPERTS_DOWN_GRADIENT) {
        SPW_TRY(expect("columns of h", n->wide, columns * n->in));
        SPW_TRY(expect("parts of row_sum", n->parts, (n->in - 1) / SPW_EXPERTS_ROW_SUM_TILE + 1));
    }
cleanup:
    return status;
}

static size_t known(size_t size) { return size == SPW_JAX_ANY ? 0 : size; }

spw_status spw_jax_read_experts(const XLA_FFI_CallFrame *frame, spw_experts_operation operation,
                                spw_experts_call *out) {
    spw_experts_call c = {.operation = (int)operation, .device = -1};
    sizes n;
    spw_status status = SPW_OK;
    memset(&n, 0xff, sizeof n); /* SPW_JAX_ANY */
    SPW_TRY(read_attributes(frame, &c));
    SPW_TRY(read_arrays(frame, &c, &n));
    SPW_TRY(check(&c, &n));
    c.experts = known(n.experts), c.rows = known(n.rows), c.in = known(n.in), c.out = known(n.out);
    c.tokens = known(n.tokens), c.top_k = known(n.top_k);
    *out = c;
cleanup:
    return status;
}
