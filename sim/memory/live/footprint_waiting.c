#include "sim/memory/live/footprint_waiting.h"

#include "sim/job/recipe/remat.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/mixer_kept.h"
#include "sim/memory/kept/repeated_modules.h"
#include "sim/memory/kept/residual_streams.h"
#include "sim/memory/kept/selective_ops.h"
#include "sim/memory/kept/torchtitan_kept.h"
#include "sim/weights/fp8_memory.h"

#include <math.h>

/* The input of the last product only if it is trained. */
double spw_footprint_ffn_kept(const spw_job *job) {
    const double all = (double)spw_ffn_matrices(&job->model);
    return job->finetune.frozen == SPW_FROZEN_BASE ? all - 1.0 : all;
}

/* Of one kind of layer. */
static double policy_bytes(const spw_job *job, const spw_layer_shape *s, size_t moe_layers) {
    const size_t elements = spw_remat_token_elements(&job->model, 1, moe_layers, job->remat);
    return (double)elements * (double)s->tokens * (double)s->element_bytes;
}

void spw_footprint_layer_keeps(const spw_job *job, const spw_scheme *scheme, const spw_stage *stage,
                               const spw_layer_shape *s, double attention, spw_waiting_layer out[2]) {
    const spw_model *m = &job->model;
    const spw_repeated_modules gone = spw_repeated_modules_of(job, s);
    const spw_fp8_inputs fp8 = spw_fp8_inputs_of(job);
    const spw_streams_again again = spw_streams_again_of(job, stage, s);
    const double all = (double)s->tokens, tokens = all * (double)s->element_bytes,
                 ffn = spw_footprint_ffn_kept(job) * tokens;
    const double shared =
        spw_remat_repeats(job->remat, SPW_MODULE_MOE) ? 0.0 : ffn * (double)m->shared_ffn + all * fp8.shared;
    for (size_t moe = 0; moe < 2; moe++) {
        out[moe].input = tokens * (double)spw_model_carried(m) - again.share * again.input;
        out[moe].policy = policy_bytes(job, s, moe);
        if (spw_remat_keeps_operations(job->remat)) out[moe].saved = spw_selective_ops_kept(job, s, moe == 1);
    }
    if (!spw_remat_keeps_layers(job->remat)) return;
    /* a layer of experts alone keeps what it and its norm read */
    const double mixer =
        m->half_layers ? 2.0 * tokens * (double)m->hidden : spw_mixers_kept_of(job, s, true, attention).mean;
    out[1].saved = mixer + shared - gone.moe + tokens * (double)(m->latent > 0 ? m->hidden + m->latent : 0);
    out[0].saved = spw_mixers_kept_of(job, s, false, attention).mean + ffn * (double)m->dense_ffn +
                   all * fp8.dense - gone.dense;
    out[1].saved += spw_torchtitan_router_kept(job, scheme, s);
    for (size_t moe = 0; moe < 2; moe++)
        out[moe].saved += all * spw_streams_kept_bytes(job, scheme) - again.share * again.layer[moe];
}

/* --- A stack --- */

/* So many layers with experts and without, and what one of each keeps. */
#define OF_KINDS "= n moe + m dense"
#define OF_KINDS_AND_ENDS OF_KINDS " [+ ends]"

