/* How long a grouped GEMM takes on one GPU of a cluster: y[r] = x[r] w[e], w [experts][in][out], bf16.
 *
 * From the cluster's measured points. Of every point the share of the roofline is taken,
 *     share = (start + roof(rows)) / measured seconds of one expert
 *     roof(rows) = max(2 rows in out / peak FLOP/s, 2 (in out + rows (in + out)) / memory bytes/s)
 * and interpolated over log(rows) inside a measured shape (GSL, Steffen 1990: no overshoot); outside of the points the
 * nearest holds. Between shapes the shares are averaged with weights 1 / distance^2 in (log in, log out). Then
 *     seconds = sum over experts of (start + roof(rows of e)) / share(rows of e)
 * with the rows of an expert rounded up to whole tiles, as the kernels compute them: 128 rows, or 64 where rows are what a
 * weight gradient sums over; up to one tile the points themselves say it (they have 64 rows).
 * Without points: 2 rows in out / (gemm_efficiency x peak), rows rounded up to tiles of 128, or the bytes, whichever
 * is more. start and gemm_efficiency: sim/stack_defaults/kernels.yaml. docs/validation_time_kernels.md says how well it meets shapes that it has not seen. */
#ifndef SPW_SIM_TIME_GEMM_TIME_H
#define SPW_SIM_TIME_GEMM_TIME_H

#include "sim/machine/cluster.h"

#include <stdint.h>

/* y = x w; dx = dy w^T; dw[e] = x[e]^T dy[e], which an expert without rows has written as zeros. */
typedef enum spw_gemm_pass {
    SPW_GEMM_FORWARD,
    SPW_GEMM_INPUT_GRADIENT,
    SPW_GEMM_WEIGHT_GRADIENT,
    SPW_GEMM_PASSES
} spw_gemm_pass;

enum {
    SPW_GEMM_TILE_ROWS = 128,
    SPW_GEMM_TILE_TERMS = 64
}; /* kernels/gemm/grouped_gemm_wgmma.h: TILE_M, TILE_K */

typedef struct spw_gemm_curves spw_gemm_curves;

/* Reads the points once; `cluster` may go. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_gemm_curves_create(const spw_cluster *cluster, spw_gemm_curves **out);
void spw_gemm_curves_destroy(spw_gemm_curves *curves); /* NULL is fine */

/* rows [experts] of every expert; in, out > 0. Safe to call from several threads. */
double spw_gemm_seconds(const spw_gemm_curves *curves, const uint64_t *rows, size_t experts, size_t in,
                        size_t out, spw_gemm_pass pass);

#endif
