/* What follows from the rows of a result: which of them fit, which is best, which are worth a look. Computed once: plan,
 * replay and report draw it. */
#ifndef SPW_SIM_REPLAY_RESULT_ANSWERS_H
#define SPW_SIM_REPLAY_RESULT_ANSWERS_H

#include "base/status.h"
#include "sim/replay/result.h"

#include <stdbool.h>
#include <stddef.h>

/* What is called fastest drops at most this share of the assignments unless the user says otherwise. */
#define SPW_DROP_MOST 0.01

bool spw_point_fits(const spw_result_row *row); /* tight fits, too */
enum { SPW_FIT_COUNTS = 64 };
/* "10 fit", or "8 fit, 2 may not fit" where the larger end of what some may take is over the budget. Returns `out`. */
const char *spw_fit_counts_text(const spw_result *result, char out[SPW_FIT_COUNTS]);
bool spw_point_is_live_alone(
    const spw_result_row *row);                  /* nothing says what comes on top of its live memory */
bool spw_point_drops(const spw_result_row *row); /* for certain none: false */

double spw_result_drop_fraction(const spw_result_drops *drops); /* of the assignments */
/* Fills row->most_bytes, surely_fits and drops.fraction from what the row holds otherwise. The most that it may take: of an arena
 * the larger end of its interval; where PyTorch's allocator was replayed what it reserved, where no step had to give memory back; of
 * what must be live alone the larger end of the newest stack's arena, or state and the rest times what that allocator took at most
 * where it was measured (sim/memory/allocator/allocator_share.h). */
void spw_result_row_judge(spw_result_row *row, const spw_job_allocator *allocator);

/* The fastest row that has a time, fits and drops at most the share `most` of the assignments; NULL when none does.
 * most 0: it drops nothing, for certain; surely: of those that surely fit. Equal speed: less memory, then
 * fewer drops, then the first. */
const spw_result_row *spw_result_fastest(const spw_result *result, double most, bool surely);
/* Of those that need not fit. */
const spw_result_row *spw_result_fastest_tight(const spw_result *result, double most);
/* The same of one scheme, whatever it drops. */
const spw_result_row *spw_result_fastest_of(const spw_result *result, const char *scheme);

/* Fills result->answers; call it when all rows are there. The order, best first, whatever they drop: rows with a time, of these those that surely fit,
 * faster first, then less memory, then fewer drops; then rows without one, the larger batch first, then less memory; equals in
 * the order of the rows. A row is in front where no other that fits, its memory of the same kind, is at least as good in memory
 * (peak), speed, drops and certainty to fit, and better in one: `fastest` always is. Rows without a time are compared by memory and drops among themselves. */
SPW_MUST_CHECK spw_status spw_result_answer(spw_result *result, double drop_most);

/* A row by its position in an answer; NULL for SPW_NO_ROW. */
const spw_result_row *spw_result_row_at(const spw_result *result, size_t row);

#endif
