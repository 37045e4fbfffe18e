#include "sim/command/bench/cluster_link.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/machine/cluster.h"
#include "sim/read/preset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The cluster's text without its key `link`, then the measured one. */
static spw_status write_cluster(const spw_preset_text *cluster, const spw_link_curve *curve, FILE *out) {
    bool skipped = false;
    for (const char *at = cluster->text, *end = at + cluster->length; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)),
                   *next = newline == NULL ? end : newline + 1;
        if (*at != ' ' && *at != '#') skipped = strncmp(at, "link:", 5) == 0;
        if (!skipped) (void)fprintf(out, "%.*s%s", (int)(next - at), at, newline == NULL ? "\n" : "");
        at = next;
    }
    return spw_link_curve_write(curve, out);
}

static spw_status print(FILE *out, const void *text) {
    return fputs(text, out) != EOF ? SPW_OK : spw_fail(SPW_EIO, "the cluster cannot be written");
}

spw_status spw_cluster_link_save(const char *cluster, const spw_link_curve *curve, const char *path) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"cluster", "a cluster's YAML file", spw_cluster_files, suffixes, 0};
    spw_preset_text text = {.path = NULL};
    spw_cluster parsed;
    char *memory = NULL;
    size_t length = 0;
    FILE *out = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_preset_open(&kind, cluster, NULL, &text));
    out = open_memstream(&memory, &length);
    if (out == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "a buffer for the cluster: %s", strerror(errno)));
    status = write_cluster(&text, curve, out);
    if (fclose(out) != 0 || status != SPW_OK) SPW_TRY(spw_fail(SPW_ENOMEM, "a buffer for the cluster"));
    SPW_TRY(spw_cluster_parse(path, memory, length, &parsed)); /* what is written can be read */
    SPW_TRY(spw_file_print(path, print, memory));
cleanup:
    spw_preset_close(&text);
    free(memory);
    return status;
}
