/* What one chunk of a pipeline's stage holds: counted by sim/weights/pipeline.h. */
#ifndef SPW_SIM_WEIGHTS_BLOCK_H
#define SPW_SIM_WEIGHTS_BLOCK_H

#include "sim/model/model.h"

#include <stddef.h>

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

#endif
