#include "sim/routing/compose.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/print/plural.h"
#include "sim/routing/counted_tokens.h"
#include "sim/routing/model_match.h"
#include "sim/routing/token_layout.h"
#include "sim/routing/token_runs.h"
#include "traces/generate/made_trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PHASE_TRAIN = 0, PHASE_MIXED = 4 };

struct spw_composer {
    spw_composer_request request;
    const spw_trace_info *info;
    size_t ranks;                      /* of the job */
    size_t *step_begin, steps, layers; /* [steps + 1] trace steps of each replayed step */
    size_t step;                       /* begun */
    spw_trace_record record;           /* of record_layer; SIZE_MAX = none read in this step */
    size_t record_layer, record_drawn; /* record_drawn: sequences of a rank, from counts */
    spw_layout *layout[SPW_JOB_MAX_BATCHES];
    spw_match layer_match, match[SPW_JOB_MAX_BATCHES]; /* of the steps taken, as what follows */
    spw_assumptions *assumptions;                      /* [batches] */
    bool flagged, repeated;                            /* some tokens of a step were */
    spw_match step_match[SPW_JOB_MAX_BATCHES];         /* of the step begun, as what follows */
    spw_assumptions *found;                            /* [batches] */
    spw_token_runs runs;         /* of the step begun; cut into the job's sequences where a batch is drawn */
    spw_counted_tokens *counted; /* for steps of which the trace has counts, but no tokens */
    bool from_counts;            /* the step begun is one */
};

static void assume_all(spw_composer *c, const char *text) {
    for (size_t b = 0; b < c->request.batches; b++) spw_assume(&c->assumptions[b], "%s", text);
}

/* Of one sequence on one rank. */
static size_t rank_length(const spw_composer *c) { return spw_grid_sequence_tokens(c->request.job); }

static size_t batch_tokens(const spw_composer *c, size_t batch) {
    return c->request.sequences[batch] * rank_length(c);
}

/* --- What is replayed --- */

static spw_status check_model(const spw_trace_info *info, const spw_model *model) {
    size_t experts = info->experts, top_k = info->top_k, same = 0; /* same: layers that are as the model's */
    char where[64] = "";
    while (same < info->layers && info->layer_experts[same] == model->experts &&
           info->layer_top_k[same] == model->top_k)
        same++;
    if (same == info->layers && experts == model->experts && top_k == model->top_k) return SPW_OK;
    if (same < info->layers) {
        const bool differs = info->layer_experts[same] != experts || info->layer_top_k[same] != top_k;
        experts = info->layer_experts[same];
        top_k = info->layer_top_k[same];
        if (differs) (void)snprintf(where, sizeof where, " in layer %" PRId32, info->layer_id[same]);
    } else {
        (void)snprintf(where, sizeof where, " by the width of its table of choices");
    }
    return spw_fail(
        SPW_ECONFIG,
        "the trace routes to %zu experts, top-%zu%s, but %s%s has %zu experts, top-%zu; replay it with a "
        "model of its own shape",
        experts, top_k, where, strncmp(model->name, "model ", 6) == 0 ? "the " : "model ", model->name,
        model->experts, model->top_k);
}

static spw_status check_range(const char *what, size_t count, size_t begin, size_t *end) {
    if (*end == 0) *end = count;
    if (begin < *end && *end <= count) return SPW_OK;
    return spw_fail(SPW_EARG,
                    "%s %zu:%zu lie outside the trace, which has %s 0:%zu (positions in it, not the ids that "
                    "it gives them)",
                    what, begin, *end, what, count);
}

/* Layers are the job's when nothing that the trace says of its model differs and there are as many, or when it says how many
 * layers its model has: then it holds some of them. */
