/* Arrays of ids, counts or router logits whose axes the user names: recorders of Transformers, vLLM, SGLang and the frameworks of reinforcement
 * learning differ in nothing but their order. Layers without experts, which some of them fill with 0, must be named. */
#include "traces/importers/assembly.h"
#include "traces/importers/npy.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"

#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum axis { STEPS, RANKS, SEQUENCES, TOKENS, LAYERS, K, EXPERTS, AXES } axis;
static const char *const axis_name[AXES] = {"steps",  "ranks", "sequences", "tokens",
                                            "layers", "k",     "experts"};

/* One array: of a file, or of those in an .npz that hold a layer each. */
typedef struct reader {
    const spw_import_settings *settings;
    spw_assembly *assembly;
    spw_npy npy;
    bool packed, logits; /* packed: every array of an .npz is a layer; logits: axes tokens and experts */
    spw_npz_name *name;  /* [names] of the .npz under way */
    size_t names;
    bool has[AXES];
    size_t place[AXES]; /* of an axis in the array */
    axis files;         /* that several files make; AXES: none */
    size_t extent[AXES], stride[AXES],
        first[AXES];   /* of this file: 1 and 0 where it lacks the axis; extents of the first */
    size_t base[AXES]; /* index of this file's first element along `files`, else 0 */
    size_t ranks, rank_tokens;
    size_t file;
    uint16_t *id;    /* [rank_tokens][top_k] */
    uint32_t *count; /* [experts] */
    double *logit;   /* [top_k] of the choices so far */
    bool begun;      /* the first array was read */
    size_t id_capacity;
    bool *used; /* [MAX_LAYERS] something but 0 was seen */
} reader;

/* --- What is where --- */

static bool same_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static axis find_axis(const char *text, size_t length) {
    int i = 0;
    while (i < AXES && !same_word(text, length, axis_name[i])) i++;
    return (axis)i;
}

static bool is_npz(const char *path) {
    const size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".npz") == 0;
}

static spw_status check_axes(const reader *r) {
    const spw_import_settings *settings = r->settings;
    const bool counts = r->has[EXPERTS] && !r->logits;
    if (counts && (r->has[K] || r->has[SEQUENCES] || settings->tokens_per_rank > 0))
        return spw_fail(SPW_EARG, "--axes %s: counts of experts have no tokens, sequences and k",
                        settings->axes);
    if (r->logits && r->has[K])
        return spw_fail(SPW_EARG, "--axes %s: tokens and experts are router logits, which have no k",
                        settings->axes);
    if (!r->has[EXPERTS] && (!r->has[TOKENS] || (!r->has[K] && settings->top_k != 1)))
        return spw_fail(
            SPW_EARG,
            "--axes %s: ids need tokens and k (or tokens alone for top-1), router logits tokens and "
            "experts, counts experts",
            settings->axes);
    if (r->packed && (r->has[LAYERS] || r->files == LAYERS))
        return spw_fail(
            SPW_EARG,
            "--axes %s: the arrays of an .npz are its layers; --array names one that holds them all",
            settings->axes);
    if (!r->packed && !r->has[LAYERS] && r->files != LAYERS)
        return spw_fail(SPW_EARG, "--axes %s: layers are missing; one file a layer is --files layers",
                        settings->axes);
    if (settings->tokens_per_rank > 0 && (r->has[RANKS] || r->files == RANKS))
        return spw_fail(SPW_EARG, "--tokens-per-rank cuts tokens into ranks, but there is an axis of ranks");
    return SPW_OK;
}

