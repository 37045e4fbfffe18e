#include "sim/model/model_mixer.h"

#include "base/saturate.h"
#include "sim/model/config/model_reading.h"

#include <stdio.h>

/* Each function: the weights of one layer as rows of the model's list, and elements of state a sequence. Saturating. H: hidden.
 * Sources: transformers, src/transformers/models/<family>/modeling_<family>.py, class in brackets; tests/models/counts.csv holds them
 * against it. How tensor parallelism cuts them: Megatron-Core's classes of the same layers, where it has one; else by heads. */

#define N(field) ((uint64_t)raw->mixer_##field)
#define P(a, b) spw_saturated_product(a, b)

static uint64_t sum3(uint64_t a, uint64_t b, uint64_t c) {
    return spw_saturated_sum(a, spw_saturated_sum(b, c));
}

/* --- Rows --- */

/* A matrix whose outputs a tensor group shares out; whose inputs; that each GPU has whole. */
static void outputs(spw_model *m, size_t kind, const char *name, uint64_t in, uint64_t out) {
    spw_matrix_add(m, (spw_matrix){name, in, out, 1, SPW_IN_MIXER, (uint8_t)kind, SPW_CUT_OUTPUTS, false});
}
static void inputs(spw_model *m, size_t kind, const char *name, uint64_t in, uint64_t out) {
    spw_matrix_add(m, (spw_matrix){name, in, out, 1, SPW_IN_MIXER, (uint8_t)kind, SPW_CUT_INPUTS, false});
}
static void whole(spw_model *m, size_t kind, const char *name, uint64_t in, uint64_t out) {
    spw_matrix_add(m, (spw_matrix){name, in, out, 1, SPW_IN_MIXER, (uint8_t)kind, SPW_CUT_NOWHERE, false});
}
/* Numbers of the heads or channels that a tensor group shares out, and of all of them. */
static void cut_numbers(spw_model *m, size_t kind, const char *name, uint64_t count) {
    spw_matrix_add(m, (spw_matrix){name, 1, count, 1, SPW_IN_MIXER, (uint8_t)kind, SPW_CUT_OUTPUTS, true});
}
static void numbers(spw_model *m, size_t kind, const char *name, uint64_t count) {
    spw_matrix_add(m, (spw_matrix){name, 1, count, 1, SPW_IN_MIXER, (uint8_t)kind, SPW_CUT_NOWHERE, true});
}

/* q, k, v and o of an attention. */
static void projections(spw_model *m, size_t kind, uint64_t heads, uint64_t kv_heads, uint64_t key,
                        uint64_t value) {
    const uint64_t h = m->hidden;
    outputs(m, kind, "q", h, P(heads, key));
    outputs(m, kind, "k", h, P(kv_heads, key));
    outputs(m, kind, "v", h, P(kv_heads, value));
    inputs(m, kind, "o", P(heads, value), h);
}

/* Width of a value of the model's attention. */
static size_t values(const spw_model *m) { return spw_attention_widths_of(m).value_dim; }

/* --- Recurrences and convolutions --- */

/* Tokens of a chunk where no file says it: of flash-linear-attention's kernels; of Mamba-2, configuration_nemotron_h.py and
 * configuration_granitemoehybrid.py. */
enum { DELTA_CHUNK = 64, NEMOTRON_CHUNK = 128, GRANITE_CHUNK = 256 };

static void recurs(spw_model *m, size_t kind, spw_recurrence what) { m->mixer[kind].recurrence = what; }

/* [Qwen3NextGatedDeltaNet] q, k, v and the gate z; a and b a head; convolution over q, k, v; decay; norm; output. */
static void gated_delta(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, key = P(N(heads), N(dim)), value = P(N(value_heads), N(value_dim));
    const uint64_t convolved = spw_saturated_sum(P(2, key), value), heads = N(value_heads);
    outputs(m, kind, "qkvz", h, spw_saturated_sum(convolved, value));
    outputs(m, kind, "ba", h, P(2, heads));
    inputs(m, kind, "out", value, h);
    cut_numbers(m, kind, "convolution", P(convolved, N(conv)));
    cut_numbers(m, kind, "decay", P(2, heads));
    numbers(m, kind, "norm", N(value_dim));
    m->mixer[kind].state = spw_saturated_sum(P(value, N(dim)), P(convolved, N(conv)));
    m->mixer[kind].key_heads = N(heads);
    m->mixer[kind].value_heads = heads;
    m->mixer[kind].into = sum3(convolved, value, P(2, heads));
    m->mixer[kind].out_of = value;
    recurs(m, kind,
           (spw_recurrence){SPW_RECURRENCE_GATED_DELTA, N(heads), heads, N(dim), N(value_dim), N(conv),
                            DELTA_CHUNK});
}

