#include "sim/report/report_rows.h"

#include "sim/report/report_fields.h"
#include "sim/report/report_take.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double MOST_BYTES = 9e18;
enum { MOST_COMPONENTS = 1024, MOST_ASSUMPTIONS = 1024 };

/* An object of bytes by name. */
static spw_status take_bytes(json_t *object, const char *where, json_t **out) {
    const char *name;
    json_t *value;
    const spw_status status = spw_field_object(object, where, "components", out);
    if (status != SPW_OK) return status;
    if (json_object_size(*out) > MOST_COMPONENTS)
        return spw_fail(SPW_EFORMAT, "%s.components: more than %d", where, MOST_COMPONENTS);
    json_object_foreach(*out, name, value) {
        if (!json_is_number(value) || !spw_field_in_range(json_number_value(value), SPW_FIELD_LARGEST))
            return spw_fail(SPW_EFORMAT, "%s.components: bytes must be numbers from 0 on", where);
    }
    return SPW_OK;
}

static spw_status take_quantiles(json_t *object, const char *where, const char *key,
                                 spw_report_quantiles *out) {
    const spw_field_number list[] = {{"p50_bytes", &out->p50, SPW_FIELD_LARGEST},
                                     {"p99_bytes", &out->p99, SPW_FIELD_LARGEST},
                                     {"max_bytes", &out->most, SPW_FIELD_LARGEST}};
    json_t *from = object;
    const spw_status status = key != NULL ? spw_field_object(object, where, key, &from) : SPW_OK;
    return status == SPW_OK ? SPW_FIELD_NUMBERS(from, where, list) : status;
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
    const spw_field_number list[] = {{"peak_bytes", &peak, MOST_BYTES},
                                     {"low_bytes", &low, MOST_BYTES},
                                     {"high_bytes", &high, MOST_BYTES}};
    const char *stack = NULL;
    spw_status status = SPW_OK;
    if (!json_is_object(newest)) return SPW_OK;
    SPW_TRY(spw_field_text(newest, where, "stack", &stack));
    SPW_TRY(take_verdict(newest, where, &a->verdict));
    SPW_TRY(SPW_FIELD_NUMBERS(newest, where, list));
    a->there = true;
    (void)snprintf(a->stack, sizeof a->stack, "%s", stack);
    a->peak_bytes = (uint64_t)peak;
    a->low_bytes = (uint64_t)low;
    a->high_bytes = (uint64_t)high;
    a->budget_bytes = (uint64_t)fmin(out->budget, MOST_BYTES);

cleanup:
    return status;
}

