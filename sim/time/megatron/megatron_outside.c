#include "sim/time/megatron/megatron_outside.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/memory/kept/cross_entropy.h"
#include "sim/schemes/list.h"
#include "sim/time/fp8_time.h"
#include "sim/time/megatron/grid_time.h"
#include "sim/time/megatron/megatron_hidden.h"
#include "sim/weights/block.h"

const spw_outside_name spw_outside_names[SPW_OUTSIDE_PARTS] = {
    [SPW_OUTSIDE_PROJECTIONS] = {"attention_projections", "products of attention"},
    [SPW_OUTSIDE_ATTENTION] = {"attention", "scores and context"},
    [SPW_OUTSIDE_DENSE_FFN] = {"dense_ffn", "FFN of layers without experts"},
    [SPW_OUTSIDE_SHARED] = {"shared_expert", "shared experts"},
    [SPW_OUTSIDE_HEAD] = {"head", "logits of the vocabulary"},
    [SPW_OUTSIDE_LOSS] = {"loss", "softmax and gradient of the logits"},
    [SPW_OUTSIDE_ELEMENTWISE] = {"elementwise", "norms, rotations, activations, residuals"},
    [SPW_OUTSIDE_CASTS] = {"fp8_casts", "operands of products, to fp8"},
    [SPW_OUTSIDE_ROUTER] = {"unfused_router", "what PyTorch's router takes more than the fused one"},
    [SPW_OUTSIDE_ROTATION] = {"unfused_rotation", "what PyTorch's rotation takes more than the fused one"},
    [SPW_OUTSIDE_TENSOR] = {"tensor_parallel", "gathers and scatters of layers in a tensor group",
                            SPW_STREAM_COLLECTIVE},
    [SPW_OUTSIDE_CONTEXT] = {"context_parallel", "keys and values round a context group",
                             SPW_STREAM_COLLECTIVE},
    [SPW_OUTSIDE_ENDS] = {"tensor_parallel_ends", "embedding, head and loss of a tensor group",
                          SPW_STREAM_COLLECTIVE}};

double spw_megatron_cut(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return (double)(g.tensor * g.context);
}

/* Of every GPU; a sparse indexer's products are made for all tokens of a tensor group on each of its GPUs. */
static double projections_of(const spw_job *job, const spw_model_work *w) {
    const double tensor = (double)spw_grid_of(job).tensor;
    return (w->projections + (tensor - 1.0) * w->indexer) / spw_megatron_cut(job);
}

/* Of all logits of a data-parallel rank's micro-batch. */
static double loss_bytes(const spw_megatron_coefficients *c, const spw_point *point) {
    const double logits =
        (double)(point->shape.sequences * point->job->sequence_length) * (double)point->job->model.vocab;
    switch (spw_cross_entropy_of(point->job, point->scheme)) {
    case SPW_CROSS_ENTROPY_NATIVE: return logits * c->loss_native_bytes.value;
    case SPW_CROSS_ENTROPY_UNFUSED: return logits * c->loss_unfused_bytes.value;
    default: return logits * c->loss_fused_bytes.value;
    }
}

static spw_status count_grid(const spw_megatron_coefficients *c, const spw_point *point,
                             spw_megatron_outside *out) {
    spw_grid_time time;
    const spw_status status = spw_grid_time_of(c, point, &time);
    const spw_grid_seconds *of[] = {&time.tensor, &time.context, &time.ends};
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < SPW_COUNT_OF(of); i++) {
        out->seconds[SPW_OUTSIDE_TENSOR + i] = of[i]->all;
        out->forward_share[SPW_OUTSIDE_TENSOR + i] = of[i]->all > 0.0 ? of[i]->forward / of[i]->all : 0.0;
    }
    out->gradients_s = time.gradients;
    return SPW_OK;
}

