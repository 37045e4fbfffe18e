/* PyTorch's caching allocator, replayed: by pencil and paper, then properties over random sequences. */
#include "sim/memory/allocator/allocator.h"

#include "base/memory.h"
#include "base/progress.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

static spw_allocator *make(spw_allocator_settings settings) {
    spw_allocator *a = NULL;
    CHECK_OK(spw_allocator_create(&settings, &a));
    return a;
}

static spw_allocation take(spw_allocator *a, uint64_t bytes) {
    spw_allocation got = {SPW_ALLOCATION_REFUSED};
    CHECK_OK(spw_allocator_allocate(a, 0, bytes, &got));
    return got;
}

static void give(spw_allocator *a, spw_allocation allocation) { CHECK_OK(spw_allocator_free(a, allocation)); }

static void expect(const spw_allocator *a, uint64_t allocated, uint64_t reserved) {
    const spw_allocator_stats s = spw_allocator_get_stats(a);
    CHECK(s.allocated_bytes == allocated);
    CHECK(s.reserved_bytes == reserved);
}

/* --- Pencil and paper --- */

static void test_rounding_and_pools(void) {
    spw_allocator *a = make((spw_allocator_settings){0});
    CHECK(take(a, 0).block == SPW_ALLOCATION_EMPTY);
    expect(a, 0, 0);
    take(a, 1); /* 512 B of a small segment */
    expect(a, 512, 2 * MIB);
    take(a, MIB); /* still small, and there is room */
    expect(a, 512 + MIB, 2 * MIB);
    take(a, MIB); /* no room any more */
    expect(a, 512 + 2 * MIB, 4 * MIB);
    take(a, MIB + 1); /* large: 20 MiB segment, split */
    expect(a, 1024 + 3 * MIB, 24 * MIB);
    take(a, 10 * MIB); /* the rest of that segment holds it */
    expect(a, 1024 + 13 * MIB, 24 * MIB);
    take(a, 10 * MIB + 1); /* own segment of 12 MiB, split: 2 MiB - 512 B > 1 MiB remain */
    expect(a, 1536 + 23 * MIB, 36 * MIB);
    take(a, 11 * MIB + 1); /* 12 MiB; less than 1 MiB would remain: not split, the whole block counts */
    expect(a, 1536 + 35 * MIB, 48 * MIB);
    CHECK(spw_allocator_get_stats(a).requested_bytes ==
          1 + 2 * MIB + (MIB + 1) + 10 * MIB + (10 * MIB + 1) + (11 * MIB + 1));
    spw_allocator_destroy(a);
}

static void test_best_fit_and_merging(void) {
    spw_allocator *a = make((spw_allocator_settings){0});
    spw_allocation part[5];
    for (size_t i = 0; i < 5; i++) part[i] = take(a, (10 + 2 * i) * MIB); /* five segments, filled */
    expect(a, 70 * MIB, 70 * MIB);
    give(a, part[4]);                     /* 18 */
    give(a, part[2]);                     /* 14 */
    spw_allocation x = take(a, 13 * MIB); /* the 14, whole: exactly 1 MiB would remain */
    expect(a, (10 + 12 + 16 + 14) * MIB, 70 * MIB);
    spw_allocation y = take(a, 13 * MIB); /* the 18, split */
    expect(a, (10 + 12 + 16 + 14 + 13) * MIB, 70 * MIB);
    CHECK(spw_allocator_stranded_bytes(a) == 5 * MIB);
    give(a, y); /* 13 and 5 join again */
    CHECK(spw_allocator_stranded_bytes(a) == 0);
    y = take(a, 18 * MIB);
    expect(a, 70 * MIB, 70 * MIB);
    give(a, x);
    CHECK_STATUS(spw_allocator_free(a, x), SPW_EARG);
    give(a, y);
    CHECK_OK(spw_allocator_empty_cache(a));
    expect(a, 38 * MIB, 38 * MIB);
    spw_allocator_destroy(a);
}

