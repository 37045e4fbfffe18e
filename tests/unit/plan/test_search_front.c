/* What a search keeps, and what it may leave out, with points made by hand. That whole searches find what brute force finds is held
 * by tests/oracle/plan/search_oracle.py. */
#include "sim/job/job.h"
#include "sim/model/attention.h"
#include "sim/plan/search_front.h"
#include "sim/plan/search_nearest.h"
#include "sim/plan/search_space.h"

#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static spw_search_front front;

static spw_search_point point_of(size_t order, double speed, uint64_t bytes, size_t gpus) {
    return (spw_search_point){.order = order,
                              .gpus = gpus,
                              .timed = true,
                              .surely_fits = true,
                              .peak_bytes = bytes,
                              .tokens_per_s_per_gpu = speed};
}

static void begin(void) { front = (spw_search_front){.points = 0}; }

static void take(spw_search_point point) { spw_search_front_take(&front, &point); }

/* Only what needs less than all before it comes nearer, scheme by scheme. */
static void test_nearest(void) {
    static spw_search_nearest nearest;
    const size_t value[SPW_SEARCH_DIMENSIONS] = {0};
    CHECK(spw_search_nearest_may_be(&nearest, 1, UINT64_MAX));
    spw_search_nearest_memory(&nearest, 1, value, 1, (spw_search_need){9, 5});
    CHECK(!spw_search_nearest_may_be(&nearest, 1, 9) && spw_search_nearest_may_be(&nearest, 1, 8));
    CHECK(spw_search_nearest_may_be(&nearest, 0, UINT64_MAX));
    spw_search_nearest_memory(&nearest, 1, value, 2, (spw_search_need){9, 5});
    CHECK(nearest.least[1].sequences == 1);
    spw_search_nearest_memory(&nearest, 1, value, 2, (spw_search_need){8, 5});
    CHECK(nearest.least[1].sequences == 2 && nearest.least[1].need.bytes == 8);
}

/* Faster, then fewer GPUs, then smaller, then the first; with a rate asked for, the fewest GPUs before all. */
static void test_order(void) {
    const spw_search_point fast = point_of(3, 20.0, 9, 8), slow = point_of(0, 10.0, 1, 1),
                           small = point_of(4, 20.0, 8, 8), few = point_of(5, 20.0, 8, 4),
                           first = point_of(1, 20.0, 8, 4);
    spw_search_point untimed = point_of(2, 0.0, 1, 1), larger = untimed;
    untimed.timed = larger.timed = false;
    larger.turn_sequences = 2.0;
    begin();
    CHECK(spw_search_compare(&front, &fast, &slow) < 0);
    CHECK(spw_search_compare(&front, &small, &fast) < 0);
    CHECK(spw_search_compare(&front, &few, &small) < 0);
    CHECK(spw_search_compare(&front, &first, &few) < 0);
    CHECK(spw_search_compare(&front, &slow, &untimed) < 0);
    CHECK(spw_search_compare(&front, &larger, &untimed) < 0);
    front.fewest_gpus = true;
    CHECK(spw_search_compare(&front, &slow, &fast) < 0);
}

static void test_take(void) {
    spw_search_point drops = point_of(3, 30.0, 9, 8), unsure = point_of(4, 40.0, 9, 8);
    drops.drops.fraction = 0.005;
    unsure.surely_fits = false;
    begin();
    take(point_of(0, 10.0, 5, 8));
    take(point_of(1, 20.0, 9, 8));
    take(point_of(1, 20.0, 9, 8)); /* again */
    CHECK(front.points == 2 && front.point[0].order == 1 && front.best.order == 1);
    take(point_of(2, 20.0, 5, 8)); /* beats both */
    CHECK(front.points == 1 && front.best.order == 2);
    take(drops);
    CHECK(front.points == 2 && front.best.order == 3);
    take(unsure); /* as many bytes as `drops`, faster, without drops: in front behind what surely fits */
    CHECK(front.points == 3 && front.point[0].order == 3 && front.point[2].order == 4);
    CHECK(front.best.order == 3 && front.best_sure.order == 3);
    take(point_of(5, 1.0, 5, 4)); /* slow, on fewer GPUs */
    CHECK(front.points == 4 && front.lost == 0);
}

