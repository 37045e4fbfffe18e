/* The few device-side names that differ between the compilers of *.hip: clang for AMD without any HIP header,
 * hipcc, nvcc. Everything else in a kernel is plain C++. */
#ifndef SPW_KERNELS_GPU_GPU_H
#define SPW_KERNELS_GPU_GPU_H

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define GPU_HOST 1 /* launchers are compiled too */
#elif __has_include(<hip/hip_runtime.h>) && !defined(GPU_NO_RUNTIME)
#include <hip/hip_runtime.h>
#define GPU_HOST 1
#define cudaError_t hipError_t
#define cudaErrorInvalidValue hipErrorInvalidValue
#define cudaGetLastError hipGetLastError
#define cudaMemsetAsync hipMemsetAsync
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess
#else /* device code only, for the code objects: nothing but compiler builtins */
#define GPU_HOST 0
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif

#define GPU_MEMBER __device__ __attribute__((always_inline)) inline
#define GPU_DEVICE static __device__ __attribute__((always_inline)) inline
#if GPU_HOST
#define GPU_ANYWHERE static __host__ __device__ inline /* for launchers, too */
#else
#define GPU_ANYWHERE GPU_DEVICE
#endif

#if defined(__CUDACC__)
#define GPU_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#else
#define GPU_KERNEL(threads) \
    extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads))) void
#endif

/* Lanes of a wave. The language decides, never a macro of the target or of the pass: the host computes launches
 * from what the device computes with, and in HIP's host pass clang defines __AMDGCN__ but no __GFX9__.
 * .ci/check_launches.py compares both passes. */
#if defined(__CUDACC__)
enum { GPU_WAVE = 32 };
#else
enum { GPU_WAVE = 64 };
#endif
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX9__)
#error "these kernels need waves of 64 lanes: build them for gfx90a, gfx942 or gfx950"
#endif

