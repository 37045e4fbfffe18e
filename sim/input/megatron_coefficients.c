#include "sim/input/megatron_coefficients.h"

#include "base/file.h"
#include "sim/input/preset.h"
#include "sim/input/settings.h"

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

#define EVIDENCE_CHOICE(name, text) {text, SPW_EVIDENCE_##name},
static const spw_choice evidences[] = {SPW_EVIDENCE_LIST(EVIDENCE_CHOICE){NULL, 0}};

/* The rows of one coefficient; only the range of the value differs. */
#define FIELDS(field, low, high, text) \
    static const spw_setting field##_rows[] = {{.key = "value", \
                                                .kind = SPW_SETTING_REAL, \
                                                .offset = offsetof(spw_coefficient, value), \
                                                .minimum = (low), \
                                                .maximum = (high), \
                                                .help = (text)}, \
                                               {.key = "uncertainty", \
                                                .kind = SPW_SETTING_REAL, \
                                                .offset = offsetof(spw_coefficient, uncertainty), \
                                                .minimum = 0, \
                                                .maximum = (high), \
                                                .fallback = "0", \
                                                .help = "its standard error"}, \
                                               {.key = "evidence", \
                                                .kind = SPW_SETTING_CHOICE, \
                                                .offset = offsetof(spw_coefficient, evidence), \
                                                .size = sizeof(spw_evidence), \
                                                .choices = evidences, \
                                                .help = "how we know the value"}, \
                                               {.key = "source", \
                                                .kind = SPW_SETTING_TEXT, \
                                                .offset = offsetof(spw_coefficient, source), \
                                                .size = SPW_FIGURE_SOURCE, \
                                                .help = "where the value was read or fitted"}, \
                                               {.key = NULL}};
#define FITTED_FIELDS(field, start, low, high, spread, help) FIELDS(field, low, high, help)
SPW_MEGATRON_FITTED_LIST(FITTED_FIELDS)
SPW_MEGATRON_GIVEN_LIST(FIELDS)

#define SETTING(field, text) \
    {.key = #field, \
     .kind = SPW_SETTING_GROUP, \
     .offset = offsetof(spw_megatron_coefficients, field), \
     .fields = field##_rows, \
     .help = (text)},
#define FITTED_SETTING(field, start, low, high, spread, help) SETTING(field, help)
#define GIVEN_SETTING(field, low, high, help) SETTING(field, help)

static const spw_setting rows[] = {{.key = "name",
                                    .kind = SPW_SETTING_TEXT,
                                    .offset = offsetof(spw_megatron_coefficients, name),
                                    .size = SPW_STACK_NAME,
                                    .help = "name of the stack"},
                                   {.key = "tables",
                                    .kind = SPW_SETTING_TEXT,
                                    .offset = offsetof(spw_megatron_coefficients, tables),
                                    .size = SPW_STACK_TEXT,
                                    .help = "what it was fitted on"},
                                   SPW_MEGATRON_FITTED_LIST(FITTED_SETTING)
                                       SPW_MEGATRON_GIVEN_LIST(GIVEN_SETTING){.key = NULL}};

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

spw_status spw_megatron_coefficients_write(const spw_megatron_coefficients *c, const char *head,
                                           const char *path) {
    spw_status status = SPW_OK;
    spw_file file = {NULL, NULL};
    FILE *out = NULL;
    SPW_TRY(spw_file_begin(path, &file));
    out = fopen(file.temporary, "w");
    if (out == NULL) SPW_TRY(spw_fail(SPW_EIO, "%s cannot be written", path));
    fprintf(out, "# %s\nname: %s\ntables: \"%s\"\n", head, c->name, c->tables);
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++)
        put(out, spw_megatron_coefficient_rows[i].key, spw_megatron_coefficient_of(c, i));
    if (ferror(out) != 0) status = spw_fail(SPW_EIO, "%s cannot be written", path);
    if (fclose(out) != 0 && status == SPW_OK) status = spw_fail(SPW_EIO, "%s cannot be written", path);
    if (status == SPW_OK) status = spw_file_commit(&file);

cleanup:
    spw_file_discard(&file);
    return status;
}
