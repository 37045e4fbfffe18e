/* The matrices of a model, part by part: made of its fields and of what its file added to spw_model.matrix. Whoever counts weights,
 * products or what passes between GPUs walks them; nothing else knows which matrices a kind of layer has. A list is on the stack
 * of who asks, since a model's sizes may be changed; to make one takes less than a microsecond. */
#ifndef SPW_SIM_MODEL_MATRICES_H
#define SPW_SIM_MODEL_MATRICES_H

#include "sim/model/model.h"

enum { SPW_LIST_ROWS = SPW_MODEL_MATRICES + 24 };

/* In the order in which a token passes them, biases and norms last or behind what they norm. */
typedef struct spw_matrices {
    spw_matrix row[SPW_LIST_ROWS];
    size_t rows;
} spw_matrices;

/* Adds a row if it is there and has elements. */
void spw_matrices_add(spw_matrices *list, bool is_there, spw_matrix row);

/* Of a layer in which mixer k works; 0: the model's attention, its indexer last (SPW_IN_INDEXER). */
void spw_matrices_of_mixer(const spw_model *model, size_t k, spw_matrices *out);
/* Of the model's own attention what follows from fields alone, without what its file added and without an indexer; where its file
 * has all of them, these. */
void spw_matrices_of_attention(const spw_model *model, spw_matrices *out);
/* `count` equal routed experts; one. */
void spw_matrices_of_experts(const spw_model *model, size_t count, spw_matrices *out);
void spw_matrices_of_expert(const spw_model *model, spw_matrices *out);
/* What runs beside them, its gate last; the FFN of a dense layer. */
void spw_matrices_of_shared(const spw_model *model, spw_matrices *out);
void spw_matrices_of_dense(const spw_model *model, spw_matrices *out);
/* What chooses among `choices` experts, and projects rows to and from latent ones; by_id: a hash layer, without a bias of the choice. */
void spw_matrices_of_router(const spw_model *model, size_t choices, bool by_id, spw_matrices *out);
size_t spw_model_choices(const spw_model *model);
/* Norms of a layer, and what else stands beside mixer and FFN. */
void spw_matrices_of_norms(const spw_model *model, spw_matrices *out);
/* Embedding and tables; the norm behind the last layer; the head. */
void spw_matrices_of_embedding(const spw_model *model, spw_matrices *out);
void spw_matrices_of_end(const spw_model *model, spw_matrices *out);
void spw_matrices_of_head(const spw_model *model, spw_matrices *out);

/* Elements of all rows; of those that are whole on every GPU of a tensor group; of the indexer's. Saturating. */
uint64_t spw_matrices_sum(const spw_matrices *list);
uint64_t spw_matrices_sum_whole(const spw_matrices *list);
uint64_t spw_matrices_sum_at(const spw_matrices *list, spw_matrix_place place);
/* Products that a recipe casts: rows that are no vectors, joined ones counted once. */
size_t spw_matrices_products(const spw_matrices *list);
/* Elements a token that they read, of what any bit 1 << spw_matrix_reads says; that they make. */
uint64_t spw_matrices_inputs(const spw_matrices *list, unsigned reads);
uint64_t spw_matrices_outputs(const spw_matrices *list);
enum {
    SPW_OF_INPUT = 1u << SPW_READS_INPUT,
    SPW_OF_LATENT = 1u << SPW_READS_LATENT,
    SPW_OF_RESULT = 1u << SPW_READS_RESULT,
    SPW_OF_ANY = SPW_OF_INPUT | SPW_OF_LATENT | SPW_OF_RESULT
};
/* Rows that one of Megatron-Core's modules runs again. */
void spw_matrices_of_module(const spw_matrices *list, unsigned module, spw_matrices *out);

#endif
