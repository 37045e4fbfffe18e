#include "sim/time/compiled_work.h"

#include "sim/routing/compose.h"
#include "sim/time/weight_families.h"

#include <math.h>
#include <string.h>

/* Forward, recomputed forward, gradients of input and of weights: products of one size. The head and the router's
 * logits are not recomputed. */
static const double PASSES = 4.0, PASSES_ONCE = 3.0;

/* Kernels that read and write whole tensors: how many such reads and writes a layer makes over all passes
 * (docs/validation_time.md, "Counted work"). Whole numbers, counted by hand from the event lists. */
static const struct {
    double hidden, ffn; /* [buffer rows, H] and [buffer rows, F] */
    double assignments; /* [T K, H] */
    double gathered;    /* [R T, H] */
    double masks;       /* [T, E C] */
} touches[SPW_PACKING_COUNT] = {
    [SPW_PACKING_DENSE] = {.hidden = 20, .ffn = 11, .masks = 20},
    [SPW_PACKING_DENSE_GATHERED] = {.hidden = 8, .ffn = 11, .masks = 20},
    [SPW_PACKING_GMM] = {.hidden = 26, .ffn = 11, .assignments = 14},
    [SPW_PACKING_DEEPEP] = {.hidden = 14, .ffn = 11, .gathered = 6},
    [SPW_PACKING_RING] = {.hidden = 20, .ffn = 11, .gathered = 6},
    [SPW_PACKING_RING_SORTED] = {.hidden = 20, .ffn = 11, .gathered = 6},
};
static const double MASK_PRODUCTS = 6.0;  /* 2 forward, 1 recomputed, 3 backward */
static const double LOGITS_TOUCHES = 6.0; /* fp32 */

/* Elements a token that a layer's attention and FFN outside the experts write once a forward pass (docs/schemes.md,
 * section 7.4, and three tensors of the FFN's width). */
static double layer_elements(const spw_model *m) {
    const double hidden = (double)m->hidden, heads = (double)m->heads;
    const double plain =
        2.0 * hidden + (3.0 * heads + 4.0 * (double)m->kv_heads) * (double)m->head_dim + hidden;
    if (m->attention == SPW_ATTENTION_GQA) return plain;
    const double key = (double)(m->nope_dim + m->rope_dim), value = (double)m->v_head_dim;
    const double latent = (double)m->kv_lora_rank;
    return 2.0 * hidden + 2.0 * (double)m->q_lora_rank + 2.0 * heads * key + (latent + (double)m->rope_dim) +
           latent + heads * ((double)m->nope_dim + value) + heads * value + hidden;
}

static void count_layers(const spw_job *job, size_t sequences, spw_compiled_work *w) {
    const spw_model *m = &job->model;
    const spw_parameters p = spw_model_parameters(m);
    const double layers = (double)m->layers, moe = (double)m->moe_layers, dense = layers - moe;
    const double hidden = (double)m->hidden, b = (double)job->precision.activations;
    const bool mla = m->attention == SPW_ATTENTION_MLA;
    const double key = (double)(mla ? m->nope_dim + m->rope_dim : m->head_dim);
    const double value = (double)(mla ? m->v_head_dim : m->head_dim);
    const double length = (double)job->sequence_length;
    const double tokens = w->tokens;
    w->projections = PASSES * 2.0 * tokens * layers * (double)p.attention_per_layer;
    /* forward and recomputed once, backward 2.5 times: five products instead of two */
    w->attention =
        (2.0 + 2.5) * layers * (double)sequences * length * length * (double)m->heads * (key + value);
    w->dense_ffn = PASSES * 6.0 * tokens * dense * hidden * (double)m->dense_ffn;
    w->shared_expert = PASSES * 6.0 * tokens * moe * hidden * (double)m->shared_ffn;
    w->router = PASSES * 2.0 * tokens * moe * hidden * (double)m->experts;
    w->head = PASSES_ONCE * 2.0 * tokens * hidden * (double)m->vocab;
    const double elements =
        layers * layer_elements(m) + 3.0 * (moe * (double)m->shared_ffn + dense * (double)m->dense_ffn);
    w->layer_bytes = PASSES * 2.0 * tokens * elements * b + LOGITS_TOUCHES * tokens * (double)m->vocab * 4.0;
    w->optimizer_bytes =
        (double)p.total / (double)spw_job_gpus(job) *
        (double)(2 * job->precision.weights + job->precision.gradients + 4 * job->precision.optimizer);
}

