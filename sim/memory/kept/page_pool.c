#include "sim/memory/kept/page_pool.h"
#include "sim/model/model.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <math.h>

/* MoE layers that wait for their backward pass, at most. */
static uint64_t layers_in_flight(const spw_pipeline *p, const spw_model *model, size_t stage) {
    uint64_t now = 0, most = 0;
    for (size_t i = 0; i < spw_pipeline_passes(p); i++) {
        const spw_pass pass = spw_pipeline_pass(p, stage, i);
        const spw_block block = spw_pipeline_block(p, model, stage, pass.chunk);
        const uint64_t layers = block.moe_layers + block.predictions;
        now = pass.backward ? now - layers : now + layers;
        /* of two passes side by side one layer comes before the other's goes */
        const uint64_t here = spw_pipeline_is_pair(p, stage, i) && layers > 0 ? now - layers + 1 : now;
        most = here > most ? here : most;
    }
    return most;
}

static uint64_t pages_of(const spw_page_pool *pool, uint64_t rows) {
    return (rows + pool->page_rows - 1) / pool->page_rows;
}

uint64_t spw_pool_pages(const spw_page_pool *pool, size_t tensor, uint64_t rows) {
    return pages_of(pool, rows / pool->tensor[tensor].each);
}

uint64_t spw_pool_tensor_bytes(const spw_page_pool *pool, size_t tensor, uint64_t rows) {
    return rows / pool->tensor[tensor].each * pool->tensor[tensor].row_bytes;
}

spw_stage_pages spw_stage_pages_of(const spw_page_pool *pool, const spw_pipeline *pipeline,
                                   const spw_model *model, size_t stage) {
    const uint64_t layers = layers_in_flight(pipeline, model, stage);
    spw_stage_pages out = {.gpu_bytes = 0};
    for (size_t b = 0; b < pool->buffers; b++) {
        uint64_t rows = 0, row_bytes = 0;
        for (size_t t = 0; t < pool->tensors; t++) {
            if (pool->tensor[t].buffer != b) continue;
            rows += layers * (pool->mean_rows / pool->tensor[t].each);
            row_bytes = pool->tensor[t].row_bytes;
        }
        out.gpu[b] = pages_of(pool, (uint64_t)((double)rows * pool->factor));
        out.host[b] = pages_of(pool, (uint64_t)((double)rows * pool->host_factor));
        out.gpu_bytes += out.gpu[b] * pool->page_rows * row_bytes;
        out.host_bytes += out.host[b] * pool->page_rows * row_bytes;
    }
    return out;
}

double spw_pool_worst_factor(const spw_page_pool *pool) {
    double most = 0.0;
    for (size_t b = 0; b < pool->buffers; b++) {
        uint64_t rows = 0, pages = 0;
        for (size_t t = 0; t < pool->tensors; t++) {
            if (pool->tensor[t].buffer != b) continue;
            rows += pool->mean_rows / pool->tensor[t].each;
            pages += spw_pool_pages(pool, t, pool->buffer_rows);
        }
        if (rows > 0) most = fmax(most, (double)(pages * pool->page_rows) / (double)rows);
    }
    return ceil(most * 1000.0 - 1e-6) / 1000.0;
}
