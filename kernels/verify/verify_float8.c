#include "kernels/verify/verify_local.h"

#include "kernels/gpu/device_pool.h"
#include "kernels/local/float8_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/record/routing.h"
#include "reference/bf16.h"
#include "reference/float8.h"

#include <math.h>
#include <string.h>

enum { SEED_NUMBERS = 71, SEED_POWERS, SEED_ROUTING, SEED_ASSIGNMENT, SEED_WEIGHT, TOP_K = 3 };

typedef struct float8_case {
    const char *name;
    size_t experts, rows, width;
    spw_routing routing;
    int level;
} float8_case;

static const float8_case cases[] = {
    {"one row", 1, 1, 16, SPW_ROUTING_UNIFORM, 0},
    {"edges", 5, 700, 272, SPW_ROUTING_ZIPF, 0},
    {"empty experts", 9, 515, 128, SPW_ROUTING_EMPTY, 0},
    {"one expert", 8, 515, 144, SPW_ROUTING_ONE, 0},
    {"unused rows", 6, 1001, 400, SPW_ROUTING_SHORT, 0},
    {"few rows, many experts", 64, 40, 64, SPW_ROUTING_UNIFORM, 0},
    {"deepseek-v3 / 8", 32, 2048, 896, SPW_ROUTING_ZIPF, 1},
    {"fine-grained 7B / 4", 128, 2048, 192, SPW_ROUTING_UNIFORM, 1},
    {"deepseek-v3, 256 rows an expert", 32, 8192, 7168, SPW_ROUTING_ZIPF, 2},
};

/* Where rows come from; the last two are of a backward pass. */
typedef enum source { PLAIN, GATHERED, ACTIVATED, WEIGHTED, SLOPES } source;

/* A launch, or one that is wrong on purpose. */
typedef struct launch {
    const char *name;
    source source;
    spw_activation_form form;
    float limit;
    bool rows, columns; /* forms of codes that are wanted */
    void (*spoil)(spw_float8_gpu *q);
    void (*spoil_backward)(spw_float8_backward_gpu *b);
} launch;

static const launch launches[] = {
    {"rows", PLAIN, SPW_FORM_SWIGLU, 0, true, true, NULL, NULL},
    {"rows, by rows alone", PLAIN, SPW_FORM_SWIGLU, 0, true, false, NULL, NULL},
    {"rows, by columns alone", PLAIN, SPW_FORM_SWIGLU, 0, false, true, NULL, NULL},
    {"gathered rows", GATHERED, SPW_FORM_SWIGLU, 0, true, true, NULL, NULL},
    {"SwiGLU", ACTIVATED, SPW_FORM_SWIGLU, 0, true, true, NULL, NULL},
    {"clamped SwiGLU", ACTIVATED, SPW_FORM_SWIGLU, 2, true, true, NULL, NULL},
    {"SwiGLU in pairs", ACTIVATED, SPW_FORM_SWIGLU_PAIRS, 0, true, true, NULL, NULL},
    {"GeGLU", ACTIVATED, SPW_FORM_GEGLU, 0, true, true, NULL, NULL},
    {"GeGLU in pairs", ACTIVATED, SPW_FORM_GEGLU_PAIRS, 0, true, true, NULL, NULL},
    {"squared ReLU", ACTIVATED, SPW_FORM_RELU2, 0, true, true, NULL, NULL},
    {"weighted SwiGLU", WEIGHTED, SPW_FORM_SWIGLU, 0, true, true, NULL, NULL},
    {"weighted clamped SwiGLU", WEIGHTED, SPW_FORM_SWIGLU, 2, true, true, NULL, NULL},
    {"weighted SwiGLU in pairs", WEIGHTED, SPW_FORM_SWIGLU_PAIRS, 0, true, true, NULL, NULL},
    {"weighted GeGLU", WEIGHTED, SPW_FORM_GEGLU, 0, true, true, NULL, NULL},
    {"weighted GeGLU in pairs", WEIGHTED, SPW_FORM_GEGLU_PAIRS, 0, true, true, NULL, NULL},
    {"weighted squared ReLU", WEIGHTED, SPW_FORM_RELU2, 0, true, true, NULL, NULL},
    {"the gradient of SwiGLU", SLOPES, SPW_FORM_SWIGLU, 0, true, true, NULL, NULL},
    {"the gradient of clamped SwiGLU", SLOPES, SPW_FORM_SWIGLU, 2, true, true, NULL, NULL},
    {"the gradient of SwiGLU in pairs", SLOPES, SPW_FORM_SWIGLU_PAIRS, 0, true, true, NULL, NULL},
    {"the gradient of GeGLU", SLOPES, SPW_FORM_GEGLU, 0, true, true, NULL, NULL},
    {"the gradient of GeGLU in pairs", SLOPES, SPW_FORM_GEGLU_PAIRS, 0, true, true, NULL, NULL},
    {"the gradient of squared ReLU", SLOPES, SPW_FORM_RELU2, 0, true, true, NULL, NULL},
};

