/* The GPU of this process, for host code in C: arrays with guard bands, copies, timers. device.c implements
 * it for CUDA and for HIP; on a machine without either, device_none.c answers that there is no GPU and
 * everything else fails with SPW_EDEVICE. */
#ifndef SPW_KERNELS_GPU_DEVICE_H
#define SPW_KERNELS_GPU_DEVICE_H

#include "base/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number of GPUs that this build can use; 0 without a GPU compiler or without a GPU. */
int spw_device_count(void);
/* Multiprocessors (compute units) of the first GPU, which stands for all, and its name; 0 and "none" without one. The
 * name lives as long as the process. */
int spw_device_multiprocessors(void);
const char *spw_device_name(void);
const char *spw_device_architecture(void); /* as compilers of kernels name it: "sm_90", "gfx950..."; "none" */
/* What the program was built with: "CUDA", "HIP"; "": neither. */
const char *spw_device_runtime(void);

/* SPW_OK for error 0, else SPW_EDEVICE with the runtime's text. */
SPW_MUST_CHECK spw_status spw_device_check(int error, const char *what);
/* SPW_TRY for a call of the runtime or of a launcher. */
#define SPW_TRY_GPU(call, what) SPW_TRY(spw_device_check((int)(call), what))
SPW_MUST_CHECK spw_status spw_device_synchronize(void);
enum { SPW_KERNEL_SECONDS = 120 }; /* far more than any kernel takes on a GPU, or under a sanitizer */
/* The same of the default stream. SPW_EDEVICE: its kernels have not ended after so long; then nothing is freed any more. */
SPW_MUST_CHECK spw_status spw_device_finish(unsigned seconds);

/* Device memory between two guard bands. */
typedef struct spw_device_array {
    void *data; /* device pointer, 256-byte aligned */
    size_t bytes;
} spw_device_array;

/* Every byte is 0xff: a NaN in fp32 and in bf16, -1 in an integer. *out is zeroed on failure. */
SPW_MUST_CHECK spw_status spw_device_array_create(size_t bytes, spw_device_array *out);
void spw_device_array_destroy(spw_device_array *array); /* a zeroed one is fine */
SPW_MUST_CHECK spw_status spw_device_array_poison(const spw_device_array *array);
/* SPW_EMISMATCH when somebody wrote outside the array. */
SPW_MUST_CHECK spw_status spw_device_array_guards(const spw_device_array *array);
SPW_MUST_CHECK spw_status spw_device_upload(const spw_device_array *array, const void *host);
SPW_MUST_CHECK spw_status spw_device_download(const spw_device_array *array, void *host);

/* Milliseconds of device time between two points of the default stream. */
typedef struct spw_device_timer {
    void *start, *stop;
} spw_device_timer;
SPW_MUST_CHECK spw_status spw_device_timer_create(spw_device_timer *out);
void spw_device_timer_destroy(spw_device_timer *timer);
SPW_MUST_CHECK spw_status spw_device_timer_start(const spw_device_timer *timer);
SPW_MUST_CHECK spw_status spw_device_timer_stop(const spw_device_timer *timer,
                                                double *milliseconds); /* waits */

#ifdef __cplusplus
}
#endif
#endif