/* [KimiDeltaAttention] q, k, v, output; convolution; forget gate through the width of a head, and output gate through it or, in Kimi
 * K3, of one matrix (KimiK3: modeling_kimi_linear.py beside its weights); b a head. */
static void kimi_delta(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, wide = P(N(heads), N(dim));
    outputs(m, kind, "q", h, wide);
    outputs(m, kind, "k", h, wide);
    outputs(m, kind, "v", h, wide);
    whole(m, kind, "forget down", h, N(dim));
    outputs(m, kind, "forget up", N(dim), wide);
    if (m->full_rank_gate) {
        outputs(m, kind, "gate", h, wide);
    } else {
        whole(m, kind, "gate down", h, N(dim));
        outputs(m, kind, "gate up", N(dim), wide);
    }
    outputs(m, kind, "b", h, N(heads));
    inputs(m, kind, "out", wide, h);
    cut_numbers(m, kind, "convolution", P(3, P(wide, N(conv))));
    cut_numbers(m, kind, "decay", spw_saturated_sum(wide, N(heads)));
    numbers(m, kind, "norm", N(dim));
    m->mixer[kind].state = spw_saturated_sum(P(wide, N(dim)), P(3, P(wide, N(conv))));
    recurs(m, kind,
           (spw_recurrence){SPW_RECURRENCE_KIMI_DELTA, N(heads), N(heads), N(dim), N(dim), N(conv),
                            DELTA_CHUNK});
}

/* [MiniMaxLightningAttention] q, k, v, gate and output of all heads; a norm. */
static void lightning(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t wide = P(m->heads, m->head_dim);
    (void)raw;
    outputs(m, kind, "qkv", m->hidden, P(3, wide));
    outputs(m, kind, "gate", m->hidden, wide);
    inputs(m, kind, "out", wide, m->hidden);
    cut_numbers(m, kind, "norm", wide);
    m->mixer[kind].state = P(wide, m->head_dim);
}

/* [JambaMambaMixer] Mamba of width expand H: in and z, convolution, step and B and C with norms of theirs, A, D, output. */
static void mamba(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, wide = P(N(expand), h), rank = N(rank), state = N(state);
    const uint64_t inner = spw_saturated_sum(rank, P(2, state));
    outputs(m, kind, "in", h, P(2, wide));
    inputs(m, kind, "x", wide, inner);
    outputs(m, kind, "step", rank, wide);
    inputs(m, kind, "out", wide, h);
    cut_numbers(m, kind, "convolution", P(wide, N(conv) + (m->conv_bias ? 1 : 0)));
    if (m->projection_bias) numbers(m, kind, "biases", spw_saturated_sum(P(2, wide), h));
    cut_numbers(m, kind, "A", P(wide, state));
    cut_numbers(m, kind, "D and the step's bias", P(2, wide));
    numbers(m, kind, "norms", inner);
    m->mixer[kind].state = P(wide, spw_saturated_sum(state, N(conv)));
}

/* [GraniteMoeHybridMambaLayer, NemotronHMamba2Mixer] Mamba-2: z, x, B, C and a step a head; convolution with a bias; three numbers a
 * head; norm. */
