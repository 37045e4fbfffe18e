/* State of one GPU beside closed forms: Megatron's 18 and 6 + 12 / replicas bytes a parameter, everything over
 * all GPUs, and parameters that the stages hold together. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/point.h"
#include "sim/weights/optimizer_state.h"

#include "sim/weights/block.h"
#include "sim/weights/muon_dealing.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static double all(const spw_optimizer_state *s) { return s->weights + s->gradients + s->master + s->moments; }

static void test_bytes(void) {
    static spw_job job;
    const spw_held_parameters held = {.routed = 8e9, .rest = 1e9};
    job.expert = 8;
    job.fsdp = 4;
    job.tensor = 2;
    job.master_bytes = SPW_MASTER_AUTO;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.optimizer = SPW_OPTIMIZER_REPLICATED;
    spw_optimizer_state s = spw_optimizer_state_of(&job, &held);
    CHECK(near(all(&s), 18.0 * (8e9 / 16 + 1e9 / 2)));
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED; /* 4 replicas of the experts, 32 of the rest */
    s = spw_optimizer_state_of(&job, &held);
    CHECK(near(all(&s), (6.0 + 12.0 / 4) * (8e9 / 16) + (6.0 + 12.0 / 32) * (1e9 / 2)));
    CHECK(s.routed_replicas == 4 && s.rest_replicas == 32);
    job.megatron.remainders = true; /* 2 of a master weight's 4 bytes */
    s = spw_optimizer_state_of(&job, &held);
    CHECK(near(all(&s), (6.0 + 10.0 / 4) * (8e9 / 16) + (6.0 + 10.0 / 32) * (1e9 / 2)));
    job.megatron.remainders = false;
    job.precision.weights = 4; /* fp32 weights need no master */
    s = spw_optimizer_state_of(&job, &held);
    CHECK(s.master == 0.0 && near(s.weights, 4.0 * (8e9 / 16 + 1e9 / 2)));
    job.optimizer = SPW_OPTIMIZER_SHARDED; /* bf16 everywhere: 8 bytes over all 64 GPUs */
    job.precision = (spw_precision){2, 2, 2, 2};
    s = spw_optimizer_state_of(&job, &held);
    CHECK(near(all(&s), 8.0 * 9e9 / 64));
    job.master_bytes = 4;
    s = spw_optimizer_state_of(&job, &held);
    CHECK(near(s.master, 4.0 * 9e9 / 64));
}

/* Halves of master weights come with the optimizer's first step; whole ones are made with the model. */
static void test_remainders(void) {
    static spw_job job;
    static spw_footprint f;
    spw_scheme scheme;
    uint64_t bytes[2] = {0};
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    for (size_t kept = 0; kept < 2; kept++) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "model: qwen3-30b-a3b\ncluster: h100-8x8\noptimizer: distributed\n"
            "parallel: {expert: 8, fsdp: 8}\nbatch: {sequence_length: 4096, sequences_per_gpu: 1}\n%s",
            kept > 0 ? "store_param_remainders: true\n" : "");
        CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
        const spw_point point = spw_point_of(&job, &scheme, 1);
        CHECK_OK(spw_footprint_compute(&point, NULL, &f));
        for (size_t i = 0; i < f.components; i++) {
            if (strcmp(f.component[i].name, "master_weights") != 0) continue;
            bytes[kept] = f.component[i].bytes;
            CHECK(f.component[i].by_first_step == (kept > 0));
        }
    }
    CHECK(bytes[1] > 0 && bytes[0] == 2 * bytes[1]);
}

/* Megatron's groups, made as its parallel_state makes them: of the ranks that share a parameter, in their order, every `replicas /
 * instances` in a row are one instance, and a parameter's state lies on one rank of each. What the ranks hold in all is every parameter's
 * state as often as there are instances, and all hold as much. 64 GPUs in 2 x 8 x 4 (experts) and 4 x 2 x 8 (the rest). */