/* A block a little too small is of no use: this is how reserved memory runs away. */
static void test_stranding(void) {
    for (int expandable = 0; expandable < 2; expandable++) {
        spw_allocator *a = make((spw_allocator_settings){.expandable_segments = expandable == 1});
        for (uint64_t step = 0; step < 4; step++) {
            spw_allocation kept = take(a, 400 * MIB), grows = take(a, (100 + 20 * step) * MIB);
            give(a, kept);
            give(a, grows);
        }
        expect(a, 0, expandable == 1 ? 560 * MIB : (400 + 100 + 120 + 140 + 160) * MIB);
        spw_allocator_destroy(a);
    }
}

static void test_retry_and_refusal(void) {
    spw_allocator *a = make((spw_allocator_settings){.device_bytes = 100 * MIB});
    spw_allocation big = take(a, 60 * MIB);
    give(a, big);
    take(a, 80 * MIB); /* no room until the 60 go back */
    expect(a, 80 * MIB, 80 * MIB);
    CHECK(spw_allocator_get_stats(a).retries == 1);
    CHECK(take(a, 30 * MIB).block == SPW_ALLOCATION_REFUSED);
    CHECK(spw_allocator_get_stats(a).refused == 1);
    expect(a, 80 * MIB, 80 * MIB);
    spw_allocator_destroy(a);
}

static void test_max_split(void) {
    spw_allocator *a = make((spw_allocator_settings){.device_bytes = 200 * MIB, .max_split_bytes = 32 * MIB});
    spw_allocation big = take(a, 100 * MIB);
    give(a, big);
    take(a, 24 * MIB); /* must not break the 100 */
    expect(a, 24 * MIB, 124 * MIB);
    give(a, take(a, 90 * MIB)); /* 10 MiB unused: allowed, not split */
    expect(a, 24 * MIB, 124 * MIB);
    take(a, 80 * MIB); /* 20 MiB unused: a new segment; it does not fit, so the 100 goes back first */
    expect(a, 104 * MIB, 204 * MIB - 100 * MIB);
    CHECK(spw_allocator_get_stats(a).retries == 0);
    spw_allocator_destroy(a);
}

static void test_garbage_collection(void) {
    spw_allocator *a = make((spw_allocator_settings){
        .device_bytes = 2000 * MIB, .fraction_bytes = 1000 * MIB, .garbage_collection_threshold = 0.1});
    spw_allocation old = take(a, 80 * MIB);
    give(a, old);
    take(a, 90 * MIB); /* 80 reserved: below the threshold of 100 */
    expect(a, 90 * MIB, 170 * MIB);
    take(a, 100 * MIB); /* above it: the 80 that waits goes back */
    expect(a, 190 * MIB, 190 * MIB);
    CHECK(spw_allocator_get_stats(a).retries == 0);
    spw_allocator_destroy(a);
}

/* Without a fraction of the device the threshold does nothing: the same calls as above. */
static void test_threshold_alone(void) {
    spw_allocator *a =
        make((spw_allocator_settings){.device_bytes = 1000 * MIB, .garbage_collection_threshold = 0.1});
    give(a, take(a, 80 * MIB));
    take(a, 90 * MIB);
    take(a, 100 * MIB);
    expect(a, 190 * MIB, 270 * MIB);
    spw_allocator_destroy(a);
}

/* A fraction is a limit like that of the device: the smaller one holds. */
static void test_fraction(void) {
    static const spw_allocator_settings settings[] = {
        {.fraction_bytes = 100 * MIB},
        {.device_bytes = 200 * MIB, .fraction_bytes = 100 * MIB},
        {.device_bytes = 100 * MIB, .fraction_bytes = 200 * MIB}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        spw_allocator *a = make(settings[i]);
        CHECK(spw_allocator_limit_bytes(&settings[i]) == 100 * MIB);
        spw_allocation block = take(a, 60 * MIB), none;
        CHECK_OK(spw_allocator_allocate(a, 0, 60 * MIB, &none));
        CHECK(none.block == SPW_ALLOCATION_REFUSED);
        give(a, block);
        take(a, 100 * MIB);
        expect(a, 100 * MIB, 100 * MIB);
        spw_allocator_destroy(a);
    }
}

