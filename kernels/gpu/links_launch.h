/* Private to kernels/: launchers of links.hip. Each returns the runtime's error code, 0 for none. */
#ifndef SPW_KERNELS_GPU_LINKS_LAUNCH_H
#define SPW_KERNELS_GPU_LINKS_LAUNCH_H

#include "kernels/gpu/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stream is held for so long. */
int spw_launch_link_pause(unsigned long long nanoseconds, gpu_stream stream);

/* `turns` round trips of a message; the other GPU runs the same with second = 1 - second. bytes: a multiple of 16
 * blocks. */
typedef struct spw_echo_gpu {
    long bytes;
    int turns, second, blocks, pad;
    const void *from;                  /* here */
    void *to;                          /* there */
    unsigned *own_flags, *their_flags; /* [64], zero at first */
} spw_echo_gpu;
int spw_launch_link_echo(spw_echo_gpu echo, gpu_stream stream);

#ifdef __cplusplus
}
#endif
#endif
