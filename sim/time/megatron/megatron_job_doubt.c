#include "sim/time/megatron/megatron_job_doubt.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/machine/cluster_levels.h"
#include "sim/machine/stack.h"
#include "sim/schemes/point.h"
#include "sim/time/fp8_time.h"
#include "sim/time/megatron/megatron_doubt.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <stdio.h>

/* Of the doubt about a recipe's products, what the fit leaves: no run in fp4 was fitted. */
static double open_share(const spw_job *job, const spw_megatron_coefficients *c) {
    return spw_fp8_recipe_is_fp4(job->precision.recipe) ? 1.0 : c->recipe_doubt_share.value;
}

static spw_fp8_facts facts_of(const spw_job *job) {
    return spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation);
}

static bool has_other_mixers(const spw_job *job) {
    return job->part == SPW_PART_WHOLE && spw_model_other(&job->model)->layers > 0;
}

/* What the fit on bare layers has of one dispatcher alone. */
static void name_dispatcher(const spw_scheme *scheme, char *note) {
    const char *dispatcher = spw_megatron_unmeasured(scheme->type->megatron.dispatcher);
    if (dispatcher != NULL) spw_outside_add(note, "%s", dispatcher);
    if (spw_scheme_arrives_sorted(scheme))
        spw_outside_add(note, "HybridEP as DeepEP without the copy into the experts' order");
    if (scheme->type->megatron.unread)
        spw_outside_add(note, "steps without host synchronization counted, not measured");
}

/* What the busiest NIC carries of one dispatch, in the mean of the layers and micro-batches. */
static double nic_rows_of(const spw_megatron_job_request *q) {
    const size_t layers = q->micro_batches * q->layers, ranks = q->point->shape.ranks;
    double sum = 0.0;
    for (size_t i = 0; i < layers; i++) {
        const size_t micro = i / q->layers, layer = i % q->layers;
        double most = 0.0;
        for (size_t group = 0; group < q->groups; group++) {
            const size_t at = (micro * q->groups + group) * q->layers + layer;
            most = fmax(most, spw_megatron_nic_rows(q->load + at * ranks, ranks));
        }
        sum += most;
    }
    return sum / (double)layers;
}

static bool spans_nodes(const spw_layer_shape *s) { return s->node_ranks < s->ranks; }

static void between_nodes(const spw_megatron_job_request *q, spw_timeline *out) {
    const spw_layer_shape *s = &q->point->shape;
    if (!spans_nodes(s)) return;
    out->between_nodes = (spw_between_nodes){.nodes = (s->ranks + s->node_ranks - 1) / s->node_ranks,
                                             .rails = s->node_ranks,
                                             .once = spw_scheme_by_node(q->point->scheme),
                                             .nic_bytes = 2.0 * (double)s->hidden * nic_rows_of(q),
                                             .seconds = spw_timeline_exchanges_s(out),
                                             .half_width = q->coefficients->exchange_half_width.value};
}

static void name_between_nodes(const spw_megatron_job_request *q, char *note) {
    const spw_layer_shape *s = &q->point->shape;
    const spw_megatron_coefficients *c = q->coefficients;
    if (!spans_nodes(s)) return;
    spw_outside_add(note,
                    "exchanges between nodes not measured: rates published of up to %.0f nodes, 9 of 10 "
                    "exchanges within a factor of %.2f",
                    c->exchange_nodes.value, exp(c->exchange_half_width.value));
}

