#include "kernels/layer_gpu.h"

#include "base/memory.h"
#include "kernels/device.h"
#include "kernels/runtime.h"

#include <string.h>

#define TRY_GPU(call, what) SPW_TRY(spw_device_check((int)(call), what))

/* --- Creation --- */

static spw_status create_plan(spw_layer_gpu *l, spw_layer_rank *k, size_t rank) {
    const size_t choices = l->world->ranks * l->tokens * l->form.plain.top_k;
    const size_t chunks = (choices + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_plan_gpu *p = &k->plan;
    spw_status status = SPW_OK;
    *p = (spw_plan_gpu){.assignments = (int)choices, .experts = (int)l->local};
    p->expert = spw_dispatch_received(l->dispatch, rank).expert;
    TRY_GPU(cudaMalloc((void **)&p->chunk_count, chunks * l->local * 4), "allocate a plan");
    TRY_GPU(cudaMalloc((void **)&p->count, l->local * 4), "allocate a plan");
    TRY_GPU(cudaMalloc((void **)&p->row, choices * 4), "allocate a plan");
    TRY_GPU(cudaMalloc((void **)&p->assignment, choices * 4), "allocate a plan");
    p->offset = k->offset;
cleanup:
    return status;
}

/* Slots of an expert are as many as there are, whatever the routing. */
static spw_status slot_offsets(const spw_layer_gpu *l, int *to) {
    int *offset = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(l->local + 1, &offset));
    for (size_t x = 0; x <= l->local; x++) offset[x] = (int)(x * (l->rows / l->local));
    TRY_GPU(cudaMemcpy(to, offset, (l->local + 1) * sizeof *offset, cudaMemcpyHostToDevice),
            "upload offsets");
cleanup:
    spw_free(offset);
    return status;
}

static spw_status create_rank(spw_layer_gpu *l, size_t rank) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn, items = l->plain != NULL ? l->plain->items : 0;
    spw_layer_rank *k = &l->rank[rank];
    const struct {
        spw_bf16 **at;
        size_t elements;
    } arrays[] = {{&k->gate_up_weight, l->local * h * 2 * f},
                  {&k->down_weight, l->local * f * h},
                  {&k->gate_up_gradient, l->local * h * 2 * f},
                  {&k->down_gradient, l->local * f * h},
                  {&k->x, l->rows * h},
                  {&k->y, l->rows * h},
                  {&k->dy, l->rows * h},
                  {&k->dx, l->rows * h},
                  {&k->gate_up, l->rows * 2 * f},
                  {&k->d_gate_up, l->rows * 2 * f},
                  {&k->act, l->rows * f},
                  {&k->d_act, l->rows * f},
                  {&k->d_local, items * h}};
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(l->world, rank));
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        TRY_GPU(cudaMalloc((void **)arrays[i].at, arrays[i].elements * 2 + 16), "allocate a layer");
        TRY_GPU(cudaMemset(*arrays[i].at, 0xff, arrays[i].elements * 2), "poison a layer");
    }
    TRY_GPU(cudaMalloc((void **)&k->offset, (l->local + 1) * 4), "allocate offsets");
    if (l->form.dispatch) SPW_TRY(create_plan(l, k, rank));
    if (l->plain != NULL && l->form.plain.kind == SPW_PLAIN_CAPACITY) SPW_TRY(slot_offsets(l, k->offset));
    TRY_GPU(cudaDeviceSynchronize(), "poison a layer");
cleanup:
    return status;
}

spw_status spw_layer_create(spw_world *world, spw_layer_form form, const spw_exchange_variant *variant,
                            spw_layer_gpu **out) {
    const spw_plain_shape s = form.plain;
    spw_layer_gpu *l = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    if (!form.dispatch && s.kind == SPW_PLAIN_GATHER)
        return spw_fail(SPW_EARG, "the ring's layer is not there");
    SPW_TRY(SPW_ALLOC(1, &l));
    l->world = world, l->form = form;
    l->tokens = s.sequences * s.sequence_length, l->local = s.experts / world->ranks;
    for (l->gemm = spw_gemm_variants; l->gemm[1].name != NULL;) l->gemm++; /* the fastest */
    if (form.dispatch) {
        const spw_dispatch_shape shape = {l->tokens, s.top_k, s.experts, s.hidden, 2};
        SPW_TRY(spw_dispatch_create(world, shape, variant, 0, &l->dispatch));
        SPW_TRY(spw_dispatch_room(l->dispatch, NULL));
        l->rows = world->ranks * l->tokens * (l->local < s.top_k ? l->local : s.top_k);
    } else {
        SPW_TRY(spw_plain_create(world, s, variant, 0, &l->plain));
        l->rows = l->plain->rows;
    }
    for (size_t r = world->first; r < world->behind; r++) SPW_TRY(create_rank(l, r));
    *out = l;
    return SPW_OK;
cleanup:
    spw_layer_destroy(l);
    return status;
}