static void mamba2(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, wide = P(N(heads), N(dim)), heads = N(heads);
    const uint64_t convolved = spw_saturated_sum(wide, P(2, P(N(groups), N(state))));
    outputs(m, kind, "in", h, sum3(wide, convolved, heads));
    inputs(m, kind, "out", wide, h);
    cut_numbers(m, kind, "convolution", P(convolved, N(conv) + (m->conv_bias ? 1 : 0)));
    cut_numbers(m, kind, "step, A, D", P(3, heads));
    if (m->projection_bias) numbers(m, kind, "biases", spw_saturated_sum(h, sum3(wide, convolved, heads)));
    cut_numbers(m, kind, "norm", wide);
    m->mixer[kind].state = spw_saturated_sum(P(wide, N(state)), P(convolved, N(conv)));
    m->mixer[kind].key_heads = N(groups);
    m->mixer[kind].value_heads = heads;
    m->mixer[kind].into = sum3(wide, convolved, heads);
    m->mixer[kind].out_of = wide;
    recurs(
        m, kind,
        (spw_recurrence){SPW_RECURRENCE_MAMBA2, N(groups), heads, N(state), N(dim), N(conv),
                         spw_or_default(raw->mixer_chunk, m->half_layers ? NEMOTRON_CHUNK : GRANITE_CHUNK)});
}

/* [Lfm2MoeShortConv] a gated convolution of the hidden state. */
static void short_convolution(const spw_raw_config *raw, spw_model *m, size_t kind) {
    outputs(m, kind, "in", m->hidden, P(3, m->hidden));
    inputs(m, kind, "out", m->hidden, m->hidden);
    cut_numbers(m, kind, "convolution", P(m->hidden, N(conv)));
    m->mixer[kind].state = P(m->hidden, N(conv));
}

/* --- Attention of another shape --- */

/* [Gemma4TextAttention] full layers: wider heads, keys that are the values too, norms of q and k. */
static void shared_values(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t kv_heads =
        m->keys_are_values ? spw_or_default(raw->mixer_kv_heads, m->kv_heads) : m->kv_heads;
    m->mixer[kind].attends = true;
    outputs(m, kind, "q", m->hidden, P(m->heads, N(dim)));
    outputs(m, kind, m->keys_are_values ? "keys that are values" : "k", m->hidden, P(kv_heads, N(dim)));
    if (!m->keys_are_values) outputs(m, kind, "v", m->hidden, P(kv_heads, N(dim)));
    if (m->attention_bias)
        numbers(m, kind, "biases",
                sum3(P(m->heads, N(dim)), P(m->keys_are_values ? 1 : 2, P(kv_heads, N(dim))), m->hidden));
    inputs(m, kind, "o", P(m->heads, N(dim)), m->hidden);
    numbers(m, kind, "norms", P(2, N(dim)));
}

/* [Gemma4TextAttention, Gemma4TextMLP] layers of either kind that use keys and values of a layer before: queries and output; their FFN
 * may be twice as wide. */
static void shared_keys(const spw_raw_config *raw, spw_model *m, size_t kind, uint64_t dim) {
    const uint64_t h = m->hidden, wide = P(m->heads, dim), ffn = spw_or_default(raw->ffn, 0);
    m->mixer[kind].attends = true;
    outputs(m, kind, "q", h, wide);
    inputs(m, kind, "o", wide, h);
    if (m->qk_norm) numbers(m, kind, "norm", dim);
    if (m->attention_bias) numbers(m, kind, "biases", spw_saturated_sum(wide, h));
    if (!m->double_ffn) return;
    outputs(m, kind, "wider FFN, gate and up", h, P(2, ffn));
    inputs(m, kind, "wider FFN, down", ffn, h);
}
static void shared_sliding(const spw_raw_config *raw, spw_model *m, size_t kind) {
    shared_keys(raw, m, kind, m->head_dim);
}
static void shared_global(const spw_raw_config *raw, spw_model *m, size_t kind) {
    shared_keys(raw, m, kind, N(dim));
}

/* Scores of a kind, and which keys they see. */
static void sees(spw_model *m, size_t kind, size_t heads, size_t key, size_t value) {
    m->mixer[kind].key_heads = spw_attention_is_listed(m) ? 0 : m->kv_heads;
    m->mixer[kind].value_heads = heads;
    m->mixer[kind].heads = heads;
    m->mixer[kind].key = key;
    m->mixer[kind].value = value;
}

