#include "reference/float8.h"

#include <math.h>
#include <string.h>

enum { NAN_CODE = 0x7f, LARGEST_CODE = 0x7e, BIAS = 7, MANTISSA_BITS = 3 };

uint8_t spw_float8_from_float(float x, spw_float8_overflow overflow) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const unsigned sign = u >> 24 & 0x80u;
    const float magnitude = fabsf(x);
    if (isnan(x)) return (uint8_t)(sign | NAN_CODE);
    if (magnitude > 464.0f) {
        return (uint8_t)(sign | (overflow == SPW_FLOAT8_SATURATE ? LARGEST_CODE : NAN_CODE));
    }
    /* The number of steps of size 2^(exponent - 3), rounded to even by rintf; exponent stops at the
     * subnormals. */
    int exponent = 0;
    frexpf(magnitude, &exponent);
    exponent = magnitude < ldexpf(1.0f, 1 - BIAS) ? 1 - BIAS : exponent - 1;
    const unsigned steps = (unsigned)rintf(ldexpf(magnitude, MANTISSA_BITS - exponent));
    /* steps in [8, 16] carry the hidden bit, and 16 carries into the next exponent by itself */
    return (uint8_t)(sign | (((unsigned)(exponent + BIAS - 1) << MANTISSA_BITS) + steps));
}

float spw_float8_to_float(uint8_t bits) {
    const float sign = bits & 0x80 ? -1.0f : 1.0f;
    const int code = bits & 0x7f, exponent = code >> MANTISSA_BITS, mantissa = code & 7;
    if (code == NAN_CODE) return copysignf(NAN, sign);
    if (exponent == 0) return sign * ldexpf((float)mantissa, 1 - BIAS - MANTISSA_BITS);
    return sign * ldexpf((float)(8 + mantissa), exponent - BIAS - MANTISSA_BITS);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }
static size_t blocks(size_t count) { return count / SPW_FLOAT8_BLOCK + (count % SPW_FLOAT8_BLOCK != 0); }

/* Quantizes rows x columns of an array whose rows are `stride` apart, with one scale for all. */
static float quantize(const float *x, size_t rows, size_t columns, size_t stride, uint8_t *code) {
    float largest = 0.0f;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) largest = fmaxf(largest, fabsf(x[r * stride + c]));
    }
    const float ratio = largest / SPW_FLOAT8_MAX, scale = ratio > 0.0f ? ratio : 1.0f;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            code[r * stride + c] = spw_float8_from_float(x[r * stride + c] / scale, SPW_FLOAT8_SATURATE);
        }
    }
    return scale;
}

/* Tiles of `height` x 128. One thread owns one row of tiles. */
static void quantize_tiles(const float *x, size_t rows, size_t columns, size_t height, uint8_t *code,
                           float *scale) {
    const size_t across = blocks(columns), down = rows / height + (rows % height != 0);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < down; i++) {
        for (size_t j = 0; j < across; j++) {
            const size_t row = i * height, column = j * SPW_FLOAT8_BLOCK, at = row * columns + column;
            scale[i * across + j] = quantize(x + at, min(height, rows - row),
                                             min(SPW_FLOAT8_BLOCK, columns - column), columns, code + at);
        }
    }
}

static void dequantize_tiles(const uint8_t *code, const float *scale, size_t rows, size_t columns,
                             size_t height, float *x) {
    const size_t across = blocks(columns);
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            x[r * columns + c] = spw_float8_to_float(code[r * columns + c]) *
                                 scale[r / height * across + c / SPW_FLOAT8_BLOCK];
        }
    }
}

void spw_float8_quantize_rows(const float *x, size_t rows, size_t columns, uint8_t *code, float *scale) {
    quantize_tiles(x, rows, columns, 1, code, scale);
}
void spw_float8_dequantize_rows(const uint8_t *code, const float *scale, size_t rows, size_t columns,
                                float *x) {
    dequantize_tiles(code, scale, rows, columns, 1, x);
}
void spw_float8_quantize_tiles(const float *x, size_t rows, size_t columns, uint8_t *code, float *scale) {
    quantize_tiles(x, rows, columns, SPW_FLOAT8_BLOCK, code, scale);
}
void spw_float8_dequantize_tiles(const uint8_t *code, const float *scale, size_t rows, size_t columns,
                                 float *x) {
    dequantize_tiles(code, scale, rows, columns, SPW_FLOAT8_BLOCK, x);
}

size_t spw_float8_column_blocks(size_t experts, size_t rows) { return rows / SPW_FLOAT8_BLOCK + experts; }

/* Where an expert's rows are in the arrays by columns. */
static size_t first_block(spw_float8_groups g, size_t expert) {
    return g.offset[expert] / SPW_FLOAT8_BLOCK + expert;
}

/* `rows` numbers of a column, `stride` apart, as a block of codes. */
static float quantize_block(const float *x, size_t rows, size_t stride, uint8_t *code) {
    float numbers[SPW_FLOAT8_BLOCK] = {0};
    for (size_t r = 0; r < rows; r++) numbers[r] = x[r * stride];
    return quantize(numbers, 1, SPW_FLOAT8_BLOCK, SPW_FLOAT8_BLOCK, code);
}

void spw_float8_quantize_columns(spw_float8_groups g, const float *x, size_t width, uint8_t *code,
                                 float *scale) {
    const size_t all = spw_float8_column_blocks(g.experts, g.rows);
#pragma omp parallel for schedule(static)
    for (size_t c = 0; c < width; c++) {
        for (size_t e = 0; e < g.experts; e++) {
            const size_t rows = g.offset[e + 1] - g.offset[e], first = first_block(g, e);
            for (size_t b = 0; b < blocks(rows); b++) {
                const size_t from = b * SPW_FLOAT8_BLOCK;
                scale[(first + b) * width + c] =
                    quantize_block(x + (g.offset[e] + from) * width + c, min(SPW_FLOAT8_BLOCK, rows - from),
                                   width, code + (c * all + first + b) * SPW_FLOAT8_BLOCK);
            }
        }
    }
}

void spw_float8_dequantize_columns(spw_float8_groups g, const uint8_t *code, const float *scale, size_t width,
                                   float *x) {
    const size_t all = spw_float8_column_blocks(g.experts, g.rows);
#pragma omp parallel for schedule(static)
    for (size_t c = 0; c < width; c++) {
        for (size_t e = 0; e < g.experts; e++) {
            for (size_t r = g.offset[e]; r < g.offset[e + 1]; r++) {
                const size_t at = r - g.offset[e], block = first_block(g, e) + at / SPW_FLOAT8_BLOCK;
                x[r * width + c] =
                    spw_float8_to_float(code[(c * all + block) * SPW_FLOAT8_BLOCK + at % SPW_FLOAT8_BLOCK]) *
                    scale[block * width + c];
            }
        }
    }
}
