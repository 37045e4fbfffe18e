/* Sparse operands, and the cases whose rows are moved or judged one by one: the inside of kernel_sparse.h. */
#ifndef SPW_KERNELS_VERIFY_KERNEL_SPARSE_ROWS_H
#define SPW_KERNELS_VERIFY_KERNEL_SPARSE_ROWS_H

#include "kernels/verify/kernel_case.h"

/* An array [rows][width] that is zero but in the rows `place`, which rise. */
typedef struct spw_sparse_rows {
    size_t rows, width, places, place[SPW_KERNEL_SAMPLES];
} spw_sparse_rows;

/* The first and last of `rows` rows, and those beside 2^16 rows, 2^24 rows, 2^31 and 2^32 elements; how many they are. */
size_t spw_sparse_places(size_t rows, size_t width, size_t place[SPW_KERNEL_SAMPLES]);
/* An input, and the numbers of its places, *values [places][width], the caller's to free. */
SPW_MUST_CHECK spw_status spw_sparse_rows_make(spw_kernel_case *c, size_t input, const spw_sparse_rows *r,
                                               uint64_t seed, float **values);
/* The output, of which the places are judged, and want and scale [places][width], zeroed; the router's index. */
SPW_MUST_CHECK spw_status spw_sparse_output_make(spw_kernel_case *c, const spw_sparse_rows *r);
SPW_MUST_CHECK spw_status spw_sparse_index_make(spw_kernel_case *c, const spw_sparse_rows *r);

/* Fill a case whose call has its sizes; in: width of a row, tokens: its rows. */
spw_status spw_sparse_make_permute(spw_kernel_case *c);
spw_status spw_sparse_make_unpermute(spw_kernel_case *c);
spw_status spw_sparse_make_swiglu(spw_kernel_case *c);
spw_status spw_sparse_make_router(spw_kernel_case *c);
spw_status spw_sparse_make_dispatch(spw_kernel_case *c);
spw_status spw_sparse_make_combine(spw_kernel_case *c);

#endif
