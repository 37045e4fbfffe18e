/* Visits: events of which each birth has its death among them. Where all of it fits into blocks that are free already, they leave the
 * allocator as they found it, but for the peaks. So they need no entries of their own. Often it can be told from sums that all of it
 * fits, or from how many free blocks there are. Else what is in use is cut from free blocks that stay in their lists, in a few pieces
 * that are forgotten at the end. */
#include "sim/memory/allocator/event_visit.h"
#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/visit_forms.h"

#include <string.h>

/* --- Parts of blocks --- */

enum { PLACES = SPW_VISIT_PLACES, NO_PART = UINT8_MAX };

/* Where a request is served: the gap of a part, its lead, or a block of its own. */
enum { LEAD = PLACES, OWN_BLOCK = 2 * PLACES };

/* A request is large that is this part of the largest, or more. */
enum { LARGE = 8 };

/* What is asked for. */
typedef struct request {
    uint64_t bytes;
    int32_t first; /* the smallest free block that is large enough */
    uint8_t pool;
} request;

/* What is in use of a pool, by a visit: what requests have of free blocks, from the front of what was free there. Parts stand where a
 * plan says, so that there is room for those that are there at once. */
typedef struct visit {
    spw_block *block;
    int32_t largest; /* free block */
    uint64_t least;  /* no request is smaller */
    uint64_t large;  /* requests of so many bytes look at large rooms alone */
    uint64_t cut;    /* what is left of a block is cut off from so many bytes on */
    uint64_t number; /* of the visit */
    uint64_t bytes[PLACES];
    /* Free of a part's block: the gap behind it, before the next part; the lead in front of it, where it is the first. */
    uint64_t room[2 * PLACES];
    int32_t own[PLACES];                    /* the block that a part is of, */
    uint8_t before[PLACES], behind[PLACES]; /* and its neighbours there */
} visit;

/* Seldom asked for: only of rooms that are equal. */
__attribute__((noinline, cold)) static uint64_t address_of(const visit *v, size_t p) {
    uint64_t address = v->block[v->own[p]].address;
    for (size_t at = v->before[p]; at != NO_PART; at = v->before[at])
        address += v->bytes[at] + v->room[at] + v->room[LEAD + at];
    return address + v->room[LEAD + p];
}

__attribute__((noinline, cold)) static uint64_t address_at(const visit *v, int32_t block, size_t where) {
    if (where == OWN_BLOCK) return v->block[block].address;
    if (where >= LEAD) return v->block[v->own[where - LEAD]].address;
    return address_of(v, where) + v->bytes[where];
}

/* The smallest that is large enough, the lowest of equals. Most requests find a block of their own, which is of *best bytes. rooms: bits of
 * those that may serve a request. */
static inline size_t look_beside(const visit *v, uint64_t rooms, uint64_t wanted, int32_t block,
                                 uint64_t *best) {
    size_t where = OWN_BLOCK;
    uint64_t over = *best - wanted; /* of what is too small it is more than of anything else */
    for (; rooms != 0; rooms &= rooms - 1) {
        const size_t r = (size_t)__builtin_ctzll(rooms);
        const uint64_t rest = v->room[r] - wanted;
        if (rest > over) continue;
        if (rest == over && address_at(v, block, r) > address_at(v, block, where)) continue;
        over = rest;
        where = r;
    }
    *best = wanted + over;
    return where;
}

/* Part p between others of its block, where there was a free part. */
static void stand_between(visit *v, size_t where, size_t p) {
    const bool lead = where >= LEAD;
    const size_t beside = where % PLACES;
    v->own[p] = v->own[beside];
    v->before[p] = (uint8_t)(lead ? NO_PART : beside);
    v->behind[p] = (uint8_t)(lead ? beside : v->behind[beside]);
    v->room[where] = 0;
    if (!lead) v->behind[beside] = (uint8_t)p;
    if (v->behind[p] != NO_PART) v->before[v->behind[p]] = (uint8_t)p;
}

/* What others have of its block stays. Gives the room that grows. */
static inline size_t leave_between(visit *v, size_t p) {
    const size_t before = v->before[p], behind = v->behind[p];
    if (behind != NO_PART) v->before[behind] = (uint8_t)before;
    if (before != NO_PART) v->behind[before] = (uint8_t)behind;
    const size_t grows = before != NO_PART ? before : LEAD + behind;
    /* NOLINTNEXTLINE(clang-analyzer-*): written when that part was born */
    v->room[grows] += v->room[LEAD + p] + v->bytes[p] + v->room[p];
    return grows;
}

