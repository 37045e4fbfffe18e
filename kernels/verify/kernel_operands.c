#include "kernels/verify/kernel_operands.h"

#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "reference/bf16.h"
#include "reference/combine.h"
#include "reference/fp16.h"
#include "reference/grouped_gemm.h"
#include "reference/plan.h"
#include "reference/swiglu.h"

#include <math.h>
#include <string.h>

enum { SEED_FIRST = 21, SEED_SECOND, SEED_THIRD, SEED_ROUTING };

/* --- Choices --- */

void spw_kernel_choices(const spw_kernel_call *s, const spw_choice_source *from, size_t choices,
                        int32_t *expert) {
    const spw_record *record = from->record;
    for (size_t i = 0; i < choices; i++) {
        if (record == NULL) {
            expert[i] = spw_routing_expert(from->routing, s->experts, choices, SEED_ROUTING, i);
            continue;
        }
        const size_t of_source = spw_kernel_record_tokens(record) * s->top_k, source = i / of_source;
        const size_t of_record = record->sequences * record->sequence_length * s->top_k;
        const int32_t first = (int32_t)(from->rank * s->experts);
        const int32_t x = record->expert[source * of_record + i % of_source];
        expert[i] = x >= first && x < first + (int32_t)s->experts ? x - first : -1;
    }
}

/* As spw_routing_offsets(); of a record the rows are counted, and s->rows becomes their number. */
static spw_status fill_offsets(spw_kernel_call *s, const spw_choice_source *from, size_t *offset,
                               int32_t *offset32) {
    int32_t *expert = NULL;
    if (from->record == NULL) {
        spw_routing_offsets(from->routing, s->experts, s->rows, SEED_ROUTING, offset, offset32);
        return SPW_OK;
    }
    const spw_status status = SPW_ALLOC(s->tokens * s->top_k, &expert);
    if (status != SPW_OK) return status;
    spw_kernel_choices(s, from, s->tokens * s->top_k, expert);
    for (size_t e = 0; e <= s->experts; e++) offset[e] = 0;
    for (size_t i = 0; i < s->tokens * s->top_k; i++)
        if (expert[i] >= 0) offset[expert[i] + 1]++;
    offset32[0] = 0;
    for (size_t e = 0; e < s->experts; e++)
        offset[e + 1] += offset[e], offset32[e + 1] = (int32_t)offset[e + 1];
    s->rows = offset[s->experts];
    spw_free(expert);
    return SPW_OK;
}

/* --- Arrays --- */

size_t spw_kernel_type_bytes(spw_type type) {
    return type == SPW_TYPE_FLOAT ? sizeof(float) : sizeof(uint16_t);
}

float spw_kernel_store(spw_type type, void *array, size_t at, float value) {
    if (type == SPW_TYPE_FLOAT) return ((float *)array)[at] = value;
    uint16_t *const bits = (uint16_t *)array + at;
    *bits = type == SPW_TYPE_FP16 ? spw_fp16_from_float(value) : spw_bf16_from_float(value);
    return type == SPW_TYPE_FP16 ? spw_fp16_to_float(*bits) : spw_bf16_to_float(*bits);
}

spw_status spw_kernel_fill(spw_kernel_case *c, size_t input, size_t count, size_t used, int numbers,
                           uint64_t seed, float **values) {
    spw_status status = SPW_OK;
    const size_t bytes = spw_kernel_type_bytes(c->call.type);
    SPW_TRY(SPW_ALLOC(count, values));
    SPW_TRY(spw_alloc(count, bytes, &c->memory[input]));
    for (size_t i = 0; i < count; i++) {
        const float value = i < used ? spw_number(numbers, seed, i) : NAN;
        (*values)[i] = spw_kernel_store(c->call.type, c->memory[input], i, value);
    }
    c->call.input[input] = c->memory[input];
    c->input_bytes[input] = count * bytes;

cleanup:
    return status;
}

/* Bytes of 0xff, NaN in all types and -1 as an index, between guard bands. */
static spw_status fence(size_t bytes, void **whole, void **inner) {
    const size_t guard = SPW_KERNEL_CASE_GUARD;
    const spw_status status = spw_alloc(bytes + 2 * guard, 1, whole);
    if (status != SPW_OK) return status;
    memset(*whole, SPW_KERNEL_GUARD, bytes + 2 * guard);
    *inner = (unsigned char *)*whole + guard;
    memset(*inner, 0xff, bytes);
    return SPW_OK;
}

spw_status spw_kernel_index_output(spw_kernel_case *c, size_t count) {
    void *inner = NULL;
    spw_status status = SPW_OK;
    c->index_bytes = count * sizeof *c->want_index;
    SPW_TRY(fence(c->index_bytes, &c->fenced_index, &inner));
    c->guarded_index = c->fenced_index;
    c->call.index = inner;
    SPW_TRY(SPW_ALLOC(count, &c->want_index));

cleanup:
    return status;
}

spw_status spw_kernel_output(spw_kernel_case *c, size_t count, size_t judged) {
    spw_status status = SPW_OK;
    c->output_bytes = count * spw_kernel_type_bytes(c->output_type);
    c->judged = judged;
    SPW_TRY(fence(c->output_bytes, &c->fenced, &c->call.output));
    c->guarded = c->fenced;
    SPW_TRY(SPW_ALLOC(count, &c->want));
    SPW_TRY(SPW_ALLOC(count, &c->scale));

cleanup:
    return status;
}

/* --- The kernels --- */

