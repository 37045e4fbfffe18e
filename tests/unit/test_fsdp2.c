/* What FSDP2 holds and moves: against figures of FSDP2 itself, and a case with pencil and paper. The figures: torch 2.15 with
 * gloo, 4 processes on a CPU, 2026-11-23; 6 layers of 64 x 64, each a unit of fully_shard, bf16 weights, gradients reduced in
 * fp32, 2 micro-batches in a step; read at the beginning of each layer's backward pass: storage of gathered weights
 * (all_gather_outputs), of all-gathers under way, and inputs of reduce-scatters that are kept. */
#include "sim/memory/fsdp2.h"

#include "sim/memory/footprint.h"
#include "sim/time/step_traffic.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 6, MICRO = 2 };

typedef struct run {
    spw_reshard reshard;
    size_t prefetch;
    double gathered[LAYERS], under_way[LAYERS], reduced[LAYERS]; /* layers 5 to 0 */
    size_t gathers, scatters;                                    /* operations of the step */
} run;

static const run runs[] = {{SPW_RESHARD_ALWAYS,
                            1,
                            {8192, 8192, 8192, 8192, 8192, 8192},
                            {8192, 8192, 8192, 8192, 8192, 0},
                            {0, 16384, 16384, 16384, 16384, 16384},
                            24,
                            12},
                           {SPW_RESHARD_ALWAYS,
                            2,
                            {8192, 8192, 8192, 8192, 8192, 8192},
                            {16384, 16384, 16384, 16384, 8192, 0},
                            {0, 16384, 16384, 16384, 16384, 16384},
                            24,
                            12},
                           {SPW_RESHARD_NEVER,
                            1,
                            {49152, 40960, 32768, 24576, 16384, 8192},
                            {0},
                            {0, 16384, 16384, 16384, 16384, 16384},
                            12,
                            12},
                           {SPW_RESHARD_NEVER,
                            2,
                            {49152, 40960, 32768, 24576, 16384, 8192},
                            {0},
                            {0, 16384, 16384, 16384, 16384, 16384},
                            12,
                            12}};

static double most(const double *values) {
    double largest = 0.0;
    for (size_t i = 0; i < LAYERS; i++) largest = fmax(largest, values[i]);
    return largest;
}

static void test_measured(void) {
    static spw_job job;
    const spw_fsdp2_unit unit = {.parameters = 64 * 64};
    job.precision.weights = 2;
    job.precision.gradients = 4;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const run *r = &runs[i];
        job.fsdp2 = (spw_job_fsdp2){r->reshard, r->prefetch};
        const spw_fsdp2_bytes b = spw_fsdp2_layer(&job, &unit, LAYERS, 0.0);
        CHECK(fabs(b.parameters - most(r->gathered)) < 0.5);
        CHECK(fabs(b.prefetched - most(r->under_way)) < 0.5);
        CHECK(fabs(b.reduced - most(r->reduced)) < 0.5);
        CHECK(fabs(b.gradients - 8192.0) < 0.5);
    }
    /* No more layers are prefetched than there are, and none of what one GPU alone holds. */
    job.fsdp2 = (spw_job_fsdp2){SPW_RESHARD_ALWAYS, 9};
    CHECK(fabs(spw_fsdp2_layer(&job, &unit, 3.0, 0.0).prefetched - 2.0 * 8192.0) < 0.5);
    const spw_fsdp2_unit half = {.parameters = 64 * 64, .alone = 64 * 32};
    CHECK(fabs(spw_fsdp2_layer(&job, &half, 3.0, 0.0).prefetched - 8192.0) < 0.5);
    CHECK(fabs(spw_fsdp2_layer(&job, &half, 3.0, 5000.0).reduced - 4.0 * 5000.0) < 0.5);
}

static void read_job(const char *keys, spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: h200-64x8\nparallel: {expert: 32, fsdp: 16}\n"
                   "batch: {sequences_per_gpu: 2, sequence_length: 4096, micro_batches: 2}\n"
                   "precision: {gradients: fp32}\n%s",
                   keys);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

/* Operations of matrices of weights in a step, of layers with experts, a matrix each. */
static size_t operations(const spw_step_traffic *t, spw_operation operation) {
    size_t count = 0;
    for (size_t i = 0; i < t->items; i++) {
        const spw_step_item *item = &t->item[i];
        if (item->place == SPW_PLACE_MOE_LAYER && item->operation == operation &&
            strcmp(item->name, "expert_w0") == 0)
            count += item->count * t->times[item->place];
    }
    return count;
}

/* As often as FSDP2 does in 6 layers: twice or once a layer and micro-batch, gradients reduced once. */
static void test_traffic(void) {
    static spw_job job;
    static spw_step_traffic t;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        read_job(runs[i].reshard == SPW_RESHARD_ALWAYS ? "fsdp2: {reshard_after_forward: always}\n"
                                                       : "fsdp2: {reshard_after_forward: never}\n",
                 &job);
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &t));
        CHECK(operations(&t, SPW_OPERATION_ALL_GATHER) * LAYERS == runs[i].gathers * job.model.moe_layers);
        CHECK(operations(&t, SPW_OPERATION_REDUCE_SCATTER) * LAYERS ==
              runs[i].scatters * job.model.moe_layers);
    }
}

static double component(const spw_footprint *f, const char *name) {
    for (size_t i = 0; i < f->components; i++)
        if (strcmp(f->component[i].name, name) == 0) return (double)f->component[i].bytes;
    return -1.0;
}

/* DeepSeek-V3, 8 of 256 experts a GPU: a layer has 8 x 3 x 7168 x 2048 of experts, beside attention, norms, shared expert and router; 3 dense
 * layers, 58 with experts. The head, 129280 x 7168 and a norm of 7168, is larger than a layer. */
static void test_job(void) {
    static spw_job job;
    static spw_footprint f;
    spw_scheme scheme;
    const double experts = 8.0 * 3.0 * 7168.0 * 2048.0, head = 129280.0 * 7168.0 + 7168.0;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    read_job("fsdp2: {reshard_after_forward: always, prefetch: 2}\n", &job);
    const spw_parameters p = spw_model_parameters(&job.model);
    const double rest = (double)(p.attention_per_layer + p.norms_per_layer + p.shared_per_layer +
                                 p.router_per_layer),
                 dense = (double)(p.attention_per_layer + p.norms_per_layer + p.dense_ffn_per_layer);
    const spw_point point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.parameters") - 2.0 * (experts + rest)) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.prefetched") - 4.0 * (experts + rest)) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.reduce_input") - 4.0 * head) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.dense_reduce_input") - 4.0 * (experts + rest)) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.dense_gradients") - 2.0 * dense) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.head") - 4.0 * head) < 1.0);
    CHECK(component(&f, "gathered_expert_weights") < 0.0);
    job.fsdp2.reshard = SPW_RESHARD_NEVER;
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.parameters") - 2.0 * (58.0 * (experts + rest) + 3.0 * dense)) < 1.0);
    CHECK(fabs(component(&f, "fsdp2.prefetched")) < 1.0);
}

int main(void) {
    test_measured();
    test_traffic();
    test_job();
    return check_done();
}
