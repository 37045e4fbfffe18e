#include "sim/time/compiled/compiled_work.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/machine/compiled_layer.h"
#include "sim/routing/compose.h"
#include "sim/traffic/weight_families.h"

#include <math.h>
#include <string.h>

/* Forward, recomputed forward, gradients of input and of weights: products of one size. */
static const double PASSES = 4.0;
static const spw_model_passes PASSES_OUTSIDE = {
    .layers = 4.0, .attention = 2.0 + 2.5, .shared = 4.0, .dense = 4.0, .up = 4.0};

/* Kernels that read and write whole tensors: how many such reads and writes a layer makes over all passes
 * (docs/validation_time.md, "Counted work"). Whole numbers, counted by hand from the event lists. */
static const struct {
    double hidden, ffn; /* [buffer rows, H] and [buffer rows, F] */
    double assignments; /* [T K, H] */
    double gathered;    /* [R T, H] */
    double masks;       /* [T, E C] */
} touches[SPW_PROGRAM_COUNT] = {
    [SPW_PROGRAM_DENSE] = {.hidden = 20, .ffn = 11, .masks = 20},
    [SPW_PROGRAM_DENSE_GATHERED] = {.hidden = 8, .ffn = 11, .masks = 20},
    [SPW_PROGRAM_GMM] = {.hidden = 26, .ffn = 11, .assignments = 14},
    [SPW_PROGRAM_DEEPEP] = {.hidden = 14, .ffn = 11, .gathered = 6},
    [SPW_PROGRAM_RING] = {.hidden = 20, .ffn = 11, .gathered = 6},
    [SPW_PROGRAM_RING_SORTED] = {.hidden = 20, .ffn = 11, .gathered = 6},
};
static const double MASK_PRODUCTS = 6.0; /* 2 forward, 1 recomputed, 3 backward */

/* ragged_dot multiplies every row with every local expert and masks the rest away. */
double spw_compiled_expert_flop(const spw_scheme *scheme, const spw_compiled_layer *list,
                                const spw_layer_shape *s, const spw_routing_layer *layer) {
    const double rows = list->masked_operands ? (double)s->experts_per_rank *
                                                    (double)scheme->type->memory.buffer_rows(scheme, s)
                                              : layer->tiled_rows;
    return PASSES * 6.0 * rows * (double)s->hidden * (double)s->ffn;
}

/* On MaxText's mesh rows are H wide on their way to the experts and H / TP wide behind them: half of the touches are taken of each.
 * A GPU runs every MoE layer `times` times a step on one micro-batch: in a pipeline its own layers for all of them. */
static void count_experts(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                          const spw_layer_shape *s, double times, const spw_compiled_load *load,
                          spw_compiled_work *w) {
    const double part = (double)spw_returned_width(s), hidden = ((double)s->hidden + part) / 2.0;
    const double ffn = (double)s->ffn, b = (double)s->element_bytes;
    const double moe = (double)job->model.moe_layers * times, tokens = (double)s->tokens;
    const double rows = (double)scheme->type->memory.buffer_rows(scheme, s);
    const double slots = (double)s->experts * (double)spw_scheme_capacity(scheme, s);
    for (size_t i = 0; i < load->micro_batches * load->layers; i++) {
        const size_t stands = spw_layers_stood_for(job->model.moe_layers, load->layers, i % load->layers);
        w->experts += (double)stands * times / (double)load->micro_batches *
                      spw_compiled_expert_flop(scheme, list, s, &load->layer[i]);
    }
    const bool dense = list->program == SPW_PROGRAM_DENSE || list->program == SPW_PROGRAM_DENSE_GATHERED;
    w->library_products = !dense && !list->masked_operands;
    w->masks = MASK_PRODUCTS * 2.0 * moe * tokens * slots * part;
    w->mask_bytes = touches[list->program].masks * moe * tokens * slots * b;
    w->row_bytes = moe * b *
                   (touches[list->program].hidden * rows * hidden + touches[list->program].ffn * rows * ffn +
                    touches[list->program].assignments * (double)s->assignments * hidden +
                    touches[list->program].gathered * (double)s->ranks * tokens * hidden);
    w->scatter_bytes = (double)list->scatters * moe * rows * hidden * b;
}

