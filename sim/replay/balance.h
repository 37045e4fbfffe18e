/* What a balancer (sim/routing/balancer.h) does to a job on a trace: the same replay without it and with it, the memory of its
 * copies and the traffic of its moves. */
#ifndef SPW_SIM_REPLAY_BALANCE_H
#define SPW_SIM_REPLAY_BALANCE_H

#include "base/status.h"
#include "sim/print/json_values.h"
#include "sim/print/table.h"
#include "sim/replay/replay.h"

/* Appends the rows with the balancer to `result` and fills result->balance. A copy has weights and gradients where experts have
 * them, and no optimizer state: in every step its gradient goes to the rank of the expert's first slot and the new weights come
 * back. An expert that moves takes its weights along, its optimizer state stays. With E experts, N copies, R ranks a group, L MoE
 * layers in S pipeline stages and an expert of n parameters of w and g bytes, what one GPU sends in the mean is
 *   copies, a step:      (distinct experts a rank, over the ranks, less E) / R  x  L / S  x  n (w + g)
 *   moves, a placement:  (experts that a rank did not hold before, over the ranks) / R  x  L / S  x  n w
 * and in no step time. Where t GPUs share experts (Megatron-Core's expert_tensor), a rank of the balancer is t GPUs in a row, and
 * each of them sends its 1 / t of these bytes. SPW_ECONFIG: what the balancer cannot do with this job; coefficients of compiled
 * programs, which have no copies; MaxText's mesh axes; several splits. */
SPW_MUST_CHECK spw_status spw_balance_run(const spw_replay_request *request, const spw_balancer_spec *spec,
                                          spw_result *result);

/* SPW_FORMAT_TABLE with sentences, or SPW_FORMAT_CSV. */
SPW_MUST_CHECK spw_status spw_balance_print(const spw_result *result, spw_format format, FILE *out);
json_t *spw_balance_json(spw_json *json, const spw_result *result);

#endif
