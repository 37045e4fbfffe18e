/* Who counts layers of several kinds. A walk over the list of matrices: a weight that is left out changes every consumer by what it
 * holds. Then stages, optimizer, traffic and copies in fp8. */
#include "sim/job/recipe/finetune.h"
#include "sim/model/attention.h"
#include "sim/schemes/point.h"
#include "sim/time/model_work.h"
#include "sim/traffic/step_traffic.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/block.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include "tests/unit/check.h"
#include "tests/unit/model/layer_kinds.h"

#include <math.h>
#include <string.h>

/* --- Every consumer reads the list --- */

static void fill(const char *text, spw_job *job) {
    memset(job, 0, sizeof *job);
    read(text, &job->model);
    job->expert = job->fsdp = job->pipeline = job->tensor = 1;
    job->precision = (spw_precision){2, 4, 4, 2};
    job->optimizer = SPW_OPTIMIZER_DISTRIBUTED;
    job->sequence_length = 16;
    job->cluster.gpu_generation = SPW_GPU_HOPPER;
}

typedef struct answers {
    double parameters, active, projections, stage, muon, adapters, families, linear;
} answers;

static double muon_elements(const spw_job *job) {
    const spw_pipeline p = spw_pipeline_of(job);
    const spw_block block = spw_pipeline_block(&p, &job->model, 0, 0);
    spw_muon_list list[2];
    double sum = 0.0;
    spw_muon_block_matrices(job, &block, list);
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < list[i].kinds; k++)
            sum += (double)(list[i].kind[k].rows * list[i].kind[k].columns * list[i].kind[k].count);
    return sum;
}

static answers ask(spw_job *job) {
    const spw_pipeline one = spw_pipeline_of(job);
    const spw_stage stage = spw_pipeline_stage(&one, &job->model, 0);
    const spw_parameters p = spw_model_parameters(&job->model);
    const spw_held_parameters held = spw_stage_parameters(&job->model, &stage);
    const spw_model_passes passes = {1.0, 1.0, 1.0, 1.0, 1.0, 0.0};
    spw_finetune tuned = {.lora_rank = 1, .lora_targets = SPW_LORA_ATTENTION};
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    spw_model_work work;
    answers out = {(double)p.total, (double)p.active};
    spw_model_work_count(job, 1, &passes, &work);
    out.projections = (work.projections + work.latent) / (2.0 * work.tokens);
    out.stage = held.routed + held.rest;
    out.muon = muon_elements(job);
    out.adapters = spw_layer_adapter(&job->model, &tuned) * (double)job->model.layers;
    const size_t families = spw_weight_families(job, false, family);
    for (size_t i = 0; i < families; i++) out.families += (double)family[i].elements;
    out.linear = spw_fp8_linear_parameters(job, &stage);
    return out;
}

/* Every row of the list is taken out in turn. */
static void walk(const char *text) {
    static spw_job job, less;
    fill(text, &job);
    const spw_model *m = &job.model;
    const answers all = ask(&job);
    CHECK(near(all.stage, all.parameters));
    for (size_t r = 0; r < m->matrices; r++) {
        const spw_matrix row = m->matrix[r];
        const size_t times = row.place == SPW_IN_MODEL       ? 1
                             : row.place == SPW_IN_LAYER     ? m->layers
                             : row.place == SPW_IN_MOE_LAYER ? m->moe_layers
                             : row.mixer > 0                 ? m->mixer[row.mixer].layers
                                                             : m->layers - m->other_layers;
        const double elements = (double)times * (double)spw_matrix_elements(&row),
                     ends =
                         (double)times * (double)(row.count > 0 ? row.count : 1) * (double)(row.in + row.out);
        less = job;
        less.model.matrices--;
        memmove(&less.model.matrix[r], &less.model.matrix[r + 1], (m->matrices - 1 - r) * sizeof row);
        const answers left = ask(&less);
        const bool mixer = row.place == SPW_IN_MIXER, layer = mixer || row.place == SPW_IN_MOE_LAYER;
        CHECK(near(all.parameters - left.parameters, elements));
        CHECK(near(all.active - left.active, elements));
        CHECK(near(all.stage - left.stage, elements));
        CHECK(near(all.families - left.families, elements));
        CHECK(near(all.projections - left.projections, layer ? elements : 0.0));
        CHECK(near(all.muon - left.muon, layer && !row.vector ? elements : 0.0));
        CHECK(near(all.adapters - left.adapters, mixer && !row.vector ? ends : 0.0));
        CHECK(near(all.linear - left.linear, layer ? elements : 0.0));
    }
}