/* What may not fit beats nothing that surely fits, whichever comes first; what surely fits beats it, also where all else is equal. */
static void test_certainty(void) {
    spw_search_point unsure = point_of(0, 40.0, 5, 8), equal = point_of(2, 20.0, 9, 8),
                     few = point_of(3, 20.0, 9, 8);
    unsure.surely_fits = equal.surely_fits = false;
    begin();
    take(unsure), take(point_of(1, 20.0, 9, 8));
    CHECK(front.points == 2 && front.point[0].order == 1 && front.best.order == 1);
    begin();
    take(point_of(1, 20.0, 9, 8)), take(unsure), take(equal);
    CHECK(front.points == 2 && front.point[0].order == 1 && front.point[1].order == 0);
    begin();
    take(equal), take(point_of(9, 20.0, 9, 8));
    CHECK(front.points == 1 && front.point[0].order == 9);
    few.drops = (spw_result_drops){
        .dropped = 1,
        .assignments = 1000,
        .fraction = 0.001}; /* of equals the one that drops less is the best, so that it is in front */
    begin();
    take(few), take(point_of(4, 20.0, 9, 8));
    CHECK(front.points == 1 && front.best.order == 4 && front.point[0].order == 4);
}

static spw_search_point of_batch(size_t order, double speed, uint64_t bytes, uint64_t step_tokens) {
    spw_search_point p = point_of(order, speed, bytes, 8);
    p.step_tokens = step_tokens;
    return p;
}

/* 4 sequences in 2 micro-batches through 1 stage, and through 3. */
static void test_turns(void) {
    CHECK(fabs(spw_search_turn_sequences(4, 2, 1) - 2.0) < 1e-12);
    CHECK(fabs(spw_search_turn_sequences(4, 2, 3) - 1.0) < 1e-12);
    CHECK(fabs(spw_search_turn_sequences(3, 0, 0) - 3.0) < 1e-12);
}

/* A larger batch is better from 1.01 times the speed on; on other numbers of GPUs the batch plays no part. */
static void test_batch(void) {
    spw_search_point other = of_batch(9, 20.05, 5, 1);
    begin();
    take(of_batch(0, 20.0, 5, 64));
    take(of_batch(1, 20.0, 5, 16)); /* as fast */
    CHECK(front.points == 1 && front.best.order == 1);
    take(of_batch(2, 20.1, 5, 32)); /* 1.005 times */
    CHECK(front.points == 2 && front.best.order == 2);
    take(of_batch(3, 19.95, 5, 8)); /* smaller, and hardly slower */
    take(of_batch(4, 19.7, 4, 4));  /* smaller, of less memory, and 1.02 times slower than the fastest */
    CHECK(front.points == 4);
    spw_search_front_settle(&front);
    CHECK(front.fastest.order == 2 && front.best.order == 3 && front.best_sure.order == 3);
    CHECK(front.point[0].order == 3 && front.point[1].order == 2 && front.point[2].order == 1 &&
          front.point[3].order == 4); /* the best first, the others by speed */
    take(of_batch(5, 20.4, 5, 64));   /* 1.015 times that of 32, 1.02 and 1.025 times the others */
    CHECK(front.points == 2 && front.point[0].order == 5 && front.point[1].order == 4);
    other.gpus = 16;
    begin();
    take(of_batch(0, 20.0, 5, 64)), take(other);
    spw_search_front_settle(&front);
    CHECK(front.points == 2 && front.best.order == 9);
    const spw_search_bound slow = {
        .gpus = 8, .step_tokens = 8, .least_bytes = 6, .tokens_per_s_most = 19.9, .may_surely_fit = true};
    CHECK(!spw_search_front_beats(&front, &slow, true)); /* a smaller batch, and 1.005 times slower */
    spw_search_bound slower = slow;
    slower.tokens_per_s_most = 19.7;
    CHECK(spw_search_front_beats(&front, &slower, true));
}

