/* What the files of kinds of layers share that were read after those of model_mixer.c: a matrix, or numbers, of one kind. */
#ifndef SPW_SIM_MODEL_MODEL_MIXER_PARTS_H
#define SPW_SIM_MODEL_MODEL_MIXER_PARTS_H

#include "base/saturate.h"
#include "sim/model/model_mixer.h"

#define P(a, b) spw_saturated_product(a, b)
#define N(field) ((uint64_t)raw->mixer_##field)

static inline void matrix(spw_model *m, size_t kind, const char *name, uint64_t in, uint64_t out,
                          spw_matrix_cut cut) {
    spw_matrix_add(m, (spw_matrix){name, in, out, 1, SPW_IN_MIXER, (uint8_t)kind, cut, false});
}
static inline void numbers(spw_model *m, size_t kind, const char *name, uint64_t count, spw_matrix_cut cut) {
    spw_matrix_add(m, (spw_matrix){name, 1, count, 1, SPW_IN_MIXER, (uint8_t)kind, cut, true});
}

#endif