/* NAN in files of before it was written. */
static double number_or(const json_t *memory, const char *key) {
    const json_t *value = json_object_get(memory, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static spw_status take_memory(json_t *row, spw_report_row *out) {
    static const char *const where = "rows.memory";
    spw_status status = SPW_OK;
    json_t *memory = NULL, *allocator = NULL;
    SPW_TRY(spw_field_object(row, "rows", "memory", &memory));
    const spw_field_number list[] = {{"budget_bytes", &out->budget, SPW_FIELD_LARGEST},
                                     {"argument_bytes", &out->argument, SPW_FIELD_LARGEST},
                                     {"peak_bytes", &out->peak, SPW_FIELD_LARGEST},
                                     {"low_bytes", &out->low, SPW_FIELD_LARGEST},
                                     {"high_bytes", &out->high, SPW_FIELD_LARGEST},
                                     {"oom_probability", &out->oom, 1.0},
                                     {"oom_low", &out->oom_low, 1.0},
                                     {"oom_high", &out->oom_high, 1.0}};
    const spw_field_number most[] = {{"most_bytes", &out->most, SPW_FIELD_LARGEST}};
    SPW_TRY(SPW_FIELD_NUMBERS(memory, where, list));
    SPW_TRY(take_quantiles(memory, where, NULL, &out->held));
    SPW_TRY(take_verdict(memory, where, &out->verdict));
    SPW_TRY(take_newest(memory, out));
    SPW_TRY(spw_field_text(memory, where, "kind", &out->kind));
    out->surely_fits = json_is_boolean(json_object_get(memory, "surely_fits"))
                           ? json_is_true(json_object_get(memory, "surely_fits"))
                           : spw_verdict_is_sure(out->verdict, out->high, out->budget);
    out->outside = number_or(memory, "outside_bytes");
    out->outside_low = number_or(memory, "outside_low_bytes");
    out->outside_high = number_or(memory, "outside_high_bytes");
    out->resident = number_or(memory, "resident_bytes");
    out->most = NAN;
    if (json_is_number(json_object_get(memory, "most_bytes")))
        SPW_TRY(SPW_FIELD_NUMBERS(memory, where, most));
    SPW_TRY(take_bytes(memory, where, &out->components[0]));
    out->advice = "";
    out->moment = json_string_value(json_object_get(memory, "moment"));
    if (out->moment == NULL) out->moment = "";
    allocator = json_object_get(memory, "allocator");
    out->replayed = json_is_object(allocator);
    if (out->replayed) {
        SPW_TRY(take_quantiles(allocator, "rows.memory.allocator", "allocated", &out->allocated));
        SPW_TRY(take_quantiles(allocator, "rows.memory.allocator", "reserved", &out->reserved));
        SPW_TRY(spw_field_text(allocator, "rows.memory.allocator", "advice", &out->advice));
    }

cleanup:
    return status;
}

static spw_status take_traffic(json_t *row, spw_report_row *out) {
    spw_status status = SPW_OK;
    json_t *traffic = NULL, *drops = NULL, *whole = NULL;
    SPW_TRY(spw_field_object(row, "rows", "traffic", &traffic));
    SPW_TRY(spw_field_object(row, "rows", "drops", &drops));
    const spw_field_number list[] = {{"dispatch_bytes_per_gpu", &out->dispatch, SPW_FIELD_LARGEST},
                                     {"combine_bytes_per_gpu", &out->combine, SPW_FIELD_LARGEST},
                                     {"max_link_bytes", &out->port, SPW_FIELD_LARGEST},
                                     {"step_bytes_per_gpu", &out->step_bytes, SPW_FIELD_LARGEST},
                                     {"rows_max", &out->rows_max, SPW_FIELD_LARGEST},
                                     {"rows_mean", &out->rows_mean, SPW_FIELD_LARGEST}};
    const spw_field_number lost[] = {{"dropped", &out->dropped, SPW_FIELD_LARGEST},
                                     {"fraction", &out->fraction, 1.0}};
    SPW_TRY(SPW_FIELD_NUMBERS(traffic, "rows.traffic", list));
    SPW_TRY(SPW_FIELD_NUMBERS(drops, "rows.drops", lost));
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
    SPW_TRY(spw_field_object(row, "rows", "time", &time));
    out->timed = json_is_number(json_object_get(time, "step_s"));
    out->over_balanced = (spw_report_figure){NAN, 0.0, 0.0};
    if (!out->timed) return SPW_OK;
    const spw_field_number list[] = {{"step_s", &out->step_s, SPW_FIELD_LARGEST},
                                     {"low_s", &out->low_s, SPW_FIELD_LARGEST},
                                     {"high_s", &out->high_s, SPW_FIELD_LARGEST},
                                     {"tokens_per_s_per_gpu", &out->tokens, SPW_FIELD_LARGEST},
                                     {"balanced_step_s", &out->balanced_s, SPW_FIELD_LARGEST}};
    const spw_field_number ends[] = {{"tokens_per_s_low", &out->tokens_low, SPW_FIELD_LARGEST},
                                     {"tokens_per_s_high", &out->tokens_high, SPW_FIELD_LARGEST},
                                     {"balanced_low_s", &out->balanced_low, SPW_FIELD_LARGEST},
                                     {"balanced_high_s", &out->balanced_high, SPW_FIELD_LARGEST}};
    const spw_field_number ratio[] = {{"over_balanced", &out->over_balanced.value, SPW_FIELD_LARGEST},
                                      {"over_balanced_low", &out->over_balanced.low, SPW_FIELD_LARGEST},
                                      {"over_balanced_high", &out->over_balanced.high, SPW_FIELD_LARGEST}};
    SPW_TRY(SPW_FIELD_NUMBERS(time, "rows.time", list));
    if (answered) SPW_TRY(SPW_FIELD_NUMBERS(time, "rows.time", ends));
    if (out->balanced_s > 0.0) out->over_balanced.value = out->step_s / out->balanced_s;
    if (json_is_number(json_object_get(time, "over_balanced")))
        SPW_TRY(SPW_FIELD_NUMBERS(time, "rows.time", ratio));
    SPW_TRY(spw_field_object(time, "rows.time", "components", &out->components[2]));
    if (json_object_size(out->components[2]) > MOST_COMPONENTS)
        SPW_TRY(spw_fail(SPW_EFORMAT, "rows.time.components: more than %d", MOST_COMPONENTS));
    json_object_foreach(out->components[2], name, value) {
        double exposed = 0.0;
        const spw_field_number one[] = {{"exposed_s", &exposed, SPW_FIELD_LARGEST}};
        SPW_TRY(SPW_FIELD_NUMBERS(value, "rows.time.components", one));
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
    SPW_TRY(spw_field_object(overload, where, "slowest_rank", &rank));
    SPW_TRY(spw_field_object(overload, where, "slowest_by_layer", &layer));
    SPW_TRY(spw_field_object(overload, where, "max", &most));
    if (json_is_null(json_object_get(most, "mean"))) return SPW_OK;
    const spw_field_number of_rank[] = {{"mean", &out->slowest_rank, SPW_FIELD_LARGEST}},
                           of_layer[] = {{"mean", &out->slowest_by_layer, SPW_FIELD_LARGEST}},
                           of_most[] = {{"mean", &out->overload_max, SPW_FIELD_LARGEST},
                                        {"worst", &out->overload_worst, SPW_FIELD_LARGEST}},
                           of_time[] = {{"step_s", &out->overload_s, SPW_FIELD_LARGEST}};
    SPW_TRY(SPW_FIELD_NUMBERS(rank, where, of_rank));
    SPW_TRY(SPW_FIELD_NUMBERS(layer, where, of_layer));
    SPW_TRY(SPW_FIELD_NUMBERS(most, where, of_most));
    if (out->timed) SPW_TRY(SPW_FIELD_NUMBERS(layer, where, of_time));
    out->overloaded = true;

cleanup:
    return status;
}

/* A figure and its interval; what the file does not have is NAN. */
static spw_status take_figure(json_t *cost, const char *key, spw_report_figure *out) {
    char low[48], high[48];
    const json_t *value = json_object_get(cost, key);
    *out = (spw_report_figure){NAN, NAN, NAN};
    if (value == NULL || json_is_null(value)) return SPW_OK;
    (void)snprintf(low, sizeof low, "%s_low", key);
    (void)snprintf(high, sizeof high, "%s_high", key);
    const spw_field_number list[] = {{key, &out->value, SPW_FIELD_LARGEST},
                                     {low, &out->low, SPW_FIELD_LARGEST},
                                     {high, &out->high, SPW_FIELD_LARGEST}};
    return SPW_FIELD_NUMBERS(cost, "rows.cost", list);
}

spw_status spw_report_take_cost(json_t *cost, spw_report_cost *out) {
    const struct {
        const char *key;
        spw_report_figure *figure;
    } list[] = {{"tokens_per_day", &out->tokens_per_day},
                {"flops_per_s_per_gpu", &out->flops},
                {"mfu", &out->mfu},
                {"days", &out->days},
                {"gpu_hours", &out->gpu_hours},
                {"money", &out->money}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof list / sizeof list[0] && status == SPW_OK; i++)
        status = take_figure(cost, list[i].key, list[i].figure);
    return status;
}

/* Lists that few files have; one too long to be read is not shown. */
static void take_parts(json_t *row, spw_report_row *out) {
    json_t *traffic = json_object_get(row, "traffic"), *levels = json_object_get(traffic, "levels"),
           *stages = json_object_get(json_object_get(row, "memory"), "stages"),
           *outside = json_object_get(row, "outside_fit"),
           *doubts = json_object_get(json_object_get(row, "time"), "doubts");
    out->slowest_level = json_string_value(json_object_get(traffic, "slowest_level"));
    if (out->slowest_level == NULL) out->slowest_level = "";
    out->levels = json_array_size(levels) <= MOST_COMPONENTS ? levels : NULL;
    out->stages = json_array_size(stages) <= MOST_COMPONENTS ? stages : NULL;
    out->outside_fit = json_array_size(outside) > 0 ? outside : NULL;
    out->doubts = out->timed && json_object_size(doubts) > 0 ? doubts : NULL;
}

/* The split of a plan's row; of a file without it, the settings'. */
static spw_status take_split(const spw_report *report, json_t *row, spw_report_row *out) {
    const spw_field_number split[] = {{"expert_parallel", &out->expert, 1e9}, {"fsdp", &out->fsdp, 1e9}};
    if (report->pictured) {
        out->expert = report->expert;
        out->fsdp = report->fsdp;
        return SPW_OK;
    }
    return SPW_FIELD_NUMBERS(row, "rows", split);
}

/* Every sentence of every row, once, in the order in which they come. */
static spw_status take_assumptions(spw_report *report, json_t *row) {
    json_t *list = json_object_get(row, "assumptions"), *sentence;
    size_t place;
    if (!json_is_array(list) || json_array_size(list) > MOST_ASSUMPTIONS)
        return spw_fail(SPW_EFORMAT, "rows.assumptions: must be a list, of at most %d", MOST_ASSUMPTIONS);
    json_array_foreach(list, place, sentence) {
        const char *text = json_string_value(sentence);
        if (text == NULL) return spw_fail(SPW_EFORMAT, "rows.assumptions: must be texts");
        if (json_object_get(report->assumptions, text) == NULL &&
            json_object_set_new_nocheck(report->assumptions, text, json_true()) != 0)
            return spw_fail(SPW_ENOMEM, "cannot allocate the list of what was assumed");
    }
    return SPW_OK;
}

/* What a row points to lives on, and nothing else of its JSON, which takes many times its text. */
static spw_status keep(spw_report *report, json_t *row, spw_report_row *out) {
    json_t *memory = json_object_get(row, "memory"), *allocator = json_object_get(memory, "allocator");
    json_t *const parts[] = {json_object_get(row, "scheme"),
                             json_object_get(row, "evidence"),
                             json_object_get(memory, "kind"),
                             json_object_get(memory, "moment"),
                             json_object_get(allocator, "advice"),
                             out->stages,
                             out->levels,
                             out->outside_fit,
                             out->doubts,
                             json_object_get(json_object_get(row, "traffic"), "slowest_level"),
                             out->components[0],
                             out->components[1]};
    bool good = true;
    const char *name;
    json_t *value, *seconds = out->components[2] != NULL ? json_object() : NULL;
    json_object_foreach(out->components[2], name, value) {
        const double exposed = json_number_value(json_object_get(value, "exposed_s"));
        if (exposed > 0.0) good = good && json_object_set_new_nocheck(seconds, name, json_real(exposed)) == 0;
    }
    out->components[2] = seconds;
    if (seconds != NULL) good = good && json_array_append_new(report->kept, seconds) == 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i] != NULL) good = good && json_array_append(report->kept, parts[i]) == 0;
    }
    return good ? SPW_OK : spw_fail(SPW_ENOMEM, "cannot allocate the rows");
}

