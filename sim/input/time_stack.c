#include "sim/input/time_stack.h"

#include "base/file.h"
#include "sim/input/preset.h"
#include "sim/input/settings.h"

#include <stdio.h>
#include <string.h>

#define TIME_ROW(field, start, low, high, help) \
    {#field, help, offsetof(spw_time_stack, field), start, low, high},
const spw_time_row spw_time_rows[SPW_TIME_ROWS] = {SPW_TIME_FITTED_LIST(TIME_ROW)
                                                       SPW_TIME_TEXT_LIST(TIME_ROW)};

spw_coefficient *spw_time_coefficient(spw_time_stack *stack, size_t row) {
    return (spw_coefficient *)(void *)((char *)stack + spw_time_rows[row].offset);
}

#define COEFFICIENT(field, start, low, high, text) \
    {.key = #field, \
     .kind = SPW_SETTING_GROUP, \
     .offset = offsetof(spw_time_stack, field), \
     .fields = spw_coefficient_settings, \
     .help = (text)},
#define FIXED(field, text) COEFFICIENT(field, 0, 0, 0, text)
#define TEXT(field, length, text) \
    { \
        .key = #field, .kind = SPW_SETTING_TEXT, .offset = offsetof(spw_time_stack, field), \
        .size = (length), .help = (text) \
    }
#define COUNT(field, text) \
    { \
        .key = #field, .kind = SPW_SETTING_COUNT, .offset = offsetof(spw_time_stack, field), .minimum = 1, \
        .maximum = 1 << 20, .help = (text) \
    }

static const spw_setting rows[] = {
    TEXT(name, SPW_STACK_NAME, "name of the stack"),
    TEXT(tables, SPW_STACK_TEXT, "what it was fitted on"),
    TEXT(models, SPW_STACK_TEXT, "models of those tables"),
    TEXT(clusters, SPW_STACK_TEXT, "clusters of those tables"),
    TEXT(schemes, SPW_STACK_TEXT, "kinds of schemes of those tables"),
    {.key = "expert_parallel",
     .kind = SPW_SETTING_TEXT,
     .offset = offsetof(spw_time_stack, expert_parallel),
     .size = SPW_STACK_TEXT,
     .fallback = "",
     .help = "expert-parallel sizes of those tables"},
    COUNT(sequences_min, "smallest batch of those tables"),
    COUNT(sequences_max, "largest batch of those tables"),
    SPW_TIME_FITTED_LIST(COEFFICIENT) SPW_TIME_TEXT_LIST(COEFFICIENT)
        FIXED(gather_limit_gib, "GiB up to which all-gathers are combined")
            FIXED(attention_share, "flash attention: share of the peak")
                FIXED(library_share, "DeepEP: share of the cluster's measured exchange rates")
                    FIXED(latency_s, "seconds of one hop of a collective")
                        FIXED(half_width, "half width of the interval, as a logarithm"){.key = NULL}};

spw_status spw_time_stack_parse(const char *where, const char *text, size_t length, spw_time_stack *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    for (size_t i = 0; status == SPW_OK && i < SPW_TIME_ROWS; i++) {
        const spw_time_row *row = &spw_time_rows[i];
        const double value = spw_time_coefficient(out, i)->value;
        if (value < row->minimum || value > row->maximum)
            status =
                spw_fail(SPW_ECONFIG, "%s:%zu: '%s' is %g; it must be in [%g, %g]", where,
                         spw_settings_line(settings, row->key), row->key, value, row->minimum, row->maximum);
    }
    spw_settings_close(settings);
    return status;
}

spw_status spw_time_stack_read(const char *name, const char *folder, spw_time_stack *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"time stack", "a time stack's YAML file", spw_time_stack_files, suffixes};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, name, folder, &text);
    if (status != SPW_OK) return status;
    status = spw_time_stack_parse(text.where, text.text, text.length, out);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_time_stack_presets(void) { return spw_time_stack_names; }

bool spw_time_stack_knows(const char *name) {
    for (size_t i = 0; spw_time_stack_names[i] != NULL; i++) {
        if (strcmp(spw_time_stack_names[i], name) == 0) return true;
    }
    return false;
}

spw_status spw_time_stack_write(const spw_time_stack *stack, const char *head, const char *path) {
    spw_status status = SPW_OK;
    spw_file file = {NULL, NULL};
    FILE *out = NULL;
    spw_time_stack copy = *stack;
    SPW_TRY(spw_file_begin(path, &file));
    out = fopen(file.temporary, "w");
    if (out == NULL) {
        status = spw_fail(SPW_EIO, "%s cannot be written", path);
        goto cleanup;
    }
    fprintf(out, "# %s\nname: %s\ntables: \"%s\"\nmodels: \"%s\"\nclusters: \"%s\"\nschemes: \"%s\"\n", head,
            stack->name, stack->tables, stack->models, stack->clusters, stack->schemes);
    if (stack->expert_parallel[0] != '\0') fprintf(out, "expert_parallel: \"%s\"\n", stack->expert_parallel);
    fprintf(out, "sequences_min: %zu\nsequences_max: %zu\n", stack->sequences_min, stack->sequences_max);
    for (size_t i = 0; i < SPW_TIME_ROWS; i++)
        spw_coefficient_write(out, spw_time_rows[i].key, spw_time_coefficient(&copy, i));
    spw_coefficient_write(out, "gather_limit_gib", &stack->gather_limit_gib);
    spw_coefficient_write(out, "attention_share", &stack->attention_share);
    spw_coefficient_write(out, "library_share", &stack->library_share);
    spw_coefficient_write(out, "latency_s", &stack->latency_s);
    spw_coefficient_write(out, "half_width", &stack->half_width);
    if (ferror(out) != 0) status = spw_fail(SPW_EIO, "%s cannot be written", path);
    if (fclose(out) != 0 && status == SPW_OK) status = spw_fail(SPW_EIO, "%s cannot be written", path);
    out = NULL;
    if (status == SPW_OK) status = spw_file_commit(&file);

cleanup:
    spw_file_discard(&file);
    return status;
}
