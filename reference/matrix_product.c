/* Compiled with -ffp-contract=fast, alone in this project: every product here is of two numbers that were
 * fp32, exact in fp64, so that fusing it with the addition cannot change a bit. */
#include "reference/matrix_product.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    TILE_ROWS = 12, /* 12 x 16 sums fill 24 of the 32 registers of AVX-512 */
    TILE_COLUMNS = 16,
    BLOCK_ROWS = 12 * TILE_ROWS, /* a, b and c of a block take 0.7 MiB as fp64 */
    BLOCK_COLUMNS = 12 * TILE_COLUMNS,
    BLOCK_TERMS = 192,
};

typedef void tile_function(size_t terms, const double *a, const double *b, double *c);

/* c[i][j] += sum over k of a[k][i] * b[k][j] for ROWS x (VECTORS * LANES) sums that live in registers;
 * a is a panel [terms][TILE_ROWS], b a panel [terms][TILE_COLUMNS], c has rows of BLOCK_COLUMNS. */
#define DEFINE_SUMS(name, LANES, ROWS, VECTORS) \
    static void name(size_t terms, const double *a, const double *b, double *c) { \
        typedef double lanes __attribute__((vector_size((LANES) * sizeof(double)), aligned(8))); \
        lanes sum[ROWS][VECTORS]; \
        _Pragma("GCC unroll 12") for (size_t i = 0; i < (ROWS); i++) \
            _Pragma("GCC unroll 2") for (size_t v = 0; v < (VECTORS); v++) sum[i][v] = \
                *(const lanes *)(c + i * BLOCK_COLUMNS + v * (LANES)); \
        for (size_t k = 0; k < terms; k++, a += TILE_ROWS, b += TILE_COLUMNS) \
            _Pragma("GCC unroll 12") for (size_t i = 0; i < (ROWS); i++) \
                _Pragma("GCC unroll 2") for (size_t v = 0; v < (VECTORS); v++) sum[i][v] += \
                a[i] * *(const lanes *)(b + v * (LANES)); \
        _Pragma("GCC unroll 12") for (size_t i = 0; i < (ROWS); i++) \
                _Pragma("GCC unroll 2") for (size_t v = 0; v < (VECTORS); v++) * \
            (lanes *)(c + i * BLOCK_COLUMNS + v * (LANES)) = sum[i][v]; \
    }

DEFINE_SUMS(sums_baseline, 2, 4, 2)

static void tile_baseline(size_t terms, const double *a, const double *b, double *c) {
    for (size_t i = 0; i < TILE_ROWS; i += 4) {
        for (size_t j = 0; j < TILE_COLUMNS; j += 4) {
            sums_baseline(terms, a + i, b + j, c + i * BLOCK_COLUMNS + j);
        }
    }
}

#ifdef __x86_64__
__attribute__((target("avx2,fma"))) DEFINE_SUMS(sums_v3, 4, 6, 2)
    __attribute__((target("avx512f,avx512vl,fma"))) DEFINE_SUMS(tile_v4, 8, 12, 2)

        static void tile_v3(size_t terms, const double *a, const double *b, double *c) {
    for (size_t i = 0; i < TILE_ROWS; i += 6) {
        for (size_t j = 0; j < TILE_COLUMNS; j += 8) {
            sums_v3(terms, a + i, b + j, c + i * BLOCK_COLUMNS + j);
        }
    }
}

