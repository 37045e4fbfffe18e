/* Host code alone; a file of HIP because hipblaslt.h of ROCm 6 is C++. */
#include "base/memory.h"
#include "kernels/bench/vendor_product.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <hipblaslt/hipblaslt.h>

enum { WORKSPACE_BYTES = 128 << 20 };

struct spw_vendor_product {
    hipblasLtHandle_t handle;
    hipblasLtMatmulDesc_t product;
    hipblasLtMatrixLayout_t matrix; /* of all three */
    hipblasLtMatmulPreference_t preference;
    hipblasLtMatmulHeuristicResult_t chosen;
    void *workspace;
};

const char *const spw_vendor_product_library = "hipblaslt";

static spw_status check(hipblasStatus_t result, const char *call) {
    return result == HIPBLAS_STATUS_SUCCESS ? SPW_OK
                                            : spw_fail(SPW_EDEVICE, "%s: status %d", call, (int)result);
}

static spw_status describe(spw_vendor_product *p, int side) {
    const hipblasOperation_t transpose = HIPBLAS_OP_T;
    const uint64_t workspace_bytes = WORKSPACE_BYTES, n = (uint64_t)side;
    spw_status status = SPW_OK;
    SPW_TRY(
        check(hipblasLtMatmulDescCreate(&p->product, HIPBLAS_COMPUTE_32F, HIP_R_32F), "describe a product"));
    SPW_TRY(check(hipblasLtMatmulDescSetAttribute(p->product, HIPBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                                  sizeof transpose),
                  "describe a product"));
    SPW_TRY(check(hipblasLtMatrixLayoutCreate(&p->matrix, HIP_R_16BF, n, n, side), "describe a matrix"));
    SPW_TRY(check(hipblasLtMatmulPreferenceCreate(&p->preference), "create a preference"));
    SPW_TRY(
        check(hipblasLtMatmulPreferenceSetAttribute(p->preference, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof workspace_bytes),
              "limit the workspace"));
cleanup:
    return status;
}

static spw_status choose(spw_vendor_product *p) {
    int found = 0;
    const spw_status status =
        check(hipblasLtMatmulAlgoGetHeuristic(p->handle, p->product, p->matrix, p->matrix, p->matrix,
                                              p->matrix, p->preference, 1, &p->chosen, &found),
              "hipblasLtMatmulAlgoGetHeuristic");
    if (status != SPW_OK) return status;
    return found > 0 ? SPW_OK : spw_fail(SPW_EDEVICE, "hipBLASLt has no algorithm for this product of bf16");
}

spw_status spw_vendor_product_create(int side, spw_vendor_product **out) {
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, out));
    SPW_TRY(check(hipblasLtCreate(&(*out)->handle), "hipblasLtCreate"));
    SPW_TRY(describe(*out, side));
    SPW_TRY(choose(*out));
    SPW_TRY_GPU(cudaMalloc(&(*out)->workspace, WORKSPACE_BYTES), "allocate");
    return SPW_OK;
cleanup:
    spw_vendor_product_destroy(*out);
    *out = NULL;
    return status;
}

void spw_vendor_product_destroy(spw_vendor_product *p) {
    if (p == NULL) return;
    if (p->workspace != NULL) (void)cudaFree(p->workspace);
    if (p->preference != NULL) (void)hipblasLtMatmulPreferenceDestroy(p->preference);
    if (p->matrix != NULL) (void)hipblasLtMatrixLayoutDestroy(p->matrix);
    if (p->product != NULL) (void)hipblasLtMatmulDescDestroy(p->product);
    if (p->handle != NULL) (void)hipblasLtDestroy(p->handle);
    spw_free(p);
}

spw_status spw_vendor_product_run(spw_vendor_product *p, const void *a, const void *b, void *c) {
    const float one = 1, zero = 0;
    return check(hipblasLtMatmul(p->handle, p->product, &one, a, p->matrix, b, p->matrix, &zero, c, p->matrix,
                                 c, p->matrix, &p->chosen.algo, p->workspace, WORKSPACE_BYTES, NULL),
                 "hipblasLtMatmul");
}
