#include "sim/read/preset.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "sim/read/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_path(const spw_preset_kind *kind, const char *name) {
    if (strchr(name, '/') != NULL) return true;
    for (size_t i = 0; kind->suffixes[i] != NULL; i++) {
        size_t length = strlen(name), tail = strlen(kind->suffixes[i]);
        if (length > tail && strcmp(name + length - tail, kind->suffixes[i]) == 0) return true;
    }
    return false;
}

static spw_status open_file(const spw_preset_kind *kind, const char *name, const char *folder,
                            spw_preset_text *out) {
    spw_status status = SPW_OK;
    bool joined = folder != NULL && folder[0] != '\0' && name[0] != '/';
    size_t size = strlen(name) + (joined ? strlen(folder) + 1 : 0) + 1;
    SPW_TRY(SPW_ALLOC(size, &out->path));
    (void)snprintf(out->path, size, "%s%s%s", joined ? folder : "", joined ? "/" : "", name);
    out->where = out->path;
    SPW_TRY(spw_file_read(out->path, kind->most_bytes > 0 ? kind->most_bytes : SPW_SETTINGS_BYTES,
                          &out->content, &out->length));
    out->text = out->content;

cleanup:
    if (status != SPW_OK) spw_preset_close(out);
    return status;
}

/* How a file of another kind begins, and what it is. */
static const struct {
    const char *begins;
    size_t length;
    const char *what;
} other_kinds[] = {
    {"GGUF", 4, "a GGUF of weights"},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file, as traces and results are"},
    {"PK\x03\x04", 4, "an archive, as PyTorch's weights and .npz are"},
    {"\x93NUMPY", 6, "an array of NumPy"},
    {"\x80", 1, "a pickle, as PyTorch's older weights are"},
    {"\x1f\x8b", 2, "packed by gzip"},
};

/* What the file at `path` is where its beginning tells; NULL: it cannot be read, or may be text. */
const char *spw_preset_other_kind(const char *path) {
    char head[16] = "";
    struct stat entry;
    if (stat(path, &entry) != 0 || !S_ISREG(entry.st_mode)) return NULL; /* what a pipe gives is gone */
    FILE *file = fopen(path, "rb");
    if (file == NULL) return NULL;
    const size_t bytes = fread(head, 1, sizeof head, file);
    (void)fclose(file);
    for (size_t i = 0; i < sizeof other_kinds / sizeof *other_kinds; i++)
        if (bytes >= other_kinds[i].length && memcmp(head, other_kinds[i].begins, other_kinds[i].length) == 0)
            return other_kinds[i].what;
    /* safetensors: the length of its header, then the header */
    return bytes > 9 && head[8] == '{' && head[6] == '\0' && head[7] == '\0' ? "a safetensors file of weights"
                                                                             : NULL;
}

spw_status spw_preset_open(const spw_preset_kind *kind, const char *name, const char *folder,
                           spw_preset_text *out) {
    char known[1024] = "", guess[160] = "", begins[120] = "";
    size_t used = 0;
    spw_nearest nearest = {.text = name};
    *out = (spw_preset_text){.where = NULL};
    for (const spw_preset *file = kind->files; file->name != NULL; file++) {
        if (strcasecmp(file->name, name) != 0) continue; /* MiniMax-M2, too */
        *out = (spw_preset_text){.where = file->name, .text = file->text, .length = file->length};
        return SPW_OK;
    }
    for (const spw_preset *file = kind->files; file->name != NULL; file++) {
        spw_nearest_offer_name(&nearest, file->name);
        const size_t begun = strlen(begins);
        if (strlen(name) >= 3 && strncasecmp(file->name, name, strlen(name)) == 0 &&
            begun + strlen(file->name) + 8 < sizeof begins)
            (void)snprintf(begins + begun, sizeof begins - begun, "%s'%s'", begun > 0 ? " or " : "",
                           file->name);
        if (used < sizeof known)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used == 0 ? "" : ", ",
                                     file->name);
    }
    const bool path = is_path(kind, name);
    struct stat entry;
    const bool there = (folder == NULL || name[0] == '/') && stat(name, &entry) == 0;
    const char *const other = there ? spw_preset_other_kind(name) : NULL;
    if (other != NULL)
        return spw_fail(SPW_ECONFIG, "%s: %s; %s %s is %s: give that file's path, or the name of a preset",
                        name, other, strchr("aeiou", kind->what[0]) != NULL ? "an" : "a", kind->what,
                        kind->file_words);
    if (there && S_ISDIR(entry.st_mode))
        return spw_fail(SPW_ECONFIG, "%s: a folder; give the path of %s in it", name, kind->file_words);
    if (path && folder == NULL && strchr(name, '/') == NULL &&
        !there) { /* a preset's name with a file's ending */
        for (const spw_preset *file = kind->files; file->name != NULL; file++)
            if (strlen(file->name) == strcspn(name, ".") &&
                strncasecmp(file->name, name, strlen(file->name)) == 0)
                return spw_fail(SPW_ECONFIG, "%s: no such file; the preset is called '%s'", name, file->name);
    }
    if (path) return open_file(kind, name, folder, out);
    const char *const dot = strrchr(name, '.');
    if (!there && folder == NULL && dot != NULL && nearest.best == NULL && begins[0] == '\0' &&
        isalpha((unsigned char)dot[1]))
        return spw_fail(
            SPW_ECONFIG,
            "%s: no such file, and no preset; give the path of %s, or a preset's name (spillway help %ss)",
            name, kind->file_words, kind->what);
    if (there)
        return spw_fail(SPW_ECONFIG, "%s '%s' is no preset; to read the file of that name, write ./%s",
                        kind->what, name, name);
    char shown[SPW_SETTINGS_SHOWN];
    if (nearest.best != NULL) (void)snprintf(guess, sizeof guess, "did you mean '%s'? ", nearest.best);
    if (begins[0] != '\0') (void)snprintf(guess, sizeof guess, "did you mean %s? ", begins);
    return spw_fail(SPW_ECONFIG, "%s '%s' is unknown; %spresets: %s; or give the path of %s", kind->what,
                    spw_settings_shown(name, strlen(name), shown), guess, known, kind->file_words);
}

void spw_preset_close(spw_preset_text *text) {
    spw_free(text->path);
    spw_free(text->content);
    *text = (spw_preset_text){.where = NULL};
}
