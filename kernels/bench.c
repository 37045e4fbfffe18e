/* spillway-bench-kernels: medians over fresh inputs by device events, beside the machine's ceilings measured
 * in the same run. */
#include "kernels/bench.h"

#include "kernels/bench_device.h"

#include <stdio.h>

int main(int argc, char **argv) {
    const spw_status status = spw_bench_device(argc > 1 ? argv[1] : "");
    if (status != SPW_OK) fprintf(stderr, "spillway-bench-kernels: %s\n", spw_last_error());
    return spw_status_exit(status);
}
