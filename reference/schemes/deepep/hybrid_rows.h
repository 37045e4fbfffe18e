/* HybridEP's way of moving rows, executed (docs/schemes.md, section 4.8): every rank knows the whole routing map, so a row travels
 * without a header, but with the weights of all experts of the destination's node, and finds its place among the experts' rows
 * by itself. */
#ifndef SPW_REFERENCE_SCHEMES_DEEPEP_HYBRID_ROWS_H
#define SPW_REFERENCE_SCHEMES_DEEPEP_HYBRID_ROWS_H

#include "reference/schemes/ranks.h"

typedef struct spw_hybrid_rank {
    size_t received; /* rows of the registered buffer, by source and token */
    int32_t *token;  /* [ranks * tokens] each of them, counted over all ranks */
    int32_t *place;  /* [ranks * tokens][local] dense_to_expert_map: its row of x for each expert, or -1 */
    int32_t *origin; /* [held] row of the registered buffer of each row of x, -1: padding */
    float *buffer;   /* [ranks * tokens][hidden] registered, hence no tensor */
    float *chances;  /* [ranks * tokens][node experts] the same for weights or their gradients */
} spw_hybrid_rank;

typedef struct spw_hybrid_rows {
    bool limited;
    size_t pad, node_experts, limit; /* limit: rows of a rank, where limited */
    size_t held[SPW_EXECUTION_RANKS], gathered[SPW_EXECUTION_RANKS], tokens[SPW_EXECUTION_RANKS];
    size_t *begin, *count; /* [ranks][local] rows of each expert */
    spw_hybrid_rank rank[SPW_EXECUTION_RANKS];
    spw_spread routing, places, local_routing, expert_rows;
} spw_hybrid_rows;

/* limit: up to a multiple of pad. */
SPW_MUST_CHECK spw_status spw_hybrid_create(spw_execution *run, size_t pad, bool limited, size_t limit,
                                            spw_hybrid_rows *g);

/* "preprocess": the maps are born, places, rows and drops are found anew. */
SPW_MUST_CHECK spw_status spw_hybrid_preprocess(spw_execution *run, spw_hybrid_rows *g);
void spw_hybrid_maps_die(spw_execution *run, spw_hybrid_rows *g);

/* Rows of every source, rows(run, rank) [tokens][hidden], into the registered buffers, then into `to`, sorted by expert; with
 * `weights` [held] those too. Within an exchange that has begun, as below. */
SPW_MUST_CHECK spw_status spw_hybrid_move(spw_execution *run, spw_hybrid_rows *g, spw_spread *weights,
                                          const float *(*rows)(const spw_execution *run, size_t rank),
                                          spw_spread *to);
/* Rows of a token's experts on a rank are summed into its row of the registered buffer, which goes back; at the source rows of
 * several ranks are added in order of rank. to [ranks][tokens][hidden]. With `d_weight` [held] into out.d_weight, too. */
SPW_MUST_CHECK spw_status spw_hybrid_return(spw_execution *run, spw_hybrid_rows *g,
                                            const spw_spread *d_weight, const spw_spread *rows, float *to);

#endif
