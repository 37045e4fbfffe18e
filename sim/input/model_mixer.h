/* Layers that mix tokens by something other than the model's attention: which keys describe them, what they hold. */
#ifndef SPW_SIM_INPUT_MODEL_MIXER_H
#define SPW_SIM_INPUT_MODEL_MIXER_H

#include "sim/input/model_family.h"

/* Fills parameters and state of out->other from the numbers that were read; all other shapes of `out` are read before. */
void spw_mixer_count(const spw_mixer_kind *kind, const spw_raw_config *raw, spw_model *out);

/* hidden x (heads (key + value) + kv_heads (key + value)): the four projections of an attention. */
uint64_t spw_attention_projections(const spw_model *model, uint64_t heads, uint64_t kv_heads, uint64_t key,
                                   uint64_t value);

#endif
