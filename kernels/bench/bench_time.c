#include "kernels/bench/bench.h"

#include <stdlib.h>

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
