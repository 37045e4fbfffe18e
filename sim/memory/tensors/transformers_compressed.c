/* DeepSeek-V4's attention [DeepseekV4Attention, DeepseekV4CSACompressor, DeepseekV4HCACompressor, DeepseekV4Indexer;
 * transformers 5.24.0]: one head that is key and value, keys joined over several tokens beside it, an output through a latent a
 * group of heads. transformers has no fused kernel for it: scores of every query and key are there, in the model's format and in fp32
 * with a column for the sink. The indexer chooses and has no gradient: what it makes is there while it runs. */
#include "sim/memory/tensors/transformers_operations.h"
#include "sim/model/compressed_attention.h"

enum { Q_DOWN, Q_NORM, Q_UP, KV, KV_NORM, O_DOWN, O_UP, SINKS, COMPRESSOR, INDEXER = COMPRESSOR + 4 };
enum { C_KV, C_GATE, C_BIAS, C_NORM };
/* The rotated part of a head [DeepseekV4Config.default_partial_rotary_factor: 64 / 512] */
enum { ROTARY_PART = 8 };
/* Numbers of a layer's kind. */
typedef struct sizes {
    uint64_t rank, wide, groups, latent; /* of queries; all heads; of the output */
    uint64_t every, parts;               /* tokens a joined key; 2: windows overlap; 0: no joined keys */
    uint64_t index_width, index_heads;   /* 0: none */
    uint64_t joined;                     /* keys a sequence */
} sizes;

static sizes sizes_of(const spw_hf_model *m, const spw_hf_layer *l) {
    const spw_compressed_attention a = spw_compressed_attention_of(m->shape->model, l->kind);
    return (sizes){.rank = a.rank,
                   .wide = a.wide,
                   .groups = a.groups,
                   .latent = a.latent,
                   .every = a.every,
                   .parts = a.parts,
                   .index_width = a.index_width,
                   .index_heads = a.index_heads,
                   .joined = a.every > 0 ? m->shape->tokens / m->shape->sequences / a.every : 0};
}

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_model *k = m->shape->model;
    const sizes s = sizes_of(m, l);
    const uint64_t h = k->hidden, d = k->head_dim, i = s.index_width;
    size_t *w = l->mixer_weight;
    w[SINKS] = spw_hf_add_wide_weight(m, k->heads, 1);
    w[Q_DOWN] = spw_hf_add_weight(m, s.rank, h, false);
    w[Q_NORM] = spw_hf_add_norm(m, s.rank);
    w[Q_UP] = spw_hf_add_weight(m, s.wide, s.rank, false);
    w[KV] = spw_hf_add_weight(m, d, h, false);
    w[KV_NORM] = spw_hf_add_norm(m, d);
    w[O_DOWN] = spw_hf_add_weight(m, s.groups * s.latent, s.wide / s.groups, false);
    w[O_UP] = spw_hf_add_weight(m, h, s.groups * s.latent, false);
    if (s.every == 0) return;
    w[COMPRESSOR + C_BIAS] = spw_hf_add_wide_weight(m, s.every, s.parts * d);
    w[COMPRESSOR + C_KV] = spw_hf_add_weight(m, s.parts * d, h, false);
    w[COMPRESSOR + C_GATE] = spw_hf_add_weight(m, s.parts * d, h, false);
    w[COMPRESSOR + C_NORM] = spw_hf_add_norm(m, d);
    if (i == 0) return;
    m->weight[spw_hf_add_untrained(m, s.every, 2 * i)].wide = true;
    w[INDEXER] = spw_hf_add_untrained(m, 2 * i, h);
    (void)spw_hf_add_untrained(m, 2 * i, h);
    m->weight[spw_hf_add_untrained(m, i, 1)].wide = true;
    (void)spw_hf_add_untrained(m, s.index_heads * i, s.rank);
    (void)spw_hf_add_untrained(m, s.index_heads, h);
}

