#include "reference/schemes/deepep/fused_experts.h"

#include "base/memory.h"
#include "reference/swiglu.h"

#include <string.h>

/* A step or name of the first set, and of the second. */
static const char *of(const spw_fused_experts *e, const char *const text[2]) { return text[e->overflow]; }
#define TEXT(identifier, text) static const char *const identifier[2] = {text, "overflow " text}
TEXT(step_fc1, "fc1");
TEXT(step_swiglu, "swiglu");
TEXT(step_fc2, "fc2");
TEXT(step_fc2_gradient, "fc2 gradient");
TEXT(step_swiglu_gradient, "swiglu gradient");
TEXT(step_fc1_gradient, "fc1 gradient");
TEXT(name_fc1, "fc1_out");
TEXT(name_act, "act");
TEXT(name_y, "y");
TEXT(name_d_act, "d_act");
TEXT(name_d_fc1, "d_fc1_out");
TEXT(name_d_row_weight, "d_row_weight");
TEXT(name_dx, "dx");

spw_status spw_fused_create(spw_execution *run, const size_t *rows, spw_fused_experts *out) {
    spw_status status = SPW_OK;
    *out = (spw_fused_experts){.rows = rows};
    SPW_TRY(SPW_SCRATCH(run, run->shape.ranks * run->local, &out->begin));
    SPW_TRY(SPW_SCRATCH(run, run->shape.ranks * run->local, &out->count));
cleanup:
    return status;
}

spw_status spw_fused_born(spw_execution *run, const spw_fused_experts *e, spw_spread *tensor,
                          const char *name, size_t width, size_t element_bytes) {
    return spw_born_at(run, tensor, name, e->rows, width, element_bytes);
}

/* The rows of one expert of one rank, and its weights. */
typedef struct group {
    size_t begin, rows, rank, matrix; /* matrix: first element of its weights in the rank's slice */
    size_t offset[2];
} group;

static group group_of(const spw_execution *run, const spw_fused_experts *e, size_t rank, size_t expert) {
    const size_t at = rank * run->local + expert, rows = e->count[at];
    return (group){e->begin[at], rows, rank, expert * run->shape.hidden * run->shape.ffn, {0, rows}};
}

static spw_gemm_shape shape_of(const spw_execution *run, const group *g, int weight) {
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    return (spw_gemm_shape){
        .experts = 1, .rows = g->rows, .in = weight == 2 ? ffn : hidden, .out = weight == 2 ? hidden : ffn};
}

static spw_status product(const spw_execution *run, const group *g, int weight, const float *x, float *y) {
    const spw_gemm_shape s = shape_of(run, g, weight);
    return spw_ref_grouped_gemm(s, x + g->begin * s.in, spw_rank_weights(run, g->rank, weight) + g->matrix,
                                g->offset, y + g->begin * s.out, NULL);
}

static spw_status input_gradient(const spw_execution *run, const group *g, int weight, const float *dy,
                                 float *dx) {
    const spw_gemm_shape s = shape_of(run, g, weight);
    return spw_ref_grouped_gemm_input_gradient(s, dy + g->begin * s.out,
                                               spw_rank_weights(run, g->rank, weight) + g->matrix, g->offset,
                                               dx + g->begin * s.in, NULL);
}

static spw_status weight_gradient(const spw_execution *run, const spw_fused_experts *e, const group *g,
                                  int weight, const float *x, const float *dy) {
    const spw_gemm_shape s = shape_of(run, g, weight);
    if (e->operands != NULL) {
        const spw_fused_operands *o = e->operands;
        float *const to_x = weight == 2 ? o->act[g->rank] : o->x[g->rank], *const to_dy =
                                                                               weight == 2 ? o->dy[g->rank]
                                                                               : weight == 1
                                                                                   ? o->d_up[g->rank]
                                                                                   : o->d_gate[g->rank];
        const size_t to = e->first + g->begin;
        memcpy(to_x + to * s.in, x + g->begin * s.in, g->rows * s.in * sizeof *x);
        memcpy(to_dy + to * s.out, dy + g->begin * s.out, g->rows * s.out * sizeof *dy);
        return SPW_OK;
    }
    return spw_ref_grouped_gemm_weight_gradient(s, x + g->begin * s.in, dy + g->begin * s.out, g->offset,
                                                spw_rank_weight_gradients(run, g->rank, weight) + g->matrix,
                                                NULL);
}

