/* Which points a search replays next. */
#include "sim/plan/search_walk.h"

#include <math.h>

/* Places of its values in the lists of the space. */
static void places_of(const spw_search_space *space, size_t index, size_t place[SPW_SEARCH_DIMENSIONS]) {
    for (size_t d = SPW_SEARCH_DIMENSIONS; d-- > 0; index /= space->values[d])
        place[d] = index % space->values[d];
}

void spw_search_learn(spw_search_lessons *l, const spw_search_space *space, const spw_search_candidate *c,
                      const spw_search_bound *known) {
    size_t place[SPW_SEARCH_DIMENSIONS];
    const double memory = (double)known->least_bytes / (double)c->bound.least_bytes,
                 speed = known->tokens_per_s_most / c->bound.tokens_per_s_most;
    const bool slower = speed < 1.0, first = c->bound.least_bytes < known->least_bytes;
    places_of(space, c->job, place);
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        if (slower) l->of[d][place[d]].speed += log(speed), l->of[d][place[d]].speeds += 1.0;
        if (first) l->of[d][place[d]].memory += log(memory), l->of[d][place[d]].memories += 1.0;
    }
    l->learned += slower || first;
}

/* Every value says what it saw in the mean; those that saw nothing say nothing. */
double spw_search_promise(const spw_search_walk *w, const spw_search_candidate *c) {
    const spw_search_lessons *l = &w->lessons;
    size_t place[SPW_SEARCH_DIMENSIONS];
    double speed = 0.0, speeds = 0.0, memory = 0.0, memories = 0.0;
    if (!w->timed) return c->bound.turn_sequences;
    if (c->sight != SPW_SEARCH_ROUGH || isinf(c->bound.tokens_per_s_most)) return c->bound.tokens_per_s_most;
    places_of(w->q->space, c->job, place);
    for (size_t d = 0; d < SPW_SEARCH_DIMENSIONS; d++) {
        const size_t at = place[d];
        if (w->q->space->values[d] < 2) continue;
        if (l->of[d][at].speeds > 0.0) speed += l->of[d][at].speed / l->of[d][at].speeds, speeds += 1.0;
        if (l->of[d][at].memories > 0.0)
            memory += l->of[d][at].memory / l->of[d][at].memories, memories += 1.0;
    }
    const double share = speeds > 0.0 ? exp(speed / speeds) : 1.0,
                 bytes = (double)c->bound.least_bytes * (memories > 0.0 ? exp(memory / memories) : 1.0),
                 over = bytes / (double)c->budget_bytes;
    return c->bound.tokens_per_s_most * share / (over > 1.0 ? over * over : 1.0);
}
