/* A mutator for files in which everything has its place, as in HDF5: bytes are changed where they stand, mostly, so that what
 * follows is still found. Linked with a target, libFuzzer takes it in the place of its own. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

static unsigned draw(unsigned *state, size_t limit) { return (unsigned)((size_t)rand_r(state) % limit); }

/* A number of 1, 2, 4 or 8 bytes, from those that go wrong in practice. */
static void write_number(uint8_t *data, size_t size, unsigned *state) {
    static const uint64_t odd[] = {0,         1,          2,           3,           4,
                                   7,         8,          64,          127,         128,
                                   255,       256,        0x7fff,      0x8000,      0xffff,
                                   0x10000,   0x7fffffff, 0x80000000u, 0xffffffffu, UINT64_C(0x100000000),
                                   INT64_MAX, UINT64_MAX};
    const size_t bytes = (size_t)1 << draw(state, 4);
    const uint64_t value =
        draw(state, 4) == 0 ? draw(state, 4096) : odd[draw(state, sizeof odd / sizeof odd[0])];
    if (bytes > size) return;
    const size_t at = draw(state, size - bytes + 1);
    for (size_t i = 0; i < bytes; i++) data[at + i] = (uint8_t)(value >> (8 * i));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    enum { OWN = 12 };
    unsigned state = seed;
    if (size == 0 || draw(&state, OWN) == 0) return LLVMFuzzerMutate(data, size, most);
    for (unsigned n = 1 + draw(&state, draw(&state, 3) == 0 ? 8 : 2); n > 0; n--) {
        const unsigned kind = draw(&state, 4);
        const size_t at = draw(&state, size);
        if (kind == 0) {
            data[at] ^= (uint8_t)(1u << draw(&state, 8));
        } else if (kind == 1) {
            data[at] = (uint8_t)draw(&state, 256);
        } else if (kind == 2) {
            write_number(data, size, &state);
        } else { /* a piece of the file, elsewhere */
            const size_t from = draw(&state, size), length = 1 + draw(&state, 16);
            const size_t room = size - (at > from ? at : from);
            memmove(data + at, data + from, length < room ? length : room);
        }
    }
    return size;
}
