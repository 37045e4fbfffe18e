#include "sim/routing/load_tally.h"

#include "base/memory.h"
#include "sim/routing/counts.h"

spw_status spw_load_tally_create(size_t most, size_t steps, spw_load_tally *out) {
    spw_status status = SPW_OK;
    *out = (spw_load_tally){.most = most, .steps = steps};
    SPW_TRY(SPW_ALLOC(most + 1, &out->load));
    SPW_TRY(SPW_ALLOC(steps, &out->heaviest));

cleanup:
    return status;
}

void spw_load_tally_destroy(spw_load_tally *t) {
    spw_free(t->load);
    spw_free(t->heaviest);
    *t = (spw_load_tally){.most = 0};
}

/* Adds the loads of a line that so many ranks have. */
static spw_status add_line(const spw_load_tally *t, const uint32_t *routed, size_t experts, size_t ranks,
                           uint64_t *load) {
    for (size_t x = 0; x < experts; x++) {
        if (routed[x] > t->most)
            return spw_fail(SPW_EFORMAT,
                            "expert %zu has %u choices of a rank, which has %zu tokens of a micro-batch", x,
                            routed[x], t->most);
        load[routed[x]] += ranks;
    }
    return SPW_OK;
}

spw_status spw_load_tally_note(const spw_load_tally *t, const spw_counts *counts, spw_note *out) {
    const size_t ranks = counts->placement.ranks, experts = counts->placement.experts;
    size_t *sharers = NULL; /* [lines] ranks of each, which are numbered as they come */
    void *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(ranks, &sharers));
    for (size_t rank = 0; rank < ranks; rank++) sharers[spw_counts_line_of(counts, rank)]++;
    SPW_TRY(spw_note_add(out, (t->most + 1) * sizeof *t->load, &at));
    for (size_t line = 0; line < ranks && sharers[line] > 0; line++)
        SPW_TRY(add_line(t, counts->routed + line * experts, experts, sharers[line], at));

cleanup:
    spw_free(sharers);
    return status;
}

spw_status spw_load_tally_take(spw_load_tally *t, size_t step, spw_note_reader *record) {
    const void *at = NULL;
    const spw_status status = spw_note_next(record, (t->most + 1) * sizeof *t->load, &at);
    const uint64_t *noted = at;
    for (size_t load = 0; load <= t->most && status == SPW_OK; load++) {
        t->load[load] += noted[load];
        if (noted[load] > 0 && load > t->heaviest[step]) t->heaviest[step] = load;
    }
    return status;
}

spw_status spw_load_tally_state(spw_load_tally *t, const spw_state *state) {
    const spw_status status = spw_state_part(state, t->load, (t->most + 1) * sizeof *t->load);
    return status == SPW_OK ? spw_state_part(state, t->heaviest, t->steps * sizeof *t->heaviest) : status;
}

spw_capacity_drops spw_load_tally_drops(const spw_load_tally *t, size_t capacity) {
    spw_capacity_drops drops = {.assignments = 0};
    for (size_t load = 1; load <= t->most; load++) {
        drops.assignments += t->load[load] * load;
        if (load > capacity) drops.dropped += t->load[load] * (load - capacity);
    }
    for (size_t step = 0; step < t->steps; step++) drops.dropping_steps += t->heaviest[step] > capacity;
    return drops;
}
