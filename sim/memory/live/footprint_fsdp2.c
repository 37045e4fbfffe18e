#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/live/footprint_state.h"
#include "sim/weights/block.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <math.h>
#include <string.h>

double spw_footprint_listed_gradients(const spw_layer_shape *s) {
    if (s->weight_gradients == SPW_WEIGHT_GRADIENTS_UNLISTED) return 0.0;
    return (double)spw_layer_matrices(s) * (double)s->experts_per_rank * (double)s->hidden * (double)s->ffn;
}

/* A layer [without experts, with them], and [embedding, head]; those that the stage has not are empty. */
static void units_of(const spw_job *job, const spw_stage *stage, spw_fsdp2_unit layer[2],
                     spw_fsdp2_unit end[2]) {
    for (int moe = 0; moe < 2; moe++) layer[moe] = spw_fsdp2_unit_of(job, moe);
    end[0] = (spw_fsdp2_unit){.parameters = stage->embedding ? spw_fsdp2_embedding(job) : 0.0};
    end[1] = (spw_fsdp2_unit){.parameters = stage->head ? spw_fsdp2_head(job) : 0.0};
}

void spw_footprint_make_by_units(spw_footprint *f, const spw_job *job, const spw_stage *stage, uint64_t all,
                                 bool sharded) {
    spw_fsdp2_unit unit[2 * 2];
    const double units[2 * 2] = {(double)(stage->layers - stage->moe_layers),
                                 (double)(stage->moe_layers + stage->predictions), 1.0, 1.0};
    double part[2 * 2], sum = 0.0;
    units_of(job, stage, unit, unit + 2);
    for (int i = 0; i < 2 * 2; i++) {
        part[i] = sharded ? spw_fsdp2_shard(job, &unit[i]) : unit[i].parameters;
        sum += units[i] * part[i];
    }
    for (int kind = 0; kind < 2 && sum > 0.0; kind++) {
        f->keeps[kind].gradient = part[kind] / sum * (double)all;
        f->keeps[kind].end = part[2 + kind] / sum * (double)all;
        f->keeps[kind].whole = !sharded;
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
    const spw_term w = TERM("w", spw_fsdp2_gathered_bytes(job));
    const double matrix = (double)p.routed_per_layer /
                          ((double)spw_expert_matrices(&job->model) * (double)job->expert),
                 table = stage->head ? spw_fsdp2_head(job) : 0.0;
    LIVE(SPW_COMPONENT(f, "fsdp2.parameters", source,
                       "gathered, of {resident} of {chunks} blocks: = gathered w", TERM("resident", resident),
                       TERM("chunks", chunks), TERM("gathered", stage_parameters(job, stage, resident)), w),
         ALWAYS);
    spw_footprint_make_by_units(
        f, job, stage,
        spw_component_bytes(stage_parameters(job, stage, chunks) * (double)job->precision.gradients), false);
    if (!listed)
        LIVE(SPW_COMPONENT(f, "fsdp2.weight_gradient", source,
                           "of one matrix of the experts before it is added: = matrix w",
                           TERM("matrix", matrix), w),
             AT_MOE_LAYER);
    LIVE(SPW_COMPONENT(f, "fsdp2.head", source, "gradient before it is added: = head w", TERM("head", table),
                       w),
         AT_LOSS);
    if (!job->fsdp2.on_host) return;
    const spw_fsdp2_unit unit = spw_fsdp2_unit_of(job, true);
    const double copied = (double)(job->precision.weights + job->precision.gradients);
    LIVE(SPW_COMPONENT(f, "fsdp2.host_copies", source, "of units of {unit} parameters: = shard copied",
                       TERM("unit", unit.parameters), TERM("shard", spw_fsdp2_shard(job, &unit)),
                       TERM("copied", copied)),
         AT_MOE_LAYER);
}

/* torch _fsdp_collectives.py foreach_all_gather. */
static void live_ahead(spw_component *c, const bool at[SPW_MOMENT_COUNT]) {
    spw_component_live(c, at);
    c->ahead = true;
}

static spw_unit_bytes unit_bytes(const spw_job *job, const spw_fsdp2_unit *unit, double listed) {
    const double w = (double)spw_fsdp2_gathered_bytes(job), g = (double)job->precision.gradients,
                 gathered = unit->parameters - unit->alone;
    return (spw_unit_bytes){
        .gathered = spw_component_bytes(w * gathered),
        .shard = spw_component_bytes(w * (spw_fsdp2_shard(job, unit) - unit->alone)),
        .weights = spw_component_bytes(w * (unit->parameters - unit->routed)),
        .matrix = spw_component_bytes(w * unit->routed / (double)spw_expert_matrices(&job->model)),
        .gradient = spw_component_bytes(w * (unit->parameters - listed)),
        .reduced = spw_component_bytes(g * gathered),
        .reduced_alone = spw_component_bytes(g * unit->alone)};
}

/* Components of add_fsdp2 from `first` on are listed unit by unit. */
static void list_units(spw_footprint *f, const spw_job *job, const spw_stage *stage, double listed,
                       size_t first) {
    spw_fsdp2_unit layer[2], end[2];
    units_of(job, stage, layer, end);
    f->units.listed = f->frees;
    f->units.matrices = spw_expert_matrices(&job->model);
    for (int i = 0; i < 2; i++) {
        f->units.layer[i] = unit_bytes(job, &layer[i], i == 1 ? listed : 0.0);
        f->units.end[i] = unit_bytes(job, &end[i], 0.0);
    }
    for (size_t i = first; i < f->components; i++) f->component[i].apart = true;
}

void spw_footprint_settle_head(spw_footprint *f) {
    const double logits = (double)f->units.logits + 2.0 * (double)f->units.fp32;
    for (size_t i = 0; i < f->components && f->units.fp32 > 0; i++) {
        spw_component *c = &f->component[i];
        if (strcmp(c->name, "fsdp2.head") != 0 || logits < (double)c->bytes / 2.0) continue;
        SPW_COMPONENT_BECOMES(c, "weights; their gradient comes when the loss has gone: = 'head w'",
                              TERM("head w", (double)c->bytes / 2.0));
    }
}

/* Weights stay gathered from the forward to the backward pass. */
static void add_resident(spw_footprint *f, const spw_job *job, const spw_stage *stage, const char *source) {
    const spw_term w = TERM("w", spw_fsdp2_gathered_bytes(job)),
                   head = TERM("head", stage->head ? spw_fsdp2_head(job) : 0.0),
                   table = TERM("table", stage->embedding ? spw_fsdp2_embedding(job) : 0.0);
    LIVE(SPW_COMPONENT(f, "fsdp2.embedding", source, "stays gathered: = table w", table, w),
         {true, true, true});
    LIVE(SPW_COMPONENT(f, "fsdp2.kept_parameters", source,
                       "all layers, gathered in the forward pass: = (all [- head] [- table]) w",
                       TERM("all", stage_parameters(job, stage, 1)), head, table, w),
         AT_LOSS);
}

void spw_footprint_add_fsdp2(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                             const spw_layer_shape *shape) {
    const size_t first = f->components;
    const double listed = spw_footprint_listed_gradients(shape);
    const char *source = "FSDP2, a layer a unit (7.14)";
    if (spw_fsdp2_waits(job)) {
        add_waiting(f, job, stage, listed > 0.0);
        return;
    }
    const bool keeps = spw_fsdp2_keeps(job);
    const double head = stage->head ? spw_fsdp2_head(job) : 0.0;
    const spw_term w = TERM("w", spw_fsdp2_gathered_bytes(job)), g = TERM("g", job->precision.gradients);
    const double copied =
        job->fsdp2.on_host ? (double)(job->precision.weights + job->precision.gradients) : 0.0;
    for (int dense = 0; dense < 2; dense++) {
        const spw_fsdp2_unit unit = spw_fsdp2_unit_of(job, !dense), other = spw_fsdp2_unit_of(job, dense);
        const double moe_layers = (double)(stage->moe_layers + stage->predictions),
                     dense_layers = (double)(stage->layers - stage->moe_layers),
                     layers = dense ? dense_layers : moe_layers, others = dense ? moe_layers : dense_layers;
        const double before =
            dense && others > 0.0 ? other.parameters : head; /* layers with experts come last */
        const spw_fsdp2_layer_parameters here = spw_fsdp2_layer(job, &unit, layers, before);
        const spw_term each = TERM("unit", unit.parameters);
        const bool at[SPW_MOMENT_COUNT] = {[SPW_MOMENT_MOE_LAYER] = !dense, [SPW_MOMENT_DENSE_LAYER] = dense};
        if (!(layers > 0.0)) continue;
        spw_component_live(SPW_COMPONENT(f, dense ? "fsdp2.dense_parameters" : "fsdp2.parameters", source,
                                         "= (n unit [+ others other]) w", TERM("n", here.units), each,
                                         TERM("others", keeps ? others : 0.0),
                                         TERM("other", other.parameters), w),
                           at);
        live_ahead(SPW_COMPONENT(f, dense ? "fsdp2.dense_prefetched" : "fsdp2.prefetched", source,
                                 "= ahead w", TERM("ahead", here.ahead), w),
                   at);
        spw_component_live(SPW_COMPONENT(f, dense ? "fsdp2.dense_gradients" : "fsdp2.gradients", source,
                                         "= (unit [- listed]) w", each, TERM("listed", dense ? 0.0 : listed),
                                         w),
                           at);
        spw_component_live(SPW_COMPONENT(f, dense ? "fsdp2.dense_reduce_input" : "fsdp2.reduce_input", source,
                                         "= largest g", TERM("largest", here.reduced), g),
                           at);
        if (job->fsdp2.on_host)
            spw_component_live(SPW_COMPONENT(f, dense ? "fsdp2.dense_host_copies" : "fsdp2.host_copies",
                                             source, "= shard copied",
                                             TERM("shard", spw_fsdp2_shard(job, &unit)),
                                             TERM("copied", copied)),
                               at);
    }
    if (keeps) add_resident(f, job, stage, source);
    if (stage->head)
        LIVE(SPW_COMPONENT(f, "fsdp2.head", source, "weights and gradients: = 2 head w", TERM("head", head),
                           w),
             AT_LOSS);
    if (!keeps && !job->fsdp2.on_host) list_units(f, job, stage, listed, first);
}

void spw_footprint_add_summed(spw_footprint *f, const spw_job *job, const spw_stage *stage) {
    const double g = (double)job->precision.gradients;
    /* what has the format of the gradients already is theirs: the first time it is kept once */
    const bool same = job->precision.gradients == job->precision.weights && job->micro_batches == 1;
    if (job->fsdp2.replicas < 2 || spw_fsdp2_waits(job) || same) return;
    spw_fsdp2_unit unit[2], end[2];
    units_of(job, stage, unit, end);
    for (int moe = 0; moe < 2; moe++) f->keeps[moe].left = g * spw_fsdp2_shard(job, &unit[moe]);
    LIVE(SPW_COMPONENT(f, "fsdp2.all_reduce_inputs",
                       "the head's gradients, summed over replicas, kept until the backward pass ends (7.14)",
                       "head: = shard g", TERM("shard", spw_fsdp2_shard(job, &end[1])), TERM("g", g)),
         {[SPW_MOMENT_MOE_LAYER] = true, [SPW_MOMENT_DENSE_LAYER] = true, [SPW_MOMENT_ATTENTION] = true});
}
