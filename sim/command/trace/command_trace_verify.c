#include "sim/command/trace/command_trace.h"

#include "sim/command/command.h"
#include "sim/command/job_options.h"
#include "sim/command/trace/trace_options.h"
#include "sim/print/table.h"
#include "traces/trace.h"
#include "traces/trace_verify.h"

#include <inttypes.h>
#include <stdint.h>

enum { OPTION_RUN = SPW_TRACE_OPTION_OWN, SHOWN_FINDINGS = 20 };

typedef struct verify_options {
    spw_trace_options trace;
    const char *run;
} verify_options;

static const struct argp_option options[] = {
    {"longest-run", OPTION_RUN, "N", 0,
     "so many tokens in a row with the same experts are an error (default: 256)", 0},
    {0},
};

static error_t trace_verify_parse(int key, char *text, struct argp_state *state) {
    verify_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->trace; return 0;
    case OPTION_RUN: o->run = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&spw_trace_argp, 0, NULL, 0}, {0}};
static const struct argp argp = {
    .options = options,
    .parser = trace_verify_parse,
    .args_doc = "TRACE.h5",
    .doc = "Checks that the content of a trace can be true. Exit status 1 when it cannot.",
    .children = children,
};

static void print_findings(const spw_verify_report *report, FILE *out) {
    size_t shown = report->findings < SHOWN_FINDINGS ? report->findings : SHOWN_FINDINGS;
    for (size_t i = 0; i < shown; i++) {
        const spw_verify_finding *finding = &report->finding[i];
        fprintf(out, "check %d", finding->check);
        if (finding->step != INT64_MIN) fprintf(out, ", step %" PRId64, finding->step);
        if (finding->layer != INT32_MIN) fprintf(out, ", layer %" PRId32, finding->layer);
        fprintf(out, ": %s\n", finding->text);
    }
    uint64_t total = 0;
    for (int i = 0; i < SPW_VERIFY_CHECKS; i++) total += report->failed[i];
    if (total > shown) fprintf(out, "and %" PRIu64 " more\n", total - shown);
}

static void add_place(spw_table *table, bool there, int64_t place) {
    if (there)
        spw_table_whole(table, place);
    else
        spw_table_none(table);
}

static spw_status print_report(const spw_verify_report *report, spw_format format, FILE *out) {
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    SPW_TRY(spw_table_create(NULL, &table));
    for (int check = 0; check < SPW_VERIFY_CHECKS; check++) {
        const spw_verify_finding *first = NULL;
        for (size_t i = 0; i < report->findings && first == NULL; i++) {
            if (report->finding[i].check == check + 1) first = &report->finding[i];
        }
        const bool found = first != NULL;
        spw_table_count(spw_table_in(table, "check", "check"), (uint64_t)check + 1);
        spw_table_text(spw_table_in(table, "what", "what (what is counted)"), spw_verify_check_name[check]);
        spw_table_count(spw_table_in(table, "checked", "checked"), report->checked[check]);
        spw_table_count(spw_table_in(table, "failed", "failed"), report->failed[check]);
        add_place(spw_table_in(table, "first_step", NULL), found && first->step != INT64_MIN,
                  found ? first->step : 0);
        add_place(spw_table_in(table, "first_layer", NULL), found && first->layer != INT32_MIN,
                  found ? first->layer : 0);
        spw_table_count_of(spw_table_in(table, "first_number", NULL), found, found ? first->number : 0, 1.0,
                           "%.0f");
        spw_table_in(table, "first_text", NULL);
        if (found)
            spw_table_text(table, first->text);
        else
            spw_table_none(table);
    }
    SPW_TRY(spw_table_print(table, format, out));

cleanup:
    spw_table_destroy(table);
    return status;
}

spw_status spw_command_trace_verify(int argc, char **argv) {
    spw_status status = SPW_OK;
    verify_options o = {.run = NULL};
    spw_format format = SPW_FORMAT_TABLE;
    spw_trace *trace = NULL;
    spw_verify_report report = {.findings = 0};
    uint64_t run = 0, failed = 0;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(spw_trace_options_format(&o.trace, &format));
    if (o.run != NULL) SPW_TRY(spw_parse_count("--longest-run", o.run, UINT32_MAX, &run));
    SPW_TRY(spw_trace_open(o.trace.path, &trace));
    SPW_TRY(spw_trace_verify(trace, (size_t)run, &report));
    SPW_TRY(print_report(&report, format, spw_command_out()));
    if (format == SPW_FORMAT_TABLE) {
        printf("longest run of tokens with the same experts: %" PRIu64 "\n", report.longest_run);
        print_findings(&report, stdout);
    }
    for (int i = 0; i < SPW_VERIFY_CHECKS; i++) failed += report.failed[i] > 0;
    if (failed > 0) {
        status = spw_fail(SPW_EMISMATCH, "%s: %" PRIu64 " of %d checks failed", o.trace.path, failed,
                          SPW_VERIFY_CHECKS);
    }

cleanup:
    spw_verify_clear(&report);
    spw_trace_close(trace);
    return status;
}
