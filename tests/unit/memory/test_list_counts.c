/* Lists whose bytes change by laws: what their visits take by counts, and what events are repeated, against plain lists that are replayed
 * event by event. */
#include "sim/memory/allocator/event_list.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

enum { SLOTS = 96 };

static const uint64_t MIB = (uint64_t)1 << 20;

static void add(spw_event_list *list, uint32_t slot, uint64_t bytes, bool born, bool backward) {
    const spw_memory_event event = {.bytes = bytes, .slot = slot, .born = born, .backward = backward};
    CHECK_OK(spw_event_list_append(list, event));
}

enum { KINDS = 6, CELLS = 8, TURNS = 4 };

/* Kinds 0 and 1 have one law, 2 and 3 another; the others do not change. Of each cell (a layer) counts are drawn anew. */
static const spw_size_law law_of[] = {{1, 0}, {1, 0}, {96, 2}, {96, 2}, {7, SPW_NO_COUNT}};

enum { LAWS = sizeof law_of / sizeof *law_of, NONE = CELLS - 1 /* a cell whose bytes never change */ };

static void add_kind(spw_event_list *list, int slot, int kind, int layer, bool born) {
    const spw_memory_event event = {.slot = (uint32_t)slot,
                                    .kind = (uint16_t)kind,
                                    .layer = layer == NONE ? SPW_NO_MOE_LAYER : (uint16_t)layer,
                                    .stream = kind == 1,
                                    .born = born};
    CHECK_OK(spw_event_list_append(list, event));
}

/* Of cell 2 one kind is of the next one, so that there is no visit. */
static void fill_cell(spw_event_list *list, int cell) {
    const int first = CELLS + KINDS * (cell % 2), other = cell == 2 ? cell + 1 : cell;
    for (int kind = 0; kind < KINDS; kind++) {
        add_kind(list, first + kind, kind, kind == 3 ? other : cell, true);
        if (kind % 2 == 1 && cell % 3 > 0)
            add_kind(list, first + kind, kind, kind == 3 ? other : cell, false);
    }
    for (int kind = KINDS; kind-- > 0;)
        if (kind % 2 == 0 || cell % 3 == 0)
            add_kind(list, first + kind, kind, kind == 3 ? other : cell, false);
}

/* What stays of each cell, and visits of two forms. again: these are made once, and repeated. */
static void fill_cells(spw_event_list *list, bool again) {
    size_t begin[2] = {0, 0}, end[2] = {0, 0};
    for (int turn = 0; turn < TURNS; turn++) {
        CHECK_OK(spw_event_list_mark(list));
        for (int cell = 0; cell < CELLS; cell++) {
            const int like = cell % 3 > 0;
            const spw_list_shift shift = {.from = CELLS,
                                          .slots = (uint32_t)(KINDS * (cell % 2 - like)),
                                          .layer = cell == NONE ? SPW_NO_MOE_LAYER : (uint16_t)cell};
            if (turn == 0) add_kind(list, cell, cell % KINDS, cell, true);
            if (again && cell != 2 && end[like] > 0) {
                CHECK_OK(spw_event_list_repeat(list, begin[like], end[like], &shift));
                continue;
            }
            if (end[like] == 0) begin[like] = list->events;
            fill_cell(list, cell);
            if (end[like] == 0) end[like] = list->events;
        }
    }
}

static uint64_t count_of(uint16_t layer, unsigned which, uint64_t turn) {
    uint64_t state = (turn * CELLS + layer) * KINDS + which + 1;
    for (int k = 0; k < 4; k++) (void)next_random(&state);
    return state % 11 == 0 ? 0 : state % (turn % 2 == 0 ? 2 * MIB : 40 * MIB) / law_of[which].unit;
}

static bool is_drawn(const spw_memory_event *event) {
    return event->kind < 4 && event->layer != SPW_NO_MOE_LAYER;
}

static uint64_t beside; /* bytes that do not change are so many more from cell to cell */

