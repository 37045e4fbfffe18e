/* What a stage of a pipeline holds, and what a block of it does: counted by sim/weights/pipeline.h. */
#ifndef SPW_SIM_WEIGHTS_STAGE_H
#define SPW_SIM_WEIGHTS_STAGE_H

#include "sim/model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* Of one chunk of a stage. */
typedef struct spw_block {
    size_t first, layers, moe_layers;
    size_t predictions;     /* layers of multi-token prediction, beside these */
    size_t bare_layers;     /* of `layers`, those without an FFN */
    size_t lacking_experts; /* of all `layers` together, fewer than the layer that has most */
    size_t hash_layers,
        shared_indexers; /* of `layers`: the token's id chooses; attention uses an indexer before it */
    size_t
        mixer_layers[SPW_MODEL_MIXERS]; /* of `layers`, those of each kind beside attention; [0] is left 0 */
} spw_block;

/* Of all chunks of a stage. */
typedef struct spw_stage {
    size_t index, stages;
    size_t layers, moe_layers;
    size_t predictions; /* layers of multi-token prediction, beside these; each has experts */
    size_t bare_layers, mixer_layers[SPW_MODEL_MIXERS];   /* of `layers`, as in a block */
    size_t hash_layers, shared_indexers, lacking_experts; /* of `layers`, as in a block */
    bool embedding, head;                                 /* the first stage, the last */
    size_t kept_layers, kept_moe_layers;
} spw_stage;

#endif
