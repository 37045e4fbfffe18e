#include "sim/memory/allocator/allocator.h"

#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"

#include <stddef.h>
#include <string.h>

/* --- The allocator --- */

uint64_t spw_allocator_limit_bytes(const spw_allocator_settings *s) {
    if (s->device_bytes == 0 || s->fraction_bytes == 0) return s->device_bytes + s->fraction_bytes;
    return s->device_bytes < s->fraction_bytes ? s->device_bytes : s->fraction_bytes;
}

spw_status spw_allocator_create(const spw_allocator_settings *settings, spw_allocator **out) {
    spw_allocator *a = NULL;
    *out = NULL;
    if (settings->max_split_bytes > 0 && settings->max_split_bytes <= SPW_LARGE_SEGMENT)
        return spw_fail(SPW_EARG, "max_split_bytes %llu is not above 20 MiB",
                        (unsigned long long)settings->max_split_bytes);
    const double threshold = settings->garbage_collection_threshold;
    if (!(threshold >= 0.0 && threshold < 1.0))
        return spw_fail(SPW_EARG, "garbage_collection_threshold %g: at least 0, below 1", threshold);
    const size_t divisions = settings->roundup_power2_divisions;
    if (divisions > 64 || (divisions & (divisions - 1)) != 0)
        return spw_fail(SPW_EARG, "roundup_power2_divisions %zu: 0, or a power of two up to 64", divisions);
    spw_status status = SPW_ALLOC(1, &a);
    if (status != SPW_OK) return status;
    a->settings = *settings;
    a->limit_bytes = spw_allocator_limit_bytes(settings);
    a->collects = threshold > 0.0 && settings->fraction_bytes > 0;
    if (a->settings.max_split_bytes == 0) a->settings.max_split_bytes = UINT64_MAX;
    for (size_t p = 0; p < SPW_POOLS; p++) a->pool[p].small = p % 2 == 1, a->pool[p].last = SPW_NO_BLOCK;
    a->next_address = SPW_SMALL_SEGMENT;
    *out = a;
    return SPW_OK;
}

/* Of an empty one nothing else is looked at. */
static void copy_pool(const spw_pool *from, spw_pool *to) {
    if (from->last != SPW_NO_BLOCK) {
        *to = *from;
    } else {
        to->last = from->last;
        memcpy(to->there, from->there, sizeof to->there);
        to->number = from->number;
        to->unmappeds = from->unmappeds;
        to->small = from->small;
    }
    to->unmapped = NULL;
}

spw_status spw_allocator_copy(const spw_allocator *from, spw_allocator **out) {
    spw_allocator *a = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_RESIZE(1, &a));
    memcpy(a, from, offsetof(spw_allocator, pool));
    a->block = NULL;
    a->spare = NULL;
    for (size_t p = 0; p < SPW_POOLS; p++) copy_pool(&from->pool[p], &a->pool[p]);
    SPW_TRY(SPW_RESIZE(a->capacity, &a->block));
    SPW_TRY(SPW_RESIZE(a->capacity, &a->spare));
    for (size_t p = 0; p < SPW_POOLS && a->settings.expandable_segments; p++)
        SPW_TRY(SPW_ALLOC(a->capacity, &a->pool[p].unmapped));
    if (a->blocks > 0) memcpy(a->block, from->block, a->blocks * sizeof *a->block);
    if (a->spares > 0) memcpy(a->spare, from->spare, a->spares * sizeof *a->spare);
    for (size_t p = 0; p < SPW_POOLS; p++)
        if (a->pool[p].unmappeds > 0)
            memcpy(a->pool[p].unmapped, from->pool[p].unmapped,
                   a->pool[p].unmappeds * sizeof *a->pool[p].unmapped);
    *out = a;
    a = NULL;

cleanup:
    spw_allocator_destroy(a);
    return status;
}

void spw_allocator_destroy(spw_allocator *a) {
    if (a == NULL) return;
    for (size_t p = 0; p < SPW_POOLS; p++) spw_free(a->pool[p].unmapped);
    spw_free(a->spare);
    spw_free(a->block);
    spw_free(a);
}

/* What an expandable block could become: itself and the stretch without memory behind it. */
static uint64_t reach(const spw_allocator *a, int32_t block) {
    const spw_block *b = &a->block[block];
    const spw_block *next = b->next == SPW_NO_BLOCK ? NULL : &a->block[b->next];
    return b->bytes + (next != NULL && !next->mapped ? next->bytes : 0);
}

