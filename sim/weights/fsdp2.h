/* Parameters and gradients of one layer under PyTorch's FSDP2, each layer a unit of its own, gradients reduced after every
 * micro-batch (docs/schemes.md, section 7.14). Read in torch 2.15 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
 * (unshard, wait_for_unshard, pre_backward, post_backward) and _fsdp_collectives.py foreach_reduce; the greatest that is alive
 * in the backward pass of a layer:
 *   parameters   gathered, in the format of the weights: of the layer at work, or with reshard_after_forward: never those of
 *                all layers of the stage, whose backward passes are still to come
 *   prefetched   all-gathers of the next layers that are under way; none where nothing was resharded
 *   gradients    of the layer, in the format of the weights, before they are reduced
 *   reduced      input of the reduce-scatter of the layer before, in the format of the gradients, which is kept until the next
 *                one begins
 * With pipeline stages torch/distributed/pipelining/stage.py backward_maybe_with_nosync sets reshard_after_backward and
 * requires_gradient_sync to false until a stage's last backward pass: weights stay gathered and gradients whole, in the format
 * in which they are reduced, from one micro-batch to the next; perform_reduce_grad then scatters each once a step. Of several
 * chunks schedules.py _add_unshard_reshard keeps at most 3 gathered, those that work next.
 * With replicas (HSDP) the output of each reduce-scatter, which is summed over the replicas, is kept until the backward pass ends
 * (AllReduceState). Sharded gradients have the format of the sharded weights, whatever they are reduced in. */
#ifndef SPW_SIM_WEIGHTS_FSDP2_H
#define SPW_SIM_WEIGHTS_FSDP2_H

#include "sim/job/job_words.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>

/* The job as this scheme runs it: where the job says nothing of FSDP2 (SPW_RESHARD_DEFAULT), and torchtitan's scheme has its whole
 * state sharded, a copy in `room` with torchtitan's own policy; else the job itself, in which SPW_RESHARD_DEFAULT means off.
 * Without torchtitan's fp8 recipe, which changes products alone: torchao's autograd functions save operands in bf16 and cast them in
 * each pass, and weights are gathered in bf16 (docs/schemes.md, section 7.12). */
bool spw_fsdp2_is_default(const spw_job *job, const spw_scheme *scheme);
const spw_job *spw_fsdp2_job(const spw_job *job, const spw_scheme *scheme, spw_job *room);
/* Formats that torchtitan trains in unless told otherwise: all state in fp32, weights gathered in bf16. */
bool spw_fsdp2_has_torchtitan_formats(const spw_job *job);
/* Do gathered weights stay from the forward to the backward pass of a layer? torchtitan fsdp.py
 * get_fsdp_reshard_after_forward_policy: with pipeline stages they do, else not. */
bool spw_fsdp2_keeps(const spw_job *job);
/* Do whole gradients wait for the end of the step, as they do under pipeline stages? */
bool spw_fsdp2_waits(const spw_job *job);

/* Blocks of layers that are gathered at once on a stage. */
size_t spw_fsdp2_resident(const spw_job *job);

/* All-gathers of a step, of all stages together: of every layer, embedding and head, each a unit. */
typedef struct spw_fsdp2_gathers {
    size_t moe_layers, dense_layers, embedding, head;
} spw_fsdp2_gathers;
spw_fsdp2_gathers spw_fsdp2_gathers_of(const spw_job *job);

/* Bytes of a weight as layers use it: as it is gathered, where FSDP2 casts it before. */
size_t spw_fsdp2_gathered_bytes(const spw_job *job);
/* How often sharded state is held in all: 1, or the replicas of HSDP. */
size_t spw_fsdp2_copies(const spw_job *job);

/* Parameters of one unit that its GPU gathers. `alone`: of them, those whose group is this GPU alone; they are copied, but
 * no all-gather of them can be under way. */
typedef struct spw_fsdp2_unit {
    double parameters, alone;
    double routed; /* of the experts */
} spw_fsdp2_unit;

/* layers: of the unit's kind, all of one stage; `before`: the unit whose gradients were reduced last, if it is larger. */
typedef struct spw_fsdp2_layer_parameters {
    double units;          /* that are gathered */
    double ahead, reduced; /* parameters that are prefetched, and whose gradients are reduced at once */
} spw_fsdp2_layer_parameters;
spw_fsdp2_layer_parameters spw_fsdp2_layer(const spw_job *job, const spw_fsdp2_unit *unit, double layers,
                                           double before);

/* Parameters of a unit that one GPU keeps: experts over fsdp / replicas GPUs, the rest over expert x fsdp / replicas. */
double spw_fsdp2_shard(const spw_job *job, const spw_fsdp2_unit *unit);

/* The layers of a stage: with experts, and dense; and the head with the last norm, a unit of its own. */
spw_fsdp2_unit spw_fsdp2_unit_of(const spw_job *job, bool experts);
double spw_fsdp2_head(const spw_job *job);
double spw_fsdp2_embedding(const spw_job *job);

#endif
