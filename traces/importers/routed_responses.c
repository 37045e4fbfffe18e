#include "traces/importers/routed_responses.h"

#include "traces/importers/assembly.h"
#include "traces/importers/base64.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEPTH = 16 };

typedef struct reader {
    const spw_routed_engine *engine;
    const spw_import_settings *settings;
    spw_assembly *assembly;
    size_t file, layers; /* layers: 0 until the first array */
    uint16_t *id;        /* [tokens][layers][top_k] of the file so far */
    size_t tokens, capacity;
    uint16_t *layer_id; /* [tokens][top_k] of one layer */
    size_t layer_capacity;
} reader;

/* --- One array --- */

static const struct {
    const char *name;
    char kind;
    size_t bytes;
} types[] = {{"uint8", 'u', 1}, {"int8", 'i', 1},   {"uint16", 'u', 2}, {"int16", 'i', 2},
             {"int32", 'i', 4}, {"uint32", 'u', 4}, {"int64", 'i', 8}};

spw_status spw_routed_decode_text(const spw_json_lines *lines, const char *text, size_t length,
                                  spw_npy *out) {
    const spw_status status = spw_base64_decode(text, length, &out->bytes, &out->length);
    (void)snprintf(out->where, sizeof out->where, "%s:%zu: routed_experts", spw_json_lines_path(lines),
                   spw_json_lines_number(lines));
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "%s", out->where);
}

spw_status spw_routed_decode_raw(const spw_json_lines *lines, const char *text, size_t length,
                                 const char *type, const size_t extent[3], spw_npy *out) {
    spw_status status = SPW_OK;
    const size_t known = sizeof types / sizeof *types;
    size_t i = 0, elements = 0, bytes = 0;
    char plain[32];
    while (i < known && strcmp(types[i].name, type) != 0) i++;
    if (i == known) {
        spw_plain_text(type, plain, sizeof plain);
        SPW_TRY(spw_json_lines_fail(lines,
                                    "elements of type '%s'; uint8, int8, uint16, int16, int32, uint32 and "
                                    "int64 are read",
                                    plain));
    }
    SPW_TRY(spw_routed_decode_text(lines, text, length, out));
    out->data = out->bytes;
    out->kind = types[i].kind;
    out->element_bytes = types[i].bytes;
    out->rank = 3;
    memcpy(out->extent, extent, 3 * sizeof *extent);
    if (!spw_mul_size(extent[0], extent[1], &elements) || !spw_mul_size(elements, extent[2], &elements) ||
        !spw_mul_size(elements, types[i].bytes, &bytes) || bytes != out->length)
        SPW_TRY(spw_json_lines_fail(lines, "%zu x %zu x %zu elements of %s, but %zu bytes", extent[0],
                                    extent[1], extent[2], types[i].name, out->length));
    out->stride[2] = 1;
    out->stride[1] = extent[2];
    out->stride[0] = extent[1] * extent[2];

cleanup:
    return status;
}

static spw_status check_extents(reader *r, const spw_json_lines *lines, const spw_npy *npy) {
    const size_t stated = r->settings->layers.count;
    if (npy->rank != 3 || !spw_npy_is_whole(npy))
        return spw_json_lines_fail(
            lines, "routed_experts: %zu axes of %s; whole numbers [tokens][layers][k] are read", npy->rank,
            spw_npy_is_whole(npy) ? "whole numbers" : "no whole numbers");
    if (npy->extent[2] != r->settings->top_k)
        return spw_json_lines_fail(lines, "routed_experts: %zu experts a token; --top-k says %zu",
                                   npy->extent[2], r->settings->top_k);
    if (npy->extent[1] < 1 || npy->extent[1] > SPW_TRACE_MAX_LAYERS)
        return spw_json_lines_fail(lines, "routed_experts: %zu layers; 1 to %d are read", npy->extent[1],
                                   SPW_TRACE_MAX_LAYERS);
    if (r->layers == 0) r->layers = stated > 0 ? stated : npy->extent[1];
    if (npy->extent[1] != r->layers)
        return spw_json_lines_fail(lines, "routed_experts: %zu layers; %s %zu", npy->extent[1],
                                   stated > 0 ? "--layers names" : "the response before has", r->layers);
    return SPW_OK;
}

