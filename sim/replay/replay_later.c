#include "sim/replay/replay_row.h"

#include "base/walk.h"
#include "sim/memory/step/reserved_memory.h"

typedef struct work {
    spw_replay_row *row;
    size_t rows;
} work;

static size_t runs_of(const spw_replay_row *row) {
    return row->reserved != NULL ? spw_reserved_memory_runs(row->reserved) : 0;
}

/* A unit is a process of one row: *unit becomes its number there. */
static spw_reserved_memory *find(const work *w, size_t *unit) {
    size_t i = 0;
    while (*unit >= runs_of(&w->row[i])) *unit -= runs_of(&w->row[i++]);
    return w->row[i].reserved;
}

static spw_status run(void *context, size_t unit, spw_note *out) {
    spw_reserved_memory *memory = find(context, &unit);
    return spw_reserved_memory_run(memory, unit, out);
}

static spw_status take(void *context, size_t unit, spw_note_reader *record) {
    spw_reserved_memory *memory = find(context, &unit);
    return spw_reserved_memory_take(memory, unit, record);
}

static spw_status found(void *context, const spw_state *state) {
    const work *w = context;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < w->rows && status == SPW_OK; i++)
        if (runs_of(&w->row[i]) > 0) status = spw_reserved_memory_found(w->row[i].reserved, state);
    return status;
}

spw_status spw_replay_later_run(spw_replay_row *row, size_t rows) {
    work w = {row, rows};
    spw_walk walk = {.what = "allocator",
                     .unit = "processes",
                     .context = &w,
                     .compute = run,
                     .take = take,
                     .found = found};
    for (size_t i = 0; i < rows; i++) walk.units += runs_of(&row[i]);
    return walk.units > 0 ? spw_walk_run(&walk, NULL) : SPW_OK;
}
