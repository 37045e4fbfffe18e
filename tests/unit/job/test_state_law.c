/* Who keeps weights, gradients and moments, as a row of a table: every field of every row, written down by hand from
 * docs/schemes.md (7.1, 7.8, 7.14), and which row a job has. */
#include "sim/job/job.h"
#include "sim/job/state_law.h"
#include "tests/unit/check.h"

#include <string.h>

static spw_job job;

static const spw_state_law *law_of(spw_optimizer_kind optimizer, spw_reshard reshard) {
    job.optimizer = optimizer;
    job.fsdp2.reshard = reshard;
    return spw_state_law_of(&job);
}

static void test_rows(void) {
    static const struct {
        spw_optimizer_kind optimizer;
        spw_reshard reshard;
        bool weights, moments, units, sums, megatron, follows;
        unsigned gathers;
        size_t master, expert_tensor;
        spw_state_formats formats;
        const char *section;
    } want[] = {{SPW_OPTIMIZER_SHARDED,
                 SPW_RESHARD_OFF,
                 true,
                 true,
                 false,
                 false,
                 false,
                 true,
                 2,
                 0,
                 0,
                 {4, 0, 0},
                 "(7.7)"},
                {SPW_OPTIMIZER_SHARDED,
                 SPW_RESHARD_DEFAULT,
                 true,
                 true,
                 false,
                 false,
                 false,
                 true,
                 2,
                 0,
                 0,
                 {4, 0, 0},
                 "(7.7)"},
                {SPW_OPTIMIZER_SHARDED,
                 SPW_RESHARD_ALWAYS,
                 true,
                 true,
                 true,
                 false,
                 false,
                 true,
                 2,
                 0,
                 0,
                 {4, 0, 0},
                 "(7.14)"},
                {SPW_OPTIMIZER_SHARDED,
                 SPW_RESHARD_NEVER,
                 true,
                 true,
                 true,
                 false,
                 false,
                 true,
                 2,
                 0,
                 0,
                 {4, 0, 0},
                 "(7.14)"},
                {SPW_OPTIMIZER_SHARDED,
                 SPW_RESHARD_TORCHTITAN,
                 true,
                 true,
                 true,
                 false,
                 false,
                 true,
                 2,
                 0,
                 0,
                 {4, 0, 0},
                 "(7.14)"},
                {SPW_OPTIMIZER_DISTRIBUTED,
                 SPW_RESHARD_ALWAYS,
                 false,
                 true,
                 false,
                 false,
                 true,
                 false,
                 1,
                 4,
                 1,
                 {2, 4, 4},
                 "(7.8)"},
                {SPW_OPTIMIZER_REPLICATED,
                 SPW_RESHARD_DEFAULT,
                 false,
                 false,
                 false,
                 true,
                 true,
                 false,
                 0,
                 4,
                 1,
                 {2, 4, 4},
                 "(7.8)"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const spw_state_law *law = law_of(want[i].optimizer, want[i].reshard);
        CHECK(law->shares_weights == want[i].weights && law->shares_moments == want[i].moments);
        CHECK(law->by_units == want[i].units && law->sums_gradients == want[i].sums);
        CHECK(law->megatron == want[i].megatron && law->follows_weights == want[i].follows);
        CHECK(law->gathers_a_step == want[i].gathers && law->expert_tensor == want[i].expert_tensor);
        CHECK(law->master_bytes == want[i].master);
        CHECK(memcmp(&law->formats, &want[i].formats, sizeof law->formats) == 0);
        CHECK(law->source != NULL && strstr(law->gradients, want[i].section) != NULL);
    }
}

/* A master copy is there where weights are smaller than it, or where the job says so. */
static void test_master(void) {
    for (int i = 0; i < 8; i++) {
        const bool megatron = (i & 1) != 0, small = (i & 2) != 0, said = (i & 4) != 0;
        (void)law_of(megatron ? SPW_OPTIMIZER_REPLICATED : SPW_OPTIMIZER_SHARDED, SPW_RESHARD_OFF);
        job.precision.weights = small ? 2 : 4;
        job.master_bytes = said ? 2 : SPW_MASTER_AUTO;
        CHECK(spw_master_bytes(&job) == (said ? 2U : megatron && small ? 4U : 0U));
    }
}

static void test_whole(void) {
    for (int i = 0; i < 4; i++) {
        const bool megatron = (i & 1) != 0, whole = (i & 2) != 0;
        (void)law_of(megatron ? SPW_OPTIMIZER_DISTRIBUTED : SPW_OPTIMIZER_SHARDED, SPW_RESHARD_OFF);
        job.part = whole ? SPW_PART_WHOLE : SPW_PART_EXPERT_LAYERS;
        CHECK(spw_state_is_megatron(&job) == (megatron && whole));
        CHECK(spw_state_is_sharded(&job) == (!megatron && whole));
    }
}

int main(void) {
    test_rows();
    test_master();
    test_whole();
    return check_done();
}
