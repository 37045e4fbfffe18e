/* The exchanges without deduplication: ragged all-to-all, equal-split all-to-all of capacity slots, all-gather and
 * reduce-scatter. Forward and back; by the kernels that dispatch and combine use. docs/schemes.md, sections 1, 2 and
 * 2.6. */
#ifndef SPW_KERNELS_EXCHANGE_PLAIN_EXCHANGE_H
#define SPW_KERNELS_EXCHANGE_PLAIN_EXCHANGE_H

#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/local/local_launch.h"

typedef enum spw_plain_kind {
    SPW_PLAIN_RAGGED, /* a row for every choice, into a buffer sorted by expert; what finds no room is dropped */
    SPW_PLAIN_CAPACITY, /* `capacity` slots of every sequence and expert, empty ones too */
    SPW_PLAIN_GATHER    /* every token to every rank; back: sums of what the ranks hold for it */
} spw_plain_kind;

/* Of every rank. bf16. */
typedef struct spw_plain_shape {
    spw_plain_kind kind;
    size_t sequences, sequence_length, top_k, experts, hidden;
    size_t buffer_rows; /* RAGGED: of a rank's buffer */
    size_t capacity;    /* CAPACITY: of a sequence and expert */
    size_t words;       /* GATHER: fp32 numbers that travel with a token (its logits) */
    size_t side;        /* GATHER: fp32 numbers that can go back for a token (their gradients) */
} spw_plain_shape;

/* A rank keeps its rows sorted (RAGGED: by expert; CAPACITY: by slot) in `local`, and of these one copy travels
 * each. */
typedef struct spw_plain_exchange {
    spw_world *world;
    spw_plain_shape shape;
    const spw_exchange_variant *variant;
    int blocks;
    size_t tokens, rows, items, copies; /* rows: of a received buffer; items, copies: of what is sent */
    void *received[SPW_WORLD_RANKS];    /* rows [rows][hidden], then [rows][words] fp32 */
    void *returned
        [SPW_WORLD_RANKS]; /* [rows][hidden], then [rows][side] fp32: what goes back, written by the caller */
    /* of this process's ranks */
    int *place[SPW_WORLD_RANKS], *to[SPW_WORLD_RANKS];
    int *offset[SPW_WORLD_RANKS];            /* RAGGED: [experts of the rank + 1] where their rows begin */
    spw_plan_gpu plan[SPW_WORLD_RANKS];      /* RAGGED */
    spw_capacity_gpu slots[SPW_WORLD_RANKS]; /* CAPACITY */
    spw_bf16 *local[SPW_WORLD_RANKS];        /* [items][hidden]: sent last, or returned last; not of GATHER */
} spw_plain_exchange;

SPW_MUST_CHECK spw_status spw_plain_create(spw_world *world, spw_plain_shape shape,
                                           const spw_exchange_variant *variant, int blocks,
                                           spw_plain_exchange **out);
void spw_plain_destroy(spw_plain_exchange *exchange); /* NULL is fine */

/* The row in `local` of each choice of a rank, or -1: [tokens][top_k] on its GPU; after a send. Not of GATHER. */
const int *spw_plain_choice_rows(const spw_plain_exchange *exchange, size_t rank);

/* x [ranks] of [tokens][hidden]; expert [ranks] of [tokens][top_k], not of GATHER; words [ranks] of [tokens][words]
 * or NULL. No wait on the host. */
SPW_MUST_CHECK spw_status spw_plain_send(spw_plain_exchange *exchange, const spw_bf16 *const *x,
                                         const int *const *expert, const float *const *words);
/* y[t] = the sum of what was returned for t, with weight [ranks] of [tokens][top_k] (NULL: 1; not of GATHER). What
 * was returned stays in `local`. */
SPW_MUST_CHECK spw_status spw_plain_return(spw_plain_exchange *exchange, const float *const *weight,
                                           spw_bf16 *const *y, spw_dispatch_counter counter);

/* The parts of these inside a rank, not of GATHER: where the choices go, tokens to `local`, and `local` to sums. */
SPW_MUST_CHECK spw_status spw_plain_assign(spw_plain_exchange *exchange, const int *const *expert);
SPW_MUST_CHECK spw_status spw_plain_fan_out(spw_plain_exchange *exchange, const spw_bf16 *const *x);
SPW_MUST_CHECK spw_status spw_plain_fan_in(spw_plain_exchange *exchange, const float *const *weight,
                                           spw_bf16 *const *y);

/* The parts of these between ranks: rows [ranks] of [items][hidden] to the places of the last send, and back from
 * `returned`. `into`: buffers of spw_world_allocate of [rows][hidden] instead of `received`, without words; or
 * NULL. */
SPW_MUST_CHECK spw_status spw_plain_send_rows(spw_plain_exchange *exchange, const spw_bf16 *const *rows,
                                              const float *const *words, void *const *into,
                                              spw_dispatch_counter counter);
SPW_MUST_CHECK spw_status spw_plain_return_rows(spw_plain_exchange *exchange, spw_bf16 *const *rows,
                                                spw_dispatch_counter counter);
/* GATHER: sum [ranks] of [tokens][side] of what stands behind the rows of `returned`; of the rows nothing. */
SPW_MUST_CHECK spw_status spw_plain_return_side(spw_plain_exchange *exchange, float *const *sum,
                                                spw_dispatch_counter counter);

#endif
