/* Rows that travel by themselves, one a choice: what leaves a rank, what arrives, and where it stands among its experts'
 * rows. For schemes that sort what they send by expert and exchange it all to all. */
#ifndef SPW_REFERENCE_SCHEMES_ROUTED_H
#define SPW_REFERENCE_SCHEMES_ROUTED_H

#include "reference/schemes/ranks.h"

/* Rows that leave stand by expert; rows that arrive by source, then by local expert; rows of the experts by local
 * expert, then by source. */
typedef struct spw_routed {
    size_t *sent, *received, *held;           /* [ranks] rows; held: of the experts, padding included */
    size_t *count;                            /* [ranks][experts] rows that a source sends to an expert */
    int32_t *assignment[SPW_EXECUTION_RANKS]; /* [sent] which choice of the rank stands there, -1: none */
    int32_t *token[SPW_EXECUTION_RANKS];      /* [sent] its token, -1: none */
    int32_t *row[SPW_EXECUTION_RANKS];        /* [tokens][top_k] where the choice stands, -1: nowhere */
    int32_t *from_x[SPW_EXECUTION_RANKS]; /* [held] received row of each row of the experts, -1: padding */
} spw_routed;

/* Every choice leaves; an expert's rows are padded to a multiple of `tile`. Fills experts->offset and out.rows. All
 * arrays live until the run ends. */
SPW_MUST_CHECK spw_status spw_routed_by_choice(spw_execution *run, size_t tile, spw_routed *routed,
                                               spw_experts *experts);
/* Every expert has `capacity` places of every source: place [ranks][tokens][top_k], -1: dropped or no choice. */
SPW_MUST_CHECK spw_status spw_routed_by_place(spw_execution *run, const int32_t *place, size_t capacity,
                                              spw_routed *out, spw_experts *experts);

/* One all-to-all each: from the sources' order to the receivers', and back. */
SPW_MUST_CHECK spw_status spw_routed_send(spw_execution *run, const spw_routed *routed, const char *exchange,
                                          const spw_spread *from, spw_spread *to);
SPW_MUST_CHECK spw_status spw_routed_return(spw_execution *run, const spw_routed *routed,
                                            const char *exchange, const spw_spread *from, spw_spread *to);

/* Received order to the experts' order, and back; padding stays 0. */
void spw_routed_to_experts(spw_execution *run, const spw_routed *routed, const spw_spread *from,
                           spw_spread *to);
void spw_routed_from_experts(spw_execution *run, const spw_routed *routed, const spw_spread *from,
                             spw_spread *to);

/* to[row] = tokens[token of the row], times the weight of its choice with `weighted`; tokens [ranks][tokens][hidden]. */
void spw_routed_gather(spw_execution *run, const spw_routed *routed, const float *tokens, bool weighted,
                       spw_spread *to);
/* y[t] = sum over the choices of t, k ascending, of rows[row], times the weight with `weighted`; y as tokens above. */
void spw_routed_sum(spw_execution *run, const spw_routed *routed, const spw_spread *rows, bool weighted,
                    float *y);
/* out.d_weight of every choice: dy times its row; 0 without one. */
void spw_routed_weight_gradient(spw_execution *run, const spw_routed *routed, const spw_spread *rows);

#endif
