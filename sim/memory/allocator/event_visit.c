/* Visits: events of which each birth has its death among them. Where all of it fits into blocks that are free already, they leave the
 * allocator as they found it, but for the peaks. So they need no entries of their own. Often it can be told from sums that all of it
 * fits. Else what is in use is cut from free blocks that stay in their lists, in a few pieces that are forgotten at the end. */
#include "sim/memory/allocator/event_visit.h"
#include "sim/memory/allocator/allocator_internal.h"
#include "sim/memory/allocator/visit_forms.h"

#include <string.h>

enum { NO_PART = -1 };

/* --- Parts of blocks --- */

/* What a request has of a free block, from the front of what was free there; and what is free behind it, before the next part. */
typedef struct part {
    uint64_t bytes, gap;
    uint64_t lead; /* free in front of it, where it is the first part of its block */
    int32_t block;
    int16_t before, behind; /* of its block */
} part;

/* What is asked for. */
typedef struct request {
    uint64_t bytes;
    int32_t first; /* the smallest free block that is large enough */
    uint32_t pool;
} request;

/* What is in use of a pool, by a visit. Parts stand where a plan says, so that there is room for those that are there at once. */
typedef struct visit {
    spw_block *block;
    uint64_t least; /* no request is smaller */
    part part[SPW_VISIT_PLACES];
} visit;

/* Bit p: what is free behind part p, or in front of it, may serve a request. */
typedef struct free_parts {
    uint64_t gap, lead;
} free_parts;

static uint64_t address_of(const visit *v, size_t p) {
    const part *x = &v->part[p];
    uint64_t address = v->block[x->block].address;
    for (int16_t at = x->before; at != NO_PART; at = v->part[at].before)
        address += v->part[at].bytes + v->part[at].gap + v->part[at].lead;
    return address + x->lead;
}

/* Where a request is served: the gap of a part, its lead, or a block of its own. */
enum { LEAD = SPW_VISIT_PLACES, OWN_BLOCK = 2 * SPW_VISIT_PLACES };

static uint64_t address_at(const visit *v, int32_t block, size_t where) {
    if (where == OWN_BLOCK) return v->block[block].address;
    if (where >= LEAD) return v->block[v->part[where - LEAD].block].address;
    return address_of(v, where) + v->part[where].bytes;
}

/* Is that free part, of `bytes`, what a request is served from, rather than what was found so far? */
static inline bool is_better(const visit *v, uint64_t wanted, uint64_t bytes, size_t where, int32_t block,
                             size_t best_where, uint64_t best) {
    if (bytes - wanted > best - wanted) return false; /* smaller than wanted, too */
    return bytes != best || address_at(v, block, where) < address_at(v, block, best_where);
}

/* The smallest that is large enough, the lowest of equals. Most requests find a block of their own, which is of *best bytes. */
static inline size_t look_beside(const visit *v, free_parts beside, uint64_t wanted, int32_t block,
                                 uint64_t *best) {
    size_t where = OWN_BLOCK;
    for (; beside.gap != 0; beside.gap &= beside.gap - 1) {
        const size_t p = (size_t)__builtin_ctzll(beside.gap);
        const uint64_t bytes = v->part[p].gap;
        if (is_better(v, wanted, bytes, p, block, where, *best)) *best = bytes, where = p;
    }
    for (; beside.lead != 0; beside.lead &= beside.lead - 1) {
        const size_t p = (size_t)__builtin_ctzll(beside.lead);
        const uint64_t bytes = v->part[p].lead;
        if (is_better(v, wanted, bytes, p + LEAD, block, where, *best)) *best = bytes, where = p + LEAD;
    }
    return where;
}