static void match_layers(spw_composer *c) {
    const spw_model *model = &c->request.job->model;
    const spw_trace_info *info = c->info;
    char text[SPW_ASSUMPTION_TEXT];
    const spw_model_match match =
        spw_trace_model_match(info, c->request.layer_begin, c->request.layer_end, model, text);
    const bool whole = c->layers == model->moe_layers,
               part = match == SPW_MODEL_SAME && info->model_layers == model->layers;
    if (text[0] != '\0') assume_all(c, text);
    if (match == SPW_MODEL_UNSAID)
        assume_all(
            c,
            "the trace does not say of which model it is; its experts, top-k and layers could be the job's");
    if (match == SPW_MODEL_OTHER || (!whole && !part))
        c->layer_match = SPW_MATCH_FOLDED; /* by position, cycled: nothing is drawn */
    if (whole) return;
    if (c->layers < model->moe_layers) {
        (void)snprintf(text, sizeof text,
                       "%zu layer%s of the trace stand%s for the %zu MoE layers of the job, in turn",
                       c->layers, spw_plural(c->layers), c->layers == 1 ? "s" : "", model->moe_layers);
    } else {
        (void)snprintf(text, sizeof text,
                       "the job has %zu MoE layer%s: step totals take the first of the trace's %zu",
                       model->moe_layers, spw_plural(model->moe_layers), c->layers);
    }
    assume_all(c, text);
}

static bool is_training(const spw_trace_info *info, size_t step) {
    uint8_t phase = info->step_phase[step];
    return info->ranks > 0 || phase == PHASE_TRAIN || phase == PHASE_MIXED;
}

/* Whoever trains does not evaluate or decode. */
static void doubt_phases(spw_composer *c) {
    static const char *const phases[] = {"train", "eval", "prefill", "decode"};
    size_t steps[sizeof phases / sizeof *phases] = {0};
    char text[SPW_ASSUMPTION_TEXT];
    for (size_t s = c->request.step_begin; s < c->request.step_end; s++) {
        if (c->info->step_phase[s] < sizeof phases / sizeof *phases) steps[c->info->step_phase[s]]++;
    }
    for (size_t p = PHASE_TRAIN + 1; p < sizeof phases / sizeof *phases; p++) {
        if (steps[p] == 0) continue;
        (void)snprintf(text, sizeof text, "%zu step%s of phase %s %s replayed as of training", steps[p],
                       spw_plural(steps[p]), phases[p], steps[p] == 1 ? "is" : "are");
        assume_all(c, text);
        spw_match_worsen(&c->layer_match, SPW_MATCH_FOLDED);
    }
}

/* A training step is a step. Steps of an inference trace are pooled until they fill the largest batch. */
static spw_status plan_steps(spw_composer *c) {
    const spw_composer_request *r = &c->request;
    uint64_t enough = 0, pooled = 0;
    spw_status status = SPW_ALLOC(r->step_end - r->step_begin + 1, &c->step_begin);
    if (status != SPW_OK) return status;
    for (size_t b = 0; b < r->batches; b++) {
        uint64_t tokens = (uint64_t)c->ranks * batch_tokens(c, b);
        enough = tokens > enough ? tokens : enough;
    }
    for (size_t s = r->step_begin; s < r->step_end; s++) {
        const bool training = is_training(c->info, s) || !c->info->has_tokens ||
                              c->info->step_offset[s] == c->info->step_offset[s + 1];
        if (training || pooled == 0 || pooled >= enough) {
            c->step_begin[c->steps++] = s;
            pooled = 0;
        }
        pooled = training ? 0 : pooled + c->info->step_tokens[s];
    }
    c->step_begin[c->steps] = r->step_end;
    if (c->steps < r->step_end - r->step_begin)
        assume_all(c, "steps of an inference trace are pooled until they fill a batch");
    return SPW_OK;
}

