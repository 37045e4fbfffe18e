/* The memory of whole steps through the allocator: a small scheme by pencil and paper, the list against the footprint for
 * random rows, and the properties of the replay. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/advice.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/step_memory.h"
#include "sim/schemes/layer_builder.h"
#include "sim/weights/pipeline.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/layer_of.h"
#include "tests/unit/memory/reserved_job.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { STEPS = 24, MOST_EVENTS = 4096, MANY = 40, FEW_STEPS = 4 };

/* --- The list --- */

static void test_by_hand(void) {
    const spw_job job = make_job(SPW_REMAT_NONE, 1.0);
    const spw_point point = spw_point_of(&job, &scheme, 1);
    const spw_rank_rows rows[LAYERS] = {{10, 10, 10}, {20, 20, 20}, {5, 5, 5}};
    const int64_t row = 2048; /* bytes of [1, H], and of [1, 2 F] */
    spw_footprint f;
    spw_step_memory *memory = NULL;
    spw_event_list list = {.events = 0};
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK_OK(spw_step_memory_create(&point, &f, NULL, &memory));
    CHECK_OK(spw_step_memory_begin(memory, &list));
    int64_t fixed = 0;
    for (size_t i = 0; i < list.events; i++) fixed += (int64_t)list.event[i].bytes;
    CHECK(fixed == (int64_t)f.fixed_bytes[SPW_MOMENT_LOSS]);
    CHECK_OK(spw_step_memory_step(memory, &(spw_step_rows){rows, LAYERS, 1}, &list));
    const spw_list_peak peak = spw_event_list_peak(&list);
    CHECK(peak.after_forward_bytes == 2 * row * 35); /* x and h of all */
    /* layer 1 with y, and all that is beside it backward; layer 2 has 2 x 30 + 15 */
    CHECK(peak.forward_bytes == 2 * row * 10 + 3 * row * 20 + INT64_C(3) * 2 * 1024 * 512 * 2);
    const int64_t gradients = INT64_C(3) * 2 * 1024 * 512 * 2; /* of the two experts here, bf16 */
    CHECK(peak.backward_bytes ==
          2 * row * 30 + gradients + row * 20); /* layer 1, its dx beside all x and h */
    CHECK_STATUS(spw_step_memory_step(memory, &(spw_step_rows){rows, 0, 1}, &list), SPW_EARG);
    spw_event_list_destroy(&list);
    spw_step_memory_destroy(memory);
}

/* What torchtitan's exchanges give is a piece a rank: the same bytes in as many allocations, of rows as equal as they can be. */
static void test_pieces(void) {
    const spw_job job = make_job(SPW_REMAT_NONE, 1.0);
    spw_scheme titan;
    CHECK_OK(spw_scheme_parse("torchtitan", &titan));
    const spw_point point = spw_point_of(&job, &titan, 1);
    const spw_rank_rows rows[LAYERS] = {{11, 11, 10}, {11, 11, 10}, {11, 11, 10}};
    const size_t ranks = point.shape.ranks;
    const uint64_t row = 2 * point.shape.hidden;
    spw_footprint f;
    spw_layer layer;
    spw_step_memory *memory = NULL;
    spw_event_list list = {.events = 0};
    CHECK_OK(spw_layer_build(&titan, &point.shape, SPW_FLAVOUR_LIVE, &layer));
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK_OK(spw_step_memory_create(&point, &f, NULL, &memory));
    CHECK_OK(spw_step_memory_begin(memory, &list));
    CHECK_OK(spw_step_memory_step(memory, &(spw_step_rows){rows, LAYERS, 1}, &list));
    const size_t pieces = spw_layer_find(&layer, "received_pieces");
    uint64_t bytes = 0, most = 0;
    size_t births = 0, deaths = 0;
    for (size_t i = 0; i < list.events; i++) {
        const spw_memory_event *event = &list.event[i];
        if (event->kind != pieces || event->layer != 0) continue;
        births += event->born ? 1 : 0;
        deaths += event->born ? 0 : 1;
        bytes += event->born ? event->bytes : 0;
        most = event->bytes > most ? event->bytes : most;
        CHECK(event->slot < spw_step_memory_slots(memory));
    }
    CHECK(ranks > 1 && births == (ranks < 11 ? ranks : 11) && deaths == births);
    CHECK(bytes == 11 * row && most == (11 + ranks - 1) / ranks * row);
    spw_layer_destroy(&layer);
    spw_event_list_destroy(&list);
    spw_step_memory_destroy(memory);
}

