/* A draft of a framework's file, whoever's it is. */
#include "base/file.h"
#include "base/memory.h"
#include "sim/frameworks/draft.h"
#include "sim/frameworks/framework.h"

#include <string.h>

spw_status spw_draft_parse(const char *where, const char *text, size_t length, const spw_framework *framework,
                           spw_draft *out) {
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    out->where = where;
    SPW_TRY(spw_file_entries_read(where, text, length, &out->entries));
    out->framework = framework != NULL ? framework : spw_framework_of(&out->entries);
    const size_t name = strlen(where);
    if (out->framework == NULL && name > 3 && strcmp(where + name - 3, ".py") == 0)
        return spw_fail(
            SPW_ECONFIG,
            "%s: a recipe in Python is not run, so not read; give the configuration that it prints or "
            "saves (docs/frameworks.md)",
            where);
    for (size_t i = 0; out->framework == NULL && i < out->entries.count; i++)
        if (strcmp(out->entries.entry[i].name, "model_type") == 0)
            return spw_fail(SPW_ECONFIG, "%s: the config.json of a model, and no job: --model %s", where,
                            where);
    if (out->framework == NULL)
        return spw_fail(
            SPW_ECONFIG,
            "%s: no framework's configuration is recognised in its %zu setting%s; known are %s; write "
            "--from NAME:FILE to say whose it is, or --job for a job of spillway's own",
            where, out->entries.count, out->entries.count == 1 ? "" : "s", spw_framework_names());
    status = spw_draft_fill(out);

cleanup:
    return status;
}

spw_status spw_draft_read(const char *path, const spw_framework *framework, spw_draft *out) {
    char *text = NULL;
    size_t length = 0;
    memset(out, 0, sizeof *out);
    spw_status status = spw_file_read(path, SPW_ENTRY_FILE_BYTES, &text, &length);
    if (status == SPW_OK) status = spw_draft_parse(path, text, length, framework, out);
    spw_free(text);
    return status;
}
