#include "kernels/gemm/grouped_gemm_strides.h"

#include <limits.h>
#include <stdint.h>

enum { PIECE = 16, ELEMENT = sizeof(spw_bf16), ELEMENTS = PIECE / ELEMENT }; /* bytes that copies move */

/* In bytes, as pairs of fp8's codes are elements here, too. */
spw_status spw_gemm_row_stride(spw_gemm_array a, int *out) {
    const size_t stride = a.stride == 0 ? a.width : a.stride;
    if (stride < a.width || stride % ELEMENTS != 0 || stride > INT_MAX / 2)
        return spw_fail(
            SPW_EARG,
            "%s: rows of %zu bytes begin %zu bytes apart; at least as many, a multiple of %d and less "
            "than 2^31 would be right",
            a.name, a.width * ELEMENT, stride * ELEMENT, PIECE);
    if ((uintptr_t)a.data % PIECE != 0)
        return spw_fail(SPW_EARG, "%s lies at %p; a multiple of %d bytes would be right", a.name, a.data,
                        PIECE);
    *out = (int)stride;
    return SPW_OK;
}

static spw_status expert_stride(size_t said, size_t experts, size_t height, size_t width, size_t row,
                                long *out) {
    const size_t stride = said == 0 ? height * row : said, most = (size_t)1 << 39;
    if (stride % ELEMENTS != 0 || stride > most || !spw_gemm_experts_fit(experts, height, width, row, stride))
        return spw_fail(
            SPW_EARG,
            "matrices of experts, %zu rows of %zu bytes that begin %zu apart, begin %zu bytes apart; a "
            "multiple of %d with which they do not overlap would be right",
            height, width * ELEMENT, row * ELEMENT, stride * ELEMENT, PIECE);
    *out = (long)stride;
    return SPW_OK;
}

spw_status spw_gemm_fill_strides(const spw_gemm_shape *s, spw_gemm_form form, int b_columns,
                                 spw_gemm_problem *p) {
    const bool weights = form == SPW_GEMM_WEIGHTS, swapped = weights && s->transposed;
    const size_t inner = (size_t)p->inner, b_wide = (size_t)b_columns, c_wide = (size_t)p->columns,
                 left = s->stride.left, right = s->stride.right;
    const bool b_inner = !weights && p->inner_contiguous;
    const spw_gemm_array a = {swapped ? "the right operand" : "the left operand", p->a, inner,
                              swapped ? right : left},
                         b = {swapped ? "the left operand" : "the right operand", p->b,
                              b_inner ? inner : b_wide, swapped ? left : right},
                         c = {"the result", p->c, c_wide, s->stride.result};
    spw_status status = spw_gemm_row_stride(a, &p->a_row);
    if (status == SPW_OK) status = spw_gemm_row_stride(b, &p->b_row);
    if (status == SPW_OK) status = spw_gemm_row_stride(c, &p->c_row);
    if (status != SPW_OK) return status;
    const size_t height = b_inner ? b_wide : inner;
    return expert_stride(s->stride.expert, s->experts, height, weights ? c_wide : b.width,
                         (size_t)(weights ? p->c_row : p->b_row), &p->expert);
}

spw_status spw_gemm_fill_gradient_strides(const spw_gemm_shape *s, const float *main, spw_gemm_problem *p) {
    const spw_status status = spw_gemm_fill_strides(s, SPW_GEMM_WEIGHTS, p->columns, p);
    if (status != SPW_OK) return status;
    return spw_gemm_row_stride((spw_gemm_array){"main", main, (size_t)p->columns, s->stride.result},
                               &p->c_row);
}

bool spw_gemm_writes_packed(const spw_gemm_problem *p) {
    return p->c_row == p->columns && p->expert == (long)p->inner * p->columns;
}

spw_status spw_gemm_refuse_strides(const char *what, spw_gemm_strides s) {
    if ((s.left | s.right | s.result | s.expert | s.h | s.d_h) == 0) return SPW_OK;
    return spw_fail(SPW_EARG, "%s of an array with a stride; packed ones would be right", what);
}
