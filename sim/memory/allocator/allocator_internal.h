/* Blocks, pools and the order among free blocks: shared by allocator.c and allocator_segments.c only. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_INTERNAL_H
#define SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_INTERNAL_H

#include "sim/memory/allocator/allocator.h"

#define SPW_MIB ((uint64_t)1 << 20)
#define SPW_BLOCK_SMALLEST ((uint64_t)512)
#define SPW_SMALL_REQUEST SPW_MIB
#define SPW_SMALL_SEGMENT (2 * SPW_MIB)
#define SPW_LARGE_SEGMENT (20 * SPW_MIB)
#define SPW_BYTES_MOST ((uint64_t)INT64_MAX / 4) /* of a request */

enum { SPW_NO_BLOCK = -1, SPW_POOLS = 2 * SPW_ALLOCATOR_STREAMS };

/* A part of a segment. `previous` and `next` are its neighbours there. */
typedef struct spw_block {
    uint64_t address, bytes, requested;
    union {
        uint64_t
            waiting_since; /* where garbage is collected: searches of its size class when it became free */
        uint64_t visit;    /* else: of a free block, the visit that has a part of it (event_visit.c) */
    };
    int32_t previous, next;
    int32_t smaller, larger; /* its neighbours among the free ones of its pool, where it is one */
    uint32_t pool;
    uint16_t sizes; /* those among which it is in the list, where it is */
    bool allocated;
    uint8_t users; /* bit s: stream s was recorded; not allocated and not 0: waits for them */
    bool mapped;   /* false: addresses of an expandable segment without memory behind them */
    uint8_t
        origin; /* of an expandable segment: small segments from a multiple of a large one's size to its begin */
} spw_block;

/* 16 in each power of two */
enum { SPW_SIZE_BITS = 4, SPW_SIZES = 54 << SPW_SIZE_BITS, SPW_SIZE_WORDS = (SPW_SIZES + 63) / 64 };

/* Free blocks of one stream and size class, and the stretches without memory. The free ones are linked by size, then address; sizes
 * have marks from which on a place among them is looked for. */
typedef struct spw_pool {
    int32_t last;                   /* the largest, SPW_NO_BLOCK: there is none; then */
    int32_t first[SPW_SIZES];       /* the smallest of these sizes, */
    uint64_t there[SPW_SIZE_WORDS]; /* where this bit says that there is one; */
    int32_t newest[SPW_SIZES];      /* the one of these that was put last, or its neighbour */
    uint64_t number;                /* spw_pool_number(); 0: unknown */
    int32_t *unmapped;              /* by address */
    size_t unmappeds;
    bool small;
} spw_pool;

struct spw_allocator {
    spw_allocator_settings settings;
    uint64_t limit_bytes; /* 0 = none */
    bool collects;        /* garbage */
    spw_allocator_stats stats;
    spw_block *block;
    int32_t *spare; /* unused entries of block */
    size_t blocks, spares, capacity;
    uint64_t searches[2]; /* large, small; counted for garbage collection only */
    uint64_t next_address;
    uint64_t visit; /* the last one that was followed, from 1 on */
    spw_pool pool[SPW_POOLS];
};

/* Neither in use nor waiting for a stream. */
static inline bool spw_block_is_idle(const spw_block *b) { return !b->allocated && b->users == 0; }

static inline void spw_raise_to(uint64_t *peak, uint64_t value) { *peak = value > *peak ? value : *peak; }

/* The pool of requests of a stream; they are rounded. */
static inline uint32_t spw_pool_of(size_t stream, uint64_t rounded) {
    return (uint32_t)(2 * stream) + (rounded <= SPW_SMALL_REQUEST ? 1 : 0);
}

/* [round_size, roundup_power2_next_division] */
static inline uint64_t spw_allocator_round(const spw_allocator *a, uint64_t bytes) {
    const uint64_t divisions = a->settings.roundup_power2_divisions;
    uint64_t unit = SPW_BLOCK_SMALLEST;
    if (divisions > 1 && bytes > SPW_BLOCK_SMALLEST * divisions) {
        unit = (uint64_t)1 << (63 - __builtin_clzll(bytes));
        unit /= divisions;
    }
    return (bytes + unit - 1) & ~(unit - 1); /* a power of two, by which nothing need be divided */
}

