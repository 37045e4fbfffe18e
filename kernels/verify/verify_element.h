/* The type of a grouped GEMM's operands and results, as verifications need it: how the host rounds to it, and who judges. */
#ifndef SPW_KERNELS_VERIFY_VERIFY_ELEMENT_H
#define SPW_KERNELS_VERIFY_VERIFY_ELEMENT_H

#include "kernels/record/numbers_launch.h"
#include "kernels/verify/judge.h"
#include "reference/bf16.h"
#include "reference/fp16.h"
#include "reference/gemm_element.h"

typedef struct spw_element {
    const char *name;
    uint16_t (*from_float)(float x);
    float (*to_float)(uint16_t bits);
    spw_status (*judge)(spw_judge *judge, bool exact, size_t count, size_t terms, const uint16_t *got,
                        const float *want, const float *scale);
    int (*fill)(unsigned short *out, long count, int kind, unsigned long long seed, gpu_stream stream);
    int infinity; /* its bits; those of NaN are larger */
} spw_element;

static inline const spw_element *spw_element_of(spw_gemm_element element) {
    static const spw_element elements[] = {
        [SPW_GEMM_BF16] = {"bf16", spw_bf16_from_float, spw_bf16_to_float, spw_judge_bf16,
                           spw_launch_fill_bf16, 0x7f80},
        [SPW_GEMM_FP16] = {"fp16", spw_fp16_from_float, spw_fp16_to_float, spw_judge_fp16,
                           spw_launch_fill_fp16, 0x7c00},
    };
    return &elements[element];
}

#endif
