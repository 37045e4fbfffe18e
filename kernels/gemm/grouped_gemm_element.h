/* What differs between bf16 and fp16 in the kernels of grouped GEMM, but for the matrix instructions: how a number is read, and how
 * a sum is rounded, to nearest, ties to even. A `word` holds two neighbours, the first in its lower half. */
#ifndef SPW_KERNELS_GEMM_GROUPED_GEMM_ELEMENT_H
#define SPW_KERNELS_GEMM_GROUPED_GEMM_ELEMENT_H

#include "kernels/gpu/gpu.h"
#include "reference/gemm_element.h"

template <spw_gemm_element ELEMENT> struct gemm_element;

template <> struct gemm_element<SPW_GEMM_BF16> {
    GPU_MEMBER static float from(unsigned short bits) { return gpu_from_bf16(bits); }
    GPU_MEMBER static unsigned short to(float x) { return gpu_to_bf16(x); }
    GPU_MEMBER static float low(unsigned word) { return gpu_bits_float(word << 16); }
    GPU_MEMBER static float high(unsigned word) { return gpu_bits_float(word & 0xffff0000u); }
    GPU_MEMBER static unsigned pack(float low, float high) {
#if defined(__CUDACC__)
        unsigned both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
#else
        return to(low) | (unsigned)to(high) << 16;
#endif
    }
};

template <> struct gemm_element<SPW_GEMM_FP16> {
    GPU_MEMBER static float from(unsigned short bits) { return gpu_from_fp16(bits); }
    GPU_MEMBER static unsigned short to(float x) { return gpu_to_fp16(x); }
    GPU_MEMBER static float low(unsigned word) { return from((unsigned short)word); }
    GPU_MEMBER static float high(unsigned word) { return from((unsigned short)(word >> 16)); }
    GPU_MEMBER static unsigned pack(float low, float high) {
#if defined(__CUDACC__)
        unsigned both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
#else
        return to(low) | (unsigned)to(high) << 16;
#endif
    }
};

#endif
