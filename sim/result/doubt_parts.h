/* What the interval of a step time is made of, cause by cause, with what each cause means.
 *
 * Parts are half widths, as logarithms, and add up: their sum is ln(high_s / step_s). A part for the fast end alone is not in that
 * sum. Of steps that differ, the ends are means over the steps, so that the sum is off by what the mean of logarithms is. */
#ifndef SPW_SIM_RESULT_DOUBT_PARTS_H
#define SPW_SIM_RESULT_DOUBT_PARTS_H

#include "sim/time/timeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct spw_doubt_part {
    const char *name, *text; /* text: "" when the name is not known */
    double width;            /* logarithm */
    bool fast;               /* of low_s alone */
} spw_doubt_part;

typedef struct spw_doubt_parts {
    spw_doubt_part part[SPW_TIMELINE_DOUBTS + 2];
    size_t count;
    double slow, fast; /* ln(high_s / step_s), ln(step_s / low_s) */
} spw_doubt_parts;

/* What a cause of `time.doubts` means; "" for another name. */
const char *spw_doubt_text(const char *name);

/* Seconds of a step and its interval, then every cause of `time.doubts` by name: its share of the step. In the end
 * spw_doubt_parts_end adds what either end has alone, "slow_end" and "fast_end". Causes beyond SPW_TIMELINE_DOUBTS are left out. */
void spw_doubt_parts_begin(double step_s, double low_s, double high_s, spw_doubt_parts *out);
void spw_doubt_parts_add(spw_doubt_parts *parts, const char *name, double share);
void spw_doubt_parts_end(spw_doubt_parts *parts);

/* A line a cause; nothing without names. */
void spw_doubt_parts_print(const spw_timeline *time, const char *of, FILE *out);

#endif
