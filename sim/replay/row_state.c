#include "sim/replay/replay_row.h"

typedef struct part {
    void *data;
    size_t bytes;
} part;

static spw_status add_parts(const spw_state *state, const part *list, size_t count) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < count && status == SPW_OK; i++)
        status = spw_state_part(state, list[i].data, list[i].bytes);
    return status;
}

#define PART(what) \
    { &(what), sizeof(what) }
#define PARTS(list) list, sizeof(list) / sizeof *(list)

static spw_status memory_state(spw_stage_memory *m, size_t steps, const spw_state *state) {
    const part parts[] = {{m->step_peak, steps * sizeof *m->step_peak},
                          {m->stage_peak, m->pipeline.stages * sizeof *m->stage_peak},
                          PART(m->worst_stage),
                          PART(m->worst_step),
                          PART(m->worst_layer),
                          PART(m->worst_rank),
                          PART(m->worst_bytes),
                          PART(m->worst)};
    const part rows[] = {{m->worst_rows, m->layers * sizeof *m->worst_rows}};
    const spw_status status = add_parts(state, PARTS(parts));
    return status == SPW_OK && m->routed ? add_parts(state, PARTS(rows)) : status;
}

static spw_status overload_state(spw_replay_row *row, const spw_state *state) {
    const spw_status status = spw_overload_state(&row->overload, state);
    return status == SPW_OK ? spw_state_part(state, &row->overload_run, sizeof row->overload_run) : status;
}

/* Names are addresses of this process: the next step brings them along, or spw_replay_time_finish(). */
static spw_status time_state(spw_replay_time *t, const spw_state *state) {
    const part parts[] = {PART(t->steps), PART(t->sum), PART(t->last_s), PART(t->longest), PART(t->worst)};
    const spw_status status = add_parts(state, PARTS(parts));
    for (size_t i = 0; i < SPW_TIMELINE_COMPONENTS && state->in != NULL; i++)
        t->sum.component[i].name = t->sum.component[i].help = NULL;
    if (state->in != NULL) t->sum.doubt_name = NULL;
    return status;
}

spw_status spw_replay_row_state(spw_replay_row *row, const spw_state *state) {
    const part parts[] = {PART(row->sums),      PART(row->levels),       PART(row->drops),
                          PART(row->most_step), PART(row->most_layer),   PART(row->most_rank),
                          PART(row->pages.run), PART(row->pages.spilled)};
    spw_status status = SPW_OK;
    if (row->refused) return SPW_OK;
    SPW_TRY(add_parts(state, PARTS(parts)));
    SPW_TRY(memory_state(&row->memory, row->frame->steps, state));
    if (row->frame->request->overload) SPW_TRY(overload_state(row, state));
    if (row->timed) SPW_TRY(time_state(&row->time, state));

cleanup:
    return status;
}

/* Where a judge is asked, the step that ended last is not timed yet. */
static spw_status load_state(spw_replay_time *t, const spw_state *state) {
    const spw_replay_time_request *q = &t->q;
    const size_t loads = q->micro_batches * q->layers,
                 rank_loads = q->kinds * q->groups * q->layers * q->point.shape.ranks;
    spw_status status = SPW_OK;
    if (t->load != NULL) SPW_TRY(spw_state_part(state, t->load, loads * sizeof *t->load));
    if (t->rank_load != NULL) SPW_TRY(spw_state_part(state, t->rank_load, rank_loads * sizeof *t->rank_load));

cleanup:
    return status;
}

spw_status spw_replay_row_found(spw_replay_row *row, const spw_state *state) {
    const bool judged = row->frame->request->judge.state != NULL;
    spw_status status = spw_replay_row_state(row, state);
    if (status == SPW_OK && !row->refused && row->timed && judged) status = load_state(&row->time, state);
    return status == SPW_OK && row->reserved != NULL ? spw_reserved_memory_found(row->reserved, state)
                                                     : status;
}
