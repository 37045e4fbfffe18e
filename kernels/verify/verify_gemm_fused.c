#include "kernels/gpu/device_pool.h"
#include "kernels/local/local_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/verify_gemm.h"
#include "reference/bf16.h"
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
    SEED_OFFSETS
};

/* What the operations are given in place of what they should be; all of their results must be rejected. */
typedef enum damage { NONE, NEXT_ASSIGNMENT, FORGETS_AN_EXPERT, DOES_NOTHING, DAMAGES } damage;

/* Numbers that bf16 holds, in both forms. */
typedef struct numbers {
    float *value;
    spw_bf16 *device;
} numbers;

/* A layer's products: x [tokens][in], gate and up 2 ffn = out wide, dy [tokens][in]. */
typedef struct fused {
    const spw_gemm_case *c;
    spw_device_pool pool;
    spw_judge *judge;
    damage damage;
    bool gathers, transposed;
    size_t ffn, tokens;
    size_t *offset;
    int *assignment, *device_offset, *device_assignment;
    float *weight, *device_weight;
    numbers x, dy, up, down, h;
} fused;

static float *floats(fused *k, size_t n) { return spw_pool_host(&k->pool, n * sizeof(float)); }
static spw_bf16 *output(fused *k, size_t n) { return spw_pool_device(&k->pool, n * 2, NULL); }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static numbers draw(fused *k, uint64_t seed, size_t n, size_t used) {
    numbers d = {floats(k, n), NULL};
    spw_bf16 *bits = spw_pool_host(&k->pool, n * 2);
    if (k->pool.status != SPW_OK) return d;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        bits[i] = i < used ? spw_bf16_from_float(spw_number(SPW_NUMBERS_BELL, seed, i)) : 0xffff;
        d.value[i] = i < used ? spw_bf16_to_float(bits[i]) : 0;
    }
    d.device = spw_pool_device(&k->pool, n * 2, bits);
    return d;
}

/* Behind offset[experts] assignments lead nowhere, and h is NaN. */
static void create(fused *k) {
    const spw_gemm_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    k->ffn = c->out / 2, k->tokens = k->gathers ? (c->rows + TOP_K - 1) / TOP_K : c->rows;
    const size_t choices = k->tokens * TOP_K, weights = c->experts * c->in * k->ffn;
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
    k->x = draw(k, SEED_X, k->tokens * c->in, k->tokens * c->in);
    k->dy = draw(k, SEED_DY, k->tokens * c->in, k->tokens * c->in);
    k->up = draw(k, SEED_UP, 2 * weights, 2 * weights);
    k->down = draw(k, SEED_DOWN, weights, weights);
    k->h = draw(k, SEED_H, c->rows * c->out, used * c->out);
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
    return (spw_gemm_shape){k->c->experts, k->c->rows, in, out, k->transposed};
}
/* As the operation is given it. */
static spw_gemm_shape given(const fused *k, size_t in, size_t out) {
    spw_gemm_shape s = shape_of(k, in, out);
    if (k->damage == FORGETS_AN_EXPERT) s.experts--;
    return s;
}
static spw_gemm_rows rows_of(const fused *k) {
    return (spw_gemm_rows){k->gathers ? k->device_assignment + (k->damage == NEXT_ASSIGNMENT) : NULL,
                           k->gathers ? TOP_K : 0};
}

static void count(fused *k, spw_status result, const char *what) {
    if (k->pool.status != SPW_OK) return;
    spw_judge_count(k->judge, result, "%s, %s, %s, %s, %s", what, k->c->name,
                    spw_routing_names[k->c->routing], k->transposed ? "[out][in]" : "[in][out]",
                    k->gathers ? "gathered" : "in order");
}
static void judge_bf16(fused *k, const char *what, const spw_bf16 *device, size_t n, size_t terms,
                       const float *want, const float *scale) {
    const spw_bf16 *got = spw_pool_fetch(&k->pool, device);
    if (k->pool.status == SPW_OK) count(k, spw_judge_bf16(k->judge, false, n, terms, got, want, scale), what);
}

/* To first order an error d of the sums moves act by |d act / d gate| d + |d act / d up| d; 1.1 bounds the slope of silu,
 * and 10 more terms evaluate it (swiglu_math.h). */