static spw_status parse_axes(reader *r) {
    const spw_import_settings *settings = r->settings;
    size_t place = 0;
    for (const char *at = settings->axes; at != NULL; place++) {
        const size_t length = strcspn(at, ",");
        const axis which = find_axis(at, length);
        if (which == AXES || r->has[which])
            return spw_fail(
                SPW_EARG,
                "--axes %s: '%.*s' is %s; steps, ranks, sequences, tokens, layers, k and experts, as the "
                "array has them, would be right",
                settings->axes, (int)(length < 20 ? length : 20), at,
                which == AXES ? "no axis" : "there twice");
        r->has[which] = true;
        r->place[which] = place;
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    r->files = settings->files != NULL ? find_axis(settings->files, strlen(settings->files)) : AXES;
    if (settings->files != NULL && r->files != STEPS && r->files != RANKS && r->files != LAYERS)
        return spw_fail(SPW_EARG, "--files %s: files may be steps, ranks or layers", settings->files);
    if (settings->inputs > 1 && settings->files == NULL)
        return spw_fail(SPW_EARG, "several files: --files must say whether they are steps, ranks or layers");
    r->logits = r->has[EXPERTS] && r->has[TOKENS];
    r->packed = settings->array == NULL && is_npz(settings->input[0]);
    return check_axes(r);
}

/* Extents of the file just opened. */
static spw_status read_extents(reader *r) {
    size_t axes = 0;
    for (int i = 0; i < AXES; i++) axes += r->has[i];
    const bool whole = spw_npy_is_whole(&r->npy), real = r->npy.kind == 'f';
    if ((r->logits ? !real : !whole) || r->npy.rank != axes)
        return spw_fail(SPW_EFORMAT, "%s: %zu axes of %s; --axes %s names %zu of %s%s", r->npy.where,
                        r->npy.rank,
                        whole  ? "whole numbers"
                        : real ? "floats"
                               : "text",
                        r->settings->axes, axes, r->logits ? "floats, the router's logits" : "whole numbers",
                        real && !r->logits ? " (router logits have the axes tokens,experts)" : "");
    for (int i = 0; i < AXES; i++) {
        r->extent[i] = r->has[i] ? r->npy.extent[r->place[i]] : 1;
        r->stride[i] = r->has[i] ? r->npy.stride[r->place[i]] : 0;
        if (r->extent[i] < 1) return spw_fail(SPW_EFORMAT, "%s: no %s", r->npy.where, axis_name[i]);
        if (!r->begun) r->first[i] = r->extent[i];
        const bool may_differ = i == (int)r->files || (i == TOKENS && r->settings->tokens_per_rank == 0);
        if (r->extent[i] != r->first[i] && !may_differ)
            return spw_fail(SPW_EFORMAT, "%s: %zu %s; the first file has %zu", r->npy.where, r->extent[i],
                            axis_name[i], r->first[i]);
    }
    if (r->files == RANKS && r->extent[RANKS] != r->first[RANKS])
        return spw_fail(SPW_EFORMAT, "%s: %zu ranks; the first file has %zu", r->npy.where, r->extent[RANKS],
                        r->first[RANKS]);
    if (r->has[EXPERTS] ? r->extent[EXPERTS] != r->settings->experts : r->extent[K] != r->settings->top_k)
        return spw_fail(SPW_EFORMAT, "%s: axis %s has %zu elements; %s says otherwise", r->npy.where,
                        r->has[EXPERTS] ? "experts" : "k",
                        r->has[EXPERTS] ? r->extent[EXPERTS] : r->extent[K],
                        r->has[EXPERTS] ? "--experts" : "--top-k");
    if (r->base[LAYERS] + r->extent[LAYERS] > SPW_TRACE_MAX_LAYERS)
        return spw_fail(SPW_EFORMAT, "%s: more than %d layers", r->npy.where, SPW_TRACE_MAX_LAYERS);
    return SPW_OK;
}

/* Ranks and sequences, from the first file. */
static spw_status find_shape(reader *r, spw_assembly_shape *shape) {
    const spw_import_settings *settings = r->settings;
    const size_t tokens = r->extent[SEQUENCES] * r->extent[TOKENS], per_rank = settings->tokens_per_rank;
    r->ranks = r->extent[RANKS] * (r->files == RANKS ? settings->inputs : 1);
    if (per_rank > 0) {
        if (tokens % per_rank != 0 || (r->has[SEQUENCES] && per_rank % r->extent[TOKENS] != 0))
            return spw_fail(SPW_EFORMAT,
                            "%s: --tokens-per-rank %zu does not cut %zu sequences of %zu tokens into whole "
                            "ranks",
                            r->npy.where, per_rank, r->extent[SEQUENCES], r->extent[TOKENS]);
        r->ranks = tokens / per_rank;
    }
    shape->sources = r->has[RANKS] || r->files == RANKS || per_rank > 0;
    if (settings->ranks > 0 && (!shape->sources || settings->ranks != r->ranks))
        return spw_fail(SPW_EFORMAT,
                        "%s: --ranks %zu, but the array has %zu (an axis ranks, --files ranks or "
                        "--tokens-per-rank make them)",
                        r->npy.where, settings->ranks, shape->sources ? r->ranks : 0);
    shape->counts = r->has[EXPERTS] && !r->logits;
    shape->order = r->logits ? "descending_weight" : NULL;
    shape->ranks = r->ranks;
    if (r->has[SEQUENCES])
        shape->sequences = per_rank > 0 ? per_rank / r->extent[TOKENS] : r->extent[SEQUENCES];
    return SPW_OK;
}

/* --- Elements --- */

static bool listed(const spw_index_list *list, int32_t layer) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->value[i] == layer) return true;
    }
    return false;
}

