/* The result by step, layer and rank, in an HDF5 file that h5py and xarray read (dimension scales attached). */
#ifndef SPW_SIM_RESULT_RESULT_HDF5_H
#define SPW_SIM_RESULT_RESULT_HDF5_H

#include "base/status.h"
#include "sim/replay/replay.h"
#include "sim/replay/result.h"

#define SPW_RESULT_FORMAT_VERSION \
    "1.4.0" /* 1.4: `memory_timeline`; 1.3: experts and links; 1.2: `answers`, overload factors, step_s; docs/result_format.md */

/* docs/result_format.md. Datasets: scheme and sequences_per_gpu [result], step [step], layer [layer], rank [rank];
 * rows_received, bytes_sent, bytes_received, dropped [result][step][layer][rank]; peak_gib, allocated_gib and
 * reserved_gib [result][step] (0 where no allocator was replayed); expert_choices [step][layer][expert], link_bytes
 * [result][rank][member], where it is not too large.
 * Units stand as attributes; the settings stand as JSON in the attribute `settings`, the whole result as JSON
 * in the dataset summary_json. */
typedef struct spw_result_file spw_result_file;

/* Works on a temporary file beside `path`. `scheme` [settings->job->schemes]. */
SPW_MUST_CHECK spw_status spw_result_file_create(const char *path, const spw_run_settings *settings,
                                                 const spw_scheme *scheme, spw_result_file **out);
/* A sink that writes to `file`; one that nobody listens to when `file` is NULL. */
spw_replay_sink spw_result_file_sink(spw_result_file *file);
/* Closes the file and moves it to its place; `file` stays to be discarded. */
SPW_MUST_CHECK spw_status spw_result_file_commit(spw_result_file *file, const spw_result *result);
void spw_result_file_discard(spw_result_file *file); /* NULL is fine; removes what was not committed */

#endif
