#include "kernels/gpu/device_pool.h"
#include "kernels/local/local_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/strides/view.h"
#include "kernels/verify/verify_element.h"
#include "kernels/verify/verify_gemm.h"
#include "reference/swiglu.h"

#include <limits.h>
#include <math.h>

enum {
    TOP_K = 3,
    SEED_X = 51,
    SEED_DY,
    SEED_UP,
    SEED_DOWN,
    SEED_H,
    SEED_MAIN,
    SEED_ROWS,
    SEED_WEIGHT,
    SEED_OFFSETS,
    SEED_BIAS
};

/* What the operations are given in place of what they should be; all of their results must be rejected. */
typedef enum damage {
    NONE,
    NEXT_ASSIGNMENT,
    FORGETS_AN_EXPERT,
    DOES_NOTHING,
    IGNORES_STRIDES,
    DAMAGES
} damage;

/* Elements between rows of arrays that have such, no two alike. */
enum { APART_X = 24, APART_DY = 72, APART_W = 8, APART_H = 16, APART_D_H = 48, APART_RESULT = 40 };

/* Numbers that the case's type holds, in both forms; how they lie on the device. */
typedef struct numbers {
    float *value;
    spw_bf16 *device;
    spw_view view;
} numbers;

/* What stands between the products. */
typedef struct between {
    const char *name;
    spw_swiglu kind;
    bool pairs, biased;
} between;
static const between betweens[] = {
    {"SwiGLU", {.limit = 0}, false, false},
    {"clamped SwiGLU in pairs, bias", {.limit = 1.5f, .alpha = 1.702f}, true, true},
    {"clamped SwiGLU", {.limit = 1.5f, .alpha = 1.702f}, false, false},
    {"GeGLU, bias", {.gate = SPW_GATE_GELU}, false, true},
    {"ReLU squared, bias", {.plain = SPW_RELU2}, false, true},
};
enum { BETWEENS = sizeof betweens / sizeof *betweens };

/* A layer's products: x [tokens][in], gate and up 2 ffn = out wide, or one matrix of ffn = out; dy [tokens][in]. */
typedef struct fused {
    const spw_gemm_case *c;
    const between *between;
    spw_device_pool pool;
    spw_judge *judge;
    damage damage;
    bool gathers, transposed, apart; /* apart: rows of all arrays are */
    size_t ffn, tokens;
    size_t *offset;
    int *assignment, *device_offset, *device_assignment;
    float *weight, *device_weight;
    numbers x, dy, up, down, h, bias;
} fused;

static float *floats(fused *k, size_t n) { return spw_pool_host(&k->pool, n * sizeof(float)); }
static spw_view rows_view(const fused *k, size_t rows, size_t width, size_t apart) {
    return spw_view_of(1, rows, width, k->apart ? apart : 0, false);
}
/* Of weights with so many columns for a row of `in`. */
static spw_view weights_view(const fused *k, size_t in, size_t out, size_t apart) {
    return spw_view_of(k->c->experts, k->transposed ? out : in, k->transposed ? in : out,
                       k->apart ? apart : 0, false);
}

typedef struct result {
    spw_view view;
    spw_bf16 *device;
} result;
static result output(fused *k, spw_view view) {
    return (result){view, spw_view_upload(&k->pool, view, sizeof(spw_bf16), NULL)};
}
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static numbers draw(fused *k, uint64_t seed, spw_view view, size_t used) {
    const spw_element *element = spw_element_of(k->c->element);
    const size_t n = spw_view_count(view);
    numbers d = {floats(k, n), NULL, view};
    spw_bf16 *bits = spw_pool_host(&k->pool, n * 2);
    if (k->pool.status != SPW_OK) return d;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        bits[i] = i < used ? element->from_float(spw_number(SPW_NUMBERS_BELL, seed, i)) : 0xffff;
        d.value[i] = i < used ? element->to_float(bits[i]) : 0;
    }
    d.device = spw_view_upload(&k->pool, view, sizeof *bits, bits);
    return d;
}

