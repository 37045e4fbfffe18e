/* usage: allocator_dump JOB.yaml SCHEME STAGE STEP < ROWS
 * What one rank of a pipeline stage allocates, and what PyTorch's allocator makes of it. ROWS: for every step, for every MoE layer of
 * the model, for every micro-batch "held received sent". Prints
 *   begin BYTES SLOT             of every tensor before the first step; BYTES is - where it ends
 *   optimizer BYTES              of every tensor that the first step of the optimizer allocates, at the step's end
 *   LAYER BORN BACKWARD SLOT BYTES MICRO_BATCH of every event of step STEP, and "pass" where a backward pass ends
 *   step REQUESTED ALLOCATED RESERVED REFUSED  peaks of every step, by lists that were replayed whole
 *   fast ...                     the same where states that come again are left out
 *   job ALLOCATED RESERVED       of every step, the most of all stages: what a replay of the job says (sim/memory/step/reserved_memory.h) */
#include "base/memory.h"
#include "sim/memory/allocator/allocator_conf.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/memory/step/step_memory.h"
#include "sim/weights/pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static spw_job job;
static spw_scheme scheme;

static spw_status print_step(const spw_point *point, const spw_footprint *footprint,
                             const spw_step_rows *rows, size_t steps) {
    spw_event_list list = {.events = 0};
    spw_step_memory *memory = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_step_memory_create(point, footprint, NULL, &memory));
    SPW_TRY(spw_step_memory_begin(memory, &list));
    for (size_t i = 0; i < list.events; i++) {
        const spw_memory_event *e = &list.event[i];
        if (e->born)
            printf("begin %" PRIu64 " %" PRIu32 "\n", e->bytes, e->slot);
        else
            printf("begin - %" PRIu32 "\n", e->slot);
    }
    SPW_TRY(spw_step_memory_optimizer(memory, &list));
    for (size_t i = 0; i < list.events; i++) printf("optimizer %" PRIu64 "\n", list.event[i].bytes);
    for (size_t step = 0; step <= steps; step++) {
        const spw_step_rows here = {rows->rows + step * rows->layers * rows->micro_batches, rows->layers,
                                    rows->micro_batches};
        SPW_TRY(spw_step_memory_step(memory, &here, &list));
    }
    for (size_t i = 0, mark = 0; i < list.events; i++) {
        const spw_memory_event *e = &list.event[i];
        printf("%u %d %d %" PRIu32 " %" PRIu64 " %" PRIu32 "\n", (unsigned)e->layer, e->born, e->backward,
               e->slot, e->bytes, e->micro_batch);
        while (mark < list.marks && list.mark[mark] == i + 1) mark++, printf("pass\n");
    }

cleanup:
    spw_event_list_destroy(&list);
    spw_step_memory_destroy(memory);
    return status;
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Steps one after the other in one process. */
static spw_status print_peaks(const spw_point *point, const spw_footprint *footprint,
                              const spw_step_rows *rows, size_t steps, bool whole) {
    const spw_allocator_settings settings = spw_allocator_conf_settings(
        &job.allocator, footprint->budget_bytes, (uint64_t)(job.cluster.hbm_gib.value * 1073741824.0));
    spw_event_list list = {.events = 0};
    spw_allocator_stats first = {.segments = 0};
    spw_step_memory *memory = NULL;
    spw_allocator *allocator = NULL;
    spw_allocation *live = NULL;
    spw_list_replay out;
    spw_status status = SPW_OK;
    SPW_TRY(spw_step_memory_create(point, footprint, NULL, &memory));
    const size_t slots = spw_step_memory_slots(memory);
    SPW_TRY(SPW_ALLOC(slots, &live));
    for (size_t i = 0; i < slots; i++) live[i].block = SPW_ALLOCATION_EMPTY;
    SPW_TRY(spw_allocator_create(&settings, &allocator));
    SPW_TRY(spw_step_memory_begin(memory, &list));
    SPW_TRY(spw_event_list_replay(&list, allocator, live, &out));
    for (size_t step = 0; step < steps && !out.refused; step++) {
        const spw_step_rows here = {rows->rows + step * rows->layers * rows->micro_batches, rows->layers,
                                    rows->micro_batches};
        SPW_TRY(spw_step_memory_step(memory, &here, &list));
        if (!whole) SPW_TRY(spw_event_list_find_again(&list));
        if (!whole) SPW_TRY(spw_event_list_find_visits(&list, NULL, 0));
        if (!whole) SPW_TRY(spw_event_list_outline(&list));
        SPW_TRY(spw_event_list_replay_cycles(&list, allocator, live, whole ? 0 : slots, 0, &out));
        const size_t repeated = out.repeated;
        first = step == 0 ? out.after : (spw_allocator_stats){.segments = 0};
        if (step == 0) {
            SPW_TRY(spw_step_memory_optimizer(memory, &list));
            SPW_TRY(spw_event_list_replay(&list, allocator, live, &out));
        }
        printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %zu\n", whole ? "step" : "fast",
               most(out.after.requested_peak_bytes, first.requested_peak_bytes),
               most(out.after.allocated_peak_bytes, first.allocated_peak_bytes),
               most(out.after.reserved_peak_bytes, first.reserved_peak_bytes), out.refused, repeated);
    }

