#include "sim/replay/search_front.h"

#include <math.h>
#include <string.h>

int spw_search_compare(const spw_search_front *front, const spw_search_point *a, const spw_search_point *b) {
    const double x = a->tokens_per_s_per_gpu, y = b->tokens_per_s_per_gpu;
    if (a->timed != b->timed) return a->timed ? -1 : 1;
    if (a->surely_fits != b->surely_fits) return a->surely_fits ? -1 : 1;
    if (front->fewest_gpus && a->gpus != b->gpus) return a->gpus < b->gpus ? -1 : 1;
    if (x > y || x < y) return x > y ? -1 : 1;
    if (!a->timed && a->sequences != b->sequences) return a->sequences > b->sequences ? -1 : 1;
    if (a->peak_bytes != b->peak_bytes) return a->peak_bytes < b->peak_bytes ? -1 : 1;
    if (a->gpus != b->gpus) return a->gpus < b->gpus ? -1 : 1;
    return (a->order > b->order) - (a->order < b->order);
}

/* Without a time more sequences count as speed does, so that the best is in front. */
static double merit(const spw_search_point *p) {
    return p->timed ? p->tokens_per_s_per_gpu : (double)p->sequences;
}

static bool beats(const spw_search_point *a, const spw_search_point *b) {
    if (a->timed != b->timed || a->kind != b->kind) return false;
    if (a->peak_bytes > b->peak_bytes || merit(a) < merit(b) || a->drops.fraction > b->drops.fraction ||
        a->gpus > b->gpus)
        return false;
    return a->peak_bytes < b->peak_bytes || merit(a) > merit(b) || a->drops.fraction < b->drops.fraction ||
           a->gpus < b->gpus;
}

void spw_search_front_take(spw_search_front *f, const spw_search_point *point) {
    size_t kept = 0;
    if (!f->found || spw_search_compare(f, point, &f->best) < 0) f->best = *point, f->found = true;
    if (point->surely_fits && (!f->found_sure || spw_search_compare(f, point, &f->best_sure) < 0))
        f->best_sure = *point, f->found_sure = true;
    for (size_t i = 0; i < f->points; i++)
        if (beats(&f->point[i], point) || f->point[i].order == point->order) return;
    for (size_t i = 0; i < f->points; i++)
        if (!beats(point, &f->point[i])) f->point[kept++] = f->point[i];
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
    const double most = timed ? bound->tokens_per_s_most : (double)bound->sequences;
    for (size_t i = 0; i < f->points; i++) {
        const spw_search_point *p = &f->point[i];
        if (p->timed != timed || p->kind != bound->kind || p->gpus > bound->gpus || p->drops.fraction > 0.0)
            continue;
        if (bound->may_surely_fit && !p->surely_fits) continue;
        if (p->peak_bytes > bound->least_bytes || merit(p) < most) continue;
        if (p->peak_bytes < bound->least_bytes || merit(p) > most || p->gpus < bound->gpus) return true;
    }
    return false;
}
