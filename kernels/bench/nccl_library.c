#include "kernels/bench/nccl_library.h"

#include "base/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The library's interface as nccl.h and rccl.h declare it: enums as integers, handles as pointers. */
enum { NCCL_UINT8 = 1, NCCL_BFLOAT16 = 9, NCCL_SUM = 0 };

typedef struct functions {
    int (*init_all)(void **comm, int count, const int *device);
    int (*destroy)(void *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *from, size_t count, int type, int peer, void *comm, gpu_stream stream);
    int (*receive)(void *to, size_t count, int type, int peer, void *comm, gpu_stream stream);
    int (*all_gather)(const void *from, void *to, size_t count, int type, void *comm, gpu_stream stream);
    int (*reduce_scatter)(const void *from, void *to, size_t count, int type, int operation, void *comm,
                          gpu_stream stream);
    const char *(*text)(int result);
} functions;

static const struct {
    const char *symbol;
    size_t offset;
} names[] = {{"ncclCommInitAll", offsetof(functions, init_all)},
             {"ncclCommDestroy", offsetof(functions, destroy)},
             {"ncclGroupStart", offsetof(functions, group_start)},
             {"ncclGroupEnd", offsetof(functions, group_end)},
             {"ncclSend", offsetof(functions, send)},
             {"ncclRecv", offsetof(functions, receive)},
             {"ncclAllGather", offsetof(functions, all_gather)},
             {"ncclReduceScatter", offsetof(functions, reduce_scatter)},
             {"ncclGetErrorString", offsetof(functions, text)}};

struct spw_nccl {
    spw_world *world;
    void *library, *comm[SPW_WORLD_RANKS];
    functions call;
};

static spw_status check(const spw_nccl *n, int result, const char *what) {
    return result == 0 ? SPW_OK : spw_fail(SPW_EDEVICE, "NCCL, %s: %s", what, n->call.text(result));
}

static void *load(void) {
    const char *const found[] = {getenv("SPW_NCCL"), "libnccl.so.2", "librccl.so.1"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof found / sizeof *found && library == NULL; i++)
        if (found[i] != NULL) library = dlopen(found[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

spw_status spw_nccl_create(spw_world *world, spw_nccl **out) {
    spw_nccl *n = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    if (!world->wait || world->gpus < world->ranks || world->link != NULL)
        return spw_fail(SPW_EDEVICE, "NCCL needs one process with a rank a GPU");
    SPW_TRY(SPW_ALLOC(1, &n));
    n->world = world, n->library = load();
    if (n->library == NULL) SPW_TRY(spw_fail(SPW_EDEVICE, "no NCCL library; SPW_NCCL may name one"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(n->library, names[i].symbol);
        if (symbol == NULL) SPW_TRY(spw_fail(SPW_EDEVICE, "the NCCL library has no %s", names[i].symbol));
        memcpy((char *)&n->call + names[i].offset, &symbol,
               sizeof symbol); /* ISO C has no cast from object to function pointer */
    }
    SPW_TRY(check(n, n->call.init_all(n->comm, (int)world->ranks, world->device), "communicator"));
    *out = n;
    return SPW_OK;
cleanup:
    spw_nccl_destroy(n);
    return status;
}

void spw_nccl_destroy(spw_nccl *n) {
    if (n == NULL) return;
    for (size_t r = 0; r < n->world->ranks; r++)
        if (n->comm[r] != NULL) (void)n->call.destroy(n->comm[r]);
    if (n->library != NULL) (void)dlclose(n->library);
    spw_free(n);
}

spw_status spw_nccl_all_to_all(spw_nccl *n, const size_t *bytes, void *const *from, void *const *to) {
    const size_t ranks = n->world->ranks;
    spw_status status = SPW_OK;
    SPW_TRY(check(n, n->call.group_start(), "group"));
    for (size_t r = 0; r < ranks; r++) {
        size_t sent = 0, received = 0;
        for (size_t other = 0; other < ranks; other++) {
            const size_t out = bytes[r * ranks + other], in = bytes[other * ranks + r];
            SPW_TRY(check(n,
                          n->call.send((char *)from[r] + sent, out, NCCL_UINT8, (int)other, n->comm[r],
                                       n->world->stream[r]),
                          "send"));
            SPW_TRY(check(n,
                          n->call.receive((char *)to[r] + received, in, NCCL_UINT8, (int)other, n->comm[r],
                                          n->world->stream[r]),
                          "receive"));
            sent += out, received += in;
        }
    }
    SPW_TRY(check(n, n->call.group_end(), "group"));
cleanup:
    return status;
}

spw_status spw_nccl_all_gather(spw_nccl *n, size_t bytes, void *const *from, void *const *to) {
    spw_status status = SPW_OK;
    SPW_TRY(check(n, n->call.group_start(), "group"));
    for (size_t r = 0; r < n->world->ranks; r++)
        SPW_TRY(check(n,
                      n->call.all_gather(from[r], to[r], bytes, NCCL_UINT8, n->comm[r], n->world->stream[r]),
                      "all-gather"));
    SPW_TRY(check(n, n->call.group_end(), "group"));
cleanup:
    return status;
}

spw_status spw_nccl_reduce_scatter(spw_nccl *n, size_t elements, void *const *from, void *const *to) {
    spw_status status = SPW_OK;
    SPW_TRY(check(n, n->call.group_start(), "group"));
    for (size_t r = 0; r < n->world->ranks; r++)
        SPW_TRY(check(n,
                      n->call.reduce_scatter(from[r], to[r], elements, NCCL_BFLOAT16, NCCL_SUM, n->comm[r],
                                             n->world->stream[r]),
                      "reduce-scatter"));
    SPW_TRY(check(n, n->call.group_end(), "group"));
cleanup:
    return status;
}
