/* Products of fp8 whose rows lie apart: bit by bit what the packed ones give, which spw_verify_gemm_float8 compares with the reference. What lies
 * between rows are codes of NaN, and must stay poison in results. */
#include "kernels/gpu/device_pool.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/strides/view.h"
#include "kernels/verify/verify_gemm.h"
#include "reference/bf16.h"
#include "reference/float8.h"

enum { SEED_A = 101, SEED_B, SEED_SCALES, SEED_OFFSETS, APART_A = 48, APART_B = 16, APART_RESULT = 40 };

typedef struct float8 {
    const spw_gemm_case *c;
    spw_device_pool pool;
    bool ignores; /* kernels are told that rows are packed */
    spw_judge *judge;
    int *offset;
    float *scale; /* enough for either operand */
} float8;

/* Codes, but those of NaN. */
static unsigned char *codes(float8 *k, spw_view view, uint64_t seed) {
    const size_t n = spw_view_count(view);
    unsigned char *code = spw_pool_host(&k->pool, n);
    for (size_t i = 0; k->pool.status == SPW_OK && i < n; i++) {
        code[i] = (unsigned char)spw_number_bits(seed, i);
        if ((code[i] & 0x7f) == 0x7f) code[i] ^= 1;
    }
    return code;
}

static void create(float8 *k, size_t scales) {
    const spw_gemm_case *c = k->c;
    size_t *offset = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *offset);
    int *offset32 = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *offset32);
    float *scale = spw_pool_host(&k->pool, scales * sizeof *scale);
    if (k->pool.status != SPW_OK) return;
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_OFFSETS, offset, offset32);
    for (size_t i = 0; i < scales; i++) scale[i] = 0.5f + (float)(spw_number_bits(SEED_SCALES, i) % 64) / 64;
    k->offset = spw_pool_device(&k->pool, (c->experts + 1) * sizeof *offset32, offset32);
    k->scale = spw_pool_device(&k->pool, scales * sizeof *scale, scale);
}

/* Of a result, packed and with rows apart; elements of `size` bytes. */
static void compare(float8 *k, const char *what, size_t size, spw_view packed, const void *want,
                    spw_view apart, const void *got) {
    void *a = NULL, *b = NULL;
    spw_status verdict = spw_view_fetch(&k->pool, packed, size, want, &a);
    if (verdict == SPW_OK) verdict = spw_view_fetch(&k->pool, apart, size, got, &b);
    if (k->pool.status != SPW_OK) return;
    if (verdict == SPW_OK) verdict = spw_judge_bytes(spw_view_count(apart), size, b, a);
    if (verdict == SPW_OK) verdict = spw_pool_guards(&k->pool);
    spw_judge_count(k->judge, verdict, "%s, %s, %s, rows apart", what, k->c->name,
                    spw_routing_names[k->c->routing]);
}

static size_t blocks(size_t n) { return (n + SPW_FLOAT8_BLOCK - 1) / SPW_FLOAT8_BLOCK; }

static void product(float8 *k, const spw_gemm_float8_variant *variant) {
    const spw_gemm_case *c = k->c;
    const spw_view x[2] = {spw_view_of(1, c->rows, c->in, 0, false),
                           spw_view_of(1, c->rows, c->in, APART_A, false)},
                   w[2] = {spw_view_of(c->experts, c->out, c->in, 0, false),
                           {c->experts, c->out, c->in, c->in + APART_B, c->out * (c->in + APART_B) + 32}},
                   y[2] = {spw_view_of(1, c->rows, c->out, 0, false),
                           spw_view_of(1, c->rows, c->out, APART_RESULT, false)};
    const unsigned char *x_code = codes(k, x[0], SEED_A), *w_code = codes(k, w[0], SEED_B);
    spw_bf16 *result[2] = {NULL, NULL};
    const size_t of_x = (c->rows * blocks(c->in) + 3) / 4 * 4; /* of 16 bytes */
    create(k, of_x + c->experts * blocks(c->out) * blocks(c->in));
    for (int apart = 0; apart < 2; apart++) {
        spw_gemm_shape s = {
            .experts = c->experts, .rows = c->rows, .in = c->in, .out = c->out, .transposed = true};
        if (apart && !k->ignores)
            s.stride = (spw_gemm_strides){
                .left = x[1].row, .right = w[1].row, .expert = w[1].expert, .result = y[1].row};
        const unsigned char *a = spw_view_upload(&k->pool, x[apart], 1, x_code),
                            *b = spw_view_upload(&k->pool, w[apart], 1, w_code);
        result[apart] = spw_view_upload(&k->pool, y[apart], sizeof(spw_bf16), NULL);
        if (k->pool.status == SPW_OK)
            k->pool.status =
                spw_gpu_grouped_gemm_float8(variant, s, a, k->scale, b, k->scale + c->rows * blocks(c->in),
                                            k->offset, result[apart], NULL);
    }
    if (k->pool.status == SPW_OK)
        compare(k, variant->name, sizeof(spw_bf16), y[0], result[0], y[1], result[1]);
}

