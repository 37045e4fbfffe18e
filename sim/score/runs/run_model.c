#include "sim/score/runs/run_model.h"

#include "sim/model/model.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 128 };
static const char suffix[] = ".json";

/* Letters in lower case and digits of the first `length` characters. */
static void fold(const char *text, size_t length, char out[NAME]) {
    size_t used = 0;
    for (size_t i = 0; i < length && text[i] != '\0' && used + 1 < NAME; i++)
        if (isalnum((unsigned char)text[i])) out[used++] = (char)tolower((unsigned char)text[i]);
    out[used] = '\0';
}

/* The folder models/ beside the table, with its last '/'. */
static spw_status folder_of(const char *table, char out[SPW_RUN_MODEL_PATH]) {
    const char *slash = strrchr(table, '/');
    const int length = slash != NULL ? (int)(slash - table) + 1 : 0;
    const int used = snprintf(out, SPW_RUN_MODEL_PATH, "%.*smodels/", length, table);
    if (used < 0 || used >= SPW_RUN_MODEL_PATH - NAME)
        return spw_fail(SPW_ECONFIG, "%.60s...: a path of more than %d characters", table,
                        SPW_RUN_MODEL_PATH - NAME);
    return SPW_OK;
}

/* folder_of() leaves room for a name. */
static void join(const char *folder, const char *name, char out[SPW_RUN_MODEL_PATH]) {
    const size_t length = (size_t)snprintf(out, SPW_RUN_MODEL_PATH - NAME, "%s", folder);
    (void)snprintf(out + length, SPW_RUN_MODEL_PATH - length, "%s", name);
}

static spw_status find_said(const char *folder, const char *said, char out[SPW_RUN_MODEL_PATH]) {
    if (strncmp(said, "models/", strlen("models/")) == 0) said += strlen("models/");
    if (strchr(said, '/') != NULL || strlen(said) >= NAME)
        return spw_fail(SPW_ECONFIG, "model '%.60s': write a preset, or a file of %s without its folder",
                        said, folder);
    join(folder, said, out);
    if (access(out, R_OK) != 0) (void)snprintf(out, SPW_RUN_MODEL_PATH, "%s", said);
    return SPW_OK;
}

/* Does the name begin with this one, and go on with neither letter nor digit? */
static bool begins(const char *name, const char *with) {
    while (*with != '\0') {
        if (!isalnum((unsigned char)*with)) {
            with++;
        } else if (!isalnum((unsigned char)*name)) {
            if (*name++ == '\0') return false;
        } else if (tolower((unsigned char)*name++) != tolower((unsigned char)*with++)) {
            return false;
        }
    }
    return !isalnum((unsigned char)*name);
}

static void find_file(const char *folder, const char *name, char out[SPW_RUN_MODEL_PATH]) {
    DIR *files = opendir(folder);
    size_t longest = 0;
    for (const struct dirent *f = files != NULL ? readdir(files) : NULL; f != NULL; f = readdir(files)) {
        const size_t length = strlen(f->d_name), end = sizeof suffix - 1;
        char stem[NAME];
        if (length <= end || length >= NAME || strcmp(f->d_name + length - end, suffix) != 0) continue;
        (void)snprintf(stem, sizeof stem, "%.*s", (int)(length - end), f->d_name);
        if (length <= longest || !begins(name, stem)) continue;
        longest = length;
        join(folder, f->d_name, out);
    }
    if (files != NULL) (void)closedir(files);
}

/* The preset whose whole name this is; else the only one that begins so. */
static const char *preset_of(const char *folded) {
    const char *const *presets = spw_model_presets(), *begun = NULL;
    size_t beginning = 0;
    for (size_t i = 0; presets[i] != NULL; i++) {
        char preset[NAME];
        fold(presets[i], NAME, preset);
        if (strcmp(preset, folded) == 0) return presets[i];
        if (folded[0] == '\0' || strncmp(preset, folded, strlen(folded)) != 0) continue;
        begun = presets[i];
        beginning++;
    }
    return beginning == 1 ? begun : NULL;
}

spw_status spw_run_model_find(const char *table, const char *said, const char *name,
                              char out[SPW_RUN_MODEL_PATH]) {
    char folder[SPW_RUN_MODEL_PATH], folded[NAME];
    spw_status status = folder_of(table, folder);
    if (status != SPW_OK) return status;
    if (said != NULL) return find_said(folder, said, out);
    out[0] = '\0';
    find_file(folder, name, out);
    if (out[0] != '\0') return SPW_OK;
    for (size_t end = strlen(name); end > 0;
         end--) { /* the whole of it, then what stands in front of a blank */
        const char *preset = NULL;
        if (name[end] != '\0' && name[end] != ' ') continue;
        fold(name, end, folded);
        preset = preset_of(folded);
        if (preset == NULL) continue;
        (void)snprintf(out, SPW_RUN_MODEL_PATH, "%s", preset);
        return SPW_OK;
    }
    return spw_fail(SPW_ECONFIG,
                    "model '%.60s' is no preset and no file of %s; a command with --model names one", name,
                    folder);
}
