/* Visits: events of which each birth has its death among them. Where all of it fits into blocks that are free already, they leave the
 * allocator as they found it, but for the peaks. So they need no entries of their own. Often it can be told from sums that all of it
 * fits. Else what is in use is cut from free blocks that stay in their lists, in a few pieces that are forgotten at the end. */
#include "sim/memory/allocator/event_visit.h"
#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"

#include <string.h>

/* Longer or fuller visits are replayed event by event. */
enum { MOST_EVENTS = 512, FEWEST_EVENTS = 4, MOST_PIECES = 64, NO_PIECE = -1, IN_USE = -1, SMALL_POOL = 1 };

static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);
static const uint64_t MOST_BYTES = (uint64_t)1 << 40; /* of the births of a visit together */

/* --- Which events are visits --- */

/* other [events]: the death of each birth, the birth of each death; SIZE_MAX: it is not in the list. */
static spw_status find_others(const spw_event_list *list, size_t *other) {
    size_t slots = 0, *born = NULL;
    for (size_t i = 0; i < list->events; i++)
        slots = list->event[i].slot >= slots ? (size_t)list->event[i].slot + 1 : slots;
    const spw_status status = SPW_ALLOC(slots, &born); /* 1 + the event; 0: nothing is there */
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < list->events; i++) {
        size_t *at = &born[list->event[i].slot];
        other[i] = SIZE_MAX;
        if (!list->event[i].born && *at > 0) {
            other[i] = *at - 1;
            other[*at - 1] = i;
        }
        *at = list->event[i].born ? i + 1 : 0;
    }
    spw_free(born);
    return SPW_OK;
}

/* Behind the last event of the visit that begins there; `begin`: none does. */
static size_t end_of_visit(const spw_event_list *list, const size_t *other, size_t begin) {
    const bool backward = list->event[begin].backward;
    size_t end = begin + 1;
    for (size_t i = begin; i < end; i++) {
        if (other[i] == SIZE_MAX || other[i] < begin || list->event[i].backward != backward) return begin;
        if (other[i] >= end) end = other[i] + 1;
        if (end - begin > MOST_EVENTS) return begin;
    }
    return end;
}

spw_status spw_event_list_find_visits(spw_event_list *list) {
    size_t *other = NULL;
    spw_status status = SPW_OK;
    spw_event_list_forget_visits(list);
    if (list->events >= UINT32_MAX) return SPW_OK;
    SPW_TRY(SPW_ALLOC(list->events, &other));
    SPW_TRY(find_others(list, other));
    SPW_TRY(SPW_ALLOC(list->events / FEWEST_EVENTS, &list->visit));
    SPW_TRY(SPW_ALLOC(list->events, &list->ago));
    for (size_t i = 0; i < list->events;) {
        const size_t end = end_of_visit(list, other, i);
        if (end >= i + FEWEST_EVENTS)
            list->visit[list->visits++] = (spw_event_visit){.begin = (uint32_t)i, .end = (uint32_t)end};
        for (size_t k = i; k < end; k++) list->ago[k] = (uint16_t)(k - other[k]);
        i = end > i ? end : i + 1;
    }

cleanup:
    spw_free(other);
    return status;
}

spw_status spw_event_list_remember(spw_event_list *list) {
    return list->fits != NULL ? SPW_OK : SPW_ALLOC(1, &list->fits);
}

void spw_event_list_forget_visits(spw_event_list *list) {
    spw_free(list->visit);
    spw_free(list->ago);
    spw_free(list->step);
    list->visit = NULL;
    list->ago = NULL;
    list->step = NULL;
    list->visits = 0;
}

/* --- What they take --- */

/* A visit that is looked through: of the blocks of the first stream's small pool, or of all others. */
typedef struct outline {
    bool small;
    uint64_t requested, live, births; /* now; now, rounded; so far, rounded */
    uint64_t *most;                   /* live, since the step before */
    size_t larges, steps;
    spw_visit_step *step;
    uint16_t at[MOST_EVENTS]; /* the step of this event */
} outline;

static uint64_t bytes_of(const spw_memory_event *event) {
    return (event->bytes + SPW_BLOCK_SMALLEST - 1) & ~(SPW_BLOCK_SMALLEST - 1);
}

static void outline_step(outline *o, spw_visit_step step) {
    o->step[o->steps] = step;
    o->most = &o->step[o->steps++].most;
}

