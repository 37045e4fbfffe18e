/* Memory, streams, events, devices and errors of the emulated HIP runtime: hip_emulator.h. What a call returns is
 * what HIP's reference says of it (ROCm documentation, "HIP runtime API reference", and hip_runtime_api.h), in the
 * version of the headers. */
#include "kernels/emulate/hip_emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MULTIPROCESSORS = 4, LDS_BYTES = 65536, HANDLES = 4096 };

static _Thread_local int current;
static _Thread_local hipError_t last;
static hipError_t failed; /* of a kernel that ran */
static bool peers[16][16];

struct ihipStream_t {
    int device;
};
struct ihipEvent_t {
    struct timespec time;
    bool recorded, timed;
};

/* Handles that are in use: a destroyed one is found out. */
static void *handles[HANDLES];

static bool held(const void *handle) {
    for (size_t i = 0; i < HANDLES; i++)
        if (handle != NULL && handles[i] == handle) return true;
    return false;
}

static hipError_t hold(size_t bytes, void **out) {
    for (size_t i = 0; i < HANDLES; i++) {
        if (handles[i] != NULL) continue;
        handles[i] = *out = calloc(1, bytes);
        return *out == NULL ? hipErrorOutOfMemory : hipSuccess;
    }
    return hipErrorOutOfMemory;
}

static hipError_t release(void *handle) {
    for (size_t i = 0; i < HANDLES; i++) {
        if (handle == NULL || handles[i] != handle) continue;
        handles[i] = NULL;
        free(handle);
        return hipSuccess;
    }
    return hipErrorInvalidHandle;
}

bool spw_emulate_stream(hipStream_t stream) { return stream == NULL || held(stream); }
hipError_t spw_emulate_note(hipError_t error) { return error == hipSuccess ? error : (last = error); }
void spw_emulate_fail(void) { failed = hipErrorLaunchFailure; }
hipError_t spw_emulate_failed(void) { return failed; }

/* Errors: the last one that any call of this thread returned, until it is asked for (HIP 7). */
hipError_t hipGetLastError(void) {
    const hipError_t error = last;
    last = hipSuccess;
    return error;
}

