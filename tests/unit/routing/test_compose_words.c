/* From a trace to the micro-batches of a job, where it is no training trace: pooled and counted ones, refusals, what the result may
 * call itself. argv[1]: scratch directory. */
#include "sim/routing/compose.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/routing/trace_sketch.h"
#include "traces/trace.h"

#include <string.h>

/* --- Inference traces and counts --- */

static void test_pooled(void) {
    replayed r;
    sketch s = {
        .layers = 1, .steps = 5, .rows = 6, .layer_id = {1}, .phase = 3, .model_layers = MODEL_LAYERS};
    CHECK_OK(create(&r, &s, (const size_t[3]){1, 0, 0})); /* 16 tokens: three steps of 6 */
    CHECK(spw_composer_steps(r.composer) == 2);
    CHECK(spw_composer_step_id(r.composer, 0) == 100 && spw_composer_step_id(r.composer, 1) == 103);
    for (size_t step = 0; step < 2; step++) {
        spw_trace_record record;
        const spw_layout *layout = NULL;
        CHECK_OK(begin(r.composer, step));
        CHECK_OK(spw_composer_layer(r.composer, 0, 0, &record, &layout));
        CHECK(record.tokens == (step == 0 ? 18 : 12));
        check_full(layout, &record, 1);
    }
    CHECK(assumed(r.composer, 0, "pooled"));
    destroy(&r);
    s.phase = 0; /* training steps stay apart */
    CHECK_OK(create(&r, &s, (const size_t[3]){1, 0, 0}));
    CHECK(spw_composer_steps(r.composer) == 5 && !assumed(r.composer, 0, "pooled"));
    destroy(&r);
}

/* Assignments of each rank to each expert. */
static void count_layout(const spw_trace_record *record, const spw_layout *layout,
                         uint32_t n[GPUS][EXPERTS]) {
    uint64_t row[MOST_ROWS];
    uint32_t sequence[MOST_ROWS];
    memset(n, 0, GPUS * sizeof *n);
    for (size_t rank = 0; rank < GPUS; rank++) {
        const size_t count = rows_of(layout, rank, row, sequence);
        for (size_t i = 0; i < count; i++) {
            const uint16_t *choice = (const uint16_t *)record->expert_id + row[i] * TOP_K;
            CHECK(choice[0] < EXPERTS && choice[1] < EXPERTS && choice[0] != choice[1]);
            n[rank][choice[0]]++;
            n[rank][choice[1]]++;
        }
    }
}

/* Ranks and tokens of the job: the counts stay what they are. Else their sum, and no token comes twice. */
static void test_counts_only(void) {
    for (int other = 0; other < 2; other++) {
        replayed r;
        sketch s = regular(other == 0 ? GPUS : 3, 2 * LENGTH);
        s.counts_only = true;
        CHECK_OK(create(&r, &s, (const size_t[3]){2, 0, 0}));
        CHECK_OK(begin(r.composer, 1));
        spw_trace_record record;
        const spw_layout *layout = NULL;
        uint32_t got[GPUS][EXPERTS], want[GPUS][EXPERTS] = {{0}}, again[GPUS][EXPERTS];
        CHECK_OK(spw_composer_layer(r.composer, 1, 0, &record, &layout));
        check_full(layout, &record, 2);
        count_layout(&record, layout, got);
        for (size_t i = 0; i < s.rows * TOP_K && other == 0; i++)
            want[i / TOP_K / 8][choice_of(1, 1, i / TOP_K, i % TOP_K)]++;
        CHECK(other == 1 || memcmp(got, want, sizeof want) == 0);
        for (size_t rank = 0; rank < GPUS; rank++) {
            uint32_t sum = 0;
            for (size_t x = 0; x < EXPERTS; x++) {
                sum += got[rank][x];
                CHECK(got[rank][x] <= 2 * LENGTH);
            }
            CHECK(sum == 2 * LENGTH * TOP_K);
        }
        CHECK_OK(spw_composer_layer(r.composer, 1, 0, &record, &layout)); /* asked twice, drawn alike */
        count_layout(&record, layout, again);
        CHECK(memcmp(got, again, sizeof got) == 0);
        CHECK(spw_composer_match(r.composer, 0) == SPW_MATCH_RESAMPLED && assumed(r.composer, 0, "counts"));
        destroy(&r);
    }
}

/* --- Refusals --- */

static void test_refusals(void) {
    replayed r;
    const sketch s = regular(GPUS, LENGTH);
    CHECK_OK(create(&r, &s, (const size_t[3]){1, 0, 0}));
    const spw_composer_request good = {
        .trace = r.trace, .job = &r.job, .sequences = r.sequences, .batches = 1};
    spw_composer *c = (spw_composer *)&r;
    spw_composer_request q = good;
    q.step_begin = 2;
    CHECK_STATUS(spw_composer_create(&q, &c), SPW_EARG);
    CHECK(c == NULL &&
          strcmp(spw_last_error(), "steps 2:2 lie outside the trace, which has steps 0:2 (positions in "
                                   "it, not the ids that it gives them)") == 0);
    q = good;
    q.layer_end = 3;
    CHECK_STATUS(spw_composer_create(&q, &c), SPW_EARG);
    CHECK(strcmp(spw_last_error(),
                 "layers 0:3 lie outside the trace, which has layers 0:2 (positions in it, not the "
                 "ids that it gives them)") == 0);
    r.job.model.experts = 16;
    CHECK_STATUS(spw_composer_create(&good, &c), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(),
                 "the trace routes to 8 experts, top-2, but model small has 16 experts, top-2; "
                 "replay it with a model of its own shape") == 0);
    r.job.model.experts = EXPERTS;
    r.job.model.top_k = 1;
    CHECK_STATUS(spw_composer_create(&good, &c), SPW_ECONFIG);
    destroy(&r);
}

