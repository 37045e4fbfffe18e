#include "base/memory.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/reserved_parts.h"

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void record_death(const spw_reserved_memory *m, int variant, size_t step, size_t place,
                         spw_reserved_death *out) {
    const spw_reserved_rank *rank = &m->place[place];
    const spw_reserved_process *p = &rank->now->process[variant];
    if (!p->failed || out->there) return;
    const spw_memory_event *at = &rank->now->refused[variant];
    *out = (spw_reserved_death){.there = true,
                                .at_start = p->last.before.refused > 0,
                                .step = step,
                                .rank = spw_reserved_rank_of(m, place),
                                .stage = m->first_stage + spw_reserved_stage_of(m, place)};
    if (out->at_start) return;
    out->optimizer = at->optimizer;
    out->micro_batch = at->micro_batch;
    out->layer = at->layer != SPW_NO_MOE_LAYER ? at->layer : SIZE_MAX;
    out->backward = at->backward;
}

static void record_place(spw_reserved_memory *m, int variant, size_t place, spw_reserved_record *record) {
    const spw_reserved_rank *rank = &m->place[place];
    const spw_reserved_process *p = &rank->now->process[variant];
    const uint64_t allocated = p->last.after.allocated_peak_bytes,
                   reserved = p->last.after.reserved_peak_bytes;
    const spw_reserved_stage *stage = &m->stage[spw_reserved_stage_of(m, place)];
    const bool began = p->last.before.refused == 0;
    const uint64_t moments = stage->moment_bytes, before = began              ? p->last.before.requested_bytes
                                                           : rank->now->first ? stage->begin_bytes
                                                                              : stage->begin_bytes + moments;
    const uint64_t requested = before + larger(rank->now->peak_bytes, rank->now->first ? moments : 0);
    if (requested > record->requested) {
        record->requested = requested;
        record->live_place = place;
        record->live_layer = rank->now->at.layer != SPW_NO_MOE_LAYER ? rank->now->at.layer : 0;
        record->live_micro_batch = rank->now->at.micro_batch;
    }
    record->allocated = allocated > record->allocated ? allocated : record->allocated;
    if (reserved > record->reserved) record->reserved = reserved, record->place = place;
    record->retries += p->retries;
    record->failed = record->failed || p->failed;
    if (p->stranded > m->stranded[variant]) m->stranded[variant] = p->stranded;
}

void spw_reserved_record_place(spw_reserved_memory *m, int variant, size_t step, size_t place,
                               spw_reserved_record *record) {
    record_place(m, variant, place, record);
    record_death(m, variant, step, place, &m->death[variant]);
}

void spw_reserved_record_run(spw_reserved_memory *m, int variant, size_t step) {
    spw_reserved_record *record = &m->record[variant][step];
    const uint64_t retries = record->retries;
    record->retries = 0;
    for (size_t i = 0; i < spw_reserved_places(m); i++) {
        if (m->place[i].memory == NULL) continue;
        spw_reserved_record_place(m, variant, step, i, record);
    }
    if (retries > record->retries) record->retries = retries;
}

uint64_t spw_reserved_memory_reserved(const spw_reserved_memory *m, size_t step) {
    return m->record[AS_SET][step].reserved;
}

uint64_t spw_reserved_memory_allocated(const spw_reserved_memory *m, size_t step) {
    return m->record[AS_SET][step].allocated;
}

/* --- Summary --- */

static void summarize(const spw_reserved_memory *m, int variant, uint64_t *sorted,
                      spw_reserved_outcome *out) {
    const spw_reserved_record *record = m->record[variant];
    *out = (spw_reserved_outcome){.stranded_bytes = m->stranded[variant]};
    for (size_t i = 0; i < m->request.steps; i++) {
        sorted[i] = record[i].allocated;
        out->failed_steps += record[i].failed;
        out->retried_steps += record[i].retries > 0;
        out->retries += record[i].retries;
        if (record[i].reserved > record[out->worst_step].reserved) out->worst_step = i;
        if (record[i].requested > record[out->live_step].requested) out->live_step = i;
    }
    const spw_reserved_record *live = &record[out->live_step];
    out->worst_rank = spw_reserved_rank_of(m, record[out->worst_step].place);
    out->worst_stage = m->first_stage + spw_reserved_stage_of(m, record[out->worst_step].place);
    out->live_rank = spw_reserved_rank_of(m, live->live_place);
    out->live_stage = m->first_stage + spw_reserved_stage_of(m, live->live_place);
    out->live_layer = live->live_layer;
    out->live_micro_batch = live->live_micro_batch;
    out->death = m->death[variant];
    out->allocated = spw_byte_quantiles_of(sorted, m->request.steps);
    for (size_t i = 0; i < m->request.steps; i++) sorted[i] = record[i].requested;
    out->requested = spw_byte_quantiles_of(sorted, m->request.steps);
    for (size_t i = 0; i < m->request.steps; i++) sorted[i] = record[i].reserved;
    out->reserved = spw_byte_quantiles_of(sorted, m->request.steps);
}

spw_status spw_reserved_memory_finish(const spw_reserved_memory *m, spw_reserved_summary *out) {
    uint64_t *sorted = NULL;
    spw_status status = SPW_ALLOC(m->request.steps, &sorted);
    *out = (spw_reserved_summary){.there = true,
                                  .recorded = m->recorded != NULL,
                                  .limit_bytes = spw_allocator_limit_bytes(&m->settings[AS_SET]),
                                  .expandable_segments = m->settings[AS_SET].expandable_segments,
                                  .steps = m->request.steps,
                                  .processes = spw_reserved_places(m),
                                  .followed = m->followed};
    if (m->recorded != NULL) out->match = spw_snapshot_steps_match(m->recorded);
    if (status != SPW_OK) return status;
    summarize(m, AS_SET, sorted, &out->as_set);
    summarize(m, m->variants - 1, sorted, &out->expandable);
    out->oom = spw_oom_probability(out->as_set.failed_steps, m->request.steps);
    spw_free(sorted);
    return SPW_OK;
}
