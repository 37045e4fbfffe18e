/* What a process allocates before its first step, and by its first step of the optimizer. */
#include "sim/memory/step/step_memory.h"
#include "sim/memory/step/step_parts.h"

/* The weights as they are built, or their end: the first of the model is the last of the list. */
static spw_status change_weights(spw_step_memory *m, bool born) {
    const size_t first = spw_step_state_slot(m) + m->state_slots;
    spw_status status = SPW_OK;
    for (size_t p = m->weights.count + 1; p-- > 0 && status == SPW_OK;) {
        if (m->weight_bytes[p] == 0) continue;
        status = spw_step_append(m, (spw_memory_event){.bytes = m->weight_bytes[p],
                                                       .slot = (uint32_t)(first + p),
                                                       .kind = (uint16_t)m->layer.tensors,
                                                       .born = born});
    }
    return status;
}

static spw_status change_cast(spw_step_memory *m, uint64_t bytes, size_t kind, bool born) {
    return spw_step_append(m, (spw_memory_event){.bytes = bytes / 2,
                                                 .slot = (uint32_t)(m->unit_slot - 1),
                                                 .kind = (uint16_t)(m->layer.tensors + kind),
                                                 .born = born});
}

/* Parameter by parameter, its tensors one after the other. */
static spw_status allocate_state(spw_step_memory *m, size_t i) {
    const spw_step_fixed *t = &m->fixed[i];
    size_t slot = spw_step_state_slot(m) + t->slot;
    spw_status status = SPW_OK;
    spw_state_tensors_bytes(&m->state, t->bytes, m->state_bytes);
    for (size_t p = 0; p <= m->state.count; p++) {
        const uint64_t bytes = m->state_bytes[p], part = bytes / t->tensors;
        for (unsigned n = 0; n < t->tensors && status == SPW_OK; n++, slot++) {
            const uint64_t here = n + 1 < t->tensors ? part : bytes - part * (t->tensors - 1);
            if (here == 0) continue;
            if (t->cast) SPW_TRY(change_cast(m, here, i, true));
            SPW_TRY(spw_step_append(m, (spw_memory_event){.bytes = here,
                                                          .slot = (uint32_t)slot,
                                                          .kind = (uint16_t)(m->layer.tensors + i),
                                                          .born = true,
                                                          .optimizer = t->by_first_step}));
            if (t->cast) SPW_TRY(change_cast(m, here, i, false));
        }
    }

cleanup:
    return status;
}

/* Weights are built, buffers of weights and gradients take their place, and master weights are made of them: NVIDIA/Megatron-LM
 * d98e8a64 megatron/core/distributed/param_and_grad_buffer.py (_ParamAndGradBuffer), optimizer/distrib_optimizer.py
 * (_build_model_and_main_param_groups: clone().float()). */
static spw_status begin_built(spw_step_memory *m) {
    spw_status status = SPW_OK;
    SPW_TRY(change_weights(m, true));
    for (size_t i = 0; i < m->fixed_count; i++)
        if (spw_step_is_always(&m->fixed[i]) && m->fixed[i].tensors == 0)
            SPW_TRY(spw_step_change_fixed(m, i, true, false));
    SPW_TRY(change_weights(m, false));
    for (size_t i = 0; i < m->fixed_count; i++)
        if (spw_step_is_always(&m->fixed[i]) && m->fixed[i].tensors > 0 && !m->fixed[i].by_first_step)
            SPW_TRY(allocate_state(m, i));

cleanup:
    return status;
}

spw_status spw_step_memory_begin(spw_step_memory *m, spw_event_list *list) {
    spw_status status = SPW_OK;
    if (m->listed != NULL) return spw_transformers_step_begin(m->listed, list);
    if (m->recorded != NULL) return spw_snapshot_steps_begin(m->recorded, list);
    if (m->bare != NULL) return spw_bare_layers_begin(m->bare, list);
    spw_event_list_clear(list);
    m->out = list;
    if (m->weights.count > 0) return begin_built(m);
    for (size_t i = 0; i < m->fixed_count && status == SPW_OK; i++) {
        if (!spw_step_is_always(&m->fixed[i]) || m->fixed[i].by_first_step) continue;
        status = m->fixed[i].tensors > 0 ? allocate_state(m, i) : spw_step_change_fixed(m, i, true, false);
    }
    return status;
}

spw_status spw_step_memory_optimizer(spw_step_memory *m, spw_event_list *list) {
    spw_status status = SPW_OK;
    if (m->listed != NULL) return spw_transformers_step_optimizer(m->listed, list);
    spw_event_list_clear(list);
    m->out = list;
    m->at_work = SPW_NO_MOE_LAYER;
    for (size_t i = 0; i < m->fixed_count && status == SPW_OK && m->bare == NULL && m->recorded == NULL;
         i++) {
        if (!spw_step_is_always(&m->fixed[i]) || !m->fixed[i].by_first_step) continue;
        status = m->fixed[i].tensors > 0 ? allocate_state(m, i) : spw_step_change_fixed(m, i, true, false);
    }
    return status;
}
