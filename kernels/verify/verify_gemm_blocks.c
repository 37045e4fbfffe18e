/* Products on some of a GPU's multiprocessors: the same bits as on all of them, and no more of them than a shape says. */
#include "kernels/gpu/device.h"
#include "kernels/gpu/device_pool.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/verify_element.h"
#include "kernels/verify/verify_gemm.h"

#include <string.h>

enum { SEED_X = 81, SEED_DY, SEED_W, SEED_H, SEED_OFFSETS };

typedef struct blocks {
    const spw_gemm_case *c;
    spw_device_pool pool;
    spw_gemm_shape shape;
    size_t ffn, weights;
    int *offset;
    spw_bf16 *x, *dy, *w, *h;
} blocks;

static spw_bf16 *draw(blocks *k, uint64_t seed, size_t n) {
    const spw_element *element = spw_element_of(k->c->element);
    spw_bf16 *array = spw_pool_device(&k->pool, n * sizeof *array, NULL);
    if (k->pool.status == SPW_OK)
        k->pool.status =
            spw_device_check(element->fill(array, (long)n, SPW_NUMBERS_BELL, seed, NULL), "fill");
    return array;
}

static void create(blocks *k) {
    const spw_gemm_case *c = k->c;
    size_t *offset = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *offset);
    int *offset32 = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *offset32);
    if (k->pool.status != SPW_OK) return;
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_OFFSETS, offset, offset32);
    k->offset = spw_pool_device(&k->pool, (c->experts + 1) * sizeof *offset32, offset32);
    k->ffn = c->out / 2, k->weights = c->experts * c->in * c->out;
    k->x = draw(k, SEED_X, c->rows * c->in), k->dy = draw(k, SEED_DY, c->rows * c->out);
    k->w = draw(k, SEED_W, k->weights), k->h = draw(k, SEED_H, c->rows * c->out);
}

/* What an operation writes; those that it does not are NULL. */
enum { RESULTS = 3 };
typedef struct results {
    size_t bytes[RESULTS];
    void *device[RESULTS];
} results;

static void *result(blocks *k, results *r, int i, size_t bytes, const void *from) {
    r->bytes[i] = bytes;
    return r->device[i] = spw_pool_device(&k->pool, bytes, from);
}

static spw_status product(blocks *k, const spw_gemm_variant *variant, spw_gemm_operation operation,
                          spw_gemm_shape s, results *r) {
    const size_t n = operation == SPW_GEMM_WEIGHT_GRADIENT ? k->weights
                     : operation == SPW_GEMM_FORWARD       ? s.rows * s.out
                                                           : s.rows * s.in;
    spw_bf16 *out = result(k, r, 0, n * sizeof *out, NULL);
    if (k->pool.status != SPW_OK) return k->pool.status;
    return spw_gpu_grouped_gemm(variant, operation, s, operation == SPW_GEMM_INPUT_GRADIENT ? k->dy : k->x,
                                operation == SPW_GEMM_WEIGHT_GRADIENT ? k->dy : k->w, k->offset, out, NULL);
}

static spw_status swiglu(blocks *k, spw_gemm_shape s, results *r) {
    spw_bf16 *act = result(k, r, 0, s.rows * k->ffn * sizeof *act, NULL);
    if (k->pool.status != SPW_OK) return k->pool.status;
    return spw_gpu_grouped_gemm_swiglu(s, k->x, k->w, k->offset, act, NULL);
}

static spw_status up(blocks *k, spw_gemm_shape s, results *r) {
    spw_bf16 *h = result(k, r, 0, s.rows * s.out * sizeof *h, NULL);
    spw_bf16 *act = result(k, r, 1, s.rows * k->ffn * sizeof *act, NULL);
    const spw_gemm_up g = {.x = k->x, .w = k->w, .offset = k->offset, .h = h, .act = act};
    if (k->pool.status != SPW_OK) return k->pool.status;
    return spw_gpu_grouped_gemm_up(s, (spw_gemm_rows){NULL, 0}, &g, NULL);
}

/* Of the second product: in = ffn, out = hidden, whose dy is x and whose weights are a part of w. */
static spw_status down_gradient(blocks *k, spw_gemm_shape s, results *r) {
    const size_t parts = (k->ffn + SPW_GEMM_ROW_SUM_TILE - 1) / SPW_GEMM_ROW_SUM_TILE;
    spw_gemm_shape second = s;
    second.in = k->ffn, second.out = s.in;
    spw_bf16 *d_h = result(k, r, 0, s.rows * s.out * sizeof *d_h, NULL);
    spw_bf16 *act = result(k, r, 1, s.rows * k->ffn * sizeof *act, NULL);
    float *row_sum = result(k, r, 2, parts * s.rows * sizeof *row_sum, NULL);
    const spw_gemm_down_gradient g = {
        .dy = k->x, .w = k->w, .h = k->h, .offset = k->offset, .d_h = d_h, .act = act, .row_sum = row_sum};
    if (k->pool.status != SPW_OK) return k->pool.status;
    return spw_gpu_grouped_gemm_down_gradient(second, (spw_gemm_rows){NULL, 0}, &g, NULL);
}