/* One answer by two ways stands once, as the first has it, whichever comes first; another scheme's is another. */
static void test_alike(void) {
    spw_search_point first = of_batch(3, 20.0, 5, 8), other = of_batch(4, 20.0, 5, 8);
    other.scheme = 1;
    begin();
    take(of_batch(7, 20.0, 5, 8)), take(first), take(of_batch(5, 20.0, 5, 8)), take(other);
    CHECK(front.points == 2 && front.point[0].order == 3 && front.point[1].order == 4);
}

/* More points that no other beats than there is room for: the best stays. */
static void test_room(void) {
    begin();
    for (size_t i = 0; i < SPW_SEARCH_FRONT + 5; i++) take(point_of(i, 1.0 + (double)i, 1 + i, 8));
    CHECK(front.points == SPW_SEARCH_FRONT && front.lost == 5);
    CHECK(front.best.order == SPW_SEARCH_FRONT + 4 && front.point[0].order == SPW_SEARCH_FRONT + 4);
    CHECK(front.point[SPW_SEARCH_FRONT - 1].order == 5);
    take(point_of(0, 0.5, 1, 8));
    CHECK(front.points == SPW_SEARCH_FRONT && front.lost == 6 &&
          front.point[SPW_SEARCH_FRONT - 1].order == 5);
}

static spw_search_point paced(size_t order, double speed, uint64_t bytes, size_t gpus) {
    spw_search_point p = point_of(order, speed, bytes, gpus);
    p.pace = (spw_pace){.step_s = 1.0, .tokens_per_s_per_gpu = speed, .pair_width = 0.1};
    return p;
}

/* A ratio of exp(0.1) with a half width of 0.1 is 1.6449 deviations, 95 of 100. The next is the fastest that is no faster, on as many
 * GPUs, whatever stands between them. */
static void test_next(void) {
    double chance = 0.0;
    begin();
    const spw_search_point fast = paced(0, exp(0.3), 9, 8), mid = paced(1, exp(0.2), 8, 8),
                           few = paced(2, exp(0.15), 9, 4), slow = paced(3, exp(0.1), 7, 8),
                           last = paced(4, 1.0, 6, 4);
    take(last), take(slow), take(few), take(mid), take(fast);
    CHECK(front.points == 5);
    const spw_search_point *next = spw_search_front_next(&front, &fast, &chance);
    CHECK(next != NULL && next->order == 1 && fabs(chance - 0.95) < 1e-9);
    next = spw_search_front_next(&front, &mid, &chance);
    CHECK(next != NULL && next->order == 3 && fabs(chance - 0.95) < 1e-9);
    next = spw_search_front_next(&front, &few, &chance); /* 1.5 times 1.6449 deviations */
    CHECK(next != NULL && next->order == 4 && fabs(chance - 0.99320) < 1e-5);
    CHECK(spw_search_front_next(&front, &slow, &chance) == NULL && isnan(chance));
    CHECK(spw_search_front_next(&front, &last, &chance) == NULL && isnan(chance));
    spw_search_point untimed = fast;
    untimed.timed = false;
    CHECK(spw_search_front_next(&front, &untimed, &chance) == NULL && isnan(chance));
}

static bool beaten(uint64_t least_bytes, double most, size_t gpus, bool may_surely_fit) {
    const spw_search_bound bound = {.gpus = gpus,
                                    .may_surely_fit = may_surely_fit,
                                    .least_bytes = least_bytes,
                                    .tokens_per_s_most = most};
    return spw_search_front_beats(&front, &bound, true);
}

static void test_beaten(void) {
    spw_search_point unsure = point_of(0, 20.0, 5, 8), drops = point_of(1, 50.0, 5, 8);
    begin();
    take(point_of(0, 20.0, 5, 8));
    CHECK(beaten(6, 20.0, 8, true));
    CHECK(beaten(5, 19.0, 8, true));
    CHECK(!beaten(5, 20.0, 8, true)); /* it may be as good */
    CHECK(!beaten(4, 19.0, 8, true)); /* it may need less */
    CHECK(!beaten(6, 21.0, 8, true)); /* it may be faster */
    CHECK(!beaten(6, 19.0, 4, true)); /* it has fewer GPUs */
    CHECK(beaten(5, 20.0, 16, true));
    CHECK(!beaten(6, INFINITY, 8, true));
    begin();
    unsure.surely_fits = false;
    take(unsure);
    CHECK(!beaten(6, 19.0, 8, true)); /* it may be the best that surely fits */
    CHECK(beaten(6, 19.0, 8, false));
    begin();
    drops.drops.fraction = 0.001;
    take(drops);
    CHECK(!beaten(6, 19.0, 8, false)); /* it may drop nothing */
}

