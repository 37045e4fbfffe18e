#include "sim/memory/step/advice.h"

#include "sim/machine/stack_defaults.h"
#include "sim/print/plural.h"

#include <math.h>
#include <stdio.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0, WORTH_IT = 0.05; /* of the budget */
#define CONF "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

double spw_reserved_low(const spw_reserved_summary *s) {
    return fmax((double)s->as_set.requested.max_bytes,
                (1.0 - spw_default_reserved_doubt.value) * (double)s->as_set.reserved.max_bytes);
}

double spw_reserved_high(const spw_reserved_summary *s) {
    const bool sure = s->as_set.failed_steps == 0 && s->as_set.retried_steps == 0;
    return sure ? (1.0 + spw_default_reserved_doubt.value) * (double)s->as_set.reserved.max_bytes : INFINITY;
}

spw_verdict spw_reserved_verdict(const spw_reserved_summary *s) {
    const uint64_t limit = s->limit_bytes;
    if (s->as_set.failed_steps > 0) return SPW_VERDICT_OOM;
    return spw_interval_verdict(0.0, spw_reserved_high(s), limit > 0 ? (double)limit : INFINITY);
}

static void advise_failing(const spw_reserved_summary *s, double state, char *out, size_t size) {
    const double room = (double)s->limit_bytes, live = (double)s->as_set.requested.max_bytes;
    if (state > room) {
        (void)snprintf(out, size,
                       "its weights, gradients and optimizer alone are %.1f of %.1f GiB, which no batch "
                       "changes: cut them over more GPUs, or take smaller formats",
                       state / GIB, room / GIB);
        return;
    }
    if (!s->expandable_segments && s->expandable.failed_steps == 0) {
        (void)snprintf(out, size,
                       "with expandable segments this job fits: " CONF " (most reserved %.1f of %.1f GiB)",
                       (double)s->expandable.reserved.max_bytes / GIB, room / GIB);
        return;
    }
    if (!s->expandable_segments && s->expandable.failed_steps < s->as_set.failed_steps) {
        (void)snprintf(
            out, size,
            "expandable segments alone do not do it: %zu steps fail instead of %zu; also take fewer "
            "sequences, recompute more, or use a capacity",
            s->expandable.failed_steps, s->as_set.failed_steps);
        return;
    }
    (void)snprintf(
        out, size,
        "live tensors need %.1f of %.1f GiB%s: take fewer sequences, recompute more, use a capacity, or more "
        "GPUs",
        live / GIB, room / GIB,
        live > room ? ", whatever the allocator"
                    : ", and no setting of the allocator finds room for the rest");
}

void spw_advice(const spw_reserved_summary *s, uint64_t state_bytes, char out[SPW_ADVICE_TEXT]) {
    const spw_reserved_outcome *set = &s->as_set, *grown = &s->expandable;
    const double spared = (double)set->reserved.max_bytes - (double)grown->reserved.max_bytes;
    out[0] = '\0';
    if (!s->there) return;
    if (set->failed_steps > 0) {
        advise_failing(s, (double)state_bytes, out, SPW_ADVICE_TEXT);
    } else if (s->expandable_segments) {
        return;
    } else if (set->retried_steps > grown->retried_steps) {
        (void)snprintf(out, SPW_ADVICE_TEXT,
                       "it fits, but in %zu step%s PyTorch stops to give memory back; with expandable "
                       "segments in %zu: " CONF,
                       set->retried_steps, spw_plural(set->retried_steps), grown->retried_steps);
    } else if (spared > WORTH_IT * (double)s->limit_bytes) {
        (void)snprintf(out, SPW_ADVICE_TEXT,
                       "it fits; with expandable segments it would reserve %.1f GiB instead of %.1f: " CONF,
                       (double)grown->reserved.max_bytes / GIB, (double)set->reserved.max_bytes / GIB);
    }
}