static spw_status weights_added(blocks *k, spw_gemm_shape s, results *r) {
    float *zeros = spw_pool_host(&k->pool, k->weights * sizeof *zeros);
    if (k->pool.status != SPW_OK) return k->pool.status;
    memset(zeros, 0, k->weights * sizeof *zeros);
    float *main = result(k, r, 0, k->weights * sizeof *main, zeros);
    const spw_gemm_weight_gradient g = {.x = k->x, .dy = k->dy, .offset = k->offset, .main = main};
    if (k->pool.status != SPW_OK) return k->pool.status;
    return spw_gpu_grouped_gemm_weight_gradient(s, (spw_gemm_rows){NULL, 0}, &g, NULL);
}

static const char *const names[] = {"forward",
                                    "input gradient",
                                    "weight gradient",
                                    "forward in turns",
                                    "input gradient in turns",
                                    "weight gradient in turns",
                                    "weight gradient in pairs",
                                    "SwiGLU",
                                    "up",
                                    "down gradient",
                                    "weights added"};
enum { IN_TURNS = 3, IN_PAIRS = 6, SWIGLU = 7, OPERATIONS = sizeof names / sizeof *names };

static const spw_gemm_variant *fastest(void) {
    const spw_gemm_variant *variant = spw_gemm_variants;
    while (variant[1].name != NULL) variant++;
    return variant;
}

static results operate(blocks *k, int operation, size_t multiprocessors) {
    static spw_status (*const others[])(blocks *, spw_gemm_shape, results *) = {swiglu, up, down_gradient,
                                                                                weights_added};
    results r = {{0}, {NULL}};
    spw_gemm_shape s = k->shape;
    s.multiprocessors = multiprocessors;
    if (k->pool.status != SPW_OK) return r;
    const spw_status status =
        operation < SWIGLU
            ? product(k, operation < IN_TURNS ? fastest() : spw_gemm_tile_variants + (operation == IN_PAIRS),
                      operation == IN_PAIRS ? SPW_GEMM_WEIGHT_GRADIENT
                                            : (spw_gemm_operation)(operation % IN_TURNS),
                      s, &r)
            : others[operation - SWIGLU](k, s, &r);
    if (k->pool.status == SPW_OK) k->pool.status = status;
    return r;
}

static void compare(blocks *k, int operation, size_t multiprocessors, const results *want, spw_judge *judge) {
    const results got = operate(k, operation, multiprocessors);
    spw_status verdict = SPW_OK;
    for (int i = 0; i < RESULTS && got.device[i] != NULL; i++) {
        const void *a = spw_pool_fetch(&k->pool, got.device[i]),
                   *b = spw_pool_fetch(&k->pool, want->device[i]);
        if (k->pool.status != SPW_OK) return;
        if (verdict == SPW_OK) verdict = spw_judge_bytes(got.bytes[i], 1, a, b);
    }
    if (k->pool.status == SPW_OK)
        spw_judge_count(judge, verdict, "%s on %zu multiprocessors, %s, %s, %s", names[operation],
                        multiprocessors, spw_element_of(k->c->element)->name, k->c->name,
                        k->shape.transposed ? "[out][in]" : "[in][out]");
}

/* Of what spw_gpu_grouped_gemm() has launched. */
static int launched;
static int note_blocks(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    (void)form, (void)element, (void)stream;
    launched = p.blocks;
    return 0;
}

/* As many blocks as the shape says, and never more than the GPU has multiprocessors. */
static void count_blocks(blocks *k, spw_judge *judge) {
    static const spw_gemm_variant noting = {"notes its blocks", note_blocks};
    const size_t all = (size_t)spw_device_multiprocessors(), some[] = {0, 1, 7, all, all + 1, SIZE_MAX};
    results r = {{0}, {NULL}};
    for (size_t i = 0; i < sizeof some / sizeof *some && k->pool.status == SPW_OK; i++) {
        spw_gemm_shape s = k->shape;
        s.multiprocessors = some[i];
        k->pool.status = product(k, &noting, SPW_GEMM_FORWARD, s, &r);
        if (k->pool.status != SPW_OK) return;
        spw_judge_count(judge,
                        spw_judge_equal((uint64_t)launched, some[i] == 0 || some[i] > all ? all : some[i]),
                        "blocks of a product that may take %zu multiprocessors", some[i]);
    }
}

static spw_status verify(const spw_gemm_case *c, int operation, bool transposed, spw_judge *judge) {
    static const size_t limits[] = {1, 7, 100};
    blocks k = {.c = c,
                .shape = {.experts = c->experts,
                          .rows = c->rows,
                          .in = c->in,
                          .out = c->out,
                          .transposed = transposed,
                          .element = c->element}};
    create(&k);
    if (operation == 0) count_blocks(&k, judge);
    const results want = operate(&k, operation, 0);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        compare(&k, operation, limits[i], &want, judge);
    if (k.pool.status == SPW_OK)
        spw_judge_count(judge, spw_pool_guards(&k.pool), "guards of %s, %s", names[operation], c->name);
    const spw_status status = k.pool.status;
    spw_pool_destroy(&k.pool);
    return status;
}

spw_status spw_verify_gemm_blocks(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    for (int operation = 0; operation < OPERATIONS; operation++) {
        if (operation >= IN_TURNS && operation < SWIGLU && spw_gemm_tile_variants->name == NULL) continue;
        for (int transposed = 0; transposed < 2 && status == SPW_OK; transposed++)
            status = verify(c, operation, transposed, judge);
    }
    return status;
}
