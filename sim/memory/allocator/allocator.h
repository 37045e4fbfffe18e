/* PyTorch's caching allocator for CUDA memory, replayed: what a process reserves on the device for a sequence of
 * allocations and frees. The rules are those of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.x; the function is
 * named in brackets), written anew:
 *   - a request is rounded up to 512 B [round_size]; 0 bytes take nothing; with roundup_power2_divisions a request of
 *     more than 512 B x divisions is rounded up to the next of that many steps between two powers of two
 *     [roundup_power2_next_division];
 *   - requests of at most 1 MiB live in the small pool, others in the large one; every stream has its own [get_pool];
 *   - the smallest free block that is large enough is taken, the lowest address among equals [get_free_block];
 *   - it is split when at least 512 B (small pool), more than 1 MiB (large pool) remain [should_split];
 *   - without one the device is asked for a segment: 2 MiB (small), 20 MiB (requests below 10 MiB), else the request
 *     rounded up to 2 MiB [get_allocation_size];
 *   - a freed block joins its free neighbours in the segment at once [free_block, try_merge_blocks];
 *   - segments go back to the device only when it has no room: then every wholly free one goes and the request is
 *     tried once more [malloc, release_cached_blocks];
 *   - max_split_bytes: blocks of that size and more are not split, serve only requests of that size and more that
 *     leave less than 20 MiB unused, and are given back first [get_free_block, release_available_cached_blocks];
 *   - a fraction of the device set for the process (set_per_process_memory_fraction) is the most that it reserves
 *     [setMemoryFraction, alloc_block];
 *   - garbage_collection_threshold: above that part of such a fraction, before a new segment is asked for, free segments
 *     that waited longer than the average go back; where no fraction was set the threshold does nothing [malloc,
 *     garbage_collect_cached_blocks];
 *   - expandable_segments: a stream and pool has one range of addresses, mapped from the front in pages of 2 MiB
 *     (small) or 20 MiB (large) as far as needed; blocks are split down to 512 B; a page goes back only when the
 *     device has no room [try_allocate_expandable_block, map_block, unmap_block].
 *   - a freed block that another stream uses counts as free at once and can be used again when that stream has come so
 *     far; running out of room waits for all of them [recordStream, free, insert_events, process_events,
 *     synchronize_and_free_events].
 * Not replayed: CUDA graph pools, roundup_power2_divisions by ranges of sizes.
 * Addresses of new segments are assumed to rise. Deterministic: the same calls give the same answers. */
#ifndef SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_H
#define SPW_SIM_MEMORY_ALLOCATOR_ALLOCATOR_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_ALLOCATOR_STREAMS = 4 };

typedef struct spw_allocator_settings {
    uint64_t device_bytes;               /* what the device has for the process; 0 = no limit */
    uint64_t fraction_bytes;             /* what a fraction set for the process allows it; 0 = none was set */
    uint64_t max_split_bytes;            /* 0 = no limit; else more than 20 MiB */
    double garbage_collection_threshold; /* part of fraction_bytes, 0 = off, else below 1 */
    size_t roundup_power2_divisions;     /* 0 or 1 = off, else a power of two up to 64 */
    bool expandable_segments;
    bool
        addresses_fall; /* each new segment lies below the one before, as cudaMalloc's of recent drivers do */
} spw_allocator_settings;

typedef struct spw_allocator_stats {
    uint64_t requested_bytes, allocated_bytes, reserved_bytes; /* allocated = whole blocks in use */
    uint64_t requested_peak_bytes, allocated_peak_bytes, reserved_peak_bytes;
    uint64_t retries; /* times that free segments were given back to make room */
    uint64_t refused; /* out-of-memory errors */
    uint64_t segments;
} spw_allocator_stats;

typedef struct spw_allocator spw_allocator;

/* An allocation. */
typedef struct spw_allocation {
    int32_t block;
} spw_allocation;
enum { SPW_ALLOCATION_EMPTY = -1, SPW_ALLOCATION_REFUSED = -2 }; /* values of block */

/* What the process may reserve: the smaller of what the device has and of what its fraction allows; 0 = no limit. */
uint64_t spw_allocator_limit_bytes(const spw_allocator_settings *settings);

/* SPW_EARG when a setting is out of its range. */
SPW_MUST_CHECK spw_status spw_allocator_create(const spw_allocator_settings *settings, spw_allocator **out);
/* Another one that does the same from here on; allocations have the same numbers in both. */
SPW_MUST_CHECK spw_status spw_allocator_copy(const spw_allocator *from, spw_allocator **out);
void spw_allocator_destroy(spw_allocator *allocator); /* NULL is fine */

/* out->block is SPW_ALLOCATION_REFUSED when the device is out of memory, which is a result and not a failure. A
 * failure (SPW_ENOMEM of this program, SPW_EARG) leaves the allocator fit for destruction only. */
SPW_MUST_CHECK spw_status spw_allocator_allocate(spw_allocator *allocator, size_t stream, uint64_t bytes,
                                                 spw_allocation *out);
/* SPW_EARG when nothing is allocated there. Empty and refused allocations are fine. */
SPW_MUST_CHECK spw_status spw_allocator_free(spw_allocator *allocator, spw_allocation allocation);

/* `stream` works on the allocation too (Tensor.record_stream): freed, it waits for that stream. SPW_EARG as above, or when
 * there is no such stream. */
SPW_MUST_CHECK spw_status spw_allocator_record_stream(spw_allocator *allocator, spw_allocation allocation,
                                                      size_t stream);
/* `stream` has done all its work: what waits for it and no other stream can be used again. */
void spw_allocator_stream_done(spw_allocator *allocator, size_t stream);

spw_allocator_stats spw_allocator_get_stats(const spw_allocator *allocator);
/* Peaks begin anew at what is held now (torch.cuda.reset_peak_memory_stats). */
void spw_allocator_reset_peaks(spw_allocator *allocator);
/* Before anybody asks for the peaks so many bytes more than now will be requested at once: what is allocated peaks as high at least. */
void spw_allocator_expect(spw_allocator *allocator, uint64_t more);
/* Gives every wholly free segment, or page, back (torch.cuda.empty_cache). */
SPW_MUST_CHECK spw_status spw_allocator_empty_cache(spw_allocator *allocator);
/* A number of all blocks and segments, and of which of them `live` [slots] has, slot by slot: where two are equal, equal calls do
 * the same from here on, whatever came before. 0: garbage is collected by time, of which no number is made. Two states have the
 * same number by chance alone, in one of 2^64 cases. */
uint64_t spw_allocator_state(const spw_allocator *allocator, const spw_allocation *live, size_t slots);
/* The same of the free blocks alone, sooner: where two are unequal, the numbers of all blocks are. */
uint64_t spw_allocator_glance(const spw_allocator *allocator);
/* The largest free block that shares its segment with one in use: reserved, and of use only to what fits into it. */
uint64_t spw_allocator_stranded_bytes(const spw_allocator *allocator);

#endif
