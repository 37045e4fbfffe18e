/* What a stage of a pipeline holds: counted by sim/weights/pipeline.h. */
#ifndef SPW_SIM_WEIGHTS_STAGE_H
#define SPW_SIM_WEIGHTS_STAGE_H

#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* Of all chunks of a stage. */
typedef struct spw_stage {
    size_t index, stages;
    size_t layers, moe_layers;
    size_t predictions; /* layers of multi-token prediction, beside these; each has experts */
    size_t bare_layers, mixer_layers[SPW_MODEL_MIXERS]; /* of `layers`, as in a block: sim/weights/block.h */
    size_t hash_layers, shared_indexers, lacking_experts; /* of `layers`, as in a block */
    bool embedding, head;                                 /* the first stage, the last */
    size_t kept_layers, kept_moe_layers;
} spw_stage;

#endif
