/* What a micro-batch of a Megatron-Core job takes outside its routed experts, part by part: products / (dense_flops_share x peak),
 * scores / (attention_flops_share x peak), bytes by element / copy_bytes_per_s (sim/time/model_work.h), and the collectives of
 * tensor and context parallelism (sim/time/megatron/grid_time.h). Alike on all ranks. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_OUTSIDE_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_OUTSIDE_H

#include "sim/machine/megatron_coefficients.h"
#include "sim/model/model.h"
#include "sim/schemes/point.h"
#include "sim/time/model_work.h"
#include "sim/time/timeline.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_block spw_block; /* sim/weights/stage.h */

enum {
    SPW_OUTSIDE_PROJECTIONS,
    SPW_OUTSIDE_ATTENTION,
    SPW_OUTSIDE_DENSE_FFN,
    SPW_OUTSIDE_SHARED,
    SPW_OUTSIDE_HEAD,
    SPW_OUTSIDE_LOSS,
    SPW_OUTSIDE_ELEMENTWISE,
    SPW_OUTSIDE_CASTS,
    SPW_OUTSIDE_ROUTER, /* 0 unless the job says kernels of PyTorch */
    SPW_OUTSIDE_ROTATION,
    SPW_OUTSIDE_TENSOR, /* from here on collectives, 0 without tensor and context parallelism */
    SPW_OUTSIDE_CONTEXT,
    SPW_OUTSIDE_ENDS,
    SPW_OUTSIDE_PARTS
};

typedef struct spw_outside_name {
    const char *name, *help;
    spw_stream stream;
} spw_outside_name;
extern const spw_outside_name spw_outside_names[SPW_OUTSIDE_PARTS];

typedef struct spw_megatron_outside {
    double seconds[SPW_OUTSIDE_PARTS], forward_share[SPW_OUTSIDE_PARTS]; /* of a micro-batch, all layers */
    double gradients_s; /* of a step: of parameters that a tensor group holds whole */
} spw_megatron_outside;

/* GPUs that the tokens of a data-parallel rank, and the products on them, are shared by. */
double spw_megatron_cut(const spw_job *job);

/* passes: how often the products of a forward pass are made in a step. All are 0 for a job of expert layers alone. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_outside_of(const spw_megatron_coefficients *coefficients,
                                                  const spw_point *point, const spw_model_passes *passes,
                                                  spw_megatron_outside *out);

/* Share of a part that a block has; last: it is the last of the last stage. A layer of multi-token prediction is a MoE layer more, with
 * logits and a loss of its own, and a product of [2 hidden, hidden] in front. */
double spw_megatron_outside_share(const spw_model *model, size_t part, const spw_block *block, bool last);

#endif
