/* From a trace to the micro-batches of a job: who holds which rows, and what the result may call itself.
 * argv[1]: scratch directory. */
#include "sim/job/job.h"
#include "sim/routing/compose.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXPERTS = 8, TOP_K = 2, LENGTH = 4, GPUS = 4, MODEL_LAYERS = 5, MOST_ROWS = 256 };

static const char *scratch;

/* One MoE layer in two, so that a trace can hold all of them, some, or another number. */
static spw_job make_job(void) {
    spw_job job = {.expert = 2, .fsdp = 2, .pipeline = 1, .tensor = 1, .sequence_length = LENGTH};
    job.model = (spw_model){.layers = MODEL_LAYERS,
                            .moe_layers = 2,
                            .is_moe = {0, 1, 0, 1, 0},
                            .hidden = 16,
                            .experts = EXPERTS,
                            .top_k = TOP_K};
    (void)snprintf(job.model.name, sizeof job.model.name, "small");
    return job;
}

/* --- Traces --- */

typedef struct sketch {
    size_t ranks, layers, steps, rows; /* rows: of every step */
    int32_t layer_id[4];
    size_t model_layers;
    uint8_t phase;
    bool counts_only, has_sequences;
    uint16_t rank[MOST_ROWS];
    int32_t sequence[MOST_ROWS], position[MOST_ROWS];
} sketch;

/* Row r of step s in layer l goes to experts r + l and r + l + s + 1. */
static uint16_t choice_of(size_t step, size_t layer, size_t row, size_t slot) {
    return (uint16_t)((row + layer + slot * (step + 1)) % EXPERTS);
}

static spw_status write_sketch(const sketch *s, const char *path) {
    uint16_t ids[MOST_ROWS * TOP_K];
    uint32_t experts[4] = {EXPERTS, EXPERTS, EXPERTS, EXPERTS}, top_k[4] = {TOP_K, TOP_K, TOP_K, TOP_K};
    const spw_trace_info info = {.layers = s->layers,
                                 .experts = EXPERTS,
                                 .top_k = TOP_K,
                                 .ranks = s->ranks,
                                 .has_tokens = !s->counts_only,
                                 .has_sequences = s->has_sequences,
                                 .has_by_rank = s->counts_only && s->ranks > 0,
                                 .layer_id = s->layer_id,
                                 .layer_experts = experts,
                                 .layer_top_k = top_k,
                                 .model_layers = s->model_layers,
                                 .model_hidden = 16};
    spw_trace_writer *writer = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_trace_writer_create(path, &(spw_trace_write_settings){.info = &info}, &writer));
    for (size_t step = 0; step < s->steps; step++) {
        const spw_trace_write_step row = {.id = (int64_t)(100 + step),
                                          .phase = s->phase,
                                          .tokens = s->rows,
                                          .tokens_kept = !s->counts_only,
                                          .source_rank = s->ranks > 0 ? s->rank : NULL,
                                          .sequence = s->has_sequences ? s->sequence : NULL,
                                          .position = s->has_sequences ? s->position : NULL};
        SPW_TRY(spw_trace_writer_begin_step(writer, &row));
        for (size_t layer = 0; layer < s->layers; layer++) {
            for (size_t i = 0; i < s->rows * TOP_K; i++)
                ids[i] = choice_of(step, layer, i / TOP_K, i % TOP_K);
            SPW_TRY(spw_trace_writer_put_layer(writer, layer, ids, NULL));
        }
        SPW_TRY(spw_trace_writer_end_step(writer));
    }
    status = spw_trace_writer_finish(writer);
    writer = NULL;

cleanup:
    spw_trace_writer_abandon(writer);
    return status;
}

/* `ranks` source ranks of `each` rows, in sequences of the job's length. */
static sketch regular(size_t ranks, size_t each) {
    sketch s = {.ranks = ranks,
                .layers = 2,
                .steps = 2,
                .rows = ranks * each,
                .layer_id = {1, 3},
                .model_layers = MODEL_LAYERS,
                .has_sequences = true};
    for (size_t i = 0; i < s.rows; i++) {
        s.rank[i] = (uint16_t)(i / each);
        s.sequence[i] = (int32_t)(i / LENGTH);
        s.position[i] = (int32_t)(i % LENGTH);
    }
    return s;
}

typedef struct replayed {
    char path[256];
    spw_trace *trace;
    spw_job job;
    size_t sequences[3];
    spw_composer *composer;
} replayed;

/* The request of a whole trace for batches of `sequences`, 0 ends the list. */
static spw_status create(replayed *r, const sketch *s, const size_t sequences[3]) {
    spw_status status = SPW_OK;
    r->composer = NULL;
    r->trace = NULL;
    r->job = make_job();
    (void)snprintf(r->path, sizeof r->path, "%s/compose.h5", scratch);
    SPW_TRY(write_sketch(s, r->path));
    SPW_TRY(spw_trace_open(r->path, &r->trace));
    spw_composer_request request = {.trace = r->trace, .job = &r->job, .sequences = r->sequences, .seed = 1};
    for (; request.batches < 3 && sequences[request.batches] > 0; request.batches++)
        r->sequences[request.batches] = sequences[request.batches];
    SPW_TRY(spw_composer_create(&request, &r->composer));

cleanup:
    return status;
}

static void destroy(replayed *r) {
    spw_composer_destroy(r->composer);
    spw_trace_close(r->trace);
    (void)unlink(r->path);
}

/* As a replay does it: begun, noted and taken. */
static spw_status begin(spw_composer *c, size_t step) {
    spw_note note = {.data = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_begin(c, step));
    SPW_TRY(spw_composer_note(c, &note));
    SPW_TRY(spw_composer_take(c, step, &(spw_note_reader){note.data, note.bytes}));

cleanup:
    spw_free(note.data);
    return status;
}

static bool assumed(const spw_composer *c, size_t batch, const char *words) {
    const spw_assumptions *list = spw_composer_assumptions(c, batch);
    for (size_t i = 0; i < list->count; i++) {
        if (strstr(list->text[i], words) != NULL) return true;
    }
    return false;
}

/* Rows of one rank, with the job's sequence of each; returns how many. */
static size_t rows_of(const spw_layout *layout, size_t rank, uint64_t *row, uint32_t *sequence) {
    size_t count = 0;
    for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
        for (uint64_t t = 0; t < layout->segment[i].tokens; t++) {
            row[count] = layout->segment[i].first + t;
            sequence[count++] = layout->segment[i].sequence;
        }
    }
    return count;
}

/* Every rank has full sequences of existing rows. */
static void check_full(const spw_layout *layout, const spw_trace_record *record, size_t sequences) {
    uint64_t row[MOST_ROWS] = {0};
    uint32_t sequence[MOST_ROWS] = {0};
    CHECK(layout->ranks == GPUS && layout->sequences == sequences);
    for (size_t rank = 0; rank < GPUS; rank++) {
        const size_t count = rows_of(layout, rank, row, sequence);
        CHECK(count == sequences * LENGTH);
        for (size_t i = 0; i < count; i++) CHECK(row[i] < record->tokens && sequence[i] == i / LENGTH);
    }
}

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
    test_exact();
    test_folded();
    test_shared_sequences();
    test_uneven();
    test_dealt();
    test_layers();
    test_pooled();
    test_counts_only();
    test_refusals();
    test_assumptions();
    test_kinds();
    test_allocations();
    return check_done();
}
