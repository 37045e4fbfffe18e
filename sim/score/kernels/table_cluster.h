/* Where a table of our own kernels was measured. */
#ifndef SPW_SIM_SCORE_KERNELS_TABLE_CLUSTER_H
#define SPW_SIM_SCORE_KERNELS_TABLE_CLUSTER_H

#include "sim/machine/cluster.h"
#include "sim/score/scorer.h"

/* The cluster, a preset or a file, that column `cluster` of the request's first table names, the same in every row; without
 * that column the request's own. SPW_EFORMAT when rows differ, SPW_EARG when neither names one. */
SPW_MUST_CHECK spw_status spw_table_cluster(const spw_score_request *request, spw_cluster *out);

#endif
