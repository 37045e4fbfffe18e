/* The traces of a folder, found by the name that a measured routing gives them: "NAME:STEP" or "NAME:all". A trace is
 * NAME's when its file name holds NAME, letters and digits alone compared: "aux" is in training_aux_e64.h5, "gptoss" in
 * gpt_oss_20b_decode.h5. */
#ifndef SPW_SIM_SCORE_MEGATRON_MEASURED_TRACES_H
#define SPW_SIM_SCORE_MEGATRON_MEASURED_TRACES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace;
typedef struct spw_measured_traces spw_measured_traces;

/* Lists the folder's files that end in .h5, in the order of their names; NULL has none. SPW_EIO when it cannot be listed.
 * Closed by spw_measured_traces_close. */
SPW_MUST_CHECK spw_status spw_measured_traces_open(const char *folder, spw_measured_traces **out);
void spw_measured_traces_close(spw_measured_traces *traces); /* NULL is fine */

/* What a routing's name asks for. */
typedef struct spw_measured_source {
    char name[64]; /* small letters and digits */
    bool all;      /* all steps, one behind the other; else the step with this id */
    int64_t step;
} spw_measured_source;
/* false: the routing does not name a trace. SPW_EFORMAT when it does and neither a step nor "all" follows. */
SPW_MUST_CHECK spw_status spw_measured_source_read(const char *routing, spw_measured_source *out,
                                                   bool *named);

/* The first trace of that name with these experts and choices that has the step, or tokens where all are asked for; *step is
 * its position. *out = NULL when there is none; else it lives as long as `traces`. */
SPW_MUST_CHECK spw_status spw_measured_traces_find(spw_measured_traces *traces,
                                                   const spw_measured_source *source, size_t experts,
                                                   size_t top_k, spw_trace **out, size_t *step);

#endif
