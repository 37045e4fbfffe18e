/* Stands in where the build has found no library of the vendor: the ceiling of products is not measured. */
#include "kernels/bench/vendor_product.h"

const char *const spw_vendor_product_library = "none";

spw_status spw_vendor_product_create(int side, spw_vendor_product **out) {
    (void)side;
    *out = NULL;
    return SPW_OK;
}

void spw_vendor_product_destroy(spw_vendor_product *product) { (void)product; }

spw_status spw_vendor_product_run(spw_vendor_product *product, const void *a, const void *b, void *c) {
    (void)product, (void)a, (void)b, (void)c;
    return spw_fail(SPW_EDEVICE,
                    "this build has no library of the GPU's vendor; hipBLASLt or cuBLAS would be right");
}
