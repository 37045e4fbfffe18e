/* Schedules beside an event-by-event simulation of all stages, the published closed forms, and a greedy
 * scheduler that knows no list. */
#include "sim/job/job.h"
#include "sim/memory/kept/stage_walk.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

enum { STAGES = 8, CHUNKS = 4, MICRO = 32, FORWARD_TIME = 1, BACKWARD_TIME = 2 };

/* When each pass ends; 0 = not yet. */
typedef struct run {
    size_t forward[STAGES][MICRO][CHUNKS], backward[STAGES][MICRO][CHUNKS];
} run;

/* Forward of a chunk waits for the stage before, the first stage for the last stage's chunk before. Backward the
 * other way round, from the last stage's last chunk. */
static bool ready(const spw_pipeline *p, const run *r, size_t stage, spw_pass w, size_t *since) {
    *since = 0;
    if (!w.backward) {
        if (stage == 0 && w.chunk == 0) return true;
        *since = stage > 0 ? r->forward[stage - 1][w.micro_batch][w.chunk]
                           : r->forward[p->stages - 1][w.micro_batch][w.chunk - 1];
        return *since > 0;
    }
    const size_t here = r->forward[stage][w.micro_batch][w.chunk];
    if (here == 0) return false;
    if (stage + 1 == p->stages && w.chunk + 1 == p->chunks) {
        *since = here;
        return true;
    }
    *since = stage + 1 < p->stages ? r->backward[stage + 1][w.micro_batch][w.chunk]
                                   : r->backward[0][w.micro_batch][w.chunk + 1];
    return *since > 0;
}

/* Runs the lists of all stages; returns when the last pass ends, 0 when they wait for each other for ever or a
 * pass is missing or done twice. live [stages]: forward passes not yet undone, at most. */
