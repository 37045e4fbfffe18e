/* Moments of a walk; and walks in which no layer has rows while it waits: what is in flight is the same in each of these. */
#include "sim/memory/kept/stage_walk_internal.h"

#include <string.h>

/* --- Moments --- */

uint64_t spw_walk_beside_rows(const spw_waiting_layer *keeps, const spw_stage_moment *m) {
    return spw_walk_plus(
        spw_walk_plus(spw_walk_plus(spw_stage_moment_inputs(keeps, m), spw_stage_moment_policy(keeps, m)),
                      spw_stage_moment_made(keeps, m)),
        spw_walk_plus(spw_stage_moment_saved(keeps, m), spw_stage_moment_left(keeps, m)));
}

bool spw_walk_same_layers(const spw_stage_moment *k, const spw_stage_moment *m) {
    return k->there && memcmp(k->waiting, m->waiting, sizeof k->waiting) == 0 &&
           memcmp(k->at_work, m->at_work, sizeof k->at_work) == 0 &&
           memcmp(k->left, m->left, sizeof k->left) == 0 && memcmp(k->made, m->made, sizeof k->made) == 0 &&
           memcmp(k->ends, m->ends, sizeof k->ends) == 0;
}

/* The same, where `kind` asks mostly for the same layers. */
static void settle_again(spw_stage_walk *w, spw_moment kind, spw_stage_moment *m) {
    spw_stage_moment *k = &w->known[kind];
    if (!spw_walk_same_layers(k, m)) {
        *k = *m;
        k->there = true;
        k->bytes = spw_walk_beside_rows(w->keeps, m);
    }
    m->there = true;
    m->bytes = spw_walk_plus(k->bytes, spw_walk_plus(m->rows, m->work));
}

void spw_walk_raise(spw_stage_moment *most, const spw_stage_moment *m) {
    if (!most->there || m->bytes > most->bytes) *most = *m;
}

void spw_walk_raise_alone(spw_stage_moment *most, const spw_stage_moment *alone, uint64_t rows, uint64_t work,
                          size_t micro_batch) {
    const uint64_t bytes = spw_walk_plus(alone->bytes, spw_walk_plus(rows, work));
    if (most->there && bytes <= most->bytes) return;
    *most = *alone;
    most->bytes = bytes;
    most->rows = rows;
    most->work = work;
    most->micro_batch = micro_batch;
}

void spw_walk_change_flight(spw_stage_moment *flight, const spw_stage_moment *kept, bool backward) {
    for (int kind = 0; kind < 2; kind++)
        flight->waiting[kind] = backward ? flight->waiting[kind] - kept->waiting[kind]
                                         : flight->waiting[kind] + kept->waiting[kind];
    if (backward)
        flight->rows = flight->rows > kept->rows && flight->rows < SPW_WALK_MOST ? flight->rows - kept->rows
                       : flight->rows < SPW_WALK_MOST                            ? 0
                                                                                 : SPW_WALK_MOST;
    else
        flight->rows = spw_walk_plus(flight->rows, kept->rows);
}

spw_stage_moment spw_walk_beside(const spw_stage_moment *flight, const spw_stage_moment *alone) {
    spw_stage_moment m = *alone;
    for (int kind = 0; kind < 2; kind++) {
        m.waiting[kind] += flight->waiting[kind];
        m.left[kind] += flight->left[kind];
        m.made[kind] += flight->made[kind];
        m.ends[kind] += flight->ends[kind];
    }
    m.rows = spw_walk_plus(m.rows, flight->rows);
    return m;
}

void spw_walk_count_left(const spw_stage_walk *w, size_t left[2]) {
    left[0] = left[1] = 0;
    for (size_t c = 0; c < w->pipeline.chunks; c++)
        for (size_t i = w->layers.begin[c]; i < w->layers.begin[c + 1] && w->holds[c]; i++)
            left[w->layers.layer[i].experts] += w->keeps[w->layers.layer[i].experts].stays;
}

void spw_walk_after_forward(spw_stage_walk *w, const spw_pass *pass, const spw_stage_moment *kept,
                            spw_stage_moment *flight, spw_stage_peaks *out) {
    const spw_pipeline *p = &w->pipeline;
    spw_walk_change_flight(flight, kept, false);
    w->holds[pass->chunk] = false;
    spw_walk_count_left(w, flight->left);
    if (w->stage + 1 == p->stages && pass->chunk + 1 < p->chunks) return;
    flight->micro_batch = pass->micro_batch;
    settle_again(w, SPW_MOMENT_LOSS, flight);
    spw_walk_raise(&out->at[SPW_MOMENT_LOSS], flight);
}

