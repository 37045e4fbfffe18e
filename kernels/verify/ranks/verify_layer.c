#include "kernels/verify/ranks/verify_layer.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/record/record_rules.h"
#include "kernels/verify/ranks/verify_layer_checks.h"
#include "reference/bf16.h"
#include "reference/router.h"

#include <stdlib.h>
#include <string.h>

/* The executed schemes that are these kernels in one of their arrangements. ragged differs from gmm, and ragged-deepep
 * from gmm-deepep, by the kernel alone that multiplies. id_bytes: of an expert's id on the wire; int32 here. */
static const spw_layer_scheme layers[] = {
    {"dense", SPW_RECORD_CAPACITY, SPW_LAYER_BY_PLAIN, 4},
    {"gmm", SPW_RECORD_SOURCE, SPW_LAYER_BY_PLAIN, 4},
    {"ragged", SPW_RECORD_SOURCE, SPW_LAYER_BY_PLAIN, 4},
    {"ring", SPW_RECORD_EXPERT, SPW_LAYER_BY_RING, 4},
    {"gmm-deepep", SPW_RECORD_TOKEN, SPW_LAYER_BY_DISPATCH, 4},
    {"ragged-deepep", SPW_RECORD_TOKEN, SPW_LAYER_BY_DISPATCH, 4},
    {"deepep", SPW_RECORD_TOKEN, SPW_LAYER_BY_EXACT_DISPATCH, 8},
};

const spw_layer_activation spw_layer_activations[SPW_LAYER_ACTIVATIONS] = {
    {"SwiGLU", {.limit = 0}},
    {"clamped SwiGLU", {.limit = 7.0f, .alpha = 1.702f}},
    {"GeGLU", {.gate = SPW_GATE_GELU}},
};

static void draw(spw_bf16 *out, size_t n, uint64_t seed, float by) {
    for (size_t i = 0; i < n; i++) out[i] = spw_bf16_from_float(by * spw_number(SPW_NUMBERS_BELL, seed, i));
}

/* --- Data --- */

static spw_status create(spw_layer_run *k) {
    const size_t tokens = k->ranks * k->tokens, wide = tokens * k->hidden, weights = k->experts * k->matrix;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(wide, &k->x));
    SPW_TRY(SPW_ALLOC(wide, &k->dy));
    SPW_TRY(SPW_ALLOC(weights, &k->w0));
    SPW_TRY(SPW_ALLOC(weights, &k->w1));
    SPW_TRY(SPW_ALLOC(weights, &k->wo));
    SPW_TRY(SPW_ALLOC(tokens * k->experts, &k->logits));
    SPW_TRY(SPW_ALLOC(k->ranks * k->choices, &k->weight));
    SPW_TRY(SPW_ALLOC(2 * wide + 3 * weights, &k->fp32));
    SPW_TRY(SPW_ALLOC(2 * wide + k->ranks * k->choices + 3 * weights, &k->out));
    SPW_TRY(SPW_ALLOC(2 * k->ranks, &k->counts));
    SPW_TRY(SPW_ALLOC(8 * (k->tokens * (k->hidden + k->top_k) + 2 * weights), &k->got));
    SPW_TRY(SPW_ALLOC(k->tokens * k->hidden + 2 * weights, &k->widened));
    SPW_TRY(spw_arena_create(k->ranks, &k->arena));
    SPW_TRY(spw_fabric_create(k->ranks, &k->fabric));
    draw(k->x, wide, 41, 1), draw(k->dy, wide, 42, 1);
    draw(k->w0, weights, 43, 0.2f), draw(k->w1, weights, 44, 0.2f), draw(k->wo, weights, 45, 0.2f);
    for (size_t i = 0; i < tokens * k->experts; i++)
        k->logits[i] = 0.05f * spw_number(SPW_NUMBERS_BELL, 46, i) - 4;
    for (size_t i = 0; i < k->ranks * k->choices; i++) { /* the record's choices, in its order */
        const int32_t x = k->r->expert[i];
        if (x >= 0) k->logits[i / k->top_k * k->experts + (size_t)x] += 6 - 0.25f * (float)(i % k->top_k);
    }
    float *at = k->fp32;
    const struct {
        const spw_bf16 *from;
        size_t n;
    } parts[] = {{k->x, wide}, {k->dy, wide}, {k->w0, weights}, {k->w1, weights}, {k->wo, weights}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        spw_layer_widen(parts[i].from, parts[i].n, at), at += parts[i].n;
cleanup:
    return status;
}

static spw_status upload(void **to, const void *from, size_t bytes) {
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMalloc(to, bytes + 16), "allocate");
    SPW_TRY_GPU(cudaMemset(*to, 0xff, bytes + 16), "poison");
    if (from != NULL) SPW_TRY_GPU(cudaMemcpy(*to, from, bytes, cudaMemcpyHostToDevice), "upload");
cleanup:
    return status;
}

