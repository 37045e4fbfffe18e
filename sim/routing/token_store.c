#include "sim/routing/token_store.h"

#include "base/memory.h"

#include <string.h>

static const size_t MOST_RUN_BYTES = (size_t)32 << 20, MOST_COUNT_BYTES = (size_t)256 << 20;
enum { MOST_LAYERS = 1024, MOST_SEGMENTS = 1 << 18, LIMITED_PART = 8 };

/* Of counts; where the process is not to take what it likes it is less. */
static size_t most_bytes(void) {
    return spw_memory_limited() > 0 ? MOST_COUNT_BYTES / LIMITED_PART : MOST_COUNT_BYTES;
}

/* Counts of the pieces of one layer under one placement. */
typedef struct layer_counts {
    spw_stored_steps steps;
    size_t layer;
    spw_placement placement; /* whatever its ranks: pieces do not depend on them */
    spw_segment_counts *counts;
} layer_counts;

struct spw_token_store {
    spw_stored_steps steps; /* of the runs */
    spw_token_runs runs;    /* none: not read */
    layer_counts *layer;    /* [MOST_LAYERS] */
    size_t layers;
};

spw_status spw_token_store_create(spw_token_store **out) {
    spw_status status = SPW_ALLOC(1, out);
    if (status != SPW_OK) return status;
    status = SPW_ALLOC(MOST_LAYERS, &(*out)->layer);
    if (status != SPW_OK) {
        spw_token_store_destroy(*out);
        *out = NULL;
    }
    return status;
}

void spw_token_store_forget(spw_token_store *s) {
    spw_token_runs_clear(&s->runs);
    for (size_t i = 0; i < s->layers; i++) spw_segment_counts_destroy(s->layer[i].counts);
    s->layers = 0;
}

void spw_token_store_destroy(spw_token_store *s) {
    if (s == NULL) return;
    spw_token_store_forget(s);
    spw_free(s->layer);
    spw_free(s);
}

static bool same_steps(spw_stored_steps a, spw_stored_steps b) {
    return a.begin == b.begin && a.end == b.end;
}

/* --- Runs --- */

/* Uncut; `to` keeps its memory where it suffices. */
static spw_status copy_runs(const spw_token_runs *from, spw_token_runs *to) {
    spw_token_run *run = to->run;
    if (to->run_capacity < from->runs) {
        const spw_status status = SPW_ALLOC(from->runs, &run);
        if (status != SPW_OK) return status;
        spw_free(to->run);
        to->run = run;
        to->run_capacity = from->runs;
    }
    memcpy(to->run, from->run, from->runs * sizeof *run);
    to->runs = from->runs;
    to->repeated = from->repeated;
    to->flagged = from->flagged;
    return SPW_OK;
}

spw_status spw_token_store_runs(spw_token_store *s, spw_trace *trace, spw_stored_steps steps,
                                spw_token_runs *out) {
    if (s->runs.runs > 0 && same_steps(s->steps, steps)) return copy_runs(&s->runs, out);
    const spw_status status = spw_token_runs_read(out, trace, steps.begin, steps.end);
    if (status != SPW_OK || out->runs * sizeof *out->run > MOST_RUN_BYTES) return status;
    s->steps = steps;
    return copy_runs(out, &s->runs);
}

/* --- Counts --- */

static bool is_of(const layer_counts *l, spw_stored_steps steps, size_t layer, const spw_placement *p) {
    return same_steps(l->steps, steps) && l->steps.drawn == steps.drawn && l->layer == layer &&
           l->placement.group_ranks == p->group_ranks && l->placement.gpus_per_node == p->gpus_per_node &&
           l->placement.experts == p->experts && l->placement.expert_tensor == p->expert_tensor;
}

static size_t bytes_of(const spw_token_store *s) {
    size_t bytes = 0;
    for (size_t i = 0; i < s->layers; i++) bytes += spw_segment_counts_bytes(s->layer[i].counts);
    return bytes;
}

spw_status spw_token_store_counts(spw_token_store *s, spw_stored_steps steps, size_t layer,
                                  const spw_placement *placement, const spw_layout *layout,
                                  spw_segment_counts **out) {
    const size_t segments = layout->begin[layout->ranks], held = bytes_of(s);
    size_t at = 0, need = 0;
    spw_status status = SPW_OK;
    *out = NULL;
    while (at < s->layers && !is_of(&s->layer[at], steps, layer, placement)) at++;
    if (at < s->layers && spw_segment_counts_know(s->layer[at].counts, layout)) {
        *out = s->layer[at].counts;
        return SPW_OK;
    }
    if (at == MOST_LAYERS || segments > MOST_SEGMENTS || held > most_bytes()) return SPW_OK;
    if (at == s->layers) {
        layer_counts *l = &s->layer[at];
        *l = (layer_counts){.steps = steps, .layer = layer, .placement = *placement};
        SPW_TRY(spw_segment_counts_create(*placement, &l->counts));
        spw_segment_counts_keep(l->counts);
        s->layers++;
    }
    SPW_TRY(spw_segment_counts_need(s->layer[at].counts, layout, &need));
    if (need <= most_bytes() && held + need <= most_bytes()) *out = s->layer[at].counts;

cleanup:
    return status;
}