/* The second half of fc1_out or d_fc1. */
static float *up_of(const spw_execution *run, const spw_fused_experts *e, const spw_spread *fused,
                    size_t rank) {
    return fused->at[rank] + e->rows[rank] * run->shape.ffn;
}

static void weigh(const spw_execution *run, const spw_fused_experts *e, size_t rank, float *act) {
    const size_t ffn = run->shape.ffn;
    for (size_t i = 0; e->weight != NULL && i < e->rows[rank] * ffn; i++)
        act[i] = (float)((double)e->weight->at[rank][i / ffn] * (double)act[i]);
}

static void fc1_dies(spw_execution *run, spw_fused_experts *e) {
    spw_dies(run, &e->fc1);
    if (e->weight != NULL) spw_dies(run, e->weight);
}

spw_status spw_fused_up(spw_execution *run, spw_fused_experts *e, bool keep) {
    const size_t ranks = run->shape.ranks, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    spw_step(run, of(e, step_fc1));
    SPW_TRY(spw_fused_born(run, e, &e->fc1, of(e, name_fc1), 2 * ffn, 0));
    for (size_t i = 0; i < ranks * run->local; i++) {
        const group g = group_of(run, e, i / run->local, i % run->local);
        SPW_TRY(product(run, &g, 0, e->x.at[g.rank], e->fc1.at[g.rank]));
        SPW_TRY(product(run, &g, 1, e->x.at[g.rank], up_of(run, e, &e->fc1, g.rank)));
    }
    if (!keep) spw_dies(run, &e->x), spw_dies(run, &e->x_scales);
    spw_step(run, of(e, step_swiglu));
    SPW_TRY(spw_fused_born(run, e, &e->act, of(e, name_act), ffn, 0));
    for (size_t r = 0; r < ranks; r++) {
        spw_ref_swiglu(run->shape.activation, e->rows[r] * ffn, e->fc1.at[r], up_of(run, e, &e->fc1, r),
                       e->act.at[r], NULL);
        weigh(run, e, r, e->act.at[r]);
    }
    if (!keep) fc1_dies(run, e);
cleanup:
    return status;
}

spw_status spw_fused_down(spw_execution *run, spw_fused_experts *e, bool keep) {
    spw_status status = SPW_OK;
    spw_step(run, of(e, step_fc2));
    SPW_TRY(spw_fused_born(run, e, &e->y, of(e, name_y), run->shape.hidden, 0));
    for (size_t i = 0; i < run->shape.ranks * run->local; i++) {
        const group g = group_of(run, e, i / run->local, i % run->local);
        SPW_TRY(product(run, &g, 2, e->act.at[g.rank], e->y.at[g.rank]));
    }
    if (!keep) spw_dies(run, &e->act);
cleanup:
    return status;
}

spw_status spw_fused_forward(spw_execution *run, spw_fused_experts *e, bool keep) {
    const spw_status status = spw_fused_up(run, e, keep);
    return status != SPW_OK ? status : spw_fused_down(run, e, keep);
}

/* d_act was of the weighted act: it becomes that of act itself, and d_weight the gradient of the rows' weights. */
static spw_status weight_gradients(spw_execution *run, spw_fused_experts *e) {
    const size_t ffn = run->shape.ffn;
    float *act = NULL;
    spw_status status = SPW_OK;
    if (e->weight == NULL) return SPW_OK;
    SPW_TRY(spw_fused_born(run, e, &e->d_weight, of(e, name_d_row_weight), 1, sizeof(float)));
    SPW_TRY(SPW_ALLOC(ffn, &act));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t row = 0; row < e->rows[r]; row++) {
            float *d_act = e->d_act.at[r] + row * ffn;
            double sum = 0.0;
            spw_ref_swiglu(run->shape.activation, ffn, e->fc1.at[r] + row * ffn,
                           up_of(run, e, &e->fc1, r) + row * ffn, act, NULL);
            for (size_t f = 0; f < ffn; f++) {
                sum += (double)d_act[f] * (double)act[f];
                d_act[f] = (float)((double)e->weight->at[r][row] * (double)d_act[f]);
            }
            e->d_weight.at[r][row] = (float)sum;
        }
    }
