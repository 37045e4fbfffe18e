/* From a trace to the micro-batches of a job: who holds which rows, and which layer's. argv[1]: scratch directory. */
#include "sim/routing/compose.h"

#include "tests/unit/check.h"
#include "tests/unit/routing/trace_sketch.h"
#include "traces/trace.h"

/* --- Exact, folded, resampled --- */

static void test_exact(void) {
    replayed r;
    const sketch s = regular(GPUS, 2 * LENGTH);
    CHECK_OK(create(&r, &s, (const size_t[3]){2, 1, 0}));
    CHECK(spw_composer_steps(r.composer) == 2 && spw_composer_layers(r.composer) == 2);
    CHECK(spw_composer_step_id(r.composer, 1) == 101 && spw_composer_layer_id(r.composer, 1) == 3);
    for (size_t step = 0; step < 2; step++) {
        CHECK_OK(begin(r.composer, step));
        for (size_t layer = 0; layer < 2; layer++) {
            spw_trace_record record;
            const spw_layout *layout = NULL;
            uint64_t row[MOST_ROWS];
            uint32_t sequence[MOST_ROWS];
            CHECK_OK(spw_composer_layer(r.composer, layer, 0, &record, &layout));
            check_full(layout, &record, 2);
            for (size_t rank = 0; rank < GPUS; rank++) {
                CHECK(rows_of(layout, rank, row, sequence) == 8 && row[0] == rank * 8 &&
                      row[7] == rank * 8 + 7);
            }
            CHECK(record.top_k == TOP_K && record.experts == EXPERTS && record.id_bytes == 1);
            const uint8_t *ids = record.expert_id;
            CHECK(ids[5 * TOP_K + 1] == choice_of(step, layer, 5, 1));
            CHECK_OK(spw_composer_layer(r.composer, layer, 1, &record, &layout)); /* half of it is drawn */
            check_full(layout, &record, 1);
        }
    }
    CHECK(spw_composer_match(r.composer, 0) == SPW_MATCH_EXACT);
    CHECK(spw_composer_assumptions(r.composer, 0)->count == 0);
    CHECK(spw_composer_match(r.composer, 1) == SPW_MATCH_RESAMPLED);
    CHECK(assumed(r.composer, 1, "drawn with seed 1"));
    destroy(&r);
}

/* Twelve source ranks onto four GPUs: blocks of three, in order, the rest of a block is left out. */
static void test_folded(void) {
    replayed r;
    const sketch s = regular(3 * GPUS, LENGTH);
    CHECK_OK(create(&r, &s, (const size_t[3]){3, 2, 4}));
    CHECK_OK(begin(r.composer, 0));
    for (size_t batch = 0; batch < 2; batch++) {
        const size_t sequences = 3 - batch;
        spw_trace_record record;
        const spw_layout *layout = NULL;
        uint64_t row[MOST_ROWS];
        uint32_t sequence[MOST_ROWS];
        CHECK_OK(spw_composer_layer(r.composer, 0, batch, &record, &layout));
        check_full(layout, &record, sequences);
        for (size_t rank = 0; rank < GPUS; rank++) {
            const size_t count = rows_of(layout, rank, row, sequence);
            for (size_t i = 0; i < count; i++) CHECK(row[i] == rank * 3 * LENGTH + i);
        }
        CHECK(spw_composer_match(r.composer, batch) == SPW_MATCH_FOLDED);
        CHECK(assumed(r.composer, batch, "12 source ranks of the trace are folded onto 4 GPUs"));
    }
    CHECK(spw_composer_match(r.composer, 2) == SPW_MATCH_RESAMPLED); /* a block has too few tokens */
    destroy(&r);
}

/* Two source ranks on eight GPUs of tensor 2 x context 2. Context rank 0 has pieces 0 and 3 of a sequence of 8 tokens, context rank 1
 * pieces 1 and 2, of two tokens each, and of its two pieces the first GPU of a tensor group has the first. */
static void test_shared_sequences(void) {
    static const uint64_t first[] = {0, 6, 2, 4};
    enum { WHOLE = 8 };
    replayed r = {.trace = NULL};
    sketch s = regular(2, WHOLE);
    spw_trace_record record;
    const spw_layout *layout = NULL;
    uint64_t row[MOST_ROWS];
    uint32_t sequence[MOST_ROWS];
    for (size_t i = 0; i < s.rows; i++) {
        s.sequence[i] = (int32_t)(i / WHOLE);
        s.position[i] = (int32_t)(i % WHOLE);
    }
    r.job = make_job();
    r.job.expert = 4, r.job.expert_tensor = 1, r.job.tensor = 2, r.job.context = 2;
    r.job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    r.job.sequence_length = WHOLE;
    r.sequences[0] = 1;
    (void)snprintf(r.path, sizeof r.path, "%s/shared.h5", scratch);
    CHECK_OK(write_sketch(&s, r.path));
    CHECK_OK(spw_trace_open(r.path, &r.trace));
    const spw_composer_request request = {
        .trace = r.trace, .job = &r.job, .sequences = r.sequences, .batches = 1, .seed = 1};
    CHECK_OK(spw_composer_create(&request, &r.composer));
    CHECK_OK(begin(r.composer, 0));
    CHECK_OK(spw_composer_layer(r.composer, 0, 0, &record, &layout));
    CHECK(layout->ranks == 8 && assumed(r.composer, 0, "share their sequences"));
    for (size_t gpu = 0; gpu < layout->ranks; gpu++) {
        const uint64_t begins = gpu / 4 * WHOLE + first[gpu % 4];
        CHECK(rows_of(layout, gpu, row, sequence) == 2 && row[0] == begins && row[1] == begins + 1);
    }
    destroy(&r);
}

