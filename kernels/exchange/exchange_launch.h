/* Rows between ranks: what the kernels and the host know in common. A rank is a GPU or one of several in one GPU's
 * memory; every rank's buffers are mapped into the address space of all.
 *
 * With `wait` a kernel waits for the kernels of the other ranks (all launched, with room for all: world.c): nobody
 * writes into a buffer before its owner has come to the same exchange, and a kernel ends when all ranks have done
 * their part. Without, the host launches one phase of all ranks before the next: nothing waits inside a kernel.
 *
 * Launchers are implemented in the *.hip file of the same name. Device pointers; nothing waits on the host; each
 * returns the runtime's error code, 0 for none. */
#ifndef SPW_KERNELS_EXCHANGE_EXCHANGE_LAUNCH_H
#define SPW_KERNELS_EXCHANGE_EXCHANGE_LAUNCH_H

#include "kernels/gpu/peers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank keeps of a dispatch, in its own memory. */
typedef struct spw_handle {
    int sent[SPW_WORLD_RANKS][SPW_WORLD_RANKS]; /* U [source][destination] tokens */
    int base[SPW_WORLD_RANKS]; /* the row at each destination where this rank's tokens begin */
    int first
        [SPW_WORLD_RANKS +
         1]; /* the row here where each source's tokens begin, and the rows received, or -1: a rank never came */
    int offset[SPW_WORLD_EXPERTS + 1]; /* sums of the choices of this rank's experts */
} spw_handle;

/* Which tokens go where (reference/dispatch.h), and a notice of it to every rank.
 *   expert         [tokens][top_k]    distinct ids in a token, or < 0
 *   place          [tokens][ranks]    how many tokens before it go to the rank too, or -1: it does not go there
 *   rank_tokens    [ranks], expert_tokens [experts]   their numbers */
typedef struct spw_layout_gpu {
    int tokens, top_k, experts, pad;
    const int *expert;
    int *place, *rank_tokens, *expert_tokens;
} spw_layout_gpu;
int spw_launch_exchange_layout(spw_layout_gpu layout, spw_peers peers, gpu_stream stream);

/* A receive buffer of `capacity` rows is one piece of memory: payloads [capacity][row_bytes], then 4-byte words:
 * scales [capacity][scales], experts [capacity][top_k] counted from 0 in the receiving rank or -1, weights
 * [capacity][top_k] (0 where the expert is -1), source items [capacity]. */
enum {
    SPW_SEND_SCALES = 1, /* what travels beside the payload */
    SPW_SEND_CHOICES = 2,
    SPW_SEND_SOURCE = 4,
    SPW_SEND_NOTICED = 8 /* base is formed from the notices and kept in `handle`; else it is an argument */
};

/* Copy f of item i goes to row base[d] + place[i][f] of rank d, d = to[i][f] or f; not at all where place < 0. */
typedef struct spw_send_gpu {
    int items, copies, row_bytes, scales, top_k,
        local; /* row_bytes: a multiple of 16; local: experts a rank */
    int parts, counter, blocks;
    /* Items stand by rank: so many runs of them are walked side by side, that all links are busy; 0 or 1: in order. */
    int spread;
    const unsigned char *payload; /* [items][row_bytes] */
    const float *scale;           /* [items][scales] */
    const int *expert;            /* [items][top_k] */
    const float *weight;
    const int *place, *to; /* [items][copies]; to may be NULL */
    const int *base;       /* [ranks] or NULL: zeros */
    spw_handle *handle;
    unsigned char *window[SPW_WORLD_RANKS];
    int capacity[SPW_WORLD_RANKS];
} spw_send_gpu;
typedef int spw_send_launcher(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream);
spw_send_launcher spw_launch_exchange_send;

/* Nothing is sent: waits for the notices and fills `handle`. */
int spw_launch_exchange_notices(const spw_send_gpu *send, const spw_peers *peers, gpu_stream stream);

/* y[i] = sum over f of weight[i][f] rows[d][base[d] + place[i][f]], f ascending, in fp32, rounded once; 0 without a
 * copy. side_sum[i] likewise of the `side` numbers that stand behind the rows. Where `source` is there, row r of rank
 * d must be of item source[d][r].
 *   window[d]   rows [capacity[d]][width] bf16, then [capacity[d]][side] fp32 */
typedef struct spw_reduce_gpu {
    int items, copies, width, side, counter, blocks, spread,
        pad; /* width: a multiple of 8, 0 for the side alone; spread: as above */
    const int *place, *to, *base;
    const float *weight; /* [items][copies] or NULL: 1 */
    spw_bf16 *y;
    float *side_sum; /* [items][side] */
    const unsigned char *window[SPW_WORLD_RANKS];
    const int *source[SPW_WORLD_RANKS];
    int capacity[SPW_WORLD_RANKS];
} spw_reduce_gpu;
typedef int spw_reduce_launcher(const spw_reduce_gpu *reduce, const spw_peers *peers, gpu_stream stream);
spw_reduce_launcher spw_launch_exchange_reduce;

/* The same sums of a dispatch's rows, by ranks that write their rows into memory of the items' ranks:
 *   add         window[own] and source[own] are read, of the others only the capacities
 *   staged[d]   rows [staged_rows][width] bf16, then [staged_rows][side] fp32, of rank d; (ranks - 1) x items serve for all routings
 *   arrived[d]  [staged_rows][spw_exchange_return_flags(width)] epoch << 32 | source item, a flag a part of a row
 * Both are memory that all ranks may read and write while kernels run. */
enum { SPW_RETURN_SEND = 1, SPW_RETURN_ADD = 2 }; /* both where kernels wait, else one after the other */
typedef struct spw_return_gpu {
    spw_reduce_gpu add;
    const spw_handle *handle;
    int parts, staged_rows;
    unsigned char *staged[SPW_WORLD_RANKS];
    unsigned long long *arrived[SPW_WORLD_RANKS];
} spw_return_gpu;
typedef int spw_return_launcher(const spw_return_gpu *back, const spw_peers *peers, gpu_stream stream);
spw_return_launcher spw_launch_exchange_return;
int spw_exchange_return_flags(int width);

/* Where every row of a rank goes, when one travels for each choice. experts <= SPW_WORLD_EXPERTS.
 *   expert, row     [tokens][top_k]   row, count [experts], offset [experts + 1]: local_launch.h, spw_plan_gpu
 *   place, to       [tokens * top_k]  of the plan's row: its row in the buffer of rank to, by expert, source, position;
 *                                     -1: unused, or no room
 *   received        [experts of this rank + 1]   where the rows of each expert begin here
 * `capacity`: rows of every rank's buffer. All ranks publish, then all assign. */
typedef struct spw_ragged_gpu {
    int tokens, top_k, experts, capacity, blocks, pad;
    const int *expert, *row, *count, *offset;
    int *place, *to, *received;
} spw_ragged_gpu;
int spw_launch_ragged_publish(spw_ragged_gpu ragged, spw_peers peers, gpu_stream stream);
int spw_launch_ragged_assign(spw_ragged_gpu ragged, spw_peers peers, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
