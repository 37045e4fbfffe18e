/* Who counts weights, products or what passes between GPUs counts every matrix of an attention, and no other: beside the matrices of
 * published models as their papers and configurations have them, with pencil and paper. A matrix that one of them leaves out is
 * seen there and nowhere else. */
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/finetune.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/model/attention.h"
#include "sim/model/matrices.h"
#include "sim/peers/peer.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/time/fp8_time.h"
#include "sim/time/model_work.h"
#include "sim/traffic/step_traffic.h"
#include "sim/weights/block.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { MATRIX = 1, JOINED = 2, WHOLE = 4, INDEXER = 8, UP = 16, GATE = 32, NORM = 64, ROWS = 12 };

/* As they are multiplied: joined ones make one product with that before them. */
typedef struct known {
    double in, out;
    unsigned is;
} known;
static const struct {
    const char *model;
    known row[ROWS];
} attentions[] = {
    /* 128 heads of 128 + 64, values of 128, ranks 1536 and 512 */
    {"deepseek-v3",
     {{7168, 1536, MATRIX | WHOLE},
      {1, 1536, WHOLE | NORM},
      {1536, 24576, MATRIX | UP},
      {7168, 576, MATRIX | WHOLE},
      {1, 512, WHOLE | NORM},
      {512, 32768, MATRIX | UP},
      {16384, 7168, MATRIX}}},
    /* 16 heads, no rank of queries */
    {"deepseek-v2-lite",
     {{2048, 3072, MATRIX | UP},
      {2048, 576, MATRIX | WHOLE},
      {1, 512, WHOLE | NORM},
      {512, 4096, MATRIX | UP},
      {2048, 2048, MATRIX}}},
    /* and 64 heads of 128 that choose */
    {"deepseek-v3.2",
     {{7168, 1536, MATRIX | WHOLE},
      {1, 1536, WHOLE | NORM},
      {1536, 24576, MATRIX | UP},
      {7168, 576, MATRIX | WHOLE},
      {1, 512, WHOLE | NORM},
      {512, 32768, MATRIX | UP},
      {16384, 7168, MATRIX},
      {1536, 8192, MATRIX | WHOLE | INDEXER},
      {7168, 128, MATRIX | WHOLE | INDEXER},
      {1, 256, WHOLE | INDEXER},
      {7168, 64, MATRIX | WHOLE | INDEXER}}},
    /* 32 heads of 128, 4 of keys and values, norms of a head */
    {"qwen3-30b-a3b",
     {{2048, 4096, MATRIX},
      {2048, 512, MATRIX | JOINED},
      {2048, 512, MATRIX | JOINED},
      {4096, 2048, MATRIX},
      {1, 256, WHOLE}}},
    /* 16 heads of 256, 2 of keys and values, a gate */
    {"qwen3-next-80b-a3b",
     {{2048, 4096, MATRIX},
      {2048, 512, MATRIX | JOINED},
      {2048, 512, MATRIX | JOINED},
      {2048, 4096, MATRIX | JOINED | GATE},
      {4096, 2048, MATRIX},
      {1, 512, WHOLE}}},
    /* Step-3 (arXiv:2507.19427): 64 heads of 256, one of keys and values, which all GPUs have whole, a rank of queries */
    {"{\"model_type\": \"generic\", \"num_hidden_layers\": 61, \"hidden_size\": 7168, \"vocab_size\": "
     "128815, "
     "\"num_attention_heads\": 64, \"head_dim\": 256, \"share_q_dim\": 2048, \"num_experts\": 48, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 5120, \"n_shared_experts\": 1, "
     "\"first_k_dense_replace\": 5, \"intermediate_size\": 18432, \"tie_word_embeddings\": false}",
     {{7168, 2048, MATRIX | WHOLE},
      {7168, 256, MATRIX | WHOLE | JOINED},
      {7168, 256, MATRIX | WHOLE | JOINED},
      {1, 2048, WHOLE | NORM},
      {2048, 16384, MATRIX},
      {16384, 7168, MATRIX}}},
    /* 64 heads of 64, 8 of keys and values, biases, a sink a head */
    {"gpt-oss-20b",
     {{2880, 4096, MATRIX},
      {2880, 512, MATRIX | JOINED},
      {2880, 512, MATRIX | JOINED},
      {4096, 2880, MATRIX},
      {1, 5120, 0},
      {1, 2880, WHOLE},
      {1, 64, 0}}},
};
enum { ATTENTIONS = sizeof attentions / sizeof *attentions };

