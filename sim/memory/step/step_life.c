#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/state_law.h"
#include "sim/memory/kept/megatron_job.h"
#include "sim/memory/step/step_parts.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/pipeline.h"

#include <string.h>

static spw_status create_bare(const spw_point *point, spw_step_memory *m) {
    spw_megatron_shape bare;
    spw_transformers_shape steps;
    spw_status status = SPW_OK;
    if (spw_transformers_is_listed(point, &steps, NULL)) {
        SPW_TRY(spw_transformers_step_slots(&steps, &m->listed_slots));
        return spw_transformers_step_create(&steps, &m->listed);
    }
    if (m->recorded != NULL) {
        SPW_TRY(spw_megatron_recorded_layers(point, &bare));
        return spw_recorded_layers_create(&bare, &m->pipeline, &point->job->model, m->stage, &m->beside);
    }
    /* of stages there is no list that is cut between two layers */
    if (m->pipeline.stages > 1 || !spw_megatron_job_layers(point, &bare)) return SPW_OK;
    SPW_TRY(spw_bare_layers_create(&bare, &m->bare));
    SPW_TRY(SPW_ALLOC(m->layers, &m->received));
    SPW_TRY(SPW_ALLOC(m->layers, &m->sent));
    SPW_TRY(SPW_ALLOC(m->layers, &m->held));
    m->shares = bare.expert_tensor > 1;

cleanup:
    return status;
}

static void take_fixed(const spw_footprint *footprint, spw_step_memory *m) {
    m->units = footprint->units;
    m->gathered = m->reducing = SIZE_MAX;
    for (size_t i = 0; i < footprint->components; i++) {
        const spw_component *c = &footprint->component[i];
        if (c->routed || c->waits || c->bytes == 0 || (c->apart && m->units.listed)) continue;
        if (spw_step_attention_listed(m) && strcmp(c->name, "cublas_workspaces") == 0) {
            m->workspace = c->bytes / THREADS;
            continue;
        }
        spw_step_fixed *tensor = &m->fixed[m->fixed_count++];
        tensor->bytes = c->bytes;
        memcpy(tensor->live, c->live, sizeof tensor->live);
        tensor->tensors = c->tensors;
        tensor->by_first_step = c->by_first_step;
        tensor->stream = c->ahead ? GATHER_STREAM : MAIN_STREAM;
        tensor->cast = m->weights.count > 0 && !c->by_first_step && strcmp(c->name, "master_weights") == 0;
        tensor->slot = m->state_slots;
        m->state_slots += c->tensors * (m->state.count + 1);
    }
    m->frees = footprint->frees;
    m->at_work = SPW_NO_MOE_LAYER;
    memcpy(m->keeps, footprint->keeps, sizeof m->keeps);
    m->ends[0] = footprint->stage.embedding ? 0 : SIZE_MAX;
    m->ends[1] = footprint->stage.head ? m->pipeline.chunks - 1 : SIZE_MAX;
}

static spw_status create_weights(const spw_job *job, const spw_footprint *footprint, spw_step_memory *m) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < footprint->components; i++)
        if (strcmp(footprint->component[i].name, "weights") == 0)
            m->built_bytes = footprint->component[i].bytes;
    SPW_TRY(spw_weight_tensors_create(job, &footprint->stage, m->built_bytes, &m->weights));
    if (job->precision.weights != 2 || spw_master_bytes(job) != 4) m->weights.count = 0;
    SPW_TRY(SPW_ALLOC(m->weights.count + 1, &m->weight_bytes));
    spw_state_tensors_bytes(&m->weights, m->built_bytes, m->weight_bytes);

cleanup:
    return status;
}

static void find_phases(spw_step_memory *m) {
    for (size_t i = 0; i < m->layer.events; i++) {
        const spw_phase phase = m->layer.event[i].phase;
        if (m->phase[phase].end == 0) m->phase[phase].begin = i;
        m->phase[phase].end = i + 1;
    }
}