/* The list peaks where the footprint says. Without remat a layer's forward pass is that of the scheme, which may have more than
 * its recomputation: then the list has more. */
static void test_against_footprint(void) {
    uint64_t state = 5;
    for (int round = 0; round < 60; round++) {
        spw_job job = make_job(round % 2 == 0 ? SPW_REMAT_FULL : SPW_REMAT_NONE, 1.0);
        const bool whole = round % 4 >= 2;
        if (whole) {
            job.part = SPW_PART_WHOLE;
            job.model.vocab = 32000;
            job.model.heads = 8;
            job.model.kv_heads = 8;
            job.model.head_dim = job.model.v_head_dim = 128;
            job.model.layers = LAYERS + 1; /* a dense one, before, between or behind the others */
            for (size_t l = 0; l <= LAYERS; l++) job.model.is_moe[l] = l != (size_t)round / 4 % (LAYERS + 1);
            job.model.dense_ffn = 2048;
        }
        const spw_point point = spw_point_of(&job, &scheme, 1);
        const bool saves = job.remat == SPW_REMAT_NONE;
        spw_rank_rows rows[LAYERS];
        spw_footprint f;
        spw_step_memory *memory = NULL;
        spw_event_list list = {.events = 0};
        CHECK_OK(spw_footprint_compute(&point, NULL, &f));
        spw_layer_use use[LAYERS];
        uint64_t saved = 0, kept = 0; /* what every layer keeps beside its rows, the dense one too */
        for (size_t l = 0; whole && l <= LAYERS; l++) {
            const spw_waiting_layer *k = &f.keeps[job.model.is_moe[l]];
            kept += (uint64_t)(k->input + 0.5) + (uint64_t)(k->saved + 0.5);
        }
        CHECK(!whole || kept > 0);
        for (size_t l = 0; l < LAYERS; l++) {
            const uint64_t held = next_random(&state) % 9000;
            rows[l] = (spw_rank_rows){held, held, held};
            const spw_live_set live = live_set_of(&scheme, &point.shape, &rows[l]);
            use[l] = (spw_layer_use){live.backward_bytes, saves ? live.saved_bytes : 0};
            saved += live.saved_bytes;
        }
        const spw_layer_uses uses = {use, LAYERS, 1, {0, 0}};
        const spw_pipeline pipeline = spw_pipeline_of(&job);
        spw_stage_walk *walk = NULL;
        CHECK_OK(spw_stage_walk_create(&(spw_stage_walked){&pipeline, &job.model, 0, pipeline.micro_batches},
                                       f.keeps, &walk));
        const spw_stage_peaks peaks = *spw_stage_walk_run(walk, &uses);
        spw_stage_walk_destroy(walk);
        CHECK_OK(spw_step_memory_create(&point, &f, NULL, &memory));
        CHECK_OK(spw_step_memory_begin(memory, &list));
        int64_t begin = 0;
        for (size_t i = 0; i < list.events; i++) begin += (int64_t)list.event[i].bytes;
        CHECK_OK(spw_step_memory_optimizer(memory, &list));
        CHECK((list.events > 0) == whole);
        for (size_t i = 0; i < list.events; i++) begin += (int64_t)list.event[i].bytes;
        CHECK_OK(spw_step_memory_step(memory, &(spw_step_rows){rows, LAYERS, 1}, &list));
        const spw_list_peak peak = spw_event_list_peak(&list);
        const int64_t want = (int64_t)spw_footprint_walked_peak(&f, &peaks, 0), got = begin + peak.peak_bytes;
        if (saves) {
            CHECK(got >= want);
            CHECK(peak.after_forward_bytes == (int64_t)(saved + kept));
        } else {
            CHECK(got == want);
            CHECK(peak.after_forward_bytes == (int64_t)kept);
        }
        int64_t left = 0;
        for (size_t i = 0; i < list.events; i++)
            left += list.event[i].born ? (int64_t)list.event[i].bytes : -(int64_t)list.event[i].bytes;
        CHECK(left == 0);
        spw_event_list_destroy(&list);
        spw_step_memory_destroy(memory);
    }
}

