#include "sim/report/report_rows.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double LARGEST = 1e24, MOST_BYTES = 9e18;
enum { MOST_COMPONENTS = 1024, MOST_ASSUMPTIONS = 1024, MOST_VALUES = 1 << 22 };

/* A number of the summary: its key, where it goes, and the largest that it can be. */
typedef struct number {
    const char *key;
    double *value, most;
} number;

static bool in_range(double value, double most) { return value >= 0.0 && value <= most; }

/* Of an object at `where`; false: one is missing, or is no number from 0 to its largest. */
static spw_status take_numbers(json_t *object, const char *where, const number *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, numbers[i].key);
        *numbers[i].value = json_number_value(value);
        if (!json_is_number(value) || !in_range(*numbers[i].value, numbers[i].most))
            return spw_fail(SPW_EFORMAT, "%s.%s: must be a number from 0 to %g", where, numbers[i].key,
                            numbers[i].most);
    }
    return SPW_OK;
}
#define TAKE_NUMBERS(object, where, list) take_numbers(object, where, list, sizeof(list) / sizeof((list)[0]))

static spw_status take_text(json_t *object, const char *where, const char *key, const char **out) {
    *out = json_string_value(json_object_get(object, key));
    return *out != NULL ? SPW_OK : spw_fail(SPW_EFORMAT, "%s.%s: must be a text", where, key);
}

static spw_status take_object(json_t *object, const char *where, const char *key, json_t **out) {
    *out = json_object_get(object, key);
    return json_is_object(*out) ? SPW_OK : spw_fail(SPW_EFORMAT, "%s.%s: must be an object", where, key);
}

/* An object of bytes by name. */
static spw_status take_bytes(json_t *object, const char *where, json_t **out) {
    const char *name;
    json_t *value;
    const spw_status status = take_object(object, where, "components", out);
    if (status != SPW_OK) return status;
    if (json_object_size(*out) > MOST_COMPONENTS)
        return spw_fail(SPW_EFORMAT, "%s.components: more than %d", where, MOST_COMPONENTS);
    json_object_foreach(*out, name, value) {
        if (!json_is_number(value) || !in_range(json_number_value(value), LARGEST))
            return spw_fail(SPW_EFORMAT, "%s.components: bytes must be numbers from 0 on", where);
    }
    return SPW_OK;
}

static spw_status take_quantiles(json_t *object, const char *where, const char *key,
                                 spw_report_quantiles *out) {
    const number list[] = {{"p50_bytes", &out->p50, LARGEST},
                           {"p99_bytes", &out->p99, LARGEST},
                           {"max_bytes", &out->most, LARGEST}};
    json_t *from = object;
    const spw_status status = key != NULL ? take_object(object, where, key, &from) : SPW_OK;
    return status == SPW_OK ? TAKE_NUMBERS(from, where, list) : status;
}

static spw_status take_verdict(json_t *memory, const char *where, spw_verdict *out) {
    const char *name = json_string_value(json_object_get(memory, "verdict"));
    for (int v = SPW_VERDICT_FITS; v <= SPW_VERDICT_OOM && name != NULL; v++) {
        *out = (spw_verdict)v;
        if (strcmp(name, spw_verdict_name(*out)) == 0) return SPW_OK;
    }
    return spw_fail(SPW_EFORMAT, "%s.verdict: must be fits, tight or oom", where);
}

/* What the newest stack says, where the replay asked it. */
static spw_status take_newest(json_t *memory, spw_report_row *out) {
    static const char *const where = "rows.memory.by_newest_stack";
    json_t *newest = json_object_get(memory, "by_newest_stack");
    spw_newest_arena *a = &out->newest;
    double peak = 0.0, low = 0.0, high = 0.0;
    const number list[] = {{"peak_bytes", &peak, MOST_BYTES},
                           {"low_bytes", &low, MOST_BYTES},
                           {"high_bytes", &high, MOST_BYTES}};
    const char *stack = NULL;
    spw_status status = SPW_OK;
    if (!json_is_object(newest)) return SPW_OK;
    SPW_TRY(take_text(newest, where, "stack", &stack));
    SPW_TRY(take_verdict(newest, where, &a->verdict));
    SPW_TRY(TAKE_NUMBERS(newest, where, list));
    a->there = true;
    (void)snprintf(a->stack, sizeof a->stack, "%s", stack);
    a->peak_bytes = (uint64_t)peak;
    a->low_bytes = (uint64_t)low;
    a->high_bytes = (uint64_t)high;
    a->budget_bytes = (uint64_t)fmin(out->budget, MOST_BYTES);

cleanup:
    return status;
}