static bool outline_birth(outline *o, const spw_memory_event *event, size_t at, spw_event_visit *v) {
    if (event->bytes > MOST_BYTES || event->stream >= SPW_ALLOCATOR_STREAMS) return false;
    const uint64_t bytes = bytes_of(event);
    const uint32_t pool = spw_pool_of(event->stream, bytes);
    spw_visit_sum *sum = pool == SMALL_POOL ? &v->small : &v->large;
    if (bytes == 0) return true; /* nothing is allocated */
    o->requested += event->bytes;
    o->live += bytes;
    o->births += bytes;
    o->larges += pool != SMALL_POOL;
    sum->bytes += bytes + (pool != SMALL_POOL ? SPW_SMALL_REQUEST : 0);
    spw_raise_to(&sum->most, bytes);
    v->others = v->others || pool > SMALL_POOL;
    o->at[at] = (uint16_t)o->steps;
    if (pool == SMALL_POOL) v->number = (v->number ^ bytes) * FACTOR;
    if ((pool == SMALL_POOL) == o->small)
        outline_step(o, (spw_visit_step){.bytes = bytes, .pool = (uint16_t)pool, .born = true});
    spw_raise_to(o->most, o->live);
    spw_raise_to(&v->requested, o->requested);
    spw_raise_to(&v->most, o->live + o->larges * SPW_SMALL_REQUEST);
    return o->births <= MOST_BYTES;
}

/* A death has the bytes of its birth. */
static void outline_death(outline *o, const spw_memory_event *birth, size_t at, spw_event_visit *v) {
    const uint64_t bytes = bytes_of(birth);
    const bool small = spw_pool_of(birth->stream, bytes) == SMALL_POOL;
    if (bytes == 0) return;
    o->requested -= birth->bytes;
    o->live -= bytes;
    o->larges -= !small;
    if (small == o->small) outline_step(o, (spw_visit_step){.birth = o->at[at]});
    if (small) v->number = (v->number ^ ((uint64_t)at << 1 | 1)) * FACTOR;
    spw_raise_to(o->most, o->live);
}

/* Sets all of a visit but where it lies. step [its events]; false: it has more than can be looked through. */
static bool outline_visit(const spw_event_list *list, spw_event_visit *v, bool small, spw_visit_step *step) {
    outline o;
    o.small = small;
    o.requested = o.live = o.births = 0;
    o.larges = o.steps = 0;
    o.step = step;
    o.most = &v->before;
    v->requested = v->before = v->most = 0;
    v->number = 1;
    v->small = v->large = (spw_visit_sum){.bytes = 0};
    v->others = false;
    for (size_t i = v->begin; i < v->end; i++) {
        const spw_memory_event *event = &list->event[i];
        if (!event->born)
            outline_death(&o, event - list->ago[i], i - list->ago[i] - v->begin, v);
        else if (!outline_birth(&o, event, i - v->begin, v))
            return false;
    }
    v->steps = (uint32_t)o.steps;
    return true;
}

spw_status spw_event_list_outline(spw_event_list *list) {
    size_t steps = 0;
    if (list->step == NULL) {
        for (size_t i = 0; i < list->visits; i++) steps += list->visit[i].end - list->visit[i].begin;
        const spw_status status = SPW_ALLOC(steps, &list->step);
        if (status != SPW_OK) return status;
    }
    steps = 0;
    for (size_t i = 0; i < list->visits; i++) {
        spw_event_visit *v = &list->visit[i];
        v->step = (uint32_t)steps;
        v->outlined = outline_visit(list, v, false, list->step + steps);
        steps += v->outlined ? v->steps : 0;
    }
    return SPW_OK;
}

/* --- Pieces --- */

/* A part of a free block. The pieces of a block are linked by address. */
typedef struct piece {
    uint64_t address, bytes;
    int32_t block;
    int32_t before, behind;
    int32_t at; /* among the free pieces of its pool; IN_USE */
} piece;

/* Free pieces of a pool, in no order. */
typedef struct shelf {
    size_t count;
    uint64_t bytes[MOST_PIECES];
    int32_t piece[MOST_PIECES];
} shelf;

typedef struct visit {
    spw_allocator *a;
    int32_t pieces, spares;
    piece piece[MOST_PIECES];
    int32_t spare[MOST_PIECES];
    shelf shelf[SPW_POOLS];
} visit;

static int32_t new_piece(visit *v) {
    if (v->spares > 0) return v->spare[--v->spares];
    return v->pieces < MOST_PIECES ? v->pieces++ : NO_PIECE;
}

static bool has_pieces(const visit *v, int32_t count) { return v->spares + MOST_PIECES - v->pieces >= count; }