/* [apply_rotary_pos_emb] the last numbers of every head in fp32, by tables that are made for it: `places` positions of them. */
static spw_value turn(spw_hf_model *m, spw_value x, uint64_t bytes, uint64_t places) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, part = bytes / ROTARY_PART, f = part / b * SPW_HF_FP32,
                   table = places * (m->shape->model->head_dim / ROTARY_PART) * b;
    const spw_value cosine = spw_tape_tensor(t, table), sine = spw_tape_tensor(t, table);
    const spw_value rest = spw_hf_part(t, x, bytes), end = spw_hf_part(t, x, bytes);
    const spw_value wide = spw_hf_cast(t, end, part / b, b, SPW_HF_FP32),
                    turned = spw_hf_scale(t, wide, cosine, f);
    spw_tape_drop(t, wide);
    const spw_value first = spw_hf_part(t, end, part), second = spw_hf_part(t, end, part),
                    minus = spw_hf_scale(t, second, (spw_value){.storage = 0}, part / 2),
                    pairs = spw_hf_join(t, minus, first, part);
    spw_tape_drop(t, minus);
    spw_tape_drop(t, first);
    spw_tape_drop(t, second);
    const spw_value pairs_wide = spw_hf_cast(t, pairs, part / b, b, SPW_HF_FP32),
                    across = spw_hf_scale(t, pairs_wide, sine, f);
    spw_tape_drop(t, pairs);
    spw_tape_drop(t, pairs_wide);
    const spw_value sum = spw_hf_add(t, turned, across, f);
    spw_tape_drop(t, turned);
    spw_tape_drop(t, across);
    const spw_value narrow = spw_hf_cast(t, sum, part / b, SPW_HF_FP32, b);
    spw_tape_drop(t, sum);
    const spw_value out = spw_hf_join(t, rest, narrow, bytes);
    const spw_value names[] = {cosine, sine, rest, end, narrow};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

/* Keys and gates of windows, laid out with those of the window before: `bytes` of a tensor into which two parts are copied. */
static spw_value lay_out(spw_tape *t, spw_value x, uint64_t bytes) {
    const spw_value first = spw_tape_apply(
        t, &(spw_op){.bytes = bytes,
                     .input = {x},
                     .back = {SPW_TO_TEMP(0, bytes, (double)bytes), SPW_TO(0, bytes, (double)bytes)},
                     .read_bytes = (double)bytes / 2.0});
    const spw_value out = spw_tape_apply(
        t, &(spw_op){.input = {first, x}, .back = {SPW_TO(0, bytes, (double)bytes), SPW_TO(1, bytes, 0.0)}});
    spw_tape_drop(t, first);
    return out;
}

/* The mean of a window's keys by their gates. Takes the names of keys and gates; gates are in fp32. */
static spw_value join_window(spw_hf_model *m, const sizes *s, spw_value keys, spw_value gates) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t b = m->shape->element_bytes, windows = m->shape->sequences * s->joined,
                   n = windows * s->every * s->parts * k->head_dim;
    const spw_value shares = spw_hf_softmax(t, gates, SPW_HF_FP32 * n),
                    narrow = spw_hf_cast(t, shares, n, SPW_HF_FP32, b),
                    product = spw_hf_multiply(t, keys, narrow, b * n);
    spw_tape_drop(t, shares);
    spw_tape_drop(t, narrow);
    const spw_value out = spw_tape_apply(t, &(spw_op){.bytes = windows * k->head_dim * b,
                                                      .input = {product},
                                                      .back = {SPW_TO_PASS(0)},
                                                      .read_bytes = (double)(b * n)});
    spw_tape_drop(t, product);
    spw_tape_drop(t, keys);
    spw_tape_drop(t, gates);
    return out;
}

