/* The work of one GPU in a training step outside the routed experts: floating-point operations, bytes through its memory.
 * No speed is in it. A model with tensors as in docs/schemes.md, section 7. */
#ifndef SPW_SIM_TIME_MODEL_WORK_H
#define SPW_SIM_TIME_MODEL_WORK_H

#include "sim/job/job_words.h"

/* How often the products of a forward pass are made in a step: 3 = forward and two gradients, 4 = forward again. The
 * scores of attention: 1 forward, 2.5 backward (five products instead of two), 1 again. */
typedef struct spw_model_passes {
    double layers; /* attention's projections, router, element work */
    double attention;
    double shared; /* shared experts */
    double dense;  /* FFN of layers without experts */
    double up;     /* of the projections, MLA's up projections and what is done by element behind them */
    double norms;  /* how often the norms that are modules of their own are made again */
    double mixing; /* how often sums and mixing of residual streams are made again */
} spw_model_passes;

typedef struct spw_model_work {
    /* FLOP; `attention` is that of the scores, causal, without its projections */
    double projections, indexer; /* indexer: of the projections, a sparse indexer's */
    double attention, dense_ffn, shared_expert, router, head;
    double latent;          /* projections around latent experts */
    double layer_bytes;     /* read and written by element in layers */
    double logit_bytes;     /* and of a loss that is fused with nothing */
    double optimizer_bytes; /* weights, gradients and moments */
    double tokens;          /* of the step */
} spw_model_work;

void spw_model_work_count(const spw_job *job, size_t sequences, const spw_model_passes *passes,
                          spw_model_work *out);

#endif
