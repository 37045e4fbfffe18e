/* Tokens that travel once a rank, and one row of each back: the wire of DeepEP and HybridEP under Megatron-Core
 * (docs/schemes.md, sections 4.2 and 5.4). */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_TOKENS_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_MEGATRON_TOKENS_H

#include "reference/schemes/megatron/megatron_ranks.h"

/* What one rank sends and gets. */
typedef struct spw_token_lists {
    size_t *sent;     /* [ranks] tokens to each rank */
    int32_t *sent_id; /* [ranks][tokens] which ones, in order */
    size_t *begin;    /* [ranks + 1] rows that arrive from each source */
    int32_t *column;  /* [rows that arrive][local] which choice of the token an expert is, or -1 */
    float *weight;    /* [rows that arrive][local] its weight; on the way back the gradient of that */
    float *staged;    /* HybridEP: [rows that arrive][hidden] in its own buffer */
} spw_token_lists;

typedef struct spw_megatron_tokens {
    bool
        hybrid; /* a row carries the weights of all experts of the receiver's node, else its choices and its source */
    bool top; /* gradients of weights go to d_top_probs, whatever a row carries */
    size_t
        most; /* tokens that find a slot on a rank, by source and position; 0: all. The others are not sent */
    bool worst; /* receive buffer for all tokens of the group */
    spw_token_lists lists[SPW_EXECUTION_RANKS];
} spw_megatron_tokens;

/* Lists who sends what, tells the receivers how much, and sets the rows that arrive. */
SPW_MUST_CHECK spw_status spw_megatron_tokens_notify(spw_execution *run, spw_megatron *g,
                                                     spw_megatron_tokens *tokens);

/* x, with choices, or dy, without, to [rows that arrive][hidden] of every rank. */
SPW_MUST_CHECK spw_status spw_megatron_tokens_send(spw_execution *run, spw_megatron *g,
                                                   spw_megatron_tokens *tokens, const char *name,
                                                   bool choices, float *const to[]);

/* One row a token that arrived back to its source, where they are added in order of rank; to [tokens][hidden]. With
 * `gradients` those of the weights too, into d_top_probs, or d_probs for HybridEP. */
SPW_MUST_CHECK spw_status spw_megatron_tokens_return(spw_execution *run, spw_megatron *g,
                                                     const spw_megatron_tokens *tokens, const char *name,
                                                     float *const from[], const spw_spread *to,
                                                     bool gradients);

#endif