static uint64_t bytes_of(const spw_memory_event *event, uint64_t turn) {
    const spw_size_law *law = &law_of[event->kind < LAWS ? event->kind : 0];
    return is_drawn(event) ? law->unit * count_of(event->layer, law->count, turn)
                           : event->kind * UINT64_C(712345) + event->layer % CELLS * beside;
}

static void set_bytes(spw_event_list *list, uint64_t turn) {
    for (size_t i = 0; i < list->events; i++) list->event[i].bytes = bytes_of(&list->event[i], turn);
}

/* Of those alone whose bytes change. */
static void set_own(spw_event_list *list, uint64_t turn) {
    for (size_t v = 0; v < list->visits; v++)
        for (unsigned which = 0; which < SPW_CELL_COUNTS; which++)
            list->visit[v].count[which] = count_of(list->visit[v].layer, which, turn);
    for (size_t i = 0; i < list->owns; i++)
        list->event[list->own[i].event].bytes = bytes_of(&list->event[list->own[i].event], turn);
}

static bool same_top(spw_list_top a, int64_t bytes, size_t event) {
    return a.bytes == bytes && a.event == event;
}

/* What a visit takes, against its events. */
static void check_visit(const spw_event_visit *v, const spw_memory_event *event) {
    uint64_t live = 0, most = 0, small = 0, large = 0;
    for (size_t i = v->begin; i < v->end; i++) {
        const bool is_small = event[i].stream == 0 && event[i].bytes <= MIB;
        live += event[i].born ? event[i].bytes : -event[i].bytes;
        most = live > most ? live : most;
        if (event[i].born && event[i].bytes > 0)
            *(is_small ? &small : &large) += event[i].bytes + (is_small ? 0 : MIB);
    }
    CHECK(v->requested == most);
    const uint64_t up = (uint64_t)KINDS * 511;
    CHECK(!v->outlined || (v->total.small.bytes >= small && v->total.small.bytes <= small + up));
    CHECK(!v->outlined || (v->total.large.bytes >= large && v->total.large.bytes <= large + up));
}

/* So many that no allocator is asked. */
static void check_too_much(spw_event_list *list) {
    list->visit[0].count[0] = UINT64_C(1) << 50;
    CHECK_OK(spw_event_list_outline(list));
    CHECK(!list->visit[0].outlined && list->visit[0].layer == 0);
    spw_event_list_spread(list);
    CHECK(list->event[list->visit[0].begin].bytes == UINT64_C(1) << 50);
}

static uint64_t number_with(spw_event_list *list, uint64_t count) {
    list->visit[0].count[0] = count;
    CHECK_OK(spw_event_list_outline(list));
    return list->visit[0].outlined ? list->visit[0].total.number : count;
}

/* Small requests have a number by which they are known again: as they are rounded. */
static void check_numbers(spw_event_list *list) {
    CHECK(number_with(list, 100) != number_with(list, 100 + 512));
    CHECK(number_with(list, 100) == number_with(list, 101) || !list->visit[0].outlined);
}

/* What is repeated of a visit is none without its end; slots in front of those that are shifted stay. */
static void check_repeated(void) {
    const spw_list_shift shift = {.from = 2, .slots = 10, .layer = 3, .micro_batch = 5};
    spw_event_list list = {.events = 0};
    add(&list, 1, 5, true, false);
    add(&list, 2, 5, true, false);
    add(&list, 1, 5, false, false);
    add(&list, 2, 5, false, false);
    CHECK_OK(spw_event_list_repeat(&list, 0, 3, &shift));
    add(&list, 0, 5, false, false); /* one of an earlier list */
    add(&list, 12, 5, false, false);
    CHECK_OK(spw_event_list_repeat(&list, 0, 4, &shift));
    CHECK(list.events == 13 && list.event[4].slot == 1 && list.event[5].slot == 12);
    CHECK(list.event[5].layer == 3 && list.event[5].micro_batch == 5 && list.event[5].bytes == 5);
    CHECK_OK(spw_event_list_find_visits(&list, NULL, 0));
    CHECK(list.visits == 2 && list.visit[1].begin == 9 && list.visit[1].end == 13);
    CHECK(list.visit[1].form == list.visit[0].form);
    spw_event_list_destroy(&list);
}

