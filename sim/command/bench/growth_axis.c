#include "sim/command/bench/growth_axis.h"

#include "sim/read/preset.h"
#include "sim/statistics/power_law.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

extern const spw_preset spw_growth_files[];

const char *const spw_growth_command_names[] = {"plan", "replay", "search", NULL};

static const spw_setting part_rows[] = {
    {.key = "values",
     .kind = SPW_SETTING_COUNTS,
     SPW_SETTING_COUNTS_OF(spw_growth_part, value, SPW_GROWTH_VALUES, values),
     .fewest = SPW_POWER_LAW_POINTS, /* an exponent with an error needs them */
     .minimum = 1,
     .maximum = 1e15,
     .fallback = "",
     .help = "values of the axis, each larger than the one before"},
    {.key = "texts",
     .kind = SPW_SETTING_TEXTS,
     SPW_SETTING_TEXTS_OF(spw_growth_part, text, SPW_GROWTH_TEXT, SPW_GROWTH_VALUES, texts),
     .fallback = "",
     .help = "what $text is at each value"},
    {.key = "words",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_growth_part, words, SPW_GROWTH_WORDS),
     .fallback = "",
     .help = "options of the command"},
    {.key = "trace",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_growth_part, trace, SPW_GROWTH_WORDS),
     .fallback = "",
     .help = "options of trace generate, which makes the file that $trace is"},
    {.key = NULL}};

#define PART(name, index, what) \
    { \
        .key = (name), .kind = SPW_SETTING_GROUP, SPW_SETTING_GROUP_OF(spw_growth_axis, part[index]), \
        .fields = part_rows, .fallback = "{}", .help = (what) \
    }

static const spw_setting rows[] = {
    {.key = "model",
     .kind = SPW_SETTING_TEXT,
     SPW_SETTING_TEXT_OF(spw_growth_axis, model, SPW_GROWTH_NAME),
     .fallback = "",
     .help = "the preset that $model is, but for keys"},
    {.key = "keys",
     .kind = SPW_SETTING_TEXTS,
     SPW_SETTING_TEXTS_OF(spw_growth_axis, key, SPW_GROWTH_NAME, SPW_GROWTH_KEYS, keys),
     .fallback = "",
     .help = "keys of its config.json that are other ones, KEY=NUMBER"},
    PART("plan", SPW_GROWTH_PLAN, "spillway plan"),
    PART("replay", SPW_GROWTH_REPLAY, "spillway replay of a trace"),
    PART("search", SPW_GROWTH_SEARCH, "spillway plan --search"),
    {.key = NULL}};

/* Where a key of a command stands, "own.yaml:7". */
static const char *place_in(const spw_settings *settings, const char *command, const char *key,
                            char out[SPW_SETTINGS_PLACE]) {
    char path[SPW_GROWTH_NAME];
    (void)snprintf(path, sizeof path, "%s.%s", command, key);
    return spw_settings_place(settings, path, out);
}

static spw_status check_part(const spw_settings *settings, const char *command, spw_growth_part *part) {
    char place[SPW_SETTINGS_PLACE];
    if (part->values == 0)
        return spw_fail(SPW_ECONFIG, "%s: %s has no values", place_in(settings, command, "words", place),
                        command);
    for (size_t i = 1; i < part->values; i++)
        if (part->value[i] <= part->value[i - 1])
            return spw_fail(
                SPW_ECONFIG, "%s: %s: value %zu stands behind %zu; write them from small to large",
                place_in(settings, command, "values", place), command, part->value[i], part->value[i - 1]);
    if (part->texts > 0 && part->texts != part->values)
        return spw_fail(SPW_ECONFIG, "%s: %s has %zu values and %zu texts; write one for each, or none",
                        place_in(settings, command, "texts", place), command, part->values, part->texts);
    (void)place_in(settings, command, "words", part->words_place);
    (void)place_in(settings, command, "trace", part->trace_place);
    if (part->words[0] == '\0')
        return spw_fail(SPW_ECONFIG, "%s: %s has no words", part->words_place, command);
    return SPW_OK;
}

/* Of two keys of one name the second would win. */
static spw_status check_keys(const spw_growth_axis *axis) {
    if (axis->model[0] == '\0' && axis->keys > 0)
        return spw_fail(SPW_ECONFIG, "%s: keys are of a model; name its preset", axis->keys_place);
    for (size_t i = 0; i < axis->keys; i++) {
        const size_t length = strcspn(axis->key[i], "=");
        for (size_t j = 0; j < i; j++)
            if (strcspn(axis->key[j], "=") == length && memcmp(axis->key[i], axis->key[j], length) == 0)
                return spw_fail(SPW_ECONFIG, "%s: '%s' is given again (first as '%s'); keep one",
                                axis->keys_place, axis->key[i], axis->key[j]);
    }
    return SPW_OK;
}

static spw_status check(const char *where, const spw_settings *settings, spw_growth_axis *axis) {
    size_t measured = 0;
    for (size_t i = 0; i < SPW_GROWTH_COMMANDS; i++) {
        spw_growth_part *part = &axis->part[i];
        if (part->values == 0 && part->words[0] == '\0') continue;
        const spw_status status = check_part(settings, spw_growth_command_names[i], part);
        if (status != SPW_OK) return status;
        measured++;
    }
    const spw_growth_part *replay = &axis->part[SPW_GROWTH_REPLAY];
    if (replay->values > 0 && replay->trace[0] == '\0')
        return spw_fail(SPW_ECONFIG, "%s: replay has no trace", replay->trace_place);
    if (measured == 0)
        return spw_fail(SPW_ECONFIG, "%s: nothing is measured; write plan, replay or search", where);
    (void)spw_settings_place(settings, "model", axis->model_place);
    (void)spw_settings_place(settings, "keys", axis->keys_place);
    return check_keys(axis);
}

/* "experts" of "/a/experts.yaml". */
static spw_status name_of(const char *where, char out[SPW_GROWTH_NAME]) {
    const char *slash = strrchr(where, '/'), *begin = slash != NULL ? slash + 1 : where;
    const char *dot = strrchr(begin, '.');
    const size_t length = dot != NULL && dot != begin ? (size_t)(dot - begin) : strlen(begin);
    if (length >= SPW_GROWTH_NAME)
        return spw_fail(SPW_ECONFIG, "%s: the axis' name has %zu bytes; name the file with %d at most", where,
                        length, SPW_GROWTH_NAME - 1);
    (void)snprintf(out, SPW_GROWTH_NAME, "%.*s", (int)length, begin);
    return SPW_OK;
}

spw_status spw_growth_axis_read(const char *name, spw_growth_axis *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"axis", "an axis' YAML file", spw_growth_files, suffixes, 0};
    spw_preset_text text = {.path = NULL};
    spw_settings *settings = NULL;
    spw_status status = SPW_OK;
    *out = (spw_growth_axis){.keys = 0};
    SPW_TRY(spw_preset_open(&kind, name, NULL, &text));
    SPW_TRY(spw_settings_open(text.where, text.text, text.length, &settings));
    SPW_TRY(spw_settings_read(settings, rows, out));
    SPW_TRY(check(text.where, settings, out));
    SPW_TRY(name_of(text.where, out->name));

cleanup:
    spw_settings_close(settings);
    spw_preset_close(&text);
    return status;
}