static bool one_matrix(const fused *k) { return k->between->kind.plain != SPW_GATED; }
/* Where gate f is in a row of h, and up. */
static size_t gate_at(const fused *k, size_t f) { return k->between->pairs ? 2 * f : f; }
static size_t up_at(const fused *k, size_t f) {
    return one_matrix(k) ? f : k->between->pairs ? 2 * f + 1 : f + k->ffn;
}
static spw_gemm_activation activation_of(const fused *k) {
    return (spw_gemm_activation){k->between->kind, k->between->pairs, k->bias.device};
}

/* Behind offset[experts] assignments lead nowhere, and h is NaN. */
static void create(fused *k) {
    const spw_gemm_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    k->ffn = c->out / (one_matrix(k) ? 1 : 2),
    k->tokens = k->gathers ? (c->rows + TOP_K - 1) / TOP_K : c->rows;
    const size_t choices = k->tokens * TOP_K, weights = c->experts * c->in * k->ffn, out = c->out;
    int *offset32 = spw_pool_host(pool, (c->experts + 1) * sizeof *offset32);
    k->offset = spw_pool_host(pool, (c->experts + 1) * sizeof *k->offset);
    k->assignment = spw_pool_host(pool, (c->rows + 1) * sizeof *k->assignment);
    k->weight = floats(k, choices);
    if (pool->status != SPW_OK) return;
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_OFFSETS, k->offset, offset32);
    const size_t used = k->offset[c->experts];
    for (size_t r = 0; r <= c->rows; r++)
        k->assignment[r] = r <= used ? (int)(spw_number_bits(SEED_ROWS, r) % choices) : INT_MAX;
    for (size_t i = 0; i < choices; i++) k->weight[i] = 2 * spw_number(SPW_NUMBERS_BELL, SEED_WEIGHT, i);
    k->device_offset = spw_pool_device(pool, (c->experts + 1) * sizeof *offset32, offset32);
    k->device_assignment = spw_pool_device(pool, (c->rows + 1) * sizeof *k->assignment, k->assignment);
    k->device_weight = spw_pool_device(pool, choices * sizeof *k->weight, k->weight);
    k->x = draw(k, SEED_X, rows_view(k, k->tokens, c->in, APART_X), k->tokens * c->in);
    k->dy = draw(k, SEED_DY, rows_view(k, k->tokens, c->in, APART_DY), k->tokens * c->in);
    k->up = draw(k, SEED_UP, weights_view(k, c->in, out, APART_W), c->experts * c->in * out);
    k->down = draw(k, SEED_DOWN, weights_view(k, k->ffn, c->in, APART_W), weights);
    k->h = draw(k, SEED_H, rows_view(k, c->rows, out, APART_H), used * out);
    if (k->between->biased)
        k->bias = draw(k, SEED_BIAS, spw_view_of(1, c->experts, out, 0, false), c->experts * out);
}

static size_t token_of(const fused *k, size_t r) { return k->gathers ? (size_t)k->assignment[r] / TOP_K : r; }
static float weight_of(const fused *k, size_t r) {
    return k->weight[k->gathers ? (size_t)k->assignment[r] : r];
}
static size_t used_rows(const fused *k) { return k->offset[k->c->experts]; }

/* The permuted copy that the kernels do without. */
static float *gathered(fused *k, const float *from) {
    const size_t width = k->c->in;
    float *rows = floats(k, k->c->rows * width);
    for (size_t r = 0; k->pool.status == SPW_OK && r < used_rows(k); r++)
        for (size_t i = 0; i < width; i++) rows[r * width + i] = from[token_of(k, r) * width + i];
    return rows;
}