/* Part p between others of its block, where there was a free part. */
static void stand_between(visit *v, size_t where, size_t p) {
    const bool lead = where >= LEAD;
    const size_t beside = where % SPW_VISIT_PLACES;
    part *x = &v->part[p], *other = &v->part[beside];
    x->block = other->block;
    x->before = (int16_t)(lead ? NO_PART : (int)beside);
    x->behind = (int16_t)(lead ? (int)beside : other->behind);
    if (lead)
        other->lead = 0;
    else
        other->gap = 0, other->behind = (int16_t)p;
    if (x->behind != NO_PART) v->part[x->behind].before = (int16_t)p;
}

/* What others have of its block stays. */
static free_parts leave_between(visit *v, const part *x, free_parts beside) {
    const uint64_t bytes = x->bytes + x->gap;
    if (x->behind != NO_PART) v->part[x->behind].before = x->before;
    if (x->before != NO_PART) {
        v->part[x->before].gap += bytes;
        v->part[x->before].behind = x->behind;
        if (v->part[x->before].gap >= v->least) beside.gap |= (uint64_t)1 << x->before;
    } else {
        v->part[x->behind].lead = x->lead + bytes;
        if (x->lead + bytes >= v->least) beside.lead |= (uint64_t)1 << x->behind;
    }
    return beside;
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

/* As nothing had been: parts that are gone are of blocks that are free, or of another part. */
static bool give_up(visit *v, const spw_visit_step *step, const spw_visit_step *end,
                    const request *request_of, uint32_t pool) {
    for (; step != end; step++)
        if (step->born && request_of[step->size].pool == pool)
            v->block[v->part[step->place].block].lent = false;
    return false;
}

/* In one pool. after [steps] rises by the bytes in use behind each. */
static bool follow_pool(visit *v, const spw_visit_step *step, const spw_visit_step *end,
                        const request *request_of, uint32_t pool, uint64_t *after) {
    spw_block *const block = v->block;
    const uint64_t cut = pool % 2 == SPW_SMALL_POOL ? SPW_BLOCK_SMALLEST : SPW_SMALL_REQUEST + 1,
                   least = v->least;
    free_parts beside = {0, 0};
    uint64_t used = 0;
    for (const spw_visit_step *at = step; at != end; at++, after++) {
        const request *r = &request_of[at->size];
        part *x = &v->part[at->place];
        if (r->pool == pool && at->born) {
            const uint64_t wanted = r->bytes;
            int32_t own = r->first;
            while (own != SPW_NO_BLOCK && block[own].lent) own = block[own].larger;
            uint64_t best = own != SPW_NO_BLOCK ? block[own].bytes : UINT64_MAX;
            const size_t where = look_beside(v, beside, wanted, own, &best);
            if (best == UINT64_MAX) return give_up(v, step, at, request_of, pool);
            if (where == OWN_BLOCK) {
                block[own].lent = true;
                x->block = own;
                x->before = x->behind = NO_PART;
            } else {
                stand_between(v, where, at->place);
                if (where >= LEAD)
                    beside.lead &= ~((uint64_t)1 << (where - LEAD));
                else
                    beside.gap &= ~((uint64_t)1 << where);
            }
            x->lead = 0;
            x->gap = best - wanted >= cut ? best - wanted : 0;
            x->bytes = best - x->gap;
            used += x->bytes;
            if (x->gap >= least) beside.gap |= at->bit;
        } else if (r->pool == pool) {
            used -= x->bytes;
            beside.gap &= ~at->bit;
            beside.lead &= ~at->bit;
            if ((x->before & x->behind) == NO_PART)
                block[x->block].lent = false;
            else
                beside = leave_between(v, x, beside);
        }
        *after += used;
    }
    return true;
}

/* after [steps]: bytes in use behind each. */
static bool follow(spw_allocator *a, const place *at, const spw_visit_part *of, uint64_t *after) {
    const spw_visit_step *step = at->forms->step + of->step;
    request request_of[SPW_VISIT_SIZES];
    visit v;
    uint32_t pools = 0;
    bool fits = true;
    v.block = a->block;
    v.least = UINT64_MAX;
    for (size_t k = 0; k < of->sizes; k++) {
        const spw_visit_size *s = &at->size[of->size[k]];
        int32_t first = spw_pool_first_from(&a->pool[s->pool], s->sizes);
        while (first != SPW_NO_BLOCK && a->block[first].bytes < s->bytes) first = a->block[first].larger;
        request_of[k] = (request){s->bytes, first, s->pool};
        if (s->bytes < v.least) v.least = s->bytes;
        pools |= UINT32_C(1) << s->pool;
    }
    memset(after, 0, of->steps * sizeof *after);
    for (; pools != 0 && fits; pools &= pools - 1)
        fits = follow_pool(&v, step, step + of->steps, request_of, (uint32_t)__builtin_ctz(pools), after);
    return fits;
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
static bool fits_small(const spw_event_list *list, const place *at, spw_allocator *a) {
    uint64_t after[SPW_VISIT_EVENTS];
    if (fits_by_sums(a, SPW_SMALL_POOL, &at->visit->small)) return true;
    const uint64_t pool = spw_pool_number(a, SPW_SMALL_POOL),
                   number = spw_allocator_mix(at->visit->number + pool);
    uint64_t *known = list->fits != NULL && pool != 0 ? &list->fits->number[number % SPW_VISITS_KNOWN] : NULL;
    if (known != NULL && *known == number) return true;
    if (!follow(a, at, &at->plan->small, after)) return false;
    if (known != NULL) *known = number;
    return true;
}

/* Allocated by all of it, small and large requests. */
static uint64_t most_of(const place *at, const uint64_t *after) {
    const spw_visit_event *event = at->forms->event + at->form->event;
    uint64_t small = 0, large = 0, most = 0;
    for (size_t i = 0; i < at->form->events; i++) {
        const spw_size_class class = spw_class_of(at->plan->classes, event[i].size);
        const uint64_t bytes = at->size[event[i].size].bytes;
        if (class == SPW_SIZE_LARGE) large = *after++;
        if (class == SPW_SIZE_SMALL) small += event[i].born ? bytes : -bytes;
        spw_raise_to(&most, small + large);
    }
    return most;
}

/* beside: bytes that the visit may have without a new peak. *most: what it has, where that is more. */
static bool fits_large(const place *at, uint64_t beside, spw_allocator *a, uint64_t *most) {
    uint64_t after[SPW_VISIT_EVENTS], large = 0;
    if (!at->visit->others && at->visit->most <= beside && fits_by_sums(a, 0, &at->visit->large)) return true;
    if (!follow(a, at, &at->plan->large, after)) return false;
    if (at->visit->most <= beside) return true;
    for (size_t i = 0; i < at->plan->large.steps; i++) spw_raise_to(&large, after[i]);
    if (large + at->visit->small.bytes > beside) *most = most_of(at, after);
    return true;
}

bool spw_event_visit_replay(const spw_event_list *list, size_t which, spw_allocator *a) {
    const spw_event_visit *v = &list->visit[which];
    const spw_visit_form *form = &list->forms->form[v->form];
    const place at = {v, list->forms, form, &form->plan[v->plan], list->forms->size + v->size};
    spw_allocator_stats *s = &a->stats;
    uint64_t most = 0;
    if (!v->outlined || !fits_small(list, &at, a)) return false;
    if (!fits_large(&at, s->allocated_peak_bytes - s->allocated_bytes, a, &most)) return false;
    spw_raise_to(&s->requested_peak_bytes, s->requested_bytes + v->requested);
    spw_raise_to(&s->allocated_peak_bytes, s->allocated_bytes + most);
    return true;
}

bool spw_event_visit_can(const spw_allocator *a) {
    return !a->collects && !a->settings.expandable_segments && a->settings.max_split_bytes == UINT64_MAX &&
           a->settings.roundup_power2_divisions <= 1;
}