/* What the indexer holds where it holds most: the joined keys once a query in fp32, and scores of its heads three times. */
static void choose(spw_hf_model *m, const sizes *s) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, i = s->index_width,
                   heads = rows * s->index_heads, scores = SPW_HF_FP32 * heads * s->joined,
                   windows = m->shape->sequences * s->joined * 2 * s->every * i;
    const double h = (double)(rows * m->shape->model->hidden), keys = 2.0 * h * (double)(2 * i),
                 queries = 2.0 * (double)(rows * s->rank) * (double)(s->index_heads * i),
                 pairs = 2.0 * (double)(heads * s->joined * i);
    /* what is made, and of what kind of products; else it is read and written */
    const struct {
        uint64_t bytes;
        double flop;
        uint8_t rate;
    } held[] = {{rows * 2 * i * b, keys, SPW_HF_DENSE_PRODUCT},
                {rows * 2 * i * b, keys, SPW_HF_DENSE_PRODUCT},
                {.bytes = SPW_HF_FP32 * rows * 2 * i},
                {.bytes = windows * b},
                {.bytes = windows * SPW_HF_FP32},
                {.bytes = windows * SPW_HF_FP32},
                {.bytes = windows * b},
                {heads * i * b, queries, SPW_HF_DENSE_PRODUCT},
                {.bytes = SPW_HF_FP32 * heads * i},
                {.bytes = SPW_HF_FP32 * rows * s->joined * i},
                {scores, pairs, SPW_HF_FP32_PRODUCT},
                {.bytes = scores},
                {.bytes = scores}};
    const uint16_t kind = spw_tape_kind(t, SPW_HF_INDEXER);
    spw_value names[sizeof held / sizeof *held];
    for (size_t n = 0; n < sizeof held / sizeof *held; n++)
        names[n] = spw_tape_make(t, held[n].bytes, held[n].flop > 0.0 ? 0.0 : (double)held[n].bytes,
                                 held[n].flop, held[n].rate);
    for (size_t n = 0; n < sizeof held / sizeof *held; n++) spw_tape_drop(t, names[n]);
    spw_tape_kind(t, kind);
}

/* Joined keys. What is named here stays until the indexer has chosen. */
static spw_value compress(spw_hf_model *m, const spw_hf_layer *l, const sizes *s, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const size_t *w = l->mixer_weight + COMPRESSOR;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes,
                   windows = m->shape->sequences * s->joined, wide = s->parts * k->head_dim,
                   given = windows * s->every * wide;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_COMPRESSOR);
    const spw_value kv = spw_hf_linear(m, x, w[C_KV], rows, false),
                    gate = spw_hf_linear(m, x, w[C_GATE], rows, false);
    const spw_value biased = spw_tape_apply(
        t, &(spw_op){.bytes = SPW_HF_FP32 * given,
                     .input = {gate, SPW_HF_LEAF(m, w[C_BIAS])},
                     .back = {SPW_TO(0, b * given, 0.0), SPW_TO_DONE,
                              SPW_TO(1, SPW_HF_FP32 * s->every * wide, (double)(SPW_HF_FP32 * given))}});
    const spw_value keys = s->parts > 1 ? lay_out(t, kv, b * given) : spw_tape_hold(t, kv),
                    gates = s->parts > 1 ? lay_out(t, biased, SPW_HF_FP32 * given) : spw_tape_hold(t, biased);
    const spw_value sum = join_window(m, s, keys, gates);
    const spw_value normed = spw_hf_norm(m, sum, windows, k->head_dim, w[C_NORM]);
    spw_tape_drop(t, sum);
    const spw_value out = turn(m, normed, windows * k->head_dim * b, windows);
    spw_tape_drop(t, normed);
    if (s->index_width > 0) choose(m, s);
    spw_tape_drop(t, kv);
    spw_tape_drop(t, gate);
    spw_tape_drop(t, biased);
    spw_tape_kind(t, kind);
    return out;
}

/* The head of keys once for every head of queries, as a batch of products needs it: a copy, or of one sequence a view. */
static spw_value each_head(spw_hf_model *m, spw_value kv, uint64_t keys) {
    const uint64_t one = keys * m->shape->model->head_dim * m->shape->element_bytes;
    return spw_tape_apply(m->tape,
                          &(spw_op){.bytes = m->shape->sequences > 1 ? m->shape->model->heads * one : 0,
                                    .input = {kv},
                                    .back = {SPW_TO(0, one, (double)one)},
                                    .read_bytes = (double)one});
}

