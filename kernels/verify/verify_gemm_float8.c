#include "kernels/verify/verify_gemm.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/record/numbers.h"
#include "reference/float8.h"

#include <math.h>
#include <string.h>

enum { SEED_X = 31, SEED_X_SCALE, SEED_W, SEED_W_SCALE, SEED_ROUTING, SEED_MAIN };

/* Codes with their scales, on the host and on the device, and the numbers that they stand for. */
typedef struct operand {
    size_t codes, scales;
    uint8_t *code;
    float *scale, *number;
    spw_device_array device_code, device_scale;
} operand;

static void operand_destroy(operand *o) {
    spw_free(o->code), spw_free(o->scale), spw_free(o->number);
    spw_device_array_destroy(&o->device_code), spw_device_array_destroy(&o->device_scale);
}

/* exact: small integers and powers of two, whose sums are exact; else all codes but NaN. */
static spw_status operand_create(size_t codes, size_t scales, uint64_t seed, bool exact, operand *o) {
    spw_status status = SPW_OK;
    *o = (operand){.codes = codes, .scales = scales};
    SPW_TRY(SPW_ALLOC(codes, &o->code));
    SPW_TRY(SPW_ALLOC(scales, &o->scale));
    SPW_TRY(SPW_ALLOC(codes, &o->number));
    SPW_TRY(spw_device_array_create(codes, &o->device_code));
    SPW_TRY(spw_device_array_create(scales * sizeof(float), &o->device_scale));
    for (size_t i = 0; i < codes; i++) {
        const uint64_t bits = spw_number_bits(seed, i) >> 20;
        const uint8_t magnitude = (uint8_t)(bits % 127), sign = (uint8_t)(bits >> 33 & 0x80); /* bit 40 */
        o->code[i] =
            exact ? spw_float8_from_float(spw_number(SPW_NUMBERS_INTEGER, seed, i), SPW_FLOAT8_SATURATE)
                  : (uint8_t)(sign | magnitude);
    }
    for (size_t i = 0; i < scales; i++) {
        const int power = (int)(spw_number_bits(seed + 1, i) >> 40) % 5 - 2;
        const float other = 1 + 0.25f * spw_number(SPW_NUMBERS_BELL, seed + 1, i);
        o->scale[i] = exact ? ldexpf(1, power) : other;
    }
cleanup:
    return status;
}

static spw_status operand_upload(const operand *o) {
    const spw_status status = spw_device_upload(&o->device_code, o->code);
    return status != SPW_OK ? status : spw_device_upload(&o->device_scale, o->scale);
}

static size_t blocks(size_t count) { return count / SPW_FLOAT8_BLOCK + (count % SPW_FLOAT8_BLOCK != 0); }

typedef struct float8_data {
    spw_gemm_shape shape;
    operand x, w;
    size_t *offset;
    float *want, *scale;
    spw_bf16 *got;
    spw_device_array device_offset, result;
} data;

static void data_destroy(data *d) {
    operand_destroy(&d->x), operand_destroy(&d->w);
    spw_device_array_destroy(&d->device_offset), spw_device_array_destroy(&d->result);
    spw_free(d->offset), spw_free(d->want), spw_free(d->scale), spw_free(d->got);
}

static spw_status data_create(const spw_gemm_case *c, bool exact, data *d) {
    spw_status status = SPW_OK;
    int *offset32 = NULL;
    *d = (data){.shape = {c->experts, c->rows, c->in, c->out, true}};
    const size_t along = blocks(c->in), across = blocks(c->out), weights = c->in * c->out;
    SPW_TRY(SPW_ALLOC(c->experts + 1, &d->offset));
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset32));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &d->want));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &d->scale));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &d->got));
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, d->offset, offset32);
    SPW_TRY(operand_create(c->rows * c->in, c->rows * along, SEED_X, exact, &d->x));
    SPW_TRY(operand_create(c->experts * weights, c->experts * across * along, SEED_W, exact, &d->w));
    SPW_TRY(spw_device_array_create((c->experts + 1) * sizeof(int), &d->device_offset));
    SPW_TRY(spw_device_upload(&d->device_offset, offset32));
    SPW_TRY(spw_device_array_create(c->rows * c->out * sizeof(spw_bf16), &d->result));
    SPW_TRY(operand_upload(&d->x));
    SPW_TRY(operand_upload(&d->w));
    spw_float8_dequantize_rows(d->x.code, d->x.scale, c->rows, c->in, d->x.number);
    for (size_t e = 0; e < c->experts; e++)
        spw_float8_dequantize_tiles(d->w.code + e * weights, d->w.scale + e * across * along, c->out, c->in,
                                    d->w.number + e * weights);
    SPW_TRY(spw_ref_grouped_gemm(d->shape, d->x.number, d->w.number, d->offset, d->want, d->scale));