static void forget_an_expert(spw_float8_gpu *q) { q->experts--; }
static void write_beside(spw_float8_gpu *q) {
    if (q->code != NULL)
        q->code += 16;
    else
        q->column_code += 16;
}
static void next_scales(spw_float8_gpu *q) {
    if (q->scale != NULL)
        q->scale++;
    else
        q->column_scale += q->width;
}
static void next_weights(spw_float8_backward_gpu *b) { b->weight++; }
static void next_gradients(spw_float8_backward_gpu *b) { b->d_act += b->s.ffn; }
static void next_sums(spw_float8_backward_gpu *b) { b->row_sum++; }
static void swap_gate(spw_float8_backward_gpu *b) {
    const spw_bf16 *gate = b->s.gate;
    b->s.gate = b->s.up, b->s.up = gate;
}
static const launch wrong_launches[] = {
    {"forgets an expert", PLAIN, SPW_FORM_SWIGLU, 0, true, false, forget_an_expert, NULL},
    {"forgets an expert", PLAIN, SPW_FORM_SWIGLU, 0, false, true, forget_an_expert, NULL},
    {"writes beside", GATHERED, SPW_FORM_SWIGLU, 0, true, false, write_beside, NULL},
    {"writes beside", GATHERED, SPW_FORM_SWIGLU, 0, false, true, write_beside, NULL},
    {"writes the next block's scales", PLAIN, SPW_FORM_SWIGLU, 0, true, false, next_scales, NULL},
    {"writes the next block's scales", PLAIN, SPW_FORM_SWIGLU, 0, false, true, next_scales, NULL},
    {"takes the next choice's weight", WEIGHTED, SPW_FORM_SWIGLU, 0, true, true, NULL, next_weights},
    {"takes the next choice's weight", SLOPES, SPW_FORM_GEGLU, 0, true, true, NULL, next_weights},
    {"takes the next row's gradient", WEIGHTED, SPW_FORM_SWIGLU, 0, true, true, NULL, next_gradients},
    {"takes the next row's gradient", SLOPES, SPW_FORM_SWIGLU_PAIRS, 0, true, true, NULL, next_gradients},
    {"leaves a row's sum at the next", WEIGHTED, SPW_FORM_RELU2, 0, true, true, NULL, next_sums},
    {"swaps gate and up", SLOPES, SPW_FORM_SWIGLU, 0, true, true, NULL, swap_gate},
};

/* One launch: its sizes, operands, and what came. */
typedef struct check {
    const float8_case *c;
    const launch *l;
    spw_judge *judge;
    spw_device_pool pool;
    size_t *offset, blocks, across;
    int *offset32;
    spw_float8_gpu q;
    spw_float8_backward_gpu b; /* of a backward pass */
} check;

