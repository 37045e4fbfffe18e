/* Keys of a config.json that are not read: which of them can be left alone, and which change the model. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_KEYS_H
#define SPW_SIM_MODEL_CONFIG_MODEL_KEYS_H

#include "sim/model/model.h"

#include <jansson.h>
#include <stdbool.h>

/* True when the key with this value adds no parameters and takes none away, in any family: by the table of docs/models.md, or
 * because the value is null, false or 0. */
bool spw_model_key_is_quiet(const char *key, const json_t *value);

/* True when words of a name that no family reads, or what is there, say that it holds no parameters: a name of positions, tokens,
 * losses, formats ...; fractions, or a mapping without a whole number from 2 on. */
bool spw_model_key_sounds_quiet(const char *key, const json_t *value);

/* True when the key says of a part whether the model has it, and the model has it already: the family implies it. */
bool spw_model_key_is_stated(const char *key, const json_t *value, const spw_model *model);

/* True when a value that nobody knows cannot be a size: a text, a number below 2, or a fraction. */
bool spw_model_value_is_small(const json_t *value);

/* Number of layers of multi-token prediction that the config asks for; 0 = none. */
json_int_t spw_model_mtp_layers(const json_t *root);
/* Such a key whose value is no number of layers; NULL: there is none. */
const char *spw_model_mtp_strange(const json_t *root);
bool spw_model_key_is_mtp(const char *key);

/* The window of attention, in tokens, that the config sets and uses; 0 = none. */
json_int_t spw_model_window(const json_t *root);

#endif
