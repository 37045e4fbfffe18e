/* The custom calls on GPUs. Every device's thread launches the kernels of its own rank on the stream that XLA gives; nothing
 * waits on the host but the first call of a group, and one that needs more room. */
#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/jax/jax_calls.h"
#include "kernels/jax/jax_experts.h"
#include "kernels/jax/jax_gpu_group.h"
#include "kernels/jax/jax_rows_launch.h"

#include <limits.h>

enum { ALIGNED = 16 };

static spw_status check_type(spw_jax_type type, size_t width, const char *what) {
    if (type == SPW_JAX_F32) return spw_fail(SPW_EARG, "fp32; bf16 would be right on a GPU");
    if (width % 8 != 0)
        return spw_fail(SPW_EARG, "%s is %zu; a multiple of 8 would be right on a GPU", what, width);
    return SPW_OK;
}

static spw_status check_aligned(const void *const *data, size_t count) {
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)data[i] % ALIGNED != 0)
            return spw_fail(SPW_EARG, "buffer %zu lies at %p; a multiple of %d bytes would be right", i,
                            data[i], ALIGNED);
    return SPW_OK;
}

static spw_status use_device(const XLA_FFI_CallFrame *frame, gpu_stream *stream) {
    int device = 0;
    void *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_jax_read_device(frame, &device));
    SPW_TRY(spw_jax_read_stream(frame, &at));
    SPW_TRY_GPU(cudaSetDevice(device), "choose a GPU");
    *stream = (gpu_stream)at;
cleanup:
    return status;
}

static spw_status gemm(const XLA_FFI_CallFrame *frame, unsigned kind) {
    static const spw_gemm_operation operation[] = {
        [SPW_JAX_FORWARD] = SPW_GEMM_FORWARD,
        [SPW_JAX_INPUT] = SPW_GEMM_INPUT_GRADIENT,
        [SPW_JAX_WEIGHT] = SPW_GEMM_WEIGHT_GRADIENT,
    };
    const spw_gemm_variant *fastest = spw_gemm_variants;
    gpu_stream stream = NULL;
    spw_jax_gemm g;
    spw_status status = SPW_OK;
    while (fastest[1].name != NULL) fastest++;
    SPW_TRY(spw_jax_read_gemm(frame, kind, &g));
    SPW_TRY(check_type(g.type, 8, "a width"));
    SPW_TRY(check_aligned((const void *const[]){g.left, g.right, g.result}, 3));
    if (g.shape.experts > INT_MAX / 2 || g.shape.rows > INT_MAX / 2)
        SPW_TRY(spw_fail(SPW_EARG, "%zu experts, %zu rows; each below 2^30 would be right", g.shape.experts,
                         g.shape.rows));
    SPW_TRY(use_device(frame, &stream));
    SPW_TRY_GPU(spw_launch_jax_offsets((int)g.shape.experts, (int)g.shape.rows, g.size, g.offset, stream),
                "offsets");
    SPW_TRY(
        spw_gpu_grouped_gemm(fastest, operation[kind], g.shape, g.left, g.right, g.offset, g.result, stream));
cleanup:
    return status;
}

/* --- Exchanges --- */

/* Bytes of a rank's windows: rows that came with their words, and rows that go back with the numbers beside them. */
static void window_bytes(const spw_jax_exchange *e, size_t bytes[2]) {
    const size_t row = e->hidden * sizeof(spw_bf16);
    bytes[0] = e->rows_max * (row + 4 * (2 * e->top_k + 1));
    bytes[1] = e->rows_max * (row + 4 * e->top_k);
}

/* The parts of this rank's receive window behind the rows, as spw_send_gpu lays them out. */
typedef struct words {
    unsigned *expert, *weight, *source;
} words;
static words words_of(const spw_jax_exchange *e, void *window) {
    words w = {.expert = (unsigned *)window + e->rows_max * e->hidden / 2};
    w.weight = w.expert + e->rows_max * e->top_k;
    w.source = w.weight + e->rows_max * e->top_k;
    return w;
}

static spw_jax_column row_column(const spw_jax_exchange *e, const void *from, const void *to) {
    return (spw_jax_column){from, (unsigned *)to, (int)(e->hidden / 2), 0};
}

