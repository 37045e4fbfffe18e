#include "base/memory.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/allocator/allocator_internal.h"

#include <string.h>

/* --- Blocks and the order among free ones --- */

/* Every list can hold every block, so that only the making of a block can fail. */
static spw_status reserve_block(spw_allocator *a) {
    if (a->spares > 0 || a->blocks < a->capacity) return SPW_OK;
    const size_t capacity = a->capacity == 0 ? 64 : 2 * a->capacity;
    if (capacity > INT32_MAX) return spw_fail(SPW_EARG, "more than %d blocks", INT32_MAX / 2);
    spw_status status = SPW_OK;
    for (size_t p = 0; p < SPW_POOLS && a->settings.expandable_segments; p++)
        SPW_TRY(SPW_RESIZE(capacity, &a->pool[p].unmapped));
    SPW_TRY(SPW_RESIZE(capacity, &a->spare));
    SPW_TRY(SPW_RESIZE(capacity, &a->block));
    a->capacity = capacity;

cleanup:
    return status;
}

static spw_status take_entry(spw_allocator *a, int32_t *out) {
    spw_status status = reserve_block(a);
    if (status != SPW_OK) return status;
    *out = a->spares > 0 ? a->spare[--a->spares] : (int32_t)a->blocks++;
    return SPW_OK;
}

spw_status spw_allocator_new_block(spw_allocator *a, spw_block value, int32_t *out) {
    const spw_status status = take_entry(a, out);
    if (status == SPW_OK) a->block[*out] = value;
    return status;
}

void spw_allocator_drop_block(spw_allocator *a, int32_t block) {
    a->block[block] = (spw_block){.previous = SPW_NO_BLOCK, .next = SPW_NO_BLOCK};
    a->spare[a->spares++] = block;
}

static bool is_before(const spw_block *a, const spw_block *b) {
    return a->bytes < b->bytes || (a->bytes == b->bytes && a->address < b->address);
}

int32_t spw_pool_find(const spw_allocator *a, const spw_pool *pool, uint64_t bytes) {
    int32_t at = spw_pool_first_from(pool, spw_sizes_of(bytes));
    while (at != SPW_NO_BLOCK && a->block[at].bytes < bytes) at = a->block[at].larger;
    return at;
}

