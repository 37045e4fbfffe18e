#include "sim/memory/step/memory_timeline.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/repeated_modules.h"
#include "sim/memory/live/footprint.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <string.h>

enum { MOST_LAYERS = 2 * SPW_MODEL_MAX_LAYERS };

/* Points under way: room for all of them is there from the beginning. */
typedef struct line {
    double *at;
    uint64_t *bytes;
    size_t count, room;
} line;

static spw_status line_create(size_t room, line *out) {
    spw_status status = SPW_OK;
    *out = (line){.room = room};
    SPW_TRY(SPW_ALLOC(room, &out->at));
    SPW_TRY(SPW_ALLOC(room, &out->bytes));

cleanup:
    return status;
}

static void line_destroy(line *l) {
    spw_free(l->at);
    spw_free(l->bytes);
}

static void put(line *l, double at, uint64_t bytes) {
    if (l->count == l->room) return;
    l->at[l->count] = at;
    l->bytes[l->count++] = bytes;
}

static uint64_t plus(uint64_t a, uint64_t b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

/* --- Fewer points --- */

/* Ends of level stretches stay. */
static bool goes_on(const uint64_t *b) {
    return (b[-1] < *b && *b < b[1]) || (b[-1] > *b && *b > b[1]) || (b[-1] == *b && *b == b[1]);
}

static void keep(spw_memory_timeline *out, double at, uint64_t bytes) {
    out->at[out->points] = at;
    out->bytes[out->points++] = bytes;
}

/* The highest and the lowest of [begin, end), in their order. */
static void keep_ends(const double *at, const uint64_t *bytes, const size_t *index, size_t begin, size_t end,
                      spw_memory_timeline *out) {
    size_t high = begin, low = begin;
    for (size_t i = begin; i < end; i++) {
        if (bytes[index[i]] > bytes[index[high]]) high = i;
        if (bytes[index[i]] < bytes[index[low]]) low = i;
    }
    const size_t first = high < low ? high : low, second = high < low ? low : high;
    keep(out, at[index[first]], bytes[index[first]]);
    if (second != first) keep(out, at[index[second]], bytes[index[second]]);
}

/* Stretches are of one width; every one keeps two points at most. */
static size_t stretch_of(const double *at, size_t count, size_t i) {
    enum { STRETCHES = SPW_MEMORY_TIMELINE_POINTS / 2 - 1 };
    const double width = at[count - 1] - at[0];
    const size_t stretch = width > 0.0 ? (size_t)((double)STRETCHES * (at[i] - at[0]) / width) : 0;
    return stretch < STRETCHES ? stretch : STRETCHES - 1;
}

spw_status spw_memory_timeline_thin(const double *at, const uint64_t *bytes, size_t count,
                                    spw_memory_timeline *out) {
    spw_status status = SPW_OK;
    size_t *turn = NULL, turns = 0;
    out->points = 0;
    out->moments = count;
    SPW_TRY(SPW_ALLOC(count > 0 ? count : 1, &turn));
    for (size_t i = 0; i < count; i++)
        if (i == 0 || i + 1 == count || !goes_on(&bytes[i])) turn[turns++] = i;
    if (count <= SPW_MEMORY_TIMELINE_POINTS) {
        for (size_t i = 0; i < count; i++) keep(out, at[i], bytes[i]);
    } else if (turns <= SPW_MEMORY_TIMELINE_POINTS) {
        for (size_t i = 0; i < turns; i++) keep(out, at[turn[i]], bytes[turn[i]]);
    } else {
        keep(out, at[0], bytes[0]);
        for (size_t begin = 1, end = 1; begin + 1 < turns; begin = end) {
            while (end + 1 < turns && stretch_of(at, count, turn[end]) == stretch_of(at, count, turn[begin]))
                end++;
            keep_ends(at, bytes, turn, begin, end, out);
        }
        keep(out, at[count - 1], bytes[count - 1]);
    }

cleanup:
    spw_free(turn);
    return status;
}

/* --- Layers --- */

size_t spw_memory_timeline_layers(const spw_job *job, const spw_stage *stage, size_t most, size_t *layer) {
    const spw_pipeline pipeline = spw_pipeline_of(job);
    size_t count = 0, predictions = 0;
    for (size_t c = 0; c < pipeline.chunks; c++) {
        const spw_block block = spw_pipeline_block(&pipeline, &job->model, stage->index, c);
        for (size_t i = 0; i < block.layers && count < most; i++) layer[count++] = block.first + i;
    }
    while (predictions < stage->predictions && count < most)
        layer[count++] = job->model.layers + predictions++;
    return count;
}

static bool has_experts(const spw_model *m, size_t layer) { return layer >= m->layers || m->is_moe[layer]; }

/* --- What must be live --- */

typedef struct live_step {
    const spw_point *point;
    const spw_footprint *f;
    spw_layer layer;
    line line;
    size_t id[MOST_LAYERS], layers; /* of the stage, forward */
    spw_rank_rows rows[MOST_LAYERS];
    uint64_t resident;     /* always there, whatever the layers keep */
    double kept, own;      /* what layers keep beside rows, and the share of it that is of this micro-batch */
    uint64_t saved, other; /* rows: all, and all but the fullest layer's */
    uint64_t stays;        /* beside them, between the passes */
    bool saves;
    /* Where layers are freed one by one: what each keeps, at work and while it waits, and the other passes in flight. */
    uint64_t at_work[MOST_LAYERS], waits[MOST_LAYERS], left[MOST_LAYERS], others;
} live_step;

/* The layer at work where most is there: its micro-batch is the one that is drawn. */
static const spw_stage_moment *fullest(const spw_footprint *f) {
    const spw_stage_moment *at = f->waiting.at;
    if (at[SPW_MOMENT_MOE_LAYER].there) return &at[SPW_MOMENT_MOE_LAYER];
    return at[SPW_MOMENT_DENSE_LAYER].there ? &at[SPW_MOMENT_DENSE_LAYER] : &at[SPW_MOMENT_LOSS];
}

/* Rows of every layer of the stage; the last MoE layer takes the fullest's where nobody is as full. */
static void set_rows(live_step *s, const spw_rank_rows *rows, size_t layers) {
    const spw_model *m = &s->point->job->model;
    size_t last = SIZE_MAX;
    bool full = false;
    for (size_t i = 0; i < s->layers; i++) {
        size_t before = 0;
        if (!has_experts(m, s->id[i])) continue;
        for (size_t l = 0; l < s->id[i] && l < m->layers; l++) before += m->is_moe[l];
        s->rows[i] = rows != NULL && s->id[i] < m->layers ? rows[before % layers] : s->f->rows;
        full = full ||
               spw_layer_live_set(&s->layer, &s->rows[i]).backward_bytes >= s->f->live_set.backward_bytes;
        last = i;
    }
    const size_t place = s->f->frees ? fullest(s->f)->place : last;
    if (s->f->frees ? place < s->layers && has_experts(m, s->id[place]) : !full && last != SIZE_MAX)
        s->rows[place] = s->f->rows;
}

/* What waits before layer i of this micro-batch, chunks that ran before it included. */
static uint64_t waiting_before(const live_step *s, size_t layers) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < layers; i++) bytes = plus(bytes, s->waits[i]);
    return bytes;
}