static void name_outside(const spw_megatron_job_request *q, size_t tokens, char *note) {
    const spw_job *job = q->point->job;
    const spw_megatron_coefficients *c = q->coefficients;
    const spw_layer_shape *shape = &q->point->shape;
    char size[24];
    (void)snprintf(size, sizeof size, "%zu", shape->ranks);
    if (job->part == SPW_PART_WHOLE && c->part == SPW_MEGATRON_EXPERT_LAYERS)
        spw_outside_add(note, "attention, head, optimizer: counted, not fitted");
    if (c->scaled)
        spw_outside_add(note,
                        c->seen ? "rates scaled from %s, by runs of this GPU too" : "rates scaled from %s",
                        c->cluster);
    if (job->megatron.untuned) spw_outside_add(note, "an untuned release: slower by what no key says");
    if (c->dense_from[0] != '\0' && job->part == SPW_PART_WHOLE)
        spw_outside_add(
            note,
            "products outside experts at %.3f of peak, fitted on AMD's GPUs by %s, those of experts "
            "and attention at NVIDIA's %.3f and %.3f",
            c->dense_flops_share.value, c->dense_from, c->gemm_flops_share.value,
            c->attention_flops_share.value);
    if (c->part == SPW_MEGATRON_EXPERT_LAYERS) name_dispatcher(q->point->scheme, note);
    name_between_nodes(q, note);
    if (has_other_mixers(job))
        spw_outside_add(note, "layers of %s: products counted, scans not",
                        spw_model_other(&job->model)->what);
    if (spw_levels_are_several(&job->cluster))
        spw_outside_add(note, "a network of %zu levels, of which none was measured",
                        job->cluster.levels.count);
    if (!spw_has_word(c->expert_parallel, size))
        spw_outside_add(note, "expert-parallel sizes other than %s", c->expert_parallel);
    if (tokens < c->tokens_min || tokens > c->tokens_max)
        spw_outside_add(note, "micro-batches other than %zu to %zu tokens", c->tokens_min, c->tokens_max);
    if (spw_pipeline_of(job).stages > 1 && c->part == SPW_MEGATRON_EXPERT_LAYERS)
        spw_outside_add(note, "pipelines not measured");
    const spw_grid grid = spw_grid_of(job);
    if (grid.tensor * grid.context > 1)
        spw_outside_add(note, "tensor and context parallelism counted, not measured: the interval has their "
                              "collectives hidden whole and at twice their time");
    if (grid.expert_tensor > 1)
        spw_outside_add(note,
                        "experts shared by %zu GPUs counted, not measured: the interval has their gathers "
                        "and sums hidden whole and at twice their time",
                        grid.expert_tensor);
    if (job->precision.recipe != SPW_FP8_NONE && open_share(job, c) > 0.0)
        spw_outside_add(note, "recipe %s: products at %.3g of %s over bf16_flops, %s, and counted casts",
                        spw_fp8_recipe_name(job->precision.recipe), facts_of(job).products_share,
                        spw_fp8_recipe_is_fp4(job->precision.recipe) ? "fp4_flops" : "fp8_flops",
                        facts_of(job).products_are);
}

void spw_megatron_job_doubt(const spw_megatron_job_request *q, size_t tokens, spw_timeline *out) {
    const spw_megatron_coefficients *c = q->coefficients;
    const spw_job *job = q->point->job;
    const spw_layer_shape *shape = &q->point->shape;
    const bool by_parts = q->point->scheme->type->megatron.by_parts; /* kernels of other software */
    const spw_megatron_far far = {
        .layers = spw_megatron_layers_half_width(c, shape->ranks, tokens),
        .counted = job->part == SPW_PART_WHOLE,
        .dispatcher = spw_megatron_unmeasured(q->point->scheme->type->megatron.dispatcher) != NULL,
        .network = spans_nodes(shape),
        .levels = spw_levels_are_several(&job->cluster),
        .scaled = (c->scaled && !c->seen) || has_other_mixers(job),
        .foreign = (c->scaled && !c->seen && c->foreign) || has_other_mixers(job) || by_parts,
        .recipe = facts_of(job).products_width * open_share(job, c),
        .untuned = job->megatron.untuned};
    between_nodes(q, out);
    name_outside(q, tokens, out->outside);
    spw_megatron_doubt(c, &far, out);
}
