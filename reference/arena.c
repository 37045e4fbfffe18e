#include "reference/arena.h"

#include "base/memory.h"

#include <string.h>

typedef struct tensor {
    const char *name;
    float *memory;
    size_t elements;
    uint64_t bytes;
} tensor;

typedef struct holder {
    tensor live[SPW_ARENA_TENSORS]; /* in order of birth */
    size_t tensors;
    uint64_t bytes, saved;
    spw_arena_peak peak[2]; /* forward; recompute and backward */
} holder;

/* Memory of the dead waits here for a tensor of its size: fresh pages cost more than the arithmetic of a small layer. */
enum { RECYCLED = 256 };
typedef struct block {
    float *memory;
    size_t elements;
} block;

struct spw_arena {
    block recycled[RECYCLED];
    size_t blocks;
    size_t ranks;
    holder *rank;
    spw_pass pass;
    const char *step;
};

spw_status spw_arena_create(size_t ranks, spw_arena **out) {
    spw_arena *arena = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &arena));
    SPW_TRY(SPW_ALLOC(ranks, &arena->rank));
    arena->ranks = ranks;
    arena->step = "";
    for (size_t r = 0; r < ranks; r++) arena->rank[r].peak[0].step = arena->rank[r].peak[1].step = "";
    *out = arena;
    return SPW_OK;
cleanup:
    spw_free(arena);
    return status;
}

void spw_arena_destroy(spw_arena *arena) {
    if (arena == NULL) return;
    for (size_t r = 0; r < arena->ranks; r++) {
        for (size_t i = 0; i < arena->rank[r].tensors; i++) spw_free(arena->rank[r].live[i].memory);
    }
    for (size_t i = 0; i < arena->blocks; i++) spw_free(arena->recycled[i].memory);
    spw_free(arena->rank);
    spw_free(arena);
}

void spw_arena_moment(spw_arena *arena, spw_pass pass, const char *step) {
    if (pass == SPW_PASS_BACKWARD && arena->pass != pass) {
        for (size_t r = 0; r < arena->ranks; r++) arena->rank[r].saved = arena->rank[r].bytes;
    }
    arena->pass = pass;
    arena->step = step;
}

/* Keeps the fullest moment. */
static void note(const spw_arena *arena, holder *h) {
    spw_arena_peak *peak = &h->peak[arena->pass != SPW_PASS_FORWARD];
    if (h->bytes <= peak->bytes) return;
    *peak =
        (spw_arena_peak){.bytes = h->bytes, .pass = arena->pass, .step = arena->step, .tensors = h->tensors};
    for (size_t i = 0; i < h->tensors; i++) {
        peak->name[i] = h->live[i].name;
        peak->tensor_bytes[i] = h->live[i].bytes;
    }
}

static spw_status take_memory(spw_arena *arena, size_t elements, float **out) {
    for (size_t i = arena->blocks; i-- > 0;) {
        if (arena->recycled[i].elements != elements) continue;
        *out = arena->recycled[i].memory;
        arena->recycled[i] = arena->recycled[--arena->blocks];
        memset(*out, 0, elements * sizeof **out);
        return SPW_OK;
    }
    return SPW_ALLOC(elements, out);
}

static void give_memory(spw_arena *arena, float *memory, size_t elements) {
    if (arena->blocks == RECYCLED) {
        spw_free(memory);
    } else {
        arena->recycled[arena->blocks++] = (block){memory, elements};
    }
}

spw_status spw_arena_take(spw_arena *arena, size_t rank, const char *name, size_t elements, uint64_t bytes,
                          float **out) {
    holder *h = &arena->rank[rank];
    *out = NULL;
    if (h->tensors == SPW_ARENA_TENSORS) {
        return spw_fail(SPW_EARG, "rank %zu holds %d tensors already, no room for %s", rank,
                        SPW_ARENA_TENSORS, name);
    }
    const spw_status status = take_memory(arena, elements, out);
    if (status != SPW_OK) return spw_fail_within(status, "rank %zu, %s", rank, name);
    h->live[h->tensors++] = (tensor){name, *out, elements, bytes};
    h->bytes += bytes;
    note(arena, h);
    return SPW_OK;
}

static size_t find(const holder *h, const float *memory) {
    size_t i = 0;
    while (i < h->tensors && h->live[i].memory != memory) i++;
    return i;
}

void spw_arena_give(spw_arena *arena, size_t rank, float *memory) {
    holder *h = &arena->rank[rank];
    const size_t i = find(h, memory);
    if (memory == NULL || i == h->tensors) return;
    give_memory(arena, memory, h->live[i].elements);
    h->bytes -= h->live[i].bytes;
    h->tensors--;
    memmove(&h->live[i], &h->live[i + 1], (h->tensors - i) * sizeof h->live[0]);
}

void spw_arena_rename(spw_arena *arena, size_t rank, const float *memory, const char *name) {
    holder *h = &arena->rank[rank];
    const size_t i = find(h, memory);
    if (i < h->tensors) h->live[i].name = name;
}

uint64_t spw_arena_live(const spw_arena *arena, size_t rank) { return arena->rank[rank].bytes; }
uint64_t spw_arena_saved(const spw_arena *arena, size_t rank) { return arena->rank[rank].saved; }
spw_arena_peak spw_arena_forward_peak(const spw_arena *arena, size_t rank) {
    return arena->rank[rank].peak[0];
}
spw_arena_peak spw_arena_backward_peak(const spw_arena *arena, size_t rank) {
    return arena->rank[rank].peak[1];
}
