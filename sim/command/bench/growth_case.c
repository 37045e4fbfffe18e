#include "sim/command/bench/growth_case.h"

#include "base/memory.h"
#include "base/nearest.h"
#include "base/text.h"
#include "sim/command/bench/process_use.h"
#include "sim/print/json_values.h"
#include "sim/read/preset.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* What a $name stands for; NULL where the axis lacks the key that says it. */
typedef struct meaning {
    const char *name, *key, *text;
} meaning;
enum { MEANINGS = 4 };

spw_status spw_growth_files_begin(spw_growth_files *out) {
    spw_status status = SPW_OK;
    *out = (spw_growth_files){.made = ""};
    SPW_TRY(spw_file_begin("/tmp/spillway_growth.json", &out->model));
    SPW_TRY(spw_file_begin("/tmp/spillway_growth.h5", &out->trace));

cleanup:
    return status;
}

void spw_growth_files_end(spw_growth_files *files) {
    spw_file_discard(&files->model);
    spw_file_discard(&files->trace);
}

/* The text with what its names stand for. */
static spw_status expand(const char *text, const meaning means[MEANINGS], char out[SPW_GROWTH_LINE]) {
    size_t used = 0;
    while (*text != '\0') {
        const char *piece = text;
        size_t length = strcspn(text, "$"), taken = length;
        for (size_t i = 0; length == 0 && i < MEANINGS; i++)
            if (strncmp(text + 1, means[i].name, strlen(means[i].name)) == 0) {
                if (means[i].text == NULL)
                    return spw_fail(SPW_ECONFIG, "$%s, but there is no '%s'", means[i].name, means[i].key);
                piece = means[i].text;
                length = strlen(piece);
                taken = 1 + strlen(means[i].name);
                break;
            }
        if (taken == 0)
            return spw_fail(SPW_ECONFIG, "'%.24s' is not known; it is one of $value, $text, $model, $trace",
                            text);
        if (used + length >= SPW_GROWTH_LINE)
            return spw_fail(SPW_ECONFIG, "words of more than %d bytes", SPW_GROWTH_LINE);
        memcpy(out + used, piece, length);
        used += length;
        text += taken;
    }
    out[used] = '\0';
    return SPW_OK;
}

/* The words of `line`, which is cut at blanks. */
static spw_status cut(spw_growth_words *words) {
    char *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(words->line, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        if (count + 1 == SPW_GROWTH_MOST_WORDS)
            return spw_fail(SPW_ECONFIG, "more than %d words", SPW_GROWTH_MOST_WORDS - 1);
        words->word[count++] = word;
    }
    words->word[count] = NULL;
    return SPW_OK;
}

static spw_status unknown_key(const char *key, json_t *model) {
    spw_nearest nearest = {.text = key};
    for (void *at = json_object_iter(model); at != NULL; at = json_object_iter_next(model, at))
        spw_nearest_offer(&nearest, json_object_iter_key(at));
    return spw_fail(SPW_ECONFIG, "the model has no key '%s', so that it would change nothing%s%s%s", key,
                    nearest.best != NULL ? "; did you mean '" : "", nearest.best != NULL ? nearest.best : "",
                    nearest.best != NULL ? "'?" : "");
}

/* One that `varies` along the axis is a key of the model: another would change nothing. */
static spw_status put_key(const char *text, bool varies, spw_json *json, json_t *model) {
    char key[SPW_GROWTH_LINE], *end = NULL;
    const char *equals = strchr(text, '=');
    const double number = equals != NULL ? spw_text_number(equals + 1, &end) : 0.0;
    if (equals == NULL || end == equals + 1 || *end != '\0')
        return spw_fail(SPW_ECONFIG, "key '%s' is not KEY=NUMBER", text);
    (void)snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    if (varies && json_object_get(model, key) == NULL) return unknown_key(key, model);
    const bool whole = number >= 0.0 && number == (double)(uint64_t)number;
    spw_json_put(json, model, key, whole ? spw_json_count((uint64_t)number) : spw_json_real(number));
    return SPW_OK;
}

