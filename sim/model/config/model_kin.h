/* Files whose model_type has no row: they are read by the meaning of their keys. */
#ifndef SPW_SIM_MODEL_CONFIG_MODEL_KIN_H
#define SPW_SIM_MODEL_CONFIG_MODEL_KIN_H

#include "sim/model/config/model_reading.h"

/* Reads the file as the family that takes all of its keys and reads most of them itself; of several the one whose model_type begins
 * as the file's does, then the first. If none takes them, as the parts that the keys name (spw_meant_family). in->family is what it
 * was read as. SPW_ECONFIG: neither; the message says which key nothing here can count. */
SPW_MUST_CHECK spw_status spw_kin_read(spw_reading *in, spw_model *out);

#endif