/* --- A visit --- */

/* A visit under way. */
typedef struct place {
    const spw_event_visit *visit;
    const spw_visit_forms *forms;
    const spw_visit_form *form;
    const spw_visit_plan *plan;
    const spw_visit_size *size; /* of the form */
} place;

/* The smallest free block for a request that the visit has nothing of; SPW_NO_BLOCK: none is large enough. */
static inline int32_t own_block(const visit *v, const request *r) {
    int32_t own = r->first;
    while (own != SPW_NO_BLOCK && v->block[own].visit == v->number) own = v->block[own].larger;
    return own;
}

/* Bits of rooms that may serve a request; and of those that may serve a large one. */
typedef struct room_bits {
    uint64_t all, large;
} room_bits;

static inline uint64_t rooms_for(const visit *v, const request *r, const room_bits *rooms) {
    return r->bytes >= v->large ? rooms->large : rooms->all;
}

static inline void add_room(const visit *v, size_t where, room_bits *rooms) {
    /* NOLINTNEXTLINE(clang-analyzer-*): of a part that goes one neighbour is there */
    rooms->all |= (uint64_t)(v->room[where] >= v->least) << where;
    rooms->large |= (uint64_t)(v->room[where] >= v->large) << where;
}

static inline void drop_rooms(uint64_t which, room_bits *rooms) {
    rooms->all &= ~which;
    rooms->large &= ~which;
}

/* A birth, in place p. false: there is no room. */
static inline bool serve(visit *v, const request *r, size_t p, room_bits *rooms) {
    const int32_t own = own_block(v, r);
    const uint64_t look = rooms_for(v, r, rooms);
    uint64_t best = own != SPW_NO_BLOCK ? v->block[own].bytes : UINT64_MAX;
    size_t where = OWN_BLOCK;
    if (look != 0) where = look_beside(v, look, r->bytes, own, &best);
    if (best == UINT64_MAX) return false;
    if (where == OWN_BLOCK) {
        v->block[own].visit = v->number;
        v->own[p] = own;
        v->before[p] = v->behind[p] = NO_PART;
    } else {
        stand_between(v, where, p);
        drop_rooms((uint64_t)1 << where, rooms);
    }
    const uint64_t rest = best - r->bytes, gap = rest >= v->cut ? rest : 0;
    v->room[LEAD + p] = 0;
    v->room[p] = gap;
    v->bytes[p] = best - gap;
    add_room(v, p, rooms);
    return true;
}

/* A death. */
static inline void leave(visit *v, const spw_visit_step *step, room_bits *rooms) {
    const size_t p = step->place;
    drop_rooms(step->rooms, rooms);
    if ((v->before[p] & v->behind[p]) == NO_PART) {
        v->block[v->own[p]].visit = 0;
        return;
    }
    add_room(v, leave_between(v, p), rooms);
}

static inline bool has_room(const visit *v, const request *r, const room_bits *rooms) {
    bool has = own_block(v, r) != SPW_NO_BLOCK;
    for (uint64_t look = rooms_for(v, r, rooms); look != 0 && !has; look &= look - 1)
        has = v->room[__builtin_ctzll(look)] >= r->bytes;
    return has;
}

/* What requests of one pool find before anything is in use. */
static void begin_pool(spw_allocator *a, uint8_t pool, visit *v) {
    v->block = a->block;
    v->largest = a->pool[pool].last;
    v->number = ++a->visit;
    v->cut = pool % 2 == SPW_SMALL_POOL ? SPW_BLOCK_SMALLEST : SPW_SMALL_REQUEST + 1;
}

/* The smallest free block of so many bytes. hint: it is that, or a smaller one, which is near in most cases; SPW_NO_BLOCK: nobody knows. */
static inline int32_t first_of(const spw_allocator *a, uint8_t pool, uint64_t bytes, int32_t hint) {
    enum { NEAR = 3 };
    const spw_block *block = a->block;
    for (size_t i = 0; i < NEAR && hint != SPW_NO_BLOCK; i++) {
        const int32_t smaller = block[hint].smaller;
        if (smaller == SPW_NO_BLOCK || block[smaller].bytes < bytes) return hint;
        hint = smaller;
    }
    int32_t first = spw_pool_first_from(&a->pool[pool], spw_sizes_of(bytes));
    while (first != SPW_NO_BLOCK && block[first].bytes < bytes) first = block[first].larger;
    return first;
}

