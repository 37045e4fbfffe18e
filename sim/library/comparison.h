/* The judge's words in those of the public header. */
#ifndef SPW_SIM_LIBRARY_COMPARISON_H
#define SPW_SIM_LIBRARY_COMPARISON_H

#include "kernels/verify/judge.h"
#include "sim/library/spillway.h"

void spw_comparison_of(const spw_judged *judged, spw_comparison *out);

#endif