const char *hipGetErrorString(hipError_t error) {
    static const struct {
        hipError_t error;
        const char *text;
    } texts[] = {
        {hipSuccess, "no error"},
        {hipErrorInvalidValue, "invalid argument"},
        {hipErrorOutOfMemory, "out of memory"},
        {hipErrorInvalidConfiguration, "invalid configuration argument"},
        {hipErrorInvalidDeviceFunction, "invalid device function"},
        {hipErrorNoDevice, "no ROCm-capable device is detected"},
        {hipErrorInvalidDevice, "invalid device ordinal"},
        {hipErrorInvalidContext, "invalid device context"},
        {hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"},
        {hipErrorInvalidHandle, "invalid resource handle"},
        {hipErrorInvalidDevicePointer, "invalid device pointer"},
        {hipErrorPeerAccessAlreadyEnabled, "peer access is already enabled"},
        {hipErrorLaunchFailure, "unspecified launch failure"},
        {hipErrorNotSupported, "operation not supported"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == error) return texts[i].text;
    return "unknown error";
}

/* Devices. */
static bool is_device(int device) { return device >= 0 && device < spw_emulate_devices(); }

hipError_t hipGetDeviceCount(int *count) {
    if (count == NULL) return spw_emulate_note(hipErrorInvalidValue);
    *count = spw_emulate_devices();
    return *count > 0 ? hipSuccess : spw_emulate_note(hipErrorNoDevice);
}

hipError_t hipSetDevice(int device) {
    if (!is_device(device)) return spw_emulate_note(hipErrorInvalidDevice);
    current = device;
    return hipSuccess;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device) {
    if (properties == NULL) return spw_emulate_note(hipErrorInvalidValue);
    if (!is_device(device)) return spw_emulate_note(hipErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    (void)snprintf(properties->name, sizeof properties->name, "emulated %s", spw_emulate_target());
    (void)snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s", spw_emulate_target());
    properties->multiProcessorCount = MULTIPROCESSORS, properties->warpSize = 64;
    properties->totalGlobalMem = spw_emulate_bytes(), properties->sharedMemPerBlock = LDS_BYTES;
    properties->maxThreadsPerBlock = 1024;
    return hipSuccess;
}

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) {
    if (can == NULL) return spw_emulate_note(hipErrorInvalidValue);
    if (!is_device(device) || !is_device(peer)) return spw_emulate_note(hipErrorInvalidDevice);
    *can = device != peer;
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    if (flags != 0) return spw_emulate_note(hipErrorInvalidValue);
    if (!is_device(peer) || peer == current || peer >= 16) return spw_emulate_note(hipErrorInvalidDevice);
    if (peers[current][peer]) return spw_emulate_note(hipErrorPeerAccessAlreadyEnabled);
    peers[current][peer] = true;
    return hipSuccess;
}

hipError_t hipDeviceSynchronize(void) { return spw_emulate_note(failed); }

/* Kernels have ended when a launch returns. */
hipError_t hipStreamQuery(hipStream_t stream) {
    (void)stream;
    return spw_emulate_note(failed);
}

/* Memory. */
static hipError_t within(const void *at, size_t bytes, void **begins) {
    spw_emulate_answer answer;
    const spw_emulate_request request = {.kind = SPW_EMULATE_WITHIN, .address = (uintptr_t)at, .size = bytes};
    const hipError_t error = spw_emulate_ask(request, NULL, &answer);
    if (begins != NULL) *begins = (void *)(uintptr_t)answer.value; /* NOLINT(performance-no-int-to-ptr) */
    return error;
}

hipError_t hipMalloc(void **out, size_t bytes) {
    spw_emulate_answer answer;
    if (out == NULL) return spw_emulate_note(hipErrorInvalidValue);
    *out = NULL;
    if (bytes == 0) return hipSuccess;
    const hipError_t error =
        spw_emulate_ask((spw_emulate_request){.kind = SPW_EMULATE_ALLOCATE, .address = bytes}, NULL, &answer);
    if (error == hipSuccess) *out = (void *)(uintptr_t)answer.value; /* NOLINT(performance-no-int-to-ptr) */
    return spw_emulate_note(error);
}

hipError_t hipExtMallocWithFlags(void **out, size_t bytes, unsigned flags) {
    if (flags != hipDeviceMallocDefault && flags != hipDeviceMallocFinegrained)
        return spw_emulate_note(hipErrorInvalidValue);
    return hipMalloc(out, bytes);
}

hipError_t hipFree(void *at) {
    spw_emulate_answer answer;
    if (at == NULL) return hipSuccess;
    const spw_emulate_request request = {.kind = SPW_EMULATE_FREE, .address = (uintptr_t)at};
    return spw_emulate_note(spw_emulate_ask(request, NULL, &answer));
}

/* Memory of the host, which every copy reaches as it is; kept until the process ends. */
hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags) {
    if (out == NULL || flags != hipHostMallocDefault) return spw_emulate_note(hipErrorInvalidValue);
    *out = calloc(1, bytes > 0 ? bytes : 1);
    return *out != NULL ? hipSuccess : spw_emulate_note(hipErrorOutOfMemory);
}

hipError_t hipMemGetInfo(size_t *available, size_t *total) {
    if (available == NULL || total == NULL) return spw_emulate_note(hipErrorInvalidValue);
    *available = *total = spw_emulate_bytes();
    return spw_emulate_devices() > 0 ? hipSuccess : spw_emulate_note(hipErrorNoDevice);
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
    const bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
    const bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
    if (!spw_emulate_stream(stream)) return spw_emulate_note(hipErrorInvalidHandle);
    if (failed != hipSuccess) return spw_emulate_note(failed);
    if (bytes == 0) return hipSuccess;
    if ((!to_device && !from_device) || to == NULL || from == NULL)
        return spw_emulate_note(hipErrorInvalidValue);
    if (spw_emulate_devices() == 0) return spw_emulate_note(hipErrorNoDevice);
    if (to_device != (within(to, bytes, NULL) == hipSuccess) ||
        from_device != (within(from, bytes, NULL) == hipSuccess))
        return spw_emulate_note(hipErrorInvalidValue);
    memmove(to, from, bytes);
    return hipSuccess;
}

hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind) {
    return hipMemcpyAsync(to, from, bytes, kind, NULL);
}

hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                              hipStream_t stream) {
    if (!is_device(to_device) || !is_device(from_device)) return spw_emulate_note(hipErrorInvalidDevice);
    return hipMemcpyAsync(to, from, bytes, hipMemcpyDeviceToDevice, stream);
}

