/* What FSDP2 holds and moves: against figures of FSDP2 itself, and a case with pencil and paper. The figures: torch 2.15 with
 * gloo, 4 processes on a CPU, 2026-11-23; 6 layers of 64 x 64, each a unit of fully_shard, bf16 weights, gradients reduced in
 * fp32, 2 micro-batches in a step; read at the beginning of each layer's backward pass: storage of gathered weights
 * (all_gather_outputs), of all-gathers under way, and inputs of reduce-scatters that are kept. */
#include "sim/job/job.h"
#include "sim/weights/fsdp2.h"

#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/traffic/step_traffic.h"
#include "sim/weights/optimizer_state.h"
#include "tests/unit/check.h"
#include "tests/unit/component_of.h"

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
        job.fsdp2 = (spw_job_fsdp2){.reshard = r->reshard, .prefetch = r->prefetch};
        const spw_fsdp2_layer_parameters here = spw_fsdp2_layer(&job, &unit, LAYERS, 0.0);
        CHECK(fabs(2.0 * here.units * unit.parameters - most(r->gathered)) < 0.5);
        CHECK(fabs(2.0 * here.ahead - most(r->under_way)) < 0.5);
        CHECK(fabs(4.0 * here.reduced - most(r->reduced)) < 0.5);
    }
    /* No more layers are prefetched than there are, and none of what one GPU alone holds. */
    job.fsdp2 = (spw_job_fsdp2){.reshard = SPW_RESHARD_ALWAYS, .prefetch = 9};
    CHECK(fabs(spw_fsdp2_layer(&job, &unit, 3.0, 0.0).ahead - 2.0 * 4096.0) < 0.5);
    const spw_fsdp2_unit half = {.parameters = 64 * 64, .alone = 64 * 32};
    CHECK(fabs(spw_fsdp2_layer(&job, &half, 3.0, 0.0).ahead - 4096.0) < 0.5);
    CHECK(fabs(spw_fsdp2_layer(&job, &half, 3.0, 5000.0).reduced - 5000.0) < 0.5);
}

static void read_job(const char *keys, spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: h200-64x8\nparallel: {expert: 32, fsdp: 16}\n"
                   "batch: {sequences_per_gpu: 2, sequence_length: 4096, micro_batches: 2}\n"
                   "precision: {weights: bf16, gradients: fp32}\n%s",
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
            count += item->count * spw_step_item_times(t, item);
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

/* FSDP2 itself again, the same layers on a 2 x 2 mesh (HSDP) and with weights that are sharded in fp32 and gathered in bf16: bytes of
 * shards, of a layer's all-reduce input, of those that layer 0's backward pass finds, of all sharded gradients. */
static void test_replicas(void) {
    static const struct {
        size_t replicas, weights;
        double shards, all_reduce_input, found, gradients;
    } mesh[] = {{1, 2, 12288, 0, 0, 12288},
                {1, 4, 24576, 0, 0, 24576},
                {2, 2, 24576, 8192, 40960, 24576},
                {2, 4, 49152, 8192, 40960, 49152}};
    static spw_job job;
    const spw_fsdp2_unit unit = {.parameters = 64 * 64};
    const spw_held_parameters held = {.rest = LAYERS * 64.0 * 64.0};
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        job = (spw_job){.expert = 1, .fsdp = 4, .pipeline = 1, .tensor = 1};
        job.precision = (spw_precision){.weights = mesh[i].weights, .gradients = 4, .optimizer = 4};
        job.fsdp2 = (spw_job_fsdp2){SPW_RESHARD_ALWAYS, 1, mesh[i].replicas, 2, false};
        const spw_optimizer_state state = spw_optimizer_state_of(&job, &held);
        const double input = 4.0 * spw_fsdp2_shard(&job, &unit);
        CHECK(fabs(state.weights - mesh[i].shards) < 0.5 && fabs(state.gradients - mesh[i].gradients) < 0.5);
        CHECK(fabs(spw_fsdp2_layer(&job, &unit, LAYERS, 0.0).units - 1.0) < 1e-9);
        if (mesh[i].replicas > 1) CHECK(fabs(input - mesh[i].all_reduce_input) < 0.5);
        if (mesh[i].replicas > 1) CHECK(fabs((LAYERS - 1) * input - mesh[i].found) < 0.5);
    }
}