/* [Step3p7Attention] sliding layers whose queries may have more heads; each head's output has a gate. */
static void sliding_gated(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t heads = spw_or_default(raw->mixer_heads, m->heads);
    m->mixer[kind].attends = true;
    projections(m, kind, heads, m->kv_heads, m->head_dim, values(m));
    outputs(m, kind, "gate", m->hidden, heads);
    numbers(m, kind, "norms", P(2, m->head_dim));
    sees(m, kind, heads, m->head_dim, values(m));
    m->mixer[kind].window = spw_or_default(raw->window, 0);
}

/* Of the model's own attention: the gate alone. */
static void head_gate(const spw_raw_config *raw, spw_model *m, size_t kind) {
    (void)raw;
    outputs(m, kind, "gate", m->hidden, m->heads);
}

/* [MiniMaxM3VLAttention, MiniMaxM3VLIndexer] a few blocks of keys for a group of query heads, chosen by an indexer of the hidden state
 * with its own norms. */
static void block_sparse(const spw_raw_config *raw, spw_model *m, size_t kind) {
    m->mixer[kind].attends = true;
    projections(m, kind, m->heads, m->kv_heads, m->head_dim, values(m));
    numbers(m, kind, "norms", P(2, m->head_dim));
    whole(m, kind, "indexer q", m->hidden, P(N(heads), N(dim)));
    whole(m, kind, "indexer k", m->hidden, N(dim));
    numbers(m, kind, "indexer norms", P(2, N(dim)));
    sees(m, kind, m->heads, m->head_dim, values(m));
    m->mixer[kind].every = 1;
    m->mixer[kind].most = P(spw_or_default(raw->blocks, 0), spw_or_default(raw->block_tokens, 0));
    m->mixer[kind].index = P(N(heads), N(dim));
}

/* --- DeepSeek-V4 --- */

/* [DeepseekV4Attention] queries through a latent, one head that is key and value, its norm, a sink a head, an output of groups of
 * heads through a latent each; the last `window` keys. Heads are cut; what they share is whole. */
static void grouped_output(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t h = m->hidden, rank = (uint64_t)raw->q_lora_rank, groups = (uint64_t)raw->output_groups,
                   latent = (uint64_t)raw->output_rank, wide = P(m->heads, m->head_dim);
    m->mixer[kind].attends = true;
    whole(m, kind, "q down", h, rank);
    outputs(m, kind, "q up", rank, wide);
    whole(m, kind, "kv", h, m->head_dim);
    spw_matrix_add(m, (spw_matrix){"o down", wide / groups, latent, groups, SPW_IN_MIXER, (uint8_t)kind,
                                   SPW_CUT_OUTPUTS, false});
    inputs(m, kind, "o up", P(groups, latent), h);
    cut_numbers(m, kind, "sinks", m->heads);
    numbers(m, kind, "norms", spw_saturated_sum(rank, m->head_dim));
    sees(m, kind, m->heads, m->head_dim, m->head_dim);
    m->mixer[kind].window = spw_or_default(raw->window, 0);
    m->mixer[kind].key_heads = groups;
}

/* Keys of several tokens joined: two projections, a bias a position, a norm. `parts`: 2 where joined windows overlap. */
static void compressor(spw_model *m, size_t kind, uint64_t width, uint64_t every, uint64_t parts) {
    whole(m, kind, "joined keys", m->hidden, P(parts, width));
    whole(m, kind, "their gate", m->hidden, P(parts, width));
    numbers(m, kind, "their bias and norm", spw_saturated_sum(P(every, P(parts, width)), width));
}

/* [DeepseekV4CSACompressor, DeepseekV4Indexer] beside the window a few joined keys, which an indexer with joined keys of its own and
 * queries from the latent chooses. */
static void compressed(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t every = spw_or_default(raw->compress_sparse, 4), width = (uint64_t)raw->indexer_dim,
                   heads = (uint64_t)raw->indexer_heads;
    grouped_output(raw, m, kind);
    compressor(m, kind, m->head_dim, every, 2);
    compressor(m, kind, width, every, 2);
    whole(m, kind, "indexer q", (uint64_t)raw->q_lora_rank, P(heads, width));
    whole(m, kind, "indexer weights", m->hidden, heads);
    m->mixer[kind].every = every;
    m->mixer[kind].most = spw_or_default(raw->chosen, 0);
    m->mixer[kind].index = P(heads, width);
}

