#include "traces/importers/assembly.h"

#include "base/memory.h"
#include "traces/generate/random_stream.h"
#include "traces/importers/assembly_internal.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* The reader's limit of ranks x experts (docs/trace_format.md). */
enum { MOST_RANK_EXPERTS = 1 << 25 };

spw_assembly_shape spw_assembly_shape_of(const spw_import_settings *settings) {
    return (spw_assembly_shape){
        .experts = settings->experts,
        .top_k = settings->top_k,
        .ranks = settings->ranks > 0 ? settings->ranks : 1,
        .micro_batches = settings->micro_batches > 0 ? settings->micro_batches : 1,
        .recompute = settings->recompute,
    };
}

spw_status spw_assembly_fail(const spw_import_settings *settings, const spw_assembly_place *place,
                             const char *format, ...) {
    char line[32] = "", block[48] = "", text[600];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args); /* NOLINT(clang-analyzer-valist*) */
    va_end(args);
    if (place->line > 0) (void)snprintf(line, sizeof line, ":%zu", place->line);
    if (place->block == 1) (void)snprintf(block, sizeof block, "mtp %u, ", place->depth);
    if (place->block == 2) (void)snprintf(block, sizeof block, "encoder, ");
    return spw_fail(SPW_EFORMAT, "%s%s: step %" PRId64 ", %slayer %" PRId32 ", rank %u: %s",
                    settings->input[place->file], line, place->step, block, place->layer, place->rank, text);
}

static spw_status check_shape(const spw_assembly_shape *shape) {
    if (shape->experts < 1 || shape->experts > SPW_TRACE_MAX_EXPERTS || shape->top_k < 1 ||
        shape->top_k > SPW_TRACE_MAX_TOP_K || shape->top_k > shape->experts) {
        return spw_fail(SPW_EARG,
                        "top-%zu of %zu experts cannot be; say what the model has by --experts and --top-k",
                        shape->top_k, shape->experts);
    }
    if (shape->ranks > SPW_TRACE_MAX_RANKS || shape->ranks > MOST_RANK_EXPERTS / shape->experts) {
        return spw_fail(SPW_EARG, "%zu ranks x %zu experts; their product must be at most %d", shape->ranks,
                        shape->experts, MOST_RANK_EXPERTS);
    }
    return SPW_OK;
}

spw_status spw_assembly_create(const spw_import_settings *settings, const spw_assembly_shape *shape,
                               spw_assembly **out) {
    spw_status status = SPW_OK;
    spw_assembly *assembly = NULL;
    *out = NULL;
    SPW_TRY(check_shape(shape));
    SPW_TRY(SPW_ALLOC(1, &assembly));
    assembly->settings = settings;
    assembly->shape = *shape;
    assembly->ascending = true;
    SPW_TRY(SPW_ALLOC(shape->experts, &assembly->seen));
    SPW_TRY(spw_file_begin(settings->output, &assembly->spool_file));
    assembly->spool = fopen(assembly->spool_file.temporary, "w+b");
    if (assembly->spool == NULL)
        SPW_TRY(spw_fail(SPW_EIO, "%s: %s", assembly->spool_file.temporary, strerror(errno)));
    *out = assembly;
    assembly = NULL;

cleanup:
    spw_assembly_destroy(assembly);
    return status;
}

void spw_assembly_destroy(spw_assembly *assembly) {
    if (assembly == NULL) return;
    if (assembly->spool != NULL) (void)fclose(assembly->spool);
    spw_file_discard(&assembly->spool_file);
    spw_free(assembly->part);
    spw_free(assembly->seen);
    spw_free(assembly->joined);
    spw_free(assembly->layer);
    spw_free(assembly->layer_id);
    spw_free(assembly->layer_block);
    spw_free(assembly);
}

size_t spw_assembly_bytes(const spw_assembly *assembly, const spw_part *part) {
    const size_t row = assembly->shape.counts ? sizeof(uint32_t) : assembly->shape.top_k * sizeof(uint16_t);
    return (size_t)part->rows * row * (part->weighted ? 2 : 1);
}

static uint64_t hash_of(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t sum = bytes, word = 0;
    for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        sum = spw_random_mix(sum ^ word) + 1;
    }
    for (; bytes > 0; bytes--) sum = spw_random_mix(sum ^ *at++) + 1;
    return sum;
}

static spw_status check_place(const spw_assembly *assembly, const spw_assembly_place *place) {
    if (place->step >= 0 && place->layer >= 0 && place->layer <= SPW_ASSEMBLY_MAX_LAYER &&
        place->depth <= SPW_ASSEMBLY_MAX_DEPTH)
        return SPW_OK;
    return spw_assembly_fail(assembly->settings, place, "no such place in a model; layers 0 to %d are read",
                             SPW_ASSEMBLY_MAX_LAYER);
}

