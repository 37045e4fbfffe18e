#include "sim/memory/live/footprint_state.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/mesh_memory.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/muon_dealing.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/stage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOMENTS = 2 /* of Adam */ };

/* --- State --- */

typedef struct state_part {
    const char *name, *source;
    const spw_held_parameters *held; /* of the stage */
    bool shared, twice;              /* over its replicas, else whole; two of each parameter */
    spw_term each;                   /* bytes of an element */
    double on_host;                  /* share of it that is in the host's memory */
    double adam;                     /* bytes that Adam has beside Muon */
    double linear;                   /* bytes of linear layers that are not kept */
} state_part;

/* [two of each parameter, and a part in the host's memory] */
#define STATE(before, after) \
    { \
        before " $1" after " [+ Adam] [- 'linear layers']", \
            "2 " before " $1" after " [+ Adam] [- 'linear layers']", \
            before " $1" after " (1 - host) [+ Adam] [- 'linear layers']", \
            "2 " before " $1" after " (1 - host) [+ Adam] [- 'linear layers']", \
    }

/* Shared: P parameters of the stage over its GPUs; else whole, each GPU with its experts. Under tensor, context or expert-tensor
 * parallelism R t GPUs hold the experts once, TP the matrices of the rest. */
static spw_component *add_part(spw_footprint *f, const spw_job *job, const state_part *p) {
    static const char *const plain[2][4] = {STATE("(routed / $2 + rest)", ""), STATE("P", " / $2")},
                             *const grid[2][4] = {STATE("(routed / $2 + cut / TP + whole)", ""),
                                                  STATE("(routed / $2 + (cut / TP + whole) / $3)", "")};
    const spw_held_parameters *held = p->held;
    const spw_grid g = spw_grid_of(job);
    const size_t copies = spw_state_copies(job),
                 variant = (p->twice ? 1u : 0u) + (p->on_host > 0.0 ? 2u : 0u);
    const spw_term host = TERM("host", p->on_host), adam = TERM("Adam", p->adam),
                   linear = TERM("linear layers", p->linear);
    if (spw_grid_is_plain(job)) {
        const size_t group = job->expert * job->fsdp / copies;
        const spw_term over = p->shared ? (spw_term)TERM(copies > 1 ? "(G / copies)" : "G", group)
                                        : (spw_term)TERM("R", job->expert);
        return SPW_COMPONENT(f, p->name, p->source, plain[p->shared][variant], p->each, over,
                             TERM("routed", held->routed), TERM("rest", held->rest),
                             TERM("P", held->routed + held->rest), host, adam, linear);
    }
    const size_t experts = g.expert * g.expert_tensor, group = experts * g.expert_data / copies,
                 others = g.data * g.context / copies;
    const spw_term over = p->shared ? (spw_term)TERM(copies > 1 ? "(R t EDP / copies)" : "(R t EDP)", group)
                                    : (spw_term)TERM("(R t)", experts);
    return SPW_COMPONENT(f, p->name, p->source, grid[p->shared][variant], p->each, over,
                         TERM(copies > 1 ? "(DP CP / copies)" : "(DP CP)", others),
                         TERM("routed", held->routed), TERM("cut", held->rest - held->replicated),
                         TERM("TP", g.tensor), TERM("whole", held->replicated), host, adam, linear);
}

/* With fp8_param_gather linear layers have nothing but copies: of their weights' bytes these go. */
static double replaced_bytes(const spw_job *job, const spw_stage *stage) {
    return job->precision.recipe == SPW_FP8_NONE ? 0.0 : spw_fp8_replaced_bytes(job, stage);
}

/* Copies of the weights of linear layers. */
static void add_fp8_state(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const char *source = "copies of TransformerEngine's linear layers, with scales (7.12)";
    if (job->precision.recipe == SPW_FP8_NONE) return;
    const double linear = spw_fp8_linear_parameters(job, stage);
    const bool fp4 = spw_fp8_recipe_is_fp4(job->precision.recipe);
    spw_component *c =
        SPW_COMPONENT(f, fp4 ? "fp4_weights" : "fp8_weights", source, "= linear each", TERM("linear", linear),
                      TERM("each", spw_fp8_weight_bytes(job, stage) / linear));
    c->argument = true;
    LIVE(c, ALWAYS);
    if (job->precision.recipe != SPW_FP8_DELAYED) return;
    c = SPW_COMPONENT(f, "fp8_histories", "scales and amax histories of one step (7.12)",
                      "of 5 tensors a product: = products each",
                      TERM("products", spw_fp8_products(job, stage)), TERM("each", SPW_FP8_PRODUCT_BYTES));
    c->argument = true;
    LIVE(c, ALWAYS);
}

