/* Layers that mix tokens by something other than the model's attention: which keys describe them, what they hold. */
#ifndef SPW_SIM_MODEL_MODEL_MIXER_H
#define SPW_SIM_MODEL_MODEL_MIXER_H

#include "sim/model/config/model_family.h"

/* Adds the weights of kind `index` to the model's list and fills out->mixer[index] from the numbers that were read; all other shapes
 * of `out` are read before. */
void spw_mixer_count(const spw_mixer_kind *kind, const spw_raw_config *raw, size_t index, spw_model *out);

#endif
