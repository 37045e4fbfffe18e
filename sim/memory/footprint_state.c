#include "sim/memory/footprint_state.h"

#include "sim/input/grid.h"
#include "sim/input/precision.h"
#include "sim/input/remat.h"
#include "sim/input/state_law.h"
#include "sim/memory/footprint_component.h"
#include "sim/memory/fp8_memory.h"
#include "sim/memory/fsdp2.h"
#include "sim/memory/mesh_memory.h"
#include "sim/memory/muon_dealing.h"
#include "sim/memory/muon_packing.h"
#include "sim/memory/optimizer_state.h"
#include "sim/memory/pipeline.h"
#include "sim/memory/stage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GATHERED_LAYERS = 2, MOMENTS = 2 /* of Adam */ };

/* --- State --- */

/* Under tensor, context or expert-tensor parallelism: R t GPUs hold the experts once, TP the matrices of the rest. */
typedef struct state_part {
    const char *name, *source;
    double bytes;
    const spw_held_parameters *held; /* of the stage */
    bool shared, twice;              /* over its replicas, else whole; two of each parameter */
    char letter;                     /* in formulas */
    size_t each;                     /* bytes of an element */
} state_part;

static spw_component *add_grid_part(spw_footprint *f, const spw_job *job, const state_part *p) {
    const spw_held_parameters *held = p->held;
    const spw_grid g = spw_grid_of(job);
    const double cut = held->rest - held->replicated;
    const size_t copies = spw_state_copies(job);
    const char *two = p->twice ? "2 x " : "";
    if (!p->shared)
        return spw_component_add(
            f, p->name, p->bytes, p->source,
            "(routed / (R t) + cut / TP + whole) %c = %s(%.6g / %zu + %.6g / %zu + %.6g) x %zu", p->letter,
            two, held->routed, g.expert * g.expert_tensor, cut, g.tensor, held->replicated, p->each);
    return spw_component_add(
        f, p->name, p->bytes, p->source,
        "routed / (R t EDP) and (cut / TP + whole) / (DP CP): %s(%.6g / %zu + (%.6g / %zu + %.6g) / "
        "%zu) x %zu",
        two, held->routed, g.expert * g.expert_tensor * g.expert_data / copies, cut, g.tensor,
        held->replicated, g.data * g.context / copies, p->each);
}

/* `shared`: P parameters of the stage over its GPUs; else whole, each GPU with its experts. */
static spw_component *add_part(spw_footprint *f, const spw_job *job, const state_part *p) {
    const spw_held_parameters *held = p->held;
    const char *two = p->twice ? "2 " : "", *two_times = p->twice ? "2 x " : "";
    if (!spw_grid_is_plain(job)) return add_grid_part(f, job, p);
    if (!p->shared)
        return spw_component_add(f, p->name, p->bytes, p->source,
                                 "%s(routed / R + rest) %c = %s(%.6g / %zu + %.6g) x %zu", two, p->letter,
                                 two_times, held->routed, job->expert, held->rest, p->each);
    return spw_component_add(f, p->name, p->bytes, p->source, "%sP %c / G = %s%.6g x %zu / %zu", two,
                             p->letter, two_times, held->routed + held->rest, p->each,
                             job->expert * job->fsdp / spw_state_copies(job));
}

/* Copies of the weights of linear layers, and with fp8_param_gather nothing else of these. */
static void add_fp8_state(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                          spw_component *weights) {
    const char *source = "copies of TransformerEngine's linear layers, with scales (7.12)";
    const double linear = spw_fp8_linear_parameters(job, stage), bytes = spw_fp8_weight_bytes(job, stage);
    const uint64_t replaced = spw_component_bytes(spw_fp8_replaced_bytes(job, stage));
    const bool fp4 = spw_fp8_recipe_is_fp4(job->precision.recipe);
    const size_t products = spw_fp8_products(job, stage), used = strlen(weights->formula);
    if (job->precision.recipe == SPW_FP8_NONE) return;
    if (replaced > 0) {
        weights->bytes -= replaced < weights->bytes ? replaced : weights->bytes;
        (void)snprintf(weights->formula + used, sizeof weights->formula - used,
                       ", less %.6g of linear layers", linear);
    }
    spw_component *c = spw_component_add(f, fp4 ? "fp4_weights" : "fp8_weights", bytes, source, "%.6g x %.6g",
                                         linear, bytes / linear);
    c->argument = true;
    LIVE(c, ALWAYS);
    if (job->precision.recipe != SPW_FP8_DELAYED) return;
    c = spw_component_add(f, "fp8_histories", (double)(products * SPW_FP8_PRODUCT_BYTES),
                          "scales and amax histories of one step (7.12)",
                          "%zu products x 5 tensors x 2 x 4 B", products);
    c->argument = true;
    LIVE(c, ALWAYS);
}