/* A number of any size, now and then 0; a NaN in the first expert's first rows. */
static spw_bf16 number(size_t i, size_t width) {
    const uint64_t bits = spw_number_bits(SEED_POWERS, i);
    const int power = (int)(bits % 9) - 4 + (int)(i / 128 % 7) - 3;
    if (bits >> 20 & 1 && bits % 11 == 0) return 0;
    if (i == 2 * width + 5) return 0x7fc0;
    return spw_bf16_from_float(ldexpf(spw_number(SPW_NUMBERS_BELL, SEED_NUMBERS, i), power));
}

static spw_bf16 *numbers(spw_device_pool *pool, size_t count, size_t width) {
    spw_bf16 *x = spw_pool_host(pool, count * sizeof *x);
    if (x == NULL) return NULL;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) x[i] = number(i, width);
    return x;
}

static void prepare(check *k) {
    const float8_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    k->blocks = spw_float8_column_blocks(c->experts, c->rows), k->across = (c->width + 127) / 128;
    k->offset = spw_pool_host(pool, (c->experts + 1) * sizeof *k->offset);
    k->offset32 = spw_pool_host(pool, (c->experts + 1) * sizeof *k->offset32);
    if (pool->status != SPW_OK) return;
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, k->offset, k->offset32);
    k->q = (spw_float8_gpu){.experts = (int)c->experts, .rows = (int)c->rows, .width = (int)c->width};
    k->q.offset = spw_pool_device(pool, (c->experts + 1) * sizeof(int), k->offset32);
    if (k->l->rows) {
        k->q.code = spw_pool_device(pool, c->rows * c->width, NULL);
        k->q.scale = spw_pool_device(pool, c->rows * k->across * sizeof(float), NULL);
    }
    if (k->l->columns) {
        k->q.column_code = spw_pool_device(pool, c->width * k->blocks * SPW_FLOAT8_BLOCK, NULL);
        k->q.column_scale = spw_pool_device(pool, k->blocks * c->width * sizeof(float), NULL);
    }
}

/* Launches; the rows that are to be coded, in bf16. */
static const spw_bf16 *run_rows(check *k, spw_float8_gpu q) {
    const size_t count = k->c->rows * k->c->width;
    spw_device_pool *pool = &k->pool;
    spw_bf16 *x = numbers(pool, count, k->c->width);
    const spw_bf16 *device = spw_pool_device(pool, count * sizeof *x, x);
    if (pool->status != SPW_OK) return NULL;
    if (k->l->source == PLAIN) {
        pool->status = spw_device_check(spw_launch_float8_rows(q, device, NULL), k->l->name);
        return x;
    }
    int *assignment = spw_pool_host(pool, k->c->rows * sizeof *assignment);
    spw_bf16 *rows = spw_pool_host(pool, count * sizeof *rows);
    if (pool->status != SPW_OK) return NULL;
    for (size_t r = 0; r < k->c->rows; r++) {
        const size_t token = spw_number_bits(SEED_ASSIGNMENT, r) % k->c->rows;
        assignment[r] = (int)(token * TOP_K + r % TOP_K);
        memcpy(rows + r * k->c->width, x + token * k->c->width, k->c->width * sizeof *rows);
        if (r >= k->offset[k->c->experts]) assignment[r] = -1000000000; /* nobody may read it */
    }
    const int *device_assignment = spw_pool_device(pool, k->c->rows * sizeof *assignment, assignment);
    if (pool->status == SPW_OK)
        pool->status = spw_device_check(spw_launch_float8_gathered(q, device, device_assignment, TOP_K, NULL),
                                        k->l->name);
    return rows;
}

/* The activation of h [rows][s.stride], on the device. */
static spw_swiglu_gpu activation_of(const check *k, const spw_bf16 *h, size_t ffn) {
    return (spw_swiglu_gpu){.rows = (int)k->c->rows,
                            .ffn = (int)ffn,
                            .stride = (int)(k->l->form == SPW_FORM_RELU2 ? ffn : 2 * ffn),
                            .limit = k->l->limit,
                            .alpha = 1.702f,
                            .form = (int)k->l->form,
                            .gate = h,
                            .up = h + ffn};
}