static spw_status take_memory(json_t *row, spw_report_row *out) {
    static const char *const where = "rows.memory";
    spw_status status = SPW_OK;
    json_t *memory = NULL, *allocator = NULL;
    SPW_TRY(take_object(row, "rows", "memory", &memory));
    const number list[] = {
        {"budget_bytes", &out->budget, LARGEST}, {"argument_bytes", &out->argument, LARGEST},
        {"peak_bytes", &out->peak, LARGEST},     {"low_bytes", &out->low, LARGEST},
        {"high_bytes", &out->high, LARGEST},     {"oom_probability", &out->oom, 1.0},
        {"oom_low", &out->oom_low, 1.0},         {"oom_high", &out->oom_high, 1.0}};
    SPW_TRY(TAKE_NUMBERS(memory, where, list));
    SPW_TRY(take_quantiles(memory, where, NULL, &out->held));
    SPW_TRY(take_verdict(memory, where, &out->verdict));
    SPW_TRY(take_newest(memory, out));
    SPW_TRY(take_text(memory, where, "kind", &out->kind));
    out->surely_fits = json_is_true(json_object_get(memory, "surely_fits"));
    SPW_TRY(take_bytes(memory, where, &out->components[0]));
    out->advice = "";
    allocator = json_object_get(memory, "allocator");
    out->replayed = json_is_object(allocator);
    if (out->replayed) {
        SPW_TRY(take_quantiles(allocator, "rows.memory.allocator", "allocated", &out->allocated));
        SPW_TRY(take_quantiles(allocator, "rows.memory.allocator", "reserved", &out->reserved));
        SPW_TRY(take_text(allocator, "rows.memory.allocator", "advice", &out->advice));
    }

cleanup:
    return status;
}

static spw_status take_traffic(json_t *row, spw_report_row *out) {
    spw_status status = SPW_OK;
    json_t *traffic = NULL, *drops = NULL, *whole = NULL;
    SPW_TRY(take_object(row, "rows", "traffic", &traffic));
    SPW_TRY(take_object(row, "rows", "drops", &drops));
    const number list[] = {{"dispatch_bytes_per_gpu", &out->dispatch, LARGEST},
                           {"combine_bytes_per_gpu", &out->combine, LARGEST},
                           {"max_link_bytes", &out->port, LARGEST},
                           {"step_bytes_per_gpu", &out->step_bytes, LARGEST},
                           {"rows_max", &out->rows_max, LARGEST},
                           {"rows_mean", &out->rows_mean, LARGEST}};
    const number lost[] = {{"dropped", &out->dropped, LARGEST}, {"fraction", &out->fraction, 1.0}};
    SPW_TRY(TAKE_NUMBERS(traffic, "rows.traffic", list));
    SPW_TRY(TAKE_NUMBERS(drops, "rows.drops", lost));
    SPW_TRY(take_bytes(traffic, "rows.traffic", &out->components[1]));
    whole = json_object_get(traffic, "whole_step_bytes_per_gpu");
    out->whole_bytes = json_is_number(whole) ? json_number_value(whole) : NAN;

cleanup:
    return status;
}

