/* The stand-in for the HIP runtime keeps what HIP documents: hip_check runtime | kernel | failure | none.
 *   runtime   memory, streams, events, handles between processes, errors; launches nothing
 *   kernel    one small kernel, its values compared with the host's
 *   failure   a kernel that cannot be executed is reported by the next call that waits, and by those that follow
 *   none      no emulator is there: no GPU */
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"
#include "tests/unit/check.h"

#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1000, COUNT = 700 };

extern char numbers_fill_float; /* the kernel's handle on the host */

static void check_memory(void) {
    char host[BYTES], back[BYTES];
    char *at = NULL, *other = NULL;
    void *none = &host;
    for (int i = 0; i < BYTES; i++) host[i] = (char)i;
    CHECK(hipMalloc((void **)&at, BYTES) == hipSuccess && hipMalloc((void **)&other, BYTES) == hipSuccess);
    CHECK(at != other && (at + BYTES <= other || other + BYTES <= at));
    CHECK(hipMemcpy(at, host, BYTES, hipMemcpyHostToDevice) == hipSuccess);
    CHECK(hipMemcpy(other, at, BYTES, hipMemcpyDeviceToDevice) == hipSuccess);
    CHECK(hipMemcpy(back, other, BYTES, hipMemcpyDeviceToHost) == hipSuccess &&
          memcmp(host, back, BYTES) == 0);
    CHECK(hipMemset(at, 7, BYTES) == hipSuccess &&
          hipMemcpy(back, at, 1, hipMemcpyDeviceToHost) == hipSuccess);
    CHECK(back[0] == 7);
    CHECK(hipMemcpy(at, host, BYTES + 1, hipMemcpyHostToDevice) == hipErrorInvalidValue); /* beyond its end */
    CHECK(hipMemcpy(at + BYTES, host, 1, hipMemcpyHostToDevice) == hipErrorInvalidValue);
    CHECK(hipMemcpy(host, back, 1, hipMemcpyHostToDevice) == hipErrorInvalidValue); /* not of a device */
    CHECK(hipMemset(host, 0, 1) == hipErrorInvalidValue);
    CHECK(hipMalloc(&none, 0) == hipSuccess && none == NULL && hipFree(NULL) == hipSuccess);
    CHECK(hipMalloc(&none, (size_t)1 << 50) == hipErrorOutOfMemory);
    CHECK(hipFree(at + 1) == hipErrorInvalidValue && hipFree(at) == hipSuccess);
    CHECK(hipFree(at) == hipErrorInvalidValue); /* twice */
    CHECK(hipMemcpy(back, at, 1, hipMemcpyDeviceToHost) == hipErrorInvalidValue);
    CHECK(hipFree(other) == hipSuccess);
}

static void check_errors(void) {
    int count = 0;
    (void)hipGetLastError();
    CHECK(hipSetDevice(99) == hipErrorInvalidDevice);
    CHECK(hipGetDeviceCount(&count) == hipSuccess && count == 2);
    CHECK(hipGetLastError() == hipErrorInvalidDevice &&
          hipGetLastError() == hipSuccess); /* kept until asked for */
    CHECK(hipSetDevice(0) == hipSuccess);
    CHECK(hipDeviceEnablePeerAccess(0, 0) == hipErrorInvalidDevice); /* its own */
    CHECK(hipDeviceEnablePeerAccess(1, 0) == hipSuccess);
    CHECK(hipDeviceEnablePeerAccess(1, 0) == hipErrorPeerAccessAlreadyEnabled);
    CHECK(hipDeviceCanAccessPeer(&count, 0, 1) == hipSuccess && count == 1);
    CHECK(strcmp(hipGetErrorString(hipErrorOutOfMemory), "out of memory") == 0);
    (void)hipGetLastError();
}

static void check_streams(void) {
    hipStream_t stream = NULL;
    hipEvent_t start = NULL, stop = NULL, untimed = NULL;
    float ms = -1;
    CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) == hipSuccess);
    CHECK(hipStreamCreateWithFlags(&stream, 77) == hipErrorInvalidValue);
    CHECK(hipEventCreate(&start) == hipSuccess && hipEventCreate(&stop) == hipSuccess);
    CHECK(hipEventCreateWithFlags(&untimed, hipEventDisableTiming) == hipSuccess);
    CHECK(hipEventElapsedTime(&ms, start, stop) == hipErrorInvalidHandle); /* not recorded */
    CHECK(hipStreamWaitEvent(stream, stop, 0) == hipSuccess);              /* which means nothing then */
    CHECK(hipEventRecord(start, stream) == hipSuccess && usleep(2000) == 0);
    CHECK(hipEventRecord(stop, stream) == hipSuccess && hipEventRecord(untimed, NULL) == hipSuccess);
    CHECK(hipEventSynchronize(stop) == hipSuccess);
    CHECK(hipEventElapsedTime(&ms, start, stop) == hipSuccess && ms >= 2);
    CHECK(hipEventElapsedTime(&ms, start, untimed) == hipErrorInvalidHandle);
    CHECK(hipEventDestroy(stop) == hipSuccess && hipEventRecord(stop, stream) == hipErrorInvalidHandle);
    CHECK(hipStreamSynchronize(stream) == hipSuccess && hipStreamDestroy(stream) == hipSuccess);
    CHECK(hipStreamSynchronize(stream) == hipErrorInvalidHandle);
    CHECK(hipMemsetAsync(NULL, 0, 0, stream) == hipErrorInvalidHandle);
    CHECK(hipEventDestroy(start) == hipSuccess && hipEventDestroy(untimed) == hipSuccess);
    (void)hipGetLastError();
}

