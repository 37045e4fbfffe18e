/* What a kernel needs that shares memory with other GPUs: accesses ordered for the whole machine, and a clock. */
#ifndef SPW_KERNELS_GPU_GPU_SYSTEM_H
#define SPW_KERNELS_GPU_GPU_SYSTEM_H

#include "kernels/gpu/gpu.h"

#if defined(__CUDACC__)
#define GPU_ARGUMENT const __grid_constant__ /* a large argument that is read where it lies */
#else
#define GPU_ARGUMENT const
#endif

/* Memory of a GPU, for an address that was kept as a number: its space is not known any more. */
#if defined(__AMDGCN__)
#define GPU_GLOBAL __attribute__((address_space(1)))
#else
#define GPU_GLOBAL
#endif

/* gpu_settle: what this wave has written is where a fence of another wave of its block finds it. To be called
 * before a barrier behind which one wave speaks for all: AMD's barrier waits for no store. */
#if defined(__CUDA_ARCH__)
GPU_DEVICE void gpu_settle() {}
GPU_DEVICE void gpu_fence_system() { __threadfence_system(); }
GPU_DEVICE void gpu_release_system(unsigned *to, unsigned value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
GPU_DEVICE void gpu_release_system(unsigned long long *to, unsigned long long value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
/* For this GPU alone: does not wait for what goes to others. */
GPU_DEVICE void gpu_release(unsigned *to, unsigned value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/* Orders nothing. */
GPU_DEVICE void gpu_tell_system(unsigned *to, unsigned value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
GPU_DEVICE void gpu_tell_system(unsigned long long *to, unsigned long long value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
/* Releases what earlier kernels of the stream wrote: it is where other GPUs find it, without a fence. */
template <class T> GPU_DEVICE void gpu_release_earlier(T *to, T value) { gpu_tell_system(to, value); }
/* Orders nothing: to be asked again and again, and then with gpu_acquire_system once. */
GPU_DEVICE unsigned gpu_peek_system(const unsigned *from) {
    unsigned value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
GPU_DEVICE unsigned long long gpu_peek_system(const unsigned long long *from) {
    unsigned long long value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}
GPU_DEVICE unsigned gpu_acquire_system(const unsigned *from) {
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
GPU_DEVICE unsigned long long gpu_acquire_system(const unsigned long long *from) {
    unsigned long long value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}
/* A word of shared memory between waves of a block: what this wave has written before is there for whoever asks, sees it, and then
 * fences. Both are exchanges, by which sanitizers and the emulator know them from accesses that meet by mistake. */
GPU_DEVICE void gpu_tell_block(unsigned long long *to, unsigned long long value) {
    asm volatile("{ .reg .b64 before; atom.release.cta.exch.b64 before, [%0], %1; }" ::"l"(to), "l"(value)
                 : "memory");
}
GPU_DEVICE unsigned long long gpu_ask_block(unsigned long long *from) {
    unsigned long long value;
    asm volatile("atom.acquire.cta.cas.b64 %0, [%1], %2, %2;"
                 : "=l"(value)
                 : "l"(from), "l"(~0ull)
                 : "memory");
    return value;
}
/* Returns what was there; ordered among the threads of this GPU. */
GPU_DEVICE unsigned gpu_add(unsigned *to, unsigned value) { return atomicAdd(to, value); }
GPU_DEVICE void gpu_add(int *to, int value) { atomicAdd(to, value); }
GPU_DEVICE void gpu_add(unsigned long long *to, unsigned long long value) { atomicAdd(to, value); }
GPU_DEVICE unsigned long long gpu_nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}
/* The next kernel of the stream may be put on free multiprocessors already; it waits where it calls
 * gpu_wait_for_previous, for the end of this one. Both are nothing when it was not launched so. */
GPU_DEVICE void gpu_let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
GPU_DEVICE void gpu_wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
#elif defined(__AMDGCN__)
GPU_DEVICE void gpu_let_next_start() {}
GPU_DEVICE void gpu_wait_for_previous() {}
/* vmcnt(0), the other counters any. */
GPU_DEVICE void gpu_settle() { __builtin_amdgcn_s_waitcnt(0x0f70); }
/* Release and acquire with a wait of our own between them: clang 22 drops its own behind a write-back of the cache
 * where it knows of no store under way (LLVM pull request 178316), and what follows would overtake the write-back. */
GPU_DEVICE void gpu_fence_system() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    gpu_settle();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}
template <class T> GPU_DEVICE void gpu_release_system(T *to, T value) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    gpu_settle();
    __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T> GPU_DEVICE void gpu_release(T *to, T value) { gpu_release_system(to, value); }
template <class T> GPU_DEVICE void gpu_tell_system(T *to, T value) {
    __hip_atomic_store(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T> GPU_DEVICE void gpu_release_earlier(T *to, T value) { gpu_release_system(to, value); }
template <class T> GPU_DEVICE T gpu_acquire_system(const T *from) {
    return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
template <class T> GPU_DEVICE T gpu_peek_system(const T *from) { return gpu_acquire_system(from); }
GPU_DEVICE void gpu_tell_block(unsigned long long *to, unsigned long long value) {
    gpu_settle();
    (void)__hip_atomic_exchange(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
}
GPU_DEVICE unsigned long long gpu_ask_block(unsigned long long *from) {
    unsigned long long seen = ~0ull;
    (void)__hip_atomic_compare_exchange_strong(from, &seen, ~0ull, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE,
                                               __HIP_MEMORY_SCOPE_WORKGROUP);
    return seen;
}
template <class T> GPU_DEVICE T gpu_add(T *to, T value) {
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
GPU_DEVICE unsigned long long gpu_nanoseconds() { return 10 * __builtin_amdgcn_s_memrealtime(); }
#else /* a host pass: parsed, never run */
GPU_DEVICE void gpu_let_next_start() {}
GPU_DEVICE void gpu_wait_for_previous() {}
GPU_DEVICE void gpu_settle() {}
GPU_DEVICE void gpu_fence_system() {}
template <class T> GPU_DEVICE void gpu_release_system(T *, T) {}
template <class T> GPU_DEVICE void gpu_release(T *, T) {}
template <class T> GPU_DEVICE void gpu_tell_system(T *, T) {}
template <class T> GPU_DEVICE void gpu_release_earlier(T *, T) {}
template <class T> GPU_DEVICE T gpu_peek_system(const T *from) { return *from; }
template <class T> GPU_DEVICE T gpu_acquire_system(const T *from) { return *from; }
GPU_DEVICE void gpu_tell_block(unsigned long long *, unsigned long long) {}
GPU_DEVICE unsigned long long gpu_ask_block(unsigned long long *from) { return *from; }
template <class T> GPU_DEVICE T gpu_add(T *to, T) { return *to; }
GPU_DEVICE unsigned long long gpu_nanoseconds() { return 0; }
#endif

#endif