static spw_status take_time(json_t *row, bool answered, spw_report_row *out) {
    spw_status status = SPW_OK;
    const char *name;
    json_t *time = NULL, *value;
    SPW_TRY(take_object(row, "rows", "time", &time));
    out->timed = json_is_number(json_object_get(time, "step_s"));
    if (!out->timed) return SPW_OK;
    const number list[] = {{"step_s", &out->step_s, LARGEST},
                           {"low_s", &out->low_s, LARGEST},
                           {"high_s", &out->high_s, LARGEST},
                           {"tokens_per_s_per_gpu", &out->tokens, LARGEST},
                           {"balanced_step_s", &out->balanced_s, LARGEST}};
    const number ends[] = {{"tokens_per_s_low", &out->tokens_low, LARGEST},
                           {"tokens_per_s_high", &out->tokens_high, LARGEST},
                           {"balanced_low_s", &out->balanced_low, LARGEST},
                           {"balanced_high_s", &out->balanced_high, LARGEST}};
    SPW_TRY(TAKE_NUMBERS(time, "rows.time", list));
    if (answered) SPW_TRY(TAKE_NUMBERS(time, "rows.time", ends));
    SPW_TRY(take_object(time, "rows.time", "components", &out->components[2]));
    if (json_object_size(out->components[2]) > MOST_COMPONENTS)
        SPW_TRY(spw_fail(SPW_EFORMAT, "rows.time.components: more than %d", MOST_COMPONENTS));
    json_object_foreach(out->components[2], name, value) {
        double exposed = 0.0;
        const number one[] = {{"exposed_s", &exposed, LARGEST}};
        SPW_TRY(TAKE_NUMBERS(value, "rows.time.components", one));
    }

cleanup:
    return status;
}

/* Files before 1.2 have none, nor have rows without a single assignment. */
static spw_status take_overload(json_t *row, spw_report_row *out) {
    static const char *const where = "rows.overload";
    spw_status status = SPW_OK;
    json_t *overload = json_object_get(row, "overload"), *rank = NULL, *layer = NULL, *most = NULL;
    out->overload_s = NAN;
    if (!json_is_object(overload)) return SPW_OK;
    SPW_TRY(take_object(overload, where, "slowest_rank", &rank));
    SPW_TRY(take_object(overload, where, "slowest_by_layer", &layer));
    SPW_TRY(take_object(overload, where, "max", &most));
    if (json_is_null(json_object_get(most, "mean"))) return SPW_OK;
    const number of_rank[] = {{"mean", &out->slowest_rank, LARGEST}},
                 of_layer[] = {{"mean", &out->slowest_by_layer, LARGEST}},
                 of_most[] = {{"mean", &out->overload_max, LARGEST},
                              {"worst", &out->overload_worst, LARGEST}},
                 of_time[] = {{"step_s", &out->overload_s, LARGEST}};
    SPW_TRY(TAKE_NUMBERS(rank, where, of_rank));
    SPW_TRY(TAKE_NUMBERS(layer, where, of_layer));
    SPW_TRY(TAKE_NUMBERS(most, where, of_most));
    if (out->timed) SPW_TRY(TAKE_NUMBERS(layer, where, of_time));
    out->overloaded = true;

cleanup:
    return status;
}

static spw_status take_row(const spw_report *report, json_t *row, size_t index, spw_report_row *out) {
    const spw_result_pictures *p = &report->pictures;
    spw_status status = SPW_OK;
    double steps = 0.0, layers = 0.0;
    size_t place;
    json_t *counts = NULL, *sentence;
    out->picture = &p->picture[index];
    if (!json_is_object(row)) SPW_TRY(spw_fail(SPW_EFORMAT, "rows: must be objects"));
    const number list[] = {{"sequences_per_gpu", &out->sequences, LARGEST}, {"layers", &layers, LARGEST}};
    const number step[] = {{"count", &steps, LARGEST}};
    SPW_TRY(take_text(row, "rows", "scheme", &out->scheme));
    SPW_TRY(take_text(row, "rows", "evidence", &out->evidence));
    SPW_TRY(TAKE_NUMBERS(row, "rows", list));
    SPW_TRY(take_object(row, "rows", "steps", &counts));
    SPW_TRY(TAKE_NUMBERS(counts, "rows.steps", step));
    if (out->sequences != (double)out->picture->sequences || steps != (double)p->steps ||
        layers != (double)p->layers)
        SPW_TRY(spw_fail(
            SPW_EFORMAT, "rows: %g sequences, %g steps, %g layers; must be %g, %zu, %zu as in the datasets",
            out->sequences, steps, layers, (double)out->picture->sequences, p->steps, p->layers));
    SPW_TRY(take_memory(row, out));
    SPW_TRY(take_traffic(row, out));
    SPW_TRY(take_time(row, report->answered, out));
    SPW_TRY(take_overload(row, out));
    out->outside_fit = json_array_size(json_object_get(row, "outside_fit")) > 0;
    out->assumptions = json_object_get(row, "assumptions");
    if (!json_is_array(out->assumptions) || json_array_size(out->assumptions) > MOST_ASSUMPTIONS)
        SPW_TRY(spw_fail(SPW_EFORMAT, "rows.assumptions: must be a list, of at most %d", MOST_ASSUMPTIONS));
    json_array_foreach(out->assumptions, place, sentence) {
        if (!json_is_string(sentence)) SPW_TRY(spw_fail(SPW_EFORMAT, "rows.assumptions: must be texts"));
    }

cleanup:
    return status;
}

