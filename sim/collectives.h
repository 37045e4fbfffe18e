/* The exchanges of one MoE layer as XLA compiles them: which collectives, how many and how large, forward
 * and backward. Backward includes the recomputation. Bytes are of the whole tensor that one GPU sees: the
 * operand of an all-to-all (of a ragged one T K rows, the balanced average, since its sizes are known only
 * at run time) and of a reduce-scatter, the result of an all-gather; of ring the tokens alone, without the
 * logits beside them. Checked against notebooks_data/compiled/maxtext_collectives.csv. */
#ifndef SPW_SIM_COLLECTIVES_H
#define SPW_SIM_COLLECTIVES_H

#include "sim/scheme.h"

#define SPW_COLLECTIVE_LIST(X) \
    X(ALL_TO_ALL, "all_to_all") \
    X(RAGGED_ALL_TO_ALL, "ragged_all_to_all") \
    X(TOKEN_GATHER, "token_gather") \
    X(TOKEN_SCATTER, "token_scatter")
#define SPW_COLLECTIVE_ENUM(name, text) SPW_COLLECTIVE_##name,
typedef enum spw_collective { SPW_COLLECTIVE_LIST(SPW_COLLECTIVE_ENUM) SPW_COLLECTIVES } spw_collective;
#undef SPW_COLLECTIVE_ENUM
const char *spw_collective_name(spw_collective collective);

typedef struct spw_collective_sum {
    size_t count;
    uint64_t bytes;
} spw_collective_sum;

typedef struct spw_collectives {
    spw_collective_sum sum[SPW_COLLECTIVES][2]; /* [1]: backward */
} spw_collectives;

/* SPW_ECONFIG for a scheme that is no compiled program, or whose exchange is a library call (DeepEP). */
SPW_MUST_CHECK spw_status spw_collectives_of(const spw_scheme *scheme, const spw_layer_shape *shape,
                                             spw_collectives *out);

#endif
