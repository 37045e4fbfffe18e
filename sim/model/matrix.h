/* Weights of a model as a list: a row says everything of a matrix that parameters, FLOPs, state, sharding, Muon, adapters, formats
 * and traffic ask, so that a new kind of layer is a list of its matrices. Here are rows, and those that a file of a model adds to
 * spw_model.matrix; the whole list, with those that follow from fields of spw_model, is in matrices.h. */
#ifndef SPW_SIM_MODEL_MATRIX_H
#define SPW_SIM_MODEL_MATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where it is: once a layer in which mixer k works (0: the model's attention), once a layer, once a layer with experts, once; once
 * beside the embedding, of which a token looks up rows; once a layer whose attention has an indexer of its own. */
typedef enum spw_matrix_place {
    SPW_IN_MIXER,
    SPW_IN_LAYER,
    SPW_IN_MOE_LAYER,
    SPW_IN_MODEL,
    SPW_IN_TABLES,
    SPW_IN_INDEXER
} spw_matrix_place;

/* How tensor parallelism holds it. */
typedef enum spw_matrix_cut {
    SPW_CUT_NOWHERE, /* whole on every GPU of a tensor group */
    SPW_CUT_OUTPUTS, /* a part of the outputs each */
    SPW_CUT_INPUTS   /* a part of the inputs each */
} spw_matrix_cut;

/* What it reads: the normed input of the attention or FFN; what a matrix before it made of that, a low rank; what attention's
 * scores, or the gate of an FFN, gave. */
typedef enum spw_matrix_reads { SPW_READS_INPUT, SPW_READS_LATENT, SPW_READS_RESULT } spw_matrix_reads;

/* What it makes of an attention, where that matters: Muon orthogonalizes queries, gate, keys and values by themselves. */
typedef enum spw_matrix_use {
    SPW_MAKES_OTHER,
    SPW_MAKES_QUERIES,
    SPW_MAKES_GATE,
    SPW_MAKES_KEYS,
    SPW_MAKES_VALUES
} spw_matrix_use;

/* Its words in tables of traffic; all static. NULL: it has none of its own. */
typedef struct spw_matrix_words {
    const char *weights, *weights_formula; /* "q_down", "H q_lora w" */
    /* What it reads, of one that is cut by outputs; what it makes, by inputs: all GPUs' of a tensor group, in bf16, one copy in fp8,
     * and two. */
    const char *tokens, *tokens_formula[3];
    const char *latent, *latent_formula;  /* what it makes, a low rank; one GPU's tokens */
    const char *apart, *apart_formula[2]; /* of `apart`: all GPUs' of the group, one GPU's */
} spw_matrix_words;

typedef struct spw_matrix {
    const char *name; /* static */
    uint64_t in, out;
    uint64_t count; /* equal matrices, such as groups of a grouped product; 0 counts as 1 */
    spw_matrix_place place;
    uint8_t mixer; /* of SPW_IN_MIXER */
    spw_matrix_cut cut;
    bool vector; /* a norm, a bias, a convolution, a table: Adam's, not Muon's */
    bool joined; /* one product with the row before it under Megatron-Core and TransformerEngine */
    bool norm;   /* a vector that scales what it norms, and keeps a number a token */
    bool exact;  /* of no recipe's format: PyTorch's own product, whatever others are in */
    bool
        looks_up; /* a product of rows that a token looks up in tables; or a table whose rows nothing multiplies */
    spw_matrix_reads reads;
    spw_matrix_use makes;
    uint64_t apart;  /* of `out`, what is no latent: goes past the norm and the matrix behind it */
    unsigned module; /* of Megatron-Core's recompute modules (remat_modules.h), 0: none of its own */
    const spw_matrix_words *words;
} spw_matrix;

typedef struct spw_model spw_model;

/* Adds a row, which reads what its cut and its inputs say; SPW_MODEL_MATRICES of them are too many, and spw_model_parse() refuses the model. */
void spw_matrix_add(spw_model *model, spw_matrix row);
/* Is it a row of that place, and in a mixer of that one? */
bool spw_matrix_is_at(const spw_matrix *row, spw_matrix_place place, size_t mixer);
/* The i-th row of a place, and of a mixer there; NULL behind the last. */
const spw_matrix *spw_matrix_at(const spw_model *model, spw_matrix_place place, size_t mixer, size_t i);
/* Elements of all rows of a place; of those that no tensor parallelism cuts. Saturating. */
uint64_t spw_matrix_elements(const spw_matrix *row);
uint64_t spw_matrices_elements(const spw_model *model, spw_matrix_place place, size_t mixer);
uint64_t spw_matrices_whole(const spw_model *model, spw_matrix_place place, size_t mixer);

#endif