/* [should_split] Of a free block of `whole` bytes that serves a request. */
static inline bool spw_allocator_is_cut(const spw_allocator *a, uint32_t pool, uint64_t whole,
                                        uint64_t bytes) {
    const uint64_t rest = whole - bytes;
    if (a->pool[pool].small || a->settings.expandable_segments) return rest >= SPW_BLOCK_SMALLEST;
    return bytes < a->settings.max_split_bytes && rest > SPW_SMALL_REQUEST;
}

/* Of at least SPW_BLOCK_SMALLEST bytes: the power of two, and the bits behind the first. */
static inline uint16_t spw_sizes_of(uint64_t bytes) {
    const uint64_t units = bytes / SPW_BLOCK_SMALLEST | 1;
    const unsigned power = 63 - (unsigned)__builtin_clzll(units);
    const uint64_t bits =
        power > SPW_SIZE_BITS ? units >> (power - SPW_SIZE_BITS) : units << (SPW_SIZE_BITS - power);
    return (uint16_t)((power << SPW_SIZE_BITS) + (bits & ((1 << SPW_SIZE_BITS) - 1)));
}

/* The smallest block of these sizes or larger ones. */
static inline int32_t spw_pool_first_from(const spw_pool *pool, size_t size) {
    uint64_t word = pool->there[size / 64] >> size % 64 << size % 64;
    size_t at = size / 64;
    while (word == 0 && ++at < SPW_SIZE_WORDS) word = pool->there[at];
    return word != 0 ? pool->first[at * 64 + (size_t)__builtin_ctzll(word)] : SPW_NO_BLOCK;
}

/* Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014. */
static inline uint64_t spw_allocator_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* allocator.c */
SPW_MUST_CHECK spw_status spw_allocator_new_block(spw_allocator *a, spw_block value, int32_t *out);
void spw_allocator_drop_block(spw_allocator *a, int32_t block);
void spw_allocator_put_free(spw_allocator *a, int32_t block);
void spw_allocator_take_free(spw_allocator *a, int32_t block);
void spw_allocator_put_unmapped(spw_allocator *a, int32_t block);
void spw_allocator_take_unmapped(spw_allocator *a, int32_t block);
/* The smallest free block of the pool of so many bytes, the lowest of equals; SPW_NO_BLOCK when there is none. */
int32_t spw_pool_find(const spw_allocator *a, const spw_pool *pool, uint64_t bytes);
/* A number of its free blocks' sizes in the order of their addresses; 0: of too many. */
uint64_t spw_pool_number(spw_allocator *a, uint32_t which);
/* Joins `block` (free or not mapped, in no list) with its neighbours of the same kind; it keeps its index. */
void spw_allocator_merge(spw_allocator *a, int32_t block);
/* Cuts `block` after `bytes`; the rest is in no list. */
SPW_MUST_CHECK spw_status spw_allocator_cut(spw_allocator *a, int32_t block, uint64_t bytes, int32_t *rest);

/* Cuts `bytes` from the front of a free block, which keeps its entry and its list; `front` is in no list. */
SPW_MUST_CHECK spw_status spw_allocator_cut_front(spw_allocator *a, int32_t block, uint64_t bytes,
                                                  int32_t *front);

/* allocator_segments.c: memory from the device and back. `out` = a free block in no list, or SPW_NO_BLOCK. */
SPW_MUST_CHECK spw_status spw_allocator_grow(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out);
void spw_allocator_collect_garbage(spw_allocator *a);
bool spw_allocator_release_oversize(spw_allocator *a, uint32_t pool, uint64_t bytes);
SPW_MUST_CHECK spw_status spw_allocator_release_all(spw_allocator *a);

/* A block that nobody uses any more is merged with free neighbours and is free. */
void spw_allocator_reuse(spw_allocator *a, int32_t block);

#endif
