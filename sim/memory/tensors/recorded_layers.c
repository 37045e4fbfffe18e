#include "sim/memory/tensors/recorded_layers.h"

#include "base/memory.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage_layers.h"

struct spw_recorded_layers {
    spw_megatron_shape shape;
    spw_pipeline pipeline;
    size_t stage;
    spw_stage_layers layers;
    spw_bare_layers **bare; /* [chunks] NULL: the chunk has no layer with experts */
    size_t **moe;           /* [chunks][its layers with experts] among the model's */
    uint64_t *received, *sent;
    spw_event_list part; /* of a micro-batch through a chunk */
};

static spw_status create_chunk(spw_recorded_layers *r, size_t chunk) {
    const size_t begin = r->layers.begin[chunk], end = r->layers.begin[chunk + 1];
    spw_megatron_shape shape = r->shape;
    spw_event_list begins = {.events = 0};
    spw_status status = SPW_OK;
    shape.layers = 0;
    SPW_TRY(SPW_ALLOC(end - begin + 1, &r->moe[chunk]));
    for (size_t i = begin; i < end; i++)
        if (r->layers.layer[i].moe != SIZE_MAX) r->moe[chunk][shape.layers++] = r->layers.layer[i].moe;
    if (shape.layers == 0) return SPW_OK;
    SPW_TRY(spw_bare_layers_create(&shape, &r->bare[chunk]));
    SPW_TRY(spw_bare_layers_begin(r->bare[chunk], &begins));

cleanup:
    spw_event_list_destroy(&begins);
    return status;
}

spw_status spw_recorded_layers_create(const spw_megatron_shape *shape, const spw_pipeline *pipeline,
                                      const spw_model *model, size_t stage, spw_recorded_layers **out) {
    spw_recorded_layers *r = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &r));
    r->shape = *shape;
    r->pipeline = *pipeline;
    r->stage = stage;
    SPW_TRY(spw_stage_layers_create(pipeline, model, stage, &r->layers));
    SPW_TRY(SPW_ALLOC(pipeline->chunks, &r->bare));
    SPW_TRY(SPW_ALLOC(pipeline->chunks, &r->moe));
    SPW_TRY(SPW_ALLOC(r->layers.most + 1, &r->received));
    SPW_TRY(SPW_ALLOC(r->layers.most + 1, &r->sent));
    for (size_t c = 0; c < pipeline->chunks; c++) SPW_TRY(create_chunk(r, c));
    *out = r;
    r = NULL;

cleanup:
    spw_recorded_layers_destroy(r);
    return status;
}

void spw_recorded_layers_destroy(spw_recorded_layers *layers) {
    if (layers == NULL) return;
    for (size_t c = 0; c < layers->pipeline.chunks; c++) {
        if (layers->bare != NULL) spw_bare_layers_destroy(layers->bare[c]);
        if (layers->moe != NULL) spw_free(layers->moe[c]);
    }
    spw_free(layers->bare);
    spw_free(layers->moe);
    spw_free(layers->received);
    spw_free(layers->sent);
    spw_event_list_destroy(&layers->part);
    spw_stage_layers_destroy(&layers->layers);
    spw_free(layers);
}

/* rows NULL: `even` in every layer. */
static spw_status add_pass(spw_recorded_layers *r, const spw_pass *pass, const spw_rank_rows *rows,
                           size_t count, uint64_t even, spw_event_list *list) {
    const size_t *moe = r->moe[pass->chunk];
    const size_t layers = r->layers.begin[pass->chunk + 1] - r->layers.begin[pass->chunk];
    spw_status status = SPW_OK;
    if (r->bare[pass->chunk] == NULL) return SPW_OK;
    for (size_t l = 0; l < layers; l++) {
        const spw_rank_rows *of =
            rows == NULL ? NULL : &rows[moe[l] % count * r->pipeline.micro_batches + pass->micro_batch];
        r->received[l] = of == NULL ? even : of->held;
        r->sent[l] = of == NULL ? (uint64_t)r->shape.tokens * r->shape.top_k : of->sent;
    }
    const spw_megatron_rows all = {.received = r->received, .sent = r->sent};
    SPW_TRY(spw_bare_layers_step(r->bare[pass->chunk], &all, &r->part));
    for (size_t i = 0; i < r->part.events; i++) {
        spw_memory_event event = r->part.event[i];
        if (!event.born || event.backward != pass->backward) continue;
        event.layer = event.layer < layers ? (uint16_t)moe[event.layer] : SPW_NO_MOE_LAYER;
        event.micro_batch = (uint32_t)pass->micro_batch;
        SPW_TRY(spw_event_list_append(list, event));
    }

cleanup:
    return status;
}

static spw_status add_passes(spw_recorded_layers *r, const spw_rank_rows *rows, size_t count, uint64_t even,
                             spw_event_list *list) {
    spw_status status = SPW_OK;
    spw_event_list_clear(list);
    for (size_t i = 0; i < spw_pipeline_passes(&r->pipeline) && status == SPW_OK; i++) {
        const spw_pass pass = spw_pipeline_pass(&r->pipeline, r->stage, i);
        status = add_pass(r, &pass, rows, count, even, list);
    }
    return status;
}

spw_status spw_recorded_layers_step(spw_recorded_layers *r, const spw_rank_rows *rows, size_t count,
                                    spw_event_list *list) {
    return add_passes(r, rows, count, 0, list);
}

spw_status spw_recorded_layers_even(spw_recorded_layers *r, uint64_t received, spw_event_list *list) {
    return add_passes(r, NULL, 1, received, list);
}