static spw_status grow(reader *r, size_t tokens) {
    spw_status status = SPW_OK;
    uint16_t *larger = NULL;
    size_t row = 0, wanted = 0, capacity = 0;
    if (tokens > SIZE_MAX / 2 - r->tokens || !spw_mul_size(r->layers, r->settings->top_k, &row) ||
        !spw_mul_size(r->tokens + tokens, row, &wanted))
        SPW_TRY(spw_fail(SPW_ENOMEM, "%zu tokens of a step", tokens));
    if (wanted <= r->capacity) return SPW_OK;
    capacity = wanted + wanted / 2;
    SPW_TRY(SPW_ALLOC(capacity, &larger));
    if (r->tokens > 0) memcpy(larger, r->id, r->tokens * row * sizeof *larger);
    spw_free(r->id);
    r->id = larger;
    r->capacity = capacity;

cleanup:
    return status;
}

static spw_status read_id(const reader *r, const spw_json_lines *lines, const spw_npy *npy, size_t at,
                          uint16_t *out) {
    bool fits = false;
    const int64_t id = spw_npy_at(npy, at, &fits);
    const bool missing = (r->settings->given & SPW_FACT_MISSING) != 0 && id == r->settings->missing;
    if (missing || (r->engine->no_route && id == -1)) {
        *out = SPW_TRACE_MISSING;
        return SPW_OK;
    }
    if (fits && id >= 0 && (uint64_t)id < r->settings->experts) {
        *out = (uint16_t)id;
        return SPW_OK;
    }
    return spw_json_lines_fail(lines, "routed_experts: element %zu is %" PRId64 "; must be 0 to %zu%s", at,
                               id, r->settings->experts - 1,
                               id < 0 ? " (what stands for no choice is said by --missing)" : "");
}

/* The rows to keep. */
static spw_status count_rows(const reader *r, const spw_json_lines *lines, const spw_npy *npy, size_t *rows) {
    *rows = npy->extent[0];
    if (!r->engine->made_last || *rows == 0) return SPW_OK;
    --*rows;
    for (size_t layer = 0; layer < npy->extent[1]; layer++) {
        for (size_t k = 0; k < npy->extent[2]; k++) {
            bool fits = false;
            const size_t at = *rows * npy->stride[0] + layer * npy->stride[1] + k * npy->stride[2];
            if (spw_npy_at(npy, at, &fits) == (int64_t)k) continue;
            return spw_json_lines_fail(
                lines, "routed_experts: the last row must be 0, 1, ... in every layer, since the "
                       "last token is never routed (was the response cut?)");
        }
    }
    return SPW_OK;
}

static spw_status add_array(reader *r, const spw_json_lines *lines, const spw_npy *npy) {
    spw_status status = SPW_OK;
    size_t rows = 0;
    SPW_TRY(check_extents(r, lines, npy));
    SPW_TRY(count_rows(r, lines, npy, &rows));
    SPW_TRY(grow(r, rows));
    uint16_t *id = r->id + r->tokens * r->layers * r->settings->top_k;
    for (size_t t = 0; t < rows; t++) {
        for (size_t layer = 0; layer < r->layers; layer++) {
            for (size_t k = 0; k < r->settings->top_k; k++)
                SPW_TRY(read_id(r, lines, npy,
                                t * npy->stride[0] + layer * npy->stride[1] + k * npy->stride[2], id++));
        }
    }
    r->tokens += rows;

cleanup:
    return status;
}

/* --- A line --- */

/* Every "routed_experts" below `value`; *found counts them, also those that are null. */
static spw_status find(reader *r, const spw_json_lines *lines, json_t *value, int depth, size_t *found) {
    spw_status status = SPW_OK;
    spw_npy npy = {.bytes = NULL};
    json_t *here = json_object_get(value, "routed_experts"), *part = NULL;
    size_t of_members = 0, i = 0;
    if (depth > MOST_DEPTH) return spw_json_lines_fail(lines, "more than %d levels deep", MOST_DEPTH);
    if (here != NULL) ++*found;
    if (here != NULL && !json_is_null(here)) {
        SPW_TRY(r->engine->decode(r->settings, lines, value, here, &npy));
        SPW_TRY(add_array(r, lines, &npy));
    }
    if (here != NULL) goto cleanup;
    for (void *at = json_object_iter(value); at != NULL; at = json_object_iter_next(value, at)) {
        size_t below = 0;
        SPW_TRY(find(r, lines, json_object_iter_value(at), depth + 1, &below));
        if (below > 0 && of_members > 0)
            SPW_TRY(spw_json_lines_fail(lines, "a response has routed_experts in two places; keep one"));
        of_members += below;
    }
    *found += of_members;
    json_array_foreach(value, i, part) SPW_TRY(find(r, lines, part, depth + 1, found));

cleanup:
    spw_npy_close(&npy);
    return status;
}

