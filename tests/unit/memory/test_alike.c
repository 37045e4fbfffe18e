/* Ranks of a stage that are alike: a list with other rows against the list that these rows make, and the replay of all of it against the
 * plain one, in which every rank makes its own lists and no rank, step or event is left out. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/step_memory.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

#include <stdio.h>
#include <string.h>

enum { LAYERS = 48, MICRO = 4, STAGES = 4, RANKS = 4, CELLS = LAYERS * MICRO };

typedef struct question {
    const char *scheme, *more, *remat, *parallel;
    bool alike;
    const char *model; /* NULL: one whose layers are all of one kind */
} question;

static const question questions[] = {
    {"megatron-flex", "", "full", "expert: 8, pipeline: 4", true},
    {"megatron-flex", "", "none", "expert: 8, pipeline: 4", true},
    {"megatron-alltoall", "", "full", "expert: 8, pipeline: 4, schedule: GPipe", true},
    {"megatron-alltoall", "", "none", "expert: 8, pipeline: 2, virtual_stages: 2", true},
    {"megatron-allgather", "", "full", "expert: 8", true},
    {"torchtitan", "", "full", "expert: 8, fsdp: 4, pipeline: 2", false},
    {"megatron-flex", "optimizer: sharded\nfsdp2: {reshard_after_forward: never}\n", "full", "expert: 8",
     true},
    {"megatron-flex", "optimizer: sharded\nfsdp2: {reshard_after_forward: never}\n", "full",
     "expert: 8, pipeline: 4", true},
    {"megatron-flex", "", "full", "expert: 8, pipeline: 2", true, "glm-4.5-air"},
};

static void read_job(const question *q, double hbm_gib, spw_job *out, spw_scheme *scheme) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: %s\ncluster: h100-8x8\nparallel: {%s}\nremat: %s\n"
                   "batch: {sequence_length: 1024, sequences_per_gpu: 4, micro_batches: 4}\n%s",
                   q->model != NULL ? q->model : "qwen3-30b-a3b", q->parallel, q->remat, q->more);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
    out->cluster.hbm_gib.value = hbm_gib;
    CHECK_OK(spw_scheme_parse(q->scheme, scheme));
}

static void draw(const spw_point *point, uint64_t seed, spw_rank_rows rows[CELLS]) {
    const spw_rank_rows even = spw_balanced_rows(point->scheme, &point->shape);
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < CELLS; i++) {
        rows[i].held = next_random(&state) % (2 * even.held + 1);
        rows[i].received = rows[i].held / 2 + next_random(&state) % 50;
        rows[i].sent = next_random(&state) % (2 * even.sent + 1);
    }
    rows[7] = (spw_rank_rows){0, 0, 0}; /* nothing comes */
}

static void refill(const spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    CHECK_OK(spw_step_memory_find_visits(m, list));
    spw_step_memory_refill(m, rows, list);
    CHECK_OK(spw_event_list_outline(list));
}

/* Bytes of all events. */
static void spread(const spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    refill(m, rows, list);
    spw_event_list_spread(list);
}

/* Without what dies in later steps alone. */
static void take_first(const spw_event_list *every, spw_event_list *first) {
    size_t mark = 0;
    spw_event_list_clear(first);
    for (size_t i = 0; i < every->events; i++) {
        for (; mark < every->marks && every->mark[mark] == i; mark++) CHECK_OK(spw_event_list_mark(first));
        CHECK(!every->event[i].earlier || !every->event[i].born);
        if (!every->event[i].earlier) CHECK_OK(spw_event_list_append(first, every->event[i]));
    }
    for (; mark < every->marks; mark++) CHECK_OK(spw_event_list_mark(first));
}

static void check_equal(const spw_event_list *a, const spw_event_list *b) {
    CHECK(spw_event_list_is_equal(a, b) && a->marks == b->marks);
    for (size_t i = 0; i < a->marks && a->marks == b->marks; i++) CHECK(a->mark[i] == b->mark[i]);
}

/* The list of every step is that of a later one, without some deaths that of the first; with other rows, too, and it has the peaks of
 * both. Says how many deaths. */
static size_t check_every(const spw_point *point, const spw_footprint *f, const spw_step_rows *rows,
                          const spw_step_rows *others, const spw_event_list step[2]) {
    spw_step_memory *m = NULL;
    spw_event_list every = {.events = 0}, first = {.events = 0}, later = {.events = 0};
    CHECK_OK(spw_step_memory_create(point, f, NULL, &m));
    CHECK_OK(spw_step_memory_every_step(m, rows, &every));
    const size_t deaths = every.events - step[0].events;
    CHECK(every.repeats > 2 * MICRO);
    spread(m, rows, &every);
    check_equal(&every, &step[1]);
    take_first(&every, &first);
    check_equal(&first, &step[0]);
    CHECK_OK(spw_step_memory_step(m, rows, &later)); /* it goes on from there */
    check_equal(&every, &later);
    refill(m, others, &every);
    refill(m, others, &first);
    refill(m, others, &later);
    const spw_list_tops tops = spw_event_list_tops(&every);
    spw_event_list_spread(&every);
    spw_event_list_spread(&first);
    spw_event_list_spread(&later);
    check_equal(&every, &later);
    const spw_list_peak a = spw_event_list_peak(&first), b = spw_event_list_peak(&later);
    CHECK(tops.first.bytes == a.peak_bytes && tops.later.bytes == b.peak_bytes);
    CHECK(tops.later.event == b.peak_event);
    CHECK(a.peak_event == SIZE_MAX ||
          spw_memory_event_is_equal(&every.event[tops.first.event], &first.event[a.peak_event]));
    spw_event_list_destroy(&every);
    spw_event_list_destroy(&first);
    spw_event_list_destroy(&later);
    spw_step_memory_destroy(m);
    return deaths;
}

