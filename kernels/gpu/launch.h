/* Private to kernels/: the types of a stream and of bf16 as the C host side and the launchers in *.hip both see
 * them. */
#ifndef SPW_KERNELS_GPU_LAUNCH_H
#define SPW_KERNELS_GPU_LAUNCH_H

#if defined(SPW_HIP)
typedef struct ihipStream_t *gpu_stream;
#else
typedef struct CUstream_st *gpu_stream;
#endif
typedef unsigned short spw_bf16; /* bf16 is kept as its 16 bits; where a shape says fp16, fp16's */

#endif
