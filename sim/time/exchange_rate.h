/* The measured rate of an expert-parallel exchange inside a node at any size: the cluster's points
 * (sim/machine/cluster.h), linear in the logarithm of the bytes between two, flat outside them. */
#ifndef SPW_SIM_TIME_EXCHANGE_RATE_H
#define SPW_SIM_TIME_EXCHANGE_RATE_H

#include "sim/machine/cluster.h"

#include <stdbool.h>

/* Bytes/s when each GPU receives `bytes`; NAN when the cluster has no points. `combine`: of a combine. */
double spw_exchange_rate(const spw_cluster *cluster, bool combine, double bytes);

/* The rate over that of the largest measured size, in (0, 1]: what a small message loses. 1 without points. */
double spw_exchange_fill(const spw_cluster *cluster, bool combine, double bytes);

/* An exchange that crosses nodes has two legs: rows to the GPUs of the node over its links, and rows to other nodes over the
 * NICs. They run side by side, or rows that came by a NIC go on by a link:
 *   seconds = longer leg + serial x shorter leg,  serial in [0, 1]
 * Of the rates that libraries publish of 2 to 8 nodes (notebooks_data/profiles/ep_bandwidth.csv) nine in ten lie between serial
 * 0 and 1 with 0.9 of the NIC for the bytes that leave a node; rates that count what stays in the node fall as nodes are
 * added, those of the NIC do not (docs/validation_time.md). The serial and the NIC's share are figures of a stack: those of compiled
 * programs in sim/time_stacks, those of Megatron-Core and torchtitan in sim/stack_defaults/megatron.yaml, by exchange_fit.py. */
double spw_exchange_legs(double link_s, double nic_s, double serial);

#endif
