#include "sim/machine/stack_nearest.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double SAME = 0.01; /* figures of one data sheet */

/* "h200-" of "h200-32x8": what names of one GPU begin with. */
static size_t gpu_length(const char *name) {
    const char *end = strrchr(name, '-');
    return end != NULL ? (size_t)(end - name) + 1 : strlen(name);
}

static bool same_name(const char *a, const char *b) {
    const size_t length = gpu_length(a);
    return gpu_length(b) == length && memcmp(a, b, length) == 0;
}

bool spw_gpu_is_of(const char *cluster, const char *clusters) {
    char name[SPW_CLUSTER_NAME];
    for (const char *word = clusters; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " ")) {
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " "), word);
        if (same_name(cluster, name)) return true;
    }
    return false;
}

spw_gpu spw_gpu_of(const spw_cluster *c) {
    const bool nvidia = c->gpu_generation == SPW_GPU_HOPPER || c->gpu_generation == SPW_GPU_BLACKWELL;
    spw_gpu gpu = {.vendor = c->gpu_vendor,
                   .generation = c->gpu_generation,
                   .bf16_flops = c->bf16_flops.value,
                   .hbm_bytes_per_s = c->hbm_bytes_per_s.value};
    if (gpu.vendor == SPW_VENDOR_OTHER && nvidia)
        gpu.vendor = SPW_VENDOR_NVIDIA; /* presets of NVIDIA's GPUs say the generation alone */
    (void)snprintf(gpu.cluster, sizeof gpu.cluster, "%s", c->name);
    return gpu;
}

spw_stack_distance spw_stack_distance_of(const spw_gpu *job, const spw_gpu *measured) {
    const double peak = fabs(log(job->bf16_flops / measured->bf16_flops)),
                 memory = fabs(log(job->hbm_bytes_per_s / measured->hbm_bytes_per_s));
    const bool same_vendor = job->vendor == measured->vendor;
    if (same_name(job->cluster, measured->cluster)) return (spw_stack_distance){SPW_GPU_NAMED, 0.0};
    if (same_vendor && peak < SAME && memory < SAME) return (spw_stack_distance){SPW_GPU_SAME, 0.0};
    const bool known = same_vendor && job->vendor != SPW_VENDOR_OTHER,
               generation = job->generation != SPW_GPU_OTHER && job->generation == measured->generation;
    return (spw_stack_distance){generation ? SPW_GPU_SAME_GENERATION
                                : known    ? SPW_GPU_SAME_VENDOR
                                           : SPW_GPU_FOREIGN,
                                peak + memory};
}

static bool is_nearer(const spw_stack_distance *a, const spw_stack_distance *b) {
    return a->kinship != b->kinship ? a->kinship < b->kinship : a->apart < b->apart;
}

spw_status spw_stack_distance_of_any(const spw_gpu *job, const char *clusters, spw_stack_distance *out,
                                     spw_gpu *nearest) {
    *out = (spw_stack_distance){SPW_GPU_FOREIGN, INFINITY};
    memset(nearest, 0, sizeof *nearest);
    for (const char *word = clusters; *word != '\0'; word += strcspn(word, " "), word += strspn(word, " ")) {
        char name[SPW_CLUSTER_NAME];
        spw_cluster read;
        spw_stack_distance here = {SPW_GPU_NAMED, 0.0};
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " "), word);
        const spw_status status = spw_cluster_read(name, NULL, &read);
        if (status == SPW_ENOMEM) return status;
        if (status != SPW_OK && !same_name(job->cluster, name)) continue;
        const spw_gpu gpu = status == SPW_OK ? spw_gpu_of(&read) : *job;
        if (status == SPW_OK) here = spw_stack_distance_of(job, &gpu);
        if (!is_nearer(&here, out)) continue;
        *out = here;
        *nearest = gpu;
    }
    return SPW_OK;
}

/* "2026-11" of "megatron-h200-2026-11", "0.10.2" of "xla-cuda-0.10.2": from the last part on before which a part begins with a
 * letter. */
static const char *date_of(const char *name) {
    const char *date = "";
    for (const char *part = name; part != NULL; part = strchr(part, '-')) {
        part += *part == '-';
        if (isdigit((unsigned char)*part) && *date == '\0') date = part;
        if (!isdigit((unsigned char)*part)) date = "";
    }
    return date;
}

bool spw_stack_claim_is_better(const spw_stack_claim *a, const spw_stack_claim *b) {
    if (a->distance.kinship != b->distance.kinship) return a->distance.kinship < b->distance.kinship;
    if (a->unfitted != b->unfitted) return b->unfitted;
    if (a->distance.apart < b->distance.apart || a->distance.apart > b->distance.apart)
        return a->distance.apart < b->distance.apart;
    const int release = strverscmp(a->release, b->release),
              date = strverscmp(date_of(a->name), date_of(b->name));
    if (release != 0) return release > 0;
    return date != 0 ? date > 0 : strcmp(a->name, b->name) > 0;
}

bool spw_stack_distance_note(const char *stack, const spw_gpu *job, const spw_gpu *measured,
                             char out[SPW_STACK_DISTANCE_TEXT]) {
    static const char *const words[] = {[SPW_GPU_NAMED] = "",
                                        [SPW_GPU_SAME] = "",
                                        [SPW_GPU_SAME_GENERATION] = "another GPU of the same generation",
                                        [SPW_GPU_SAME_VENDOR] = "a GPU of the same vendor",
                                        [SPW_GPU_FOREIGN] = "a GPU of another or an unnamed vendor"};
    const spw_stack_distance distance = spw_stack_distance_of(job, measured);
    out[0] = '\0';
    if (distance.kinship <= SPW_GPU_SAME) return false;
    (void)snprintf(out, SPW_STACK_DISTANCE_TEXT,
                   "%s is of %s, %s: %s has %.2g times its bf16 peak and %.2g times its memory rate", stack,
                   measured->cluster, words[distance.kinship], job->cluster,
                   job->bf16_flops / measured->bf16_flops, job->hbm_bytes_per_s / measured->hbm_bytes_per_s);
    return true;
}