static spw_status add_line(void *context, spw_json_lines *lines, json_t *object) {
    size_t found = 0;
    const spw_status status = find(context, lines, object, 0, &found);
    if (status != SPW_OK || found > 0) return status;
    return spw_json_lines_fail(lines, "there is no 'routed_experts' in it");
}

/* --- A file --- */

static bool is_dense(const reader *r, int32_t layer) {
    const spw_index_list *dense = &r->settings->dense_layers;
    size_t i = 0;
    while (i < dense->count && dense->value[i] != layer) i++;
    return i < dense->count;
}

/* One layer of the step: r->layer_id. */
static spw_status add_layer(reader *r, size_t layer) {
    spw_status status = SPW_OK;
    const size_t top_k = r->settings->top_k;
    const spw_index_list *stated = &r->settings->layers;
    bool zeros = true, empty = true;
    const spw_assembly_place place = {.step = (int64_t)r->file,
                                      .layer = stated->count > 0 ? stated->value[layer] : (int32_t)layer,
                                      .file = r->file};
    for (size_t t = 0; t < r->tokens; t++) {
        const uint16_t *row = r->id + (t * r->layers + layer) * top_k;
        memcpy(r->layer_id + t * top_k, row, top_k * sizeof *row);
        for (size_t k = 0; k < top_k; k++) {
            zeros = zeros && (row[k] == 0 || row[k] == SPW_TRACE_MISSING);
            empty = empty && row[k] == SPW_TRACE_MISSING;
        }
    }
    if (is_dense(r, place.layer) && !zeros)
        SPW_TRY(
            spw_assembly_fail(r->settings, &place, "is among --dense-layers, but holds choices of experts"));
    if (is_dense(r, place.layer)) goto cleanup;
    if (zeros && !empty && r->settings->experts > 1)
        SPW_TRY(spw_assembly_fail(r->settings, &place,
                                  "all zeros: a layer without experts? name it in --dense-layers %d",
                                  place.layer));
    SPW_TRY(spw_assembly_add_ids(r->assembly, &place, r->tokens, r->layer_id));

cleanup:
    return status;
}

static spw_status add_file(reader *r) {
    spw_status status = SPW_OK;
    const char *path = r->settings->input[r->file];
    r->tokens = 0;
    SPW_TRY(spw_json_lines_read(path, add_line, r));
    if (r->tokens == 0) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: no token of any response was routed", path));
    if (r->tokens > r->layer_capacity) {
        spw_free(r->layer_id);
        r->layer_id = NULL;
        r->layer_capacity = 0;
        SPW_TRY(SPW_ALLOC(r->tokens * r->settings->top_k, &r->layer_id));
        r->layer_capacity = r->tokens;
    }
    for (size_t layer = 0; layer < r->layers; layer++) SPW_TRY(add_layer(r, layer));

cleanup:
    return status;
}

/* Every name in --dense-layers is that of a layer. */
static spw_status check_dense(const reader *r) {
    const spw_index_list *dense = &r->settings->dense_layers, *stated = &r->settings->layers;
    for (size_t i = 0; i < dense->count; i++) {
        size_t at = 0;
        while (at < r->layers && (stated->count > 0 ? stated->value[at] : (int32_t)at) != dense->value[i])
            at++;
        if (at == r->layers)
            return spw_fail(SPW_EARG, "--dense-layers: there is no layer %d", dense->value[i]);
    }
    return SPW_OK;
}

spw_status spw_routed_responses_read(const spw_routed_engine *engine, const spw_import_settings *settings,
                                     spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.engine = engine, .settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.names_layers = true;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    r.assembly = *out;
    for (r.file = 0; r.file < settings->inputs; r.file++) SPW_TRY(add_file(&r));
    SPW_TRY(check_dense(&r));

cleanup:
    spw_free(r.id);
    spw_free(r.layer_id);
    return status;
}