static spw_gemm_shape shape_of(const fused *k, size_t in, size_t out) {
    return (spw_gemm_shape){.experts = k->c->experts,
                            .rows = k->c->rows,
                            .in = in,
                            .out = out,
                            .transposed = k->transposed,
                            .element = k->c->element};
}
/* As the operation is given it. */
static spw_gemm_shape given(const fused *k, size_t in, size_t out, spw_gemm_strides stride) {
    spw_gemm_shape s = shape_of(k, in, out);
    if (k->damage != IGNORES_STRIDES && k->apart) s.stride = stride;
    if (k->damage == FORGETS_AN_EXPERT) s.experts--;
    return s;
}
static spw_gemm_rows rows_of(const fused *k) {
    return (spw_gemm_rows){k->gathers ? k->device_assignment + (k->damage == NEXT_ASSIGNMENT) : NULL,
                           k->gathers ? TOP_K : 0, k->tokens};
}

static void count(fused *k, spw_status verdict, const char *what) {
    if (k->pool.status != SPW_OK) return;
    spw_judge_count(k->judge, verdict, "%s, %s, %s, %s, %s, %s, %s%s", what,
                    spw_element_of(k->c->element)->name, k->between->name, k->c->name,
                    spw_routing_names[k->c->routing], k->transposed ? "[out][in]" : "[in][out]",
                    k->gathers ? "gathered" : "in order", k->apart ? ", rows apart" : "");
}
static void judge(fused *k, const char *what, result of, size_t terms, const float *want,
                  const float *scale) {
    void *got = NULL;
    const size_t n = spw_view_count(of.view);
    spw_status verdict = spw_view_fetch(&k->pool, of.view, sizeof(spw_bf16), of.device, &got);
    if (k->pool.status != SPW_OK) return;
    if (verdict == SPW_OK)
        verdict = spw_element_of(k->c->element)->judge(k->judge, false, n, terms, got, want, scale);
    count(k, verdict, what);
}

/* The bias is one term more of each sum. */
static void add_bias(const fused *k, float *want, float *scale) {
    const size_t wide = k->c->out;
    for (size_t e = 0; k->between->biased && e < k->c->experts; e++)
        for (size_t r = k->offset[e]; r < k->offset[e + 1]; r++)
            for (size_t i = 0; i < wide; i++) {
                want[r * wide + i] += k->bias.value[e * wide + i];
                scale[r * wide + i] += fabsf(k->bias.value[e * wide + i]);
            }
}

/* To first order an error d of the sums moves act by |d act / d gate| d + |d act / d up| d; 1.15 bounds the slopes of silu and of gelu,
 * 2 |gate| that of relu squared, whose second derivative the square of d covers; 10 more terms evaluate them (swiglu_math.h), and
 * GeGLU's argument is rounded a few times more: 1 + |gate|. */
