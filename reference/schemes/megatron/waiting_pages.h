/* Pages of a fixed number of rows in which tensors wait for the backward pass: a tensor takes as many as its rows in use
 * fill, and gives them back when it comes back. One pool stands for those of all ranks; first in, first out. */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_WAITING_PAGES_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_WAITING_PAGES_H

#include "reference/schemes/ranks.h"

typedef struct spw_page spw_page;
typedef struct spw_waiting_pages {
    size_t page_rows;
    spw_page *first, *last; /* that wait; live until the run ends */
} spw_waiting_pages;

/* rows [count][width] into ceil(count / page_rows) pages. */
SPW_MUST_CHECK spw_status spw_waiting_pages_push(spw_execution *run, spw_waiting_pages *pool, size_t count,
                                                 size_t width, const float *rows);
/* The mirror, in the order of the pushes. SPW_EARG: there are no such pages. */
SPW_MUST_CHECK spw_status spw_waiting_pages_pop(spw_waiting_pages *pool, size_t count, size_t width,
                                                float *rows);

#endif
