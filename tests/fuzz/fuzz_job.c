/* libFuzzer target of the readers of text that a stranger may have written: job, cluster and model. */
#include "sim/job/job.h"
#include "sim/machine/cluster_levels.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_model(const spw_model *model) {
    spw_parameters p = spw_model_parameters(model);
    if (model->moe_layers == 0 || model->moe_layers > model->layers || model->top_k > model->experts) abort();
    if (p.active > p.total || p.total == 0) abort();
}

static void check_levels(const spw_cluster *c) {
    size_t nodes = 1;
    for (size_t l = 0; l < c->levels.count; l++) nodes *= c->levels.size[l];
    if (c->levels.count > 0 && nodes != c->nodes) abort();
    for (size_t l = 0; l < c->levels.count; l++) {
        const size_t last = spw_levels_member(c, l, c->nodes * c->gpus_per_node - 1);
        if (last >= spw_levels_members(c, l) || !(spw_levels_rate(c, l) > 0.0)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static spw_job job;
    static spw_model model;
    static spw_cluster cluster;
    const char *text = (const char *)data;
    spw_status status = spw_job_parse("job.yaml", "/nonexistent", text, size, &job);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) {
        check_model(&job.model);
        if (spw_job_check(&job) != SPW_OK ||
            spw_job_gpus(&job) != job.cluster.nodes * job.cluster.gpus_per_node)
            abort();
    }
    status = spw_model_parse("config.json", text, size, &model);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check_model(&model);
    status = spw_cluster_parse("cluster.yaml", text, size, &cluster);
    spw_fuzz_refusal(status);
    if (status == SPW_OK) check_levels(&cluster);
    return 0;
}
