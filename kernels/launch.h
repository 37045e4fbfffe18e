/* Private to kernels/: the type of a stream as the C host side and the launchers in *.hip both see it. */
#ifndef SPW_KERNELS_LAUNCH_H
#define SPW_KERNELS_LAUNCH_H

#if defined(SPW_HIP)
typedef struct ihipStream_t *gpu_stream;
#else
typedef struct CUstream_st *gpu_stream;
#endif

#endif
