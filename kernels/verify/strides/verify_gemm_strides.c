/* Products of arrays whose rows lie apart: integers, whose sums are exact, against the reference; what lies between rows is NaN in operands and must
 * stay poison in results. */
#include "kernels/gpu/device_pool.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/strides/view.h"
#include "kernels/verify/verify_element.h"
#include "kernels/verify/verify_gemm.h"

enum { SEED_LEFT = 91, SEED_RIGHT, SEED_OFFSETS, APART_LEFT = 24, APART_RIGHT = 8, APART_RESULT = 40 };

/* One operation. */
typedef struct strides {
    const spw_gemm_case *c;
    spw_device_pool pool;
    spw_gemm_shape shape;
    spw_gemm_operation operation;
    bool beside; /* rows of experts are side by side */
    size_t *offset;
    int *device_offset;
    spw_view left, right, result;
    spw_bf16 *left_array, *right_array;
    float *want, *scale;
} strides;

static bool is_weights(const strides *k) { return k->operation == SPW_GEMM_WEIGHT_GRADIENT; }

/* Of w and of dw. */
static spw_view matrices(const strides *k, size_t apart) {
    const spw_gemm_shape s = k->shape;
    return spw_view_of(s.experts, s.transposed ? s.out : s.in, s.transposed ? s.in : s.out, apart, k->beside);
}

/* Numbers, and where they are on the device. Rows that no expert has are NaN. */
static spw_bf16 *draw(strides *k, spw_view view, uint64_t seed, size_t used, float **numbers) {
    const spw_element *element = spw_element_of(k->c->element);
    const size_t n = spw_view_count(view);
    float *values = *numbers = spw_pool_host(&k->pool, n * sizeof *values);
    spw_bf16 *bits = spw_pool_host(&k->pool, n * sizeof *bits);
    if (k->pool.status != SPW_OK) return NULL;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        bits[i] = i < used ? element->from_float(spw_number(SPW_NUMBERS_INTEGER, seed, i)) : 0xffff;
        values[i] = i < used ? element->to_float(bits[i]) : 0;
    }
    return spw_view_upload(&k->pool, view, sizeof *bits, bits);
}

static void expect(strides *k, const float *left, const float *right) {
    spw_status (*const of[])(spw_gemm_shape, const float *, const float *, const size_t *, float *,
                             float *) = {
        [SPW_GEMM_FORWARD] = spw_ref_grouped_gemm,
        [SPW_GEMM_INPUT_GRADIENT] = spw_ref_grouped_gemm_input_gradient,
        [SPW_GEMM_WEIGHT_GRADIENT] = spw_ref_grouped_gemm_weight_gradient,
    };
    const size_t count = spw_view_count(k->result);
    k->want = spw_pool_host(&k->pool, count * sizeof *k->want);
    k->scale = spw_pool_host(&k->pool, count * sizeof *k->scale);
    if (k->pool.status == SPW_OK)
        k->pool.status = of[k->operation](k->shape, left, right, k->offset, k->want, k->scale);
}

static void create(strides *k) {
    const spw_gemm_case *c = k->c;
    const bool backward = k->operation == SPW_GEMM_INPUT_GRADIENT;
    int *offset32 = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *offset32);
    k->offset = spw_pool_host(&k->pool, (c->experts + 1) * sizeof *k->offset);
    if (k->pool.status != SPW_OK) return;
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_OFFSETS, k->offset, offset32);
    k->device_offset = spw_pool_device(&k->pool, (c->experts + 1) * sizeof *offset32, offset32);
    k->left = spw_view_of(1, c->rows, backward ? c->out : c->in, APART_LEFT, false);
    k->right = is_weights(k) ? spw_view_of(1, c->rows, c->out, APART_RIGHT, false) : matrices(k, APART_RIGHT);
    k->result = is_weights(k) ? matrices(k, APART_RESULT)
                              : spw_view_of(1, c->rows, backward ? c->in : c->out, APART_RESULT, false);
    const size_t used = k->offset[c->experts];
    float *left = NULL, *right = NULL;
    k->left_array = draw(k, k->left, SEED_LEFT, used * k->left.width, &left);
    k->right_array = draw(k, k->right, SEED_RIGHT,
                          is_weights(k) ? used * k->right.width : spw_view_count(k->right), &right);
    expect(k, left, right);
    k->shape.stride = (spw_gemm_strides){.left = k->left.row,
                                         .right = k->right.row,
                                         .result = k->result.row,
                                         .expert = is_weights(k) ? k->result.expert : k->right.expert};
}

