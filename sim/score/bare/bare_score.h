/* One MoE layer of Megatron-Core, forward and backward under balanced routing, beside a published benchmark of it.
 *
 * Experts of two matrices without a gate, [H, F] and [F, H], are asked as gated ones with ffn 2 F / 3, to the nearest whole number: they
 * have the same parameters, operations and bytes kept for the backward pass; H weights a row of 3 F at most are rounded. */
#ifndef SPW_SIM_SCORE_BARE_BARE_SCORE_H
#define SPW_SIM_SCORE_BARE_BARE_SCORE_H

#include "sim/job/job_words.h"
#include "sim/job/software.h"
#include "sim/read/csv.h"
#include "sim/schemes/scheme.h"
#include "sim/time/timeline.h"

enum { SPW_BARE_REASON = 512 };

typedef struct spw_bare_row {
    const char *table, *id, *dispatcher, *recipe; /* the table's */
    size_t line, ffn, asked_ffn;                  /* asked_ffn: of gated experts */
    char scheme[SPW_SCHEME_TEXT];
    char skipped[SPW_BARE_REASON];               /* why there is no time; "" */
    char stack[SPW_SOFTWARE_TEXT];               /* whose coefficients are asked; "": none */
    spw_timeline time;                           /* without components: none */
    double peak_gib, true_step_s, true_peak_gib; /* NAN: not there, as the peak of fp8 */
} spw_bare_row;

typedef struct spw_bare_score {
    spw_csv **csv;
    size_t tables;
    spw_bare_row *row;
    size_t rows;
} spw_bare_score;

/* Columns: notebooks_data/README.md. stack: as --stack of plan; NULL: that of a
 * whole model on these GPUs, as the layers ran under what trains those. SPW_ECONFIG with file, line and column where a field is
 * none. Closed by spw_bare_score_close. */
SPW_MUST_CHECK spw_status spw_bare_score_open(const char *const *tables, size_t count, const char *stack,
                                              spw_bare_score *out);
void spw_bare_score_close(spw_bare_score *score);

/* Predicted over published, minus 1; NAN where one is not there. */
double spw_bare_step_error(const spw_bare_row *row);
double spw_bare_peak_error(const spw_bare_row *row);
bool spw_bare_is_inside(const spw_bare_row *row); /* the published step lies in the interval */

typedef struct spw_bare_summary {
    size_t skipped, steps, inside;
    double step_mape, step_max, step_bias, width_median; /* NAN: none */
} spw_bare_summary;
SPW_MUST_CHECK spw_status spw_bare_summarise(const spw_bare_score *score, spw_bare_summary *out);

#endif
