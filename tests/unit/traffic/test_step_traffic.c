/* Collectives of a step, and families of weights: with pencil and paper, and beside a published profile. */
#include "sim/job/job.h"
#include "sim/schemes/scheme.h"
#include "sim/traffic/step_traffic.h"
#include "sim/traffic/weight_families.h"

#include "tests/unit/check.h"
#include "tests/unit/traffic/traffic_of.h"

#include <math.h>
#include <string.h>

/* One item by name, pass and operation. */
static const spw_step_item *find(const spw_step_traffic *t, const char *name, spw_operation operation,
                                 bool backward) {
    for (size_t i = 0; i < t->items; i++)
        if (strcmp(t->item[i].name, name) == 0 && t->item[i].operation == operation &&
            t->item[i].backward == backward)
            return &t->item[i];
    return NULL;
}

/* Two stages of two blocks each and 4 micro-batches: sharded weights travel for each of them, those of replicas
 * once. */
static void test_micro_batches(const spw_job *one, const spw_step_stack *stack) {
    static spw_job job;
    static spw_step_traffic t, four;
    spw_scheme scheme;
    job = *one;
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    CHECK_OK(traffic_of(&job, &scheme, 4, stack, &t));
    job.pipeline = job.virtual_stages = 2;
    job.micro_batches = 4;
    CHECK_OK(traffic_of(&job, &scheme, 4, stack, &four));
    for (int p = 0; p < SPW_PURPOSES; p++) {
        const double whole = spw_step_purpose_wire_bytes(&t, (spw_purpose)p);
        const double parts = spw_step_purpose_wire_bytes(&four, (spw_purpose)p);
        if (p == SPW_PURPOSE_EXPERT_WEIGHTS || p == SPW_PURPOSE_OTHER_WEIGHTS)
            CHECK(whole > 0.0 && parts == 4.0 * whole / 2.0); /* mean over two stages */
    }
    const spw_step_item *item = find(&four, "activations", SPW_OPERATION_SEND, true);
    CHECK(item != NULL && item->bytes == 8 * 16 * 2 && item->count == 3);
    CHECK(item != NULL && spw_step_item_wire_bytes(&four, item) == 256.0 * 3 * 4 / 2);

    const spw_parameters p = spw_model_parameters(&job.model);
    const double routed = (double)(p.routed_per_layer * job.model.moe_layers) / 2;
    const double rest = (double)p.total - 2 * routed;
    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED; /* fp32 gradients scattered, bf16 weights gathered */
    CHECK_OK(traffic_of(&job, &scheme, 4, stack, &four));
    CHECK(spw_step_purpose_wire_bytes(&four, SPW_PURPOSE_EXPERT_WEIGHTS) == (4 + 2) * routed / 2 / 2);
    CHECK(spw_step_purpose_wire_bytes(&four, SPW_PURPOSE_OTHER_WEIGHTS) == (4 + 2) * rest * 3 / 4 / 2);
    job.optimizer_instances =
        2; /* an instance has every expert once, and halves the rest; between two of them gradients are summed */
    CHECK_OK(traffic_of(&job, &scheme, 4, stack, &four));
    CHECK(spw_step_purpose_wire_bytes(&four, SPW_PURPOSE_EXPERT_WEIGHTS) == 2 * 4 * routed / 2 / 2);
    CHECK(spw_step_purpose_wire_bytes(&four, SPW_PURPOSE_OTHER_WEIGHTS) ==
          (4 + 2) * rest / 2 / 2 + 2 * 4 * ceil(rest / 2) / 2 / 2);
    job.optimizer = SPW_OPTIMIZER_REPLICATED;
    CHECK_OK(traffic_of(&job, &scheme, 4, stack, &four));
    CHECK(spw_step_purpose_wire_bytes(&four, SPW_PURPOSE_EXPERT_WEIGHTS) == 2 * 4 * routed / 2 / 2);
}

