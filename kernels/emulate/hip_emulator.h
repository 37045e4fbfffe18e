/* A stand-in for the HIP runtime (libamdhip64) on a machine without an AMD GPU: host code of HIP runs as it was
 * built, and every kernel is handed to emulate_host.py, which executes it. This is the line between the two: a
 * socket and an arena of memory that both map at one address, so that a device pointer means the same to the
 * program, to other processes of it and to the emulator.
 *
 * Documented behaviour is kept where programs can rely on it, and stricter where hardware is lenient: a copy must
 * lie inside one allocation, a block has the size for which its kernel was compiled, and what a kernel did wrong
 * comes back from the next call that waits. A launch is executed before it returns, which is one of the orders
 * that streams and events allow; kernels that wait for one another are not possible. Without an emulator there is
 * no device. */
#ifndef SPW_KERNELS_EMULATE_HIP_EMULATOR_H
#define SPW_KERNELS_EMULATE_HIP_EMULATOR_H

#include <hip/hip_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is asked of the emulator: a request, the bytes that follow it, and an answer. */
enum {
    SPW_EMULATE_MODULE, /* bytes: a code object; value: its number */
    SPW_EMULATE_KERNEL, /* module; bytes: a name; value: a number; words: threads of a block, arguments, their sizes */
    SPW_EMULATE_LAUNCH,   /* module: of the kernel; grid, block; bytes: the arguments, one behind the other */
    SPW_EMULATE_ALLOCATE, /* address: how many bytes; value: where */
    SPW_EMULATE_FREE,     /* address */
    SPW_EMULATE_WITHIN,   /* address, size: inside one allocation? value: where that begins */
};
enum { SPW_EMULATE_ARGUMENTS = 30 };

typedef struct spw_emulate_request {
    uint32_t kind, module;
    uint64_t address, size;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes, pad;
    uint64_t bytes;
} spw_emulate_request;

typedef struct spw_emulate_answer {
    int32_t error; /* a hipError_t */
    uint32_t words[2 + SPW_EMULATE_ARGUMENTS];
    uint32_t pad;
    uint64_t value;
} spw_emulate_answer;

/* The machine: SPW_EMULATOR in the environment, "socket arena address bytes target devices". 0 devices without it. */
int spw_emulate_devices(void);
const char *spw_emulate_target(void);
size_t spw_emulate_bytes(void);

/* hipErrorNoDevice without an emulator, hipErrorLaunchFailure once it has gone. `bytes` may be NULL when
 * request.bytes is 0. */
hipError_t spw_emulate_ask(spw_emulate_request request, const void *bytes, spw_emulate_answer *answer);

/* Notes an error for hipGetLastError and returns it. */
hipError_t spw_emulate_note(hipError_t error);
/* A kernel failed while it ran: reported by the next call that waits, and by all that follow. */
void spw_emulate_fail(void);
hipError_t spw_emulate_failed(void);
/* Is this the default stream, or one that was created and not destroyed? */
bool spw_emulate_stream(hipStream_t stream);

#endif
