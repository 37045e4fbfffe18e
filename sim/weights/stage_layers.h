/* The layers of one pipeline stage in the order of its chunks, predictions of further tokens at the end of theirs. */
#ifndef SPW_SIM_WEIGHTS_STAGE_LAYERS_H
#define SPW_SIM_WEIGHTS_STAGE_LAYERS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */
typedef struct spw_model spw_model;       /* sim/model/model.h */

typedef struct spw_stage_layer {
    size_t
        moe; /* position among the model's MoE layers; SIZE_MAX: none, or a layer of multi-token prediction */
    bool experts;
} spw_stage_layer;

typedef struct spw_stage_layers {
    size_t *begin; /* [chunks + 1] into layer */
    spw_stage_layer *layer;
    size_t most; /* of one chunk */
} spw_stage_layers;

/* On failure `out` is fit for destruction. */
SPW_MUST_CHECK spw_status spw_stage_layers_create(const spw_pipeline *pipeline, const spw_model *model,
                                                  size_t stage, spw_stage_layers *out);
void spw_stage_layers_destroy(spw_stage_layers *layers); /* a zeroed one is fine */

#endif
