#include "sim/input/megatron_coefficients.h"

#include "base/file.h"
#include "sim/input/preset.h"
#include "sim/input/settings.h"
#include "sim/input/stack_settings.h"

#include <stdio.h>
#include <string.h>

#define FITTED_ROW(field, start, low, high, spread, help) \
    {#field, help, offsetof(spw_megatron_coefficients, field), start, low, high, spread},
#define GIVEN_ROW(field, low, high, help) \
    {#field, help, offsetof(spw_megatron_coefficients, field), 0, low, high, 0},
const spw_megatron_coefficient_row spw_megatron_coefficient_rows[SPW_MEGATRON_COEFFICIENTS] = {
    SPW_MEGATRON_FITTED_LIST(FITTED_ROW) SPW_MEGATRON_GIVEN_LIST(GIVEN_ROW)};

spw_coefficient *spw_megatron_coefficient(spw_megatron_coefficients *c, size_t row) {
    return (spw_coefficient *)(void *)((char *)c + spw_megatron_coefficient_rows[row].offset);
}

const spw_coefficient *spw_megatron_coefficient_of(const spw_megatron_coefficients *c, size_t row) {
    return (const spw_coefficient *)(const void *)((const char *)c +
                                                   spw_megatron_coefficient_rows[row].offset);
}

/* --- Keys --- */

/* Only the range of the value differs. */
#define FIELDS(field, low, high, text) \
    static const spw_setting field##_rows[] = SPW_COEFFICIENT_KEYS(low, high, high, text);
#define FITTED_FIELDS(field, start, low, high, spread, help) FIELDS(field, low, high, help)
SPW_MEGATRON_FITTED_LIST(FITTED_FIELDS)
SPW_MEGATRON_GIVEN_LIST(FIELDS)

#define SETTING(field, text) \
    SPW_STACK_COEFFICIENT(spw_megatron_coefficients, #field, field, field##_rows, text),
#define FITTED_SETTING(field, start, low, high, spread, help) SETTING(field, help)
#define GIVEN_SETTING(field, low, high, help) SETTING(field, help)

static const spw_setting rows[] = {
    SPW_STACK_LINE(spw_megatron_coefficients, name, SPW_STACK_NAME, "name of the stack"),
    SPW_STACK_LINE(spw_megatron_coefficients, tables, SPW_STACK_TEXT, "what it was fitted on"),
    SPW_MEGATRON_FITTED_LIST(FITTED_SETTING) SPW_MEGATRON_GIVEN_LIST(GIVEN_SETTING){.key = NULL}};

/* --- Reading and writing --- */

spw_status spw_megatron_coefficients_parse(const char *where, const char *text, size_t length,
                                           spw_megatron_coefficients *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    spw_settings_close(settings);
    return status;
}

spw_status spw_megatron_coefficients_read(const char *name, const char *folder,
                                          spw_megatron_coefficients *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"stack of measured runs", "its YAML file", spw_megatron_files, suffixes};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, name, folder, &text);
    if (status != SPW_OK) return status;
    status = spw_megatron_coefficients_parse(text.where, text.text, text.length, out);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_megatron_coefficients_presets(void) { return spw_megatron_names; }

static void put(FILE *file, const char *key, const spw_coefficient *c) {
    fprintf(file, "%s:\n  value: %.6g\n", key, c->value);
    if (c->uncertainty > 0) fprintf(file, "  uncertainty: %.2g\n", c->uncertainty);
    fprintf(file, "  evidence: %s\n  source: \"%s\"\n", spw_evidence_name(c->evidence), c->source);
}

static spw_status print(FILE *out, const void *what) {
    const spw_megatron_coefficients *c = what;
    fprintf(out, "# Written by spillway calibrate time.\nname: %s\ntables: \"%s\"\n", c->name, c->tables);
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++)
        put(out, spw_megatron_coefficient_rows[i].key, spw_megatron_coefficient_of(c, i));
    return SPW_OK;
}

spw_status spw_megatron_coefficients_write(const spw_megatron_coefficients *c, const char *path) {
    return spw_file_print(path, print, c);
}
