#include "traces/trace_verify.h"

#include "base/memory.h"
#include "base/walk.h"
#include "traces/generate/random_stream.h"
#include "traces/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_RUN = 256, LEAST_CHOICES = 64 };

const char *const spw_verify_check_name[SPW_VERIFY_CHECKS] = {
    "counts equal tokens x top_k and the tokens' own histogram (histograms)",
    "experts of a token differ and exist (choices)",
    "step offsets do not decrease and end at the last row (steps)",
    "no expert is chosen more often than there are tokens (histograms)",
    "no two layers are identical (pairs)",
    "no long run of tokens with the same experts (tokens)",
    "no layer routes everything to expert 0 (layers)",
};

typedef struct verifier {
    spw_trace *trace;
    const spw_trace_info *info;
    spw_verify_report *report; /* of the step under way */
    size_t longest_run;
    uint32_t *histogram, *routed, *by_rank, *from_ranks; /* [experts], [experts], [ranks][experts] twice */
    uint64_t *layer_hash;                                /* [layers] of the step under way */
    bool ranks_counted;                                  /* from_ranks is of the record under way */
    bool *only_first;                                    /* [layers] nothing but expert 0 in the step */
    uint64_t *layer_choices;                             /* [layers] of the step */
    spw_verify_report *out;                              /* of all steps taken */
    bool *ever_other;                                    /* [layers] something but expert 0 in one of them */
    uint64_t *all_choices;                               /* [layers] of them */
} verifier;

static void find(verifier *v, int check, size_t step, size_t layer, uint64_t number, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static void find(verifier *v, int check, size_t step, size_t layer, uint64_t number, const char *format,
                 ...) {
    spw_verify_report *report = v->report;
    report->failed[check - 1]++;
    if (report->findings == SPW_VERIFY_MAX_FINDINGS) return;
    spw_verify_finding *finding = &report->finding[report->findings++];
    *finding = (spw_verify_finding){
        .check = check,
        .step = step < v->info->steps ? v->info->step_id[step] : INT64_MIN,
        .layer = layer < v->info->layers ? v->info->layer_id[layer] : INT32_MIN,
        .number = number,
    };
    va_list args;
    va_start(args, format);
    (void)vsnprintf(finding->text, sizeof finding->text, format, args); /* NOLINT(clang-analyzer-valist*) */
    va_end(args);
}

/* Check 2, and the histograms of check 1: of the tokens and of every source rank. */
static uint64_t count_tokens(verifier *v, size_t step, size_t layer, const spw_trace_record *record,
                             const uint16_t *source_rank) {
    size_t top_k = record->top_k, used = v->info->layer_top_k[layer];
    uint64_t missing = 0;
    memset(v->histogram, 0, v->info->experts * sizeof *v->histogram);
    v->ranks_counted = source_rank != NULL && v->from_ranks != NULL;
    if (v->ranks_counted) memset(v->from_ranks, 0, v->info->ranks * v->info->experts * sizeof *v->from_ranks);
    for (size_t token = 0; token < record->tokens; token++) {
        uint32_t *of_rank = source_rank != NULL && v->ranks_counted
                                ? v->from_ranks + source_rank[token] * v->info->experts
                                : NULL;
        for (size_t k = 0; k < top_k; k++) {
            unsigned id = spw_trace_record_id(record, token * top_k + k);
            if (id == record->missing) {
                missing += k < used;
                continue;
            }
            v->histogram[id]++;
            if (of_rank != NULL) of_rank[id]++;
            if (k >= used) {
                find(v, 2, step, layer, token, "token %zu chooses %u in slot %zu; the layer has top_k %zu",
                     token, id, k, used);
            }
            for (size_t j = 0; j < k; j++) {
                if (spw_trace_record_id(record, token * top_k + j) != id) continue;
                find(v, 2, step, layer, token, "token %zu chooses expert %u twice", token, id);
                break;
            }
        }
    }
    v->report->checked[1] += record->tokens * used;
    return missing;
}

static uint64_t sum_of(const uint32_t *count, size_t experts) {
    uint64_t sum = 0;
    for (size_t i = 0; i < experts; i++) sum += count[i];
    return sum;
}

static void compare(verifier *v, size_t step, size_t layer, const char *what, const uint32_t *got,
                    const uint32_t *want) {
    for (size_t i = 0; i < v->info->experts; i++) {
        if (got[i] == want[i]) continue;
        find(v, 1, step, layer, got[i], "%s says %u for expert %zu; the tokens say %u", what, got[i], i,
             want[i]);
        return;
    }
}

/* Check 1 of counts/by_rank: its sum over ranks, and each rank where the tokens are known. */
static spw_status check_by_rank(verifier *v, size_t step, size_t layer, bool tokens) {
    spw_status status = SPW_OK;
    char what[48];
    if (!v->info->has_by_rank) goto cleanup;
    SPW_TRY(spw_trace_read_by_rank(v->trace, step, layer, v->by_rank));
    v->report->checked[0]++;
    for (size_t i = 0; i < v->info->experts && v->info->has_routed; i++) {
        uint64_t sum = 0;
        for (size_t rank = 0; rank < v->info->ranks; rank++) sum += v->by_rank[rank * v->info->experts + i];
        if (sum == v->routed[i]) continue;
        find(v, 1, step, layer, sum, "counts/by_rank sums to %llu for expert %zu; counts/routed says %u",
             (unsigned long long)sum, i, v->routed[i]);
        goto cleanup;
    }
    for (size_t rank = 0; tokens && v->ranks_counted && rank < v->info->ranks; rank++) {
        (void)snprintf(what, sizeof what, "counts/by_rank of rank %zu", rank);
        compare(v, step, layer, what, v->by_rank + rank * v->info->experts,
                v->from_ranks + rank * v->info->experts);
    }

cleanup:
    return status;
}

/* Checks 1 and 4 of one step and layer. */
static spw_status check_counts(verifier *v, size_t step, size_t layer, bool tokens, uint64_t missing) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = v->info;
    uint64_t step_tokens = info->step_tokens[step], want = step_tokens * info->layer_top_k[layer] - missing;
    const uint32_t *counts = v->histogram;
    if (info->has_routed) {
        SPW_TRY(spw_trace_read_routed(v->trace, step, layer, v->routed));
        uint64_t sum = sum_of(v->routed, info->experts);
        v->report->checked[0]++;
        if (sum != want) {
            find(v, 1, step, layer, sum, "counts/routed sums to %llu; %llu tokens x top_k %u%s = %llu",
                 (unsigned long long)sum, (unsigned long long)step_tokens, info->layer_top_k[layer],
                 missing > 0 ? " less the missing" : "", (unsigned long long)want);
        } else if (tokens) {
            compare(v, step, layer, "counts/routed", v->routed, v->histogram);
        }
        counts = v->routed;
    } else if (!tokens) {
        goto cleanup;
    }
    SPW_TRY(check_by_rank(v, step, layer, tokens));
    v->report->checked[3]++;
    for (size_t i = 0; i < info->experts; i++) {
        if (counts[i] <= step_tokens) continue;
        find(v, 4, step, layer, counts[i], "expert %zu is chosen %u times by %llu tokens", i, counts[i],
             (unsigned long long)step_tokens);
        break;
    }

cleanup:
    return status;
}

