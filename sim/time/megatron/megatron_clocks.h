/* Clocks of a step under way through bare layers of Megatron-Core (megatron_time.h): of one load, or of several side by side. What
 * stands for `lanes` of them is theirs in turn; each lane's numbers are those that it would have alone, in the same order. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_CLOCKS_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_CLOCKS_H

#include "sim/time/megatron/megatron_time.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_MEGATRON_LANES = 4 }; /* at most */

/* What a rank's kernels take with its load, pass by pass; the kernels that move rows in the layer's order take as long in both. */
typedef enum spw_megatron_price {
    SPW_PRICE_SENT,
    SPW_PRICE_ORDER,
    SPW_PRICE_EXPERTS,
    SPW_PRICE_UNSORT,
    SPW_PRICE_UNPERMUTE,
    SPW_PRICE_BACK_EXPERTS,
    SPW_PRICE_BACK_SORT,
    SPW_PRICE_BACK_PERMUTE,
    SPW_PRICES
} spw_megatron_price;

/* Exchanges of a layer without waiting: rows to their experts, the same with what goes before it, and rows back. */
typedef enum spw_megatron_way { SPW_WAY_TO, SPW_WAY_DISPATCH, SPW_WAY_BACK, SPW_WAYS } spw_megatron_way;

typedef double spw_phase_sums[SPW_MEGATRON_PHASES][SPW_MEGATRON_LANES];

typedef struct spw_megatron_clocks {
    const spw_megatron_coefficients *c;
    const spw_megatron_shape *shape;
    spw_megatron_dispatcher dispatcher;
    double T, E, e, H, F;
    double model_H; /* of what the norm and the router read */
    /* In whole tiles: columns of H, of F and of all that the first product gives; flops of the gradients of weights, a row. */
    double tiled_H, tiled_F, tiled_first, weights_flops;
    size_t lanes; /* 1, or SPW_MEGATRON_LANES */
    size_t ranks, layer;
    double alike;                                      /* ranks for which each of these stands */
    const spw_megatron_load *load[SPW_MEGATRON_LANES]; /* [ranks] of the layer */
    const double *price;                               /* [ranks][SPW_PRICES][lanes] of these */
    const double *exchange_s;                          /* [SPW_WAYS][lanes] of the layer */
    double *phase_s;                /* [ranks][PHASES] of the layer and one lane, or NULL */
    double *now, *counted;          /* [ranks][lanes] GPU; when the host knew the last layer's counts */
    double met[SPW_MEGATRON_LANES]; /* end of the last exchange */
    /* As in spw_megatron_time, lane by lane. */
    spw_phase_sums spent_s, rank_wait_s, host_wait_s, again_s;
} spw_megatron_clocks;

/* As fmax() of what is no NaN, which no compiler may take it for. */
static inline double spw_clocks_larger(double a, double b) { return a > b ? a : b; }
static inline double spw_clocks_copy_s(const spw_megatron_clocks *clocks, double bytes) {
    return bytes / clocks->c->copy_bytes_per_s.value;
}
static inline double spw_clocks_kernels_s(const spw_megatron_clocks *clocks, double kernels) {
    return kernels * clocks->c->kernel_s.value;
}

/* A layer forward; again, where everything counts as recompute; backward. */
void spw_megatron_clocks_forward(spw_megatron_clocks *clocks);
void spw_megatron_clocks_again(spw_megatron_clocks *clocks);
void spw_megatron_clocks_backward(spw_megatron_clocks *clocks);

#endif
