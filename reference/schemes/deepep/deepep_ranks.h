/* DeepEP's way of moving rows, executed: a token goes once to every rank that holds one of its experts, with its choices,
 * and one row comes back from there. What is sent first leaves a handle, so that later exchanges send rows alone (cached
 * dispatch). Bytes: docs/schemes.md, section 4.2. */
#ifndef SPW_REFERENCE_SCHEMES_DEEPEP_DEEPEP_RANKS_H
#define SPW_REFERENCE_SCHEMES_DEEPEP_DEEPEP_RANKS_H

#include "reference/schemes/ranks.h"

typedef struct spw_deepep_rank {
    size_t *sent;     /* [ranks] tokens to each rank: is_token_in_rank, summed */
    int32_t *sent_id; /* [ranks][tokens] which ones, in order */
    size_t received;  /* rows, by source, then by token */
    size_t *source;   /* [ranks + 1] first row of each source */
    int32_t *token;   /* [ranks * tokens] index at the source of each row */
    int32_t *expert;  /* [ranks * tokens][top_k] choices of each row */
    float *weight;    /* [ranks * tokens][top_k] 0 where the expert is of another rank */
    float *d_weight;  /* the same */
} spw_deepep_rank;

typedef struct spw_deepep {
    size_t index_bytes; /* of an expert index on the wire inside a node */
    spw_deepep_rank rank[SPW_EXECUTION_RANKS];
    size_t rows[SPW_EXECUTION_RANKS]; /* received by each rank, once it has arrived */
} spw_deepep;

/* One dispatch: what travels beside a row's token. */
typedef struct spw_deepep_message {
    bool fp8;     /* numbers of 1 byte and an fp32 scale for every 128; values are not rounded */
    bool choices; /* expert ids and weights */
} spw_deepep_message;

/* get_dispatch_layout on every rank. */
SPW_MUST_CHECK spw_status spw_deepep_create(spw_execution *run, size_t index_bytes, spw_deepep *out);

/* Every rank sends the rows of its tokens, rows(run, rank) [tokens][hidden]. */
SPW_MUST_CHECK spw_status spw_deepep_send(spw_execution *run, spw_deepep *g, spw_deepep_message message,
                                          const float *(*rows)(const spw_execution *run, size_t rank));
/* What waits for every rank is counted into g->rows; nothing is taken yet. */
void spw_deepep_arrive(spw_execution *run, spw_deepep *g, spw_deepep_message message);
/* Every rank takes what has come: rows into `to`, scales into `scales` (NULL: none travel), choices into the handle,
 * with weight 0 where the expert is another rank's. */
SPW_MUST_CHECK spw_status spw_deepep_receive(spw_execution *run, spw_deepep *g, spw_deepep_message message,
                                             spw_spread *to, spw_spread *scales);

/* One row a received token back to its source, where rows of several ranks are added in order of rank; with `weights`
 * the gradients of its choices too, into run->out.d_weight. to [ranks][tokens][hidden]. */
SPW_MUST_CHECK spw_status spw_deepep_return(spw_execution *run, spw_deepep *g, const spw_spread *rows,
                                            bool weights, float *to);

#endif
