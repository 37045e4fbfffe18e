/* Stands in for the verifier of kernels where no GPU compiler was there. */
#include "kernels/verify/ranks/verify_exchange.h"
#include "kernels/verify/verify_device.h"

spw_status spw_verify_device(const char *level, const char *kind, const char *record_path) {
    (void)level, (void)kind, (void)record_path;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-verify (kernels/build.sh)");
}

spw_status spw_verify_exchange(const spw_exchange_request *request) {
    (void)request;
    return spw_fail(
        SPW_EDEVICE,
        "this build has no GPU; on a GPU machine build and run spillway-verify --ranks (kernels/build.sh)");
}
