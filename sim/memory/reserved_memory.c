#include "sim/memory/reserved_memory.h"

#include "base/memory.h"
#include "sim/memory/allocator_conf.h"
#include "sim/memory/event_list.h"
#include "sim/memory/megatron_job.h"
#include "sim/memory/snapshot_steps.h"
#include "sim/memory/step_memory.h"

#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { AS_SET, EXPANDABLE, VARIANTS };

/* One rank under one setting. */
typedef struct process {
    spw_allocator *allocator;
    spw_allocation *live;
    spw_list_replay last; /* of the last step */
    uint64_t stranded;    /* when it ended */
    uint64_t retries;     /* in it */
    bool failed;
} process;

typedef struct rank_state {
    spw_step_memory *memory;
    size_t layer; /* where the list peaks, and how far above its beginning */
    uint64_t peak_bytes;
    process process[VARIANTS];
} rank_state;

/* Of one step: the largest of all ranks. */
typedef struct step_record {
    uint64_t requested, allocated, reserved, retries;
    size_t rank;                  /* where `reserved` is */
    size_t live_rank, live_layer; /* where `requested` is */
    bool failed;
} step_record;

struct spw_reserved_memory {
    const spw_job *job;
    spw_allocator_settings settings[VARIANTS];
    size_t ranks, layers, steps, slots;
    int variants;                  /* replayed: one where the setting is expandable already */
    rank_state *rank;              /* [ranks] */
    spw_rank_rows *rows;           /* [ranks][layers] */
    step_record *record[VARIANTS]; /* [steps] */
    uint64_t stranded[VARIANTS];
    spw_snapshot_steps *recorded; /* the job as it was recorded; NULL: none */
    spw_event_list begin;         /* what every process allocates first */
    uint64_t begin_bytes;         /* live when it ends, whether it fits or not */
};

/* --- Processes --- */

static void process_end(process *p) {
    spw_allocator_destroy(p->allocator);
    p->allocator = NULL;
}

static spw_status process_begin(const spw_reserved_memory *m, int variant, process *p) {
    spw_list_replay replay;
    spw_status status = spw_allocator_create(&m->settings[variant], &p->allocator);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < m->slots; i++) p->live[i].block = SPW_ALLOCATION_EMPTY;
    return spw_event_list_replay(&m->begin, p->allocator, p->live, &replay);
}

static spw_status process_step(const spw_reserved_memory *m, int variant, const spw_event_list *list,
                               process *p) {
    spw_status status = SPW_OK;
    if (p->allocator == NULL) SPW_TRY(process_begin(m, variant, p));
    SPW_TRY(spw_event_list_replay(list, p->allocator, p->live, &p->last));
    p->failed = p->last.refused || p->last.before.refused > 0;
    p->retries = p->last.after.retries - p->last.before.retries;
    p->stranded = spw_allocator_stranded_bytes(p->allocator);
    if (p->failed) process_end(p);

cleanup:
    return status;
}

/* --- The job --- */

spw_status spw_reserved_memory_create(const spw_point *point, const spw_footprint *footprint, size_t layers,
                                      size_t steps, spw_reserved_memory **out) {
    const spw_job *job = point->job;
    spw_reserved_memory *m = NULL;
    size_t cells = 0;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    m->job = job;
    m->ranks = spw_job_gpus(job);
    m->layers = layers;
    m->steps = steps;
    m->settings[AS_SET] = spw_allocator_conf_settings(&job->allocator, footprint->budget_bytes,
                                                      (uint64_t)(job->cluster.hbm_gib.value * GIB));
    m->settings[EXPANDABLE] = m->settings[AS_SET];
    m->settings[EXPANDABLE].expandable_segments = true;
    m->variants = m->settings[AS_SET].expandable_segments ? 1 : VARIANTS;
    if (!spw_mul_size(m->ranks, layers, &cells)) SPW_TRY(spw_fail(SPW_EARG, "too many ranks and layers"));
    SPW_TRY(SPW_ALLOC(cells, &m->rows));
    SPW_TRY(SPW_ALLOC(m->ranks, &m->rank));
    if (job->snapshot != NULL) {
        spw_megatron_shape shape;
        SPW_TRY(spw_megatron_recorded_layers(point, &shape));
        SPW_TRY(spw_snapshot_steps_create(job->snapshot, &shape, &m->recorded));
    }
    for (int v = 0; v < m->variants; v++) SPW_TRY(SPW_ALLOC(steps, &m->record[v]));
    for (size_t r = 0; r < m->ranks; r++) {
        rank_state *rank = &m->rank[r];
        SPW_TRY(spw_step_memory_create(point, footprint, m->recorded, &rank->memory));
        SPW_TRY(spw_step_memory_begin(rank->memory, &m->begin));
        m->slots = spw_step_memory_slots(rank->memory);
        for (int v = 0; v < m->variants; v++) SPW_TRY(SPW_ALLOC(m->slots, &rank->process[v].live));
    }
    m->begin_bytes = (uint64_t)spw_event_list_peak(&m->begin).after_forward_bytes;
    *out = m;
    m = NULL;

cleanup:
    spw_reserved_memory_destroy(m);
    return status;
}