/* 16 copies of weights that 16 GPUs share: an expert's matrices are whole on one GPU, so they are not gathered ahead; of the rest, which
 * 512 GPUs hold in 16 copies, 32 share one. Two layers ahead, in bf16. With 8 copies 2 GPUs share the experts, too. */
static void test_whole_experts(void) {
    static spw_job job;
    read_job("fsdp2: {reshard_after_forward: always, prefetch: 2, replicas: 16}\n", &job);
    const spw_parameters p = spw_model_parameters(&job.model);
    const double experts = 8.0 * 3.0 * 7168.0 * 2048.0,
                 rest = (double)(p.attention_per_layer + p.norms_per_layer + p.shared_per_layer +
                                 p.router_per_layer);
    for (size_t replicas = 8; replicas <= 16; replicas *= 2) {
        job.fsdp2.replicas = replicas;
        const spw_fsdp2_unit unit = spw_fsdp2_unit_of(&job, true);
        const double ahead = replicas == 16 ? rest : rest + experts;
        CHECK(fabs(spw_fsdp2_layer(&job, &unit, 58.0, 0.0).ahead - 2.0 * ahead) < 1.0);
        CHECK(fabs(spw_fsdp2_shard(&job, &unit) - (double)replicas * (experts / 16.0 + rest / 512.0)) < 1.0);
    }
}

/* The unit of head and final norm: with tied embeddings the one table is in it, and the embedding has no unit of its own weights. */
static void test_head_unit(void) {
    static spw_job job;
    const double table = 129280.0 * 7168.0, norm = 7168.0;
    read_job("fsdp2: {reshard_after_forward: always}\n", &job);
    CHECK(fabs(spw_fsdp2_head(&job) - (table + norm)) < 0.5);
    job.model.tied_embeddings = true;
    CHECK(spw_model_parameters(&job.model).head == 0 && fabs(spw_fsdp2_head(&job) - (table + norm)) < 0.5);
}

/* The host keeps all state: what is left of it on the GPU are the shards under way. Replicas: 61 layers' sums less what the layers
 * kept, of which the last is at work, and the head's. */
