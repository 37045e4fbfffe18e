#include "base/grow.h"

#include "base/memory.h"

#include <string.h>

spw_status spw_grow(size_t used, size_t wanted, size_t size, size_t *room, void **out) {
    void *larger = NULL;
    size_t twice = 0;
    if (wanted <= *room) return SPW_OK;
    if (!spw_mul_size(wanted, 2, &twice)) twice = wanted;
    const spw_status status = spw_resize(twice, size, &larger);
    if (status != SPW_OK) return status;
    if (used > 0) memcpy(larger, *out, used * size);
    spw_free(*out);
    *out = larger;
    *room = twice;
    return SPW_OK;
}