cleanup:
    spw_allocator_destroy(allocator);
    spw_free(live);
    spw_event_list_destroy(&list);
    spw_step_memory_destroy(memory);
    return status;
}

/* Every rank has the rows of one: one a stage is followed. */
static spw_status print_job(const spw_point *point, const spw_step_rows *rows, size_t steps) {
    const size_t stages = spw_pipeline_of(point->job).stages, layers = rows->layers,
                 parts = rows->micro_batches;
    spw_footprint *footprint = NULL;
    spw_reserved_memory *memory = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(stages, &footprint));
    for (size_t s = 0; s < stages; s++) SPW_TRY(spw_footprint_of_stage(point, s, NULL, &footprint[s]));
    const spw_reserved_request request = {
        .point = point, .footprint = footprint, .ranks = 1, .layers = layers, .steps = steps};
    SPW_TRY(spw_reserved_memory_create(&request, &memory));
    for (size_t step = 0; step < steps; step++) {
        for (size_t l = 0; l < layers; l++)
            for (size_t b = 0; b < parts; b++)
                spw_reserved_memory_note(memory, l, b, 0, rows->rows[(step * layers + l) * parts + b]);
        SPW_TRY(spw_reserved_memory_end_step(memory, step, NULL));
        printf("job %" PRIu64 " %" PRIu64 "\n", spw_reserved_memory_allocated(memory, step),
               spw_reserved_memory_reserved(memory, step));
    }

cleanup:
    spw_reserved_memory_destroy(memory);
    spw_free(footprint);
    return status;
}

int main(int argc, char **argv) {
    enum { MOST = 1 << 20 };
    static spw_rank_rows rows[MOST];
    static spw_footprint footprint;
    size_t count = 0;
    if (argc != 5 || spw_job_read(argv[1], &job) != SPW_OK || spw_scheme_parse(argv[2], &scheme) != SPW_OK) {
        fprintf(stderr, "allocator_dump: %s\n", spw_last_error());
        return 1;
    }
    while (count < MOST && scanf("%" SCNu64 " %" SCNu64 " %" SCNu64, &rows[count].held, &rows[count].received,
                                 &rows[count].sent) == 3)
        count++;
    const spw_point point = spw_point_of(&job, &scheme, job.sequences_per_gpu[0]);
    const spw_step_rows all = {rows, job.model.moe_layers, spw_pipeline_of(&job).micro_batches};
    const size_t steps = count / (all.layers * all.micro_batches);
    spw_status status = spw_footprint_of_stage(&point, (size_t)strtoul(argv[3], NULL, 10), NULL, &footprint);
    if (status == SPW_OK) status = print_step(&point, &footprint, &all, (size_t)strtoul(argv[4], NULL, 10));
    if (status == SPW_OK) status = print_peaks(&point, &footprint, &all, steps, true);
    if (status == SPW_OK) status = print_peaks(&point, &footprint, &all, steps, false);
    if (status == SPW_OK && steps > 1) status = print_job(&point, &all, steps);
    if (status != SPW_OK) fprintf(stderr, "allocator_dump: %s\n", spw_last_error());
    return status == SPW_OK ? 0 : 1;
}
