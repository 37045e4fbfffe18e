#include "sim/plain_layer.h"

#include "base/memory.h"
#include "reference/combine.h"
#include "reference/plan.h"

#include <math.h>

/* splitmix64 (Steele, Lea, Flood 2014). */
static float draw(uint64_t *state, double scale) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)(((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0) * scale);
}

static spw_status draw_array(uint64_t *state, double scale, size_t count, float **out) {
    spw_status status = SPW_ALLOC(count, out);
    for (size_t i = 0; i < count && status == SPW_OK; i++) (*out)[i] = draw(state, scale);
    return status;
}

/* Variances stay near 1 from stage to stage. */
static spw_status draw_inputs(const spw_layer_shape *s, uint64_t seed, spw_plain_layer *l) {
    const size_t tokens = s->ranks * s->tokens, matrix = s->experts * s->hidden * s->ffn;
    const double into = sqrt(3.0 / (double)s->hidden), out_of = sqrt(3.0 / (double)s->ffn);
    spw_status status = SPW_OK;
    SPW_TRY(draw_array(&seed, 1.0, tokens * s->hidden, &l->x));
    SPW_TRY(draw_array(&seed, 1.0, tokens * s->hidden, &l->dy));
    SPW_TRY(draw_array(&seed, 512.0, tokens * s->top_k, &l->weight));
    for (size_t i = 0; i < tokens * s->top_k; i++)
        l->weight[i] = (float)((floor((double)l->weight[i]) + 513.0) / 1024.0);
    SPW_TRY(draw_array(&seed, into, matrix, &l->drawn[0]));
    SPW_TRY(draw_array(&seed, into, matrix, &l->drawn[1]));
    SPW_TRY(draw_array(&seed, out_of, matrix, &l->drawn[2]));
    l->weights = (spw_expert_weights){l->drawn[0], l->drawn[1], l->drawn[2]};

cleanup:
    return status;
}

static spw_status allocate_results(const spw_layer_shape *s, spw_plain_layer *l) {
    const size_t tokens = s->ranks * s->tokens, matrix = s->experts * s->hidden * s->ffn;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->y));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->dx));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->y_scale));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->dx_scale));
    SPW_TRY(SPW_ALLOC(tokens * s->top_k, &l->d_weight));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.w0));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.w1));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.wo));

cleanup:
    return status;
}

/* Rows of the grouped GEMMs, sorted by expert. */
typedef struct row_arrays {
    float *x, *y, *dy, *dx;
    spw_expert_state state;
} row_arrays;

static spw_status allocate_rows(const spw_layer_shape *s, size_t rows, row_arrays *a) {
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &a->x));
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &a->y));
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &a->dy));
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &a->dx));
    SPW_TRY(SPW_ALLOC(rows * s->ffn, &a->state.gate));
    SPW_TRY(SPW_ALLOC(rows * s->ffn, &a->state.up));
    SPW_TRY(SPW_ALLOC(rows * s->ffn, &a->state.act));

cleanup:
    return status;
}

static void free_rows(row_arrays *a) {
    spw_free(a->x), spw_free(a->y), spw_free(a->dy), spw_free(a->dx);
    spw_free(a->state.gate), spw_free(a->state.up), spw_free(a->state.act);
}

static spw_status run(const spw_layer_shape *s, const spw_plan *plan, spw_plain_layer *l) {
    const spw_expert_shape shape = {
        .experts = s->experts, .rows = plan->rows, .hidden = s->hidden, .ffn = s->ffn};
    row_arrays a = {.x = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(allocate_rows(s, plan->rows, &a));
    spw_ref_permute(plan, s->hidden, l->x, a.x);
    SPW_TRY(spw_ref_expert_ffn(shape, a.x, l->weights, plan->offset, a.state, a.y));
    spw_ref_combine(plan, s->hidden, a.y, l->weight, l->y, l->y_scale);
    spw_ref_combine_gradient(plan, s->hidden, l->dy, a.y, l->weight, a.dy, l->d_weight, NULL);
    SPW_TRY(
        spw_ref_expert_ffn_gradient(shape, a.x, a.dy, l->weights, plan->offset, a.state, a.dx, l->gradients));
    spw_ref_permute_gradient(plan, s->hidden, a.dx, l->dx, l->dx_scale);

cleanup:
    free_rows(&a);
    return status;
}

spw_status spw_plain_layer_create(const spw_layer_shape *s, uint64_t seed, spw_plain_layer *out) {
    *out = (spw_plain_layer){.x = NULL};
    const spw_status status = draw_inputs(s, seed, out);
    if (status != SPW_OK) spw_plain_layer_destroy(out);
    return status;
}

spw_status spw_plain_layer_run(const spw_layer_shape *s, const int32_t *expert, spw_plain_layer *layer) {
    spw_status status = SPW_OK;
    spw_plan plan = {.tokens = 0};
    SPW_TRY(allocate_results(s, layer));
    SPW_TRY(spw_ref_plan_create(s->ranks * s->tokens, s->top_k, s->experts, expert, &plan));
    SPW_TRY(run(s, &plan, layer));

cleanup:
    spw_ref_plan_destroy(&plan);
    return status;
}

void spw_plain_layer_destroy(spw_plain_layer *l) {
    void *const owned[] = {
        l->x,  l->dy,       l->weight,  l->drawn[0], l->drawn[1],     l->drawn[2],     l->y,
        l->dx, l->d_weight, l->y_scale, l->dx_scale, l->gradients.w0, l->gradients.w1, l->gradients.wo};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) spw_free(owned[i]);
    *l = (spw_plain_layer){.x = NULL};
}
