/* Rows of tables of measured runs. Columns: notebooks_data/measured/README.md. Errors: SPW_EFORMAT with file, line and
 * column. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_RUN_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_RUN_H

#include "base/status.h"
#include "sim/memory/allocator/allocator.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/read/csv.h"
#include "sim/score/megatron/measured_batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPW_MEASURED_LAYERS = 64, SPW_MEASURED_RANKS = 64 }; /* at most */

/* Exactly `count` whole numbers separated by ';'. */
SPW_MUST_CHECK spw_status spw_measured_read_list(const spw_csv *csv, size_t row, const char *column,
                                                 size_t count, uint64_t *out);
/* At most `most`. */
SPW_MUST_CHECK spw_status spw_measured_read_count(const spw_csv *csv, size_t row, const char *column,
                                                  size_t most, size_t *out);
/* SPW_EFORMAT that says where, and what stands there. */
SPW_MUST_CHECK spw_status spw_measured_wrong(const spw_csv *csv, size_t row, const char *column,
                                             const char *text);

/* What a row of a table of runs says of its run. */
typedef struct spw_measured_run {
    spw_measured_shape batch;
    spw_recompute recompute;
    bool sequential;                 /* one expert behind the other */
    spw_allocator_settings settings; /* that the process ran with */
} spw_measured_run;
SPW_MUST_CHECK spw_status spw_measured_read_run(const spw_csv *csv, size_t row, spw_measured_run *out);
/* The same of a table of sequences: `model` stands for the shape where the table has no columns of it, `allocator` (as in
 * PYTORCH_CUDA_ALLOC_CONF; empty: the defaults) and `device_limit_bytes` are the settings. *unknown: why the row cannot be
 * replayed, of at most `size` characters: its model or its allocator is not known. "" = nothing is wrong. */
SPW_MUST_CHECK spw_status spw_measured_read_sequence(const spw_csv *csv, size_t row, spw_measured_run *out,
                                                     char *unknown, size_t size);
/* Batch and experts; not the settings. */
bool spw_measured_runs_equal(const spw_measured_run *left, const spw_measured_run *right);

#endif
