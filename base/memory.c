#include "base/memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A byte before an array says how far before it its memory begins. calloc() leaves pages that the kernel has cleared alone, which an
 * aligned_alloc() that is set to zero would touch: many arrays are not used up to their end. */
enum { ALIGNMENT = 64 };
static _Atomic int fail_after = -1;
static atomic_size_t held, limit, own_limit;

size_t spw_memory_held(void) { return held; }
size_t spw_memory_limited(void) { return limit; }

void spw_memory_limit(size_t bytes, size_t own) {
    limit = bytes;
    own_limit = own;
}

size_t spw_memory_resident(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) return 0;
    const bool good = fscanf(file, "%*u %lu", &pages) == 1;
    (void)fclose(file);
    return good ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

bool spw_mul_size(size_t a, size_t b, size_t *product) { return !__builtin_mul_overflow(a, b, product); }

void spw_alloc_fail_after(int n) {
    fail_after = n;
    spw_forget_causes();
}

/* Bytes of an array, in whole lines, and whether it is to fail. `given` go back for it. */
static spw_status measure(size_t count, size_t size, size_t given, size_t *rounded, bool *injected) {
    const size_t others = held - given;
    size_t bytes = 0;
    if (!spw_mul_size(count, size, &bytes) || bytes > SIZE_MAX - (size_t)2 * ALIGNMENT) {
        return spw_fail(SPW_ENOMEM, "array of %zu x %zu bytes overflows size_t", count, size);
    }
    *injected = fail_after >= 0 && fail_after-- == 0;
    *rounded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    if (limit > 0 && (others > own_limit || *rounded > own_limit - others))
        return spw_fail(
            SPW_ENOMEM,
            "%zu bytes more than the %zu held would break the limit of %zu bytes for the process; a "
            "larger limit, or none, would be right",
            *rounded, others, (size_t)limit);
    return SPW_OK;
}

/* How far behind what malloc() gave an array begins: the byte in front of it says so. */
static size_t bytes_before(const void *memory) {
    return memory == NULL ? 0 : ((const unsigned char *)memory)[-1];
}
static size_t bytes_to_array(const unsigned char *begin) { return ALIGNMENT - (uintptr_t)begin % ALIGNMENT; }
static void *array_in(unsigned char *begin) {
    const size_t before = bytes_to_array(begin);
    begin[before - 1] = (unsigned char)before;
    return begin + before;
}

spw_status spw_resize(size_t count, size_t size, void **memory) {
    const size_t before = bytes_before(*memory);
    unsigned char *begin = *memory == NULL ? NULL : (unsigned char *)*memory - before;
    const size_t given = malloc_usable_size(begin), kept = given - before;
    size_t rounded = 0;
    bool injected = false;
    const spw_status status = measure(count, size, given, &rounded, &injected);
    if (status != SPW_OK) return status;
    begin = injected ? NULL : realloc(begin, rounded + ALIGNMENT);
    if (begin == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate %zu bytes", rounded);
    held += malloc_usable_size(begin);
    held -= given;
    if (given > 0 && bytes_to_array(begin) != before)
        memmove(begin + bytes_to_array(begin), begin + before, kept < rounded ? kept : rounded);
    *memory = array_in(begin);
    return SPW_OK;
}

spw_status spw_alloc(size_t count, size_t size, void **out) {
    size_t rounded = 0;
    bool injected = false;
    *out = NULL;
    const spw_status status = measure(count, size, 0, &rounded, &injected);
    if (status != SPW_OK) return status;
    unsigned char *begin = injected ? NULL : calloc(1, rounded + ALIGNMENT);
    if (begin == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate %zu bytes", rounded);
    held += malloc_usable_size(begin);
    *out = array_in(begin);
    return SPW_OK;
}

void spw_free(void *memory) {
    unsigned char *aligned = memory;
    if (aligned == NULL) return;
    unsigned char *begin = aligned - aligned[-1];
    held -= malloc_usable_size(begin);
    free(begin);
}
