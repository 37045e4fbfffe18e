/* How long a whole expert layer of our own kernels takes (`spillway-bench-kernels layer`), forward and backward, phase by phase:
 * from what its kernels take alone, nothing fitted to layers.
 *
 * T tokens of each of R ranks, K top_k, E experts, e of a rank, H hidden, F ffn; of a rank: U tokens that it is sent, M rows of
 * its experts, W rows of its buffers. bf16. Every rank has a clock; an exchange begins when the last rank comes and ends
 * for all at once, so its phase holds the waiting of those that came early. A phase is the slowest rank's.
 *   grouped GEMM      the cluster's points (sim/time/gemm_time.h) for the rows of every expert, and zeros in the unused rows of
 *                     a buffer: 2 (W - M) out bytes at copy_gb_per_s
 *   SwiGLU            6 W F bytes, its gradient 10 W F, each at its rate: unused rows are computed
 *   fan-out           2 H (A + N) bytes, A tokens read and N rows written
 *   fan-in            2 H (A + N), also as the gradient of fan-out; its gradient 2 H (tokens with a row + 2 N)
 *   send              send_start + rows send_row + bytes / (send_share x rate), rate of the link points' largest message; rows
 *                     and bytes off-rank of the rank with most, out or in; without notices where the layout is kept or none is needed
 *   return            the same with return_
 * | scheme     | W                | A, N of fans     | rows of a send            | plan |
 * | gmm-deepep | R T min(e, K)    | R T, M           | distinct tokens a rank    | plan_us |
 * | deepep     | M                | U, M             | the same                  | the same |
 * | gmm        | R T min(e, K)    | T, T K           | choices                   | plan_us + notices_us |
 * | dense      | E C              | T, slots or kept | slots, full or empty      | T K slot_ns |
 * | ring       | R T K            | R T, M           | T to every other rank, with 8 E bytes; 4 E come back a token | plan_us + words */
#ifndef SPW_SIM_TIME_LAYER_TIME_H
#define SPW_SIM_TIME_LAYER_TIME_H

#include "base/status.h"
#include "kernels/layer/layer_phases.h"
#include "sim/machine/cluster.h"
#include "sim/time/gemm_time.h"

#include <stddef.h>
#include <stdint.h>

#define SPW_OWN_PHASE_LIST(X) SPW_LAYER_PHASE_LIST(X) X(TOTAL, "total")
#define SPW_OWN_PHASE_ENUM(name, text) SPW_OWN_##name,
typedef enum spw_own_phase { SPW_OWN_PHASE_LIST(SPW_OWN_PHASE_ENUM) SPW_OWN_PHASES } spw_own_phase;
#undef SPW_OWN_PHASE_ENUM
extern const char *const spw_own_phase_names[SPW_OWN_PHASES];

typedef enum spw_own_scheme {
    SPW_OWN_GMM_DEEPEP,
    SPW_OWN_DEEPEP,
    SPW_OWN_GMM,
    SPW_OWN_DENSE,
    SPW_OWN_RING,
    SPW_OWN_SCHEMES
} spw_own_scheme;
extern const char *const spw_own_scheme_names[SPW_OWN_SCHEMES];

enum { SPW_OWN_RANKS = 64 };

typedef struct spw_own_layer {
    spw_own_scheme scheme;
    size_t ranks, tokens, hidden, ffn, experts, top_k;
    size_t capacity; /* dense: slots of an expert and rank */
} spw_own_layer;

/* Seconds and bytes of one routing. */
typedef struct spw_own_times {
    double seconds[2][SPW_OWN_PHASES]; /* forward, backward; 0 for what the scheme has not */
    double bytes[2][SPW_OWN_PHASES];   /* sent off-rank in an exchange, mean over ranks; total: their sum */
    double rows_max, rows_mean;        /* of a rank's experts; dense: slots */
} spw_own_times;

/* expert [ranks] of [tokens][top_k], < 0: none. SPW_ECONFIG: the cluster lacks kernel figures or link points; SPW_EARG: an
 * empty shape, more than SPW_OWN_RANKS ranks, or ranks that do not divide the experts; SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_own_layer_times(const spw_cluster *cluster, const spw_gemm_curves *curves,
                                              const spw_own_layer *layer, const int32_t *const *expert,
                                              spw_own_times *out);

#endif
