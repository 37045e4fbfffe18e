/* Processor time of a plan of one point: six public jobs, each several times in one process and as a process of its own, beside
 * another planner's program where one is named. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/command/bench/bench_common.h"
#include "sim/command/bench/process_use.h"
#include "sim/print/table.h"
#include "sim/statistics/quantiles.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 5, MOST_WORDS = 32 };

static const double MIB = 1048576.0;

/* What differs between the jobs. All have 4,096 tokens a sequence, one sequence a micro-batch and full recomputation. */
typedef struct bench_job {
    const char *model, *cluster, *pipeline, *expert, *micro_batches;
} bench_job;

static const bench_job jobs[] = {
    {"deepseek-v3", "h100:8x128", "16", "64", "64"},   {"kimi-k2", "h100:8x128", "16", "64", "64"},
    {"qwen3-235b-a22b", "h100:8x16", "8", "16", "16"}, {"mixtral-8x7b", "h100:8x8", "1", "8", "1"},
    {"glm-4.5-air", "h100:8x8", "4", "8", "8"},        {"gpt-oss-120b", "h100:8x8", "1", "64", "1"},
};

typedef struct bench_options {
    const char *routing, *beside;
    spw_bench_common common;
} bench_options;

enum { OPTION_BESIDE = 256 };

static const struct argp_option own_options[] = {
    {"routing", 'r', "TEXT", 0, "the routing (default: uniform)", 0},
    {"beside", OPTION_BESIDE, "PROGRAM", 0,
     "another planner: started with MODEL GPUS PIPELINE EXPERT MICRO_BATCHES it plans that job once; what it "
     "takes stands beside, and nothing where it fails. A number that it prints is its own seconds of a plan "
     "in one process",
     0},
    {0},
};

static error_t bench_plan_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->common; return 0;
    case 'r': o->routing = text; return 0;
    case OPTION_BESIDE: o->beside = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{.argp = &spw_bench_repeats_argp}, {0}};

static const struct argp argp = {
    .options = own_options,
    .children = children,
    .parser = bench_plan_parse,
    .doc = "Processor time of a plan of one point, of six public jobs: in one process that has planned it "
           "before, and as a process of its own, with the memory of that: medians of five times, unless "
           "--repeats says "
           "otherwise.",
};

/* The command line of a job's plan. The text is not changed, though argv has it so. */
static int words_of(const bench_job *job, const char *routing, char *word[MOST_WORDS]) {
    const char *const text[] = {"plan",
                                "--model",
                                job->model,
                                "--cluster",
                                job->cluster,
                                "--pipeline",
                                job->pipeline,
                                "--expert-parallel",
                                job->expert,
                                "--micro-batches",
                                job->micro_batches,
                                "--sequences-per-gpu",
                                job->micro_batches,
                                "--sequence-length",
                                "4096",
                                "--scheme",
                                "megatron-flex",
                                "--optimizer",
                                "distributed",
                                "--remat",
                                "full",
                                "--routing",
                                routing};
    int words = 0;
    for (; (size_t)words < sizeof text / sizeof *text; words++) word[words] = (char *)(uintptr_t)text[words];
    word[words] = NULL;
    return words;
}

/* In a child: the first plan reads what all share, those behind it are written. Never returns. */
static void plan_in_turn(int words, char **word, uint64_t repeats, int to) {
    bool good = true;
    spw_process_print_nowhere(false);
    for (uint64_t i = 0; i <= repeats && good; i++) {
        double begin = 0.0, end = 0.0, taken = 0.0;
        char *copy[MOST_WORDS];
        memcpy(copy, word, sizeof copy);
        good = spw_clock_read(CLOCK_PROCESS_CPUTIME_ID, &begin) && spw_command_plan(words, copy) == SPW_OK &&
               fflush(stdout) == 0 && spw_clock_read(CLOCK_PROCESS_CPUTIME_ID, &end);
        taken = end - begin;
        if (i > 0 && good) good = write(to, &taken, sizeof taken) == (ssize_t)sizeof taken;
    }
    _exit(good ? 0 : 1);
}

