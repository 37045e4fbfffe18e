/* What the ring of experts (docs/schemes.md, section 2.6) does beside its exchanges: launchers, implemented in
 * ring.hip. Device pointers; nothing waits; each returns the runtime's error code, 0 for none. The contract is
 * reference/schemes/maxtext/execute_ring.c. */
#ifndef SPW_KERNELS_EXCHANGE_RING_LAUNCH_H
#define SPW_KERNELS_EXCHANGE_RING_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What travels with a token for every expert.
 *   expert, weight  [tokens][top_k]      distinct ids in a token, or < 0
 *   words           [tokens][2 experts]  the slot that chose it, from 1 on (0: none), of all experts;
 *                                        then its weight */
int spw_launch_ring_words(int tokens, int top_k, int experts, const int *expert, const float *weight,
                          float *words, gpu_stream stream);

/* The choices of a rank's own experts, [first, first + local), from such words.
 *   expert  [tokens][top_k]   counted from 0 in the rank, -1: none or another rank's
 *   weight  [tokens][top_k]   0 there */
int spw_launch_ring_choices(int tokens, int top_k, int experts, int first, int local, const float *words,
                            int *expert, float *weight, gpu_stream stream);

/* A buffer of `rows` rows keeps what comes first by expert and position: row [choices] becomes -1 where it is beyond,
 * offset [local + 1] ends at `rows`. */
int spw_launch_ring_truncate(int choices, int local, int rows, int *row, int *offset, gpu_stream stream);

/* The gradients of a rank's choices as an array over all experts, 0 for what it did not compute.
 *   expert, d_weight  [tokens][top_k]   expert as ring_choices gives it
 *   side              [tokens][experts] */
int spw_launch_ring_side(int tokens, int top_k, int experts, int first, const int *expert,
                         const float *d_weight, float *side, gpu_stream stream);

/* d_weight[t][k] = side[t][expert[t][k]], 0 for no choice; expert of all experts. */
int spw_launch_ring_pick(int tokens, int top_k, int experts, const int *expert, const float *side,
                         float *d_weight, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
