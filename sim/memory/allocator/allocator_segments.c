#include "sim/memory/allocator/allocator_internal.h"

#include <stddef.h>

static uint64_t round_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

static bool has_room(const spw_allocator *a, uint64_t bytes) {
    const uint64_t device = a->limit_bytes;
    return device == 0 || (bytes <= device && a->stats.reserved_bytes <= device - bytes);
}

/* --- Segments of fixed size --- */

static const uint64_t HIGHEST_ADDRESS = UINT64_C(1)
                                        << 62; /* of falling ones; rising ones never come so far */

static bool is_whole_segment(const spw_block *b) {
    return b->previous == SPW_NO_BLOCK && b->next == SPW_NO_BLOCK;
}

/* [alloc_block, get_allocation_size] */
static spw_status open_segment(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out) {
    uint64_t segment = round_up(bytes, SPW_SMALL_SEGMENT);
    if (!a->pool[pool].small && bytes < SPW_LARGE_SEGMENT / 2) segment = SPW_LARGE_SEGMENT;
    *out = SPW_NO_BLOCK;
    if (!has_room(a, segment)) return SPW_OK;
    const spw_block block = {
        .address = a->settings.addresses_fall ? HIGHEST_ADDRESS - a->next_address - segment : a->next_address,
        .bytes = segment,
        .previous = SPW_NO_BLOCK,
        .next = SPW_NO_BLOCK,
        .pool = pool,
        .mapped = true};
    spw_status status = spw_allocator_new_block(a, block, out);
    if (status != SPW_OK) return status;
    a->next_address += segment;
    a->stats.reserved_bytes += segment;
    a->stats.segments++;
    return SPW_OK;
}

static void close_segment(spw_allocator *a, int32_t block) {
    spw_allocator_take_free(a, block);
    a->stats.reserved_bytes -= a->block[block].bytes;
    a->stats.segments--;
    spw_allocator_drop_block(a, block);
}

/* --- Expandable segments --- */

static uint64_t page_bytes(const spw_pool *pool) {
    return pool->small ? SPW_SMALL_SEGMENT : SPW_LARGE_SEGMENT;
}

/* [map_block] Puts memory behind at least `bytes` of an unmapped block and joins it with free neighbours; it is in
 * no list afterwards. SPW_NO_BLOCK when the device has no room. */
static spw_status map_front(spw_allocator *a, int32_t block, uint64_t bytes, int32_t *out) {
    const uint64_t page = page_bytes(&a->pool[a->block[block].pool]);
    uint64_t mapped = round_up(bytes, page);
    int32_t rest = SPW_NO_BLOCK;
    *out = SPW_NO_BLOCK;
    if (mapped > a->block[block].bytes) mapped = a->block[block].bytes;
    if (!has_room(a, mapped)) return SPW_OK;
    spw_allocator_take_unmapped(a, block);
    if (mapped < a->block[block].bytes) {
        spw_status status = spw_allocator_cut(a, block, mapped, &rest);
        if (status != SPW_OK) return status;
        spw_allocator_put_unmapped(a, rest);
    }
    a->block[block].mapped = true;
    a->stats.reserved_bytes += mapped;
    spw_allocator_merge(a, block);
    *out = block;
    return SPW_OK;
}

static bool is_free(const spw_allocator *a, int32_t block) {
    return block != SPW_NO_BLOCK && spw_block_is_idle(&a->block[block]);
}

/* Do free and unmapped blocks from here on hold `bytes` together? */
static bool reaches(const spw_allocator *a, int32_t block, uint64_t bytes) {
    uint64_t sum = 0;
    for (; sum < bytes && is_free(a, block); block = a->block[block].next) sum += a->block[block].bytes;
    return sum >= bytes;
}

/* [find_expandable_block] The lowest stretch that can hold the request, with the free block before it; else a new
 * range of addresses, more than the device could ever fill. */
static spw_status find_stretch(spw_allocator *a, uint32_t pool_index, uint64_t bytes, int32_t *out) {
    const spw_pool *pool = &a->pool[pool_index];
    for (size_t i = 0; i < pool->unmappeds; i++) {
        const int32_t before = a->block[pool->unmapped[i]].previous;
        *out = is_free(a, before) ? before : pool->unmapped[i];
        if (reaches(a, *out, bytes)) return SPW_OK;
    }
    const uint64_t device = a->limit_bytes > 0 ? a->limit_bytes : (uint64_t)1 << 50;
    const uint64_t range = round_up(device + device / 8 + bytes, page_bytes(pool));
    const spw_block block = {.address = a->next_address,
                             .bytes = range,
                             .previous = SPW_NO_BLOCK,
                             .next = SPW_NO_BLOCK,
                             .pool = pool_index,
                             .origin = (uint8_t)(a->next_address % SPW_LARGE_SEGMENT / SPW_SMALL_SEGMENT)};
    spw_status status = spw_allocator_new_block(a, block, out);
    if (status != SPW_OK) return status;
    a->next_address += range;
    a->stats.segments++;
    spw_allocator_put_unmapped(a, *out);
    return SPW_OK;
}

