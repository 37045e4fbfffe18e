/* A step time with its interval. */
#ifndef SPW_SIM_TIME_STEP_SPAN_H
#define SPW_SIM_TIME_STEP_SPAN_H

typedef struct spw_step_span {
    double step_s, low_s, high_s;
} spw_step_span;

#endif