static float act_scale(const fused *k, float gate, float up, float gate_scale, float up_scale, float act) {
    const float bent = k->between->kind.gate == SPW_GATE_GELU ? 2 + 3 * fabsf(gate) : 1;
    if (one_matrix(k)) return 2 * fabsf(gate) * gate_scale + gate_scale * gate_scale * 0x1p-10f + fabsf(act);
    const float shift = k->between->kind.limit > 0 ? 1 : 0;
    return 1.15f * (fabsf(up) + shift) * gate_scale + fabsf(gate) * up_scale + bent * fabsf(act);
}
static void check_up(fused *k) {
    const spw_gemm_case *c = k->c;
    const size_t f = k->ffn, rows = c->rows;
    float *want = floats(k, rows * c->out), *scale = floats(k, rows * c->out), *x = gathered(k, k->x.value);
    float *want_act = floats(k, rows * f), *scale_act = floats(k, rows * f);
    const result h = output(k, rows_view(k, rows, c->out, APART_H)),
                 act = output(k, rows_view(k, rows, f, APART_RESULT)), alone = output(k, act.view);
    const spw_gemm_strides stride = {.left = k->x.view.row,
                                     .right = k->up.view.row,
                                     .expert = k->up.view.expert,
                                     .result = act.view.row,
                                     .h = h.view.row};
    const spw_gemm_up g = {k->x.device, k->up.device, k->device_offset,
                           h.device,    act.device,   activation_of(k)};
    const spw_gemm_shape shape = given(k, c->in, c->out, stride);
    spw_device_pool *pool = &k->pool;
    if (pool->status == SPW_OK)
        pool->status =
            spw_ref_grouped_gemm(shape_of(k, c->in, c->out), x, k->up.value, k->offset, want, scale);
    if (pool->status == SPW_OK) add_bias(k, want, scale);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_up(shape, rows_of(k), &g, NULL);
    if (pool->status == SPW_OK && k->damage == NONE && !k->gathers)
        pool->status =
            spw_gpu_grouped_gemm_activated(shape, &g.activation, g.x, g.w, g.offset, alone.device, NULL);
    if (pool->status != SPW_OK) return;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < rows * f; i++) {
        const size_t row = i / f * c->out, gate = row + gate_at(k, i % f), up = row + up_at(k, i % f);
        spw_ref_swiglu(k->between->kind, 1, want + gate, want + up, want_act + i, NULL);
        scale_act[i] = act_scale(k, want[gate], want[up], scale[gate], scale[up], want_act[i]);
    }
    judge(k, "up, gate and up", h, c->in + 1, want, scale);
    judge(k, "up, act", act, c->in + 11, want_act, scale_act);
    if (k->damage == NONE && !k->gathers) judge(k, "act alone", alone, c->in + 11, want_act, scale_act);
}

/* What the gradient of SwiGLU must be of sums `s` with the yardstick `s_scale`, all linear in the sums. */
typedef struct expected {
    float *s, *s_scale, *d_h, *h_scale, *act, *act_scale, *dot, *dot_scale;
} expected;

static void expect_row(const fused *k, size_t r, expected *e) {
    const size_t f = k->ffn;
    const float v = weight_of(k, r), one = 1;
    double dot = 0, dot_scale = 0;
    for (size_t i = 0; i < f; i++) {
        const float *h = k->h.value + r * k->c->out, *gate = h + gate_at(k, i), *up = h + up_at(k, i);
        const size_t at = r * k->c->out + gate_at(k, i), beside = r * k->c->out + up_at(k, i);
        const float bent = k->between->kind.gate == SPW_GATE_GELU ? 2 + 3 * fabsf(*gate) : 1;
        float act, slope_gate, slope_up, slope_scale;
        spw_ref_swiglu(k->between->kind, 1, gate, up, &act, NULL);
        spw_ref_swiglu_gradient(k->between->kind, 1, gate, up, &one,
                                (spw_swiglu_gradients){&slope_gate, &slope_up, &slope_scale});
        const float s = e->s[r * f + i], s_scale = e->s_scale[r * f + i];
        if (!one_matrix(k)) e->d_h[beside] = (float)((double)v * (double)s * (double)slope_up);
        if (!one_matrix(k)) e->h_scale[beside] = bent * fabsf(v * slope_up) * s_scale;
        e->d_h[at] = (float)((double)v * (double)s * (double)slope_gate);
        e->h_scale[at] =
            slope_gate == 0 && k->between->kind.limit > 0 ? 0 : bent * fabsf(v) * slope_scale * s_scale;
        e->act[r * f + i] = v * act, e->act_scale[r * f + i] = bent * fabsf(v * act);
        dot += (double)s * (double)act, dot_scale += (double)bent * (double)s_scale * fabs((double)act);
    }
    e->dot[r] = (float)dot, e->dot_scale[r] = (float)dot_scale;
}