static spw_status create_slots(spw_step_memory *m) {
    const size_t passes = m->pipeline.micro_batches * m->pipeline.chunks;
    size_t cells = 0, places = 0;
    spw_status status = SPW_OK;
    m->sets = spw_pipeline_in_flight(&m->pipeline, m->stage);
    if (m->layers >= SPW_NO_MOE_LAYER || !spw_mul_size(m->sets, m->stages.most, &places) ||
        !spw_mul_size(places, m->layer.tensors + KEPT, &cells) || cells + m->ranks >= UINT32_MAX / 2)
        return spw_fail(SPW_EARG, "%zu MoE layers of %zu tensors in %zu passes: too many", m->layers,
                        m->layer.tensors, m->sets);
    SPW_TRY(SPW_ALLOC(cells > 0 ? cells : 1, &m->live));
    SPW_TRY(SPW_ALLOC(m->layer.tensors, &m->bytes));
    SPW_TRY(SPW_ALLOC(m->stages.begin[m->pipeline.chunks] + 1, &m->left));
    SPW_TRY(SPW_ALLOC(m->stages.begin[m->pipeline.chunks] + ENDS, &m->made));
    SPW_TRY(SPW_ALLOC(UNIT_PARTS * spw_step_units(m), &m->unit_live));
    SPW_TRY(SPW_ALLOC(passes, &m->set_of));
    SPW_TRY(SPW_ALLOC(m->sets, &m->spare));
    for (size_t i = 0; i < passes; i++) m->set_of[i] = SIZE_MAX;
    while (m->spares < m->sets) m->spare[m->spares] = m->sets - 1 - m->spares, m->spares++;

cleanup:
    return status;
}

spw_status spw_step_memory_create(const spw_point *point, const spw_footprint *footprint,
                                  const spw_snapshot_steps *recorded, spw_step_memory **out) {
    spw_job room;
    const spw_job *job = spw_fsdp2_job(point->job, point->scheme, &room);
    spw_step_memory *m = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    m->pipeline = spw_pipeline_of(job);
    m->stage = footprint->stage.index;
    SPW_TRY(spw_stage_layers_create(&m->pipeline, &job->model, m->stage, &m->stages));
    SPW_TRY(spw_layer_build(point->scheme, &point->shape, SPW_FLAVOUR_LIVE, &m->layer));
    find_phases(m);
    m->predicted = spw_balanced_rows(point->scheme, &point->shape);
    m->layers = job->model.moe_layers;
    m->ranks = point->shape.ranks;
    m->saves = spw_remat_keeps_experts(job->remat);
    m->recorded = recorded;
    SPW_TRY(spw_state_tensors_create(job, &footprint->stage, &m->state));
    SPW_TRY(SPW_ALLOC(m->state.count + 1, &m->state_bytes));
    SPW_TRY(create_weights(job, footprint, m));
    take_fixed(footprint, m);
    m->experts.first = spw_layer_find(&m->layer, "w0_out");
    m->experts.last = spw_layer_find(&m->layer, "y");
    m->experts.gradient = spw_layer_find(&m->layer, "d_wo");
    m->experts.done = spw_layer_find(&m->layer, "dx_received_order");
    m->ahead = job->fsdp2.prefetch;
    SPW_TRY(create_slots(m));
    SPW_TRY(create_bare(point, m));
    m->units.listed = m->units.listed && m->listed == NULL && m->recorded == NULL && m->bare == NULL;
    m->unit_slot = spw_step_memory_slots(m) - spw_step_unit_slots(m);
    *out = m;
    m = NULL;

cleanup:
    spw_step_memory_destroy(m);
    return status;
}

void spw_step_memory_destroy(spw_step_memory *m) {
    if (m == NULL) return;
    spw_bare_layers_destroy(m->bare);
    spw_transformers_step_destroy(m->listed);
    spw_recorded_layers_destroy(m->beside);
    spw_event_list_destroy(&m->layers_list);
    spw_free(m->received);
    spw_free(m->sent);
    spw_free(m->held);
    spw_state_tensors_destroy(&m->state);
    spw_free(m->state_bytes);
    spw_state_tensors_destroy(&m->weights);
    spw_free(m->weight_bytes);
    spw_free(m->live);
    spw_free(m->bytes);
    spw_free(m->left);
    spw_free(m->made);
    spw_free(m->unit_live);
    spw_free(m->set_of);
    spw_free(m->spare);
    spw_stage_layers_destroy(&m->stages);
    spw_layer_destroy(&m->layer);
    spw_free(m);
}