spw_status spw_megatron_outside_of(const spw_megatron_coefficients *c, const spw_point *point,
                                   const spw_model_passes *passes, spw_megatron_outside *out) {
    const spw_job *job = point->job;
    const double dense = c->peak_flops.value * c->dense_flops_share.value,
                 scores = c->peak_flops.value * c->attention_flops_share.value,
                 linear = dense * spw_fp8_product_gain(job), cut = spw_megatron_cut(job);
    const double cast_bytes = (double)point->shape.tokens *
                              (spw_fp8_cast_bytes(job) + spw_fp8_settle_bytes(job, point->shape.tokens));
    spw_model_work w, once; /* once: without what modules do again */
    *out = (spw_megatron_outside){.gradients_s = 0.0};
    if (job->part == SPW_PART_EXPERT_LAYERS) return SPW_OK;
    const spw_model_passes plain = {.layers = passes->layers,
                                    .attention = passes->attention,
                                    .shared = passes->layers,
                                    .dense = passes->layers,
                                    .up = passes->layers};
    spw_model_work_count(job, point->shape.sequences, passes, &w);
    spw_model_work_count(job, point->shape.sequences, &plain, &once);
    *out = (spw_megatron_outside){
        .seconds = {[SPW_OUTSIDE_PROJECTIONS] = projections_of(job, &w) / linear,
                    [SPW_OUTSIDE_ATTENTION] = w.attention / scores / cut,
                    [SPW_OUTSIDE_DENSE_FFN] = w.dense_ffn / linear / cut,
                    [SPW_OUTSIDE_SHARED] = (w.shared_expert + w.latent) / linear / cut,
                    [SPW_OUTSIDE_HEAD] = w.head / dense / cut,
                    [SPW_OUTSIDE_LOSS] = loss_bytes(c, point) / c->copy_bytes_per_s.value / cut,
                    [SPW_OUTSIDE_ELEMENTWISE] =
                        c->elementwise_share.value * w.layer_bytes / c->copy_bytes_per_s.value / cut,
                    /* counted by the GPU's own tokens */
                    [SPW_OUTSIDE_CASTS] = c->cast_share.value * cast_bytes / c->copy_bytes_per_s.value},
        .forward_share = {[SPW_OUTSIDE_PROJECTIONS] = once.projections / w.projections / passes->layers,
                          [SPW_OUTSIDE_ATTENTION] = 1.0 / passes->attention,
                          [SPW_OUTSIDE_DENSE_FFN] = 1.0 / passes->dense,
                          [SPW_OUTSIDE_SHARED] = 1.0 / passes->shared,
                          [SPW_OUTSIDE_HEAD] = 1.0 / 3.0,
                          [SPW_OUTSIDE_LOSS] = 0.5,
                          [SPW_OUTSIDE_ELEMENTWISE] = once.layer_bytes / w.layer_bytes / passes->layers,
                          [SPW_OUTSIDE_CASTS] = 1.0 / passes->layers}};
    if (w.latent > 0.0)
        out->forward_share[SPW_OUTSIDE_SHARED] =
            (once.shared_expert + once.latent) / (w.shared_expert + w.latent) / passes->layers;
    out->seconds[SPW_OUTSIDE_ROUTER] =
        spw_unfused_router_s(c, point, &out->forward_share[SPW_OUTSIDE_ROUTER]);
    out->seconds[SPW_OUTSIDE_ROTATION] =
        spw_unfused_rotation_s(c, point, &out->forward_share[SPW_OUTSIDE_ROTATION]);
    return count_grid(c, point, out);
}

double spw_megatron_outside_share(const spw_model *m, size_t part, const spw_block *block, bool last) {
    const size_t dense = spw_model_dense_layers(m), alone = m->layers - m->moe_layers;
    const double ends = last ? 1.0 : 0.0, more = (double)block->predictions,
                 layers = (double)block->layers + more;
    switch (part) {
    case SPW_OUTSIDE_HEAD: return ends + more * (1.0 + 2.0 * (double)m->hidden / (double)m->vocab);
    case SPW_OUTSIDE_LOSS: return ends + more;
    case SPW_OUTSIDE_ENDS: return ends;
    case SPW_OUTSIDE_ROUTER:
    case SPW_OUTSIDE_SHARED: return ((double)block->moe_layers + more) / (double)m->moe_layers;
    case SPW_OUTSIDE_DENSE_FFN:
        return dense > 0 ? (double)(block->layers - block->moe_layers - block->bare_layers) / (double)dense
                         : 0.0;
    case SPW_OUTSIDE_PROJECTIONS:
    case SPW_OUTSIDE_ROTATION:
    case SPW_OUTSIDE_ATTENTION:
        if (m->half_layers && alone > 0) return (layers - (double)block->moe_layers) / (double)alone;
        return layers / (double)m->layers;
    default: return layers / (double)m->layers;
    }
}
