/* Fates of a search's points, by name. */
#include "sim/plan/search_run.h"

#define FATE_KEY(name, key, text) key,

#define FATE_TEXT(name, key, text) text,

const char *spw_search_fate_key(spw_search_fate fate) {
    static const char *const keys[SPW_SEARCH_FATES] = {SPW_SEARCH_FATE_LIST(FATE_KEY)};
    return keys[fate];
}

const char *spw_search_fate_text(spw_search_fate fate) {
    static const char *const texts[SPW_SEARCH_FATES] = {SPW_SEARCH_FATE_LIST(FATE_TEXT)};
    return texts[fate];
}

bool spw_search_fate_is_replayed(spw_search_fate fate) { return fate >= SPW_SEARCH_OUT_OF_MEMORY; }

size_t spw_search_looked_at(const spw_search_outcome *outcome) {
    size_t points = 0;
    for (int f = 0; f < SPW_SEARCH_FATES; f++) points += outcome->fate[f];
    return outcome->stopped ? points : outcome->points;
}

bool spw_search_none_can_be(const spw_search_outcome *outcome) {
    const size_t *fate = outcome->fate;
    return !outcome->stopped && fate[SPW_SEARCH_IMPOSSIBLE] > 0 &&
           fate[SPW_SEARCH_IMPOSSIBLE] + fate[SPW_SEARCH_GLOBAL_BATCH] == outcome->points;
}
