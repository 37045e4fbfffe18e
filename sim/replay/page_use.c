#include "sim/replay/page_use.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/schemes/point.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <string.h>

static size_t cell(const spw_page_use *u, size_t layer, size_t micro_batch) {
    return layer * u->pipeline.micro_batches + micro_batch;
}

/* Where layers are: of [layers] the stage and its chunk. */
typedef struct places {
    size_t *stage, *chunk;
} places;

/* The next MoE layer of a pass behind *next, if it has one: 1, or 0. */
static size_t list_next(const spw_page_use *u, size_t s, const spw_pass *p, const places *at, size_t *next,
                        spw_page_pass *out, size_t count) {
    while (*next < u->job_layers) {
        const size_t k = (*next)++, layer = p->backward ? u->job_layers - 1 - k : k;
        if (at->stage[layer] != s || at->chunk[layer] != p->chunk) continue;
        out[count] = (spw_page_pass){layer, p->micro_batch, p->backward, false};
        spw_page_pass *before = count > 0 ? &out[count - 1] : NULL;
        if (p->backward && before != NULL && !before->backward && before->layer == layer &&
            before->micro_batch == p->micro_batch)
            out[count].stays = before->stays = true;
        return 1;
    }
    return 0;
}

/* The passes of a stage over its MoE layers, in order. */
static void list_passes(spw_page_use *u, size_t s, const places *at) {
    spw_page_pass *out = u->pass + s * u->passes;
    size_t count = 0;
    for (size_t i = 0; i < spw_pipeline_passes(&u->pipeline); i++) {
        const spw_pass pass = spw_pipeline_pass(&u->pipeline, s, i);
        const bool pair = spw_pipeline_is_pair(&u->pipeline, s, i);
        const spw_pass two[2] = {pass, pair ? spw_pipeline_pass(&u->pipeline, s, i + 1) : pass};
        size_t next[2] = {0, 0};
        while (next[0] < u->job_layers ||
               (pair && next[1] < u->job_layers)) /* in turns where two run together */
            for (size_t side = 0; side < (pair ? 2U : 1U); side++)
                count += list_next(u, s, &two[side], at, &next[side], out, count);
        i += pair;
    }
    u->count[s] = count;
}

/* Layers of multi-token prediction stand behind the others of their block. */
static void place_predictions(const spw_page_use *u, const spw_model *model, const places *at) {
    size_t layer = u->trace_layers;
    for (size_t c = 0; c < u->pipeline.chunks; c++) {
        for (size_t s = 0; s < u->pipeline.stages; s++) {
            const spw_block block = spw_pipeline_block(&u->pipeline, model, s, c);
            for (size_t i = 0; i < block.predictions && layer < u->job_layers; i++, layer++)
                at->stage[layer] = s, at->chunk[layer] = c;
        }
    }
}

spw_status spw_page_use_create(const spw_point *point, size_t ranks, size_t layers, spw_page_use *u) {
    const spw_model *model = &point->job->model;
    const spw_scheme_memory *memory = &point->scheme->type->memory;
    places at = {NULL, NULL};
    spw_status status = SPW_OK;
    *u = (spw_page_use){.pipeline = spw_pipeline_of(point->job),
                        .ranks = ranks,
                        .layers = layers,
                        .trace_layers = model->moe_layers,
                        .job_layers = model->moe_layers + point->job->stage_layout.predictions,
                        .predicted_rows = spw_balanced_rows(point->scheme, &point->shape).held};
    u->run.there = memory->pool != NULL && memory->pool(point->scheme, &point->shape, &u->pool);
    if (!u->run.there) return SPW_OK;
    const size_t cells = u->job_layers * u->pipeline.micro_batches;
    u->passes = 2 * cells;
    SPW_TRY(SPW_ALLOC(u->job_layers, &at.stage));
    SPW_TRY(SPW_ALLOC(u->job_layers, &at.chunk));
    SPW_TRY(SPW_ALLOC(u->pipeline.stages, &u->pages));
    SPW_TRY(SPW_ALLOC(u->pipeline.stages, &u->count));
    SPW_TRY(SPW_ALLOC(u->pipeline.stages * u->passes, &u->pass));
    SPW_TRY(SPW_ALLOC(ranks * cells, &u->rows));
    SPW_TRY(SPW_ALLOC(u->pool.tensors * cells, &u->on_host));
    spw_pipeline_place_layers(&u->pipeline, model, u->trace_layers, at.stage, at.chunk);
    place_predictions(u, model, &at);
    for (size_t s = 0; s < u->pipeline.stages; s++) {
        u->pages[s] = spw_stage_pages_of(&u->pool, &u->pipeline, model, s);
        if (u->pages[s].gpu_bytes > u->run.pool_bytes) u->run.pool_bytes = u->pages[s].gpu_bytes;
        if (u->pages[s].host_bytes > u->run.host_bytes) u->run.host_bytes = u->pages[s].host_bytes;
        list_passes(u, s, &at);
    }

cleanup:
    spw_free(at.stage);
    spw_free(at.chunk);
    return status;
}