/* The element at `at`: 0 <= *value < limit, or missing. */
static spw_status element(const reader *r, const spw_assembly_place *place, size_t at, uint64_t limit,
                          bool *missing, uint64_t *value) {
    bool fits = false;
    const int64_t number = spw_npy_at(&r->npy, at, &fits);
    *missing = fits && (r->settings->given & SPW_FACT_MISSING) != 0 && number == r->settings->missing;
    *value = (uint64_t)number;
    if (*missing || (fits && number >= 0 && (uint64_t)number < limit)) return SPW_OK;
    if (!fits) return spw_assembly_fail(r->settings, place, "element %zu is above 2^63", at);
    return spw_assembly_fail(
        r->settings, place, "element %zu of the array is %" PRId64 "; must be 0 to %" PRIu64 "%s", at, number,
        limit - 1, number < 0 ? " (what stands for no choice is said by --missing)" : "");
}

static spw_status fail_zeros(const reader *r, const spw_assembly_place *place) {
    return spw_assembly_fail(
        r->settings, place, "all zeros: a layer without experts? name it in --dense-layers %d", place->layer);
}

/* A layer without experts must be 0 or missing all over. */
static spw_status check_dense(const reader *r, const spw_assembly_place *place, size_t at, size_t tokens,
                              size_t first, size_t width, axis inner) {
    spw_status status = SPW_OK;
    for (size_t t = 0; t < tokens; t++) {
        const size_t token = first + t, row = at + token / r->extent[TOKENS] * r->stride[SEQUENCES] +
                                              token % r->extent[TOKENS] * r->stride[TOKENS];
        for (size_t k = 0; k < width; k++) {
            bool missing = false;
            uint64_t value = 0;
            SPW_TRY(element(r, place, row + k * r->stride[inner], (uint64_t)1 << 32, &missing, &value));
            if (value != 0 && !missing)
                SPW_TRY(spw_assembly_fail(r->settings, place, "is among --dense-layers, but holds %" PRIu64,
                                          value));
        }
    }

cleanup:
    return status;
}

static spw_status add_ids(reader *r, const spw_assembly_place *place, size_t at, size_t first, size_t layer) {
    spw_status status = SPW_OK;
    const size_t top_k = r->settings->top_k, tokens = r->rank_tokens;
    bool zeros = true;
    for (size_t t = 0; t < tokens; t++) {
        const size_t token = first + t, row = at + token / r->extent[TOKENS] * r->stride[SEQUENCES] +
                                              token % r->extent[TOKENS] * r->stride[TOKENS];
        for (size_t k = 0; k < top_k; k++) {
            bool missing = false;
            uint64_t value = 0;
            SPW_TRY(element(r, place, row + k * r->stride[K], r->settings->experts, &missing, &value));
            zeros = zeros && value == 0 && !missing;
            r->id[t * top_k + k] = missing ? SPW_TRACE_MISSING : (uint16_t)value;
        }
    }
    if (zeros && top_k > 1) SPW_TRY(fail_zeros(r, place));
    r->used[layer] = r->used[layer] || !zeros;
    SPW_TRY(spw_assembly_add_ids(r->assembly, place, tokens, r->id));

cleanup:
    return status;
}

/* The experts of the largest logits, the largest first; of equal ones the one with the lower number. */
static spw_status choose(reader *r, const spw_assembly_place *place, size_t row, uint16_t *id) {
    const size_t experts = r->settings->experts, top_k = r->settings->top_k;
    size_t chosen = 0;
    for (size_t x = 0; x < experts; x++) {
        const double logit = spw_npy_real_at(&r->npy, row + x * r->stride[EXPERTS]);
        if (isnan(logit))
            return spw_assembly_fail(r->settings, place, "the logit of expert %zu is no number", x);
        size_t at = chosen < top_k ? chosen++ : top_k;
        while (at > 0 && logit > r->logit[at - 1]) {
            if (at < top_k) r->logit[at] = r->logit[at - 1], id[at] = id[at - 1];
            at--;
        }
        if (at < top_k) r->logit[at] = logit, id[at] = (uint16_t)x;
    }
    return SPW_OK;
}

