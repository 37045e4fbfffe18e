/* What npy.c and npz.c share. */
#ifndef SPW_TRACES_IMPORTERS_NPY_INTERNAL_H
#define SPW_TRACES_IMPORTERS_NPY_INTERNAL_H

#include "traces/importers/npy.h"

/* Reads the header of npy->bytes, of which those of the header must be there; npy->length says how many there are in all. */
SPW_MUST_CHECK spw_status spw_npy_parse(spw_npy *npy);

#endif