cleanup:
    spw_free(offset32);
    return status;
}

static spw_status run_variant(const spw_gemm_float8_variant *variant, const data *d) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_device_array_poison(&d->result));
    SPW_TRY(spw_gpu_grouped_gemm_float8(variant, d->shape, d->x.device_code.data, d->x.device_scale.data,
                                        d->w.device_code.data, d->w.device_scale.data, d->device_offset.data,
                                        d->result.data, NULL));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(spw_device_array_guards(&d->result));
    SPW_TRY(spw_device_download(&d->result, d->got));
cleanup:
    return status;
}

/* Roundings of a sum as many as of fp32: a block's terms, then three products by scales, of which the sum over the blocks
 * has one a block, and two in the reference, which rounds a code times its scale. Where a block's sum keeps fewer bits, each of
 * 32 products and the sum before them lose less than one unit of the last bit kept; a product of two numbers from 1 to 2 has two
 * bits before the point. */
static size_t terms_of(const spw_gemm_float8_variant *variant, size_t in) {
    const size_t block = in < SPW_FLOAT8_BLOCK ? in : SPW_FLOAT8_BLOCK;
    const size_t cut =
        variant->sum_bits < 24 ? (block + (block + 31) / 32) << (24 - variant->sum_bits + 2) : block;
    return cut + blocks(in) + 5;
}

