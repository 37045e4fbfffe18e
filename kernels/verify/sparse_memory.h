/* Arrays larger than memory, for cases of which few numbers matter: addresses that cost nothing until they are written to. */
#ifndef SPW_KERNELS_VERIFY_SPARSE_MEMORY_H
#define SPW_KERNELS_VERIFY_SPARSE_MEMORY_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_sparse {
    unsigned char *memory; /* on a page; NULL: not there */
    size_t bytes;
} spw_sparse;

/* Zeros. What is read stays without memory; a page that is written to is memory of its own. SPW_ENOMEM, also where the system gives no
 * such addresses. */
SPW_MUST_CHECK spw_status spw_sparse_zeros(size_t bytes, spw_sparse *out);
/* Ends writing: who writes to it dies by SIGSEGV. */
void spw_sparse_seal(const spw_sparse *s);

/* Room for an output: every byte is 0xff. Only the pages around the `kept` bytes from each of `at` on, and the first and last `edge`
 * bytes, are memory of their own; all else is the same few pages again and again, so that what is written there costs no memory and is
 * lost. SPW_ENOMEM as above. */
SPW_MUST_CHECK spw_status spw_sparse_sink(size_t bytes, const size_t *at, size_t count, size_t kept,
                                          size_t edge, spw_sparse *out);

void spw_sparse_destroy(spw_sparse *s); /* a zeroed one is fine */

#endif