/* request_of [sizes of the part]. The pools of its requests, a bit each. */
static uint32_t find_requests(const spw_allocator *a, const place *at, const spw_visit_part *of,
                              request *request_of, visit *v) {
    uint32_t pools = 0;
    uint64_t before = 0, large = 0;
    int32_t hint = SPW_NO_BLOCK;
    v->least = v->large = UINT64_MAX;
    for (size_t k = 0; k < of->sizes; k++) {
        const spw_visit_size *s = &at->size[of->size[k]];
        const uint64_t bytes = s->bytes;
        if (k == 0 || bytes > before || s->pool != request_of[k - 1].pool) hint = SPW_NO_BLOCK;
        hint = first_of(a, s->pool, bytes, hint);
        request_of[k] = (request){bytes, hint, s->pool};
        before = bytes;
        if (k == 0) large = bytes / LARGE;
        if (bytes < v->least) v->least = bytes;
        if (bytes >= large) v->large = bytes;
        pools |= UINT32_C(1) << s->pool;
    }
    return pools;
}

/* --- Enough blocks --- */

/* Births find room whatever dies between them where for each size there are as many blocks that end in so much room as there are births of
 * it and of larger ones. For let each birth strike out the smallest block, of those counted, that is large enough for it: by Hall there
 * always is one. The request itself takes the smallest room of all, at the end of that block, of another one that is not larger, or
 * between parts. Of another one what was counted there is counted at the end of the struck one from now on, which is as large. Deaths
 * only let ends grow, and no block has two. A block of several times the largest birth counts so often: what a birth has of it is no
 * more than one of these, as all is cut off it but for what is less than any of them. A birth that dies at once, or is the last, needs
 * one only while it is there. */

static inline uint64_t bytes_of(const place *at, const spw_visit_part *of, size_t size) {
    return at->size[of->size[size]].bytes;
}

/* Free blocks that are counted, from one on to the smaller ones. */
typedef struct counting {
    const spw_block *all;
    int32_t block, but; /* this one is not */
    size_t there;       /* as many are counted already */
    uint64_t rest;      /* and one of so many bytes beside them is not */
} counting;

static inline bool are_there(counting c, const spw_visit_needs *needs, const place *at,
                             const spw_visit_part *of) {
    const spw_visit_need *need = needs->need, *end = need + needs->needs;
    for (; need != end; need++) {
        const uint64_t bytes = bytes_of(at, of, need->size);
        if (c.rest >= bytes) {
            c.there++;
            c.rest = 0;
        }
        for (; c.there < need->births; c.there++, c.block = c.all[c.block].smaller) {
            if (c.block == c.but && c.block != SPW_NO_BLOCK) c.block = c.all[c.block].smaller;
            if (c.block == SPW_NO_BLOCK || c.all[c.block].bytes < bytes) return false;
        }
    }
    return true;
}

/* Of all births, for whole free blocks. */
static bool fits_by_count(const spw_allocator *a, uint32_t pool, const place *at, const spw_visit_part *of) {
    const uint64_t most = bytes_of(at, of, 0);
    counting c = {.all = a->block, .block = a->pool[pool].last, .but = SPW_NO_BLOCK};
    for (; c.block != SPW_NO_BLOCK && c.all[c.block].bytes >= 2 * most; c.block = c.all[c.block].smaller)
        c.there += c.all[c.block].bytes / most;
    return are_there(c, &of->all, at, of);
}

/* Are the sizes in the order that they had when the plan was made? Needs are of that order. */
static bool are_falling(const place *at, const spw_visit_part *of) {
    bool fall = true;
    for (size_t k = 1; k < of->sizes && fall; k++) fall = bytes_of(at, of, k) <= bytes_of(at, of, k - 1);
    return fall;
}

/* The same with deaths, of which the needs make use (find_turns() in visit_outline.c). What the first birth takes is known where it stays,
 * and what it leaves of that is as good as a block (what is not cut off is less than any request). */
static bool fits_in_turn(const spw_allocator *a, uint8_t pool, const place *at, const spw_visit_part *of) {
    counting c = {.all = a->block, .block = a->pool[pool].last, .but = SPW_NO_BLOCK};
    if (of->first_stays) {
        const uint64_t bytes = bytes_of(at, of, at->forms->step[of->step + of->steps].size);
        c.but = first_of(a, pool, bytes, SPW_NO_BLOCK);
        if (c.but == SPW_NO_BLOCK) return false;
        c.rest = c.all[c.but].bytes - bytes;
    }
    return are_there(c, &of->turns, at, of);
}

