/* A generated trace as a file. */
#include "traces/generate/generate.h"

#include "base/memory.h"
#include "base/progress.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <stdio.h>

/* The columns of one step and the layer tables. */
typedef struct columns {
    uint16_t *source_rank, *expert_id;
    int32_t *sequence, *position, *layer_id;
    uint32_t *layer_experts, *layer_top_k;
} columns;

static void free_columns(columns *made) {
    spw_free(made->source_rank);
    spw_free(made->expert_id);
    spw_free(made->sequence);
    spw_free(made->position);
    spw_free(made->layer_id);
    spw_free(made->layer_experts);
    spw_free(made->layer_top_k);
}

static size_t sequence_length(const spw_generate_settings *settings) {
    return settings->sequence_length > 0 ? settings->sequence_length : settings->tokens_per_rank;
}

static spw_status make_columns(const spw_generate_settings *settings, columns *out) {
    spw_status status = SPW_OK;
    size_t tokens = 0, choices = 0, per_rank = settings->tokens_per_rank;
    *out = (columns){.source_rank = NULL};
    if (!spw_mul_size(settings->ranks, per_rank, &tokens) ||
        !spw_mul_size(tokens, settings->top_k, &choices)) {
        SPW_TRY(spw_fail(SPW_EARG, "%zu ranks x %zu tokens overflow", settings->ranks, per_rank));
    }
    SPW_TRY(SPW_ALLOC(choices, &out->expert_id));
    SPW_TRY(SPW_ALLOC(tokens, &out->source_rank));
    SPW_TRY(SPW_ALLOC(tokens, &out->sequence));
    SPW_TRY(SPW_ALLOC(tokens, &out->position));
    SPW_TRY(SPW_ALLOC(settings->layers, &out->layer_id));
    SPW_TRY(SPW_ALLOC(settings->layers, &out->layer_experts));
    SPW_TRY(SPW_ALLOC(settings->layers, &out->layer_top_k));
    for (size_t i = 0; i < settings->layers; i++) {
        out->layer_id[i] = settings->first_layer + (int32_t)i;
        out->layer_experts[i] = (uint32_t)settings->experts;
        out->layer_top_k[i] = (uint32_t)settings->top_k;
    }
    for (size_t i = 0; i < tokens; i++) {
        out->source_rank[i] = (uint16_t)(i / per_rank);
        out->position[i] = (int32_t)(i % per_rank % sequence_length(settings));
    }

cleanup:
    return status;
}

/* Sequences are numbered through the whole trace. */
static spw_status number_sequences(const spw_generate_settings *settings, size_t step, columns *made) {
    size_t length = sequence_length(settings), per_rank = (settings->tokens_per_rank + length - 1) / length;
    if ((double)(step + 1) * (double)settings->ranks * (double)per_rank > (double)INT32_MAX) {
        return spw_fail(SPW_EARG, "more than %d sequences", INT32_MAX);
    }
    for (size_t i = 0; i < settings->ranks * settings->tokens_per_rank; i++) {
        size_t rank = i / settings->tokens_per_rank, token = i % settings->tokens_per_rank;
        made->sequence[i] = (int32_t)((step * settings->ranks + rank) * per_rank + token / length);
    }
    return SPW_OK;
}

static spw_status create_writer(const spw_generate_settings *settings, const columns *made, const char *path,
                                spw_trace_writer **out) {
    spw_status status = SPW_OK;
    char note[512];
    (void)snprintf(note, sizeof note, "synthetic: distribution %s, seed %llu",
                   settings->distribution_text != NULL ? settings->distribution_text : "?",
                   (unsigned long long)settings->seed);
    const spw_trace_info info = {.layers = settings->layers,
                                 .experts = settings->experts,
                                 .top_k = settings->top_k,
                                 .ranks = settings->ranks,
                                 .has_tokens = !settings->counts_only,
                                 .has_sequences = !settings->counts_only,
                                 .has_by_rank = true,
                                 .layer_id = made->layer_id,
                                 .layer_experts = made->layer_experts,
                                 .layer_top_k = made->layer_top_k,
                                 .source = "spillway trace generate",
                                 .license = "CC0-1.0",
                                 .generator = settings->generator,
                                 .note = note,
                                 .synthetic = true,
                                 .model_name = "synthetic",
                                 .model_layers = (size_t)settings->first_layer + settings->layers,
                                 .model_hidden = settings->hidden,
                                 .model_ffn = settings->ffn,
                                 .groups = (size_t)settings->distribution.groups,
                                 .groups_kept = (size_t)settings->distribution.kept,
                                 .sequence_length = sequence_length(settings),
                                 .gpus_per_node = 8};
    const spw_trace_write_settings write = {.info = &info,
                                            .tokens =
                                                settings->steps * settings->ranks * settings->tokens_per_rank,
                                            .level = settings->level != 0 ? settings->level : 4};
    SPW_TRY(spw_trace_writer_create(path, &write, out));
    SPW_TRY(spw_trace_writer_set_integer(*out, "/", "seed", (int64_t)settings->seed));
    if (settings->distribution_text != NULL) {
        SPW_TRY(spw_trace_writer_set_text(*out, "/", "distribution", settings->distribution_text));
    }

cleanup:
    return status;
}

spw_status spw_generate_trace(const spw_generate_settings *settings, const char *path) {
    spw_status status = SPW_OK;
    spw_generator *generator = NULL;
    spw_trace_writer *writer = NULL;
    columns made = {.source_rank = NULL};
    spw_progress progress = spw_progress_begin("generate", "layers", settings->steps * settings->layers);
    SPW_TRY(spw_generator_create(settings, &generator));
    SPW_TRY(make_columns(settings, &made));
    SPW_TRY(create_writer(settings, &made, path, &writer));
    for (size_t step = 0; step < settings->steps; step++) {
        spw_generator_seek(generator, step);
        SPW_TRY(number_sequences(settings, step, &made));
        const spw_trace_write_step begun = {.id = (int64_t)step,
                                            .phase = 0,
                                            .tokens = settings->ranks * settings->tokens_per_rank,
                                            .tokens_kept = !settings->counts_only,
                                            .source_rank = made.source_rank,
                                            .sequence = made.sequence,
                                            .position = made.position};
        SPW_TRY(spw_trace_writer_begin_step(writer, &begun));
        for (size_t layer = 0; layer < settings->layers; layer++) {
            SPW_TRY(spw_generator_record(generator, layer, made.expert_id));
            SPW_TRY(spw_trace_writer_put_layer(writer, layer, made.expert_id, NULL));
            spw_progress_update(&progress, step * settings->layers + layer + 1);
        }
        SPW_TRY(spw_trace_writer_end_step(writer));
    }
    status = spw_trace_writer_finish(writer);
    writer = NULL;

cleanup:
    spw_progress_end(&progress);
    spw_trace_writer_abandon(writer);
    spw_generator_destroy(generator);
    free_columns(&made);
    return status;
}
