/* The pages of one pipeline stage's pool (docs/schemes.md, section 5.6). A buffer has pages for
 *     int(L x (sum over its tensors of mean_rows // each) x factor)  rows,
 * with L the MoE layers that the stage keeps at most in its schedule; factor of the GPU's pages or of the host's. A tensor of
 * n rows takes ceil(n / page_rows) pages. */
#ifndef SPW_SIM_MEMORY_KEPT_PAGE_POOL_H
#define SPW_SIM_MEMORY_KEPT_PAGE_POOL_H

#include "sim/model/model.h"
#include "sim/schemes/scheme.h"

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */

typedef struct spw_stage_pages {
    uint64_t gpu[SPW_POOL_TENSORS], host[SPW_POOL_TENSORS]; /* [buffers] */
    uint64_t gpu_bytes, host_bytes;
} spw_stage_pages;

spw_stage_pages spw_stage_pages_of(const spw_page_pool *pool, const spw_pipeline *pipeline,
                                   const spw_model *model, size_t stage);
/* Pages of one tensor, and its bytes without what fills up the last page. rows: of the experts. */
uint64_t spw_pool_pages(const spw_page_pool *pool, size_t tensor, uint64_t rows);
uint64_t spw_pool_tensor_bytes(const spw_page_pool *pool, size_t tensor, uint64_t rows);
/* The smallest factor, in thousandths rounded up, with which pages for layers that are all full are enough. */
double spw_pool_worst_factor(const spw_page_pool *pool);

#endif
