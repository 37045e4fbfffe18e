#include "sim/memory/tensors/transformers_modules.h"

#include "base/memory.h"
#include "sim/memory/tensors/transformers_operations.h"
#include "sim/model/attention.h"
#include "sim/model/compressed_attention.h"

#define NAME(name, text) text,
static const char *const kind_names[] = {SPW_TRANSFORMERS_KINDS(NAME)};
#undef NAME

const char *spw_transformers_kind_name(size_t kind) { return kind_names[kind]; }

enum { EMBEDDING_ROWS = 10 /* whose gradients one thread adds up */ };
/* The workspace of a cuBLAS handle on Hopper: each thread has one, and the backward pass is a thread of its own. */
enum { CUBLAS_BYTES = 32 << 20 };

const spw_hf_mixer *spw_hf_mixer_of(const spw_model *model, size_t layer) {
    static const spw_hf_mixer *const recurrences[] = {[SPW_RECURRENCE_NONE] = NULL,
                                                      [SPW_RECURRENCE_MAMBA2] = &spw_hf_mamba2,
                                                      [SPW_RECURRENCE_GATED_DELTA] = &spw_hf_gated_delta,
                                                      [SPW_RECURRENCE_KIMI_DELTA] = &spw_hf_kimi_delta};
    const size_t kind = model->mixer_of[layer];
    if (model->streams > 1 && spw_attention_is_compressed(model)) return &spw_hf_compressed_attention;
    if (spw_hf_attention_is_by_blocks(model)) return &spw_hf_block_attention;
    if (kind != 0) return recurrences[model->mixer[kind].recurrence.kind];
    if (spw_attention_is_latent(model)) return &spw_hf_latent_attention;
    if (model->attention_sinks) return &spw_hf_sink_attention;
    return model->query_gate ? &spw_hf_gated_attention : &spw_hf_grouped_attention;
}

static void add_layer(spw_hf_model *m, size_t index) {
    const spw_model *model = m->shape->model;
    spw_hf_layer *l = &m->layer[index];
    l->first = m->weights;
    l->mixer = spw_hf_mixer_of(model, index);
    l->kind = model->mixer_of[index];
    l->hash = index < model->hash_layers;
    l->recurrence = &model->mixer[l->kind].recurrence;
    l->moe = model->is_moe[index] != 0;
    l->ffn = model->is_bare[index] == 0;
    if (l->mixer != NULL) l->mixer->weights(m, l);
    if (l->ffn) spw_hf_ffn_weights(m, l);
    if (l->mixer != NULL) l->input_norm = spw_hf_add_norm(m, model->hidden);
    if (l->ffn) l->post_norm = spw_hf_add_norm(m, model->hidden);
    for (int i = 0; i < 2 && m->shape->compressed; i++) spw_hf_stream_weights(m, l->streams[i], false);
    l->end = m->weights;
}

spw_status spw_hf_model_create(const spw_transformers_shape *shape, spw_tape *tape, spw_hf_model **out) {
    spw_hf_model *m = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    m->shape = shape;
    m->tape = tape;
    SPW_TRY(SPW_ALLOC(shape->layers * SPW_HF_LAYER_WEIGHTS + 3 + SPW_HF_STREAM_WEIGHTS, &m->weight));
    SPW_TRY(SPW_ALLOC(shape->layers, &m->layer));
    SPW_TRY(SPW_ALLOC(shape->layers + 1, &m->hidden));
    m->embedding = spw_hf_add_weight(m, shape->model->vocab, shape->model->hidden, false);
    for (size_t i = 0; i < shape->layers; i++) add_layer(m, i);
    m->final_norm = spw_hf_add_norm(m, shape->model->hidden);
    if (shape->compressed) spw_hf_stream_weights(m, m->stream_head, true);
    m->head = shape->model->tied_embeddings
                  ? m->embedding
                  : spw_hf_add_weight(m, shape->model->vocab, shape->model->hidden, false);
    SPW_TRY(spw_tape_status(tape));
    *out = m;
    m = NULL;

cleanup:
    spw_hf_model_destroy(m);
    return status;
}