/* Muon's matrices and what Adam has beside them are all there is, but for norms and biases inside of layers. */
static void test_muon(const char *text) {
    static spw_job job;
    fill(text, &job);
    const spw_parameters p = spw_model_parameters(&job.model);
    const spw_pipeline one = spw_pipeline_of(&job);
    const spw_stage stage = spw_pipeline_stage(&one, &job.model, 0);
    double vectors = 0.0;
    for (size_t r = 0; r < job.model.matrices; r++) {
        const spw_matrix *row = &job.model.matrix[r];
        const size_t times = row->place == SPW_IN_MOE_LAYER ? job.model.moe_layers
                             : row->mixer > 0               ? job.model.mixer[row->mixer].layers
                                                            : job.model.layers - job.model.other_layers;
        if (row->vector && (row->place == SPW_IN_MIXER || row->place == SPW_IN_MOE_LAYER))
            vectors += (double)times * (double)spw_matrix_elements(row);
    }
    if (spw_attention_is_latent(&job.model))
        vectors += (double)(job.model.q_lora_rank + job.model.kv_lora_rank); /* norms, in one layer */
    const double biases = (double)(job.model.moe_layers - job.model.hash_layers) * (double)job.model.experts;
    CHECK(near(muon_elements(&job) + spw_adam_parameters(&job.model, &stage).rest + vectors + biases,
               (double)p.total));
}

/* Stages hold together what the model has, layer by layer, and a tensor group what its cut leaves. */
static void test_stages(const char *text) {
    static spw_job job;
    fill(text, &job);
    const spw_parameters p = spw_model_parameters(&job.model);
    for (size_t stages = 1; stages <= job.model.layers; stages++) {
        const spw_pipeline pipeline = {.stages = stages, .chunks = 1, .micro_batches = 1};
        double sum = 0.0;
        for (size_t s = 0; s < stages; s++) {
            const spw_stage stage = spw_pipeline_stage(&pipeline, &job.model, s);
            const spw_held_parameters held = spw_stage_parameters(&job.model, &stage);
            const spw_block block = spw_pipeline_block(&pipeline, &job.model, s, 0);
            double layers = 0.0; /* one by one */
            for (size_t i = block.first; i < block.first + block.layers; i++) {
                layers += (double)(p.mixer_per_layer[job.model.mixer_of[i]] + p.norms_per_layer);
                if (i < job.model.hash_layers) layers -= (double)job.model.experts; /* biases of the choice */
                if (job.model.is_moe[i])
                    layers += (double)(p.routed_per_layer + p.shared_per_layer + p.router_per_layer);
                else if (!job.model.is_bare[i])
                    layers += (double)p.dense_ffn_per_layer;
            }
            const double ends = (s == 0 ? (double)p.embedding : 0.0) +
                                (s + 1 == stages ? (double)(p.head + p.final_norm) : 0.0);
            CHECK(near(held.routed + held.rest, layers + ends));
            sum += held.routed + held.rest;
        }
        CHECK(near(sum, (double)p.total));
    }
}

/* With several blocks a stage, its mixers are those of all of them. */
static void test_blocks(const char *text) {
    static spw_job job;
    fill(text, &job);
    const spw_pipeline pipeline = {.stages = 1, .chunks = job.model.layers, .micro_batches = 1};
    const spw_stage stage = spw_pipeline_stage(&pipeline, &job.model, 0);
    CHECK(stage.bare_layers == job.model.bare_layers);
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) CHECK(stage.mixer_layers[k] == job.model.mixer[k].layers);
}

/* Of a step with sharded weights: what is gathered forward for mixers and around latent experts is what they hold; a tensor group
 * gathers the input of every mixer and of every FFN once. */
