/* What the loss holds at its fullest moment: logits, softmax, gradients (docs/schemes.md, section 7.5). T tokens of a GPU, V words
 * (with tensor parallelism T TP tokens of V / TP words each: the same), b bytes of a logit:
 *   unfused      Megatron-Core's default: (b + 4) T V; it keeps a softmax of 4 T V
 *   native       its --cross-entropy-loss-fusion, compiled by PyTorch, which copies the softmax: (b + 8) T V; keeps 4 T V
 *   te           TransformerEngine from 2.18 on: (b + 4) T V; keeps a gradient of 4 T V
 *   te_in_place  before it: the gradient takes the place of the logits: b T V
 *   chunked      torchtitan's, forward and backward in turn of an eighth of the tokens: (b + 12) T V / 8, and 4 T H of gradients
 *   fused        logits and their gradient: 2 b T V
 * Of each layer of multi-token prediction what is kept waits, until its loss runs backward after the model's own. */
#ifndef SPW_SIM_MEMORY_KEPT_CROSS_ENTROPY_H
#define SPW_SIM_MEMORY_KEPT_CROSS_ENTROPY_H

#include "sim/job/job.h"
#include "sim/schemes/scheme.h"

typedef struct spw_footprint spw_footprint; /* sim/memory/kept/component.h */

/* Of a job that does not say (SPW_CROSS_ENTROPY_AUTO): what the scheme's framework does unless told otherwise. Else the job's. */
spw_cross_entropy spw_cross_entropy_of(const spw_job *job, const spw_scheme *scheme);

const char *spw_cross_entropy_name(spw_cross_entropy kind); /* not of SPW_CROSS_ENTROPY_AUTO */

/* Of a stage with a head. `model`: with the widths of one GPU. */
void spw_cross_entropy_add(spw_footprint *footprint, const spw_job *job, const spw_scheme *scheme,
                           const spw_layer_shape *shape, const spw_model *model);

/* What to say where a framework's own loss is taken, as the job does not say; else NULL. */
const char *spw_cross_entropy_note(const spw_job *job, const spw_scheme *scheme);

#endif
