/* Every fit is tried without each table, scheme, kind of routing, number of nodes and batch, and scored on what it did not see.
 * The intervals come from that, e = log(predicted / true) of the step by the fit without the run:
 *   half_width         the 0.95 quantile of |e| over the runs of all tables, each left out; that of the fitted runs at least
 *   half_width_unseen  the 0.95 quantile of sqrt(max(0, e^2 - half_width^2)) over those of schemes, of routings, of numbers of
 *                      nodes, each left out: the largest of the three
 * For runs that are left out themselves the widths are those of the other runs. */
#ifndef SPW_SIM_CALIBRATE_TIME_LEFT_OUT_H
#define SPW_SIM_CALIBRATE_TIME_LEFT_OUT_H

#include "sim/calibrate/calibrate_time.h"

/* Fills group and verdict. The stacks of the calibration are those that were read. */
SPW_MUST_CHECK spw_status spw_time_leave_out(spw_time_calibration *calibration);

/* Sets both widths of a stack, from all verdicts. */
SPW_MUST_CHECK spw_status spw_time_left_out_widths(const spw_time_calibration *calibration,
                                                   spw_time_stack *stack);

#endif
