#include "sim/input/software.h"

#include "base/text.h"
#include "sim/input/preset.h"

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

static spw_status add(const char *name, spw_software *out) {
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
    out->timed = spw_time_stack_knows(out->stack.name);
    if (out->timed) SPW_TRY(spw_time_stack_read(out->stack.name, NULL, &out->time_stack));

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
        const spw_status status = add(part, out);
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

/* Is the cluster among those of the stack, whatever the number of its nodes ("h200-32x8": h200-8x8)? */
static bool has_cluster(const char *clusters, const char *name) {
    const char *end = strrchr(name, '-');
    const size_t length = end != NULL ? (size_t)(end - name) + 1 : strlen(name);
    for (const char *word = clusters; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " ")) {
        const char *last = word + strcspn(word, " ");
        while (last > word && *last != '-') last--;
        if ((size_t)(last - word) + 1 == length && memcmp(word, name, length) == 0) return true;
    }
    return false;
}

/* A stack of the cluster; else one that was fitted; of equals the last. */
static spw_status newest_compiled(const spw_job *job, spw_software *out) {
    const char *const *names = spw_time_stack_presets();
    const char *chosen = names[0] != NULL ? names[0] : "";
    int rank = -1;
    for (size_t i = 0; names[i] != NULL; i++) {
        const spw_status status = spw_time_stack_read(names[i], NULL, &out->time_stack);
        if (status != SPW_OK) return status;
        const int here = 2 * has_cluster(out->time_stack.clusters, job->cluster.name) +
                         spw_time_stack_is_fitted(&out->time_stack);
        if (here < rank || (here == rank && strcmp(names[i], chosen) < 0)) continue;
        chosen = names[i], rank = here;
    }
    return add(chosen, out);
}

static spw_status newest_megatron(spw_software *out) {
    const char *const *names = spw_megatron_coefficients_presets();
    const char *chosen = "";
    for (size_t i = 0; names[i] != NULL; i++) chosen = strcmp(names[i], chosen) > 0 ? names[i] : chosen;
    return add(chosen, out);
}

spw_status spw_software_newest(const spw_job *job, bool compiled, bool megatron, spw_software *out) {
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    if (job->cluster.gpu_generation == SPW_GPU_NONE) return SPW_OK;
    if (compiled) SPW_TRY(newest_compiled(job, out));
    if (megatron) SPW_TRY(newest_megatron(out));
    name_all(out);

cleanup:
    return status;
}
