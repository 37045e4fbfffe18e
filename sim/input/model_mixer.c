#include "sim/input/model_mixer.h"

#include "base/saturate.h"

#include <stdio.h>

/* Each function: parameters of one layer and elements of state a sequence. Saturating. H: hidden. Sources: transformers,
 * src/transformers/models/<family>/modeling_<family>.py, class in brackets; tests/models/counts.csv holds them against it. */

#define N(field) ((uint64_t)raw->mixer_##field)

static uint64_t sum3(uint64_t a, uint64_t b, uint64_t c) {
    return spw_saturated_sum(a, spw_saturated_sum(b, c));
}

/* [Qwen3NextGatedDeltaNet] q, k, v and the gate z; a and b a head; convolution over q, k, v; decay; norm; output. */
static void gated_delta(const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, key = spw_saturated_product(N(heads), N(dim)),
                   value = spw_saturated_product(N(value_heads), N(value_dim));
    const uint64_t convolved = spw_saturated_sum(spw_saturated_product(2, key), value),
                   heads = N(value_heads);
    const uint64_t projections =
        spw_saturated_product(h, sum3(convolved, value, spw_saturated_product(2, heads)));
    m->other.parameters = spw_saturated_sum(
        sum3(projections, spw_saturated_product(h, value), spw_saturated_product(convolved, N(conv))),
        spw_saturated_sum(spw_saturated_product(2, heads), N(value_dim)));
    m->other.state =
        spw_saturated_sum(spw_saturated_product(value, N(dim)), spw_saturated_product(convolved, N(conv)));
    m->other.key_heads = N(heads);
    m->other.value_heads = heads;
    m->other.replicated = N(value_dim);
    m->other.into = sum3(convolved, value, spw_saturated_product(2, heads));
    m->other.out_of = value;
}

/* [KimiDeltaAttention] q, k, v, output; convolution; forget gate and output gate through the width of a head; b a head. */
static void kimi_delta(const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, wide = spw_saturated_product(N(heads), N(dim));
    const uint64_t gates =
        spw_saturated_product(2, spw_saturated_product(N(dim), spw_saturated_sum(h, wide)));
    m->other.parameters = spw_saturated_sum(
        sum3(spw_saturated_product(4, spw_saturated_product(h, wide)), gates,
             spw_saturated_product(3, spw_saturated_product(wide, N(conv)))),
        spw_saturated_sum(spw_saturated_product(h, N(heads)), sum3(wide, N(heads), N(dim))));
    m->other.state = spw_saturated_sum(spw_saturated_product(wide, N(dim)),
                                       spw_saturated_product(3, spw_saturated_product(wide, N(conv))));
}

/* [MiniMaxLightningAttention] q, k, v, gate and output of all heads; a norm. */
static void lightning(const spw_raw_config *raw, spw_model *m) {
    const uint64_t wide = spw_saturated_product(m->heads, m->head_dim);
    (void)raw;
    m->other.parameters =
        spw_saturated_sum(spw_saturated_product(5, spw_saturated_product(m->hidden, wide)), wide);
    m->other.state = spw_saturated_product(wide, m->head_dim);
}

/* [JambaMambaMixer] Mamba of width expand H: in and z, convolution, step and B and C with norms of theirs, A, D, output. */
static void mamba(const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, wide = spw_saturated_product(N(expand), h), rank = N(rank),
                   state = N(state);
    const uint64_t inner = sum3(rank, spw_saturated_product(2, state), 0);
    m->other.parameters = sum3(spw_saturated_product(3, spw_saturated_product(h, wide)),
                               spw_saturated_product(wide, sum3(inner, rank, state)),
                               spw_saturated_sum(spw_saturated_product(wide, N(conv) + 3), inner));
    m->other.state = spw_saturated_product(wide, spw_saturated_sum(state, N(conv)));
}

/* [GraniteMoeHybridMambaLayer] Mamba-2: z, x, B, C and a step a head; convolution with a bias; three numbers a head; norm. */
static void mamba2(const spw_raw_config *raw, spw_model *m) {
    const uint64_t h = m->hidden, wide = spw_saturated_product(N(heads), N(dim)), heads = N(heads);
    const uint64_t convolved =
        spw_saturated_sum(wide, spw_saturated_product(2, spw_saturated_product(N(groups), N(state))));
    m->other.parameters = spw_saturated_sum(
        sum3(spw_saturated_product(h, sum3(wide, convolved, heads)), spw_saturated_product(wide, h), wide),
        spw_saturated_sum(spw_saturated_product(convolved, N(conv) + 1), spw_saturated_product(3, heads)));
    m->other.state =
        spw_saturated_sum(spw_saturated_product(wide, N(state)), spw_saturated_product(convolved, N(conv)));
}

/* [Lfm2MoeShortConv] a gated convolution of the hidden state. */
static void short_convolution(const spw_raw_config *raw, spw_model *m) {
    m->other.parameters =
        spw_saturated_product(m->hidden, spw_saturated_sum(spw_saturated_product(4, m->hidden), N(conv)));
    m->other.state = spw_saturated_product(m->hidden, N(conv));
}

/* [MiMoV2FlashAttention] sliding layers with heads of their own and a sink each. */
static void sliding(const spw_raw_config *raw, spw_model *m) {
    m->other.attends = true;
    m->other.parameters = spw_saturated_sum(
        spw_attention_projections(m, N(heads), N(kv_heads), N(dim), N(value_dim)), N(heads));
}

/* [Gemma4TextAttention] full layers: wider heads, keys that are the values too, norms of q and k. */
static void shared_values(const spw_raw_config *raw, spw_model *m) {
    m->other.attends = true;
    m->other.parameters = spw_saturated_sum(
        spw_attention_projections(m, m->heads, N(kv_heads), N(dim), 0),
        spw_saturated_sum(spw_saturated_product(m->hidden, spw_saturated_product(m->heads, N(dim))),
                          spw_saturated_product(2, N(dim))));
}

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
                                          {.key = NULL}};
static const spw_key_row convolution_keys[] = {SPW_KEY("conv_L_cache", mixer_conv, 1, 65535, true),
                                               {.key = NULL}};
static const spw_key_row sliding_keys[] = {SPW_KEY("swa_num_attention_heads", mixer_heads, 1, 65535, true),
                                           SPW_KEY("swa_num_key_value_heads", mixer_kv_heads, 1, 65535, true),
                                           SPW_KEY("swa_head_dim", mixer_dim, 1, WIDE, true),
                                           SPW_KEY("swa_v_head_dim", mixer_value_dim, 1, WIDE, true),
                                           {.key = NULL}};
static const spw_key_row global_keys[] = {
    SPW_KEY("num_global_key_value_heads", mixer_kv_heads, 1, 65535, true),
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
const spw_mixer_kind spw_short_convolution = {
    "short convolutions", {"conv"}, convolution_keys, short_convolution};
const spw_mixer_kind spw_sliding = {
    "sliding attention with heads of its own", {"sliding_attention"}, sliding_keys, sliding};
const spw_mixer_kind spw_global = {
    "full attention with heads of its own", {"full_attention"}, global_keys, shared_values};

void spw_mixer_count(const spw_mixer_kind *kind, const spw_raw_config *raw, spw_model *out) {
    (void)snprintf(out->other.what, sizeof out->other.what, "%s", kind->what);
    kind->count(raw, out);
}
