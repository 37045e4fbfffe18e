/* How likely a step runs out of memory, from the steps of a trace. */
#ifndef SPW_SIM_STATISTICS_OOM_PROBABILITY_H
#define SPW_SIM_STATISTICS_OOM_PROBABILITY_H

#include <stddef.h>

typedef struct spw_probability {
    double value, low, high;
} spw_probability;

/* failed of `steps` steps, with the interval of Clopper and Pearson (1934) at 95 %: low and high are the quantiles 0.025 of
 * Beta(k, n - k + 1) and 0.975 of Beta(k + 1, n - k); 0 and 1 at the ends. It takes the steps as independent draws: with a
 * caching allocator, whose state they share, it is narrower than what is known. steps > 0. */
spw_probability spw_oom_probability(size_t failed, size_t steps);

/* The x where Beta(a, b) has the share `below` under it. */
double spw_beta_quantile(double below, double a, double b);

#endif
