#include "sim/verify/plain_layer.h"

#include "base/memory.h"
#include "reference/combine.h"
#include "reference/grouped_gemm.h"
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

static spw_status allocate_results(const spw_layer_shape *s, size_t slots, spw_plain_layer *l) {
    const size_t tokens = s->ranks * s->tokens, matrix = s->experts * s->hidden * s->ffn;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->y));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->dx));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->y_scale));
    SPW_TRY(SPW_ALLOC(tokens * s->hidden, &l->dx_scale));
    SPW_TRY(SPW_ALLOC(tokens * slots, &l->d_weight));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.w0));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.w1));
    SPW_TRY(SPW_ALLOC(matrix, &l->gradients.wo));

cleanup:
    return status;
}

spw_swiglu spw_plain_layer_activation(const spw_layer_shape *s) {
    return (spw_swiglu){.plain = !s->plain_experts ? SPW_GATED : s->gelu ? SPW_GELU : SPW_RELU2};
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

static spw_status create_scales(const spw_layer_shape *s, const spw_plan *plan,
                                const spw_plain_routing *routing, spw_expert_state state,
                                spw_plain_layer *l) {
    const spw_plain_inputs inputs = {routing->slots, l->x, l->dy, routing->weight, l->weights, state};
    return spw_plain_scales_create(s, plan, &inputs, &l->scales);
}

static spw_status run(const spw_layer_shape *s, const spw_plan *plan, const spw_plain_routing *routing,
                      spw_plain_layer *l) {
    const spw_expert_shape shape = {.experts = s->experts,
                                    .rows = plan->rows,
                                    .hidden = s->hidden,
                                    .ffn = s->ffn,
                                    .activation = spw_plain_layer_activation(s)};
    row_arrays a = {.x = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(allocate_rows(s, plan->rows, &a));
    spw_ref_permute(plan, s->hidden, l->x, a.x);
    SPW_TRY(spw_ref_expert_ffn(shape, a.x, l->weights, plan->offset, a.state, a.y));
    if (routing->bounds) SPW_TRY(create_scales(s, plan, routing, a.state, l));
    spw_ref_combine(plan, s->hidden, a.y, routing->weight, l->y, l->y_scale);
    spw_ref_combine_gradient(plan, s->hidden, l->dy, a.y, routing->weight,
                             (spw_combine_gradients){a.dy, l->d_weight, NULL});
    SPW_TRY(spw_ref_expert_ffn_gradient(shape, (spw_expert_inputs){a.x, a.dy}, l->weights, plan->offset,
                                        a.state, a.dx, l->gradients));
    spw_ref_permute_gradient(plan, s->hidden, a.dx, l->dx, l->dx_scale);

cleanup:
    free_rows(&a);
    return status;
}

/* The down product of weighted activations: y and the gradient of wo; the gradients of the weights, and d_act of what
 * was not weighted. */
static spw_status run_weighted_down(const spw_layer_shape *s, const spw_plan *plan, const row_arrays *a,
                                    const float *weight, float *d_act, spw_plain_layer *l) {
    const spw_gemm_shape down = {.experts = s->experts, .rows = plan->rows, .in = s->ffn, .out = s->hidden};
    float *act = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(plan->rows * s->ffn, &act));
    for (size_t i = 0; i < plan->rows * s->ffn; i++)
        act[i] = (float)((double)weight[plan->assignment[i / s->ffn]] * (double)a->state.act[i]);
    SPW_TRY(spw_ref_grouped_gemm(down, act, l->weights.wo, plan->offset, a->y, NULL));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(down, act, a->dy, plan->offset, l->gradients.wo, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(down, a->dy, l->weights.wo, plan->offset, d_act, NULL));
    for (size_t r = 0; r < plan->rows; r++) {
        const size_t choice = (size_t)plan->assignment[r];
        double sum = 0.0;
        for (size_t i = r * s->ffn; i < (r + 1) * s->ffn; i++) {
            sum += (double)d_act[i] * (double)a->state.act[i];
            d_act[i] = (float)((double)weight[choice] * (double)d_act[i]);
        }
        l->d_weight[choice] = (float)sum;
    }

cleanup:
    spw_free(act);
    return status;
}

static spw_status run_weighted(const spw_layer_shape *s, const spw_plan *plan,
                               const spw_plain_routing *routing, spw_plain_layer *l) {
    const spw_expert_shape shape = {.experts = s->experts,
                                    .rows = plan->rows,
                                    .hidden = s->hidden,
                                    .ffn = s->ffn,
                                    .activation = spw_plain_layer_activation(s)};
    const spw_gemm_shape up = {.experts = s->experts, .rows = plan->rows, .in = s->hidden, .out = s->ffn};
    row_arrays a = {.x = NULL};
    float *d_act = NULL, *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(allocate_rows(s, plan->rows, &a));
    SPW_TRY(SPW_ALLOC(plan->rows * s->ffn, &d_act));
    SPW_TRY(SPW_ALLOC(plan->rows * s->hidden, &part));
    spw_ref_permute(plan, s->hidden, l->x, a.x);
    spw_ref_permute(plan, s->hidden, l->dy, a.dy);
    SPW_TRY(spw_ref_expert_ffn(shape, a.x, l->weights, plan->offset, a.state, a.y));
    if (routing->bounds) SPW_TRY(create_scales(s, plan, routing, a.state, l));
    SPW_TRY(run_weighted_down(s, plan, &a, routing->weight, d_act, l));
    spw_ref_combine(plan, s->hidden, a.y, NULL, l->y, l->y_scale);
    float *d_gate = a.state.act, *d_up = d_act;
    spw_ref_swiglu_gradient(shape.activation, plan->rows * s->ffn, a.state.gate, a.state.up, d_act,
                            (spw_swiglu_gradients){d_gate, d_up, NULL});
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(up, a.x, d_gate, plan->offset, l->gradients.w0, NULL));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(up, a.x, d_up, plan->offset, l->gradients.w1, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(up, d_gate, l->weights.w0, plan->offset, a.dx, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(up, d_up, l->weights.w1, plan->offset, part, NULL));
    for (size_t i = 0; i < plan->rows * s->hidden; i++) a.dx[i] += part[i];
    spw_ref_permute_gradient(plan, s->hidden, a.dx, l->dx, l->dx_scale);

cleanup:
    spw_free(part), spw_free(d_act);
    free_rows(&a);
    return status;
}

spw_status spw_plain_layer_create(const spw_layer_shape *s, uint64_t seed, spw_plain_layer *out) {
    *out = (spw_plain_layer){.x = NULL};
    const spw_status status = draw_inputs(s, seed, out);
    if (status != SPW_OK) spw_plain_layer_destroy(out);
    return status;
}

spw_status spw_plain_layer_run(const spw_layer_shape *s, const spw_plain_routing *routing,
                               spw_plain_layer *layer) {
    spw_status status = SPW_OK;
    spw_plan plan = {.tokens = 0};
    SPW_TRY(allocate_results(s, routing->slots, layer));
    SPW_TRY(spw_ref_plan_create(s->ranks * s->tokens, routing->slots, s->experts, routing->expert, &plan));
    SPW_TRY((routing->weighted_activation ? run_weighted : run)(s, &plan, routing, layer));

cleanup:
    spw_ref_plan_destroy(&plan);
    return status;
}

void spw_plain_layer_destroy(spw_plain_layer *l) {
    void *const owned[] = {
        l->x,  l->dy,       l->weight,  l->drawn[0], l->drawn[1],     l->drawn[2],     l->y,
        l->dx, l->d_weight, l->y_scale, l->dx_scale, l->gradients.w0, l->gradients.w1, l->gradients.wo};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) spw_free(owned[i]);
    spw_plain_scales_destroy(&l->scales);
    *l = (spw_plain_layer){.x = NULL};
}
