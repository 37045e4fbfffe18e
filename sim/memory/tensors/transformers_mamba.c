/* Mamba-2 as transformers' Nemotron-H trains it: NemotronHMamba2Mixer (transformers 5.24) and, behind its projection, one function of
 * mamba-ssm 2.3.2, MambaSplitConv1dScanCombinedFn (mamba_ssm/ops/triton/ssd_combined.py): convolution, scan, gated norm and output
 * projection. It keeps what it reads, what the scan gives and 1 / rms; all else is made again by the backward pass. Sizes of its
 * temporaries: ssd_chunk_state.py, ssd_state_passing.py, ssd_bmm.py, ssd_chunk_scan.py. */
#include "sim/memory/tensors/transformers_operations.h"

enum { IN, OUT, CONVOLUTION, CONVOLUTION_BIAS, STEP_BIAS, DECAY, SKIP, NORM };

/* Bytes of the tensors of one layer. */
typedef struct sizes {
    uint64_t rows, projected, wide, convolved; /* elements a token */
    uint64_t steps, states, scores,
        keys; /* of all tokens in fp32: steps of heads, states, B C of chunks, B */
} sizes;

static sizes sizes_of(const spw_hf_model *m, const spw_recurrence *r) {
    const uint64_t rows = m->shape->tokens, length = rows / m->shape->sequences,
                   chunks = m->shape->sequences * ((length + r->chunk - 1) / r->chunk), f = SPW_HF_FP32;
    const uint64_t wide = r->value_heads * r->value, keys = r->key_heads * r->key,
                   convolved = wide + 2 * keys;
    return (sizes){.rows = rows,
                   .projected = wide + convolved + r->value_heads,
                   .wide = wide,
                   .convolved = convolved,
                   .steps = f * chunks * r->chunk * r->value_heads,
                   .states = f * chunks * wide * r->key,
                   .scores = f * chunks * r->key_heads * r->chunk * r->chunk,
                   .keys = f * rows * keys};
}

static void weights(spw_hf_model *m, spw_hf_layer *l) {
    const spw_recurrence *r = l->recurrence;
    const sizes s = sizes_of(m, r);
    const uint64_t h = m->shape->model->hidden, heads = r->value_heads;
    l->mixer_weight[STEP_BIAS] = spw_hf_add_weight(m, heads, 1, false);
    l->mixer_weight[DECAY] = spw_hf_add_weight(m, heads, 1, false);
    l->mixer_weight[SKIP] = spw_hf_add_weight(m, heads, 1, false);
    l->mixer_weight[CONVOLUTION] = spw_hf_add_weight(m, s.convolved, r->taps, false);
    if (m->shape->model->conv_bias)
        l->mixer_weight[CONVOLUTION_BIAS] = spw_hf_add_weight(m, s.convolved, 1, false);
    l->mixer_weight[IN] = spw_hf_add_matrix(m, s.projected, h, false);
    l->mixer_weight[NORM] = spw_hf_add_weight(m, s.wide, 1, false);
    l->mixer_weight[OUT] = spw_hf_add_matrix(m, h, s.wide, false);
}

/* -exp(A_log.float()): the exponential and its negative are kept. */
static spw_value decay(spw_hf_model *m, const spw_hf_layer *l) {
    spw_tape *t = m->tape;
    const uint64_t bytes = SPW_HF_FP32 * l->recurrence->value_heads;
    const spw_value wide = spw_hf_widened(m, l->mixer_weight[DECAY]);
    const spw_value raised = spw_hf_keeping_output(t, wide, bytes);
    spw_tape_drop(t, wide);
    const spw_value out =
        spw_tape_apply(t, &(spw_op){.bytes = bytes, .input = {raised}, .back = {SPW_TO(0, bytes, 0.0)}});
    spw_tape_drop(t, raised);
    return out;
}

/* Forward products of the scan: B C and their use within chunks, states of chunks and their use. */
static double scan_flop(const spw_recurrence *r, const sizes *s) {
    const double rows = (double)s->rows, chunk = (double)r->chunk, key = (double)r->key;
    return 2.0 * rows * (chunk * key * (double)r->key_heads + (chunk + 2.0 * key) * (double)s->wide);
}