void spw_reserved_memory_destroy(spw_reserved_memory *m) {
    if (m == NULL) return;
    for (size_t r = 0; r < m->ranks && m->rank != NULL; r++) {
        rank_state *rank = &m->rank[r];
        spw_step_memory_destroy(rank->memory);
        for (int v = 0; v < VARIANTS; v++) {
            process_end(&rank->process[v]);
            spw_free(rank->process[v].live);
        }
    }
    for (int v = 0; v < VARIANTS; v++) spw_free(m->record[v]);
    spw_event_list_destroy(&m->begin);
    spw_snapshot_steps_destroy(m->recorded);
    spw_free(m->rank);
    spw_free(m->rows);
    spw_free(m);
}

void spw_reserved_memory_note(spw_reserved_memory *m, size_t layer, size_t rank, spw_rank_rows rows) {
    m->rows[rank * m->layers + layer] = rows;
}

/* `list` is overwritten: one a thread, for all its ranks. */
static spw_status rank_step(spw_reserved_memory *m, size_t r, spw_event_list *list) {
    rank_state *rank = &m->rank[r];
    spw_status status = spw_step_memory_step(rank->memory, m->rows + r * m->layers, m->layers, list);
    const spw_list_peak peak = spw_event_list_peak(list);
    rank->layer = peak.peak_event < list->events ? list->event[peak.peak_event].layer : 0;
    rank->peak_bytes = (uint64_t)peak.peak_bytes;
    for (int v = 0; v < m->variants && status == SPW_OK; v++)
        status = process_step(m, v, list, &rank->process[v]);
    return status;
}

static void record_step(spw_reserved_memory *m, int variant, step_record *record) {
    *record = (step_record){.failed = false};
    for (size_t r = 0; r < m->ranks; r++) {
        const process *p = &m->rank[r].process[variant];
        const uint64_t allocated = p->last.after.allocated_peak_bytes,
                       reserved = p->last.after.reserved_peak_bytes;
        const bool began = p->last.before.refused == 0;
        const uint64_t requested =
            (began ? p->last.before.requested_bytes : m->begin_bytes) + m->rank[r].peak_bytes;
        if (requested > record->requested) {
            record->requested = requested;
            record->live_rank = r;
            record->live_layer = m->rank[r].layer;
        }
        record->allocated = allocated > record->allocated ? allocated : record->allocated;
        if (reserved > record->reserved) record->reserved = reserved, record->rank = r;
        record->retries += p->retries;
        record->failed = record->failed || p->failed;
        if (p->stranded > m->stranded[variant]) m->stranded[variant] = p->stranded;
    }
}

spw_status spw_reserved_memory_end_step(spw_reserved_memory *m, size_t step) {
    spw_status status = SPW_OK;
    const int ranks = (int)m->ranks;
#pragma omp parallel
    {
        spw_event_list list = {.events = 0};
#pragma omp for schedule(dynamic, 1)
        for (int r = 0; r < ranks; r++) {
            const spw_status one = rank_step(m, (size_t)r, &list);
            if (one != SPW_OK) {
#pragma omp atomic write
                status = one;
            }
        }
        spw_event_list_destroy(&list);
    }
    if (status != SPW_OK) return spw_fail(status, "the allocator's replay of step %zu failed", step);
    for (int v = 0; v < m->variants; v++) record_step(m, v, &m->record[v][step]);
    return SPW_OK;
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
    const step_record *record = m->record[variant];
    *out = (spw_reserved_outcome){.stranded_bytes = m->stranded[variant]};
    for (size_t i = 0; i < m->steps; i++) {
        sorted[i] = record[i].allocated;
        out->failed_steps += record[i].failed;
        out->retried_steps += record[i].retries > 0;
        out->retries += record[i].retries;
        if (record[i].reserved > record[out->worst_step].reserved) out->worst_step = i;
        if (record[i].requested > record[out->live_step].requested) out->live_step = i;
    }
    out->worst_rank = record[out->worst_step].rank;
    out->live_rank = record[out->live_step].live_rank;
    out->live_layer = record[out->live_step].live_layer;
    out->allocated = spw_byte_quantiles_of(sorted, m->steps);
    for (size_t i = 0; i < m->steps; i++) sorted[i] = record[i].requested;
    out->requested = spw_byte_quantiles_of(sorted, m->steps);
    for (size_t i = 0; i < m->steps; i++) sorted[i] = record[i].reserved;
    out->reserved = spw_byte_quantiles_of(sorted, m->steps);
}

spw_status spw_reserved_memory_finish(const spw_reserved_memory *m, spw_reserved_summary *out) {
    uint64_t *sorted = NULL;
    spw_status status = SPW_ALLOC(m->steps, &sorted);
    *out = (spw_reserved_summary){
        .there = true, .recorded = m->recorded != NULL, .settings = m->settings[AS_SET], .steps = m->steps};
    if (m->recorded != NULL) out->match = spw_snapshot_steps_match(m->recorded);
    if (status != SPW_OK) return status;
    summarize(m, AS_SET, sorted, &out->as_set);
    summarize(m, m->variants - 1, sorted, &out->expandable);
    out->oom = spw_oom_probability(out->as_set.failed_steps, m->steps);
    spw_free(sorted);
    return SPW_OK;
}
