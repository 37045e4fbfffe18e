/* Models whose layers are of several kinds: parameters by pencil and paper, keys that a query sees by counting, and a walk over the
 * list of matrices: a weight that is left out changes every consumer by what it holds. */
#include "sim/job/recipe/finetune.h"
#include "sim/model/attention.h"
#include "sim/model/token_work.h"
#include "sim/schemes/point.h"
#include "sim/time/model_work.h"
#include "sim/traffic/step_traffic.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b) + 1e-9; }

static void read(const char *text, spw_model *out) {
    CHECK_OK(spw_model_parse("config.json", text, strlen(text), out));
}

static void refuse(const char *text, const char *want) {
    spw_model m;
    CHECK(spw_model_parse("config.json", text, strlen(text), &m) == SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), want) != NULL);
    if (strstr(spw_last_error(), want) == NULL) fprintf(stderr, "  %s\n", spw_last_error());
}

/* Hidden 8, 4 experts of 6 columns with rows of 4, 2 a token, a shared one of 10, Mamba-2 of 2 heads of 4, 1 group, state 3. */
#define NEMOTRON(list) \
    "{\"model_type\": \"nemotron_h\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 5, \"n_routed_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"moe_latent_size\": 4, " \
    "\"moe_shared_expert_intermediate_size\": 10, \"mamba_num_heads\": 2, \"mamba_head_dim\": 4, " \
    "\"n_groups\": 1, " \
    "\"ssm_state_size\": 3, \"conv_kernel\": 4, " list "}"
#define DEEPSEEK(rest) \
    "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 6, \"q_lora_rank\": 5, " \
    "\"o_groups\": 2, " \
    "\"o_lora_rank\": 3, \"index_n_heads\": 2, \"index_head_dim\": 4, \"index_topk\": 2, " \
    "\"sliding_window\": 3, " \
    "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, " \
    "\"n_shared_experts\": 1, " \
    "\"hc_mult\": 2, " rest "}"

/* --- Pencil and paper --- */

static void test_halves(void) {
    spw_model m;
    read(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &m);
    const spw_parameters p = spw_model_parameters(&m);
    CHECK(m.layers == 5 && m.moe_layers == 2 && m.bare_layers == 2 && spw_model_dense_layers(&m) == 1);
    CHECK(m.mixer[1].layers == 1 && m.mixer[2].layers == 3 && m.other_layers == 4 && m.half_layers);
    CHECK(p.expert == 2 * 4 * 6); /* two matrices between rows of 4 */
    CHECK(p.shared_per_layer == 2 * 8 * 10 && p.dense_ffn_per_layer == 2 * 8 * 5);
    CHECK(p.latent_per_layer == 2 * 8 * 4 && p.router_per_layer == 4 * 8 + 4 + 2 * 8 * 4);
    CHECK(p.attention_per_layer == 8 * 8 + 2 * 8 * 4 + 8 * 8);
    const uint64_t wide = 8,
                   convolved =
                       8 +
                       2 * 3; /* z, x, B, C, a step; convolution with a bias; three a head; norm; output */
    CHECK(p.mixer_per_layer[1] == 8 * (wide + convolved + 2) + convolved * 5 + 3 * 2 + wide + wide * 8);
    CHECK(p.mixer_per_layer[2] == 0);
    CHECK(m.mixer[1].state == wide * 3 + convolved * 4);
    CHECK(p.total == 2 * 16 * 8 + 8 + 5 * 8 + p.mixer_per_layer[1] + p.attention_per_layer + 80 +
                         2 * (160 + p.router_per_layer + 4 * 48));
    CHECK(p.active == p.total - 2 * 2 * 48);
    /* a layer of experts, as every half, has no mixer beside them; without experts the wider of Mamba and attention is the most */
    const uint64_t mamba = p.mixer_per_layer[1];
    CHECK(spw_model_mixer_most(&m, true) == 0);
    CHECK(spw_model_mixer_most(&m, false) == (mamba > p.attention_per_layer ? mamba : p.attention_per_layer));
    /* the same layers by words, under both names of the list */
    spw_model words;
    read(NEMOTRON("\"layers_block_type\": [\"mamba\", \"moe\", \"attention\", \"mlp\", \"moe\"]"), &words);
    CHECK(spw_model_parameters(&words).total == p.total && words.layers == 5);
    read(NEMOTRON("\"layer_types\": [\"linear_attention\", \"moe\", \"full_attention\", \"mlp\", \"moe\"]"),
         &words);
    CHECK(spw_model_parameters(&words).total == p.total);
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"ME*xE\""), "has the entry x at layer 3");
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"MEM\", \"layers_block_type\": [\"mamba\", \"moe\", "
                    "\"attention\"]"),
           "differ at layer 2");
    refuse(NEMOTRON("\"hybrid_override_pattern\": \"ME\", \"num_hidden_layers\": 3"),
           "must have one a layer, 3");
    refuse(NEMOTRON("\"mamba_hidden_act\": \"silu\""), "key 'num_hidden_layers' is missing");
}

