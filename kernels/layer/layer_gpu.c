#include "kernels/layer/layer_gpu.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_memory.h"
#include "kernels/layer/layer_steps.h"

#define PHASE_NAME(name, text) [SPW_LAYER_##name] = (text),
const char *const spw_layer_phase_names[SPW_LAYER_PHASES] = {SPW_LAYER_PHASE_LIST(PHASE_NAME)};

static const spw_layer_arrangement *arrangement_of(const spw_layer_gpu *l) {
    static const spw_layer_arrangement *const arrangements[SPW_LAYER_KINDS] = {
        [SPW_LAYER_BY_DISPATCH] = &spw_layer_by_dispatch,
        [SPW_LAYER_BY_EXACT_DISPATCH] = &spw_layer_by_exact_dispatch,
        [SPW_LAYER_BY_PLAIN] = &spw_layer_by_plain,
        [SPW_LAYER_BY_RING] = &spw_layer_by_ring};
    return arrangements[l->form.kind];
}

/* Products that gather are a fifth to a third slower than others: docs/validation_gpu.md, "Fused products". With wider
 * experts that costs more than the copies of rows that they save. */
enum { WIDEST_FUSED = 512 };

/* Its sizes; everything else is NULL. */
static void size_layer(spw_layer_gpu *l, spw_world *world, spw_layer_form form) {
    l->world = world, l->form = form, l->own_rows = arrangement_of(l)->own_rows;
    l->fused = !form.unfused && arrangement_of(l)->gathers && form.ffn <= WIDEST_FUSED;
    l->tokens = form.plain.sequences * form.plain.sequence_length;
    l->local = form.plain.experts / world->ranks;
}

spw_status spw_gpu_layer_bytes(spw_world *world, spw_layer_form form, size_t *bytes) {
    spw_layer_gpu *l = NULL;
    spw_layer_tensor rows[SPW_LAYER_ROW_TENSORS], weights[SPW_LAYER_WEIGHTS];
    const spw_status status = SPW_ALLOC(1, &l);
    if (status != SPW_OK) return status;
    size_layer(l, world, form);
    spw_gpu_layer_row_tensors(l, &l->rank[0], rows), spw_gpu_layer_weight_tensors(l, &l->rank[0], weights);
    *bytes = arrangement_of(l)->exchange_bytes(l);
    for (int i = 0; i < SPW_LAYER_ROW_TENSORS; i++) *bytes += arrangement_of(l)->rows(l) * rows[i].width * 2;
    for (int i = 0; i < SPW_LAYER_WEIGHTS; i++) *bytes += weights[i].width * 2;
    if (l->fused) *bytes += world->ranks * l->tokens * form.plain.hidden * 2;
    spw_free(l);
    return SPW_OK;
}

spw_status spw_gpu_layer_create(spw_world *world, spw_layer_form form, const spw_exchange_variant *variant,
                                spw_layer_gpu **out) {
    spw_layer_gpu *l = NULL;
    spw_layer_tensor weights[SPW_LAYER_WEIGHTS];
    spw_status status = SPW_OK;
    *out = NULL;
    if (form.plain.experts == 0 || form.plain.experts % world->ranks != 0)
        return spw_fail(SPW_EARG, "%zu experts on %zu ranks; a multiple of the ranks would be right",
                        form.plain.experts, world->ranks);
    if (form.plain.top_k == 0 || form.plain.top_k > SPW_GPU_TOP_K_MAX)
        return spw_fail(SPW_EARG, "top-%zu; 1 to %d would be right", form.plain.top_k, SPW_GPU_TOP_K_MAX);
    if (form.activation.plain != SPW_GATED ||
        (form.activation.limit > 0 && form.activation.gate != SPW_GATE_SILU))
        return spw_fail(SPW_EARG, "the layer's activation; SwiGLU, clamped or not, or GeGLU would be right");
    SPW_TRY(SPW_ALLOC(1, &l));
    size_layer(l, world, form);
    for (l->gemm = spw_gemm_variants; l->gemm[1].name != NULL;) l->gemm++; /* the fastest */
    const spw_layer_arrangement *a = arrangement_of(l);
    SPW_TRY(a->create(l, variant));
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        spw_gpu_layer_weight_tensors(l, &l->rank[r], weights);
        for (int i = 0; i < SPW_LAYER_WEIGHTS; i++)
            SPW_TRY(spw_gpu_layer_take(weights[i].at, weights[i].width));
        SPW_TRY(a->create_rank(l, r));
        if (!a->later) SPW_TRY(spw_gpu_layer_make_room(l, r, a->rows(l)));
        SPW_TRY_GPU(cudaDeviceSynchronize(), "poison a layer");
    }
    *out = l;
    return SPW_OK;
cleanup:
    spw_gpu_layer_destroy(l);
    return status;
}

void spw_gpu_layer_destroy(spw_layer_gpu *l) {
    if (l == NULL) return;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        spw_layer_rank *k = &l->rank[r];
        spw_layer_tensor rows[SPW_LAYER_ROW_TENSORS], weights[SPW_LAYER_WEIGHTS];
        void *memory[] = {k->d_local,       k->own_offset,      k->plan.chunk_count, k->plan.count,
                          k->plan.row,      k->plan.assignment, k->ring.expert,      k->ring.weight,
                          k->ring.d_weight, k->ring.words,      k->ring.side,        k->token};
        if (spw_world_use(l->world, r) != SPW_OK) continue;
        spw_gpu_layer_row_tensors(l, k, rows), spw_gpu_layer_weight_tensors(l, k, weights);
        for (int i = 0; i < SPW_LAYER_ROW_TENSORS; i++) (void)cudaFree(*rows[i].at);
        for (int i = 0; i < SPW_LAYER_WEIGHTS; i++) (void)cudaFree(*weights[i].at);
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
    }
    spw_world_free(l->world, l->dy);
    spw_dispatch_destroy(l->dispatch);
    spw_plain_destroy(l->plain);
    spw_free(l);
}

spw_status spw_gpu_layer_forward(spw_layer_gpu *l, const spw_bf16 *const *x, const int *const *expert,
                                 const float *const *weight, spw_bf16 *const *y) {
    const spw_layer_pass pass = {.x = x, .expert = expert, .weight = weight, .y = y};
    return arrangement_of(l)->forward(l, &pass);
}

spw_status spw_gpu_layer_backward(spw_layer_gpu *l, const spw_bf16 *const *dy, const float *const *weight,
                                  spw_bf16 *const *dx, float *const *d_weight) {
    const spw_layer_pass pass = {.x = dy, .weight = weight, .y = dx, .d_weight = d_weight};
    return arrangement_of(l)->backward(l, &pass);
}
