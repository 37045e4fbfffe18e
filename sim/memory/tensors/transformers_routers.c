/* Routers: from hidden states to the weights and numbers of each token's experts, with what they keep. Read: transformers 5.17.0
 * models/{qwen3_moe,mixtral,olmoe}, 5.24.0 models/{deepseek_v2,deepseek_v3,deepseek_v4,minimax_m3_vl} (TopkRouter). */
#include "sim/memory/tensors/transformers_operations.h"

/* Logits in the model's own format. */
static spw_value narrow_logits(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    const spw_model *model = m->shape->model;
    const spw_value gate = spw_hf_router_weight(m, l->router),
                    logits =
                        spw_hf_product(m, x, gate, m->shape->tokens, model->hidden, model->experts, false);
    spw_tape_drop(m->tape, gate);
    return logits;
}

/* scores.topk(top_k), of `bytes` an element: the greatest of each token, and which they are. */
static spw_value greatest(spw_hf_model *m, spw_value scores, uint64_t bytes, spw_value *choices) {
    const uint64_t all = bytes * m->shape->tokens * m->shape->model->experts,
                   some = m->shape->tokens * m->shape->model->top_k;
    return spw_tape_apply(m->tape, &(spw_op){.bytes = bytes * some,
                                             .kept_bytes = SPW_HF_INDEX * some,
                                             .second = choices,
                                             .input = {scores},
                                             .back = {SPW_TO(0, all, 0.0)},
                                             .read_bytes = (double)all});
}

/* [Qwen3MoeTopKRouter, MixtralTopKRouter, OlmoeTopKRouter] logits as wide as the model, softmax in fp32, weights that sum to 1. */
static spw_hf_routes softmax(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, b = m->shape->element_bytes, all = rows * model->experts,
                   some = rows * model->top_k;
    const spw_value logits = narrow_logits(m, l, x), wide = spw_hf_cast(t, logits, all, b, SPW_HF_FP32);
    const spw_value parts = spw_hf_softmax(t, wide, SPW_HF_FP32 * all);
    spw_tape_drop(t, wide);
    spw_value choices = {.storage = 0};
    const spw_value top = greatest(m, parts, SPW_HF_FP32, &choices);
    /* the sums, which the lists of release 5.17 leave out, and the values that the division in place replaces */
    const spw_value sum = spw_tape_tensor(t, m->shape->unmasked ? SPW_HF_FP32 * rows : 0),
                    before = spw_tape_tensor(t, SPW_HF_FP32 * some);
    const spw_value shared = spw_tape_apply(
        t, &(spw_op){.input = {top},
                     .keep = {{before, 0}, {sum, 0}},
                     .back = {SPW_TO_TEMP(0, SPW_HF_FP32 * some, 0.0),
                              SPW_TO_TEMP(0, SPW_HF_FP32 * some, 0.0), SPW_TO(0, SPW_HF_FP32 * some, 0.0)}});
    const spw_value weights =
        spw_hf_cast(t, shared, some, SPW_HF_FP32, m->shape->wide_scores ? SPW_HF_FP32 : b);
    spw_tape_drop(t, before);
    spw_tape_drop(t, sum);
    spw_tape_drop(t, top);
    spw_tape_drop(t, shared);
    spw_tape_drop(t, parts);
    return (spw_hf_routes){weights, choices, logits};
}

/* What does not outlive the router, in the order in which it is there. */
static void pass_by(spw_tape *t, const uint64_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) spw_tape_drop(t, spw_tape_tensor(t, bytes[i]));
}

static spw_value wide_logits(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens;
    const spw_value wide =
        spw_hf_cast(m->tape, x, rows * model->hidden, m->shape->element_bytes, SPW_HF_FP32);
    const spw_value matrix =
        spw_hf_cast(m->tape, SPW_HF_LEAF(m, l->router), model->hidden * model->experts,
                    m->shape->wide_router ? SPW_HF_FP32 : m->shape->element_bytes, SPW_HF_FP32);
    const spw_value logits = spw_hf_wide_product(m, wide, matrix, rows, model->hidden, model->experts);
    spw_tape_drop(m->tape, matrix);
    spw_tape_drop(m->tape, wide);
    return logits;
}

