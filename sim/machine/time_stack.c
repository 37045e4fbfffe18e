#include "sim/machine/time_stack.h"

#include "base/file.h"
#include "sim/machine/stack_settings.h"
#include "sim/read/preset.h"
#include "sim/read/settings.h"

#include <stdio.h>
#include <string.h>

#define TIME_ROW(field, start, low, high, doubt, hold, help) \
    {#field, help, offsetof(spw_time_stack, field), start, low, high, doubt, hold},
const spw_time_row spw_time_rows[SPW_TIME_ROWS] = {SPW_TIME_FITTED_LIST(TIME_ROW)
                                                       SPW_TIME_TEXT_LIST(TIME_ROW)};

spw_coefficient *spw_time_coefficient(spw_time_stack *stack, size_t row) {
    return (spw_coefficient *)(void *)((char *)stack + spw_time_rows[row].offset);
}

#define COEFFICIENT(field, start, low, high, doubt, hold, text) \
    SPW_STACK_COEFFICIENT(spw_time_stack, #field, field, spw_coefficient_settings, text),
#define FIXED(field, text) COEFFICIENT(field, 0, 0, 0, 0, 0, text)
#define LINE(field, length, text) SPW_STACK_LINE(spw_time_stack, field, length, text)

static const spw_setting rows[] = {
    LINE(name, SPW_STACK_NAME, "name of the stack"),
    LINE(tables, SPW_STACK_TEXT, "what it was fitted on"),
    LINE(models, SPW_STACK_TEXT, "models of those tables"),
    LINE(clusters, SPW_STACK_TEXT, "clusters of those tables"),
    LINE(schemes, SPW_STACK_TEXT, "kinds of schemes of those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_time_stack, expert_parallel, SPW_STACK_TEXT,
                            "expert-parallel sizes of those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_time_stack, fsdp, SPW_STACK_TEXT, "fsdp sizes of those tables"),
    SPW_STACK_OPTIONAL_LINE(spw_time_stack, sequence_lengths, SPW_STACK_TEXT,
                            "tokens of a sequence of those tables"),
    SPW_STACK_COUNT(spw_time_stack, sequences_min, "smallest batch of those tables"),
    SPW_STACK_COUNT(spw_time_stack, sequences_max, "largest batch of those tables"),
    SPW_TIME_FITTED_LIST(COEFFICIENT) SPW_TIME_TEXT_LIST(COEFFICIENT)
        FIXED(gather_limit_gib, "GiB up to which all-gathers are combined")
            FIXED(attention_share, "flash attention: share of the peak") FIXED(
                library_share, "DeepEP: share of the cluster's measured exchange rates")
                FIXED(latency_s, "seconds of one hop of a collective") FIXED(
                    serial_share, "exchanges over nodes: what the longer leg does not hide of the shorter")
                    FIXED(half_width, "half width of the interval, as a logarithm")
                        FIXED(half_width_unseen, "the same for what the tables do not have")
                            FIXED(half_width_elsewhere, "the same for other jobs and clusters"){.key = NULL}};

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

static spw_status parse_any(const char *where, const char *text, size_t length, void *out) {
    return spw_time_stack_parse(where, text, length, out);
}

spw_status spw_time_stack_read(const char *name, const char *folder, spw_time_stack *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"time stack", "a time stack's YAML file", spw_time_stack_files, suffixes,
                                  0};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, name, folder, &text);
    if (status != SPW_OK) return status;
    status = spw_preset_parse(&text, parse_any, sizeof *out, out);
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

bool spw_time_stack_is_fitted(const spw_time_stack *stack) { return strcmp(stack->tables, "none") != 0; }

static spw_status print(FILE *out, const void *what) {
    spw_time_stack stack = *(const spw_time_stack *)what;
    fprintf(out,
            "# Written by spillway calibrate time.\nname: %s\ntables: \"%s\"\nmodels: \"%s\"\nclusters: "
            "\"%s\"\nschemes: \"%s\"\n",
            stack.name, stack.tables, stack.models, stack.clusters, stack.schemes);
    if (stack.expert_parallel[0] != '\0') fprintf(out, "expert_parallel: \"%s\"\n", stack.expert_parallel);
    if (stack.fsdp[0] != '\0') fprintf(out, "fsdp: \"%s\"\n", stack.fsdp);
    if (stack.sequence_lengths[0] != '\0') fprintf(out, "sequence_lengths: \"%s\"\n", stack.sequence_lengths);
    fprintf(out, "sequences_min: %zu\nsequences_max: %zu\n", stack.sequences_min, stack.sequences_max);
    for (size_t i = 0; i < SPW_TIME_ROWS; i++)
        spw_coefficient_write(out, spw_time_rows[i].key, spw_time_coefficient(&stack, i));
    spw_coefficient_write(out, "gather_limit_gib", &stack.gather_limit_gib);
    spw_coefficient_write(out, "attention_share", &stack.attention_share);
    spw_coefficient_write(out, "library_share", &stack.library_share);
    spw_coefficient_write(out, "latency_s", &stack.latency_s);
    spw_coefficient_write(out, "serial_share", &stack.serial_share);
    spw_coefficient_write(out, "half_width", &stack.half_width);
    spw_coefficient_write(out, "half_width_unseen", &stack.half_width_unseen);
    spw_coefficient_write(out, "half_width_elsewhere", &stack.half_width_elsewhere);
    return SPW_OK;
}

spw_status spw_time_stack_write(const spw_time_stack *stack, const char *path) {
    return spw_file_print(path, print, stack);
}