/* Three steps: the first has nothing to drop, and the third is the second again. */
static size_t check_refilled(const spw_point *point, const spw_footprint *f, bool alike, uint64_t seed) {
    static spw_rank_rows some[CELLS], others[CELLS];
    const spw_step_rows a = {some, LAYERS, MICRO}, b = {others, LAYERS, MICRO};
    spw_step_memory *one = NULL, *two = NULL;
    spw_event_list list[3] = {{.events = 0}}, wanted = {.events = 0}, other = {.events = 0};
    size_t deaths = 0;
    draw(point, seed, some);
    draw(point, seed + 1, others);
    CHECK_OK(spw_step_memory_create(point, f, NULL, &one));
    CHECK_OK(spw_step_memory_create(point, f, NULL, &two));
    CHECK(spw_step_memory_is_alike(one) == alike);
    for (int step = 0; step < 3 && alike; step++) {
        CHECK_OK(spw_step_memory_step(one, &a, &list[step]));
        CHECK_OK(spw_step_memory_step(two, &b, &wanted));
        CHECK(list[step].events > 100 && !spw_event_list_is_equal(&list[step], &wanted));
        CHECK_OK(spw_event_list_copy(&list[step], &other));
        check_equal(&list[step], &other);
        refill(one, &b, &other);
        const spw_list_peak peak = spw_event_list_peak(&wanted);
        const spw_list_tops tops = spw_event_list_tops(&other);
        spw_event_list_spread(&other);
        CHECK(spw_event_list_is_equal(&other, &wanted));
        CHECK(tops.first.bytes == peak.peak_bytes && tops.first.event == peak.peak_event);
        CHECK(tops.later.bytes == peak.peak_bytes && tops.later.event == peak.peak_event);
    }
    if (alike) check_equal(&list[1], &list[2]); /* slots, too */
    if (alike) deaths = check_every(point, f, &a, &b, list);
    CHECK(!alike || (spw_step_memory_same_rows(one, &a, &a) && !spw_step_memory_same_rows(one, &a, &b)));
    for (int step = 0; step < 3; step++) spw_event_list_destroy(&list[step]);
    spw_event_list_destroy(&wanted);
    spw_event_list_destroy(&other);
    spw_step_memory_destroy(one);
    spw_step_memory_destroy(two);
    return deaths;
}

static void test_lists(void) {
    static spw_job job;
    static spw_footprint f;
    spw_scheme scheme;
    size_t deaths = 0;
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
        read_job(&questions[q], 80.0, &job, &scheme);
        const spw_point point = spw_point_of(&job, &scheme, MICRO);
        for (size_t stage = 0; stage < (job.pipeline > 0 ? job.pipeline : 1); stage++) {
            CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &f));
            deaths += check_refilled(&point, &f, questions[q].alike, q + 10 * stage);
        }
    }
    printf("%zu deaths of what the step before left\n", deaths);
    CHECK(deaths > 3);
}

/* Rank 2 has the rows of rank 0, but sends others; rank 3 those of rank 1, in all but one layer. */
static void replay(const spw_point *point, const spw_footprint *f, bool every, spw_reserved_summary *out) {
    static spw_rank_rows rows[CELLS];
    static const uint64_t live[STAGES * RANKS]; /* some, so that ranks are not taken as equal */
    spw_reserved_memory *memory = NULL;
    const spw_reserved_request request = {
        .point = point, .footprint = f, .ranks = RANKS, .layers = LAYERS, .steps = 1, .every = every};
    CHECK_OK(spw_reserved_memory_create(&request, &memory));
    for (size_t r = 0; r < RANKS; r++) {
        draw(point, 3 + r % 2, rows);
        for (size_t i = 0; i < CELLS; i++) {
            if (r == 2) rows[i].sent += 1;
            if (r == 3 && i / MICRO == 20) rows[i].held += 1;
            spw_reserved_memory_note(memory, i / MICRO, i % MICRO, r, rows[i]);
        }
    }
    CHECK_OK(spw_reserved_memory_end_step(memory, 0, live));
    CHECK_OK(spw_reserved_memory_finish(memory, out));
    spw_reserved_memory_destroy(memory);
}