void spw_hf_model_destroy(spw_hf_model *m) {
    if (m == NULL) return;
    spw_free(m->weight);
    spw_free(m->layer);
    spw_free(m->hidden);
    spw_free(m);
}

/* --- The model --- */

/* [DeepseekV4DecoderLayer] */
static spw_value stream_layer(spw_hf_model *m, const spw_hf_layer *l, spw_value streams) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, hidden = m->shape->model->hidden;
    const size_t norms[] = {l->input_norm, l->post_norm};
    spw_value x = spw_tape_hold(t, streams);
    for (int i = 0; i < 2; i++) {
        const spw_hf_mix mix = spw_hf_collapse(m, l->streams[i], x);
        const spw_value normed = spw_hf_norm(m, mix.collapsed, rows, hidden, norms[i]);
        const spw_value made = i == 0 ? l->mixer->forward(m, l, normed) : spw_hf_ffn(m, l, normed);
        spw_tape_drop(t, normed);
        const spw_value next = spw_hf_expand(m, mix, made, x);
        spw_tape_drop(t, x);
        x = next;
    }
    return x;
}

/* x + part(norm(x)). x keeps its name. */
static spw_value beside(spw_hf_model *m, const spw_hf_layer *l, spw_value x, size_t norm,
                        spw_value (*part)(spw_hf_model *, const spw_hf_layer *, spw_value)) {
    const uint64_t rows = m->shape->tokens, hidden = m->shape->model->hidden;
    const spw_value read = spw_hf_norm(m, x, rows, hidden, norm), made = part(m, l, read);
    spw_tape_drop(m->tape, read);
    const spw_value out = spw_hf_add(m->tape, x, made, rows * hidden * m->shape->element_bytes);
    spw_tape_drop(m->tape, made);
    return out;
}

void spw_hf_layer_forward(spw_tape *t, void *of, size_t index) {
    spw_hf_model *m = of;
    const spw_hf_layer *l = &m->layer[index];
    if (m->shape->compressed) {
        const uint16_t was = spw_tape_kind(t, SPW_HF_HIDDEN);
        m->hidden[index + 1] = stream_layer(m, l, m->hidden[index]);
        spw_tape_kind(t, was);
        return;
    }
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    spw_value x = spw_tape_hold(t, m->hidden[index]);
    if (l->mixer != NULL) {
        const spw_value before = x;
        x = beside(m, l, before, l->input_norm, l->mixer->forward);
        spw_tape_drop(t, before);
    }
    if (l->ffn) {
        const spw_value before = x;
        x = beside(m, l, before, l->post_norm, spw_hf_ffn);
        spw_tape_drop(t, before);
    }
    m->hidden[index + 1] = x;
    spw_tape_kind(t, kind);
}

/* The embedding for every stream, and the mask: there until the forward pass has ended. */
static void begin_streams(spw_hf_model *m) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, rows = m->shape->tokens, length = rows / m->shape->sequences,
                   bytes = rows * spw_model_carried(m->shape->model) * b;
    m->embedded = m->hidden[0];
    m->mask = spw_tape_tensor(t, length * length * b);
    m->hidden[0] =
        spw_tape_apply(t, &(spw_op){.bytes = bytes,
                                    .input = {m->embedded},
                                    .back = {SPW_TO(0, rows * m->shape->model->hidden * b, (double)bytes)}});
}

static void first_product(spw_hf_model *m) {
    if (!m->ran) (void)spw_tape_tensor(m->tape, CUBLAS_BYTES);
    m->ran = true;
}

/* Cosines and sines of n angles. The product of positions and frequencies is the forward pass' first. */
static void rotary(spw_hf_model *m, uint64_t n) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, f = SPW_HF_FP32 * n;
    const spw_value half = spw_tape_tensor(t, f / 2);
    first_product(m);
    const spw_value angles = spw_tape_tensor(t, f);
    spw_value wide[2];
    for (int i = 0; i < 2; i++) {
        const spw_value raw = spw_tape_tensor(t, f);
        wide[i] = spw_tape_tensor(t, f);
        spw_tape_drop(t, raw);
    }
    /* of complex numbers there is one table, of two in fp32 for each pair */
    const bool one = m->shape->rotation == SPW_HF_ROTATION_COMPLEX;
    m->cosine = spw_tape_tensor(t, one ? f : b * n);
    m->sine = spw_tape_tensor(t, one ? 0 : b * n);
    spw_tape_drop(t, half);
    spw_tape_drop(t, angles);
    for (int i = 0; i < 2; i++) spw_tape_drop(t, wide[i]);
}