static void test_compressed(void) {
    spw_model m;
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"num_hash_layers\": 1"), &m);
    const spw_parameters p = spw_model_parameters(&m);
    /* q through 5, one head of 6, an output of 2 groups of 12 through 3 each; norms; a sink a head */
    const uint64_t sliding = 8 * 5 + 5 * 24 + 8 * 6 + 2 * 12 * 3 + 6 * 8 + 5 + 6 + 4;
    const uint64_t sparse = sliding + 2 * 8 * 12 + 4 * 12 + 6 + 2 * 8 * 8 + 4 * 8 + 4 + 5 * 8 + 8 * 2;
    const uint64_t heavy = sliding + 2 * 8 * 6 + 128 * 6 + 6;
    CHECK(p.attention_per_layer == sliding && p.mixer_per_layer[1] == sparse &&
          p.mixer_per_layer[2] == heavy);
    CHECK(p.mixers == sliding + sparse + heavy && p.mixer_most == heavy);
    CHECK(p.norms_per_layer ==
          2 * 8 + 2 * (8 * 16 + 8 + 3)); /* mixing of 2 streams: (2 + 2) 2 numbers of 16 */
    CHECK(p.final_norm == 8 + 2 * 16 + 2 + 1);
    CHECK(m.hash_layers == 1 && spw_model_carried(&m) == 16);
    /* layers by the token's id have no bias */
    CHECK(p.total == 2 * 16 * 8 + p.final_norm + p.mixers +
                         3 * (p.norms_per_layer + 3 * 8 * 6 + 4 * 8 + 4 + 4 * 3 * 8 * 6) - 4);
    spw_model other;
    read(DEEPSEEK("\"layer_types\": [\"sliding_attention\", \"compressed_sparse_attention\", "
                  "\"heavily_compressed_attention\"], \"mlp_layer_types\": [\"hash_moe\", \"moe\", \"moe\"]"),
         &other);
    CHECK(spw_model_parameters(&other).total == p.total);
    refuse(DEEPSEEK("\"compress_ratios\": [0, 8, 128]"), "has the entry 8 at layer 1");
    refuse(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"mlp_layer_types\": [\"moe\", \"moe\", \"moe\"], "
                    "\"num_hash_layers\": 1"),
           "they must agree");
}

/* One matrix of Kimi K3's experts in its published file: 3072 x 1792 bytes of two elements, 3072 x 112 of scale. Blocks of FP8 have a
 * scale of fp32 each. */
static void test_storage(void) {
    spw_model m;
    read("{\"model_type\": \"mixtral\", \"num_hidden_layers\": 1, \"hidden_size\": 3584, \"vocab_size\": 16, "
         "\"num_attention_heads\": 2, \"num_local_experts\": 1, \"num_experts_per_tok\": 1, "
         "\"intermediate_size\": 3072, "
         "\"quantization_config\": {\"format\": \"mxfp4-pack-quantized\", \"config_groups\": {\"group_0\": "
         "{\"weights\": "
         "{\"group_size\": 32}}}}}",
         &m);
    CHECK(m.stored_bits == 4 && spw_model_stored_experts(&m) == 3 * (3072 * 1792 + 3072 * 112));
    read("{\"model_type\": \"mixtral\", \"num_hidden_layers\": 1, \"hidden_size\": 256, \"vocab_size\": 16, "
         "\"num_attention_heads\": 2, \"num_local_experts\": 2, \"num_experts_per_tok\": 1, "
         "\"intermediate_size\": 128, "
         "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}",
         &m);
    CHECK(m.stored_bits == 8 && spw_model_stored_experts(&m) == 2 * 3 * (256 * 128 + 2 * 4));
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128], \"expert_dtype\": \"fp4\", \"quantization_config\": "
                  "{\"quant_method\": "
                  "\"fp8\", \"weight_block_size\": [128, 128]}"),
         &m);
    CHECK(m.stored_bits == 4 && m.stored_group == 32);
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128]"), &m);
    CHECK(m.stored_bits == 0 && spw_model_stored_experts(&m) == 0);
}

/* A generic model says all of it by keys: the same layers as Nemotron's, but for its selection bias, which 'topk_method' adds. */
#define GENERIC(rest) \
    "{\"model_type\": \"generic\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 5, \"num_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"num_hidden_layers\": 5, " rest "}"
