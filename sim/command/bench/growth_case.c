#include "sim/command/bench/growth_case.h"

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

static spw_status put_key(const char *text, spw_json *json, json_t *model) {
    char key[SPW_GROWTH_LINE], *end = NULL;
    const char *equals = strchr(text, '=');
    const double number = equals != NULL ? spw_text_number(equals + 1, &end) : 0.0;
    if (equals == NULL || end == equals + 1 || *end != '\0')
        return spw_fail(SPW_ECONFIG, "key '%s' is not KEY=NUMBER", text);
    (void)snprintf(key, sizeof key, "%.*s", (int)(equals - text), text);
    const bool whole = number >= 0.0 && number == (double)(uint64_t)number;
    spw_json_put(json, model, key, whole ? spw_json_count((uint64_t)number) : spw_json_real(number));
    return SPW_OK;
}

/* The axis' model: its preset with other keys. */
static spw_status make_model(const spw_growth_axis *axis, const meaning *means, const char *path) {
    static const char *const suffixes[] = {NULL};
    const spw_preset_kind kind = {"model", "a preset's name", spw_model_files, suffixes, 0};
    spw_preset_text text = {.path = NULL};
    spw_json json = {.failed = false};
    json_t *model = NULL;
    FILE *out = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_preset_open(&kind, axis->model, NULL, &text));
    model = json_loadb(text.text, text.length, 0, NULL);
    if (model == NULL) SPW_TRY(spw_fail(SPW_ECONFIG, "model %s is no JSON", axis->model));
    for (size_t i = 0; i < axis->keys; i++) {
        char key[SPW_GROWTH_LINE];
        SPW_TRY(expand(axis->key[i], means, key));
        SPW_TRY(put_key(key, &json, model));
    }
    out = fopen(path, "we");
    if (out == NULL) SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written", path));
    status = spw_json_print(&json, model, 0, path, out);
    model = NULL;
    if (fclose(out) != 0 && status == SPW_OK) status = spw_fail(SPW_EIO, "%s: cannot be written", path);

cleanup:
    json_decref(model);
    spw_preset_close(&text);
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

spw_status spw_growth_case_make(const spw_growth_axis *axis, spw_growth_command command, size_t index,
                                spw_growth_files *files, spw_growth_words *out) {
    const spw_growth_part *part = &axis->part[command];
    char value[24], line[SPW_GROWTH_LINE];
    const meaning means[MEANINGS] = {
        {"value", "values", value},
        {"text", "texts", part->texts > 0 ? part->text[index] : NULL},
        {"model", "model", axis->model[0] != '\0' ? files->model.temporary : NULL},
        {"trace", "trace", part->trace[0] != '\0' ? files->trace.temporary : NULL}};
    static const char *const begin[SPW_GROWTH_COMMANDS] = {"spillway plan", "spillway replay $trace",
                                                           "spillway plan --search"};
    spw_status status = SPW_OK;
    (void)snprintf(value, sizeof value, "%zu", part->value[index]);
    if (axis->model[0] != '\0') SPW_TRY(make_model(axis, means, files->model.temporary));
    if (part->trace[0] != '\0') {
        SPW_TRY(expand(part->trace, means, line));
        SPW_TRY(make_trace(line, files));
    }
    const int length = snprintf(line, sizeof line, "%s %s", begin[command], part->words);
    if (length < 0 || (size_t)length >= sizeof line)
        SPW_TRY(spw_fail(SPW_ECONFIG, "words of more than %d bytes", SPW_GROWTH_LINE));
    SPW_TRY(expand(line, means, out->line));
    SPW_TRY(cut(out));

cleanup:
    return status == SPW_OK ? SPW_OK
                            : spw_fail_within(status, "axis %s, %s at %zu", axis->name,
                                              spw_growth_command_names[command], part->value[index]);
}
