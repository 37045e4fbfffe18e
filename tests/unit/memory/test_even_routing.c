/* Even routing costs what balanced routing costs, on any cluster: every token of a rank chooses another set of experts,
 * until all sets of top_k experts have been chosen alike. Groups lie inside nodes, on whole nodes, or straddle them. */
#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/machine/time_stack.h"
#include "sim/plan/plan_points.h"

#include "base/file.h"
#include "sim/schemes/list.h"
#include "sim/time/routing_load.h"
#include "tests/unit/check.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 15, MOST_TOP_K = 3, MOST_ALL_TOKENS = 5 << 19 };

typedef struct even_case {
    size_t nodes, gpus_per_node, expert, experts, top_k;
} even_case;

static char trace_path[512];

static size_t subsets(size_t n, size_t k) {
    size_t product = 1;
    for (size_t i = 0; i < k; i++) product = product * (n - i) / (i + 1);
    return product;
}

/* Times that a rank goes through all sets, so that an expert's last tile is half empty, as balanced routing has it; 0 when no
 * number does. */
static size_t rounds_of(const even_case *c) {
    size_t rows = c->expert * subsets(c->experts - 1, c->top_k - 1), rounds = 1;
    while (rows * rounds % SPW_TILE_ROWS != SPW_TILE_ROWS / 2 && rounds < SPW_TILE_ROWS) rounds *= 2;
    return rounds < SPW_TILE_ROWS ? rounds : 0;
}

/* ids [tokens][top_k]: the sets in order, again and again. */
static void enumerate(const even_case *c, size_t tokens, uint16_t *ids) {
    uint16_t set[MOST_TOP_K] = {0, 1, 2};
    for (size_t t = 0; t < tokens; t++) {
        size_t k = c->top_k;
        memcpy(ids + t * c->top_k, set, c->top_k * sizeof *set);
        while (k > 0 && set[k - 1] == c->experts - c->top_k + k - 1) k--;
        for (size_t i = k > 0 ? k - 1 : 0; i < c->top_k; i++)
            set[i] = k == 0 ? (uint16_t)i : (uint16_t)(i == k - 1 ? set[i] + 1 : set[i - 1] + 1);
    }
}

static spw_status write_even(const even_case *c, size_t ranks, size_t tokens) {
    static uint16_t rank[MOST_ALL_TOKENS], ids[MOST_ALL_TOKENS * MOST_TOP_K];
    const int32_t layer_id = 0;
    const uint32_t experts = (uint32_t)c->experts, top_k = (uint32_t)c->top_k;
    const spw_trace_info info = {.layers = 1,
                                 .experts = c->experts,
                                 .top_k = c->top_k,
                                 .ranks = ranks,
                                 .has_tokens = true,
                                 .layer_id = &layer_id,
                                 .layer_experts = &experts,
                                 .layer_top_k = &top_k};
    const spw_trace_write_step step = {.tokens = ranks * tokens, .tokens_kept = true, .source_rank = rank};
    spw_trace_writer *writer = NULL;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < ranks; r++) {
        enumerate(c, tokens, ids + r * tokens * c->top_k);
        for (size_t t = 0; t < tokens; t++) rank[r * tokens + t] = (uint16_t)r;
    }
    SPW_TRY(
        spw_trace_writer_create(trace_path, &(spw_trace_write_settings){.info = &info, .level = 1}, &writer));
    SPW_TRY(spw_trace_writer_begin_step(writer, &step));
    SPW_TRY(spw_trace_writer_put_layer(writer, 0, ids, NULL));
    SPW_TRY(spw_trace_writer_end_step(writer));
    status = spw_trace_writer_finish(writer);
    writer = NULL;

cleanup:
    spw_trace_writer_abandon(writer);
    return status;
}

static spw_job job_of(const even_case *c, size_t tokens) {
    static const char text[] = "model: scratch-moe-e64\ncluster: b200-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                               "batch: {sequences_per_gpu: 1, sequence_length: 512}\n";
    spw_job job;
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    job.model.experts = c->experts;
    job.model.top_k = c->top_k;
    job.cluster.nodes = c->nodes;
    job.cluster.gpus_per_node = c->gpus_per_node;
    job.expert = c->expert;
    job.fsdp = c->nodes * c->gpus_per_node / c->expert;
    job.sequence_length = tokens;
    CHECK_OK(spw_job_check(&job));
    return job;
}

/* All schemes that have a time, with options that drop nothing. */
static size_t schemes_of(spw_scheme *scheme) {
    static const char *const more[] = {"dense:capacity_factor=2", "gmm:exchange=oneshot",
                                       "megatron-alltoall:capacity_factor=2,policy=position,pad=true"};
    size_t count = 0;
    for (size_t i = 0; i < SPW_COUNT_OF(more); i++) CHECK_OK(spw_scheme_parse(more[i], &scheme[count++]));
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++)
        count += spw_scheme_parse(spw_scheme_types[i]->name, &scheme[count]) == SPW_OK;
    return count;
}

