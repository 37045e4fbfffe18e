/* Whether a point fits, in one word. */
#ifndef SPW_SIM_MEMORY_KEPT_VERDICT_H
#define SPW_SIM_MEMORY_KEPT_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum spw_verdict { SPW_VERDICT_FITS, SPW_VERDICT_TIGHT, SPW_VERDICT_OOM } spw_verdict;
const char *spw_verdict_name(spw_verdict verdict); /* "fits", "tight", "oom" */
/* The same for a person. live: it is of what must be live alone, a lower bound, which fits more often than what runs: "live
 * fits", "live tight"; a lower bound over the budget is "oom" all the same. */
const char *spw_verdict_text(spw_verdict verdict, bool live);

/* Does all that it may take lie within the budget, and not only what it takes by the figure? most_bytes: the larger end of its
 * interval; of a lower bound with what is added to it at most, INFINITY where nothing is known of that. */
bool spw_verdict_is_sure(spw_verdict verdict, double most_bytes, double budget_bytes);
/* What a sentence says of it, wherever it stands: "surely fits", "may not fit", "is tight, and surely fits", "is tight, and may not fit", "does not fit". */
const char *spw_verdict_sentence(spw_verdict verdict, bool surely);

/* Of a lower bound: tight where less than 5 % of the budget is free. */
spw_verdict spw_footprint_verdict(uint64_t peak_bytes, uint64_t budget_bytes);
/* Of a figure with an interval: fits where its high end does, tight where the figure itself does. high_bytes INFINITY: not known. */
spw_verdict spw_interval_verdict(double bytes, double high_bytes, double budget_bytes);

#endif