/* scores.gather(1, choices), of `bytes` an element. */
static spw_value gathered(spw_hf_model *m, spw_value scores, spw_value choices, uint64_t bytes) {
    const uint64_t all = bytes * m->shape->tokens * m->shape->model->experts,
                   some = bytes * m->shape->tokens * m->shape->model->top_k;
    return spw_tape_apply(m->tape, &(spw_op){.bytes = some,
                                             .input = {scores},
                                             .keep = {{choices, 0}},
                                             .back = {SPW_TO(0, all, 0.0)},
                                             .read_bytes = (double)some});
}

/* weights /= their sum, in place: what was there is kept, and the sum. */
static spw_value shares(spw_hf_model *m, spw_value top) {
    spw_tape *t = m->tape;
    const uint64_t rows = m->shape->tokens, some = SPW_HF_FP32 * rows * m->shape->model->top_k;
    const spw_value sum = spw_tape_tensor(t, SPW_HF_FP32 * rows), before = spw_tape_tensor(t, some);
    const spw_value out = spw_tape_apply(
        t, &(spw_op){.input = {top},
                     .keep = {{before, 0}, {sum, 0}},
                     .back = {SPW_TO_TEMP(0, some, 0.0), SPW_TO_TEMP(0, some, 0.0), SPW_TO(0, some, 0.0)}});
    spw_tape_drop(t, before);
    spw_tape_drop(t, sum);
    return out;
}

/* [DeepseekV3TopkRouter] all in fp32: sigmoid, a bias and groups for the choice alone. */
static spw_hf_routes sigmoid(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t all = m->shape->tokens * model->experts, some = m->shape->tokens * model->top_k;
    const spw_value logits = wide_logits(m, l, x);
    const spw_value scores = spw_hf_keeping_output(t, logits, SPW_HF_FP32 * all);
    pass_by(t, (uint64_t[]){SPW_HF_FP32 * all, SPW_HF_FP32 * all}, 2);
    const spw_value choices = spw_tape_tensor(t, SPW_HF_INDEX * some),
                    top = gathered(m, scores, choices, SPW_HF_FP32);
    const spw_value part = shares(m, top);
    const spw_value weights = spw_hf_scale(t, part, (spw_value){.storage = 0}, SPW_HF_FP32 * some);
    spw_tape_drop(t, top);
    spw_tape_drop(t, part);
    spw_tape_drop(t, scores);
    return (spw_hf_routes){weights, choices, logits};
}

/* [MiniMaxM3VLTopKRouter] */
static spw_hf_routes narrow_sigmoid(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t rows = m->shape->tokens, all = rows * model->experts, some = rows * model->top_k;
    const spw_value logits = narrow_logits(m, l, x);
    const spw_value wide = spw_hf_cast(t, logits, all, m->shape->element_bytes, SPW_HF_FP32),
                    scores = spw_hf_keeping_output(t, wide, SPW_HF_FP32 * all);
    spw_tape_drop(t, wide);
    pass_by(t, (uint64_t[]){SPW_HF_FP32 * all, SPW_HF_FP32 * some}, 2);
    const spw_value choices = spw_tape_tensor(t, SPW_HF_INDEX * some),
                    top = gathered(m, scores, choices, SPW_HF_FP32), weights = shares(m, top);
    spw_tape_drop(t, top);
    spw_tape_drop(t, scores);
    return (spw_hf_routes){weights, choices, logits};
}

/* [DeepseekV2TopkRouter] softmax in fp32, the greatest weights as they are; where groups limit the choice, what is not in one is
 * masked. */