/* Check 6. The sum of hashes does not depend on the order of the experts. */
static void check_runs(verifier *v, size_t step, size_t layer, const spw_trace_record *record) {
    uint64_t before = 0, run = 0;
    if (v->info->layer_experts[layer] == v->info->layer_top_k[layer]) return; /* there is but one set */
    for (size_t token = 0; token <= record->tokens; token++) {
        uint64_t set = 0;
        for (size_t k = 0; token < record->tokens && k < record->top_k; k++) {
            set += spw_random_mix(spw_trace_record_id(record, token * record->top_k + k) + 1);
        }
        if (token > 0 && token < record->tokens && set == before) {
            run++;
            continue;
        }
        if (run > v->report->longest_run) v->report->longest_run = run;
        if (run >= v->longest_run) {
            find(v, 6, step, layer, run,
                 "tokens %zu to %zu have the same experts; fewer than %zu in a row are allowed",
                 (size_t)(token - run), token - 1, v->longest_run);
        }
        run = 1;
        before = set;
    }
    v->report->checked[5] += record->tokens;
}

static uint64_t hash(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t sum = 0x9e3779b97f4a7c15u ^ bytes, word;
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        sum = spw_random_mix(sum ^ word);
    }
    for (; bytes > 0; bytes--) sum = spw_random_mix(sum ^ *at++);
    return sum;
}

/* What checks 5 and 7 remember of a layer. */
static void remember(verifier *v, size_t layer, const spw_trace_record *record, const uint32_t *counts) {
    size_t experts = v->info->experts;
    uint64_t choices = sum_of(counts, experts);
    bool even = true;
    for (size_t i = 1; i < v->info->layer_experts[layer]; i++) even = even && counts[i] == counts[0];
    v->layer_hash[layer] = 0; /* too little, or too regular, to call two layers copies */
    if (choices >= LEAST_CHOICES && v->info->layer_experts[layer] > v->info->layer_top_k[layer]) {
        if (record != NULL)
            v->layer_hash[layer] = hash(record->expert_id, record->tokens * record->top_k * record->id_bytes);
        if (record == NULL && !even) v->layer_hash[layer] = hash(counts, experts * sizeof *counts);
    }
    v->layer_choices[layer] += choices;
    if (counts[0] != choices || v->info->layer_experts[layer] == 1) v->only_first[layer] = false;
}