static spw_status take_settings(spw_report *r) {
    spw_status status = SPW_OK;
    double shared = 0.0; /* GPUs of one expert */
    json_t *parallel = NULL, *batch = NULL;
    SPW_TRY(take_object(r->root, "summary_json", "settings", &r->settings));
    SPW_TRY(take_object(r->settings, "settings", "parallel", &parallel));
    SPW_TRY(take_object(r->settings, "settings", "batch", &batch));
    const number split[] = {
        {"expert", &r->expert, 1e9},
        {"fsdp", &r->fsdp, 1e9},
        {"pipeline", &r->pipeline, 1e9},
        {json_object_get(parallel, "expert_tensor") != NULL ? "expert_tensor" : "tensor", &shared, 1e9}};
    const number length[] = {{"sequence_length", &r->sequence_length, LARGEST}};
    const number budget[] = {{"memory_fraction", &r->memory_fraction, 1.0}, {"hbm_gib", &r->hbm_gib, 1e9}};
    SPW_TRY(TAKE_NUMBERS(parallel, "settings.parallel", split));
    SPW_TRY(TAKE_NUMBERS(batch, "settings.batch", length));
    SPW_TRY(TAKE_NUMBERS(r->settings, "settings", budget));
    SPW_TRY(take_text(r->settings, "settings", "model", &r->model));
    SPW_TRY(take_text(r->settings, "settings", "cluster", &r->cluster));
    SPW_TRY(take_text(r->settings, "settings", "remat", &r->remat));
    r->gpus = r->expert * r->fsdp * r->pipeline * shared;
    if (r->expert * r->fsdp * shared != (double)r->pictures.ranks)
        SPW_TRY(
            spw_fail(SPW_EFORMAT,
                     "settings.parallel: %g x %g ranks of %g GPUs an expert; must be %zu as in the datasets",
                     r->expert, r->fsdp, shared, r->pictures.ranks));

cleanup:
    return status;
}

/* A position of a row; SPW_EFORMAT when it is none. */
static spw_status take_position(const spw_report *r, const json_t *value, const char *key, size_t *out) {
    const json_int_t position = json_integer_value(value);
    if (!json_is_integer(value) || position < 0 || (size_t)position >= r->rows)
        return spw_fail(SPW_EFORMAT, "answers.%s: must be a row from 0 to %zu", key, r->rows - 1);
    *out = (size_t)position;
    return SPW_OK;
}

/* The order names every row that fits once, and no other. */
static spw_status take_answers(spw_report *r) {
    json_t *answers = json_object_get(r->root, "answers"), *order = json_object_get(answers, "order"), *item;
    size_t i, fit = 0;
    bool *seen = NULL;
    spw_status status = SPW_OK;
    if (!r->answered) return SPW_OK;
    SPW_TRY(SPW_ALLOC(r->rows, &r->order));
    SPW_TRY(SPW_ALLOC(r->rows, &seen));
    for (i = 0; i < r->rows; i++) fit += spw_report_row_fits(&r->row[i]);
    if (json_array_size(order) != fit)
        SPW_TRY(spw_fail(SPW_EFORMAT, "answers.order: must list the %zu rows that fit", fit));
    json_array_foreach(order, i, item) {
        size_t row = 0;
        SPW_TRY(take_position(r, item, "order", &row));
        if (seen[row] || !spw_report_row_fits(&r->row[row]))
            SPW_TRY(spw_fail(SPW_EFORMAT, "answers.order: row %zu stands twice, or does not fit", row));
        seen[row] = true;
        r->order[r->fits++] = row;
    }
    SPW_TRY(take_position(r, json_object_get(answers, "least_memory"), "least_memory", &r->least_memory));

cleanup:
    spw_free(seen);
    return status;
}