/* The child opens what the parent gave away and changes it; both see one memory. */
static void check_processes(void) {
    hipIpcMemHandle_t handle;
    char *at = NULL, value = 1;
    void *mapped = NULL;
    int status = -1;
    CHECK(hipMalloc((void **)&at, BYTES) == hipSuccess && hipMemset(at, 1, BYTES) == hipSuccess);
    CHECK(hipIpcGetMemHandle(&handle, at + 1) == hipErrorInvalidValue &&
          hipIpcGetMemHandle(&handle, at) == hipSuccess);
    CHECK(hipIpcOpenMemHandle(&mapped, handle, hipIpcMemLazyEnablePeerAccess) == hipErrorInvalidContext);
    const pid_t child = fork();
    if (child == 0) {
        const bool good = hipIpcOpenMemHandle(&mapped, handle, hipIpcMemLazyEnablePeerAccess) == hipSuccess &&
                          hipMemcpy(&value, mapped, 1, hipMemcpyDeviceToHost) == hipSuccess && value == 1 &&
                          hipMemset(mapped, 2, BYTES) == hipSuccess &&
                          hipIpcCloseMemHandle(mapped) == hipSuccess;
        _exit(good ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(hipMemcpy(&value, at, 1, hipMemcpyDeviceToHost) == hipSuccess && value == 2);
    CHECK(hipFree(at) == hipSuccess);
    (void)hipGetLastError();
}

/* What is wrong with a launch is said by the launch; the kernel was compiled for another number of threads. */
static void check_launches(void) {
    void *arguments[5] = {0};
    CHECK(hipLaunchKernel(&numbers_fill_float, (dim3){1, 1, 1}, (dim3){0, 1, 1}, arguments, 0, NULL) ==
          hipErrorInvalidConfiguration);
    CHECK(hipLaunchKernel(&numbers_fill_float, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, NULL) ==
          hipErrorLaunchFailure);
    CHECK(hipLaunchKernel(arguments, (dim3){1, 1, 1}, (dim3){64, 1, 1}, arguments, 0, NULL) ==
          hipErrorInvalidDeviceFunction);
    CHECK(hipGetLastError() == hipErrorInvalidDeviceFunction && hipDeviceSynchronize() == hipSuccess);
}

static void check_kernel(void) {
    spw_device_array array;
    float got[COUNT];
    CHECK_OK(spw_device_array_create(sizeof got, &array));
    CHECK_OK(spw_device_check(spw_launch_fill_float(array.data, COUNT, SPW_NUMBERS_BELL, 3, NULL), "fill"));
    CHECK_OK(spw_device_synchronize());
    CHECK_OK(spw_device_download(&array, got));
    CHECK_OK(spw_device_array_guards(&array));
    for (int i = 0; i < COUNT; i++) CHECK(got[i] == spw_number(SPW_NUMBERS_BELL, 3, (uint64_t)i));
    spw_device_array_destroy(&array);
}

static void check_failure(void) {
    spw_device_array array;
    CHECK_OK(spw_device_array_create(COUNT * sizeof(float), &array));
    CHECK_OK(spw_device_check(spw_launch_fill_float(array.data, COUNT, SPW_NUMBERS_BELL, 3, NULL), "fill"));
    CHECK_STATUS(spw_device_synchronize(), SPW_EDEVICE);
    CHECK(strstr(spw_last_error(), "unspecified launch failure") != NULL);
    CHECK_STATUS(spw_device_array_guards(&array), SPW_EDEVICE);
    CHECK_STATUS(spw_device_check(spw_launch_fill_float(array.data, 1, SPW_NUMBERS_BELL, 3, NULL), "fill"),
                 SPW_EDEVICE);
    spw_device_array_destroy(&array);
}

static void check_none(void) {
    spw_device_array array;
    int count = 1;
    CHECK(hipGetDeviceCount(&count) == hipErrorNoDevice && count == 0 && spw_device_count() == 0);
    CHECK_STATUS(spw_device_array_create(8, &array), SPW_EDEVICE);
    CHECK_STATUS(spw_device_check(spw_launch_fill_float(NULL, 1, SPW_NUMBERS_BELL, 3, NULL), "fill"),
                 SPW_EDEVICE);
}

int main(int argc, char **argv) {
    const char *what = argc == 2 ? argv[1] : "";
    if (strcmp(what, "runtime") == 0)
        check_memory(), check_errors(), check_streams(), check_processes(), check_launches();
    else if (strcmp(what, "kernel") == 0)
        check_kernel();
    else if (strcmp(what, "failure") == 0)
        check_failure();
    else if (strcmp(what, "none") == 0)
        check_none();
    return check_done();
}
