/* What `spillway model --diff A B` prints: the lines in which two models differ. */
#ifndef SPW_SIM_COMMAND_MODEL_MODEL_DIFF_H
#define SPW_SIM_COMMAND_MODEL_MODEL_DIFF_H

#include "sim/model/model.h"
#include "sim/print/table.h"

SPW_MUST_CHECK spw_status spw_model_diff(const spw_model *a, const spw_model *b, spw_format format);

#endif
