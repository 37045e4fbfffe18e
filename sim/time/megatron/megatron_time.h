/* The time of one step, forward and backward, of bare Megatron-Core MoE layers (sim/memory/tensors/bare_layers.h), without
 * Transformer Engine and without overlap: kernels one behind the other on one stream a GPU, one process a GPU.
 *
 * Every rank has a clock of its GPU and one of its host. A phase adds its seconds to the GPU's; an all-to-all begins when the
 * last rank arrives, so a layer costs what its slowest rank costs, and the step the sum over layers. With times c[r] since the
 * last exchange, it begins at b log(sum over r of exp(c[r] / b)), b = jitter_share x max c: equal ranks wait for the slowest
 * of some jitter, a single late one for nothing else (Gumbel 1958: the greatest of many). The host must know a layer's counts
 * before it can go on: its work from one layer's counts to the next's is host_layer_s, and the GPU waits when it is ahead.
 *
 * T tokens, K top_k, E experts, e of a rank, H hidden, F ffn; per rank and layer M rows received, N sent, M' = M with every
 * expert's rows rounded up to tiles; copy(b) = b / copy_bytes_per_s; N' = up(N, 256): tiles of the output.
 *   route                copy(16 T H) + 2 T H E / router_flops + 25 kernels; with capacity copy(800 T E) more (top of columns)
 *   permute              copy(48 T E) + 40 kernels, the host's counts, copy(4 N H); with capacity, unpadded 0.2 ms more (the host
 *                        reads how many rows there are)
 *   dispatch, combine    exchange_latency_s + (heavier + duplex_share x lighter direction) / exchange_bytes_per_s, worst rank,
 *                        longer by long_message_share where unequal messages are just above 2^27 or 2^28 bytes; dispatch
 *                        twice the latency (probabilities go first)
 *   sort, unsort chunks  copy(4 (M + idle rows) H); padded: 4 M H / slots_bytes_per_s. One torch.cat starts for every chunk
 *                        (a source's rows of an expert) as many blocks as the longest needs, b = min(32 multiprocessors,
 *                        ceil(2 H longest / 4096)); a chunk takes at least b block_s, and what that is longer than its copy
 *                        are the idle rows (PyTorch, aten/src/ATen/native/cuda/Shape.cu, getCatGrid; block_s measured)
 *   GEMM                 flops / (peak x gemm_flops_share) x (1 + spill_share x spilled) x (1 - zero_share x zero rows / M):
 *                        tiles run down an expert's rows first, so where its operand [rows, depth] exceeds the cache it is
 *                        read again for every column of tiles; spilled = sum over experts of rows / M x
 *                        max(0, 1 - cache_bytes / (2 rows depth)), 0 for weight gradients. Both cost power, not bandwidth:
 *                        the GPU runs at its limit and lowers its clock
 *   experts              (2 M' H (2F)' + 2 M' F H') / GEMM + copy(activation_bytes M F)
 *   unpermute            4 N H / scatter_bytes_per_s
 *   backward permute     4 N H / index_add_bytes_per_s + copy(norm_gradient_bytes T H) + 4 T H E / router_flops
 *   backward experts     (2 M' 2F H' + 2 M' H F' + 6 M H F in tiles) / GEMM + copy(activation_gradient_bytes M F)
 *                        + 10 bytes a parameter / main_grad_bytes_per_s + zeros for experts without rows; moe_act: the
 *                        activation again
 *   backward unpermute   copy(4 N H);   moe recompute: the layer's forward again before its backward
 * Other dispatchers (not measured: the same kernels at the same rates over other rows, the exchange by its own rate):
 *   tokens      DeepEP: permute moves no rows, what travels is a row a token and rank at token_bytes_per_s; sort chunks
 *               becomes the permutation of received tokens, copy(4 M H), unsort their sum, 4 M H / scatter_bytes_per_s;
 *               backward copy(4 M H) and 4 M H / index_add_bytes_per_s; nothing is left of unpermute
 *   HybridEP    as DeepEP, but its dispatch writes rows in the experts' order: no copy(4 M H) of sort chunks, none of backward
 *               unsort. One published layer, bf16 on 8 H100 (M 32768, H 7168: 0.31 ms): 0.29 ms less forward, 0.26 backward
 *   sync-free   as HybridEP, and the host reads no counts; as one CUDA graph it does not wait for the host at all
 *   all-gather  the same, all tokens travel; combine and its gradient are sums in fp32: 4 bytes an element
 * With expert_tensor t above 1, F is the part of one rank, M the rows of all t ranks and A those that its all-to-all brought
 * (not measured; counted from token_dispatcher.py):
 *   gather               twice the latency + 2 H shared / exchange_bytes_per_s: rows and weights to the t - 1 others
 *   scatter              copy(6 M H) + latency + 4 H shared / exchange_bytes_per_s + copy(6 A H): a sum in fp32; backward the
 *                        mirror of both, in the opposite order
 * Between nodes an exchange has two legs (sim/time/exchange_rate.h, spw_exchange_legs, exchange_serial_share): its rows inside nodes as
 * above, and the heaviest direction of a NIC at exchange_nic_share of the NIC's rate. DeepEP and HybridEP send a token once to a node, to
 * the GPU of the sender's number there, which hands it on by links; an all-to-all sends every row by the sender's NIC to the
 * receiver's. A few bytes take exchange_start_s, or exchange_latency_s where that is more. Published rates of other libraries; not measured.
 *
 * 16, 800, 48, 25, 40, 0.2 ms, 32, 4096, 10 and the tiles are keys of the stack, by default those of sim/stack_defaults/megatron.yaml.
 *
 * Waiting for a slower rank counts as part of combine (forward), of sort chunks and combine (backward), where the events of
 * the measured runs have it. Counts of bytes and kernels are those of the PyTorch code, or chosen on the measured phases where
 * they are round numbers: docs/validation_time_megatron.md. */