spw_status spw_verify_gemm_float8(const spw_gemm_float8_variant *variants, const spw_gemm_case *c,
                                  spw_judge *judge) {
    spw_status status = SPW_OK;
    if (c->fast_only || c->in % 16 != 0) return SPW_OK;
    for (int exact = 0; exact < 2; exact++) {
        data d;
        status = data_create(c, exact, &d);
        for (const spw_gemm_float8_variant *v = variants; v->name != NULL && status == SPW_OK; v++) {
            spw_status result = run_variant(v, &d);
            if (result == SPW_EDEVICE) status = result;
            if (result == SPW_OK)
                result = spw_judge_bf16(judge, exact, c->rows * c->out, terms_of(v, c->in), d.got, d.want,
                                        d.scale);
            spw_judge_count(judge, result, "%s, %s, %s, %s", v->name, c->name, spw_routing_names[c->routing],
                            exact ? "integers" : "all codes");
        }
        data_destroy(&d);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* --- The gradient of weights --- */
typedef struct gradient_data {
    spw_gemm_shape shape;
    spw_float8_groups groups;
    operand x, dy;
    size_t *offset, count, longest; /* elements of dw; rows of the largest group */
    float *want, *scale, *main, *got_main;
    spw_bf16 *got;
    spw_device_array device_offset, result, device_main;
} gradient_data;

static void gradient_destroy(gradient_data *d) {
    operand_destroy(&d->x), operand_destroy(&d->dy);
    spw_device_array_destroy(&d->device_offset), spw_device_array_destroy(&d->result);
    spw_device_array_destroy(&d->device_main);
    spw_free(d->offset), spw_free(d->want), spw_free(d->scale), spw_free(d->main), spw_free(d->got_main);
    spw_free(d->got);
}

/* Behind an expert's last row codes are 0. A block that no expert has is NaN: nobody may read it. */
static void clear_unused(spw_float8_groups g, size_t width, operand *o) {
    const size_t all = spw_float8_column_blocks(g.experts, g.rows);
    for (size_t block = 0, e = 0; block < all; block++) {
        while (e + 1 < g.experts && g.offset[e + 1] / SPW_FLOAT8_BLOCK + e + 1 <= block) e++;
        const size_t rows = g.offset[e + 1] - g.offset[e],
                     from = (block - g.offset[e] / SPW_FLOAT8_BLOCK - e) * SPW_FLOAT8_BLOCK;
        const size_t left = from < rows ? rows - from : 0,
                     used = left < SPW_FLOAT8_BLOCK ? left : SPW_FLOAT8_BLOCK;
        for (size_t c = 0; c < width; c++) {
            memset(o->code + (c * all + block) * SPW_FLOAT8_BLOCK + used, used == 0 ? 0x7f : 0,
                   SPW_FLOAT8_BLOCK - used);
            if (used == 0) o->scale[block * width + c] = NAN;
        }
    }
}

static spw_status columns_create(spw_float8_groups g, size_t width, uint64_t seed, bool exact, operand *o) {
    const size_t all = spw_float8_column_blocks(g.experts, g.rows);
    spw_status status = operand_create(width * all * SPW_FLOAT8_BLOCK, width * all, seed, exact, o);
    if (status != SPW_OK) return status;
    clear_unused(g, width, o);
    spw_float8_dequantize_columns(g, o->code, o->scale, width, o->number);
    return operand_upload(o);
}

static spw_status gradient_create(const spw_gemm_case *c, bool exact, gradient_data *d) {
    spw_status status = SPW_OK;
    int *offset32 = NULL;
    *d = (gradient_data){.shape = {c->experts, c->rows, c->in, c->out, false},
                         .count = c->experts * c->in * c->out};
    SPW_TRY(SPW_ALLOC(c->experts + 1, &d->offset));
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset32));
    SPW_TRY(SPW_ALLOC(d->count, &d->want));
    SPW_TRY(SPW_ALLOC(d->count, &d->scale));
    SPW_TRY(SPW_ALLOC(d->count, &d->main));
    SPW_TRY(SPW_ALLOC(d->count, &d->got_main));
    SPW_TRY(SPW_ALLOC(d->count, &d->got));
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, d->offset, offset32);
    for (size_t e = 0; e < c->experts; e++)
        if (d->offset[e + 1] - d->offset[e] > d->longest) d->longest = d->offset[e + 1] - d->offset[e];
    d->groups = (spw_float8_groups){c->experts, c->rows, d->offset};
    SPW_TRY(columns_create(d->groups, c->in, SEED_X, exact, &d->x));
    SPW_TRY(columns_create(d->groups, c->out, SEED_W, exact, &d->dy));
    for (size_t i = 0; i < d->count; i++)
        d->main[i] = spw_number(exact ? SPW_NUMBERS_INTEGER : SPW_NUMBERS_BELL, SEED_MAIN, i);
    SPW_TRY(spw_device_array_create((c->experts + 1) * sizeof(int), &d->device_offset));
    SPW_TRY(spw_device_upload(&d->device_offset, offset32));
    SPW_TRY(spw_device_array_create(d->count * sizeof(spw_bf16), &d->result));
    SPW_TRY(spw_device_array_create(d->count * sizeof(float), &d->device_main));
cleanup:
    spw_free(offset32);
    return status;
}

static spw_status run_gradient(const spw_gemm_float8_variant *variant, bool adds, const gradient_data *d) {
    const spw_device_array *result = adds ? &d->device_main : &d->result;
    const spw_gemm_float8_gradient g = {.x = d->x.device_code.data,
                                        .dy = d->dy.device_code.data,
                                        .x_scale = d->x.device_scale.data,
                                        .dy_scale = d->dy.device_scale.data,
                                        .offset = d->device_offset.data,
                                        .dw = adds ? NULL : d->result.data,
                                        .main = adds ? d->device_main.data : NULL};
    spw_status status = adds ? spw_device_upload(result, d->main) : spw_device_array_poison(result);
    SPW_TRY(status);
    SPW_TRY(spw_gpu_grouped_gemm_float8_weight_gradient(variant, d->shape, &g, NULL));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(spw_device_array_guards(result));
    SPW_TRY(spw_device_download(result, adds ? (void *)d->got_main : (void *)d->got));
cleanup:
    return status;
}

