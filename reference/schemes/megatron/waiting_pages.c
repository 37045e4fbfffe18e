#include "reference/schemes/megatron/waiting_pages.h"

#include <string.h>

struct spw_page {
    float *rows;
    size_t width;
    spw_page *next;
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

spw_status spw_waiting_pages_push(spw_execution *run, spw_waiting_pages *pool, size_t count, size_t width,
                                  const float *rows) {
    spw_status status = SPW_OK;
    for (size_t row = 0; row < count; row += pool->page_rows) {
        spw_page *page = NULL;
        SPW_TRY(SPW_SCRATCH(run, 1, &page));
        SPW_TRY(SPW_SCRATCH(run, pool->page_rows * width, &page->rows));
        page->width = width;
        memcpy(page->rows, rows + row * width,
               smaller(pool->page_rows, count - row) * width * sizeof *page->rows);
        if (pool->first == NULL) {
            pool->first = page;
        } else {
            pool->last->next = page;
        }
        pool->last = page;
    }
cleanup:
    return status;
}

spw_status spw_waiting_pages_pop(spw_waiting_pages *pool, size_t count, size_t width, float *rows) {
    for (size_t row = 0; row < count; row += pool->page_rows) {
        const spw_page *page = pool->first;
        if (page == NULL || page->width != width)
            return spw_fail(SPW_EARG, "no page of %zu numbers a row waits; rows come back in their order",
                            width);
        memcpy(rows + row * width, page->rows, smaller(pool->page_rows, count - row) * width * sizeof *rows);
        pool->first = page->next;
    }
    return SPW_OK;
}
