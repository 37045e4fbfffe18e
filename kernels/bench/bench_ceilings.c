/* What this machine can do at most, by the vendor's own means. */
#include "kernels/bench/bench.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"

#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 8192, COPY_BYTES = 1 << 30 };

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double spw_bench_median(double *value, size_t count) {
    qsort(value, count, sizeof *value, compare);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

spw_status spw_bench_time(spw_bench_step *prepare, spw_bench_step *work, void *data, double *milliseconds) {
    spw_status status = SPW_OK;
    spw_device_timer timer;
    double times[SPW_BENCH_RUNS];
    SPW_TRY(spw_device_timer_create(&timer));
    for (int run = -1; run < SPW_BENCH_RUNS; run++) {
        SPW_TRY(prepare(data, run + 1));
        SPW_TRY(spw_device_timer_start(&timer));
        SPW_TRY(work(data, run + 1));
        double elapsed = 0;
        SPW_TRY(spw_device_timer_stop(&timer, &elapsed));
        if (run >= 0) times[run] = elapsed;
    }
    *milliseconds = spw_bench_median(times, SPW_BENCH_RUNS);
cleanup:
    spw_device_timer_destroy(&timer);
    return status;
}

typedef struct ceiling {
    cublasHandle_t handle;
    spw_device_array a, b, c;
} ceiling;

static spw_status fill(void *pointer, int run) {
    ceiling *d = pointer;
    spw_status status = SPW_OK;
    const unsigned long long seed = 2 * (unsigned long long)run;
    SPW_TRY(spw_device_check(
        spw_launch_fill_bf16(d->a.data, (long)SIDE * SIDE, SPW_NUMBERS_BELL, seed + 1, NULL), "fill"));
    SPW_TRY(spw_device_check(
        spw_launch_fill_bf16(d->b.data, (long)SIDE * SIDE, SPW_NUMBERS_BELL, seed + 2, NULL), "fill"));
cleanup:
    return status;
}

static spw_status multiply(void *pointer, int run) {
    ceiling *d = pointer;
    const float one = 1, zero = 0;
    (void)run;
    const cublasStatus_t result = cublasGemmEx(
        d->handle, CUBLAS_OP_T, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, d->a.data, CUDA_R_16BF, SIDE, d->b.data,
        CUDA_R_16BF, SIDE, &zero, d->c.data, CUDA_R_16BF, SIDE, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return result == CUBLAS_STATUS_SUCCESS ? SPW_OK
                                           : spw_fail(SPW_EDEVICE, "cublasGemmEx: status %d", (int)result);
}

static spw_status copy(void *pointer, int run) {
    ceiling *d = pointer;
    (void)run;
    return spw_device_check(
        (int)cudaMemcpyAsync(d->c.data, d->a.data, COPY_BYTES, cudaMemcpyDeviceToDevice, NULL), "copy");
}

spw_status spw_bench_ceilings(void) {
    spw_status status = SPW_OK;
    ceiling d = {0};
    double ms = 0;
    if (cublasCreate(&d.handle) != CUBLAS_STATUS_SUCCESS) return spw_fail(SPW_EDEVICE, "cublasCreate failed");
    SPW_TRY(spw_device_array_create(COPY_BYTES, &d.a));
    SPW_TRY(spw_device_array_create((size_t)SIDE * SIDE * 2, &d.b));
    SPW_TRY(spw_device_array_create(COPY_BYTES, &d.c));
    SPW_TRY(spw_bench_time(fill, multiply, &d, &ms));
    printf("cublas,dense product,8192^3,,,%d,%d,%d,%.4f,%.1f,TFLOP/s\n", SIDE, SIDE, SIDE, ms,
           2e-9 * SIDE * SIDE * SIDE / ms);
    SPW_TRY(spw_bench_time(fill, copy, &d, &ms));
    printf("runtime,device copy,1 GiB,,,,,,%.4f,%.1f,GB/s\n", ms, 2e-6 * COPY_BYTES / ms);
    fflush(stdout);
cleanup:
    spw_device_array_destroy(&d.a), spw_device_array_destroy(&d.b), spw_device_array_destroy(&d.c);
    (void)cublasDestroy(d.handle);
    return status;
}