static const spw_bf16 *run_activation(check *k, spw_float8_gpu q) {
    const size_t width = k->c->width, wide = k->l->form == SPW_FORM_RELU2 ? width : 2 * width;
    spw_device_pool *pool = &k->pool;
    spw_bf16 *h = numbers(pool, k->c->rows * wide, wide);
    const spw_bf16 *device = spw_pool_device(pool, k->c->rows * wide * sizeof *h, h);
    spw_bf16 *act = spw_pool_device(pool, k->c->rows * width * sizeof *h, NULL);
    if (pool->status != SPW_OK) return NULL;
    const spw_swiglu_gpu s = activation_of(k, device, width);
    pool->status = spw_device_check(spw_launch_activation(s, act, NULL), "activation");
    if (pool->status == SPW_OK)
        pool->status = spw_device_check(spw_launch_float8_activation(q, s, NULL), k->l->name);
    return spw_pool_fetch(pool, act);
}

/* --- A backward pass --- */

static float times(float weight, spw_bf16 x) { return weight * spw_bf16_to_float(x); }

/* Parts of sums over d_act act, act being rounded to bf16: the kernel's is not. */
static void judge_sums(check *k, const spw_bf16 *act, const spw_bf16 *d_act, const float *got) {
    enum { HALF_STEP = 1 << 16 }; /* of bf16, in units of fp32's */
    const size_t rows = k->c->rows, ffn = (size_t)k->b.s.ffn, used = k->offset[k->c->experts];
    float *want = spw_pool_host(&k->pool, rows * sizeof *want),
          *scale = spw_pool_host(&k->pool, rows * sizeof *scale);
    if (k->pool.status != SPW_OK) return;
    for (size_t part = 0; part * SPW_FLOAT8_BLOCK < ffn; part++) {
        const size_t from = part * SPW_FLOAT8_BLOCK,
                     to = from + SPW_FLOAT8_BLOCK < ffn ? from + SPW_FLOAT8_BLOCK : ffn;
        for (size_t r = 0; r < used; r++) {
            double sum = 0, size = 0;
            for (size_t i = r * ffn + from; i < r * ffn + to; i++) {
                const double one = (double)spw_bf16_to_float(act[i]) * (double)spw_bf16_to_float(d_act[i]);
                sum += one, size += fabs(one);
            }
            want[r] = (float)sum, scale[r] = (float)size;
        }
        spw_judge_count(k->judge,
                        spw_judge_float(k->judge, false, used, SPW_FLOAT8_BLOCK + HALF_STEP,
                                        got + part * rows, want, scale),
                        "fp8 of %s, sums of rows, part %zu, %s", k->l->name, part, k->c->name);
    }
}

/* Operands of a backward pass on the device; weights are -1, 0 or 1, so that they round nothing. */
static void prepare_backward(check *k, size_t ffn, const spw_bf16 *h, const spw_bf16 *d_act, int *assignment,
                             float *weight) {
    spw_device_pool *pool = &k->pool;
    const size_t rows = k->c->rows, used = k->offset[k->c->experts], parts = (ffn + 127) / 128;
    for (size_t r = 0; r < rows; r++)
        assignment[r] = r < used ? (int)(spw_number_bits(SEED_ASSIGNMENT, r) % rows) : -1000000000;
    for (size_t i = 0; i <= rows; i++) weight[i] = (float)((int)(spw_number_bits(SEED_WEIGHT, i) % 3) - 1);
    const size_t wide = k->l->form == SPW_FORM_RELU2 ? ffn : 2 * ffn;
    k->b = (spw_float8_backward_gpu){
        .s = activation_of(k, spw_pool_device(pool, rows * wide * sizeof *h, h), ffn),
        .d_act = spw_pool_device(pool, (rows + 1) * ffn * sizeof *d_act, d_act),
        .assignment = spw_pool_device(pool, rows * sizeof *assignment, assignment),
        .weight = spw_pool_device(pool, (rows + 1) * sizeof *weight, weight),
        .row_sum = spw_pool_device(pool, (parts * rows + 1) * sizeof(float), NULL)};
}