/* The sum and, in fp32, its addition to what was there: one rounding more here and one in what is wanted, of both. */
static spw_status judge_gradient(const spw_gemm_float8_variant *variant, bool adds, bool exact,
                                 gradient_data *d, spw_judge *judge) {
    const size_t terms = terms_of(variant, d->longest);
    spw_status status = run_gradient(variant, adds, d);
    if (status != SPW_OK || !adds)
        return status != SPW_OK ? status
                                : spw_judge_bf16(judge, exact, d->count, terms, d->got, d->want, d->scale);
    for (size_t i = 0; i < d->count; i++) d->want[i] += d->main[i], d->scale[i] += fabsf(d->main[i]);
    status = spw_judge_float(judge, exact, d->count, terms + 2, d->got_main, d->want, d->scale);
    return status;
}

static spw_status verify_gradient(const spw_gemm_float8_variant *variants, const spw_gemm_case *c, bool exact,
                                  gradient_data *d, spw_judge *judge) {
    for (const spw_gemm_float8_variant *v = variants; v->name != NULL; v++) {
        for (int adds = 0; adds < 2; adds++) {
            spw_status status = spw_ref_grouped_gemm_weight_gradient(d->shape, d->x.number, d->dy.number,
                                                                     d->offset, d->want, d->scale);
            if (status != SPW_OK) return status;
            status = judge_gradient(v, adds, exact, d, judge);
            if (status == SPW_EDEVICE) return status;
            spw_judge_count(judge, status, "%s weight gradient%s, %s, %s, %s, %s", v->name,
                            adds ? " added" : "", c->name, spw_routing_names[c->routing],
                            d->shape.transposed ? "[out][in]" : "[in][out]",
                            exact ? "integers" : "all codes");
        }
    }
    return SPW_OK;
}

/* --- The gradient of a full size --- */
/* Operands repeat after PERIOD columns, a prime, so that the reference is formed of few and yet every element is known. */
enum { PERIOD = 97, ROWS_COMPARED = 256 };

typedef struct wide_side {
    operand period;
    spw_device_array code, scale;
} wide_side;

static void wide_destroy(wide_side *s) {
    operand_destroy(&s->period);
    spw_device_array_destroy(&s->code), spw_device_array_destroy(&s->scale);
}

static spw_status wide_create(spw_float8_groups g, size_t width, uint64_t seed, wide_side *s) {
    const size_t all = spw_float8_column_blocks(g.experts, g.rows), column = all * SPW_FLOAT8_BLOCK;
    float *scale = NULL;
    spw_status status = columns_create(g, PERIOD, seed, false, &s->period);
    SPW_TRY(status);
    SPW_TRY(SPW_ALLOC(all * width, &scale));
    SPW_TRY(spw_device_array_create(width * column, &s->code));
    SPW_TRY(spw_device_array_create(all * width * sizeof *scale, &s->scale));
    for (size_t c = 0; c < width; c++) {
        const spw_device_array part = {(unsigned char *)s->code.data + c * column, column};
        SPW_TRY(spw_device_upload(&part, s->period.code + c % PERIOD * column));
        for (size_t b = 0; b < all; b++) scale[b * width + c] = s->period.scale[b * PERIOD + c % PERIOD];
    }
    SPW_TRY(spw_device_upload(&s->scale, scale));
cleanup:
    spw_free(scale);
    return status;
}

/* Rows of dw of every expert: the first, the last and some between. want, scale [experts][PERIOD][PERIOD]. */
static spw_status judge_wide(const spw_gemm_case *c, size_t terms, const spw_device_array *dw,
                             const float *want, const float *scale, spw_judge *judge) {
    spw_status status = SPW_OK;
    float *wide = NULL;
    spw_bf16 *got = NULL;
    SPW_TRY(SPW_ALLOC(2 * c->out, &wide));
    SPW_TRY(SPW_ALLOC(c->out, &got));
    for (size_t n = 0; n < c->experts * ROWS_COMPARED; n++) {
        const size_t e = n / ROWS_COMPARED, i = n % ROWS_COMPARED * (c->in - 1) / (ROWS_COMPARED - 1);
        const size_t from = (e * PERIOD + i % PERIOD) * PERIOD;
        const spw_device_array row = {(spw_bf16 *)dw->data + (e * c->in + i) * c->out, c->out * sizeof *got};
        SPW_TRY(spw_device_download(&row, got));
        for (size_t o = 0; o < c->out; o++)
            wide[o] = want[from + o % PERIOD], wide[c->out + o] = scale[from + o % PERIOD];
        status = spw_judge_bf16(judge, false, c->out, terms, got, wide, wide + c->out);
        if (status == SPW_EMISMATCH) SPW_TRY(spw_fail_within(status, "row %zu of expert %zu", i, e));
        SPW_TRY(status);
    }
cleanup:
    spw_free(wide), spw_free(got);
    return status;
}