static void test_instances(void) {
    enum {
        GPUS = 64,
        EXPERT = 8,
        SHARED = 2,
        FSDP = 4,
        TENSOR = 4,
        CONTEXT = 2,
        DATA = 8,
        PARTS = 8,
        INSTANCES = 4
    };
    static spw_job job;
    static double held_by[GPUS];
    const spw_held_parameters held = {.routed = EXPERT * SHARED * PARTS * 3.0,
                                      .rest = TENSOR * PARTS * 16.0 * 5.0};
    job.expert = EXPERT, job.fsdp = FSDP, job.expert_tensor = SHARED;
    job.tensor = TENSOR, job.context = CONTEXT, job.data = DATA;
    job.master_bytes = SPW_MASTER_AUTO;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    for (size_t instances = 1; instances <= INSTANCES; instances *= 2) {
        const size_t inner[2] = {FSDP / instances, DATA * CONTEXT / instances},
                     stride[2] = {EXPERT * SHARED, TENSOR};
        const double each[2] = {held.routed / (EXPERT * SHARED), held.rest / TENSOR};
        for (size_t gpu = 0; gpu < GPUS; gpu++) held_by[gpu] = 0.0;
        for (int i = 0; i < 2; i++)
            for (size_t gpu = 0; gpu < GPUS;
                 gpu++) { /* its place among those that share, and in its instance */
                const size_t place = gpu / stride[i], in_instance = place % inner[i];
                for (size_t part = 0; part < inner[i]; part++)
                    if (part == in_instance) held_by[gpu] += each[i] / (double)inner[i];
            }
        job.optimizer_instances = instances;
        const spw_optimizer_state s = spw_optimizer_state_of(&job, &held);
        double sum = 0.0;
        for (size_t gpu = 0; gpu < GPUS; gpu++) {
            CHECK(near(s.updated, held_by[gpu]));
            sum += held_by[gpu];
        }
        CHECK(near(sum, (double)instances * (held.routed + held.rest)));
        CHECK(near(s.moments, 8.0 * s.updated) && near(s.master, 4.0 * s.updated));
        CHECK(near(s.weights, 2.0 * (each[0] + each[1])) && near(s.gradients, 4.0 * (each[0] + each[1])));
    }
    job.optimizer = SPW_OPTIMIZER_REPLICATED; /* has no instances */
    CHECK(spw_state_copies(&job) == 1);
}

/* A share of the optimizer that the host keeps: so much less of moments and master weights, and nothing else changes, under either optimizer
 * and with a tensor group. */
static void test_share_on_host(void) {
    static spw_job job;
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    const spw_held_parameters held = {.routed = 6.0e9, .rest = 1.0e9, .replicated = 3.0e7};
    for (int i = 0; i < 4; i++) {
        job.expert = 4, job.fsdp = 8, job.pipeline = 1, job.tensor = job.expert_tensor = i < 2 ? 1 : 2;
        job.precision = (spw_precision){.weights = 2, .gradients = 4, .optimizer = 4, .activations = 2};
        job.optimizer = i % 2 == 0 ? SPW_OPTIMIZER_DISTRIBUTED : SPW_OPTIMIZER_REPLICATED;
        job.optimizer_on_host = 0.0;
        const spw_optimizer_state all = spw_optimizer_state_of(&job, &held);
        CHECK(all.moments > 0.0);
        for (int quarters = 1; quarters <= 4; quarters++) {
            const double host = quarters / 4.0;
            job.optimizer_on_host = host;
            const spw_optimizer_state left = spw_optimizer_state_of(&job, &held);
            CHECK(fabs(left.moments - (1.0 - host) * all.moments) <= 1e-9 * all.moments);
            CHECK(fabs(left.master - (1.0 - host) * all.master) <= 1e-9 * all.master);
            CHECK(near(left.weights, all.weights) && near(left.gradients, all.gradients) &&
                  near(left.updated, all.updated));
        }
    }
}

/* Mixtral, 32 layers, replicated over 8 GPUs that hold an expert each: one fp32 moment of everything, a second of two tables of
 * 32000 x 4096, of two norms a layer and the last. torch.optim.Muon itself, 6 matrices of 64 x 64 over 4 GPUs in bf16: 12288 bytes of
 * state where AdamW has 24576 (torch 2.15). */
static void test_muon(void) {
    static spw_job job;
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    job.expert = 8;
    job.fsdp = job.tensor = job.pipeline = 1;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.optimizer = SPW_OPTIMIZER_REPLICATED;
    job.muon = true;
    const spw_pipeline one = {1, 1, 1};
    const spw_stage stage = spw_pipeline_stage(&one, &job.model, 0);
    const spw_held_parameters held = spw_stage_parameters(&job.model, &stage);
    const double adam = 2.0 * 32000 * 4096 + 65.0 * 4096;
    const spw_held_parameters own = spw_adam_parameters(&job.model, &stage);
    CHECK(near(spw_optimizer_state_of(&job, &own).moments, 8.0 * adam));
    job.muon = false;
    CHECK(near(spw_optimizer_state_of(&job, &held).moments, 8.0 * (held.routed / 8 + held.rest)));
    const spw_held_parameters matrices = {.rest = 6.0 * 64 * 64};
    job.expert = 1, job.fsdp = 4;
    job.precision.optimizer = 2;
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    CHECK(near(spw_optimizer_state_of(&job, &matrices).moments, 24576.0));
}

