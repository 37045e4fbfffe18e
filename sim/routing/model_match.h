/* What a trace says of its model, beside the model of a job. */
#ifndef SPW_SIM_ROUTING_MODEL_MATCH_H
#define SPW_SIM_ROUTING_MODEL_MATCH_H

#include "sim/model/model.h"
#include "sim/routing/assumptions.h"

typedef struct spw_trace_info spw_trace_info;

typedef enum spw_model_match {
    SPW_MODEL_SAME, /* what is said agrees, and every layer of the trace has experts in the job */
    SPW_MODEL_UNSAID, /* the trace says neither its hidden size nor its layers nor its name; nothing disagrees */
    SPW_MODEL_OTHER,   /* something differs */
    SPW_MODEL_OF_NONE, /* a synthetic trace of no model, whose layers are not numbered as the job's */
} spw_model_match;

/* Layers [begin, end) of the trace. `text` says what differs, or is "". Experts and top-k are compared elsewhere: those must
 * agree. */
spw_model_match spw_trace_model_match(const spw_trace_info *info, size_t begin, size_t end,
                                      const spw_model *model, char text[SPW_ASSUMPTION_TEXT]);

#endif
