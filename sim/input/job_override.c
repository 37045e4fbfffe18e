#include "sim/input/job_override.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_SIZE = 2000, PATH_SIZE = 128 };

/* The row of "batch.sequence_length"; NULL when there is none, which is refused with its neighbours when the job is read. */
static const spw_setting *row_of(const char *path) {
    const spw_setting *row = spw_job_settings();
    for (;;) {
        const size_t length = strcspn(path, ".");
        while (row->key != NULL && (strlen(row->key) != length || strncmp(row->key, path, length) != 0))
            row++;
        if (row->key == NULL || path[length] == '\0') return row->key != NULL ? row : NULL;
        if (row->kind != SPW_SETTING_GROUP) return NULL;
        path += length + 1;
        row = row->fields;
    }
}

/* bf16 for weights, gradients, optimizer and activations: all keys that take what the first of the group takes. */
static spw_status put_word(spw_settings *settings, const spw_setting *group, const char *word,
                           const char *label) {
    spw_status status = SPW_OK;
    for (const spw_setting *row = group->fields; status == SPW_OK && row->key != NULL; row++) {
        char path[PATH_SIZE];
        if (row->choices != group->fields->choices || row->kind != SPW_SETTING_CHOICE) continue;
        (void)snprintf(path, sizeof path, "%s.%s", group->key, row->key);
        status = spw_settings_put(settings, path, word, label);
    }
    return status;
}

/* A file's `precision: bf16` becomes the mapping that it stands for, so that one of its keys can be put. */
static spw_status open_word(spw_settings *settings, const spw_job_override *o) {
    char key[PATH_SIZE], word[64];
    (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(o->key, "."), o->key);
    const spw_setting *group = row_of(key);
    const char *text = spw_settings_word(settings, key);
    if (text == NULL || group == NULL || group->kind != SPW_SETTING_GROUP ||
        group->fields->kind != SPW_SETTING_CHOICE || strlen(text) >= sizeof word)
        return SPW_OK;
    (void)snprintf(word, sizeof word, "%s", text);
    const spw_status status = spw_settings_put(settings, key, "{}", o->label);
    return status == SPW_OK ? put_word(settings, group, word, o->label) : status;
}

static spw_status put(spw_settings *settings, const spw_job_override *o) {
    const spw_setting *row = row_of(o->key);
    char list[VALUE_SIZE];
    const bool bare = o->value[0] != '[' && o->value[0] != '{';
    if (row != NULL && row->kind == SPW_SETTING_GROUP && bare && row->fields->kind == SPW_SETTING_CHOICE)
        return put_word(settings, row, o->value, o->label);
    if (row == NULL || (row->kind != SPW_SETTING_COUNTS && row->kind != SPW_SETTING_TEXTS) || !bare)
        return spw_settings_put(settings, o->key, o->value, o->label);
    if (strlen(o->value) + 3 > sizeof list)
        return spw_fail(SPW_ECONFIG, "%.60s...: a value of more than %d characters", o->label,
                        VALUE_SIZE - 3);
    (void)snprintf(list, sizeof list, "[%s]", o->value);
    return spw_settings_put(settings, o->key, list, o->label);
}

spw_status spw_job_overrides_put(spw_settings *settings, const spw_job_override *override, size_t overrides) {
    static const char *const sizes[] = {"cluster",         "gpus",
                                        "parallel.expert", "parallel.pipeline",
                                        "parallel.tensor", "parallel.expert_tensor"};
    spw_status status = SPW_OK;
    const spw_job_override *sized = NULL;
    bool fsdp = false;
    for (size_t i = 0; status == SPW_OK && i < overrides; i++) {
        const char *key = override[i].key;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            if (strcmp(key, sizes[k]) == 0) sized = &override[i];
        fsdp = fsdp || strcmp(key, "parallel.fsdp") == 0 || strcmp(key, "parallel") == 0;
        status = open_word(settings, &override[i]);
        if (status == SPW_OK) status = put(settings, &override[i]);
    }
    if (status == SPW_OK && sized != NULL && !fsdp)
        status = spw_settings_put(settings, "parallel.fsdp", "0", sized->label);
    return status;
}
