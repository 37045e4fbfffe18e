/* Stands in for the benchmarks of kernels where no GPU compiler was there. */
#include "kernels/bench/bench_device.h"
#include "kernels/bench/bench_exchange.h"
#include "kernels/bench/bench_layer.h"

spw_status spw_bench_device(const char *only) {
    (void)only;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-bench-kernels (kernels/build.sh)");
}

spw_status spw_bench_exchange(const spw_bench_exchange_request *request, spw_link_curve *curve) {
    (void)request, (void)curve;
    return spw_fail(SPW_EDEVICE, "this build has no GPU; on a machine with several build and run "
                                 "spillway-bench-kernels dispatch (kernels/build.sh)");
}

spw_status spw_bench_layer(const spw_bench_layer_request *request) {
    (void)request;
    return spw_fail(SPW_EDEVICE, "this build has no GPU; on a GPU machine build and run "
                                 "spillway-bench-kernels layer (kernels/build.sh)");
}
