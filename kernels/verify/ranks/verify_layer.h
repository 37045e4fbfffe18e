/* The whole layer of a record's routing, forward and backward, against the executed reference of the scheme. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_LAYER_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_LAYER_H

#include "kernels/layer/layer_gpu.h"
#include "kernels/record/record.h"
#include "kernels/verify/judge.h"

/* What stands between the products of a layer that is compared. The limit is not reached here, where a rounding would decide whether an
 * element has a gradient; products are compared with limits that are (verify_gemm_fused.c). */
typedef struct spw_layer_activation {
    const char *name;
    spw_swiglu kind;
} spw_layer_activation;
enum { SPW_LAYER_ACTIVATIONS = 3 };
extern const spw_layer_activation spw_layer_activations[SPW_LAYER_ACTIVATIONS]; /* the first is SwiGLU */

/* Every executed scheme that is the layer's kernels in one of their arrangements and goes by the record's rule, one
 * after the other. The router runs on logits that make the record's choices. Compared row by row: the outputs, the
 * gradients of the input, of the weights of choices and of the experts' weights; and exactly: choices, rows of the
 * experts, bytes of every pair in all exchanges. Nothing where a token has fewer choices than top_k. */
SPW_MUST_CHECK spw_status spw_verify_layer(spw_world *world, const spw_record *record,
                                           const spw_record_scheme *scheme,
                                           const spw_layer_activation *activation,
                                           const spw_exchange_variant *variant, spw_judge *judge);

#endif