static size_t find_unmapped(const spw_allocator *a, const spw_pool *pool, uint64_t address) {
    size_t low = 0, high = pool->unmappeds;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (a->block[pool->unmapped[middle]].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert_at(int32_t *list, size_t *count, size_t at, int32_t block) {
    memmove(list + at + 1, list + at, (*count - at) * sizeof *list);
    list[at] = block;
    (*count)++;
}

static void remove_at(int32_t *list, size_t *count, size_t at) {
    (*count)--;
    memmove(list + at, list + at + 1, (*count - at) * sizeof *list);
}

/* The block is in the list; it becomes the mark of its sizes where it is the first of them. */
static void mark(const spw_allocator *a, spw_pool *pool, int32_t block) {
    const spw_block *b = &a->block[block];
    pool->newest[b->sizes] = block;
    if (b->smaller != SPW_NO_BLOCK && a->block[b->smaller].sizes == b->sizes) return;
    pool->first[b->sizes] = block;
    pool->there[b->sizes / 64] |= (uint64_t)1 << b->sizes % 64;
}

static void unmark(const spw_allocator *a, spw_pool *pool, int32_t block) {
    const spw_block *b = &a->block[block];
    const bool goes_on = b->larger != SPW_NO_BLOCK && a->block[b->larger].sizes == b->sizes;
    if (pool->newest[b->sizes] == block) pool->newest[b->sizes] = goes_on ? b->larger : b->smaller;
    if (pool->first[b->sizes] != block) return;
    if (goes_on)
        pool->first[b->sizes] = b->larger;
    else
        pool->there[b->sizes / 64] &= ~((uint64_t)1 << b->sizes % 64);
}

/* The first free block that is not before `wanted`. Long traces leave hundreds of blocks of one size: the place is looked for from
 * both ends of its sizes at once, or from one end and from the block that was put last, beside which it often is. */
static int32_t find_place(const spw_allocator *a, const spw_pool *pool, const spw_block *wanted) {
    const bool has_some = pool->there[wanted->sizes / 64] >> wanted->sizes % 64 & 1;
    int32_t above = spw_pool_first_from(pool, wanted->sizes + 1U);
    if (!has_some) return above;
    int32_t up = pool->first[wanted->sizes], newest = pool->newest[wanted->sizes];
    if (is_before(&a->block[newest], wanted))
        up = a->block[newest].larger;
    else
        above = newest;
    for (;;) {
        if (up == above || !is_before(&a->block[up], wanted)) return up;
        up = a->block[up].larger;
        const int32_t down = above != SPW_NO_BLOCK ? a->block[above].smaller : pool->last;
        if (is_before(&a->block[down], wanted)) return above; /* there is one: `up` has passed it */
        above = down;
    }
}

void spw_allocator_put_free(spw_allocator *a, int32_t block) {
    spw_block *b = &a->block[block];
    spw_pool *pool = &a->pool[b->pool];
    b->sizes = spw_sizes_of(b->bytes);
    pool->number = 0;
    const int32_t larger = find_place(a, pool, b),
                  smaller = larger != SPW_NO_BLOCK ? a->block[larger].smaller : pool->last;
    b->waiting_since = a->searches[pool->small];
    b->smaller = smaller;
    b->larger = larger;
    *(larger != SPW_NO_BLOCK ? &a->block[larger].smaller : &pool->last) = block;
    if (smaller != SPW_NO_BLOCK) a->block[smaller].larger = block;
    mark(a, pool, block);
}

void spw_allocator_take_free(spw_allocator *a, int32_t block) {
    const spw_block *b = &a->block[block];
    spw_pool *pool = &a->pool[b->pool];
    pool->number = 0;
    *(b->larger != SPW_NO_BLOCK ? &a->block[b->larger].smaller : &pool->last) = b->smaller;
    if (b->smaller != SPW_NO_BLOCK) a->block[b->smaller].larger = b->larger;
    unmark(a, pool, block);
}

/* A free block in its list is now of other bytes, from another address on. Half of them keep their place among the others. */
static void change_free(spw_allocator *a, int32_t block, uint64_t address, uint64_t bytes) {
    spw_block *b = &a->block[block];
    spw_pool *pool = &a->pool[b->pool];
    const bool grows = bytes > b->bytes;
    const int32_t beside = grows ? b->larger : b->smaller;
    pool->number = 0;
    b->address = address;
    b->bytes = bytes;
    if (beside != SPW_NO_BLOCK && grows != is_before(b, &a->block[beside])) {
        spw_allocator_take_free(a, block);
        spw_allocator_put_free(a, block);
        return;
    }
    const uint16_t sizes = spw_sizes_of(bytes);
    b->waiting_since = a->searches[pool->small];
    if (sizes == b->sizes) return;
    unmark(a, pool, block);
    b->sizes = sizes;
    mark(a, pool, block);
}

uint64_t spw_pool_number(spw_allocator *a, uint32_t which) {
    enum { MOST = 32 };
    spw_pool *pool = &a->pool[which];
    const spw_block *by_address[MOST];
    size_t count = 0;
    uint64_t number = 0;
    if (pool->number != 0) return pool->number;
    for (int32_t i = pool->last; i != SPW_NO_BLOCK; i = a->block[i].smaller) {
        size_t at = count++;
        if (count > MOST) return 0;
        for (; at > 0 && by_address[at - 1]->address > a->block[i].address; at--)
            by_address[at] = by_address[at - 1];
        by_address[at] = &a->block[i];
    }
    for (size_t i = 0; i < count; i++) number = spw_allocator_mix(number + by_address[i]->bytes + 1);
    pool->number = number != 0 ? number : 1;
    return pool->number;
}

void spw_allocator_put_unmapped(spw_allocator *a, int32_t block) {
    const spw_block *b = &a->block[block];
    spw_pool *pool = &a->pool[b->pool];
    insert_at(pool->unmapped, &pool->unmappeds, find_unmapped(a, pool, b->address), block);
}

void spw_allocator_take_unmapped(spw_allocator *a, int32_t block) {
    const spw_block *b = &a->block[block];
    spw_pool *pool = &a->pool[b->pool];
    remove_at(pool->unmapped, &pool->unmappeds, find_unmapped(a, pool, b->address));
}

/* [try_merge_blocks] `other` is a neighbour of `block`, or none. */
static void join(spw_allocator *a, int32_t block, int32_t other) {
    if (other == SPW_NO_BLOCK) return;
    spw_block *b = &a->block[block], *o = &a->block[other];
    if (!spw_block_is_idle(o) || o->mapped != b->mapped) return;
    if (o->mapped) {
        spw_allocator_take_free(a, other);
    } else {
        spw_allocator_take_unmapped(a, other);
    }
    if (b->previous == other) {
        b->address = o->address;
        b->previous = o->previous;
        if (b->previous != SPW_NO_BLOCK) a->block[b->previous].next = block;
    } else {
        b->next = o->next;
        if (b->next != SPW_NO_BLOCK) a->block[b->next].previous = block;
    }
    b->bytes += o->bytes;
    spw_allocator_drop_block(a, other);
}

void spw_allocator_merge(spw_allocator *a, int32_t block) {
    join(a, block, a->block[block].previous);
    join(a, block, a->block[block].next);
}

spw_status spw_allocator_cut(spw_allocator *a, int32_t block, uint64_t bytes, int32_t *rest) {
    const spw_status status = take_entry(a, rest);
    if (status != SPW_OK) return status;
    spw_block *b = &a->block[block], *r = &a->block[*rest];
    r->address =
        b->address + bytes; /* field by field: read back as a whole, fresh fields would be waited for */
    r->bytes = b->bytes - bytes;
    r->requested = 0;
    r->waiting_since = b->waiting_since;
    r->previous = block;
    r->next = b->next;
    r->pool = b->pool;
    r->allocated = false;
    r->users = 0;
    r->mapped = b->mapped;
    r->origin = b->origin;
    if (b->next != SPW_NO_BLOCK) a->block[b->next].previous = *rest;
    b->next = *rest;
    b->bytes = bytes;
    return SPW_OK;
}

spw_status spw_allocator_cut_front(spw_allocator *a, int32_t block, uint64_t bytes, int32_t *front) {
    const spw_status status = take_entry(a, front);
    if (status != SPW_OK) return status;
    spw_block *b = &a->block[block], *f = &a->block[*front];
    f->address = b->address;
    f->bytes = bytes;
    f->requested = 0;
    f->previous = b->previous;
    f->next = block;
    f->pool = b->pool;
    f->allocated = false;
    f->users = 0;
    f->mapped = true;
    f->origin = b->origin;
    if (b->previous != SPW_NO_BLOCK) a->block[b->previous].next = *front;
    b->previous = *front;
    change_free(a, block, b->address + bytes, b->bytes - bytes);
    return SPW_OK;
}

static bool can_join(const spw_allocator *a, int32_t block) {
    return block != SPW_NO_BLOCK && a->block[block].mapped && spw_block_is_idle(&a->block[block]);
}

/* What was in use goes to a free neighbour, which keeps its entry: the larger one, where both sides are free. */
void spw_allocator_reuse(spw_allocator *a, int32_t block) {
    spw_block *b = &a->block[block];
    const bool before = can_join(a, b->previous), behind = can_join(a, b->next);
    if (!before && !behind) {
        spw_allocator_put_free(a, block);
        return;
    }
    int32_t kept = behind ? b->next : b->previous;
    if (before && behind) {
        if (a->block[b->previous].bytes > a->block[b->next].bytes) kept = b->previous;
        join(a, block, kept == b->next ? b->previous : b->next);
    }
    spw_block *k = &a->block[kept];
    const uint64_t bytes = k->bytes + b->bytes;
    if (kept == b->next) {
        k->previous = b->previous;
        if (b->previous != SPW_NO_BLOCK) a->block[b->previous].next = kept;
        change_free(a, kept, b->address, bytes);
    } else {
        k->next = b->next;
        if (b->next != SPW_NO_BLOCK) a->block[b->next].previous = kept;
        change_free(a, kept, k->address, bytes);
    }
    spw_allocator_drop_block(a, block);
}

void spw_allocator_stream_done(spw_allocator *a, size_t stream) {
    for (size_t i = 0; i < a->blocks; i++) {
        spw_block *b = &a->block[i];
        if (b->allocated || (b->users >> stream & 1) == 0) continue;
        b->users &= (uint8_t) ~(1u << stream);
        if (b->users == 0) spw_allocator_reuse(a, (int32_t)i);
    }
}
