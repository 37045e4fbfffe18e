/* The order in which candidates are replayed: the most promising first. */
#include "base/memory.h"
#include "base/stop.h"
#include "sim/plan/search_walk.h"

#include <math.h>

enum { AGAIN_SHARE = 8 }; /* promises are made anew after so many parts more replays */

/* A heap of what candidates promise: one whose bound is another since, or that is done, is passed over. */
typedef struct entry {
    double promise;
    uint64_t least_bytes;
    size_t at; /* of the candidates */
    spw_search_sight sight;
} entry;

typedef struct heap {
    entry *entry;
    size_t entries;
} heap;

/* Of equal promise the smallest, then the first of the space. */
static bool comes_before(const entry *a, const entry *b) {
    if (a->promise > b->promise || a->promise < b->promise) return a->promise > b->promise;
    if (a->least_bytes != b->least_bytes) return a->least_bytes < b->least_bytes;
    return a->at < b->at;
}

static void push(heap *h, const spw_search_walk *w, size_t at) {
    const spw_search_candidate *c = &w->candidate[at];
    const entry e = {spw_search_promise(w, c), c->bound.least_bytes, at, c->sight};
    size_t i = h->entries++;
    for (; i > 0 && comes_before(&e, &h->entry[(i - 1) / 2]); i = (i - 1) / 2)
        h->entry[i] = h->entry[(i - 1) / 2];
    h->entry[i] = e;
}

static void drop_first(heap *h) {
    const entry last = h->entry[--h->entries];
    size_t i = 0;
    for (size_t next = 1; next < h->entries; next = 2 * i + 1) {
        if (next + 1 < h->entries && comes_before(&h->entry[next + 1], &h->entry[next])) next++;
        if (!comes_before(&h->entry[next], &last)) break;
        h->entry[i] = h->entry[next];
        i = next;
    }
    h->entry[i] = last;
}

/* The first that still stands for its candidate; NULL: there is none. */
static const entry *first_of(heap *h, const spw_search_walk *w) {
    while (h->entries > 0) {
        const spw_search_candidate *c = &w->candidate[h->entry[0].at];
        if (!c->done && c->sight == h->entry[0].sight) return &h->entry[0];
        drop_first(h);
    }
    return NULL;
}

/* The candidates whose routing is that of candidate `at`, itself among them: *first to *last. Twins follow one another. */
static void find_twins(const spw_search_walk *w, size_t at, size_t *first, size_t *last) {
    const size_t twins = w->group.twins, set = w->candidate[at].job / twins;
    *first = *last = at;
    while (*first > 0 && w->candidate[*first - 1].job / twins == set) (*first)--;
    while (*last < w->candidates && w->candidate[*last].job / twins == set) (*last)++;
}

static spw_status take_alone(spw_search_walk *w, size_t at) {
    bool taken = true;
    spw_search_group_clear(&w->group);
    w->group.whole = w->candidate[at].sight == SPW_SEARCH_REFINED;
    return spw_search_group_add(w, &w->candidate[at], &taken);
}

/* All that are to be replayed, as they promise now. */
static void fill(heap *h, const spw_search_walk *w) {
    h->entries = 0;
    for (size_t i = 0; i < w->candidates; i++)
        if (!w->candidate[i].done) push(h, w, i);
}

/* What the best of all others promises, of those that are not in the group. */
static double next_promise(heap *h, const spw_search_walk *w) {
    const entry *next = first_of(h, w);
    for (; next != NULL && w->candidate[next->at].grouped; next = first_of(h, w)) drop_first(h);
    return next != NULL ? next->promise : -1.0;
}

/* What the group has left of its candidates: each is done, or waits with a better bound. */
static void put_back(heap *h, spw_search_walk *w, size_t first, size_t last) {
    for (size_t i = first; i < last; i++) {
        if (!w->candidate[i].grouped) continue;
        w->candidate[i].grouped = false;
        if (!w->candidate[i].done) push(h, w, i);
    }
}

/* The greatest bound of what no replay has judged. */
static void note_unseen(spw_search_walk *w) {
    double *most = &w->out->proof.unseen_most;
    for (size_t i = 0; i < w->candidates; i++)
        if (!w->candidate[i].done) *most = fmax(*most, w->candidate[i].bound.tokens_per_s_most);
}

static size_t count_done(const spw_search_walk *w, size_t first, size_t last) {
    size_t done = 0;
    for (size_t i = first; i < last; i++) done += w->candidate[i].done;
    return done;
}

static spw_status run_heap(spw_search_walk *w, heap *h, spw_progress *progress) {
    size_t done = 0;
    spw_status status = SPW_OK;
    size_t again = 1;
    for (const entry *e = first_of(h, w); e != NULL && !spw_stop_is_asked(); e = first_of(h, w)) {
        const size_t at = e->at;
        size_t first = 0, last = 0;
        spw_search_proceed(w, progress, done);
        find_twins(w, at, &first, &last);
        const size_t before = count_done(w, first, last);
        const double begin = spw_clock_s();
        const bool settled = spw_search_settle(w, &w->candidate[at]);
        if (!settled && w->candidate[at].sight == SPW_SEARCH_ROUGH) {
            SPW_TRY(spw_search_sharpen(w, at, first, last));
            w->out->effort.sharpening_s += spw_clock_s() - begin;
            for (size_t i = first; i < last; i++)
                if (!w->candidate[i].done && w->candidate[i].sight == SPW_SEARCH_SHARP) push(h, w, i);
        } else if (!settled) {
            SPW_TRY(take_alone(w, at));
            w->group.next = next_promise(h, w);
            SPW_TRY(spw_search_replay(w));
            w->out->effort.plans_s += spw_clock_s() - begin;
            put_back(h, w, first, last);
        }
        done += count_done(w, first, last) - before;
        if (done > 0) spw_search_proceed(w, progress, done);
        if (w->lessons.learned < again) continue;
        again = w->lessons.learned + 1 + w->lessons.learned / AGAIN_SHARE;
        fill(h, w);
    }

cleanup:
    return status;
}

spw_status spw_search_round(spw_search_walk *w) {
    spw_progress progress = spw_progress_begin("search", "points", w->candidates), *before = w->progress;
    const size_t done = w->done;
    char less[SPW_SEARCH_LESS_TEXT];
    heap h = {.entries = 0};
    spw_status status = SPW_OK;
    progress.less = spw_search_space_less(w->q->space, less);
    SPW_TRY(SPW_ALLOC(3 * w->candidates + 1, &h.entry));
    fill(&h, w);
    SPW_TRY(run_heap(w, &h, &progress));
    if (spw_stop_is_asked()) note_unseen(w);
    w->candidates = 0;

cleanup:
    spw_free(h.entry);
    spw_search_proceed(w, before, done);
    spw_progress_end(&progress);
    return status;
}
