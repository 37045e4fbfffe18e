#include "kernels/bench/vendor_product.h"

#include "base/memory.h"

#include <cublas_v2.h>

struct spw_vendor_product {
    cublasHandle_t handle;
    int side;
};

const char *const spw_vendor_product_library = "cublas";

static spw_status check(cublasStatus_t result, const char *call) {
    return result == CUBLAS_STATUS_SUCCESS ? SPW_OK
                                           : spw_fail(SPW_EDEVICE, "%s: status %d", call, (int)result);
}

spw_status spw_vendor_product_create(int side, spw_vendor_product **out) {
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, out));
    (*out)->side = side;
    SPW_TRY(check(cublasCreate(&(*out)->handle), "cublasCreate"));
    return SPW_OK;
cleanup:
    spw_free(*out);
    *out = NULL;
    return status;
}

void spw_vendor_product_destroy(spw_vendor_product *product) {
    if (product != NULL) (void)cublasDestroy(product->handle);
    spw_free(product);
}

spw_status spw_vendor_product_run(spw_vendor_product *p, const void *a, const void *b, void *c) {
    const float one = 1, zero = 0;
    const int n = p->side;
    return check(cublasGemmEx(p->handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a, CUDA_R_16BF, n, b,
                              CUDA_R_16BF, n, &zero, c, CUDA_R_16BF, n, CUBLAS_COMPUTE_32F,
                              CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}
