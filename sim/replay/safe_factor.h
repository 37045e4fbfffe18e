/* The smallest safe factor: for every scheme with a factor (a capacity, a buffer, a budget), how small it may be on a trace so
 * that no step, or one in a thousand, or one in a hundred overflows, what an overflow costs and what memory is saved.
 *
 * A step overflows when anything is dropped in any of its layers and micro-batches. The factor at which at most the share p of
 * S steps overflows is an order statistic: with f_s the smallest factor at which step s drops nothing, it is the
 * (S - floor(p S))-th smallest f_s. How far S steps can speak of p is a confidence limit (sim/statistics/overflow_rate.h): the
 * factor that is assured is the one whose upper 95 % limit is at most p, and there is none below 2995 steps for 0.1 %, below
 * 299 for 1 %, and none at all for 0.
 *
 * A framework answers an overflow by dropping the choices or by running the step again without a limit; what either costs is
 * told: the share that is dropped in those steps, and the mean step time when they run twice. */
#ifndef SPW_SIM_REPLAY_SAFE_FACTOR_H
#define SPW_SIM_REPLAY_SAFE_FACTOR_H

#include "base/status.h"
#include "sim/print/json_values.h"
#include "sim/print/table.h"
#include "sim/replay/replay.h"

/* For every batch and every scheme with a factor, in the order of the request, schemes that differ in the factor alone once:
 * three answers, for 0, 0.1 % and 1 % of the steps. Memory and times are those of a replay with the factor, by the request's
 * stacks. Appends to result->safe. SPW_ECONFIG when no scheme has a factor. */
SPW_MUST_CHECK spw_status spw_safe_factors(const spw_replay_request *request, spw_result *result);

/* SPW_FORMAT_TABLE with what the columns mean, or SPW_FORMAT_CSV. */
SPW_MUST_CHECK spw_status spw_safe_factors_print(const spw_result *result, spw_format format, FILE *out);
json_t *spw_safe_factors_json(spw_json *json, const spw_result *result);

#endif