/* Elements of the rows that have all of `is` and none of `isnt`; their inputs, joined ones once; their outputs; how many products. */
typedef struct sums {
    double elements, in, out, products;
} sums;
static sums sum(const known *row, unsigned is, unsigned isnt) {
    sums s = {0.0, 0.0, 0.0, 0.0};
    for (size_t i = 0; i < ROWS && row[i].in > 0.0; i++) {
        if ((row[i].is & is) != is || (row[i].is & isnt) != 0) continue;
        s.elements += row[i].in * row[i].out;
        s.out += row[i].out;
        if ((row[i].is & JOINED) == 0) s.in += row[i].in, s.products += 1.0;
    }
    return s;
}

static bool same(const char *model, const char *what, double found, double right) {
    const bool ok = fabs(found - right) <= 1e-9 * fabs(right);
    if (!ok) printf("%s, %s: %.17g, right is %.17g\n", model, what, found, right);
    return ok;
}

/* The model with layers of that attention alone, without FFNs of any width. */
static void read(const char *name, spw_job *job) {
    memset(job, 0, sizeof *job);
    CHECK_OK(spw_model_read(name, NULL, &job->model));
    for (size_t i = 0; i < job->model.layers; i++) job->model.mixer_of[i] = 0;
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) job->model.mixer[k].layers = 0;
    job->model.other_layers = 0;
    job->expert = job->fsdp = job->pipeline = job->tensor = 1;
    job->sequence_length = 4096;
    job->sequences_per_gpu[0] = 1;
    job->precision = (spw_precision){2, 4, 4, 2};
    job->optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    job->cluster.gpu_generation = SPW_GPU_HOPPER;
    job->cluster.nodes = 1;
    job->cluster.gpus_per_node = 1;
}

static void test_weights(const char *name, const known *row) {
    static spw_job job;
    read(name, &job);
    const spw_model *m = &job.model;
    const spw_stage stage = {.stages = 1, .layers = 1, .bare_layers = 1};
    const spw_block block = {.layers = 1, .bare_layers = 1};
    static spw_muon_list list[2];
    double muon = 0.0, orthogonal = 0.0;
    CHECK(same(name, "parameters", (double)spw_model_parameters(m).attention_per_layer,
               sum(row, 0, 0).elements));
    CHECK(
        same(name, "whole", (double)spw_replicated_parameters_of(m).attention, sum(row, WHOLE, 0).elements));
    CHECK(same(name, "state",
               spw_stage_parameters(m, &stage).rest - (double)spw_model_parameters(m).norms_per_layer,
               sum(row, 0, 0).elements));
    CHECK(same(name, "fp8 copies", spw_fp8_linear_parameters(&job, &stage), sum(row, 0, 0).elements));
    CHECK(same(name, "fp8 products", (double)spw_fp8_products(&job, &stage), sum(row, MATRIX, 0).products));

    spw_muon_block_matrices(&job, &block, list);
    for (size_t k = 0; k < list[1].kinds; k++) {
        const spw_muon_matrices *one = &list[1].kind[k];
        muon += (double)(one->rows * one->columns * one->count);
        for (size_t p = 0; p < SPW_MUON_PARTS; p++) orthogonal += (double)(one->part[p] * one->columns);
    }
    CHECK(same(name, "Muon", muon, sum(row, MATRIX, 0).elements));
    if (sum(row, JOINED, WHOLE).out > 0.0) /* queries, keys, values and gate by themselves */
        CHECK(same(name, "Muon's parts", orthogonal,
                   sum(row, MATRIX, 0).elements - (double)(m->heads * m->v_head_dim * m->hidden)));
    CHECK(same(name, "SimuMax and Primus", spw_peer_attention_parameters(m),
               sum(row, MATRIX, INDEXER | GATE).elements + sum(row, NORM, 0).elements));
}

