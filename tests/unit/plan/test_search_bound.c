/* Bounds of a search against whole plans of random points: none makes more tokens/s or needs less memory than either bound says, and those
 * by the mean of a point's own routing are near to what it does. */
#include "sim/job/job.h"
#include "sim/machine/megatron_coefficients.h"
#include "sim/plan/search_bound.h"
#include "sim/plan/search_space.h"
#include "sim/replay/made_routing.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "traces/generate/made_trace.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 100, ENOUGH = 100 };

static const struct {
    const char *scheme, *routing, *settings;
} kinds[] = {{"megatron-alltoall", "zipf:exponent=0.7", ""},
             {"megatron-flex", "uniform", ""},
             {"megatron-flex:backend=hybridep", "zipf:exponent=0.5", ""},
             {"megatron-allgather", "zipf:exponent=0.5", ""},
             {"megatron-flex", "zipf:exponent=0.7", "overlap_moe_expert_parallel_comm: true\n"}};
static const char *const overs[] = {"pipeline=1,2,4",
                                    "tensor=1,2",
                                    "context=1,2",
                                    "expert-tensor=1,2",
                                    "micro-batches=1,2,4,16",
                                    "expert-parallel=1,2,4,8,16",
                                    "virtual-stages=0,2",
                                    "remat=full,none,selective,moe_act,moe,layernorm+moe"};

static uint64_t state = 7;
static size_t draw(size_t values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % values;
}

typedef struct found {
    size_t points, sharp;
    double speed, rough_speed, memory,
        rough_memory; /* sums: the bound of speed over the speed, memory over its bound */
} found;

static spw_trace *routing_of(const spw_job *job, const char *text) {
    spw_generate_settings settings;
    spw_trace *trace = NULL;
    CHECK_OK(spw_made_routing_settings(job, text, 0, 3, &settings));
    CHECK_OK(spw_trace_make(&settings, &trace));
    return trace;
}

/* What a whole plan of the point says, beside the bounds. */
static void compare(const spw_search_facts *facts, const spw_job *job, const spw_search_point_facts *rough,
                    const spw_search_point_facts *sharp, found *sum) {
    spw_result result = {.rows = 0};
    bool there = false;
    CHECK_OK(spw_plan_replay_point(facts->plan, job, facts->plan->scheme, false, true, &result, &there));
    CHECK(there);
    const spw_result_row *row = &result.row[0];
    const double speed = row->time.tokens_per_s_per_gpu, memory = (double)row->memory.max_bytes;
    const spw_search_point_facts *both[] = {rough, sharp};
    for (size_t i = 0; i < 2; i++) {
        const spw_search_bound *b = &both[i]->bound;
        const bool holds =
            speed <= b->tokens_per_s_most * (1.0 + 1e-9) && row->memory.max_bytes >= b->least_bytes;
        if (!holds)
            printf("%s EP %zu PP %zu TP %zu CP %zu: bound %zu: %.6f tokens/s of at most %.6f, %.0f bytes of "
                   "%llu\n",
                   facts->plan->scheme->text, job->expert, job->pipeline, job->tensor, job->context, i, speed,
                   b->tokens_per_s_most, memory, (unsigned long long)b->least_bytes);
        CHECK(holds);
    }
    CHECK(sharp->bound.least_bytes >= rough->bound.least_bytes &&
          sharp->bound.tokens_per_s_most <= rough->bound.tokens_per_s_most);
    sum->points++;
    sum->sharp += sharp->bound.tokens_per_s_most < rough->bound.tokens_per_s_most;
    sum->speed += sharp->bound.tokens_per_s_most / speed;
    sum->rough_speed += rough->bound.tokens_per_s_most / speed;
    sum->memory += memory / (double)sharp->bound.least_bytes;
    sum->rough_memory += memory / (double)rough->bound.least_bytes;
    spw_result_clear(&result);
}

static void look_at(const spw_search_facts *facts, const spw_search_space *space, spw_job *job, found *sum) {
    const spw_search_asked asked = {.enough = UINT64_MAX};
    size_t value[SPW_SEARCH_DIMENSIONS];
    spw_search_point_facts rough, sharp;
    spw_search_means means = {.there = false};
    spw_search_space_values(space, draw(spw_search_space_jobs(space)), value);
    if (!spw_search_divides(value) || spw_search_space_job(space, value, job) != SPW_OK || job->batches == 0)
        return;
    const spw_point point = spw_point_of(job, facts->plan->scheme, job->sequences_per_gpu[0]);
    if (spw_scheme_is_unknown_alone(point.scheme, &point.shape)) return;
    job->batches = 1;
    if (spw_search_bound_of(facts, &point, &asked, &rough) != SPW_OK ||
        rough.bound.least_bytes > rough.budget_bytes)
        return;
    const spw_replay_request request = spw_plan_point_request(facts->plan, job, point.scheme);
    sharp = rough;
    CHECK_OK(spw_search_means_create(&request, &point, 0, facts->megatron, &means));
    CHECK(means.there);
    CHECK_OK(spw_search_bound_sharpen(facts, &point, &means, &sharp));
    spw_search_means_destroy(&means);
    compare(facts, job, &rough, &sharp, sum);
}

static void try_kind(size_t kind, found *sum) {
    static spw_job base, job;
    static spw_search_space space;
    char text[512];
    spw_scheme scheme;
    spw_megatron_coefficients c, scaled;
    (void)snprintf(
        text, sizeof text,
        "model: olmoe-1b-7b\ncluster: h100-8x8\nparallel: {expert: 8, fsdp: 8}\noptimizer: distributed\n"
        "batch: {sequences_per_gpu: 16, sequence_length: 512}\nlibrary_limits: ignore\n%s",
        kinds[kind].settings);
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &base));
    base.cluster.nodes = 4;
    base.fsdp = 4;
    spw_search_space_open(&base, 0, true, false, &space);
    for (size_t i = 0; i < sizeof overs / sizeof *overs; i++)
        CHECK_OK(spw_search_space_set(&space, overs[i]));
    CHECK_OK(spw_scheme_parse(kinds[kind].scheme, &scheme));
    CHECK_OK(spw_megatron_coefficients_read("megatron-te-h100-2026-11", NULL, &c));
    CHECK_OK(spw_megatron_coefficients_scale(&c, &base.cluster, &scaled));
    spw_trace *trace = routing_of(&base, kinds[kind].routing);
    const spw_plan_request plan = {.trace = trace,
                                   .job = &base,
                                   .scheme = &scheme,
                                   .schemes = 1,
                                   .seed = 1,
                                   .brief = true,
                                   .megatron = &c};
    const spw_search_facts facts = {&plan, &scaled, true};
    for (size_t i = 0; i < POINTS; i++) look_at(&facts, &space, &job, sum);
    spw_trace_close(trace);
}

int main(void) {
    found sum = {.points = 0};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) try_kind(i, &sum);
    const double all = (double)sum.points;
    printf("%zu points, of which %zu are sharper: speed %.3f, before %.3f; memory %.4f, before %.4f\n",
           sum.points, sum.sharp, sum.speed / all, sum.rough_speed / all, sum.memory / all,
           sum.rough_memory / all);
    CHECK(sum.points >= ENOUGH && sum.sharp * 2 > sum.points);
    CHECK(sum.speed / all < 1.05 && sum.memory / all < 1.01);
    return check_done();
}