static void test_expandable(void) {
    spw_allocator *a = make((spw_allocator_settings){.device_bytes = 200 * MIB, .expandable_segments = true});
    spw_allocation x = take(a, 30 * MIB); /* two pages of 20 */
    expect(a, 30 * MIB, 40 * MIB);
    spw_allocation y = take(a, 25 * MIB); /* 10 are there, one page more */
    expect(a, 55 * MIB, 60 * MIB);
    give(a, x);
    spw_allocation z = take(a, 40 * MIB); /* the hole of 30 is too small: grow at the end */
    expect(a, 65 * MIB, 100 * MIB);
    CHECK_OK(spw_allocator_empty_cache(a)); /* of the hole of 30, one page is whole */
    expect(a, 65 * MIB, 80 * MIB);
    x = take(a, 28 * MIB); /* maps the page again */
    expect(a, 93 * MIB, 100 * MIB);
    give(a, x);
    give(a, y);
    give(a, z);
    CHECK_OK(spw_allocator_empty_cache(a));
    expect(a, 0, 0);
    CHECK(take(a, 210 * MIB).block == SPW_ALLOCATION_REFUSED);
    CHECK(take(a, 200 * MIB).block >= 0);
    spw_allocator_destroy(a);
}

/* Divisions 4: between 1 and 2 MiB sizes are 1, 1.25, 1.5, 1.75 and 2 MiB; at most 512 B x 4 stay as they are. */
static void test_power2_divisions(void) {
    spw_allocator *a = make((spw_allocator_settings){.roundup_power2_divisions = 4});
    take(a, 2 * KIB);
    expect(a, 2 * KIB, 2 * MIB);
    take(a, 2 * KIB + 1);
    expect(a, 2 * KIB + 2 * KIB + 512, 2 * MIB);
    const spw_allocation odd = take(a, MIB + 256 * KIB + 1);
    expect(a, 4 * KIB + 512 + MIB + 512 * KIB, 22 * MIB);
    give(a, odd);
    take(a, 2 * MIB); /* a power of two stays */
    expect(a, 4 * KIB + 512 + 2 * MIB, 22 * MIB);
    spw_allocator_destroy(a);
    CHECK_STATUS(spw_allocator_create(&(spw_allocator_settings){.roundup_power2_divisions = 3}, &a),
                 SPW_EARG);
    CHECK_STATUS(spw_allocator_create(&(spw_allocator_settings){.roundup_power2_divisions = 128}, &a),
                 SPW_EARG);
}

/* What another stream uses is free at once in the figures, and of use when that stream is done. */
static void test_record_stream(void) {
    spw_allocator *a = make((spw_allocator_settings){.device_bytes = 120 * MIB});
    spw_allocation one = take(a, 50 * MIB);
    CHECK_OK(spw_allocator_record_stream(a, one, 1));
    CHECK_OK(spw_allocator_record_stream(a, one, 2));
    CHECK_OK(spw_allocator_record_stream(a, one, 0)); /* its own stream: nothing to wait for */
    give(a, one);
    expect(a, 0, 50 * MIB);
    CHECK_STATUS(spw_allocator_free(a, one), SPW_EARG);
    spw_allocation two = take(a, 50 * MIB); /* the first is not of use yet */
    expect(a, 50 * MIB, 100 * MIB);
    give(a, two);
    spw_allocator_stream_done(a, 1);
    two = take(a, 50 * MIB);
    spw_allocation three = take(a, 20 * MIB);
    expect(a, 70 * MIB, 120 * MIB);
    give(a, three);
    spw_allocator_stream_done(a, 2); /* now it is */
    three = take(a, 50 * MIB);
    expect(a, 100 * MIB, 120 * MIB);
    CHECK_OK(spw_allocator_record_stream(a, three, 3));
    give(a, three);
    one = take(a, 60 * MIB); /* no room: it waits for the stream, gives both segments back, and goes on */
    expect(a, 110 * MIB, 110 * MIB);
    CHECK(spw_allocator_get_stats(a).retries == 1 && spw_allocator_get_stats(a).refused == 0);
    CHECK_STATUS(spw_allocator_record_stream(a, one, SPW_ALLOCATOR_STREAMS), SPW_EARG);
    CHECK_STATUS(spw_allocator_record_stream(a, three, 1), SPW_EARG);
    give(a, one);
    give(a, two);
    CHECK_OK(spw_allocator_empty_cache(a));
    expect(a, 0, 0);
    spw_allocator_destroy(a);
}

