#include "sim/cluster.h"

#include "sim/preset.h"
#include "sim/settings.h"

#include <string.h>

#define EVIDENCE_TEXT(name, text) text,
const char *spw_evidence_name(spw_evidence evidence) {
    static const char *const names[] = {SPW_EVIDENCE_LIST(EVIDENCE_TEXT)};
    return (unsigned)evidence < SPW_EVIDENCE_COUNT ? names[evidence] : "?";
}

#define EVIDENCE_CHOICE(name, text) {text, SPW_EVIDENCE_##name},
static const spw_choice evidences[] = {SPW_EVIDENCE_LIST(EVIDENCE_CHOICE){NULL, 0}};

/* The rows of one figure; only the range of the value differs. */
#define FIGURE_ROWS(name, low, high, text) \
    static const spw_setting name##_rows[] = {{.key = "value", \
                                               .kind = SPW_SETTING_REAL, \
                                               .offset = offsetof(spw_figure, value), \
                                               .minimum = (low), \
                                               .maximum = (high), \
                                               .help = (text)}, \
                                              {.key = "evidence", \
                                               .kind = SPW_SETTING_CHOICE, \
                                               .offset = offsetof(spw_figure, evidence), \
                                               .size = sizeof(spw_evidence), \
                                               .choices = evidences, \
                                               .help = "how we know the value"}, \
                                              {.key = "source", \
                                               .kind = SPW_SETTING_TEXT, \
                                               .offset = offsetof(spw_figure, source), \
                                               .size = SPW_FIGURE_SOURCE, \
                                               .help = "where the value was read or measured"}, \
                                              {.key = NULL}}

FIGURE_ROWS(hbm_gib, 1, 1e5, "GiB of device memory that a program sees, per GPU");
FIGURE_ROWS(bf16_flops, 1e9, 1e18, "dense bf16 peak per GPU, in FLOP/s");
FIGURE_ROWS(fp8_flops, 1e9, 1e18, "dense fp8 peak per GPU, in FLOP/s");
FIGURE_ROWS(hbm_bytes_per_s, 1e6, 1e15, "device memory bandwidth per GPU, in bytes/s");
FIGURE_ROWS(link_bytes_per_s, 1e6, 1e15, "one GPU to its node, one direction, in bytes/s");
FIGURE_ROWS(nic_bytes_per_s, 1e6, 1e15, "one GPU to other nodes, one direction, in bytes/s");
FIGURE_ROWS(launch_s, 0, 1, "seconds to launch one kernel");

#define FIGURE(name, text) \
    { \
        .key = #name, .kind = SPW_SETTING_GROUP, .offset = offsetof(spw_cluster, name), \
        .fields = name##_rows, .help = (text) \
    }

static const spw_setting rows[] = {{.key = "name",
                                    .kind = SPW_SETTING_TEXT,
                                    .offset = offsetof(spw_cluster, name),
                                    .size = SPW_CLUSTER_NAME,
                                    .help = "name of the cluster"},
                                   {.key = "nodes",
                                    .kind = SPW_SETTING_COUNT,
                                    .offset = offsetof(spw_cluster, nodes),
                                    .minimum = 1,
                                    .maximum = 65536,
                                    .help = "machines"},
                                   {.key = "gpus_per_node",
                                    .kind = SPW_SETTING_COUNT,
                                    .offset = offsetof(spw_cluster, gpus_per_node),
                                    .minimum = 1,
                                    .maximum = 1024,
                                    .help = "GPUs a machine"},
                                   FIGURE(hbm_gib, "GiB of device memory that a program sees"),
                                   FIGURE(bf16_flops, "dense bf16 peak"),
                                   FIGURE(fp8_flops, "dense fp8 peak"),
                                   FIGURE(hbm_bytes_per_s, "device memory bandwidth"),
                                   FIGURE(link_bytes_per_s, "link inside a node"),
                                   FIGURE(nic_bytes_per_s, "link between nodes"),
                                   FIGURE(launch_s, "launch of a kernel"),
                                   {.key = NULL}};

static const char *const suffixes[] = {".yaml", ".yml", NULL};

spw_status spw_cluster_parse(const char *where, const char *text, size_t length, spw_cluster *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    spw_settings_close(settings);
    return status;
}

spw_status spw_cluster_read(const char *name, const char *folder, spw_cluster *out) {
    const spw_preset_kind kind = {"cluster", "a cluster's YAML file", spw_cluster_files, suffixes};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, name, folder, &text);
    if (status != SPW_OK) return status;
    status = spw_cluster_parse(text.where, text.text, text.length, out);
    spw_preset_close(&text);
    return status;
}

const char *const *spw_cluster_presets(void) { return spw_cluster_names; }

void spw_cluster_describe(FILE *out) { spw_settings_describe(rows, out); }