/* The example of Megatron-Core's shard_params: ten parameters, by size, on four ranks are p0 p7 p8, p1 p6 p9, p2 p5, p3 p4. Then a
 * table of Adam's between them, which takes a turn as any other. */
static void test_dealing(void) {
    spw_muon_matrices list[10];
    spw_muon_hand hands[4];
    for (size_t i = 0; i < 10; i++) list[i] = (spw_muon_matrices){1, 10 - i, 1}; /* sizes 10 to 1 */
    CHECK_OK(spw_muon_deal(list, 10, NULL, 0, 4, hands));
    CHECK(hands[0].matrices == 1 + 8 + 9 && hands[1].matrices == 2 + 7 + 10 && hands[2].matrices == 3 + 6 &&
          hands[3].matrices == 4 + 5);
    const spw_muon_matrices table = {100, 3, 1}, norm = {1, 4, 2};
    const spw_muon_matrices adam[] = {table, norm}; /* 1 2 3 4 | 4 4 5 6 | 7 8 9 10 | 300 */
    CHECK_OK(spw_muon_deal(list, 10, adam, 2, 4, hands));
    CHECK(hands[0].matrices == 1 + 6 + 7 && hands[1].matrices == 2 + 5 + 8 && hands[2].matrices == 3 + 9 &&
          hands[3].matrices == 4 + 10);
    CHECK(hands[0].adam == 0 && hands[1].adam == 0 && hands[2].adam == 4 && hands[3].adam == 4 + 300);
    CHECK_OK(spw_muon_deal(list, 10, adam, 2, 1, hands)); /* one rank has all */
    CHECK(hands[0].matrices == 55 && hands[0].adam == 308);
}

/* Kimi-K2 by hand: 61 layers of 7168, the first dense (18432), 384 experts of 2048 and one shared, 64 heads of 128 + 64 and 128,
 * ranks 1536 and 512. Stage 0 of 4 holds the embedding and the dense layer. On 256 GPUs with EP 64 there is one replica of the
 * experts and there are 64 of the rest, so experts' state is whole, and no buffer is padded. */
static void test_dealt_kimi(void) {
    static spw_job job;
    static const char text[] = "model: kimi-k2\ncluster: gb300:64x4\nparallel: {expert: 64, fsdp: 1, "
                               "pipeline: 4, virtual_stages: 4}\n"
                               "batch: {sequences_per_gpu: 16, sequence_length: 4096, micro_batches: 16}\n"
                               "optimizer: distributed\noptimizer_algorithm: muon\nmuon_layout: ping_pong\n";
    CHECK_OK(spw_job_parse("job", NULL, text, sizeof text - 1, &job));
    CHECK(!spw_muon_packs(&job) && spw_muon_is_dealt(&job));
    const spw_pipeline p = spw_pipeline_of(&job);
    const spw_stage stage = spw_pipeline_stage(&p, &job.model, 0);
    const double layers = (double)stage.layers, moe = layers - 1.0, h = 7168.0;
    const double expert = 3.0 * h * 2048.0, dense = 3.0 * h * 18432.0,
                 attention = h * 1536 + 1536.0 * 64 * 192 + h * 576 + 512.0 * 64 * 256 + 64.0 * 128 * h;
    const double experts = moe * 6.0 * expert,
                 others = layers * attention + dense + moe * (expert + 384.0 * h);
    spw_muon_hand hand;
    CHECK_OK(spw_muon_dealt_fullest(&job, 0, 4.0, 4.0, &hand));
    CHECK(hand.adam >= 163840.0 * h && hand.adam < 163840.0 * h + 4.0 * h); /* the GPU with the table */
    CHECK(hand.matrices >= experts && hand.matrices < experts + others / 8.0);
    const spw_held_parameters held = spw_job_parameters(&job, &stage);
    const spw_optimizer_state s = spw_optimizer_state_of(&job, &held);
    const double whole = experts + others + 163840.0 * h;
    CHECK(fabs(s.weights / 2.0 / whole - 1.0) < 1e-3 && fabs(s.gradients / 4.0 / whole - 1.0) < 1e-3);
    job.muon_ping_pong = false;
    spw_muon_packing packed;
    CHECK_OK(spw_muon_packing_of(&job, 0, &packed));
    CHECK(packed.buffers[1] >= 64.0 * 2.0 * h * 18432.0); /* one matrix a shard, of gate and up */
}

