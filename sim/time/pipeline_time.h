/* How long a step takes in a pipeline whose micro-batches take different times. */
#ifndef SPW_SIM_TIME_PIPELINE_TIME_H
#define SPW_SIM_TIME_PIPELINE_TIME_H

#include "base/status.h"

typedef struct spw_pipeline spw_pipeline; /* sim/weights/pipeline.h */

/* forward_s, backward_s [stages][micro_batches][chunks]: seconds of one pass. A pass begins when its stage has ended the
 * pass before it (spw_pipeline_pass) and the neighbour's result has come, send_s after that ended. *out: the end of the
 * last pass. Of equal passes of f and b in one chunk: (M + P - 1) (f + b), Narayanan et al. 2021, section 2.2. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_pipeline_time(const spw_pipeline *pipeline, const double *forward_s,
                                            const double *backward_s, double send_s, double *out);

#endif
