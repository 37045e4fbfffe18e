/* Cases with more than 2^24 rows or 2^31 elements, in sparse memory: where an index of 32 bits, or a float that counts rows, fails. All
 * numbers are zero but those of a few rows, small integers; what comes out for these rows is compared. */
#ifndef SPW_KERNELS_VERIFY_KERNEL_SPARSE_H
#define SPW_KERNELS_VERIFY_KERNEL_SPARSE_H

#include "kernels/verify/kernel_case.h"

/* How many there are of a kernel, in one type. */
size_t spw_kernel_sparse_count(spw_kernel kernel);

/* Fills a case whose call has kernel and type. Inputs cannot be written to. SPW_ENOMEM where the system gives no such addresses. */
SPW_MUST_CHECK spw_status spw_kernel_sparse_make(spw_kernel_case *c, size_t number);

#endif