#define MAMBA \
    "\"mamba_num_heads\": 2, \"mamba_head_dim\": 4, \"n_groups\": 1, \"ssm_state_size\": 3, " \
    "\"conv_kernel\": 4, "

static void test_generic(void) {
    spw_model m, nemotron, plain;
    read(NEMOTRON("\"hybrid_override_pattern\": \"ME*-E\""), &nemotron);
    read(GENERIC(MAMBA
                 "\"layer_types\": [\"mamba2_alone\", \"experts_alone\", \"attention_alone\", \"ffn_alone\", "
                 "\"experts_alone\"], \"moe_latent_size\": 4, \"expert_matrices\": 2, \"ffn_matrices\": 2, "
                 "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\""),
         &m);
    const spw_parameters p = spw_model_parameters(&m), n = spw_model_parameters(&nemotron);
    /* a prediction is a mixer and an FFN, of which each has its norm: attention 3 x 8 x 8, norms 2 x 8; 2 x 8 x 8 that joins, 3 norms */
    CHECK(spw_mtp_parameters_of(&nemotron).rest ==
          192 + 16 + n.shared_per_layer + n.router_per_layer + 128 + 24);
    CHECK(m.half_layers && m.bare_layers == 2 && m.moe_layers == 2);
    CHECK(p.mixers == n.mixers && p.routed_per_layer == n.routed_per_layer &&
          p.router_per_layer == n.router_per_layer);
    CHECK(p.dense_ffn_per_layer == n.dense_ffn_per_layer);
    CHECK(p.total == n.total - 2 * n.shared_per_layer + 5 * 8); /* two norms a layer here */
    read(GENERIC("\"n_shared_experts\": 0"), &plain);
    read(GENERIC(MAMBA
                 "\"layer_types\": [\"mamba2\", \"full_attention\", \"mamba2\", \"mamba2\", \"mamba2\"], "
                 "\"hc_mult\": 2"),
         &m);
    CHECK(!m.half_layers && m.mixer[1].layers == 4 && m.moe_layers == 5 && spw_model_carried(&m) == 16);
    const uint64_t streams = 5 * 2 * (8 * 16 + 8 + 3) + 2 * 16 + 3;
    CHECK(spw_model_parameters(&m).total ==
          spw_model_parameters(&plain).total + streams + 4 * (n.mixer_per_layer[1] - n.attention_per_layer));
    refuse(GENERIC("\"layer_types\": [\"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\"]"),
           "key 'mamba_num_heads' is missing");
    refuse(GENERIC("\"layer_types\": [\"rwkv\", \"mamba2\", \"mamba2\", \"mamba2\", \"mamba2\"]"),
           "a generic model has one of");
    refuse(GENERIC("\"expert_matrices\": 4"), "must be a whole number in [2, 3]");
}

/* --- Keys that a query sees, one by one --- */

static void test_keys(void) {
    const spw_mixer kinds[] = {{.window = 3},
                               {.window = 128},
                               {.every = 1, .most = 7},
                               {.window = 3, .every = 4, .most = 2},
                               {.window = 5, .every = 128},
                               {.every = 4}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t length = 1; length < 600; length += 1 + length / 7) {
            double sum = 0.0;
            for (size_t i = 1; i <= length; i++) {
                const size_t near_keys = kinds[k].window < i ? kinds[k].window : i;
                size_t joined = kinds[k].every > 0 ? i / kinds[k].every : 0;
                if (kinds[k].most > 0 && joined > kinds[k].most) joined = kinds[k].most;
                sum += (double)(near_keys + joined);
            }
            CHECK(near(spw_mixer_keys(&kinds[k], length), sum / (double)length));
        }
    }
}

static void test_scores(void) {
    spw_model m;
    read(DEEPSEEK("\"compress_ratios\": [0, 4, 128]"), &m);
    double flops =
        0.0; /* of 16 tokens: 4 heads, keys and values of 6; an indexer of 8 over the joined keys */
    for (size_t i = 1; i <= 16; i++) {
        const double near_keys = i < 3 ? (double)i : 3.0, joined = floor((double)i / 4.0),
                     chosen = joined < 2 ? joined : 2.0;
        flops += 2.0 * 4 * 12 * (near_keys + near_keys + chosen + near_keys + 0.0) + 2.0 * joined * 8;
    }
    CHECK(near(spw_token_work_of(&m, 16).scores, flops / 16.0));
}

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