spw_status spw_composer_create(const spw_composer_request *request, spw_composer **out) {
    spw_status status = SPW_OK;
    spw_composer *c = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    c->request = *request;
    c->info = spw_trace_get_info(request->trace);
    c->ranks = spw_grid_token_ranks(request->job);
    SPW_TRY(SPW_ALLOC(request->batches, &c->assumptions));
    SPW_TRY(SPW_ALLOC(request->batches, &c->found));
    SPW_TRY(check_model(c->info, &request->job->model));
    SPW_TRY(check_range("steps", c->info->steps, request->step_begin, &c->request.step_end));
    SPW_TRY(check_range("layers", c->info->layers, request->layer_begin, &c->request.layer_end));
    c->layers = c->request.layer_end - c->request.layer_begin;
    if (!c->info->has_tokens && !c->info->has_routed && !c->info->has_by_rank) {
        SPW_TRY(spw_fail(SPW_EFORMAT,
                         "the trace has neither tokens/expert_id nor counts/routed: nothing to replay"));
    }
    for (size_t b = 0; b < request->batches; b++)
        SPW_TRY(spw_layout_create(c->ranks, request->sequences[b], &c->layout[b]));
    if (c->info->has_routed || c->info->has_by_rank)
        SPW_TRY(spw_counted_tokens_create(request->trace, c->ranks, &c->counted));
    match_layers(c);
    doubt_phases(c);
    if (c->info->has_placement)
        assume_all(c, "the trace's placement of experts on GPUs (/placement) is not used: experts lie on the "
                      "ranks of a group in "
                      "order, without replicas");
    if (c->info->synthetic) assume_all(c, "the trace is synthetic");
    SPW_TRY(plan_steps(c));
    *out = c;
    c = NULL;

cleanup:
    spw_composer_destroy(c);
    return status;
}

void spw_composer_destroy(spw_composer *c) {
    if (c == NULL) return;
    for (size_t b = 0; b < SPW_JOB_MAX_BATCHES; b++) spw_layout_destroy(c->layout[b]);
    spw_free(c->assumptions);
    spw_free(c->found);
    spw_free(c->step_begin);
    spw_token_runs_clear(&c->runs);
    spw_counted_tokens_destroy(c->counted);
    spw_free(c);
}

size_t spw_composer_steps(const spw_composer *c) { return c->steps; }
size_t spw_composer_layers(const spw_composer *c) { return c->layers; }
int64_t spw_composer_step_id(const spw_composer *c, size_t step) {
    return c->info->step_id[c->step_begin[step]];
}
int32_t spw_composer_layer_id(const spw_composer *c, size_t layer) {
    return c->info->layer_id[c->request.layer_begin + layer];
}
size_t spw_layers_stood_for(size_t moe_layers, size_t layers, size_t layer) {
    return moe_layers / layers + (layer < moe_layers % layers ? 1 : 0);
}
spw_match spw_composer_match(const spw_composer *c, size_t batch) {
    return c->match[batch] > c->layer_match ? c->match[batch] : c->layer_match;
}
const spw_assumptions *spw_composer_assumptions(const spw_composer *c, size_t batch) {
    return &c->assumptions[batch];
}

/* What the columns of a step say that a job's tokens would not; the first step says it for all. */
static void doubt_tokens(spw_composer *c, int64_t step, uint64_t flagged, bool repeated) {
    for (size_t b = 0; b < c->request.batches; b++) {
        if (flagged > 0 && !c->flagged)
            spw_assume(
                &c->assumptions[b],
                "tokens that the trace flags as padding or as of a dummy run are replayed like the others: "
                "%" PRIu64 " of them at step %" PRId64,
                flagged, step);
        if (repeated && !c->repeated)
            spw_assume(&c->assumptions[b],
                       "several tokens have one place in a sequence, at step %" PRId64
                       " first: they are taken as they stand in the trace",
                       step);
    }
    c->flagged = c->flagged || flagged > 0;
    c->repeated = c->repeated || repeated;
    if (c->flagged || c->repeated) spw_match_worsen(&c->layer_match, SPW_MATCH_FOLDED);
}

/* Sequences of a rank that are of the first kinds of micro-batches: those behind them repeat these. */
static size_t own_sequences(const spw_composer_request *r, size_t batch) {
    return r->kinds > 0 ? r->sequences[batch] / r->micro_batches * r->kinds : r->sequences[batch];
}

static spw_token_layout token_layout(spw_composer *c, size_t batch) {
    return (spw_token_layout){.job = c->request.job,
                              .info = c->info,
                              .runs = &c->runs,
                              .ranks = c->ranks,
                              .sequences = c->request.sequences[batch],
                              .step = c->step,
                              .seed = c->request.seed,
                              .kinds = own_sequences(&c->request, batch),
                              .layout = c->layout[batch],
                              .match = &c->step_match[batch],
                              .found = &c->found[batch]};
}

/* Of the trace, that are the step begun. */
static spw_stored_steps stored_steps(const spw_composer *c, bool drawn) {
    return (spw_stored_steps){c->step_begin[c->step], c->step_begin[c->step + 1], drawn};
}

