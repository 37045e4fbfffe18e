/* What this machine can do at most, by the vendor's own means. */
#include "kernels/bench/bench.h"
#include "kernels/bench/vendor_product.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"

#include <stdio.h>

enum { SIDE = 8192, COPY_BYTES = 1 << 30 };

typedef struct ceiling {
    spw_vendor_product *product;
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
    (void)run;
    return spw_vendor_product_run(d->product, d->a.data, d->b.data, d->c.data);
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
    SPW_TRY(spw_vendor_product_create(SIDE, &d.product));
    SPW_TRY(spw_device_array_create(COPY_BYTES, &d.a));
    SPW_TRY(spw_device_array_create((size_t)SIDE * SIDE * 2, &d.b));
    SPW_TRY(spw_device_array_create(COPY_BYTES, &d.c));
    if (d.product != NULL) {
        SPW_TRY(spw_bench_time(fill, multiply, &d, &ms));
        printf("%s,dense product,8192^3,,,%d,%d,%d,%.4f,%.1f,TFLOP/s\n", spw_vendor_product_library, SIDE,
               SIDE, SIDE, ms, 2e-9 * SIDE * SIDE * SIDE / ms);
    }
    SPW_TRY(spw_bench_time(fill, copy, &d, &ms));
    printf("runtime,device copy,1 GiB,,,,,,%.4f,%.1f,GB/s\n", ms, 2e-6 * COPY_BYTES / ms);
    fflush(stdout);
cleanup:
    spw_device_array_destroy(&d.a), spw_device_array_destroy(&d.b), spw_device_array_destroy(&d.c);
    spw_vendor_product_destroy(d.product);
    return status;
}