static size_t execute(const spw_pipeline *p, size_t live[STAGES]) {
    static run r;
    size_t next[STAGES] = {0}, clock[STAGES] = {0}, now[STAGES] = {0}, end = 0;
    bool moved = true;
    memset(&r, 0, sizeof r);
    memset(live, 0, STAGES * sizeof *live);
    while (moved) {
        moved = false;
        for (size_t s = 0; s < p->stages; s++) {
            size_t since = 0;
            if (next[s] == spw_pipeline_passes(p)) continue;
            const spw_pass w = spw_pipeline_pass(p, s, next[s]);
            if (w.micro_batch >= p->micro_batches || w.chunk >= p->chunks) return 0;
            if (!ready(p, &r, s, w, &since)) continue;
            size_t *ends =
                w.backward ? &r.backward[s][w.micro_batch][w.chunk] : &r.forward[s][w.micro_batch][w.chunk];
            if (*ends != 0) return 0;
            clock[s] = (clock[s] > since ? clock[s] : since) + (w.backward ? BACKWARD_TIME : FORWARD_TIME);
            *ends = clock[s];
            now[s] = w.backward ? now[s] - 1 : now[s] + 1;
            live[s] = now[s] > live[s] ? now[s] : live[s];
            end = clock[s] > end ? clock[s] : end;
            next[s]++;
            moved = true;
        }
    }
    for (size_t s = 0; s < p->stages; s++)
        if (next[s] != spw_pipeline_passes(p) || now[s] != 0) return 0;
    return end;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void test_simulated(void) {
    for (size_t stages = 1; stages <= STAGES; stages++) {
        for (size_t chunks = 1; chunks <= (stages > 1 ? CHUNKS : 1); chunks++) {
            for (size_t micro = 1; micro <= MICRO; micro++) {
                const spw_pipeline p = {stages, chunks, micro};
                size_t live[STAGES];
                if (chunks > 1 && micro % stages != 0) continue;
                const size_t end = execute(&p, live), forward = micro * chunks;
                /* Narayanan et al. 2021, 2.2: P - 1 forward and backward passes of a chunk are lost. */
                CHECK(end == (forward + stages - 1) * (FORWARD_TIME + BACKWARD_TIME));
                for (size_t s = 0; s < stages; s++) {
                    const size_t later = stages - 1 - s;
                    const size_t warm = chunks == 1 ? later : 2 * later + (chunks - 1) * stages;
                    CHECK(live[s] == least(forward, warm + 1));
                    CHECK(spw_pipeline_in_flight(&p, s) == live[s]);
                }
            }
        }
    }
}

/* PyTorch's Interleaved1F1B: micro-batches in max(1, M / P) rounds of one length, whatever P divides. It ends; of no more micro-batches than
 * stages nobody ever waits but for the first to come through all P v blocks and back: P v + M - 1 passes of each kind. */
static void test_rounds(void) {
    static spw_job job;
    size_t tried = 0;
    for (size_t stages = 2; stages <= STAGES; stages++)
        for (size_t chunks = 2; chunks <= CHUNKS; chunks++)
            for (size_t micro = 1; micro <= MICRO; micro++) {
                const size_t rounds = micro / stages > 1 ? micro / stages : 1;
                size_t live[STAGES];
                if (micro % rounds != 0) continue;
                job.pipeline = stages;
                job.virtual_stages = chunks;
                job.micro_batches = micro;
                job.schedule = SPW_SCHEDULE_INTERLEAVED;
                const spw_pipeline p = spw_pipeline_of(&job);
                const size_t end = execute(&p, live), forward = micro * chunks;
                CHECK(end >= (forward + stages - 1) * (FORWARD_TIME + BACKWARD_TIME) || micro < stages);
                if (micro <= stages)
                    CHECK(end == (chunks * stages + micro - 1) * (FORWARD_TIME + BACKWARD_TIME));
                if (micro % stages == 0)
                    CHECK(end == (forward + stages - 1) * (FORWARD_TIME + BACKWARD_TIME));
                for (size_t s = 0; s < stages; s++)
                    CHECK(live[s] ==
                          least(forward, 2 * (stages - 1 - s) + (chunks - 1) * (micro / rounds) + 1));
                tried += micro % stages != 0;
            }
    CHECK(tried > 0);
}

/* 1F1B without a list: every stage, at every tick, takes the oldest backward pass that is ready, else the next
 * forward pass unless P - s are in flight. It must keep as much alive and end as early. */
static size_t greedy(const spw_pipeline *p, size_t live[STAGES]) {
    size_t forward[STAGES + 1][MICRO], backward[STAGES + 1][MICRO], busy[STAGES] = {0};
    size_t started[STAGES] = {0}, returned[STAGES] = {0}, ended = 0;
    const size_t never = (size_t)-1;
    for (size_t s = 0; s <= STAGES; s++)
        for (size_t m = 0; m < MICRO; m++) forward[s][m] = backward[s][m] = never;
    for (size_t m = 0; m < MICRO; m++) forward[0][m] = 0; /* forward[s]: when the input of stage s is there */
    memset(live, 0, STAGES * sizeof *live);
    for (size_t t = 0; t < 4096 && returned[0] < p->micro_batches; t++) {
        for (size_t s = p->stages; s-- > 0;) {
            if (busy[s] > t) continue;
            const size_t m = returned[s], next = started[s];
            const bool last = s + 1 == p->stages;
            const size_t gradient =
                m < p->micro_batches ? (last ? forward[s + 1][m] : backward[s + 1][m]) : never;
            if (gradient <= t) {
                busy[s] = backward[s][m] = t + BACKWARD_TIME;
                ended = busy[s];
                returned[s]++;
            } else if (next < p->micro_batches && forward[s][next] <= t && next - m < p->stages - s) {
                busy[s] = forward[s + 1][next] = t + FORWARD_TIME;
                started[s]++;
                if (started[s] - m > live[s]) live[s] = started[s] - m;
            }
        }
    }
    return ended;
}

static void test_greedy(void) {
    for (size_t stages = 1; stages <= STAGES; stages++) {
        for (size_t micro = 1; micro <= MICRO; micro++) {
            const spw_pipeline p = {stages, 1, micro};
            size_t live[STAGES], listed[STAGES];
            CHECK(greedy(&p, live) == execute(&p, listed));
            CHECK(memcmp(live, listed, stages * sizeof *live) == 0);
        }
    }
}

/* P = 2, v = 2, M = 4, first stage by hand: micro-batches 0 1 through chunk 0, then chunk 1; 2 + 2 forward
 * passes before the first backward, which is of the last chunk. */
static void test_by_hand(void) {
    const spw_pipeline p = {2, 2, 4};
    static const spw_pass want[] = {{false, 0, 0}, {false, 1, 0}, {false, 0, 1}, {false, 1, 1},
                                    {false, 2, 0}, {true, 0, 1},  {false, 3, 0}, {true, 1, 1},
                                    {false, 2, 1}, {true, 0, 0},  {false, 3, 1}, {true, 1, 0},
                                    {true, 2, 1},  {true, 3, 1},  {true, 2, 0},  {true, 3, 0}};
    CHECK(spw_pipeline_passes(&p) == sizeof want / sizeof *want);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const spw_pass got = spw_pipeline_pass(&p, 0, i);
        CHECK(got.backward == want[i].backward && got.micro_batch == want[i].micro_batch &&
              got.chunk == want[i].chunk);
    }
    CHECK(spw_pipeline_in_flight(&p, 0) == 5 && spw_pipeline_in_flight(&p, 1) == 3);
}