/* Six source ranks are no whole number of blocks for four GPUs. */
static void test_uneven(void) {
    replayed r;
    const sketch s = regular(6, 4 * LENGTH);
    CHECK_OK(create(&r, &s, (const size_t[3]){1, 0, 0}));
    CHECK_OK(begin(r.composer, 0));
    CHECK(spw_composer_match(r.composer, 0) == SPW_MATCH_RESAMPLED);
    destroy(&r);
}

/* Without source ranks sequences are dealt in order while they last. */
static void test_dealt(void) {
    replayed r;
    sketch s = regular(0, 0);
    s.rows = 2 * GPUS * LENGTH;
    for (size_t i = 0; i < s.rows; i++) {
        s.sequence[i] = (int32_t)(i / LENGTH);
        s.position[i] = (int32_t)(i % LENGTH);
    }
    CHECK_OK(create(&r, &s, (const size_t[3]){2, 3, 0}));
    CHECK_OK(begin(r.composer, 1));
    spw_trace_record record;
    const spw_layout *layout = NULL;
    uint64_t row[MOST_ROWS];
    uint32_t sequence[MOST_ROWS];
    CHECK_OK(spw_composer_layer(r.composer, 1, 0, &record, &layout));
    check_full(layout, &record, 2);
    for (size_t rank = 0; rank < GPUS; rank++)
        CHECK(rows_of(layout, rank, row, sequence) == 8 && row[0] == rank * 8 && row[7] == rank * 8 + 7);
    CHECK(spw_composer_match(r.composer, 0) == SPW_MATCH_RESAMPLED);
    CHECK(assumed(r.composer, 0, "whole sequences are dealt to ranks") && !assumed(r.composer, 0, "drawn"));
    CHECK_OK(spw_composer_layer(r.composer, 1, 1, &record, &layout));
    check_full(layout, &record, 3);
    for (size_t rank = 0; rank < GPUS; rank++) { /* what is drawn are whole sequences */
        const size_t count = rows_of(layout, rank, row, sequence);
        for (size_t i = 0; i < count; i++)
            CHECK(row[i] % LENGTH == i % LENGTH && row[i] / LENGTH == row[i - i % LENGTH] / LENGTH);
    }
    CHECK(assumed(r.composer, 1, "drawn"));
    destroy(&r);
}

/* --- Layers --- */

static spw_match match_of(const sketch *s, const char *words) {
    replayed r;
    CHECK_OK(create(&r, s, (const size_t[3]){1, 0, 0}));
    CHECK_OK(begin(r.composer, 0));
    const spw_match match = spw_composer_match(r.composer, 0);
    CHECK(words == NULL || assumed(r.composer, 0, words));
    destroy(&r);
    return match;
}

static void test_layers(void) {
    sketch s = regular(GPUS, LENGTH);
    CHECK(match_of(&s, NULL) == SPW_MATCH_EXACT);
    s.layers = 1; /* one of the model's own two */
    CHECK(match_of(&s, "of the trace stands for the 2 MoE layers of the job") == SPW_MATCH_EXACT);
    s.layer_id[0] = 2;                                     /* a layer that is dense in the model */
    CHECK(match_of(&s, "stands for") == SPW_MATCH_FOLDED); /* in turn; nothing is drawn */
    s.layer_id[0] = 1;
    s.model_layers = 7; /* another model */
    CHECK(match_of(&s, "stands for") == SPW_MATCH_FOLDED);
    s.layers = 3;
    s.layer_id[2] = 5;
    CHECK(match_of(&s, "step totals take the first of the trace's 3") == SPW_MATCH_FOLDED);

    /* Layers in turn: the first ones stand for one more where they do not divide the model's. */
    const size_t seven_by_three[] = {3, 2, 2}, two_by_three[] = {1, 1, 0}, six_by_three[] = {2, 2, 2};
    for (size_t i = 0; i < 3; i++) {
        CHECK(spw_layers_stood_for(7, 3, i) == seven_by_three[i]);
        CHECK(spw_layers_stood_for(2, 3, i) == two_by_three[i]);
        CHECK(spw_layers_stood_for(6, 3, i) == six_by_three[i]);
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s SCRATCH\n", argv[0]);
        return 2;
    }
    scratch = argv[1];
    test_exact();
    test_folded();
    test_shared_sequences();
    test_uneven();
    test_dealt();
    test_layers();
    return check_done();
}
