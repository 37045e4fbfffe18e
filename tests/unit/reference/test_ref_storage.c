/* bf16, fp16 and e4m3fn: every code, every boundary between two codes, and fp32 numbers sampled over all bits. The
 * oracle knows nothing of bits: it looks for the nearest code by value, ties to the even one. */
#include "base/memory.h"
#include "reference/bf16.h"
#include "reference/float8.h"
#include "reference/fp16.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <string.h>

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Positive numbers stand in the order of their codes, in all formats. The value of a code beyond the largest
 * number is what the next step would be: 2^128 for bf16, 2^16 for fp16, 480 for e4m3fn. */
static double bf16_value(unsigned code) {
    return code == 0x7f80 ? 0x1p128 : (double)spw_bf16_to_float((uint16_t)code);
}
static double fp16_value(unsigned code) {
    return code == 0x7c00 ? 0x1p16 : (double)spw_fp16_to_float((uint16_t)code);
}
static double float8_value(unsigned code) {
    return code == 0x7f ? 480.0 : (double)spw_float8_to_float((uint8_t)code);
}

/* The nearest code to x >= 0 among [0, last], ties to even. */
static unsigned nearest(double (*value)(unsigned), unsigned last, double x) {
    unsigned low = 0, high = last;
    if (x >= value(last)) return last;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (value(middle) <= x) low = middle;
        if (value(middle) > x) high = middle;
    }
    const double below = x - value(low), above = value(high) - x; /* exact: all have few bits */
    if (below == above) return low % 2 == 0 ? low : high;
    return below < above ? low : high;
}

static bool bf16_agrees(float x) {
    const unsigned sign = signbit(x) ? 0x8000 : 0, got = spw_bf16_from_float(x);
    if (isnan(x)) return got == (sign | 0x7fc0);
    if (isinf(x)) return got == (sign | 0x7f80);
    return got == (sign | nearest(bf16_value, 0x7f80, fabs((double)x)));
}

static bool fp16_agrees(float x) {
    const unsigned sign = signbit(x) ? 0x8000 : 0, got = spw_fp16_from_float(x);
    if (isnan(x)) return got == (sign | 0x7e00);
    return got == (sign | (isinf(x) ? 0x7c00 : nearest(fp16_value, 0x7c00, fabs((double)x))));
}

static bool float8_agrees(float x) {
    const unsigned sign = signbit(x) ? 0x80 : 0;
    const unsigned saturated = spw_float8_from_float(x, SPW_FLOAT8_SATURATE);
    const unsigned strict = spw_float8_from_float(x, SPW_FLOAT8_NAN);
    if (isnan(x)) return saturated == (sign | 0x7f) && strict == (sign | 0x7f);
    const unsigned want = isinf(x) ? 0x7f : nearest(float8_value, 0x7f, fabs((double)x));
    return strict == (sign | want) && saturated == (sign | (want == 0x7f ? 0x7e : want));
}

/* A code comes back as itself; the midpoint above it and its two neighbours round as they should. */
static void codes(double (*value)(unsigned), unsigned last, bool (*agrees)(float)) {
    for (unsigned code = 0; code < last; code++) {
        const double middle =
            (value(code) + value(code + 1)) / 2; /* an fp32 number, but for the very smallest */
        const float m = (float)middle,
                    points[] = {(float)value(code), nextafterf(m, 0.0f), m, nextafterf(m, INFINITY)};
        for (size_t i = 0; i < 4; i++) {
            CHECK(agrees(points[i]));
            CHECK(agrees(-points[i]));
        }
    }
}

/* Every 509th pattern of 32 bits, a prime, and all patterns around the special ones. */
static void sampled(bool (*agrees)(float)) {
    size_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (uint32_t n = 0; n < UINT32_MAX / 509; n++) wrong += !agrees(from_bits(n * 509u));
    CHECK(wrong == 0);
    const uint32_t special[] = {0,
                                0x00800000,
                                0x7f7fffff,
                                0x7f800000,
                                0x7fc00000,
                                0x43e80000 /* 464 */,
                                0x477ff000 /* 65520 */,
                                0x33000000 /* 2^-25 */,
                                0x38800000 /* 2^-14 */};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        for (uint32_t near = 0; near < 9; near++) {
            CHECK(agrees(from_bits(special[i] + near - 4)));
            CHECK(agrees(from_bits((special[i] + near - 4) ^ 0x80000000u)));
        }
    }
}