/* a b of a batch: both are kept. */
static spw_value batch(spw_tape *t, spw_value a, spw_value b, const uint64_t bytes[3], double flop) {
    return spw_tape_apply(
        t, &(spw_op){.bytes = bytes[2],
                     .input = {a, b},
                     .keep = {{b, 0}, {a, 1}},
                     .back = {SPW_TO_PRODUCT(0, bytes[0], flop), SPW_TO_PRODUCT(1, bytes[1], flop)},
                     .flop = flop,
                     .rate = SPW_HF_DENSE_PRODUCT});
}

/* Scores less their greatest, softmax in fp32, and back. Takes the name of scores: rows of `keys` numbers. */
static spw_value shares(spw_hf_model *m, const spw_hf_layer *l, spw_value scores, uint64_t rows,
                        uint64_t keys) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, n = rows * keys, f = SPW_HF_FP32 * rows * (keys + 1);
    spw_value place = {.storage = 0};
    const spw_value all =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {scores, SPW_HF_LEAF(m, l->mixer_weight[SINKS])},
                                    .back = {SPW_TO(0, b * n, (double)f), SPW_TO_DONE,
                                             SPW_TO(1, SPW_HF_FP32 * m->shape->model->heads, 0.0)},
                                    .read_bytes = (double)(b * n)});
    const spw_value most = spw_tape_apply(t, &(spw_op){.bytes = SPW_HF_FP32 * rows,
                                                       .kept_bytes = SPW_HF_INDEX * rows,
                                                       .second = &place,
                                                       .input = {all},
                                                       .back = {SPW_TO(0, f, 0.0)},
                                                       .read_bytes = (double)f});
    const spw_value less =
        spw_tape_apply(t, &(spw_op){.bytes = f,
                                    .input = {all, most},
                                    .back = {SPW_TO_TEMP(1, f, (double)f), SPW_TO_PASS(0), SPW_TO_DONE,
                                             SPW_TO(1, SPW_HF_FP32 * rows, (double)f)},
                                    .read_bytes = (double)f});
    spw_tape_drop(t, all);
    spw_tape_drop(t, most);
    spw_tape_drop(t, place);
    const spw_value parts = spw_hf_softmax(t, less, f), some = spw_hf_part(t, parts, f);
    spw_tape_drop(t, scores);
    const spw_value out = spw_hf_cast(t, some, n, SPW_HF_FP32, b);
    spw_tape_drop(t, less);
    spw_tape_drop(t, parts);
    spw_tape_drop(t, some);
    return out;
}

/* [eager_attention_forward] */
static spw_value attend(spw_hf_model *m, const spw_hf_layer *l, const sizes *s, spw_value q, spw_value kv) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const uint64_t b = m->shape->element_bytes, length = m->shape->tokens / m->shape->sequences,
                   keys = length + s->joined, rows = m->shape->tokens * k->heads, scores = rows * keys * b,
                   query = m->shape->tokens * s->wide * b, each = m->shape->sequences * keys * s->wide * b;
    const double flop = 2.0 * (double)rows * (double)keys * (double)k->head_dim;
    const spw_value key = each_head(m, kv, m->shape->sequences * keys),
                    raw = batch(t, q, key, (uint64_t[]){query, each, scores}, flop);
    spw_tape_drop(t, key);
    const spw_value scaled = spw_hf_scale(t, raw, (spw_value){.storage = 0}, scores);
    spw_tape_drop(t, raw);
    const spw_value masked = spw_tape_apply(
        t, &(spw_op){
               .bytes = scores, .input = {scaled}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)scores});
    spw_tape_drop(t, scaled);
    const spw_value part = shares(m, l, masked, rows, keys),
                    value = each_head(m, kv, m->shape->sequences * keys);
    const spw_value out = batch(t, part, value, (uint64_t[]){scores, each, query}, flop);
    spw_tape_drop(t, value);
    spw_tape_drop(t, part);
    const spw_value ordered = spw_tape_apply(
        t, &(spw_op){.bytes = query, .input = {out}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)query});
    spw_tape_drop(t, out);
    return ordered;
}