/* [DeepseekV4HCACompressor] beside the window all joined keys of the past. */
static void heavily_compressed(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t every = spw_or_default(raw->compress_heavy, 128);
    grouped_output(raw, m, kind);
    compressor(m, kind, m->head_dim, every, 1);
    m->mixer[kind].every = every;
}

/* [DeepseekV41Attention, _Compressor, _Indexer of NeMo AutoModel 0.7] layers that read the joined keys of one before, that choose
 * among them anew, that join keys of their own. mixer[kind].every is there already. */
static void reads_joined(const spw_raw_config *raw, spw_model *m, size_t kind) {
    grouped_output(raw, m, kind);
    m->mixer[kind].most = spw_or_default(raw->chosen, 0);
}

static void chooses_joined(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t heads = (uint64_t)raw->indexer_heads, width = (uint64_t)raw->indexer_dim;
    reads_joined(raw, m, kind);
    whole(m, kind, "indexer q", (uint64_t)raw->q_lora_rank, P(heads, width));
    whole(m, kind, "indexer weights", m->hidden, heads);
    m->mixer[kind].index = P(heads, width);
}

static void joins_keys(const spw_raw_config *raw, spw_model *m, size_t kind) {
    const uint64_t width = (uint64_t)raw->indexer_dim;
    chooses_joined(raw, m, kind);
    whole(m, kind, "joined keys", m->hidden, m->head_dim);
    if (m->mixer[kind].every > 1) whole(m, kind, "their gate", m->hidden, m->head_dim);
    whole(m, kind, "indexer k", m->head_dim, width);
    numbers(m, kind, "norms of joined keys", spw_saturated_sum(m->head_dim, width));
}

/* [Qwen3_8_FlashNextQSAIndexer of NeMo AutoModel 0.7] beside the model's attention: queries and a key of the hidden state that choose
 * among keys joined by their mean. */
static void query_indexer(const spw_raw_config *raw, spw_model *m, size_t kind) {
    whole(m, kind, "indexer", m->hidden, P(N(heads) + spw_or_default(raw->index_key_heads, 1), N(dim)));
    numbers(m, kind, "indexer norms", P(2, N(dim)));
    sees(m, kind, m->heads, m->head_dim, values(m));
    m->mixer[kind].every = spw_or_default(raw->index_every, 1);
    m->mixer[kind].most = spw_or_default(raw->chosen, 0) / m->mixer[kind].every;
    m->mixer[kind].index = P(N(heads), N(dim));
}

/* Of a layer that is an FFN alone. */
static void nothing(const spw_raw_config *raw, spw_model *m, size_t kind) { (void)raw, (void)m, (void)kind; }

/* --- Kinds --- */

#define WIDE SPW_MODEL_WIDEST
static const spw_key_row delta_keys[] = {SPW_KEY("linear_num_key_heads", mixer_heads, 1, 65535, true),
                                         SPW_KEY("linear_num_value_heads", mixer_value_heads, 1, 65535, true),
                                         SPW_KEY("linear_key_head_dim", mixer_dim, 1, WIDE, true),
                                         SPW_KEY("linear_value_head_dim", mixer_value_dim, 1, WIDE, true),
                                         SPW_KEY("linear_conv_kernel_dim", mixer_conv, 1, 65535, true),
                                         {.key = NULL}};
static const spw_key_row kimi_keys[] = {
    SPW_KEY("linear_attn_config.num_heads", mixer_heads, 1, 65535, true),
    SPW_KEY("linear_attn_config.head_dim", mixer_dim, 1, WIDE, true),
    SPW_KEY("linear_attn_config.short_conv_kernel_size", mixer_conv, 1, 65535, true),
    {.key = NULL}};
