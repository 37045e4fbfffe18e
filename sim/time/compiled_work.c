#include "sim/time/compiled_work.h"

#include "sim/routing/compose.h"
#include "sim/time/weight_families.h"

#include <math.h>
#include <string.h>

/* Forward, recomputed forward, gradients of input and of weights: products of one size. */
static const double PASSES = 4.0;
static const spw_model_passes PASSES_OUTSIDE = {.layers = 4.0, .attention = 2.0 + 2.5, .shared = 4.0};

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
static void count_experts(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                          const spw_layer_shape *s, const spw_routing_layer *layer, size_t layers,
                          spw_compiled_work *w) {
    const double hidden = (double)s->hidden, ffn = (double)s->ffn, b = (double)s->element_bytes;
    const double moe = (double)job->model.moe_layers, tokens = (double)s->tokens;
    const double rows = (double)scheme->type->memory.buffer_rows(scheme, s);
    const double slots = (double)s->experts * (double)spw_scheme_capacity(scheme, s);
    const double masked = list->masked_operands ? (double)s->experts_per_rank : 0.0;
    for (size_t i = 0; i < layers; i++) {
        const double computed = masked > 0.0 ? masked * rows : layer[i].tiled_rows;
        w->experts += (double)spw_layers_stood_for(job->model.moe_layers, layers, i) * PASSES * 6.0 *
                      computed * hidden * ffn;
    }
    const bool dense = list->program == SPW_PROGRAM_DENSE || list->program == SPW_PROGRAM_DENSE_GATHERED;
    w->library_products = !dense && masked == 0.0;
    w->masks = MASK_PRODUCTS * 2.0 * moe * tokens * slots * hidden;
    w->mask_bytes = touches[list->program].masks * moe * tokens * slots * b;
    w->row_bytes = moe * b *
                   (touches[list->program].hidden * rows * hidden + touches[list->program].ffn * rows * ffn +
                    touches[list->program].assignments * (double)s->assignments * hidden +
                    touches[list->program].gathered * (double)s->ranks * tokens * hidden);
    w->scatter_bytes = (double)list->scatters * moe * rows * hidden * b;
}

/* Weights are gathered twice, forward and backward; gradients are scattered once. */
static void count_weights(const spw_job *job, const spw_compiled_layer *list, spw_compiled_work *w) {
    const double weight = (double)job->precision.weights, gradient = (double)job->precision.gradients;
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    const size_t families = spw_weight_families(job, list->all_experts, family);
    w->layer_gather_bytes =
        (double)spw_model_parameters(&job->model).routed_per_layer / (double)job->expert * weight;
    for (size_t i = 0; i < families; i++) {
        spw_weight_traffic_add(job, &family[i], 2.0, weight, &w->gathers);
        spw_weight_traffic_add(job, &family[i], 1.0, gradient, &w->scatters);
    }
}

void spw_compiled_work_count(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                             size_t sequences, const spw_routing_layer *layer, size_t layers,
                             spw_compiled_work *out) {
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
    memset(out, 0, sizeof *out);
    spw_model_work_count(job, sequences, &PASSES_OUTSIDE, &out->model);
    count_experts(job, scheme, list, &shape, layer, layers, out);
    count_weights(job, list, out);
}
