/* What one layer's routing asks of the busiest GPU, by hand: the most of all groups and ranks, each figure by itself. */
#include "sim/time/routing_load.h"

#include "sim/job/job.h"
#include "sim/routing/counts.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>

enum { GROUPS = 3, RANKS = 2, EXPERTS = 4, TOKENS = 1000, HIDDEN = 8 };

/* Rows that each source of a group sends to each expert; no two sums are alike. */
static uint32_t routed[GROUPS][RANKS][EXPERTS] = {
    {{10, 20, 300, 40}, {1, 2, 3, 4}}, {{256, 0, 0, 0}, {1, 0, 257, 0}}, {{0, 0, 0, 600}, {0, 0, 0, 30}}};
static uint64_t rows[GROUPS][RANKS] = {{33, 347}, {257, 257}, {0, 630}};
/* Whole tiles of 256 rows: {11, 22 | 303, 44}, {257, 0 | 257, 0}, {0, 0 | 0, 630}. */
static const double tiled[GROUPS] = {2 * 256 + 256, 512, 768};
static const spw_traffic traffic[GROUPS] = {{.max_intra_bytes = 900, .max_inter_bytes = 5000},
                                            {.max_intra_bytes = 4000, .max_inter_bytes = 16},
                                            {.max_intra_bytes = 64, .max_inter_bytes = 320}};

static spw_routing_layer load_of(const size_t *group, size_t groups) {
    static uint32_t limit[RANKS * EXPERTS];
    const spw_scheme scheme = scheme_of("gmm");
    const spw_layer_shape shape = shape_of(RANKS, EXPERTS, 1, HIDDEN, 16, 1, TOKENS);
    const spw_counts counts = {.placement = {GROUPS * RANKS, RANKS, 8, EXPERTS}, .routed = &routed[0][0][0]};
    spw_routing_layer load = {.rows = 0.0};
    for (size_t i = 0; i < RANKS * EXPERTS; i++) limit[i] = UINT32_MAX;
    for (size_t i = 0; i < groups; i++) {
        const spw_flow flow = {.rows = rows[group[i]], .limit = limit};
        spw_routing_load_raise(&(spw_routed_group){&scheme, &shape, &counts, group[i]}, &flow,
                               &traffic[group[i]], &load);
    }
    return load;
}

static bool is(double got, double want) { return fabs(got - want) < 1e-9; }

/* --- Tokens that choose in some groups of experts alone --- */

enum { ALL = 12, GROUP = 3, KEPT = 2, CHOICES = 3 };

/* Of all ways in which a token can take KEPT groups and CHOICES experts among them, the share that has one of the first `wanted`. */
static double share_of(size_t wanted) {
    double ways = 0.0, has = 0.0;
    for (unsigned groups = 0; groups < 1U << ALL / GROUP; groups++) {
        if (__builtin_popcount(groups) != KEPT) continue;
        for (unsigned experts = 0; experts < 1U << ALL; experts++) {
            bool among = __builtin_popcount(experts) == CHOICES;
            for (size_t x = 0; x < ALL; x++)
                among = among && ((experts >> x & 1) == 0 || (groups >> x / GROUP & 1) != 0);
            ways += among;
            has += among && (experts & ((1U << wanted) - 1)) != 0;
        }
    }
    return has / ways;
}

static void test_groups(void) {
    static spw_job job;
    const spw_job_override values[] = {
        {"model", "olmoe-1b-7b", ""},          {"cluster", "h100-8x8", ""},
        {"parallel.expert", "8", ""},          {"optimizer", "distributed", ""},
        {"batch.sequence_length", "4096", ""}, {"batch.sequences_per_gpu", "1", ""}};
    const spw_scheme scheme = scheme_of("megatron-flex"); /* which asks for tokens by rank */
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    job.model.experts = ALL, job.model.top_k = CHOICES;
    for (size_t ranks = 1; ranks <= ALL; ranks++) {
        spw_stated_routing r;
        if (ALL % ranks != 0) continue;
        job.expert = ranks, job.fsdp = 1;
        spw_point point = spw_point_of(&job, &scheme, 1);
        point.shape.groups = ALL / GROUP,
        point.shape.groups_kept = KEPT; /* as a replay takes them from its trace */
        CHECK_OK(spw_stated_routing_create(&point, 1.0, 1, &r));
        const double want = (double)point.shape.tokens * share_of(ALL / ranks);
        for (size_t d = 0; d < ranks && r.counts != NULL; d++)
            CHECK(fabs(spw_counts_distinct_of(r.counts, ranks - 1)[d] - want) <= 0.5 + 1e-9);
        spw_stated_routing_destroy(&r);
    }
}

int main(void) {
    const double row_bytes = 2.0 * HIDDEN;
    for (size_t g = 0; g < GROUPS; g++) {
        const spw_routing_layer one = load_of(&g, 1);
        CHECK(is(one.rows, fmax((double)rows[g][0], (double)rows[g][1])) && is(one.tiled_rows, tiled[g]));
        CHECK(is(one.link_rows, (double)traffic[g].max_intra_bytes / row_bytes));
        CHECK(is(one.nic_rows, (double)traffic[g].max_inter_bytes / row_bytes));
    }
    static const size_t orders[][GROUPS] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        const spw_routing_layer all = load_of(orders[i], GROUPS);
        CHECK(is(all.rows, 630) && is(all.tiled_rows, 768));
        CHECK(is(all.link_rows, 4000 / row_bytes) && is(all.nic_rows, 5000 / row_bytes));
    }
    test_groups();
    return check_done();
}
