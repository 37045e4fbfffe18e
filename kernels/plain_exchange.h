/* The exchanges without deduplication: ragged all-to-all, equal-split all-to-all of capacity slots, all-gather and reduce-scatter. Forward and
 * back; by the kernels that dispatch and combine use. docs/schemes.md, sections 1, 2 and 2.6. */
#ifndef SPW_KERNELS_PLAIN_EXCHANGE_H
#define SPW_KERNELS_PLAIN_EXCHANGE_H

#include "kernels/dispatch_gpu.h"
#include "kernels/local_launch.h"

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
} spw_plain_shape;

typedef struct spw_plain_exchange {
    spw_world *world;
    spw_plain_shape shape;
    const spw_exchange_variant *variant;
    int blocks;
    size_t tokens, rows, items, copies; /* rows: of a received buffer; items, copies: of what is sent */
    void *received[SPW_WORLD_RANKS];    /* rows [rows][hidden], then [rows][words] fp32 */
    void *returned[SPW_WORLD_RANKS];    /* [rows][hidden]: what goes back, written by the caller */
    /* of this process's ranks */
    int *place[SPW_WORLD_RANKS], *to[SPW_WORLD_RANKS];
    int *offset[SPW_WORLD_RANKS];            /* RAGGED: [experts of the rank + 1] where their rows begin */
    spw_plan_gpu plan[SPW_WORLD_RANKS];      /* RAGGED */
    spw_capacity_gpu slots[SPW_WORLD_RANKS]; /* CAPACITY */
    spw_bf16 *slot_rows[SPW_WORLD_RANKS];    /* CAPACITY: [items][hidden] */
} spw_plain_exchange;

SPW_MUST_CHECK spw_status spw_plain_create(spw_world *world, spw_plain_shape shape,
                                           const spw_exchange_variant *variant, int blocks,
                                           spw_plain_exchange **out);
void spw_plain_destroy(spw_plain_exchange *exchange); /* NULL is fine */

/* x [ranks] of [tokens][hidden]; expert [ranks] of [tokens][top_k], not of GATHER; words [ranks] of [tokens][words] or NULL. No wait on the host.
 * Counts under SPW_COUNT_DISPATCH. */
SPW_MUST_CHECK spw_status spw_plain_send(spw_plain_exchange *exchange, const spw_bf16 *const *x,
                                         const int *const *expert, const float *const *words);
/* y[t] = the sum of what was returned for t, with weight [ranks] of [tokens][top_k] (not of GATHER). SPW_COUNT_COMBINE. */
SPW_MUST_CHECK spw_status spw_plain_return(spw_plain_exchange *exchange, const float *const *weight,
                                           spw_bf16 *const *y);

#endif
