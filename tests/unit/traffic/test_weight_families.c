/* What travels of weights and gradients in a step of Megatron-Core, and by which road, counted GPU by GPU: every GPU of a job has a
 * number, its group is who has the same numbers but one, and a ring's step from a neighbour on another node goes by the NIC. The
 * cases differ in every factor, so that none can stand for another. */
#include "sim/traffic/weight_families.h"

#include "sim/job/job.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { NODE = 8, LAYERS = 32, HIDDEN = 4096, EXPERTS = 8, FFN = 14336, KEYS = 1024, VOCAB = 32000 };

typedef struct layout {
    size_t tensor, context, expert_tensor, expert, data, stages,
        instances; /* data: GPUs of a stage that share an expert's part */
} layout;

/* Bytes that a GPU receives by each road, on average of all GPUs. */
typedef struct roads {
    double nic, link;
} roads;

/* A group's members are `stride` apart, GPU `gpu` is one of them; `between`: it is one of so many equal parts, and the groups are of
 * one GPU of each part. Does the neighbour from which the ring brings everything live on another node? */
static bool from_another_node(size_t gpu, size_t stage_gpus, size_t stride, size_t members) {
    const size_t stage = gpu / stage_gpus * stage_gpus, own = gpu - stage, place = own / stride % members;
    const size_t before = own - place * stride + (place + members - 1) % members * stride;
    return (stage + before) / NODE != gpu / NODE;
}

static void add_ring(const layout *l, size_t stage_gpus, size_t stride, size_t members, double bytes,
                     roads *out) {
    const size_t gpus = stage_gpus * l->stages;
    size_t far = 0;
    if (members < 2) return;
    for (size_t gpu = 0; gpu < gpus; gpu++) far += from_another_node(gpu, stage_gpus, stride, members);
    const double received = bytes * (double)(members - 1) / (double)members;
    out->nic += received * (double)far / (double)gpus;
    if (far == 0) out->link += received;
}

/* Mixtral's weights of one GPU, of a stage on average: routed experts, and all else, of which norms and routers are whole. */
static void weights_of(const layout *l, double *routed, double *rest) {
    const double cut = 2.0 * VOCAB * HIDDEN + LAYERS * (2.0 * HIDDEN * HIDDEN + 2.0 * HIDDEN * KEYS),
                 whole = HIDDEN + LAYERS * (2.0 * HIDDEN + EXPERTS * HIDDEN);
    *routed = 3.0 * LAYERS * EXPERTS * HIDDEN * FFN / (double)(l->expert * l->expert_tensor * l->stages);
    *rest = (cut / (double)l->tensor + whole) / (double)l->stages;
}

static void check(layout l) {
    spw_job job;
    memset(&job, 0, sizeof job);
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    job.cluster.gpus_per_node = NODE;
    job.tensor = l.tensor, job.context = l.context, job.expert_tensor = l.expert_tensor;
    job.expert = l.expert, job.fsdp = l.data, job.pipeline = l.stages;
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED, job.optimizer_instances = l.instances;
    job.precision = (spw_precision){.weights = 2, .gradients = 4, .optimizer = 4, .activations = 2};
    job.micro_batches = 4;

    double routed, rest;
    roads scatters = {0.0, 0.0}, gathers = {0.0, 0.0};
    weights_of(&l, &routed, &rest);
    const size_t gpus = l.expert_tensor * l.expert * l.data, parts = l.instances;
    const struct {
        double elements;
        size_t stride, members;
    } family[2] = {{routed, l.expert_tensor * l.expert, l.data}, {rest, l.tensor, gpus / l.tensor}};
    for (int i = 0; i < 2; i++) {
        const size_t within = family[i].members / parts;
        add_ring(&l, gpus, family[i].stride, within, 4.0 * family[i].elements, &scatters);
        add_ring(&l, gpus, family[i].stride, within, 2.0 * family[i].elements, &gathers);
        /* what each has of the sum is summed over the parts: scattered and gathered, gradients both times */
        add_ring(&l, gpus, family[i].stride * within, parts, 8.0 * family[i].elements / (double)within,
                 &scatters);
    }
    spw_weight_traffic s, g;
    CHECK_OK(spw_weight_step(&job, &s, &g));
    const double got[4] = {s.nic_bytes, s.link_bytes, g.nic_bytes, g.link_bytes},
                 want[4] = {scatters.nic, scatters.link, gathers.nic, gathers.link};
    for (int i = 0; i < 4; i++) {
        CHECK(fabs(got[i] - want[i]) <= 1e-6 * want[i] + 64.0);
        if (fabs(got[i] - want[i]) > 1e-6 * want[i] + 64.0)
            fprintf(stderr,
                    "tensor %zu context %zu expert_tensor %zu expert %zu data %zu stages %zu instances %zu: "
                    "%d %.0f, not %.0f\n",
                    l.tensor, l.context, l.expert_tensor, l.expert, l.data, l.stages, l.instances, i, got[i],
                    want[i]);
    }
}

int main(void) {
    /* tensor, context, expert_tensor, expert, data, stages, instances */
    check((layout){1, 1, 1, 2, 4, 1, 1});  /* one node */
    check((layout){1, 1, 1, 8, 4, 1, 1});  /* experts' copies each on a node of its own */
    check((layout){1, 1, 1, 4, 8, 2, 1});  /* two GPUs of a node have the same experts */
    check((layout){2, 1, 2, 4, 4, 1, 1});  /* experts cut as attention is */
    check((layout){4, 1, 2, 4, 8, 1, 1});  /* and less */
    check((layout){2, 1, 1, 4, 8, 2, 1});  /* and not */
    check((layout){1, 2, 1, 4, 8, 1, 1});  /* context ranks share state as data ranks do */
    check((layout){1, 1, 1, 2, 8, 1, 2});  /* an instance a node: what is summed goes between nodes alone */
    check((layout){1, 1, 1, 4, 16, 1, 4}); /* an instance of two nodes */
    check((layout){2, 1, 2, 2, 4, 1, 2});  /* with experts cut */
    check((layout){2, 1, 1, 2, 16, 2, 2}); /* and stages */
    check((layout){1, 1, 1, 2, 4, 1, 2});  /* two instances of one node */
    return check_done();
}