/* [get_free_block] Stays in its list. */
static int32_t find_fitting(spw_allocator *a, uint32_t pool_index, uint64_t bytes) {
    spw_pool *pool = &a->pool[pool_index];
    const uint64_t largest = a->settings.max_split_bytes;
    if (a->collects) a->searches[pool->small]++;
    int32_t block = spw_pool_find(a, pool, bytes);
    if (block == SPW_NO_BLOCK) return SPW_NO_BLOCK;
    if (a->settings.expandable_segments) {
        /* The last block could grow: it counts as large as it could become. */
        for (int32_t next = a->block[block].larger; next != SPW_NO_BLOCK && reach(a, next) < reach(a, block);
             next = a->block[block].larger)
            block = next;
    }
    const uint64_t found = a->block[block].bytes;
    return found < (bytes < largest ? largest : bytes + SPW_LARGE_SEGMENT) ? block : SPW_NO_BLOCK;
}

static bool is_worth_cutting(const spw_allocator *a, const spw_block *block, uint64_t bytes) {
    return spw_allocator_is_cut(a, block->pool, block->bytes, bytes);
}

/* Of a block in its list. Its rest stays there. */
static spw_status take_front(spw_allocator *a, int32_t block, uint64_t bytes, int32_t *out) {
    if (is_worth_cutting(a, &a->block[block], bytes)) return spw_allocator_cut_front(a, block, bytes, out);
    spw_allocator_take_free(a, block);
    *out = block;
    return SPW_OK;
}

/* Of a block in no list. */
static spw_status keep_front(spw_allocator *a, int32_t block, uint64_t bytes) {
    int32_t rest = SPW_NO_BLOCK;
    if (!is_worth_cutting(a, &a->block[block], bytes)) return SPW_OK;
    const spw_status status = spw_allocator_cut(a, block, bytes, &rest);
    if (status == SPW_OK) spw_allocator_put_free(a, rest);
    return status;
}

/* [malloc] Behind the cache, in this order: the device, the device after large free segments went back, after all did. */
static spw_status ask_device(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out) {
    if (a->collects) spw_allocator_collect_garbage(a);
    spw_status status = spw_allocator_grow(a, pool, bytes, out);
    if (status != SPW_OK || *out != SPW_NO_BLOCK) return status;
    if (spw_allocator_release_oversize(a, pool, bytes)) {
        status = spw_allocator_grow(a, pool, bytes, out);
        if (status != SPW_OK || *out != SPW_NO_BLOCK) return status;
    }
    status = spw_allocator_release_all(a);
    if (status != SPW_OK) return status;
    a->stats.retries++;
    return spw_allocator_grow(a, pool, bytes, out);
}

static spw_status take_block(spw_allocator *a, uint32_t pool, uint64_t bytes, int32_t *out) {
    const int32_t cached = find_fitting(a, pool, bytes);
    if (cached != SPW_NO_BLOCK) return take_front(a, cached, bytes, out);
    const spw_status status = ask_device(a, pool, bytes, out);
    if (status != SPW_OK || *out == SPW_NO_BLOCK) return status;
    spw_raise_to(&a->stats.reserved_peak_bytes, a->stats.reserved_bytes);
    return keep_front(a, *out, bytes);
}

spw_status spw_allocator_allocate(spw_allocator *a, size_t stream, uint64_t bytes, spw_allocation *out) {
    out->block = SPW_ALLOCATION_EMPTY;
    if (stream >= SPW_ALLOCATOR_STREAMS)
        return spw_fail(SPW_EARG, "stream %zu: there are %d", stream, (int)SPW_ALLOCATOR_STREAMS);
    if (bytes > SPW_BYTES_MOST) return spw_fail(SPW_EARG, "an allocation of more than 2^61 bytes");
    if (bytes == 0) return SPW_OK;
    const uint64_t rounded = spw_allocator_round(a, bytes);
    const uint32_t pool = spw_pool_of(stream, rounded);
    int32_t block = SPW_NO_BLOCK;
    const spw_status status = take_block(a, pool, rounded, &block);
    if (status != SPW_OK) return status;
    if (block == SPW_NO_BLOCK) {
        a->stats.refused++;
        out->block = SPW_ALLOCATION_REFUSED;
        return SPW_OK;
    }
    spw_block *b = &a->block[block];
    b->allocated = true;
    b->requested = bytes;
    a->stats.requested_bytes += bytes;
    a->stats.allocated_bytes += b->bytes;
    spw_raise_to(&a->stats.requested_peak_bytes, a->stats.requested_bytes);
    spw_raise_to(&a->stats.allocated_peak_bytes, a->stats.allocated_bytes);
    out->block = block;
    return SPW_OK;
}