hipError_t hipMemsetAsync(void *at, int value, size_t bytes, hipStream_t stream) {
    if (!spw_emulate_stream(stream)) return spw_emulate_note(hipErrorInvalidHandle);
    if (failed != hipSuccess) return spw_emulate_note(failed);
    if (bytes == 0) return hipSuccess;
    const hipError_t error = within(at, bytes, NULL);
    if (error == hipSuccess) memset(at, value, bytes);
    return spw_emulate_note(error);
}

hipError_t hipMemset(void *at, int value, size_t bytes) { return hipMemsetAsync(at, value, bytes, NULL); }

/* Memory of other processes: a handle is the allocation's address and the process that gave it away. */
typedef struct ipc {
    uint64_t address;
    pid_t owner;
} ipc;

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *at) {
    void *begins = NULL;
    if (handle == NULL || within(at, 1, &begins) != hipSuccess || begins != at)
        return spw_emulate_note(hipErrorInvalidValue);
    const ipc given = {(uintptr_t)at, getpid()};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &given, sizeof given);
    return hipSuccess;
}

hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags) {
    ipc given;
    memcpy(&given, &handle, sizeof given);
    if (out == NULL || flags != hipIpcMemLazyEnablePeerAccess) return spw_emulate_note(hipErrorInvalidValue);
    if (given.owner == getpid()) return spw_emulate_note(hipErrorInvalidContext); /* its own */
    void *at = (void *)(uintptr_t)given.address; /* NOLINT(performance-no-int-to-ptr) */
    if (within(at, 1, NULL) != hipSuccess) return spw_emulate_note(hipErrorInvalidDevicePointer);
    *out = at;
    return hipSuccess;
}

hipError_t hipIpcCloseMemHandle(void *at) {
    return spw_emulate_note(at == NULL ? hipErrorInvalidValue : within(at, 1, NULL));
}

/* Streams. */
hipError_t hipStreamCreateWithFlags(hipStream_t *out, unsigned flags) {
    if (out == NULL || (flags != hipStreamDefault && flags != hipStreamNonBlocking))
        return spw_emulate_note(hipErrorInvalidValue);
    if (spw_emulate_devices() == 0) return spw_emulate_note(hipErrorNoDevice);
    const hipError_t error = hold(sizeof **out, (void **)out);
    if (error == hipSuccess) (*out)->device = current;
    return spw_emulate_note(error);
}

hipError_t hipStreamDestroy(hipStream_t stream) { return spw_emulate_note(release(stream)); }

hipError_t hipStreamSynchronize(hipStream_t stream) {
    return spw_emulate_note(spw_emulate_stream(stream) ? failed : hipErrorInvalidHandle);
}

hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
    (void)flags;
    return spw_emulate_note(spw_emulate_stream(stream) && held(event) ? hipSuccess : hipErrorInvalidHandle);
}

/* Events. */
hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags) {
    const unsigned known = hipEventBlockingSync | hipEventDisableTiming | hipEventInterprocess;
    if (out == NULL || (flags & ~known) != 0) return spw_emulate_note(hipErrorInvalidValue);
    const hipError_t error = hold(sizeof **out, (void **)out);
    if (error == hipSuccess) (*out)->timed = (flags & hipEventDisableTiming) == 0;
    return spw_emulate_note(error);
}

hipError_t hipEventCreate(hipEvent_t *out) { return hipEventCreateWithFlags(out, hipEventDefault); }
hipError_t hipEventDestroy(hipEvent_t event) { return spw_emulate_note(release(event)); }

hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    if (!held(event) || !spw_emulate_stream(stream)) return spw_emulate_note(hipErrorInvalidHandle);
    event->recorded = true;
    (void)clock_gettime(CLOCK_MONOTONIC, &event->time);
    return hipSuccess;
}

hipError_t hipEventSynchronize(hipEvent_t event) {
    return spw_emulate_note(held(event) ? failed : hipErrorInvalidHandle);
}

hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t start, hipEvent_t stop) {
    if (milliseconds == NULL) return spw_emulate_note(hipErrorInvalidValue);
    if (!held(start) || !held(stop) || !start->recorded || !stop->recorded || !start->timed || !stop->timed)
        return spw_emulate_note(hipErrorInvalidHandle);
    *milliseconds = (float)((double)(stop->time.tv_sec - start->time.tv_sec) * 1e3 +
                            (double)(stop->time.tv_nsec - start->time.tv_nsec) * 1e-6);
    return hipSuccess;
}
