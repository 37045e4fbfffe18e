#include "sim/machine/megatron_coefficients.h"

#include "base/file.h"
#include "sim/machine/stack_settings.h"
#include "sim/machine/time_stack.h"
#include "sim/read/preset.h"
#include "sim/read/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FITTED_ROW(field, start, low, high, spread, help) \
    {#field, help, offsetof(spw_megatron_coefficients, field), start, low, high, spread},
#define GIVEN_ROW(field, low, high, help) \
    {#field, help, offsetof(spw_megatron_coefficients, field), 0, low, high, 0},
const spw_megatron_coefficient_row spw_megatron_coefficient_rows[SPW_MEGATRON_COEFFICIENTS] = {
    SPW_MEGATRON_FITTED_LIST(FITTED_ROW) SPW_MEGATRON_GIVEN_LIST(GIVEN_ROW) SPW_MEGATRON_JOB_LIST(GIVEN_ROW)};

spw_coefficient *spw_megatron_coefficient(spw_megatron_coefficients *c, size_t row) {
    return (spw_coefficient *)(void *)((char *)c + spw_megatron_coefficient_rows[row].offset);
}

const spw_coefficient *spw_megatron_coefficient_of(const spw_megatron_coefficients *c, size_t row) {
    return (const spw_coefficient *)(const void *)((const char *)c +
                                                   spw_megatron_coefficient_rows[row].offset);
}

/* --- Keys --- */

/* Only the range of the value differs. */
#define FIELDS(field, low, high, text) \
    static const spw_setting field##_rows[] = SPW_COEFFICIENT_KEYS(low, high, high, text);
#define FITTED_FIELDS(field, start, low, high, spread, help) FIELDS(field, low, high, help)
SPW_MEGATRON_FITTED_LIST(FITTED_FIELDS)
SPW_MEGATRON_GIVEN_LIST(FIELDS)
SPW_MEGATRON_JOB_LIST(FIELDS)
SPW_MEGATRON_DEFAULT_LIST(FIELDS)

#define SETTING(field, text) \
    SPW_STACK_COEFFICIENT(spw_megatron_coefficients, #field, field, field##_rows, text),
#define FITTED_SETTING(field, start, low, high, spread, help) SETTING(field, help)
#define GIVEN_SETTING(field, low, high, help) SETTING(field, help)
#define DEFAULT_SETTING(field, low, high, help) \
    SPW_STACK_DEFAULT_COEFFICIENT(spw_megatron_coefficients, #field, field, field##_rows, help),

#define LINE(field, length, text) SPW_STACK_LINE(spw_megatron_coefficients, field, length, text)
#define COUNT(field, text) SPW_STACK_COUNT(spw_megatron_coefficients, field, text)
static const spw_choice parts[] = {{"expert_layers", SPW_MEGATRON_EXPERT_LAYERS},
                                   {"whole", SPW_MEGATRON_WHOLE},
                                   {"few", SPW_MEGATRON_FEW},
                                   {"plain", SPW_MEGATRON_PLAIN},
                                   {NULL, 0}};
static const spw_setting rows[] = {
    LINE(name, SPW_STACK_NAME, "name of the stack"),
    LINE(tables, SPW_STACK_TEXT, "what it was fitted on"),
    LINE(cluster, SPW_STACK_TEXT,
         "cluster whose figures the measured machine has: a preset, or a file, from the stack's own folder "
         "on"),
    SPW_STACK_OPTIONAL_LINE(spw_megatron_coefficients, gpus, SPW_STACK_TEXT,
                            "presets of other GPUs whose runs are in the fit: not wider for the scaling"),
    SPW_STACK_OPTIONAL_LINE(spw_megatron_coefficients, release, SPW_STACK_NAME, "release of Megatron-Core"),
    {.key = "part",
     .kind = SPW_SETTING_CHOICE,
     SPW_SETTING_CHOICE_OF(spw_megatron_coefficients, part, spw_megatron_part),
     .choices = parts,
     .fallback = "expert_layers",
     .help = "what the jobs train that it is taken for by itself: a whole model, or bare expert layers; few: "
             "whole models on fewer GPUs than a node has; "
             "plain: whole "
             "models without TransformerEngine, for none by itself"},
    LINE(expert_parallel, SPW_STACK_TEXT, "expert-parallel sizes of those tables"),
    COUNT(tokens_min, "fewest tokens a rank of those tables"),
    COUNT(tokens_max, "most tokens a rank of those tables"),
    SPW_MEGATRON_FITTED_LIST(FITTED_SETTING) SPW_MEGATRON_GIVEN_LIST(GIVEN_SETTING)
        SPW_MEGATRON_JOB_LIST(GIVEN_SETTING) SPW_MEGATRON_DEFAULT_LIST(DEFAULT_SETTING){.key = NULL}};

/* --- Reading and writing --- */

spw_status spw_megatron_coefficients_parse(const char *where, const char *text, size_t length,
                                           spw_megatron_coefficients *out) {
    spw_settings *settings = NULL;
    memset(out, 0, sizeof *out);
#define FILL(field, ...) out->field = spw_default_##field;
    SPW_MEGATRON_DEFAULT_LIST(FILL)
#undef FILL
    spw_status status = spw_settings_open(where, text, length, &settings);
    if (status == SPW_OK) status = spw_settings_read(settings, rows, out);
    spw_settings_close(settings);
    return status;
}

/* A cluster's file is named as the stack's own file sees it; from here on as everybody does. */
static spw_status settle_cluster(const char *path, spw_megatron_coefficients *c) {
    char cluster[SPW_STACK_TEXT];
    const char *slash = strrchr(path, '/'), *dot = strrchr(c->cluster, '.');
    const bool is_file = strchr(c->cluster, '/') != NULL ||
                         (dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0));
    if (!is_file || c->cluster[0] == '/' || slash == NULL) return SPW_OK;
    (void)snprintf(cluster, sizeof cluster, "%s", c->cluster);
    const int length =
        snprintf(c->cluster, sizeof c->cluster, "%.*s%s", (int)(slash - path) + 1, path, cluster);
    if (length < 0 || (size_t)length >= sizeof c->cluster)
        return spw_fail(SPW_ECONFIG, "%s: 'cluster' with the folder before it has %d characters; at most %zu",
                        path, length, sizeof c->cluster - 1);
    return SPW_OK;
}

static spw_status parse_any(const char *where, const char *text, size_t length, void *out) {
    return spw_megatron_coefficients_parse(where, text, length, out);
}

spw_status spw_megatron_coefficients_read(const char *name, const char *folder,
                                          spw_megatron_coefficients *out) {
    static const char *const suffixes[] = {".yaml", ".yml", NULL};
    const spw_preset_kind kind = {"stack of measured runs", "its YAML file", spw_megatron_files, suffixes, 0};
    spw_preset_text text;
    spw_status status = spw_preset_open(&kind, name, folder, &text);
    if (status != SPW_OK) return status;
    status = spw_preset_parse(&text, parse_any, sizeof *out, out);
    if (status == SPW_OK && text.path != NULL) status = settle_cluster(text.path, out);
    spw_preset_close(&text);
    return status;
}

static void scale(spw_megatron_coefficients *c, spw_coefficient *const *list, double ratio) {
    for (; *list != NULL; list++) (*list)->value *= ratio;
    c->scaled = c->scaled || ratio < 1.0 || ratio > 1.0;
}

/* What dense products reach in programs that were fitted on AMD's GPUs. */
static spw_status find_dense_shares(spw_megatron_origin *origin) {
    for (const char *const *name = spw_time_stack_presets(); *name != NULL; name++) {
        spw_time_stack stack;
        spw_cluster fitted;
        char cluster[SPW_STACK_TEXT];
        spw_status status = spw_time_stack_read(*name, NULL, &stack);
        if (status != SPW_OK) return status;
        (void)snprintf(cluster, sizeof cluster, "%.*s", (int)strcspn(stack.clusters, " "), stack.clusters);
        if (stack.dense_share.evidence != SPW_EVIDENCE_FITTED) continue;
        status = spw_cluster_read(cluster, NULL, &fitted);
        if (status != SPW_OK) return spw_fail_within(status, "stack %s: cluster", stack.name);
        if (fitted.gpu_vendor != SPW_VENDOR_AMD) continue;
        if (origin->amd_stacks == SPW_MEGATRON_AMD_STACKS)
            return spw_fail(SPW_ECONFIG, "more than %d stacks of compiled programs of AMD's GPUs",
                            SPW_MEGATRON_AMD_STACKS);
        (void)snprintf(origin->amd[origin->amd_stacks].name, SPW_STACK_NAME, "%s", *name);
        origin->amd[origin->amd_stacks].gpu = spw_gpu_of(&fitted);
        origin->amd[origin->amd_stacks++].dense_share = stack.dense_share;
    }
    return SPW_OK;
}

/* The share that was fitted on the GPU nearest to the cluster's. */
static void take_dense_share(spw_megatron_coefficients *c, const spw_cluster *cluster) {
    const spw_gpu gpu = spw_gpu_of(cluster);
    spw_stack_claim best = {.name = ""};
    for (size_t i = 0; i < c->origin.amd_stacks; i++) {
        spw_stack_claim claim = {.distance = spw_stack_distance_of(&gpu, &c->origin.amd[i].gpu)};
        (void)snprintf(claim.name, sizeof claim.name, "%s", c->origin.amd[i].name);
        if (best.name[0] != '\0' && !spw_stack_claim_is_better(&claim, &best)) continue;
        best = claim;
        c->dense_flops_share = c->origin.amd[i].dense_share;
        (void)snprintf(c->dense_from, sizeof c->dense_from, "%s", claim.name);
    }
}

spw_status spw_megatron_coefficients_locate(spw_megatron_coefficients *c) {
    spw_cluster measured;
    spw_status status = spw_cluster_read(c->cluster, NULL, &measured);
    if (status != SPW_OK) return spw_fail_within(status, "stack %s: cluster", c->name);
    c->origin = (spw_megatron_origin){.bf16_flops = measured.bf16_flops.value,
                                      .hbm_bytes_per_s = measured.hbm_bytes_per_s.value,
                                      .link_bytes_per_s = measured.link_bytes_per_s.value,
                                      .nic_bytes_per_s = measured.nic_bytes_per_s.value,
                                      .watts = measured.gpu_watts.value,
                                      .vendor = spw_gpu_of(&measured).vendor,
                                      .generation = measured.gpu_generation};
    c->nic_bytes_per_s = c->origin.nic_bytes_per_s;
    status = find_dense_shares(&c->origin);
    c->origin.known = status == SPW_OK;
    return status;
}

/* Long products run at the GPU's power limit, below its highest clock. One with less power and as much of it for each of its products or
 * more, as an H20 beside an H100, is not held back further. */
static void scale_power(spw_megatron_coefficients *c, const spw_cluster *cluster) {
    const double watts = cluster->gpu_watts.value, ratio = watts / c->origin.watts,
                 each = ratio / (cluster->bf16_flops.value / c->origin.bf16_flops);
    if (!(watts > 0.0) || !(c->origin.watts > 0.0) || cluster->gpu_generation != c->origin.generation) return;
    if (ratio < 1.0 && each >= 1.0) return;
    c->peak_flops.value *= pow(ratio, c->power_share.value);
}

spw_status spw_megatron_coefficients_scale(const spw_megatron_coefficients *c, const spw_cluster *cluster,
                                           spw_megatron_coefficients *out) {
    *out = *c;
    if (!out->origin.known) {
        const spw_status status = spw_megatron_coefficients_locate(out);
        if (status != SPW_OK) return status;
    }
    const spw_megatron_origin *from = &out->origin;
    spw_coefficient *const products[] = {&out->peak_flops, &out->router_flops, NULL},
                           *const memory[] = {&out->main_grad_bytes_per_s, &out->slots_bytes_per_s,
                                              &out->copy_bytes_per_s,      &out->scatter_bytes_per_s,
                                              &out->index_add_bytes_per_s, NULL},
                           *const links[] = {&out->exchange_bytes_per_s, &out->token_bytes_per_s,
                                             &out->sorted_bytes_per_s, NULL},
                           *const nics[] = {&out->network_bytes_per_s, NULL};
    const double link = cluster->link_bytes_per_s.value / from->link_bytes_per_s;
    scale(out, products, cluster->bf16_flops.value / from->bf16_flops);
    scale_power(out, cluster);
    scale(out, memory, cluster->hbm_bytes_per_s.value / from->hbm_bytes_per_s);
    scale(out, links, link);
    scale(out, nics, cluster->nic_bytes_per_s.value / from->nic_bytes_per_s);
    out->nic_bytes_per_s = cluster->nic_bytes_per_s.value;
    out->seen = spw_gpu_is_of(cluster->name, out->gpus);
    out->foreign = cluster->gpu_generation != from->generation || spw_gpu_of(cluster).vendor != from->vendor;
    if (link < 1.0 || link > 1.0) out->long_message_share.value = 1.0;
    if (cluster->gpu_vendor != SPW_VENDOR_AMD || from->vendor == SPW_VENDOR_AMD) return SPW_OK;
    take_dense_share(out, cluster);
    return SPW_OK;
}

const char *const *spw_megatron_coefficients_presets(void) { return spw_megatron_names; }

static void put(FILE *file, const char *key, const spw_coefficient *c) {
    fprintf(file, "%s:\n  value: %.6g\n", key, c->value);
    if (c->uncertainty > 0) fprintf(file, "  uncertainty: %.2g\n", c->uncertainty);
    fprintf(file, "  evidence: %s\n  source: \"%s\"\n", spw_evidence_name(c->evidence), c->source);
}

static spw_status print(FILE *out, const void *what) {
    const spw_megatron_coefficients *c = what;
    fprintf(out, "# Written by spillway calibrate time.\nname: %s\ntables: \"%s\"\ncluster: %s\n", c->name,
            c->tables, c->cluster);
    if (c->gpus[0] != '\0') fprintf(out, "gpus: \"%s\"\n", c->gpus);
    if (c->release[0] != '\0') fprintf(out, "release: \"%s\"\n", c->release);
    fprintf(out, "part: %s\n", parts[c->part].name);
    fprintf(out, "expert_parallel: \"%s\"\ntokens_min: %zu\ntokens_max: %zu\n", c->expert_parallel,
            c->tokens_min, c->tokens_max);
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++)
        put(out, spw_megatron_coefficient_rows[i].key, spw_megatron_coefficient_of(c, i));
#define PUT(field, ...) \
    if (!spw_coefficient_is(&c->field, &spw_default_##field)) put(out, #field, &c->field);
    SPW_MEGATRON_DEFAULT_LIST(PUT)
#undef PUT
    return SPW_OK;
}

spw_status spw_megatron_coefficients_write(const spw_megatron_coefficients *c, const char *path) {
    return spw_file_print(path, print, c);
}
