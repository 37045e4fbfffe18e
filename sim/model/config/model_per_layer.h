/* "per_layer_config": numbers of single layers, as transformers writes them since 5.23 in the place of keys of their own. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_PER_LAYER_H
#define SPW_SIM_MODEL_CONFIG_MODEL_PER_LAYER_H

#include "sim/model/config/model_reading.h"

/* Sets *is_there and, where it is, raw->mixer_dim and raw->mixer_kv_heads: of the layers whose attention is of another shape. All
 * of these must have the same numbers, and no other layer any; SPW_ECONFIG names the layer and the key. `m` has its layers. */
SPW_MUST_CHECK spw_status spw_per_layer_read(const spw_reading *in, const spw_model *m, spw_raw_config *raw,
                                             bool *is_there);

/* "num_attention_heads_per_layer": the model's number in every layer of its own attention, one number in all others, which becomes
 * raw->mixer_heads. SPW_ECONFIG names the layer. */
SPW_MUST_CHECK spw_status spw_heads_per_layer_read(const spw_reading *in, const spw_model *m,
                                                   spw_raw_config *raw);

#endif