/* Megatron-Core's own packing, run with these shapes: NVIDIA/Megatron-LM d98e8a64 megatron/core/optimizer/layer_wise_optimizer.py
 * LayerWiseDistributedOptimizer._compute_per_buffer_param_layout, one bucket: elements of a shard with padding, of the fullest, of the
 * emptiest. */
static void test_packing(void) {
    static const struct {
        size_t shards, kinds;
        spw_muon_matrices kind[9];
        uint64_t shard, most, least;
    } cases[] = {{8, 2, {{4096, 7168, 32}, {7168, 2048, 32}}, 176160768, 176160768, 176160768},
                 {12, 2, {{4096, 7168, 32}, {7168, 2048, 32}}, 132120576, 132120576, 102760448},
                 {32,
                  9,
                  {{1536, 7168, 5},
                   {24576, 1536, 5},
                   {576, 7168, 5},
                   {32768, 512, 5},
                   {7168, 16384, 5},
                   {36864, 7168, 1},
                   {7168, 18432, 1},
                   {256, 7168, 4},
                   {4096, 7168, 4}}, /* and fc2 of the shared expert */
                  264241152,
                  264241152,
                  11010048},
                 {64, 3, {{5120, 2048, 12}, {2048, 4096, 12}, {128, 2048, 12}}, 10485760, 10485760, 0},
                 {3, 3, {{33, 65, 7}, {100, 7, 7}, {64, 64, 7}}, 19712, 19527, 12288}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t load[64] = {0}, shard = 0, most = 0, least = UINT64_MAX;
        spw_muon_matrices kind[10];
        memcpy(kind, cases[i].kind, sizeof cases[i].kind);
        size_t kinds = cases[i].kinds;
        if (kinds == 9) kind[kinds++] = (spw_muon_matrices){7168, 2048, 4};
        CHECK_OK(spw_muon_pack(kind, kinds, cases[i].shards, load, NULL, &shard));
        for (size_t s = 0; s < cases[i].shards; s++) {
            most = load[s] > most ? load[s] : most;
            least = load[s] < least ? load[s] : least;
        }
        CHECK(shard == cases[i].shard && most == cases[i].most && least == cases[i].least);
    }
}

/* DeepSeek-V3 with its layer of multi-token prediction on the last of two stages, beside the same without: experts of a MoE layer on
 * 32 GPUs, and of the rest the matrices of a MoE layer and the projection of two hidden states to one, 2 x 7168 to 7168. */
static void test_packed_prediction(void) {
    static const char *const layouts[] = {"Et*30|t*31,L", "Et*30|t*31,m,L"};
    static spw_job job;
    spw_muon_packing packing[2];
    for (size_t i = 0; i < 2; i++) {
        char text[1024];
        (void)snprintf(
            text, sizeof text,
            "model: deepseek-v3\ncluster: h200-64x8\nparallel: {expert: 32, fsdp: 8, pipeline: 2, "
            "pipeline_model_parallel_layout: '%s'}\nbatch: {sequences_per_gpu: 4, sequence_length: 4096, "
            "micro_batches: 4}\noptimizer: distributed\noptimizer_algorithm: muon\n",
            layouts[i]);
        CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
        CHECK_OK(spw_muon_packing_of(&job, 1, &packing[i]));
    }
    const double h = 7168.0, q = 1536.0, kv = 512.0, heads = 128.0,
                 attention =
                     h * q + q * heads * 192.0 + h * (kv + 64.0) + kv * heads * 256.0 + heads * 128.0 * h;
    CHECK(near(packing[1].matrices[0] - packing[0].matrices[0], 256.0 / 32.0 * 3.0 * h * 2048.0));
    CHECK(near(packing[1].matrices[1] - packing[0].matrices[1],
               attention + 3.0 * h * 2048.0 + 256.0 * h + 2.0 * h * h));
}

