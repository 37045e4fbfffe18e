#include "base/memory.h"
#include "base/run_files.h"
#include "sim/library/gate.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static_assert((int)SPW_NO_EXPERT == (int)SPW_TRACE_MISSING, "a slot without a choice is written alike");

/* --- Read --- */

struct spw_reader {
    spw_trace *trace;
    const spw_trace_info *info;
    size_t files; /* the run whose inputs these are: no output replaces them while they are open */
};

spw_code spw_reader_open(const char *path, spw_reader **out) {
    spw_reader *reader = NULL;
    if (out != NULL) *out = NULL;
    spw_status status = spw_check_given(__func__, (spw_given[]){{"path", path}, {"out", out}, {NULL, NULL}});
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) return (spw_code)status;
    status = SPW_ALLOC(1, &reader);
    if (status == SPW_OK) status = spw_trace_open(path, &reader->trace);
    if (status == SPW_OK) {
        reader->info = spw_trace_get_info(reader->trace);
        reader->files = spw_gate_keep_files();
        if (out != NULL) *out = reader;
    } else {
        spw_free(reader);
    }
    return spw_gate_leave(status);
}

void spw_reader_close(spw_reader *reader) {
    if (reader == NULL || spw_gate_enter() != SPW_OK) return;
    spw_trace_close(reader->trace);
    spw_run_end(reader->files);
    (void)spw_gate_leave(SPW_OK);
    spw_free(reader);
}

static spw_status check_reader(const char *function, const spw_reader *reader, const char *name,
                               const void *out) {
    return spw_check_given(function, (spw_given[]){{"reader", reader}, {name, out}, {NULL, NULL}});
}

spw_code spw_reader_get_shape(const spw_reader *reader, spw_reader_shape *out) {
    const spw_status given = check_reader(__func__, reader, "out", out);
    if (given != SPW_OK) return (spw_code)given;
    const spw_trace_info *info = reader->info;
    *out = (spw_reader_shape){.steps = info->steps,
                              .layers = info->layers,
                              .experts = info->experts,
                              .top_k = info->top_k,
                              .ranks = info->ranks,
                              .tokens = info->tokens,
                              .has_weights = info->has_weights};
    return SPW_CODE_OK;
}

spw_code spw_reader_get_ids(const spw_reader *reader, int64_t *step_id, uint64_t *step_tokens,
                            int32_t *layer_id) {
    const spw_status given = check_reader(__func__, reader, "reader", reader);
    if (given != SPW_OK) return (spw_code)given;
    const spw_trace_info *info = reader->info;
    if (step_id != NULL) memcpy(step_id, info->step_id, info->steps * sizeof *step_id);
    if (step_tokens != NULL) memcpy(step_tokens, info->step_tokens, info->steps * sizeof *step_tokens);
    if (layer_id != NULL) memcpy(layer_id, info->layer_id, info->layers * sizeof *layer_id);
    return SPW_CODE_OK;
}

static spw_status check_place(const spw_reader *reader, size_t step, size_t layer) {
    const spw_trace_info *info = reader->info;
    if (step < info->steps && layer < info->layers) return SPW_OK;
    return spw_fail(SPW_EARG, "step %zu, layer %zu: the trace has %zu steps and %zu layers, counted from 0",
                    step, layer, info->steps, info->layers);
}

spw_code spw_reader_counts(spw_reader *reader, size_t step, size_t layer, uint32_t *counts) {
    spw_status status = check_reader(__func__, reader, "counts", counts);
    if (status == SPW_OK) status = check_place(reader, step, layer);
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) return (spw_code)status;
    if (reader->info->has_routed) {
        status = spw_trace_read_routed(reader->trace, step, layer, counts);
    } else {
        status = spw_fail(SPW_EARG, "the trace has no counts/routed; its choices can be counted");
    }
    return spw_gate_leave(status);
}

static spw_status fail_capacity(size_t capacity, size_t needed) {
    return spw_fail(SPW_EARG, "room for %zu elements; the step has %zu", capacity, needed);
}