/* Check 5. */
static void check_copies(verifier *v, size_t step) {
    for (size_t b = 1; b < v->info->layers; b++) {
        for (size_t a = 0; a < b; a++) {
            v->report->checked[4]++;
            if (v->layer_hash[a] == 0 || v->layer_hash[a] != v->layer_hash[b]) continue;
            find(v, 5, step, b, (uint64_t)v->info->layer_id[a], "the same as layer %d, byte for byte",
                 v->info->layer_id[a]);
            break;
        }
    }
}

static spw_status check_layer(verifier *v, size_t step, size_t layer, bool tokens,
                              const uint16_t *source_rank) {
    spw_status status = SPW_OK;
    spw_trace_record record;
    uint64_t missing = 0;
    v->layer_hash[layer] = 0;
    if (tokens) {
        status = spw_trace_read_record(v->trace, step, 1, layer, true, &record);
        if (status == SPW_EFORMAT) { /* an id out of range, or a damaged chunk: the text says which */
            find(v, 2, step, layer, 0, "%s", spw_last_error());
            return SPW_OK;
        }
        if (status != SPW_OK) goto cleanup;
        missing = count_tokens(v, step, layer, &record, source_rank);
        check_runs(v, step, layer, &record);
    }
    SPW_TRY(check_counts(v, step, layer, tokens, missing));
    if (tokens || v->info->has_routed)
        remember(v, layer, tokens ? &record : NULL, tokens ? v->histogram : v->routed);

cleanup:
    return status;
}

static spw_status check_step(verifier *v, size_t step) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = v->info;
    spw_trace_columns columns = {.tokens = 0};
    bool tokens = info->has_tokens && info->step_offset[step + 1] > info->step_offset[step];
    if (tokens) {
        status = spw_trace_read_columns(v->trace, step, 1, &columns);
        if (status == SPW_EFORMAT) find(v, 2, step, SIZE_MAX, 0, "%s", spw_last_error());
        if (status != SPW_OK && status != SPW_EFORMAT) goto cleanup;
        if (status == SPW_EFORMAT) columns = (spw_trace_columns){.tokens = 0};
        status = SPW_OK;
    }
    v->report->checked[2]++; /* what the reader refuses to open otherwise */
    for (size_t layer = 0; layer < info->layers; layer++) {
        SPW_TRY(check_layer(v, step, layer, tokens, columns.source_rank));
    }
    check_copies(v, step);

cleanup:
    return status;
}

/* What a step's record begins with; its findings, and what every layer chose, follow. */
typedef struct step_note {
    uint64_t checked[SPW_VERIFY_CHECKS], failed[SPW_VERIFY_CHECKS], findings, longest_run;
} step_note;
typedef struct layer_note {
    uint64_t choices, only_first;
} layer_note;

/* A unit is a step. */
static spw_status note_step(void *context, size_t step, spw_note *out) {
    verifier *v = context;
    spw_verify_report *report = v->report;
    const size_t layers = v->info->layers;
    spw_status status = SPW_OK;
    void *at = NULL;
    step_note note = {.findings = 0};
    *report = (spw_verify_report){.finding = report->finding};
    for (size_t l = 0; l < layers; l++) v->layer_choices[l] = 0, v->only_first[l] = true;
    SPW_TRY(check_step(v, step));
    memcpy(note.checked, report->checked, sizeof note.checked);
    memcpy(note.failed, report->failed, sizeof note.failed);
    note.findings = report->findings;
    note.longest_run = report->longest_run;
    SPW_TRY(spw_note_add(out, sizeof note, &at));
    memcpy(at, &note, sizeof note);
    SPW_TRY(spw_note_add(out, report->findings * sizeof *report->finding, &at));
    if (report->findings > 0) memcpy(at, report->finding, report->findings * sizeof *report->finding);
    SPW_TRY(spw_note_add(out, layers * sizeof(layer_note), &at));
    for (size_t l = 0; l < layers; l++)
        ((layer_note *)at)[l] = (layer_note){v->layer_choices[l], v->only_first[l]};

cleanup:
    return status;
}

