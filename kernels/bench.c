/* spillway-bench-kernels: medians over fresh inputs by device events, beside the machine's ceilings measured
 * in the same run. Prints comma-separated lines; one header. */
#include "kernels/bench.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *only = argc > 1 ? argv[1] : "";
    spw_status status = SPW_OK;
    if (spw_device_count() == 0) {
        fprintf(stderr, "no GPU\n");
        return 3;
    }
    printf("who,what,shape,routing,experts,rows,in,out,ms,rate,unit\n");
    SPW_TRY(spw_bench_ceilings());
    if (strstr("gemm", only) != NULL) SPW_TRY(spw_bench_gemm());
    if (strstr("local", only) != NULL) SPW_TRY(spw_bench_local());
    SPW_TRY(spw_bench_ceilings());
cleanup:
    if (status != SPW_OK) fprintf(stderr, "stopped: %s\n", spw_last_error());
    return spw_status_exit(status);
}