static spw_value scan(spw_hf_model *m, const spw_hf_layer *l, spw_value x, spw_value decays) {
    spw_tape *t = m->tape;
    const spw_recurrence *r = l->recurrence;
    const sizes s = sizes_of(m, r);
    const uint64_t h = m->shape->model->hidden, b = m->shape->element_bytes, w = s.rows * s.wide * b,
                   c = s.rows * s.convolved * b, p = s.rows * s.projected * b, f = SPW_HF_FP32,
                   heads = f * r->value_heads;
    const double product = 2.0 * (double)s.rows * (double)s.wide * (double)h, flop = scan_flop(r, &s);
    const spw_value convolved = spw_tape_tensor(t, c), steps = spw_tape_tensor(t, 2 * s.steps);
    spw_tape_drop(t, spw_tape_tensor(t, s.states));
    const spw_value states = spw_tape_tensor(t, s.states / f * b), scores = spw_tape_tensor(t, s.scores);
    const spw_value scanned = spw_tape_tensor(t, w);
    spw_tape_drop(t, scores);
    const spw_value normed = spw_tape_tensor(t, w), root = spw_tape_tensor(t, f * s.rows * r->key_heads);
    const spw_value out = spw_tape_apply(
        t, &(spw_op){
               .bytes = s.rows * h * b,
               .input = {x, decays, SPW_HF_LEAF(m, l->mixer_weight[OUT]),
                         SPW_HF_LEAF(m, l->mixer_weight[CONVOLUTION]), SPW_HF_LEAF(m, l->mixer_weight[NORM]),
                         SPW_HF_LEAF(m, l->mixer_weight[STEP_BIAS]), SPW_HF_LEAF(m, l->mixer_weight[SKIP]),
                         m->shape->model->conv_bias ? SPW_HF_LEAF(m, l->mixer_weight[CONVOLUTION_BIAS])
                                                    : (spw_value){.storage = 0}},
               .keep = {{x, 0}, {scanned, 0}, {decays, 0}, {root, 0}},
               .back = {SPW_TO_TEMP(0, w, 0.0), /* the norm's output, once more */
                        SPW_TO_TEMP(0, c, 0.0), /* the convolution's */
                        SPW_TO(0, p, (double)p),
                        SPW_TO_TEMP(0, c, 0.0),
                        {SPW_GRADIENT_TEMP, 0, w, 0.0, product},
                        SPW_TO_TEMP(0, w, 3.0 * (double)w),
                        SPW_TO_TEMP(0, 2 * s.steps, 0.0),
                        SPW_TO_TEMP(0, s.scores, 0.0),
                        SPW_TO_WORK(0, 2 * s.states + 2 * (s.states / f * b)), /* where states are both */
                        {SPW_GRADIENT_TEMP, 0, 2 * (s.states / f * b), 0.0, 2.5 * flop, true},
                        SPW_TO_TEMP(0, 3 * s.steps, 0.0),
                        SPW_TO_TEMP(0, 2 * s.keys, 0.0),
                        SPW_TO_TEMP(0, s.scores, 0.0),
                        SPW_TO(1, heads, 0.0),
                        SPW_TO_PRODUCT(2, h * s.wide * b, product),
                        SPW_TO(3, s.convolved * r->taps * b, 0.0),
                        SPW_TO(4, s.wide * b, 0.0),
                        SPW_TO(5, heads / f * b, 0.0),
                        SPW_TO(6, heads / f * b, 0.0),
                        SPW_TO(7, s.convolved * b, 0.0)},
               .flop = product,
               .rate = SPW_HF_DENSE_PRODUCT,
               .inner_flop = flop,
               .inner_rate = SPW_HF_SCAN_PRODUCT});
    const spw_value names[] = {convolved, steps, states, scanned, normed, root};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) spw_tape_drop(t, names[i]);
    return out;
}

static spw_value forward(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const uint16_t kind = spw_tape_kind(t, SPW_HF_MIXER);
    const spw_value projected = spw_hf_linear(m, x, l->mixer_weight[IN], m->shape->tokens, false);
    const spw_value decays = decay(m, l), out = scan(m, l, projected, decays);
    spw_tape_drop(t, decays);
    spw_tape_drop(t, projected);
    spw_tape_kind(t, kind);
    return out;
}

const spw_hf_mixer spw_hf_mamba2 = {weights, forward};