spw_status spw_allocator_free(spw_allocator *a, spw_allocation allocation) {
    const int32_t block = allocation.block;
    if (block == SPW_ALLOCATION_EMPTY || block == SPW_ALLOCATION_REFUSED) return SPW_OK;
    if (block < 0 || (size_t)block >= a->blocks || !a->block[block].allocated)
        return spw_fail(SPW_EARG, "nothing is allocated under number %d", (int)block);
    spw_block *b = &a->block[block];
    a->stats.requested_bytes -= b->requested;
    a->stats.allocated_bytes -= b->bytes;
    b->allocated = false;
    b->requested = 0;
    if (b->users == 0) spw_allocator_reuse(a, block);
    return SPW_OK;
}

spw_status spw_allocator_record_stream(spw_allocator *a, spw_allocation allocation, size_t stream) {
    const int32_t block = allocation.block;
    if (stream >= SPW_ALLOCATOR_STREAMS)
        return spw_fail(SPW_EARG, "stream %zu: there are %d", stream, (int)SPW_ALLOCATOR_STREAMS);
    if (block == SPW_ALLOCATION_EMPTY || block == SPW_ALLOCATION_REFUSED) return SPW_OK;
    if (block < 0 || (size_t)block >= a->blocks || !a->block[block].allocated)
        return spw_fail(SPW_EARG, "nothing is allocated under number %d", (int)block);
    if (a->block[block].pool / 2 != stream) a->block[block].users |= (uint8_t)(1u << stream);
    return SPW_OK;
}

spw_allocator_stats spw_allocator_get_stats(const spw_allocator *a) { return a->stats; }

void spw_allocator_reset_peaks(spw_allocator *a) {
    a->stats.requested_peak_bytes = a->stats.requested_bytes;
    a->stats.allocated_peak_bytes = a->stats.allocated_bytes;
    a->stats.reserved_peak_bytes = a->stats.reserved_bytes;
}

void spw_allocator_expect(spw_allocator *a, uint64_t more) {
    spw_raise_to(&a->stats.allocated_peak_bytes, a->stats.requested_bytes + more);
}

spw_status spw_allocator_empty_cache(spw_allocator *a) { return spw_allocator_release_all(a); }

/* A sum, so that the order of entries, which decides nothing, does not count. */
uint64_t spw_allocator_state(const spw_allocator *a, const spw_allocation *live, size_t slots) {
    uint64_t sum = spw_allocator_mix(a->next_address);
    if (a->collects) return 0;
    for (size_t i = 0; i < a->blocks; i++) {
        const spw_block *b = &a->block[i];
        if (b->bytes == 0) continue;
        const uint64_t kind = (uint64_t)b->pool << 16 | (uint64_t)b->users << 8 |
                              (uint64_t)b->allocated << 2 | (uint64_t)b->mapped << 1 |
                              (b->previous == SPW_NO_BLOCK);
        sum += spw_allocator_mix(b->address * UINT64_C(0x9e3779b97f4a7c15) +
                                 b->bytes * UINT64_C(0xd1b54a32d192ed03) +
                                 b->requested * UINT64_C(0xbea225f9eb34556d) + kind + 1);
    }
    for (size_t i = 0; i < slots; i++)
        if (live[i].block >= 0)
            sum +=
                spw_allocator_mix((i + 1) * UINT64_C(0xbea225f9eb34556d) + a->block[live[i].block].address);
    return sum != 0 ? sum : 1;
}

uint64_t spw_allocator_glance(const spw_allocator *a) {
    uint64_t sum = a->next_address;
    for (size_t p = 0; p < SPW_POOLS; p++)
        for (int32_t i = a->pool[p].last; i != SPW_NO_BLOCK; i = a->block[i].smaller)
            sum += spw_allocator_mix(a->block[i].address + a->block[i].bytes * UINT64_C(0xd1b54a32d192ed03));
    return sum;
}

uint64_t spw_allocator_stranded_bytes(const spw_allocator *a) {
    uint64_t most = 0;
    for (size_t p = 0; p < SPW_POOLS; p++) {
        for (int32_t i = a->pool[p].last; i != SPW_NO_BLOCK; i = a->block[i].smaller) {
            const spw_block *b = &a->block[i];
            if (b->previous != SPW_NO_BLOCK || b->next != SPW_NO_BLOCK) spw_raise_to(&most, b->bytes);
        }
    }
    return most;
}