/* Room at the ends of blocks of which a visit has parts, the largest first. */
typedef struct tails {
    uint64_t bytes[PLACES];
    size_t count;
} tails;

static inline void find_tails(const visit *v, uint64_t all, tails *t) {
    t->count = 0;
    for (uint64_t behind = all & ((UINT64_C(1) << LEAD) - 1); behind != 0; behind &= behind - 1) {
        const size_t p = (size_t)__builtin_ctzll(behind);
        size_t at = t->count;
        if (v->behind[p] != NO_PART) continue;
        for (; at > 0 && t->bytes[at - 1] < v->room[p]; at--) t->bytes[at] = t->bytes[at - 1];
        t->bytes[at] = v->room[p];
        t->count++;
    }
}

/* Of the births that come late: for free blocks, and the ends of those of which the visit has parts. */
static bool fits_late(const visit *v, const room_bits *rooms, const spw_visit_part *of,
                      const request *request_of) {
    uint64_t before = UINT64_MAX;
    int32_t block = v->largest;
    size_t there = 0, tail = 0;
    tails t;
    find_tails(v, rooms->all, &t);
    for (size_t n = 0; n < of->late.needs; n++) {
        const uint64_t bytes = request_of[of->late.need[n].size].bytes;
        if (bytes > before) return false;
        for (before = bytes; there < of->late.need[n].births; there++) {
            while (block != SPW_NO_BLOCK && v->block[block].visit == v->number)
                block = v->block[block].smaller;
            if (block != SPW_NO_BLOCK && v->block[block].bytes >= bytes)
                block = v->block[block].smaller;
            else if (tail == t.count || t.bytes[tail++] < bytes)
                return false;
        }
    }
    return true;
}

/* --- One after the other --- */

/* Do births find room? */
static inline bool find_room(visit *v, const spw_visit_step *step, const spw_visit_step *end,
                             const request *request_of, room_bits *rooms) {
    for (; step != end; step++) {
        const request *r = &request_of[step->size];
        if (step->kind == SPW_STEP_DEATH)
            leave(v, step, rooms);
        else if (step->kind == SPW_STEP_BIRTH ? !serve(v, r, step->place, rooms) : !has_room(v, r, rooms))
            return false;
    }
    return true;
}

/* Do all births of the part, which are of one pool, find room? */
static bool finds_room(spw_allocator *a, const place *at, const spw_visit_part *of) {
    const spw_visit_step *step = at->forms->step + of->step + of->steps, *late = step + of->begin_late;
    request request_of[SPW_VISIT_SIZES];
    visit v;
    room_bits there = {0, 0};
    if (of->sizes == 0) return true;
    const uint8_t pool = at->size[of->size[0]].pool;
    if ((fits_in_turn(a, pool, at, of) || fits_by_count(a, pool, at, of)) && are_falling(at, of)) return true;
    begin_pool(a, pool, &v);
    (void)find_requests(a, at, of, request_of, &v);
    if (!find_room(&v, step, late, request_of, &there)) return false;
    return fits_late(&v, &there, of, request_of) || find_room(&v, late, step + of->few, request_of, &there);
}

/* In one pool. after [steps] rises by the bytes in use behind each. */
static bool follow_pool(visit *v, const place *at, const spw_visit_part *of, const request *request_of,
                        uint8_t pool, uint64_t *after) {
    const spw_visit_step *step = at->forms->step + of->step;
    uint64_t used = 0;
    room_bits there = {0, 0};
    for (size_t i = 0; i < of->steps; i++, step++) {
        const request *r = &request_of[step->size];
        if (r->pool == pool && step->kind == SPW_STEP_BIRTH) {
            if (!serve(v, r, step->place, &there)) return false;
            used += v->bytes[step->place];
        } else if (r->pool == pool) {
            used -= v->bytes[step->place];
            leave(v, step, &there);
        }
        after[i] += used;
    }
    return true;
}

/* after [steps]: bytes in use behind each. false: they find no room. */
static bool follow(spw_allocator *a, const place *at, const spw_visit_part *of, uint64_t *after) {
    request request_of[SPW_VISIT_SIZES];
    visit v;
    bool fits = true;
    uint32_t pools = find_requests(a, at, of, request_of, &v);
    memset(after, 0, of->steps * sizeof *after);
    for (; pools != 0 && fits; pools &= pools - 1) {
        const uint8_t pool = (uint8_t)__builtin_ctz(pools);
        begin_pool(a, pool, &v);
        fits = follow_pool(&v, at, of, request_of, pool, after);
    }
    return fits;
}

