#include "sim/routing/choice_tally.h"

#include "sim/routing/counts.h"

#include <inttypes.h>

void spw_choice_tally_add(spw_choice_tally *tally, const spw_counts *counts, size_t top_k) {
    for (size_t rank = 0; rank < counts->placement.ranks; rank++) {
        tally->slots += counts->tokens[rank] * top_k;
        tally->chosen += counts->assignments[rank];
    }
}

spw_status spw_choice_tally_assume(const spw_choice_tally *tally, spw_assumptions *list) {
    if (tally->chosen == 0)
        return spw_fail(SPW_EFORMAT,
                        "/tokens/expert_id: every choice is missing; there is nothing to replay");
    if (tally->chosen < tally->slots)
        spw_assume(
            list,
            "%.4g %% of the choices (%" PRIu64 " of %" PRIu64
            ") are missing from the trace: no row is counted for "
            "them, but their tokens count for capacities and drops; padded rows are left out by trace import "
            "--drop-padding",
            100.0 * (double)(tally->slots - tally->chosen) / (double)tally->slots,
            tally->slots - tally->chosen, tally->slots);
    return SPW_OK;
}
