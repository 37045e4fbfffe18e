/* The routing that is assumed where nobody names one: how unevenly a small model chose its experts late in training
 * (traces/data/reference_loads.csv, with its source; docs/routing.md says why this one).
 *
 * Layer l of the reference has loads n[0] >= n[1] >= ..., in falling order. As a function of the share u of the experts,
 *
 *   q(u) = 64 n[floor(64 u)] / (sum of n),    0 <= u < 1,
 *
 * it has the mean 1. Expert i of E, the hottest first, gets the mean of q over its share of u:
 *
 *   load[i] = E * integral of q from i / E to (i + 1) / E
 *
 * so 64 experts have the loads as they were measured, 256 have each of them four times, 8 have the means of eight. */
#ifndef SPW_TRACES_GENERATE_REFERENCE_LOADS_H
#define SPW_TRACES_GENERATE_REFERENCE_LOADS_H

#include <stddef.h>

enum { SPW_REFERENCE_LAYERS = 4, SPW_REFERENCE_EXPERTS = 64 };

/* Tokens that chose an expert, in the order of the trace. */
extern const double spw_reference_count[SPW_REFERENCE_LAYERS][SPW_REFERENCE_EXPERTS];

/* load [experts]: as above, of layer % SPW_REFERENCE_LAYERS; falling, above 0, mean 1. */
void spw_reference_loads(size_t layer, size_t experts, double *load);

#endif