/* Micro-batches that keep different amounts: the greatest window of P - s in a row, by brute force. */
static void test_uneven(void) {
    uint64_t kept[MICRO], seed = 7;
    for (size_t m = 0; m < MICRO; m++) kept[m] = 1 + (seed = seed * 6364136223846793005u + 1) % 1000;
    for (size_t stages = 1; stages <= STAGES; stages++) {
        const spw_pipeline p = {stages, 1, MICRO};
        for (size_t s = 0; s < stages; s++) {
            uint64_t peak = 0;
            for (size_t m = 0; m + (stages - s) <= MICRO; m++) {
                uint64_t sum = 0;
                for (size_t i = m; i < m + (stages - s); i++) sum += kept[i];
                peak = sum > peak ? sum : peak;
            }
            CHECK(spw_pipeline_peak(&p, s, kept) == peak);
        }
    }
    kept[3] = kept[4] = UINT64_MAX - 1;
    CHECK(spw_pipeline_peak(&(spw_pipeline){4, 1, MICRO}, 0, kept) == UINT64_MAX);
}

/* Every layer in one block; the stages' shares; layers in flight equal even chunks times passes in flight. */
static void test_blocks(void) {
    static spw_model model;
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &model)); /* 61 layers, the first 3 dense */
    for (size_t stages = 1; stages <= STAGES; stages++) {
        for (size_t chunks = 1; chunks <= CHUNKS; chunks++) {
            const spw_pipeline p = {stages, chunks, stages};
            size_t next = 0, layers = 0, moe = 0;
            for (size_t c = 0; c < chunks; c++) {
                for (size_t s = 0; s < stages; s++) {
                    const spw_block b = spw_pipeline_block(&p, &model, s, c);
                    CHECK(b.first == next);
                    next += b.layers;
                }
            }
            CHECK(next == model.layers);
            for (size_t s = 0; s < stages; s++) {
                const spw_stage stage = spw_pipeline_stage(&p, &model, s);
                layers += stage.layers;
                moe += stage.moe_layers;
                CHECK(stage.embedding == (s == 0) && stage.head == (s + 1 == stages));
                if (chunks == 1) CHECK(stage.kept_layers == stage.layers * (stages - s));
            }
            CHECK(layers == model.layers && moe == model.moe_layers);
        }
    }
    const spw_pipeline four = {4, 1, 8};
    CHECK(spw_pipeline_stage(&four, &model, 0).layers == 16 &&
          spw_pipeline_stage(&four, &model, 0).moe_layers == 13);
    CHECK(spw_pipeline_stage(&four, &model, 3).layers == 15);
    CHECK(spw_pipeline_stage(&four, &model, 0).kept_layers == 64);
}

/* --- A forward pass beside a backward one --- */

enum { PAIR_LAYERS = 12 };

/* Layers that are there, one by one: alive [micro-batch][layer]. */
typedef struct alive {
    bool there[MICRO][PAIR_LAYERS];
    uint64_t bytes[MICRO][PAIR_LAYERS], most_at_work, most_at_loss;
    size_t most_layers;
} alive;

