/* Between XLA's buffers and those that all ranks can reach: launchers, implemented in jax_rows.hip. Device pointers; nothing
 * waits; each returns the runtime's error code, 0 for none. */
#ifndef SPW_KERNELS_JAX_JAX_ROWS_LAUNCH_H
#define SPW_KERNELS_JAX_JAX_ROWS_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* offset[e] = the sum of the sizes before e, each of at least 0, cut at `rows`; e <= experts.
 *   size [experts], offset [experts + 1] */
int spw_launch_jax_offsets(int experts, int rows, const int *size, int *offset, gpu_stream stream);

/* Arrays of as many rows, copied side by side. A row has `words` words of 4 bytes; 16-byte aligned where they are a multiple
 * of 4. */
enum { SPW_JAX_COLUMNS = 4 };
typedef struct spw_jax_column {
    const unsigned *from;
    unsigned *to;
    int words;
    unsigned fill;
} spw_jax_column;

/* Rows from *limit on (a number on the device) are not read: with `fills` every word of them becomes the column's `fill`, else
 * they stay as they are. */
typedef struct spw_jax_move {
    int rows, columns, fills, blocks;
    const int *limit;
    spw_jax_column column[SPW_JAX_COLUMNS];
} spw_jax_move;
int spw_launch_jax_move(const spw_jax_move *move, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