static spw_status begin_tokens(spw_composer *c) {
    bool drawn[SPW_JOB_MAX_BATCHES] = {false}, any = false;
    const spw_stored_steps steps = stored_steps(c, c->request.counts);
    spw_token_store *store = c->request.store;
    spw_status status = store != NULL
                            ? spw_token_store_runs(store, c->request.trace, steps, &c->runs)
                            : spw_token_runs_read(&c->runs, c->request.trace, steps.begin, steps.end);
    for (size_t b = 0; b < c->request.batches && status == SPW_OK; b++) {
        const spw_token_layout layout = token_layout(c, b);
        status = spw_token_layout_deal(&layout);
        drawn[b] = c->layout[b]->begin[c->ranks] == 0;
        any = any || drawn[b];
    }
    if (any && status == SPW_OK) status = spw_token_runs_cut(&c->runs, rank_length(c));
    for (size_t b = 0; b < c->request.batches && status == SPW_OK; b++) {
        const spw_token_layout layout = token_layout(c, b);
        if (drawn[b]) status = spw_token_layout_draw(&layout);
    }
    return status;
}

/* --- Tokens from counts --- */

/* Sequences that are drawn for a rank; further ones of a batch repeat them. */
static size_t drawn_sequences(const spw_composer *c, size_t batch) {
    const size_t want = c->request.sequences[batch], most = c->request.drawn_sequences;
    return most > 0 && most < want ? most : want;
}

static spw_status begin_counts(spw_composer *c) {
    for (size_t b = 0; b < c->request.batches; b++) {
        const size_t length = rank_length(c), sequences = c->request.sequences[b],
                     drawn = drawn_sequences(c, b);
        spw_layout_clear(c->layout[b]);
        for (size_t i = 0; i < c->ranks * sequences; i++) {
            const size_t rank = i / sequences, sequence = i % sequences;
            const spw_segment segment = {(rank * drawn + sequence % drawn) * length, (uint32_t)length,
                                         (uint32_t)sequence};
            const spw_status status = spw_layout_put(c->layout[b], rank, segment);
            if (status != SPW_OK) return status;
        }
        spw_layout_close(c->layout[b]);
        if (drawn < sequences)
            spw_assume(&c->found[b], "%zu sequence%s of a GPU %s drawn, larger batches repeat %s", drawn,
                       drawn == 1 ? "" : "s", drawn == 1 ? "is" : "are", drawn == 1 ? "it" : "them");
        spw_match_worsen(&c->step_match[b], SPW_MATCH_RESAMPLED);
        spw_assume(&c->found[b],
                   "a trace of counts: experts keep their shares, which of them meet in a token is drawn");
    }
    return SPW_OK;
}

/* --- What a step was found to rest on --- */

typedef struct step_note {
    uint64_t flagged, repeated;
} step_note;
typedef struct batch_note {
    uint64_t match, texts; /* that follow */
} batch_note;

spw_status spw_composer_note(const spw_composer *c, spw_note *out) {
    spw_status status = SPW_OK;
    void *at = NULL;
    SPW_TRY(spw_note_add(out, sizeof(step_note), &at));
    if (!c->from_counts) *(step_note *)at = (step_note){c->runs.flagged, c->runs.repeated};
    for (size_t b = 0; b < c->request.batches; b++) {
        const spw_assumptions *list = &c->found[b];
        SPW_TRY(spw_note_add(out, sizeof(batch_note), &at));
        *(batch_note *)at = (batch_note){c->step_match[b], list->count};
        SPW_TRY(spw_note_add(out, list->count * sizeof *list->text, &at));
        if (list->count > 0) memcpy(at, list->text, list->count * sizeof *list->text);
    }

cleanup:
    return status;
}

