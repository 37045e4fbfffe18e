#include "kernels/gpu/device.h"

#include "kernels/gpu/runtime.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { GUARD_BYTES = 4096, GUARD_VALUE = 0xa5, POISON = 0xff };

static struct cudaDeviceProp found;
static bool known;
static char architecture[sizeof found.name] = "none";

static void ask(void) {
    known = cudaGetDeviceProperties(&found, 0) == cudaSuccess;
    if (!known) return;
#if defined(SPW_HIP)
    (void)snprintf(architecture, sizeof architecture, "%s", found.gcnArchName);
#else
    (void)snprintf(architecture, sizeof architecture, "sm_%d%d", found.major, found.minor);
#endif
}

/* Threads that each serve a GPU may ask at once. */
static const struct cudaDeviceProp *properties(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, ask);
    return known ? &found : NULL;
}

const char *spw_device_runtime(void) {
#if defined(SPW_HIP)
    return "HIP";
#else
    return "CUDA";
#endif
}

int spw_device_count(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

int spw_device_multiprocessors(void) { return properties() == NULL ? 0 : properties()->multiProcessorCount; }
const char *spw_device_name(void) { return properties() == NULL ? "none" : properties()->name; }
const char *spw_device_architecture(void) { return properties() == NULL ? "none" : architecture; }

spw_status spw_device_check(int error, const char *what) {
    if (error == (int)cudaSuccess) return SPW_OK;
    return spw_fail(SPW_EDEVICE, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
}

spw_status spw_device_synchronize(void) {
    return spw_device_check((int)cudaDeviceSynchronize(), "synchronize");
}

static bool stuck; /* a kernel does not end: whatever waits for it would not return */

static long clock_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

spw_status spw_device_finish(unsigned seconds) {
    const struct timespec pause = {0, 20000};
    const long start = clock_ms();
    while (cudaStreamQuery(NULL) == cudaErrorNotReady) {
        stuck = clock_ms() - start > seconds * 1000L;
        if (stuck) return spw_fail(SPW_EDEVICE, "a kernel has not ended after %u s", seconds);
        (void)nanosleep(&pause, NULL);
    }
    return spw_device_synchronize();
}

spw_status spw_device_array_create(size_t bytes, spw_device_array *out) {
    spw_status status = SPW_OK;
    void *memory = NULL;
    *out = (spw_device_array){0};
    const size_t padded = (bytes + 255) / 256 * 256 + (size_t)2 * GUARD_BYTES;
    SPW_TRY_GPU(cudaMalloc(&memory, padded), "allocate");
    SPW_TRY_GPU(cudaMemset(memory, GUARD_VALUE, padded), "set guards");
    *out = (spw_device_array){(unsigned char *)memory + GUARD_BYTES, bytes};
    SPW_TRY(spw_device_array_poison(out));
    return SPW_OK;
cleanup:
    (void)cudaFree(memory);
    *out = (spw_device_array){0};
    return status;
}

void spw_device_array_destroy(spw_device_array *array) {
    if (array->data != NULL && !stuck) (void)cudaFree((unsigned char *)array->data - GUARD_BYTES);
    *array = (spw_device_array){0};
}

spw_status spw_device_array_poison(const spw_device_array *array) {
    return spw_device_check((int)cudaMemset(array->data, POISON, array->bytes), "poison");
}

spw_status spw_device_array_guards(const spw_device_array *array) {
    unsigned char band[2 * GUARD_BYTES];
    const size_t behind = GUARD_BYTES + (array->bytes + 255) / 256 * 256 - array->bytes;
    const unsigned char *data = array->data;
    spw_status status = SPW_OK;
    const struct {
        const unsigned char *from;
        size_t bytes;
        const char *where;
    } bands[2] = {{data - GUARD_BYTES, GUARD_BYTES, "before"}, {data + array->bytes, behind, "behind"}};
    for (int i = 0; i < 2; i++) {
        SPW_TRY_GPU(cudaMemcpy(band, bands[i].from, bands[i].bytes, cudaMemcpyDeviceToHost), "read guards");
        for (size_t j = 0; j < bands[i].bytes; j++) {
            if (band[j] != GUARD_VALUE)
                return spw_fail(SPW_EMISMATCH, "byte %zu %s an array of %zu bytes was written", j,
                                bands[i].where, array->bytes);
        }
    }
cleanup:
    return status;
}

spw_status spw_device_upload(const spw_device_array *array, const void *host) {
    return spw_device_check((int)cudaMemcpy(array->data, host, array->bytes, cudaMemcpyHostToDevice),
                            "upload");
}

spw_status spw_device_download(const spw_device_array *array, void *host) {
    return spw_device_check((int)cudaMemcpy(host, array->data, array->bytes, cudaMemcpyDeviceToHost),
                            "download");
}

spw_status spw_device_timer_create(spw_device_timer *out) {
    spw_status status = SPW_OK;
    *out = (spw_device_timer){0};
    SPW_TRY_GPU(cudaEventCreate((cudaEvent_t *)&out->start), "create event");
    SPW_TRY_GPU(cudaEventCreate((cudaEvent_t *)&out->stop), "create event");
cleanup:
    return status;
}

void spw_device_timer_destroy(spw_device_timer *timer) {
    if (timer->start != NULL) (void)cudaEventDestroy((cudaEvent_t)timer->start);
    if (timer->stop != NULL) (void)cudaEventDestroy((cudaEvent_t)timer->stop);
    *timer = (spw_device_timer){0};
}

spw_status spw_device_timer_start(const spw_device_timer *timer) {
    return spw_device_check((int)cudaEventRecord((cudaEvent_t)timer->start, NULL), "record event");
}

spw_status spw_device_timer_stop(const spw_device_timer *timer, double *milliseconds) {
    spw_status status = SPW_OK;
    float elapsed = 0;
    SPW_TRY_GPU(cudaEventRecord((cudaEvent_t)timer->stop, NULL), "record event");
    SPW_TRY_GPU(cudaEventSynchronize((cudaEvent_t)timer->stop), "wait for event");
    SPW_TRY_GPU(cudaEventElapsedTime(&elapsed, (cudaEvent_t)timer->start, (cudaEvent_t)timer->stop),
                "read event");
    *milliseconds = (double)elapsed;
cleanup:
    return status;
}