/* Whatever the split, the ranks that have sequences of their own have the global batch between them: all GPUs but those of tensor, context
 * and pipeline groups behind their first. */
static void test_shared_batch(void) {
    static const char text[] = "model: mixtral-8x7b\ncluster: h100-2x8\nparallel: {expert: 8, fsdp: 2}\n"
                               "batch: {global_batch: 64, sequence_length: 4096}\noptimizer: distributed\n"
                               "schemes: [megatron-alltoall]\n";
    static spw_job base, job;
    static spw_search_space space;
    size_t value[SPW_SEARCH_DIMENSIONS], found[2] = {0, 0};
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, sizeof text - 1, &base));
    spw_search_space_open(&base, 0, true, true, &space);
    CHECK_OK(spw_search_space_set(&space, "context=1,2,4"));
    CHECK_OK(spw_search_space_set(&space, "tensor=1,2"));
    CHECK_OK(spw_search_space_set(&space, "pipeline=1,2"));
    for (size_t i = 0; i < spw_search_space_jobs(&space); i++) {
        spw_search_space_values(&space, i, value);
        if (spw_search_space_is_uneven(&space, value) || spw_search_space_job(&space, value, &job) != SPW_OK)
            continue;
        const size_t sharers = job.tensor * job.context * job.pipeline;
        found[job.context > 1]++;
        CHECK(job.sequences_per_gpu[0] * 16 == 64 * sharers);
    }
    CHECK(found[0] > 0 && found[1] > 0);
}

static const spw_job EIGHT_GPUS = {.expert = 2,
                                   .fsdp = 4,
                                   .pipeline = 1,
                                   .tensor = 1,
                                   .remat = SPW_REMAT_FULL,
                                   .model.experts = 12,
                                   .cluster = {.nodes = 2, .gpus_per_node = 4}};

/* Values that are asked for replace those of the table; what is no key, or no number, is refused. */
static void test_space(void) {
    size_t value[SPW_SEARCH_DIMENSIONS];
    spw_search_space space;
    spw_search_space_open(&EIGHT_GPUS, 32, false, false, &space);
    CHECK(space.values[SPW_SEARCH_GPUS] == 4); /* 8, and 4, 16, 32 */
    CHECK(space.values[SPW_SEARCH_EXPERT] == 6 && space.value[SPW_SEARCH_EXPERT][0] == 2);
    CHECK_OK(spw_search_space_set(&space, "gpus=8"));
    CHECK_OK(spw_search_space_set(&space, "pipeline=1,2,2"));
    CHECK_OK(spw_search_space_set(&space, "micro-batches=4"));
    CHECK_OK(spw_search_space_set(&space, "expert-parallel=1,3"));
    CHECK_OK(spw_search_space_set(&space, "virtual-stages=0"));
    CHECK_OK(spw_search_space_set(&space, "remat=full,none,moe"));
    CHECK(spw_search_space_jobs(&space) == 12 && spw_search_space_twins(&space) == 3);
    spw_search_space_values(&space, 7, value); /* pipeline 2, expert 1, the second policy */
    CHECK(value[SPW_SEARCH_PIPELINE] == 2 && value[SPW_SEARCH_EXPERT] == 1 &&
          value[SPW_SEARCH_REMAT] == SPW_REMAT_NONE);
    CHECK(spw_search_space_set(&space, "remat=some") == SPW_EARG);
    CHECK(spw_search_space_set(&space, "pipeline=0") == SPW_EARG);
    CHECK(spw_search_space_set(&space, "pipeline=") == SPW_EARG);
    CHECK(spw_search_space_set(&space, "fsdp=2") == SPW_EARG);
    CHECK(spw_search_space_set(&space, "pipeline") == SPW_EARG);
}