spw_status spw_composer_take(spw_composer *c, size_t step, spw_note_reader *record) {
    spw_status status = SPW_OK;
    const void *note = NULL, *texts = NULL;
    SPW_TRY(spw_note_next(record, sizeof(step_note), &note));
    doubt_tokens(c, spw_composer_step_id(c, step), ((const step_note *)note)->flagged,
                 ((const step_note *)note)->repeated != 0);
    for (size_t b = 0; b < c->request.batches; b++) {
        SPW_TRY(spw_note_next(record, sizeof(batch_note), &note));
        const batch_note *batch = note;
        SPW_TRY(spw_note_next(record, (size_t)batch->texts * SPW_ASSUMPTION_TEXT, &texts));
        spw_match_worsen(&c->match[b], (spw_match)batch->match);
        for (size_t i = 0; i < batch->texts; i++)
            spw_assume(&c->assumptions[b], "%s", (const char *)texts + i * SPW_ASSUMPTION_TEXT);
    }

cleanup:
    return status;
}

spw_status spw_composer_state(spw_composer *c, const spw_state *state) {
    const size_t batches = c->request.batches;
    spw_status status = SPW_OK;
    SPW_TRY(spw_state_part(state, c->assumptions, batches * sizeof *c->assumptions));
    SPW_TRY(spw_state_part(state, c->match, batches * sizeof *c->match));
    SPW_TRY(spw_state_part(state, &c->layer_match, sizeof c->layer_match));
    SPW_TRY(spw_state_part(state, &c->flagged, sizeof c->flagged));
    SPW_TRY(spw_state_part(state, &c->repeated, sizeof c->repeated));

cleanup:
    return status;
}

/* --- The calls of a replay --- */

spw_status spw_composer_begin(spw_composer *c, size_t step) {
    c->step = step;
    c->record_layer = SIZE_MAX;
    for (size_t b = 0; b < c->request.batches; b++) {
        c->step_match[b] = SPW_MATCH_EXACT;
        c->found[b].count = 0;
    }
    const uint64_t *offset = c->info->step_offset;
    const bool tokens = c->info->has_tokens && offset[c->step_begin[step]] < offset[c->step_begin[step + 1]];
    c->from_counts = !tokens && c->counted != NULL;
    return c->from_counts ? begin_counts(c) : begin_tokens(c);
}

spw_status spw_composer_layer(spw_composer *c, size_t layer, size_t batch, spw_trace_record *record,
                              const spw_layout **layout) {
    const size_t begin = c->step_begin[c->step], steps = c->step_begin[c->step + 1] - begin;
    *layout = c->layout[batch];
    if (c->from_counts) {
        const uint64_t seed = c->request.seed + 7919 * c->ranks * (layer + c->layers * c->step);
        const size_t drawn = drawn_sequences(c, batch);
        if (layer != c->record_layer || drawn != c->record_drawn) {
            const spw_status status = spw_counted_tokens_draw(
                c->counted, begin, c->request.layer_begin + layer, drawn * rank_length(c), seed, &c->record);
            if (status != SPW_OK) return status;
            c->record_layer = layer, c->record_drawn = drawn;
        }
        *record = c->record;
        return SPW_OK;
    }
    if (layer != c->record_layer) { /* batches share it */
        spw_status status = spw_trace_read_record(
            c->request.trace, begin, steps, c->request.layer_begin + layer, c->request.weights, &c->record);
        if (status != SPW_OK) return status;
        c->record_layer = layer;
    }
    *record = c->record;
    return SPW_OK;
}

const spw_layout *spw_composer_layout(const spw_composer *c, size_t batch) { return c->layout[batch]; }

spw_status spw_composer_store(const spw_composer *c, size_t layer, const spw_placement *placement,
                              const spw_layout *layout, bool law, spw_segment_counts **out) {
    *out = NULL;
    if (c->request.store == NULL || c->from_counts) return SPW_OK;
    return spw_token_store_counts(c->request.store, stored_steps(c, law), c->request.layer_begin + layer,
                                  placement, layout, out);
}

spw_status spw_composer_law(const spw_composer *c, size_t layer, const spw_placement *placement,
                            spw_trace_record *record) {
    spw_expert_blocks blocks;
    *record = (spw_trace_record){.tokens = 0};
    if (c->from_counts || !c->request.counts || !spw_segment_counts_law(placement, &blocks)) return SPW_OK;
    return spw_trace_read_law(c->request.trace, c->step_begin[c->step], c->request.layer_begin + layer,
                              blocks, record);
}

bool spw_composer_draws(const spw_composer *c) { return c->from_counts; }
