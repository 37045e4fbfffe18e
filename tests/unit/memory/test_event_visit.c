/* Visits of event lists: which there are, by hand; and lists that are replayed with them against lists that are replayed event by
 * event: sums, peaks and every block, whatever the allocator is set to. */
#include "sim/memory/allocator/event_list.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

#include <stdio.h>

enum { SLOTS = 96, ROUNDS = 60, LISTS = 6, KEPT = 24 };

static const uint64_t MIB = (uint64_t)1 << 20;

static void add(spw_event_list *list, uint32_t slot, uint64_t bytes, bool born, bool backward) {
    const spw_memory_event event = {.bytes = bytes, .slot = slot, .born = born, .backward = backward};
    CHECK_OK(spw_event_list_append(list, event));
}

/* On a stream of its own. */
static void add_beside(spw_event_list *list, uint32_t slot, uint64_t bytes, uint8_t stream) {
    const spw_memory_event event = {.bytes = bytes, .slot = slot, .stream = stream, .born = true};
    CHECK_OK(spw_event_list_append(list, event));
}

static void check_found(void) {
    spw_event_list list = {.events = 0}, copy = {.events = 0};
    add(&list, 0, 5, true, false);  /* 0: stays until long after */
    add(&list, 1, 5, true, false);  /* 1: a visit of 1 and 2, which overlap, */
    add(&list, 2, 5, true, false);  /* 2 */
    add(&list, 1, 5, false, false); /* 3 */
    add(&list, 2, 5, false, false); /* 4: to here */
    add(&list, 1, 5, true, false);  /* 5: as short as can be */
    add(&list, 1, 5, false, false); /* 6 */
    add(&list, 1, 5, true, false);  /* 7: one of an earlier list dies within */
    add(&list, 2, 5, true, false);  /* 8 */
    add(&list, 4, 5, false, false); /* 9 */
    add(&list, 2, 5, false, false); /* 10 */
    add(&list, 1, 5, false, false); /* 11 */
    add(&list, 1, 5, true, false);  /* 12: another pass begins within, so that only its own is a visit */
    add(&list, 2, 5, true, true);   /* 13 */
    add(&list, 3, 5, true, true);   /* 14 */
    add(&list, 3, 5, false, true);  /* 15 */
    add(&list, 2, 5, false, true);  /* 16 */
    add(&list, 1, 5, false, true);  /* 17 */
    add(&list, 1, 5, true,
        false); /* 18: an earlier one dies within, so that only what is behind it is a visit */
    add(&list, 0, 5, false, false); /* 19 */
    add(&list, 2, 5, true, false);  /* 20 */
    add(&list, 3, 5, true, false);  /* 21 */
    add(&list, 2, 5, false, false); /* 22 */
    add(&list, 3, 5, false, false); /* 23 */
    add(&list, 1, 5, false, false); /* 24 */
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_copy(&list, &copy));
    CHECK(list.visits == 4 && list.visit[0].begin == 1 && list.visit[0].end == 5);
    CHECK(list.visit[1].begin == 5 && list.visit[1].end == 7);
    CHECK(list.visit[2].begin == 13 && list.visit[2].end == 17);
    CHECK(list.visit[3].begin == 20 && list.visit[3].end == 24);
    CHECK(copy.visits == 4 && copy.visit[2].begin == 13 && copy.visit[2].end == 17);
    spw_event_list_clear(&list);
    CHECK(list.visits == 0);
    spw_event_list_destroy(&list);
    spw_event_list_destroy(&copy);
}

/* Few sizes, so that blocks are equal, or many; small and large ones. */
static uint64_t random_bytes(uint64_t *state, bool few) {
    const uint64_t chance = next_random(state) % 8, many = next_random(state);
    if (chance == 0) return few ? 3 * MIB : many % (40 * MIB);
    if (chance < 3) return few ? 2 * MIB + 512 : many % (6 * MIB);
    if (chance == 3) return 0;
    return few ? 4096 * (1 + many % 3) : many % (MIB + 2048);
}

