/* The routed layer without any parallelism, on given choices: what every scheme must come to. */
#ifndef SPW_SIM_PLAIN_LAYER_H
#define SPW_SIM_PLAIN_LAYER_H

#include "base/status.h"
#include "reference/expert_ffn.h"
#include "sim/plain_scales.h"
#include "sim/scheme.h"

#include <stdint.h>

/* tokens = ranks x tokens of a rank. Owns all its arrays. */
typedef struct spw_plain_layer {
    float *x, *dy, *weight;     /* [tokens][hidden], [tokens][hidden], [tokens][top_k]; drawn by seed */
    spw_expert_weights weights; /* drawn by seed */
    float *y, *dx, *d_weight;   /* results; d_weight is 0 where a choice is dropped */
    float *y_scale, *dx_scale;  /* [tokens][hidden] sums of magnitudes over choices */
    spw_expert_gradients gradients;
    bool scaled; /* set by the caller: fill `scales` */
    spw_plain_scales scales;
    float *drawn[3]; /* what weights points to */
} spw_plain_layer;

/* Draws x, dy and the weights. Router weights are multiples of 2^-10 in (0, 1], which a half holds exactly. */
SPW_MUST_CHECK spw_status spw_plain_layer_create(const spw_layer_shape *shape, uint64_t seed,
                                                 spw_plain_layer *out);
/* Fills the results. expert [ranks][tokens][top_k]: ids, or -1: dropped or not chosen. weighted_activation: the same
 * function, with the router weight multiplied into act instead of the expert's row; roundings fall elsewhere. */
SPW_MUST_CHECK spw_status spw_plain_layer_run(const spw_layer_shape *shape, const int32_t *expert,
                                              bool weighted_activation, spw_plain_layer *layer);
void spw_plain_layer_destroy(spw_plain_layer *layer); /* a zeroed layer is fine */

#endif