static void verify_variant(strides *k, const spw_gemm_variant *variant, spw_judge *judge) {
    static const char *const names[] = {"forward", "input gradient", "weight gradient"};
    const spw_element *element = spw_element_of(k->c->element);
    spw_bf16 *result = spw_view_upload(&k->pool, k->result, sizeof *result, NULL);
    void *got = NULL;
    if (k->pool.status == SPW_OK)
        k->pool.status = spw_gpu_grouped_gemm(variant, k->operation, k->shape, k->left_array, k->right_array,
                                              k->device_offset, result, NULL);
    if (k->pool.status != SPW_OK) return;
    spw_status verdict = spw_view_fetch(&k->pool, k->result, sizeof *result, result, &got);
    if (k->pool.status != SPW_OK) return;
    if (verdict == SPW_OK) verdict = spw_pool_guards(&k->pool);
    if (verdict == SPW_OK)
        verdict = element->judge(judge, true, spw_view_count(k->result), k->c->rows + k->c->in + k->c->out,
                                 got, k->want, k->scale);
    spw_judge_count(judge, verdict, "%s %s, %s, %s, %s, %s, rows apart%s", variant->name, names[k->operation],
                    element->name, k->c->name, spw_routing_names[k->c->routing],
                    k->shape.transposed ? "[out][in]" : "[in][out]",
                    k->beside ? ", experts side by side" : "");
}

/* form: the weights' layout, and how experts lie. */
static spw_status verify(const spw_gemm_variant *variants, const spw_gemm_case *c,
                         spw_gemm_operation operation, int form, spw_judge *judge) {
    strides k = {.c = c,
                 .shape = {.experts = c->experts,
                           .rows = c->rows,
                           .in = c->in,
                           .out = c->out,
                           .transposed = form & 1,
                           .element = c->element},
                 .operation = operation,
                 .beside = form & 2};
    create(&k);
    for (const spw_gemm_variant *v = variants; v->name != NULL && k.pool.status == SPW_OK; v++)
        verify_variant(&k, v, judge);
    const spw_status status = k.pool.status;
    spw_pool_destroy(&k.pool);
    return status;
}

static spw_status verify_forms(const spw_gemm_variant *variants, const spw_gemm_case *c, int forms,
                               spw_judge *judge) {
    spw_status status = SPW_OK;
    for (int operation = SPW_GEMM_FORWARD; operation <= SPW_GEMM_WEIGHT_GRADIENT; operation++)
        for (int form = 0; form < forms && status == SPW_OK; form++)
            status = verify(variants, c, (spw_gemm_operation)operation, form, judge);
    return status;
}

spw_status spw_verify_gemm_strides(const spw_gemm_variant *variants, const spw_gemm_case *c,
                                   spw_judge *judge) {
    return verify_forms(variants, c, 4, judge);
}

/* --- Kernels that ignore a stride --- */

static int ignore_a(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    p.a_row = p.inner;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
static int ignore_b(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    p.b_row = form == SPW_GEMM_ROWS && p.inner_contiguous ? p.inner : p.columns;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
static int ignore_c(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    p.c_row = p.columns;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
static int ignore_experts(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                          gpu_stream stream) {
    p.expert = (long)p.inner * p.columns;
    return spw_launch_gemm_tiled(form, element, p, stream);
}

spw_status spw_verify_gemm_strides_wrong(const spw_gemm_case *c, spw_judge *judge) {
    static const spw_gemm_variant wrong[] = {{"ignores the stride of a", ignore_a},
                                             {"ignores the stride of b", ignore_b},
                                             {"ignores the stride of c", ignore_c},
                                             {"ignores the stride of experts", ignore_experts},
                                             {NULL, NULL}};
    return verify_forms(wrong, c, 2, judge); /* side by side they would leave the arrays */
}