#define KIMI \
    "{\"model_type\": \"kimi_linear\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": 3, " \
    "\"num_attention_heads\": 2, \"q_lora_rank\": 3, \"kv_lora_rank\": 4, \"qk_nope_head_dim\": 4, " \
    "\"qk_rope_head_dim\": 2, " \
    "\"v_head_dim\": 4, \"num_experts\": 4, \"num_experts_per_token\": 2, \"moe_intermediate_size\": 6, " \
    "\"num_shared_experts\": 1, \"intermediate_size\": 12, \"first_k_dense_replace\": 1, " \
    "\"mla_use_output_gate\": true, " \
    "\"latent_moe_use_norm\": true, \"routed_expert_hidden_size\": 4, \"attn_res_block_size\": 2, " \
    "\"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": [1, 3], \"num_heads\": 2, " \
    "\"head_dim\": 4, " \
    "\"short_conv_kernel_size\": 4, \"use_full_rank_gate\": true}}"

static void test_kimi(void) {
    spw_model m;
    read(KIMI, &m);
    const spw_parameters p = spw_model_parameters(&m);
    CHECK(p.latent_per_layer == 8 * 4 + 4 + 4 * 8 && p.expert == 3 * 4 * 6);
    CHECK(p.norms_per_layer == 2 * 8 + 4 * 8 && p.final_norm == 8 + 2 * 8);
    /* a gate as wide as the output; Kimi Delta Attention's of one matrix in place of two through a head's width */
    const uint64_t mla = 8 * 3 + 3 + 3 * 2 * 6 + 8 * 6 + 4 + 4 * 2 * 8 + 8 * 8;
    CHECK(p.attention_per_layer == mla + 8 * 8);
    CHECK(p.mixer_per_layer[1] == 5 * 8 * 8 + 8 * 4 + 4 * 8 + 8 * 2 + 3 * 8 * 4 + 8 + 2 + 4);
}

/* --- Tables of n-grams, joined keys that layers share, streams through a low rank --- */

static void test_tables(void) {
    spw_model m;
    read("{\"model_type\": \"deepseek_v41\", \"hidden_size\": 8, \"vocab_size\": 16, \"num_hidden_layers\": "
         "4, \"num_attention_heads\": 4, "
         "\"head_dim\": 6, \"q_lora_rank\": 5, \"o_groups\": 2, \"o_lora_rank\": 3, \"index_n_heads\": 2, "
         "\"index_head_dim\": 4, "
         "\"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
         "\"n_shared_experts\": 1, \"hc_mult\": 2, "
         "\"sliding_window\": 3, \"compress_ratios\": [0, 2, 2, 1, 0], \"kv_source_layer_ids\": [1, 3], "
         "\"index_source_layer_ids\": [1, 2, 3], "
         "\"engram_layer_ids\": [1], \"engram_num_embeddings\": [100], \"engram_max_ngram_size\": 3, "
         "\"engram_n_heads\": 2, "
         "\"engram_head_dim\": 4}",
         &m);
    const uint64_t window = 8 * 5 + 5 * 24 + 8 * 6 + 12 * 3 * 2 + 6 * 8 + 4 + 5 + 6, chooses = 5 * 8 + 8 * 2,
                   joins = 8 * 6 + 6 * 4 + 6 + 4; /* of two tokens a gate as well */
    spw_parameters p = spw_model_parameters(&m);
    CHECK(p.mixers == 4 * window + 3 * chooses + 2 * joins + 8 * 6);
    CHECK(p.norms_per_layer == 2 * 8 + 2 * 16 * 8 + 2 * (8 + 3));
    CHECK(p.tables == 100 * 4 && p.final_norm == 8 + 16 * 24 + 2 * 16);
    CHECK(p.total ==
          p.mixers + 4 * (4 * 144 + 144 + 8 * 4 + 4 + p.norms_per_layer) + 2 * 128 + p.final_norm + 400);
    CHECK(p.active == p.total - p.tables - 4 * 2 * 144);
    CHECK(m.mixer[m.mixer_of[1]].every == 2 && m.mixer[m.mixer_of[3]].every == 1 && m.mixer_of[0] == 0);
    read("{\"model_type\": \"qwen4_exp_text\", \"hidden_size\": 8, \"vocab_size\": 16, "
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
         "\"num_key_value_heads\": 1, \"head_dim\": 4, \"full_attention_interval\": 2, "
         "\"linear_num_key_heads\": 1, "
         "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 3, \"linear_value_head_dim\": 3, "
         "\"linear_conv_kernel_dim\": 4, "
         "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, "
         "\"shared_expert_intermediate_size\": 10, "
         "\"hc_count\": 2, \"hc_lowrank\": 3, \"indexer_n_heads\": 2, \"indexer_head_dim\": 5, "
         "\"indexer_kv_heads\": 1, "
         "\"ple_layer_ids\": [1], \"ple_embed_dim\": 8, \"ple_conv_kernel_size\": 4, \"ngram_size\": 3, "
         "\"heads_per_ngram\": 2, "
         "\"ngram_vocab_size_base\": 50}",
         &m);
    p = spw_model_parameters(&m);
    CHECK(p.mixer_per_layer[0] == 8 * 16 + 2 * 8 * 4 + 8 * 8 + 8 + 8 * 15 + 10);
    CHECK(p.mixer_per_layer[1] == 8 * 18 + 8 * 4 + 6 * 8 + 12 * 4 + 4 + 3);
    CHECK(p.norms_per_layer == 2 * (16 + 16 * 5 + 3 * 16) && p.tables == 4 * 50 * 2);
    CHECK(p.final_norm == 8 + 16 * 6 + 16 + 8 * 24 + 7 * 16);
    refuse("{\"model_type\": \"longcat_flash\", \"hidden_size\": 24, \"vocab_size\": 10, \"num_layers\": 1, "
           "\"num_attention_heads\": 2, "
           "\"n_routed_experts\": 4, \"moe_topk\": 2, \"expert_ffn_hidden_size\": 6, \"ffn_hidden_size\": 5, "
           "\"kv_lora_rank\": 4, "
           "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 2, \"v_head_dim\": 4, \"ple_layer_ids\": [0]}",
           "key 'ngram_vocab_size_base' is missing");
}

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