void spw_walk_raise_beside(spw_stage_walk *w, spw_moment kind, const spw_stage_moment *alone,
                           const spw_pass *pass, const spw_stage_moment *flight, spw_stage_peaks *out) {
    if (!alone->there) return;
    spw_stage_moment here = spw_walk_beside(flight, alone);
    here.micro_batch = pass->micro_batch;
    settle_again(w, kind, &here);
    spw_walk_raise(&out->at[kind], &here);
}

/* --- Passes --- */

passes_between spw_walk_known_passes(const spw_stage_walk *w) {
    const spw_pipeline *p = &w->pipeline;
    const size_t warm = spw_pipeline_warm_up(p, w->stage), period = spw_pipeline_period(p, w->kinds),
                 turns = 2 * (p->micro_batches * p->chunks - warm), periods = turns / period;
    return (passes_between){warm + 2 * period, periods > 3 ? (periods - 3) * period : 0};
}

/* --- Without rows that wait --- */

static bool has_no_more(const spw_stage_moment *m, const pass_beside *than) {
    bool no_more = true;
    for (int kind = 0; kind < 2; kind++)
        no_more = no_more && m->waiting[kind] <= than->waiting[kind] && m->left[kind] <= than->left[kind];
    return no_more;
}

/* A backward pass, unless an earlier one of its kind has as much beside it. */
static void note_fullest(spw_stage_walk *w, const spw_pass *pass, size_t variant,
                         const spw_stage_moment *flight) {
    const size_t kind = pass->micro_batch % w->kinds;
    for (size_t i = 0; i < w->fullests; i++) {
        const pass_beside *f = &w->fullest[i];
        if (f->kind == kind && f->pass.chunk == pass->chunk && f->variant == variant &&
            has_no_more(flight, f))
            return;
    }
    w->fullest[w->fullests++] = (pass_beside){.pass = *pass,
                                              .variant = variant,
                                              .kind = kind,
                                              .waiting = {flight->waiting[0], flight->waiting[1]},
                                              .left = {flight->left[0], flight->left[1]}};
}

static spw_stage_moment in_flight(const pass_beside *f) {
    return (spw_stage_moment){.waiting = {f->waiting[0], f->waiting[1]}, .left = {f->left[0], f->left[1]}};
}

static const spw_stage_moment *alone_at(const spw_stage_walk *w, const pass_beside *f, size_t layer) {
    return &w->alone[f->variant * spw_walk_layers(w) + layer];
}

/* A layer of the pass at work. */
static spw_stage_moment moment_of(const spw_stage_walk *w, const pass_beside *f, size_t layer) {
    const spw_stage_moment flight = in_flight(f);
    spw_stage_moment here = spw_walk_beside(&flight, alone_at(w, f, layer));
    here.micro_batch = f->pass.micro_batch;
    return here;
}

static uint64_t bytes_beside(const spw_stage_walk *w, const pass_beside *f, size_t layer) {
    const spw_stage_moment here = moment_of(w, f, layer);
    return spw_walk_beside_rows(w->keeps, &here);
}

static void note_bytes(const spw_stage_walk *w, pass_beside *f) {
    const size_t first = w->layers.begin[f->pass.chunk], end = w->layers.begin[f->pass.chunk + 1];
    for (size_t i = 0; i < NOTED && first + i < end; i++) f->bytes[i] = bytes_beside(w, f, first + i);
}

/* Moments at which no rows are. */
static void raise_steady(spw_stage_walk *w, const pass_beside *f) {
    const spw_stage_moment flight = in_flight(f);
    spw_stage_moment attention = {.there = false}, dense = {.there = false};
    for (size_t i = w->layers.begin[f->pass.chunk]; i < w->layers.begin[f->pass.chunk + 1]; i++) {
        spw_walk_raise_alone(&attention, alone_at(w, f, i), 0, 0, f->pass.micro_batch);
        if (!w->layers.layer[i].experts)
            spw_walk_raise_alone(&dense, alone_at(w, f, i), 0, 0, f->pass.micro_batch);
    }
    spw_walk_raise_beside(w, SPW_MOMENT_ATTENTION, &attention, &f->pass, &flight, &w->peaks);
    spw_walk_raise_beside(w, SPW_MOMENT_DENSE_LAYER, &dense, &f->pass, &flight, &w->peaks);
}

/* Of layers with the same rows, one that has no more bytes beside them than one before it is never where most is. */
static bool is_below(const experts_alone *first, const experts_alone *end, size_t row, uint64_t bytes) {
    for (; first < end; first++)
        if (first->row == row && first->bytes >= bytes) return true;
    return false;
}