/* Tensors that stay come and go; between them are visits of up to 14 tensors that die in any order, some with a mark within. */
static void fill(spw_event_list *list, bool held[KEPT], uint64_t *state, bool few, bool streams) {
    for (int round = 0; round < ROUNDS; round++) {
        const uint32_t kept = (uint32_t)(next_random(state) % KEPT),
                       first = KEPT + 16 * (uint32_t)(round % 4);
        uint32_t live[16];
        size_t lives = 0;
        add(list, kept, random_bytes(state, few), !held[kept], false);
        held[kept] = !held[kept];
        for (uint32_t born = 0; born < 14 || lives > 0;) {
            if (born == 7 && list->marks == (size_t)round / 8) CHECK_OK(spw_event_list_mark(list));
            if (born < 14 && (lives == 0 || next_random(state) % 2 == 0)) {
                live[lives++] = first + born;
                const uint64_t bytes = random_bytes(state, few);
                add_beside(list, first + born++, bytes, streams ? (uint8_t)(next_random(state) % 3) : 0);
            } else {
                const size_t which = next_random(state) % lives;
                add(list, live[which], 0, false, false);
                live[which] = live[--lives];
            }
        }
    }
}

/* The same lists, one after the other, through two allocators. */
static void check_same(const spw_allocator_settings *settings, uint64_t seed, bool few) {
    spw_allocator *one = NULL, *two = NULL;
    spw_allocation plain[SLOTS], quick[SLOTS];
    bool held[KEPT] = {false}, refused = false;
    spw_event_list list = {.events = 0};
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    CHECK_OK(spw_allocator_create(settings, &one));
    CHECK_OK(spw_allocator_create(settings, &two));
    if (seed % 3 > 0) CHECK_OK(spw_event_list_remember(&list));
    for (size_t i = 0; i < SLOTS; i++) plain[i].block = quick[i].block = SPW_ALLOCATION_EMPTY;
    for (int i = 0; i < LISTS && !refused; i++) {
        spw_list_replay a, b;
        spw_event_list_clear(&list);
        fill(&list, held, &state, few, seed % 4 == 0);
        CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
        CHECK_OK(spw_event_list_outline(&list));
        CHECK(list.visits >= ROUNDS / 2);
        CHECK_OK(spw_event_list_replay(&list, one, plain, &a));
        const uint64_t most = a.after.requested_peak_bytes - a.before.requested_bytes,
                       sure = seed % 3 == 0 ? 0 : most + (seed % 3 == 1 && i == LISTS - 1 ? 512 : 0);
        CHECK_OK(spw_event_list_replay_cycles(&list, two, quick, SLOTS, sure, &b));
        CHECK(b.unsure == (sure > most));
        CHECK(same_stats(&a.before, &b.before));
        if (sure > 0) b.after_forward.allocated_peak_bytes = a.after_forward.allocated_peak_bytes;
        CHECK(same_stats(&a.after_forward, &b.after_forward));
        if (b.unsure) b.after.allocated_peak_bytes = a.after.allocated_peak_bytes;
        CHECK(same_stats(&a.after, &b.after));
        CHECK(a.refused == b.refused && (!a.refused || a.refused_event == b.refused_event));
        CHECK(spw_allocator_state(one, plain, SLOTS) == spw_allocator_state(two, quick, SLOTS));
        CHECK(spw_allocator_stranded_bytes(one) == spw_allocator_stranded_bytes(two));
        refused = a.refused;
    }
    spw_event_list_destroy(&list);
    spw_allocator_destroy(one);
    spw_allocator_destroy(two);
}

/* Four small blocks of 1 MiB, of which one segment of 2 MiB holds two: the third opens another one, though as many fitted when they were
 * halves. One comes twice, so that halves are more than the segment together. Beside them is what takes nothing. */
static void check_small(void) {
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_allocator *allocator = NULL;
    spw_allocation live[5];
    spw_event_list list = {.events = 0};
    spw_list_replay replay;
    for (int i = 0; i < 5; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_allocator_create(&settings, &allocator));
    CHECK_OK(spw_event_list_remember(&list));
    for (int turn = 0; turn < 4; turn++) {
        const uint64_t bytes = turn < 2 ? MIB / 2 : MIB;
        spw_event_list_clear(&list);
        for (uint32_t i = 0; i < 5; i++) add(&list, i, i < 4 ? bytes : 0, true, false);
        for (int born = 0; born < 2; born++) add(&list, 3, bytes, born == 1, false);
        for (uint32_t i = 0; i < 5; i++) add(&list, i, i < 4 ? bytes : 0, false, false);
        CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
        CHECK_OK(spw_event_list_outline(&list));
        CHECK(list.visits == 1);
        CHECK_OK(spw_event_list_replay_cycles(&list, allocator, live, 5, 0, &replay));
        CHECK(replay.after.reserved_bytes == (turn < 2 ? 2 : 4) * MIB);
        CHECK(replay.after.allocated_peak_bytes == 4 * bytes &&
              replay.after.requested_peak_bytes == 4 * bytes);
    }
    spw_event_list_destroy(&list);
    spw_allocator_destroy(allocator);
}