static uint64_t whole_bytes(double bytes) { return bytes < 9.2e18 ? (uint64_t)(bytes + 0.5) : INT64_MAX; }

static void set_waiting(live_step *s) {
    const spw_stage_moment *at = fullest(s->f);
    /* the pass that is drawn makes gradients: those of the layers behind the one at work are there */
    const bool makes = at->place < s->layers && at->made[0] + at->made[1] == s->layers - 1 - at->place;
    for (size_t i = 0; i < s->layers; i++) {
        const bool moe = has_experts(&s->point->job->model, s->id[i]);
        const spw_waiting_layer *k = &s->f->keeps[moe];
        const uint64_t rows = moe && s->saves ? spw_layer_live_set(&s->layer, &s->rows[i]).saved_bytes : 0;
        s->at_work[i] = whole_bytes(k->input + k->policy);
        s->waits[i] = plus(whole_bytes(k->input + k->policy + k->saved), rows);
        s->left[i] = whole_bytes(k->left + (makes ? k->gradient : 0.0));
    }
    const size_t place = at->place < s->layers ? at->place : s->layers;
    uint64_t own = plus(waiting_before(s, place), at->work);
    if (place < s->layers) own = plus(own, s->at_work[place]);
    for (size_t i = place + 1; i < s->layers; i++) own = plus(own, s->left[i]);
    s->others = at->bytes > own ? at->bytes - own : 0;
}

