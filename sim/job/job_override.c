#include "sim/job/job_override.h"

#include "sim/job/grid.h"
#include "sim/read/settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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
    const char *text = spw_settings_text(settings, key);
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
    if (row != NULL && row->kind == SPW_SETTING_TEXT && !bare &&
        strchr(o->value, '\'') == NULL) { /* a model's JSON */
        if (strlen(o->value) + 3 > sizeof list)
            return spw_fail(SPW_ECONFIG, "%.60s...: a value of more than %d characters", o->label,
                            VALUE_SIZE - 3);
        (void)snprintf(list, sizeof list, "'%s'", o->value);
        return spw_settings_put(settings, o->key, list, o->label);
    }
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

/* Sizes that are worked out anew (`unsaid`) because one of `causes` was given and they were not: what the file says of them was said of
 * another split. */
static const struct {
    const char *size, *unsaid, *causes[7];
} implied_sizes[SPW_IMPLIED_SIZES] = {
    {"parallel.fsdp",
     "0",
     {"cluster", "gpus", "parallel.expert", "parallel.pipeline", "parallel.tensor",
      "parallel.expert_tensor"}},
    {"parallel.expert", "0", {"parallel.fsdp"}},
    {"parallel.data", "0", {"cluster", "gpus", "parallel.pipeline", "parallel.tensor", "parallel.context"}},
    {"batch.sequences_per_gpu", "[]", {"batch.global_batch"}},
    {"batch.global_batch", "0", {"batch.sequences_per_gpu"}},
};

/* The last override of a key, or of a group that it is in; NULL: none. */
static const spw_job_override *last_of(const spw_job_override *override, size_t overrides, const char *key) {
    while (overrides-- > 0) {
        const char *given = override[overrides].key;
        const size_t length = strlen(given);
        if (strncmp(given, key, length) == 0 && (key[length] == '\0' || key[length] == '.'))
            return &override[overrides];
    }
    return NULL;
}

spw_status spw_job_given_put(spw_settings *settings, const spw_job_override *given, size_t givens) {
    spw_status status = SPW_OK;
    for (size_t i = 0; status == SPW_OK && i < givens; i++) {
        status = open_word(settings, &given[i]);
        if (status == SPW_OK) status = put(settings, &given[i]);
    }
    return status;
}

spw_status spw_job_overrides_put(spw_settings *settings, const spw_job_override *override, size_t overrides,
                                 spw_implied_sizes *implied) {
    spw_status status = SPW_OK;
    *implied = (spw_implied_sizes){.given = {0}};
    status = spw_job_given_put(settings, override, overrides);
    for (size_t i = 0; status == SPW_OK && i < SPW_IMPLIED_SIZES; i++) {
        const spw_job_override *cause = NULL;
        for (const char *const *key = implied_sizes[i].causes; *key != NULL && cause == NULL; key++)
            cause = last_of(override, overrides, *key);
        if (cause == NULL || last_of(override, overrides, implied_sizes[i].size) != NULL) continue;
        const char *given = spw_settings_text(settings, implied_sizes[i].size);
        implied->given[i] = given != NULL ? strtoull(given, NULL, 10) : 0;
        implied->label[i] = cause->label;
        status = spw_settings_put(settings, implied_sizes[i].size, implied_sizes[i].unsaid, cause->label);
    }
    return status;
}

void spw_job_say_implied(const spw_implied_sizes *implied, spw_job *job) {
    const size_t now[SPW_IMPLIED_SIZES] = {job->fsdp, job->expert, spw_grid_of(job).data,
                                           job->sequences_per_gpu[0], job->global_batch};
    job->implied[0] = '\0';
    for (size_t i = 0; i < SPW_IMPLIED_SIZES; i++) {
        const size_t used = strlen(job->implied);
        if (implied->given[i] == 0 || implied->given[i] == now[i]) continue;
        const char *size = strchr(implied_sizes[i].size, '.') + 1;
        if (now[i] == 0) /* a batch: another key says it */
            (void)snprintf(job->implied + used, sizeof job->implied - used,
                           "%sthe batch is that of %.60s, and the file's %s %zu does not count",
                           used > 0 ? "; " : "", implied->label[i], size, implied->given[i]);
        else
            (void)snprintf(job->implied + used, sizeof job->implied - used,
                           "%s%s %zu is what %.60s leaves, not the file's %zu", used > 0 ? "; " : "", size,
                           now[i], implied->label[i], implied->given[i]);
    }
}