static void test_host_and_replicas(void) {
    static spw_job job;
    static spw_footprint f, apart;
    static spw_step_traffic t;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    read_job("fsdp2: {reshard_after_forward: always, state: host}\n", &job);
    const spw_point point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(component(&f, "weights") < 0.0 && component(&f, "gradients") < 0.0 &&
          component(&f, "optimizer") < 0.0);
    const spw_parameters p = spw_model_parameters(&job.model);
    const double experts = 8.0 * 3.0 * 7168.0 * 2048.0,
                 rest = (double)(p.attention_per_layer + p.norms_per_layer + p.shared_per_layer +
                                 p.router_per_layer),
                 dense = (double)(p.attention_per_layer + p.norms_per_layer + p.dense_ffn_per_layer),
                 head = 129280.0 * 7168.0 + 7168.0;
    CHECK(fabs(component(&f, "fsdp2.host_copies") - (2.0 + 4.0) * (experts / 16.0 + rest / 512.0)) < 1.0);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &t));
    /* an expert matrix of a layer: its shard to the GPU twice and its gradient back, 2 micro-batches, 58 layers */
    double moved = 0.0;
    for (size_t i = 0; i < t.items; i++)
        if (t.item[i].operation == SPW_OPERATION_HOST_COPY && strcmp(t.item[i].name, "expert_w0") == 0)
            moved += spw_step_item_wire_bytes(&t, &t.item[i]);
    CHECK(fabs(moved - 3.0 * 2.0 * 2.0 * 58.0 * (experts / 3.0 / 16.0)) < 1.0);

    read_job("fsdp2: {reshard_after_forward: always, replicas: 4}\n", &job);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    job.fsdp2.replicas = 1;
    CHECK_OK(spw_footprint_compute(&point, NULL, &apart));
    CHECK(fabs(component(&f, "weights") - 4.0 * component(&apart, "weights")) < 8.0);
    /* The head's, and what the layers behind the one at work left; dense layers come first, and here they have most. */
    const double moe = 4.0 * 4.0 * (experts / 16.0 + rest / 512.0), of_dense = 4.0 * 4.0 * dense / 512.0;
    CHECK(fabs(component(&f, "fsdp2.all_reduce_inputs") - 4.0 * 4.0 * head / 512.0) < 2.0);
    const spw_stage_moment *at = &f.waiting.at[SPW_MOMENT_MOE_LAYER],
                           *at_dense = &f.waiting.at[SPW_MOMENT_DENSE_LAYER];
    CHECK(at->waiting[0] == 3 && at->waiting[1] + at->left[1] == 57 && at_dense->left[1] == 58);
    CHECK(fabs(f.keeps[1].left - moe) < 2.0 && fabs(f.keeps[0].left - of_dense) < 2.0);
    CHECK(moe > f.keeps[1].input && at->left[1] == 57); /* a layer leaves more than it gives back */
    CHECK(fabs(component(&f, "fsdp2.all_reduce_inputs_left") - 57.0 * moe) < 64.0);
    CHECK(component(&apart, "fsdp2.all_reduce_inputs") < 0.0);
    job.fsdp2.replicas = 4;
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &t));
    CHECK(t.group_size[SPW_GROUP_FSDP] == 4 && t.group_size[SPW_GROUP_ALL] == 128);
    CHECK(operations(&t, SPW_OPERATION_ALL_REDUCE) == 58 * 2); /* as FSDP2: one a layer and micro-batch */
    for (size_t i = 0; i < t.items; i++)
        if (t.item[i].operation == SPW_OPERATION_ALL_REDUCE && strcmp(t.item[i].name, "expert_w0") == 0)
            CHECK(t.item[i].bytes == 4 * 8 * 7168 * 2048 / 4);
}

/* Megatron: half of the optimizer is the host's. Gradients go there in the master's format, weights come back in their own. */
static void test_optimizer_on_host(void) {
    static spw_job job;
    static spw_footprint whole, half;
    static spw_step_traffic t;
    spw_scheme scheme;
    double there = 0.0, back = 0.0;
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    read_job("optimizer: distributed\n", &job);
    const spw_point point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &whole));
    CHECK(spw_megatron_job_covers(&job, &scheme));
    job.optimizer_on_host = 0.5;
    CHECK(spw_megatron_job_covers(&job, &scheme));
    CHECK_OK(spw_footprint_compute(&point, NULL, &half));
    CHECK(fabs(2.0 * component(&half, "optimizer") - component(&whole, "optimizer")) < 4.0);
    CHECK(fabs(2.0 * component(&half, "master_weights") - component(&whole, "master_weights")) < 4.0);
    CHECK(component(&half, "gradients") == component(&whole, "gradients"));
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &t));
    for (size_t i = 0; i < t.items; i++) {
        if (t.item[i].operation != SPW_OPERATION_HOST_COPY) continue;
        *(t.item[i].backward ? &there : &back) += spw_step_item_wire_bytes(&t, &t.item[i]);
    }
    /* master weights are 4 bytes a parameter that this GPU updates */
    CHECK(fabs(there / (0.5 * component(&whole, "master_weights")) - 1.0) < 1e-3);
    CHECK(fabs(back / (0.5 * component(&whole, "master_weights")) - 1.0) < 1e-3);
}

/* What nobody says: torchtitan's schemes have FSDP2, others a layer scan. The head's weights stay after the forward pass, as the loss
 * follows (torchtitan fsdp.py apply_fsdp_to_decoder), where "always" gathers them again. 2 micro-batches; torch 2.15 itself, 2 processes
 * on a CPU, 3 layers: 4 all-gathers of the embedding and of each layer, 2 of the head, with "always" 4. */
