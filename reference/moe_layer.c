#include "reference/moe_layer.h"

#include "base/memory.h"
#include "reference/combine.h"
#include "reference/grouped_gemm.h"
#include "reference/router_loss.h"

static spw_expert_shape routed_shape(const spw_moe_shape *s, const spw_plan *plan) {
    return (spw_expert_shape){.experts = s->router.experts,
                              .rows = plan->rows,
                              .hidden = s->hidden,
                              .ffn = s->ffn,
                              .activation = s->activation};
}

static spw_expert_shape shared_shape(const spw_moe_shape *s) {
    return (spw_expert_shape){.experts = 1,
                              .rows = s->router.tokens,
                              .hidden = s->hidden,
                              .ffn = s->shared_ffn,
                              .activation = s->activation};
}

static spw_gemm_shape router_shape(const spw_moe_shape *s) {
    return (spw_gemm_shape){
        .experts = 1, .rows = s->router.tokens, .in = s->hidden, .out = s->router.experts};
}

static spw_status ffn_create(size_t rows, size_t ffn, spw_expert_state *out) {
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(rows * ffn, &out->gate));
    SPW_TRY(SPW_ALLOC(rows * ffn, &out->up));
    SPW_TRY(SPW_ALLOC(rows * ffn, &out->act));
cleanup:
    return status;
}

static void ffn_destroy(spw_expert_state *state) {
    spw_free(state->act), spw_free(state->up), spw_free(state->gate);
}

static spw_status state_create(const spw_moe_shape *s, spw_moe_state *out) {
    const spw_router *r = &s->router;
    const size_t rows = r->tokens * r->top_k;
    spw_status status = SPW_OK;
    *out = (spw_moe_state){0};
    SPW_TRY(SPW_ALLOC(r->tokens * r->experts, &out->logits));
    SPW_TRY(SPW_ALLOC(r->tokens * r->experts, &out->score));
    SPW_TRY(SPW_ALLOC(rows, &out->expert));
    SPW_TRY(SPW_ALLOC(rows, &out->weight));
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &out->rows));
    SPW_TRY(SPW_ALLOC(rows * s->hidden, &out->outputs));
    SPW_TRY(ffn_create(rows, s->ffn, &out->routed));
    if (s->shared_ffn > 0) SPW_TRY(ffn_create(r->tokens, s->shared_ffn, &out->shared));
cleanup:
    return status;
}

void spw_ref_moe_destroy(spw_moe_state *state) {
    ffn_destroy(&state->shared), ffn_destroy(&state->routed);
    spw_ref_plan_destroy(&state->plan);
    spw_free(state->outputs), spw_free(state->rows), spw_free(state->weight), spw_free(state->expert);
    spw_free(state->score), spw_free(state->logits);
    *state = (spw_moe_state){0};
}

static spw_status add_shared(const spw_moe_shape *s, const float *x, const spw_moe_weights *w,
                             spw_moe_state *state, float *y) {
    const size_t count = s->router.tokens * s->hidden;
    float *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &part));
    SPW_TRY(spw_ref_shared_expert(shared_shape(s), x, w->shared, state->shared, part));
    for (size_t i = 0; i < count; i++) y[i] += part[i];
cleanup:
    spw_free(part);
    return status;
}

spw_status spw_ref_moe(const spw_moe_shape *s, const float *x, const spw_moe_weights *w, spw_moe_state *state,
                       float *y) {
    const spw_router *r = &s->router;
    const size_t all[] = {0, r->tokens};
    spw_status status = SPW_OK;
    SPW_TRY(state_create(s, state));
    SPW_TRY(spw_ref_grouped_gemm(router_shape(s), x, w->router, all, state->logits, NULL));
    SPW_TRY(spw_ref_router(r, state->logits, w->bias, state->score, state->expert, state->weight));
    SPW_TRY(spw_ref_router_auxiliary_loss(r, s->auxiliary_coefficient, state->score, state->expert,
                                          &state->auxiliary_loss, NULL));
    SPW_TRY(spw_ref_router_z_loss(r, s->z_coefficient, state->logits, &state->z_loss, NULL));
    SPW_TRY(spw_ref_plan_create(r->tokens, r->top_k, r->experts, state->expert, &state->plan));
    spw_ref_permute(&state->plan, s->hidden, x, state->rows);
    SPW_TRY(spw_ref_expert_ffn(routed_shape(s, &state->plan), state->rows, w->routed, state->plan.offset,
                               state->routed, state->outputs));
    spw_ref_combine(&state->plan, s->hidden, state->outputs, state->weight, y, NULL);
    if (s->shared_ffn > 0) SPW_TRY(add_shared(s, x, w, state, y));
cleanup:
    return status;
}

