/* For every thread of a block: how many threads before it hold the same class (an expert), without atomics. */
#ifndef SPW_KERNELS_LOCAL_BLOCK_RANK_H
#define SPW_KERNELS_LOCAL_BLOCK_RANK_H

#include "kernels/gpu/gpu.h"

/* `THREADS` threads, classes in [0, CLASSES), a class < 0 takes no part. seen[CLASSES]: how many each class has
 * had in earlier calls, brought up to date by this one. */
template <int THREADS, int CLASSES> struct block_rank {
    enum { WAVES = THREADS / GPU_WAVE };
    int seen[CLASSES];
    unsigned short in_wave[WAVES][CLASSES];

    __device__ void start() {
        for (int i = gpu_thread(); i < CLASSES; i += THREADS) seen[i] = 0;
        clear();
    }
    __device__ void clear() {
        for (int i = gpu_thread(); i < WAVES * CLASSES; i += THREADS) in_wave[i / CLASSES][i % CLASSES] = 0;
        gpu_barrier();
    }

    /* All threads call it together. */
    __device__ int rank(int class_) {
        const int wave = gpu_thread() / GPU_WAVE;
        unsigned long long same = gpu_ballot(class_ >= 0);
        for (int bit = 1; bit < CLASSES; bit *= 2) {
            const unsigned long long set = gpu_ballot((class_ & bit) != 0);
            same &= (class_ & bit) != 0 ? set : ~set;
        }
        const int before = gpu_bits(same & ((1ull << gpu_lane()) - 1));
        if (class_ >= 0 && before == 0) in_wave[wave][class_] = (unsigned short)gpu_bits(same);
        gpu_barrier();
        int result = before;
        if (class_ >= 0) {
            result += seen[class_];
            for (int w = 0; w < wave; w++) result += in_wave[w][class_];
        }
        gpu_barrier();
        for (int i = gpu_thread(); i < CLASSES; i += THREADS) {
            for (int w = 0; w < WAVES; w++) seen[i] += in_wave[w][i], in_wave[w][i] = 0;
        }
        gpu_barrier();
        return result;
    }
};

#endif