#if defined(__AMDGCN__) /* HIP's host pass too: parsed there, never run */
GPU_DEVICE int gpu_thread() { return (int)__builtin_amdgcn_workitem_id_x(); }
GPU_DEVICE int gpu_block() { return (int)__builtin_amdgcn_workgroup_id_x(); }
GPU_DEVICE void gpu_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
GPU_DEVICE int gpu_lane() { return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
GPU_DEVICE unsigned gpu_shuffle(unsigned value, int lane) {
    return (unsigned)__builtin_amdgcn_ds_bpermute(lane << 2, (int)value);
}
GPU_DEVICE unsigned long long gpu_ballot(bool vote) {
    return GPU_WAVE == 64 ? __builtin_amdgcn_ballot_w64(vote) : __builtin_amdgcn_ballot_w32(vote);
}
GPU_DEVICE int gpu_bits(unsigned long long mask) { return __builtin_popcountll(mask); }
#elif defined(__CUDACC__)
GPU_DEVICE int gpu_thread() { return (int)threadIdx.x; }
GPU_DEVICE int gpu_block() { return (int)blockIdx.x; }
GPU_DEVICE void gpu_barrier() { __syncthreads(); }
GPU_DEVICE int gpu_lane() { return (int)(threadIdx.x & 31); }
GPU_DEVICE unsigned gpu_shuffle(unsigned value, int lane) { return __shfl_sync(~0u, value, lane); }
/* A number that all lanes have, so that the compiler knows it, too. */
GPU_DEVICE int gpu_uniform(int number) { return __shfl_sync(~0u, number, 0); }
GPU_DEVICE unsigned long long gpu_ballot(bool vote) { return __ballot_sync(~0u, vote); }
GPU_DEVICE int gpu_bits(unsigned long long mask) { return __popcll(mask); }
#else /* a host pass: parsed, never run */
GPU_DEVICE int gpu_thread() { return 0; }
GPU_DEVICE int gpu_block() { return 0; }
GPU_DEVICE void gpu_barrier() {}
GPU_DEVICE int gpu_lane() { return 0; }
GPU_DEVICE unsigned gpu_shuffle(unsigned value, int) { return value; }
GPU_DEVICE unsigned long long gpu_ballot(bool vote) { return vote; }
GPU_DEVICE int gpu_bits(unsigned long long mask) { return (int)mask; }
#endif

GPU_DEVICE unsigned gpu_float_bits(float x) {
    union {
        float f;
        unsigned u;
    } both = {x};
    return both.u;
}
GPU_DEVICE float gpu_bits_float(unsigned x) {
    union {
        unsigned u;
        float f;
    } both = {x};
    return both.f;
}
GPU_DEVICE float gpu_shuffle_float(float value, int lane) {
    return gpu_bits_float(gpu_shuffle(gpu_float_bits(value), lane));
}

/* Sum over the lanes of a wave, the same in every lane. */
GPU_DEVICE float gpu_wave_sum(float value) {
    for (int step = GPU_WAVE / 2; step > 0; step /= 2) value += gpu_shuffle_float(value, gpu_lane() ^ step);
    return value;
}

/* What one lane of a wave wrote to shared memory before, the others read after. */
GPU_DEVICE void gpu_wave_order() {
#if defined(__CUDA_ARCH__)
    __syncwarp();
#elif defined(__AMDGCN__)
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
#endif
}

/* Largest value of the lanes of a wave, the same in every lane. */
GPU_DEVICE unsigned gpu_wave_max(unsigned value) {
#if defined(__CUDA_ARCH__)
    return __reduce_max_sync(~0u, value);
#else
    for (int step = GPU_WAVE / 2; step > 0; step /= 2) {
        const unsigned other = gpu_shuffle(value, gpu_lane() ^ step);
        value = other > value ? other : value;
    }
    return value;
#endif
}

/* The lowest bit that is set; mask != 0. */
GPU_DEVICE int gpu_lowest(unsigned long long mask) {
#if defined(__CUDA_ARCH__)
    return __ffsll((long long)mask) - 1;
#else
    return (int)__builtin_ctzll(mask);
#endif
}

/* Integers of the same order as the finite floats. */
GPU_DEVICE unsigned gpu_ordered(float x) {
    const unsigned bits = gpu_float_bits(x);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* bf16 is kept as its 16 bits. Rounding is to nearest, ties to even; a NaN stays a NaN. */
GPU_DEVICE float gpu_from_bf16(unsigned short bits) { return gpu_bits_float((unsigned)bits << 16); }
GPU_DEVICE unsigned short gpu_to_bf16(float x) {
#if defined(__CUDACC__)
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    const unsigned u = gpu_float_bits(x);
    if (x != x) return (unsigned short)(u >> 16 | 0x40);
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
#endif
}

/* fp16 is kept as its 16 bits, too. Rounding is to nearest, ties to even: 65520 and more become infinity, what is below 2^-14 a
 * multiple of 2^-24; a NaN stays a NaN. */
GPU_DEVICE float gpu_from_fp16(unsigned short bits) {
#if defined(__CUDACC__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    return (float)__builtin_bit_cast(_Float16, bits);
#endif
}
GPU_DEVICE unsigned short gpu_to_fp16(float x) {
#if defined(__CUDACC__)
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    return __builtin_bit_cast(unsigned short, (_Float16)x);
#endif
}

/* An e4m3fn code, exactly. A code without an exponent is read as if it had one, which is taken off again. */
GPU_DEVICE float gpu_from_float8(unsigned code) {
    const float read = gpu_bits_float((120u << 23) + ((code & 0x7f) << 20));
    const float magnitude = (code & 0x78) != 0 ? read : 2 * read - 0x1p-6f;
    if ((code & 0x7f) == 0x7f) return gpu_bits_float(0x7fc00000u);
    return (code & 0x80) != 0 ? -magnitude : magnitude;
}

/* Eight bf16: what one thread moves at once. */
struct alignas(16) gpu_bf16x8 {
    unsigned short v[8];
};
/* Sixteen bytes that are only moved: a vector, for a structure would be kept in memory. */
#if defined(__CUDACC__)
typedef uint4 gpu_bytes16;
GPU_DEVICE gpu_bytes16 gpu_zeros16() { return make_uint4(0, 0, 0, 0); }
#else
typedef unsigned gpu_bytes16 __attribute__((ext_vector_type(4)));
GPU_DEVICE gpu_bytes16 gpu_zeros16() { return gpu_bytes16{0, 0, 0, 0}; }
#endif

/* Number i of eight bf16 in sixteen bytes. Kept packed until then: unpacked in a branch, each load would be waited
 * for there. */
GPU_DEVICE float gpu_bf16_of(gpu_bytes16 packed, int i) {
    const unsigned word = i < 2 ? packed.x : i < 4 ? packed.y : i < 6 ? packed.z : packed.w;
    return gpu_bits_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

/* The same of fp16. */
GPU_DEVICE float gpu_fp16_of(gpu_bytes16 packed, int i) {
    const unsigned word = i < 2 ? packed.x : i < 4 ? packed.y : i < 6 ? packed.z : packed.w;
    return gpu_from_fp16((unsigned short)(i % 2 == 0 ? word : word >> 16));
}

/* 2^x and 1 / x by the special function units, within two units of the last place. */
GPU_DEVICE float gpu_exp2(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif defined(__AMDGCN__)
    return __builtin_amdgcn_exp2f(x);
#else
    return x;
#endif
}
GPU_DEVICE float gpu_reciprocal(float x) {
#if defined(__CUDA_ARCH__)
    float y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#elif defined(__AMDGCN__)
    return __builtin_amdgcn_rcpf(x);
#else
    return x;
#endif
}

#endif
