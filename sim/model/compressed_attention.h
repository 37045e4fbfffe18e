/* DeepSeek-V4's attention by its numbers: one head that is key and value, keys joined over several tokens beside it, an indexer that
 * chooses among them, an output through a latent a group of heads. */
#ifndef SPW_SIM_MODEL_COMPRESSED_ATTENTION_H
#define SPW_SIM_MODEL_COMPRESSED_ATTENTION_H

#include "sim/model/model.h"

#include <stdbool.h>

/* A kind of its layers. */
typedef struct spw_compressed_attention {
    size_t heads, head_dim;
    size_t rank, wide, groups, latent; /* of queries; all heads; of the output */
    size_t every, parts;               /* tokens a joined key; 2: windows overlap; 0: no joined keys */
    size_t index_width, index_heads;   /* 0: none */
    size_t window, chosen;             /* keys that a query sees; of the indexer's */
} spw_compressed_attention;
spw_compressed_attention spw_compressed_attention_of(const spw_model *model, size_t kind);

/* Are all layers that attend of these kinds? */
bool spw_attention_is_compressed(const spw_model *model);

#endif