/* act times the rows' weights, or what the kernel of the gradient alone makes of d_act times them. */
static const spw_bf16 *run_backward(check *k, spw_float8_gpu q) {
    const bool slopes = k->l->source == SLOPES, one = k->l->form == SPW_FORM_RELU2;
    const size_t rows = k->c->rows, ffn = slopes && !one ? k->c->width / 2 : k->c->width,
                 wide = one ? ffn : 2 * ffn, used = k->offset[k->c->experts];
    spw_device_pool *pool = &k->pool;
    spw_bf16 *h = numbers(pool, rows * wide, wide), *d_act = numbers(pool, (rows + 1) * ffn, ffn);
    int *assignment = spw_pool_host(pool, rows * sizeof *assignment);
    float *weight = spw_pool_host(pool, (rows + 1) * sizeof *weight);
    if (pool->status != SPW_OK) return NULL;
    if (2 * wide + 5 < rows * wide) h[2 * wide + 5] = 0x3f80; /* a NaN is nobody's sum */
    if (2 * ffn + 5 < (rows + 1) * ffn) d_act[2 * ffn + 5] = 0x3f80;
    prepare_backward(k, ffn, h, d_act, assignment, weight);
    spw_bf16 *made = spw_pool_device(pool, rows * wide * sizeof *made, NULL);
    spw_bf16 *scaled = spw_pool_host(pool, rows * ffn * sizeof *scaled);
    for (size_t r = 0; pool->status == SPW_OK && r < used; r++)
        for (size_t i = r * ffn; i < (r + 1) * ffn; i++)
            scaled[i] = spw_bf16_from_float(times(weight[assignment[r]], d_act[i]));
    const spw_bf16 *device = spw_pool_device(pool, rows * ffn * sizeof *scaled, scaled);
    if (pool->status != SPW_OK) return NULL;
    spw_float8_backward_gpu b = k->b;
    if (k->l->spoil_backward != NULL) k->l->spoil_backward(&b);
    pool->status =
        spw_device_check(slopes ? spw_launch_activation_gradient(k->b.s, device, made, made + ffn, NULL)
                                : spw_launch_activation(k->b.s, made, NULL),
                         "an activation");
    if (pool->status == SPW_OK)
        pool->status = spw_device_check(slopes ? spw_launch_float8_slopes(q, b, NULL)
                                               : spw_launch_float8_weighted(q, b, NULL),
                                        k->l->name);
    spw_bf16 *x = spw_pool_fetch(pool, made);
    const float *sums = spw_pool_fetch(pool, k->b.row_sum);
    if (pool->status != SPW_OK || slopes) return x;
    judge_sums(k, x, d_act, sums);
    for (size_t r = 0; r < used; r++)
        for (size_t i = r * ffn; i < (r + 1) * ffn; i++)
            x[i] = spw_bf16_from_float(times(weight[assignment[r]], x[i]));
    return x;
}

/* Compares one array; what is 0xff was to be left alone. The sign of a NaN is nobody's. */
static void compare(check *k, const void *device, const void *want, size_t count, size_t bytes,
                    const char *what) {
    unsigned char *got = spw_pool_fetch(&k->pool, device);
    if (k->pool.status != SPW_OK) return;
    const unsigned char *right = want;
    if (bytes == 1)
        for (size_t i = 0; i < count; i++)
            if ((got[i] & 0x7f) == 0x7f && (right[i] & 0x7f) == 0x7f) got[i] = right[i];
    spw_judge_count(k->judge, spw_judge_bytes(count, bytes, got, want), "fp8 of %s, %s, %s, %s", k->l->name,
                    what, k->c->name, spw_routing_names[k->c->routing]);
}