/* What of the optimizer is in the host's memory is not on the GPU. Moments (`stage` given): Muon's single ones, and Adam's second, of MaxText
 * in the format of the weights. */
static void say_share(spw_component *c, const spw_job *job, const spw_stage *stage) {
    const size_t used = strlen(c->formula),
                 second = spw_precision_moments(&job->precision) - job->precision.optimizer;
    if (job->muon && stage != NULL)
        (void)snprintf(c->formula + used, sizeof c->formula - used, ", and again %.6g of Adam",
                       spw_adam_parameters(&job->model, stage).rest);
    else if (stage != NULL && second != job->precision.optimizer)
        (void)snprintf(c->formula + used, sizeof c->formula - used, ", but %zu B of each second moment",
                       second);
    if (job->optimizer_on_host > 0.0)
        (void)snprintf(c->formula + used, sizeof c->formula - used, " x (1 - %g)", job->optimizer_on_host);
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
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const double bytes = parts[i].elements * parts[i].size;
        if (!(bytes > 0.0)) continue;
        spw_component *c =
            parts[i].muon
                ? spw_component_add(f, parts[i].name, bytes, source,
                                    "fullest GPU's matrices %.6g, and %.6g of Adam: x %.0f", packing.fullest,
                                    parts[i].elements - packing.fullest, parts[i].size)
                : spw_component_add(f, parts[i].name, bytes, source,
                                    "%.6g of matrices, padded to %.6g, and %.6g others: x %.0f",
                                    packing.matrices[0] + packing.matrices[1],
                                    packing.buffers[0] + packing.buffers[1],
                                    buffers - packing.buffers[0] - packing.buffers[1], parts[i].size);
        c->argument = true;
        LIVE(c, ALWAYS);
        if (parts[i].muon) set_tensors(c, i == 1, 1);
        if (i == 0) add_fp8_state(f, job, stage, c);
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
        const double elements = hand.matrices + parts[i].adam * hand.adam;
        if (!(elements * parts[i].size > 0.0)) continue;
        spw_component *c = spw_component_add(f, parts[i].name, elements * parts[i].size, source,
                                             "fullest GPU's matrices %.6g, and %.0f x %.6g of Adam: x %.0f",
                                             hand.matrices, parts[i].adam, hand.adam, parts[i].size);
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
    const double bytes = spw_moment_bytes(job, stage, &held);
    const state_part moments = {"optimizer",         law->source, bytes, &optimized,
                                law->shares_moments, !job->muon,  'o',   job->precision.optimizer},
                     master = {"master_weights",    law->source, s.master, &optimized,
                               law->shares_moments, false,       'm',      spw_master_bytes(job)};
    spw_component *c = add_part(f, job, &moments);
    say_share(c, job, stage);
    c->argument = true;
    LIVE(c, ALWAYS);
    set_tensors(c, true, job->muon ? 1 : MOMENTS);
    if (!(s.master > 0.0)) return;
    c = add_part(f, job, &master);
    say_share(c, job, NULL);
    c->argument = true;
    LIVE(c, ALWAYS);
    set_tensors(c, false, 1);
}

spw_status spw_footprint_add_state(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const spw_state_law *law = spw_state_law_of(job);
    const bool sharded = law->shares_weights;
    const spw_held_parameters held = spw_job_parameters(job, stage);
    const spw_held_parameters trained = spw_trained_parameters(job, &held);
    const spw_optimizer_state s = spw_optimizer_state_of(job, &held);
    const spw_precision *p = &job->precision;
    const state_part weights = {"weights", law->source, s.weights, &held, sharded, false, 'w', p->weights},
                     gradients = {
                         "gradients", law->gradients, s.gradients, &trained,
                         sharded,     false,          'g',         law->by_units ? p->weights : p->gradients};
    if (job->fsdp2.on_host) return SPW_OK;
    if (spw_muon_packs(job)) return add_packed_state(f, job, stage);
    spw_component *c = add_part(f, job, &weights);
    c->argument = true;
    LIVE(c, ALWAYS);
    add_fp8_state(f, job, stage, c);
    if (spw_muon_is_dealt(job)) {
        const spw_status status = add_dealt_optimizer(f, job, stage);
        if (status != SPW_OK) return status;
    } else {
        add_shared_optimizer(f, job, stage, law);
    }
    if (spw_fsdp2_waits(job))
        return SPW_OK; /* sharded gradients come when the last backward pass has ended */
    c = add_part(f, job, &gradients);
    c->argument = !sharded;
    LIVE(c, ALWAYS);
    return SPW_OK;
}

