/* What PyTorch's caching allocator takes at most where it cannot be replayed: temporary bytes (all but weights, gradients and optimizer)
 * times a share, measured. Over four sequences of steps with changing routing on 2 and 4 H200, 146 GB each, whatever rank and step,
 * reserved less state was at most 3.153 times the largest requested less state so far, and 1.037 times with expandable segments;
 * over 400 runs of equal steps 2.49 (notebooks_data/measured: megatron_h200_reserved.csv, _shapes.csv, _runs.csv,
 * _two_ranks.csv; tests/oracle/plan/until_oracle.py reads them again). Of bare expert layers on NVIDIA GPUs with room to spare: a device that is
 * full gives free segments back before it refuses, so more may fit. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_SHARE_H
#define SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_SHARE_H

#include "sim/job/job.h"

/* INFINITY: nothing was measured with these settings, or it took all there was (max_split_size_mb). */
double spw_allocator_share(const spw_job_allocator *allocator);

#endif