/* Results of the gradient of weights, rounded and added. */
static void gradient(float8 *k, const spw_gemm_float8_variant *variant, bool adds) {
    const spw_gemm_case *c = k->c;
    const size_t all = c->rows / SPW_FLOAT8_BLOCK + c->experts,
                 size = adds ? sizeof(float) : sizeof(spw_bf16);
    const spw_view x = spw_view_of(1, c->in, all * SPW_FLOAT8_BLOCK, 0, false),
                   dy = spw_view_of(1, c->out, all * SPW_FLOAT8_BLOCK, 0, false),
                   dw[2] = {spw_view_of(c->experts, c->in, c->out, 0, false),
                            spw_view_of(c->experts, c->in, c->out, APART_RESULT, false)};
    const unsigned char *a = spw_view_upload(&k->pool, x, 1, codes(k, x, SEED_A)),
                        *b = spw_view_upload(&k->pool, dy, 1, codes(k, dy, SEED_B));
    const float *zeros = spw_pool_host(&k->pool, spw_view_count(dw[0]) * sizeof *zeros);
    void *result[2] = {NULL, NULL};
    create(k, all * (c->in + c->out));
    for (int apart = 0; apart < 2; apart++) {
        spw_gemm_shape s = {.experts = c->experts, .rows = c->rows, .in = c->in, .out = c->out};
        if (apart && !k->ignores) s.stride.result = dw[1].row, s.stride.expert = dw[1].expert;
        result[apart] = spw_view_upload(&k->pool, dw[apart], size, adds ? zeros : NULL);
        const spw_gemm_float8_gradient g = {.x = a,
                                            .dy = b,
                                            .x_scale = k->scale,
                                            .dy_scale = k->scale + all * c->in,
                                            .offset = k->offset,
                                            .dw = adds ? NULL : result[apart],
                                            .main = adds ? result[apart] : NULL};
        if (k->pool.status == SPW_OK)
            k->pool.status = spw_gpu_grouped_gemm_float8_weight_gradient(variant, s, &g, NULL);
    }
    if (k->pool.status == SPW_OK) compare(k, variant->name, size, dw[0], result[0], dw[1], result[1]);
}

static spw_status verify(const spw_gemm_case *c, bool ignores, spw_judge *judge) {
    spw_status status = SPW_OK;
    if (c->element != SPW_GEMM_BF16 || c->in % 16 != 0) return SPW_OK;
    for (const spw_gemm_float8_variant *v = spw_gemm_float8_variants; v->name != NULL; v++)
        for (int part = 0; part < 3 && status == SPW_OK; part++) {
            float8 k = {.c = c, .ignores = ignores, .judge = judge};
            if (part == 0)
                product(&k, v);
            else
                gradient(&k, v, part == 2);
            status = k.pool.status;
            spw_pool_destroy(&k.pool);
        }
    return status;
}

spw_status spw_verify_float8_strides(const spw_gemm_case *c, spw_judge *judge) {
    return verify(c, false, judge);
}
spw_status spw_verify_float8_strides_wrong(const spw_gemm_case *c, spw_judge *judge) {
    return verify(c, true, judge);
}