/* A request finds no block only where each that is large enough has been cut until less than the request is left at its end. Then as
 * much as all blocks together, but for a largest request of each, was asked for before it; with it one of these more. What is not cut
 * off, at most SPW_SMALL_REQUEST a request, counts as asked for. */
static bool fits_by_sums(const spw_allocator *a, uint32_t pool, const spw_visit_sum *sum) {
    uint64_t room = 0;
    for (int32_t i = a->pool[pool].last; room < sum->bytes; i = a->block[i].smaller) {
        if (i == SPW_NO_BLOCK || a->block[i].bytes < sum->most) return false;
        room += room == 0 ? a->block[i].bytes : a->block[i].bytes - sum->most;
    }
    return true;
}

static place place_of(const spw_event_list *list, const spw_event_visit *v) {
    const spw_visit_form *form = &list->forms->form[v->form];
    return (place){v, list->forms, form, &form->plan[v->plan], list->forms->size + v->size};
}

/* Small requests are always cut exactly, so that only whether they fit is to be known. Their sizes and order tell it, and the free blocks,
 * of which the addresses count as far as they order them. What fitted once fits again. */
static bool fits_small(const spw_event_list *list, const spw_event_visit *v, spw_allocator *a) {
    const uint64_t pool = spw_pool_number(a, SPW_SMALL_POOL),
                   number = spw_allocator_mix(v->total.number + pool);
    uint64_t *known = list->fits != NULL && pool != 0 ? &list->fits->number[number % SPW_VISITS_KNOWN] : NULL;
    if (known != NULL && *known == number) return true;
    const place at = place_of(list, v);
    if (!finds_room(a, &at, &at.plan->small)) return false;
    if (known != NULL) *known = number;
    return true;
}

static bool fits_large(const spw_event_list *list, const spw_event_visit *v, spw_allocator *a) {
    const place at = place_of(list, v);
    return finds_room(a, &at, &at.plan->large);
}

/* Allocated by all of it, small and large requests. */
static uint64_t most_of(const place *at, const uint64_t *after) {
    const spw_visit_event *event = at->forms->event + at->form->event;
    uint64_t small = 0, large = 0, most = 0;
    for (size_t i = 0; i < at->form->events; i++) {
        const spw_size_class class = spw_class_of(at->plan->classes, event[i].size);
        const uint64_t bytes = at->size[event[i].size].bytes;
        /* NOLINTNEXTLINE(clang-analyzer-*): follow() has written all of it */
        if (class == SPW_SIZE_LARGE) large = *after++;
        if (class == SPW_SIZE_SMALL) small += event[i].born ? bytes : -bytes;
        spw_raise_to(&most, small + large);
    }
    return most;
}

/* Where it may come to a new peak, or has blocks of other streams. beside: bytes that it may have without a new peak. *most: what it has,
 * where that is more. */
static bool follow_large(const spw_event_list *list, const spw_event_visit *v, uint64_t beside,
                         spw_allocator *a, uint64_t *most) {
    const place at = place_of(list, v);
    uint64_t after[SPW_VISIT_EVENTS], large = 0;
    if (!follow(a, &at, &at.plan->large, after)) return false;
    if (v->most <= beside) return true;
    for (size_t i = 0; i < at.plan->large.steps; i++) spw_raise_to(&large, after[i]);
    if (large + v->total.small.bytes > beside) *most = most_of(&at, after);
    return true;
}

bool spw_event_visit_replay(const spw_event_list *list, size_t which, spw_allocator *a) {
    const spw_event_visit *v = &list->visit[which];
    spw_allocator_stats *s = &a->stats;
    const uint64_t beside = s->allocated_peak_bytes - s->allocated_bytes;
    uint64_t most = 0;
    if (!v->outlined) return false;
    if (!fits_by_sums(a, SPW_SMALL_POOL, &v->total.small) && !fits_small(list, v, a)) return false;
    if (v->total.others || v->most > beside) {
        if (!follow_large(list, v, beside, a, &most)) return false;
        spw_raise_to(&s->allocated_peak_bytes, s->allocated_bytes + most);
    } else if (!fits_by_sums(a, 0, &v->total.large) && !fits_large(list, v, a)) {
        return false;
    }
    spw_raise_to(&s->requested_peak_bytes, s->requested_bytes + v->requested);
    return true;
}

bool spw_event_visit_can(const spw_allocator *a) {
    return !a->collects && !a->settings.expandable_segments && a->settings.max_split_bytes == UINT64_MAX &&
           a->settings.roundup_power2_divisions <= 1;
}
