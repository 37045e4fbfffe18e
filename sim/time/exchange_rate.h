/* The measured rate of an expert-parallel exchange inside a node at any size: the cluster's points
 * (sim/input/cluster.h), linear in the logarithm of the bytes between two, flat outside them. */
#ifndef SPW_SIM_TIME_EXCHANGE_RATE_H
#define SPW_SIM_TIME_EXCHANGE_RATE_H

#include "sim/input/cluster.h"

#include <stdbool.h>

/* Bytes/s when each GPU receives `bytes`; NAN when the cluster has no points. `combine`: of a combine. */
double spw_exchange_rate(const spw_cluster *cluster, bool combine, double bytes);

/* The rate over that of the largest measured size, in (0, 1]: what a small message loses. 1 without points. */
double spw_exchange_fill(const spw_cluster *cluster, bool combine, double bytes);

#endif
