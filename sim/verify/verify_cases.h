/* The cases on which schemes are verified: layers of a trace, and random routing of odd shapes. */
#ifndef SPW_SIM_VERIFY_VERIFY_CASES_H
#define SPW_SIM_VERIFY_VERIFY_CASES_H

#include "base/status.h"
#include "sim/schemes/scheme.h"
#include "sim/verify/agreement.h"
#include "sim/verify/trace_group.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SPW_VERIFY_SCHEMES = 96,
    SPW_VERIFY_EXPERTS = 24 /* of a random case, at most */
};

/* Schemes with one tally each. */
typedef struct spw_verification {
    spw_scheme scheme[SPW_VERIFY_SCHEMES];
    spw_verify_tally tally[SPW_VERIFY_SCHEMES];
    size_t schemes;
} spw_verification;

typedef struct spw_verify_trace_settings {
    spw_trace_group_settings group;
    size_t step_begin, step_end, layer_begin, layer_end; /* as in spw_composer_request */
    bool all_groups;                                     /* of a layer, instead of one in turn */
} spw_verify_trace_settings;

/* Is the scheme executed where ranks share experts (settings.group.expert_tensor above 1)? */
bool spw_verify_shares(const spw_scheme *scheme);

/* Runs every scheme that can be on the layers of a trace. */
SPW_MUST_CHECK spw_status spw_verify_trace(spw_verification *v, spw_trace *trace,
                                           const spw_verify_trace_settings *settings);
/* The same on one random case: even routing, all to the first experts, a few without a choice, or one token; with
 * experts that ranks share, in turn, for schemes that can. */
SPW_MUST_CHECK spw_status spw_verify_random(spw_verification *v, uint64_t seed);

#endif