static spw_status read_choices(spw_reader *reader, size_t step, size_t layer, size_t capacity,
                               uint16_t *expert, uint16_t *weight) {
    spw_trace_record record;
    spw_status status = SPW_OK;
    if (!reader->info->has_tokens) SPW_TRY(spw_fail(SPW_EARG, "the trace has counts alone, no choices"));
    if (weight != NULL && !reader->info->has_weights) SPW_TRY(spw_fail(SPW_EARG, "the trace has no weights"));
    SPW_TRY(spw_trace_read_record(reader->trace, step, 1, layer, weight != NULL, &record));
    const size_t count = record.tokens * record.top_k;
    if (capacity < count) SPW_TRY(fail_capacity(capacity, count));
    for (size_t i = 0; i < count; i++) {
        const uint16_t id = spw_trace_record_id(&record, i);
        expert[i] = id == record.missing ? SPW_NO_EXPERT : id;
    }
    if (weight != NULL) memcpy(weight, record.weight, count * sizeof *weight);

cleanup:
    return status;
}

spw_code spw_reader_choices(spw_reader *reader, size_t step, size_t layer, size_t capacity, uint16_t *expert,
                            uint16_t *weight) {
    spw_status status = check_reader(__func__, reader, "expert", spw_array(expert, capacity > 0));
    if (status == SPW_OK) status = check_place(reader, step, layer);
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) return (spw_code)status;
    return spw_gate_leave(read_choices(reader, step, layer, capacity, expert, weight));
}

static spw_status read_ranks(spw_reader *reader, size_t step, size_t capacity, uint16_t *rank) {
    spw_trace_columns columns = {.tokens = 0};
    if (reader->info->has_tokens) {
        const spw_status status = spw_trace_read_columns(reader->trace, step, 1, &columns);
        if (status != SPW_OK) return status;
    }
    if (columns.source_rank == NULL)
        return spw_fail(SPW_EARG, "the trace does not know where its tokens were");
    if (capacity < columns.tokens) return fail_capacity(capacity, columns.tokens);
    memcpy(rank, columns.source_rank, columns.tokens * sizeof *rank);
    return SPW_OK;
}

spw_code spw_reader_source_ranks(spw_reader *reader, size_t step, size_t capacity, uint16_t *rank) {
    spw_status status = check_reader(__func__, reader, "rank", spw_array(rank, capacity > 0));
    if (status == SPW_OK) status = check_place(reader, step, 0);
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) return (spw_code)status;
    return spw_gate_leave(read_ranks(reader, step, capacity, rank));
}

/* --- Written --- */

struct spw_writer {
    spw_trace_writer *writer;
    pid_t owner; /* a forked child must leave its parent's file alone */
    size_t layers;
    bool weighted;
    int32_t *layer_id;
    uint32_t *experts, *top_k;
};

static void writer_destroy(spw_writer *writer) {
    spw_free(writer->layer_id);
    spw_free(writer->experts);
    spw_free(writer->top_k);
    spw_free(writer);
}

static spw_status create(const char *path, const spw_writer_settings *s, spw_writer *writer) {
    spw_status status = SPW_OK;
    if (s->layers == 0 || s->layers > SPW_TRACE_MAX_LAYERS || s->experts > SPW_TRACE_MAX_EXPERTS ||
        s->top_k > SPW_TRACE_MAX_TOP_K)
        SPW_TRY(spw_fail(SPW_EARG,
                         "%zu layers, top-%zu of %zu: a trace has 1 to %d layers, at most top-%d of %d",
                         s->layers, s->top_k, s->experts, SPW_TRACE_MAX_LAYERS, SPW_TRACE_MAX_TOP_K,
                         SPW_TRACE_MAX_EXPERTS));
    writer->layers = s->layers;
    writer->weighted = s->with_weights != 0;
    SPW_TRY(SPW_ALLOC(s->layers, &writer->layer_id));
    SPW_TRY(SPW_ALLOC(s->layers, &writer->experts));
    SPW_TRY(SPW_ALLOC(s->layers, &writer->top_k));
    for (size_t l = 0; l < s->layers; l++) {
        writer->layer_id[l] = s->layer_id != NULL ? s->layer_id[l] : (int32_t)l;
        writer->experts[l] = (uint32_t)s->experts;
        writer->top_k[l] = (uint32_t)s->top_k;
    }
    const spw_trace_info info = {.layers = s->layers,
                                 .experts = s->experts,
                                 .top_k = s->top_k,
                                 .ranks = s->ranks,
                                 .layer_id = writer->layer_id,
                                 .layer_experts = writer->experts,
                                 .layer_top_k = writer->top_k,
                                 .has_tokens = true,
                                 .has_weights = s->with_weights != 0,
                                 .has_by_rank = s->ranks > 0,
                                 .model_name = s->model,
                                 .model_hidden = s->hidden,
                                 .model_layers = s->model_layers,
                                 .source = s->source,
                                 .license = s->license,
                                 .generator = s->generator,
                                 .note = s->note};
    const spw_trace_write_settings settings = {.info = &info,
                                               .order = s->by_falling_weight ? "descending_weight" : NULL,
                                               .ids_rise = true,
                                               .droppable = true};
    SPW_TRY(spw_trace_writer_create(path, &settings, &writer->writer));

cleanup:
    return status;
}

