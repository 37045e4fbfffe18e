#include "sim/weights/stage_layers.h"

#include "base/memory.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <stdint.h>

static void place(const spw_model *model, const spw_block *block, spw_stage_layer *layer) {
    /* bare layers are all the same, and their model does not name them */
    const bool named = model->layers > model->moe_layers;
    size_t moe = 0, at = 0;
    for (size_t i = 0; i < block->first; i++) moe += !named || model->is_moe[i];
    for (size_t i = block->first; i < block->first + block->layers; i++) {
        const bool experts = !named || model->is_moe[i];
        layer[at++] = (spw_stage_layer){experts ? moe++ : SIZE_MAX, experts};
    }
    for (size_t i = 0; i < block->predictions; i++) layer[at++] = (spw_stage_layer){SIZE_MAX, true};
}

spw_status spw_stage_layers_create(const spw_pipeline *pipeline, const spw_model *model, size_t stage,
                                   spw_stage_layers *out) {
    size_t count = 0;
    *out = (spw_stage_layers){.most = 0};
    spw_status status = SPW_ALLOC(pipeline->chunks + 1, &out->begin);
    for (size_t c = 0; c < pipeline->chunks && status == SPW_OK; c++) {
        const spw_block block = spw_pipeline_block(pipeline, model, stage, c);
        const size_t here = block.layers + block.predictions;
        out->begin[c] = count;
        count += here;
        out->begin[c + 1] = count;
        if (here > out->most) out->most = here;
    }
    if (status == SPW_OK) status = SPW_ALLOC(count > 0 ? count : 1, &out->layer);
    for (size_t c = 0; c < pipeline->chunks && status == SPW_OK; c++) {
        const spw_block block = spw_pipeline_block(pipeline, model, stage, c);
        place(model, &block, out->layer + out->begin[c]);
    }
    return status;
}

void spw_stage_layers_destroy(spw_stage_layers *layers) {
    spw_free(layers->begin);
    spw_free(layers->layer);
    *layers = (spw_stage_layers){.most = 0};
}