/* A free segment of 100 MiB, and in a visit two free parts of 20 MiB in it. The lower one is taken, so that what is freed below it finds no
 * free neighbour, and 24 MiB do not fit. */
static void check_lowest(void) {
    static const struct {
        uint32_t slot, mib;
        bool born;
    } event[] = {{0, 4, true},   {1, 20, true},  {2, 4, true},   {3, 20, true}, {4, 52, true},
                 {1, 20, false}, {3, 20, false}, {5, 20, true},  {0, 4, false}, {6, 24, true},
                 {6, 24, false}, {5, 20, false}, {4, 52, false}, {2, 4, false}};
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_allocator *allocator = NULL;
    spw_allocation live[7], first;
    spw_event_list list = {.events = 0};
    spw_list_replay replay;
    for (int i = 0; i < 7; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_allocator_create(&settings, &allocator));
    CHECK_OK(spw_allocator_allocate(allocator, 0, 100 * MIB, &first));
    CHECK_OK(spw_allocator_free(allocator, first));
    for (size_t i = 0; i < sizeof event / sizeof *event; i++)
        add(&list, event[i].slot, event[i].mib * MIB, event[i].born, false);
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_outline(&list));
    CHECK(list.visits == 1 && list.visit[0].requested == 100 * MIB);
    CHECK_OK(spw_event_list_replay_cycles(&list, allocator, live, 7, 0, &replay));
    CHECK(replay.after.reserved_bytes == 124 * MIB);
    spw_event_list_destroy(&list);
    spw_allocator_destroy(allocator);
}

/* Two free segments of 20 MiB hold two of three blocks of 12 MiB, though these are less than both together. More was there at once before,
 * so that the peak does not ask for pieces. */
static void check_sums(uint32_t larges, uint64_t reserved) {
    enum { LARGES = 3 };
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_allocator *allocator = NULL;
    spw_allocation live[LARGES], first[2];
    spw_event_list list = {.events = 0};
    spw_list_replay replay;
    for (int i = 0; i < LARGES; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_allocator_create(&settings, &allocator));
    for (int i = 0; i < 2; i++) CHECK_OK(spw_allocator_allocate(allocator, 0, 20 * MIB, &first[i]));
    for (int i = 0; i < 2; i++) CHECK_OK(spw_allocator_free(allocator, first[i]));
    for (uint32_t i = 0; i < 2; i++) add(&list, i, 20 * MIB, true, false);
    for (uint32_t i = 0; i < 2; i++) add(&list, i, 20 * MIB, false, false);
    for (uint32_t i = 0; i < larges; i++) add(&list, i, 12 * MIB, true, false);
    for (uint32_t i = 0; i < larges; i++) add(&list, i, 12 * MIB, false, false);
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_outline(&list));
    CHECK(list.visits == 2);
    CHECK_OK(spw_event_list_replay_cycles(&list, allocator, live, LARGES, 0, &replay));
    CHECK(replay.after.reserved_bytes == reserved);
    spw_event_list_destroy(&list);
    spw_allocator_destroy(allocator);
}

/* Free segments of 40 MiB, of which as many tensors take some whole and cut the others. 32 at once are a visit; more, up to more than a
 * word has bits, are followed event by event. */
static void check_places(uint32_t wholes, uint32_t tensors) {
    enum { MOST = 32 };
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_allocator *one = NULL, *two = NULL;
    spw_allocation plain[SLOTS], quick[SLOTS], first[2];
    spw_event_list list = {.events = 0};
    spw_list_replay a, b;
    CHECK_OK(spw_allocator_create(&settings, &one));
    CHECK_OK(spw_allocator_create(&settings, &two));
    for (uint32_t i = 0; i < tensors; i++) {
        CHECK_OK(spw_allocator_allocate(one, 0, 40 * MIB, &plain[i]));
        CHECK_OK(spw_allocator_allocate(two, 0, 40 * MIB, &quick[i]));
    }
    for (uint32_t i = 0; i < tensors; i++) {
        first[0] = plain[i], first[1] = quick[i];
        CHECK_OK(spw_allocator_free(one, first[0]));
        CHECK_OK(spw_allocator_free(two, first[1]));
        plain[i].block = quick[i].block = SPW_ALLOCATION_EMPTY;
    }
    for (uint32_t i = 0; i < tensors; i++) add(&list, i, (i < wholes ? 40 : 21) * MIB, true, false);
    for (uint32_t i = 0; i < tensors; i++) add(&list, i, 0, false, false);
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_outline(&list));
    CHECK(list.visits == (tensors <= MOST ? 1 : 0));
    CHECK_OK(spw_event_list_replay(&list, one, plain, &a));
    CHECK_OK(spw_event_list_replay_cycles(&list, two, quick, tensors, 0, &b));
    CHECK(same_stats(&a.after, &b.after) && b.after.reserved_bytes == tensors * 40 * MIB);
    CHECK(spw_allocator_state(one, plain, tensors) == spw_allocator_state(two, quick, tensors));
    spw_event_list_destroy(&list);
    spw_allocator_destroy(one);
    spw_allocator_destroy(two);
}

