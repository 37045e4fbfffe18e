/* Layers of multi-token prediction have experts like any other MoE layer: what offloading leaves on a GPU is that of a model which has
 * an ordinary MoE layer more, where the layout has the prediction. The right-hand side needs no word on predictions. */
#include "sim/job/job.h"
#include "sim/memory/kept/activation_offload.h"

#include "tests/unit/check.h"

#include <string.h>

static void read_job(const char *layout, size_t pipeline, size_t virtual_stages, size_t micro_batches,
                     spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: h200-64x8\nparallel: {expert: 32, fsdp: %zu, pipeline: %zu, "
                   "virtual_stages: %zu, pipeline_model_parallel_layout: '%s'}\n"
                   "batch: {sequences_per_gpu: %zu, sequence_length: 4096, micro_batches: %zu}\n"
                   "optimizer: distributed\nremat: none\noffload_modules: [expert_fc1, moe_act]\n",
                   512 / 32 / pipeline, pipeline, virtual_stages, layout, micro_batches, micro_batches);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

static bool same(const spw_offload_stage *a, const spw_offload_stage *b) {
    const spw_offload_groups *x = &a->experts, *y = &b->experts;
    return x->ahead == y->ahead && a->stops == b->stops && x->layers == y->layers && x->staying == y->staying;
}

int main(void) {
    static const struct {
        const char *layout;
        size_t pipeline, chunks, micro_batches, predicts; /* the block that predicts */
    } cases[] = {{"Et*30|t*31,m,L", 2, 1, 4, 1},
                 {"Et*15|t*15|t*15|t*16,m,L", 2, 2, 4, 3},
                 {"Et*15|t*15|t*16|t*15,m,L", 4, 1, 6, 3},
                 {"Et*30|t*31|m|L", 4, 1, 6, 2},
                 {"Et*20|t*20|t*21|m,L", 2, 2, 6, 3}};
    static spw_job job, ordinary;
    bool ahead = false, stops = false, counted = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_job(cases[i].layout, cases[i].pipeline, cases[i].chunks, cases[i].micro_batches, &job);
        CHECK(job.stage_layout.predictions == 1 && job.stage_layout.prediction_block == cases[i].predicts);
        ordinary = job;
        ordinary.stage_layout.predictions = 0;
        ordinary.stage_layout.layers[cases[i].predicts]++;
        ordinary.model.is_moe[ordinary.model.layers++] = 1;
        ordinary.model.moe_layers++;
        uint64_t layers = 0;
        for (size_t s = 0; s < cases[i].pipeline; s++) {
            const spw_offload_stage got = spw_offload_stage_of(&job, s),
                                    want = spw_offload_stage_of(&ordinary, s);
            CHECK(same(&got, &want));
            layers += got.experts.layers;
            ahead = ahead || got.experts.ahead, stops = stops || got.stops;
            counted = counted || got.experts.staying > 0;
        }
        CHECK(layers == cases[i].micro_batches * (58 + 1)); /* 3 of 61 layers are dense */
    }
    CHECK(ahead && stops && counted); /* the cases tell all fields apart */
    return check_done();
}