static void set_constants(live_step *s) {
    const spw_footprint *f = s->f;
    for (size_t i = 0; i < f->components; i++) {
        const spw_component *c = &f->component[i];
        const bool always =
            c->live[SPW_MOMENT_MOE_LAYER] && c->live[SPW_MOMENT_DENSE_LAYER] && c->live[SPW_MOMENT_LOSS];
        if (c->waits) continue;
        if (c->by_layer) {
            s->kept += c->live[SPW_MOMENT_LOSS] ? (double)c->bytes : 0.0;
        } else if (always) {
            s->resident = plus(s->resident, c->bytes);
        }
    }
    s->saves = spw_remat_keeps_experts(s->point->job->remat);
    s->saved = s->saves ? f->saved.all : 0;
    s->stays = s->saves ? f->saved.stays : 0;
    s->other = s->saved > f->live_set.saved_bytes ? s->saved - f->live_set.saved_bytes : 0;
    s->own = f->stage.kept_layers > s->layers ? (double)s->layers / (double)f->stage.kept_layers : 1.0;
}

/* After so many layers of the forward pass, whose rows are the share `rows` of all. */
static uint64_t kept_after(const live_step *s, size_t layers, double rows) {
    const double done = 1.0 - s->own + s->own * (double)layers / (double)(s->layers > 0 ? s->layers : 1);
    const double bytes = s->kept * done + (double)s->saved * (1.0 - s->own + s->own * rows);
    return plus(s->resident, bytes < 9.2e18 ? (uint64_t)bytes : INT64_MAX);
}

/* The same where layers are freed one by one; `done`: of what bare layers keep to the end. */
static uint64_t waiting_after(const live_step *s, size_t layers, size_t done) {
    const double stays = s->kept * (double)done / (double)(s->layers > 0 ? s->layers : 1);
    return plus(plus(plus(s->resident, s->others), whole_bytes(stays)), waiting_before(s, layers));
}

/* Beside the rows of the layer at work. Where most is there it is what the footprint says: it may be of another micro-batch. */
static uint64_t beside(const live_step *s, spw_moment m, size_t i) {
    const spw_stage_moment *at = &s->f->waiting.at[m];
    uint64_t bytes = plus(s->f->beside_bytes[m], plus(s->others, waiting_before(s, i)));
    if (at->place == i) return plus(s->f->beside_bytes[m], at->bytes - at->work);
    for (size_t l = i + 1; l < s->layers; l++) bytes = plus(bytes, s->left[l]);
    return plus(bytes, s->at_work[i]);
}

/* The events of the phases [from, to] of one layer, above `base`, in a pass that begins at `at`. */
static void put_events(live_step *s, size_t i, spw_phase from, spw_phase to, double at, uint64_t base,
                       uint64_t least) {
    const spw_layer *layer = &s->layer;
    uint64_t live = 0;
    size_t count = 0, done = 0;
    for (size_t e = 0; e < layer->events; e++)
        count += layer->event[e].phase >= from && layer->event[e].phase <= to;
    for (size_t e = 0; e < layer->events; e++) {
        live = spw_layer_live_after(layer, &s->rows[i], e, live);
        if (layer->event[e].phase < from || layer->event[e].phase > to) continue;
        put(&s->line, at + (double)++done / (double)(count + 1), plus(base, live > least ? live : least));
    }
}

static void put_walked_forward(live_step *s) {
    const spw_phase pass = s->saves ? SPW_PHASE_RECOMPUTE : SPW_PHASE_FORWARD;
    put(&s->line, 0.0, waiting_after(s, 0, 0));
    for (size_t i = 0; i < s->layers; i++) {
        if (has_experts(&s->point->job->model, s->id[i]))
            put_events(s, i, pass, pass, (double)i, plus(waiting_after(s, i, i), s->at_work[i]), 0);
        put(&s->line, (double)(i + 1), waiting_after(s, i + 1, i + 1));
    }
}