static const spw_key_row no_keys[] = {{.key = NULL}};
static const spw_key_row mamba_keys[] = {SPW_KEY("mamba_expand", mixer_expand, 1, 1024, true),
                                         SPW_KEY("mamba_d_state", mixer_state, 1, WIDE, true),
                                         SPW_KEY("mamba_d_conv", mixer_conv, 1, 65535, true),
                                         SPW_KEY("mamba_dt_rank", mixer_rank, 1, WIDE, true),
                                         {.key = NULL}};
static const spw_key_row mamba2_keys[] = {SPW_KEY("mamba_n_heads", mixer_heads, 1, 65535, true),
                                          SPW_KEY("mamba_d_head", mixer_dim, 1, WIDE, true),
                                          SPW_KEY("mamba_n_groups", mixer_groups, 1, 65535, true),
                                          SPW_KEY("mamba_d_state", mixer_state, 1, WIDE, true),
                                          SPW_KEY("mamba_d_conv", mixer_conv, 1, 65535, true),
                                          SPW_KEY("mamba_chunk_size", mixer_chunk, 1, WIDE, false),
                                          {.key = NULL}};
static const spw_key_row convolution_keys[] = {SPW_KEY("conv_L_cache", mixer_conv, 1, 65535, true),
                                               {.key = NULL}};
static const spw_key_row nemotron_keys[] = {SPW_KEY("mamba_num_heads", mixer_heads, 1, 65535, true),
                                            SPW_KEY("mamba_head_dim", mixer_dim, 1, WIDE, true),
                                            SPW_KEY("n_groups", mixer_groups, 1, 65535, true),
                                            SPW_KEY("ssm_state_size", mixer_state, 1, WIDE, true),
                                            SPW_KEY("conv_kernel", mixer_conv, 1, 65535, true),
                                            SPW_KEY("chunk_size", mixer_chunk, 1, WIDE, false),
                                            {.key = NULL}};
static const spw_key_row step_keys[] = {SPW_KEY("num_sliding_attention_heads", mixer_heads, 1, 65535, false),
                                        {.key = NULL}};
static const spw_key_row block_keys[] = {SPW_KEY("index_n_heads", mixer_heads, 1, 65535, true),
                                         SPW_KEY("index_head_dim", mixer_dim, 1, WIDE, true),
                                         SPW_KEY("index_block_size", block_tokens, 1, WIDE, false),
                                         SPW_KEY("index_topk_blocks", blocks, 1, WIDE, false),
                                         {.key = NULL}};
static const spw_key_row grouped_keys[] = {
    SPW_KEY("o_groups", output_groups, 1, 65535, true),
    SPW_KEY("o_lora_rank", output_rank, 1, WIDE, true),
    SPW_KEY("q_lora_rank", q_lora_rank, 1, WIDE, true),
    SPW_KEY("index_n_heads", indexer_heads, 1, 65535, true),
    SPW_KEY("index_head_dim", indexer_dim, 1, WIDE, true),
    SPW_KEY("index_topk", chosen, 1, WIDE, false),
    SPW_KEY("compress_rates.compressed_sparse_attention", compress_sparse, 1, 65535, false),
    SPW_KEY("compress_rates.heavily_compressed_attention", compress_heavy, 1, 65535, false),
    {.key = NULL}};
static const spw_key_row query_indexer_keys[] = {
    SPW_KEY("indexer_n_heads", mixer_heads, 1, 65535, true),
    SPW_KEY("indexer_head_dim", mixer_dim, 1, WIDE, true),
    SPW_KEY("indexer_kv_heads", index_key_heads, 1, 65535, false),
    SPW_KEY("indexer_budget", chosen, 1, WIDE, false),
    SPW_KEY("indexer_compress_ratio", index_every, 1, 65535, false),
    {.key = NULL}};
static const spw_key_row global_keys[] = {
    SPW_KEY("num_global_key_value_heads", mixer_kv_heads, 1, 65535, false),
    SPW_KEY("global_head_dim", mixer_dim, 1, WIDE, true),
    {.key = NULL}};

const spw_mixer_kind spw_gated_delta = {
    "Gated DeltaNet, a linear attention", {"linear_attention"}, delta_keys, gated_delta};
const spw_mixer_kind spw_kimi_delta = {
    "Kimi Delta Attention, a linear attention", {"linear_attention"}, kimi_keys, kimi_delta};
