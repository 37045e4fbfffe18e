/* Layers of multi-token prediction take pages of the stash like any other MoE layer: what a stage has, and what a step fills of it, is
 * that of a model which has an ordinary MoE layer more, where the layout has the prediction, with balanced rows in all of them. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/replay/page_use.h"

#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 8 };

static void read_job(const char *layout, size_t pipeline, size_t chunks, size_t micro, bool pairs,
                     spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: b200-8x8\nparallel: {expert: 8, fsdp: %zu, pipeline: %zu, "
                   "virtual_stages: %zu, pipeline_model_parallel_layout: '%s'}\n"
                   "batch: {sequences_per_gpu: %zu, sequence_length: 4096, micro_batches: %zu}\n"
                   "precision: {weights: bf16, gradients: fp32, optimizer: fp32, recipe: mxfp8}\n"
                   "optimizer: distributed\nremat: none\noverlap_moe_expert_parallel_comm: %s\n",
                   64 / 8 / pipeline, pipeline, chunks, layout, micro, micro, pairs ? "true" : "false");
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

/* A step in which every rank has balanced rows in every layer of the trace. */
static spw_page_run run_of(const spw_job *job, const spw_scheme *scheme) {
    spw_page_use use;
    const spw_point point = spw_point_of(job, scheme, job->sequences_per_gpu[0]);
    const uint64_t rows = spw_balanced_rows(scheme, &point.shape).held;
    CHECK_OK(spw_page_use_create(&point, RANKS, job->model.moe_layers, &use));
    CHECK(use.run.there);
    spw_page_use_begin(&use);
    for (size_t l = 0; l < job->model.moe_layers; l++)
        for (size_t m = 0; m < use.pipeline.micro_batches; m++)
            for (size_t r = 0; r < RANKS; r++) spw_page_use_note(&use, l, m, r, rows);
    spw_page_use_end(&use, false, 0);
    const spw_page_run run = spw_page_use_run(&use);
    spw_page_use_destroy(&use);
    return run;
}

static uint64_t component_of(const spw_footprint *f, const char *name) {
    for (size_t i = 0; i < f->components; i++)
        if (strcmp(f->component[i].name, name) == 0) return f->component[i].bytes;
    return 0;
}

int main(void) {
    static const struct {
        const char *layout;
        size_t pipeline, chunks, micro_batches, predicts; /* the block that predicts */
        bool pairs;
    } cases[] = {{"Et*30|t*31,m,L", 2, 1, 4, 1, false},
                 {"Et*15|t*15|t*15|t*16,m,L", 2, 2, 4, 3, false},
                 {"Et*15|t*15|t*16|t*15,m,L", 4, 1, 6, 3, false},
                 {"Et*15|t*15|t*15|t*16,m,L", 2, 2, 4, 3, true},
                 {"Et*60|t|m|L", 4, 1, 4, 2, false}};
    static spw_job job, ordinary;
    static spw_footprint got, want;
    const spw_scheme scheme = scheme_of("megatron-syncfree:rank_capacity=1.5,stash=1.1,align=32");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_job(cases[i].layout, cases[i].pipeline, cases[i].chunks, cases[i].micro_batches, cases[i].pairs,
                 &job);
        CHECK(job.stage_layout.predictions == 1 && job.stage_layout.prediction_block == cases[i].predicts);
        ordinary = job;
        ordinary.stage_layout.predictions = 0;
        ordinary.stage_layout.layers[cases[i].predicts]++;
        ordinary.model.is_moe[ordinary.model.layers++] = 1;
        ordinary.model.moe_layers++;
        const spw_page_run a = run_of(&job, &scheme), b = run_of(&ordinary, &scheme);
        CHECK(a.pool_bytes == b.pool_bytes && a.overflow_steps == b.overflow_steps);
        CHECK(a.fullest > 0.0 && fabs(a.fullest - b.fullest) <= 1e-12);
        const spw_point point = spw_point_of(&job, &scheme, job.sequences_per_gpu[0]),
                        other = spw_point_of(&ordinary, &scheme, job.sequences_per_gpu[0]);
        uint64_t pages = 0;
        for (size_t s = 0; s < cases[i].pipeline; s++) {
            CHECK_OK(spw_footprint_of_stage(&point, s, NULL, &got));
            CHECK_OK(spw_footprint_of_stage(&other, s, NULL, &want));
            CHECK(component_of(&got, "stash_pages") == component_of(&want, "stash_pages"));
            CHECK(component_of(&got, "unstashed_layer") == component_of(&want, "unstashed_layer"));
            pages = component_of(&got, "stash_pages") > pages ? component_of(&got, "stash_pages") : pages;
        }
        CHECK(pages == a.pool_bytes);
    }
    return check_done();
}