/* Gradients of weights that the scheme's list has at the moments at which they are there: 3 e H F. */
static double listed_gradients(const spw_layer_shape *s) {
    if (s->weight_gradients == SPW_WEIGHT_GRADIENTS_UNLISTED) return 0.0;
    return (double)spw_layer_matrices(s) * (double)s->experts_per_rank * (double)s->hidden * (double)s->ffn;
}

void spw_footprint_add_expert_layers(spw_footprint *f, const spw_job *job, const spw_parameters *parameters,
                                     const spw_layer_shape *s) {
    const spw_grid grid = spw_grid_of(job);
    const double layers = (double)job->model.moe_layers, w = (double)job->precision.weights,
                 g = (double)job->precision.gradients, b = (double)s->element_bytes,
                 hidden = (double)s->tokens * (double)job->model.hidden * b,
                 routed = (double)parameters->routed_per_layer / (double)(grid.expert * grid.expert_tensor),
                 held = routed + (double)parameters->router_per_layer + (double)job->model.hidden;
    const char *source = "bare layers: the MoE layers alone (7.10)";
    spw_component *weights =
        spw_component_add(f, "weights", layers * held * w, source,
                          "L (3 e H F + E H + H) w = %.0f x %.6g x %.0f", layers, held, w);
    weights->argument = true;
    LIVE(weights, ALWAYS);
    LIVE(spw_component_add(f, "gradients", layers * held * g, source,
                           "L (3 e H F + E H + H) g = %.0f x %.6g x %.0f", layers, held, g),
         ALWAYS);
    LIVE(spw_component_add(f, "inputs", 2.0 * hidden, source,
                           "input and gradient of the output, 2 x T H b = 2 x %.6g", hidden),
         ALWAYS);
    LIVE_BY_LAYER(spw_component_add(f, "block_outputs", layers * hidden, source, "L T H b = %.0f x %.6g",
                                    layers, hidden),
                  ALWAYS);
    if (spw_remat_keeps_experts(job->remat))
        LIVE_BY_LAYER(spw_component_add(f, "norm_outputs", layers * hidden, source, "L T H b = %.0f x %.6g",
                                        layers, hidden),
                      ALWAYS);
    const double unlisted = fmax(routed - listed_gradients(s), 0.0);
    if (!(unlisted > 0.0)) return;
    LIVE(spw_component_add(f, "expert_weight_gradients", unlisted * w, source,
                           s->weight_gradients == SPW_WEIGHT_GRADIENTS_UNLISTED
                               ? "of a layer, before they are added: 3 e H F w = %.6g x %.0f"
                               : "of biases, before they are added: %.6g x %.0f",
                           unlisted, w),
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
    const char whose = all_experts ? 'E' : 'e';
    const double norms = (double)parameters->norms_per_layer;
    const double moe = (double)spw_model_mixer_most(&job->model, true) + norms +
                       (double)(parameters->shared_per_layer + parameters->router_per_layer),
                 dense_layer = (double)spw_model_mixer_most(&job->model, false) + norms +
                               (double)parameters->dense_ffn_per_layer;
    const double rest = several ? spw_mesh_held(job, moe, whole.layer + (double)whole.moe_layer) : 0.0;
    const double dense = several ? spw_mesh_held(job, dense_layer, whole.layer) : 0.0;
    LIVE(spw_component_add(f, "gathered_expert_weights", GATHERED_LAYERS * routed * w,
                           "fsdp all-gather, next layer prefetched (7.2)", "2 x 3 %c H F w = 2 x %.6g x %.0f",
                           whose, routed, w),
         AT_MOE_LAYER);
    LIVE(spw_component_add(f, "gathered_other_weights", GATHERED_LAYERS * rest * w,
                           "all-gather of attention, shared expert, router; next layer prefetched (7.2)",
                           "2 x %.6g x %.0f", rest, w),
         AT_MOE_LAYER);
    LIVE(spw_component_add(f, "expert_weight_gradients", routed * g,
                           "gradients of a layer before their reduce-scatter (7.2)",
                           "3 %c H F g = %.6g x %.0f", whose, routed, g),
         AT_MOE_LAYER);
    if (stage->moe_layers < stage->layers) {
        LIVE(spw_component_add(f, "gathered_dense_weights", (GATHERED_LAYERS * w + g) * dense,
                               "a dense layer: weights, the next ones, gradients (7.2)",
                               "(2 x %.0f + %.0f) x %.6g", w, g, dense),
             AT_DENSE_LAYER);
    }
}

/* Parameters that a GPU gathers of a stage: of all its blocks, or of the `most` largest of them. */
static double stage_parameters(const spw_job *job, const spw_stage *stage, size_t most) {
    const spw_pipeline p = spw_pipeline_of(job);
    const double moe = spw_fsdp2_unit_of(job, true).parameters,
                 dense = spw_fsdp2_unit_of(job, false).parameters;
    double below = INFINITY, sum = 0.0;
    for (size_t taken = 0; taken < most;) { /* the next largest size, and how many blocks have it */
        double size = 0.0;
        size_t equal = 0;
        for (size_t c = 0; c < p.chunks; c++) {
            const spw_block b = spw_pipeline_block(&p, &job->model, stage->index, c);
            const bool first = stage->embedding && c == 0, last = stage->head && c + 1 == p.chunks;
            const double here = (double)(b.moe_layers + b.predictions) * moe +
                                (double)(b.layers - b.moe_layers) * dense +
                                (first ? spw_fsdp2_embedding(job) : 0.0) + (last ? spw_fsdp2_head(job) : 0.0);
            if (here >= below || here < size) continue;
            equal = here > size ? 1 : equal + 1;
            size = here;
        }
        if (equal == 0) break;
        const size_t take = equal < most - taken ? equal : most - taken;
        sum += (double)take * size;
        taken += take;
        below = size;
    }
    return sum;
}

/* Under pipeline stages: weights stay gathered and gradients whole until a stage's last backward pass has ended. */
static void add_waiting(spw_footprint *f, const spw_job *job, const spw_stage *stage, bool listed) {
    const char *source = "FSDP2 under PyTorch's pipeline stages (7.14)";
    const size_t chunks = spw_pipeline_of(job).chunks, resident = spw_fsdp2_resident(job);
    const spw_parameters p = spw_model_parameters(&job->model);
    const double w = (double)spw_fsdp2_gathered_bytes(job), g = (double)job->precision.gradients,
                 gathered = stage_parameters(job, stage, resident),
                 whole = stage_parameters(job, stage, chunks);
    const double matrix = (double)p.routed_per_layer /
                          ((double)spw_expert_matrices(&job->model) * (double)job->expert),
                 table = stage->head ? spw_fsdp2_head(job) : 0.0;
    LIVE(spw_component_add(f, "fsdp2.parameters", w * gathered, source,
                           "gathered, of %zu of %zu blocks: %.6g x %.0f", resident, chunks, gathered, w),
         ALWAYS);
    LIVE(spw_component_add(f, "fsdp2.whole_gradients", g * whole, source,
                           "not reduced before the last backward pass has ended: %.6g x %.0f", whole, g),
         ALWAYS);
    if (!listed)
        LIVE(spw_component_add(f, "fsdp2.weight_gradient", w * matrix, source,
                               "of one matrix of the experts before it is added: %.6g x %.0f", matrix, w),
             AT_MOE_LAYER);
    LIVE(spw_component_add(f, "fsdp2.head", w * table, source, "gradient before it is added: %.6g x %.0f",
                           table, w),
         AT_LOSS);
    if (!job->fsdp2.on_host) return;
    const spw_fsdp2_unit unit = spw_fsdp2_unit_of(job, true);
    const double copied = (double)(job->precision.weights + job->precision.gradients);
    LIVE(spw_component_add(f, "fsdp2.host_copies", copied * spw_fsdp2_shard(job, &unit), source,
                           "of units of %.6g parameters", unit.parameters),
         AT_MOE_LAYER);
}

void spw_footprint_add_fsdp2(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                             const spw_layer_shape *shape) {
    const double listed = listed_gradients(shape);
    const char *source = "FSDP2, a layer a unit (7.14)";
    if (spw_fsdp2_waits(job)) {
        add_waiting(f, job, stage, listed > 0.0);
        return;
    }
    const double head = stage->head ? spw_fsdp2_head(job) : 0.0, w = (double)spw_fsdp2_gathered_bytes(job);
    const double copied =
        job->fsdp2.on_host ? (double)(job->precision.weights + job->precision.gradients) : 0.0;
    for (int dense = 0; dense < 2; dense++) {
        const spw_fsdp2_unit unit = spw_fsdp2_unit_of(job, !dense), other = spw_fsdp2_unit_of(job, dense);
        const double moe_layers = (double)(stage->moe_layers + stage->predictions),
                     dense_layers = (double)(stage->layers - stage->moe_layers),
                     layers = dense ? dense_layers : moe_layers, others = dense ? moe_layers : dense_layers;
        const double before =
            dense && others > 0.0 ? other.parameters : head; /* layers with experts come last */
        const spw_fsdp2_bytes b = spw_fsdp2_layer(job, &unit, layers, before);
        const double kept = spw_fsdp2_keeps(job) ? w * others * other.parameters : 0.0;
        const struct {
            const char *name;
            double bytes;
            bool there;
        } parts[] = {{dense ? "fsdp2.dense_parameters" : "fsdp2.parameters", b.parameters + kept, true},
                     {dense ? "fsdp2.dense_prefetched" : "fsdp2.prefetched", b.prefetched, true},
                     {dense ? "fsdp2.dense_gradients" : "fsdp2.gradients",
                      b.gradients - (dense ? 0.0 : w * listed), true},
                     {dense ? "fsdp2.dense_reduce_input" : "fsdp2.reduce_input", b.reduced, true},
                     {dense ? "fsdp2.dense_host_copies" : "fsdp2.host_copies",
                      copied * spw_fsdp2_shard(job, &unit), job->fsdp2.on_host}};
        const bool at[SPW_MOMENT_COUNT] = {[SPW_MOMENT_MOE_LAYER] = !dense, [SPW_MOMENT_DENSE_LAYER] = dense};
        for (size_t i = 0; i < sizeof parts / sizeof *parts && layers > 0.0; i++)
            if (parts[i].there)
                spw_component_live(spw_component_add(f, parts[i].name, parts[i].bytes, source,
                                                     "of units of %.6g parameters, w = %.0f", unit.parameters,
                                                     w),
                                   at);
    }
    if (spw_fsdp2_keeps(job)) {
        const double table = stage->embedding ? spw_fsdp2_embedding(job) : 0.0;
        LIVE(spw_component_add(f, "fsdp2.embedding", w * table, source, "stays gathered: %.6g x %.0f", table,
                               w),
             {true, true, true});
        LIVE(spw_component_add(f, "fsdp2.kept_parameters",
                               w * stage_parameters(job, stage, 1) - w * (head + table), source,
                               "all layers, gathered in the forward pass, w = %.0f", w),
             AT_LOSS);
    }
    if (stage->head)
        LIVE(spw_component_add(f, "fsdp2.head", 2.0 * w * head, source,
                               "weights and gradients, 2 x %.6g x %.0f", head, w),
             AT_LOSS);
}

void spw_footprint_add_summed(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const double g = (double)job->precision.gradients;
    if (job->fsdp2.replicas < 2 || spw_fsdp2_waits(job)) return;
    for (int moe = 0; moe < 2; moe++) {
        const spw_fsdp2_unit unit = spw_fsdp2_unit_of(job, moe);
        f->keeps[moe].left = g * spw_fsdp2_shard(job, &unit);
    }
    const spw_fsdp2_unit head = {.parameters = stage->head ? spw_fsdp2_head(job) : 0.0};
    const double first = g * spw_fsdp2_shard(job, &head);
    LIVE(spw_component_add(
             f, "fsdp2.all_reduce_inputs", first,
             "the head's gradients, summed over replicas, kept until the backward pass ends (7.14)",
             "head %.6g", first),
         {[SPW_MOMENT_MOE_LAYER] = true, [SPW_MOMENT_DENSE_LAYER] = true, [SPW_MOMENT_ATTENTION] = true});
}