static uint64_t all_of(const alive *a, size_t *layers) {
    uint64_t sum = 0;
    *layers = 0;
    for (size_t m = 0; m < MICRO; m++)
        for (size_t l = 0; l < PAIR_LAYERS; l++) {
            sum += a->there[m][l] ? a->bytes[m][l] : 0;
            *layers += a->there[m][l];
        }
    return sum;
}

static void note_layers(alive *a) {
    size_t layers = 0;
    (void)all_of(a, &layers);
    a->most_layers = layers > a->most_layers ? layers : a->most_layers;
}

static void goes_back(alive *a, size_t m, size_t l, uint64_t input, uint64_t work) {
    size_t layers = 0;
    note_layers(a);
    a->there[m][l] = false;
    const uint64_t here = all_of(a, &layers) + input + work;
    a->most_at_work = here > a->most_at_work ? here : a->most_at_work;
}

static void ends_forward(alive *a) {
    size_t layers = 0;
    const uint64_t here = all_of(a, &layers);
    note_layers(a);
    a->most_at_loss = here > a->most_at_loss ? here : a->most_at_loss;
}

/* One stage, `micro` micro-batches: the first runs forward alone, the last backward alone, and between them each runs forward while the
 * one before it runs backward, a layer each in turns. */
static void live_through(alive *a, size_t micro, size_t layers, uint64_t input, const uint64_t *work) {
    for (size_t l = 0; l < layers; l++) a->there[0][l] = true;
    ends_forward(a);
    for (size_t m = 1; m <= micro; m++) {
        for (size_t j = 0; j < layers; j++) {
            if (m < micro) a->there[m][j] = true;
            goes_back(a, m - 1, layers - 1 - j, input, work[(m - 1) * layers + layers - 1 - j]);
        }
        if (m < micro) ends_forward(a);
    }
}

static void test_pairs(void) {
    static spw_model model;
    uint64_t seed = 3;
    for (size_t round = 0; round < 40; round++) {
        static alive a;
        const size_t layers = 1 + round % PAIR_LAYERS, micro = 1 + round % 7;
        const uint64_t input = 1 + round % 5, saved = 10;
        const spw_waiting_layer keeps[2] = {{.input = (double)input, .saved = (double)saved},
                                            {.input = (double)input, .saved = (double)saved}};
        spw_layer_use use[PAIR_LAYERS * MICRO];
        uint64_t work[PAIR_LAYERS * MICRO];
        spw_stage_walk *walk = NULL;
        memset(&a, 0, sizeof a);
        memset(&model, 0, sizeof model);
        model.layers = model.moe_layers = layers;
        for (size_t l = 0; l < layers; l++) model.is_moe[l] = 1;
        for (size_t l = 0; l < layers; l++)
            for (size_t m = 0; m < micro; m++) {
                const uint64_t rows = (seed = seed * 6364136223846793005u + 1) >> 56, more = seed >> 40 & 255;
                use[l * micro + m] = (spw_layer_use){rows + more, rows};
                a.bytes[m][l] = input + saved + rows;
                work[m * layers + l] = rows + more;
            }
        const spw_layer_uses uses = {use, layers, micro, {0, 0}};
        const spw_pipeline p = {.stages = 1, .chunks = 1, .micro_batches = micro, .pairs = true};
        live_through(&a, micro, layers, input, work);
        CHECK_OK(spw_stage_walk_create(&(spw_stage_walked){&p, &model, 0, p.micro_batches}, keeps, &walk));
        const spw_stage_peaks peaks = *spw_stage_walk_run(walk, &uses);
        spw_stage_walk_destroy(walk);
        CHECK(peaks.at[SPW_MOMENT_MOE_LAYER].bytes == a.most_at_work);
        CHECK(peaks.at[SPW_MOMENT_LOSS].bytes == a.most_at_loss);
        CHECK(spw_pipeline_stage(&p, &model, 0).kept_layers == a.most_layers);
        CHECK(a.most_layers == layers + (micro > 1));
    }
}

/* Two stages of two blocks and four micro-batches: one forward pass more before passes take turns, 3 of the second stage and 5 of the
 * first, and one block and a layer more in flight than turns alone have. */