/* The layer at work is counted with its own components, whichever of the two kinds it is. */
static void add_saved(spw_footprint *f, const spw_job *job) {
    const bool moment = spw_attention_is_moment(job);
    const spw_term moe = TERM("moe", f->keeps[1].saved), dense = TERM("dense", f->keeps[0].saved);
    const double moe_layers = (double)f->stage.kept_moe_layers,
                 dense_layers = (double)(f->stage.kept_layers - f->stage.kept_moe_layers);
    LIVE_BY_LAYER(SPW_COMPONENT(f, "saved_activations",
                                "no remat: residuals of all layers beside the experts' (7.3)", OF_KINDS,
                                TERM("n", moe_layers), moe, TERM("m", dense_layers), dense),
                  AT_LOSS);
    if (moe_layers > 0.0) {
        LIVE(SPW_COMPONENT(f, "saved_by_other_layers", "no remat: the same of the other layers (7.3)",
                           OF_KINDS, TERM("n", moe_layers - 1.0), moe, TERM("m", dense_layers), dense),
             {[SPW_MOMENT_MOE_LAYER] = true, [SPW_MOMENT_ATTENTION] = moment});
    }
    if (dense_layers > 0.0) {
        LIVE(SPW_COMPONENT(f, "saved_beside_dense_layer",
                           "no remat: the same of the layers beside a dense one (7.3)", OF_KINDS,
                           TERM("n", moe_layers), moe, TERM("m", dense_layers - 1.0), dense),
             {[SPW_MOMENT_DENSE_LAYER] = true, [SPW_MOMENT_ATTENTION] = moment && moe_layers == 0.0});
    }
}

/* saved: what the MoE layers keep of their experts' rows. */
static void add_saved_rows(spw_footprint *f, const spw_job *job, spw_saved_rows saved) {
    const double here = (double)f->live_set.saved_bytes, routed = (double)saved.all,
                 last = (double)saved.last;
    const spw_term all_rows = TERM("all", routed);
    if (!spw_remat_keeps_experts(job->remat)) return;
    spw_component *all =
        SPW_COMPONENT(f, "saved_rows", "no remat: what the experts of all MoE layers in flight keep (7.3)",
                      "over {layers} layers: = {all}", TERM("layers", f->stage.kept_moe_layers), all_rows);
    spw_component *others =
        SPW_COMPONENT(f, "saved_rows_of_other_layers", "no remat: the same of the other layers (7.3)",
                      "= all - here", all_rows, TERM("here", fmin(here, routed)));
    all->routed = others->routed = true;
    LIVE(all, {false, true, true});
    LIVE(others, AT_MOE_LAYER);
    if (!spw_attention_is_moment(job)) return;
    spw_component *before =
        SPW_COMPONENT(f, "saved_rows_before_the_last", "no remat: the same without the last layer's (7.4)",
                      "= all - last", all_rows, TERM("last", fmin(last, routed)));
    before->routed = true;
    LIVE(before, AT_ATTENTION);
}

void spw_footprint_add_stacked(spw_footprint *f, const spw_job *job, const spw_saved_rows *saved) {
    if (job->part == SPW_PART_WHOLE) add_saved(f, job);
    add_saved_rows(f, job, *saved);
}

void spw_footprint_add_policy(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const size_t elements =
        spw_remat_token_elements(&job->model, f->stage.kept_layers, f->stage.kept_moe_layers, job->remat);
    if (elements == 0) return;
    LIVE_BY_LAYER(SPW_COMPONENT(f, "saved_by_policy",
                                "projections that the remat policy keeps, all layers (7.3)", "{elements} T b",
                                TERM("elements", elements), TERM("T", s->tokens),
                                TERM("b", s->element_bytes)),
                  ALWAYS);
}

/* --- Layers that are freed one by one --- */

/* What one kind of tensor takes at each moment, and how it is called there. */
typedef struct waiting {
    const char *name[SPW_MOMENT_COUNT];
    const char *source;
    uint64_t bytes[SPW_MOMENT_COUNT];
    bool there[SPW_MOMENT_COUNT];
    size_t count[SPW_MOMENT_COUNT][2]; /* layers without experts, with them */
    double each[2];
    double ends[SPW_MOMENT_COUNT]; /* bytes beside those of layers */
} waiting;

/* The loss has most; then what is nearest to it. */
static const spw_moment order[SPW_MOMENT_COUNT] = {
    SPW_MOMENT_LOSS, SPW_MOMENT_MOE_LAYER, SPW_MOMENT_DENSE_LAYER, SPW_MOMENT_ATTENTION, SPW_MOMENT_STEP};

