/* A layer of latent experts: every token goes through a projection to narrower rows, those travel and are computed, and what is
 * combined goes through a projection back. Sources: NVIDIA/Megatron-LM megatron/core/transformer/moe/moe_layer.py (moe_latent_size),
 * transformers 5.24 models/nemotron_h/modeling_nemotron_h.py NemotronHMOE. The router and shared experts read the whole rows and are
 * not here. */
#ifndef SPW_REFERENCE_SCHEMES_LATENT_H
#define SPW_REFERENCE_SCHEMES_LATENT_H

#include "reference/schemes/execution.h"

typedef struct spw_latent {
    size_t hidden;        /* H of the model; L is `hidden` of the shape */
    const float *down;    /* [H][L] */
    const float *up;      /* [L][H] */
    float *d_down, *d_up; /* the same shapes, overwritten */
} spw_latent;

/* y = up(layer(down(x))). As spw_execute() with input.x, input.dy, output.y and output.dx [ranks][tokens][H]: dx is the part that comes
 * through the experts. Arena and fabric see the layer between the projections. */
SPW_MUST_CHECK spw_status spw_execute_latent(const spw_executor *executor, const spw_execution_shape *shape,
                                             const spw_latent *latent, const spw_execution_input *input,
                                             const spw_execution_output *output, spw_arena *arena,
                                             spw_fabric *fabric);

#endif