static void test_stages(void) {
    static const char *const names[] = {"deepseek-v3", "mixtral-8x7b", "gpt-oss-20b", "kimi-k2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        static spw_model model;
        CHECK_OK(spw_model_read(names[i], NULL, &model));
        const spw_parameters p = spw_model_parameters(&model);
        for (size_t stages = 1; stages <= 8; stages++) {
            const spw_pipeline pipeline = {stages, 1, stages};
            double sum = 0.0;
            for (size_t s = 0; s < stages; s++) {
                const spw_stage stage = spw_pipeline_stage(&pipeline, &model, s);
                const spw_held_parameters held = spw_stage_parameters(&model, &stage);
                sum += held.routed + held.rest;
            }
            CHECK(near(sum, (double)p.total));
        }
    }
    static spw_model tied;
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &tied));
    tied.tied_embeddings = true;
    const spw_parameters p = spw_model_parameters(&tied);
    const spw_pipeline two = {2, 1, 2};
    const spw_stage first = spw_pipeline_stage(&two, &tied, 0), last = spw_pipeline_stage(&two, &tied, 1);
    CHECK(near(spw_stage_parameters(&tied, &last).rest - spw_stage_parameters(&tied, &first).rest,
               (double)p.final_norm)); /* both hold the table */
}

/* DeepSeek-V3 with EP8 and 8 replicas, no pipeline: 571 GiB of experts (docs/schemes.md, section 7.8). */
static void test_deepseek(void) {
    static spw_job job;
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &job.model));
    job.expert = job.fsdp = 8;
    job.tensor = 1;
    job.master_bytes = SPW_MASTER_AUTO;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    const spw_pipeline one = {1, 1, 1};
    const spw_stage stage = spw_pipeline_stage(&one, &job.model, 0);
    spw_held_parameters held = spw_stage_parameters(&job.model, &stage);
    held.rest = 0.0;
    const spw_optimizer_state s = spw_optimizer_state_of(&job, &held);
    CHECK(fabs(all(&s) / 1073741824.0 - 571.0) < 1.0);
}

/* Every matrix of a block on one GPU: grouped queries with a gate and values of another size, tensor 2, expert 2 x expert_tensor 2; one
 * dense and two MoE layers, and one of multi-token prediction. */
static void test_matrices(void) {
    static const spw_muon_matrices experts[] = {{96, 512, 12, 2, false}, {512, 48, 12, 2, true}};
    static const spw_muon_matrices rest[] = {
        {608, 512, 4, 2, false, {256, 256, 64, 32}}, /* queries, gates, keys, values */
        {512, 128, 4, 2, true},
        {200, 512, 1, 2, false}, /* gate and up of the dense FFN */
        {512, 100, 1, 2, true},
        {40, 512, 3, 2, false}, /* of the shared expert */
        {512, 20, 3, 2, true},
        {8, 512, 3}, /* routers */
        {256, 1024, 1, 2, false}};
    static spw_job job;
    spw_model *m = &job.model;
    spw_muon_list list[2];
    m->hidden = 512, m->heads = 8, m->kv_heads = 2, m->head_dim = 64, m->v_head_dim = 32,
    m->query_gate = true;
    m->layers = 3, m->moe_layers = 2, m->experts = 8, m->top_k = 2;
    m->expert_ffn = 96, m->shared_ffn = 40, m->dense_ffn = 200;
    job.expert = 2, job.expert_tensor = 2, job.tensor = 2, job.fsdp = 1;
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    const spw_block block = {.layers = 3, .moe_layers = 2, .predictions = 1};
    spw_muon_block_matrices(&job, &block, list);
    const spw_muon_matrices *const want[] = {experts, rest};
    const size_t kinds[] = {sizeof experts / sizeof *experts, sizeof rest / sizeof *rest};
    for (size_t i = 0; i < 2; i++) {
        CHECK(list[i].kinds == kinds[i]);
        for (size_t k = 0; k < kinds[i] && k < list[i].kinds; k++) {
            const spw_muon_matrices *a = &list[i].kind[k], *b = &want[i][k];
            uint64_t rows = 0;
            CHECK(a->rows == b->rows && a->columns == b->columns && a->count == b->count);
            CHECK(a->sharers == b->sharers && a->by_columns == b->by_columns);
            for (size_t p = 0; p < SPW_MUON_PARTS; p++) rows += a->part[p];
            CHECK(memcmp(a->part, b->part, sizeof a->part) == 0 && (rows == 0 || rows == a->rows));
        }
    }
}

static spw_muon_seconds count_elements(const void *context, const spw_muon_matrices *one) {
    (void)context;
    return (spw_muon_seconds){(double)(one->rows * one->columns), 1.0};
}