/* 2 x 2 GPUs, 4 experts, top 2, 8 tokens, hidden 16, expert FFN 4, bf16; 3 layers, of which 2 are MoE. */
static void test_by_hand(void) {
    static spw_job job;
    static spw_step_traffic t;
    spw_scheme scheme;
    job.model = (spw_model){.layers = 3,
                            .moe_layers = 2,
                            .hidden = 16,
                            .vocab = 100,
                            .experts = 4,
                            .top_k = 2,
                            .expert_ffn = 4,
                            .dense_ffn = 32,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 8,
                            .v_head_dim = 8};
    job.expert = job.fsdp = 2;
    job.pipeline = job.tensor = 1;
    job.sequence_length = 8;
    job.precision = (spw_precision){2, 4, 4, 2};
    job.remat = SPW_REMAT_FULL;
    const spw_step_stack *stack = &spw_step_stacks[SPW_STEP_STACK_CUDA];
    const spw_operation gather = SPW_OPERATION_ALL_GATHER, scatter = SPW_OPERATION_REDUCE_SCATTER;

    CHECK_OK(spw_scheme_parse("ring:token_chunks=2", &scheme));
    CHECK_OK(traffic_of(&job, &scheme, 1, stack, &t));
    const spw_step_item *item = find(&t, "expert_wo", scatter, true);
    CHECK(item != NULL && item->bytes == 2 * 16 * 4 * 4); /* e H F g */
    CHECK(item != NULL && spw_step_item_wire_bytes(&t, item) == 512.0 * 2 / 2);
    item = find(&t, "q", gather, false); /* 16 x 32 x 2, over 4 GPUs; the first is of the MoE layers */
    CHECK(item != NULL && item->bytes == 1024 && spw_step_item_wire_bytes(&t, item) == 1024.0 * 2 * 3 / 4);
    item = find(&t, "dense_w0", gather, true);
    CHECK(item != NULL && item->bytes == 1024 && spw_step_item_wire_bytes(&t, item) == 1024.0 * 3 / 4);
    const spw_step_sum gathered = spw_step_combine(&t, stack, SPW_PLACE_MOE_LAYER, gather, false);
    /* tokens in 2 x 256, logits in 2 x 64; experts 3 x 256, q, k, v, out 3072 and router 128: w0 and w1, wo, the rest */
    CHECK(gathered.bytes == 512 + 128 + 768 + 3072 + 128 && gathered.count == 2 + 2 + 2 + 1);
    item = find(&t, "embedded_tokens", SPW_OPERATION_ALL_TO_ALL, true); /* 8 < 100: the tokens travel */
    CHECK(item != NULL && item->bytes == 256 && find(&t, "embedding", gather, false) == NULL);

    CHECK_OK(spw_scheme_parse("gmm", &scheme));         /* 16 x 16 x 2 bytes each way; sizes 4 x 2 x 4 */
    CHECK_OK(traffic_of(&job, &scheme, 16, stack, &t)); /* 128 tokens: the table travels */
    const spw_step_sum ragged =
        spw_step_combine(&t, stack, SPW_PLACE_MOE_LAYER, SPW_OPERATION_RAGGED_ALL_TO_ALL, true);
    CHECK(ragged.count == 4 && ragged.bytes == 4 * 16 * 512);
    CHECK(spw_step_combine(&t, stack, SPW_PLACE_MOE_LAYER, SPW_OPERATION_ALL_TO_ALL, true).bytes == 32);
    item = find(&t, "embedding", scatter, true);
    CHECK(item != NULL && item->bytes == 100 * 16 * 4 &&
          find(&t, "embedded_tokens", SPW_OPERATION_ALL_TO_ALL, true) == NULL);

    job.remat = SPW_REMAT_NONE; /* nothing runs twice */
    CHECK_OK(traffic_of(&job, &scheme, 16, stack, &t));
    CHECK(spw_step_combine(&t, stack, SPW_PLACE_MOE_LAYER, SPW_OPERATION_RAGGED_ALL_TO_ALL, true).count == 2);
    CHECK(find(&t, "sizes_by_rank", gather, true) == NULL &&
          find(&t, "sizes_by_rank", gather, false) != NULL);
    job.remat = SPW_REMAT_FULL;

    CHECK_OK(spw_scheme_parse("gmm-deepep", &scheme)); /* exchanges by library calls: none listed */
    CHECK_OK(traffic_of(&job, &scheme, 1, stack, &t));
    CHECK(spw_step_purpose_wire_bytes(&t, SPW_PURPOSE_EXCHANGE) == 0.0);
    CHECK(spw_step_purpose_wire_bytes(&t, SPW_PURPOSE_EXPERT_WEIGHTS) > 0.0);

    test_micro_batches(&job, stack);
    job.expert = job.fsdp = 1; /* one GPU: nothing travels */
    CHECK_OK(traffic_of(&job, &scheme, 1, stack, &t));
    CHECK(t.items == 0);

    job.expert = job.fsdp = 2;
    job.sequence_length = (size_t)1 << 24; /* R T E C alone is 2^77 */
    CHECK_OK(spw_scheme_parse("dense:capacity_factor=1e6,layout=peeled", &scheme));
    CHECK_STATUS(traffic_of(&job, &scheme, 128, stack, &t), SPW_ECONFIG);
}