static void test_work(const char *name, const known *row) {
    static spw_job job;
    static spw_model without;
    read(name, &job);
    spw_model *m = &job.model;
    const spw_finetune lora = {.lora_rank = 1, .lora_targets = SPW_LORA_ATTENTION};
    const sums adapted = sum(row, MATRIX, INDEXER), up = sum(row, UP, 0), all = sum(row, 0, 0);
    const double layers = (double)m->layers, tokens = 4096.0;
    CHECK(same(name, "adapters", spw_layer_adapter(m, &lora), adapted.in + adapted.out));
    const spw_model_passes passes = {.layers = 3.0, .up = 4.0};
    spw_model_work work;
    spw_model_work_count(&job, 1, &passes, &work);
    CHECK(same(name, "work", work.projections,
               2.0 * tokens * layers * (3.0 * all.elements + (passes.up - passes.layers) * up.elements)));

    /* casts: of a model whose attention has no matrices what a dense FFN of one column casts, 2 H + 3, says the bytes of one */
    job.precision.recipe = SPW_FP8_DELAYED;
    m->moe_layers = 0;
    memset(m->is_moe, 0, sizeof m->is_moe);
    m->dense_ffn = 1;
    const double casts = spw_fp8_cast_bytes(&job);
    without = *m;
    m->attention = &spw_listed_attention, m->matrices = 0;
    const double dense = spw_fp8_cast_bytes(&job), one = dense / layers / (2.0 * (double)m->hidden + 3.0);
    CHECK(same(name, "casts", casts - dense, one * layers * (adapted.in + adapted.out)));
    *m = without;
}

/* Elements of a step's items of layers with experts, by one operation and pass, that are of attention. */
static double carried(const spw_step_traffic *t, spw_operation operation, const char *const *names) {
    double bytes = 0.0;
    for (size_t i = 0; i < t->items; i++) {
        const spw_step_item *item = &t->item[i];
        bool named = false;
        for (size_t n = 0; names[n] != NULL; n++) named = named || strcmp(item->name, names[n]) == 0;
        if (named && item->operation == operation && !item->backward && item->place == SPW_PLACE_MOE_LAYER)
            bytes += (double)item->bytes * (double)(item->count > 0 ? item->count : 1);
    }
    return bytes;
}

static void test_traffic(const char *name, const known *row) {
    static const char *const
        weights[] = {"q", "k", "v", "q_gate", "q_down", "q_up", "kv_down", "kv_up", "out", NULL},
        *const read_by[] = {"attention_input", "queries",       "keys_values",     "rotary_key", "keys",
                            "values",          "indexer_input", "indexer_queries", NULL},
        *const made[] = {"attention_output", NULL};
    static spw_job job;
    static spw_step_traffic t;
    spw_scheme scheme;
    read(name, &job);
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    job.fsdp = 2;
    job.cluster.gpus_per_node = 2;
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &t));
    CHECK(same(name, "gathered weights", carried(&t, SPW_OPERATION_ALL_GATHER, weights),
               2.0 * sum(row, MATRIX, INDEXER).elements));

    job.optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    job.tensor = job.expert_tensor = 2;
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[SPW_STEP_STACK_CUDA], &t));
    const double tokens = 2.0 * (double)point.shape.tokens,
                 past = sum(row, UP, 0).out > 0.0 ? 64.0 : sum(row, JOINED | WHOLE, 0).out,
                 hidden = (double)job.model.hidden;
    /* past: the rotary key, or keys and values that every GPU makes; of the product cut by rows what it makes; an indexer's queries and keys, whose weights read what the keys do */
    const double indexer = sum(row, INDEXER, 0).out > 0.0 ? 1536.0 + hidden : 0.0;
    CHECK(same(name, "gathered inputs", carried(&t, SPW_OPERATION_ALL_GATHER, read_by),
               2.0 * tokens *
                   (sum(row, MATRIX, WHOLE).in - (double)(job.model.heads * job.model.v_head_dim) + past +
                    indexer)));
    CHECK(same(name, "scattered output", carried(&t, SPW_OPERATION_REDUCE_SCATTER, made),
               2.0 * tokens * hidden));
}