/* Mixtral by hand, on one GPU or one tensor group of each of 4 stages: 32 layers of 4096, 8 experts of 14336, tables of 32000 words on the two
 * ends. What one GPU deals to itself is all that it has of its stage: no table comes twice, none is lost, and what a tensor group cuts,
 * experts and tables too, is cut; routers and norms are whole on each. */
static void test_dealt_alone(size_t tensor) {
    static spw_job job;
    char text[512];
    const int length = snprintf(
        text, sizeof text,
        "model: mixtral-8x7b\ncluster: h200:%zux4\nparallel: {expert: 1, fsdp: 1, pipeline: 4, tensor: %zu, "
        "expert_tensor: %zu}\nbatch: {sequences_per_gpu: %zu, sequence_length: 1024, micro_batches: 4}\n"
        "optimizer: distributed\noptimizer_algorithm: muon\nmuon_layout: ping_pong\n",
        tensor, tensor, tensor, 4 * tensor);
    const double h = 4096.0, layers = 8.0, table = 32000.0 * h / (double)tensor;
    CHECK_OK(spw_job_parse("job", NULL, text, (size_t)length, &job));
    for (size_t stage = 0; stage < 4; stage++) {
        const double cut = layers * (2.5 * h * h + 8.0 * 3.0 * h * 14336.0),
                     matrices = cut / (double)tensor + layers * 8.0 * h, norms = layers * 2.0 * h,
                     adam = norms + (stage == 0   ? table
                                     : stage == 3 ? table + h
                                                  : 0.0);
        spw_muon_hand hand;
        spw_muon_seconds all;
        CHECK_OK(spw_muon_dealt_fullest(&job, stage, 4.0, 4.0, &hand));
        CHECK(near(hand.matrices, matrices));
        CHECK(near(hand.adam, adam));
        CHECK_OK(spw_muon_dealt_slowest(&job, stage, count_elements, NULL, &all));
        CHECK(near(all.products, matrices));
        /* fc1 and fc2 of each expert, the router, queries with keys and values, and what attention gives */
        CHECK(near(all.gathers, layers * (2.0 * 8.0 + 1.0 + 2.0)));
    }
}

/* Random decks: what the hands have in all is what was dealt, no two hands differ by more cards than one in a round and back, and the
 * order of the shards is a snake's: brute force over a list of single cards. */
static void test_dealt_sums(void) {
    uint64_t seed = 7;
    for (int round = 0; round < 40; round++) {
        spw_muon_matrices kind[5], adam[2];
        struct {
            uint64_t elements;
            bool adam;
        } card[256];
        size_t cards = 0;
        const size_t shards = 1 + (size_t)round % 6;
        for (size_t i = 0; i < 7; i++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            const spw_muon_matrices one = {.rows = 1 + (seed >> 33) % 50,
                                           .columns = 1 + (seed >> 40) % 30,
                                           .count = 1 + (seed >> 50) % 9};
            *(i < 5 ? &kind[i] : &adam[i - 5]) = one;
            for (uint64_t j = 0; j < one.count; j++) {
                card[cards].elements = one.rows * one.columns;
                card[cards++].adam = i >= 5;
            }
        }
        spw_muon_hand got[6], want[6] = {{0}};
        bool taken[256] = {false};
        CHECK_OK(spw_muon_deal(kind, 5, adam, 2, shards, got));
        for (size_t turn = 0; turn < cards; turn++) { /* the smallest that is left, the first of equals */
            size_t least = cards;
            for (size_t i = 0; i < cards; i++)
                if (!taken[i] && (least == cards || card[i].elements < card[least].elements)) least = i;
            taken[least] = true;
            const size_t lap = turn / shards, at = turn % shards;
            spw_muon_hand *hand = &want[lap % 2 == 0 ? at : shards - 1 - at];
            *(card[least].adam ? &hand->adam : &hand->matrices) += (double)card[least].elements;
        }
        for (size_t i = 0; i < shards; i++)
            CHECK(got[i].matrices == want[i].matrices && got[i].adam == want[i].adam);
    }
}

int main(void) {
    test_dealt_alone(1);
    test_dealt_alone(2);
    test_dealt_alone(4);
    test_dealt_sums();
    test_matrices();
    test_bytes();
    test_remainders();
    test_instances();
    test_share_on_host();
    test_muon();
    test_packing();
    test_packed_prediction();
    test_dealing();
    test_dealt_kimi();
    test_stages();
    test_deepseek();
    return check_done();
}