static spw_status add_logits(reader *r, const spw_assembly_place *place, size_t at, size_t first,
                             size_t layer) {
    const size_t top_k = r->settings->top_k;
    for (size_t t = 0; t < r->rank_tokens; t++) {
        const size_t token = first + t, row = at + token / r->extent[TOKENS] * r->stride[SEQUENCES] +
                                              token % r->extent[TOKENS] * r->stride[TOKENS];
        const spw_status status = choose(r, place, row, r->id + t * top_k);
        if (status != SPW_OK) return status;
    }
    r->used[layer] = true;
    return spw_assembly_add_ids(r->assembly, place, r->rank_tokens, r->id);
}

static spw_status add_counts(reader *r, const spw_assembly_place *place, size_t at, size_t layer) {
    spw_status status = SPW_OK;
    for (size_t x = 0; x < r->settings->experts; x++) {
        bool missing = false;
        uint64_t value = 0;
        SPW_TRY(element(r, place, at + x * r->stride[EXPERTS], (uint64_t)1 << 32, &missing, &value));
        r->count[x] = missing ? 0 : (uint32_t)value;
        r->used[layer] = r->used[layer] || r->count[x] > 0;
    }
    SPW_TRY(spw_assembly_add_counts(r->assembly, place, 0, r->settings->experts, r->count));

cleanup:
    return status;
}

/* One step, rank and layer of the file. */
static spw_status add_part(reader *r, size_t step, size_t rank, size_t layer) {
    spw_status status = SPW_OK;
    const spw_import_settings *settings = r->settings;
    const bool cut = settings->tokens_per_rank > 0;
    const size_t at =
        step * r->stride[STEPS] + (cut ? 0 : rank * r->stride[RANKS]) + layer * r->stride[LAYERS];
    const size_t first = cut ? rank * r->rank_tokens : 0, number = r->base[LAYERS] + layer;
    spw_assembly_place place = {.step = (int64_t)(r->base[STEPS] + step),
                                .rank = (uint32_t)(r->base[RANKS] + rank),
                                .file = r->file,
                                .layer = r->packed ? r->name[number].number : (int32_t)number};
    if (settings->layers.count > 0 && number >= settings->layers.count)
        SPW_TRY(spw_fail(SPW_EFORMAT, "%s: --layers names %zu layers; there are more", r->npy.where,
                         settings->layers.count));
    if (settings->layers.count > 0) place.layer = settings->layers.value[number];
    if (listed(&settings->dense_layers, place.layer)) {
        r->used[number] = true;
        const bool counts = r->has[EXPERTS];
        if (r->logits)
            SPW_TRY(spw_fail(SPW_EARG, "--dense-layers: a layer without experts has no router logits"));
        SPW_TRY(check_dense(r, &place, at, counts ? 1 : r->rank_tokens, first,
                            counts ? settings->experts : settings->top_k, counts ? EXPERTS : K));
    } else if (r->logits) {
        SPW_TRY(add_logits(r, &place, at, first, number));
    } else if (r->has[EXPERTS]) {
        SPW_TRY(add_counts(r, &place, at, number));
    } else {
        SPW_TRY(add_ids(r, &place, at, first, number));
    }

cleanup:
    return status;
}

static spw_status add_file(reader *r) {
    spw_status status = SPW_OK;
    const bool cut = r->settings->tokens_per_rank > 0;
    const size_t ranks = cut ? r->ranks : r->extent[RANKS], tokens = r->extent[SEQUENCES] * r->extent[TOKENS];
    r->rank_tokens = cut ? r->settings->tokens_per_rank : tokens;
    if ((!r->has[EXPERTS] || r->logits) && r->rank_tokens > r->id_capacity) {
        spw_free(r->id);
        r->id_capacity = 0;
        SPW_TRY(SPW_ALLOC(r->rank_tokens * r->settings->top_k, &r->id));
        r->id_capacity = r->rank_tokens;
    }
    for (size_t step = 0; step < r->extent[STEPS]; step++) {
        for (size_t rank = 0; rank < ranks; rank++) {
            for (size_t layer = 0; layer < r->extent[LAYERS]; layer++)
                SPW_TRY(add_part(r, step, rank, layer));
        }
    }

cleanup:
    return status;
}