static void list_experts(spw_stage_walk *w, size_t layers) {
    for (size_t at = 0; at < (HELD + 1) * w->pipeline.chunks; at++) {
        const size_t variant = at / w->pipeline.chunks, chunk = at % w->pipeline.chunks,
                     own = variant * spw_walk_layers(w);
        size_t end = own + w->layers.begin[chunk];
        for (size_t i = w->layers.begin[chunk]; i < w->layers.begin[chunk + 1]; i++) {
            const size_t moe = w->layers.layer[i].moe, row = moe != SIZE_MAX ? moe % layers : SIZE_MAX;
            const uint64_t bytes = w->alone[own + i].bytes;
            if (!w->layers.layer[i].experts ||
                is_below(w->experts + own + w->layers.begin[chunk], w->experts + end, row, bytes))
                continue;
            w->experts[end++] = (experts_alone){row, i, bytes};
        }
        w->experts_end[at] = end;
    }
}

/* The passes of a step once, for all walks to come with as many layers of rows. */
static void find_fullest(spw_stage_walk *w, size_t layers, bool stays) {
    spw_stage_moment flight = {.layer = SIZE_MAX, .place = SIZE_MAX};
    w->peaks = (spw_stage_peaks){.at = {{.there = false}}};
    w->fullests = 0;
    w->found_of = w->kinds;
    w->found_layers = layers;
    list_experts(w, layers);
    const passes_between again = spw_walk_known_passes(w);
    for (size_t i = 0, passes = spw_pipeline_passes(&w->pipeline); i < passes; i++) {
        if (i == again.from) i += again.passes;
        const spw_pass pass = spw_pipeline_pass(&w->pipeline, w->stage, i);
        const size_t chunk = pass.chunk;
        const spw_stage_moment *kept = &w->behind[chunk];
        if (!pass.backward) {
            spw_walk_after_forward(w, &pass, kept, &flight, &w->peaks);
            continue;
        }
        const size_t variant = w->holds[chunk] ? HELD : 0u;
        spw_walk_change_flight(&flight, kept, true);
        w->holds[chunk] = false;
        spw_walk_count_left(w, flight.left);
        note_fullest(w, &pass, variant, &flight);
        w->holds[chunk] = stays;
    }
    for (size_t i = 0; i < w->fullests; i++) {
        note_bytes(w, &w->fullest[i]);
        raise_steady(w, &w->fullest[i]);
    }
}

/* A pass with the layer of experts at which it holds most, alone; of equals the first. */
typedef struct at_work {
    size_t layer; /* SIZE_MAX: it has none */
    uint64_t bytes, work;
} at_work;

static at_work most_at_work(const spw_stage_walk *w, const pass_beside *f, const spw_layer_uses *uses) {
    const size_t chunk = f->pass.chunk;
    const experts_alone *e = w->experts + f->variant * spw_walk_layers(w) + w->layers.begin[chunk],
                        *end = w->experts + w->experts_end[f->variant * w->pipeline.chunks + chunk];
    at_work most = {.layer = SIZE_MAX};
    for (; e < end; e++) {
        const spw_layer_use *use =
            e->row == SIZE_MAX ? &uses->predicted : &uses->use[e->row * uses->kinds + f->kind];
        const uint64_t work = spw_walk_plus(0, use->backward_bytes), bytes = spw_walk_plus(e->bytes, work);
        if (most.layer == SIZE_MAX || bytes > most.bytes) most = (at_work){e->layer, bytes, work};
    }
    return most;
}

/* Moments of experts at work. */
static void run_fullest(spw_stage_walk *w, const spw_layer_uses *uses) {
    const pass_beside *pass = NULL;
    at_work most = {.layer = SIZE_MAX};
    for (size_t n = 0; n < w->fullests; n++) {
        const pass_beside *f = &w->fullest[n];
        const size_t first = w->layers.begin[f->pass.chunk];
        at_work at = most_at_work(w, f, uses);
        if (at.layer == SIZE_MAX) continue;
        at.bytes = spw_walk_plus(
            at.layer < first + NOTED ? f->bytes[at.layer - first] : bytes_beside(w, f, at.layer), at.work);
        if (pass == NULL || at.bytes > most.bytes) most = at, pass = f;
    }
    spw_stage_moment *out = &w->peaks.at[SPW_MOMENT_MOE_LAYER];
    out->there = pass != NULL;
    if (pass == NULL) return;
    *out = moment_of(w, pass, most.layer);
    out->work = most.work;
    out->bytes = most.bytes;
}

void spw_walk_run_steady(spw_stage_walk *w, const spw_layer_uses *uses, bool stays) {
    if (w->found_of != w->kinds || w->found_layers != uses->layers) find_fullest(w, uses->layers, stays);
    run_fullest(w, uses);
}
