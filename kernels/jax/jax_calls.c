#include "kernels/jax/jax_calls.h"

spw_status spw_jax_read_gemm(const XLA_FFI_CallFrame *frame, spw_jax_gemm_kind kind, spw_jax_gemm *out) {
    size_t experts = SPW_JAX_ANY, rows = SPW_JAX_ANY, in = SPW_JAX_ANY, out_width = SPW_JAX_ANY;
    size_t transposed = 0, offsets = SPW_JAX_ANY;
    spw_jax_type element = SPW_JAX_BF16 | SPW_JAX_F16 | SPW_JAX_F32, integer = SPW_JAX_S32;
    spw_jax_gemm g = {0};
    const void *result = NULL, *offset = NULL, *size = NULL;
    spw_status status = spw_jax_read_number(frame, "transposed", 0, 1, &transposed);
    if (status != SPW_OK) return status;
    size_t *const one = transposed ? &out_width : &in, *const other = transposed ? &in : &out_width;
    const spw_jax_buffer x = {"x", &element, {&rows, &in}, &g.left};
    const spw_jax_buffer dy = {"dy", &element, {&rows, &out_width}, &g.left};
    const spw_jax_buffer w = {"w", &element, {&experts, one, other}, &g.right};
    const spw_jax_buffer dy_right = {"dy", &element, {&rows, &out_width}, &g.right};
    const spw_jax_buffer sizes = {"group_sizes", &integer, {&experts}, &size};
    const spw_jax_buffer y = {"y", &element, {&rows, &out_width}, &result};
    const spw_jax_buffer dx = {"dx", &element, {&rows, &in}, &result};
    const spw_jax_buffer dw = {"dw", &element, {&experts, one, other}, &result};
    const spw_jax_buffer offset_of = {"offset", &integer, {&offsets}, &offset};
    const spw_jax_buffer table[3][5] = {
        [SPW_JAX_FORWARD] = {x, w, sizes, y, offset_of},
        [SPW_JAX_INPUT] = {dy, w, sizes, dx, offset_of},
        [SPW_JAX_WEIGHT] = {x, dy_right, sizes, dw, offset_of},
    };
    status = spw_jax_read_buffers(frame, table[kind], 3, 2);
    if (status != SPW_OK) return status;
    if (experts == 0) return spw_fail(SPW_EARG, "no experts; at least one would be right");
    if (offsets != experts + 1)
        return spw_fail(SPW_EARG, "result offset has %zu numbers; %zu would be right", offsets, experts + 1);
    g.shape = (spw_gemm_shape){.experts = experts,
                               .rows = rows,
                               .in = in,
                               .out = out_width,
                               .transposed = transposed != 0,
                               .element = element == SPW_JAX_F16 ? SPW_GEMM_FP16 : SPW_GEMM_BF16};
    g.type = element, g.size = size, g.result = (void *)result, g.offset = (void *)offset;
    *out = g;
    return SPW_OK;
}

/* The group that holds the device of this call. */
static spw_status read_group(const XLA_FFI_CallFrame *frame, spw_jax_group *out) {
    const int64_t *devices = NULL;
    size_t count = 0;
    spw_jax_group g = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_jax_read_number(frame, "channel", 0, INT32_MAX, &g.channel));
    SPW_TRY(spw_jax_read_number(frame, "ranks", 1, SPW_JAX_RANKS_MAX, &g.ranks));
    SPW_TRY(spw_jax_read_list(frame, "devices", &devices, &count));
    SPW_TRY(spw_jax_read_device(frame, &g.device));
    SPW_TRY(spw_jax_read_run(frame, &g.run));
    if (count % g.ranks != 0)
        SPW_TRY(spw_fail(SPW_EARG,
                         "attribute devices has %zu numbers; a multiple of %zu ranks would be right", count,
                         g.ranks));
    for (size_t i = 0; i < count; i++) {
        if (devices[i] != g.device) continue;
        g.rank = i % g.ranks, g.devices = devices + i - g.rank;
        *out = g;
        return SPW_OK;
    }
    SPW_TRY(spw_fail(SPW_EARG,
                     "runs on device %d, which is none of the %zu devices of the mesh; the mesh that "
                     "shard_map runs on would be right",
                     g.device, count));
