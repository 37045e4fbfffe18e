/* What a result rests on: how it relates to the trace, and every sentence that was assumed. */
#ifndef SPW_SIM_ROUTING_ASSUMPTIONS_H
#define SPW_SIM_ROUTING_ASSUMPTIONS_H

#include <stddef.h>

/* How a result relates to the trace, from the best to the least. */
#define SPW_MATCH_LIST(X) \
    X(EXACT, "exact") \
    X(FOLDED, "folded") \
    X(RESAMPLED, "resampled") \
    X(SYNTHETIC, "synthetic")
#define SPW_MATCH_ENUM(name, text) SPW_MATCH_##name,
typedef enum spw_match { SPW_MATCH_LIST(SPW_MATCH_ENUM) SPW_MATCH_COUNT } spw_match;
#undef SPW_MATCH_ENUM
const char *spw_match_name(spw_match match);
void spw_match_worsen(spw_match *match, spw_match other); /* the later of the list is the worse */

enum { SPW_ASSUMPTION_TEXT = 768, SPW_ASSUMPTIONS = 24 };

/* Of one row, which has more room than there are kinds of sentences. Lists of several rows are not merged in one. */
typedef struct spw_assumptions {
    char text[SPW_ASSUMPTIONS][SPW_ASSUMPTION_TEXT];
    size_t count;
} spw_assumptions;
/* Adds a sentence unless it stands there already; in a full list the last says so. */
void spw_assume(spw_assumptions *list, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
