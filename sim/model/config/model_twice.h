/* Numbers that a config.json states twice: under two names, as a list and as a count, or in the file and in its text_config. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_TWICE_H
#define SPW_SIM_MODEL_CONFIG_MODEL_TWICE_H

#include "sim/model/config/model_reading.h"

/* SPW_ECONFIG when two of them differ: names both keys and both values. Of lists of layers see spw_reading_layers(). */
SPW_MUST_CHECK spw_status spw_stated_twice(const spw_reading *in);

/* True when the key is another name of a number whose name the family reads and the file has. */
bool spw_states_again(const spw_reading *in, const spw_attention_kind *kind, const char *key);

/* Marks [layers] that a key gives. */
typedef struct spw_layer_marks {
    const char *key;
    const uint8_t *marks;
} spw_layer_marks;

/* One key's, beside those that another key counts; equal, or SPW_ECONFIG names the first layer that differs. `yes`, `no`: words for
 * 1 and 0. */
SPW_MUST_CHECK spw_status spw_same_layers(const spw_reading *in, spw_layer_marks listed,
                                          spw_layer_marks counted, size_t layers, const char *yes,
                                          const char *no);

#endif