static spw_status fill_rank(spw_layer_run *k, size_t r) {
    const size_t wide = k->tokens * k->hidden, local = k->experts / k->ranks, first = r * local * k->matrix;
    spw_bf16 *both = (spw_bf16 *)(void *)k->got;
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(k->world, r));
    SPW_TRY(upload((void **)&k->at[r].x, k->x + r * wide, wide * 2));
    SPW_TRY(upload((void **)&k->at[r].dy, k->dy + r * wide, wide * 2));
    SPW_TRY(upload((void **)&k->at[r].logits, k->logits + r * k->tokens * k->experts,
                   k->tokens * k->experts * 4));
    SPW_TRY(upload((void **)&k->at[r].y, NULL, wide * 2));
    SPW_TRY(upload((void **)&k->at[r].dx, NULL, wide * 2));
    SPW_TRY(upload((void **)&k->at[r].score, NULL, k->tokens * k->experts * 4));
    SPW_TRY(upload((void **)&k->at[r].weight, NULL, k->choices * 4));
    SPW_TRY(upload((void **)&k->at[r].d_weight, NULL, k->choices * 4));
    SPW_TRY(upload((void **)&k->at[r].expert, NULL, k->choices * 4));
    for (size_t i = 0; i < local * k->hidden; i++) { /* gate and up side by side */
        const size_t row = SPW_LAYER_FFN;
        memcpy(both + i * 2 * row, k->w0 + first + i * row, row * sizeof *both);
        memcpy(both + i * 2 * row + row, k->w1 + first + i * row, row * sizeof *both);
    }
    SPW_TRY_GPU(
        cudaMemcpy(k->l->rank[r].gate_up_weight, both, 2 * local * k->matrix * 2, cudaMemcpyHostToDevice),
        "upload");
    SPW_TRY_GPU(
        cudaMemcpy(k->l->rank[r].down_weight, k->wo + first, local * k->matrix * 2, cudaMemcpyHostToDevice),
        "upload");
    SPW_TRY_GPU(cudaDeviceSynchronize(), "upload");
cleanup:
    return status;
}

static void destroy(spw_layer_run *k) {
    for (size_t r = k->world->first; r < k->world->behind; r++) {
        void *memory[] = {k->at[r].x,     k->at[r].dy,     k->at[r].y,        k->at[r].dx,    k->at[r].logits,
                          k->at[r].score, k->at[r].weight, k->at[r].d_weight, k->at[r].expert};
        if (spw_world_use(k->world, r) != SPW_OK) continue;
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
    }
    spw_gpu_layer_destroy(k->l);
    spw_fabric_destroy(k->fabric);
    spw_arena_destroy(k->arena);
    spw_free(k->x), spw_free(k->dy), spw_free(k->w0), spw_free(k->w1), spw_free(k->wo), spw_free(k->logits),
        spw_free(k->weight);
    spw_free(k->fp32), spw_free(k->out), spw_free(k->counts), spw_free(k->got), spw_free(k->widened);
}

/* --- Both run --- */

static spw_status run_router(spw_layer_run *k) {
    spw_status status = SPW_OK;
    for (size_t r = k->world->first; r < k->world->behind; r++) {
        const spw_router_gpu g = {.tokens = (int)k->tokens,
                                  .experts = (int)k->experts,
                                  .top_k = (int)k->top_k,
                                  .groups = 1,
                                  .groups_kept = 1,
                                  .group_terms = 1,
                                  .renormalize = 1,
                                  .scaling = 1,
                                  .logits = k->at[r].logits,
                                  .score = k->at[r].score,
                                  .expert = k->at[r].expert,
                                  .weight = k->at[r].weight};
        SPW_TRY(spw_world_use(k->world, r));
        SPW_TRY_GPU(spw_launch_router(g, k->world->stream[r]), "router");
        SPW_TRY_GPU(cudaStreamSynchronize(k->world->stream[r]), "router");
        SPW_TRY_GPU(cudaMemcpy(k->got, k->at[r].expert, k->choices * 4, cudaMemcpyDeviceToHost), "download");
        spw_layer_count(k, spw_judge_bytes(k->choices, 4, k->got, k->r->expert + r * k->choices), r,
                        "choices of the router");
    }
cleanup:
    return status;
}

static spw_status run_layer(spw_layer_run *k) {
    const spw_bf16 *x[SPW_WORLD_RANKS] = {NULL}, *dy[SPW_WORLD_RANKS] = {NULL};
    const int *expert[SPW_WORLD_RANKS] = {NULL};
    const float *weight[SPW_WORLD_RANKS] = {NULL};
    float *d_weight[SPW_WORLD_RANKS] = {NULL};
    spw_bf16 *y[SPW_WORLD_RANKS] = {NULL}, *dx[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = k->world->first; r < k->world->behind; r++) {
        x[r] = k->at[r].x, dy[r] = k->at[r].dy, expert[r] = k->at[r].expert, weight[r] = k->at[r].weight;
        d_weight[r] = k->at[r].d_weight, y[r] = k->at[r].y, dx[r] = k->at[r].dx;
    }
    SPW_TRY(spw_world_share(k->world, NULL));
    SPW_TRY(spw_gpu_layer_forward(k->l, x, expert, weight, y));
    SPW_TRY(spw_gpu_layer_backward(k->l, dy, weight, dx, d_weight));
    SPW_TRY(spw_world_synchronize(k->world));
cleanup:
    return status;
}

