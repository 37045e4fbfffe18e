#include "sim/schemes/point.h"

spw_point spw_point_of(const spw_job *job, const spw_scheme *scheme, size_t sequences) {
    const size_t parts = job->micro_batches > 0 ? job->micro_batches : 1;
    return (spw_point){job, scheme, sequences, spw_layer_shape_of(job, sequences / parts)};
}