#ifndef SPW_SIM_TIME_MEGATRON_MEGATRON_TIME_H
#define SPW_SIM_TIME_MEGATRON_MEGATRON_TIME_H

#include "sim/machine/megatron_coefficients.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>

#define SPW_MEGATRON_PHASE_LIST(X) \
    X(ROUTE, "forward_route") \
    X(PERMUTE, "forward_permute") \
    X(DISPATCH, "forward_dispatch_a2a") \
    X(SORT, "forward_sort_chunks") \
    X(EXPERTS, "forward_experts") \
    X(UNSORT, "forward_unsort_chunks") \
    X(COMBINE, "forward_combine_a2a") \
    X(UNPERMUTE, "forward_unpermute") \
    X(BACKWARD_PERMUTE, "backward_permute") \
    X(BACKWARD_DISPATCH, "backward_dispatch_a2a") \
    X(BACKWARD_SORT, "backward_sort_chunks") \
    X(BACKWARD_EXPERTS, "backward_experts") \
    X(BACKWARD_UNSORT, "backward_unsort_chunks") \
    X(BACKWARD_COMBINE, "backward_combine_a2a") \
    X(BACKWARD_UNPERMUTE, "backward_unpermute") \
    X(RECOMPUTE, "recompute") \
    X(GATHER, "forward_gather") \
    X(SCATTER, "forward_scatter") \
    X(BACKWARD_SCATTER, "backward_scatter") \
    X(BACKWARD_GATHER, "backward_gather")
#define SPW_MEGATRON_PHASE_ENUM(name, text) SPW_MEGATRON_##name,
typedef enum spw_megatron_phase {
    SPW_MEGATRON_PHASE_LIST(SPW_MEGATRON_PHASE_ENUM) SPW_MEGATRON_PHASES
} spw_megatron_phase;
#undef SPW_MEGATRON_PHASE_ENUM
const char *spw_megatron_phase_name(spw_megatron_phase phase);

/* Depths of the products: what a row of the operand that tiles run down is long. */
typedef enum spw_megatron_depth {
    SPW_MEGATRON_DEPTH_HIDDEN,
    SPW_MEGATRON_DEPTH_FFN,
    SPW_MEGATRON_DEPTH_TWICE_FFN,
    SPW_MEGATRON_DEPTH_COUNT
} spw_megatron_depth;

/* One rank in one layer, in rows. From `tiled` on: by spw_megatron_experts_load, sim/time/megatron/megatron_experts.h. */
typedef struct spw_megatron_load {
    double received; /* M: what its experts compute */
    double sent;     /* N: what its own tokens are permuted into; all-to-all alone */
    double link_in, link_out, nic_in, nic_out; /* of one dispatch, by the ports that they cross */
    double latency_s;                          /* of the network's levels, an exchange */
    /* With expert_tensor: of the M rows those that the all-to-all brought; and what a gather among the ranks that share the
     * experts carries by the fullest port of them, the heavier direction + duplex_share x the lighter. */
    double arrived, shared;
    double tiled; /* received, every expert's rows rounded up to tile_rows */
    size_t empty_experts;
    double idle_rows;                         /* what blocks without work cost, as rows that are copied */
    double spilled[SPW_MEGATRON_DEPTH_COUNT]; /* above, by the depth of the product */
    double zero_rows;                         /* of received: padding */
    double unlike; /* share of its experts with rows whose number is more than one from every other's */
} spw_megatron_load;
/* Number by number. */
bool spw_megatron_load_is(const spw_megatron_load *a, const spw_megatron_load *b);

typedef struct spw_megatron_time {
    double forward_s, backward_s, step_s;
    double phase_s[SPW_MEGATRON_PHASES]; /* mean over the ranks, sum over the layers */
    double rank_wait_s[SPW_MEGATRON_PHASES],
        host_wait_s[SPW_MEGATRON_PHASES]; /* of phase_s: for other ranks, for the host */
    double again_s[SPW_MEGATRON_PHASES];  /* of RECOMPUTE without waiting: what its phases would be called */
    double unlike;                        /* of the load: the rank's that has most, summed over the layers */
} spw_megatron_time;

/* The most rows that one NIC carries one way: load [ranks]. */
double spw_megatron_nic_rows(const spw_megatron_load *load, size_t ranks);

/* Layers whose loads come in turn: layer l has [(first + l) % turn][ranks] of `load`; turn 0: a load a layer. */
typedef struct spw_megatron_loads {
    const spw_megatron_load *load;
    size_t first, turn;
} spw_megatron_loads;

/* phase_s [layers][ranks][SPW_MEGATRON_PHASES] or NULL. `shape` as spw_bare_layers_create takes it;
 * SPW_EARG for a shape that is empty, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_megatron_time_predict(const spw_megatron_coefficients *c,
                                                    const spw_megatron_shape *shape,
                                                    spw_megatron_dispatcher dispatcher, size_t ranks,
                                                    const spw_megatron_loads *loads, double *phase_s,
                                                    spw_megatron_time *out);
/* The same, number by number, for each of `count` loads: several run side by side, in a quarter of the time. out [count] */
SPW_MUST_CHECK spw_status spw_megatron_times_predict(const spw_megatron_coefficients *c,
                                                     const spw_megatron_shape *shape,
                                                     spw_megatron_dispatcher dispatcher, size_t ranks,
                                                     const spw_megatron_loads *loads, size_t count,
                                                     spw_megatron_time *out);

#endif
