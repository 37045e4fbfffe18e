#include "sim/memory/kept/stage_walk.h"

#include "base/memory.h"
#include "sim/memory/kept/stage_walk_internal.h"
#include "sim/weights/stage.h"

#include <string.h>

/* --- Passes --- */

static void settle(const spw_waiting_layer *keeps, spw_stage_moment *m) {
    m->there = true;
    m->bytes = spw_walk_plus(spw_walk_beside_rows(keeps, m), spw_walk_plus(m->rows, m->work));
}

static spw_layer_use use_of(const spw_layer_uses *uses, const spw_stage_layer *layer, size_t micro_batch) {
    if (layer->moe == SIZE_MAX) return layer->experts ? uses->predicted : (spw_layer_use){0, 0};
    return uses->use[layer->moe % uses->layers * uses->kinds + micro_batch % uses->kinds];
}

/* The layers of one pass, alone, from the first to the last: of the last to work first what is left behind is least. Held: the
 * layers before it hold what they left, too. First: of gradients only those of the layers behind it, and the head's, are there. */
static void fill_alone(spw_stage_walk *w, size_t chunk, size_t variant) {
    const bool held = variant & HELD, first = variant & FIRST;
    spw_stage_moment now = {.there = true};
    for (size_t i = w->layers.begin[chunk]; i < w->layers.begin[chunk + 1]; i++) {
        now.left[w->layers.layer[i].experts]++;
        now.made[w->layers.layer[i].experts] += first;
    }
    now.ends[1] = first && w->ends[1] == chunk;
    for (size_t i = w->layers.begin[chunk]; i < w->layers.begin[chunk + 1]; i++) {
        const spw_stage_layer *layer = &w->layers.layer[i];
        spw_stage_moment *here = &w->alone[variant * spw_walk_layers(w) + i];
        now.left[layer->experts]--;
        now.made[layer->experts] -= first;
        *here = now;
        here->at_work[layer->experts] = 1;
        here->layer = layer->moe;
        here->place = i;
        here->bytes = spw_walk_beside_rows(w->keeps, here);
        now.waiting[layer->experts]++;
        if (held && w->keeps[layer->experts].stays) now.left[layer->experts]++;
    }
    now.there = false;
    now.layer = now.place = SIZE_MAX;
    now.left[0] = now.left[1] = now.ends[1] = 0;
    w->behind[chunk] = now;
}

static void look_at_part(const spw_stage_walk *w, const spw_layer_uses *uses, size_t micro_batch,
                         size_t chunk, size_t variant, pass_kept *out) {
    uint64_t rows = 0;
    spw_stage_moment *at = out->at[variant];
    for (int m = 0; m < SPW_MOMENT_COUNT; m++) at[m].there = false;
    for (size_t i = w->layers.begin[chunk]; i < w->layers.begin[chunk + 1]; i++) {
        const spw_stage_layer *layer = &w->layers.layer[i];
        const spw_stage_moment *alone = &w->alone[variant * spw_walk_layers(w) + i];
        const spw_layer_use use = use_of(uses, layer, micro_batch);
        spw_walk_raise_alone(&at[SPW_MOMENT_ATTENTION], alone, rows, 0, micro_batch);
        spw_walk_raise_alone(&at[layer->experts ? SPW_MOMENT_MOE_LAYER : SPW_MOMENT_DENSE_LAYER], alone, rows,
                             layer->experts ? spw_walk_plus(0, use.backward_bytes) : 0, micro_batch);
        rows = spw_walk_plus(rows, use.saved_bytes);
    }
    out->kept = w->behind[chunk];
    out->kept.rows = rows;
    out->kept.micro_batch = micro_batch;
}

/* Of a steady walk, which is not read before it is written. */
static spw_status make_room(spw_stage_walk *w) {
    const size_t chunks = w->pipeline.chunks;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_RESIZE(w->pipeline.micro_batches * chunks, &w->fullest));
    SPW_TRY(SPW_RESIZE((HELD + 1) * spw_walk_layers(w) + 1, &w->experts));
    SPW_TRY(SPW_RESIZE((HELD + 1) * chunks, &w->experts_end));

cleanup:
    return status;
}

