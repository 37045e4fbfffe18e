/* Small traces for jobs of a few ranks, and what is composed of them. */
#ifndef SPW_TESTS_TRACE_SKETCH_H
#define SPW_TESTS_TRACE_SKETCH_H

#include "sim/job/job.h"
#include "sim/routing/compose.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <string.h>
#include <unistd.h>

enum { EXPERTS = 8, TOP_K = 2, LENGTH = 4, GPUS = 4, MODEL_LAYERS = 5, MOST_ROWS = 256 };

static const char *scratch;

/* One MoE layer in two, so that a trace can hold all of them, some, or another number. */
static inline spw_job make_job(void) {
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
static inline uint16_t choice_of(size_t step, size_t layer, size_t row, size_t slot) {
    return (uint16_t)((row + layer + slot * (step + 1)) % EXPERTS);
}

static inline spw_status write_sketch(const sketch *s, const char *path) {
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
static inline sketch regular(size_t ranks, size_t each) {
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
static inline spw_status create(replayed *r, const sketch *s, const size_t sequences[3]) {
    spw_status status = SPW_OK;
    r->composer = NULL;
    r->trace = NULL;
    r->job = make_job();
    (void)snprintf(r->path, sizeof r->path, "%s/compose_%d.h5", scratch, (int)getpid());
    SPW_TRY(write_sketch(s, r->path));
    SPW_TRY(spw_trace_open(r->path, &r->trace));
    spw_composer_request request = {.trace = r->trace, .job = &r->job, .sequences = r->sequences, .seed = 1};
    for (; request.batches < 3 && sequences[request.batches] > 0; request.batches++)
        r->sequences[request.batches] = sequences[request.batches];
    SPW_TRY(spw_composer_create(&request, &r->composer));

cleanup:
    return status;
}

static inline void destroy(replayed *r) {
    spw_composer_destroy(r->composer);
    spw_trace_close(r->trace);
    (void)unlink(r->path);
}

/* As a replay does it: begun, noted and taken. */
static inline spw_status begin(spw_composer *c, size_t step) {
    spw_note note = {.data = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_begin(c, step));
    SPW_TRY(spw_composer_note(c, &note));
    SPW_TRY(spw_composer_take(c, step, &(spw_note_reader){note.data, note.bytes}));

cleanup:
    spw_free(note.data);
    return status;
}

static inline bool assumed(const spw_composer *c, size_t batch, const char *words) {
    const spw_assumptions *list = spw_composer_assumptions(c, batch);
    for (size_t i = 0; i < list->count; i++) {
        if (strstr(list->text[i], words) != NULL) return true;
    }
    return false;
}

/* Rows of one rank, with the job's sequence of each; returns how many. */
static inline size_t rows_of(const spw_layout *layout, size_t rank, uint64_t *row, uint32_t *sequence) {
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
static inline void check_full(const spw_layout *layout, const spw_trace_record *record, size_t sequences) {
    uint64_t row[MOST_ROWS] = {0};
    uint32_t sequence[MOST_ROWS] = {0};
    CHECK(layout->ranks == GPUS && layout->sequences == sequences);
    for (size_t rank = 0; rank < GPUS; rank++) {
        const size_t count = rows_of(layout, rank, row, sequence);
        CHECK(count == sequences * LENGTH);
        for (size_t i = 0; i < count; i++) CHECK(row[i] < record->tokens && sequence[i] == i / LENGTH);
    }
}

#endif
