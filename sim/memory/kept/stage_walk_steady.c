/* Where no layer has rows while it waits: what is in flight is the same in every walk. */
#include "sim/memory/kept/stage_walk_internal.h"

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
    spw_walk_raise_beside(w, SPW_MOMENT_ATTENTION, &attention, &f->pass, &flight, &w->steady);
    spw_walk_raise_beside(w, SPW_MOMENT_DENSE_LAYER, &dense, &f->pass, &flight, &w->steady);
}

/* The passes of a step once, for all walks to come with as many layers of rows. */
static void find_fullest(spw_stage_walk *w, size_t layers, bool stays) {
    spw_stage_moment flight = {.layer = SIZE_MAX, .place = SIZE_MAX};
    w->steady = (spw_stage_peaks){.at = {{.there = false}}};
    w->fullests = 0;
    w->found_of = w->kinds;
    w->found_layers = layers;
    for (size_t i = 0; i < spw_walk_layers(w); i++) {
        const size_t moe = w->layers.layer[i].moe;
        w->row[i] = moe != SIZE_MAX ? moe % layers : SIZE_MAX;
    }
    for (size_t i = 0; i < spw_pipeline_passes(&w->pipeline); i++) {
        const spw_pass pass = w->pass[i];
        const size_t chunk = pass.chunk;
        const spw_stage_moment *kept = &w->behind[chunk];
        if (!pass.backward) {
            spw_walk_after_forward(w, &pass, kept, &flight, &w->steady);
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
    const size_t end = w->layers.begin[f->pass.chunk + 1],
                 micro_batch = uses->micro_batches > 1 ? f->kind : 0;
    at_work most = {.layer = SIZE_MAX};
    for (size_t i = w->layers.begin[f->pass.chunk]; i < end; i++) {
        if (!w->layers.layer[i].experts) continue;
        const spw_layer_use *use = w->row[i] == SIZE_MAX
                                       ? &uses->predicted
                                       : &uses->use[w->row[i] * uses->micro_batches + micro_batch];
        const uint64_t work = spw_walk_plus(0, use->backward_bytes),
                       bytes = spw_walk_plus(alone_at(w, f, i)->bytes, work);
        if (most.layer == SIZE_MAX || bytes > most.bytes) most = (at_work){i, bytes, work};
    }
    return most;
}

/* Moments of experts at work. */
static void run_fullest(const spw_stage_walk *w, const spw_layer_uses *uses, spw_stage_peaks *out) {
    spw_stage_moment *most = &out->at[SPW_MOMENT_MOE_LAYER];
    *out = w->steady;
    for (size_t n = 0; n < w->fullests; n++) {
        const pass_beside *f = &w->fullest[n];
        const size_t first = w->layers.begin[f->pass.chunk];
        const at_work at = most_at_work(w, f, uses);
        if (at.layer == SIZE_MAX) continue;
        const uint64_t beside_it = at.layer < first + NOTED ? f->bytes[at.layer - first]
                                                            : bytes_beside(w, f, at.layer),
                       bytes = spw_walk_plus(beside_it, at.work);
        if (most->there && bytes <= most->bytes) continue;
        *most = moment_of(w, f, at.layer);
        most->work = at.work;
        most->bytes = bytes;
    }
}

void spw_walk_run_steady(spw_stage_walk *w, const spw_layer_uses *uses, bool stays, spw_stage_peaks *out) {
    if (w->found_of != w->kinds || w->found_layers != uses->layers) find_fullest(w, uses->layers, stays);
    run_fullest(w, uses, out);
}
