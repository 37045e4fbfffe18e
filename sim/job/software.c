#include "sim/job/software.h"

#include "base/text.h"
#include "sim/job/job.h"
#include "sim/machine/stack_nearest.h"
#include "sim/read/preset.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void name_all(spw_software *s) {
    (void)snprintf(s->names, sizeof s->names, "%s%s%s", s->compiled ? s->stack.name : "",
                   s->compiled && s->megatron ? "," : "", s->megatron ? s->megatron_coefficients.name : "");
}

/* --- By name --- */

static bool is_listed(const char *const *names, const char *name) {
    while (*names != NULL && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

static bool is_file(const char *name) {
    const char *dot = strrchr(name, '.');
    return strchr(name, '/') != NULL ||
           (dot != NULL && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0));
}

/* A file says which kind it is by what it holds; if neither can be read, the message is that of the kind it looks like. */
static spw_status is_megatron(const char *name, bool *out) {
    spw_megatron_coefficients c;
    spw_stack stack;
    *out = is_listed(spw_megatron_coefficients_presets(), name);
    if (*out || !is_file(name) || spw_stack_read(name, NULL, &stack) == SPW_OK) return SPW_OK;
    const spw_status status = spw_megatron_coefficients_read(name, NULL, &c);
    *out = status == SPW_OK;
    return *out || strstr(spw_last_error(), "gemm_flops_share") != NULL ? SPW_OK : status;
}

static spw_status unknown(void) {
    char known[512] = "", text[1024];
    for (const char *const *name = spw_megatron_coefficients_presets(); *name != NULL; name++) {
        const size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, "%s%s", used > 0 ? ", " : "", *name);
    }
    (void)snprintf(text, sizeof text, "%s", spw_last_error());
    return spw_fail(SPW_ECONFIG, "%s; of Megatron-Core: %s", text, known);
}

static spw_status twice(const char *kind, const char *name) {
    return spw_fail(SPW_ECONFIG, "'%s' is a second stack of %s; name one", name, kind);
}

static spw_status software_add(const char *name, spw_software *out) {
    bool megatron = false;
    spw_status status = SPW_OK;
    SPW_TRY(is_megatron(name, &megatron));
    if (megatron) {
        if (out->megatron) return twice("Megatron-Core", name);
        SPW_TRY(spw_megatron_coefficients_read(name, NULL, &out->megatron_coefficients));
        SPW_TRY(spw_megatron_coefficients_locate(&out->megatron_coefficients));
        out->megatron = true;
        return SPW_OK;
    }
    if (out->compiled) return twice("compiled programs", name);
    status = spw_stack_read(name, NULL, &out->stack);
    if (status == SPW_ECONFIG && !is_file(name)) return unknown();
    SPW_TRY(status);
    out->compiled = true;
    const char *times = out->stack.times[0] != '\0' ? out->stack.times : out->stack.name;
    const char *slash = strrchr(name, '/');
    char folder[SPW_SOFTWARE_TEXT] = ".";
    if (slash != NULL) (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - name) + 1, name);
    out->timed = is_file(times) || spw_time_stack_knows(times);
    if (out->timed) SPW_TRY(spw_time_stack_read(times, is_file(times) ? folder : NULL, &out->time_stack));

cleanup:
    return status;
}

spw_status spw_software_read(const char *names, spw_software *out) {
    char copy[SPW_SOFTWARE_TEXT], *rest = NULL;
    memset(out, 0, sizeof *out);
    if (strcmp(names, "none") == 0) return SPW_OK;
    if (strlen(names) >= sizeof copy)
        return spw_fail(SPW_EARG, "a list of over %zu characters", sizeof copy - 1);
    if (spw_text_has_gap(names))
        return spw_fail(SPW_EARG, "'%s': an empty place; write one stack, or several between commas", names);
    (void)snprintf(copy, sizeof copy, "%s", names);
    for (char *part = strtok_r(copy, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        const spw_status status = software_add(part, out);
        if (status != SPW_OK) return status;
    }
    name_all(out);
    if (out->names[0] != '\0') return SPW_OK;
    return spw_fail(SPW_EARG, "no stack named; write one, or several between commas");
}

spw_status spw_software_suits(const char *name, const spw_cluster *cluster) {
    if (cluster->gpu_generation != SPW_GPU_NONE || strcmp(name, "none") == 0) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "%s is of programs for GPUs, and cluster '%s' has none (gpu_generation: none); leave --stack out: "
        "what must be live is said, and no time",
        name, cluster->name);
}

/* --- By default --- */

static void name_claim(spw_stack_claim *claim, const char *name, const char *release) {
    (void)snprintf(claim->name, sizeof claim->name, "%s", name);
    (void)snprintf(claim->release, sizeof claim->release, "%s", release);
}

