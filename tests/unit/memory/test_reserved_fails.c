/* Steps that run out of memory: what else is asked for then, and what they had come to. */
#include "tests/unit/memory/reserved_job.h"

/* What expandable segments would change is asked for where a step fails, and then to the byte the same; several steps have both. */
static void test_as_set_alone(void) {
    const uint64_t held[2] = {9000, 15000};
    const spw_reserved_request one = {.steps = 1}, one_alone = {.steps = 1, .as_set_alone = true},
                               two = {.steps = 2}, two_alone = {.steps = 2, .as_set_alone = true};
    spw_job job = make_job(SPW_REMAT_NONE, 64.0);
    spw_reserved_summary both, alone;
    uint64_t allocated[2], other[2];
    size_t failed = 0, fitted = 0;
    replay_steps(&job, held, one, &both, allocated);
    const double most = (double)both.as_set.reserved.max_bytes / GIB;
    CHECK(!same_bytes(&both.as_set, &both.expandable, sizeof both.as_set));
    for (int i = 0; i <= 20; i++) {
        job.cluster.hbm_gib.value = most * (1.05 - 0.5 * (double)i / 20.0);
        replay_steps(&job, held, one, &both, allocated);
        replay_steps(&job, held, one_alone, &alone, other);
        CHECK(allocated[0] == other[0] && both.followed == alone.followed);
        CHECK(same_bytes(&both.as_set, &alone.as_set, sizeof both.as_set));
        failed += both.as_set.failed_steps > 0;
        fitted += both.as_set.failed_steps == 0;
        const spw_reserved_outcome *want = both.as_set.failed_steps > 0 ? &both.expandable : &both.as_set;
        CHECK(same_bytes(want, &alone.expandable, sizeof *want));
    }
    CHECK(failed > 0 && fitted > 0);
    job.cluster.hbm_gib.value = 64.0;
    replay_steps(&job, held, two, &both, allocated);
    replay_steps(&job, held, two_alone, &alone, other);
    CHECK(same_bytes(&both.expandable, &alone.expandable, sizeof both.expandable));
    CHECK(!same_bytes(&both.as_set, &alone.expandable, sizeof both.as_set));
}

/* Where every process is followed, it is event by event. One that runs out of memory has peaks of what it had come to by then. */
static void test_cut_short(void) {
    const uint64_t held[1] = {9000};
    const spw_reserved_request quick = {.steps = 1}, plain = {.steps = 1, .every = true};
    spw_reserved_summary one, other;
    uint64_t a[1], b[1];
    size_t failed = 0;
    for (int remat = 0; remat < 2; remat++) {
        spw_job job = make_job(remat == 0 ? SPW_REMAT_NONE : SPW_REMAT_FULL, 64.0);
        replay_steps(&job, held, plain, &one, a);
        const double most = (double)one.as_set.reserved.max_bytes / GIB;
        for (int i = 0; i <= 20; i++) {
            job.cluster.hbm_gib.value = most * (1.05 - 0.9 * (double)i / 20.0);
            replay_steps(&job, held, plain, &one, a);
            replay_steps(&job, held, quick, &other, b);
            CHECK(a[0] == b[0] && same_bytes(&one.as_set, &other.as_set, sizeof one.as_set));
            CHECK(same_bytes(&one.expandable, &other.expandable, sizeof one.expandable));
            failed += one.as_set.failed_steps > 0;
        }
    }
    CHECK(failed > 10);
}

int main(void) {
    test_as_set_alone();
    test_cut_short();
    return check_done();
}
