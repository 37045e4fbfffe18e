/* Which layers of a model, in few characters. */
#ifndef SPW_SIM_COMMAND_MODEL_LAYER_RUNS_H
#define SPW_SIM_COMMAND_MODEL_LAYER_RUNS_H

#include <stddef.h>
#include <stdint.h>

/* The layers whose mark is not 0, counted from 0: "0-2, 5, 7-41 by 2"; "..." behind what finds no room; "none". mark [layers]; out
 * [size], at least 32. Returns `out`. */
const char *spw_layer_runs(const uint8_t *mark, size_t layers, char *out, size_t size);

#endif
