#include "sim/memory/kept/mixer_kept.h"

#include "sim/job/recipe/remat.h"

#include <math.h>

enum { FP32 = 4, INDEX = 4 };

typedef struct widths {
    double keys, values, heads; /* of all heads */
    double b;
} widths;

static widths widths_of(const spw_recurrence *r, size_t b) {
    return (widths){(double)(r->key_heads * r->key), (double)(r->value_heads * r->value),
                    (double)r->value_heads, (double)b};
}

/* z, x, B, C and steps as the projection gives them; what the scan gives before and behind its gate z; what the norm gives, and 1 / rms
 * of its groups. */
static double mamba2(const spw_recurrence *r, size_t b) {
    const widths w = widths_of(r, b);
    return w.b * (2.0 * w.values + 2.0 * w.keys + w.heads) + w.b * 3.0 * w.values +
           FP32 * (double)r->key_heads;
}

/* Of flash-linear-attention's rules: normalized queries and keys with 1 / norm, values, beta, matrices of chunks. */
static double rule(const spw_recurrence *r, const widths *w, double queries, double matrices) {
    return w->b * (2.0 * queries + w->values + w->heads * (1.0 + matrices * (double)r->chunk)) +
           2.0 * FP32 * (double)r->key_heads;
}

/* Queries, keys, values, z and rates as the projection gives them; normalized queries and keys together, and each in order for every
 * head of values; of the rates a few numbers a head; what the rule gives, its norm, and the gated product. */
static double gated_delta(const spw_recurrence *r, size_t b) {
    const widths w = widths_of(r, b);
    const double queries = w.heads * (double)r->key;
    return w.b * (2.0 * w.keys + 2.0 * w.values + 2.0 * w.heads) + rule(r, &w, queries, 1.0) +
           w.b * 2.0 * w.keys + 3.0 * FP32 * w.heads + w.b * 3.0 * w.values + FP32 * w.heads;
}

/* Queries, keys and values before the convolution; the forget gate through the width of a head and in fp32, as its sum, exponential
 * and logarithm need it, with a flag, and the decays as they are and summed up; the output gate and the norm in fp32. */
static double kimi_delta(const spw_recurrence *r, size_t b) {
    const widths w = widths_of(r, b);
    const double narrow = w.b * (double)r->value;
    return w.b * 3.0 * w.values + 2.0 * narrow + rule(r, &w, w.keys, 2.0) + (5.0 * FP32 + 1.0) * w.values +
           FP32 * (4.0 * w.values + w.heads) + w.b * w.values;
}

double spw_recurrence_kept(const spw_recurrence *r, size_t element_bytes) {
    static double (*const laws[])(const spw_recurrence *,
                                  size_t) = {[SPW_RECURRENCE_NONE] = NULL,
                                             [SPW_RECURRENCE_MAMBA2] = mamba2,
                                             [SPW_RECURRENCE_GATED_DELTA] = gated_delta,
                                             [SPW_RECURRENCE_KIMI_DELTA] = kimi_delta};
    return laws[r->kind] == NULL ? 0.0 : laws[r->kind](r, element_bytes);
}

/* Of `joined` windows, of heads of `width`. */
static double compressor(const spw_compressed_attention *a, double joined, double width, double b) {
    return joined * ((double)(a->every * a->parts) * width * (2.0 * b + FP32) + width * b + FP32);
}

double spw_compressed_kept(const spw_compressed_attention *a, size_t sequences, size_t length, size_t bytes) {
    const double b = (double)bytes, tokens = (double)(sequences * length), d = (double)a->head_dim,
                 heads = (double)a->heads, wide = (double)a->wide, index = (double)a->index_width,
                 windows = a->every > 0 ? floor((double)length / (double)a->every) : 0.0,
                 joined = (double)sequences * windows;
    const double chosen = a->index_heads > 0 ? (double)a->chosen : joined / (double)sequences,
                 length_of_choice = a->index_heads > 0 ? INDEX : 0.0;
    double out = tokens * (2.0 * (double)a->rank * b + FP32 + 2.0 * wide * b + heads * b);
    out += tokens * (d * b + FP32) + (tokens + joined) * d * b;
    out += tokens * (2.0 * wide * b + FP32 * heads + INDEX * ((double)a->window + chosen) + length_of_choice);
    out += tokens * (double)(a->groups * a->latent) * b;
    if (joined > 0.0) out += compressor(a, joined, d, b);
    if (a->index_heads > 0)
        out += compressor(a, joined, index, b) +
               b * (tokens * (double)a->index_heads * (index + 1.0) + joined * index);
    return out;
}

double spw_compressed_again(const spw_compressed_attention *a, size_t sequences, size_t length,
                            size_t bytes) {
    const double b = (double)bytes, tokens = (double)(sequences * length), d = (double)a->head_dim,
                 keys = a->every > 0 ? d : 2.0 * d; /* behind joined ones they stay */
    return tokens * ((2.0 * (double)a->wide + (double)a->heads + keys) * b + FP32);
}

/* What norms of [hidden] read and give: of the mixer what it gives, of the FFN both; where a layer is a mixer alone, its own both. */
static double norms(const spw_model *m) { return (m->half_layers ? 2.0 : 3.0) * (double)m->hidden; }

/* Bytes of a layer's mixer that has a law of its own; 0: it has none. */
static double own_kept(const spw_job *job, const spw_layer_shape *s, size_t kind) {
    const spw_model *m = &job->model;
    const size_t sequences = s->sequences > 0 ? s->sequences : 1, length = s->tokens / sequences;
    if (!spw_attention_is_compressed(m))
        return (double)s->tokens * spw_recurrence_kept(&m->mixer[kind].recurrence, s->element_bytes);
    const spw_compressed_attention a = spw_compressed_attention_of(m, kind);
    double again = spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ)
                       ? spw_compressed_again(&a, sequences, length, s->element_bytes)
                       : 0.0;
    if (spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM)) /* its input norm is a module of its own */
        again += (double)(s->tokens * m->hidden * s->element_bytes);
    return spw_compressed_kept(&a, sequences, length, s->element_bytes) - again;
}

spw_mixers_kept spw_mixers_kept_of(const spw_job *job, const spw_layer_shape *s, bool experts,
                                   double attention) {
    const spw_model *m = &job->model;
    const double tokens = (double)s->tokens, b = (double)s->element_bytes;
    spw_mixers_kept out = {.mean = attention};
    double sum = 0.0;
    size_t layers = 0;
    for (size_t i = 0; i < m->layers && m->other_layers > 0; i++) {
        if ((m->is_moe[i] != 0) != experts) continue;
        const double own = own_kept(job, s, m->mixer_of[i]),
                     here = own > 0.0 ? tokens * norms(m) * b + own : attention;
        layers++;
        sum += here;
        if (own > 0.0 && here > out.most) out.most = here;
    }
    if (layers > 0 && out.most > 0.0) out.mean = sum / (double)layers;
    return out;
}