static spw_send_gpu send_of(const spw_jax_exchange *e, const spw_jax_gpu_group *g, int parts,
                            const int *base) {
    spw_send_gpu a = {.items = (int)e->tokens,
                      .copies = (int)g->ranks,
                      .row_bytes = (int)(e->hidden * sizeof(spw_bf16)),
                      .top_k = (int)e->top_k,
                      .local = (int)(e->experts / g->ranks),
                      .parts = parts,
                      .counter = parts == 0 ? SPW_COUNT_COMBINE_GRADIENT : SPW_COUNT_DISPATCH,
                      .blocks = g->blocks,
                      .payload = e->token_rows,
                      .expert = e->expert,
                      .weight = e->weight,
                      .place = e->place,
                      .base = base,
                      .handle = g->rank[e->group.rank].handle};
    for (size_t r = 0; r < g->ranks; r++) a.window[r] = g->received[r], a.capacity[r] = (int)e->rows_max;
    return a;
}

static spw_status move(const spw_jax_exchange *e, const spw_jax_gpu_group *g, const void *first, bool fills,
                       const spw_jax_column *column, int columns, gpu_stream stream) {
    spw_jax_move m = {.rows = (int)e->rows_max,
                      .columns = columns,
                      .fills = fills,
                      .blocks = 4 * g->blocks,
                      .limit = (const int *)first + g->ranks};
    for (int i = 0; i < columns; i++) m.column[i] = column[i];
    return spw_device_check(spw_launch_jax_move(&m, stream), "move rows");
}

static spw_status dispatch(const spw_jax_exchange *e, spw_jax_gpu_group *g, gpu_stream stream) {
    const size_t own = e->group.rank;
    const spw_peers peers = spw_jax_gpu_peers(g, own);
    const spw_handle *handle = g->rank[own].handle;
    const spw_send_gpu send =
        send_of(e, g, SPW_SEND_NOTICED | SPW_SEND_CHOICES | SPW_SEND_SOURCE, handle->base);
    const spw_layout_gpu layout = {.tokens = (int)e->tokens,
                                   .top_k = (int)e->top_k,
                                   .experts = (int)e->experts,
                                   .expert = e->expert,
                                   .place = (int *)e->place,
                                   .rank_tokens = g->rank[own].rank_tokens,
                                   .expert_tokens = g->rank[own].expert_tokens};
    const words w = words_of(e, g->received[own]);
    const spw_jax_column column[] = {
        row_column(e, g->received[own], e->rows),
        {w.expert, (unsigned *)e->row_expert, (int)e->top_k, ~0u},
        {w.weight, (unsigned *)e->row_weight, (int)e->top_k, 0},
        {w.source, (unsigned *)e->source, 1, ~0u},
    };
    spw_status status = SPW_OK;
    SPW_TRY_GPU(spw_launch_exchange_layout(layout, peers, stream), "layout");
    SPW_TRY_GPU(spw_launch_exchange_send(&send, &peers, stream), "dispatch");
    SPW_TRY_GPU(cudaMemcpyAsync((void *)e->first, handle->first, (g->ranks + 1) * sizeof(int),
                                cudaMemcpyDeviceToDevice, stream),
                "copy the first rows");
    SPW_TRY_GPU(cudaMemcpyAsync((void *)e->base, handle->base, g->ranks * sizeof(int),
                                cudaMemcpyDeviceToDevice, stream),
                "copy the bases");
    SPW_TRY(move(e, g, e->first, true, column, 4, stream));
cleanup:
    return status;
}