const spw_mixer_kind spw_lightning = {
    "lightning attention, a linear attention", {"linear_attention"}, no_keys, lightning};
const spw_mixer_kind spw_mamba = {"Mamba", {"mamba", "linear_attention"}, mamba_keys, mamba};
const spw_mixer_kind spw_mamba2 = {"Mamba-2", {"mamba", "linear_attention"}, mamba2_keys, mamba2};
const spw_mixer_kind spw_mamba2_nemotron = {"Mamba-2", {"mamba", "linear_attention"}, nemotron_keys, mamba2};
const spw_mixer_kind spw_short_convolution = {
    "short convolutions", {"conv"}, convolution_keys, short_convolution};
const spw_mixer_kind spw_global = {
    "full attention with heads of its own", {"full_attention"}, global_keys, shared_values};
const spw_mixer_kind spw_sliding_gated = {
    "sliding attention with a gate a head", {"sliding_attention"}, step_keys, sliding_gated};
const spw_mixer_kind spw_head_gate = {"attention with a gate a head", {"full_attention"}, no_keys, head_gate};
const spw_mixer_kind spw_block_sparse = {
    "block-sparse attention with an indexer", {"minimax_m3_sparse"}, block_keys, block_sparse};
const spw_mixer_kind spw_window_grouped = {
    "sliding attention of one key and value head", {"sliding_attention"}, grouped_keys, grouped_output};
const spw_mixer_kind spw_compressed = {
    "compressed sparse attention", {"compressed_sparse_attention"}, grouped_keys, compressed};
const spw_mixer_kind spw_heavily_compressed = {
    "heavily compressed attention", {"heavily_compressed_attention"}, grouped_keys, heavily_compressed};
const spw_mixer_kind spw_query_indexer = {
    "attention with an indexer", {"full_attention"}, query_indexer_keys, query_indexer};
const spw_mixer_kind spw_reads_joined = {
    "attention to joined keys of a layer before", {NULL}, grouped_keys, reads_joined};
const spw_mixer_kind spw_chooses_joined = {"the same with an indexer", {NULL}, grouped_keys, chooses_joined};
const spw_mixer_kind spw_joins_keys = {
    "attention to joined keys of its own", {NULL}, grouped_keys, joins_keys};
const spw_mixer_kind spw_shared_sliding = {
    "sliding attention to keys of a layer before", {"sliding_attention"}, no_keys, shared_sliding};
const spw_mixer_kind spw_shared_global = {
    "full attention to keys of a layer before", {"full_attention"}, global_keys, shared_global};
const spw_mixer_kind spw_shared_turn = {
    "attention to keys of the layer before", {NULL}, no_keys, shared_sliding};
const spw_mixer_kind spw_no_mixer = {"no mixer: an FFN alone", {NULL}, no_keys, nothing};

void spw_mixer_count(const spw_mixer_kind *kind, const spw_raw_config *raw, size_t index, spw_model *out) {
    (void)snprintf(out->mixer[index].what, sizeof out->mixer[index].what, "%s", kind->what);
    kind->count(raw, out, index);
}

/* --- Keys that a query sees --- */

/* Sum of min(i, most) over i in [1, length]; of min(i / every, most), rounded down. 0: no limit. */
static double sum_to(double length, double most) {
    if (most <= 0.0 || most >= length) return length * (length + 1.0) / 2.0;
    return most * (most + 1.0) / 2.0 + (length - most) * most;
}
static double sum_joined(size_t length, size_t every, size_t most) {
    const size_t joined = length / every, full = most == 0 || most > joined ? joined : most;
    const double e = (double)every, c = (double)full;
    return e * c * (c - 1.0) / 2.0 + ((double)length - e * c + 1.0) * c;
}

double spw_mixer_keys(const spw_mixer *k, size_t length) {
    const double tokens = (double)length;
    if (k->window == 0 && k->every == 0) return tokens / 2.0; /* causal */
    const double near = k->window > 0 ? sum_to(tokens, (double)k->window) : 0.0;
    return (near + (k->every > 0 ? sum_joined(length, k->every, k->most) : 0.0)) / tokens;
}
