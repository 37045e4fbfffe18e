/* What the executed schemes are written in: tensors spread over all ranks, and the steps that they share. */
#ifndef SPW_REFERENCE_SCHEMES_RANKS_H
#define SPW_REFERENCE_SCHEMES_RANKS_H

#include "reference/grouped_gemm.h"
#include "reference/schemes/execution.h"

#include <stdbool.h>

struct spw_execution {
    spw_execution_shape shape;
    size_t tokens, assignments, local; /* of a rank: T, T top_k, experts */
    spw_execution_input in;
    spw_execution_output out;
    spw_arena *arena;
    spw_fabric *fabric;
    spw_pass pass;
    struct spw_scratch *scratch; /* index arrays, which no scheme's memory is judged by; freed at the end */
};

/* One tensor on every rank. */
typedef struct spw_spread {
    float *at[SPW_EXECUTION_RANKS];
    size_t rows, width;
} spw_spread;

/* *out = zeroed array that lives until the run ends. */
SPW_MUST_CHECK spw_status spw_scratch_take(spw_execution *run, size_t count, size_t size, void **out);
void spw_scratch_free(spw_execution *run);
#define SPW_SCRATCH(run, count, out) spw_scratch_take((run), (count), sizeof **(out), (void **)(out))

void spw_step(spw_execution *run, const char *step);
/* Counts rows x width x element_bytes on every rank. */
SPW_MUST_CHECK spw_status spw_born(spw_execution *run, spw_spread *tensor, const char *name, size_t rows,
                                   size_t width);
/* Counts rows x width x element_bytes and stores `elements` numbers: for tensors that are mostly zeros. */
SPW_MUST_CHECK spw_status spw_born_sparse(spw_execution *run, spw_spread *tensor, const char *name,
                                          size_t rows, size_t width, size_t elements);
/* Rows by rank [ranks], `width` elements of `element_bytes` each (0: those of activations). */
SPW_MUST_CHECK spw_status spw_born_at(spw_execution *run, spw_spread *tensor, const char *name,
                                      const size_t *rows, size_t width, size_t element_bytes);
void spw_dies(spw_execution *run, spw_spread *tensor);
/* `from` becomes `to` in place, under another name. */
void spw_becomes(spw_execution *run, spw_spread *from, spw_spread *to, const char *name);

const float *spw_rank_x(const spw_execution *run, size_t rank);
const float *spw_rank_dy(const spw_execution *run, size_t rank);
const int32_t *spw_rank_expert(const spw_execution *run, size_t rank);
const float *spw_rank_weight(const spw_execution *run, size_t rank);

/* to[i] = from[index[i]] for i < count; rows with index < 0 are left alone. */
void spw_gather_rows(const float *from, const int32_t *index, size_t count, size_t width, float *to);
/* to[index[i]] = from[i] for i < count. */
void spw_scatter_rows(const float *from, const int32_t *index, size_t count, size_t width, float *to);
/* y[t] = sum over k < slots of weight[t][k] * rows[row[t][k]]: spw_ref_combine() with a given table of rows
 * (-1: none). weight NULL: 1. */
void spw_sum_rows(size_t tokens, size_t slots, size_t width, const int32_t *row, const float *weight,
                  const float *rows, float *y);
/* Its gradient: d_weight[t][k] = dy[t] . rows[row[t][k]] (0 without a row), d_rows[row[t][k]] = weight[t][k] dy[t]. */
typedef struct spw_row_table {
    size_t tokens, slots, width;
    const int32_t *row;
    const float *weight;
} spw_row_table;
void spw_sum_rows_gradient(const spw_row_table *table, const float *rows, const float *dy, float *d_rows,
                           float *d_weight);

/* Rank `from` sends rows of fp32 that count as element_bytes an element, and the mirror. */
SPW_MUST_CHECK spw_status spw_send_rows(spw_execution *run, size_t from, size_t to, const float *rows,
                                        size_t count, size_t width);
SPW_MUST_CHECK spw_status spw_receive_rows(spw_execution *run, size_t to, size_t from, float *rows,
                                           size_t count, size_t width);

/* The tensors around the grouped GEMMs, and where each rank's local experts have their rows. */
typedef struct spw_experts {
    size_t rows;           /* of every tensor: the buffer; the most of any rank when rows_at is given */
    const size_t *rows_at; /* [ranks] rows of each rank; NULL: `rows` everywhere */
    size_t *offset;        /* [ranks][local + 1] */
    spw_spread x, w0, w1, act, y, dy, dw0, dw1, dx0, dx1;
} spw_experts;

SPW_MUST_CHECK spw_status spw_experts_create(spw_execution *run, size_t rows, spw_experts *out);
/* The same with rows by rank, borrowed. */
SPW_MUST_CHECK spw_status spw_experts_create_at(spw_execution *run, const size_t *rows, spw_experts *out);
/* A tensor of the experts' rows. */
SPW_MUST_CHECK spw_status spw_experts_born(spw_execution *run, const spw_experts *experts, spw_spread *tensor,
                                           const char *name, size_t width);

/* x -> w0_out, w1_out, act, y. Without `keep` everything but y dies as soon as it has been used. */
SPW_MUST_CHECK spw_status spw_experts_forward(spw_execution *run, spw_experts *experts, bool keep);
/* dy -> dx_w0 (the sum of both parts) and the weight gradients; everything else dies. */
SPW_MUST_CHECK spw_status spw_experts_backward(spw_execution *run, spw_experts *experts);

/* The parts of them, on every rank, for schemes that arrange them otherwise. Weight 0, 1: w0, w1; 2: wo. */
SPW_MUST_CHECK spw_status spw_experts_product(spw_execution *run, const spw_experts *experts, int weight,
                                              const spw_spread *x, spw_spread *y);
SPW_MUST_CHECK spw_status spw_experts_input_gradient(spw_execution *run, const spw_experts *experts,
                                                     int weight, const spw_spread *dy, spw_spread *dx);
SPW_MUST_CHECK spw_status spw_experts_weight_gradient(spw_execution *run, const spw_experts *experts,
                                                      int weight, const spw_spread *x, const spw_spread *dy);
void spw_experts_swiglu(spw_execution *run, spw_experts *experts);
/* "swiglu gradient": d_act stands in dw0; dw0 and dw1 come out, w0 and w1 die. */
void spw_experts_swiglu_gradient(spw_execution *run, spw_experts *experts);
/* "sum of dx": dx0 += dx1, which dies. */
void spw_experts_sum_dx(spw_execution *run, spw_experts *experts);

/* Of a tensor group (tensor_group.h) the last product is a term of a sum over it, which the second makes of it: y, of each rank
 * its columns. The third makes dy whole before that product's gradients. Without a group "y", and nothing. */
const char *spw_experts_last(const spw_execution *run);
SPW_MUST_CHECK spw_status spw_experts_sum_y(spw_execution *run, spw_experts *experts);
SPW_MUST_CHECK spw_status spw_experts_gather_dy(spw_execution *run, spw_experts *experts);

/* Shape and offsets [local + 1] of a rank's grouped GEMM with one of the weights. */
spw_gemm_shape spw_experts_shape(const spw_execution *run, const spw_experts *experts, size_t rank,
                                 int weight);
const size_t *spw_experts_offset(const spw_execution *run, const spw_experts *experts, size_t rank);

/* The slices of rank's experts in the weights and their gradients; weight as above. */
const float *spw_rank_weights(const spw_execution *run, size_t rank, int weight);
float *spw_rank_weight_gradients(const spw_execution *run, size_t rank, int weight);

#endif