/* A looped layer works in every pass: two of Inkling's four, three times. */
#define LOOP(passes) \
    "{\"model_type\": \"inkling2_loop_text\", \"hidden_size\": 8, \"vocab_size\": 16, " \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, " \
    "\"num_key_value_heads\": 1, \"head_dim\": 4, \"swa_num_attention_heads\": 2, " \
    "\"swa_num_key_value_heads\": 1, \"swa_head_dim\": 4, " \
    "\"sliding_window_size\": 4, \"d_rel\": 2, \"rel_extent\": 4, \"conv_kernel_size\": 2, " \
    "\"n_routed_experts\": 4, " \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 6, \"loop_gate_rank\": 2, " \
    "\"loop_layer_index_start\": 1, " \
    "\"loop_layer_index_end\": 3, \"layer_types\": [\"hybrid_sliding\", \"hybrid_sliding\", " \
    "\"hybrid_sliding\", \"hybrid_sliding\"], " \
    "\"loop_num_passes\": " passes "}"

static void test_loops(void) {
    spw_model once, thrice;
    read(LOOP("1"), &once);
    read(LOOP("3"), &thrice);
    const spw_parameters p = spw_model_parameters(&once);
    CHECK(p.total == spw_model_parameters(&thrice).total);
    const spw_token_work a = spw_token_work_of(&once, 64), b = spw_token_work_of(&thrice, 64);
    const double layer =
        (double)(p.mixer_per_layer[3] + p.norms_per_layer + p.router_per_layer + 2 * p.expert);
    CHECK(near(b.weights - a.weights, 2 * 2 * 2 * layer));
    CHECK(near(b.scores, a.scores * 2)); /* 8 runs of 4 layers alike */
}

/* Work of a token with the head's table of its own and with the embedding's: the same, and by hand. An embedding is looked up, which is no
 * product; the head is one, whosever table it has. */
static void test_work_of_tables(void) {
    static const char *texts[] = {
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 3, \"hidden_size\": 8, \"vocab_size\": 50, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 6, "
        "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": false}",
        "{\"model_type\": \"mixtral\", \"num_hidden_layers\": 3, \"hidden_size\": 8, \"vocab_size\": 50, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 4, \"intermediate_size\": 6, "
        "\"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"tie_word_embeddings\": true}"};
    /* queries, keys, values, output; two experts of three matrices; the router; two norms */
    const double layer = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8 + 2 * 3 * 8 * 6 + 8 * 5 + 2 * 8;
    for (int tied = 0; tied < 2; tied++) {
        spw_model m;
        read(texts[tied], &m);
        CHECK(m.tied_embeddings == (tied == 1));
        CHECK(near(spw_token_work_of(&m, 16).weights, 2 * (3 * layer + 50 * 8 + 8)));
    }
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
    test_halves();
    test_compressed();
    test_kimi();
    test_generic();
    test_storage();
    test_keys();
    test_scores();
    test_latent();
    test_tensor();
    test_recipes();
    test_tables();
    test_loops();
    test_work_of_tables();
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