static void pencil(void) {
    CHECK(spw_bf16_from_float(1.0f) == 0x3f80);
    CHECK(spw_bf16_from_float(0x1.01p0f) == 0x3f80); /* tie, to even */
    CHECK(spw_bf16_from_float(0x1.03p0f) == 0x3f82); /* tie, to even */
    CHECK(spw_bf16_from_float(3.4028235e38f) == 0x7f80);
    CHECK(spw_bf16_to_float(0xc040) == -3.0f);
    CHECK(spw_float8_to_float(0x7e) == 448.0f);
    CHECK(spw_float8_to_float(0x01) == 0x1p-9f);
    CHECK(spw_float8_to_float(0x38) == 1.0f);
    CHECK(isnan(spw_float8_to_float(0x7f)) && isnan(spw_float8_to_float(0xff)));
    CHECK(spw_float8_from_float(464.0f, SPW_FLOAT8_NAN) == 0x7e);
    CHECK(spw_float8_from_float(0x1.d00002p8f, SPW_FLOAT8_NAN) == 0x7f);
    CHECK(spw_float8_from_float(-1000.0f, SPW_FLOAT8_SATURATE) == 0xfe);
    CHECK(spw_float8_from_float(0x1p-10f, SPW_FLOAT8_NAN) == 0); /* tie between 0 and the smallest */
    CHECK(spw_float8_from_float(0x1.000002p-10f, SPW_FLOAT8_NAN) == 1);
    CHECK(spw_float8_from_float(-0.0f, SPW_FLOAT8_NAN) == 0x80);
    for (unsigned code = 0; code < 0x10000; code++) {
        const float x = spw_bf16_to_float((uint16_t)code);
        if (!isnan(x)) CHECK(spw_bf16_from_float(x) == code);
    }
    for (unsigned code = 0; code < 0x100; code++) {
        const float x = spw_float8_to_float((uint8_t)code);
        if (!isnan(x)) CHECK(spw_float8_from_float(x, SPW_FLOAT8_NAN) == code);
    }
}

/* Signs, the smallest and the largest numbers, both ends, and every code back. */
static void pencil_fp16(void) {
    CHECK(spw_fp16_from_float(1.0f) == 0x3c00 && spw_fp16_from_float(-2.0f) == 0xc000);
    CHECK(spw_fp16_from_float(0x1.002p0f) == 0x3c00); /* tie, to even */
    CHECK(spw_fp16_from_float(0x1.006p0f) == 0x3c02); /* tie, to even */
    CHECK(spw_fp16_from_float(SPW_FP16_MAX) == 0x7bff && spw_fp16_to_float(0x7bff) == 65504.0f);
    CHECK(spw_fp16_from_float(65519.996f) == 0x7bff);
    CHECK(spw_fp16_from_float(65520.0f) == 0x7c00 && spw_fp16_from_float(-65520.0f) == 0xfc00);
    CHECK(spw_fp16_from_float(0x1p-24f) == 1 && spw_fp16_to_float(1) == 0x1p-24f);
    CHECK(spw_fp16_from_float(0x1p-25f) == 0); /* tie between 0 and the smallest */
    CHECK(spw_fp16_from_float(0x1.000002p-25f) == 1);
    CHECK(spw_fp16_from_float(0x1.ffcp-15f) ==
          0x400); /* tie between the largest subnormal number and 2^-14 */
    CHECK(spw_fp16_from_float(-0.0f) == 0x8000 && spw_fp16_from_float(-1e-30f) == 0x8000);
    CHECK(isinf(spw_fp16_to_float(0x7c00)) && isnan(spw_fp16_to_float(0x7c01)));
    for (unsigned code = 0; code < 0x10000; code++) {
        const float x = spw_fp16_to_float((uint16_t)code);
        if (!isnan(x)) CHECK(spw_fp16_from_float(x) == code);
    }
    float two[2] = {1.0002f, 1e9f};
    spw_fp16_round(two, 2, two);
    CHECK(two[0] == 1.0f && isinf(two[1]));
}

