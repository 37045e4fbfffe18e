#include "kernels/layer/layer_memory.h"

#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

void spw_gpu_layer_row_tensors(const spw_layer_gpu *l, spw_layer_rank *k, spw_layer_tensor *out) {
    const size_t f = l->form.ffn, h = l->own_rows ? l->form.plain.hidden : 0;
    const size_t copies = l->fused ? 0 : h;
    const size_t sums = 2 * ((f + SPW_GEMM_ROW_SUM_TILE - 1) / SPW_GEMM_ROW_SUM_TILE);
    const spw_layer_tensor all[SPW_LAYER_ROW_TENSORS] = {{&k->x, copies},
                                                         {&k->y, h},
                                                         {&k->dy, copies},
                                                         {&k->dx, h},
                                                         {&k->gate_up, 2 * f},
                                                         {&k->d_gate_up, 2 * f},
                                                         {&k->act, f},
                                                         {&k->d_act, l->fused ? 0 : f},
                                                         {&k->row_sum, l->fused ? sums : 0}};
    for (int i = 0; i < SPW_LAYER_ROW_TENSORS; i++) out[i] = all[i];
}

void spw_gpu_layer_weight_tensors(const spw_layer_gpu *l, spw_layer_rank *k, spw_layer_tensor *out) {
    const size_t matrix = l->local * l->form.plain.hidden * l->form.ffn;
    const spw_layer_tensor all[SPW_LAYER_WEIGHTS] = {{&k->gate_up_weight, 2 * matrix},
                                                     {&k->down_weight, matrix},
                                                     {&k->gate_up_gradient, 2 * matrix},
                                                     {&k->down_gradient, matrix}};
    for (int i = 0; i < SPW_LAYER_WEIGHTS; i++) out[i] = all[i];
}

spw_status spw_gpu_layer_take(spw_bf16 **at, size_t elements) {
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMalloc((void **)at, elements * 2 + 16), "allocate a layer");
    SPW_TRY_GPU(cudaMemset(*at, 0xff, elements * 2), "poison a layer");
cleanup:
    return status;
}

spw_status spw_gpu_layer_make_room(spw_layer_gpu *l, size_t rank, size_t rows) {
    spw_layer_rank *k = &l->rank[rank];
    spw_layer_tensor all[SPW_LAYER_ROW_TENSORS];
    spw_status status = SPW_OK;
    k->rows = rows;
    if (k->gate_up != NULL && rows <= k->room) return SPW_OK;
    k->room = 0;
    spw_gpu_layer_row_tensors(l, k, all);
    for (int i = 0; i < SPW_LAYER_ROW_TENSORS; i++) {
        (void)cudaFree(*all[i].at);
        *all[i].at = NULL;
        if (all[i].width > 0) SPW_TRY(spw_gpu_layer_take(all[i].at, rows * all[i].width));
    }
    k->room = rows;
    SPW_TRY_GPU(cudaDeviceSynchronize(), "poison a layer");
cleanup:
    return status;
}

spw_status spw_gpu_layer_create_plan(spw_layer_gpu *l, size_t rank, size_t choices) {
    const size_t chunks = (choices + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_layer_rank *k = &l->rank[rank];
    spw_plan_gpu *p = &k->plan;
    spw_status status = SPW_OK;
    *p = (spw_plan_gpu){.assignments = (int)choices, .experts = (int)l->local};
    SPW_TRY_GPU(cudaMalloc((void **)&p->chunk_count, chunks * l->local * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->count, l->local * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->row, choices * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->assignment, choices * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&k->own_offset, (l->local + 1) * 4), "allocate offsets");
    p->offset = k->own_offset, k->offset = k->own_offset;
cleanup:
    return status;
}
