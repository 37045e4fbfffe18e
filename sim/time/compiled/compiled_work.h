/* The work of one GPU in a training step that XLA compiles whole: floating-point operations, bytes through its
 * memory, bytes of weights on its NIC or link. No speed is in it (sim/time/compiled/compiled_time.h). Passes: forward, recomputed
 * forward, and a backward of twice the forward's products. */
#ifndef SPW_SIM_TIME_COMPILED_COMPILED_WORK_H
#define SPW_SIM_TIME_COMPILED_COMPILED_WORK_H

#include "sim/job/job_words.h"
#include "sim/memory/compiled/compiled_cut.h"
#include "sim/schemes/scheme.h"
#include "sim/time/model_work.h"
#include "sim/time/timeline.h"
#include "sim/traffic/weight_families.h"

#include <stdbool.h>

typedef struct spw_compiled_work {
    spw_model_work model;  /* outside the experts */
    double experts, masks; /* FLOP of the experts' products; of dense's dispatch and combine einsums */
    bool library_products; /* the experts' products are calls that XLA does not see into */
    double row_bytes;      /* rows moved around the experts, and their activation functions */
    double mask_bytes;     /* capacity masks */
    double scatter_bytes;  /* added by scatters with colliding indices */
    spw_weight_traffic gathers, scatters;
    double layer_gather_bytes; /* what the all-gathers of one MoE layer's experts leave on a GPU */
} spw_compiled_work;

/* Loads of MoE layers: [micro_batches][layers >= 1] of one micro-batch each, the job's layers and micro-batches taken in turn. */
typedef struct spw_compiled_load {
    const spw_routing_layer *layer;
    size_t layers, micro_batches;
} spw_compiled_load;

/* `list`: the scheme's (never NULL). Work of a pipeline: what counts; its turns without work are not in it, but their
 * gathers of weights are. */
void spw_compiled_work_count(const spw_job *job, const spw_scheme *scheme, const spw_compiled_layer *list,
                             const spw_compiled_cut *cut, const spw_compiled_load *load,
                             spw_compiled_work *out);
/* FLOP of the experts of one layer and micro-batch, all passes together. */
double spw_compiled_expert_flop(const spw_scheme *scheme, const spw_compiled_layer *list,
                                const spw_layer_shape *shape, const spw_routing_layer *layer);

#endif
