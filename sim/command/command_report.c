#include "sim/command/command.h"

#include "base/file.h"
#include "sim/command/job_options.h"
#include "sim/report/report_page.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_OUTPUT = 0x100, OPTION_DROPS, OPTION_REPLAY };

typedef struct report_options {
    const char *result_path, *second, *output, *drops, *replay;
} report_options;

static const struct argp_option options[] = {
    {"output", OPTION_OUTPUT, "FILE.html", SPW_OPTION_WRITES, "the page to write", 0},
    {"replay", OPTION_REPLAY, "RESULT.h5", 0, "beside a plan: a replay of the same job, shown below it", 0},
    {"drop-at-most", OPTION_DROPS, "P", 0,
     "what is called fastest drops at most P percent of the assignments (default: 1)", 0},
    {0},
};

static error_t report_parse(int key, char *text, struct argp_state *state) {
    report_options *o = state->input;
    switch (key) {
    case OPTION_OUTPUT: o->output = text; return 0;
    case OPTION_DROPS: o->drops = text; return 0;
    case OPTION_REPLAY: o->replay = text; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1) argp_error(state, "two results at most, '%s' is a third", text);
        *(state->arg_num == 0 ? &o->result_path : &o->second) = text;
        return 0;
    case ARGP_KEY_END:
        if (o->result_path == NULL)
            argp_error(state, "which result? write: spillway report RESULT.h5 --output report.html");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = report_parse,
    .args_doc = "RESULT.h5|PLAN.json|SEARCH.json [SECOND] --output report.html",
    .doc =
        "Makes one HTML page of what `spillway replay --output RESULT.h5` wrote, or of what `spillway plan "
        "--format json` printed, with --search or without: what fits, what it costs, pictures, assumptions "
        "and sources. With a second one: the best points of both side by side, and what differs in the jobs. "
        "The page needs no network and no script.",
};

/* What a page calls a file: its name, without the folders of somebody's machine. */
static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static void drop_at_most(spw_report *report, double most) {
    report->drop_most = most;
    for (size_t i = 0; i < report->points; i++) report->point[i].drop_most = most;
}

/* A result, a plan with a replay beside it, or two of any kind. */
static spw_status read_all(const report_options *o, spw_report *report, spw_report *replay) {
    const char *beside = o->second != NULL ? o->second : o->replay;
    spw_status status = SPW_OK;
    double drop_most = 0.0;
    SPW_TRY(spw_file_reads(o->result_path));
    if (o->second != NULL && o->replay != NULL)
        SPW_TRY(spw_fail(SPW_EARG, "--replay goes with one plan; leave it out, or '%s'", o->second));
    if (beside != NULL) SPW_TRY(spw_file_reads(beside));
    if (o->drops != NULL) SPW_TRY(spw_parse_percent("--drop-at-most", o->drops, &drop_most));
    SPW_TRY(spw_report_read(o->result_path, report));
    if (beside != NULL) SPW_TRY(spw_report_read(beside, replay));
    if (o->replay != NULL && !(report->planned && replay->pictured))
        SPW_TRY(spw_fail(SPW_EARG,
                         "--replay goes with a plan, and names what `spillway replay --output` wrote: "
                         "spillway report PLAN.json --replay RESULT.h5"));
    if (o->drops != NULL) drop_at_most(report, drop_most);
    if (o->drops != NULL) drop_at_most(replay, drop_most);

cleanup:
    return status;
}

static spw_status write_page(const report_options *o, const spw_report *report, const spw_report *beside,
                             FILE *out) {
    const char *name = name_of(o->result_path);
    if (o->second != NULL) return spw_report_write_pair(report, name, beside, name_of(o->second), out);
    if (o->replay != NULL) return spw_report_write_both(report, name, beside, name_of(o->replay), out);
    return report->searched ? spw_report_write_search(report, name, out)
                            : spw_report_write(report, name, out);
}

spw_status spw_command_report(int argc, char **argv) {
    spw_status status = SPW_OK;
    report_options o = {.output = NULL};
    spw_report report = {.rows = 0}, replay = {.rows = 0};
    spw_file target = {NULL, NULL};
    FILE *out = NULL;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    if (o.output == NULL) SPW_TRY(spw_fail(SPW_EARG, "no output given; write --output report.html"));
    SPW_TRY(read_all(&o, &report, &replay));
    SPW_TRY(spw_file_begin(o.output, &target));
    out = fopen(target.temporary, "w");
    if (out == NULL) SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written: %s", o.output, strerror(errno)));
    SPW_TRY(write_page(&o, &report, &replay, out));
    const bool failed = ferror(out) != 0, closed = fclose(out) == 0;
    out = NULL;
    if (failed || !closed) SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written; is the disk full?", o.output));
    SPW_TRY(spw_file_commit(&target));

cleanup:
    if (out != NULL) (void)fclose(out);
    spw_file_discard(&target);
    spw_report_clear(&report);
    spw_report_clear(&replay);
    return status;
}