/* Visits that are nearly of one form: equal bytes, another stream, others, another order of deaths, and equal ones again. */
static void check_forms(void) {
    static const struct {
        int order[6]; /* tensors from 1 on; negative: it dies */
        uint64_t mib[3], most;
        uint8_t stream; /* of tensor 2 */
    } visit[] = {{{1, 2, -1, 3, -2, -3}, {2, 2, 2}, 4, 0}, {{1, 2, -1, 3, -2, -3}, {2, 2, 2}, 4, 1},
                 {{1, 2, -1, 3, -2, -3}, {2, 6, 2}, 8, 0}, {{1, 2, -1, 3, -2, -3}, {1, 2, 8}, 10, 0},
                 {{1, 2, -2, 3, -1, -3}, {1, 2, 8}, 9, 0}, {{1, 2, -1, 3, -2, -3}, {2, 2, 2}, 4, 0}};
    enum { VISITS = sizeof visit / sizeof *visit };
    spw_event_list list = {.events = 0};
    for (size_t v = 0; v < VISITS; v++) {
        for (size_t i = 0; i < 6; i++) {
            const int order = visit[v].order[i];
            const uint32_t slot = (uint32_t)(order > 0 ? order : -order) - 1;
            const spw_memory_event e = {.bytes = visit[v].mib[slot] * MIB,
                                        .slot = slot,
                                        .born = order > 0,
                                        .stream = slot == 1 ? visit[v].stream : 0};
            CHECK_OK(spw_event_list_append(&list, e));
        }
    }
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_outline(&list));
    CHECK(list.visits == VISITS && list.visit[VISITS - 1].form < VISITS - 1);
    for (size_t v = 0; v < VISITS; v++) {
        CHECK(list.visit[v].requested == visit[v].most * MIB);
        CHECK(list.visit[v].total.others == (v == 1));
    }
    spw_event_list_destroy(&list);
}

/* What is free on one stream serves no other, however much it is. */
static void check_streams(void) {
    const spw_allocator_settings settings = {.device_bytes = 0};
    spw_allocator *allocator = NULL;
    spw_allocation live[3], first;
    spw_event_list list = {.events = 0};
    spw_list_replay replay;
    for (int i = 0; i < 3; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_allocator_create(&settings, &allocator));
    CHECK_OK(spw_allocator_allocate(allocator, 0, 400 * MIB, &first));
    CHECK_OK(spw_allocator_free(allocator, first));
    add(&list, 2, 400 * MIB, true, false); /* so that the visit is below the peak */
    add(&list, 2, 400 * MIB, false, false);
    for (uint32_t i = 0; i < 2; i++) add_beside(&list, i, 12 * MIB, 1);
    for (uint32_t i = 0; i < 2; i++) add(&list, i, 0, false, false);
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK_OK(spw_event_list_outline(&list));
    CHECK(list.visits == 2);
    CHECK_OK(spw_event_list_replay_cycles(&list, allocator, live, 3, 0, &replay));
    CHECK(replay.after.reserved_bytes == 424 * MIB);
    spw_event_list_destroy(&list);
    spw_allocator_destroy(allocator);
}

int main(void) {
    const spw_allocator_settings settings[] = {
        {.device_bytes = 0},
        {.addresses_fall = true},
        {.device_bytes = 700 * MIB},
        {.device_bytes = 400 * MIB},
        {.roundup_power2_divisions = 4},
        {.max_split_bytes = 24 * MIB},
        {.expandable_segments = true, .device_bytes = 600 * MIB},
        {.fraction_bytes = 600 * MIB, .garbage_collection_threshold = 0.5},
    };
    check_found();
    check_small();
    check_lowest();
    for (uint32_t wholes = 0; wholes < 4; wholes++) check_places(wholes, 31 + wholes);
    check_places(0, 70);
    check_forms();
    check_streams();
    check_sums(2, 40 * MIB);
    check_sums(3, 52 * MIB);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (uint64_t seed = 1; seed <= 12; seed++) check_same(&settings[i], seed, seed % 2 == 0);
    return check_done();
}