/* One component for all moments at which it is as large. first: takes the place of that component; SIZE_MAX: none. */
static void add_each(spw_footprint *f, const waiting *w, size_t first) {
    bool done[SPW_MOMENT_COUNT] = {false};
    for (size_t i = 0; i < SPW_MOMENT_COUNT; i++) {
        const spw_moment m = order[i];
        bool live[SPW_MOMENT_COUNT] = {false};
        if (done[m] || !w->there[m] || (w->bytes[m] == 0 && first == SIZE_MAX)) continue;
        for (int n = 0; n < SPW_MOMENT_COUNT; n++) {
            live[n] = !done[n] && w->there[n] && w->bytes[n] == w->bytes[m];
            done[n] = done[n] || live[n];
            live[n] = live[n] || (i == 0 && !w->there[n]);
        }
        const spw_term term[] = {TERM("n", w->count[m][1]), TERM("moe", w->each[1]),
                                 TERM("m", w->count[m][0]), TERM("dense", w->each[0]),
                                 TERM("ends", w->ends[m])};
        const bool ends = w->ends[m] > 0.0;
        spw_component *c = first != SIZE_MAX
                               ? &f->component[first]
                               : spw_component_of(f, w->name[m], w->source,
                                                  ends ? OF_KINDS_AND_ENDS : OF_KINDS, term, ends ? 5 : 4);
        if (c->bytes != w->bytes[m]) spw_component_set(c, OF_KINDS, term, 4);
        first = SIZE_MAX;
        c->waits = true;
        spw_component_live_by_layer(c, live);
    }
}

static void count_layers(const spw_stage_moment *m, bool work, size_t count[2]) {
    for (size_t kind = 0; kind < 2; kind++) count[kind] = m->waiting[kind] + (work ? m->at_work[kind] : 0);
}

static void add_inputs(spw_footprint *f, size_t carries) {
    waiting w = {.name = {"carries_at_moe_layer", "carries_at_dense_layer", "carries", "carries_at_attention",
                          "carries_at_step"},
                 .source = "inputs of the layers that wait, and of the one at work (7.9)",
                 .each = {f->keeps[0].input, f->keeps[1].input}};
    waiting p = {.name = {"kept_by_policy_at_moe_layer", "kept_by_policy_at_dense_layer", "saved_by_policy",
                          "kept_by_policy_at_attention", "kept_by_policy_at_step"},
                 .source = "projections that the remat policy keeps (7.3)",
                 .each = {f->keeps[0].policy, f->keeps[1].policy}};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const spw_stage_moment *at = &f->waiting.at[m];
        w.there[m] = p.there[m] = at->there;
        count_layers(at, true, w.count[m]);
        count_layers(at, true, p.count[m]);
        w.bytes[m] = spw_stage_moment_inputs(f->keeps, at);
        p.bytes[m] = spw_stage_moment_policy(f->keeps, at);
    }
    if (carries != SIZE_MAX) add_each(f, &w, carries);
    add_each(f, &p, SIZE_MAX);
}

static void add_residuals(spw_footprint *f, bool moment) {
    waiting w = {.name = {"saved_by_other_layers", "saved_beside_dense_layer", "saved_activations",
                          "saved_beside_attention", "saved_at_step"},
                 .source = "residuals of the layers that wait, beside the experts' (7.3)",
                 .each = {f->keeps[0].saved, f->keeps[1].saved}};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const spw_stage_moment *at = &f->waiting.at[m];
        w.there[m] = at->there && (m != SPW_MOMENT_ATTENTION || moment);
        count_layers(at, false, w.count[m]);
        w.bytes[m] = spw_stage_moment_saved(f->keeps, at);
    }
    add_each(f, &w, SIZE_MAX);
}

