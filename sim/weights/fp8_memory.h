/* What an fp8 or fp4 recipe (sim/job/recipe/fp8_recipe.h) changes in a footprint beside the experts' rows, which their scheme describes.
 * A linear layer casts its weights once a step, at the first micro-batch, and keeps the copies to the end of the run
 * (TransformerEngine's workspace; under fp8_param_gather they are the weights); the fp8 copy of its input waits for the backward
 * pass in the place of the bf16 input where nothing else holds that. docs/schemes.md, section 7.12. */
#ifndef SPW_SIM_WEIGHTS_FP8_MEMORY_H
#define SPW_SIM_WEIGHTS_FP8_MEMORY_H

#include "sim/job/job.h"

typedef struct spw_stage spw_stage;

/* Parameters of linear layers that one GPU of the stage holds: attention's projections (with their biases and norms),
 * shared experts, dense FFN, the experts, and of multi-token prediction the product of hidden state and embedding.
 * Router, norms between blocks, embedding and head are not among them. */
double spw_fp8_linear_parameters(const spw_job *job, const spw_stage *stage);

/* Of these what every GPU of a tensor group holds whole: MLA's down projections, norms within attention, gates. */
double spw_fp8_whole_parameters(const spw_model *model, double layers, double moe_layers);

/* Bytes of them: all fp8 copies, with scales. 0 without a recipe. */
double spw_fp8_weight_bytes(const spw_job *job, const spw_stage *stage);
/* Of weights in bf16 that fp8 ones replace. */
double spw_fp8_replaced_bytes(const spw_job *job, const spw_stage *stage);

/* Products of linear layers on one GPU of the stage; each has five tensors with a scale and an amax history (recipe delayed). */
size_t spw_fp8_products(const spw_job *job, const spw_stage *stage);
enum { SPW_FP8_PRODUCT_BYTES = 5 * 2 * 4 }; /* fp32, a history of one */

/* Bytes a token more, or less, that a layer keeps of its inputs. All 0 without a recipe.
 *   attention, GQA   H (c - b) [+ heads v c]   norm's output comes in fp8; attention's output is in both
 *   attention, MLA   H (2 c - b) + (its ranks) (c - b) [+ heads v c]   the input is cast for q and for kv
 *   shared           [H c +] F_shared (c - b)  the input in both, for the router reads it; the activation in fp8
 *   dense            (H + F_dense) (c - b)     its norm is within the product that reads it
 * c: bytes of the one copy that waits, 1, with scales 1 + 1/32 (nvfp4 1/2 + 1/16, mxfp4 1/2 + 1/32). In brackets: recipe delayed alone; the others keep the
 * bf16 tensor and cast it again. In a tensor group each GPU keeps its own part of a gathered input, so these hold for
 * its own tokens. */
typedef struct spw_fp8_inputs {
    double attention, shared, dense;
} spw_fp8_inputs;
spw_fp8_inputs spw_fp8_inputs_of(const spw_job *job);

/* Bytes an element of an input of a linear layer that nobody else keeps: c; without a recipe b. */
double spw_fp8_input_bytes(const spw_job *job);

/* Bytes an element of MLA's normed input that a layer keeps: b, under a recipe 2 c, a copy for queries and one for keys and values,
 * or what Megatron-Core's recompute modules layernorm and mla_up_proj leave of that. back: what they gave up is there again, until
 * the gradients of the core's inputs. */
double spw_fp8_norm_bytes(const spw_job *job, bool back);

/* What TransformerEngine gathers over a tensor group, an element; `tokens` of one GPU, `width` numbers each. Read in
 * NVIDIA/TransformerEngine d0067d0d transformer_engine/pytorch: distributed.py gather_along_first_dim,
 * module/linear.py, module/base.py grad_output_preprocess. Without a recipe bf16. */
typedef struct spw_fp8_gather {
    double input; /* bytes on the wire of what a product cut by columns reads: one copy, in either pass */
    double
        gradient;   /* of the gradient of what a product cut by rows made: two copies where they are scaled */
    double held;    /* bytes of the gathered input in the backward pass, all copies */
    double settled; /* read and written until a product can read it */
} spw_fp8_gather;
spw_fp8_gather spw_fp8_gather_of(const spw_job *job, size_t tokens, size_t width);

/* heads x width of a value: attention's output a token. */
double spw_fp8_value_elements(const spw_model *model);

#endif
