#include "kernels/verify/verify_gemm.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/record/numbers.h"
#include "reference/float8.h"

#include <math.h>
#include <string.h>

enum {
    SEED_X = 41,
    SEED_W = 43,
    SEED_ROUTING = 45,
    BLOCK = 32,
    WORD = 128,
    SCALE_ONE = 127,
    SCALE_LARGEST = 254
};

/* Rows of codes with their scales, on the host and on the device, and the numbers that they stand for. */
typedef struct operand {
    uint8_t *code, *scale; /* [rows][in], [rows][words][4] */
    float *number;         /* [rows][in] */
    spw_device_array device_code, device_scale;
} operand;

static void operand_destroy(operand *o) {
    spw_free(o->code), spw_free(o->scale), spw_free(o->number);
    spw_device_array_destroy(&o->device_code), spw_device_array_destroy(&o->device_scale);
}

/* exact: small integers and powers of two, whose sums are exact; else all codes but NaN and scales of 2^-17 to 2^3. */
static void draw_row(size_t row, size_t in, uint64_t seed, bool exact, operand *o) {
    const size_t words = (in + WORD - 1) / WORD;
    uint8_t *scale = o->scale + row * words * 4;
    memset(scale, SCALE_LARGEST, words * 4); /* behind the end of the sum: anything but NaN */
    for (size_t b = 0; b < in / BLOCK; b++) {
        const uint64_t bits = spw_number_bits(seed + 1, row * words * 4 + b) >> 40;
        scale[b] = (uint8_t)(exact ? SCALE_ONE - 1 + bits % 3 : SCALE_ONE - 17 + bits % 21);
    }
    for (size_t i = row * in; i < (row + 1) * in; i++) {
        const uint64_t bits = spw_number_bits(seed, i) >> 20;
        const uint8_t any = (uint8_t)((bits & 1ull << 40 ? 0x80 : 0) | bits % 127);
        o->code[i] =
            exact ? spw_float8_from_float(spw_number(SPW_NUMBERS_INTEGER, seed, i), SPW_FLOAT8_SATURATE)
                  : any;
        o->number[i] = ldexpf(spw_float8_to_float(o->code[i]), scale[(i - row * in) / BLOCK] - SCALE_ONE);
    }
}

static spw_status operand_create(size_t rows, size_t in, uint64_t seed, bool exact, operand *o) {
    const size_t scales = rows * ((in + WORD - 1) / WORD) * 4;
    spw_status status = SPW_OK;
    *o = (operand){.code = NULL};
    SPW_TRY(SPW_ALLOC(rows * in, &o->code));
    SPW_TRY(SPW_ALLOC(scales, &o->scale));
    SPW_TRY(SPW_ALLOC(rows * in, &o->number));
    SPW_TRY(spw_device_array_create(rows * in, &o->device_code));
    SPW_TRY(spw_device_array_create(scales, &o->device_scale));
    for (size_t row = 0; row < rows; row++) draw_row(row, in, seed, exact, o);
    SPW_TRY(spw_device_upload(&o->device_code, o->code));
    SPW_TRY(spw_device_upload(&o->device_scale, o->scale));
cleanup:
    return status;
}

static spw_status compare(const spw_gemm_case *c, bool exact, spw_judge *judge) {
    const spw_gemm_shape shape = {c->experts, c->rows, c->in, c->out, true};
    operand x = {.code = NULL}, w = {.code = NULL};
    spw_device_array device_offset = {.data = NULL}, result = {.data = NULL};
    size_t *offset = NULL;
    int *offset32 = NULL;
    float *want = NULL, *scale = NULL;
    spw_bf16 *got = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset));
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset32));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &want));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &scale));
    SPW_TRY(SPW_ALLOC(c->rows * c->out, &got));
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, offset, offset32);
    SPW_TRY(operand_create(c->rows, c->in, SEED_X, exact, &x));
    SPW_TRY(operand_create(c->experts * c->out, c->in, SEED_W, exact, &w));
    SPW_TRY(spw_device_array_create((c->experts + 1) * sizeof(int), &device_offset));
    SPW_TRY(spw_device_upload(&device_offset, offset32));
    SPW_TRY(spw_device_array_create(c->rows * c->out * sizeof(spw_bf16), &result));
    SPW_TRY(spw_ref_grouped_gemm(shape, x.number, w.number, offset, want, scale));
    SPW_TRY(spw_gpu_grouped_gemm_mxfp8(shape, x.device_code.data, x.device_scale.data, w.device_code.data,
                                       w.device_scale.data, device_offset.data, result.data, NULL));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(spw_device_array_guards(&result));
    SPW_TRY(spw_device_download(&result, got));
    status = spw_judge_bf16(judge, exact, c->rows * c->out, c->in, got, want, scale);

cleanup:
    operand_destroy(&x), operand_destroy(&w);
    spw_device_array_destroy(&device_offset), spw_device_array_destroy(&result);
    spw_free(offset), spw_free(offset32), spw_free(want), spw_free(scale), spw_free(got);
    return status;
}

spw_status spw_verify_gemm_mxfp8(const spw_gemm_case *c, spw_judge *judge) {
    if (c->fast_only || c->in % BLOCK != 0 || !spw_gpu_has_mxfp8()) return SPW_OK;
    for (int exact = 0; exact < 2; exact++) {
        const spw_status status = compare(c, exact, judge);
        if (status == SPW_EDEVICE || status == SPW_ENOMEM) return status;
        spw_judge_count(judge, status, "mxfp8 mfma, %s, %s, %s", c->name, spw_routing_names[c->routing],
                        exact ? "integers" : "all codes");
    }
    return SPW_OK;
}