static spw_status compare_wide(const spw_gemm_float8_variant *variant, const spw_gemm_case *c,
                               spw_judge *judge) {
    const spw_gemm_shape shape = {c->experts, c->rows, c->in, c->out, false},
                         few = {c->experts, c->rows, PERIOD, PERIOD, false};
    wide_side x = {.code = {.data = NULL}}, dy = {.code = {.data = NULL}};
    spw_device_array device_offset = {.data = NULL}, dw = {.data = NULL};
    float *want = NULL, *scale = NULL;
    size_t *offset = NULL, longest = 0;
    int *offset32 = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset));
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset32));
    SPW_TRY(SPW_ALLOC(c->experts * PERIOD * PERIOD, &want));
    SPW_TRY(SPW_ALLOC(c->experts * PERIOD * PERIOD, &scale));
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, offset, offset32);
    for (size_t e = 0; e < c->experts; e++)
        if (offset[e + 1] - offset[e] > longest) longest = offset[e + 1] - offset[e];
    const spw_float8_groups groups = {c->experts, c->rows, offset};
    SPW_TRY(wide_create(groups, c->in, SEED_X, &x));
    SPW_TRY(wide_create(groups, c->out, SEED_W, &dy));
    SPW_TRY(
        spw_ref_grouped_gemm_weight_gradient(few, x.period.number, dy.period.number, offset, want, scale));
    SPW_TRY(spw_device_array_create((c->experts + 1) * sizeof(int), &device_offset));
    SPW_TRY(spw_device_upload(&device_offset, offset32));
    SPW_TRY(spw_device_array_create(c->experts * c->in * c->out * sizeof(spw_bf16), &dw));
    const spw_gemm_float8_gradient g = {.x = x.code.data,
                                        .dy = dy.code.data,
                                        .x_scale = x.scale.data,
                                        .dy_scale = dy.scale.data,
                                        .offset = device_offset.data,
                                        .dw = dw.data};
    SPW_TRY(spw_gpu_grouped_gemm_float8_weight_gradient(variant, shape, &g, NULL));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(spw_device_array_guards(&dw));
    status = judge_wide(c, terms_of(variant, longest), &dw, want, scale, judge);
cleanup:
    wide_destroy(&x), wide_destroy(&dy);
    spw_device_array_destroy(&device_offset), spw_device_array_destroy(&dw);
    spw_free(offset), spw_free(offset32), spw_free(want), spw_free(scale);
    return status;
}

static spw_status verify_wide(const spw_gemm_float8_variant *variants, const spw_gemm_case *c,
                              spw_judge *judge) {
    const spw_gemm_float8_variant *fast = variants;
    while (fast[1].name != NULL) fast++;
    const spw_status status = compare_wide(fast, c, judge);
    if (status == SPW_EDEVICE || status == SPW_ENOMEM) return status;
    spw_judge_count(judge, status, "%s weight gradient, %s, %s, all codes", fast->name, c->name,
                    spw_routing_names[c->routing]);
    return SPW_OK;
}

spw_status spw_verify_gemm_float8_gradient(const spw_gemm_float8_variant *variants, const spw_gemm_case *c,
                                           spw_judge *judge) {
    if (c->fast_only) return verify_wide(variants, c, judge);
    for (int exact = 0; exact < 2; exact++) {
        gradient_data d;
        spw_status status = gradient_create(c, exact, &d);
        for (int transposed = 0; transposed < 2 && status == SPW_OK; transposed++) {
            d.shape.transposed = transposed;
            status = verify_gradient(variants, c, exact, &d, judge);
        }
        gradient_destroy(&d);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}