/* Appends content [rows] to the spool and remembers where it belongs. */
static spw_status assembly_add(spw_assembly *assembly, const spw_assembly_place *place, size_t first,
                               uint64_t rows, bool weighted, const void *content) {
    spw_status status = SPW_OK;
    spw_part part = {.place = *place,
                     .arrival = assembly->parts,
                     .rows = rows,
                     .offset = assembly->spool_bytes,
                     .first = first,
                     .weighted = weighted};
    const size_t bytes = spw_assembly_bytes(assembly, &part);
    if (assembly->parts == assembly->capacity) {
        spw_part *larger = NULL;
        const size_t capacity = assembly->capacity * 2 + 64;
        SPW_TRY(SPW_ALLOC(capacity, &larger));
        if (assembly->parts > 0) memcpy(larger, assembly->part, assembly->parts * sizeof *larger);
        spw_free(assembly->part);
        assembly->part = larger;
        assembly->capacity = capacity;
    }
    if (bytes > 0 && fwrite(content, 1, bytes, assembly->spool) != bytes)
        SPW_TRY(
            spw_fail(SPW_EIO, "%s: cannot be written: %s", assembly->spool_file.temporary, strerror(errno)));
    part.hash = hash_of(content, bytes);
    assembly->part[assembly->parts++] = part;
    assembly->spool_bytes += bytes;

cleanup:
    return status;
}

/* One token: ids in range, none twice. */
static spw_status check_token(spw_assembly *assembly, const spw_assembly_place *place, uint64_t token,
                              const uint16_t *id) {
    const uint64_t mark = ++assembly->tokens_seen;
    int before = -1;
    for (size_t k = 0; k < assembly->shape.top_k; k++) {
        if (id[k] == SPW_TRACE_MISSING) continue;
        if (id[k] >= assembly->shape.experts) {
            return spw_assembly_fail(assembly->settings, place, "token %" PRIu64 " chooses expert %u of %zu",
                                     token, id[k], assembly->shape.experts);
        }
        if (assembly->seen[id[k]] == mark) {
            return spw_assembly_fail(assembly->settings, place, "token %" PRIu64 " chooses expert %u twice",
                                     token, id[k]);
        }
        assembly->seen[id[k]] = mark;
        assembly->ascending = assembly->ascending && id[k] > before;
        before = id[k];
    }
    return SPW_OK;
}

spw_status spw_assembly_add_ids(spw_assembly *assembly, const spw_assembly_place *place, uint64_t tokens,
                                const uint16_t *expert_id) {
    spw_status status = SPW_OK;
    SPW_TRY(check_place(assembly, place));
    for (uint64_t token = 0; token < tokens; token++)
        SPW_TRY(check_token(assembly, place, token, expert_id + token * assembly->shape.top_k));
    SPW_TRY(assembly_add(assembly, place, 0, tokens, false, expert_id));

cleanup:
    return status;
}

spw_status spw_assembly_add_weighted_ids(spw_assembly *assembly, const spw_assembly_place *place,
                                         uint64_t tokens, const uint16_t *expert_id, const uint16_t *weight) {
    spw_status status = SPW_OK;
    const size_t choices = (size_t)tokens * assembly->shape.top_k;
    SPW_TRY(check_place(assembly, place));
    for (uint64_t token = 0; token < tokens; token++)
        SPW_TRY(check_token(assembly, place, token, expert_id + token * assembly->shape.top_k));
    if (2 * choices > assembly->joined_capacity) {
        spw_free(assembly->joined);
        assembly->joined = NULL;
        assembly->joined_capacity = 0;
        SPW_TRY(SPW_ALLOC(2 * choices, &assembly->joined));
        assembly->joined_capacity = 2 * choices;
    }
    if (choices > 0) memcpy(assembly->joined, expert_id, choices * sizeof *expert_id);
    if (choices > 0) memcpy(assembly->joined + choices, weight, choices * sizeof *weight);
    SPW_TRY(assembly_add(assembly, place, 0, tokens, true, assembly->joined));

cleanup:
    return status;
}

spw_status spw_assembly_add_counts(spw_assembly *assembly, const spw_assembly_place *place, size_t first,
                                   size_t experts, const uint32_t *count) {
    spw_status status = SPW_OK;
    SPW_TRY(check_place(assembly, place));
    if (first > assembly->shape.experts || experts > assembly->shape.experts - first) {
        SPW_TRY(spw_assembly_fail(assembly->settings, place, "counts of experts %zu to %zu; there are %zu",
                                  first, first + experts, assembly->shape.experts));
    }
    SPW_TRY(assembly_add(assembly, place, first, experts, false, count));

cleanup:
    return status;
}

void spw_assembly_forget(spw_assembly *assembly, size_t file, int64_t step) {
    while (assembly->parts > 0) {
        const spw_assembly_place *last = &assembly->part[assembly->parts - 1].place;
        if (last->file != file || last->step < step) return;
        assembly->parts--;
    }
}

spw_status spw_assembly_read(spw_assembly *assembly, const spw_part *part, void *out) {
    const size_t bytes = spw_assembly_bytes(assembly, part);
    if (bytes == 0) return SPW_OK;
    if (fseeko(assembly->spool, (off_t)part->offset, SEEK_SET) != 0 ||
        fread(out, 1, bytes, assembly->spool) != bytes)
        return spw_fail(SPW_EIO, "%s: cannot be read again", assembly->spool_file.temporary);
    return SPW_OK;
}