static void drop_piece(visit *v, int32_t p) { v->spare[v->spares++] = p; }

static void put_piece(visit *v, shelf *s, int32_t p) {
    v->piece[p].at = (int32_t)s->count;
    s->bytes[s->count] = v->piece[p].bytes;
    s->piece[s->count++] = p;
}

static void take_piece(visit *v, shelf *s, int32_t p) {
    const int32_t at = v->piece[p].at;
    s->count--;
    s->bytes[at] = s->bytes[s->count];
    s->piece[at] = s->piece[s->count];
    v->piece[s->piece[at]].at = at;
    v->piece[p].at = IN_USE;
}

/* The smallest that is large enough, the lowest of these. */
static int32_t find_piece(const visit *v, const shelf *s, uint64_t bytes) {
    uint64_t best = UINT64_MAX;
    int32_t found = NO_PIECE;
    for (size_t i = 0; i < s->count; i++) {
        if (s->bytes[i] < bytes || s->bytes[i] > best) continue;
        const int32_t p = s->piece[i];
        if (s->bytes[i] == best && v->piece[p].address > v->piece[found].address) continue;
        best = s->bytes[i];
        found = p;
    }
    return found;
}

static int32_t find_block(const spw_allocator *a, uint32_t pool, uint64_t bytes) {
    int32_t block = spw_pool_first_from(&a->pool[pool], spw_sizes_of(bytes));
    while (block != SPW_NO_BLOCK && (a->block[block].bytes < bytes || a->block[block].lent))
        block = a->block[block].larger;
    return block;
}

/* Cuts `bytes` from the front of a free block; its rest is a free piece. */
static int32_t lend_block(visit *v, uint32_t pool, int32_t block, uint64_t bytes, bool whole) {
    spw_block *b = &v->a->block[block];
    if (!has_pieces(v, whole ? 1 : 2)) return NO_PIECE;
    const int32_t front = new_piece(v), rest = whole ? NO_PIECE : new_piece(v);
    b->lent = true;
    v->piece[front] = (piece){b->address, whole ? b->bytes : bytes, block, NO_PIECE, rest, IN_USE};
    if (whole) return front;
    v->piece[rest] = (piece){b->address + bytes, b->bytes - bytes, block, front, NO_PIECE, IN_USE};
    put_piece(v, &v->shelf[pool], rest);
    return front;
}

static int32_t cut_piece(visit *v, uint32_t pool, int32_t from, uint64_t bytes, bool whole) {
    piece *f = &v->piece[from];
    if (whole) {
        take_piece(v, &v->shelf[pool], from);
        return from;
    }
    const int32_t front = new_piece(v);
    if (front == NO_PIECE) return NO_PIECE;
    v->piece[front] = (piece){f->address, bytes, f->block, f->before, from, IN_USE};
    if (f->before != NO_PIECE) v->piece[f->before].behind = front;
    f->before = front;
    f->address += bytes;
    f->bytes -= bytes;
    v->shelf[pool].bytes[f->at] = f->bytes;
    return front;
}

/* NO_PIECE: it does not fit. */
static int32_t allocate_piece(visit *v, uint32_t pool, uint64_t bytes) {
    const spw_allocator *a = v->a;
    const int32_t p = find_piece(v, &v->shelf[pool], bytes);
    const int32_t block = find_block(a, pool, bytes);
    if (p == NO_PIECE && block == SPW_NO_BLOCK) return NO_PIECE;
    if (p == NO_PIECE || (block != SPW_NO_BLOCK && (a->block[block].bytes < v->piece[p].bytes ||
                                                    (a->block[block].bytes == v->piece[p].bytes &&
                                                     a->block[block].address < v->piece[p].address))))
        return lend_block(v, pool, block, bytes,
                          !spw_allocator_is_cut(a, pool, a->block[block].bytes, bytes));
    return cut_piece(v, pool, p, bytes, !spw_allocator_is_cut(a, pool, v->piece[p].bytes, bytes));
}

