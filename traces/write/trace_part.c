#include "traces/write/trace_part.h"

#include "base/memory.h"

#include <string.h>

bool spw_trace_step_has_tokens(const spw_trace_info *info, size_t at) {
    return info->has_tokens &&
           (info->step_offset[at + 1] > info->step_offset[at] || info->step_tokens[at] == 0);
}

spw_status spw_trace_part_create(const spw_trace *in, const spw_trace_part *part, const char *note, int level,
                                 const char *path, spw_trace_writer **out) {
    const spw_trace_info *from = &in->info;
    const char *order = in->text[SPW_TRACE_ORDER];
    spw_trace_info info = *from;
    uint64_t tokens = 0;
    bool all_tokens = true, any_tokens = false;
    for (size_t i = 0; i < part->steps; i++) {
        const size_t at = part->step != NULL ? part->step[i] : part->first + i;
        const bool kept = spw_trace_step_has_tokens(from, at);
        all_tokens = all_tokens && kept;
        any_tokens = any_tokens || kept;
        tokens += from->step_tokens[at];
    }
    info.layers = part->layer_end - part->layer_begin;
    info.layer_id += part->layer_begin;
    info.layer_experts += part->layer_begin;
    info.layer_top_k += part->layer_begin;
    info.ranks = part->rank_end - part->rank_begin;
    if (info.rank_id != NULL) info.rank_id += part->rank_begin;
    info.has_tokens = any_tokens;
    info.has_sequences = from->has_sequences && in->position.id >= 0;
    info.has_by_rank = info.ranks > 0 && (from->has_by_rank || all_tokens);
    info.note = note;
    const spw_trace_write_settings write = {
        .info = &info, .order = order[0] != '\0' ? order : NULL, .tokens = tokens, .level = level};
    return spw_trace_writer_create(path, &write, out);
}

spw_status spw_trace_rows_grow(spw_trace_rows *r, size_t tokens, size_t top_k) {
    void **const buffers[] = {(void **)&r->source_rank, (void **)&r->sequence, (void **)&r->position,
                              (void **)&r->expert_id, (void **)&r->weight};
    const size_t sizes[] = {2, 4, 4, 2 * top_k, 2 * top_k};
    spw_status status = SPW_OK;
    if (tokens <= r->capacity) return SPW_OK;
    r->capacity = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        spw_free(*buffers[i]);
        *buffers[i] = NULL;
        SPW_TRY(spw_alloc(tokens, sizes[i], buffers[i]));
    }
    r->capacity = tokens;

cleanup:
    return status;
}

void spw_trace_rows_clear(spw_trace_rows *r) {
    spw_free(r->source_rank), spw_free(r->expert_id), spw_free(r->weight);
    spw_free(r->sequence), spw_free(r->position);
    *r = (spw_trace_rows){.capacity = 0};
}