/* The list itself, row by row. */
static void test_list(const char *name, const known *row) {
    static spw_job job;
    spw_matrices list;
    read(name, &job);
    spw_matrices_of_mixer(&job.model, 0, &list);
    size_t count = 0;
    for (size_t i = 0; i < ROWS && row[i].in > 0.0; i++) {
        bool found = false;
        for (size_t r = 0; r < list.rows; r++) {
            const spw_matrix *one = &list.row[r];
            const unsigned is = (one->vector ? 0u : MATRIX) | (one->joined ? JOINED : 0u) |
                                (one->cut == SPW_CUT_NOWHERE ? WHOLE : 0u) |
                                (one->place == SPW_IN_INDEXER ? INDEXER : 0u) |
                                (one->module == SPW_MODULE_MLA_UP_PROJ ? UP : 0u) |
                                (one->makes == SPW_MAKES_GATE ? GATE : 0u) |
                                (one->norm && one->reads == SPW_READS_LATENT ? NORM : 0u);
            found =
                found || ((double)one->in == row[i].in && (double)one->out == row[i].out && is == row[i].is);
        }
        CHECK(found);
        count++;
    }
    CHECK(list.rows == count);
}

/* Of the language model, without what reads images: 316 B, 38 B of them at work on a token. */
static void test_step3(void) {
    static spw_job job;
    for (size_t i = 0; i < ATTENTIONS; i++) {
        if (strstr(attentions[i].model, "share_q_dim") == NULL) continue;
        read(attentions[i].model, &job);
        const spw_parameters p = spw_model_parameters(&job.model);
        CHECK(fabs((double)p.total / 316e9 - 1.0) < 0.005 && fabs((double)p.active / 38e9 - 1.0) < 0.03);
    }
}

static double elements_of(const spw_matrices *list) {
    double sum = 0.0;
    for (size_t i = 0; i < list->rows; i++)
        sum += (double)list->row[i].in * (double)list->row[i].out *
               (double)(list->row[i].count > 0 ? list->row[i].count : 1);
    return sum;
}

/* A router has a weight a width and choice, and one a choice for each bias that it has. Where the token's id chooses, nothing balances
 * the load, so no bias of the choice is learned; the rest is the same. */
static void test_routers(void) {
    static const char *const names[] = {"deepseek-v3", "deepseek-v2-lite", "qwen3-30b-a3b", "gpt-oss-20b",
                                        "glm-4.5"};
    static spw_job job;
    size_t balanced = 0, biased = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        spw_matrices routed, by_id, twice;
        read(names[i], &job);
        const spw_model *m = &job.model;
        const double choices = (double)m->experts;
        spw_matrices_of_router(m, m->experts, false, &routed);
        spw_matrices_of_router(m, m->experts, true, &by_id);
        spw_matrices_of_router(m, 2 * m->experts, false, &twice);
        CHECK(elements_of(&routed) ==
              choices * ((double)m->hidden + (m->router_bias ? 1.0 : 0.0) + (m->selection_bias ? 1.0 : 0.0)));
        CHECK(elements_of(&routed) - elements_of(&by_id) == (m->selection_bias ? choices : 0.0));
        CHECK(elements_of(&twice) == 2.0 * elements_of(&routed));
        balanced += m->selection_bias, biased += m->router_bias;
    }
    CHECK(balanced >= 2 && biased == 1); /* DeepSeek-V3 and GLM-4.5; gpt-oss */
}

int main(void) {
    test_routers();
    test_step3();
    for (size_t i = 0; i < ATTENTIONS; i++) {
        test_list(attentions[i].model, attentions[i].row);
        test_weights(attentions[i].model, attentions[i].row);
        test_work(attentions[i].model, attentions[i].row);
        test_traffic(attentions[i].model, attentions[i].row);
    }
    return check_done();
}
