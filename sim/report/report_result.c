/* The summary of a plan or a replay, read. */
#include "base/memory.h"
#include "sim/report/report_fields.h"
#include "sim/report/report_take.h"
#include "sim/report/report_timeline.h"
#include "sim/report/summary_text.h"
#include <math.h>

#include <string.h>

enum { MOST_ROWS = 1 << 20 };

static spw_status take_settings(spw_report *r) {
    spw_status status = SPW_OK;
    double shared = 0.0; /* GPUs of one expert */
    json_t *parallel = NULL, *batch = NULL;
    SPW_TRY(spw_field_object(r->root, "summary_json", "settings", &r->settings));
    SPW_TRY(spw_field_object(r->settings, "settings", "parallel", &parallel));
    SPW_TRY(spw_field_object(r->settings, "settings", "batch", &batch));
    const spw_field_number split[] = {
        {"expert", &r->expert, 1e9},
        {"fsdp", &r->fsdp, 1e9},
        {"pipeline", &r->pipeline, 1e9},
        {json_object_get(parallel, "expert_tensor") != NULL ? "expert_tensor" : "tensor", &shared, 1e9}};
    const spw_field_number length[] = {{"sequence_length", &r->sequence_length, SPW_FIELD_LARGEST}};
    const spw_field_number device[] = {{"hbm_gib", &r->hbm_gib, 1e9}},
                           budget[] = {{"memory_fraction", &r->memory_fraction, 1.0}};
    const spw_field_number tokens[] = {{"tokens", &r->tokens, SPW_FIELD_LARGEST}};
    SPW_TRY(SPW_FIELD_NUMBERS(parallel, "settings.parallel", split));
    SPW_TRY(SPW_FIELD_NUMBERS(batch, "settings.batch", length));
    SPW_TRY(SPW_FIELD_NUMBERS(r->settings, "settings", device));
    if (!json_is_null(json_object_get(r->settings, "memory_fraction"))) /* a table says what lies outside */
        SPW_TRY(SPW_FIELD_NUMBERS(r->settings, "settings", budget));
    SPW_TRY(spw_field_text(r->settings, "settings", "model", &r->model));
    SPW_TRY(spw_field_text(r->settings, "settings", "cluster", &r->cluster));
    SPW_TRY(spw_field_text(r->settings, "settings", "remat", &r->remat));
    if (json_object_get(r->settings, "offload_modules") != NULL)
        SPW_TRY(spw_field_text(r->settings, "settings", "offload_modules", &r->offload));
    r->gpus = r->expert * r->fsdp * r->pipeline * shared;
    if (json_is_number(json_object_get(r->settings, "tokens")))
        SPW_TRY(SPW_FIELD_NUMBERS(r->settings, "settings", tokens));
    if (r->pictured && r->expert * r->fsdp * shared != (double)r->pictures.ranks)
        SPW_TRY(
            spw_fail(SPW_EFORMAT,
                     "settings.parallel: %g x %g ranks of %g GPUs an expert; must be %zu as in the datasets",
                     r->expert, r->fsdp, shared, r->pictures.ranks));

cleanup:
    return status;
}

static spw_status take_rows(spw_report *r, const spw_summary_text *summary) {
    spw_status status = SPW_OK;
    json_t *row = NULL;
    const char *at = summary->rows;
    const size_t most = r->pictured ? r->pictures.results : MOST_ROWS;
    r->rows = spw_summary_count(summary);
    if (r->pictured && r->rows != most) {
        const size_t found = r->rows;
        r->rows = 0;
        SPW_TRY(spw_fail(SPW_EFORMAT, "%zu rows; must be %zu as in the datasets", found, most));
    }
    if (r->rows == 0 || r->rows > most)
        SPW_TRY(spw_fail(SPW_EFORMAT, "rows: must be 1 to %zu, as a list of objects", most));
    SPW_TRY(SPW_ALLOC(r->rows, &r->row));
    for (size_t i = 0; i < r->rows; i++) {
        SPW_TRY(spw_summary_next(summary, &at, &row));
        SPW_TRY(spw_report_take_row(r, row, i, &r->row[i]));
        json_decref(row);
        row = NULL;
    }
    spw_report_shape(r);

cleanup:
    json_decref(row);
    return status;
}

/* JSON of another kind: a model, or what no command of ours has written. */
static spw_status check_result(const spw_report *r) {
    if (json_object_get(r->root, "format") != NULL || r->pictured) return SPW_OK;
    if (json_object_get(r->root, "model_type") != NULL)
        return spw_fail(
            SPW_EFORMAT,
            "this is the configuration of a model, not a result; `spillway model FILE` reads it, and a "
            "report is made of what plan or replay write with --format json or --output");
    return spw_fail(
        SPW_EFORMAT,
        "no result: it has no key 'format'; a report is made of what plan or replay write with --format "
        "json or --output");
}

/* What is a plan or a replay, once its summary is open. */
static spw_status take_result(spw_report *r, const spw_summary_text *summary, const char *format) {
    spw_status status = SPW_OK;
    if (strcmp(format, "spillway-result") != 0 ||
        json_integer_value(json_object_get(r->root, "version")) != 1)
        return spw_fail(SPW_EFORMAT, "must say format spillway-result, version 1");
    r->kept = json_array();
    r->assumptions = json_object();
    if (r->kept == NULL || r->assumptions == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate the rows");
    SPW_TRY(take_settings(r));
    r->trace = json_object_get(r->root, "trace");
    r->sources = json_object_get(r->root, "sources");
    r->answered = json_is_object(json_object_get(r->root, "answers"));
    r->precision_note = json_string_value(json_object_get(r->root, "precision_note"));
    r->plan = json_object_get(r->root, "plan");
    r->planned = !r->pictured && json_is_object(r->plan);
    SPW_TRY(take_rows(r, summary));
    SPW_TRY(spw_report_take_answers(r));
    SPW_TRY(spw_report_take_timeline(r));

cleanup:
    return status;
}

spw_status spw_report_take_summary(spw_report *r, const char *text, size_t bytes,
                                   spw_report_taker *take_other) {
    spw_status status = SPW_OK;
    spw_summary_text summary = {.root = NULL};
    const char *format = NULL;
    SPW_TRY(spw_summary_open(text, bytes, &summary));
    r->root = json_incref(summary.root);
    SPW_TRY(check_result(r));
    SPW_TRY(spw_field_text(r->root, "summary_json", "format", &format));
    if (take_other != NULL && strcmp(format, "spillway-search") == 0)
        SPW_TRY(take_other(r));
    else
        SPW_TRY(take_result(r, &summary, format));

cleanup:
    spw_summary_close(&summary);
    return status;
}

void spw_report_shape(spw_report *report) {
    report->splits = false;
    for (size_t i = 0; i < report->rows; i++) {
        const spw_report_row *row = &report->row[i], *first = &report->row[0];
        report->least_sequences = i == 0 ? row->sequences : fmin(report->least_sequences, row->sequences);
        report->most_sequences = i == 0 ? row->sequences : fmax(report->most_sequences, row->sequences);
        report->splits =
            report->splits || fabs(row->expert - first->expert) > 0.5 || fabs(row->fsdp - first->fsdp) > 0.5;
    }
}
