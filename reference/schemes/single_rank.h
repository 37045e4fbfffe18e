/* Schemes of one rank: rows are gathered inside the products, so nothing is sent. The pieces that ScatterMoE, SonicMoE
 * and transformers share: who goes where, and the up projection with both halves in one tensor. */
#ifndef SPW_REFERENCE_SCHEMES_SINGLE_RANK_H
#define SPW_REFERENCE_SCHEMES_SINGLE_RANK_H

#include "reference/schemes/ranks.h"

typedef struct spw_single_rank {
    size_t slots;          /* columns of `row` and `weight`: top_k, or all experts */
    size_t held[1];        /* rows, by expert, then by token */
    int32_t *row;          /* [tokens][slots] row of the slot, -1: none */
    int32_t *token, *slot; /* [held] of each row: its token, its place in [tokens][slots] */
    const float *weight;   /* [tokens][slots], borrowed */
    spw_experts experts;   /* w0 and w1 stand in `gates`, dw0 and dw1 in `d_gates` */
    spw_spread gates, d_gates;
    float *x; /* [held][hidden] what the products load of the input */
} spw_single_rank;

/* expert [tokens][slots]: ids, or -1. Fills out.rows[0]. Arrays live until the run ends. */
SPW_MUST_CHECK spw_status spw_single_rank_create(spw_execution *run, size_t slots, const int32_t *expert,
                                                 const float *weight, spw_single_rank *s);
/* w0_w1_out = x (w0 | w1), and the gradients: d_w0_w1_out to the weights, and to `dx` [held][hidden]. */
SPW_MUST_CHECK spw_status spw_single_rank_up(spw_execution *run, spw_single_rank *s);
SPW_MUST_CHECK spw_status spw_single_rank_up_gradient(spw_execution *run, spw_single_rank *s, spw_spread *dx);
/* All three passes of a layer: forward, once more as a checkpoint runs it, backward. */
typedef spw_status spw_single_rank_pass(spw_execution *run, void *layer);
SPW_MUST_CHECK spw_status spw_single_rank_run(spw_execution *run, spw_single_rank_pass *forward,
                                              spw_single_rank_pass *backward, void *layer);
/* A tensor for both halves, which gate and up then share. */
SPW_MUST_CHECK spw_status spw_single_rank_halves(spw_execution *run, spw_single_rank *s, spw_spread *tensor,
                                                 const char *name, spw_spread *gate, spw_spread *up);
/* rows = weight of the row times dy of its token. */
void spw_single_rank_load_dy(spw_execution *run, const spw_single_rank *s, float *rows);
/* y or dx of the tokens: the sum over slots in order, with the weights or without. */
void spw_single_rank_sum(spw_execution *run, const spw_single_rank *s, const float *rows, bool weighted,
                         float *y);

#endif
