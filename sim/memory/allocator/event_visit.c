/* Visits: events of which each birth has its death among them. Where all of it fits into blocks that are free already, they leave the
 * allocator as they found it, but for the peaks. So they need no entries of their own: what is in use is cut from free blocks that stay
 * in their lists, in a few pieces that are forgotten at the end. Of small requests, which are always cut exactly, it is only to be
 * known that they fit; what fitted once fits again. */
#include "sim/memory/allocator/event_visit.h"
#include "base/memory.h"
#include "sim/memory/allocator/allocator_internal.h"

#include <string.h>

/* Longer or fuller visits are replayed event by event. */
enum { MOST_EVENTS = 512, FEWEST_EVENTS = 4, MOST_PIECES = 64, NO_PIECE = -1, IN_USE = -1, SMALL_POOL = 1 };

static const uint64_t FACTOR = UINT64_C(0x9e3779b97f4a7c15);

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
    size_t *other = NULL, capacity = 0;
    spw_status status = SPW_OK;
    spw_free(list->visit);
    list->visit = NULL;
    list->visits = 0;
    if (list->events >= UINT32_MAX) return SPW_OK;
    SPW_TRY(SPW_ALLOC(list->events, &other));
    SPW_TRY(find_others(list, other));
    capacity = list->events / FEWEST_EVENTS;
    SPW_TRY(SPW_ALLOC(capacity, &list->visit));
    for (size_t i = 0; i < list->events;) {
        const size_t end = end_of_visit(list, other, i);
        if (end >= i + FEWEST_EVENTS)
            list->visit[list->visits++] = (spw_event_visit){(uint32_t)i, (uint32_t)end};
        i = end > i ? end : i + 1;
    }

cleanup:
    spw_free(other);
    return status;
}

spw_status spw_event_list_remember(spw_event_list *list) {
    return list->fits != NULL ? SPW_OK : SPW_ALLOC(1, &list->fits);
}

/* --- Pieces --- */

