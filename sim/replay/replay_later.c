#include "sim/replay/replay_row.h"

#include "base/processes.h"
#include "base/walk.h"
#include "sim/memory/step/reserved_memory.h"

/* Processes of the job, row by row. The last of them are two units each. */
typedef struct work {
    spw_replay_row *row;
    size_t rows, processes, halved;
} work;

/* Where a unit stands. */
typedef struct place {
    spw_reserved_memory *memory;
    size_t run;
    spw_reserved_part part;
} place;

static size_t runs_of(const spw_replay_row *row) {
    return row->reserved != NULL ? spw_reserved_memory_runs(row->reserved) : 0;
}

static place find(const work *w, size_t unit) {
    const size_t whole = w->processes - w->halved, behind = unit < whole ? 0 : unit - whole;
    place at = {.run = unit < whole ? unit : whole + behind / 2};
    size_t i = 0;
    if (unit >= whole) at.part = behind % 2 == 0 ? SPW_RESERVED_AS_SET : SPW_RESERVED_OTHER;
    while (at.run >= runs_of(&w->row[i])) at.run -= runs_of(&w->row[i++]);
    at.memory = w->row[i].reserved;
    return at;
}

static spw_status run(void *context, size_t unit, spw_note *out) {
    const place at = find(context, unit);
    return spw_reserved_memory_run(at.memory, at.run, at.part, out);
}

static spw_status take(void *context, size_t unit, spw_note_reader *record) {
    const place at = find(context, unit);
    return spw_reserved_memory_take(at.memory, at.run, at.part, record);
}

static spw_status found(void *context, const spw_state *state) {
    const work *w = context;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < w->rows && status == SPW_OK; i++)
        if (runs_of(&w->row[i]) > 0) status = spw_reserved_memory_found(w->row[i].reserved, state);
    return status;
}

/* Those of the last turn, where there is somebody for either half: one setting of the allocator each. */
static size_t halves_of(const work *w) {
    const size_t last = w->processes % spw_processes();
    bool parts = 2 * last <= spw_processes();
    for (size_t i = 0; i < w->rows; i++)
        parts = parts && (runs_of(&w->row[i]) == 0 || spw_reserved_memory_has_parts(w->row[i].reserved));
    return parts ? last : 0;
}

spw_status spw_replay_later_run(spw_replay_row *row, size_t rows) {
    work w = {row, rows, 0, 0};
    spw_walk walk = {.what = "allocator",
                     .unit = "processes",
                     .context = &w,
                     .compute = run,
                     .take = take,
                     .found = found};
    for (size_t i = 0; i < rows; i++) w.processes += runs_of(&row[i]);
    w.halved = halves_of(&w);
    walk.units = w.processes + w.halved;
    return walk.units > 0 ? spw_walk_run(&walk, NULL) : SPW_OK;
}
