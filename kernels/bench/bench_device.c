#include "kernels/bench/bench_device.h"

#include "kernels/bench/bench.h"
#include "kernels/gpu/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

spw_status spw_bench_device(const char *only) {
    const bool gemm = strcmp(only, "gemm") == 0, local = strcmp(only, "local") == 0, both = only[0] == '\0';
    spw_status status = SPW_OK;
    if (!gemm && !local && !both)
        return spw_fail(SPW_EARG, "'%s' is unknown; use gemm, local, or nothing for both", only);
    if (spw_device_count() == 0) return spw_fail(SPW_EDEVICE, "no GPU");
    printf("who,what,shape,routing,experts,rows,in,out,ms,rate,unit\n");
    SPW_TRY(spw_bench_ceilings());
    if (gemm || both) SPW_TRY(spw_bench_gemm());
    if (local || both) SPW_TRY(spw_bench_local());
    SPW_TRY(spw_bench_ceilings());
cleanup:
    return status;
}
