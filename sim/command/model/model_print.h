/* What `spillway model` prints: parts, layers, weights and work of a model. */
#ifndef SPW_SIM_COMMAND_MODEL_MODEL_PRINT_H
#define SPW_SIM_COMMAND_MODEL_MODEL_PRINT_H

#include "sim/model/model.h"
#include "sim/print/table.h"

/* A published total beside ours; published 0: none was given. */
typedef struct spw_model_check {
    double published;
    bool agrees;
} spw_model_check;

SPW_MUST_CHECK spw_status spw_model_print(const spw_model *model, size_t length, const spw_model_check *check,
                                          spw_format format);

#endif