/* --- The replay --- */

static void replay(const spw_job *job, const uint64_t held[STEPS], spw_reserved_summary *out,
                   uint64_t allocated[STEPS]) {
    replay_steps(job, held, (spw_reserved_request){.steps = STEPS}, out, allocated);
}

static void test_properties(void) {
    const spw_job job = make_job(SPW_REMAT_NONE, 8.0);
    uint64_t held[STEPS], shuffled[STEPS], a[STEPS], b[STEPS], state = 77;
    spw_reserved_summary one, other;
    for (size_t i = 0; i < STEPS; i++) held[i] = 2000 + next_random(&state) % 30000;
    omp_set_num_threads(1);
    replay(&job, held, &one, a);
    omp_set_num_threads(4);
    replay(&job, held, &other, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK(same_bytes(&one.as_set, &other.as_set, sizeof one.as_set));
    CHECK(same_bytes(&one.expandable, &other.expandable, sizeof one.expandable));
    CHECK(one.as_set.failed_steps == 0 && one.oom.value == 0.0 && one.oom.low == 0.0 && one.oom.high > 0.0);
    CHECK(one.expandable.reserved.max_bytes < one.as_set.reserved.max_bytes);
    CHECK(one.as_set.reserved.p50_bytes <= one.as_set.reserved.p99_bytes);
    CHECK(one.as_set.requested.max_bytes <= one.as_set.allocated.max_bytes);
    CHECK(one.as_set.stranded_bytes > 0);
    /* Requested bytes do not care about the order of the steps. */
    for (size_t i = 0; i < STEPS; i++) shuffled[i] = held[(i * 7 + 3) % STEPS];
    replay(&job, shuffled, &other, b);
    CHECK(memcmp(&one.as_set.requested, &other.as_set.requested, sizeof one.as_set.requested) == 0);
    /* Equal steps: from the second on nothing changes, whichever are exchanged. */
    for (size_t i = 0; i < STEPS; i++) held[i] = 12000;
    replay(&job, held, &one, a);
    for (size_t i = 1; i < STEPS; i++) CHECK(a[i] == a[1]);
    CHECK(one.as_set.reserved.p50_bytes == one.as_set.reserved.max_bytes);
}

/* The same job on devices of less and less memory: it fits, fits with expandable segments only, fits with neither. */
static void test_verdicts(void) {
    uint64_t held[STEPS], scratch[STEPS], state = 99;
    for (size_t i = 0; i < STEPS; i++) held[i] = 2000 + next_random(&state) % 30000;
    spw_job job = make_job(SPW_REMAT_NONE, 64.0);
    spw_reserved_summary s;
    char text[SPW_ADVICE_TEXT];
    replay(&job, held, &s, scratch);
    CHECK(spw_reserved_verdict(&s) == SPW_VERDICT_FITS);
    const spw_byte_quantiles wanted = s.as_set.requested;
    const double live = (double)s.as_set.requested.max_bytes / GIB,
                 grown = (double)s.expandable.reserved.max_bytes / GIB;
    bool helped = false;
    for (int i = 0; i <= 40; i++) {
        const double room = grown * 1.10 - (grown * 1.10 - live * 0.90) * (double)i / 40.0;
        job.cluster.hbm_gib.value = room;
        replay(&job, held, &s, scratch);
        spw_advice(&s, 0, text);
        CHECK(s.as_set.reserved.max_bytes <= (uint64_t)(room * GIB) + 1);
        /* Room does not change what is needed. */
        CHECK(memcmp(&s.as_set.requested, &wanted, sizeof wanted) == 0);
        if (s.as_set.failed_steps > 0) CHECK(spw_reserved_verdict(&s) == SPW_VERDICT_OOM && s.oom.low > 0.0);
        if (s.as_set.failed_steps == 0 && s.as_set.retried_steps > 0)
            CHECK(spw_reserved_verdict(&s) == SPW_VERDICT_TIGHT);
        if (s.as_set.failed_steps > 0 && s.expandable.failed_steps == 0) {
            helped = true;
            CHECK(strstr(text, "with expandable segments this job fits") != NULL);
            char said[64]; /* in the unit of the tables */
            (void)snprintf(said, sizeof said, "most reserved %.1f of %.1f GiB",
                           (double)s.expandable.reserved.max_bytes / GIB, (double)s.limit_bytes / GIB);
            CHECK(strstr(text, said) != NULL);
        }
        if (s.expandable.failed_steps == STEPS) CHECK(strstr(text, "live tensors need") != NULL);
    }
    CHECK(helped);
    CHECK(s.as_set.failed_steps > 0 && s.expandable.failed_steps > 0);
    CHECK(text[0] != '\0' && strstr(text, "this job fits") == NULL);
    /* Not even what a process begins with has room: the advice still says the whole need. */
    char said[64];
    job.cluster.hbm_gib.value = 0.004;
    replay(&job, held, &s, scratch);
    spw_advice(&s, 0, text);
    (void)snprintf(said, sizeof said, "live tensors need %.1f of 0.0 GiB, whatever", live);
    CHECK(s.as_set.failed_steps == STEPS && strstr(text, said) != NULL);
    CHECK(memcmp(&s.as_set.requested, &wanted, sizeof wanted) == 0);
    CHECK(memcmp(&s.expandable.requested, &wanted, sizeof wanted) == 0);
    spw_advice(&s, s.limit_bytes + 1, text); /* fewer sequences do not make the state smaller */
    CHECK(strstr(text, "alone are") != NULL && strstr(text, "fewer sequences") == NULL);
    spw_advice(&s, s.limit_bytes, text);
    CHECK(strstr(text, "take fewer sequences") != NULL);
    job.allocator.expandable_segments = true; /* asked for: no advice to do so */
    job.cluster.hbm_gib.value = 64.0;
    replay(&job, held, &s, scratch);
    spw_advice(&s, 0, text);
    CHECK(text[0] == '\0');
    CHECK(same_bytes(&s.as_set, &s.expandable, sizeof s.as_set));
}

/* --- Of many ranks, the fullest --- */

/* Rank r of 40 holds more rows the greater r is; in step 2 rank 3 holds most of all. */
static void note_many(spw_reserved_memory *memory, size_t step, uint64_t live[MANY]) {
    for (size_t rank = 0; rank < MANY; rank++) {
        const uint64_t rows = step == 2 && rank == 3 ? 30000 : 1000 + 97 * (rank / 2);
        live[rank] = rows;
        for (size_t l = 0; l < LAYERS; l++)
            spw_reserved_memory_note(memory, l, 0, rank, (spw_rank_rows){rows, rows, rows});
    }
}

static void run_part(spw_reserved_memory *memory, size_t run, spw_reserved_part part) {
    spw_note note = {.data = NULL};
    CHECK_OK(spw_reserved_memory_run(memory, run, part, &note));
    CHECK_OK(spw_reserved_memory_take(memory, run, part, &(spw_note_reader){note.data, note.bytes}));
    spw_free(note.data);
}

static void replay_many(const spw_reserved_request *request, spw_reserved_summary *out) {
    spw_reserved_memory *memory = NULL;
    uint64_t live[MANY];
    CHECK_OK(spw_reserved_memory_create(request, &memory));
    for (size_t step = 0; step < FEW_STEPS; step++) {
        note_many(memory, step, live);
        CHECK_OK(spw_reserved_memory_end_step(memory, step, live));
    }
    for (size_t i = 0; i < 2 * spw_reserved_memory_runs(memory); i++)
        run_part(memory, i / 2, i % 2 == 0 ? SPW_RESERVED_AS_SET : SPW_RESERVED_OTHER);
    CHECK_OK(spw_reserved_memory_finish(memory, out));
    spw_reserved_memory_destroy(memory);
}

/* What is run when all steps are over, by one setting after the other, comes to the same. */
static void replay_twice(spw_reserved_request request, spw_reserved_summary *out) {
    spw_reserved_summary later;
    replay_many(&request, out);
    request.later = true;
    replay_many(&request, &later);
    CHECK(same_bytes(&out->as_set, &later.as_set, sizeof out->as_set) &&
          same_bytes(&out->expandable, &later.expandable, sizeof out->expandable));
}

static void test_fullest(void) {
    const spw_job job = make_job(SPW_REMAT_NONE, 8.0), small = make_job(SPW_REMAT_NONE, 0.2);
    const spw_point point = spw_point_of(&job, &scheme, 1), tight = spw_point_of(&small, &scheme, 1);
    spw_footprint f;
    spw_reserved_summary all, few;
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    spw_reserved_request request = {
        .point = &point, .footprint = &f, .ranks = MANY, .layers = LAYERS, .steps = FEW_STEPS, .every = true};
    replay_many(&request, &all);
    CHECK(all.processes == MANY && all.followed == MANY);
    request.every = false;
    replay_twice(request, &few);
    /* ranks 2 i and 2 i + 1 have the same rows, of which one is followed; rank 3 from step 2 on */
    CHECK(few.processes == MANY && few.followed == SPW_RESERVED_FOLLOWED + 1);
    CHECK(few.as_set.requested.max_bytes == all.as_set.requested.max_bytes);
    CHECK(few.as_set.requested.p50_bytes == all.as_set.requested.p50_bytes);
    CHECK(few.as_set.live_rank == 3 && few.as_set.live_step == 2 && !few.as_set.death.there);
    CHECK(few.as_set.reserved.max_bytes <= all.as_set.reserved.max_bytes);
    /* a device that is too small for step 2: who dies, and where */
    request.point = &tight;
    CHECK_OK(spw_footprint_compute(&tight, NULL, &f));
    replay_twice(request, &few);
    const spw_reserved_death *d = &few.as_set.death;
    CHECK(few.as_set.failed_steps == 1 && d->there && !d->at_start);
    CHECK(d->step == 2 && d->rank == 3 && d->stage == 0 && d->micro_batch == 0 && d->layer < LAYERS);
    /* one whose weights and gradients alone do not fit: no layer is reached, however much of the step would still find a place */
    const spw_job none = make_job(SPW_REMAT_NONE, 0.05);
    const spw_point hopeless = spw_point_of(&none, &scheme, 1);
    request.point = &hopeless;
    CHECK_OK(spw_footprint_compute(&hopeless, NULL, &f));
    replay_twice(request, &few);
    CHECK(d->there && d->at_start && d->step == 0 && d->rank < MANY);
}

static void test_host_memory(void) {
    const spw_job job = make_job(SPW_REMAT_FULL, 8.0);
    const spw_point point = spw_point_of(&job, &scheme, 1);
    spw_footprint f;
    const spw_reserved_request request = {
        .point = &point, .footprint = &f, .ranks = RANKS, .layers = LAYERS, .steps = STEPS};
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    bool succeeded = false;
    for (int n = 0; n < 100 && !succeeded; n++) {
        spw_reserved_memory *memory = NULL;
        spw_alloc_fail_after(n);
        const spw_status status = spw_reserved_memory_create(&request, &memory);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || (status == SPW_ENOMEM && memory == NULL));
        succeeded = status == SPW_OK;
        spw_reserved_memory_destroy(memory);
    }
    CHECK(succeeded);
}

