#include "sim/schemes/point.h"

#include "sim/input/grid.h"

spw_point spw_point_of(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    const size_t parts = job->micro_batches > 0 ? job->micro_batches : 1;
    return (spw_point){job, scheme, sequences, spw_layer_shape_of(job, sequences / parts)};
}

uint64_t spw_point_step_tokens(const spw_point *p) {
    const spw_grid grid = spw_grid_of(p->job);
    const bool whole = p->scheme->type->compiled.list != NULL && p->job->micro_batches <= 1;
    const size_t sharers = grid.tensor * grid.context * (whole ? 1 : grid.pipeline);
    return (uint64_t)p->sequences * p->job->sequence_length * (spw_job_gpus(p->job) / sharers);
}
