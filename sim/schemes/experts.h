/* The experts between the rows that arrive and the rows that leave: "x" is there when they begin forward, "y" when they end;
 * "dy" when they begin backward, and the gradient of x, under the name that the part gives, when they end. */
#ifndef SPW_SIM_SCHEMES_EXPERTS_H
#define SPW_SIM_SCHEMES_EXPERTS_H

#include "sim/schemes/layer_builder.h"

typedef struct spw_experts {
    void (*forward)(spw_layer_builder *b);  /* y alone is left */
    void (*again)(spw_layer_builder *b);    /* recomputed: everything stays for the backward pass */
    void (*gradient)(spw_layer_builder *b); /* from dy to dx, the sum of both parts */
    const char *dx;
} spw_experts;

/* Gate (w0), up (w1) and down (wo) by three grouped products on buffer rows, as compiled JAX programs run them. */
extern const spw_experts spw_experts_grouped;

/* The same by jax.lax.ragged_dot (docs/schemes.md, section 2.5): XLA without a grouped library lowers it to a dense product
 * over all local experts, whose masked operand [e, rows, contracted] is a tensor of its own. One operand forward; in the
 * backward pass the two gradients of a product hold one each (measured on one H200: 28.03 and 44.0 GiB for
 * [65536, 7168] x [32, 7168, 4096], jax 0.11.2). */
extern const spw_experts spw_experts_ragged_dot;

#endif