/* Gradient through the experts: out->x, out->routed and d_weight. */
static spw_status routed_gradient(const spw_moe_shape *s, const float *dy, const spw_moe_weights *w,
                                  spw_moe_state *state, float *d_weight, spw_moe_gradients *out) {
    const spw_plan *plan = &state->plan;
    float *d_outputs = NULL, *d_rows = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(plan->rows * s->hidden, &d_outputs));
    SPW_TRY(SPW_ALLOC(plan->rows * s->hidden, &d_rows));
    spw_ref_combine_gradient(plan, s->hidden, dy, state->outputs, state->weight,
                             (spw_combine_gradients){d_outputs, d_weight, NULL});
    SPW_TRY(spw_ref_expert_ffn_gradient(routed_shape(s, plan), (spw_expert_inputs){state->rows, d_outputs},
                                        w->routed, plan->offset, state->routed, d_rows, out->routed));
    spw_ref_permute_gradient(plan, s->hidden, d_rows, out->x, NULL);
cleanup:
    spw_free(d_rows), spw_free(d_outputs);
    return status;
}

/* Gradient through the router: adds to out->x, sets out->router. part [tokens][hidden] is scratch. */
static spw_status router_gradient(const spw_moe_shape *s, const float *x, const spw_moe_weights *w,
                                  const spw_moe_state *state, const float *d_weight, float *part,
                                  spw_moe_gradients *out) {
    const spw_router *r = &s->router;
    const size_t all[] = {0, r->tokens};
    float *d_score = NULL, *d_logits = NULL;
    double loss = 0.0;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(r->tokens * r->experts, &d_score));
    SPW_TRY(SPW_ALLOC(r->tokens * r->experts, &d_logits));
    SPW_TRY(spw_ref_router_auxiliary_loss(r, s->auxiliary_coefficient, state->score, state->expert, &loss,
                                          d_score));
    SPW_TRY(spw_ref_router_gradient(r, state->logits, state->expert, d_weight, d_score, d_logits, NULL));
    SPW_TRY(spw_ref_router_z_loss(r, s->z_coefficient, state->logits, &loss, d_logits));
    SPW_TRY(spw_ref_grouped_gemm_weight_gradient(router_shape(s), x, d_logits, all, out->router, NULL));
    SPW_TRY(spw_ref_grouped_gemm_input_gradient(router_shape(s), d_logits, w->router, all, part, NULL));
    for (size_t i = 0; i < r->tokens * s->hidden; i++) out->x[i] += part[i];
cleanup:
    spw_free(d_logits), spw_free(d_score);
    return status;
}

spw_status spw_ref_moe_gradient(const spw_moe_shape *s, const float *x, const float *dy,
                                const spw_moe_weights *w, spw_moe_state *state, spw_moe_gradients *out) {
    const size_t count = s->router.tokens * s->hidden;
    float *d_weight = NULL, *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->router.tokens * s->router.top_k, &d_weight));
    SPW_TRY(SPW_ALLOC(count, &part));
    SPW_TRY(routed_gradient(s, dy, w, state, d_weight, out));
    SPW_TRY(router_gradient(s, x, w, state, d_weight, part, out));
    if (s->shared_ffn > 0) {
        SPW_TRY(spw_ref_shared_expert_gradient(shared_shape(s), x, dy, w->shared, state->shared, part,
                                               out->shared));
        for (size_t i = 0; i < count; i++) out->x[i] += part[i];
    }
cleanup:
    spw_free(part), spw_free(d_weight);
    return status;
}