/* A part of a free block. The pieces of a block are linked by address. */
typedef struct piece {
    uint64_t address, bytes, requested;
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

/* A small request. */
typedef struct small {
    uint64_t bytes, requested;
} small;

typedef struct visit {
    spw_allocator *a;
    spw_allocation *live; /* [slots] numbers of pieces; from MOST_PIECES on, of small requests */
    spw_allocator_stats stats;
    uint64_t number; /* of the events of small requests */
    size_t smalls;
    small small[MOST_EVENTS];
    int32_t pieces, spares;
    piece piece[MOST_PIECES];
    int32_t spare[MOST_PIECES];
    shelf shelf[SPW_POOLS];
} visit;

static int32_t new_piece(visit *v) {
    if (v->spares > 0) return v->spare[--v->spares];
    return v->pieces < MOST_PIECES ? v->pieces++ : NO_PIECE;
}

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
    const int32_t front = new_piece(v), rest = whole ? NO_PIECE : new_piece(v);
    if (front == NO_PIECE || (!whole && rest == NO_PIECE)) return NO_PIECE;
    b->lent = true;
    v->piece[front] = (piece){b->address, whole ? b->bytes : bytes, 0, block, NO_PIECE, rest, IN_USE};
    if (whole) return front;
    v->piece[rest] = (piece){b->address + bytes, b->bytes - bytes, 0, block, front, NO_PIECE, IN_USE};
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
    v->piece[front] = (piece){f->address, bytes, 0, f->block, f->before, from, IN_USE};
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

static void count_birth(spw_allocator_stats *s, uint64_t requested, uint64_t bytes) {
    s->requested_bytes += requested;
    s->allocated_bytes += bytes;
    spw_raise_to(&s->requested_peak_bytes, s->requested_bytes);
    spw_raise_to(&s->allocated_peak_bytes, s->allocated_bytes);
}

static void count_death(spw_allocator_stats *s, uint64_t requested, uint64_t bytes) {
    s->requested_bytes -= requested;
    s->allocated_bytes -= bytes;
}

static bool visit_death(visit *v, spw_allocation *held) {
    const int32_t number = held->block;
    if (number < 0) return true;
    held->block = SPW_ALLOCATION_EMPTY;
    if (number >= MOST_PIECES) {
        const small *k = &v->small[number - MOST_PIECES];
        v->number = (v->number ^ ((uint64_t)number << 1 | 1)) * FACTOR;
        count_death(&v->stats, k->requested, k->bytes);
        return true;
    }
    const piece *p = &v->piece[number];
    count_death(&v->stats, p->requested, p->bytes);
    free_piece(v, v->a->block[p->block].pool, number);
    return true;
}

/* Small requests of the first stream are at first only counted. */
static bool visit_event(visit *v, const spw_memory_event *event, bool counts) {
    spw_allocation *held = &v->live[event->slot];
    if (!event->born) return visit_death(v, held);
    if (event->bytes == 0) return true;
    if (event->bytes > SPW_BYTES_MOST || event->stream >= SPW_ALLOCATOR_STREAMS) return false;
    const uint64_t rounded = spw_allocator_round(v->a, event->bytes);
    const uint32_t pool = spw_pool_of(event->stream, rounded);
    if (counts != (pool != SMALL_POOL)) {
        if (!counts) return true;
        v->small[v->smalls] = (small){rounded, event->bytes};
        v->number = (v->number ^ rounded) * FACTOR;
        count_birth(&v->stats, event->bytes, rounded);
        held->block = MOST_PIECES + (int32_t)v->smalls++;
        return true;
    }
    const int32_t p = allocate_piece(v, pool, rounded);
    if (p == NO_PIECE) return false;
    v->piece[p].requested = event->bytes;
    count_birth(&v->stats, event->bytes, v->piece[p].bytes);
    held->block = p;
    return true;
}

/* As nothing had been. */
static void give_up(visit *v, const spw_event_list *list, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        spw_allocation *held = &v->live[list->event[i].slot];
        if (held->block >= 0 && held->block < MOST_PIECES)
            v->a->block[v->piece[held->block].block].lent = false;
        held->block = SPW_ALLOCATION_EMPTY;
    }
}

static bool visit_events(visit *v, const spw_event_list *list, const spw_event_visit *events, bool counts) {
    for (size_t i = events->begin; i < events->end; i++) {
        if (visit_event(v, &list->event[i], counts)) continue;
        give_up(v, list, events->begin, i);
        return false;
    }
    return true;
}

/* Whether small requests fit is told by their sizes and order and by the free blocks alone, of which the addresses count as far as they
 * order them. */
static bool fits_small(visit *v, const spw_event_list *list, const spw_event_visit *events) {
    const uint64_t pool = spw_pool_number(v->a, SMALL_POOL), number = spw_allocator_mix(v->number + pool);
    const spw_allocator_stats stats = v->stats;
    uint64_t *known = list->fits != NULL ? &list->fits->number[number % SPW_VISITS_KNOWN] : NULL;
    if (v->smalls == 0 || (known != NULL && pool != 0 && *known == number)) return true;
    if (!visit_events(v, list, events, false)) return false;
    v->stats = stats;
    if (known != NULL && pool != 0) *known = number;
    return true;
}

bool spw_event_visit_replay(const spw_event_list *list, size_t which, spw_allocator *a,
                            spw_allocation *live) {
    visit v;
    v.a = a;
    v.live = live;
    v.stats = a->stats;
    v.number = 1;
    v.smalls = 0;
    v.pieces = v.spares = 0;
    for (size_t p = 0; p < SPW_POOLS; p++) v.shelf[p].count = 0;
    if (!visit_events(&v, list, &list->visit[which], true) || !fits_small(&v, list, &list->visit[which]))
        return false;
    a->stats = v.stats;
    return true;
}

bool spw_event_visit_can(const spw_allocator *a) {
    return !a->collects && !a->settings.expandable_segments && a->settings.max_split_bytes == UINT64_MAX;
}
