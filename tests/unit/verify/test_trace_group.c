/* The group that a trace's ranks are laid out in when nobody names one: the most expert-parallel ranks, up to 8, that divide the experts and
 * with those that share experts the trace's ranks. */
#include "sim/job/job.h"
#include "sim/verify/trace_group.h"
#include "tests/unit/check.h"
#include "traces/trace.h"

enum { EXPERTS = 24, RANKS = 48, SHARERS = 4, MOST = 8 };

static bool divides(size_t a, size_t b) { return b % a == 0; }

static void test_found(size_t experts, size_t ranks, size_t sharers) {
    const uint64_t tokens = 64 * (uint64_t)(ranks > 0 ? ranks : 1);
    const spw_trace_info info = {.experts = experts,
                                 .ranks = ranks,
                                 .layers = 1,
                                 .top_k = 1,
                                 .model_hidden = 64,
                                 .model_ffn = 64,
                                 .step_tokens = &tokens};
    const spw_trace_group_settings settings = {.tokens = 64, .shrink = 1, .expert_tensor = sharers};
    static spw_job job;
    size_t most = 0;
    for (size_t r = 1; r <= MOST; r++)
        if (divides(r, experts) && (ranks == 0 || divides(r * sharers, ranks))) most = r;
    if (most == 0) {
        CHECK_STATUS(spw_trace_group_job(&info, &settings, &job), SPW_EARG);
        return;
    }
    CHECK_OK(spw_trace_group_job(&info, &settings, &job));
    CHECK(job.expert == most && job.expert_tensor == sharers);
    CHECK(job.fsdp * job.expert * sharers == (ranks > 0 ? ranks : most * sharers));
}

int main(void) {
    for (size_t experts = 1; experts <= EXPERTS; experts++)
        for (size_t ranks = 0; ranks <= RANKS; ranks++)
            for (size_t sharers = 1; sharers <= SHARERS; sharers++) test_found(experts, ranks, sharers);
    return check_done();
}