/* Tensors of their own, so many a parameter. Moments come with the optimizer's first step: torch/optim, Megatron-Core, TransformerEngine's
 * FusedAdam. */
static void set_tensors(spw_component *c, bool moments, unsigned each) {
    c->by_first_step = moments;
    c->tensors = each;
}

/* Layer-wise optimizer: buffers padded to whole matrices, moments and master weights of the GPU that has most. */
static spw_status add_packed_state(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const spw_held_parameters held = spw_job_parameters(job, stage);
    const spw_grid g = spw_grid_of(job);
    const spw_precision *p = &job->precision;
    const spw_cut_parameters cut = spw_cut_parameters_of(job, &held);
    const double whole[2] = {cut.routed, cut.rest},
                 shards[2] = {(double)g.expert_data, (double)(g.data * g.context)};
    const char *source = "Megatron's layer-wise optimizer: whole matrices to GPUs (7.16)";
    double buffers = 0.0, adam = 0.0;
    spw_muon_packing packing;
    spw_status status = SPW_OK;
    SPW_TRY(spw_muon_packing_of(job, stage->index, &packing));
    for (int i = 0; i < 2; i++) {
        const double others = fmax(whole[i] - packing.matrices[i], 0.0);
        buffers += packing.buffers[i] + others;
        adam += others / shards[i];
    }
    const struct {
        const char *name;
        double elements, size;
        bool muon;
    } parts[] = {{"weights", buffers, (double)p->weights, false},
                 {"optimizer", packing.fullest + 2.0 * adam, (double)p->optimizer, true},
                 {"master_weights", packing.fullest + adam, (double)spw_master_bytes(job), true},
                 {"gradients", buffers, (double)p->gradients, false}};
    const double padded = packing.buffers[0] + packing.buffers[1];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!(parts[i].elements * parts[i].size > 0.0)) continue;
        spw_component *c =
            parts[i].muon
                ? SPW_COMPONENT(f, parts[i].name, source,
                                "matrices of the fullest GPU, and Adam's: = (fullest + Adam) each",
                                TERM("fullest", packing.fullest),
                                TERM("Adam", parts[i].elements - packing.fullest),
                                TERM("each", parts[i].size))
                : SPW_COMPONENT(f, parts[i].name, source,
                                "{matrices} of matrices, padded, and others: = (padded + others) each [- "
                                "'linear layers']",
                                TERM("matrices", packing.matrices[0] + packing.matrices[1]),
                                TERM("padded", padded), TERM("others", buffers - padded),
                                TERM("each", parts[i].size),
                                TERM("linear layers", i == 0 ? replaced_bytes(job, stage) : 0.0));
        c->argument = true;
        LIVE(c, ALWAYS);
        if (parts[i].muon) set_tensors(c, i == 1, 1);
        if (i == 0) add_fp8_state(f, job, stage);
    }

cleanup:
    return status;
}

/* The older layer-wise optimizer: moments and masters of the GPU that has most, weights and gradients whole. */
static spw_status add_dealt_optimizer(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const char *source = "Megatron's layer-wise optimizer, whole parameters dealt out (7.16)";
    const double o = (double)job->precision.optimizer, m = (double)spw_master_bytes(job);
    spw_muon_hand hand;
    const spw_status status = spw_muon_dealt_fullest(job, stage->index, m, o, &hand);
    if (status != SPW_OK) return status;
    const struct {
        const char *name;
        double adam, size; /* times Adam's parameters */
    } parts[] = {{"optimizer", 2.0, o}, {"master_weights", 1.0, m}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!((hand.matrices + parts[i].adam * hand.adam) * parts[i].size > 0.0)) continue;
        spw_component *c = SPW_COMPONENT(
            f, parts[i].name, source, "matrices of the fullest GPU, and Adam's: = (matrices + n Adam) each",
            TERM("matrices", hand.matrices), TERM("n", parts[i].adam), TERM("Adam", hand.adam),
            TERM("each", parts[i].size));
        c->argument = true;
        LIVE(c, ALWAYS);
        set_tensors(c, i == 0, 1);
    }
    return SPW_OK;
}