/* Returns how many schemes were timed. */
static size_t check_case(const even_case *c, const spw_time_stack *stack,
                         const spw_megatron_coefficients *megatron) {
    const size_t ranks = c->nodes * c->gpus_per_node, sets = subsets(c->experts, c->top_k),
                 tokens = rounds_of(c) * sets;
    spw_scheme scheme[SPW_JOB_MAX_SCHEMES];
    spw_result result = {.row = NULL};
    spw_trace *trace = NULL;
    size_t timed = 0;
    if (tokens == 0 || tokens > MOST_TOKENS || ranks * tokens > MOST_ALL_TOKENS) return 0;
    const spw_job job = job_of(c, tokens);
    spw_file_forget_reads();
    CHECK_OK(write_even(c, ranks, tokens));
    CHECK_OK(spw_trace_open(trace_path, &trace));
    const spw_plan_request request = {.trace = trace,
                                      .job = &job,
                                      .scheme = scheme,
                                      .schemes = schemes_of(scheme),
                                      .expert = {c->expert, c->expert},
                                      .splits = 2, /* a scheme that cannot be is a refusal */
                                      .seed = 1,
                                      .time_stack = stack,
                                      .megatron = megatron};
    CHECK_OK(spw_plan_run(&request, &result));
    for (size_t i = 0; i < result.rows; i++) {
        const spw_result_row *row = &result.row[i];
        if (!row->timed) continue;
        const double ratio = row->time.step_s / row->balanced.step_s;
        timed++;
        CHECK(fabs(ratio - 1.0) <= 0.002 && row->drops.dropped == 0);
        if (!(fabs(ratio - 1.0) <= 0.002))
            fprintf(stderr, "  %s: %.6f; EP %zu on %zu nodes of %zu, top-%zu of %zu\n", row->scheme.text,
                    ratio, c->expert, c->nodes, c->gpus_per_node, c->top_k, c->experts);
        const bool straddles = c->gpus_per_node % c->expert != 0 && c->expert % c->gpus_per_node != 0;
        CHECK(row->straddling == 0 || (straddles && row->groups > 1));
        CHECK(row->straddling > 0 || row->aligned.step_s == row->balanced.step_s);
        CHECK(row->aligned.step_s <= row->balanced.step_s * (1.0 + 1e-12));
    }
    spw_result_clear(&result);
    spw_trace_close(trace);
    return timed;
}

static void test_positions(void) {
    static const struct {
        size_t ranks, group, node, positions, straddling;
    } cases[] = {{64, 8, 8, 1, 0},  {64, 4, 8, 1, 0}, {64, 16, 8, 1, 0}, {576, 64, 72, 9, 7},
                 {96, 12, 8, 2, 0}, {24, 6, 8, 4, 2}, {12, 12, 8, 1, 0}, {48, 6, 4, 2, 0}};
    for (size_t i = 0; i < SPW_COUNT_OF(cases); i++) {
        const spw_placement p = {cases[i].ranks, cases[i].group, cases[i].node, cases[i].group};
        CHECK(spw_placement_positions(&p) == cases[i].positions);
        CHECK(spw_placement_straddling(&p) == cases[i].straddling);
    }
}

int main(int argc, char **argv) {
    static const even_case cases[] = {{8, 72, 64, 64, 2}, /* 576 GPUs, as wide as a rack less 8 */
                                      {12, 8, 12, 24, 2}, {3, 8, 6, 12, 3}, {8, 8, 8, 16, 2},
                                      {4, 8, 16, 16, 3},  {2, 8, 4, 8, 2}};
    spw_time_stack stack;
    spw_megatron_coefficients megatron;
    size_t tried = 0;
    (void)snprintf(trace_path, sizeof trace_path, "%s/even_routing.h5", argc > 1 ? argv[1] : "/tmp");
    CHECK_OK(spw_time_stack_read("maxtext-rocm-2026-05", NULL, &stack));
    CHECK_OK(spw_megatron_coefficients_read("megatron-h200-2026-11", NULL, &megatron));
    test_positions();
    for (size_t i = 0; i < SPW_COUNT_OF(cases); i++) CHECK(check_case(&cases[i], &stack, &megatron) > 16);
    srand(5);
    for (int i = 0; i < 1000 && tried < 12; i++) {
        even_case c = {.gpus_per_node = 2 + (size_t)(rand() % 11), .expert = 2 + (size_t)(rand() % 23)};
        c.nodes = c.expert * (1 + (size_t)(rand() % 2));
        c.experts = c.expert * (1 + (size_t)(rand() % 3));
        c.top_k = 2 + (size_t)(rand() % 2);
        if (c.experts >= 4 && c.nodes * c.gpus_per_node <= 256)
            tried += check_case(&c, &stack, &megatron) > 0;
    }
    CHECK(tried == 12);
    (void)remove(trace_path);
    return check_done();
}
