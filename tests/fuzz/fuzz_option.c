/* libFuzzer target of options that are small languages: the first byte chooses --set, --routing or --over, the rest is what follows it. A
 * job that comes out is one that spw_job_check() passes. */
#include "sim/command/plan/plan_routing.h"
#include "sim/job/job.h"
#include "sim/plan/search_space.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4096 };
static const char base[] = "model: olmoe-1b-7b\ncluster: h200-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                           "batch: {sequences_per_gpu: 2, sequence_length: 4096}\n"
                           "optimizer: distributed\nschemes: [megatron-alltoall]\n";
static spw_job job;

static void check(const spw_job *made) {
    if (spw_job_check(made) != SPW_OK ||
        spw_job_gpus(made) != made->cluster.nodes * made->cluster.gpus_per_node)
        abort();
}

static void try_set(char *text) {
    static spw_job made;
    char *equals = strchr(text, '=');
    if (equals == NULL) return;
    *equals = '\0';
    const spw_job_override override = {text, equals + 1, "--set it"};
    const char *path = spw_fuzz_file(0, "job.yaml", (const uint8_t *)base, sizeof base - 1);
    const spw_status status = spw_job_read_with(path, &override, 1, &made);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check(&made);
}

static void try_routing(char *text) {
    spw_generate_settings settings;
    const spw_routing_extent extent = {NULL, NULL};
    spw_fuzz_refusal(spw_plan_routing_settings(&job, text, &extent, 1, &settings));
}

static void try_over(char *text) {
    static spw_search_space space;
    static spw_job made;
    size_t value[SPW_SEARCH_DIMENSIONS], jobs = 1;
    spw_search_space_open(&job, 0, true, true, &space);
    spw_status status = spw_search_space_set(&space, text);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return;
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) jobs *= space.values[d];
    if (jobs == 0 || spw_search_space_jobs(&space) != jobs) abort();
    const size_t some[] = {0, jobs / 2, jobs - 1};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        spw_search_space_values(&space, some[i], value);
        status = spw_search_space_job(&space, value, &made);
        spw_fuzz_refusal(status);
        if (status == SPW_OK) check(&made);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const kinds[])(char *) = {try_set, try_routing, try_over};
    if (size < 1 || size > LARGEST) return 0;
    if (job.schemes == 0 && spw_job_parse("job.yaml", ".", base, sizeof base - 1, &job) != SPW_OK) abort();
    char *text = malloc(size);
    if (text == NULL) return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    kinds[data[0] % (sizeof kinds / sizeof kinds[0])](text);
    free(text);
    return 0;
}
