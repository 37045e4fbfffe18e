/* What would make a point of a plan fit: changes are tried from the smallest on, each with a replay. */
#ifndef SPW_SIM_PLAN_PLAN_ADVICE_H
#define SPW_SIM_PLAN_PLAN_ADVICE_H

#include "sim/plan/plan_answers.h"
#include "sim/plan/plan_points.h"

#include <stdbool.h>

enum { SPW_ADVICE_SENTENCE = 640 };

/* Of layers that the advice on one point replays at most, each as often as it has a micro-batch: about a minute of processor time.
 * Beyond, the advice says that it ended early; seconds would make the answer another on every machine. */
#define SPW_ADVICE_WORK ((uint64_t)2000000)

/* A scheme's smallest point that does not fit, and what would help. */
typedef struct spw_plan_misfit_advice {
    size_t row;                       /* of the plan */
    bool state_alone;                 /* weights and optimizer by themselves are over the budget */
    size_t gpus;                      /* on which it fits then; 0: nothing helps */
    char advice[SPW_ADVICE_SENTENCE]; /* the smallest change that does, or what was tried in vain */
} spw_plan_misfit_advice;

/* The row does not fit. Other batches and expert-parallel sizes that the plan has are looked at first; then pipeline stages and
 * expert-parallel sizes of the same GPUs, formats and schemes; then the fewest GPUs, up to 16 times as many, on which any split fits. */
SPW_MUST_CHECK spw_status spw_plan_advise(const spw_plan_request *q, const spw_result *result,
                                          const spw_result_row *row, spw_plan_misfit_advice *out);

#endif
