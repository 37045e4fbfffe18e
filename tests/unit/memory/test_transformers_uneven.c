/* Experts' weights under FSDP2 where the experts are no multiple of the GPUs: what the sum of components adds beside what torch.chunk
 * gives the ranks, dealt here expert by expert. */
#include "sim/job/job.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/component_of.h"

#include <math.h>

typedef struct asked {
    const char *model, *cluster, *frozen, *rank;
    size_t gpus;
    double each; /* bytes of a parameter */
} asked;

/* torch.chunk: every rank takes ceil(experts / ranks) of those that are left. */
static size_t most_of_a_rank(size_t experts, size_t ranks) {
    size_t left = experts, most = 0;
    for (size_t r = 0; r < ranks; r++) {
        size_t chunk = 0;
        while (chunk * ranks < experts) chunk++;
        const size_t here = chunk < left ? chunk : left;
        most = here > most ? here : most;
        left -= here;
    }
    CHECK(left == 0);
    return most;
}

static bool near(double got, double want) { return fabs(got - want) <= 1.0; } /* whole bytes */

static void check(const asked *a) {
    static spw_job job;
    static spw_footprint f;
    /* moments of another format: no list describes it */
    const spw_job_override values[] = {{"model", a->model, ""},
                                       {"cluster", a->cluster, ""},
                                       {"parallel.expert", "1", ""},
                                       {"optimizer", "sharded", ""},
                                       {"precision.weights", "fp32", ""},
                                       {"precision.gradients", "fp32", ""},
                                       {"precision.optimizer", "bf16", ""},
                                       {"attention", "unfused", ""},
                                       {"finetune.frozen", a->frozen, ""},
                                       {"finetune.lora_rank", a->rank, ""}};
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("transformers", &scheme));
    CHECK_OK(spw_job_read_with(NULL, values, sizeof values / sizeof *values, &job));
    CHECK(job.fsdp == a->gpus);
    const spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    const size_t experts = job.model.experts, most = most_of_a_rank(experts, a->gpus);
    const double one = 3.0 * (double)job.model.hidden * (double)job.model.expert_ffn;
    const double layers = (double)job.model.moe_layers, even = (double)experts / (double)a->gpus;
    const double more = (double)most - even, gathered = (double)(most * a->gpus - experts);
    const bool trained = a->rank[0] == '0';
    if (most * a->gpus == experts) {
        CHECK(component(&f, "uneven_shards") < 0.0 && component(&f, "padded_gathers") < 0.0);
        CHECK(component(&f, "padded_gradients") < 0.0);
        return;
    }
    CHECK(near(component(&f, "uneven_shards"), layers * more * one * a->each));
    CHECK(near(component(&f, "padded_gathers"), 2.0 * gathered * one * 2.0)); /* in bf16 */
    if (trained)
        CHECK(near(component(&f, "padded_gradients"), gathered * one * 2.0));
    else
        CHECK(component(&f, "padded_gradients") < 0.0);
}

int main(void) {
    /* fp32 weights and gradients, a bf16 and an fp32 moment: 4 + 4 + 2 + 4; adapters: weights alone, which are frozen */
    static const asked all[] = {{"mixtral-8x7b", "h200:8x8", "none", "0", 64, 14.0},
                                {"mixtral-8x7b", "h200:8x1", "none", "0", 8, 14.0},
                                {"olmoe-1b-7b", "h200:8x3", "none", "0", 24, 14.0},
                                {"mixtral-8x7b", "h200:8x2", "base", "16", 16, 4.0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check(&all[i]);
    return check_done();
}