static void test_traffic(const char *text, bool latent) {
    static spw_job job;
    static spw_step_traffic out;
    spw_scheme scheme;
    fill(text, &job);
    job.model.plain_experts = false; /* of torchtitan's experts */
    job.expert = 2, job.fsdp = 2;
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    job.sequences_per_gpu[0] = job.batches = 1;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &out));
    const spw_parameters p = spw_model_parameters(&job.model);
    double mixers = 0.0, narrow = 0.0;
    for (size_t i = 0; i < out.items; i++) {
        const spw_step_item *item = &out.item[i];
        if (item->operation != SPW_OPERATION_REDUCE_SCATTER) continue;
        const double bytes =
            (double)item->bytes * (double)(item->in_step > 0 ? item->in_step : out.times[item->place]);
        if (strcmp(item->name, "mixers") == 0) mixers += bytes / (double)job.precision.gradients;
        if (strcmp(item->name, "latent") == 0) narrow += bytes / (double)job.precision.gradients;
    }
    CHECK(fabs(mixers - (double)p.mixers) < (double)job.model.layers); /* a mean is rounded down */
    CHECK(near(narrow, latent ? (double)job.model.moe_layers * 2.0 * 8 * 4 : 0.0));
}

static void test_tensor(void) {
    static spw_job job;
    static spw_step_traffic out;
    spw_scheme scheme;
    fill(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &job);
    job.model.kv_heads = 2;
    job.expert = 2, job.fsdp = 1, job.tensor = 2, job.expert_tensor = 1;
    job.sequence_parallel = true;
    job.sequences_per_gpu[0] = job.batches = 1;
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_step_traffic_of(&point, &spw_step_stacks[0], &out));
    size_t inputs = 0, ffns = 0;
    for (size_t i = 0; i < out.items; i++) {
        const spw_step_item *item = &out.item[i];
        const size_t times = item->in_step > 0 ? item->in_step : out.times[item->place];
        if (item->operation != SPW_OPERATION_ALL_GATHER || item->backward) continue;
        if (strcmp(item->name, "attention_input") == 0) inputs += times * item->count;
        if (strcmp(item->name, "ffn_input") == 0) ffns += times * item->count;
    }
    CHECK(inputs == 2 && ffns == 3); /* Mamba-2 and attention; shared experts twice and one FFN */
}

/* --- Latent experts: rows of that width travel --- */

static void test_latent(void) {
    static spw_job job;
    fill(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &job);
    job.model.experts = 4;
    const spw_layer_shape shape = spw_layer_shape_of(&job, 1);
    spw_scheme scheme;
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    CHECK(shape.hidden == 4 && shape.plain_experts && spw_layer_first(&shape) == 1);
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    spw_layer_shape two = shape;
    two.ranks = two.node_ranks = 2;
    const size_t exchanges = scheme.type->traffic.exchanges(&scheme, &two, exchange);
    bool rows = false;
    for (size_t i = 0; i < exchanges; i++) rows = rows || exchange[i].row_bytes == 4 * 2;
    CHECK(exchanges > 0 && rows);
    for (size_t i = 0; i < exchanges; i++) CHECK(exchange[i].row_bytes != 8 * 2);
}

/* --- Tables of n-grams, joined keys that layers share, streams through a low rank --- */

/* Experts and choices of each layer: 4, 2 and 3 of them, the first layer dense; of these 2, 1 and 2 a token. */
#define UNLIKE(experts, choices) \
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 4, " \
    "\"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 5, \"moe_intermediate_size\": 6, " \
    "\"mlp_only_layers\": [0], " \
    "\"num_experts\": " experts ", \"num_experts_per_tok\": " choices "}"