static expected expect_down(fused *k) {
    const size_t f = k->ffn, rows = k->c->rows;
    expected e = {floats(k, rows * f),
                  floats(k, rows * f),
                  floats(k, rows * k->c->out),
                  floats(k, rows * k->c->out),
                  floats(k, rows * f),
                  floats(k, rows * f),
                  floats(k, rows),
                  floats(k, rows)};
    float *dy = gathered(k, k->dy.value);
    if (k->pool.status == SPW_OK)
        k->pool.status = spw_ref_grouped_gemm_input_gradient(shape_of(k, f, k->c->in), dy, k->down.value,
                                                             k->offset, e.s, e.s_scale);
    if (k->pool.status != SPW_OK) return e;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < used_rows(k); r++) expect_row(k, r, &e);
    return e;
}

/* Rows take the places of assignments here, so that the sums of parts come out by row. */
static void check_row_sums(fused *k, const float *part, size_t parts, const expected *e) {
    const size_t rows = k->c->rows;
    int *row = spw_pool_host(&k->pool, (rows + 1) * sizeof *row);
    for (size_t r = 0; k->pool.status == SPW_OK && r <= rows; r++) row[r] = r < rows ? (int)r : -1;
    const int *device_row = spw_pool_device(&k->pool, (rows + 1) * sizeof *row, row);
    float *sum = spw_pool_device(&k->pool, (rows + 1) * sizeof *sum, NULL);
    if (k->pool.status == SPW_OK)
        k->pool.status = spw_device_check(
            spw_launch_row_sums((int)rows + 1, (int)rows, (int)parts, device_row, part, sum, NULL),
            "row sums");
    const float *got = spw_pool_fetch(&k->pool, sum);
    if (k->pool.status != SPW_OK) return;
    count(k, spw_judge_float(k->judge, false, rows, k->c->in + k->ffn + 13, got, e->dot, e->dot_scale),
          "down gradient, weights of rows");
    if (k->damage == NONE)
        count(k,
              got[rows] == 0 ? SPW_OK
                             : spw_fail(SPW_EMISMATCH, "%g for a choice without a row", (double)got[rows]),
              "row sums");
}

static void check_down(fused *k) {
    const size_t f = k->ffn, rows = k->c->rows,
                 parts = (f + SPW_GEMM_ROW_SUM_TILE - 1) / SPW_GEMM_ROW_SUM_TILE;
    const expected e = expect_down(k);
    float *part = spw_pool_device(&k->pool, parts * rows * sizeof *part, NULL);
    const result d_h = output(k, rows_view(k, rows, k->c->out, APART_D_H)),
                 act = output(k, rows_view(k, rows, f, APART_RESULT));
    const spw_gemm_strides stride = {.left = k->dy.view.row,
                                     .right = k->down.view.row,
                                     .expert = k->down.view.expert,
                                     .result = act.view.row,
                                     .h = k->h.view.row,
                                     .d_h = d_h.view.row};
    const spw_gemm_down_gradient g = {.dy = k->dy.device,
                                      .weight = k->device_weight,
                                      .w = k->down.device,
                                      .h = k->h.device,
                                      .offset = k->device_offset,
                                      .d_h = d_h.device,
                                      .act = act.device,
                                      .row_sum = part,
                                      .activation = activation_of(k)};
    if (k->pool.status == SPW_OK && k->damage != DOES_NOTHING)
        k->pool.status =
            spw_gpu_grouped_gemm_down_gradient(given(k, f, k->c->in, stride), rows_of(k), &g, NULL);
    judge(k, "down gradient, gate and up", d_h, k->c->in + 26, e.d_h, e.h_scale);
    judge(k, "down gradient, act", act, 12, e.act, e.act_scale);
    check_row_sums(k, part, parts, &e);
}