spw_status spw_stage_walk_create(const spw_stage_walked *of, const spw_waiting_layer *keeps,
                                 spw_stage_walk **out) {
    const spw_pipeline *pipeline = of->pipeline;
    const size_t stage = of->stage,
                 kinds = of->kinds < pipeline->micro_batches ? of->kinds : pipeline->micro_batches;
    spw_stage_walk *w = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &w));
    w->pipeline = *pipeline;
    w->stage = stage;
    w->keeps[0] = keeps[0];
    w->keeps[1] = keeps[1];
    SPW_TRY(spw_stage_layers_create(pipeline, of->model, stage, &w->layers));
    const spw_stage whole = spw_pipeline_stage(pipeline, of->model, stage);
    w->makes = keeps[0].gradient > 0.0 || keeps[1].gradient > 0.0 || keeps[0].end > 0.0 || keeps[1].end > 0.0;
    w->ends[0] = whole.embedding ? 0 : SIZE_MAX;
    w->ends[1] = whole.head ? pipeline->chunks - 1 : SIZE_MAX;
    SPW_TRY(SPW_ALLOC(pipeline->chunks, &w->holds));
    SPW_TRY(SPW_ALLOC(pipeline->chunks, &w->made));
    SPW_TRY(SPW_RESIZE(VARIANTS * w->layers.begin[pipeline->chunks] + 1, &w->alone));
    SPW_TRY(SPW_ALLOC(pipeline->chunks, &w->behind));
    w->steady = of->unsaved && !w->makes && !pipeline->pairs;
    SPW_TRY(w->steady ? make_room(w) : SPW_ALLOC(kinds * pipeline->chunks, &w->part));
    if (!w->steady) SPW_TRY(SPW_RESIZE(spw_pipeline_passes(pipeline), &w->pass));
    for (size_t v = w->makes ? VARIANTS : FIRST; v-- > 0;) /* else no pass is the FIRST */
        for (size_t c = 0; c < pipeline->chunks; c++) fill_alone(w, c, v);
    *out = w;
    w = NULL;

cleanup:
    spw_stage_walk_destroy(w);
    return status;
}

void spw_stage_walk_destroy(spw_stage_walk *w) {
    if (w == NULL) return;
    spw_stage_layers_destroy(&w->layers);
    spw_free(w->holds);
    spw_free(w->made);
    spw_free(w->pass);
    spw_free(w->part);
    spw_free(w->alone);
    spw_free(w->behind);
    spw_free(w->fullest);
    spw_free(w->experts);
    spw_free(w->experts_end);
    spw_free(w);
}

/* Gradients of the chunks that have run backward. */
static void count_made(const spw_stage_walk *w, spw_stage_moment *m) {
    for (size_t kind = 0; kind < 2; kind++) {
        m->made[kind] = 0;
        m->ends[kind] = w->ends[kind] != SIZE_MAX && w->made[w->ends[kind]];
    }
    for (size_t c = 0; c < w->pipeline.chunks; c++)
        for (size_t i = w->layers.begin[c]; i < w->layers.begin[c + 1] && w->made[c]; i++)
            m->made[w->layers.layer[i].experts]++;
}

static pass_kept *part_of(const spw_stage_walk *w, const spw_pass *pass) {
    return &w->part[pass->micro_batch % w->kinds * w->pipeline.chunks + pass->chunk];
}

/* Nothing more is to be found of a pass of the same kind beside the same. Notes what is there now. */
static bool is_known(spw_stage_moment *known, const spw_stage_moment *flight) {
    if (spw_walk_same_layers(known, flight) && known->rows == flight->rows) return true;
    *known = *flight;
    known->there = true;
    return false;
}

static void change_layer(spw_stage_moment *m, const spw_stage_layer *layer, uint64_t rows, bool goes) {
    m->waiting[layer->experts] = goes ? m->waiting[layer->experts] - 1 : m->waiting[layer->experts] + 1;
    if (!goes)
        m->rows = spw_walk_plus(m->rows, rows);
    else if (m->rows < SPW_WALK_MOST)
        m->rows -= rows < m->rows ? rows : m->rows;
}

/* A forward pass beside a backward one: a layer has run forward when the one of its turn, from the last, works backward.
 * beside: all other passes in flight. */
static void look_at_pair(const spw_stage_walk *w, const spw_layer_uses *uses,
                         const spw_stage_moment *beside_them, const spw_pass *forward,
                         const spw_pass *backward, spw_stage_peaks *out) {
    const size_t first = w->layers.begin[forward->chunk], comes = w->layers.begin[forward->chunk + 1] - first,
                 end = w->layers.begin[backward->chunk + 1], goes = end - w->layers.begin[backward->chunk];
    spw_stage_moment now = *beside_them;
    const bool makes = w->makes && !w->made[backward->chunk];
    now.micro_batch = backward->micro_batch;
    now.ends[1] += makes && w->ends[1] == backward->chunk;
    spw_walk_change_flight(&now, &part_of(w, backward)->kept, false);
    for (size_t j = 0; j < goes; j++) {
        const spw_stage_layer *back = &w->layers.layer[end - 1 - j];
        const spw_layer_use use = use_of(uses, back, backward->micro_batch);
        if (j < comes) {
            const spw_stage_layer *next = &w->layers.layer[first + j];
            change_layer(&now, next, use_of(uses, next, forward->micro_batch).saved_bytes, false);
        }
        change_layer(&now, back, use.saved_bytes, true);
        spw_stage_moment here = now;
        here.at_work[back->experts] = 1;
        here.layer = back->moe;
        here.place = end - 1 - j;
        settle(w->keeps, &here);
        spw_walk_raise(&out->at[SPW_MOMENT_ATTENTION], &here);
        here.work = back->experts ? spw_walk_plus(0, use.backward_bytes) : 0;
        settle(w->keeps, &here);
        spw_walk_raise(&out->at[back->experts ? SPW_MOMENT_MOE_LAYER : SPW_MOMENT_DENSE_LAYER], &here);
        now.left[back->experts]++;
        now.made[back->experts] += makes;
    }
}