static void check_up(fused *k) {
    const spw_gemm_case *c = k->c;
    const size_t f = k->ffn, rows = c->rows;
    float *want = floats(k, rows * c->out), *scale = floats(k, rows * c->out), *x = gathered(k, k->x.value);
    float *want_act = floats(k, rows * f), *scale_act = floats(k, rows * f);
    spw_bf16 *h = output(k, rows * c->out), *act = output(k, rows * f);
    const spw_gemm_up g = {k->x.device, k->up.device, k->device_offset, h, act};
    spw_device_pool *pool = &k->pool;
    if (pool->status == SPW_OK)
        pool->status =
            spw_ref_grouped_gemm(shape_of(k, c->in, c->out), x, k->up.value, k->offset, want, scale);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_up(given(k, c->in, c->out), rows_of(k), &g, NULL);
    for (size_t i = 0; pool->status == SPW_OK && i < rows * f; i++) {
        const size_t at = i / f * c->out + i % f;
        spw_ref_swiglu((spw_swiglu){.limit = 0}, 1, want + at, want + at + f, want_act + i, NULL);
        scale_act[i] =
            1.1f * fabsf(want[at + f]) * scale[at] + fabsf(want[at]) * scale[at + f] + fabsf(want_act[i]);
    }
    judge_bf16(k, "up, gate and up", h, rows * c->out, c->in, want, scale);
    judge_bf16(k, "up, act", act, rows * f, c->in + 10, want_act, scale_act);
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
        const float *gate = k->h.value + r * 2 * f + i, *up = gate + f;
        const size_t at = r * 2 * f + i;
        float act, slope_gate, slope_up, slope_scale;
        spw_ref_swiglu((spw_swiglu){.limit = 0}, 1, gate, up, &act, NULL);
        spw_ref_swiglu_gradient((spw_swiglu){.limit = 0}, 1, gate, up, &one,
                                (spw_swiglu_gradients){&slope_gate, &slope_up, &slope_scale});
        const float s = e->s[r * f + i], s_scale = e->s_scale[r * f + i];
        e->d_h[at] = (float)((double)v * (double)s * (double)slope_gate);
        e->d_h[at + f] = (float)((double)v * (double)s * (double)slope_up);
        e->h_scale[at] = fabsf(v) * slope_scale * s_scale, e->h_scale[at + f] = fabsf(v * slope_up) * s_scale;
        e->act[r * f + i] = v * act, e->act_scale[r * f + i] = fabsf(v * act);
        dot += (double)s * (double)act, dot_scale += (double)s_scale * fabs((double)act);
    }
    e->dot[r] = (float)dot, e->dot_scale[r] = (float)dot_scale;
}

static expected expect_down(fused *k) {
    const size_t f = k->ffn, rows = k->c->rows;
    expected e = {floats(k, rows * f), floats(k, rows * f), floats(k, rows * 2 * f), floats(k, rows * 2 * f),
                  floats(k, rows * f), floats(k, rows * f), floats(k, rows),         floats(k, rows)};
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
    const spw_gemm_down_gradient g = {.dy = k->dy.device,
                                      .weight = k->device_weight,
                                      .w = k->down.device,
                                      .h = k->h.device,
                                      .offset = k->device_offset,
                                      .d_h = output(k, rows * 2 * f),
                                      .act = output(k, rows * f),
                                      .row_sum = part};
    if (k->pool.status == SPW_OK && k->damage != DOES_NOTHING)
        k->pool.status = spw_gpu_grouped_gemm_down_gradient(given(k, f, k->c->in), rows_of(k), &g, NULL);
    judge_bf16(k, "down gradient, gate and up", g.d_h, rows * 2 * f, k->c->in + 26, e.d_h, e.h_scale);
    judge_bf16(k, "down gradient, act", g.act, rows * f, 12, e.act, e.act_scale);
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
    spw_gemm_weight_gradient g = {.x = first ? k->x.device : k->h.device,
                                  .dy = first ? k->h.device : k->dy.device,
                                  .gathers_x = first,
                                  .offset = k->device_offset,
                                  .dw = output(k, n)};
    spw_gemm_weight_gradient add = g;
    add.dw = NULL, add.main = spw_pool_device(pool, n * sizeof *main, main);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_weight_gradient(given(k, in, out), rows_of(k), &g, NULL);
    if (pool->status == SPW_OK && k->damage != DOES_NOTHING)
        pool->status = spw_gpu_grouped_gemm_weight_gradient(given(k, in, out), rows_of(k), &add, NULL);
    judge_bf16(k, first ? "weights, x gathered" : "weights, dy gathered", g.dw, n, terms, want, scale);
    const float *got = spw_pool_fetch(pool, add.main);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < n; i++) want[i] += main[i], scale[i] += 2 * fabsf(main[i]);
    count(k, spw_judge_float(k->judge, false, n, terms + 1, got, want, scale),
          first ? "weights added, x gathered" : "weights added, dy gathered");
}

static spw_status verify(const spw_gemm_case *c, damage wrong, bool gathers, bool transposed,
                         spw_judge *judge) {
    static void (*const parts[])(fused *) = {check_up, check_down};
    spw_status status = SPW_OK;
    for (int part = 0; part < 4; part++) {
        fused k = {.c = c, .judge = judge, .damage = wrong, .gathers = gathers, .transposed = transposed};
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
    if (!spw_gpu_has_fused_gemm() || c->out % 16 != 0) return SPW_OK;
    for (int form = 0; form < 4 && status == SPW_OK; form++)
        status = verify(c, NONE, form & 1, form & 2, judge);
    return status;
}

spw_status spw_verify_gemm_fused_wrong(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    if (!spw_gpu_has_fused_gemm()) return SPW_OK;
    for (int what = NEXT_ASSIGNMENT; what < DAMAGES && status == SPW_OK; what++)
        for (int form = 0; form < 2 && status == SPW_OK; form++)
            status = verify(c, (damage)what, true, form, judge);
    return status;
}