/* The median's seconds in one process. */
static spw_status time_in_turn(const bench_job *job, const bench_options *o, double *out) {
    char *word[MOST_WORDS] = {NULL};
    double taken[SPW_PROCESS_REPEATS];
    size_t there = 0;
    int ends[2], wait_status = 0;
    const int words = words_of(job, o->routing, word);
    if (pipe2(ends, O_CLOEXEC) != 0) return spw_fail(SPW_EIO, "bench plan: no pipe: %s", strerror(errno));
    const pid_t child = fork();
    if (child == 0) plan_in_turn(words, word, o->common.repeats, ends[1]);
    (void)close(ends[1]);
    while (child > 0 && there < o->common.repeats &&
           read(ends[0], &taken[there], sizeof *taken) == (ssize_t)sizeof *taken)
        there++;
    (void)close(ends[0]);
    if (child < 0) return spw_fail(SPW_EIO, "bench plan: no process: %s", strerror(errno));
    (void)waitpid(child, &wait_status, 0);
    if (there < o->common.repeats || wait_status != 0)
        return spw_fail(SPW_EARG,
                        "bench plan: %s is not planned with --routing %s; spillway plan says why it is not",
                        job->model, o->routing);
    *out = spw_quantile(taken, there, 0.5);
    return SPW_OK;
}

static spw_status gpus_of(const bench_job *job, char out[32]) {
    const char *nodes = strchr(job->cluster, 'x');
    const long count = nodes != NULL ? 8 * strtol(nodes + 1, NULL, 10) : 0;
    (void)snprintf(out, 32, "%ld", count);
    return count > 0 ? SPW_OK : spw_fail(SPW_EARG, "cluster %s has no nodes", job->cluster);
}

static spw_status add_row(const bench_job *job, const bench_options *o, spw_table *table) {
    char *word[MOST_WORDS] = {NULL}, gpus[32];
    double in_turn = 0.0;
    spw_process_use own, other = {.bytes = 0.0};
    bool planned = false, there = false;
    spw_status status = SPW_OK;
    SPW_TRY(gpus_of(job, gpus));
    SPW_TRY(time_in_turn(job, o, &in_turn));
    char *own_word[MOST_WORDS + 1] = {(char *)(uintptr_t) "spillway"};
    (void)words_of(job, o->routing, own_word + 1);
    SPW_TRY(spw_process_use_of(&(spw_process){.program = SPW_OWN_PROGRAM, .word = own_word},
                               o->common.repeats, &own, &planned));
    if (!planned) SPW_TRY(spw_fail(SPW_EIO, "bench plan: a process that plans %s failed", job->model));
    if (o->beside != NULL) {
        const char *const text[] = {o->beside,     job->model,  gpus,
                                    job->pipeline, job->expert, job->micro_batches};
        for (size_t i = 0; i < sizeof text / sizeof *text; i++) word[i] = (char *)(uintptr_t)text[i];
        SPW_TRY(spw_process_use_of(&(spw_process){.program = o->beside, .word = word}, o->common.repeats,
                                   &other, &there));
    }
    spw_table_text(spw_table_in(table, "model", "model"), job->model);
    spw_table_text(spw_table_in(table, "gpus", "GPUs"), gpus);
    spw_table_scaled(spw_table_in(table, "in_one_process_s", "in one process, ms"), in_turn, 1e-3, "%.0f");
    spw_table_scaled(spw_table_in(table, "process_s", "a process, ms"), own.median_s, 1e-3, "%.0f");
    spw_table_count_of(spw_table_in(table, "process_bytes", "MiB"), true, (uint64_t)own.bytes, MIB, "%.0f");
    if (o->beside == NULL) goto cleanup;
    spw_table_scaled(spw_table_in(table, "other_in_one_process_s", "the other's, ms"),
                     there ? other.said : NAN, 1e-3, "%.0f");
    spw_table_scaled(spw_table_in(table, "other_process_s", "its process, ms"), there ? other.median_s : NAN,
                     1e-3, "%.0f");
    spw_table_count_of(spw_table_in(table, "other_process_bytes", "its MiB"), there, (uint64_t)other.bytes,
                       MIB, "%.0f");
    spw_table_real(spw_table_in(table, "in_one_process_ratio", "over ours"),
                   there ? other.said / in_turn : NAN, "%.1f");
    spw_table_real(spw_table_in(table, "process_ratio", "its process over ours"),
                   there ? other.median_s / own.median_s : NAN, "%.1f");

cleanup:
    return status;
}

spw_status spw_command_bench_plan(int argc, char **argv) {
    bench_options o = {.routing = "uniform", .common.repeats = REPEATS};
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(o.common.status);
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) SPW_TRY(add_row(&jobs[i], &o, table));
    SPW_TRY(spw_table_print(table, o.common.format, stdout));

cleanup:
    spw_table_destroy(table);
    return status;
}
