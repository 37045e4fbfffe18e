/* How often a step overflows, and how much of that a trace of so many steps can say. */
#ifndef SPW_SIM_STATISTICS_OVERFLOW_RATE_H
#define SPW_SIM_STATISTICS_OVERFLOW_RATE_H

#include <stddef.h>
#include <stdint.h>

/* The upper 95 % confidence limit of the share of steps that overflow, when `overflowing` of `steps` did: the quantile 0.95
 * of Beta(k + 1, n - k), one-sided (Clopper and Pearson, 1934); 1 when all did. It takes the steps as independent draws from
 * one distribution, which consecutive steps of a training run are not quite: it is narrower than what is known. */
double spw_overflow_upper_limit(size_t overflowing, size_t steps);

#define SPW_OVERFLOWS_NONE SIZE_MAX
/* The most steps that may overflow while that limit is at most `share`: the distribution-free order statistic of the factors
 * (Wilks, 1941). SPW_OVERFLOWS_NONE: not even none of `steps` shows as little. */
size_t spw_overflows_allowed(double share, size_t steps);

/* The fewest steps of which none overflowing shows at most `share`: the smallest n with (1 - share)^n <= 0.05; 0 for a share
 * of 0, which no number of steps shows. */
size_t spw_overflow_steps_needed(double share);

#endif