/* A piece in use and the free ones beside it are one free piece, or the block that all of them were. */
static void free_piece(visit *v, uint32_t pool, int32_t p) {
    shelf *s = &v->shelf[pool];
    piece *x = &v->piece[p];
    const int32_t before = x->before, behind = x->behind;
    if (behind != NO_PIECE && v->piece[behind].at != IN_USE) {
        const piece *b = &v->piece[behind];
        x->bytes += b->bytes;
        x->behind = b->behind;
        if (b->behind != NO_PIECE) v->piece[b->behind].before = p;
        take_piece(v, s, behind);
        drop_piece(v, behind);
    }
    if (before != NO_PIECE && v->piece[before].at != IN_USE) {
        const piece *b = &v->piece[before];
        x->address = b->address;
        x->bytes += b->bytes;
        x->before = b->before;
        if (b->before != NO_PIECE) v->piece[b->before].behind = p;
        take_piece(v, s, before);
        drop_piece(v, before);
    }
    if (x->before != NO_PIECE || x->behind != NO_PIECE) {
        put_piece(v, s, p);
        return;
    }
    v->a->block[x->block].lent = false;
    drop_piece(v, p);
}

/* --- A visit --- */

/* As nothing had been. */
static bool give_up(visit *v) {
    for (int32_t p = 0; p < v->pieces; p++) v->a->block[v->piece[p].block].lent = false;
    return false;
}

/* most: allocated by the visit, so far. */
static bool follow(spw_allocator *a, const spw_visit_step *step, size_t steps, uint64_t *most) {
    visit v;
    int32_t held[MOST_EVENTS];
    uint64_t beside = 0; /* what the blocks in use are larger than asked for */
    v.a = a;
    v.pieces = v.spares = 0;
    for (size_t p = 0; p < SPW_POOLS; p++) v.shelf[p].count = 0;
    for (size_t i = 0; i < steps; i++) {
        const spw_visit_step *birth = step[i].born ? &step[i] : &step[step[i].birth];
        if (step[i].born) {
            held[i] = allocate_piece(&v, birth->pool, birth->bytes);
            if (held[i] == NO_PIECE) return give_up(&v);
            beside += v.piece[held[i]].bytes - birth->bytes;
        } else {
            const int32_t p = held[step[i].birth];
            beside -= v.piece[p].bytes - birth->bytes;
            free_piece(&v, birth->pool, p);
        }
        spw_raise_to(most, step[i].most + beside);
    }
    return true;
}

/* A request finds no block only where each that is large enough has been cut until less than the request is left at its end. Then more
 * than all blocks together, but for a largest request of each, was asked for; what is not cut off, at most SPW_SMALL_REQUEST a request,
 * counts as such. */
static bool fits_by_sums(const spw_allocator *a, uint32_t pool, const spw_visit_sum *sum) {
    uint64_t room = 0;
    for (int32_t i = a->pool[pool].last; room < sum->bytes; i = a->block[i].smaller) {
        if (i == SPW_NO_BLOCK || a->block[i].bytes < sum->most) return false;
        room += a->block[i].bytes - sum->most;
    }
    return true;
}

/* Small requests are always cut exactly, so that only whether they fit is to be known. Their sizes and order tell it, and the free blocks,
 * of which the addresses count as far as they order them. What fitted once fits again. */
static bool fits_small(const spw_event_list *list, const spw_event_visit *v, spw_allocator *a) {
    spw_visit_step step[MOST_EVENTS];
    spw_event_visit small = *v;
    uint64_t most = 0;
    if (fits_by_sums(a, SMALL_POOL, &v->small)) return true;
    const uint64_t pool = spw_pool_number(a, SMALL_POOL), number = spw_allocator_mix(v->number + pool);
    uint64_t *known = list->fits != NULL && pool != 0 ? &list->fits->number[number % SPW_VISITS_KNOWN] : NULL;
    if (known != NULL && *known == number) return true;
    (void)outline_visit(list, &small, true, step);
    if (!follow(a, step, small.steps, &most)) return false;
    if (known != NULL) *known = number;
    return true;
}

bool spw_event_visit_replay(const spw_event_list *list, size_t which, spw_allocator *a) {
    const spw_event_visit *v = &list->visit[which];
    spw_allocator_stats *s = &a->stats;
    uint64_t most = v->before;
    if (!v->outlined || !fits_small(list, v, a)) return false;
    if (v->others || s->allocated_bytes + v->most > s->allocated_peak_bytes || !fits_by_sums(a, 0, &v->large))
        if (!follow(a, list->step + v->step, v->steps, &most)) return false;
    spw_raise_to(&s->requested_peak_bytes, s->requested_bytes + v->requested);
    spw_raise_to(&s->allocated_peak_bytes, s->allocated_bytes + most);
    return true;
}

bool spw_event_visit_can(const spw_allocator *a) {
    return !a->collects && !a->settings.expandable_segments && a->settings.max_split_bytes == UINT64_MAX &&
           a->settings.roundup_power2_divisions <= 1;
}
