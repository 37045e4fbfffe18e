/* Files whose language model stands within "text_config", beside what reads images or sound. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_WRAPPER_H
#define SPW_SIM_MODEL_CONFIG_MODEL_WRAPPER_H

#include "sim/model/config/model_reading.h"

/* Sets in->family by the file's model_type, and in->root and in->outer where the language model stands within. in->family is NULL where the
 * model_type is none that is known. SPW_ECONFIG: it is missing, or the model is dense. */
SPW_MUST_CHECK spw_status spw_wrapper_enter(spw_reading *in);
/* The model_type of the language model. */
const char *spw_wrapper_type(const spw_reading *in);
/* SPW_ECONFIG: the model_type is unknown, and `why` it cannot be read by its keys. */
SPW_MUST_CHECK spw_status spw_wrapper_unknown(const spw_reading *in, const char *why);

/* *tied: head and embedding are one matrix. In a wrapper either the outer file or text_config decides, by the class of
 * transformers 5.24 (get_expanded_tied_weights_keys in modeling_utils.py reads the configuration of the class that has
 * _tied_weights_keys). `*unread`, if not NULL, becomes the name of the other one where it says otherwise, else NULL. */
SPW_MUST_CHECK spw_status spw_wrapper_tie(const spw_reading *in, bool *tied, const char **unread);

#endif