static spw_hf_routes groups(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t all = m->shape->tokens * model->experts, some = m->shape->tokens * model->top_k;
    const spw_value logits = wide_logits(m, l, x);
    spw_value scores = spw_hf_keeping_output(t, logits, SPW_HF_FP32 * all), choices = {.storage = 0};
    if (model->groups > 1) {
        const spw_value mask = spw_tape_tensor(t, all), before = scores;
        scores = spw_hf_masked(t, before, mask, SPW_HF_FP32 * all, false);
        spw_tape_drop(t, before);
        spw_tape_drop(t, mask);
    }
    const spw_value top = greatest(m, scores, SPW_HF_FP32, &choices);
    const spw_value weights = spw_hf_scale(t, top, (spw_value){.storage = 0}, SPW_HF_FP32 * some);
    spw_tape_drop(t, top);
    spw_tape_drop(t, scores);
    return (spw_hf_routes){weights, choices, logits};
}

/* [DeepseekV4TopKRouter, DeepseekV4HashRouter] all in the model's format: the root of softplus, a bias in fp32 for the choice alone;
 * or the choice stands in a table by the token's number. */
static spw_hf_routes roots(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const spw_model *model = m->shape->model;
    const uint64_t b = m->shape->element_bytes, rows = m->shape->tokens, all = rows * model->experts,
                   some = rows * model->top_k;
    const spw_value logits = narrow_logits(m, l, x);
    const spw_value soft = spw_hf_silu(t, logits, b * all), scores = spw_hf_keeping_output(t, soft, b * all);
    spw_tape_drop(t, soft);
    if (!l->hash) pass_by(t, (uint64_t[]){SPW_HF_FP32 * all, SPW_HF_FP32 * some}, 2);
    const spw_value choices = spw_tape_tensor(t, SPW_HF_INDEX * some), top = gathered(m, scores, choices, b);
    const spw_value sum =
        spw_tape_apply(t, &(spw_op){.bytes = b * rows, .input = {top}, .back = {SPW_TO(0, b * some, 0.0)}});
    const spw_value part =
        spw_tape_apply(t, &(spw_op){.bytes = b * some,
                                    .input = {top, sum},
                                    .keep = {{sum, 0}, {top, 1}},
                                    .back = {SPW_TO(0, b * some, 0.0), SPW_TO_TEMP(1, b * some, 0.0),
                                             SPW_TO_DONE, SPW_TO(1, b * rows, 0.0)}});
    spw_tape_drop(t, sum);
    const spw_value out = spw_hf_scale(t, part, (spw_value){.storage = 0}, b * some);
    spw_tape_drop(t, part);
    spw_tape_drop(t, top);
    spw_tape_drop(t, scores);
    return (spw_hf_routes){out, choices, logits};
}

/* [GptOssTopKRouter] all in the model's format. */
static spw_hf_routes chosen(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    spw_tape *t = m->tape;
    const uint64_t b = m->shape->element_bytes, rows = m->shape->tokens;
    const spw_value logits =
        spw_hf_biased_product(m, x, SPW_HF_LEAF(m, l->router), l->router + 1, rows, false);
    spw_value choices = {.storage = 0};
    const spw_value top = greatest(m, logits, b, &choices),
                    weights = spw_hf_softmax(t, top, b * rows * m->shape->model->top_k);
    spw_tape_drop(t, top);
    return (spw_hf_routes){weights, choices, logits};
}

spw_hf_routes spw_hf_route(spw_hf_model *m, const spw_hf_layer *l, spw_value x) {
    static spw_hf_routes (*const laws[])(spw_hf_model *, const spw_hf_layer *, spw_value) = {
        [SPW_HF_ROUTER_SOFTMAX] = softmax, [SPW_HF_ROUTER_SIGMOID] = sigmoid,
        [SPW_HF_ROUTER_GROUPS] = groups,   [SPW_HF_ROUTER_SHARES] = narrow_sigmoid,
        [SPW_HF_ROUTER_ROOTS] = roots,     [SPW_HF_ROUTER_CHOSEN] = chosen,
    };
    const uint16_t kind = spw_tape_kind(m->tape, SPW_HF_ROUTER);
    const spw_hf_routes out = laws[m->shape->router](m, l, x);
    spw_tape_kind(m->tape, kind);
    return out;
}