void spw_page_use_destroy(spw_page_use *u) {
    spw_free(u->pages);
    spw_free(u->count);
    spw_free(u->pass);
    spw_free(u->rows);
    spw_free(u->on_host);
    *u = (spw_page_use){.ranks = 0};
}

void spw_page_use_begin(spw_page_use *u) {
    if (!u->run.there) return;
    const size_t cells = u->job_layers * u->pipeline.micro_batches;
    memset(u->rows, 0, u->ranks * cells * sizeof *u->rows);
    for (size_t rank = 0; rank < u->ranks; rank++)
        for (size_t at = cell(u, u->trace_layers, 0); at < cells; at++)
            u->rows[rank * cells + at] = u->predicted_rows;
}

void spw_page_use_note(spw_page_use *u, size_t layer, size_t micro_batch, size_t rank, uint64_t rows) {
    for (size_t l = layer; l < u->trace_layers && u->run.there; l += u->layers)
        u->rows[rank * u->job_layers * u->pipeline.micro_batches + cell(u, l, micro_batch)] = rows;
}

/* One rank's step in one stage. */
typedef struct walk {
    uint64_t needed[SPW_POOL_TENSORS]; /* [buffers] pages, wherever they are */
    uint64_t gpu[SPW_POOL_TENSORS], host[SPW_POOL_TENSORS];
    uint64_t spilled;
    double fullest;
    bool overflow;
} walk;

static void give_back(spw_page_use *u, walk *w, size_t tensor, size_t at, uint64_t pages) {
    const size_t b = u->pool.tensor[tensor].buffer;
    const bool host = u->on_host[tensor * u->job_layers * u->pipeline.micro_batches + at];
    w->needed[b] -= pages;
    if (w->overflow) return;
    if (host) {
        w->host[b] -= pages;
    } else {
        w->gpu[b] -= pages;
    }
}

static void take(spw_page_use *u, walk *w, const spw_stage_pages *have, size_t tensor, size_t at,
                 uint64_t rows) {
    const size_t b = u->pool.tensor[tensor].buffer;
    const uint64_t pages = spw_pool_pages(&u->pool, tensor, rows);
    bool *host = &u->on_host[tensor * u->job_layers * u->pipeline.micro_batches + at];
    w->needed[b] += pages;
    if (have->gpu[b] > 0) w->fullest = fmax(w->fullest, (double)w->needed[b] / (double)have->gpu[b]);
    if (w->overflow) return; /* the kernels do nothing any more */
    *host = have->gpu[b] - w->gpu[b] < pages;
    if (!*host) {
        w->gpu[b] += pages;
    } else if (have->host[b] - w->host[b] >= pages) {
        w->host[b] += pages;
        w->spilled += spw_pool_tensor_bytes(&u->pool, tensor, rows);
    } else {
        w->overflow = true;
    }
}

static walk walk_rank(spw_page_use *u, size_t s, size_t rank) {
    const uint64_t *rows = u->rows + rank * u->job_layers * u->pipeline.micro_batches;
    walk w = {.spilled = 0};
    for (size_t i = 0; i < u->count[s]; i++) {
        const spw_page_pass *p = &u->pass[s * u->passes + i];
        const size_t at = cell(u, p->layer, p->micro_batch);
        for (size_t t = 0; t < u->pool.tensors && !p->stays; t++) {
            if (p->backward) {
                give_back(u, &w, t, at, spw_pool_pages(&u->pool, t, rows[at]));
            } else {
                take(u, &w, &u->pages[s], t, at, rows[at]);
            }
        }
    }
    return w;
}

void spw_page_use_end(spw_page_use *u, bool dropped, int64_t step_id) {
    bool overflow = false;
    uint64_t spilled = 0;
    if (!u->run.there) return;
    for (size_t i = 0; i < u->pipeline.stages * u->ranks; i++) {
        const walk w = walk_rank(u, i / u->ranks, i % u->ranks);
        overflow = overflow || w.overflow;
        spilled = w.spilled > spilled ? w.spilled : spilled;
        u->spilled += (double)w.spilled;
        if (!(w.fullest > u->run.fullest)) continue;
        u->run.fullest = w.fullest;
        u->run.fullest_step = step_id;
    }
    u->run.steps++;
    u->run.overflow_steps += overflow;
    u->run.rerun_steps += overflow || dropped;
    u->run.spill_steps += spilled > 0;
    if (spilled > u->run.spilled_most) u->run.spilled_most = spilled;
}

spw_page_run spw_page_use_run(const spw_page_use *u) {
    spw_page_run run = u->run;
    const double gpu_steps = (double)run.steps * (double)(u->pipeline.stages * u->ranks);
    run.spilled_bytes = gpu_steps > 0.0 ? u->spilled / gpu_steps : 0.0;
    return run;
}
