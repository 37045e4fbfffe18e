/* What the points of a search rest on beyond what was fitted: every reason once, and points name them by their place. */
#ifndef SPW_SIM_PLAN_SEARCH_REASONS_H
#define SPW_SIM_PLAN_SEARCH_REASONS_H

#include "sim/replay/outside_fit.h"

#include <stddef.h>
#include <stdint.h>

enum { SPW_SEARCH_REASONS = 256 };
typedef struct spw_search_reasons {
    spw_outside_item item[SPW_SEARCH_REASONS];
    size_t count;
} spw_search_reasons;

/* Those of one point. */
typedef struct spw_search_outside {
    uint16_t reason[SPW_OUTSIDE_ITEMS];
    size_t count;
} spw_search_outside;

/* Adds what is new to `all`. What no longer fits there is told as one reason more, to plan the point. */
void spw_search_reasons_note(spw_search_reasons *all, const spw_outside_fit *fit, spw_search_outside *out);
/* The reasons of a point, which are among `from`, as those among `all`. */
void spw_search_reasons_move(const spw_search_reasons *from, spw_search_reasons *all,
                             spw_search_outside *reasons);

#endif
