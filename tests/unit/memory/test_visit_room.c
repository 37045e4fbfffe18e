/* Visits that find room in free segments, or do not, however it is told: replayed as visits against event by event. Sums, peaks and every
 * block are to be the same. */
#include "sim/memory/allocator/event_list.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

enum { SLOTS = 32, MOST_SEGMENTS = 8 };

static const uint64_t MIB = (uint64_t)1 << 20;

static void add(spw_event_list *list, uint32_t slot, uint64_t bytes, bool born, uint8_t stream) {
    const spw_memory_event event = {.bytes = bytes, .slot = slot, .stream = stream, .born = born};
    CHECK_OK(spw_event_list_append(list, event));
}

static uint64_t begin_random(uint64_t seed) { return seed * UINT64_C(0x9e3779b97f4a7c15) + 1; }

/* Free segments of these bytes, in turn of so many streams. */
typedef struct segments {
    uint64_t bytes[MOST_SEGMENTS];
    size_t count;
    uint8_t streams;
    bool addresses_fall;
} segments;

/* Gives what is reserved behind it. */
static uint64_t check_same(spw_event_list *list, const segments *free) {
    const spw_allocator_settings settings = {.addresses_fall = free->addresses_fall};
    spw_allocator *allocator[2] = {NULL, NULL};
    spw_allocation live[2][SLOTS], segment[MOST_SEGMENTS];
    spw_list_replay replay[2];
    CHECK_OK(spw_event_list_find_visits(list, NULL, 0));
    CHECK_OK(spw_event_list_outline(list));
    CHECK(list->visits >= 1);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < SLOTS; i++) live[k][i].block = SPW_ALLOCATION_EMPTY;
        CHECK_OK(spw_allocator_create(&settings, &allocator[k]));
        for (size_t i = 0; i < free->count; i++)
            CHECK_OK(spw_allocator_allocate(allocator[k], (uint8_t)(i % free->streams), free->bytes[i],
                                            &segment[i]));
        for (size_t i = 0; i < free->count; i++) CHECK_OK(spw_allocator_free(allocator[k], segment[i]));
    }
    CHECK_OK(spw_event_list_replay(list, allocator[0], live[0], &replay[0]));
    CHECK_OK(spw_event_list_replay_cycles(list, allocator[1], live[1], SLOTS, 0, &replay[1]));
    CHECK(same_stats(&replay[0].after, &replay[1].after));
    CHECK(spw_allocator_state(allocator[0], live[0], SLOTS) ==
          spw_allocator_state(allocator[1], live[1], SLOTS));
    for (int k = 0; k < 2; k++) spw_allocator_destroy(allocator[k]);
    return replay[0].after.reserved_peak_bytes;
}

/* A visit of large requests alone, of which it needs nearly all. */
static void check_full(uint64_t seed, uint8_t streams) {
    enum { TENSORS = 24 };
    segments free = {.count = 6, .streams = streams, .addresses_fall = seed % 2 == 0};
    spw_event_list list = {.events = 0};
    uint64_t state = begin_random(seed);
    uint32_t there[TENSORS];
    size_t count = 0;
    for (uint32_t born = 0; born < TENSORS || count > 0;) {
        if (born < TENSORS && (count == 0 || (count < 8 && next_random(&state) % 3 > 0))) {
            add(&list, born, (2 + next_random(&state) % 12) * 2 * MIB, true, (uint8_t)(born % streams));
            there[count++] = born++;
        } else {
            const size_t which = next_random(&state) % count;
            add(&list, there[which], 0, false, 0);
            there[which] = there[--count];
        }
    }
    for (size_t i = 0; i < free.count; i++) free.bytes[i] = (10 + next_random(&seed) % 16) * 2 * MIB;
    (void)check_same(&list, &free);
    spw_event_list_destroy(&list);
}

/* Two visits of one form and of other bytes, in which tensors die early for others that need their room, on segments that are hardly larger
 * than these. In half of them the first tensor stays to the end. */
static void check_turns(uint64_t seed) {
    enum { TENSORS = 16, MOST = 5, SIZES = 4 };
    const size_t stay = seed % 4 < 2;
    segments free = {.count = 5, .streams = 1, .addresses_fall = seed % 2 == 0};
    spw_event_list list = {.events = 0};
    uint64_t state = begin_random(seed), sizes = seed;
    for (int visit = 0; visit < 2; visit++) {
        uint64_t order = seed, bytes[SIZES];
        uint32_t there[TENSORS];
        size_t count = 0;
        for (size_t i = 0; i < SIZES; i++) bytes[i] = (6 + next_random(&state) % 12) * 2 * MIB - 512;
        for (uint32_t born = 0; born < TENSORS || count > 0;) {
            const size_t stays = born < TENSORS ? stay : 0;
            if (born < TENSORS && (count <= stays || (count < MOST && next_random(&order) % 3 > 0))) {
                add(&list, born, bytes[next_random(&order) % SIZES], true, 0);
                there[count++] = born++;
            } else {
                const size_t which = stays + next_random(&order) % (count - stays);
                add(&list, there[which], 0, false, 0);
                there[which] = there[--count];
            }
        }
    }
    for (size_t i = 0; i < free.count; i++) free.bytes[i] = (6 + next_random(&sizes) % 14) * 2 * MIB;
    (void)check_same(&list, &free);
    spw_event_list_destroy(&list);
}

/* The first tensor leaves room behind it, which another one takes; when both are dead, the segment is one room and not two: the third
 * takes the other segment, as it is smaller, so that of the last two only one fits. Slot 5 keeps all of it together, in a segment of its
 * own; what is there before it is the peak. */
static void check_first_dies(void) {
    static const struct step {
        uint32_t slot;
        uint64_t mib; /* 0: it dies */
    } steps[] = {{6, 130}, {7, 66}, {8, 20}, {6, 0},  {7, 0},  {8, 0}, {0, 70}, {5, 2},
                 {1, 58},  {0, 0},  {1, 0},  {0, 70}, {1, 58}, {0, 0}, {1, 0},  {2, 50},
                 {3, 70},  {4, 66}, {2, 0},  {3, 0},  {4, 0},  {5, 0}};
    const segments free = {.bytes = {130 * MIB, 66 * MIB, 20 * MIB}, .count = 3, .streams = 1};
    spw_event_list list = {.events = 0};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        add(&list, steps[i].slot, steps[i].mib * MIB, steps[i].mib > 0, 0);
    CHECK(check_same(&list, &free) == (130 + 66 + 20 + 66) * MIB);
    CHECK(list.visits == 2);
    spw_event_list_destroy(&list);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 2000; seed++) check_full(seed, seed % 5 == 0 ? 2 : 1);
    for (uint64_t seed = 1; seed <= 4000; seed++) check_turns(seed);
    check_first_dies();
    return check_done();
}
