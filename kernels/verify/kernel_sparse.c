#include "kernels/verify/kernel_sparse.h"

#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/kernel_operands.h"
#include "kernels/verify/kernel_sparse_rows.h"
#include "reference/bf16.h"
#include "reference/grouped_gemm.h"

#include <stdio.h>
#include <string.h>

enum { SEED_LEFT = 41, SEED_RIGHT, ROWS_OF_EXPERT = 2, MANY = (1 << 24) + 48 };

/* A product's rows are spread over its experts evenly; `alone`: a few experts have two rows each, the others none. tokens and in of
 * other kernels: rows and in. */
static const struct {
    spw_kernel kernel;
    const char *name;
    size_t experts, rows, in, out;
    bool transposed, alone;
} cases[] = {
    {SPW_KERNEL_GROUPED_GEMM, "2^24 + 48 rows, 8 -> 8", 4, MANY, 8, 8, false, false},
    {SPW_KERNEL_GROUPED_GEMM, "x beyond 2^31: 8200 rows, 262144 -> 1", 2, 8200, 262144, 1, false, false},
    {SPW_KERNEL_GROUPED_GEMM, "y beyond 2^31: 262152 rows, 1 -> 8192", 2, 262152, 1, 8192, false, false},
    {SPW_KERNEL_GROUPED_GEMM, "w beyond 2^32: 65600 experts, 256 -> 256, [in][out]", 65600, 0, 256, 256,
     false, true},
    {SPW_KERNEL_GROUPED_GEMM, "w beyond 2^32: 65600 experts, 256 -> 256, [out][in]", 65600, 0, 256, 256, true,
     true},
    {SPW_KERNEL_INPUT_GRADIENT, "2^24 + 48 rows, 8 -> 8", 4, MANY, 8, 8, false, false},
    {SPW_KERNEL_INPUT_GRADIENT, "dy beyond 2^31: 8200 rows, 1 -> 262144", 2, 8200, 1, 262144, false, false},
    {SPW_KERNEL_INPUT_GRADIENT, "dx beyond 2^31: 262152 rows, 8192 -> 1", 2, 262152, 8192, 1, false, false},
    {SPW_KERNEL_INPUT_GRADIENT, "w beyond 2^32: 65600 experts, 256 -> 256, [in][out]", 65600, 0, 256, 256,
     false, true},
    {SPW_KERNEL_INPUT_GRADIENT, "w beyond 2^32: 65600 experts, 256 -> 256, [out][in]", 65600, 0, 256, 256,
     true, true},
    {SPW_KERNEL_WEIGHT_GRADIENT, "2^24 + 48 rows, 8 -> 8", 4, MANY, 8, 8, false, false},
    {SPW_KERNEL_WEIGHT_GRADIENT, "x beyond 2^31: 2^28 + 8 rows, 8 -> 1", 2, (1 << 28) + 8, 8, 1, false,
     false},
    {SPW_KERNEL_WEIGHT_GRADIENT, "dw beyond 2^31: 32800 experts, 256 -> 256", 32800, 0, 256, 256, false,
     true},
    {SPW_KERNEL_PERMUTE, "2^24 + 48 tokens of 8", 4, MANY, 8, 8, false, false},
    {SPW_KERNEL_PERMUTE, "x beyond 2^31: 262152 tokens of 8192", 4, 262152, 8192, 8192, false, false},
    {SPW_KERNEL_UNPERMUTE, "2^24 + 48 rows of 8", 4, MANY, 8, 8, false, false},
    {SPW_KERNEL_UNPERMUTE, "rows beyond 2^31: 262152 of 8192", 4, 262152, 8192, 8192, false, false},
    {SPW_KERNEL_SWIGLU, "2^24 + 48 rows of 8", 1, MANY, 8, 8, false, false},
    {SPW_KERNEL_ROUTER, "2^24 + 48 tokens, 8 experts, softmax", 8, MANY, 8, 8, false, false},
    {SPW_KERNEL_DISPATCH, "x beyond 2^31: 2 ranks x 131076 tokens of 8192", 4, 131076, 8192, 8192, false,
     false},
    {SPW_KERNEL_COMBINE, "y beyond 2^31: 2 ranks x 131076 tokens of 8192", 4, 131076, 8192, 8192, false,
     false},
};
enum { CASES = sizeof cases / sizeof *cases };

size_t spw_kernel_sparse_count(spw_kernel kernel) {
    size_t count = 0;
    for (size_t i = 0; i < CASES; i++) count += cases[i].kernel == kernel;
    return count;
}

/* --- Products --- */

/* The small product of the rows that are not zero; and who its experts and rows are in the large one. */
typedef struct small_product {
    spw_gemm_shape shape;
    size_t offset[SPW_KERNEL_SAMPLES + 1];
    spw_sparse_rows rows, experts; /* width is set by who uses them */
    float *left, *right;
} small_product;