/* The axis' model: its preset with other keys. */
static spw_status model_of(const spw_growth_axis *axis, const meaning means[MEANINGS], spw_json *json,
                           json_t **out) {
    static const char *const suffixes[] = {NULL};
    const spw_preset_kind kind = {"model", "a preset's name", spw_model_files, suffixes, 0};
    spw_preset_text text = {.path = NULL};
    const char *place = axis->model_place;
    json_t *model = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_preset_open(&kind, axis->model, NULL, &text));
    model = json_loadb(text.text, text.length, 0, NULL);
    if (model == NULL) SPW_TRY(spw_fail(SPW_ECONFIG, "model %s is no JSON", axis->model));
    place = axis->keys_place;
    for (size_t i = 0; i < axis->keys; i++) {
        char key[SPW_GROWTH_LINE];
        SPW_TRY(expand(axis->key[i], means, key));
        SPW_TRY(put_key(key, strchr(axis->key[i], '$') != NULL, json, model));
    }
    *out = model;
    model = NULL;

cleanup:
    json_decref(model);
    spw_preset_close(&text);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "%s", place);
}

static spw_status make_model(const spw_growth_axis *axis, const meaning means[MEANINGS], const char *path) {
    spw_json json = {.failed = false};
    json_t *model = NULL;
    FILE *out = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(model_of(axis, means, &json, &model));
    out = fopen(path, "we");
    if (out == NULL) SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written", path));
    status = spw_json_print(&json, model, 0, path, out);
    model = NULL;
    if (fclose(out) != 0 && status == SPW_OK) status = spw_fail(SPW_EIO, "%s: cannot be written", path);

cleanup:
    json_decref(model);
    return status;
}

static spw_status make_trace(const char *options, spw_growth_files *files) {
    spw_growth_words words;
    spw_process_use use;
    bool good = false;
    spw_status status = SPW_OK;
    if (strcmp(options, files->made) == 0) return SPW_OK;
    files->made[0] = '\0';
    const int length = snprintf(words.line, sizeof words.line, "spillway trace generate %s %s",
                                files->trace.temporary, options);
    if (length < 0 || (size_t)length >= sizeof words.line)
        SPW_TRY(spw_fail(SPW_ECONFIG, "words of more than %d bytes", SPW_GROWTH_LINE));
    SPW_TRY(cut(&words));
    SPW_TRY(
        spw_process_use_of(&(spw_process){SPW_OWN_PROGRAM, words.word, .explains = true}, 1, &use, &good));
    if (!good) SPW_TRY(spw_fail(SPW_ECONFIG, "spillway trace generate %s: failed", options));
    (void)snprintf(files->made, sizeof files->made, "%s", options);

cleanup:
    return status;
}

/* What the names stand for at value `index`. */
static void means_of(const spw_growth_axis *axis, const spw_growth_part *part, size_t index,
                     const char *model, const char *trace, char value[24], meaning out[MEANINGS]) {
    (void)snprintf(value, 24, "%zu", part->value[index]);
    const meaning means[MEANINGS] = {{"value", "values", value},
                                     {"text", "texts", part->texts > 0 ? part->text[index] : NULL},
                                     {"model", "model", axis->model[0] != '\0' ? model : NULL},
                                     {"trace", "trace", part->trace[0] != '\0' ? trace : NULL}};
    memcpy(out, means, sizeof means);
}

/* The command line of one value, cut into words. */
static spw_status words_of(const spw_growth_part *part, spw_growth_command command,
                           const meaning means[MEANINGS], spw_growth_words *out) {
    static const char *const begin[SPW_GROWTH_COMMANDS] = {"spillway plan", "spillway replay $trace",
                                                           "spillway plan --search"};
    char line[SPW_GROWTH_LINE];
    spw_status status = SPW_OK;
    (void)snprintf(line, sizeof line, "%s %s", begin[command], part->words);
    SPW_TRY(expand(line, means, out->line));
    SPW_TRY(cut(out));

cleanup:
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "%s", part->words_place);
}

static spw_status trace_of(const spw_growth_part *part, const meaning means[MEANINGS],
                           char out[SPW_GROWTH_LINE]) {
    const spw_status status = expand(part->trace, means, out);
    return status == SPW_OK ? SPW_OK : spw_fail_within(status, "%s", part->trace_place);
}

static bool names(const char *text, const char *name) { return strstr(text, name) != NULL; }

