/* Measured runs of bare Megatron-Core layers beside what the event list and the allocator say of them. Two kinds of
 * table: runs (a row is run x rank; every run begins with an empty cache) and sequences (a row is step x rank of one
 * process with changing routing; has a column "sequence"). Columns: notebooks_data/measured/README.md. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_SCORE_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_SCORE_H

#include "base/status.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/read/csv.h"
#include "sim/score/megatron/measured_run.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of one figure; measured 0 = the table does not say. */
typedef struct spw_measured_pair {
    uint64_t predicted, measured;
} spw_measured_pair;

typedef struct spw_measured_cell {
    size_t line;               /* in the table */
    const char *run, *routing; /* live as long as the score */
    size_t rank, step;
    bool composed;       /* rows were composed from the routing, else taken from the table */
    const char *differs; /* the first column in which the composed rows differ; NULL = none does */
    char unknown[256];   /* why the row was not replayed; "" = it was */
    bool approximated;   /* sequential experts whose rows are not known were replayed as grouped ones */
    spw_measured_pair requested_peak, requested_after_forward;
    spw_measured_pair allocated_before, allocated_after_forward, allocated_peak, reserved;
} spw_measured_cell;

typedef struct spw_measured_score {
    spw_csv *table;
    spw_measured_cell *cell;
    size_t cells;
    bool sequence;
    const spw_allocator_settings *settings; /* NULL: a row's own */
} spw_measured_score;

/* `traces`: a folder with the traces of the routings, or NULL. A row is replayed under the settings of the allocator that it ran
 * with, as the table says (columns allocator, device_limit_bytes; without them the defaults), or under `settings`, borrowed, where
 * they are not NULL. A step of a model or of settings that are not known is not replayed: `unknown` says why, and its figures are 0.
 * Closed by spw_measured_score_close. */
SPW_MUST_CHECK spw_status spw_measured_score_open(const char *path, const char *traces,
                                                  const spw_allocator_settings *settings,
                                                  spw_measured_score *out);
void spw_measured_score_close(spw_measured_score *score);

/* Absolute errors over all cells of `count` scores: in bytes and as parts of what was measured. */
typedef struct spw_measured_errors {
    double median_bytes, max_bytes, median_relative, max_relative; /* NAN when there are none */
    size_t count, within; /* within: errors of at most `bound` bytes */
} spw_measured_errors;
typedef spw_measured_pair (*spw_measured_figure)(const spw_measured_cell *cell);
SPW_MUST_CHECK spw_status spw_measured_score_errors(const spw_measured_score *scores, size_t count,
                                                    spw_measured_figure figure, double bound,
                                                    spw_measured_errors *out);

typedef struct spw_measured_agreement {
    size_t composed, agreed; /* cells whose rows, drops and bytes were composed; equal in all columns */
    size_t unknown;          /* cells that were not replayed */
} spw_measured_agreement;
spw_measured_agreement spw_measured_score_agreement(const spw_measured_score *score);

#endif