static spw_status spread_rows(spw_kernel_case *c, bool alone, small_product *p) {
    spw_kernel_call *s = &c->call;
    spw_sparse_rows *experts = &p->experts, *rows = &p->rows;
    const spw_status status = SPW_ALLOC(s->experts + 1, &c->offset);
    if (status != SPW_OK) return status;
    experts->rows = s->experts;
    experts->places = spw_sparse_places(s->experts, s->in * s->out, experts->place);
    if (alone) s->rows = experts->places * ROWS_OF_EXPERT;
    rows->rows = s->rows;
    if (alone) {
        for (size_t r = 0; r < s->rows; r++) rows->place[r] = r;
        rows->places = s->rows;
    } else {
        rows->places = spw_sparse_places(s->rows, s->in > s->out ? s->in : s->out, rows->place);
        for (size_t e = 0; e < s->experts; e++) experts->place[e] = e;
        experts->places = s->experts;
    }
    for (size_t e = 0, used = 0; e < s->experts; e++) {
        const bool here = alone && used < experts->places && experts->place[used] == e;
        used += here;
        c->offset[e + 1] =
            alone ? c->offset[e] + (here ? ROWS_OF_EXPERT : 0) : (int32_t)(s->rows * (e + 1) / s->experts);
    }
    for (size_t k = 0, r = 0; k < experts->places; k++) {
        while (r < rows->places && rows->place[r] < (size_t)c->offset[experts->place[k] + 1]) r++;
        p->offset[k + 1] = r;
    }
    s->offset = c->offset;
    c->offsets = s->experts + 1;
    p->shape = (spw_gemm_shape){.experts = experts->places,
                                .rows = rows->places,
                                .in = s->in,
                                .out = s->out,
                                .transposed = s->transposed != 0};
    return SPW_OK;
}

static spw_status make_product(spw_kernel_case *c, bool alone) {
    const spw_kernel_call *s = &c->call;
    const bool forward = s->kernel == SPW_KERNEL_GROUPED_GEMM,
               gradient = s->kernel == SPW_KERNEL_WEIGHT_GRADIENT;
    small_product p = {.left = NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spread_rows(c, alone, &p));
    p.experts.width = s->in * s->out;
    p.rows.width = s->kernel == SPW_KERNEL_INPUT_GRADIENT ? s->out : s->in;
    SPW_TRY(spw_sparse_rows_make(c, 0, &p.rows, SEED_LEFT, &p.left));
    if (gradient) {
        p.rows.width = s->out;
        SPW_TRY(spw_sparse_rows_make(c, 1, &p.rows, SEED_RIGHT, &p.right));
        SPW_TRY(spw_sparse_output_make(c, &p.experts));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(p.shape, p.left, p.right, p.offset, c->want, c->scale));
    } else {
        SPW_TRY(spw_sparse_rows_make(c, 1, &p.experts, SEED_RIGHT, &p.right));
        p.rows.width = forward ? s->out : s->in;
        SPW_TRY(spw_sparse_output_make(c, &p.rows));
        SPW_TRY((forward ? spw_ref_grouped_gemm : spw_ref_grouped_gemm_input_gradient)(
            p.shape, p.left, p.right, p.offset, c->want, c->scale));
    }
    c->terms = 1;
    c->exact = true;

cleanup:
    spw_free(p.left), spw_free(p.right);
    return status;
}

/* --- A case --- */

spw_status spw_kernel_sparse_make(spw_kernel_case *c, size_t number) {
    static spw_status (*const of_rows[SPW_KERNELS])(spw_kernel_case *) = {
        [SPW_KERNEL_PERMUTE] = spw_sparse_make_permute,   [SPW_KERNEL_UNPERMUTE] = spw_sparse_make_unpermute,
        [SPW_KERNEL_SWIGLU] = spw_sparse_make_swiglu,     [SPW_KERNEL_ROUTER] = spw_sparse_make_router,
        [SPW_KERNEL_DISPATCH] = spw_sparse_make_dispatch, [SPW_KERNEL_COMBINE] = spw_sparse_make_combine};
    size_t at = 0;
    for (size_t before = 0; before < number || cases[at].kernel != c->call.kernel; at++)
        before += cases[at].kernel == c->call.kernel;
    spw_kernel_call *s = &c->call;
    s->experts = cases[at].experts, s->rows = s->tokens = cases[at].rows;
    s->in = cases[at].in, s->out = cases[at].out, s->top_k = 1, s->transposed = cases[at].transposed;
    (void)snprintf(c->name, sizeof c->name, "%s", cases[at].name);
    const spw_status status =
        of_rows[s->kernel] != NULL ? of_rows[s->kernel](c) : make_product(c, cases[at].alone);
    for (size_t i = 0; i < SPW_KERNEL_INPUTS && status == SPW_OK; i++)
        if (c->sparse[i].memory != NULL) spw_sparse_seal(&c->sparse[i]);
    return status;
}
