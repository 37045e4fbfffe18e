/* Weights of a model as a list: parameters, FLOPs, state, sharding and Muon read it, so that a new kind of layer is a list of its
 * matrices. Grouped-query and latent attention, FFNs and the router have fields of spw_model instead. */
#ifndef SPW_SIM_INPUT_MATRIX_H
#define SPW_SIM_INPUT_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where it is: once a layer in which mixer k works (0: the model's attention), once a layer, once a layer with experts, once; once
 * beside the embedding, of which a token looks up rows. */
typedef enum spw_matrix_place {
    SPW_IN_MIXER,
    SPW_IN_LAYER,
    SPW_IN_MOE_LAYER,
    SPW_IN_MODEL,
    SPW_IN_TABLES
} spw_matrix_place;

/* How tensor parallelism holds it. */
typedef enum spw_matrix_cut {
    SPW_CUT_NOWHERE, /* whole on every GPU of a tensor group */
    SPW_CUT_OUTPUTS, /* a part of the outputs each */
    SPW_CUT_INPUTS   /* a part of the inputs each */
} spw_matrix_cut;

typedef struct spw_matrix {
    const char *name; /* static */
    uint64_t in, out;
    uint64_t count; /* equal matrices, such as groups of a grouped product; 0 counts as 1 */
    spw_matrix_place place;
    uint8_t mixer; /* of SPW_IN_MIXER */
    spw_matrix_cut cut;
    bool vector; /* a norm, a bias, a convolution, a table: Adam's, not Muon's */
} spw_matrix;

typedef struct spw_model spw_model;

/* Adds a row; SPW_MODEL_MATRICES of them are too many, and spw_model_parse() refuses the model. */
void spw_matrix_add(spw_model *model, spw_matrix row);
/* The i-th row of a place, and of a mixer there; NULL behind the last. */
const spw_matrix *spw_matrix_at(const spw_model *model, spw_matrix_place place, size_t mixer, size_t i);
/* Elements of all rows of a place; of those that no tensor parallelism cuts. Saturating. */
uint64_t spw_matrix_elements(const spw_matrix *row);
uint64_t spw_matrices_elements(const spw_model *model, spw_matrix_place place, size_t mixer);
uint64_t spw_matrices_whole(const spw_model *model, spw_matrix_place place, size_t mixer);

#endif
