/* What Megatron-Core's fine-grained activation offloading leaves on the GPU, by the schedule of a pipeline stage. NVIDIA/Megatron-LM
 * d98e8a64, megatron/core/pipeline_parallel/fine_grained_activation_offload.py. docs/schemes.md, section 7.17.
 *
 * A group is what one module of one layer keeps in one pass (a micro-batch through a chunk). A pass whose backward pass is the
 * next to come when it ends, and the first pass of the step to run backward, leave their last layer's groups on the GPU; of all
 * others every group goes to the host. Each backward pass over a group brings the next one of its module back, at the pass's end
 * the last layer's of the pass that runs backward next, if it has run forward. */
#ifndef SPW_SIM_MEMORY_KEPT_ACTIVATION_OFFLOAD_H
#define SPW_SIM_MEMORY_KEPT_ACTIVATION_OFFLOAD_H

#include "base/status.h"
#include "sim/job/job_words.h"
#include "sim/schemes/scheme.h"

typedef struct spw_offload_groups {
    bool ahead;               /* where most is kept, another pass's last layer is on the GPU */
    bool back;                /* and has been on the host */
    uint64_t layers, staying; /* layers of all passes of a step, and those of them that stay */
} spw_offload_groups;

typedef struct spw_offload_stage {
    spw_offload_groups experts, attention; /* of MoE layers, of all layers */
    bool stops; /* Megatron-Core fails: all groups of a pass stay, and they are several */
} spw_offload_stage;

/* Of a job that offloads something. */
spw_offload_stage spw_offload_stage_of(const spw_job *job, size_t index);
/* The shape of a layer on that stage; the same where nothing is offloaded. */
spw_layer_shape spw_offload_shape(const spw_job *job, const spw_layer_shape *shape, size_t stage);

/* What the sum of its tensors does not say; NULL: nothing. */
const char *spw_offload_outside(const spw_job *job);

/* SPW_ECONFIG: a block in which Megatron-Core stops. */
SPW_MUST_CHECK spw_status spw_offload_check(const spw_job *job);

#endif
