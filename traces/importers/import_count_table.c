/* A CSV file with the header layer,expert,count and whole numbers: totals of one run. Experts that are not named were not
 * chosen. With the header layer,expert a line is one assignment, as llama.cpp's example moe-trace writes (pull request 28544, 879f4d6). */
#include "traces/importers/assembly.h"

#include "base/file.h"
#include "base/memory.h"
#include "traces/trace.h"

#include <string.h>

enum { MOST_BYTES = 1 << 28, COLUMNS = 3, OF_ASSIGNMENT = 2 };
static const char *const headers[] = {[OF_ASSIGNMENT] = "layer,expert", [COLUMNS] = "layer,expert,count"};

typedef struct table {
    uint32_t **count;     /* [MAX_LAYERS][experts] counts + 1; 0: not named */
    int32_t *layer;       /* [layers] */
    size_t *line, layers; /* where a layer is named first */
    const spw_import_settings *settings;
    size_t file, number, columns;
} table;

static void clear(table *t) {
    for (size_t i = 0; i < t->layers; i++) spw_free(t->count[i]);
    t->layers = 0;
}

static spw_status fail(const table *t, const char *text) {
    return spw_fail(SPW_EFORMAT, "%s:%zu: %s", t->settings->input[t->file], t->number, text);
}

/* The columns of the header, whole numbers, and nothing else between at and end. */
static spw_status read_row(const table *t, const char *at, const char *end, uint64_t *value) {
    for (size_t column = 0; column < t->columns; column++) {
        const char *digit = at;
        value[column] = 0;
        for (; digit < end && *digit >= '0' && *digit <= '9' && value[column] < UINT32_MAX; digit++)
            value[column] = value[column] * 10 + (uint64_t)(*digit - '0');
        const bool last = column == t->columns - 1;
        if (digit == at || value[column] >= UINT32_MAX ||
            (last ? digit != end : digit == end || *digit != ','))
            return fail(t, t->columns == COLUMNS
                               ? "must be three whole numbers below 2^32 - 1: layer,expert,count"
                               : "must be two whole numbers below 2^32 - 1: layer,expert");
        at = digit + 1;
    }
    return SPW_OK;
}

/* Lines of single assignments may be of layers that are not asked for: llama.cpp's last layer routes fewer tokens. */
static bool left_out(const table *t, int32_t layer) {
    const spw_index_list *asked = &t->settings->layers;
    if (t->columns == COLUMNS || asked->count == 0) return false;
    for (size_t i = 0; i < asked->count; i++)
        if (asked->value[i] == layer) return false;
    return true;
}

static spw_status add_row(table *t, const uint64_t *value) {
    spw_status status = SPW_OK;
    size_t at = t->layers;
    if (value[0] > SPW_ASSEMBLY_MAX_LAYER) SPW_TRY(fail(t, "layers up to 2^20 are read"));
    if (value[1] >= t->settings->experts) SPW_TRY(fail(t, "the expert must be below --experts"));
    if (left_out(t, (int32_t)value[0])) return SPW_OK;
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
    uint32_t *count = &t->count[at][value[1]];
    if (t->columns == OF_ASSIGNMENT) {
        *count += *count > 0 ? 1 : 2;
        return SPW_OK;
    }
    if (*count > 0) SPW_TRY(fail(t, "this layer and expert is there twice"));
    *count = (uint32_t)value[2] + 1;

cleanup:
    return status;
}

static spw_status read_header(table *t, const char *text, size_t length) {
    for (t->columns = COLUMNS; t->columns >= OF_ASSIGNMENT; t->columns--) {
        const char *header = headers[t->columns];
        if (length == strlen(header) && memcmp(text, header, length) == 0) return SPW_OK;
    }
    return fail(t, "the first line must be layer,expert,count or layer,expert");
}

static spw_status read_rows(table *t, const char *text, size_t length) {
    spw_status status = SPW_OK;
    uint64_t value[COLUMNS] = {0};
    const char *at = text, *end = text + length;
    for (t->number = 1; at < end; t->number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline != NULL ? newline : end;
        size_t bytes = (size_t)(stop - at);
        if (bytes > 0 && at[bytes - 1] == '\r') bytes--;
        if (t->number == 1) SPW_TRY(read_header(t, at, bytes));
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
