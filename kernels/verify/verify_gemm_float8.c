#include "kernels/verify/verify_gemm.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/record/numbers.h"
#include "reference/float8.h"

#include <math.h>

enum { SEED_X = 31, SEED_X_SCALE, SEED_W, SEED_W_SCALE, SEED_ROUTING };

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
        const uint8_t magnitude = (uint8_t)(bits % 127), sign = bits & 1ull << 40 ? 0x80 : 0;
        o->code[i] =
            exact ? spw_float8_from_float(spw_number(SPW_NUMBERS_INTEGER, seed, i), SPW_FLOAT8_SATURATE)
                  : (uint8_t)(sign | magnitude);
    }
    for (size_t i = 0; i < scales; i++) {
        const int power = (int)(spw_number_bits(seed + 1, i) >> 40) % 5 - 2;
        const float other = 1 + 0.25f * spw_number(SPW_NUMBERS_BELL, seed + 1, i);
        o->scale[i] = exact ? ldexpf(1, power) : other;
    }
    SPW_TRY(spw_device_upload(&o->device_code, o->code));
    SPW_TRY(spw_device_upload(&o->device_scale, o->scale));
cleanup:
    return status;
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
    SPW_TRY(spw_device_synchronize());
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