/* Quantized values are within half a step of e4m3 (2^-4 relative, 2^-10 of the scale near 0), and two small
 * rounding errors of fp32; a power-of-two multiple of the codes comes back exactly. */
static void blocks(size_t rows, size_t columns, bool tiles, uint64_t seed) {
    const size_t across = (columns + 127) / 128, down = tiles ? (rows + 127) / 128 : rows;
    float *x = NULL, *back = fenced_create(rows * columns), *scale = fenced_create(down * across);
    uint8_t *code = NULL;
    CHECK_OK(SPW_ALLOC(rows * columns, &x));
    CHECK_OK(SPW_ALLOC(rows * columns, &code));
    random_fill(&seed, random_uniform, x, rows * columns);
    for (size_t i = 0; i < rows * columns; i++) x[i] *= ldexpf(1.0f, (int)(i / 128 % 40) - 20);
    memset(x, 0, (columns < 128 ? columns : 128) * sizeof *x); /* a block of zeros when rows are blocks */
    (tiles ? spw_float8_quantize_tiles : spw_float8_quantize_rows)(x, rows, columns, code, scale);
    (tiles ? spw_float8_dequantize_tiles : spw_float8_dequantize_rows)(code, scale, rows, columns, back);
    CHECK_OK(fenced_check(scale, down * across));
    CHECK_OK(fenced_check(back, rows * columns));
    size_t wrong = 0;
    for (size_t i = 0; i < rows * columns; i++) {
        const double s =
            (double)scale[(tiles ? i / columns / 128 : i / columns) * across + i % columns / 128];
        const double limit = fmax(fabs((double)x[i]) * 0x1p-4, s * 0x1p-10) + fabs((double)x[i]) * 0x1p-22;
        wrong += !(fabs((double)back[i] - (double)x[i]) <= limit);
    }
    CHECK(wrong == 0);
    if (!tiles && rows > 0) CHECK(scale[0] == 1.0f);
    for (size_t i = 0; i < rows * columns; i++) x[i] = spw_float8_to_float((uint8_t)(i % 127)) * 4.0f;
    for (size_t r = 0; r < rows; r++) { /* the largest code in every block fixes the scale at 4 */
        for (size_t c = 0; c < columns; c += 128) x[r * columns + c] = SPW_FLOAT8_MAX * 4.0f;
    }
    (tiles ? spw_float8_quantize_tiles : spw_float8_quantize_rows)(x, rows, columns, code, scale);
    (tiles ? spw_float8_dequantize_tiles : spw_float8_dequantize_rows)(code, scale, rows, columns, back);
    CHECK_OK(compare_exact(back, x, rows * columns));
    spw_free(code), spw_free(x), fenced_destroy(scale), fenced_destroy(back);
}

/* Three experts of 130, 0 and 1 rows: they begin at blocks 0, 130 / 128 + 1 = 2 and 3, and there is room for 131 / 128 + 3 = 4. */
static void columns_pencil(void) {
    const size_t offset[] = {0, 130, 130, 131};
    const spw_float8_groups groups = {3, 132, offset}; /* row 131 is nobody's */
    float x[132 * 2] = {0}, back[132 * 2];
    uint8_t code[2 * 4 * 128];
    float scale[4 * 2];
    CHECK(spw_float8_column_blocks(3, 132) == 4 && spw_float8_column_blocks(3, 127) == 3);
    memset(code, 0x55, sizeof code), memset(scale, 0xff, sizeof scale), memset(back, 0, sizeof back);
    x[0] = 896, x[1] = -448, x[127 * 2] = 2;           /* block 0: scales 2 and 1 */
    x[129 * 2] = 4 * 448, x[130 * 2 + 1] = 448 / 2.0f; /* block 1, column 0; block 3, column 1 */
    x[131 * 2] = 1e9f;
    spw_float8_quantize_columns(groups, x, 2, code, scale);
    CHECK(scale[0] == 2 && scale[1] == 1 && scale[2] == 4 && scale[3] == 1 && scale[6] == 1 &&
          scale[7] == 0.5f);
    CHECK(isnan(scale[4]) && isnan(scale[5]) && code[2 * 128] == 0x55 && code[(4 + 2) * 128 + 127] == 0x55);
    CHECK(code[0] == 0x7e && code[127] == 0x38 && code[128] == 0 && code[129] == 0x7e && code[130] == 0);
    CHECK(code[4 * 128] == 0xfe && code[(4 + 3) * 128] == 0x7e && code[(4 + 3) * 128 + 1] == 0);
    CHECK(code[255] == 0 && code[3 * 128 + 127] == 0);
    spw_float8_dequantize_columns(groups, code, scale, 2, back);
    for (size_t i = 0; i < 131 * 2; i++) CHECK(back[i] == x[i]);
    CHECK(back[131 * 2] == 0);
}