static void *untouched(spw_device_pool *pool, size_t bytes) {
    void *memory = spw_pool_host(pool, bytes);
    return memory == NULL ? NULL : memset(memory, 0xff, bytes);
}

static void judge_codes(check *k, const float *x) {
    const float8_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t by_rows = c->rows * c->width, scales = c->rows * k->across,
                 by_columns = c->width * k->blocks * SPW_FLOAT8_BLOCK, column_scales = k->blocks * c->width;
    uint8_t *code = untouched(pool, by_rows), *column_code = untouched(pool, by_columns);
    float *scale = untouched(pool, scales * 4), *column_scale = untouched(pool, column_scales * 4);
    if (pool->status != SPW_OK) return;
    spw_float8_quantize_rows(x, k->offset[c->experts], c->width, code, scale);
    spw_float8_quantize_columns((spw_float8_groups){c->experts, c->rows, k->offset}, x, c->width, column_code,
                                column_scale);
    if (k->l->rows) {
        compare(k, k->q.code, code, by_rows, 1, "codes by rows");
        compare(k, k->q.scale, scale, scales, 4, "scales by rows");
    }
    if (k->l->columns) {
        compare(k, k->q.column_code, column_code, by_columns, 1, "codes by columns");
        compare(k, k->q.column_scale, column_scale, column_scales, 4, "scales by columns");
    }
}

static spw_status verify_launch(const float8_case *c, const launch *l, spw_judge *judge) {
    check k = {.c = c, .l = l, .judge = judge};
    prepare(&k);
    spw_float8_gpu q = k.q;
    if (k.pool.status == SPW_OK && l->spoil != NULL) l->spoil(&q);
    const spw_bf16 *x = (l->source <= GATHERED    ? run_rows
                         : l->source == ACTIVATED ? run_activation
                                                  : run_backward)(&k, q);
    const size_t count = c->rows * c->width;
    float *value = spw_pool_host(&k.pool, count * sizeof *value);
    if (k.pool.status == SPW_OK) {
        for (size_t i = 0; i < count; i++) value[i] = spw_bf16_to_float(x[i]);
        judge_codes(&k, value);
    }
    spw_status status = k.pool.status == SPW_OK && l->spoil == NULL && l->spoil_backward == NULL
                            ? spw_pool_guards(&k.pool)
                            : k.pool.status;
    spw_pool_destroy(&k.pool);
    if (status == SPW_EMISMATCH) {
        spw_judge_count(judge, status, "guards of fp8 of %s, %s", l->name, c->name);
        status = SPW_OK;
    }
    return status;
}

/* --- Weights --- */
typedef struct weights_check {
    size_t experts, rows, columns;
    const char *name;
} weights_check;

/* An array of the device and what is right. */
typedef struct compared {
    const char *what;
    const void *device, *want;
    size_t count, bytes;
} compared;

static void judge_weights(spw_device_pool *pool, const weights_check *c, compared of, spw_judge *judge) {
    const void *got = spw_pool_fetch(pool, of.device);
    if (pool->status == SPW_OK)
        spw_judge_count(judge, spw_judge_bytes(of.count, of.bytes, got, of.want), "fp8 of weights, %s, %s",
                        of.what, c->name);
}

static void turn(const void *from, size_t experts, size_t rows, size_t columns, size_t bytes, void *to) {
    const unsigned char *x = from;
    unsigned char *y = to;
    for (size_t e = 0; e < experts; e++)
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++)
                memcpy(y + ((e * columns + c) * rows + r) * bytes, x + ((e * rows + r) * columns + c) * bytes,
                       bytes);
}