static void test_assumptions(void) {
    spw_assumptions list = {.count = 0};
    for (int i = 0; i < 3; i++) spw_assume(&list, "the same %s", "sentence");
    CHECK(list.count == 1 && strcmp(list.text[0], "the same sentence") == 0);
    for (int i = 0; i < 2 * SPW_ASSUMPTIONS; i++) spw_assume(&list, "sentence %d", i);
    CHECK(list.count == SPW_ASSUMPTIONS);
    CHECK(strcmp(list.text[SPW_ASSUMPTIONS - 2], "sentence 21") == 0);
    CHECK(strstr(list.text[SPW_ASSUMPTIONS - 1], "more is assumed") != NULL);
    static const char *const names[] = {"exact", "folded", "resampled", "synthetic"};
    for (int i = 0; i < SPW_MATCH_COUNT; i++) CHECK(strcmp(spw_match_name((spw_match)i), names[i]) == 0);
}

static spw_status run_all(const spw_composer_request *request) {
    spw_status status = SPW_OK;
    spw_composer *c = NULL;
    spw_trace_record record;
    const spw_layout *layout = NULL;
    SPW_TRY(spw_composer_create(request, &c));
    SPW_TRY(begin(c, 0));
    for (size_t batch = 0; batch < request->batches; batch++)
        SPW_TRY(spw_composer_layer(c, 0, batch, &record, &layout));

cleanup:
    spw_composer_destroy(c);
    return status;
}

/* Of 6 micro-batches of 2 sequences the first 2 are drawn, and the others are as these in turn. */
static void test_kinds(void) {
    enum { MICRO_BATCHES = 6, EACH = 2, KINDS = 2, SEQUENCES = MICRO_BATCHES * EACH };
    replayed r;
    sketch s = regular(2, 3 * LENGTH);
    size_t own = 0;
    CHECK_OK(create(&r, &s, (const size_t[3]){SEQUENCES, 0, 0}));
    for (size_t kinds = 0; kinds <= KINDS; kinds += KINDS) {
        const spw_composer_request request = {.trace = r.trace,
                                              .job = &r.job,
                                              .sequences = r.sequences,
                                              .batches = 1,
                                              .seed = 1,
                                              .micro_batches = MICRO_BATCHES,
                                              .kinds = kinds};
        spw_composer *c = NULL;
        size_t like = 0, first = 0;
        CHECK_OK(spw_composer_create(&request, &c));
        CHECK_OK(spw_composer_begin(c, 0));
        const spw_layout *layout = spw_composer_layout(c, 0);
        for (size_t rank = 0; rank < GPUS; rank++) {
            const spw_segment *at = layout->segment + layout->begin[rank];
            CHECK(layout->begin[rank + 1] - layout->begin[rank] == SEQUENCES);
            for (size_t i = 0; i < SEQUENCES; i++) {
                const spw_segment *before = i >= EACH * KINDS ? &at[i - EACH * KINDS] : &at[i];
                CHECK(at[i].sequence == i && at[i].tokens == LENGTH);
                like += at[i].first == before->first;
                first += i > 0 && i < EACH * KINDS && at[i].first != at[0].first;
            }
        }
        CHECK(first > 0);
        if (kinds > 0)
            CHECK(like == GPUS * SEQUENCES);
        else
            own = like;
        spw_composer_destroy(c);
    }
    CHECK(own < GPUS * SEQUENCES);
    destroy(&r);
}

/* Every allocation fails once; what comes back says so, and nothing leaks (the sanitizer looks). */
static void test_allocations(void) {
    for (int counts_only = 0; counts_only < 2; counts_only++) {
        replayed r;
        sketch s = regular(GPUS, 2 * LENGTH);
        s.counts_only = counts_only == 1;
        CHECK_OK(create(&r, &s, (const size_t[3]){2, 3, 0}));
        const spw_composer_request request = {
            .trace = r.trace, .job = &r.job, .sequences = r.sequences, .batches = 2, .seed = 1};
        int failed = 0;
        for (; failed < 1000; failed++) {
            spw_alloc_fail_after(failed);
            const spw_status status = run_all(&request);
            spw_alloc_fail_after(-1);
            if (status == SPW_OK) break;
            CHECK(status == SPW_ENOMEM);
        }
        CHECK(failed > 5 && failed < 1000);
        destroy(&r);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s SCRATCH\n", argv[0]);
        return 2;
    }
    scratch = argv[1];
    test_pooled();
    test_counts_only();
    test_refusals();
    test_assumptions();
    test_kinds();
    test_allocations();
    return check_done();
}