/* Operations in the text of two published programs (profile_hlo_collective_counts: DeepSeek-V3, 6 sequences, 64 MI355X;
 * amd-agi/maxtext-slurm). Every place is once in the text. Their embedding is not exchanged. */
static void test_published_profile(void) {
    static const struct {
        const char *scheme;
        size_t gathers, scatters, all_to_alls, ragged;
    } rows[] = {{"gmm", 18, 4, 4, 6}, {"gmm-deepep", 14, 4, 0, 0}};
    static spw_job job;
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &job.model));
    job.expert = job.fsdp = 8;
    job.pipeline = job.tensor = 1;
    job.sequence_length = 4096;
    job.precision = (spw_precision){2, 2, 2, 2};
    job.remat = SPW_REMAT_FULL;
    const spw_step_stack *amd = &spw_step_stacks[SPW_STEP_STACK_AMD_OLD];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static spw_step_traffic t;
        spw_scheme scheme;
        size_t counts[SPW_OPERATIONS] = {0}, in_layers = 0;
        CHECK_OK(spw_scheme_parse(rows[i].scheme, &scheme));
        CHECK_OK(traffic_of(&job, &scheme, 6, amd, &t));
        for (int o = 0; o < SPW_OPERATIONS; o++) {
            for (int way = 0; way < 2; way++) {
                for (int place = 0; place < SPW_PLACES; place++)
                    counts[o] +=
                        spw_step_combine(&t, amd, (spw_step_place)place, (spw_operation)o, way).count;
                if (o == SPW_OPERATION_ALL_TO_ALL)
                    in_layers += spw_step_combine(&t, amd, SPW_PLACE_MOE_LAYER, (spw_operation)o, way).count;
            }
        }
        CHECK(counts[SPW_OPERATION_ALL_GATHER] == rows[i].gathers);
        CHECK(counts[SPW_OPERATION_REDUCE_SCATTER] == rows[i].scatters);
        CHECK(counts[SPW_OPERATION_RAGGED_ALL_TO_ALL] == rows[i].ragged && in_layers == rows[i].all_to_alls);
    }
}