static bool is_refused(const char *over, const char *sentence) {
    static spw_job base, job;
    static spw_search_nearest nearest;
    static spw_search_space space;
    size_t value[SPW_SEARCH_DIMENSIONS];
    base = EIGHT_GPUS;
    base.model.layers = 4;
    base.batches = 1, base.sequences_per_gpu[0] = 32;
    nearest.no_job[0] = '\0', nearest.no_job_divides = false;
    spw_search_space_open(&base, 0, true, false, &space);
    CHECK_OK(spw_search_space_set(&space, over));
    for (size_t i = 0; i < spw_search_space_jobs(&space); i++) {
        spw_search_space_values(&space, i, value);
        if (spw_search_space_job(&space, value, &job) == SPW_OK) return false;
        spw_search_nearest_no_job(&nearest, spw_search_divides(value));
    }
    return strstr(nearest.no_job, sentence) != NULL;
}

/* Values that no job has: the first sentence that is told, of those whose parts divide the GPUs if there are such. */
static void test_no_job(void) {
    CHECK(is_refused("pipeline=3", "pipeline 3 does not divide the 8 GPUs"));
    CHECK(is_refused("pipeline=1000", "pipeline 1000 is more than the 8 GPUs"));
    CHECK(is_refused("expert-tensor=3", "expert_tensor 3 does not divide the 8 GPUs"));
    CHECK(is_refused("expert-parallel=5", "expert 5 does not divide the 8 GPUs that are left"));
    CHECK(is_refused("pipeline=8", "pipeline 8 is more than the 4 layers")); /* as expert 1 says, not 2 */
}

/* Without being asked, experts are not shared under Megatron-Core, and as matrices are in MaxText's mesh. */
static void test_expert_tensor(void) {
    spw_job job = EIGHT_GPUS, found;
    size_t value[SPW_SEARCH_DIMENSIONS];
    spw_search_space space;
    job.tensor = 2;
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    spw_search_space_open(&job, 0, true, false, &space);
    CHECK(space.values[SPW_SEARCH_EXPERT_TENSOR] == 1 && space.value[SPW_SEARCH_EXPERT_TENSOR][0] == 1);
    CHECK_OK(spw_search_space_set(&space, "expert-tensor=2,1"));
    CHECK(space.values[SPW_SEARCH_EXPERT_TENSOR] == 2);
    job.expert_tensor = 2;
    spw_search_space_open(&job, 0, true, false, &space);
    CHECK(space.values[SPW_SEARCH_EXPERT_TENSOR] == 1 && space.value[SPW_SEARCH_EXPERT_TENSOR][0] == 2);
    job.expert_tensor = 0;
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    spw_search_space_open(&job, 0, false, true, &space);
    spw_search_space_values(&space, 0, value);
    CHECK(value[SPW_SEARCH_EXPERT_TENSOR] == 0 && spw_search_expert_tensor(value) == 2);
    found.expert_tensor = 7;
    if (spw_search_space_job(&space, value, &found) != SPW_OK)
        CHECK(spw_last_error()[0] != '\0'); /* a job of no model */
    CHECK(found.expert_tensor == 0);
}