/* [try_allocate_expandable_block] */
static spw_status expand(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out) {
    int32_t block = SPW_NO_BLOCK, mapped = SPW_NO_BLOCK;
    spw_status status = find_stretch(a, pool, bytes, &block);
    *out = SPW_NO_BLOCK;
    if (status != SPW_OK) return status;
    if (a->block[block].mapped) spw_allocator_take_free(a, block);
    while (!a->block[block].mapped || a->block[block].bytes < bytes) {
        const bool begins = !a->block[block].mapped;
        const int32_t next = begins ? block : a->block[block].next;
        const uint64_t missing = begins ? bytes : bytes - a->block[block].bytes;
        const uint64_t stretch = a->block[next].bytes;
        if (!begins) spw_allocator_put_free(a, block); /* so that it joins what is mapped behind it */
        status = map_front(a, next, missing < stretch ? missing : stretch, &mapped);
        if (status != SPW_OK || mapped == SPW_NO_BLOCK) return status;
        block = mapped;
    }
    *out = block;
    return SPW_OK;
}

/* [unmap_block] Whole pages inside a free block go back. `block` is in the free list before and after. */
static spw_status unmap_pages(spw_allocator *a, int32_t block) {
    const uint64_t page = page_bytes(&a->pool[a->block[block].pool]),
                   origin = a->block[block].origin * SPW_SMALL_SEGMENT; /* a range begins on a page */
    const uint64_t offset = a->block[block].address + SPW_LARGE_SEGMENT - origin;
    const uint64_t begin = round_up(offset, page), end = (offset + a->block[block].bytes) / page * page;
    if (begin >= end) return SPW_OK;
    int32_t middle = block, rest = SPW_NO_BLOCK;
    spw_status status = SPW_OK;
    spw_allocator_take_free(a, block);
    if (begin > offset) {
        SPW_TRY(spw_allocator_cut(a, block, begin - offset, &middle));
        spw_allocator_put_free(a, block);
    }
    if (a->block[middle].bytes > end - begin) {
        SPW_TRY(spw_allocator_cut(a, middle, end - begin, &rest));
        spw_allocator_put_free(a, rest);
    }
    a->block[middle].mapped = false;
    a->stats.reserved_bytes -= end - begin;
    spw_allocator_merge(a, middle);
    spw_allocator_put_unmapped(a, middle);

cleanup:
    return status;
}

/* --- Both --- */

spw_status spw_allocator_grow(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out) {
    return a->settings.expandable_segments ? expand(a, pool, bytes, out) : open_segment(a, pool, bytes, out);
}

void spw_allocator_collect_garbage(spw_allocator *a) {
    const uint64_t limit =
        (uint64_t)(a->settings.garbage_collection_threshold * (double)a->settings.fraction_bytes);
    if (a->stats.reserved_bytes <= limit) return;
    const uint64_t target = a->stats.reserved_bytes - limit, now = a->searches[0];
    uint64_t age = 0, count = 0, reclaimed = 0;
    for (size_t p = 0; p < SPW_POOLS; p += 2) {
        for (int32_t i = a->pool[p].last; i != SPW_NO_BLOCK; i = a->block[i].smaller) {
            const spw_block *b = &a->block[i];
            if (!is_whole_segment(b)) continue;
            age += now - b->waiting_since;
            count++;
        }
    }
    for (bool freed = true; freed && count > 0 && reclaimed < target;) {
        const double threshold = (double)age / (double)count;
        freed = false;
        for (size_t p = 0; p < SPW_POOLS; p += 2) {
            for (int32_t block = spw_pool_find(a, &a->pool[p], 0), next; block != SPW_NO_BLOCK;
                 block = next) {
                const spw_block b = a->block[block];
                const bool old = (double)(now - b.waiting_since) >= threshold;
                next = b.larger;
                if (!is_whole_segment(&b) || !old || count == 0) continue;
                close_segment(a, block);
                reclaimed += b.bytes;
                age -= now - b.waiting_since;
                count--;
                freed = true;
            }
        }
    }
}

bool spw_allocator_release_oversize(spw_allocator *a, uint32_t pool_index, uint64_t bytes) {
    const uint64_t largest = a->settings.max_split_bytes;
    if (largest == UINT64_MAX || a->settings.expandable_segments) return false;
    const spw_pool *pool = &a->pool[pool_index];
    const uint64_t want = bytes < largest ? largest : bytes;
    const int32_t fits = spw_pool_find(a, pool, want);
    if (fits != SPW_NO_BLOCK) {
        close_segment(a, fits);
        return true;
    }
    uint64_t released = 0;
    while (released < want && pool->last != SPW_NO_BLOCK && a->block[pool->last].bytes >= largest) {
        const int32_t block = pool->last;
        released += a->block[block].bytes;
        close_segment(a, block);
    }
    return released >= want;
}

spw_status spw_allocator_release_all(spw_allocator *a) {
    for (size_t s = 0; s < SPW_ALLOCATOR_STREAMS; s++) spw_allocator_stream_done(a, s);
    for (size_t p = 0; p < SPW_POOLS; p++) {
        const spw_pool *pool = &a->pool[p];
        if (!a->settings.expandable_segments) {
            for (int32_t block = pool->last, next; block != SPW_NO_BLOCK; block = next) {
                next = a->block[block].smaller;
                if (is_whole_segment(&a->block[block])) close_segment(a, block);
            }
            continue;
        }
        const uint64_t page = page_bytes(pool); /* in smaller blocks lies no whole one */
        for (int32_t block = spw_pool_find(a, pool, page); block != SPW_NO_BLOCK;) {
            const uint64_t before = a->stats.reserved_bytes;
            spw_status status = unmap_pages(a, block);
            if (status != SPW_OK) return status;
            /* unmapping changes the list, so begin anew after it */
            block = a->stats.reserved_bytes != before ? spw_pool_find(a, pool, page) : a->block[block].larger;
        }
    }
    return SPW_OK;
}
