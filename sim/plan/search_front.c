#include "sim/plan/search_front.h"

#include <math.h>
#include <string.h>

double spw_search_turn_sequences(size_t sequences, size_t micro_batches, size_t pipeline) {
    const size_t parts = micro_batches > 0 ? micro_batches : 1, stages = pipeline > 0 ? pipeline : 1;
    return (double)sequences / (double)(parts + stages - 1);
}

/* In single precision: sums of the same seconds in another order are equal. */
static double rounded(double speed) { return (double)(float)speed; }

/* Without a time what a GPU has before it counts as speed does, so that the best is in front. */
static double merit(const spw_search_point *p) {
    return rounded(p->timed ? p->tokens_per_s_per_gpu : p->turn_sequences);
}

int spw_search_compare(const spw_search_front *front, const spw_search_point *a, const spw_search_point *b) {
    const double x = merit(a), y = merit(b);
    if (a->timed != b->timed) return a->timed ? -1 : 1;
    if (a->surely_fits != b->surely_fits) return a->surely_fits ? -1 : 1;
    if (front->fewest_gpus && a->gpus != b->gpus) return a->gpus < b->gpus ? -1 : 1;
    if (x > y || x < y) return x > y ? -1 : 1;
    if (a->gpus != b->gpus) return a->gpus < b->gpus ? -1 : 1;
    if (a->step_tokens != b->step_tokens) return a->step_tokens < b->step_tokens ? -1 : 1;
    if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes ? -1 : 1;
    if (a->drops.fraction < b->drops.fraction || a->drops.fraction > b->drops.fraction)
        return a->drops.fraction < b->drops.fraction ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* How many times another's speed a point's must be to be as good. */
static double needed(size_t gpus, uint64_t step_tokens, size_t than_gpus, uint64_t than_tokens) {
    return gpus == than_gpus && step_tokens > than_tokens ? SPW_SEARCH_EQUAL_SPEED : 1.0;
}

static bool beats(const spw_search_point *a, const spw_search_point *b) {
    const double times = needed(a->gpus, a->step_tokens, b->gpus, b->step_tokens);
    if (a->timed != b->timed || a->kind != b->kind || (b->surely_fits && !a->surely_fits)) return false;
    if (a->peak_bytes > b->peak_bytes || merit(a) < merit(b) * times ||
        a->drops.fraction > b->drops.fraction || a->gpus > b->gpus)
        return false;
    return a->peak_bytes < b->peak_bytes || merit(a) > merit(b) || a->drops.fraction < b->drops.fraction ||
           a->gpus < b->gpus || a->step_tokens < b->step_tokens || (a->surely_fits && !b->surely_fits);
}

static bool same(double x, double y) { return (x >= y && x <= y) || (isnan(x) && isnan(y)); }

/* The same answer by another way, as by virtual stages without a pipeline. */
static bool is_alike(const spw_search_point *a, const spw_search_point *b) {
    return a->scheme == b->scheme && a->gpus == b->gpus && a->kind == b->kind && a->timed == b->timed &&
           a->surely_fits == b->surely_fits && a->verdict == b->verdict && a->sequences == b->sequences &&
           a->step_tokens == b->step_tokens && a->peak_bytes == b->peak_bytes &&
           a->low_bytes == b->low_bytes && a->high_bytes == b->high_bytes &&
           a->drops.dropped == b->drops.dropped && a->drops.assignments == b->drops.assignments &&
           same(a->step.low_s, b->step.low_s) && same(a->step.step_s, b->step.step_s) &&
           same(a->step.high_s, b->step.high_s) && same(a->reserved_bytes, b->reserved_bytes) &&
           !(merit(a) < merit(b)) && !(merit(a) > merit(b));
}

static bool has_first_alike(const spw_search_front *f, const spw_search_point *point) {
    for (size_t i = 0; i < f->points; i++)
        if (f->point[i].order < point->order && is_alike(&f->point[i], point)) return true;
    return false;
}

void spw_search_front_take(spw_search_front *f, const spw_search_point *point) {
    size_t kept = 0;
    if (!f->found || spw_search_compare(f, point, &f->best) < 0) f->best = *point, f->found = true;
    if (point->surely_fits && (!f->found_sure || spw_search_compare(f, point, &f->best_sure) < 0))
        f->best_sure = *point, f->found_sure = true;
    for (size_t i = 0; i < f->points; i++)
        if (beats(&f->point[i], point) || f->point[i].order == point->order) return;
    if (has_first_alike(f, point)) return;
    for (size_t i = 0; i < f->points; i++)
        if (!beats(point, &f->point[i]) && !is_alike(point, &f->point[i])) f->point[kept++] = f->point[i];
    f->points = kept;
    if (f->points == SPW_SEARCH_FRONT) { /* the worst of all goes */
        f->lost++;
        if (spw_search_compare(f, point, &f->point[--f->points]) > 0) {
            f->points++;
            return;
        }
    }
    size_t at = f->points++;
    for (; at > 0 && spw_search_compare(f, point, &f->point[at - 1]) < 0; at--)
        f->point[at] = f->point[at - 1];
    f->point[at] = *point;
}

/* The smallest batch that is as fast; of several the better one. */
static void settle(const spw_search_front *f, spw_search_point *best) {
    const spw_search_point from = *best;
    for (size_t i = 0; i < f->points; i++) {
        const spw_search_point *p = &f->point[i];
        if (p->timed != from.timed || p->gpus != from.gpus || p->surely_fits != from.surely_fits) continue;
        if (merit(p) * SPW_SEARCH_EQUAL_SPEED < merit(&from) || p->step_tokens > best->step_tokens) continue;
        if (p->step_tokens < best->step_tokens || spw_search_compare(f, p, best) < 0) *best = *p;
    }
}

static void lead(spw_search_front *f, const spw_search_point *best) {
    size_t at = 0;
    while (at < f->points && f->point[at].order != best->order) at++;
    for (; at > 0 && at < f->points; at--) f->point[at] = f->point[at - 1];
    if (f->points > 0) f->point[0] = *best;
}

void spw_search_front_settle(spw_search_front *f) {
    f->fastest = f->best;
    if (f->found) settle(f, &f->best);
    if (f->found_sure) settle(f, &f->best_sure);
    if (f->found) lead(f, &f->best);
}

const spw_search_point *spw_search_front_next(const spw_search_front *f, const spw_search_point *p,
                                              double *chance) {
    const spw_search_point *next = NULL;
    for (size_t i = 0; i < f->points && p->timed; i++) {
        const spw_search_point *q = &f->point[i];
        if (q->order == p->order || !q->timed || q->gpus != p->gpus) continue;
        if (q->tokens_per_s_per_gpu > p->tokens_per_s_per_gpu) continue;
        if (next == NULL || q->tokens_per_s_per_gpu > next->tokens_per_s_per_gpu) next = q;
    }
    *chance = next != NULL ? spw_pace_faster(&p->pace, &next->pace) : NAN;
    return next;
}

bool spw_search_front_beats(const spw_search_front *f, const spw_search_bound *bound, bool timed) {
    const double most = rounded(timed ? bound->tokens_per_s_most : bound->turn_sequences);
    for (size_t i = 0; i < f->points; i++) {
        const spw_search_point *p = &f->point[i];
        const double times = needed(p->gpus, p->step_tokens, bound->gpus, bound->step_tokens);
        if (p->timed != timed || p->kind != bound->kind || p->gpus > bound->gpus || p->drops.fraction > 0.0)
            continue;
        if (bound->may_surely_fit && !p->surely_fits) continue;
        if (p->peak_bytes > bound->least_bytes || merit(p) < most * times) continue;
        if (p->peak_bytes < bound->least_bytes || merit(p) > most || p->gpus < bound->gpus ||
            p->step_tokens < bound->step_tokens)
            return true;
    }
    return false;
}
