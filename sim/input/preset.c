#include "sim/input/preset.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/input/nearest.h"
#include "sim/input/settings.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_path(const spw_preset_kind *kind, const char *name) {
    if (strchr(name, '/') != NULL) return true;
    for (size_t i = 0; kind->suffixes[i] != NULL; i++) {
        size_t length = strlen(name), tail = strlen(kind->suffixes[i]);
        if (length > tail && strcmp(name + length - tail, kind->suffixes[i]) == 0) return true;
    }
    return false;
}

static spw_status open_file(const char *name, const char *folder, spw_preset_text *out) {
    spw_status status = SPW_OK;
    bool joined = folder != NULL && folder[0] != '\0' && name[0] != '/';
    size_t size = strlen(name) + (joined ? strlen(folder) + 1 : 0) + 1;
    SPW_TRY(SPW_ALLOC(size, &out->path));
    (void)snprintf(out->path, size, "%s%s%s", joined ? folder : "", joined ? "/" : "", name);
    out->where = out->path;
    SPW_TRY(spw_file_read(out->path, SPW_SETTINGS_BYTES, &out->content, &out->length));
    out->text = out->content;

cleanup:
    if (status != SPW_OK) spw_preset_close(out);
    return status;
}

spw_status spw_preset_open(const spw_preset_kind *kind, const char *name, const char *folder,
                           spw_preset_text *out) {
    char known[1024] = "", guess[96] = "";
    size_t used = 0;
    spw_nearest nearest = {.text = name};
    *out = (spw_preset_text){.where = NULL};
    for (const spw_preset *file = kind->files; file->name != NULL; file++) {
        if (strcasecmp(file->name, name) == 0) { /* MiniMax-M2, too */
            *out = (spw_preset_text){.where = file->name, .text = file->text, .length = file->length};
            return SPW_OK;
        }
        spw_nearest_offer(&nearest, file->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used == 0 ? "" : ", ",
                                     file->name);
    }
    if (is_path(kind, name)) return open_file(name, folder, out);
    char shown[SPW_SETTINGS_SHOWN];
    if (nearest.best != NULL) (void)snprintf(guess, sizeof guess, "did you mean '%s'? ", nearest.best);
    return spw_fail(SPW_ECONFIG, "%s '%s' is unknown; %spresets: %s; or give the path of %s", kind->what,
                    spw_settings_shown(name, strlen(name), shown), guess, known, kind->file_words);
}

void spw_preset_close(spw_preset_text *text) {
    spw_free(text->path);
    spw_free(text->content);
    *text = (spw_preset_text){.where = NULL};
}
