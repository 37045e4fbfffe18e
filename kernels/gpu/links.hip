/* What the bench of links needs on the device: a pause, and messages thrown to and fro. */
#include "kernels/gpu/gpu_system.h"
#include "kernels/gpu/links_launch.h"

enum { THREADS = 512, PAUSE_THREADS = 64 };

GPU_KERNEL(PAUSE_THREADS) link_pause(unsigned long long nanoseconds) {
    const unsigned long long start = gpu_nanoseconds();
    while (gpu_nanoseconds() - start < nanoseconds) {
    }
}

/* Every block throws its share; the last one of a GPU says that the message is whole, and every block of the other waits for
 * that. flags: [0] the turn of the last whole message, [32] shares thrown by this GPU so far. */
GPU_KERNEL(THREADS) link_echo(spw_echo_gpu e) {
    const long pieces = e.bytes / 16 / e.blocks;
    const gpu_bytes16 *from = (const gpu_bytes16 *)e.from + gpu_block() * pieces;
    gpu_bytes16 *to = (gpu_bytes16 *)e.to + gpu_block() * pieces;
    unsigned *theirs = e.their_flags, *own = e.own_flags, *thrown = e.own_flags + 32;
    const unsigned long long start = gpu_nanoseconds();
    for (unsigned turn = 1; turn <= (unsigned)e.turns; turn++) {
        for (int half = 0; half < 2; half++) {
            if (half == e.second) {
                for (long i = gpu_thread(); i < pieces; i += THREADS) to[i] = from[i];
                if (pieces > 0) gpu_fence_system();
                gpu_barrier();
                if (gpu_thread() == 0 && gpu_add(thrown, 1u) + 1u == turn * (unsigned)e.blocks) {
                    gpu_fence_system();
                    gpu_release_system(theirs, turn);
                }
            } else {
                while (gpu_thread() == 0 && (int)(gpu_acquire_system(own) - turn) < 0)
                    if (gpu_nanoseconds() - start > 5000000000ull) return; /* nobody is there */
                gpu_barrier();
            }
        }
    }
}

#if GPU_HOST
int spw_launch_link_pause(unsigned long long nanoseconds, gpu_stream stream) {
    link_pause<<<1, PAUSE_THREADS, 0, stream>>>(nanoseconds);
    return (int)cudaGetLastError();
}
int spw_launch_link_echo(spw_echo_gpu echo, gpu_stream stream) {
    link_echo<<<(unsigned)echo.blocks, THREADS, 0, stream>>>(echo);
    return (int)cudaGetLastError();
}
#endif