static void add_shared_optimizer(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                                 const spw_state_law *law) {
    const spw_held_parameters held = spw_job_parameters(job, stage);
    const spw_held_parameters optimized = spw_optimized_parameters(job, &held);
    const spw_optimizer_state s = spw_optimizer_state_of(job, &held);
    const spw_held_parameters adam = spw_adam_parameters(&job->model, stage);
    const size_t both = spw_precision_moments(&job->precision);
    const bool alike =
        both == MOMENTS * job->precision.optimizer; /* MaxText's second has the weights' format */
    const state_part moments = {.name = "optimizer",
                                .source = law->source,
                                .held = &optimized,
                                .shared = law->shares_moments,
                                .twice = alike && !job->muon,
                                .each = job->muon || alike ? (spw_term)TERM("o", (double)both / MOMENTS)
                                                           : (spw_term)TERM("(o + second)", both),
                                .on_host = job->optimizer_on_host,
                                .adam =
                                    job->muon ? spw_optimizer_state_of(job, &adam).moments / MOMENTS : 0.0};
    const state_part master = {.name = "master_weights",
                               .source = law->source,
                               .held = &optimized,
                               .shared = law->shares_moments,
                               .each = TERM("m", spw_master_kept_bytes(job)),
                               .on_host = job->optimizer_on_host};
    spw_component *c = add_part(f, job, &moments);
    c->argument = true;
    LIVE(c, ALWAYS);
    set_tensors(c, true, job->muon ? 1 : MOMENTS);
    if (!(s.master > 0.0)) return;
    c = add_part(f, job, &master);
    c->argument = true;
    LIVE(c, ALWAYS);
    set_tensors(c, job->megatron.remainders, 1);
}

spw_status spw_footprint_add_state(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const spw_state_law *law = spw_state_law_of(job);
    const bool sharded = law->shares_weights;
    const spw_held_parameters held = spw_job_parameters(job, stage);
    const spw_held_parameters trained = spw_trained_parameters(job, &held);
    const spw_precision *p = &job->precision;
    const state_part weights = {.name = "weights",
                                .source = law->source,
                                .held = &held,
                                .shared = sharded,
                                .each = TERM("w", p->weights),
                                .linear = replaced_bytes(job, stage)},
                     gradients = {
                         .name = "gradients",
                         .source = law->gradients,
                         .held = &trained,
                         .shared = sharded,
                         .each = TERM(law->by_units ? "w" : "g", law->by_units ? p->weights : p->gradients)};
    if (job->fsdp2.on_host) return SPW_OK;
    if (spw_muon_packs(job)) return add_packed_state(f, job, stage);
    spw_component *c = add_part(f, job, &weights);
    c->argument = true;
    LIVE(c, ALWAYS);
    add_fp8_state(f, job, stage);
    if (spw_muon_is_dealt(job)) {
        const spw_status status = add_dealt_optimizer(f, job, stage);
        if (status != SPW_OK) return status;
    } else {
        add_shared_optimizer(f, job, stage, law);
    }
    if (spw_fsdp2_waits(job))
        return SPW_OK; /* sharded gradients come when the last backward pass has ended */
    c = add_part(f, job, &gradients);
    if (law->by_units && f->frees) {
        f->components--; /* they become components of the moments at which they are there */
        spw_footprint_make_by_units(f, job, stage, c->bytes, true);
        return SPW_OK;
    }
    c->argument = !sharded;
    LIVE(c, ALWAYS);
    return SPW_OK;
}

