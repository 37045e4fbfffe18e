#include "sim/plan/search_reasons.h"

#include <string.h>

static size_t place_of(spw_search_reasons *all, const spw_outside_item *item) {
    static const spw_outside_item more = {"time", "more than a search tells apart: plan the point"};
    const size_t last = SPW_SEARCH_REASONS - 1;
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->item[i].of, item->of) == 0 && strcmp(all->item[i].feature, item->feature) == 0)
            return i;
    if (all->count < last) {
        all->item[all->count] = *item;
        return all->count++;
    }
    all->item[last] = more;
    all->count = SPW_SEARCH_REASONS;
    return last;
}

void spw_search_reasons_note(spw_search_reasons *all, const spw_outside_fit *fit, spw_search_outside *out) {
    out->count = 0;
    for (size_t i = 0; i < fit->count; i++)
        out->reason[out->count++] = (uint16_t)place_of(all, &fit->item[i]);
}

void spw_search_reasons_move(const spw_search_reasons *from, spw_search_reasons *all,
                             spw_search_outside *reasons) {
    for (size_t i = 0; i < reasons->count; i++)
        reasons->reason[i] = (uint16_t)place_of(all, &from->item[reasons->reason[i]]);
}