static void test_default(void) {
    static spw_job job, said;
    static spw_footprint f, always;
    static spw_step_traffic t;
    spw_scheme own, other, hybrid;
    CHECK_OK(spw_scheme_parse("torchtitan", &own));
    CHECK_OK(spw_scheme_parse("torchtitan-hybridep", &hybrid));
    CHECK_OK(spw_scheme_parse("megablocks", &other));
    read_job("", &job);
    read_job("fsdp2: {reshard_after_forward: always}\n", &said);
    const spw_point point = spw_point_of(&job, &own, 2), scan = spw_point_of(&job, &other, 2),
                    stated = spw_point_of(&said, &own, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK_OK(spw_footprint_compute(&stated, NULL, &always));
    CHECK(component(&f, "fsdp2.parameters") > 0.0 && component(&f, "gathered_expert_weights") < 0.0);
    CHECK(f.peak_bytes == always.peak_bytes);
    CHECK_OK(spw_footprint_compute(&scan, NULL, &f));
    CHECK(component(&f, "fsdp2.parameters") < 0.0 && component(&f, "gathered_expert_weights") > 0.0);
    CHECK(strstr(spw_footprint_state_note(&job, &own), "fsdp2.reshard_after_forward: default") != NULL);
    CHECK(strstr(spw_footprint_state_note(&job, &hybrid), "fsdp2.gathered: bf16") != NULL);
    CHECK(strstr(spw_footprint_state_note(&job, &other), "as by FSDP") != NULL);
    CHECK(strstr(spw_footprint_state_note(&said, &own), "default") == NULL);
    CHECK(strstr(spw_footprint_state_note(&said, &other), "over all GPUs") != NULL);
    said.fsdp2.replicas = 2; /* HSDP */
    CHECK(strstr(spw_footprint_state_note(&said, &other), "as by HSDP") != NULL);
    said.fsdp2.replicas = 1;
    for (int i = 0; i < 2; i++) {
        size_t embedding = 0, head = 0;
        CHECK_OK(spw_step_traffic_of(i == 0 ? &point : &stated, &spw_step_stacks[0], &t));
        for (size_t j = 0; j < t.items; j++) {
            if (t.item[j].operation != SPW_OPERATION_ALL_GATHER) continue;
            if (strcmp(t.item[j].name, "embedding") == 0) embedding += spw_step_item_times(&t, &t.item[j]);
            if (strcmp(t.item[j].name, "head") == 0) head += spw_step_item_times(&t, &t.item[j]);
        }
        CHECK(embedding == 4 && head == (i == 0 ? 2 : 4));
        CHECK(operations(&t, SPW_OPERATION_ALL_GATHER) == 58 * 4);
    }
    /* Megatron's optimizers and bare layers have no FSDP2, and keys of it need a scheme that has it. */
    read_job("optimizer: distributed\n", &job);
    CHECK(!spw_fsdp2_is_default(&job, &own));
    read_job("fsdp2: {replicas: 2}\n", &job);
    CHECK_OK(spw_footprint_check(&job, &own));
    CHECK(spw_footprint_check(&job, &other) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "fsdp2.replicas is of FSDP2, and a job with scheme 'megablocks'") != NULL);
    read_job("fsdp2: {gathered: bf16}\n", &job);
    CHECK(strstr(spw_footprint_state_note(&job, &own), "own are") != NULL);
    job.precision.weights = job.precision.gradients = job.precision.optimizer = 4;
    CHECK(strstr(spw_footprint_state_note(&job, &own), "own are") == NULL);
}

/* FSDP2 under PyTorch's own pipeline stages: torch 2.15 with gloo, 4 processes on a CPU, 2 stages of 2 GPUs; blocks of layers of
 * 64 x 64, shards of bf16, reduced in fp32; the most bytes of gathered weights and of whole gradients, all-gathers of all layers of
 * both stages in a step, reductions of one stage. */