void spw_footprint_add_expert_layers(spw_footprint *f, const spw_job *job, const spw_parameters *parameters,
                                     const spw_layer_shape *s) {
    const spw_grid grid = spw_grid_of(job);
    const double layers = (double)job->model.moe_layers, w = (double)job->precision.weights,
                 routed = (double)parameters->routed_per_layer / (double)(grid.expert * grid.expert_tensor),
                 held = routed + (double)parameters->router_per_layer + (double)job->model.hidden;
    const spw_term L = TERM("L", layers), P = TERM("(3 e H F + E H + H)", held),
                   hidden = TERM("T H b",
                                 (double)s->tokens * (double)job->model.hidden * (double)s->element_bytes);
    const char *source = "bare layers: the MoE layers alone (7.10)";
    spw_component *weights = SPW_COMPONENT(f, "weights", source, "L $2 w", L, P, TERM("w", w));
    weights->argument = true;
    LIVE(weights, ALWAYS);
    LIVE(SPW_COMPONENT(f, "gradients", source, "L $2 g", L, P, TERM("g", job->precision.gradients)), ALWAYS);
    LIVE(SPW_COMPONENT(f, "inputs", source, "input and gradient of the output: 2 'T H b'", hidden), ALWAYS);
    LIVE_BY_LAYER(SPW_COMPONENT(f, "block_outputs", source, "L 'T H b'", L, hidden), ALWAYS);
    if (spw_remat_keeps_experts(job->remat))
        LIVE_BY_LAYER(SPW_COMPONENT(f, "norm_outputs", source, "L 'T H b'", L, hidden), ALWAYS);
    const double unlisted = fmax(routed - spw_footprint_listed_gradients(s), 0.0);
    if (!(unlisted > 0.0)) return;
    LIVE(SPW_COMPONENT(f, "expert_weight_gradients", source,
                       s->weight_gradients == SPW_WEIGHT_GRADIENTS_UNLISTED
                           ? "of a layer, before they are added: '3 e H F' w"
                           : "of biases, before they are added: = '3 e H F' w",
                       TERM("3 e H F", unlisted), TERM("w", w)),
         AT_MOE_LAYER);
}

/* --- Weights of the layers at work: gathered over fsdp (routed) or over all GPUs (the rest) --- */

void spw_footprint_add_gathered(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                                bool all_experts) {
    const spw_parameters p = spw_model_parameters(&job->model), *parameters = &p;
    const bool several = job->expert * job->fsdp > 1;
    const double w = (double)spw_precision_gathered(job), g = (double)spw_precision_scattered(job);
    const double share = all_experts ? 1.0 : 1.0 / (double)job->expert; /* of the experts, on one rank */
    const double part = 1.0 / (double)spw_grid_mesh_tensor(job);
    const double routed =
        job->fsdp > 1 || all_experts ? (double)parameters->routed_per_layer * share * part : 0.0;
    const spw_replicated_parameters whole = spw_replicated_parameters_of(&job->model);
    const double norms = (double)parameters->norms_per_layer;
    const double moe = (double)spw_model_mixer_most(&job->model, true) + norms +
                       (double)(parameters->shared_per_layer + parameters->router_per_layer),
                 dense_layer = (double)spw_model_mixer_most(&job->model, false) + norms +
                               (double)parameters->dense_ffn_per_layer;
    const double rest = several ? spw_mesh_held(job, moe, whole.layer + (double)whole.moe_layer) : 0.0;
    const double dense = several ? spw_mesh_held(job, dense_layer, whole.layer) : 0.0;
    const spw_term experts = TERM(all_experts ? "3 E H F" : "3 e H F", routed), w_each = TERM("w", w),
                   g_each = TERM("g", g);
    LIVE(SPW_COMPONENT(f, "gathered_expert_weights", "fsdp all-gather, next layer prefetched (7.2)", "2 $1 w",
                       experts, w_each),
         AT_MOE_LAYER);
    LIVE(SPW_COMPONENT(f, "gathered_other_weights",
                       "all-gather of attention, shared expert, router; next layer prefetched (7.2)",
                       "= 2 rest w", TERM("rest", rest), w_each),
         AT_MOE_LAYER);
    LIVE(SPW_COMPONENT(f, "expert_weight_gradients", "gradients of a layer before their reduce-scatter (7.2)",
                       "$1 g", experts, g_each),
         AT_MOE_LAYER);
    if (stage->moe_layers < stage->layers) {
        LIVE(SPW_COMPONENT(f, "gathered_dense_weights",
                           "a dense layer: weights, the next ones, gradients (7.2)", "= (2 w + g) dense",
                           w_each, g_each, TERM("dense", dense)),
             AT_DENSE_LAYER);
    }
}