/* Of the first product, whose x is gathered, or of the second, whose dy is; h stands for what is not. */
static void check_weights(fused *k, bool first) {
    const spw_gemm_case *c = k->c;
    const size_t in = first ? c->in : c->out, out = first ? c->out : c->in, n = c->experts * in * out;
    float *rows = gathered(k, first ? k->x.value : k->dy.value), *want = floats(k, n), *scale = floats(k, n);
    float *main = floats(k, n);
    size_t terms = 1;
    spw_device_pool *pool = &k->pool;
    if (pool->status != SPW_OK) return;
    for (size_t x = 0; x < c->experts; x++) terms = larger(terms, k->offset[x + 1] - k->offset[x]);
    for (size_t i = 0; i < n; i++) main[i] = spw_number(SPW_NUMBERS_BELL, SEED_MAIN, i);
    pool->status = spw_ref_grouped_gemm_weight_gradient(shape_of(k, in, out), first ? rows : k->h.value,
                                                        first ? k->h.value : rows, k->offset, want, scale);
    const result dw = output(k, weights_view(k, in, out, APART_RESULT));
    const numbers x = first ? k->x : k->h, dy = first ? k->h : k->dy;
    const spw_gemm_strides stride = {
        .left = x.view.row, .right = dy.view.row, .result = dw.view.row, .expert = dw.view.expert};
    const spw_gemm_shape shape = given(k, in, out, stride);
    spw_gemm_weight_gradient g = {
        .x = x.device, .dy = dy.device, .gathers_x = first, .offset = k->device_offset, .dw = dw.device};
    spw_gemm_weight_gradient add = g;
    add.dw = NULL, add.main = spw_view_upload(pool, dw.view, sizeof *main, main);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_weight_gradient(shape, rows_of(k), &g, NULL);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_weight_gradient(shape, rows_of(k), &add, NULL);
    judge(k, first ? "weights, x gathered" : "weights, dy gathered", dw, terms, want, scale);
    void *got = NULL;
    spw_status verdict = spw_view_fetch(pool, dw.view, sizeof *main, add.main, &got);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < n; i++) want[i] += main[i], scale[i] += 2 * fabsf(main[i]);
    if (verdict == SPW_OK) verdict = spw_judge_float(k->judge, false, n, terms + 1, got, want, scale);
    count(k, verdict, first ? "weights added, x gathered" : "weights added, dy gathered");
}

/* How rows lie. */
typedef struct form {
    bool gathers, transposed, apart;
} form;

static spw_status verify(const spw_gemm_case *c, const between *kind, damage wrong, form how,
                         spw_judge *judge) {
    static void (*const parts[])(fused *) = {check_up, check_down};
    spw_status status = SPW_OK;
    for (int part = 0; part < (kind == betweens ? 4 : 2);
         part++) { /* weights' gradients know no activation */
        fused k = {.c = c,
                   .between = kind,
                   .judge = judge,
                   .damage = wrong,
                   .gathers = how.gathers,
                   .transposed = how.transposed,
                   .apart = how.apart};
        create(&k);
        if (part < 2)
            parts[part](&k);
        else
            check_weights(&k, part == 2);
        if (k.pool.status == SPW_OK) count(&k, spw_pool_guards(&k.pool), "guards");
        if (wrong != NONE) judge->comparisons--; /* nothing is written beside: guards are no wrong result */
        status = k.pool.status;
        spw_pool_destroy(&k.pool);
        if (status != SPW_OK) break;
    }
    return status;
}

spw_status spw_verify_gemm_fused(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    if (c->out % 16 != 0) return SPW_OK;
    for (int what = 0; what < BETWEENS; what++)
        for (int i = 0; i < 8 && status == SPW_OK; i++)
            status = verify(c, betweens + what, NONE, (form){i & 1, i & 2, i & 4}, judge);
    return status;
}

spw_status spw_verify_gemm_fused_wrong(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    for (int what = NEXT_ASSIGNMENT; what < DAMAGES && status == SPW_OK; what++)
        for (int i = 0; i < 4 && status == SPW_OK; i++)
            status = verify(c, betweens + (i >> 1), (damage)what,
                            (form){true, i & 1, what == IGNORES_STRIDES}, judge);
    return status;
}