static bool has_v4(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}
static bool has_v3(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
static tile_function *const tile_v4 = tile_baseline, *const tile_v3 = tile_baseline;
static bool has_v4(void) { return false; }
static bool has_v3(void) { return false; }
#endif

const char *spw_ref_product_isa(void) { return has_v4() ? "x86-64-v4" : has_v3() ? "x86-64-v3" : "baseline"; }

static size_t min(size_t a, size_t b) { return a < b ? a : b; }
static size_t blocks(size_t count, size_t size) { return count / size + (count % size != 0); }
static double value(float x, bool magnitude) { return magnitude ? fabs((double)x) : (double)x; }

/* panel[j / width][k][j % width] = m(j, k) as fp64, for j < count, k < terms; the last panel is filled with
 * zeros. The inner loop follows the memory of m. */
static void pack(spw_matrix m, size_t count, size_t terms, size_t width, bool magnitude, double *panel) {
    const size_t last = count / width * width;
    if (last < count) memset(panel + last * terms, 0, width * terms * sizeof *panel);
    for (size_t k = 0; k < terms && m.row == 1; k++) {
        const float *from = m.at + k * m.column;
        for (size_t j = 0; j < count; j += width) {
            double *to = panel + j * terms + k * width;
            for (size_t i = 0; i < min(width, count - j); i++) to[i] = value(from[j + i], magnitude);
        }
    }
    for (size_t j = 0; j < count && m.row != 1; j++) {
        const float *from = m.at + j * m.row;
        double *to = panel + j / width * width * terms + j % width;
        for (size_t k = 0; k < terms; k++) to[k * width] = value(from[k * m.column], magnitude);
    }
}

static spw_matrix moved(spw_matrix m, size_t i, size_t j) {
    m.at += i * m.row + j * m.column;
    return m;
}

size_t spw_ref_product_blocks(const spw_product *p) {
    return blocks(p->rows, BLOCK_ROWS) * blocks(p->columns, BLOCK_COLUMNS);
}

/* fp64 numbers of the three parts of a workspace; c has rows of BLOCK_COLUMNS. */
typedef struct parts {
    size_t a, b, c;
} parts;

static parts parts_of(const spw_product *p) {
    const size_t rows = blocks(min(BLOCK_ROWS, p->rows), TILE_ROWS) * TILE_ROWS;
    const size_t columns = blocks(min(BLOCK_COLUMNS, p->columns), TILE_COLUMNS) * TILE_COLUMNS;
    const size_t terms = min(BLOCK_TERMS, p->terms);
    return (parts){rows * terms, columns * terms, rows * BLOCK_COLUMNS};
}

size_t spw_ref_product_workspace(const spw_product *p) {
    const parts n = parts_of(p);
    return n.a + n.b + n.c;
}

/* The sums of one block in fp64, or of the magnitudes. */
static void block_sums(const spw_product *p, size_t row, size_t column, bool magnitude, double *a, double *b,
                       double *c) {
    tile_function *tile = has_v4() ? tile_v4 : has_v3() ? tile_v3 : tile_baseline;
    const size_t rows = min(BLOCK_ROWS, p->rows - row), columns = min(BLOCK_COLUMNS, p->columns - column);
    const spw_matrix b_transposed = {p->b.at, p->b.column, p->b.row};
    memset(c, 0, parts_of(p).c * sizeof *c);
    for (size_t k = 0; k < p->terms; k += BLOCK_TERMS) {
        const size_t terms = min(BLOCK_TERMS, p->terms - k);
        pack(moved(p->a, row, k), rows, terms, TILE_ROWS, magnitude, a);
        pack(moved(b_transposed, column, k), columns, terms, TILE_COLUMNS, magnitude, b);
        for (size_t j = 0; j < columns; j += TILE_COLUMNS) {
            for (size_t i = 0; i < rows; i += TILE_ROWS) {
                tile(terms, a + i * terms, b + j * terms, c + i * BLOCK_COLUMNS + j);
            }
        }
    }
}

void spw_ref_product_block(const spw_product *p, size_t block, double *workspace) {
    const size_t across = blocks(p->columns, BLOCK_COLUMNS);
    const size_t row = block / across * BLOCK_ROWS, column = block % across * BLOCK_COLUMNS;
    const size_t rows = min(BLOCK_ROWS, p->rows - row), columns = min(BLOCK_COLUMNS, p->columns - column);
    const parts n = parts_of(p);
    double *a = workspace, *b = a + n.a, *c = b + n.b;
    float *const result[] = {p->c, p->scale};
    for (int magnitude = 0; magnitude < 2; magnitude++) {
        float *to = result[magnitude];
        if (to == NULL) continue;
        block_sums(p, row, column, magnitude == 1, a, b, c);
        to += row * p->c_row + column * p->c_column;
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < columns; j++) {
                to[i * p->c_row + j * p->c_column] = (float)c[i * BLOCK_COLUMNS + j];
            }
        }
    }
}
