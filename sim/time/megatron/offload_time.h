/* Copies of offloaded activations (sim/memory/kept/activation_offload.h) in the time of a Megatron-Core step. Copies run beside the
 * products, one way in each of the two passes: a pass takes at least what its copies take. The step is
 *     at least  its greatest of the step without copies, the copies to the host, the copies back
 *     at most   their sum
 * [measured: Megatron-Core's own manager on an H200, 48 runs, notebooks_data/measured/h200_offload.csv]. docs/schemes.md,
 * section 7.17. */
#ifndef SPW_SIM_TIME_MEGATRON_OFFLOAD_TIME_H
#define SPW_SIM_TIME_MEGATRON_OFFLOAD_TIME_H

#include "base/status.h"
#include "sim/schemes/point.h"
#include "sim/time/timeline.h"

typedef struct spw_megatron_coefficients spw_megatron_coefficients; /* sim/machine/megatron_coefficients.h */

/* Nothing is offloaded, or the link to the host is one that was measured. */
bool spw_offload_is_timed(const spw_job *job);

/* Seconds, one way, of what the experts of a MoE layer have on the host in one pass: mean over the layers of all passes of the stage,
 * those that stay among them, with the rows of balanced routing. 0 where nothing is offloaded. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_offload_layer_s(const spw_megatron_coefficients *coefficients,
                                              const spw_point *point, size_t stage, double *out);

/* The same of attention, of every layer. */
double spw_offload_attention_s(const spw_megatron_coefficients *coefficients, const spw_point *point,
                               size_t stage);

/* Adds the component: seconds of both ways, and what of it the step waits for. */
SPW_MUST_CHECK spw_status spw_offload_add(spw_timeline *timeline, double seconds, double exposed_s);
/* Widens the interval of a finished timeline to the bounds above; names what was not measured. */
void spw_offload_doubt(spw_timeline *timeline);

#endif