static void test_unlike(void) {
    spw_model m, alike;
    read(UNLIKE("[0, 4, 2, 3]", "[0, 2, 1, 2]"), &m);
    read(UNLIKE("4", "2"), &alike);
    const uint64_t expert = 3 * 8 * 6, all = spw_model_parameters(&alike).total;
    CHECK(m.experts == 4 && m.top_k == 2 && m.lacking_experts == 3 && m.lacking_choices == 1);
    CHECK(spw_model_parameters(&m).total == all - 3 * (expert + 8));
    CHECK(spw_model_parameters(&m).active == spw_model_parameters(&alike).active - expert - 3 * 8);
    CHECK(spw_model_routed(&m) == 9 * expert);
    double held = 0.0, routed[2] = {0.0, 0.0};
    for (size_t s = 0; s < 2; s++) {
        const spw_pipeline pipeline = {.stages = 2, .chunks = 1, .micro_batches = 1};
        const spw_stage stage = spw_pipeline_stage(&pipeline, &m, s);
        const spw_held_parameters here = spw_stage_parameters(&m, &stage);
        routed[s] = here.routed;
        held += here.routed + here.rest;
    }
    CHECK(near(held, (double)spw_model_parameters(&m).total) && near(routed[0], 4.0 * (double)expert) &&
          near(routed[1], 5.0 * (double)expert));
    CHECK(strstr(m.doubt[0], "layers differ in experts or choices") != NULL);
    refuse(UNLIKE("[0, 4, 2]", "2"), "a list of 4 numbers, one a layer");
    refuse(UNLIKE("[0, 4, 1, 3]", "2"), "layer 2 has 1 experts, of which a token chooses 2");
    refuse(UNLIKE("[0, 4, -1, 3]", "1"), "'num_experts' has -1 at layer 2");
}

/* --- fp8 recipes: matrices of every kind of layer have copies, an indexer that layers share has one --- */

#define JOB(model) \
    "model: " model "\ncluster: h200-8x8\nparallel: {expert: 8, fsdp: 8}\nbatch: {sequences_per_gpu: 1, " \
    "sequence_length: 4096}\n" \
    "optimizer: distributed\nprecision: {recipe: blockwise}\n"

static void test_recipes(void) {
    static spw_job job;
    static const char text[] = JOB("qwen3-next-80b-a3b"), sparse[] = JOB("deepseek-v3.2");
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, sizeof text - 1, &job));
    spw_pipeline pipeline = spw_pipeline_of(&job);
    spw_stage stage = spw_pipeline_stage(&pipeline, &job.model, 0);
    const double h = 2048, experts = 48.0 * 512 / 8 * 3 * h * 512, shared = 48 * (3 * h * 512 + h);
    /* q with its gate, k, v, o of 16 heads of 256, 2 of keys; qkvz, ba, out, convolution, decay and norm of Gated DeltaNet */
    const double full = h * (2 * 4096 + 2 * 512) + 4096 * h + 2 * 256,
                 delta = h * (2 * 2048 + 2 * 4096) + h * 64 + 4096 * h + 8192 * 4 + 64 + 128;
    CHECK(near(spw_fp8_linear_parameters(&job, &stage), experts + shared + 12 * full + 36 * delta));
    CHECK(spw_fp8_products(&job, &stage) == 12 * 2 + 36 * 3 + 48 * (2 * 512 / 8 + 2));
    CHECK_OK(spw_job_parse("job.yaml", NULL, sparse, sizeof sparse - 1, &job));
    pipeline = spw_pipeline_of(&job);
    stage = spw_pipeline_stage(&pipeline, &job.model, 0);
    const double all = spw_fp8_linear_parameters(&job, &stage),
                 indexer = (double)spw_model_parameters(&job.model).indexer_per_layer;
    for (size_t i = 1; i < 5; i++) job.model.shares_indexer[i] = 1; /* of 61 */
    stage = spw_pipeline_stage(&pipeline, &job.model, 0);
    CHECK(near(all - spw_fp8_linear_parameters(&job, &stage), 4 * indexer));
}

int main(void) {
    static const char *const models[] = {NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""),
                                         DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"num_hash_layers\": 1"),
                                         KIMI};
    test_latent();
    test_tensor();
    test_recipes();
    test_unlike();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        walk(models[i]);
        test_stages(models[i]);
        test_blocks(models[i]);
        if (i < 2) test_traffic(models[i], i == 0);
        test_muon(models[i]);
    }
    return check_done();
}