static bool same_death(const spw_reserved_death *a, const spw_reserved_death *b) {
    return a->there == b->there && a->at_start == b->at_start && a->optimizer == b->optimizer &&
           a->rank == b->rank && a->stage == b->stage && a->micro_batch == b->micro_batch &&
           a->layer == b->layer && a->backward == b->backward;
}

static void check_same(const spw_reserved_outcome *a, const spw_reserved_outcome *b) {
    CHECK(a->requested.max_bytes == b->requested.max_bytes &&
          a->allocated.max_bytes == b->allocated.max_bytes && a->reserved.max_bytes == b->reserved.max_bytes);
    CHECK(a->worst_rank == b->worst_rank && a->worst_stage == b->worst_stage &&
          a->live_rank == b->live_rank && a->live_stage == b->live_stage && a->live_layer == b->live_layer &&
          a->live_micro_batch == b->live_micro_batch);
    CHECK(a->failed_steps == b->failed_steps && a->retries == b->retries &&
          a->stranded_bytes == b->stranded_bytes);
    CHECK(same_death(&a->death, &b->death));
}

static void check_replay(const question *q, double hbm_gib, spw_reserved_outcome *out) {
    static spw_job job;
    static spw_footprint f[STAGES];
    spw_reserved_summary plain, fast;
    spw_scheme scheme;
    read_job(q, hbm_gib, &job, &scheme);
    const spw_point point = spw_point_of(&job, &scheme, MICRO);
    for (size_t stage = 0; stage < (job.pipeline > 0 ? job.pipeline : 1); stage++)
        CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &f[stage]));
    replay(&point, f, true, &plain);
    replay(&point, f, false, &fast);
    CHECK(plain.followed == plain.processes && fast.followed == plain.followed);
    /* a process that ran out at first is taken to do so again, and what it reached is a lower bound */
    CHECK((plain.as_set.failed_steps > 0) == (fast.as_set.failed_steps > 0));
    CHECK((plain.expandable.failed_steps > 0) == (fast.expandable.failed_steps > 0));
    if (plain.as_set.failed_steps == 0) check_same(&plain.as_set, &fast.as_set);
    if (plain.expandable.failed_steps == 0) check_same(&plain.expandable, &fast.expandable);
    *out = fast.as_set;
}

/* From a device with room to spare to one that not even a first step fits. */
static void test_replay(void) {
    static const double shares[] = {1.25, 1.1, 0.6};
    size_t failed = 0, retried = 0, fitted = 0;
    for (size_t q = 0; q < sizeof questions / sizeof *questions; q++) {
        spw_reserved_outcome out;
        check_replay(&questions[q], 200.0, &out);
        const double reserved_gib = (double)out.reserved.max_bytes / (1 << 30);
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            check_replay(&questions[q], reserved_gib * shares[i], &out);
            failed += out.failed_steps > 0;
            retried += out.retries > 0;
            fitted += out.failed_steps == 0;
        }
    }
    printf("%zu fit, %zu of all retry, %zu fail\n", fitted, retried, failed);
    CHECK(failed > 3 && retried > 3 && fitted > 3);
}

/* What is noted of micro-batches behind the kinds is of no account: of few processes, and of so many that the fullest are chosen. */
static void test_kinds(void) {
    enum { MOST_RANKS = 8, KINDS = 2 };
    static spw_job job;
    static spw_footprint f[STAGES];
    static spw_rank_rows rows[CELLS];
    static const uint64_t live[STAGES * MOST_RANKS];
    spw_scheme scheme;
    read_job(&questions[0], 80.0, &job, &scheme);
    const spw_point point = spw_point_of(&job, &scheme, MICRO);
    for (size_t stage = 0; stage < STAGES; stage++)
        CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &f[stage]));
    for (size_t ranks = 4; ranks <= MOST_RANKS; ranks += 4) {
        spw_reserved_summary out[2];
        for (int other = 0; other < 2; other++) {
            spw_reserved_memory *memory = NULL;
            const spw_reserved_request request = {.point = &point,
                                                  .footprint = f,
                                                  .ranks = ranks,
                                                  .layers = LAYERS,
                                                  .steps = 1,
                                                  .kinds = KINDS};
            CHECK_OK(spw_reserved_memory_create(&request, &memory));
            for (size_t r = 0; r < ranks; r++) {
                draw(&point, r, rows);
                for (size_t i = 0; i < CELLS; i++) {
                    if (i % MICRO >= KINDS && other > 0) rows[i].held = rows[i].received *= 4;
                    spw_reserved_memory_note(memory, i / MICRO, i % MICRO, r, rows[i]);
                }
            }
            CHECK_OK(spw_reserved_memory_end_step(memory, 0, live));
            CHECK_OK(spw_reserved_memory_finish(memory, &out[other]));
            spw_reserved_memory_destroy(memory);
        }
        CHECK(out[0].followed == 16 && out[1].followed == 16);
        check_same(&out[0].as_set, &out[1].as_set);
    }
}

int main(void) {
    test_lists();
    test_kinds();
    test_replay();
    return check_done();
}