void spw_layer_destroy(spw_layer_gpu *l) {
    if (l == NULL) return;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        spw_layer_rank *k = &l->rank[r];
        void *memory[] = {k->gate_up_weight,
                          k->down_weight,
                          k->gate_up_gradient,
                          k->down_gradient,
                          k->x,
                          k->y,
                          k->dy,
                          k->dx,
                          k->gate_up,
                          k->d_gate_up,
                          k->act,
                          k->d_act,
                          k->d_local,
                          k->offset,
                          k->plan.chunk_count,
                          k->plan.count,
                          k->plan.row,
                          k->plan.assignment};
        if (spw_world_use(l->world, r) != SPW_OK) continue;
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
    }
    spw_dispatch_destroy(l->dispatch);
    spw_plain_destroy(l->plain);
    spw_free(l);
}

/* --- The experts of one rank --- */

static const int *offset_of(const spw_layer_gpu *l, size_t rank) {
    const bool ragged = l->plain != NULL && l->form.plain.kind == SPW_PLAIN_RAGGED;
    return ragged ? l->plain->offset[rank] : l->rank[rank].offset;
}

static spw_status gemm(const spw_layer_gpu *l, size_t rank, spw_gemm_operation operation, size_t in,
                       size_t out, const spw_bf16 *left, const spw_bf16 *right, spw_bf16 *result) {
    const spw_gemm_shape shape = {l->local, l->rows, in, out, false};
    return spw_gpu_grouped_gemm(l->gemm, operation, shape, left, right, offset_of(l, rank), result,
                                l->world->stream[rank]);
}

static spw_swiglu_gpu swiglu_of(const spw_layer_gpu *l, const spw_layer_rank *k) {
    const int ffn = (int)l->form.ffn;
    return (spw_swiglu_gpu){
        .rows = (int)l->rows, .ffn = ffn, .stride = 2 * ffn, .gate = k->gate_up, .up = k->gate_up + ffn};
}

/* y of k->x. */
static spw_status experts_forward(const spw_layer_gpu *l, size_t rank, spw_bf16 *y) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    SPW_TRY(gemm(l, rank, SPW_GEMM_FORWARD, h, 2 * f, k->x, k->gate_up_weight, k->gate_up));
    TRY_GPU(spw_launch_swiglu(swiglu_of(l, k), k->act, l->world->stream[rank]), "swiglu");
    SPW_TRY(gemm(l, rank, SPW_GEMM_FORWARD, f, h, k->act, k->down_weight, y));
cleanup:
    return status;
}

static spw_status experts_backward(const spw_layer_gpu *l, size_t rank, const spw_bf16 *dy, spw_bf16 *dx) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, f, h, dy, k->down_weight, k->d_act));
    SPW_TRY(gemm(l, rank, SPW_GEMM_WEIGHT_GRADIENT, f, h, k->act, dy, k->down_gradient));
    TRY_GPU(spw_launch_swiglu_gradient(swiglu_of(l, k), k->d_act, k->d_gate_up, k->d_gate_up + f,
                                       l->world->stream[rank]),
            "swiglu gradient");
    SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, h, 2 * f, k->d_gate_up, k->gate_up_weight, dx));
    SPW_TRY(gemm(l, rank, SPW_GEMM_WEIGHT_GRADIENT, h, 2 * f, k->x, k->d_gate_up, k->gate_up_gradient));
cleanup:
    return status;
}

/* --- gmm-deepep --- */

static spw_status forward_dispatch(spw_layer_gpu *l, const spw_bf16 *const *x, const int *const *expert,
                                   const float *const *weight, spw_bf16 *const *y) {
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k,
              all = (int)(l->world->ranks * l->tokens);
    spw_dispatch_input in = {.x = {NULL}};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        in.x[r] = x[r], in.expert[r] = expert[r], in.weight[r] = weight[r];
        SPW_TRY(spw_world_use(l->world, r));
        TRY_GPU(cudaMemsetAsync(spw_dispatch_received(l->dispatch, r).expert, 0xff,
                                (size_t)all * (size_t)top_k * 4, l->world->stream[r]),
                "no choices yet"); /* of rows that do not come */
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_forward(l->dispatch, &in));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        const spw_received got = spw_dispatch_received(l->dispatch, r);
        gpu_stream stream = l->world->stream[r];
        SPW_TRY(spw_world_use(l->world, r));
        TRY_GPU(spw_launch_plan(k->plan, stream), "plan");
        TRY_GPU(spw_launch_fan_out(all, width, top_k, k->plan.row, got.rows, k->x, stream), "fan-out");
        SPW_TRY(experts_forward(l, r, k->y));
        TRY_GPU(spw_launch_combine(all, width, top_k, k->plan.row, got.weight, k->y, l->dispatch->returned[r],
                                   stream),
                "fan-in");
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_combine(l->dispatch, y, NULL, SPW_COUNT_COMBINE));
cleanup:
    return status;
}

