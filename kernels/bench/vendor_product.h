/* A large dense bf16 product by the library of the GPU's vendor, the ceiling beside which grouped GEMMs are shown:
 * cuBLAS, hipBLASLt, or none where the build has found none. */
#ifndef SPW_KERNELS_BENCH_VENDOR_PRODUCT_H
#define SPW_KERNELS_BENCH_VENDOR_PRODUCT_H

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct spw_vendor_product spw_vendor_product;

extern const char *const spw_vendor_product_library;

/* Products of `side` x `side` matrices; *out = NULL where there is no library. SPW_EDEVICE: the library failed. */
SPW_MUST_CHECK spw_status spw_vendor_product_create(int side, spw_vendor_product **out);
void spw_vendor_product_destroy(spw_vendor_product *product); /* NULL is fine */
/* c = a^T b on the default stream, columns first; sums are in fp32. Device pointers. Does not wait. */
SPW_MUST_CHECK spw_status spw_vendor_product_run(spw_vendor_product *product, const void *a, const void *b,
                                                 void *c);

#ifdef __cplusplus
}
#endif
#endif