static void begin_walk(spw_stage_walk *w, const spw_layer_uses *uses, bool stays) {
    const spw_pipeline *p = &w->pipeline;
    for (size_t i = 0; i < spw_pipeline_passes(p) && !w->begun && !w->steady; i++)
        w->pass[i] = spw_pipeline_pass(p, w->stage, i);
    w->begun = true;
    for (size_t c = 0; c < p->chunks; c++) {
        w->holds[c] = stays;
        w->made[c] = false;
    }
    w->kinds = uses->kinds < p->micro_batches ? uses->kinds : p->micro_batches;
}

static void look_at_parts(spw_stage_walk *w, const spw_layer_uses *uses, bool stays) {
    const size_t chunks = w->pipeline.chunks;
    for (size_t i = 0; i < w->kinds * chunks * (stays ? 2 : 1); i++) {
        const size_t pass = i / (stays ? 2 : 1);
        for (size_t v = 0; v < VARIANTS; v++) w->part[pass].beside[v].there = false;
        look_at_part(w, uses, pass / chunks, pass % chunks, stays && i % 2 == 1 ? HELD : 0, &w->part[pass]);
    }
}

/* --- A walk --- */

static void run_passes(spw_stage_walk *w, const spw_layer_uses *uses, bool stays) {
    const spw_pipeline *p = &w->pipeline;
    spw_stage_moment flight = {.layer = SIZE_MAX, .place = SIZE_MAX};
    spw_stage_peaks *out = &w->peaks;
    *out = (spw_stage_peaks){.at = {{.there = false}}};
    look_at_parts(w, uses, stays);
    const passes_between again = spw_walk_known_passes(w);
    const size_t passes = spw_pipeline_passes(p);
    for (size_t i = 0; i < passes; i++) {
        if (i == again.from) i += again.passes;
        const spw_pass pass = w->pass[i];
        pass_kept *part = part_of(w, &pass);
        if (p->pairs &&
            spw_pipeline_is_pair(p, w->stage, i)) { /* the backward pass of the two, then what came */
            const spw_pass other = w->pass[++i];
            spw_walk_change_flight(&flight, &part_of(w, &other)->kept, true);
            look_at_pair(w, uses, &flight, &pass, &other, out);
            w->made[other.chunk] = w->makes;
            count_made(w, &flight);
            spw_walk_after_forward(w, &pass, &part->kept, &flight, out);
            continue;
        }
        const bool first = w->makes && !w->made[pass.chunk];
        const size_t variant = (w->holds[pass.chunk] ? HELD : 0u) + (first ? FIRST : 0u);
        if (!pass.backward) {
            spw_walk_after_forward(w, &pass, &part->kept, &flight, out);
            continue;
        }
        spw_walk_change_flight(&flight, &part->kept, true);
        w->holds[pass.chunk] = false;
        spw_walk_count_left(w, flight.left);
        if (first) look_at_part(w, uses, pass.micro_batch, pass.chunk, variant, part);
        const bool known = !first && is_known(&part->beside[variant], &flight);
        for (int m = 0; m < SPW_MOMENT_COUNT && !known; m++)
            spw_walk_raise_beside(w, (spw_moment)m, &part->at[variant][m], &pass, &flight, out);
        w->holds[pass.chunk] = stays;
        w->made[pass.chunk] = w->makes;
        count_made(w, &flight);
    }
    if (!w->makes) return;
    flight.rows = 0;
    settle(w->keeps, &flight);
    out->at[SPW_MOMENT_STEP] = flight;
}

const spw_stage_peaks *spw_stage_walk_run(spw_stage_walk *w, const spw_layer_uses *uses) {
    const bool stays = w->keeps[0].stays || w->keeps[1].stays;
    begin_walk(w, uses, stays);
    if (w->steady)
        spw_walk_run_steady(w, uses, stays);
    else
        run_passes(w, uses, stays);
    return &w->peaks;
}
