/* What goes with what: features of a job and of a scheme, and the pairs of them that are not modelled, each with the sentence that
 * refuses it. A feature is a line of one of the two lists, a pair is a row of goes_with_rows.c; nothing else refuses a pair.
 * Limits of values (sizes that must divide, formats of one key) are no pairs and stay with their keys. docs/goes_with.md is made of it:
 * build/release/tests/unit/test_goes_with docs/goes_with.md print > NEW. */
#ifndef SPW_SIM_JOB_GOES_WITH_H
#define SPW_SIM_JOB_GOES_WITH_H

#include "sim/job/goes_with_list.h"
#include "sim/job/job_words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPW_FEATURE_ENUM(name, words, holds) SPW_WITH_##name,
typedef enum spw_feature {
    SPW_JOB_FEATURES(SPW_FEATURE_ENUM) SPW_SCHEME_FEATURES(SPW_FEATURE_ENUM) SPW_FEATURES
} spw_feature;
#undef SPW_FEATURE_ENUM

/* Which features are there: bit f % 64 of word[f / 64]. */
typedef struct spw_features {
    uint64_t word[(SPW_FEATURES + 63) / 64];
} spw_features;

static inline void spw_features_set(spw_features *f, spw_feature feature, bool there) {
    if (there) f->word[feature / 64] |= (uint64_t)1 << feature % 64;
}
static inline bool spw_features_have(const spw_features *f, spw_feature feature) {
    return (f->word[feature / 64] >> feature % 64 & 1) != 0;
}

/* One pair that is refused. In a sentence {word} is a word of the job or of the scheme (goes_with.c). key: where the job's file is to
 * be changed; NULL: it is asked with a scheme. */
typedef struct spw_pair {
    spw_feature one, other;
    const char *key, *sentence;
} spw_pair;
extern const spw_pair spw_pairs[];
extern const size_t spw_pairs_count;

/* A scheme's side: its features and its words, which stand before the job's. Ended by a NULL name. */
typedef struct spw_scheme_side {
    spw_features has;
    const struct spw_side_word { const char *name, *text; } * words;
} spw_scheme_side;

const char *spw_feature_words(spw_feature feature);
/* SPW_ECONFIG with the sentence of the first row of which the job has both features. Without a side: of the rows that have a key, which
 * is then *key; else of the others, and `key` may be NULL. */
SPW_MUST_CHECK spw_status spw_goes_with_check(const spw_job *job, const spw_scheme_side *side,
                                              const char **key);

#endif
