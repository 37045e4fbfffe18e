/* Private to verify_layer*.c: what one layer and its reference hold, and how they are compared. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_LAYER_CHECKS_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_LAYER_CHECKS_H

#include "kernels/verify/ranks/verify_layer.h"
#include "reference/schemes/execution.h"

enum { SPW_LAYER_FFN = 64 };

/* An executed scheme that is these kernels in one of their arrangements. id_bytes: of an expert's id on the wire;
 * int32 here. */
typedef struct spw_layer_scheme {
    const char *scheme;
    spw_record_rule rule;
    spw_layer_kind kind;
    size_t id_bytes;
} spw_layer_scheme;

typedef struct spw_layer_run {
    spw_world *world;
    const spw_record *r;
    const spw_record_scheme *s;
    const spw_layer_scheme *how;
    const spw_layer_activation *activation;
    const char *variant;
    spw_judge *judge;
    spw_layer_gpu *l;
    size_t ranks, tokens, top_k, hidden, experts, choices, matrix; /* matrix: hidden x SPW_LAYER_FFN */
    spw_bf16 *x, *dy;                                              /* [ranks][tokens][hidden] */
    spw_bf16 *w0, *w1, *wo; /* [experts][hidden][ffn], the same, [experts][ffn][hidden] */
    float *logits, *weight; /* [ranks][tokens][experts], [ranks][choices] */
    float *fp32, *out;      /* of the reference: x, dy, w0, w1, wo; y, dx, d_weight, their gradients */
    uint64_t *counts;
    spw_arena *arena;
    spw_fabric *fabric;
    unsigned char *got;
    float *widened;
    struct {
        spw_bf16 *x, *dy, *y, *dx;
        float *logits, *score, *weight, *d_weight;
        int *expert;
    } at[SPW_WORLD_RANKS]; /* on the device */
} spw_layer_run;

void spw_layer_widen(const spw_bf16 *from, size_t n, float *to);
/* One comparison of a rank. */
void spw_layer_count(spw_layer_run *k, spw_status result, size_t rank, const char *what);
/* Everything of a rank when both have run. Its GPU becomes the current one. */
SPW_MUST_CHECK spw_status spw_layer_check_rank(spw_layer_run *k, size_t r);

#endif
