/* Tables of `spillway model`. */
#ifndef SPW_SIM_COMMAND_MODEL_MODEL_TABLES_H
#define SPW_SIM_COMMAND_MODEL_MODEL_TABLES_H

#include "sim/model/model.h"
#include "sim/print/table.h"

#include <stddef.h>
#include <stdint.h>

/* The layers whose mark is not 0, counted from 0: "0-2, 5, 7-41 by 2"; "..." behind what finds no room; "none". mark [layers]; out
 * [size], at least 32. Returns `out`. */
const char *spw_layer_runs(const uint8_t *mark, size_t layers, char *out, size_t size);

/* A row a matrix: the layers that have it, the part it belongs to, its inputs and outputs, and how many equal ones a layer has. A
 * bias, a norm or a table of numbers has one input. Rows times layers add up to the parameters of the model. */
SPW_MUST_CHECK spw_status spw_layer_table_print(const spw_model *model, spw_format format);

/* What `spillway model --diff A B` prints: the lines in which two models differ. */
SPW_MUST_CHECK spw_status spw_model_diff(const spw_model *a, const spw_model *b, spw_format format);

#endif