/* Gradients of the experts' three matrices, in the format of gathered weights: so many there at once when the last is made. */
static void check_listed(const spw_point *point, double matrix, size_t at_once) {
    static const char *const names[] = {"d_wo", "d_w1", "d_w0"};
    const spw_rank_rows rows = spw_balanced_rows(point->scheme, &point->shape);
    spw_layer layer;
    size_t event = 0, there = 0;
    CHECK_OK(spw_layer_build(point->scheme, &point->shape, SPW_FLAVOUR_LIVE, &layer));
    const size_t last = spw_layer_find(&layer, "d_w0");
    while (event < layer.events && layer.event[event].tensor != last) event++;
    CHECK(event < layer.events);
    for (size_t i = 0; i < 3; i++) {
        const size_t t = spw_layer_find(&layer, names[i]);
        CHECK(t != SIZE_MAX && fabs((double)spw_layer_bytes(&layer.tensor[t], &rows) - matrix) < 0.5);
        there += spw_layer_is_live(&layer, &rows, t, event);
    }
    CHECK(there == at_once);
    spw_layer_destroy(&layer);
}

/* Without stages gradients wait for the end of their layer, and none of the experts is there at its fullest moment; another scheme's
 * list has none, and they count beside it. */
static void gradients_of_experts(void) {
    static spw_job job;
    static spw_footprint f;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    read_job("", &job);
    job.sequences_per_gpu[0] = 2;
    spw_point point = spw_point_of(&job, &scheme, 2);
    const double experts = 8.0 * 3.0 * 7168.0 * 2048.0, unit = spw_fsdp2_unit_of(&job, true).parameters;
    check_listed(&point, 2.0 * experts / 3.0, 3);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.gradients") - 2.0 * (unit - experts)) < 2.0);
    CHECK(strcmp(f.step, "weight gradient") == 0 && component(&f, "moe.d_wo") < 0.0);
    CHECK_OK(spw_scheme_parse("megablocks", &scheme));
    job.fsdp2.reshard = SPW_RESHARD_ALWAYS;
    point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.gradients") - 2.0 * unit) < 2.0);
}

