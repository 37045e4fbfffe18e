#include "sim/memory/mixer_kept.h"

enum { FP32 = 4 };

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

/* What norms of [hidden] read and give: of the mixer what it gives, of the FFN both; where a layer is a mixer alone, its own both. */
static double norms(const spw_model *m) { return (m->half_layers ? 2.0 : 3.0) * (double)m->hidden; }

spw_mixers_kept spw_mixers_kept_of(const spw_job *job, const spw_layer_shape *s, bool experts,
                                   double attention) {
    const spw_model *m = &job->model;
    const double tokens = (double)s->tokens, b = (double)s->element_bytes;
    spw_mixers_kept out = {.mean = attention};
    double sum = 0.0;
    size_t layers = 0;
    for (size_t i = 0; i < m->layers && m->other_layers > 0; i++) {
        const spw_mixer *mixer = &m->mixer[m->mixer_of[i]];
        if ((m->is_moe[i] != 0) != experts) continue;
        const double own = spw_recurrence_kept(&mixer->recurrence, s->element_bytes);
        const double here = own > 0.0 ? tokens * (norms(m) * b + own) : attention;
        layers++;
        sum += here;
        if (own > 0.0 && here > out.most) out.most = here;
    }
    if (layers > 0 && out.most > 0.0) out.mean = sum / (double)layers;
    return out;
}
