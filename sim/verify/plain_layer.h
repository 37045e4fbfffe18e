/* The routed layer without any parallelism, on given choices: what every scheme must come to. */
#ifndef SPW_SIM_VERIFY_PLAIN_LAYER_H
#define SPW_SIM_VERIFY_PLAIN_LAYER_H

#include "base/status.h"
#include "reference/expert_ffn.h"
#include "sim/schemes/scheme.h"
#include "sim/verify/plain_scales.h"

#include <stdint.h>

/* tokens = ranks x tokens of a rank. Owns all its arrays. */
typedef struct spw_plain_layer {
    float *x, *dy, *weight;     /* [tokens][hidden], [tokens][hidden], [tokens][top_k]; drawn by seed */
    spw_expert_weights weights; /* drawn by seed */
    float *y, *dx, *d_weight;   /* results; d_weight is 0 where a choice is dropped */
    float *y_scale, *dx_scale;  /* [tokens][hidden] sums of magnitudes over choices */
    spw_expert_gradients gradients;
    spw_plain_scales scales; /* with `bounds` */
    float *drawn[3];         /* what weights points to */
} spw_plain_layer;

/* Experts of two matrices are gated ones whose w1 is not read. */
spw_swiglu spw_plain_layer_activation(const spw_layer_shape *shape);

/* Draws x, dy and the weights. Router weights are multiples of 2^-10 in (0, 1], which a half holds exactly. */
SPW_MUST_CHECK spw_status spw_plain_layer_create(const spw_layer_shape *shape, uint64_t seed,
                                                 spw_plain_layer *out);
/* Who goes where. d_weight has the shape of weight. */
typedef struct spw_plain_routing {
    size_t slots;          /* a token: top_k, or all experts where tokens are added to them */
    const int32_t *expert; /* [ranks][tokens][slots] ids, or -1: dropped or not chosen */
    const float *weight;   /* the same shape */
    bool bounds;           /* fill `scales` */
    bool
        weighted_activation; /* the same function, with the router weight multiplied into act instead of the expert's
                                 row; roundings fall elsewhere */
} spw_plain_routing;

/* Fills the results. */
SPW_MUST_CHECK spw_status spw_plain_layer_run(const spw_layer_shape *shape, const spw_plain_routing *routing,
                                              spw_plain_layer *layer);
void spw_plain_layer_destroy(spw_plain_layer *layer); /* a zeroed layer is fine */

#endif
