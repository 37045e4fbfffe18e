/* Dispatch and combine between ranks (reference/dispatch.h), with the layout kept for the backward pass: the gradient
 * of a dispatch is a combine, the gradient of a combine a dispatch over the same places. One host thread launches the
 * ranks of its process; nothing waits on the host unless said. */
#ifndef SPW_KERNELS_EXCHANGE_DISPATCH_GPU_H
#define SPW_KERNELS_EXCHANGE_DISPATCH_GPU_H

#include "kernels/exchange/exchange_launch.h"
#include "kernels/gpu/world.h"

/* One way to move rows. Rows of a table that ends with name == NULL; only those that this build holds. */
typedef struct spw_exchange_variant {
    const char *name;
    spw_send_launcher *send;
    spw_reduce_launcher *reduce;
    spw_return_launcher *back; /* of a dispatch's rows; NULL: `reduce` */
} spw_exchange_variant;
extern const spw_exchange_variant spw_exchange_variants[];

/* Of every rank. element_bytes 2: bf16; 1: fp8 codes with an fp32 scale for every 128 (reference/float8.h). A row is
 * a multiple of 16 bytes; experts a multiple of the ranks. */
typedef struct spw_dispatch_shape {
    size_t tokens, top_k, experts, hidden, element_bytes;
} spw_dispatch_shape;

/* What is counted under which number (spw_world_counter). */
typedef enum spw_dispatch_counter {
    SPW_COUNT_DISPATCH,
    SPW_COUNT_COMBINE,
    SPW_COUNT_COMBINE_GRADIENT,
    SPW_COUNT_DISPATCH_GRADIENT,
    SPW_COUNT_ROUTER_GRADIENT, /* of the ring */
    SPW_COUNT_OTHER
} spw_dispatch_counter;

/* Of the ranks of this process, in their memory. scale, expert, weight: as in exchange_launch.h. */
typedef struct spw_dispatch_input {
    const void *x[SPW_WORLD_RANKS];
    const float *scale[SPW_WORLD_RANKS]; /* NULL for bf16 */
    const int *expert[SPW_WORLD_RANKS];
    const float *weight[SPW_WORLD_RANKS];
} spw_dispatch_input;

typedef struct spw_dispatch {
    spw_world *world;
    spw_dispatch_shape shape;
    const spw_exchange_variant *variant;
    int blocks;                       /* of the kernels that move rows: multiprocessors used */
    size_t capacity[SPW_WORLD_RANKS]; /* rows of the buffers; 0 before there are any */
    size_t room[2][SPW_WORLD_RANKS];  /* bytes allocated: received, returned */
    bool
        keeps; /* for the caller to set: exact buffers that are large enough stay, as under a caching allocator */
    void *received[SPW_WORLD_RANKS]; /* spw_send_gpu.window */
    void *returned
        [SPW_WORLD_RANKS]; /* spw_reduce_gpu.window: rows [capacity][hidden] bf16, then [capacity][top_k] fp32 */
    void *staged[SPW_WORLD_RANKS],
        *arrived[SPW_WORLD_RANKS]; /* of spw_return_gpu, where the variant has `back` */
    int *place[SPW_WORLD_RANKS], *rank_tokens[SPW_WORLD_RANKS], *expert_tokens[SPW_WORLD_RANKS];
    spw_handle *handle[SPW_WORLD_RANKS];
} spw_dispatch;

/* Blocks of a rank's kernels that move rows, unless one is asked for: every multiprocessor but a few, on which a
 * layout may still run; the share of a rank where several wait for each other on one GPU. */
int spw_exchange_blocks(const spw_world *world);
/* *use = `asked`, or for 0 spw_exchange_blocks. SPW_EARG: more than spw_world_blocks. */
SPW_MUST_CHECK spw_status spw_exchange_take_blocks(const spw_world *world, int asked, int *use);

/* Without row buffers, but with what a variant with `back` stages: (ranks - 1) x tokens rows as a combine has them, and their flags.
 * blocks: spw_exchange_take_blocks. SPW_EARG: a shape that cannot be. */
SPW_MUST_CHECK spw_status spw_dispatch_create(spw_world *world, spw_dispatch_shape shape,
                                              const spw_exchange_variant *variant, int blocks,
                                              spw_dispatch **out);
void spw_dispatch_destroy(spw_dispatch *dispatch); /* NULL is fine */

/* Row buffers of capacity[r] rows on every rank, poisoned; NULL: the worst case, ranks x tokens. Old ones are freed,
 * after waiting. */
SPW_MUST_CHECK spw_status spw_dispatch_room(spw_dispatch *dispatch, const size_t *capacity);
/* Bytes of a rank's receive buffer, and of its rows alone. */
size_t spw_dispatch_buffer_bytes(const spw_dispatch *dispatch, size_t rank);
size_t spw_dispatch_row_bytes(const spw_dispatch *dispatch);
/* The parts of a rank's receive buffer. */
typedef struct spw_received {
    void *rows;
    float *scale;
    int *expert;
    float *weight;
    int *source;
} spw_received;
spw_received spw_dispatch_received(const spw_dispatch *dispatch, size_t rank);

/* Layout, notices, rows, into worst-case buffers: no wait on the host. */
SPW_MUST_CHECK spw_status spw_dispatch_forward(spw_dispatch *dispatch, const spw_dispatch_input *input);
/* The same into buffers of just the rows that come: waits once, for their number, and allocates. */
SPW_MUST_CHECK spw_status spw_dispatch_forward_exact(spw_dispatch *dispatch, const spw_dispatch_input *input);
/* Its two halves, for those who time them. */
SPW_MUST_CHECK spw_status spw_dispatch_layout(spw_dispatch *dispatch, const spw_dispatch_input *input);
SPW_MUST_CHECK spw_status spw_dispatch_rows(spw_dispatch *dispatch, const spw_dispatch_input *input);
/* Other rows to the places of the last forward dispatch, without choices. */
SPW_MUST_CHECK spw_status spw_dispatch_again(spw_dispatch *dispatch, const spw_dispatch_input *input,
                                             spw_dispatch_counter counter);
/* y[t] = the sum of what the ranks left for t in `returned`; with `side` also side[t] = the sum of their top_k
 * numbers behind the rows.
 *   y [ranks] of [tokens][hidden], side [ranks] of [tokens][top_k] or NULL: in the memory of this process's ranks */
SPW_MUST_CHECK spw_status spw_dispatch_combine(spw_dispatch *dispatch, spw_bf16 *const *y, float *const *side,
                                               spw_dispatch_counter counter);

#endif