/* Of a head, what is turned by its position. */
static uint64_t turned(const spw_hf_model *m) {
    const spw_model *model = m->shape->model;
    if (m->shape->rotation == SPW_HF_ROTATION_NONE) return 0;
    if (m->shape->blocks || m->shape->rotation == SPW_HF_ROTATION_APART)
        return model->head_dim / SPW_HF_TURNED_PART;
    if (m->shape->rotation == SPW_HF_ROTATION_QUARTER) return model->head_dim / SPW_HF_QUARTER;
    return spw_attention_is_latent(model) ? model->rope_dim : model->head_dim;
}

void spw_hf_begin(spw_hf_model *m) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t b = m->shape->element_bytes, rows = m->shape->tokens,
                   table = model->vocab * model->hidden * b;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    const uint64_t length = rows / m->shape->sequences;
    m->hidden[0] = spw_tape_apply(
        t, &(spw_op){.bytes = rows * model->hidden * b,
                     .input = {SPW_HF_LEAF(m, m->embedding)},
                     .back = {SPW_TO(0, table, 0.0), SPW_TO_SORTED(0, rows),
                              SPW_TO_WORK(0, SPW_HF_FP32 * model->hidden * (rows + rows / EMBEDDING_ROWS))}});
    if (turned(m) > 0)
        rotary(m, length * turned(m));
    else
        first_product(m);
    if (m->shape->compressed) begin_streams(m);
    /* whole and sliding attention's [GptOssModel.forward] */
    if (m->shape->scores) m->mask = spw_tape_tensor(t, 2 * rows * length * b);
    /* PEFT with checkpointing: enable_input_require_grads() */
    if (m->shape->frozen && m->shape->checkpoint) m->hidden[0] = spw_tape_needs(t, m->hidden[0]);
    spw_tape_kind(t, kind);
}

static void drop_rotary(spw_hf_model *m) {
    spw_tape_drop(m->tape, m->cosine);
    spw_tape_drop(m->tape, m->sine);
    spw_tape_drop(m->tape, m->embedded);
    spw_tape_drop(m->tape, m->mask);
    m->cosine = m->sine = m->embedded = m->mask = (spw_value){.storage = 0};
}

void spw_hf_end(spw_hf_model *m) { drop_rotary(m); }

/* The backward pass' first product. */
static spw_value head(spw_hf_model *m, spw_value x) {
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes;
    const spw_value w = SPW_HF_LEAF(m, m->head);
    const double flop = 2.0 * (double)rows * (double)model->hidden * (double)model->vocab;
    return spw_tape_apply(m->tape,
                          &(spw_op){.bytes = rows * model->vocab * b,
                                    .input = {x, w},
                                    .keep = {{x, 1}},
                                    .back = {SPW_TO_PRODUCT(1, model->hidden * model->vocab * b, flop),
                                             {SPW_GRADIENT_ONCE, 0, CUBLAS_BYTES, 0.0, 0.0},
                                             SPW_TO_PRODUCT(0, rows * model->hidden * b, flop)},
                                    .flop = flop,
                                    .rate = SPW_HF_DENSE_PRODUCT});
}

uint64_t spw_hf_loss_rows(uint64_t rows, uint64_t vocab, uint64_t hidden) {
    const uint64_t pieces = (vocab + hidden - 1) / hidden, each = (rows + pieces - 1) / pieces;
    uint64_t power = 1;
    while (power < each) power *= 2;
    return power;
}

/* What the forward pass makes of pieces: logits, which their own gradient replaces and which stay until the next are there, the
 * gradient of their hidden states, and that of the head's weights, which is made in the model's format, then in fp32, and added. */