static void put_walked_backward(live_step *s, double at) {
    for (size_t i = s->layers; i-- > 0; at += 1.0) {
        if (has_experts(&s->point->job->model, s->id[i])) {
            const uint64_t saved = s->saves ? spw_layer_live_set(&s->layer, &s->rows[i]).saved_bytes : 0;
            put_events(s, i, SPW_PHASE_RECOMPUTE, SPW_PHASE_BACKWARD, at, beside(s, SPW_MOMENT_MOE_LAYER, i),
                       saved);
        } else {
            const uint64_t dense =
                plus(beside(s, SPW_MOMENT_DENSE_LAYER, i), s->f->stays_in_dense ? s->stays : 0);
            put(&s->line, at + 0.25, dense);
            put(&s->line, at + 0.75, dense);
        }
        if (spw_attention_is_moment(s->point->job))
            put(&s->line, at + 0.999, beside(s, SPW_MOMENT_ATTENTION, i));
        put(&s->line, at + 1.0, waiting_after(s, i, s->layers));
    }
}

static void put_forward(live_step *s) {
    const spw_phase pass = s->saves ? SPW_PHASE_RECOMPUTE : SPW_PHASE_FORWARD;
    double all = 0.0, now = 0.0;
    for (size_t i = 0; i < s->layers; i++)
        if (has_experts(&s->point->job->model, s->id[i]))
            all += (double)spw_layer_live_set(&s->layer, &s->rows[i]).saved_bytes;
    put(&s->line, 0.0, kept_after(s, 0, 0.0));
    for (size_t i = 0; i < s->layers; i++) {
        const bool moe = has_experts(&s->point->job->model, s->id[i]);
        const double rows = all > 0.0 ? now / all : 0.0;
        if (moe) put_events(s, i, pass, pass, (double)i, kept_after(s, i, rows), 0);
        if (moe) now += (double)spw_layer_live_set(&s->layer, &s->rows[i]).saved_bytes;
        put(&s->line, (double)(i + 1), kept_after(s, i + 1, all > 0.0 ? now / all : 0.0));
    }
}

static void put_backward(live_step *s, double at) {
    const uint64_t *fixed = s->f->fixed_bytes, between = kept_after(s, s->layers, 1.0);
    for (size_t i = s->layers; i-- > 0; at += 1.0) {
        const uint64_t saved = s->saves ? spw_layer_live_set(&s->layer, &s->rows[i]).saved_bytes : 0;
        if (has_experts(&s->point->job->model, s->id[i])) {
            put_events(s, i, SPW_PHASE_RECOMPUTE, SPW_PHASE_BACKWARD, at,
                       plus(fixed[SPW_MOMENT_MOE_LAYER], s->other), saved);
        } else {
            const uint64_t stays = s->f->stays_in_dense ? s->stays : 0;
            put(&s->line, at + 0.25, plus(plus(fixed[SPW_MOMENT_DENSE_LAYER], s->saved), stays));
            put(&s->line, at + 0.75, plus(plus(fixed[SPW_MOMENT_DENSE_LAYER], s->saved), stays));
        }
        if (spw_attention_is_moment(s->point->job) && i + 1 == s->layers)
            put(&s->line, at + 0.999, plus(fixed[SPW_MOMENT_ATTENTION], s->saved - s->f->saved.last));
        put(&s->line, at + 1.0, between);
    }
}

/* The loss, between the passes, and the optimizer behind both. */
static void set_ends(spw_memory_timeline *out, size_t layers) {
    out->layers = layers;
    out->forward_end = (double)layers;
    out->loss_end = out->forward_end + 1.0;
    out->backward_end = out->loss_end + (double)layers;
    out->end = out->backward_end + 1.0;
}