/* What the time of weights is counted from is what the matrices of a step sum to, but for vectors and the ends. */
static void test_families(void) {
    static const char *const models[] = {"deepseek-v3", "mixtral-8x7b", "qwen3-30b-a3b"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        static spw_job job;
        static spw_step_traffic t, other;
        uint64_t experts = 0, others = 0;
        spw_weight_family family[SPW_WEIGHT_FAMILIES];
        spw_scheme scheme;
        char text[256];
        (void)snprintf(text, sizeof text,
                       "model: %s\ncluster: h100-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                       "batch: {sequences_per_gpu: 1, sequence_length: 4096}\nprecision: bf16\n",
                       models[i]);
        CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
        CHECK_OK(spw_scheme_parse("gmm", &scheme));
        CHECK_OK(traffic_of(&job, &scheme, 1, &spw_step_stacks[SPW_STEP_STACK_CUDA_OLD], &t));
        CHECK_OK(traffic_of(&job, &scheme, 1, &spw_step_stacks[SPW_STEP_STACK_AMD_OLD], &other));
        for (int p = 0; p < SPW_PURPOSES; p++) /* combined otherwise, and the same on the wire */
            CHECK(spw_step_purpose_wire_bytes(&other, (spw_purpose)p) ==
                  spw_step_purpose_wire_bytes(&t, (spw_purpose)p));
        CHECK(spw_weight_families(&job, false, family) == 2);
        for (size_t k = 0; k < t.items; k++) {
            const spw_step_item *item = &t.item[k];
            if (item->operation != SPW_OPERATION_ALL_GATHER || item->backward) continue;
            const uint64_t elements =
                item->bytes * item->count * t.times[item->place] / job.precision.weights;
            if (item->purpose == SPW_PURPOSE_EXPERT_WEIGHTS && item->group == family[0].group)
                experts += elements;
            if (item->purpose == SPW_PURPOSE_OTHER_WEIGHTS) others += elements;
        }
        const spw_parameters p = spw_model_parameters(&job.model);
        const uint64_t ends = p.embedding + p.head + p.final_norm, left = family[1].elements - others - ends;
        CHECK(family[0].elements == experts && family[0].members == 8 && family[0].stride == 8);
        CHECK(left >= p.norms_per_layer * job.model.layers && left < family[1].elements / 5000);
        CHECK(spw_weight_families(&job, true, family) == 3 && family[2].elements == 8 * family[0].elements);
    }
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* 8 nodes of 8 GPUs, experts over 8 and 8 replicas of them. Instances of 16 GPUs: two of these replicas in them, a ring over two nodes that
 * a NIC has an eighth of. Instances of a node: no replica of an expert is in it, and the rest never leaves it but for the sums. */
static void test_instances(void) {
    static spw_job job;
    static const char text[] = "model: mixtral-8x7b\ncluster: h100-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                               "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                               "optimizer: distributed\noptimizer_instances: 4\n";
    spw_weight_traffic scatters, gathers;
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, sizeof text - 1, &job));
    const double experts = 32.0 * 3 * 4096 * 14336, /* one of 8 of every layer */
        rest = (double)spw_model_parameters(&job.model).total - 8 * experts;
    CHECK_OK(spw_weight_step(&job, &scatters, &gathers));
    CHECK(near(scatters.nic_bytes,
               4 * experts / 2 + 8 * experts / 2 * 3 / 4 + 4 * rest * 15 / 16 / 8 + 8 * rest / 16 * 3 / 4));
    CHECK(near(gathers.nic_bytes, 2 * experts / 2 + 2 * rest * 15 / 16 / 8));
    CHECK(scatters.link_bytes == 0.0 && gathers.link_bytes == 0.0);
    job.optimizer_instances = 8;
    CHECK_OK(spw_weight_step(&job, &scatters, &gathers));
    CHECK(near(scatters.nic_bytes, 8 * experts * 7 / 8 + 8 * rest / 8 * 7 / 8));
    CHECK(near(scatters.link_bytes, 4 * rest * 7 / 8));
    CHECK(gathers.nic_bytes == 0.0 && near(gathers.link_bytes, 2 * rest * 7 / 8));
}

/* HSDP, 4 groups of 16 GPUs that each hold the state once: gathered twice and scattered over two nodes' replicas, then summed over the
 * groups. */
static void test_hybrid_shards(void) {
    static spw_job job;
    static const char text[] = "model: mixtral-8x7b\ncluster: h100-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                               "batch: {sequences_per_gpu: 1, sequence_length: 4096}\nprecision: bf16\n"
                               "optimizer: sharded\nfsdp2: {reshard_after_forward: always, replicas: 4}\n";
    spw_weight_traffic scatters, gathers;
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, sizeof text - 1, &job));
    const double experts = 32.0 * 3 * 4096 * 14336,
                 rest = (double)spw_model_parameters(&job.model).total - 8 * experts,
                 g = (double)job.precision.gradients, w = 2.0;
    CHECK_OK(spw_weight_step(&job, &scatters, &gathers));
    CHECK(near(gathers.nic_bytes, 2 * w * (experts / 2 + rest * 15 / 16 / 8)) && gathers.link_bytes == 0.0);
    CHECK(near(scatters.nic_bytes,
               g * (experts / 2 + 2 * experts / 2 * 3 / 4 + rest * 15 / 16 / 8 + 2 * rest / 16 * 3 / 4)));
}

int main(void) {
    test_by_hand();
    test_instances();
    test_hybrid_shards();
    test_families();
    test_published_profile();
    return check_done();
}