/* The array just opened. */
static spw_status add_array(reader *r, spw_assembly_shape *shape, spw_assembly **out) {
    spw_status status = SPW_OK;
    SPW_TRY(read_extents(r));
    if (!r->begun) {
        SPW_TRY(find_shape(r, shape));
        SPW_TRY(spw_assembly_create(r->settings, shape, out));
        r->assembly = *out;
        r->begun = true;
    }
    SPW_TRY(add_file(r));
    spw_npy_close(&r->npy);

cleanup:
    return status;
}

/* All arrays of an .npz, each a layer; every file has the same. */
static spw_status add_packed(reader *r, spw_npz *npz, spw_assembly_shape *shape, spw_assembly **out) {
    const size_t before = r->names;
    spw_status status = SPW_OK;
    spw_free(r->name);
    r->name = NULL;
    SPW_TRY(spw_npz_list(npz, &r->name, &r->names));
    if (r->names == 0 || r->names > SPW_TRACE_MAX_LAYERS || (r->begun && r->names != before))
        SPW_TRY(
            spw_fail(SPW_EFORMAT,
                     "%s: %zu arrays; every file must have one a layer, 1 to %d and as many as the others",
                     r->settings->input[r->file], r->names, SPW_TRACE_MAX_LAYERS));
    for (size_t i = 0; i < r->names; i++) {
        r->base[LAYERS] = i;
        SPW_TRY(spw_npz_read(npz, r->name[i].text, &r->npy));
        SPW_TRY(add_array(r, shape, out));
    }

cleanup:
    return status;
}

static spw_status add_input(reader *r, spw_assembly_shape *shape, spw_assembly **out) {
    spw_status status = SPW_OK;
    const char *path = r->settings->input[r->file];
    spw_npz *npz = NULL;
    if (r->packed || r->settings->array != NULL) SPW_TRY(spw_npz_open(path, &npz));
    if (r->packed) {
        SPW_TRY(add_packed(r, npz, shape, out));
    } else {
        SPW_TRY(npz != NULL ? spw_npz_read(npz, r->settings->array, &r->npy) : spw_npy_open(path, &r->npy));
        SPW_TRY(add_array(r, shape, out));
    }
    if (r->files != AXES) r->base[r->files] += r->extent[r->files];

cleanup:
    spw_npz_close(npz);
    return status;
}

/* Index in the model of the layer at place `i` of the arrays. */
static int32_t layer_at(const reader *r, size_t i) {
    if (r->settings->layers.count > 0) return r->settings->layers.value[i];
    return r->packed ? r->name[i].number : (int32_t)i;
}

/* Layers that were 0 all over, and names of layers that do not exist. */
static spw_status check_layers(const reader *r) {
    const spw_import_settings *settings = r->settings;
    const size_t layers = r->packed ? r->names : r->files == LAYERS ? r->base[LAYERS] : r->extent[LAYERS];
    if (settings->layers.count > 0 && settings->layers.count != layers)
        return spw_fail(SPW_EFORMAT, "%s: %zu layers; --layers names %zu", settings->input[0], layers,
                        settings->layers.count);
    for (size_t i = 0; i < layers; i++) {
        const spw_assembly_place place = {.layer = layer_at(r, i)};
        if (!r->used[i] && settings->experts > 1) return fail_zeros(r, &place);
    }
    for (size_t i = 0; i < settings->dense_layers.count; i++) {
        const int32_t layer = settings->dense_layers.value[i];
        size_t at = 0;
        while (at < layers && layer_at(r, at) != layer) at++;
        if (at == layers) return spw_fail(SPW_EARG, "--dense-layers: there is no layer %d", layer);
    }
    return SPW_OK;
}

spw_status spw_import_array(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    reader r = {.settings = settings};
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.names_layers = true;
    SPW_TRY(parse_axes(&r));
    SPW_TRY(SPW_ALLOC(SPW_TRACE_MAX_LAYERS, &r.used));
    SPW_TRY(SPW_ALLOC(settings->experts, &r.count));
    SPW_TRY(SPW_ALLOC(settings->top_k, &r.logit));
    for (r.file = 0; r.file < settings->inputs; r.file++) SPW_TRY(add_input(&r, &shape, out));
    SPW_TRY(check_layers(&r));

cleanup:
    spw_npy_close(&r.npy);
    spw_free(r.id);
    spw_free(r.count);
    spw_free(r.logit);
    spw_free(r.name);
    spw_free(r.used);
    return status;
}