static spw_status combine(const spw_jax_exchange *e, spw_jax_gpu_group *g, gpu_stream stream) {
    const size_t own = e->group.rank;
    const bool side = e->kind == SPW_JAX_DISPATCH_GRADIENT;
    const spw_peers peers = spw_jax_gpu_peers(g, own);
    spw_reduce_gpu reduce = {.items = (int)e->tokens,
                             .copies = (int)g->ranks,
                             .width = (int)e->hidden,
                             .side = side ? (int)e->top_k : 0,
                             .counter = side ? SPW_COUNT_DISPATCH_GRADIENT : SPW_COUNT_COMBINE,
                             .blocks = g->blocks,
                             .place = e->place,
                             .base = e->base,
                             .y = (spw_bf16 *)e->token_rows,
                             .side_sum = side ? (float *)e->weight : NULL};
    const spw_jax_column column[] = {
        row_column(e, e->rows, g->returned[own]),
        {e->row_weight, (unsigned *)g->returned[own] + e->rows_max * e->hidden / 2, (int)e->top_k, 0},
    };
    spw_status status = SPW_OK;
    for (size_t r = 0; r < g->ranks; r++)
        reduce.window[r] = g->returned[r], reduce.capacity[r] = (int)e->rows_max;
    SPW_TRY(move(e, g, e->first, false, column, side ? 2 : 1, stream));
    SPW_TRY_GPU(spw_launch_exchange_reduce(&reduce, &peers, stream), "combine");
cleanup:
    return status;
}

static spw_status combine_gradient(const spw_jax_exchange *e, spw_jax_gpu_group *g, gpu_stream stream) {
    const spw_peers peers = spw_jax_gpu_peers(g, e->group.rank);
    const spw_send_gpu send = send_of(e, g, 0, e->base);
    const spw_jax_column column = row_column(e, g->received[e->group.rank], e->rows);
    spw_status status = SPW_OK;
    SPW_TRY_GPU(spw_launch_exchange_send(&send, &peers, stream), "gradient of combine");
    SPW_TRY(move(e, g, e->first, true, &column, 1, stream));
cleanup:
    return status;
}

static spw_status exchange(const XLA_FFI_CallFrame *frame, unsigned kind) {
    static spw_status (*const works[])(const spw_jax_exchange *, spw_jax_gpu_group *, gpu_stream) = {
        [SPW_JAX_DISPATCH] = dispatch,
        [SPW_JAX_COMBINE] = combine,
        [SPW_JAX_DISPATCH_GRADIENT] = combine,
        [SPW_JAX_COMBINE_GRADIENT] = combine_gradient,
    };
    spw_jax_gpu_group *group = NULL;
    gpu_stream stream = NULL;
    spw_jax_exchange e;
    size_t bytes[2];
    spw_status status = SPW_OK;
    SPW_TRY(spw_jax_read_exchange(frame, kind, &e));
    SPW_TRY(check_type(e.type, e.hidden, "hidden"));
    SPW_TRY(check_aligned((const void *const[]){e.token_rows, e.rows}, 2));
    if (e.experts / e.group.ranks > SPW_WORLD_EXPERTS)
        SPW_TRY(spw_fail(SPW_EARG, "%zu experts on %zu ranks; at most %d a rank would be right", e.experts,
                         e.group.ranks, SPW_WORLD_EXPERTS));
    if (e.rows_max > INT_MAX / 2 || e.hidden > 1 << 20 || e.tokens * e.top_k > INT_MAX / 16)
        SPW_TRY(spw_fail(SPW_EARG, "%zu rows of %zu elements, top-%zu of %zu tokens: out of range",
                         e.rows_max, e.hidden, e.top_k, e.tokens));
    SPW_TRY(use_device(frame, &stream));
    window_bytes(&e, bytes);
    SPW_TRY(spw_jax_gpu_enter(&e.group, bytes, &group));
    SPW_TRY(works[kind](&e, group, stream));
    SPW_TRY(spw_jax_gpu_note(group, e.group.rank, stream));
cleanup:
    return status;
}

/* --- Expert layers --- */

static spw_status experts(const XLA_FFI_CallFrame *frame, unsigned operation) {
    spw_experts_call call;
    spw_status status = SPW_OK;
    SPW_TRY(spw_jax_read_experts(frame, operation, &call));
    SPW_TRY(spw_jax_read_device(frame, &call.device));
    SPW_TRY(spw_jax_read_stream(frame, &call.stream));
    SPW_TRY(spw_experts_run(&call));
cleanup:
    return status;
}

#if defined(SPW_HIP)
SPW_JAX_HANDLERS(rocm, gemm, exchange)
SPW_JAX_EXPERTS_HANDLERS(rocm, experts)
#else
SPW_JAX_HANDLERS(cuda, gemm, exchange)
SPW_JAX_EXPERTS_HANDLERS(cuda, experts)
#endif