/* ragged_dot multiplies every row with every local expert and masks the rest away. */
static void count_experts(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                          const spw_layer_shape *s, const spw_routing_layer *layer, size_t layers,
                          spw_compiled_work *w) {
    const double hidden = (double)s->hidden, ffn = (double)s->ffn, b = (double)s->element_bytes;
    const double moe = (double)job->model.moe_layers, tokens = (double)s->tokens;
    const double rows = (double)scheme->type->buffer_rows(scheme, s);
    const double slots = (double)s->experts * (double)spw_scheme_capacity(scheme, s);
    const double masked = list->masked_operands ? (double)s->experts_per_rank : 0.0;
    for (size_t i = 0; i < layers; i++) {
        const double computed = masked > 0.0 ? masked * rows : layer[i].tiled_rows;
        w->experts += (double)spw_layers_stood_for(job->model.moe_layers, layers, i) * PASSES * 6.0 *
                      computed * hidden * ffn;
    }
    const double scatters = spw_scheme_option_is(scheme, "fan_in", "scatter2")   ? 2.0
                            : spw_scheme_option_is(scheme, "fan_in", "scatter1") ? 1.0
                                                                                 : 0.0;
    const bool dense = list->packing == SPW_PACKING_DENSE || list->packing == SPW_PACKING_DENSE_GATHERED;
    w->library_products = !dense && masked == 0.0;
    w->masks = MASK_PRODUCTS * 2.0 * moe * tokens * slots * hidden;
    w->mask_bytes = touches[list->packing].masks * moe * tokens * slots * b;
    w->row_bytes = moe * b *
                   (touches[list->packing].hidden * rows * hidden + touches[list->packing].ffn * rows * ffn +
                    touches[list->packing].assignments * (double)s->assignments * hidden +
                    touches[list->packing].gathered * (double)s->ranks * tokens * hidden);
    w->scatter_bytes = scatters * moe * rows * hidden * b;
}

/* `passes` times a family's tensors, of so many bytes an element, to be received by each member: a ring enters a node once a
 * group, so a NIC carries the share of the groups of its node. */
static void add_collective(const spw_job *job, const spw_weight_family *family, double passes, double size,
                           spw_weight_traffic *out) {
    const double members = (double)family->members, stride = (double)family->stride;
    const double node = (double)job->cluster.gpus_per_node;
    const double bytes = passes * size * (double)family->elements / (double)job->pipeline;
    const double received = bytes * (members - 1.0) / members;
    if (family->members < 2) return;
    if (members * stride > node) {
        out->nic_bytes += received * fmin(1.0, stride / node);
    } else {
        out->link_bytes += received;
    }
    out->hops += passes * (double)family->tensors * (members - 1.0);
}

/* Weights are gathered twice, forward and backward; gradients are scattered once. */
static void count_weights(const spw_job *job, const spw_compiled_layer *list, spw_compiled_work *w) {
    const double weight = (double)job->precision.weights, gradient = (double)job->precision.gradients;
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    const size_t families = spw_weight_families(job, list->all_experts, family);
    w->layer_gather_bytes =
        (double)spw_model_parameters(&job->model).routed_per_layer / (double)job->expert * weight;
    for (size_t i = 0; i < families; i++) {
        add_collective(job, &family[i], 2.0, weight, &w->gathers);
        add_collective(job, &family[i], 1.0, gradient, &w->scatters);
    }
}

void spw_compiled_work_count(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                             size_t sequences, const spw_routing_layer *layer, size_t layers,
                             spw_compiled_work *out) {
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences);
    memset(out, 0, sizeof *out);
    out->tokens = (double)shape.tokens;
    count_layers(job, sequences, out);
    count_experts(job, scheme, list, &shape, layer, layers, out);
    count_weights(job, list, out);
}