/* 96 sequences of 8 GPUs: 12 a GPU, 24 with pipeline 2, 36 would be with 3 ranks; micro-batches of 1, 2, 4, 8 sequences. */
static void test_global_batch(void) {
    spw_job job = EIGHT_GPUS, reached = EIGHT_GPUS;
    size_t value[SPW_SEARCH_DIMENSIONS], uneven = 0;
    spw_search_space space;
    spw_search_space_open(&job, 0, true, false, &space);
    CHECK_OK(spw_search_space_set(&space, "pipeline=1,2,3"));
    reached.global_batch = 96;
    CHECK_OK(spw_search_space_reach(&space, &reached));
    CHECK(reached.batches == 2 && reached.sequences_per_gpu[0] == 12 && reached.sequences_per_gpu[1] == 24);
    static const size_t parts[] = {1, 3, 6, 12, 24}; /* 12 / 4, 12 / 2, 12 / 1, 24 / 1; 24 / 8 is 3 again */
    CHECK(space.values[SPW_SEARCH_MICRO_BATCHES] == sizeof parts / sizeof *parts);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bool there = false;
        for (size_t k = 0; k < space.values[SPW_SEARCH_MICRO_BATCHES]; k++)
            there = there || space.value[SPW_SEARCH_MICRO_BATCHES][k] == parts[i];
        CHECK(there);
    }
    CHECK(spw_search_space_batches(&space) == 1);
    for (size_t i = 0; i < spw_search_space_jobs(&space); i++) {
        spw_search_space_values(&space, i, value);
        const size_t pipeline = value[SPW_SEARCH_PIPELINE], micro = value[SPW_SEARCH_MICRO_BATCHES];
        const bool even = pipeline < 3 && 12 * pipeline % micro == 0;
        uneven += !even;
        CHECK(spw_search_space_is_uneven(&space, value) == !even);
    }
    CHECK(uneven > 0);
    reached.global_batch = 7;
    CHECK(spw_search_space_reach(&space, &reached) == SPW_EARG);
}

static void check_remats(const spw_search_space *space, const char *const *want, size_t count) {
    char text[SPW_REMAT_TEXT];
    CHECK(space->values[SPW_SEARCH_REMAT] == count);
    for (size_t i = 0; i < count && i < space->values[SPW_SEARCH_REMAT]; i++)
        CHECK(strcmp(spw_search_value_text(SPW_SEARCH_REMAT, space->value[SPW_SEARCH_REMAT][i], text),
                     want[i]) == 0);
}

/* Lists of Megatron-Core's modules, those of multi-latent attention where the model has it; a list as long as the search prints. */
static void test_remats(void) {
    static const char *const
        with_mla[] = {"full",
                      "none",
                      "selective",
                      "moe_act",
                      "moe_act+layernorm",
                      "moe_act+layernorm+mla_up_proj",
                      "moe",
                      "layernorm+mla_up_proj+moe"},
        *const others[] = {"full", "none",         "selective", "moe_act", "moe_act+layernorm",
                           "moe",  "layernorm+moe"},
        *const streams[] = {"full", "none",          "selective", "moe_act",        "moe_act+layernorm",
                            "moe",  "layernorm+moe", "mhc",       "mhc+mla_up_proj"};
    spw_job job = EIGHT_GPUS;
    char over[1024] = "remat=full";
    spw_search_space space;
    spw_search_space_open(&job, 0, true, false, &space);
    check_remats(&space, others, sizeof others / sizeof *others);
    job.model.streams = 4;
    spw_search_space_open(&job, 0, true, false, &space);
    check_remats(&space, streams, sizeof streams / sizeof *streams);
    job.model.streams = 1;
    job.model.attention = &spw_latent_attention;
    job.model.kv_lora_rank = 512;
    spw_search_space_open(&job, 0, true, false, &space);
    check_remats(&space, with_mla, sizeof with_mla / sizeof *with_mla);
    spw_search_space_open(&job, 0, false, true, &space); /* MaxText's alone */
    CHECK(space.values[SPW_SEARCH_REMAT] == 2 && space.value[SPW_SEARCH_REMAT][1] == SPW_REMAT_SAVE_OUT_PROJ);
    for (size_t i = 0, end = strlen(over); i < 12; i++, end = strlen(over))
        (void)snprintf(over + end, sizeof over - end, ",moe_act+layernorm+mla_up_proj");
    CHECK_OK(spw_search_space_set(&space, over));
    CHECK(space.values[SPW_SEARCH_REMAT] == 2);
}

int main(void) {
    test_nearest();
    test_order();
    test_take();
    test_certainty();
    test_turns();
    test_batch();
    test_alike();
    test_room();
    test_next();
    test_beaten();
    test_shared_batch();
    test_space();
    test_no_job();
    test_expert_tensor();
    test_global_batch();
    test_remats();
    return check_done();
}