cleanup:
    spw_free(act);
    return status;
}

static spw_status fc1_gradient(spw_execution *run, spw_fused_experts *e) {
    const size_t hidden = run->shape.hidden;
    float *part = NULL;
    spw_status status = SPW_OK;
    spw_step(run, of(e, step_fc1_gradient));
    SPW_TRY(spw_fused_born(run, e, &e->dx, of(e, name_dx), hidden, 0));
    for (size_t i = 0; i < run->shape.ranks * run->local; i++) {
        const group g = group_of(run, e, i / run->local, i % run->local);
        const float *d_up = up_of(run, e, &e->d_fc1, g.rank);
        float *dx = e->dx.at[g.rank] + g.begin * hidden;
        SPW_TRY(SPW_ALLOC((g.begin + g.rows) * hidden, &part));
        SPW_TRY(input_gradient(run, &g, 0, e->d_fc1.at[g.rank], e->dx.at[g.rank]));
        SPW_TRY(input_gradient(run, &g, 1, d_up, part));
        for (size_t n = 0; n < g.rows * hidden; n++) dx[n] += part[g.begin * hidden + n];
        spw_free(part);
        part = NULL;
        SPW_TRY(weight_gradient(run, e, &g, 0, e->x.at[g.rank], e->d_fc1.at[g.rank]));
        SPW_TRY(weight_gradient(run, e, &g, 1, e->x.at[g.rank], d_up));
    }
    spw_dies(run, &e->x), spw_dies(run, &e->x_scales), spw_dies(run, &e->d_fc1);
cleanup:
    spw_free(part);
    return status;
}

spw_status spw_fused_backward(spw_execution *run, spw_fused_experts *e) {
    const size_t ranks = run->shape.ranks, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    spw_step(run, of(e, step_fc2_gradient));
    SPW_TRY(spw_fused_born(run, e, &e->d_act, of(e, name_d_act), ffn, 0));
    for (size_t i = 0; i < ranks * run->local; i++) {
        const group g = group_of(run, e, i / run->local, i % run->local);
        SPW_TRY(input_gradient(run, &g, 2, e->dy.at[g.rank], e->d_act.at[g.rank]));
        SPW_TRY(weight_gradient(run, e, &g, 2, e->act.at[g.rank], e->dy.at[g.rank]));
    }
    spw_dies(run, &e->act), spw_dies(run, &e->dy), spw_dies(run, &e->dy_scales);
    spw_step(run, of(e, step_swiglu_gradient));
    SPW_TRY(spw_fused_born(run, e, &e->d_fc1, of(e, name_d_fc1), 2 * ffn, 0));
    SPW_TRY(weight_gradients(run, e));
    for (size_t r = 0; r < ranks; r++) {
        spw_ref_swiglu_gradient(run->shape.activation, e->rows[r] * ffn, e->fc1.at[r],
                                up_of(run, e, &e->fc1, r), e->d_act.at[r],
                                (spw_swiglu_gradients){e->d_fc1.at[r], up_of(run, e, &e->d_fc1, r), NULL});
    }
    spw_dies(run, &e->d_act);
    fc1_dies(run, e);
    SPW_TRY(fc1_gradient(run, e));
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, void *experts) {
    return spw_fused_forward(run, experts, run->pass != SPW_PASS_FORWARD);
}

static spw_status backward(spw_execution *run, void *experts) { return spw_fused_backward(run, experts); }

const spw_expert_passes spw_fused_passes = {forward, backward};
