/* What a search over a named space takes: points a minute, and how many of them are planned wholly. */
#include "sim/command/command.h"

#include "base/progress.h"
#include "sim/command/bench/bench_common.h"
#include "sim/command/plan/plan_search.h"
#include "sim/print/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WORDS = 48 };

/* All of one global batch, by Megatron-Core's flex dispatcher. */
typedef struct bench_space {
    const char *name;
    const char *word[MOST_WORDS]; /* behind `plan --search` */
} bench_space;

#define FLEX "--scheme", "megatron-flex", "--set", "optimizer=distributed"

#define DEEPSEEK_V3 \
    "--model", "deepseek-v3", "--cluster", "h100:8x128", "--sequence-length", "4096", FLEX, \
        "--global-batch", "8192"

static const bench_space spaces[] = {
    /* 144 points */
    {"olmoe",
     {"--model", "olmoe-1b-7b", "--cluster", "h100:8x2", "--sequence-length", "4096", FLEX, "--global-batch",
      "64", "--over", "pipeline=1,2", "--over", "micro-batches=2,4,8", "--over", "expert-parallel=2,4,8",
      "--over", "virtual-stages=0,2", "--over", "remat=full,none,selective,moe_act"}},
    /* 1,152 points */
    {"deepseek-v3-part",
     {DEEPSEEK_V3, "--over", "pipeline=8,16", "--over", "virtual-stages=0,2", "--over", "tensor=1,2",
      "--over", "context=1", "--over", "expert-tensor=1", "--over", "expert-parallel=32,64"}},
    /* 967,680 points, of which a million a minute is the goal (docs/plan_cost.md) */
    {"deepseek-v3",
     {DEEPSEEK_V3, "--over", "pipeline=1,2,4,8,16", "--over", "virtual-stages=0,2,4", "--over",
      "tensor=1,2,4,8", "--over", "context=1,2,4,8", "--over", "expert-tensor=1,2,4,8", "--over",
      "expert-parallel=1,2,4,8,16,32,64,128,256"}},
};
enum { SPACES = sizeof spaces / sizeof *spaces };

typedef struct bench_options {
    const bench_space *space;
    spw_bench_common common;
} bench_options;

static spw_status find_space(const char *name, const bench_space **out) {
    char names[256] = "";
    for (size_t i = 0; i < SPACES; i++) {
        const size_t used = strlen(names);
        if (strcmp(name, spaces[i].name) == 0) {
            *out = &spaces[i];
            return SPW_OK;
        }
        (void)snprintf(names + used, sizeof names - used, "%s%s", i > 0 ? ", " : "", spaces[i].name);
    }
    return spw_fail(SPW_EARG, "bench search: space '%s' is unknown; it is one of %s", name, names);
}

static error_t bench_search_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->common; return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0) return ARGP_ERR_UNKNOWN;
        if (o->common.status == SPW_OK) o->common.status = find_space(text, &o->space);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{.argp = &spw_bench_format_argp}, {0}};

static const struct argp argp = {
    .children = children,
    .parser = bench_search_parse,
    .args_doc = "[olmoe|deepseek-v3-part|deepseek-v3]",
    .doc = "Seconds of a search over a named space (default: olmoe, of 144 points): of the bounds of all "
           "points, of "
           "sharpening those of candidates, of plans; points a minute; and how many candidates are planned "
           "wholly.",
};

/* Its answer goes nowhere. */
static spw_status search(const bench_space *space, double *seconds) {
    char *word[MOST_WORDS + 3] = {(char *)(uintptr_t) "plan", (char *)(uintptr_t) "--search"};
    int words = 2;
    FILE *nowhere = fopen("/dev/null", "we");
    if (nowhere == NULL) return spw_fail(SPW_EIO, "bench search: /dev/null: %s", strerror(errno));
    for (size_t i = 0; i < MOST_WORDS && space->word[i] != NULL; i++)
        word[words++] = (char *)(uintptr_t)space->word[i];
    const double begin = spw_clock_s();
    spw_command_redirect((spw_command_streams){nowhere, nowhere});
    const spw_status status = spw_command_plan(words, word);
    spw_command_redirect((spw_command_streams){NULL, NULL});
    *seconds = spw_clock_s() - begin;
    (void)fclose(nowhere);
    return status;
}

static void add_row(const bench_space *space, double seconds, spw_table *table) {
    const spw_search_effort effort = spw_plan_search_effort();
    spw_table_text(spw_table_in(table, "space", "space"), space->name);
    spw_table_count(spw_table_in(table, "points", "points"), effort.points);
    spw_table_count(spw_table_in(table, "candidates", "candidates"), effort.candidates);
    spw_table_count(spw_table_in(table, "sharpened", "sharpened"), effort.sharpened);
    spw_table_count(spw_table_in(table, "planned", "planned"), effort.planned);
    spw_table_real(spw_table_in(table, "bounds_s", "bounds s"), effort.bounds_s, "%.2f");
    spw_table_real(spw_table_in(table, "sharpening_s", "sharpening s"), effort.sharpening_s, "%.2f");
    spw_table_real(spw_table_in(table, "plans_s", "plans s"), effort.plans_s, "%.2f");
    spw_table_real(spw_table_in(table, "seconds", "all s"), seconds, "%.2f");
    spw_table_real(spw_table_in(table, "points_a_minute", "points a minute"),
                   60.0 * (double)effort.points / seconds, "%.0f");
}

spw_status spw_command_bench_search(int argc, char **argv) {
    bench_options o = {.space = &spaces[0]};
    double seconds = 0.0;
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(o.common.status);
    SPW_TRY(search(o.space, &seconds));
    SPW_TRY(spw_table_create(NULL, &table));
    add_row(o.space, seconds, table);
    SPW_TRY(spw_table_print(table, o.common.format, stdout));

cleanup:
    spw_table_destroy(table);
    return status;
}