static void test_stages(void) {
    static const struct {
        spw_reshard reshard;
        size_t blocks, micro, layers; /* layers of a block */
        double weights, gradients;
        size_t gathers, reductions;
    } staged[] = {{SPW_RESHARD_NEVER, 1, 4, 3, 24576, 49152, 6, 3},
                  {SPW_RESHARD_ALWAYS, 1, 4, 3, 24576, 49152, 30, 3},
                  {SPW_RESHARD_NEVER, 2, 4, 2, 32768, 65536, 8, 4},
                  {SPW_RESHARD_NEVER, 4, 4, 1, 24576, 65536, 20, 4},
                  {SPW_RESHARD_ALWAYS, 4, 8, 1, 16384, 65536, 81, 4}};
    static spw_job job;
    static spw_footprint f;
    static spw_step_traffic t;
    for (size_t i = 0; i < sizeof staged / sizeof *staged; i++) {
        const size_t v = staged[i].blocks, layers = staged[i].layers;
        job = (spw_job){.expert = 1, .fsdp = 2, .pipeline = 2, .tensor = 1, .virtual_stages = v};
        job.micro_batches = staged[i].micro;
        job.model.layers = 2 * v * layers;
        job.fsdp2.reshard = staged[i].reshard;
        CHECK(spw_fsdp2_waits(&job));
        /* of blocks that come back, "always" frees one more in between */
        const double most = (double)(spw_fsdp2_resident(&job) * layers) * 8192.0,
                     freed = staged[i].reshard == SPW_RESHARD_ALWAYS && v > 3 ? 8192.0 : 0.0;
        CHECK(fabs(most - freed - staged[i].weights) < 0.5);
        CHECK(fabs((double)(v * layers) * 16384.0 - staged[i].gradients) < 0.5);
        CHECK(spw_fsdp2_gathers_of(&job).dense_layers == staged[i].gathers);
        CHECK(v * layers == staged[i].reductions);
    }
    /* DeepSeek-V3 on 4 stages, the first with 3 dense layers and 13 with experts: all there at once, bf16 and gradients of 4 bytes. */
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    read_job("", &job);
    job.pipeline = 4;
    job.fsdp = 4;
    job.micro_batches = 8;
    job.sequences_per_gpu[0] = 8;
    const spw_point point = spw_point_of(&job, &scheme, 8);
    const spw_parameters p = spw_model_parameters(&job.model);
    const double experts = 8.0 * 3.0 * 7168.0 * 2048.0, table = 129280.0 * 7168.0,
                 attention = (double)(p.attention_per_layer + p.norms_per_layer),
                 moe = experts + attention + (double)(p.shared_per_layer + p.router_per_layer),
                 dense = attention + (double)p.dense_ffn_per_layer;
    CHECK_OK(spw_footprint_of_stage(&point, 0, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.parameters") - 2.0 * (13.0 * moe + 3.0 * dense + table)) < 2.0);
    CHECK(fabs(component(&f, "fsdp2.whole_gradients") - 4.0 * (13.0 * moe + 3.0 * dense + table)) < 2.0);
    CHECK(component(&f, "fsdp2.weight_gradient") < 0.0); /* the scheme's list has it */
    check_listed(&point, 2.0 * experts / 3.0, 1);
    CHECK(component(&f, "gradients") < 0.0 && component(&f, "fsdp2.reduce_input") < 0.0);
    CHECK_OK(spw_footprint_of_stage(&point, 3, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.parameters") - 2.0 * (15.0 * moe + table + 7168.0)) < 2.0);
    CHECK(fabs(component(&f, "fsdp2.head") - 2.0 * (table + 7168.0)) < 2.0);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &t));
    CHECK(operations(&t, SPW_OPERATION_ALL_GATHER) == 58); /* once a step, whatever the micro-batches */
    CHECK(operations(&t, SPW_OPERATION_REDUCE_SCATTER) == 58);
    job.virtual_stages =
        4; /* 16 blocks, 4 of them with layers more: of a stage's 4 the 3 largest are gathered */
    CHECK_OK(spw_footprint_of_stage(&point, 0, NULL, &f));
    CHECK(fabs(component(&f, "fsdp2.parameters") - 2.0 * (2.0 * 4.0 * moe + moe + 3.0 * dense + table)) <
          2.0);
}

/* GPipe: every micro-batch of a stage waits for the last forward pass; 1F1B has 4 of 8 on the first of 4 stages, 1 on the last. Weights
 * are gathered once all the same. Megatron-Core has no such order. */
static void test_gpipe(void) {
    static spw_job job;
    static spw_footprint f, one;
    spw_scheme scheme, other;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &other));
    read_job("", &job);
    job.pipeline = 4;
    job.fsdp = 4;
    job.micro_batches = job.sequences_per_gpu[0] = 8;
    const spw_point point = spw_point_of(&job, &scheme, 8);
    for (size_t s = 0; s < 4; s++) {
        job.schedule = SPW_SCHEDULE_ONE_F_ONE_B;
        CHECK_OK(spw_footprint_of_stage(&point, s, NULL, &one));
        job.schedule = SPW_SCHEDULE_GPIPE;
        CHECK_OK(spw_footprint_of_stage(&point, s, NULL, &f));
        CHECK(f.stage.kept_layers == 8 * f.stage.layers && one.stage.kept_layers == (4 - s) * f.stage.layers);
        CHECK(f.peak_bytes > one.peak_bytes);
    }
    CHECK_OK(spw_footprint_check(&job, &scheme));
    CHECK(spw_footprint_check(&job, &other) == SPW_ECONFIG && strstr(spw_last_error(), "GPipe") != NULL);
    job.fsdp2.reshard = SPW_RESHARD_ALWAYS; /* for 8 forward passes, and once for all backward ones */
    CHECK(spw_fsdp2_gathers_of(&job).moe_layers == 58 * 9);
    job.fsdp2.reshard = SPW_RESHARD_NEVER;
    CHECK(spw_fsdp2_gathers_of(&job).moe_layers == 58);
    job.pipeline = 1, job.fsdp = 16, job.tensor = 2;
    CHECK(spw_footprint_check(&job, &scheme) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "are not described for torchtitan") != NULL);
}

int main(void) {
    test_gpipe();
    test_stages();
    test_default();
    test_replicas();
    test_whole_experts();
    test_head_unit();
    test_host_and_replicas();
    test_optimizer_on_host();
    test_measured();
    test_traffic();
    test_job();
    gradients_of_experts();
    return check_done();
}
