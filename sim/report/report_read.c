#include "base/file.h"
#include "base/memory.h"
#include "sim/replay/result_answers.h"
#include "sim/report/report_take.h"
#include "sim/report/report_timeline.h"
#include "sim/report/result_open.h"

#include <string.h>

/* Is the first character that of a JSON object? What cannot be read is left to who reads it as HDF5. */
static bool is_json(const char *path) {
    FILE *file = NULL;
    int first = EOF;
    if (spw_file_open(path, &file) != SPW_OK) return false;
    do first = fgetc(file);
    while (first == ' ' || first == '\t' || first == '\n' || first == '\r');
    (void)fclose(file);
    return first == '{';
}

static spw_status read_json(const char *path, spw_report *out) {
    char *text = NULL;
    size_t bytes = 0;
    spw_status status = spw_file_read(path, SPW_RESULT_SUMMARY_BYTES, &text, &bytes);
    if (status != SPW_OK) return status;
    status = spw_report_take_summary(out, text, bytes, spw_report_take_search);
    spw_free(text);
    return status == SPW_EFORMAT ? spw_fail_within(status, "%s", path) : status;
}

spw_status spw_report_read(const char *path, spw_report *out) {
    spw_status status = SPW_OK;
    *out = (spw_report){.rows = 0, .drop_most = SPW_DROP_MOST};
    if (is_json(path)) {
        status = read_json(path, out);
    } else {
        status = spw_result_pictures_read(path, &out->pictures);
        if (status != SPW_OK) return status;
        out->pictured = true;
        status = spw_report_take_summary(out, out->pictures.summary, out->pictures.summary_bytes,
                                         spw_report_take_search);
        if (status == SPW_EFORMAT) status = spw_fail_within(status, "%s: /summary_json", path);
    }
    if (status != SPW_OK) spw_report_clear(out);
    return status;
}

void spw_report_clear(spw_report *report) {
    for (size_t i = 0; i < report->points; i++) spw_report_clear(&report->point[i]);
    spw_free(report->point);
    json_decref(report->root);
    json_decref(report->kept);
    json_decref(report->assumptions);
    spw_free(report->row);
    spw_free(report->order);
    spw_report_timeline_destroy(report->timeline);
    spw_result_pictures_clear(&report->pictures);
    *report = (spw_report){.rows = 0};
}

bool spw_report_is_generated(const spw_report *report) {
    return json_is_true(json_object_get(report->trace, "synthetic"));
}

bool spw_report_has_batches(const spw_report *report) {
    return report->least_sequences < report->most_sequences;
}

const char *spw_report_row_doubt(const spw_report_row *row) {
    return row->replayed || row->surely_fits || !spw_report_row_fits(row) ? "" : "may not fit";
}

const spw_report_row *spw_report_best(const spw_report *report, double most, bool surely) {
    for (size_t i = 0; i < report->fits; i++) {
        const spw_report_row *row = &report->row[report->order[i]];
        if (row->fraction > most || (!(most > 0.0) && row->dropped > 0.0)) continue;
        if (!surely || row->surely_fits) return row;
    }
    return NULL;
}

const spw_report_row *spw_report_first(const spw_report *report) {
    const spw_report_row *best = spw_report_best(report, report->drop_most, false);
    if (best == NULL) best = spw_report_best(report, 1.0, false);
    return best != NULL ? best : &report->row[report->least_memory];
}

bool spw_report_row_live(const spw_report_row *row) {
    return !row->replayed && strcmp(row->kind, "live") == 0;
}