static void test_settings(void) {
    spw_allocator *a = NULL;
    CHECK_STATUS(spw_allocator_create(&(spw_allocator_settings){.max_split_bytes = 20 * MIB}, &a), SPW_EARG);
    CHECK_STATUS(spw_allocator_create(&(spw_allocator_settings){.garbage_collection_threshold = -0.5}, &a),
                 SPW_EARG);
    CHECK_STATUS(spw_allocator_create(
                     &(spw_allocator_settings){.device_bytes = 1, .garbage_collection_threshold = 1.0}, &a),
                 SPW_EARG);
    CHECK(a == NULL);
}

static void test_host_memory(void) {
    for (int n = 0; n < 16; n++) {
        spw_allocator *a = NULL;
        spw_allocation got;
        spw_alloc_fail_after(n);
        spw_status status = spw_allocator_create(&(spw_allocator_settings){0}, &a);
        if (status == SPW_OK) status = spw_allocator_allocate(a, 0, 5 * MIB, &got);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
        spw_allocator_destroy(a);
    }
}

/* --- Properties --- */

enum { SLOTS = 64, MOVES = 20000 };

/* Layers of a stack whose sizes change from step to step: tensors of one layer die in the order of a stack. */
static void random_walk(spw_allocator *a, uint64_t seed, spw_allocator_stats *out) {
    spw_allocation slot[SLOTS];
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1, live = 0;
    uint64_t bytes[SLOTS];
    size_t used = 0;
    memset(bytes, 0, sizeof bytes);
    for (size_t i = 0; i < MOVES; i++) {
        const uint64_t r = next_random(&state);
        if (used < SLOTS && (used == 0 || r % 5 < 3)) {
            const unsigned shift = (unsigned)(next_random(&state) % 28);
            bytes[used] = 1 + next_random(&state) % (KIB << shift >> 1);
            slot[used] = take(a, bytes[used]);
            if (slot[used].block >= 0) live += bytes[used++];
        } else {
            const size_t at = next_random(&state) % used;
            give(a, slot[at]);
            live -= bytes[at];
            used--;
            slot[at] = slot[used];
            bytes[at] = bytes[used];
        }
        const spw_allocator_stats s = spw_allocator_get_stats(a);
        CHECK(s.allocated_bytes <= s.reserved_bytes);
        CHECK(s.requested_bytes == live && s.requested_bytes <= s.allocated_bytes);
    }
    *out = spw_allocator_get_stats(a);
    while (used > 0) give(a, slot[--used]);
    expect(a, 0, spw_allocator_get_stats(a).reserved_bytes);
    CHECK_OK(spw_allocator_empty_cache(a));
    expect(a, 0, 0);
}

static void test_properties(void) {
    const spw_allocator_settings settings[] = {{0},
                                               {.expandable_segments = true},
                                               {.device_bytes = 4096 * MIB},
                                               {.device_bytes = 4096 * MIB, .expandable_segments = true},
                                               {.device_bytes = 4096 * MIB,
                                                .fraction_bytes = 4096 * MIB,
                                                .max_split_bytes = 64 * MIB,
                                                .garbage_collection_threshold = 0.6}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        for (uint64_t seed = 1; seed <= 3; seed++) {
            spw_allocator_stats once, twice;
            spw_allocator *a = make(settings[i]);
            random_walk(a, seed, &once);
            spw_allocator_destroy(a);
            a = make(settings[i]);
            random_walk(a, seed, &twice);
            spw_allocator_destroy(a);
            CHECK(memcmp(&once, &twice, sizeof once) == 0);
            const uint64_t device = settings[i].device_bytes;
            CHECK(device == 0 || once.reserved_peak_bytes <= device);
        }
    }
}

