/* Other names of numbers: of a file that has one of them in the place of the name that its family reads. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_SYNONYMS_H
#define SPW_SIM_MODEL_CONFIG_MODEL_SYNONYMS_H

#include "sim/model/config/model_reading.h"

/* The number at another name of `key`, one that the family does not read as something else; NULL: there is none. *spelled becomes
 * that name, which in->used remembers. */
const json_t *spw_reading_meant(const spw_reading *in, const char *key, const char **spelled);
/* Whether spw_reading_meant() has found something at this name. */
bool spw_reading_was_meant(const spw_reading *in, const char *name);
/* True when the key is another name of a number that the family reads and the file has, with the same value. */
bool spw_reading_means_again(const spw_reading *in, const char *key, const json_t *value);

#endif
