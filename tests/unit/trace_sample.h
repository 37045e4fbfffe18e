/* A small trace with random content, for the tests of traces/. */
#ifndef SPW_TESTS_TRACE_SAMPLE_H
#define SPW_TESTS_TRACE_SAMPLE_H

#include "base/file.h"
#include "tests/unit/check.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <string.h>

enum { SAMPLE_LAYERS = 3, SAMPLE_MOST_TOKENS = 4096, SAMPLE_MOST_K = 8 };

typedef struct trace_sample {
    size_t experts, top_k, ranks, steps;
    const size_t *tokens; /* [steps] */
    bool weights, missing;
    unsigned seed;
} trace_sample;

static inline unsigned sample_random(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* ids [tokens][top_k] of one step and layer: distinct, some of them missing; weight: any bits. */
static inline void sample_record(const trace_sample *sample, size_t step, size_t layer, uint16_t *ids,
                                 uint16_t *weight) {
    unsigned state = sample->seed + (unsigned)(step * 97 + layer * 31 + 1) * 2654435761u;
    for (size_t token = 0; token < sample->tokens[step]; token++) {
        for (size_t k = 0; k < sample->top_k; k++) {
            size_t i = token * sample->top_k + k;
            bool again = true;
            while (again) {
                ids[i] = (uint16_t)(sample_random(&state) % sample->experts);
                again = false;
                for (size_t j = 0; j < k; j++) again = again || ids[i - 1 - j] == ids[i];
            }
            weight[i] = (uint16_t)(sample_random(&state) & 0x3bff);
        }
        if (sample->missing && sample_random(&state) % 5 == 0)
            ids[(token + 1) * sample->top_k - 1] = SPW_TRACE_MISSING;
    }
}

static inline void sample_columns(const trace_sample *sample, size_t step, uint16_t *rank, int32_t *sequence,
                                  int32_t *position) {
    size_t tokens = sample->tokens[step], ranks = sample->ranks > 0 ? sample->ranks : 1;
    for (size_t i = 0; i < tokens; i++) {
        rank[i] = (uint16_t)(i * ranks / tokens);
        sequence[i] = (int32_t)(step * 100 + i / 10);
        position[i] = (int32_t)(i % 10);
    }
}

static inline spw_status sample_write(const trace_sample *sample, const char *path) {
    static uint16_t ids[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K], weight[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K];
    static uint16_t rank[SAMPLE_MOST_TOKENS];
    static int32_t sequence[SAMPLE_MOST_TOKENS], position[SAMPLE_MOST_TOKENS];
    const int32_t layer_id[SAMPLE_LAYERS] = {1, 3, 5};
    uint32_t experts[SAMPLE_LAYERS], top_k[SAMPLE_LAYERS];
    spw_status status = SPW_OK;
    spw_file_forget_reads(); /* a test may write again what it has read */
    spw_trace_writer *writer = NULL;
    for (size_t i = 0; i < SAMPLE_LAYERS; i++) {
        experts[i] = (uint32_t)sample->experts;
        top_k[i] = (uint32_t)sample->top_k;
    }
    const spw_trace_info info = {.layers = SAMPLE_LAYERS,
                                 .experts = sample->experts,
                                 .top_k = sample->top_k,
                                 .ranks = sample->ranks,
                                 .has_tokens = true,
                                 .has_weights = sample->weights,
                                 .has_sequences = true,
                                 .has_by_rank = sample->ranks > 0,
                                 .layer_id = layer_id,
                                 .layer_experts = experts,
                                 .layer_top_k = top_k,
                                 .source = "a test",
                                 .license = "CC0-1.0",
                                 .created = "2026-01-01T00:00:00Z",
                                 .model_name = "sample",
                                 .model_hidden = 64,
                                 .synthetic = true};
    const spw_trace_write_settings settings = {.info = &info};
    SPW_TRY(spw_trace_writer_create(path, &settings, &writer));
    for (size_t step = 0; step < sample->steps; step++) {
        sample_columns(sample, step, rank, sequence, position);
        const spw_trace_write_step begun = {.id = 10 + (int64_t)step,
                                            .phase = (uint8_t)(step % 5),
                                            .tokens = sample->tokens[step],
                                            .tokens_kept = true,
                                            .source_rank = sample->ranks > 0 ? rank : NULL,
                                            .sequence = sequence,
                                            .position = position};
        SPW_TRY(spw_trace_writer_begin_step(writer, &begun));
        for (size_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
            sample_record(sample, step, layer, ids, weight);
            SPW_TRY(spw_trace_writer_put_layer(writer, layer, ids, sample->weights ? weight : NULL));
        }
        SPW_TRY(spw_trace_writer_end_step(writer));
    }
    status = spw_trace_writer_finish(writer);
    writer = NULL;

cleanup:
    spw_trace_writer_abandon(writer);
    return status;
}

#endif