/* One tensor that stays, alone. */
static void check_alone(void) {
    spw_event_list list = {.events = 0}, copy = {.events = 0};
    add_kind(&list, 0, 0, 0, true);
    CHECK_OK(spw_event_list_find_visits(&list, law_of, LAWS));
    CHECK_OK(spw_event_list_copy(&list, &copy));
    CHECK(copy.visits == 0 && copy.owns == 1);
    copy.event[0].bytes = 7;
    CHECK_OK(spw_event_list_outline(&copy));
    CHECK(same_top(spw_event_list_tops(&copy).first, 7, 0));
    spw_event_list_destroy(&list);
    spw_event_list_destroy(&copy);
}

static void check_own(uint64_t seed) {
    const spw_allocator_settings settings = {.expandable_segments = seed % 5 == 0};
    spw_event_list plain = {.events = 0}, own = {.events = 0}, copy = {.events = 0};
    spw_allocator *one = NULL, *two = NULL;
    spw_allocation first[SLOTS], second[SLOTS];
    beside = seed % 2 == 0 ? 0 : 4096; /* what is repeated has bytes of one */
    fill_cells(&plain, false);
    fill_cells(&own, seed % 2 == 0);
    set_bytes(&plain, seed);
    for (size_t i = 0; i < own.events; i++) /* those that are drawn are equal by chance alone */
        own.event[i].bytes = is_drawn(&own.event[i]) ? 4096 : bytes_of(&own.event[i], seed);
    CHECK(own.repeats == (seed % 2 == 0 ? TURNS * (CELLS - 1) - 2 : 0));
    CHECK_OK(spw_event_list_find_visits(&own, law_of, LAWS));
    CHECK(own.visits == TURNS * (CELLS - 1) && own.owns > 0 && own.owns < own.events / 4);
    CHECK_OK(spw_event_list_copy(&own, &copy));
    CHECK_OK(spw_event_list_remember(&copy));
    CHECK_OK(spw_allocator_create(&settings, &one));
    CHECK_OK(spw_allocator_create(&settings, &two));
    for (size_t i = 0; i < SLOTS; i++) first[i].block = second[i].block = SPW_ALLOCATION_EMPTY;
    for (uint64_t turn = 0; turn < 3; turn++) {
        spw_list_replay a, b;
        set_bytes(&plain, seed + turn);
        set_own(&copy, seed + turn);
        CHECK_OK(spw_event_list_find_again(&plain));
        CHECK_OK(spw_event_list_find_again(&copy));
        for (size_t m = 0; m < plain.marks; m++) CHECK(plain.again[m] == (m > 0) && copy.again[m] == (m > 0));
        CHECK_OK(spw_event_list_outline(&copy));
        for (size_t v = 0; v < copy.visits; v++) check_visit(&copy.visit[v], plain.event);
        const spw_list_peak peak = spw_event_list_peak(&plain);
        CHECK(same_top(spw_event_list_tops(&copy).later, peak.peak_bytes, peak.peak_event));
        CHECK_OK(spw_event_list_replay(&plain, one, first, &a));
        CHECK_OK(spw_event_list_replay_cycles(&copy, two, second, SLOTS, 0, &b));
        CHECK(same_stats(&a.after, &b.after));
        CHECK(spw_allocator_state(one, first, SLOTS) == spw_allocator_state(two, second, SLOTS));
    }
    spw_event_list_spread(&copy);
    CHECK(spw_event_list_is_equal(&plain, &copy));
    check_numbers(&copy);
    check_too_much(&copy);
    spw_event_list_destroy(&plain);
    spw_event_list_destroy(&own);
    spw_event_list_destroy(&copy);
    spw_allocator_destroy(one);
    spw_allocator_destroy(two);
}

int main(void) {
    check_repeated();
    check_alone();
    for (uint64_t seed = 1; seed <= 40; seed++) check_own(seed);
    return check_done();
}
