/* Stands in for device.c where no GPU compiler was there, so that no other file needs an #ifdef. */
#include "kernels/bench_device.h"
#include "kernels/bench_exchange.h"
#include "kernels/bench_layer.h"
#include "kernels/device.h"
#include "kernels/verify_device.h"
#include "kernels/verify_exchange.h"

int spw_device_count(void) { return 0; }
int spw_device_multiprocessors(void) { return 0; }
const char *spw_device_name(void) { return "none"; }

spw_status spw_verify_device(const char *level, const char *record_path) {
    (void)level, (void)record_path;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-verify (kernels/build.sh)");
}

spw_status spw_bench_device(const char *only) {
    (void)only;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-bench-kernels (kernels/build.sh)");
}

spw_status spw_verify_exchange(const spw_exchange_request *request) {
    (void)request;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-verify --ranks (kernels/build.sh)");
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