/* 1000 steps x 60 layers x 60 events, sizes different in every layer. */
/* A copy in the middle of a sequence does the same from there on, whatever becomes of the first. */
static void test_copy(void) {
    const spw_allocator_settings settings[] = {{.device_bytes = 400 * MIB},
                                               {.device_bytes = 400 * MIB, .expandable_segments = true}};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        for (uint64_t seed = 1; seed <= 4; seed++) {
            spw_allocator *one = make(settings[s]), *two = NULL;
            spw_allocator_stats a, b;
            random_walk(one, seed, &a);
            const spw_allocation kept[] = {take(one, 3 * MIB), take(one, 30 * MIB), take(one, 4096)};
            CHECK_OK(spw_allocator_copy(one, &two));
            CHECK(spw_allocator_state(one, kept, 3) == spw_allocator_state(two, kept, 3));
            for (int i = 0; i < 3; i++) give(one, kept[i]), give(two, kept[i]);
            random_walk(one, seed + 9, &a);
            random_walk(two, seed + 9, &b);
            CHECK(memcmp(&a, &b, sizeof a) == 0);
            CHECK(spw_allocator_state(one, NULL, 0) == spw_allocator_state(two, NULL, 0));
            spw_allocator_destroy(one);
            give(two, take(two, 50 * MIB));
            spw_allocator_destroy(two);
        }
    }
}

static void test_speed(void) {
    spw_allocator *a = make((spw_allocator_settings){0});
    uint64_t state = 7;
    const double start_s = spw_clock_s();
    for (size_t step = 0; step < 20; step++) {
        spw_allocation saved[60][10];
        for (size_t layer = 0; layer < 60; layer++) {
            for (size_t i = 0; i < 30; i++) {
                const spw_allocation got = take(a, 1 + next_random(&state) % (64 * MIB));
                if (i < 10) {
                    saved[layer][i] = got;
                } else {
                    give(a, got);
                }
            }
        }
        for (size_t layer = 60; layer-- > 0;) {
            for (size_t i = 0; i < 10; i++) give(a, saved[layer][i]);
        }
    }
    const double seconds = spw_clock_s() - start_s;
    printf("1000 steps x 60 layers x 60 events: %.1f s at this rate\n", seconds * 50.0);
    CHECK(spw_allocator_get_stats(a).allocated_bytes == 0);
    spw_allocator_destroy(a);
}

/* Free blocks between blocks in use, in one expandable segment: whole pages go back in time that does not grow with their square. */
static double release_s(size_t pairs) {
    enum { MOST = 4000 };
    static spw_allocation loose[MOST];
    double start_s = 0.0, end_s = 0.0;
    spw_allocator *a = make((spw_allocator_settings){.expandable_segments = true});
    CHECK(pairs <= MOST);
    for (size_t i = 0; i < pairs; i++) {
        take(a, 2 * MIB); /* stays in use */
        loose[i] = take(a, (i % 16 == 0 ? 44 : 2) * MIB);
    }
    for (size_t i = 0; i < pairs; i++) give(a, loose[i]);
    CHECK(spw_clock_read(CLOCK_PROCESS_CPUTIME_ID, &start_s));
    CHECK_OK(spw_allocator_empty_cache(a));
    CHECK(spw_clock_read(CLOCK_PROCESS_CPUTIME_ID, &end_s));
    spw_allocator_destroy(a);
    return end_s - start_s;
}

static void test_release_speed(void) {
    const double few = release_s(1000), many = release_s(4000);
    printf("empty_cache of 1000 and 4000 free blocks: %.4f and %.4f s\n", few, many);
    CHECK(many < 0.1);
}

int main(void) {
    test_rounding_and_pools();
    test_best_fit_and_merging();
    test_stranding();
    test_retry_and_refusal();
    test_max_split();
    test_garbage_collection();
    test_threshold_alone();
    test_fraction();
    test_expandable();
    test_power2_divisions();
    test_record_stream();
    test_settings();
    test_host_memory();
    test_properties();
    test_copy();
    test_speed();
    test_release_speed();
    return check_done();
}
