/* A step time with its interval, and a point with balanced routing. */
#ifndef SPW_SIM_TIME_STEP_SPAN_H
#define SPW_SIM_TIME_STEP_SPAN_H

#include <stdint.h>

typedef struct spw_step_span {
    double step_s, low_s, high_s;
} spw_step_span;

/* The same point with every expert chosen alike. Without a time the step is 0. */
typedef struct spw_balanced_figures {
    spw_step_span step;
    double tokens_per_s_per_gpu, drop_fraction;
    uint64_t peak_bytes;
} spw_balanced_figures;

#endif
