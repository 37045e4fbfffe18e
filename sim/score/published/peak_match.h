/* The values that XLA says live at the fullest moment of a program, beside the list that we give for it. Two are the same
 * when their sizes are within 0.4 %: a dump has no names of ours. What is smaller than 2 % of the arena counts only as a
 * partner. */
#ifndef SPW_SIM_SCORE_PUBLISHED_PEAK_MATCH_H
#define SPW_SIM_SCORE_PUBLISHED_PEAK_MATCH_H

#include "sim/memory/compiled/compiled_memory.h"
#include "sim/score/published/score_cell.h"

enum { SPW_PEAK_LISTED = 24 };

typedef struct spw_peak_match {
    size_t matched, missing, extra;      /* values; theirs without ours; ours without theirs */
    double missing_gib[SPW_PEAK_LISTED]; /* the largest of them */
    char extra_name[SPW_PEAK_LISTED][48];
    double extra_gib[SPW_PEAK_LISTED];
    double missing_sum_gib, extra_sum_gib;
} spw_peak_match;

/* All zero for a row without a peak list. SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_peak_match_row(const spw_score_cell *cell, const spw_compiled_memory *memory,
                                             spw_peak_match *out);

#endif
