/* A step of Hugging Face transformers (scheme transformers) by the list that its memory is counted by (sim/memory/tensors/transformers_step.h):
 *   kernel_starts        hf_kernel_s each: eager PyTorch, a kernel an operation
 *   other_kernels        bytes that kernels read and write that are no products / hf_copy_bytes_per_s
 *   products             FLOP of dense products, of experts and of attention, each by its rate; those with a side below 128 (adapters, small routers)
 *                        are bytes alone
 *   scans, indexers      products within kernels of recurrences, and an indexer's in fp32, at stated rates: their interval is wider
 *   optimizer            fused AdamW of what is trained: hf_adam_tensors elements of a weight's format / hf_adam_bytes_per_s
 *   weight_gathers, gradient_scatters   FSDP2's, by bytes that arrive: (N - 1) / N of a unit; not hidden. Over several nodes the NICs
 *                        carry it, each its share of a node's, where that takes longer
 * Figures are of an H100 (sim/stack_defaults/transformers.yaml); on another GPU of its generation they are scaled by the peaks of
 * bf16, memory and link. Rows are the same whatever the routing: grouped products of all choices, no exchange.
 * The interval is by what 31 runs were off, wider where a job is beyond them: another GPU, other sizes, modules that ran on a CPU alone
 * (mixers, DeepSeek-V4's and MiniMax-M3's attention), several micro-batches, and
 * with more than two GPUs FSDP2's exchanges hidden whole and at twice their time. */
#ifndef SPW_SIM_TIME_TRANSFORMERS_TIME_H
#define SPW_SIM_TIME_TRANSFORMERS_TIME_H

#include "sim/machine/cluster.h"
#include "sim/memory/tensors/transformers_step.h"
#include "sim/schemes/point.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

/* Is its whole step listed (spw_transformers_is_listed), on a GPU of the generation that was measured? Else `why` (NULL: not asked)
 * says what is not. */
bool spw_transformers_is_timed(const spw_point *point, const char **why);

/* What a step does; FSDP2's bytes as of whole units. */
typedef struct spw_transformers_load {
    spw_tape_work work;
    spw_transformers_exchange exchange;
    double adam_bytes; /* of the weights that the optimizer walks, once */
} spw_transformers_load;
/* SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_transformers_load_of(const spw_transformers_shape *shape,
                                                   spw_transformers_load *out);

/* Of a load that was counted. SPW_EARG. */
SPW_MUST_CHECK spw_status spw_transformers_time_of(const spw_transformers_shape *shape,
                                                   const spw_transformers_load *load,
                                                   const spw_cluster *cluster, spw_timeline *out);

/* SPW_ECONFIG where spw_transformers_is_timed says no; SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_transformers_time_predict(const spw_point *point, spw_timeline *out);

#endif