static spw_status backward_dispatch(spw_layer_gpu *l, const spw_bf16 *const *dy, spw_bf16 *const *dx,
                                    float *const *d_weight) {
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k,
              all = (int)(l->world->ranks * l->tokens);
    spw_dispatch_input in = {.x = {NULL}};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) in.x[r] = dy[r];
    SPW_TRY(spw_dispatch_again(l->dispatch, &in, SPW_COUNT_COMBINE_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        const spw_received got = spw_dispatch_received(l->dispatch, r);
        gpu_stream stream = l->world->stream[r];
        spw_bf16 *rows = l->dispatch->returned[r];
        float *side = (float *)(void *)(rows + l->dispatch->capacity[r] * l->form.plain.hidden);
        SPW_TRY(spw_world_use(l->world, r));
        TRY_GPU(spw_launch_combine_gradient(all, width, top_k, k->plan.row, got.weight, got.rows, k->y, k->dy,
                                            side, stream),
                "fan-in gradient");
        SPW_TRY(experts_backward(l, r, k->dy, k->dx));
        TRY_GPU(spw_launch_combine(all, width, top_k, k->plan.row, NULL, k->dx, rows, stream),
                "fan-out gradient");
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_combine(l->dispatch, dx, d_weight, SPW_COUNT_DISPATCH_GRADIENT));
cleanup:
    return status;
}

/* --- gmm and dense --- */

static spw_status forward_plain(spw_layer_gpu *l, const spw_bf16 *const *x, const int *const *expert,
                                const float *const *weight, spw_bf16 *const *y) {
    spw_plain_exchange *e = l->plain;
    spw_status status = SPW_OK;
    SPW_TRY(spw_plain_send(e, x, expert, NULL));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        TRY_GPU(cudaMemcpyAsync(l->rank[r].x, e->received[r], l->rows * l->form.plain.hidden * 2,
                                cudaMemcpyDeviceToDevice, l->world->stream[r]),
                "keep x"); /* the gradients come into the same buffer */
        SPW_TRY(experts_forward(l, r, e->returned[r]));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return(e, weight, y, SPW_COUNT_COMBINE));
cleanup:
    return status;
}

static spw_status backward_plain(spw_layer_gpu *l, const spw_bf16 *const *dy, const float *const *weight,
                                 spw_bf16 *const *dx, float *const *d_weight) {
    spw_plain_exchange *e = l->plain;
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k;
    spw_bf16 *d_local[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        gpu_stream stream = l->world->stream[r];
        d_local[r] = l->rank[r].d_local;
        SPW_TRY(spw_world_use(l->world, r));
        TRY_GPU(spw_launch_combine_gradient((int)l->tokens, width, top_k, spw_plain_choice_rows(e, r),
                                            weight[r], dy[r], e->local[r], d_local[r], d_weight[r], stream),
                "combine gradient");
        if (e->shape.kind == SPW_PLAIN_CAPACITY)
            TRY_GPU(
                spw_launch_fan_out_clear((int)e->items, width, e->slots[r].assignment, d_local[r], stream),
                "clear slots");
    }
    SPW_TRY(spw_plain_send_rows(e, (const spw_bf16 *const *)d_local, NULL, SPW_COUNT_COMBINE_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(experts_backward(l, r, e->received[r], e->returned[r]));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return(e, NULL, dx, SPW_COUNT_DISPATCH_GRADIENT));
cleanup:
    return status;
}

spw_status spw_layer_forward(spw_layer_gpu *l, const spw_bf16 *const *x, const int *const *expert,
                             const float *const *weight, spw_bf16 *const *y) {
    return l->form.dispatch ? forward_dispatch(l, x, expert, weight, y)
                            : forward_plain(l, x, expert, weight, y);
}

spw_status spw_layer_backward(spw_layer_gpu *l, const spw_bf16 *const *dy, const float *const *weight,
                              spw_bf16 *const *dx, float *const *d_weight) {
    return l->form.dispatch ? backward_dispatch(l, dy, dx, d_weight)
                            : backward_plain(l, dy, weight, dx, d_weight);
}
