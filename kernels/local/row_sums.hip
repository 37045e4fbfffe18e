/* Gradients of router weights from the parts that a fused product left for each row. */
#include "kernels/gpu/gpu.h"
#include "kernels/local/local_launch.h"

enum { THREADS = 256 };

GPU_KERNEL(THREADS)
row_sums(int assignments, int rows, int parts, const int *row, const float *part, float *d_weight) {
    const int at = gpu_block() * THREADS + gpu_thread();
    if (at >= assignments) return;
    const int from = row[at];
    float sum = 0;
    for (int i = 0; from >= 0 && i < parts; i++) sum += part[(long)i * rows + from];
    d_weight[at] = sum;
}

#if GPU_HOST
int spw_launch_row_sums(int assignments, int rows, int parts, const int *row, const float *part,
                        float *d_weight, gpu_stream stream) {
    if (assignments > 0)
        row_sums<<<(unsigned)((assignments + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            assignments, rows, parts, row, part, d_weight);
    return (int)cudaGetLastError();
}
#endif