/* A column of an expert is a row of its transpose. */
static void columns(size_t width, const size_t *offset, size_t experts, uint64_t seed) {
    const size_t rows = offset[experts] + 3, all = spw_float8_column_blocks(experts, rows);
    const spw_float8_groups groups = {experts, rows, offset};
    float *x = NULL, *turned = NULL, *want_scale = NULL, *back = fenced_create(rows * width),
          *scale = fenced_create(all * width);
    uint8_t *code = NULL, *want = NULL;
    CHECK_OK(SPW_ALLOC(rows * width, &x));
    CHECK_OK(SPW_ALLOC(rows * width, &turned));
    CHECK_OK(SPW_ALLOC(rows * width, &want));
    CHECK_OK(SPW_ALLOC(rows * width, &want_scale));
    CHECK_OK(SPW_ALLOC(all * 128 * width, &code));
    random_fill(&seed, random_uniform, x, rows * width);
    for (size_t i = 0; i < rows * width; i++) x[i] *= ldexpf(1.0f, (int)(i * 7 % 19) - 9);
    spw_float8_quantize_columns(groups, x, width, code, scale);
    spw_float8_dequantize_columns(groups, code, scale, width, back);
    size_t wrong = 0;
    for (size_t e = 0, block = 0; e < experts; e++) {
        const size_t count = offset[e + 1] - offset[e], across = (count + 127) / 128;
        for (size_t r = 0; r < count; r++)
            for (size_t c = 0; c < width; c++) turned[c * count + r] = x[(offset[e] + r) * width + c];
        spw_float8_quantize_rows(turned, width, count, want, want_scale);
        spw_float8_dequantize_rows(want, want_scale, width, count, turned);
        CHECK(block <= offset[e] / 128 + e); /* behind the expert before */
        block = offset[e] / 128 + e;
        for (size_t c = 0; c < width; c++) {
            for (size_t r = 0; r < across * 128; r++)
                wrong += code[c * all * 128 + block * 128 + r] != (r < count ? want[c * count + r] : 0);
            for (size_t r = 0; r < count; r++)
                wrong += back[(offset[e] + r) * width + c] != turned[c * count + r];
            for (size_t b = 0; b < across; b++)
                wrong += scale[(block + b) * width + c] != want_scale[c * across + b];
        }
        block += across;
        CHECK(block <= all);
    }
    CHECK(wrong == 0);
    spw_free(code), spw_free(x), spw_free(turned), spw_free(want), spw_free(want_scale);
    fenced_destroy(scale), fenced_destroy(back);
}

int main(void) {
    pencil();
    pencil_fp16();
    columns_pencil();
    codes(bf16_value, 0x7f80, bf16_agrees);
    codes(fp16_value, 0x7c00, fp16_agrees);
    codes(float8_value, 0x7f, float8_agrees);
    sampled(bf16_agrees);
    sampled(fp16_agrees);
    sampled(float8_agrees);
    const int threads[] = {1, 2, 7};
    for (size_t i = 0; i < 3; i++) {
        omp_set_num_threads(threads[i]);
        blocks(3, 300, false, 1), blocks(130, 257, true, 2), blocks(1, 1, true, 3), blocks(0, 5, false, 4);
        columns(5, (size_t[]){0, 128, 128, 383, 384, 700}, 5, 5),
            columns(3, (size_t[]){0, 127, 255, 383}, 3, 6);
        columns(1, (size_t[]){0, 0}, 1, 7);
    }
    return check_done();
}