static spw_status take_step(void *context, size_t step, spw_note_reader *record) {
    verifier *v = context;
    spw_verify_report *all = v->out;
    const void *at = NULL, *findings = NULL, *layers = NULL;
    spw_status status = SPW_OK;
    (void)step;
    SPW_TRY(spw_note_next(record, sizeof(step_note), &at));
    const step_note *note = at;
    SPW_TRY(spw_note_next(record, (size_t)note->findings * sizeof *all->finding, &findings));
    SPW_TRY(spw_note_next(record, v->info->layers * sizeof(layer_note), &layers));
    for (int i = 0; i < SPW_VERIFY_CHECKS; i++) {
        all->checked[i] += note->checked[i];
        all->failed[i] += note->failed[i];
    }
    if (note->longest_run > all->longest_run) all->longest_run = note->longest_run;
    for (size_t i = 0; i < note->findings && all->findings < SPW_VERIFY_MAX_FINDINGS; i++)
        all->finding[all->findings++] = ((const spw_verify_finding *)findings)[i];
    for (size_t l = 0; l < v->info->layers; l++) {
        const layer_note *layer = (const layer_note *)layers + l;
        v->all_choices[l] += layer->choices;
        v->ever_other[l] = v->ever_other[l] || layer->only_first == 0;
    }

cleanup:
    return status;
}

static spw_status found(void *context, const spw_state *state) {
    verifier *v = context;
    spw_verify_report *all = v->out;
    const size_t layers = v->info->layers;
    spw_status status = SPW_OK;
    SPW_TRY(spw_state_part(state, all->checked, sizeof all->checked));
    SPW_TRY(spw_state_part(state, all->failed, sizeof all->failed));
    SPW_TRY(spw_state_part(state, &all->longest_run, sizeof all->longest_run));
    SPW_TRY(spw_state_part(state, &all->findings, sizeof all->findings));
    SPW_TRY(spw_state_part(state, all->finding, all->findings * sizeof *all->finding));
    SPW_TRY(spw_state_part(state, v->all_choices, layers * sizeof *v->all_choices));
    SPW_TRY(spw_state_part(state, v->ever_other, layers * sizeof *v->ever_other));

cleanup:
    return status;
}

static spw_status create(verifier *v) {
    spw_status status = SPW_OK;
    const spw_trace_info *info = v->info;
    SPW_TRY(SPW_ALLOC(SPW_VERIFY_MAX_FINDINGS, &v->report->finding));
    SPW_TRY(SPW_ALLOC(info->experts, &v->histogram));
    SPW_TRY(SPW_ALLOC(info->experts, &v->routed));
    SPW_TRY(SPW_ALLOC(info->layers, &v->layer_hash));
    SPW_TRY(SPW_ALLOC(info->layers, &v->only_first));
    SPW_TRY(SPW_ALLOC(info->layers, &v->layer_choices));
    SPW_TRY(SPW_ALLOC(SPW_VERIFY_MAX_FINDINGS, &v->out->finding));
    SPW_TRY(SPW_ALLOC(info->layers, &v->ever_other));
    SPW_TRY(SPW_ALLOC(info->layers, &v->all_choices));
    if (info->has_by_rank) {
        SPW_TRY(SPW_ALLOC(info->ranks * info->experts, &v->by_rank));
        if (info->has_tokens) SPW_TRY(SPW_ALLOC(info->ranks * info->experts, &v->from_ranks));
    }

cleanup:
    return status;
}

spw_status spw_trace_verify(spw_trace *trace, size_t longest_run, spw_verify_report *out) {
    spw_status status = SPW_OK;
    spw_verify_report step = {.findings = 0};
    verifier v = {.trace = trace, .info = spw_trace_get_info(trace), .report = &step, .out = out};
    v.longest_run = longest_run > 0 ? longest_run : DEFAULT_RUN;
    *out = (spw_verify_report){.findings = 0};
    const spw_walk walk = {.what = "verify",
                           .unit = "steps",
                           .units = v.info->steps,
                           .context = &v,
                           .compute = note_step,
                           .take = take_step,
                           .found = found};
    spw_trace_keep_contradictions(trace);
    SPW_TRY(create(&v));
    SPW_TRY(spw_walk_run(&walk, NULL));
    v.report = out;
    for (size_t layer = 0; layer < v.info->layers; layer++) {
        out->checked[6]++;
        if (v.ever_other[layer] || v.all_choices[layer] < LEAST_CHOICES) continue;
        find(&v, 7, SIZE_MAX, layer, v.all_choices[layer], "all %llu choices are expert 0: a dense layer?",
             (unsigned long long)v.all_choices[layer]);
    }

cleanup:
    if (status != SPW_OK) spw_verify_clear(out);
    spw_verify_clear(&step);
    void *owned[] = {v.histogram,  v.routed,     v.by_rank,       v.from_ranks, v.layer_hash,
                     v.only_first, v.ever_other, v.layer_choices, v.all_choices};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
    return status;
}

void spw_verify_clear(spw_verify_report *report) {
    spw_free(report->finding);
    *report = (spw_verify_report){.findings = 0};
}