/* The weights are the router's; every rank's are the same formula, so the processes need not exchange them. */
static spw_status run_reference(spw_layer_run *k) {
    const size_t wide = k->ranks * k->tokens * k->hidden, weights = k->experts * k->matrix;
    const spw_execution_shape shape = {.ranks = k->ranks,
                                       .experts = k->experts,
                                       .top_k = k->top_k,
                                       .hidden = k->hidden,
                                       .ffn = SPW_LAYER_FFN,
                                       .activation = k->activation->kind,
                                       .sequences = k->r->sequences,
                                       .sequence_length = k->r->sequence_length,
                                       .element_bytes = 2,
                                       .factor = (double)k->s->factor_thousandths / 1000};
    const spw_router router = {.tokens = k->ranks * k->tokens,
                               .experts = k->experts,
                               .top_k = k->top_k,
                               .score = SPW_SCORE_SOFTMAX,
                               .groups = 1,
                               .groups_kept = 1,
                               .group_terms = 1,
                               .renormalize = true,
                               .scaling = 1};
    float *w = k->fp32 + 2 * wide, *dw = k->out + 2 * wide + k->ranks * k->choices, *score = NULL;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(k->ranks * k->tokens * k->experts, &score));
    SPW_TRY(SPW_ALLOC(k->ranks * k->choices, &expert));
    SPW_TRY(spw_ref_router(&router, k->logits, NULL, score, expert, k->weight));
    const spw_execution_input input = {.expert = k->r->expert,
                                       .weight = k->weight,
                                       .x = k->fp32,
                                       .dy = k->fp32 + wide,
                                       .weights = {w, w + weights, w + 2 * weights}};
    const spw_execution_output output = {.y = k->out,
                                         .dx = k->out + wide,
                                         .d_weight = k->out + 2 * wide,
                                         .gradients = {dw, dw + weights, dw + 2 * weights},
                                         .rows = k->counts,
                                         .dropped = k->counts + k->ranks};
    SPW_TRY(spw_execute(spw_executor_find(k->how->scheme), &shape, &input, &output, k->arena, k->fabric));
cleanup:
    spw_free(expert), spw_free(score);
    return status;
}

static spw_layer_form form_of(const spw_layer_run *k) {
    const spw_record *r = k->r;
    const spw_record_scheme *s = k->s;
    const size_t buffer = spw_record_buffer(r, s);
    const bool slots = s->rule == SPW_RECORD_CAPACITY;
    return (spw_layer_form){.kind = k->how->kind,
                            .plain = {.kind = slots ? SPW_PLAIN_CAPACITY : SPW_PLAIN_RAGGED,
                                      .sequences = r->sequences,
                                      .sequence_length = r->sequence_length,
                                      .top_k = r->top_k,
                                      .experts = r->experts,
                                      .hidden = r->hidden,
                                      .buffer_rows = buffer,
                                      .capacity = slots ? buffer / (r->sequences * r->experts) : 0},
                            .ffn = SPW_LAYER_FFN,
                            .activation = k->activation->kind};
}

/* given: what is compared; its sizes and arrays come here. */
static spw_status verify_as(const spw_layer_run *given, const spw_layer_scheme *how,
                            const spw_exchange_variant *variant) {
    spw_world *world = given->world;
    const spw_record *record = given->r;
    spw_status status = SPW_OK;
    spw_layer_run *k = NULL;
    SPW_TRY(SPW_ALLOC(1, &k));
    *k = *given;
    k->how = how, k->variant = variant->name;
    k->ranks = record->ranks, k->tokens = spw_record_tokens(record), k->top_k = record->top_k;
    k->hidden = record->hidden, k->experts = record->experts;
    k->choices = k->tokens * k->top_k, k->matrix = k->hidden * SPW_LAYER_FFN;
    SPW_TRY(create(k));
    SPW_TRY(spw_gpu_layer_create(world, form_of(k), variant, &k->l));
    for (size_t r = world->first; r < world->behind; r++) SPW_TRY(fill_rank(k, r));
    SPW_TRY(spw_world_clear_counters(world));
    SPW_TRY(run_router(k));
    SPW_TRY(run_layer(k));
    SPW_TRY(run_reference(k));
    for (size_t r = world->first; r < world->behind; r++) SPW_TRY(spw_layer_check_rank(k, r));
cleanup:
    if (k != NULL) destroy(k);
    spw_free(k);
    return status;
}

spw_status spw_verify_layer(spw_world *world, const spw_record *record, const spw_record_scheme *scheme,
                            const spw_layer_activation *activation, const spw_exchange_variant *variant,
                            spw_judge *judge) {
    const spw_layer_run given = {
        .world = world, .r = record, .s = scheme, .activation = activation, .judge = judge};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < record->ranks * spw_record_tokens(record) * record->top_k; i++)
        if (record->expert[i] < 0) return SPW_OK; /* no router chooses fewer */
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        if (layers[i].rule == scheme->rule) SPW_TRY(verify_as(&given, &layers[i], variant));
cleanup:
    return status;
}