static spw_status verify_weights(const weights_check *c, spw_judge *judge) {
    spw_device_pool pool = {0};
    const size_t down = (c->rows + 127) / 128, across = (c->columns + 127) / 128, one = c->rows * c->columns,
                 count = c->experts * one, scales = c->experts * down * across;
    spw_bf16 *w = numbers(&pool, count, c->columns);
    float *value = spw_pool_host(&pool, count * sizeof *value), *scale = spw_pool_host(&pool, scales * 4),
          *turned_scale = spw_pool_host(&pool, scales * 4);
    uint8_t *code = spw_pool_host(&pool, count), *turned = spw_pool_host(&pool, count);
    spw_float8_weights_gpu q = {(int)c->experts, (int)c->rows, (int)c->columns, 0, NULL, NULL, NULL, NULL};
    q.code = spw_pool_device(&pool, count, NULL), q.scale = spw_pool_device(&pool, scales * 4, NULL);
    q.turned_code = spw_pool_device(&pool, count, NULL),
    q.turned_scale = spw_pool_device(&pool, scales * 4, NULL);
    spw_float8_weights_gpu again = q;
    again.turned_code = spw_pool_device(&pool, count, NULL);
    again.turned_scale = spw_pool_device(&pool, scales * 4, NULL);
    if (pool.status == SPW_OK) {
        w[2 * c->columns + 5] = 0; /* a NaN's sign is nobody's: elsewhere */
        for (size_t i = 0; i < count; i++) value[i] = spw_bf16_to_float(w[i]);
        for (size_t e = 0; e < c->experts; e++)
            spw_float8_quantize_tiles(value + e * one, c->rows, c->columns, code + e * one,
                                      scale + e * down * across);
        turn(code, c->experts, c->rows, c->columns, 1, turned);
        turn(scale, c->experts, down, across, 4, turned_scale);
    }
    const spw_bf16 *device = spw_pool_device(&pool, count * sizeof *w, w);
    if (pool.status == SPW_OK)
        pool.status = spw_device_check(spw_launch_float8_weights(q, device, NULL), "fp8 of weights");
    if (pool.status == SPW_OK)
        pool.status = spw_device_check(spw_launch_float8_turn(again, NULL), "fp8 of weights, transposed");
    const compared all[] = {{"codes", q.code, code, count, 1},
                            {"scales", q.scale, scale, scales, 4},
                            {"transposed codes", q.turned_code, turned, count, 1},
                            {"transposed scales", q.turned_scale, turned_scale, scales, 4},
                            {"codes transposed later", again.turned_code, turned, count, 1},
                            {"scales transposed later", again.turned_scale, turned_scale, scales, 4}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) judge_weights(&pool, c, all[i], judge);
    const spw_status status = pool.status == SPW_OK ? spw_pool_guards(&pool) : pool.status;
    spw_pool_destroy(&pool);
    return status;
}

spw_status spw_verify_float8(int level, spw_judge *judge) {
    static const weights_check weights[] = {
        {3, 200, 136, "edges"}, {2, 512, 896, "deepseek-v3 / 8"}, {2, 4096, 7168, "deepseek-v3"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t j = 0; cases[i].level == level && j < sizeof launches / sizeof *launches; j++) {
            const spw_status status = verify_launch(&cases[i], &launches[j], judge);
            if (status != SPW_OK) return status;
        }
    }
    return verify_weights(&weights[level], judge);
}

spw_status spw_verify_float8_wrong(spw_judge *judge) {
    for (size_t j = 0; j < sizeof wrong_launches / sizeof *wrong_launches; j++) {
        spw_judge all = {.quiet = true}; /* an array beside the wrong one is right */
        const spw_status status = verify_launch(&cases[1], &wrong_launches[j], &all);
        if (status != SPW_OK) return status;
        spw_judge_count(judge, all.failed > 0 ? SPW_EMISMATCH : SPW_OK, "%s", wrong_launches[j].name);
    }
    return SPW_OK;
}
