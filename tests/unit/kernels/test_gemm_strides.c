/* Strides of a grouped GEMM's arrays: packed where nothing is said, and what is refused. */
#include "kernels/gemm/grouped_gemm_strides.h"
#include "tests/unit/check.h"

#include <string.h>

static _Alignas(16) spw_bf16 memory[64];
static const spw_gemm_shape packed = {.experts = 3, .rows = 5, .in = 24, .out = 40};

static spw_gemm_problem problem(int inner, int columns, int inner_contiguous) {
    return (spw_gemm_problem){.experts = 3,
                              .rows = 5,
                              .inner = inner,
                              .columns = columns,
                              .inner_contiguous = inner_contiguous,
                              .a = memory,
                              .b = memory + 8,
                              .c = memory + 16};
}

static bool is(const spw_gemm_problem *p, int a, int b, int c, long expert) {
    return p->a_row == a && p->b_row == b && p->c_row == c && p->expert == expert;
}

/* The message has these words. */
static bool refused(spw_gemm_strides stride, const char *words) {
    spw_gemm_shape s = packed;
    spw_gemm_problem p = problem(24, 40, 0);
    s.stride = stride;
    return spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_EARG &&
           strstr(spw_last_error(), words) != NULL;
}

static void check_packed(void) {
    spw_gemm_shape s = packed;
    spw_gemm_problem p = problem(24, 40, 0);
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_OK && is(&p, 24, 40, 40, 960));
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 80, &p) == SPW_OK &&
          is(&p, 24, 80, 40, 1920)); /* gate and up */
    p = problem(24, 40, 1);
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_OK && is(&p, 24, 24, 40, 960));
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_WEIGHTS, 40, &p) == SPW_OK && is(&p, 24, 40, 40, 960));
    CHECK(spw_gemm_writes_packed(&p));
}

static void check_said(void) {
    spw_gemm_shape s = packed;
    spw_gemm_problem p = problem(24, 40, 0);
    s.stride = (spw_gemm_strides){.left = 32, .right = 48, .result = 64};
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_OK && is(&p, 32, 48, 64, 24 * 48));
    s.stride.expert = 2000;
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_OK && is(&p, 32, 48, 64, 2000));
    s.stride.right = 3 * 40, s.stride.expert = 40; /* rows of experts side by side */
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_ROWS, 40, &p) == SPW_OK && is(&p, 32, 120, 64, 40));
    /* dw^T = dy^T x: a is the right operand, [rows][40]; c [40][24] */
    s = packed, s.transposed = true, p = problem(40, 24, 0);
    s.stride = (spw_gemm_strides){.left = 32, .right = 48, .result = 64};
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_WEIGHTS, 24, &p) == SPW_OK && is(&p, 48, 32, 64, 40 * 64));
    CHECK(!spw_gemm_writes_packed(&p));
    s.stride.result = 0, s.stride.expert = 968;
    CHECK(spw_gemm_fill_strides(&s, SPW_GEMM_WEIGHTS, 24, &p) == SPW_OK && is(&p, 48, 32, 24, 968));
    CHECK(!spw_gemm_writes_packed(&p));
}

static void check_refused(void) {
    CHECK(refused((spw_gemm_strides){.left = 16}, "the left operand: rows of 48 bytes begin 32 bytes apart"));
    CHECK(refused((spw_gemm_strides){.left = 28}, "a multiple of 16"));
    CHECK(refused((spw_gemm_strides){.right = 32}, "the right operand: rows of 80 bytes"));
    CHECK(refused((spw_gemm_strides){.right = 44}, "the right operand"));
    CHECK(refused((spw_gemm_strides){.result = 39}, "the result"));
    CHECK(refused((spw_gemm_strides){.result = 8}, "the result"));
    CHECK(refused((spw_gemm_strides){.left = (size_t)1 << 30}, "less than 2^31"));
    CHECK(refused((spw_gemm_strides){.expert = 964}, "matrices of experts")); /* no multiple of 8 */
    CHECK(refused((spw_gemm_strides){.expert = 952}, "24 rows of 80 bytes")); /* they overlap */
    CHECK(refused((spw_gemm_strides){.right = 112, .expert = 40},
                  "with which they do not overlap")); /* 3 x 40 are 120 */
    CHECK(refused((spw_gemm_strides){.right = 120, .expert = 32}, "with which they do not overlap"));
    CHECK(refused((spw_gemm_strides){.expert = (size_t)1 << 40}, "matrices of experts"));

    spw_gemm_problem p = problem(24, 40, 0);
    p.c = memory + 4;
    CHECK(spw_gemm_fill_strides(&packed, SPW_GEMM_ROWS, 40, &p) == SPW_EARG);
    CHECK(strstr(spw_last_error(), "the result lies at") != NULL &&
          strstr(spw_last_error(), "16 bytes") != NULL);
    int row = 0;
    CHECK(spw_gemm_row_stride((spw_gemm_array){"h", memory + 1, 40, 0}, &row) == SPW_EARG);
    CHECK(spw_gemm_row_stride((spw_gemm_array){"h", NULL, 40, 48}, &row) == SPW_OK && row == 48);
    CHECK(spw_gemm_refuse_strides("MXFP8", (spw_gemm_strides){.d_h = 8}) == SPW_EARG);
    CHECK(spw_gemm_refuse_strides("MXFP8", (spw_gemm_strides){0}) == SPW_OK);
}

int main(void) {
    check_packed(), check_said(), check_refused();
    return check_done();
}
