/* Kernels of the emulated HIP runtime: what the compiler registers before main, and launches. Formats: clang,
 * "Offload Bundler" and "HIP Support", the fat binary and its wrapper; LLVM 22. */
#include "kernels/emulate/hip_emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WRAPPER_MAGIC = 0x48495046, FUNCTIONS = 1024, MOST_THREADS = 1024 };
#define BUNDLE_MAGIC "__CLANG_OFFLOAD_BUNDLE__"

typedef struct wrapper {
    uint32_t magic, version;
    const void *bundle, *unused;
} wrapper;

typedef struct module {
    const char *bundle;
    bool known;
    uint32_t number; /* where the emulator holds it */
    hipError_t error;
} module;

/* What the compiler's code holds is a pointer to a handle. */
typedef struct loaded {
    module *handle;
    module module;
} loaded;

typedef struct function {
    const void *host;
    const char *name;
    module *module;
    bool known;
    uint32_t number, threads, arguments, size[SPW_EMULATE_ARGUMENTS];
} function;

static function functions[FUNCTIONS];
static size_t function_count;
static _Thread_local struct {
    dim3 grid, block;
    size_t shared_bytes;
    hipStream_t stream;
} call;

/* The compiler's own entry points; no header declares these. */
module **__hipRegisterFatBinary(const wrapper *data);
void __hipUnregisterFatBinary(module **handle);
void __hipRegisterFunction(module **handle, const void *host, const char *device, const char *name,
                           unsigned limit, void *thread, void *block, void *block_size, void *grid_size,
                           int *wave);

module **__hipRegisterFatBinary(const wrapper *data) {
    loaded *l = calloc(1, sizeof *l);
    if (l == NULL) abort(); /* before main: nobody could be told */
    l->handle = &l->module;
    l->module.bundle = data->magic == WRAPPER_MAGIC ? data->bundle : NULL;
    return &l->handle;
}

void __hipUnregisterFatBinary(module **handle) {
    size_t left = 0;
    for (size_t i = 0; i < function_count; i++)
        if (functions[i].module != *handle) functions[left++] = functions[i];
    function_count = left;
    free(handle); /* the first member of a `loaded` */
}

void __hipRegisterFunction(module **handle, const void *host, const char *device, const char *name,
                           unsigned limit, void *thread, void *block, void *block_size, void *grid_size,
                           int *wave) {
    (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)wave;
    if (function_count < FUNCTIONS)
        functions[function_count++] = (function){.host = host, .name = name, .module = *handle};
}

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, hipStream_t stream) {
    call.grid = grid, call.block = block, call.shared_bytes = shared_bytes, call.stream = stream;
    return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, hipStream_t *stream) {
    *grid = call.grid, *block = call.block, *shared_bytes = call.shared_bytes, *stream = call.stream;
    return hipSuccess;
}

/* The code object for a target in a bundle: entries of offset, size, length of the name, name. NULL: there is
 * none. */
static const char *code_for(const char *bundle, const char *target, uint64_t *size) {
    uint64_t entries = 0;
    if (bundle == NULL || memcmp(bundle, BUNDLE_MAGIC, sizeof BUNDLE_MAGIC - 1) != 0) return NULL;
    const char *at = bundle + sizeof BUNDLE_MAGIC - 1;
    memcpy(&entries, at, sizeof entries);
    at += sizeof entries;
    for (uint64_t i = 0; i < entries; i++) {
        uint64_t entry[3];
        memcpy(entry, at, sizeof entry);
        const char *name = at + sizeof entry;
        const size_t length = strlen(target);
        if (entry[1] > 0 && entry[2] >= length && memcmp(name + entry[2] - length, target, length) == 0) {
            *size = entry[1];
            return bundle + entry[0];
        }
        at = name + entry[2];
    }
    return NULL;
}

static hipError_t load_module(module *m) {
    uint64_t size = 0;
    spw_emulate_answer answer;
    if (m->known) return m->error;
    m->known = true;
    const char *code = code_for(m->bundle, spw_emulate_target(), &size);
    if (code == NULL) return m->error = hipErrorNoBinaryForGpu;
    m->error =
        spw_emulate_ask((spw_emulate_request){.kind = SPW_EMULATE_MODULE, .bytes = size}, code, &answer);
    m->number = (uint32_t)answer.value;
    return m->error;
}

static hipError_t find(const void *host, function **out) {
    spw_emulate_answer answer;
    *out = NULL;
    for (size_t i = 0; i < function_count && *out == NULL; i++)
        if (functions[i].host == host) *out = functions + i;
    function *f = *out;
    if (f == NULL) return hipErrorInvalidDeviceFunction;
    if (f->known) return hipSuccess;
    const hipError_t error = load_module(f->module);
    if (error != hipSuccess) return error;
    const spw_emulate_request request = {
        .kind = SPW_EMULATE_KERNEL, .module = f->module->number, .bytes = strlen(f->name)};
    if (spw_emulate_ask(request, f->name, &answer) != hipSuccess) return (hipError_t)answer.error;
    f->number = (uint32_t)answer.value, f->threads = answer.words[0], f->arguments = answer.words[1];
    memcpy(f->size, answer.words + 2, sizeof f->size);
    f->known = true;
    return hipSuccess;
}

static hipError_t check(const function *f, dim3 grid, dim3 block, hipStream_t stream) {
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!spw_emulate_stream(stream)) return hipErrorInvalidHandle;
    if (threads == 0 || threads > MOST_THREADS || (uint64_t)grid.x * grid.y * grid.z == 0)
        return hipErrorInvalidConfiguration;
    if (threads == f->threads) return hipSuccess;
    fprintf(stderr, "emulated HIP runtime: %s was compiled for blocks of %u threads and launched with %u\n",
            f->name, f->threads, (unsigned)threads);
    return hipErrorLaunchFailure;
}

hipError_t hipLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                           hipStream_t stream) {
    char packed[4096];
    function *f = NULL;
    spw_emulate_answer answer;
    if (spw_emulate_devices() == 0) return spw_emulate_note(hipErrorNoDevice);
    hipError_t error = spw_emulate_failed();
    if (error == hipSuccess) error = find(host, &f);
    if (error == hipSuccess) error = check(f, grid, block, stream);
    if (error != hipSuccess) return spw_emulate_note(error);
    spw_emulate_request request = {.kind = SPW_EMULATE_LAUNCH,
                                   .module = f->number,
                                   .grid = {grid.x, grid.y, grid.z},
                                   .block = {block.x, block.y, block.z},
                                   .shared_bytes = (uint32_t)shared_bytes};
    for (uint32_t i = 0; i < f->arguments; i++) {
        if (request.bytes + f->size[i] > sizeof packed) return spw_emulate_note(hipErrorInvalidValue);
        memcpy(packed + request.bytes, arguments[i], f->size[i]);
        request.bytes += f->size[i];
    }
    if (spw_emulate_ask(request, packed, &answer) != hipSuccess) spw_emulate_fail();
    return hipSuccess;
}