/* Groups of heads through a latent each, then one matrix. Takes the name of x. */
static spw_value put_out(spw_hf_model *m, const spw_hf_layer *l, const sizes *s, spw_value x) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, wide = rows * s->wide * b,
                   low = rows * s->groups * s->latent * b, weight = s->wide * s->latent * b;
    const double flop = 2.0 * (double)rows * (double)s->wide * (double)s->latent;
    const spw_value turned = turn(m, x, wide, rows / m->shape->sequences);
    spw_tape_drop(t, x);
    const spw_value grouped = spw_tape_apply(
        t, &(spw_op){.bytes = wide, .input = {turned}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)wide});
    spw_tape_drop(t, turned);
    const spw_value down =
        spw_tape_apply(t, &(spw_op){.bytes = low,
                                    .input = {grouped, SPW_HF_LEAF(m, l->mixer_weight[O_DOWN])},
                                    .keep = {{grouped, 1}},
                                    .back = {SPW_TO_PRODUCT(0, wide, flop), SPW_TO_PRODUCT(1, weight, flop)},
                                    .flop = flop,
                                    .rate = SPW_HF_DENSE_PRODUCT});
    const spw_value flat = spw_tape_apply(
        t, &(spw_op){.bytes = low, .input = {down}, .back = {SPW_TO_PASS(0)}, .read_bytes = (double)low});
    spw_tape_drop(t, down);
    const spw_value out = spw_hf_linear(m, flat, l->mixer_weight[O_UP], rows, false);
    spw_tape_drop(t, flat);
    spw_tape_drop(t, grouped);
    return out;
}

/* Queries; the latent that they and the indexer come from is gone when it has no more use: *residual is its name. */
static spw_value queries(spw_hf_model *m, const spw_hf_layer *l, const sizes *s, spw_value x,
                         spw_value *residual) {
    spw_tape *t = m->tape;
    const size_t *w = l->mixer_weight;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, heads = m->shape->model->heads;
    const spw_value down = spw_hf_linear(m, x, w[Q_DOWN], rows, false);
    *residual = spw_hf_norm(m, down, rows, s->rank, w[Q_NORM]);
    spw_tape_drop(t, down);
    const spw_value up = spw_hf_linear(m, *residual, w[Q_UP], rows, false);
    const uint16_t kind = spw_tape_kind(t, SPW_HF_NORMS);
    const spw_value normed = spw_hf_plain_norm(m, up, rows * heads, m->shape->model->head_dim, b);
    spw_tape_kind(t, kind);
    spw_tape_drop(t, up);
    const spw_value out = turn(m, normed, rows * s->wide * b, rows / m->shape->sequences);
    spw_tape_drop(t, normed);
    return out;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *k = m->shape->model;
    const sizes s = sizes_of(m, l);
    const size_t *w = l->mixer_weight;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, length = rows / m->shape->sequences,
                   own = rows * k->head_dim * b, joined = m->shape->sequences * s.joined * k->head_dim * b;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_ATTENTION);
    spw_value residual, mask = {.storage = 0};
    const spw_value q = queries(m, l, &s, x, &residual);
    const spw_value one = spw_hf_linear(m, x, w[KV], rows, false),
                    normed = spw_hf_norm(m, one, rows, k->head_dim, w[KV_NORM]);
    spw_tape_drop(t, one);
    spw_value kv = turn(m, normed, own, length);
    spw_tape_drop(t, normed);
    if (s.joined > 0) {
        const spw_value more = compress(m, l, &s, x), both = spw_hf_join(t, kv, more, own + joined);
        spw_tape_drop(t, kv);
        kv = both;
        spw_tape_drop(t, more);
        mask = spw_tape_tensor(t, rows * (length + 2 * s.joined) * b); /* with that of joined keys */
    }
    const spw_value seen = attend(m, l, &s, q, kv), out = put_out(m, l, &s, seen);
    spw_tape_drop(t, q);
    spw_tape_drop(t, kv);
    spw_tape_drop(t, mask);
    spw_tape_drop(t, residual);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_compressed_attention = {weights, forward};
