/* Fills device arrays with test data, and counts what is not finite in a result. */
#include "kernels/gpu/gpu.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"

enum { THREADS = 256 };

GPU_KERNEL(THREADS)
numbers_fill_bf16(unsigned short *out, long count, int kind, unsigned long long seed, int blocks) {
    for (long i = (long)gpu_block() * THREADS + gpu_thread(); i < count; i += (long)blocks * THREADS)
        out[i] = kind == SPW_NUMBERS_NAN ? 0x7fc0 : gpu_to_bf16(spw_number(kind, seed, (uint64_t)i));
}

GPU_KERNEL(THREADS)
numbers_fill_fp16(unsigned short *out, long count, int kind, unsigned long long seed, int blocks) {
    for (long i = (long)gpu_block() * THREADS + gpu_thread(); i < count; i += (long)blocks * THREADS)
        out[i] = kind == SPW_NUMBERS_NAN ? 0x7e00 : gpu_to_fp16(spw_number(kind, seed, (uint64_t)i));
}

GPU_KERNEL(THREADS)
numbers_fill_float(float *out, long count, int kind, unsigned long long seed, int blocks) {
    for (long i = (long)gpu_block() * THREADS + gpu_thread(); i < count; i += (long)blocks * THREADS)
        out[i] = kind == SPW_NUMBERS_NAN ? gpu_bits_float(0x7fc00000) : spw_number(kind, seed, (uint64_t)i);
}

#if GPU_HOST
GPU_KERNEL(THREADS)
numbers_count_unfinished(const unsigned short *x, long count, int least, unsigned long long *found,
                         int blocks) {
    unsigned long long here = 0;
    for (long i = (long)gpu_block() * THREADS + gpu_thread(); i < count; i += (long)blocks * THREADS)
        here += (x[i] & 0x7fff) >= least;
    if (here != 0) atomicAdd(found, here);
}

GPU_KERNEL(THREADS)
numbers_pick(const unsigned short *x, long width, spw_pick pick, unsigned short *out, int blocks) {
    const long count = pick.rows * pick.columns;
    for (long i = (long)gpu_block() * THREADS + gpu_thread(); i < count; i += (long)blocks * THREADS)
        out[i] = x[pick.row[i / pick.columns] * width + pick.column[i % pick.columns]];
}

static unsigned blocks_of(long count) {
    const long blocks = (count + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 4096 ? blocks : 4096);
}

int spw_launch_fill_bf16(unsigned short *out, long count, int kind, unsigned long long seed,
                         gpu_stream stream) {
    if (count == 0) return 0;
    numbers_fill_bf16<<<blocks_of(count), THREADS, 0, stream>>>(out, count, kind, seed,
                                                                (int)blocks_of(count));
    return (int)cudaGetLastError();
}

int spw_launch_fill_fp16(unsigned short *out, long count, int kind, unsigned long long seed,
                         gpu_stream stream) {
    if (count == 0) return 0;
    numbers_fill_fp16<<<blocks_of(count), THREADS, 0, stream>>>(out, count, kind, seed,
                                                                (int)blocks_of(count));
    return (int)cudaGetLastError();
}

int spw_launch_fill_float(float *out, long count, int kind, unsigned long long seed, gpu_stream stream) {
    if (count == 0) return 0;
    numbers_fill_float<<<blocks_of(count), THREADS, 0, stream>>>(out, count, kind, seed,
                                                                 (int)blocks_of(count));
    return (int)cudaGetLastError();
}

int spw_launch_count_unfinished(const unsigned short *x, long count, int least, unsigned long long *found,
                                gpu_stream stream) {
    if (count == 0) return 0;
    numbers_count_unfinished<<<blocks_of(count), THREADS, 0, stream>>>(x, count, least, found,
                                                                       (int)blocks_of(count));
    return (int)cudaGetLastError();
}

int spw_launch_pick(const unsigned short *x, long width, spw_pick pick, unsigned short *out,
                    gpu_stream stream) {
    const unsigned blocks = blocks_of(pick.rows * pick.columns);
    if (blocks == 0) return 0;
    numbers_pick<<<blocks, THREADS, 0, stream>>>(x, width, pick, out, (int)blocks);
    return (int)cudaGetLastError();
}
#endif