/* Several threads replay ranks: what one of them met is said, and of which step. */
static void test_says_what_failed(void) {
    const spw_job job = make_job(SPW_REMAT_FULL, 8.0);
    const spw_point point = spw_point_of(&job, &scheme, 1);
    spw_footprint f;
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    const spw_reserved_request request = {
        .point = &point, .footprint = &f, .ranks = MANY, .layers = LAYERS, .steps = FEW_STEPS};
    uint64_t live[MANY];
    size_t of_step = 0;
    bool succeeded = false;
    for (int n = 0; n < 1000 && !succeeded; n++) {
        spw_reserved_memory *memory = NULL;
        CHECK_OK(spw_reserved_memory_create(&request, &memory));
        note_many(memory, 0, live);
        spw_alloc_fail_after(n);
        const spw_status status = spw_reserved_memory_end_step(memory, 0, live);
        CHECK(status == spw_settle(status)); /* what failed was passed on */
        spw_alloc_fail_after(-1);
        succeeded = status == SPW_OK;
        CHECK(succeeded || (status == SPW_ENOMEM && strstr(spw_last_error(), "cannot allocate") != NULL));
        if (!succeeded) of_step += strstr(spw_last_error(), "replay of step 0: cannot allocate") != NULL;
        spw_reserved_memory_destroy(memory);
    }
    CHECK(succeeded && of_step > 0);
}

int main(void) {
    test_by_hand();
    test_pieces();
    test_against_footprint();
    test_properties();
    test_verdicts();
    test_fullest();
    test_host_memory();
    test_says_what_failed();
    return check_done();
}
