/* gmm and dense (docs/schemes.md, sections 1 and 2.4): a row for every choice, or every slot, travels to its expert's
 * buffer and back; weighted sums are formed where the tokens are. Nothing is sorted at the receiver. */
#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

static size_t slots_of(spw_plain_shape s) { return s.experts * s.sequences * s.capacity; }

static size_t rows_of(const spw_layer_gpu *l) {
    const spw_plain_shape s = l->form.plain;
    return s.kind == SPW_PLAIN_CAPACITY ? slots_of(s) : s.buffer_rows;
}

static size_t exchange_bytes(const spw_layer_gpu *l) {
    const spw_plain_shape s = l->form.plain;
    const size_t items = s.kind == SPW_PLAIN_CAPACITY ? slots_of(s) : l->tokens * s.top_k;
    return (3 * rows_of(l) + 2 * items) * s.hidden * 2 + 8 * (items + l->tokens * s.top_k);
}

static spw_status create(spw_layer_gpu *l, const spw_exchange_variant *variant) {
    size_t bytes[SPW_WORLD_RANKS];
    spw_status status = SPW_OK;
    SPW_TRY(spw_plain_create(l->world, l->form.plain, variant, 0, &l->plain));
    for (size_t r = 0; r < l->world->ranks; r++) bytes[r] = l->plain->rows * l->form.plain.hidden * 2;
    SPW_TRY(spw_world_allocate(l->world, bytes, l->dy));
cleanup:
    return status;
}

/* Slots of an expert are as many as there are, whatever the routing. */
static spw_status slot_offsets(spw_layer_gpu *l, size_t rank) {
    spw_layer_rank *k = &l->rank[rank];
    int *offset = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(l->local + 1, &offset));
    for (size_t x = 0; x <= l->local; x++) offset[x] = (int)(x * (rows_of(l) / l->local));
    SPW_TRY_GPU(cudaMalloc((void **)&k->own_offset, (l->local + 1) * 4), "allocate offsets");
    SPW_TRY_GPU(cudaMemcpy(k->own_offset, offset, (l->local + 1) * sizeof *offset, cudaMemcpyHostToDevice),
                "upload offsets");
    k->offset = k->own_offset;
cleanup:
    spw_free(offset);
    return status;
}

static spw_status create_rank(spw_layer_gpu *l, size_t rank) {
    const size_t bytes = l->plain->items * l->form.plain.hidden * 2;
    spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMalloc((void **)&k->d_local, bytes), "allocate a layer");
    SPW_TRY_GPU(cudaMemset(k->d_local, 0xff, bytes), "poison a layer");
    k->offset = l->plain->offset[rank];
    if (l->form.plain.kind == SPW_PLAIN_CAPACITY) SPW_TRY(slot_offsets(l, rank));
cleanup:
    return status;
}

static spw_status forward(spw_layer_gpu *l, const spw_layer_pass *pass) {
    spw_plain_exchange *e = l->plain;
    spw_status status = SPW_OK;
    SPW_TRY(spw_plain_assign(e, pass->expert));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_PLAN));
    SPW_TRY(spw_plain_fan_out(e, pass->x));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_FAN_OUT));
    SPW_TRY(spw_plain_send_rows(e, (const spw_bf16 *const *)e->local, NULL, NULL, SPW_COUNT_DISPATCH));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(
            spw_gpu_layer_experts_forward(l, r, (spw_layer_operands){.x = e->received[r]}, e->returned[r]));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return_rows(e, e->local, SPW_COUNT_COMBINE));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE));
    SPW_TRY(spw_plain_fan_in(e, pass->weight, pass->y));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_FAN_IN));
cleanup:
    return status;
}

static spw_status backward(spw_layer_gpu *l, const spw_layer_pass *pass) {
    spw_plain_exchange *e = l->plain;
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k;
    spw_bf16 *d_local[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        gpu_stream stream = l->world->stream[r];
        d_local[r] = l->rank[r].d_local;
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(spw_launch_combine_gradient((int)l->tokens, width, top_k, spw_plain_choice_rows(e, r),
                                                pass->weight[r], pass->x[r], e->local[r], d_local[r],
                                                pass->d_weight[r], stream),
                    "fan-in gradient");
        if (e->shape.kind == SPW_PLAIN_CAPACITY)
            SPW_TRY_GPU(
                spw_launch_fan_out_clear((int)e->items, width, e->slots[r].assignment, d_local[r], stream),
                "clear slots");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_IN_GRADIENT));
    }
    SPW_TRY(
        spw_plain_send_rows(e, (const spw_bf16 *const *)d_local, NULL, l->dy, SPW_COUNT_COMBINE_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(spw_gpu_layer_experts_backward(
            l, r, (spw_layer_operands){.x = e->received[r], .dy = l->dy[r]}, e->returned[r]));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return_rows(e, e->local, SPW_COUNT_DISPATCH_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH_GRADIENT));
    SPW_TRY(spw_plain_fan_in(e, NULL, pass->y));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_FAN_OUT_GRADIENT));
cleanup:
    return status;
}

const spw_layer_arrangement spw_layer_by_plain = {.rows = rows_of,
                                                  .exchange_bytes = exchange_bytes,
                                                  .create = create,
                                                  .create_rank = create_rank,
                                                  .forward = forward,
                                                  .backward = backward};