static void test_pairs_of_stages(void) {
    static spw_model model;
    memset(&model, 0, sizeof model);
    model.layers = 8;
    const spw_pipeline turns = {2, 2, 4},
                       pairs = {.stages = 2, .chunks = 2, .micro_batches = 4, .pairs = true};
    CHECK(spw_pipeline_warm_up(&pairs, 0) == 5 && spw_pipeline_warm_up(&pairs, 1) == 3);
    CHECK(spw_pipeline_is_pair(&pairs, 0, 5) && !spw_pipeline_is_pair(&pairs, 0, 4) &&
          !spw_pipeline_is_pair(&pairs, 0, 6) && !spw_pipeline_is_pair(&turns, 0, 4));
    CHECK(!spw_pipeline_is_pair(&pairs, 0, 11)); /* three forward passes are left, then backward ones */
    CHECK(spw_pipeline_stage(&turns, &model, 0).kept_layers == 10);
    CHECK(spw_pipeline_stage(&pairs, &model, 0).kept_layers == 11);
    CHECK(spw_pipeline_in_flight(&pairs, 0) == 6);
}

/* A walk is run again and again, with stages of dense and MoE layers in chunks: what a peak is made of is its bytes, whatever the walk
 * looked at before, and another walk that never ran finds the same. */
static void test_parts_of_peaks(void) {
    enum { WALK_STAGES = 3, WALK_CHUNKS = 2, WALK_PARTS = 6, WALK_TIMES = 12, WALK_DENSE = 3 };
    static spw_model model;
    uint64_t seed = 5;
    for (size_t round = 0; round < 48; round++) {
        const size_t layers = WALK_STAGES * WALK_CHUNKS * (1 + round % 3);
        const bool stays = round / 3 % 2 == 1;
        const spw_waiting_layer keeps[2] = {
            {.input = 3.0, .policy = 1.0, .saved = 20.0, .left = 7.0, .stays = stays},
            {.input = 5.0, .policy = 2.0, .saved = 11.0, .left = 13.0, .stays = stays}};
        const spw_pipeline p = {.stages = WALK_STAGES, .chunks = WALK_CHUNKS, .micro_batches = WALK_PARTS};
        spw_stage_walk *walk = NULL;
        memset(&model, 0, sizeof model);
        model.layers = layers;
        for (size_t l = 0; l < layers; l++) model.is_moe[l] = l % WALK_DENSE != round % WALK_DENSE;
        for (size_t l = 0; l < layers; l++) model.moe_layers += model.is_moe[l];
        CHECK_OK(spw_stage_walk_create(&(spw_stage_walked){&p, &model, round % WALK_STAGES, p.micro_batches},
                                       keeps, &walk));
        for (size_t time = 0; time < WALK_TIMES; time++) {
            spw_layer_use use[WALK_STAGES * WALK_CHUNKS * WALK_DENSE * WALK_PARTS];
            spw_stage_walk *other = NULL;
            for (size_t i = 0; i < model.moe_layers * WALK_PARTS; i++) {
                seed = seed * 6364136223846793005u + 1;
                use[i] = (spw_layer_use){seed >> 57, time % 2 == 0 ? 0 : seed >> 50 & 63};
            }
            const spw_layer_uses uses = {use, model.moe_layers, WALK_PARTS, {0, 0}};
            const spw_stage_peaks peaks = *spw_stage_walk_run(walk, &uses);
            CHECK_OK(spw_stage_walk_create(
                &(spw_stage_walked){&p, &model, round % WALK_STAGES, p.micro_batches}, keeps, &other));
            const spw_stage_peaks again = *spw_stage_walk_run(other, &uses);
            spw_stage_walk_destroy(other);
            for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
                const spw_stage_moment *at = &peaks.at[m], *new = &again.at[m];
                CHECK(at->there == new->there);
                if (!at->there) continue;
                CHECK(at->bytes == new->bytes && at->layer == new->layer);
                CHECK(at->bytes == spw_stage_moment_inputs(keeps, at) + spw_stage_moment_policy(keeps, at) +
                                       spw_stage_moment_saved(keeps, at) + spw_stage_moment_left(keeps, at) +
                                       at->rows + at->work);
            }
        }
        spw_stage_walk_destroy(walk);
    }
}

