/* The time of a training step that XLA compiles whole, on the slowest GPU (docs/validation_time.md).
 *
 *   products    = FLOP / (share x peak)           share: dense_share, grouped_share (calls of a library) or
 *                                                 attention_share
 *   movements   = bytes / (memory_share x HBM)    scatter-adds: scatter_share
 *   exchange    = latency + max(link rows x row bytes / (share x link x fill), NIC rows x row bytes / (network_share
 *                 x NIC x fill))                  share: link_share, oneshot_share; DeepEP: library_share x measured rate
 *   collectives = hops x latency + NIC bytes / (network_share x NIC) + link bytes / (link_share x link)
 *   hidden      = min(hidden_share x collectives, cover)
 *   cover       = layer_cover x (time outside the experts) + product_cover x (the experts' products), the latter where
 *                 XLA makes them itself and its combined gathers are smaller than a layer's experts
 *   step        = sum of all - hidden
 *
 * Weight collectives run beside kernels; exchanges do not, since what follows needs them. The work is counted in
 * sim/time/compiled/compiled_work.h, the load of a layer in sim/time/routing_load.h. */
#ifndef SPW_SIM_TIME_COMPILED_COMPILED_TIME_H
#define SPW_SIM_TIME_COMPILED_COMPILED_TIME_H

#include "sim/job/job_words.h"
#include "sim/machine/time_stack.h"
#include "sim/schemes/scheme.h"
#include "sim/time/timeline.h"

#include <stdbool.h>

typedef struct spw_time_request {
    const spw_time_stack *stack;
    const spw_job *job;
    const spw_scheme *scheme;
    size_t sequences;               /* per GPU */
    const spw_routing_layer *layer; /* [layers], taken in turn when the job has more; NULL: balanced */
    size_t layers;
    double input_s;       /* what the step waits for its input */
    size_t micro_batches; /* layer has [micro_batches][layers], taken in turn; 0 counts as 1 */
} spw_time_request;

/* Is there a time model of this scheme and job? (It is a compiled program with a remat policy; on MaxText's
 * mesh with tensor or context that policy is full.) */
bool spw_compiled_time_covers(const spw_job *job, const spw_scheme *scheme);

/* SPW_ECONFIG where spw_compiled_time_covers says no. */
SPW_MUST_CHECK spw_status spw_compiled_time_predict(const spw_time_request *request, spw_timeline *out);

#endif
