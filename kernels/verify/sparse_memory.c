#include "kernels/verify/sparse_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 4 << 20 }; /* a process has 65,530 mappings at most: 17 GB are 4,300 */

static spw_status refused(size_t bytes) {
    return spw_fail(SPW_ENOMEM, "no room for %.1f GB of addresses (%s)", (double)bytes * 1e-9,
                    strerror(errno));
}

spw_status spw_sparse_zeros(size_t bytes, spw_sparse *out) {
    *out = (spw_sparse){.memory = NULL};
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return refused(bytes);
    *out = (spw_sparse){.memory = at, .bytes = bytes};
    return SPW_OK;
}

void spw_sparse_seal(const spw_sparse *s) { (void)mprotect(s->memory, s->bytes, PROT_READ); }

/* A file in memory of one chunk of 0xff; -1 without memory. */
static int make_chunk(void) {
    const int file = memfd_create("spillway-sink", MFD_CLOEXEC);
    if (file < 0) return -1;
    void *at = ftruncate(file, CHUNK) == 0 ? mmap(NULL, CHUNK, PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (at == MAP_FAILED) {
        (void)close(file);
        return -1;
    }
    memset(at, 0xff, CHUNK);
    (void)munmap(at, CHUNK);
    return file;
}

typedef struct kept_bytes {
    const size_t *at;
    size_t count, bytes, edge, whole;
} kept_bytes;

static bool is_kept(const kept_bytes *k, size_t first, size_t end) {
    if (first < k->edge || end > k->whole - k->edge) return true;
    for (size_t i = 0; i < k->count; i++)
        if (k->at[i] < end && k->at[i] + k->bytes > first) return true;
    return false;
}

spw_status spw_sparse_sink(size_t bytes, const size_t *at, size_t count, size_t kept, size_t edge,
                           spw_sparse *out) {
    const kept_bytes k = {at, count, kept, edge, bytes};
    spw_status status = spw_sparse_zeros(bytes, out);
    if (status != SPW_OK) return status;
    const int file = make_chunk();
    if (file < 0) status = refused(bytes);
    for (size_t first = 0; first < bytes && status == SPW_OK; first += CHUNK) {
        const size_t size = bytes - first < CHUNK ? bytes - first : CHUNK;
        if (is_kept(&k, first, first + size)) {
            memset(out->memory + first, 0xff, size);
        } else if (mmap(out->memory + first, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
                   MAP_FAILED) {
            status = refused(bytes);
        }
    }
    if (file >= 0) (void)close(file);
    if (status != SPW_OK) spw_sparse_destroy(out);
    return status;
}

void spw_sparse_destroy(spw_sparse *s) {
    if (s->memory != NULL) (void)munmap(s->memory, s->bytes);
    *s = (spw_sparse){.memory = NULL};
}