/* How often a GPU's share of a family is gathered: once a micro-batch without a pipeline. In one, the layers of the loop once a
 * turn, those beside it whole by every stage; `share`: of the family, that is in the loop. */
static double repeats_of(const spw_compiled_cut *cut, double share) {
    if (cut->stages == 1) return (double)cut->micro_batches;
    return share * (double)cut->turns / (double)cut->repeats + (1.0 - share) * (double)cut->stages;
}

static void add_weights(const spw_job *job, const spw_weight_family *family, double passes, double size,
                        spw_weight_traffic *out) {
    spw_weight_traffic one = {.hops = 0.0};
    spw_weight_traffic_add(job, family, passes, size, &one);
    out->nic_bytes += one.nic_bytes;
    out->link_bytes += one.link_bytes;
    out->hops += one.hops / (double)job->pipeline;
    out->seen_hops += one.seen_hops / (double)job->pipeline;
}

/* Weights are gathered twice, forward and backward; gradients are scattered once. Layers beside the loop of a pipeline have a
 * replica on each stage, over which their gradients are summed. */
static void count_weights(const spw_job *job, const spw_compiled_layer *list, const spw_compiled_cut *cut,
                          spw_compiled_work *w) {
    const double weight = (double)spw_precision_gathered(job),
                 gradient = (double)spw_precision_scattered(job);
    const spw_parameters p = spw_model_parameters(&job->model);
    const double routed = (double)spw_model_routed(&job->model), stages = (double)cut->stages;
    const double other =
        (double)(p.attention_per_layer + p.norms_per_layer + p.shared_per_layer + p.router_per_layer) *
        (double)cut->piped;
    const double looped = (double)cut->piped / (double)job->model.moe_layers;
    const double beside = (double)p.total - looped * routed - other;
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    const size_t families = spw_weight_families(job, list->all_experts, family);
    w->layer_gather_bytes =
        (double)p.routed_per_layer / (double)(job->expert * spw_grid_mesh_tensor(job)) * weight;
    for (size_t i = 0; i < families; i++) {
        const bool experts = family[i].purpose == SPW_PURPOSE_EXPERT_WEIGHTS;
        const double repeats = repeats_of(cut, experts ? looped : other / ((double)p.total - routed));
        add_weights(job, &family[i], 2.0 * repeats, weight, &w->gathers);
        add_weights(job, &family[i], repeats, gradient, &w->scatters);
    }
    if (cut->stages == 1) return;
    w->scatters.nic_bytes +=
        2.0 * (stages - 1.0) / stages * gradient * beside / (double)(job->expert * job->fsdp);
    w->scatters.hops += 2.0 * (stages - 1.0);
    w->scatters.seen_hops += 2.0 * (stages - 1.0);
    w->model.optimizer_bytes *= (looped * routed + other + beside * stages) / (double)p.total;
}

/* GPUs of a tensor group have parts of every product outside the experts, those of a context group parts of the tokens. */
static void share_model(const spw_job *job, spw_model_work *w) {
    const spw_grid g = spw_grid_of(job);
    const double sharers = (double)spw_grid_mesh_gpus(&g);
    double *const of[] = {&w->tokens, &w->projections, &w->attention,   &w->dense_ffn,  &w->shared_expert,
                          &w->router, &w->head,        &w->layer_bytes, &w->logit_bytes};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) *of[i] /= sharers;
}

void spw_compiled_work_count(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                             const spw_compiled_cut *cut, const spw_compiled_load *load,
                             spw_compiled_work *out) {
    const spw_layer_shape shape = spw_layer_shape_of(job, cut->sequences);
    const size_t times = cut->micro_batches / cut->stages;
    memset(out, 0, sizeof *out);
    spw_model_work_count(job, cut->sequences * times, &PASSES_OUTSIDE, &out->model);
    share_model(job, &out->model);
    count_experts(job, scheme, list, &shape, (double)times, load, out);
    count_weights(job, list, cut, out);
}