/* Of programs that XLA compiles; the release is in the name. */
static spw_status newest_compiled(const spw_gpu *gpu, spw_software *out) {
    spw_stack_claim best = {.name = ""};
    for (const char *const *name = spw_time_stack_presets(); *name != NULL; name++) {
        spw_stack_claim claim = {.name = ""};
        spw_gpu nearest;
        spw_status status = spw_time_stack_read(*name, NULL, &out->time_stack);
        if (status == SPW_OK)
            status = spw_stack_distance_of_any(gpu, out->time_stack.clusters, &claim.distance, &nearest);
        if (status != SPW_OK) return status;
        claim.unfitted = !spw_time_stack_is_fitted(&out->time_stack);
        name_claim(&claim, *name, "");
        if (best.name[0] == '\0' || spw_stack_claim_is_better(&claim, &best)) best = claim;
    }
    return software_add(best.name, out);
}

/* Of stacks that were measured on what the job trains, the nearest; on a part of a node, of those of the same kinship one that was
 * measured so. `gpus`: of the job's one node. */
static spw_status newest_megatron(const spw_gpu *gpu, spw_megatron_part part, size_t gpus,
                                  spw_software *out) {
    spw_stack_claim best = {.name = ""};
    for (const char *const *name = spw_megatron_coefficients_presets(); *name != NULL; name++) {
        spw_stack_claim claim = {.name = ""};
        spw_cluster measured;
        const spw_megatron_coefficients *c = &out->megatron_coefficients;
        spw_status status = spw_megatron_coefficients_read(*name, NULL, &out->megatron_coefficients);
        if (status != SPW_OK) return status;
        if (c->part != part && (part != SPW_MEGATRON_WHOLE || c->part != SPW_MEGATRON_FEW)) continue;
        status = spw_cluster_read(c->cluster, NULL, &measured);
        if (status != SPW_OK) return spw_fail_within(status, "stack %s: cluster", c->name);
        const bool few = part == SPW_MEGATRON_WHOLE && gpus < measured.gpus_per_node;
        if (c->part == SPW_MEGATRON_FEW && !few) continue;
        claim.unfitted = few && c->part == part;
        const spw_gpu of = spw_gpu_of(&measured);
        claim.distance = spw_stack_distance_of(gpu, &of);
        name_claim(&claim, *name, c->release);
        if (best.name[0] == '\0' || spw_stack_claim_is_better(&claim, &best)) best = claim;
    }
    return software_add(best.name, out);
}

spw_status spw_software_measure(const spw_cluster *cluster, spw_software *s) {
    char note[SPW_STACK_DISTANCE_TEXT];
    const spw_gpu gpu = spw_gpu_of(cluster);
    spw_gpu nearest;
    spw_stack_distance distance;
    spw_cluster measured;
    s->distance[0] = '\0';
    if (s->timed) {
        const spw_status status =
            spw_stack_distance_of_any(&gpu, s->time_stack.clusters, &distance, &nearest);
        if (status != SPW_OK) return status;
        if (nearest.cluster[0] != '\0' && spw_stack_distance_note(s->time_stack.name, &gpu, &nearest, note))
            (void)snprintf(s->distance, sizeof s->distance, "%s", note);
    }
    if (!s->megatron) return SPW_OK;
    const spw_status status = spw_cluster_read(s->megatron_coefficients.cluster, NULL, &measured);
    if (status != SPW_OK) return spw_fail_within(status, "stack %s: cluster", s->megatron_coefficients.name);
    const size_t used = strlen(s->distance);
    nearest = spw_gpu_of(&measured);
    if (spw_stack_distance_note(s->megatron_coefficients.name, &gpu, &nearest, note))
        (void)snprintf(s->distance + used, sizeof s->distance - used, "%s%s", used > 0 ? "; " : "", note);
    return SPW_OK;
}

spw_status spw_software_plain(const spw_job *job, spw_software *out) {
    const spw_gpu gpu = spw_gpu_of(&job->cluster);
    memset(out, 0, sizeof *out);
    const spw_status status = newest_megatron(&gpu, SPW_MEGATRON_PLAIN, SIZE_MAX, out);
    name_all(out);
    return status;
}

spw_status spw_software_newest(const spw_job *job, bool compiled, bool megatron, spw_software *out) {
    const spw_gpu gpu = spw_gpu_of(&job->cluster);
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    if (job->cluster.gpu_generation == SPW_GPU_NONE) return SPW_OK;
    if (compiled) SPW_TRY(newest_compiled(&gpu, out));
    if (megatron)
        SPW_TRY(newest_megatron(&gpu,
                                job->part == SPW_PART_WHOLE ? SPW_MEGATRON_WHOLE : SPW_MEGATRON_EXPERT_LAYERS,
                                job->cluster.nodes == 1 ? job->cluster.gpus_per_node : SIZE_MAX, out));
    name_all(out);

cleanup:
    return status;
}
