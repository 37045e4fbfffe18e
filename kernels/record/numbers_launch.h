/* Private to kernels/: launchers of numbers.hip. Device pointers; each returns the runtime's error code, 0
 * for none. */
#ifndef SPW_KERNELS_RECORD_NUMBERS_LAUNCH_H
#define SPW_KERNELS_RECORD_NUMBERS_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

int spw_launch_fill_bf16(unsigned short *out, long count, int kind, unsigned long long seed,
                         gpu_stream stream);
int spw_launch_fill_fp16(unsigned short *out, long count, int kind, unsigned long long seed,
                         gpu_stream stream);
int spw_launch_fill_float(float *out, long count, int kind, unsigned long long seed, gpu_stream stream);
/* *found += elements whose bits without the sign are at least `least`: 0x7f80 of bf16 infinity and NaN, 0x7c01 of fp16 NaN. */
int spw_launch_count_unfinished(const unsigned short *x, long count, int least, unsigned long long *found,
                                gpu_stream stream);

/* Rows and columns of an array, device pointers. */
typedef struct spw_pick {
    const long *row, *column;
    long rows, columns;
} spw_pick;
/* out [rows][columns] of x [..][width]. */
int spw_launch_pick(const unsigned short *x, long width, spw_pick pick, unsigned short *out,
                    gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