cleanup:
    return status;
}

spw_status spw_jax_read_exchange(const XLA_FFI_CallFrame *frame, spw_jax_exchange_kind kind,
                                 spw_jax_exchange *out) {
    spw_jax_exchange e = {
        .kind = kind, .tokens = SPW_JAX_ANY, .hidden = SPW_JAX_ANY, .rows_max = SPW_JAX_ANY};
    e.top_k = SPW_JAX_ANY;
    spw_jax_type element = SPW_JAX_BF16 | SPW_JAX_F32, integer = SPW_JAX_S32, real = SPW_JAX_F32;
    spw_status status = SPW_OK;
    SPW_TRY(read_group(frame, &e.group));
    size_t ranks = e.group.ranks, behind = ranks + 1;
    const spw_jax_buffer x = {"x", &element, {&e.tokens, &e.hidden}, &e.token_rows};
    const spw_jax_buffer y = {"y", &element, {&e.tokens, &e.hidden}, &e.token_rows};
    const spw_jax_buffer expert = {"expert", &integer, {&e.tokens, &e.top_k}, &e.expert};
    const spw_jax_buffer weight = {"weight", &real, {&e.tokens, &e.top_k}, &e.weight};
    const spw_jax_buffer rows = {"rows", &element, {&e.rows_max, &e.hidden}, &e.rows};
    const spw_jax_buffer row_expert = {"row_expert", &integer, {&e.rows_max, &e.top_k}, &e.row_expert};
    const spw_jax_buffer row_weight = {"row_weight", &real, {&e.rows_max, &e.top_k}, &e.row_weight};
    const spw_jax_buffer source = {"source", &integer, {&e.rows_max}, &e.source};
    const spw_jax_buffer first = {"first", &integer, {&behind}, &e.first};
    const spw_jax_buffer place = {"place", &integer, {&e.tokens, &ranks}, &e.place};
    const spw_jax_buffer base = {"base", &integer, {&ranks}, &e.base};
    const struct {
        size_t arguments, results;
        spw_jax_buffer buffer[SPW_JAX_BUFFERS_MAX];
    } calls[] = {
        [SPW_JAX_DISPATCH] = {3,
                              7,
                              {x, expert, weight, rows, row_expert, row_weight, source, first, place, base}},
        [SPW_JAX_COMBINE] = {4, 1, {rows, place, base, first, y}},
        [SPW_JAX_DISPATCH_GRADIENT] = {5, 2, {rows, row_weight, place, base, first, y, weight}},
        [SPW_JAX_COMBINE_GRADIENT] = {4, 1, {y, place, base, first, rows}},
    };
    if (kind == SPW_JAX_DISPATCH) {
        SPW_TRY(spw_jax_read_number(frame, "experts", 1, INT32_MAX, &e.experts));
        if (ranks == 0 || e.experts % ranks != 0)
            SPW_TRY(spw_fail(SPW_EARG, "%zu experts on %zu ranks; a multiple of the ranks would be right",
                             e.experts, ranks));
    }
    SPW_TRY(spw_jax_read_buffers(frame, calls[kind].buffer, calls[kind].arguments, calls[kind].results));
    if (e.tokens == 0 || e.hidden == 0 || e.rows_max == 0 || e.tokens > (size_t)(INT32_MAX / 16) / ranks)
        SPW_TRY(spw_fail(SPW_EARG,
                         "%zu tokens of %zu elements, %zu rows: at least 1 each, and below 2^27 "
                         "tokens on all ranks would be right",
                         e.tokens, e.hidden, e.rows_max));
    if (e.top_k == SPW_JAX_ANY) e.top_k = 0;
    e.type = element;
    *out = e;
cleanup:
    return status;
}
