/* What the kernels on AMD's matrix cores share: vectors of registers, and words to the compiler about its schedule. */
#ifndef SPW_KERNELS_GEMM_MFMA_H
#define SPW_KERNELS_GEMM_MFMA_H

#include "kernels/gemm/grouped_gemm_element.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.h"

typedef unsigned words4 __attribute__((ext_vector_type(4)));
typedef unsigned words2 __attribute__((ext_vector_type(2)));
typedef float sums4 __attribute__((ext_vector_type(4)));

/* Hides where a number comes from, so that what is computed from it is not kept in registers from tile to
 * tile. */
GPU_DEVICE void keep_here(int &number) {
#if defined(__AMDGCN__)
    asm volatile("" : "+s"(number));
#endif
    (void)number;
}

/* A number that is the same in all lanes of a wave, as the compiler then knows. */
GPU_DEVICE int gpu_first(int number) {
#if defined(__AMDGCN__)
    return __builtin_amdgcn_readfirstlane(number);
#else
    return number;
#endif
}

/* Rounds four sums, neighbours of a row of c, and stores them. What lies behind c's end is dropped. */
template <spw_gemm_element ELEMENT = SPW_GEMM_BF16>
GPU_DEVICE void store_rounded(sums4 s, spw_bf16 *c, unsigned bytes, unsigned offset) {
    using element = gemm_element<ELEMENT>;
    const words2 packed = {element::pack(s[0], s[1]), element::pack(s[2], s[3])};
#if defined(__AMDGCN__)
    const auto buffer = __builtin_amdgcn_make_buffer_rsrc((void *)c, 0, (int)bytes, 0x27000);
    __builtin_amdgcn_raw_buffer_store_b64(packed, buffer, (int)offset, 0, 0);
#else
    (void)packed, (void)c, (void)bytes, (void)offset;
#endif
}

/* Nothing is moved over this place: else the next step's numbers would be waited for right after their loads.
 */
GPU_DEVICE void fence_schedule() {
#if defined(__AMDGCN__)
    __builtin_amdgcn_sched_barrier(0);
#endif
}

/* Asks the scheduler for COUNT groups: MATRIX matrix instructions, MOVES moves that put numbers together, ITEMS
 * instructions of `KIND`. So neither pipe waits for the other. No effect on what is computed. */
enum { VECTOR = 2, MEMORY_READ = 0x20, LDS_READ = 0x100, LDS_WRITE = 0x200 };
template <int COUNT, int KIND, int MOVES, int MATRIX, int ITEMS = 1> GPU_DEVICE void interleave() {
#if defined(__AMDGCN__)
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        if (MATRIX > 0) __builtin_amdgcn_sched_group_barrier(8, MATRIX, 0);
        if (MOVES > 0) __builtin_amdgcn_sched_group_barrier(VECTOR, MOVES, 0);
        __builtin_amdgcn_sched_group_barrier(KIND, ITEMS, 0);
    }
#endif
}

/* Two waves a SIMD at most: the registers for more of them would be taken from the one or two that run. */
#if defined(__AMDGCN__)
#define MFMA_KERNEL(threads) GPU_KERNEL(threads) __attribute__((amdgpu_waves_per_eu(1, 2)))
#else
#define MFMA_KERNEL(threads) GPU_KERNEL(threads)
#endif

#endif
