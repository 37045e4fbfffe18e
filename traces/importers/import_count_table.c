/* A CSV file with the header layer,expert,count and whole numbers: totals of one run. Experts that are not named were not
 * chosen. */
#include "traces/importers/assembly.h"

#include "base/file.h"
#include "base/memory.h"

#include <string.h>

enum { MOST_BYTES = 1 << 28, COLUMNS = 3 };
static const char header[] = "layer,expert,count";

typedef struct table {
    uint32_t **count;     /* [MAX_LAYERS][experts] counts + 1; 0: not named */
    int32_t *layer;       /* [layers] */
    size_t *line, layers; /* where a layer is named first */
    const spw_import_settings *settings;
    size_t file, number;
} table;

static void clear(table *t) {
    for (size_t i = 0; i < t->layers; i++) spw_free(t->count[i]);
    t->layers = 0;
}

static spw_status fail(const table *t, const char *text) {
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s", t->settings->input[t->file], t->number, text);
}

/* Three whole numbers and nothing else between at and end. */
static spw_status read_row(const table *t, const char *at, const char *end, uint64_t *value) {
    for (int column = 0; column < COLUMNS; column++) {
        const char *digit = at;
        value[column] = 0;
        for (; digit < end && *digit >= '0' && *digit <= '9' && value[column] < UINT32_MAX; digit++)
            value[column] = value[column] * 10 + (uint64_t)(*digit - '0');
        const bool last = column == COLUMNS - 1;
        if (digit == at || value[column] >= UINT32_MAX ||
            (last ? digit != end : digit == end || *digit != ','))
            return fail(t, "must be three whole numbers below 2^32 - 1: layer,expert,count");
        at = digit + 1;
    }
    return SPW_OK;
}

static spw_status add_row(table *t, const uint64_t *value) {
    spw_status status = SPW_OK;
    size_t at = t->layers;
    if (value[0] > SPW_ASSEMBLY_MAX_LAYER) SPW_TRY(fail(t, "layers up to 2^20 are read"));
    if (value[1] >= t->settings->experts) SPW_TRY(fail(t, "the expert must be below --experts"));
    for (size_t i = t->layers; i-- > 0 && at == t->layers;) { /* rows of a layer mostly stand together */
        if (t->layer[i] == (int32_t)value[0]) at = i;
    }
    if (at == t->layers) {
        if (t->layers == SPW_TRACE_MAX_LAYERS) SPW_TRY(fail(t, "more than 4096 layers"));
        SPW_TRY(SPW_ALLOC(t->settings->experts, &t->count[at]));
        t->layer[at] = (int32_t)value[0];
        t->line[at] = t->number;
        t->layers++;
    }
    if (t->count[at][value[1]] > 0) SPW_TRY(fail(t, "this layer and expert is there twice"));
    t->count[at][value[1]] = (uint32_t)value[2] + 1;

cleanup:
    return status;
}

static spw_status read_rows(table *t, const char *text, size_t length) {
    spw_status status = SPW_OK;
    uint64_t value[COLUMNS] = {0};
    const char *at = text, *end = text + length;
    for (t->number = 1; at < end; t->number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline != NULL ? newline : end;
        size_t bytes = (size_t)(stop - at);
        if (bytes > 0 && at[bytes - 1] == '\r') bytes--;
        if (t->number == 1 && (bytes != sizeof header - 1 || memcmp(at, header, bytes) != 0))
            SPW_TRY(fail(t, "the first line must be layer,expert,count"));
        if (t->number > 1 && bytes > 0) {
            SPW_TRY(read_row(t, at, at + bytes, value));
            SPW_TRY(add_row(t, value));
        }
        at = stop + 1;
    }

cleanup:
    return status;
}

static spw_status add_layers(table *t, spw_assembly *assembly) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < t->layers; i++) {
        const spw_assembly_place place = {.layer = t->layer[i], .file = t->file, .line = t->line[i]};
        for (size_t x = 0; x < t->settings->experts; x++) t->count[i][x] -= t->count[i][x] > 0;
        SPW_TRY(spw_assembly_add_counts(assembly, &place, 0, t->settings->experts, t->count[i]));
    }

cleanup:
    return status;
}

spw_status spw_import_count_table(const spw_import_settings *settings, spw_assembly **out) {
    spw_status status = SPW_OK;
    table t = {.settings = settings};
    char *text = NULL;
    size_t length = 0;
    spw_assembly_shape shape = spw_assembly_shape_of(settings);
    shape.counts = true;
    SPW_TRY(spw_assembly_create(settings, &shape, out));
    SPW_TRY(SPW_ALLOC(SPW_TRACE_MAX_LAYERS, &t.count));
    SPW_TRY(SPW_ALLOC(SPW_TRACE_MAX_LAYERS, &t.layer));
    SPW_TRY(SPW_ALLOC(SPW_TRACE_MAX_LAYERS, &t.line));
    for (t.file = 0; t.file < settings->inputs; t.file++) {
        SPW_TRY(spw_file_read(settings->input[t.file], MOST_BYTES, &text, &length));
        SPW_TRY(read_rows(&t, text, length));
        SPW_TRY(add_layers(&t, *out));
        clear(&t);
        spw_free(text);
        text = NULL;
    }

cleanup:
    if (t.count != NULL) clear(&t);
    spw_free(t.count);
    spw_free(t.layer);
    spw_free(t.line);
    spw_free(text);
    return status;
}
