/* The experts between the rows that arrive and the rows that leave: "x" is there when they begin forward, "y" when they end;
 * "dy" when they begin backward, and the gradient of x, under the name that the part gives, when they end. */
#ifndef SPW_SIM_SCHEMES_EXPERTS_H
#define SPW_SIM_SCHEMES_EXPERTS_H

typedef struct spw_layer_builder spw_layer_builder;

typedef struct spw_experts {
    void (*forward)(spw_layer_builder *b);  /* y alone is left */
    void (*again)(spw_layer_builder *b);    /* recomputed: everything stays for the backward pass */
    void (*gradient)(spw_layer_builder *b); /* from dy to dx, the sum of both parts */
    const char *dx;
} spw_experts;

/* Each GPU of a mesh's tensor group has F / TP columns, so its last product is one term of a sum over the group, which leaves
 * it a part of H; the gradients of that product read whole rows. Names of what the product makes, "y" without a group, and of what
 * its gradients read, "dy" without. */
const char *spw_experts_y_name(const spw_layer_builder *b);
const char *spw_experts_dy_name(const spw_layer_builder *b);
void spw_experts_sum_of_y(spw_layer_builder *b);     /* to y; nothing without a group */
void spw_experts_gather_of_dy(spw_layer_builder *b); /* of dy; nothing without a group */

/* Gate (w0), up (w1) and down (wo) by three grouped products on buffer rows, as compiled JAX programs run them. */
extern const spw_experts spw_experts_grouped;

/* The same by jax.lax.ragged_dot (docs/schemes.md, section 2.5): XLA without a grouped library lowers it to a dense product
 * over all local experts, whose masked operand [e, rows, contracted] is a tensor of its own. One operand forward; in the
 * backward pass the two gradients of a product hold one each (measured on one H200: 28.03 and 44.0 GiB for
 * [65536, 7168] x [32, 7168, 4096], jax 0.11.2). */
extern const spw_experts spw_experts_ragged_dot;

#endif
