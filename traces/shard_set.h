/* A trace of many files: a folder of them, or a list of their names. Each is a trace of its own, a shard, that holds some steps
 * of some source ranks of one run. Together they must be a grid: every range of steps with every range of ranks, once. */
#ifndef SPW_TRACES_SHARD_SET_H
#define SPW_TRACES_SHARD_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace;

typedef struct spw_shard {
    char *path;
    size_t steps, ranks;
    int64_t *step_id;      /* [steps] */
    uint64_t *step_tokens; /* [steps] */
    uint64_t *step_rows;   /* [steps] rows of /tokens */
    uint8_t *step_phase;   /* [steps] */
    int32_t *rank_id;      /* [ranks] */
} spw_shard;

typedef struct spw_shard_set {
    size_t shards;    /* = rows x columns */
    size_t rows;      /* ranges of steps, rising */
    size_t columns;   /* ranges of ranks, rising */
    spw_shard *shard; /* [rows][columns] */
    spw_trace *first; /* one of them, open: what all shards say alike */
} spw_shard_set;

/* Is it a folder, or a list of shards: a file whose name ends in .shards? */
bool spw_shard_set_is(const char *path);

/* Opens every shard once and checks that they are one trace. A folder holds shards in its files *.h5 and *.hdf5. A list has a
 * path a line, counted from the folder of the list; empty lines and what follows a # are nothing. SPW_EIO: a file cannot be read,
 * or a file NAME-00003-of-00008.h5 has not all its fellows. SPW_EFORMAT names the two shards that do not agree on the model
 * or hold the same steps of the same ranks, or the steps and ranks that no shard holds. Steps are missing where all steps
 * in shards lie equally far apart, but two shards do not; ranks, where they do not count upwards from 0 by one. */
SPW_MUST_CHECK spw_status spw_shard_set_read(const char *path, spw_shard_set *out);
void spw_shard_set_clear(spw_shard_set *set); /* a zeroed one is fine */

#endif