/* A value is 40 to 100 bytes in memory and may be 2 in the file. Every value but the first of a list or object stands behind a
 * comma. */
static size_t count_values(const char *text, size_t bytes) {
    size_t values = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (quoted && text[i] == '\\') i++;
        values += !quoted && (text[i] == ',' || text[i] == '[' || text[i] == '{');
    }
    return values;
}

static spw_status take_summary(spw_report *r) {
    spw_status status = SPW_OK;
    json_error_t error;
    const char *format = NULL;
    if (count_values(r->pictures.summary, r->pictures.summary_bytes) > MOST_VALUES)
        SPW_TRY(spw_fail(SPW_EFORMAT, "more than %d values", MOST_VALUES));
    r->root = json_loadb(r->pictures.summary, r->pictures.summary_bytes, JSON_REJECT_DUPLICATES, &error);
    spw_free(r->pictures.summary);
    r->pictures.summary = NULL;
    if (!json_is_object(r->root)) {
        char plain[160];
        spw_plain_text(r->root == NULL ? error.text : "no object", plain, sizeof plain);
        SPW_TRY(spw_fail(SPW_EFORMAT, "no JSON object: %s", plain));
    }
    SPW_TRY(take_text(r->root, "summary_json", "format", &format));
    if (strcmp(format, "spillway-result") != 0 ||
        json_integer_value(json_object_get(r->root, "version")) != 1)
        SPW_TRY(spw_fail(SPW_EFORMAT, "must say format spillway-result, version 1"));
    SPW_TRY(take_settings(r));
    r->trace = json_object_get(r->root, "trace");
    r->sources = json_object_get(r->root, "sources");
    r->answered = json_is_object(json_object_get(r->root, "answers"));
    r->precision_note = json_string_value(json_object_get(r->root, "precision_note"));
    json_t *rows = json_object_get(r->root, "rows");
    r->rows = json_array_size(rows);
    if (r->rows != r->pictures.results)
        SPW_TRY(
            spw_fail(SPW_EFORMAT, "%zu rows; must be %zu as in the datasets", r->rows, r->pictures.results));
    SPW_TRY(SPW_ALLOC(r->rows, &r->row));
    for (size_t i = 0; i < r->rows; i++) {
        SPW_TRY(take_row(r, json_array_get(rows, i), i, &r->row[i]));
        r->least_sequences = i == 0 ? r->row[i].sequences : fmin(r->least_sequences, r->row[i].sequences);
        r->most_sequences = fmax(r->most_sequences, r->row[i].sequences);
    }
    SPW_TRY(take_answers(r));

cleanup:
    return status;
}

spw_status spw_report_read(const char *path, spw_report *out) {
    *out = (spw_report){.rows = 0};
    spw_status status = spw_result_pictures_read(path, &out->pictures);
    if (status != SPW_OK) return status;
    status = take_summary(out);
    if (status == SPW_EFORMAT) status = spw_fail_within(status, "%s: /summary_json", path);
    if (status != SPW_OK) spw_report_clear(out);
    return status;
}

void spw_report_clear(spw_report *report) {
    json_decref(report->root);
    spw_free(report->row);
    spw_free(report->order);
    spw_result_pictures_clear(&report->pictures);
    *report = (spw_report){.rows = 0};
}

bool spw_report_has_batches(const spw_report *report) {
    return report->least_sequences < report->most_sequences;
}

bool spw_report_row_fits(const spw_report_row *row) { return row->verdict != SPW_VERDICT_OOM; }

const spw_report_row *spw_report_best(const spw_report *report, double most, bool surely) {
    for (size_t i = 0; i < report->fits; i++) {
        const spw_report_row *row = &report->row[report->order[i]];
        if (row->fraction > most || (!(most > 0.0) && row->dropped > 0.0)) continue;
        if (!surely || row->surely_fits) return row;
    }
    return NULL;
}

bool spw_report_row_live(const spw_report_row *row) {
    return !row->replayed && strcmp(row->kind, "live") == 0;
}

double spw_report_row_cost(const spw_report_row *row) {
    return row->timed && row->balanced_s > 0.0 ? row->step_s / row->balanced_s : NAN;
}