spw_code spw_writer_create(const char *path, const spw_writer_settings *settings, spw_writer **out) {
    spw_writer *writer = NULL;
    if (out != NULL) *out = NULL;
    spw_status status = spw_check_given(
        __func__, (spw_given[]){{"path", path}, {"settings", settings}, {"out", out}, {NULL, NULL}});
    if (status == SPW_OK) status = spw_gate_enter();
    if (status != SPW_OK) return (spw_code)status;
    status = SPW_ALLOC(1, &writer);
    if (status == SPW_OK) status = create(path, settings, writer);
    if (status == SPW_OK) {
        writer->owner = getpid();
        if (out != NULL) *out = writer;
    } else if (writer != NULL) {
        writer_destroy(writer);
    }
    return spw_gate_leave(status);
}

static spw_status enter(const char *function, const spw_writer *writer) {
    const spw_status status = spw_check_given(function, (spw_given[]){{"writer", writer}, {NULL, NULL}});
    if (status != SPW_OK) return status;
    if (writer->owner != getpid())
        return spw_fail(SPW_EARG,
                        "%s: the writer is of the process %ld, from which this one was forked; "
                        "write there, or create a writer here",
                        function, (long)writer->owner);
    return spw_gate_enter();
}

spw_code spw_writer_begin_step(spw_writer *writer, int64_t id, uint64_t tokens, const uint16_t *source_rank) {
    const spw_trace_write_step step = {
        .id = id, .tokens = tokens, .tokens_kept = true, .source_rank = source_rank};
    const spw_status status = enter(__func__, writer);
    if (status != SPW_OK) return (spw_code)status;
    return spw_gate_leave(spw_trace_writer_begin_step(writer->writer, &step));
}

spw_code spw_writer_put_layer(spw_writer *writer, size_t layer, const uint16_t *expert,
                              const uint16_t *weight) {
    const spw_status status = enter(__func__, writer);
    if (status != SPW_OK) return (spw_code)status;
    if (layer >= writer->layers)
        return spw_gate_leave(
            spw_fail(SPW_EARG, "layer %zu: the trace has %zu, counted from 0", layer, writer->layers));
    if (weight != NULL && !writer->weighted)
        return spw_gate_leave(
            spw_fail(SPW_EARG, "layer %zu: weights, but the settings say with_weights 0", layer));
    return spw_gate_leave(spw_trace_writer_put_layer(writer->writer, layer, expert, weight));
}

spw_code spw_writer_end_step(spw_writer *writer) {
    const spw_status status = enter(__func__, writer);
    if (status != SPW_OK) return (spw_code)status;
    return spw_gate_leave(spw_trace_writer_end_step(writer->writer));
}

spw_code spw_writer_drop_step(spw_writer *writer) {
    const spw_status status = enter(__func__, writer);
    if (status != SPW_OK) return (spw_code)status;
    return spw_gate_leave(spw_trace_writer_drop_step(writer->writer));
}

spw_code spw_writer_finish(spw_writer *writer) {
    const spw_status status = enter(__func__, writer);
    if (status != SPW_OK) {
        if (writer != NULL) writer_destroy(writer);
        return (spw_code)status;
    }
    const spw_code code = spw_gate_leave(spw_trace_writer_finish(writer->writer));
    writer_destroy(writer);
    return code;
}

void spw_writer_abandon(spw_writer *writer) {
    if (writer == NULL) return;
    if (enter(__func__, writer) == SPW_OK) {
        spw_trace_writer_abandon(writer->writer);
        (void)spw_gate_leave(SPW_OK);
    }
    writer_destroy(writer);
}
