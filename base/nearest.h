/* The name somebody probably meant. */
#ifndef SPW_BASE_NEAREST_H
#define SPW_BASE_NEAREST_H

#include <stddef.h>

/* Insertions, deletions and changes that turn one word into the other (Levenshtein 1966); words of more than
 * 63 characters are infinitely far from everything. */
size_t spw_nearest_distance(const char *a, const char *b);

/* Offer candidates one by one; `best` is the nearest that is near enough to be a slip, or NULL. */
typedef struct spw_nearest {
    const char *text, *best;
    size_t distance;
} spw_nearest;
void spw_nearest_offer(spw_nearest *nearest, const char *candidate);
/* The same of names: without case, what stands between words, a folder in front, and the v of a version, so that "deepseek2-lite" is
 * DeepSeek-V2-Lite. */
void spw_nearest_offer_name(spw_nearest *nearest, const char *candidate);

#endif