static void add_rows(spw_footprint *f, bool moment) {
    static const char *const names[SPW_MOMENT_COUNT] = {"saved_rows_of_other_layers",
                                                        "saved_rows_beside_dense_layer", "saved_rows",
                                                        "saved_rows_beside_attention", "saved_rows_at_step"};
    for (size_t i = 0; i < SPW_MOMENT_COUNT; i++) {
        const spw_moment m = order[i];
        const spw_stage_moment *at = &f->waiting.at[m];
        const bool rare = m != SPW_MOMENT_LOSS && m != SPW_MOMENT_MOE_LAYER;
        bool live[SPW_MOMENT_COUNT] = {false};
        if (!at->there || (m == SPW_MOMENT_ATTENTION && !moment) || (rare && at->rows == 0)) continue;
        spw_component *c = SPW_COMPONENT(
            f, names[m], "what the experts of the MoE layers that wait keep (7.3)",
            "over {layers} layers: = {rows}", TERM("layers", at->waiting[1]), TERM("rows", at->rows));
        c->routed = true;
        live[m] = true;
        spw_component_live(c, live);
    }
}

static void add_left(spw_footprint *f, bool fsdp2) {
    static const char *const names[2][SPW_MOMENT_COUNT] = {
        {"moe_layers_left", "moe_layers_left_at_dense_layer", "moe_layers_left_at_loss",
         "moe_layers_left_at_attention", "moe_layers_left_at_step"},
        {"fsdp2.all_reduce_inputs_left", "fsdp2.all_reduce_inputs_at_dense_layer",
         "fsdp2.all_reduce_inputs_at_loss", "fsdp2.all_reduce_inputs_at_attention",
         "fsdp2.all_reduce_inputs_at_step"}};
    waiting w = {.source =
                     fsdp2 ? "gradients that are summed over replicas, of the layers that ran backward (7.14)"
                           : "input and output of MoE layers that ran backward, until their next pass (7.19)",
                 .each = {f->keeps[0].left, f->keeps[1].left}};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const spw_stage_moment *at = &f->waiting.at[m];
        w.name[m] = names[fsdp2][m];
        w.there[m] = at->there;
        for (size_t kind = 0; kind < 2; kind++) w.count[m][kind] = at->left[kind];
        w.bytes[m] = spw_stage_moment_left(f->keeps, at);
    }
    add_each(f, &w, SIZE_MAX);
}

/* Gradients that FSDP2 made so far: cut, or under pipeline stages whole. */
static void add_made(spw_footprint *f) {
    static const char *const names[2][SPW_MOMENT_COUNT] = {
        {"gradients_at_moe_layer", "gradients_at_dense_layer", "gradients", "gradients_at_attention",
         "gradients_at_step"},
        {"fsdp2.whole_gradients_at_moe_layer", "fsdp2.whole_gradients_at_dense_layer",
         "fsdp2.whole_gradients", "fsdp2.whole_gradients_at_attention", "fsdp2.whole_gradients_at_step"}};
    const bool whole = f->keeps[0].whole || f->keeps[1].whole;
    waiting w = {.source = whole ? "FSDP2 under PyTorch's pipeline stages: of layers that ran backward (7.14)"
                                 : "FSDP2: sharded gradients of layers that ran backward in this step (7.14)",
                 .each = {f->keeps[0].gradient, f->keeps[1].gradient}};
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const spw_stage_moment *at = &f->waiting.at[m];
        w.name[m] = names[whole][m];
        w.there[m] = at->there;
        for (size_t kind = 0; kind < 2; kind++) {
            w.count[m][kind] = at->made[kind];
            w.ends[m] += (double)at->ends[kind] * f->keeps[kind].end;
        }
        w.bytes[m] = spw_stage_moment_made(f->keeps, at);
    }
    add_each(f, &w, SIZE_MAX);
}

void spw_footprint_add_waiting(spw_footprint *f, const spw_job *job, size_t carries) {
    const bool moment = spw_attention_is_moment(job);
    add_inputs(f, carries);
    add_residuals(f, moment);
    if (spw_remat_keeps_experts(job->remat)) add_rows(f, moment);
    add_left(f, job->fsdp2.replicas > 1);
    add_made(f);
}