static bool same_moments(const spw_stage_peaks *a, const spw_stage_peaks *b) {
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) {
        const spw_stage_moment *x = &a->at[m], *y = &b->at[m];
        if (x->there != y->there) return false;
        if (x->there && (x->bytes != y->bytes || x->rows != y->rows || x->work != y->work ||
                         x->layer != y->layer || x->place != y->place || x->micro_batch != y->micro_batch ||
                         memcmp(x->waiting, y->waiting, sizeof x->waiting) != 0 ||
                         memcmp(x->left, y->left, sizeof x->left) != 0))
            return false;
    }
    return true;
}

/* Micro-batches of a few kinds in turn: a walk that knows so leaves out the middle of a step, and finds what one finds that is told of
 * each; and so does one that knows that no rows wait. The same of what a stage holds, against the greatest sum over all passes. */
static void test_periods(void) {
    enum { TIMES = 600, MOST_MICRO = 60, MOST_KINDS = 4, MOST_LAYERS = 12 };
    static spw_model model;
    static spw_layer_use each[MOST_LAYERS * MOST_MICRO], few[MOST_LAYERS * MOST_KINDS];
    uint64_t seed = 11, kept[MOST_MICRO * 3], left_out = 0;
    for (size_t time = 0; time < TIMES; time++) {
        const size_t stages = 1 + time % 4, chunks = 1 + time / 4 % 3, kinds = 1 + time / 12 % MOST_KINDS,
                     micro = stages * (1 + time * 7 % (MOST_MICRO / stages));
        const spw_pipeline p = {
            .stages = stages, .chunks = chunks, .micro_batches = micro, .pairs = time % 5 == 0};
        const bool stays = time % 3 == 1;
        const double gradient = time % 7 == 2 ? 2.0 : 0.0;
        const bool unsaved = time / 5 % 2 == 1;
        const spw_waiting_layer keeps[2] = {
            {.input = 3.0, .saved = 20.0, .left = 7.0, .stays = stays, .gradient = gradient},
            {.input = 5.0, .saved = 11.0, .left = 13.0, .stays = stays, .gradient = gradient}};
        const size_t stage = time / 2 % stages;
        spw_stage_walk *whole = NULL, *shorter = NULL;
        memset(&model, 0, sizeof model);
        model.layers = MOST_LAYERS;
        for (size_t l = 0; l < MOST_LAYERS; l++) model.moe_layers += model.is_moe[l] = l % 3 != time % 3;
        for (size_t i = 0; i < model.moe_layers * kinds; i++) {
            seed = seed * 6364136223846793005u + 1;
            few[i] = (spw_layer_use){seed >> 57, unsaved ? 0 : seed >> 50 & 63};
        }
        for (size_t i = 0; i < model.moe_layers * micro; i++)
            each[i] = few[i / micro * kinds + i % micro % kinds];
        const spw_layer_uses of_all = {each, model.moe_layers, micro, {0, 0}},
                             of_few = {few, model.moe_layers, kinds, {0, 0}};
        CHECK_OK(spw_stage_walk_create(&(spw_stage_walked){&p, &model, stage, micro}, keeps, &whole));
        CHECK_OK(
            spw_stage_walk_create(&(spw_stage_walked){&p, &model, stage, kinds, unsaved}, keeps, &shorter));
        CHECK(same_moments(spw_stage_walk_run(whole, &of_all), spw_stage_walk_run(shorter, &of_few)));
        spw_stage_walk_destroy(whole), spw_stage_walk_destroy(shorter);
        left_out += spw_pipeline_warm_up(&p, stage) + 4 * spw_pipeline_period(&p, kinds) <
                    2 * micro * chunks - spw_pipeline_warm_up(&p, stage);
        if (p.pairs) continue;
        for (size_t i = 0; i < micro * chunks; i++)
            kept[i] = spw_pipeline_block(&p, &model, stage, i % chunks).layers;
        CHECK(spw_pipeline_stage(&p, &model, stage).kept_layers == spw_pipeline_peak(&p, stage, kept));
    }
    CHECK(left_out > TIMES / 20);
}

int main(void) {
    test_periods();
    test_pairs();
    test_parts_of_peaks();
    test_pairs_of_stages();
    test_by_hand();
    test_simulated();
    test_rounds();
    test_greedy();
    test_uneven();
    test_blocks();
    return check_done();
}
