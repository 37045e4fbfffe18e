#include "base/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };
static _Atomic int fail_after = -1;

bool spw_mul_size(size_t a, size_t b, size_t *product) { return !__builtin_mul_overflow(a, b, product); }

void spw_alloc_fail_after(int n) {
    fail_after = n;
    spw_forget_causes();
}

spw_status spw_alloc(size_t count, size_t size, void **out) {
    *out = NULL;
    size_t bytes = 0;
    if (!spw_mul_size(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT) {
        return spw_fail(SPW_ENOMEM, "array of %zu x %zu bytes overflows size_t", count, size);
    }
    bool injected = fail_after >= 0 && fail_after-- == 0;
    size_t rounded = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    void *memory = injected ? NULL : aligned_alloc(ALIGNMENT, rounded);
    if (memory == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate %zu bytes", bytes);
    memset(memory, 0, rounded);
    *out = memory;
    return SPW_OK;
}

void spw_free(void *memory) { free(memory); }
