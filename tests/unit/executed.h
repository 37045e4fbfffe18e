/* Schemes against their execution on random routing, for tests of schemes. */
#ifndef SPW_TESTS_EXECUTED_H
#define SPW_TESTS_EXECUTED_H

#include "base/memory.h"
#include "sim/verify/verify_cases.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <stdio.h>

/* What became of `count` schemes in the cases of seeds 1 to `seeds`, every prediction checked; spw_free() it. NULL: no memory, which is
 * a failure. */
static inline spw_verification *executed(const char *const *texts, size_t count, uint64_t seeds) {
    spw_verification *v = NULL;
    CHECK_OK(SPW_ALLOC(1, &v));
    if (v == NULL) return NULL;
    v->schemes = count;
    for (size_t i = 0; i < count; i++) v->scheme[i] = scheme_of(texts[i]);
    for (uint64_t seed = 1; seed <= seeds; seed++) CHECK_OK(spw_verify_random(v, seed));
    for (size_t i = 0; i < count; i++) {
        const spw_verify_tally *tally = &v->tally[i];
        if (tally->agreed != tally->comparisons) printf("%s: %s\n", texts[i], tally->first_miss);
        CHECK(tally->agreed == tally->comparisons);
    }
    return v;
}

#endif
