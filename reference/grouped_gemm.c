#include "reference/grouped_gemm.h"

#include "base/memory.h"
#include "reference/grouped_gemm_plain.h"
#include "reference/matrix_product.h"

#include <omp.h>
#include <stdint.h>
#include <string.h>

/* Runs all blocks of all products; first[e] counts the blocks before product e. One thread owns one block. */
static spw_status run(size_t count, const spw_product *product, size_t *first) {
    size_t stride = 0;
    first[0] = 0;
    for (size_t e = 0; e < count; e++) {
        const size_t needed = spw_ref_product_workspace(&product[e]);
        first[e + 1] = first[e] + spw_ref_product_blocks(&product[e]);
        if (needed > stride) stride = needed;
    }
    const size_t blocks = first[count], most = (size_t)omp_get_max_threads(),
                 threads = blocks < most ? blocks : most;
    double *workspace = NULL;
    if (blocks == 0) return SPW_OK;
    spw_status status = SPW_ALLOC(threads * stride, &workspace);
    if (status != SPW_OK) return status;
#pragma omp parallel num_threads((int)threads)
    {
        size_t e = 0; /* monotonic: a thread's blocks ascend, and so does its expert */
#pragma omp for schedule(monotonic : dynamic)
        for (size_t block = 0; block < blocks; block++) {
            while (block >= first[e + 1]) e++;
            spw_ref_product_block(&product[e], block - first[e],
                                  workspace + (size_t)omp_get_thread_num() * stride);
        }
    }
    spw_free(workspace);
    return SPW_OK;
}

static float *at(float *array, size_t i) { return array == NULL ? NULL : array + i; }

static void clear(float *array, size_t from, size_t to) {
    if (array != NULL && to > from) memset(array + from, 0, (to - from) * sizeof *array);
}

/* Operands of all experts; and of one expert its rows. */
typedef struct operands {
    const float *a, *b;
    float *c, *scale;
} operands;
typedef struct expert_rows {
    size_t e, first, rows;
} expert_rows;

typedef spw_product product_of(spw_gemm_shape s, expert_rows of, const operands *o);

/* c = a b, of rows x and weights w. */
static spw_product forward_product(spw_gemm_shape s, expert_rows of, const operands *o) {
    const size_t first = of.first;
    const size_t in_step = s.transposed ? 1 : s.out, out_step = s.transposed ? s.in : 1;
    return (spw_product){.rows = of.rows,
                         .columns = s.out,
                         .terms = s.in,
                         .a = {o->a + first * s.in, s.in, 1},
                         .b = {o->b + of.e * s.in * s.out, in_step, out_step},
                         .c = o->c + first * s.out,
                         .scale = at(o->scale, first * s.out),
                         .c_row = s.out,
                         .c_column = 1};
}

/* c = a^T b, of rows x and gradients dy. */
static spw_product weight_product(spw_gemm_shape s, expert_rows of, const operands *o) {
    const size_t first = of.first, e = of.e;
    return (spw_product){.rows = s.in,
                         .columns = s.out,
                         .terms = of.rows,
                         .a = {o->a + first * s.in, 1, s.in},
                         .b = {o->b + first * s.out, s.out, 1},
                         .c = o->c + e * s.in * s.out,
                         .scale = at(o->scale, e * s.in * s.out),
                         .c_row = s.transposed ? 1 : s.out,
                         .c_column = s.transposed ? s.in : 1};
}

static spw_status grouped(spw_gemm_shape s, const size_t *offset, product_of *make, const float *a,
                          const float *b, float *c, float *scale) {
    spw_product *product = NULL;
    size_t *first = NULL;
    spw_status status = spw_ref_check_offsets(s, offset);
    if (status != SPW_OK) return status;
    SPW_TRY(SPW_ALLOC(s.experts, &product));
    SPW_TRY(SPW_ALLOC(s.experts + 1, &first));
    for (size_t e = 0; e < s.experts; e++) {
        const expert_rows of = {e, offset[e], offset[e + 1] - offset[e]};
        product[e] = make(s, of, &(operands){a, b, c, scale});
    }
    SPW_TRY(run(s.experts, product, first));
cleanup:
    spw_free(first), spw_free(product);
    return status;
}

spw_status spw_ref_grouped_gemm(spw_gemm_shape s, const float *x, const float *w, const size_t *offset,
                                float *y, float *scale) {
    const spw_status status = grouped(s, offset, forward_product, x, w, y, scale);
    if (status != SPW_OK) return status;
    clear(y, offset[s.experts] * s.out, s.rows * s.out);
    clear(scale, offset[s.experts] * s.out, s.rows * s.out);
    return SPW_OK;
}

spw_status spw_ref_grouped_gemm_input_gradient(spw_gemm_shape s, const float *dy, const float *w,
                                               const size_t *offset, float *dx, float *scale) {
    const spw_gemm_shape mirrored = {
        .experts = s.experts, .rows = s.rows, .in = s.out, .out = s.in, .transposed = !s.transposed};
    return spw_ref_grouped_gemm(mirrored, dy, w, offset, dx, scale);
}

spw_status spw_ref_grouped_gemm_weight_gradient(spw_gemm_shape s, const float *x, const float *dy,
                                                const size_t *offset, float *dw, float *scale) {
    return grouped(s, offset, weight_product, x, dy, dw, scale);
}