spw_status spw_memory_timeline_live(const spw_point *point, const spw_footprint *footprint,
                                    const spw_rank_rows *rows, size_t layers, spw_memory_timeline *out) {
    spw_status status = SPW_OK;
    live_step *s = NULL;
    memset(out, 0, sizeof *out);
    SPW_TRY(SPW_ALLOC(1, &s));
    s->point = point;
    s->f = footprint;
    const spw_layer_shape shape = spw_offload_shape(point->job, &point->shape, footprint->stage.index);
    SPW_TRY(spw_layer_build(point->scheme, &shape, SPW_FLAVOUR_LIVE, &s->layer));
    s->layers = spw_memory_timeline_layers(point->job, &footprint->stage, MOST_LAYERS, s->id);
    SPW_TRY(line_create(2 * s->layers * (s->layer.events + 3) + 8, &s->line));
    set_constants(s);
    set_rows(s, rows, layers);
    set_ends(out, s->layers);
    const bool frees = footprint->frees;
    if (frees) set_waiting(s);
    if (frees)
        put_walked_forward(s);
    else
        put_forward(s);
    const uint64_t rows_there = frees ? footprint->waiting.at[SPW_MOMENT_LOSS].rows : s->saved,
                   loss = plus(plus(footprint->fixed_bytes[SPW_MOMENT_LOSS], rows_there), s->stays);
    put(&s->line, out->forward_end + 0.25, loss);
    put(&s->line, out->forward_end + 0.75, loss);
    put(&s->line, out->loss_end,
        frees ? waiting_after(s, s->layers, s->layers) : kept_after(s, s->layers, 1.0));
    if (frees)
        put_walked_backward(s, out->loss_end);
    else
        put_backward(s, out->loss_end);
    for (size_t i = 0; i < s->line.count && frees; i++) /* passes beside which others are in flight */
        if (s->line.bytes[i] > footprint->peak_bytes) s->line.bytes[i] = footprint->peak_bytes;
    put(&s->line, out->backward_end, plus(s->resident, footprint->waiting.at[SPW_MOMENT_STEP].bytes));
    put(&s->line, out->end, s->resident);
    SPW_TRY(spw_memory_timeline_thin(s->line.at, s->line.bytes, s->line.count, out));

cleanup:
    if (s != NULL) {
        spw_layer_destroy(&s->layer);
        line_destroy(&s->line);
    }
    spw_free(s);
    return status;
}

/* --- A compiled program's arena --- */

typedef struct arena_step {
    const spw_compiled_course *course;
    const spw_footprint *f;
    line line;
} arena_step;

/* What is beside the arguments, as much of it as is left past the limit. */
static void put_arena(arena_step *s, double at, double bytes) {
    const uint64_t whole = (uint64_t)(bytes + 0.5), most = s->f->temporary_bytes;
    put(&s->line, at, s->f->argument_bytes + (whole < most ? whole : most));
}

static void put_pass(arena_step *s, double at, bool moe, bool backward) {
    const spw_compiled_course *c = s->course;
    const double around = c->around[backward ? SPW_STEP_BACKWARD : SPW_STEP_FORWARD];
    size_t count = 1, done = 0;
    for (size_t e = 0; e < c->events; e++) count += c->backward[e] == backward;
    put_arena(s, at, around);
    for (size_t e = 0; e < c->events && moe; e++)
        if (c->backward[e] == backward)
            put_arena(s, at + (double)++done / (double)(count + 1), around + c->layer[e]);
    put_arena(s, at + (double)count / (double)(count + 1), around);
    if (backward) put_arena(s, at + (double)count / (double)(count + 1), c->around[SPW_STEP_ATTENTION]);
}

spw_status spw_memory_timeline_arena(const spw_stack *stack, const spw_point *point,
                                     const spw_footprint *footprint, spw_memory_timeline *out) {
    const spw_model *m = &point->job->model;
    const spw_pipeline pipeline = spw_pipeline_of(point->job);
    const spw_stage stage = spw_pipeline_stage(&pipeline, m, 0);
    spw_compiled_course course = {.events = 0};
    arena_step s = {.course = &course, .f = footprint};
    size_t *id = NULL, layers = 0;
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    SPW_TRY(SPW_ALLOC(MOST_LAYERS, &id));
    SPW_TRY(spw_compiled_memory_course(stack, point->job, point->scheme, point->sequences, &course));
    layers = spw_memory_timeline_layers(point->job, &stage, MOST_LAYERS, id);
    SPW_TRY(line_create(2 * layers * (course.events + 3) + 8, &s.line));
    set_ends(out, layers);
    for (size_t i = 0; i < layers; i++) put_pass(&s, (double)i, has_experts(m, id[i]), false);
    put_arena(&s, out->forward_end + 0.3, course.around[SPW_STEP_HEAD]);
    put_arena(&s, out->forward_end + 0.7, course.around[SPW_STEP_RELAY]);
    for (size_t i = layers; i-- > 0;)
        put_pass(&s, out->loss_end + (double)(layers - 1 - i), has_experts(m, id[i]), true);
    put_arena(&s, out->backward_end + 0.3, course.around[SPW_STEP_UPDATE]);
    put_arena(&s, out->end, course.around[SPW_STEP_UPDATE]);
    SPW_TRY(spw_memory_timeline_thin(s.line.at, s.line.bytes, s.line.count, out));

cleanup:
    spw_compiled_course_destroy(&course);
    line_destroy(&s.line);
    spw_free(id);
    return status;
}