spw_status spw_growth_case_make(const spw_growth_axis *axis, spw_growth_command command, size_t index,
                                spw_growth_files *files, spw_growth_words *out) {
    const spw_growth_part *part = &axis->part[command];
    meaning means[MEANINGS];
    char value[24], line[SPW_GROWTH_LINE];
    spw_status status = SPW_OK;
    means_of(axis, part, index, files->model.temporary, files->trace.temporary, value, means);
    if (names(part->words, "$model")) SPW_TRY(make_model(axis, means, files->model.temporary));
    if (part->trace[0] != '\0') {
        SPW_TRY(trace_of(part, means, line));
        status = make_trace(line, files);
        if (status != SPW_OK) SPW_TRY(spw_fail_within(status, "%s", part->trace_place));
    }
    SPW_TRY(words_of(part, command, means, out));

cleanup:
    return status;
}

/* --- Before anything is measured --- */

/* All that is started at one value. */
typedef struct spelled {
    spw_growth_words words;
    char trace[SPW_GROWTH_LINE];
    json_t *model; /* NULL: it has none */
} spelled;

static spw_status spell(const spw_growth_axis *axis, spw_growth_command command, size_t index, spelled *out) {
    const spw_growth_part *part = &axis->part[command];
    meaning means[MEANINGS];
    char value[24];
    spw_json json = {.failed = false};
    spw_status status = SPW_OK;
    means_of(axis, part, index, "/tmp/spillway_growth.json.XXXXXX", "/tmp/spillway_growth.h5.XXXXXX", value,
             means);
    json_decref(out->model);
    *out = (spelled){.model = NULL};
    SPW_TRY(words_of(part, command, means, &out->words));
    if (part->trace[0] != '\0') SPW_TRY(trace_of(part, means, out->trace));
    if (names(part->words, "$model")) SPW_TRY(model_of(axis, means, &json, &out->model));

cleanup:
    return status;
}

static bool is_same(const spelled *a, const spelled *b) {
    size_t i = 0;
    while (a->words.word[i] != NULL && b->words.word[i] != NULL &&
           strcmp(a->words.word[i], b->words.word[i]) == 0)
        i++;
    return a->words.word[i] == NULL && b->words.word[i] == NULL && strcmp(a->trace, b->trace) == 0 &&
           (a->model == b->model || json_equal(a->model, b->model) != 0);
}

/* What is written down for a command is asked for by it. */
static spw_status check_names(const spw_growth_axis *axis, spw_growth_command command) {
    const spw_growth_part *part = &axis->part[command];
    bool text = part->texts == 0 || names(part->words, "$text") || names(part->trace, "$text");
    for (size_t i = 0; i < axis->keys; i++) text = text || names(axis->key[i], "$text");
    if (!text)
        return spw_fail(SPW_ECONFIG, "%s: %s has texts, but names $text nowhere", part->words_place,
                        spw_growth_command_names[command]);
    if (part->trace[0] != '\0' && command != SPW_GROWTH_REPLAY && !names(part->words, "$trace"))
        return spw_fail(SPW_ECONFIG, "%s: %s has a trace, but no --trace $trace", part->words_place,
                        spw_growth_command_names[command]);
    return SPW_OK;
}

/* Every value of one command, each beside the one before. */
static spw_status check_values(const spw_growth_axis *axis, spw_growth_command command) {
    const spw_growth_part *part = &axis->part[command];
    spelled *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(2, &at));
    SPW_TRY(check_names(axis, command));
    for (size_t i = 0; i < part->values; i++) {
        SPW_TRY(spell(axis, command, i, &at[i % 2]));
        if (i > 0 && is_same(&at[0], &at[1]))
            SPW_TRY(spw_fail(
                SPW_ECONFIG,
                "%s: %s does not change along the axis: it is the same at %zu and %zu; name $value, or "
                "a $text or $model that differs",
                part->words_place, spw_growth_command_names[command], part->value[i - 1], part->value[i]));
    }

cleanup:
    for (size_t i = 0; at != NULL && i < 2; i++) json_decref(at[i].model);
    spw_free(at);
    return status;
}

spw_status spw_growth_case_check(const spw_growth_axis *axis) {
    bool model = axis->model[0] == '\0';
    for (size_t i = 0; i < SPW_GROWTH_COMMANDS; i++) {
        const spw_status status = check_values(axis, (spw_growth_command)i);
        if (status != SPW_OK) return status;
        model = model || names(axis->part[i].words, "$model");
    }
    return model ? SPW_OK : spw_fail(SPW_ECONFIG, "%s: no words name $model", axis->model_place);
}
