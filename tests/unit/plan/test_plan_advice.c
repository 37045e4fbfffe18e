/* Advice on a point that does not fit ends after a bounded amount of work, says so, and says the same again. */
#include "sim/job/job.h"
#include "sim/plan/plan_advice.h"
#include "sim/replay/made_routing.h"
#include "traces/generate/made_trace.h"

#include "tests/unit/check.h"

#include <string.h>

/* In a smaller share of a GPU splits of more GPUs may fit by what they need at least, and do not when they are replayed. Remat full
 * helps; beside the overlap, too, which Megatron-Core does not take with it. */
#define JOB(share, remat) \
    "model: qwen3-30b-a3b\ncluster: h100-2x8\nmemory_fraction: " share "\nremat: " remat "\n" \
    "parallel: {expert: 8, fsdp: 1, pipeline: 2, virtual_stages: 2}\n" \
    "batch: {sequence_length: 4096, sequences_per_gpu: 2, micro_batches: 2}\n" \
    "optimizer: distributed\nschemes: [megatron-flex]\n"
static const char text[] = JOB("0.17", "full"), helped[] = JOB("0.3", "none"),
                  overlapped[] = JOB(
                      "0.3", "none") "overlap_moe_expert_parallel_comm: true\ndelay_wgrad_compute: true\n";

static spw_plan_misfit_advice advise(const char *job_text, uint64_t work) {
    spw_job job;
    spw_scheme scheme;
    spw_generate_settings settings;
    spw_trace *trace = NULL;
    spw_result result = {.rows = 0};
    spw_plan_misfit_advice out = {.gpus = 1};
    CHECK_OK(spw_job_parse("job", NULL, job_text, strlen(job_text), &job));
    CHECK_OK(spw_scheme_parse(job.scheme[0], &scheme));
    CHECK_OK(spw_made_routing_settings(&job, SPW_PLAN_ROUTING, 0, 1, &settings));
    settings.steps = 1;
    CHECK_OK(spw_trace_make(&settings, &trace));
    const spw_plan_request request = {.trace = trace,
                                      .job = &job,
                                      .scheme = &scheme,
                                      .schemes = 1,
                                      .seed = 1,
                                      .allocator = true,
                                      .advice_work = work};
    CHECK_OK(spw_plan_run(&request, &result));
    CHECK(result.rows == 1);
    if (result.rows == 1) CHECK_OK(spw_plan_advise(&request, &result, &result.row[0], &out));
    spw_result_clear(&result);
    spw_trace_close(trace);
    return out;
}

/* A job of 48 layers and 2 micro-batches, or more with more stages: 96 a replay or more. */
static void test_end(void) {
    const spw_plan_misfit_advice one = advise(text, 1), more = advise(text, 2000), all = advise(helped, 0);
    CHECK(strstr(one.advice, "; advice ended early, after 1 replay: changes on ") != NULL);
    CHECK(strstr(more.advice, "; advice ended early, after ") != NULL);
    CHECK(all.gpus > 16 && strstr(all.advice, "ended early") == NULL);
    CHECK(one.gpus == 0 && more.gpus == 0 && strcmp(one.advice, more.advice) != 0);
    CHECK(strstr(more.advice, "all splits of up to 16 times") == NULL);
    CHECK(strcmp(advise(text, 2000).advice, more.advice) == 0);
    printf("%s\n%s\n%s\n", one.advice, more.advice, all.advice);
}

/* The same splits, and what has to go for them is said. */
static void test_overlap(void) {
    const spw_plan_misfit_advice alone = advise(helped, 0), beside = advise(overlapped, 0);
    static const char without[] = "remat full without overlap_moe_expert_parallel_comm on ";
    CHECK(strncmp(alone.advice, "remat full on ", strlen("remat full on ")) == 0);
    CHECK(strncmp(beside.advice, without, strlen(without)) == 0);
    CHECK(beside.gpus == alone.gpus &&
          strcmp(beside.advice + strlen(without), alone.advice + strlen("remat full on ")) == 0);
    printf("%s\n", beside.advice);
}

int main(void) {
    test_end();
    test_overlap();
    return check_done();
}