static size_t most_rows(size_t experts, const size_t *offset) {
    size_t most = 0;
    for (size_t e = 0; e < experts; e++) {
        const size_t rows = offset[e + 1] - offset[e];
        most = rows > most ? rows : most;
    }
    return most;
}

spw_status spw_kernel_make_product(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    const spw_kernel_call *s = &c->call;
    spw_gemm_shape shape = {
        .experts = s->experts, .in = s->in, .out = s->out, .transposed = s->transposed != 0};
    const size_t weights = s->experts * s->in * s->out;
    const bool forward = s->kernel == SPW_KERNEL_GROUPED_GEMM,
               gradient = s->kernel == SPW_KERNEL_WEIGHT_GRADIENT;
    const size_t left_width = s->kernel == SPW_KERNEL_INPUT_GRADIENT ? s->out : s->in;
    const size_t width = forward ? s->out : s->in;
    float *left = NULL, *right = NULL;
    size_t *offset = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->experts + 1, &offset));
    SPW_TRY(SPW_ALLOC(s->experts + 1, &c->offset));
    SPW_TRY(fill_offsets(&c->call, from, offset, c->offset));
    shape.rows = s->rows;
    c->call.offset = c->offset;
    c->offsets = s->experts + 1;
    const size_t used = offset[s->experts];
    SPW_TRY(spw_kernel_fill(c, 0, s->rows * left_width, used * left_width, numbers, SEED_FIRST, &left));
    if (gradient) {
        SPW_TRY(spw_kernel_fill(c, 1, s->rows * s->out, used * s->out, numbers, SEED_SECOND, &right));
        SPW_TRY(spw_kernel_output(c, weights, weights));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(shape, left, right, offset, c->want, c->scale));
        c->terms = most_rows(s->experts, offset);
    } else {
        SPW_TRY(spw_kernel_fill(c, 1, weights, weights, numbers, SEED_SECOND, &right));
        SPW_TRY(spw_kernel_output(c, s->rows * width, used * width));
        SPW_TRY((forward ? spw_ref_grouped_gemm : spw_ref_grouped_gemm_input_gradient)(
            shape, left, right, offset, c->want, c->scale));
        c->terms = left_width;
    }
    c->exact = numbers == SPW_NUMBERS_INTEGER;

cleanup:
    spw_free(left), spw_free(right), spw_free(offset);
    return status;
}

spw_status spw_kernel_indices(spw_kernel_case *c, size_t input, size_t count, const int32_t *from) {
    const spw_status status = spw_alloc(count, sizeof *from, &c->memory[input]);
    if (status != SPW_OK) return status;
    memcpy(c->memory[input], from, count * sizeof *from);
    c->call.input[input] = c->memory[input];
    c->input_bytes[input] = count * sizeof *from;
    return SPW_OK;
}

spw_status spw_kernel_make_movement(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    spw_kernel_call *s = &c->call;
    const size_t choices = s->tokens * s->top_k;
    int32_t *expert = NULL;
    float *values = NULL, *weight = NULL;
    spw_plan plan = {.rows = 0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(choices, &expert));
    spw_kernel_choices(s, from, s->tokens * s->top_k, expert);
    SPW_TRY(spw_ref_plan_create(s->tokens, s->top_k, s->experts, expert, &plan));
    s->rows = plan.rows;
    if (s->kernel == SPW_KERNEL_PERMUTE) {
        SPW_TRY(spw_kernel_fill(c, 0, s->tokens * s->in, s->tokens * s->in, numbers, SEED_FIRST, &values));
        SPW_TRY(spw_kernel_indices(c, 1, choices, expert));
        SPW_TRY(spw_kernel_output(c, plan.rows * s->in, plan.rows * s->in));
        spw_ref_permute(&plan, s->in, values, c->want);
        c->exact = true;
    } else {
        SPW_TRY(spw_kernel_fill(c, 0, plan.rows * s->in, plan.rows * s->in, numbers, SEED_FIRST, &values));
        SPW_TRY(spw_kernel_indices(c, 1, choices, plan.row));
        SPW_TRY(spw_alloc(choices, sizeof *weight, &c->memory[2]));
        weight = c->memory[2];
        for (size_t i = 0; i < choices; i++) weight[i] = fabsf(spw_number(numbers, SEED_THIRD, i));
        s->input[2] = weight;
        c->input_bytes[2] = choices * sizeof *weight;
        SPW_TRY(spw_kernel_output(c, s->tokens * s->in, s->tokens * s->in));
        spw_ref_combine(&plan, s->in, values, weight, c->want, c->scale);
        c->terms = s->top_k;
        c->exact = numbers == SPW_NUMBERS_INTEGER;
    }

cleanup:
    spw_ref_plan_destroy(&plan);
    spw_free(expert), spw_free(values);
    return status;
}

spw_status spw_kernel_make_swiglu(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    if (from->record != NULL) c->call.rows = c->call.tokens;
    const size_t count = c->call.rows * c->call.out;
    float *gate = NULL, *up = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_kernel_fill(c, 0, count, count, numbers, SEED_FIRST, &gate));
    SPW_TRY(spw_kernel_fill(c, 1, count, count, numbers, SEED_SECOND, &up));
    SPW_TRY(spw_kernel_output(c, count, count));
    spw_ref_swiglu((spw_swiglu){.limit = 0}, count, gate, up, c->want, c->scale);
    c->terms = SPW_KERNEL_SWIGLU_TERMS;

cleanup:
    spw_free(gate), spw_free(up);
    return status;
}
