/* What `spillway model CONFIG --layers` prints: every kind of layer with its matrices. */
#ifndef SPW_SIM_COMMAND_MODEL_LAYER_TABLE_H
#define SPW_SIM_COMMAND_MODEL_LAYER_TABLE_H

#include "sim/model/model.h"
#include "sim/print/table.h"

/* A row a matrix: the layers that have it, the part it belongs to, its inputs and outputs, and how many equal ones a layer has. A
 * bias, a norm or a table of numbers has one input. Rows times layers add up to the parameters of the model. */
SPW_MUST_CHECK spw_status spw_layer_table_print(const spw_model *model, spw_format format);

#endif