/* As many steps and layers as the datasets have, of the same batch. */
static spw_status compare(const spw_report *report, const spw_report_row *row, double steps, double layers) {
    const spw_result_pictures *p = &report->pictures;
    if (!report->pictured) return SPW_OK;
    if (row->sequences != (double)row->picture->sequences || steps != (double)p->steps ||
        layers != (double)p->layers)
        return spw_fail(SPW_EFORMAT,
                        "rows: %g sequences, %g steps, %g layers; must be %g, %zu, %zu as in the datasets",
                        row->sequences, steps, layers, (double)row->picture->sequences, p->steps, p->layers);
    return SPW_OK;
}

spw_status spw_report_take_row(spw_report *report, json_t *row, size_t index, spw_report_row *out) {
    spw_status status = SPW_OK;
    json_t *counts = NULL;
    *out = (spw_report_row){.picture = report->pictured ? &report->pictures.picture[index] : NULL};
    if (!json_is_object(row)) SPW_TRY(spw_fail(SPW_EFORMAT, "rows: must be objects"));
    const spw_field_number list[] = {{"sequences_per_gpu", &out->sequences, SPW_FIELD_LARGEST},
                                     {"layers", &out->layers, SPW_FIELD_LARGEST}};
    const spw_field_number step[] = {{"count", &out->steps, SPW_FIELD_LARGEST}};
    SPW_TRY(spw_field_text(row, "rows", "scheme", &out->scheme));
    SPW_TRY(spw_field_text(row, "rows", "evidence", &out->evidence));
    SPW_TRY(SPW_FIELD_NUMBERS(row, "rows", list));
    SPW_TRY(take_split(report, row, out));
    SPW_TRY(spw_field_object(row, "rows", "steps", &counts));
    SPW_TRY(SPW_FIELD_NUMBERS(counts, "rows.steps", step));
    SPW_TRY(compare(report, out, out->steps, out->layers));
    SPW_TRY(take_memory(row, out));
    SPW_TRY(take_traffic(row, out));
    SPW_TRY(take_time(row, report->answered, out));
    SPW_TRY(take_overload(row, out));
    SPW_TRY(spw_report_take_cost(json_object_get(row, "cost"), &out->cost));
    take_parts(row, out);
    SPW_TRY(take_assumptions(report, row));
    SPW_TRY(keep(report, row, out));

cleanup:
    return status;
}