static void loss_pieces(spw_hf_model *m, bool trained) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, head = model->vocab * model->hidden,
                   each = spw_hf_loss_rows(rows, model->vocab, model->hidden);
    spw_value before = {.storage = 0};
    for (uint64_t done = 0; done < rows; done += each) {
        const uint64_t n = rows - done < each ? rows - done : each;
        const spw_value logits = spw_tape_tensor(t, n * model->vocab * b);
        spw_tape_drop(t, before);
        before = logits;
        spw_tape_drop(t, spw_tape_tensor(t, n * model->hidden * b));
        if (!trained) continue;
        const spw_value narrow = spw_tape_tensor(t, head * b), wide = spw_tape_tensor(t, head * SPW_HF_FP32);
        spw_tape_drop(t, narrow);
        spw_tape_drop(t, wide);
    }
    spw_tape_drop(t, before);
}

/* Both gradients are made in the forward pass, and wait. */
static spw_value fused_loss(spw_hf_model *m, spw_value x) {
    enum { PRODUCTS = 3 };
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, head = model->vocab * model->hidden;
    const bool trained = m->weight[m->head].trained;
    const spw_value given = spw_tape_tensor(t, rows * model->hidden * b);
    spw_value weights = {.storage = 0};
    (void)spw_tape_kind(t, SPW_HF_GRADIENTS);
    if (trained) weights = spw_tape_tensor(t, head * b);
    (void)spw_tape_kind(t, SPW_HF_LOGITS);
    const spw_value losses = spw_tape_tensor(t, SPW_HF_FP32 * rows), mask = spw_tape_tensor(t, rows);
    loss_pieces(m, trained);
    const spw_value loss =
        spw_tape_apply(t, &(spw_op){.bytes = SPW_HF_FP32,
                                    .input = {x, SPW_HF_LEAF(m, m->head)},
                                    .keep = {{given, 0}, {weights, 1}},
                                    .back = {{SPW_GRADIENT_ONCE, 0, CUBLAS_BYTES, 0.0, 0.0},
                                             {SPW_GRADIENT_KEPT, 0, 0, 0.0, 0.0},
                                             {SPW_GRADIENT_KEPT, 1, 1, 0.0, 0.0}},
                                    .flop = PRODUCTS * 2.0 * (double)rows * (double)head,
                                    .rate = SPW_HF_DENSE_PRODUCT});
    const spw_value names[] = {losses, mask, given, weights};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return loss;
}

spw_value spw_hf_loss(spw_hf_model *m) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, n = rows * model->vocab,
                   f = SPW_HF_FP32 * n;
    const double r = (double)f;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_HIDDEN);
    const spw_value last = m->shape->compressed ? spw_hf_stream_head(m, m->hidden[m->shape->layers])
                                                : spw_tape_hold(t, m->hidden[m->shape->layers]);
    const spw_value x = spw_hf_norm(m, last, rows, model->hidden, m->final_norm);
    spw_tape_drop(t, last);
    spw_tape_drop(t, m->hidden[m->shape->layers]);
    m->hidden[m->shape->layers] = (spw_value){.storage = 0};
    if (!m->shape->checkpoint) drop_rotary(m);
    (void)spw_tape_kind(t, SPW_HF_LOGITS);
    if (m->shape->fused_loss) {
        const spw_value made = fused_loss(m, x);
        spw_tape_drop(t, x);
        spw_tape_kind(t, kind);
        return made;
    }
    m->logits = head(m, x);
    spw_tape_drop(t, x);
    const spw_value wide = spw_hf_cast(t, m->logits, n, b, SPW_HF_FP32);
    const spw_value parts = spw_tape_apply(t, &(spw_op){.bytes = f,
                                                        .input = {wide},
                                                        .keeps_output = true,
                                                        .back = {SPW_TO(0, f, 2.0 * r)},
                                                        .read_bytes = r});
    const spw_value loss =
        spw_tape_apply(t, &(spw_op){.bytes = SPW_HF_FP32, .input = {parts}, .back = {SPW_TO(0, f, 0.0)}});
    spw_tape_drop(t, parts);
    spw_tape_drop(t, wide);
    spw_tape_kind(t, kind);
    return loss;
}