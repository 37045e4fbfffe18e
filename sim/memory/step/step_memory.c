#include "sim/memory/step/step_memory.h"
#include "sim/memory/step/step_parts.h"
#include "sim/weights/pipeline.h"

#include <math.h>

/* Slots: fixed tensors, layers of the sets, what each of them keeps, pieces of an exchange, what layers left, gradients that they
 * made, tensors of state. */
static size_t kept_slot(const spw_step_memory *m) {
    return SPW_COMPONENTS + m->sets * m->stages.most * m->layer.tensors;
}
static size_t pieces_slot(const spw_step_memory *m) { return kept_slot(m) + KEPT * m->sets * m->stages.most; }

size_t spw_step_left_slot(const spw_step_memory *m) { return pieces_slot(m) + m->ranks; }

static size_t made_slot(const spw_step_memory *m) {
    return spw_step_left_slot(m) + m->stages.begin[m->pipeline.chunks];
}

size_t spw_step_state_slot(const spw_step_memory *m) {
    return made_slot(m) + m->stages.begin[m->pipeline.chunks] + ENDS + 1; /* and one that is added to it */
}

size_t spw_step_memory_slots(const spw_step_memory *m) {
    if (m->listed != NULL) return m->listed_slots;
    if (m->recorded != NULL) return spw_snapshot_steps_slots(m->recorded);
    if (m->bare != NULL) return spw_bare_layers_slots(m->bare);
    return spw_step_state_slot(m) + m->state_slots + m->weights.count + 2 + spw_step_unit_slots(m);
}

/* --- Events --- */

bool spw_step_is_always(const spw_step_fixed *t) {
    for (int m = 0; m < SPW_MOMENT_COUNT; m++)
        if (!t->live[m]) return false;
    return true;
}

spw_status spw_step_change_fixed(spw_step_memory *m, size_t i, bool born, bool backward) {
    return spw_step_append(m, (spw_memory_event){.bytes = m->fixed[i].bytes,
                                                 .slot = (uint32_t)i,
                                                 .kind = (uint16_t)(m->layer.tensors + i),
                                                 .stream = m->fixed[i].stream,
                                                 .born = born,
                                                 .backward = backward});
}

/* What is there at a moment and not always is born, or dies. */
static spw_status change_moment(spw_step_memory *m, spw_moment at, bool born, bool backward) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < m->fixed_count && status == SPW_OK; i++) {
        if (m->fixed[i].live[at] && !spw_step_is_always(&m->fixed[i]))
            status = spw_step_change_fixed(m, i, born, backward);
    }
    return status;
}

static spw_status pass_moment(spw_step_memory *m, spw_moment at) {
    const spw_status status = change_moment(m, at, true, true);
    return status == SPW_OK ? change_moment(m, at, false, true) : status;
}

/* Pieces of an exchange, of which there is one at a time: each rank's is an allocation. Which rank sends how much is not known
 * here: equally much, but for rows that do not divide. */
static spw_status change_pieces(spw_step_memory *m, spw_step_place at, size_t tensor, bool born) {
    const spw_layer_tensor *t = &m->layer.tensor[tensor];
    const uint64_t row = spw_layer_row_bytes(t, 1), rows = row > 0 ? m->bytes[tensor] / row : 0;
    const size_t first = pieces_slot(m);
    spw_status status = SPW_OK;
    for (size_t r = 0; r < m->ranks && status == SPW_OK; r++) {
        const uint64_t some = rows / m->ranks + (r < rows % m->ranks ? 1 : 0);
        if (some == 0) break;
        status = spw_step_append(m, (spw_memory_event){.bytes = some * row,
                                                       .slot = (uint32_t)(first + r),
                                                       .kind = (uint16_t)tensor,
                                                       .born = born,
                                                       .backward = at.backward});
    }
    return status;
}

/* A tensor that is born twice, or dies without having been born, changes nothing. */
static inline spw_status change(spw_step_memory *m, spw_step_place at, size_t tensor, bool born) {
    const size_t cell = (at.set * m->stages.most + at.local) * m->layer.tensors + tensor;
    if (m->live[cell] == born) return SPW_OK;
    m->live[cell] = born;
    if (m->layer.tensor[tensor].by_rank) return change_pieces(m, at, tensor, born);
    return spw_step_append(m, (spw_memory_event){.bytes = m->bytes[tensor],
                                                 .slot = (uint32_t)(SPW_COMPONENTS + cell),
                                                 .kind = (uint16_t)tensor,
                                                 .born = born,
                                                 .backward = at.backward});
}

/* Gradients of experts' weights, which units hold until a reduce-scatter's input is filled. */
static bool is_reduced(const spw_step_memory *m, size_t tensor) {
    const spw_layer_tensor *t = &m->layer.tensor[tensor];
    return m->units.listed && t->rows == SPW_ROWS_GIVEN && t->dims == 3 && !t->needed;
}

static spw_status drop_reduced(spw_step_memory *m, spw_step_place at) {
    spw_status status = SPW_OK;
    for (size_t t = 0; t < m->layer.tensors && status == SPW_OK; t++)
        if (is_reduced(m, t)) status = change(m, at, t, false);
    return status;
}

/* Experts that no other GPU has a part of are a unit of their own: there while they work, and reduced at once. */
static spw_status before_event(spw_step_memory *m, spw_step_place at, const spw_event *event) {
    const bool back = event->phase == SPW_PHASE_BACKWARD;
    spw_status status = SPW_OK;
    if (event->sign <= 0 || !m->units.listed || m->units.layer[1].reduced_alone == 0) return SPW_OK;
    if (event->tensor == (back ? m->experts.gradient : m->experts.first))
        SPW_TRY(spw_step_experts_cast(m, at.index + 1, true));
    if (back && event->tensor == m->experts.done) {
        SPW_TRY(spw_step_unit_alone(m, at.index + 1));
        SPW_TRY(drop_reduced(m, at));
    }

cleanup:
    return status;
}

/* Runs the events of a pass. `keep`: what the backward pass needs does not die. */
static spw_status run(spw_step_memory *m, spw_step_place at, spw_phase phase, bool keep) {
    spw_status status = SPW_OK;
    for (size_t i = m->phase[phase].begin; i < m->phase[phase].end && status == SPW_OK; i++) {
        const spw_event *event = &m->layer.event[i];
        if (event->phase != phase || (keep && event->sign < 0 && m->layer.tensor[event->tensor].needed) ||
            (event->sign < 0 && is_reduced(m, event->tensor)))
            continue;
        status = before_event(m, at, event);
        if (status == SPW_OK) status = change(m, at, event->tensor, event->sign > 0);
        if (status == SPW_OK && phase == SPW_PHASE_FORWARD && event->sign > 0 &&
            event->tensor == m->experts.last)
            status = spw_step_experts_cast(m, at.index + 1, false);
    }
    return status;
}

/* Afterwards the layer holds what `saves` says, or nothing. */
static spw_status settle(spw_step_memory *m, spw_step_place at, bool saves) {
    spw_status status = SPW_OK;
    for (size_t t = 0; t < m->layer.tensors && status == SPW_OK; t++)
        if (!is_reduced(m, t)) status = change(m, at, t, saves && m->layer.tensor[t].needed);
    return status;
}

static void measure(spw_step_memory *m, const spw_rank_rows *rows) {
    for (size_t t = 0; t < m->layer.tensors; t++) m->bytes[t] = spw_layer_bytes(&m->layer.tensor[t], rows);
}

/* Of bare layers: one micro-batch. */
static spw_status part_of_layers(spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    const spw_megatron_rows all = {.received = m->received, .sent = m->sent, .held = m->held};
    for (size_t l = 0; l < m->layers; l++) {
        const spw_rank_rows *of = &rows->rows[l % rows->layers * rows->micro_batches + m->micro_batch];
        m->held[l] = of->held;
        m->received[l] = m->shares ? of->received : of->held;
        m->sent[l] = of->sent;
    }
    if (m->pipeline.micro_batches == 1) return spw_bare_layers_step(m->bare, &all, list);
    spw_status status = spw_bare_layers_step(m->bare, &all, &m->layers_list);
    m->out = list;
    for (size_t i = 0; i < m->layers_list.events && status == SPW_OK; i++) {
        m->at_work = m->layers_list.event[i].layer;
        status = spw_step_append(m, m->layers_list.event[i]);
    }
    return status;
}

static spw_status step_of_layers(spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    spw_status status = SPW_OK;
    spw_event_list_clear(list);
    for (size_t b = 0; b < m->pipeline.micro_batches && status == SPW_OK; b++) {
        m->micro_batch = b;
        status = part_of_layers(m, rows, list);
        if (status == SPW_OK) status = spw_event_list_mark(list);
    }
    m->micro_batch = 0;
    return status;
}

/* Residuals are tensors of their own, most of which have the size of the layer's input. */
static uint64_t kept_piece(const spw_waiting_layer *k, size_t what) {
    const double room = fmin(k->saved, fmax(k->input, k->saved / (double)RESIDUALS)),
                 before = (double)(what - KEPT_RESIDUALS) * room;
    if (what == KEPT_INPUT) return (uint64_t)(k->input + k->policy + 0.5);
    return before < k->saved ? (uint64_t)(fmin(room, k->saved - before) + 0.5) : 0;
}

static spw_status change_piece(spw_step_memory *m, const spw_step_place *at, size_t what, bool born) {
    const uint64_t bytes = kept_piece(&m->keeps[at->experts], what);
    const size_t slot = spw_step_kept_slot(m, *at, what),
                 kind = what > KEPT_RESIDUALS ? KEPT_RESIDUALS : what;
    if (!m->frees || bytes == 0) return SPW_OK;
    return spw_step_append(m, (spw_memory_event){.bytes = bytes,
                                                 .slot = (uint32_t)slot,
                                                 .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + kind),
                                                 .born = born,
                                                 .backward = !born});
}

static spw_status change_kept(spw_step_memory *m, const spw_step_place *at, size_t what, bool born) {
    const size_t end = what == KEPT_INPUT ? KEPT_RESIDUALS : KEPT;
    spw_status status = SPW_OK;
    if (what == KEPT_RESIDUALS && (spw_step_attention_listed(m) || !(m->keeps[at->experts].saved > 0.0)))
        return SPW_OK;
    for (size_t i = what; i < end && status == SPW_OK; i++) status = change_piece(m, at, i, born);
    return status;
}

/* Of a first step whose list serves later ones, too: does what dies there die for the first time? Then it is what the step before has left,
 * if there is one. left: of `left`, or behind these of `made`. */
static bool dies_first(spw_step_memory *m, size_t left, bool born) {
    if (m->untouched == NULL || !m->untouched[left]) return false;
    m->untouched[left] = false;
    if (!born) m->earlier[m->earliers++] = m->out->events;
    return !born;
}

/* A layer leaves something behind its backward pass, until that of all layers has ended or, where it stays, until it works again. */
static spw_status change_left(spw_step_memory *m, const spw_step_place *at, bool born) {
    const spw_waiting_layer *k = &m->keeps[at->experts];
    const uint64_t whole = (uint64_t)(k->left + 0.5);
    if (!m->frees || whole == 0) return SPW_OK;
    const bool earlier = dies_first(m, at->index, born);
    if (m->left[at->index] == born && !earlier) return SPW_OK;
    m->left[at->index] = born;
    return spw_step_append(
        m, (spw_memory_event){.bytes = whole,
                              .slot = (uint32_t)(spw_step_left_slot(m) + at->index),
                              .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + KEPT_LEFT),
                              .born = born,
                              .earlier = earlier,
                              .backward = at->backward});
}

/* A gradient that FSDP2 makes once a step: of a layer, or behind the layers of embedding and head. Sharded it is what a reduce-scatter
 * gives, on a stream of its own (torch _fsdp_collectives.py foreach_reduce): no other tensor can have its memory while it is not there. */
static spw_status change_made(spw_step_memory *m, size_t index, bool born) {
    const size_t layers = m->stages.begin[m->pipeline.chunks];
    const spw_waiting_layer *k =
        &m->keeps[index < layers ? m->stages.layer[index].experts : (bool)(index - layers)];
    const uint64_t bytes = (uint64_t)((index < layers ? k->gradient : k->end) + 0.5);
    const bool added = born && m->made[index]; /* to that of an earlier micro-batch, and goes */
    if (!m->frees || bytes == 0) return SPW_OK;
    const bool earlier = dies_first(m, layers + index, born);
    if ((m->made[index] == born && !added && !earlier) || (added && k->whole)) return SPW_OK;
    m->made[index] = born;
    spw_memory_event event = {.bytes = bytes,
                              .slot = (uint32_t)(made_slot(m) + (added ? layers + ENDS : index)),
                              .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + KEPT_MADE),
                              .stream = k->whole ? MAIN_STREAM : REDUCE_STREAM,
                              .born = born,
                              .earlier = earlier,
                              .backward = born};
    const spw_status status = spw_step_append(m, event);
    if (status != SPW_OK || !added) return status;
    event.born = false;
    return spw_step_append(m, event);
}

static spw_status make_end(spw_step_memory *m, const spw_pass *pass, size_t end) {
    if (m->ends[end] != pass->chunk) return SPW_OK;
    return change_made(m, m->stages.begin[m->pipeline.chunks] + end, true);
}

static spw_status drop_made(spw_step_memory *m) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < m->stages.begin[m->pipeline.chunks] + ENDS && status == SPW_OK; i++)
        status = change_made(m, i, false);
    return status;
}

/* What is beside a layer at work is there in the forward pass that keeps it, too: attention of the same layer. */
static spw_status forward(spw_step_memory *m, spw_step_place at, const spw_rank_rows *rows) {
    spw_status status = SPW_OK;
    measure(m, rows);
    if (m->saves) SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, true, false));
    SPW_TRY(run(m, at, SPW_PHASE_FORWARD, m->saves));
    SPW_TRY(settle(m, at, m->saves));
    if (m->saves) SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, false, false));

cleanup:
    return status;
}

static spw_status backward(spw_step_memory *m, spw_step_place at, const spw_rank_rows *rows) {
    spw_status status = SPW_OK;
    if (at.experts) {
        measure(m, rows);
        SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, true, true));
        if (!m->saves) {
            SPW_TRY(spw_step_attention_forward(m, at, true));
            SPW_TRY(run(m, at, SPW_PHASE_RECOMPUTE, false));
            SPW_TRY(spw_step_attention_experts_done(m, at));
        }
        SPW_TRY(run(m, at, SPW_PHASE_BACKWARD, false));
        SPW_TRY(settle(m, at, false));
        SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, false, true));
    }
    SPW_TRY(spw_step_unit_alone(m, at.index + 1));
    if (m->units.layer[1].reduced_alone > 0) SPW_TRY(drop_reduced(m, at));
    if (!at.experts) SPW_TRY(pass_moment(m, SPW_MOMENT_DENSE_LAYER));
    SPW_TRY(pass_moment(m, SPW_MOMENT_ATTENTION));

cleanup:
    return status;
}

/* --- Passes --- */

static spw_step_place place_of(spw_step_memory *m, const spw_pass *pass, size_t local) {
    const spw_stage_layer *layer = &m->stages.layer[m->stages.begin[pass->chunk] + local];
    m->at_work = layer->moe != SIZE_MAX ? layer->moe : SPW_NO_MOE_LAYER;
    return (spw_step_place){.set = m->set_of[pass->micro_batch * m->pipeline.chunks + pass->chunk],
                            .local = local,
                            .index = m->stages.begin[pass->chunk] + local,
                            .experts = layer->experts,
                            .backward = pass->backward};
}

static const spw_rank_rows *rows_of(const spw_step_memory *m, const spw_step_rows *rows, const spw_pass *pass,
                                    size_t local) {
    const size_t moe = m->stages.layer[m->stages.begin[pass->chunk] + local].moe;
    if (moe == SIZE_MAX) return &m->predicted;
    return &rows->rows[moe % rows->layers * rows->micro_batches + pass->micro_batch];
}

static size_t layers_of(const spw_step_memory *m, const spw_pass *pass) {
    return m->stages.begin[pass->chunk + 1] - m->stages.begin[pass->chunk];
}

static void begin_pass(spw_step_memory *m, const spw_pass *pass) {
    m->set_of[pass->micro_batch * m->pipeline.chunks + pass->chunk] = m->spare[--m->spares];
}

static spw_status layer_forward(spw_step_memory *m, const spw_pass *pass, size_t i,
                                const spw_step_rows *rows) {
    const spw_step_place at = place_of(m, pass, i);
    spw_status status = SPW_OK;
    m->micro_batch = pass->micro_batch;
    SPW_TRY(change_left(m, &at, false));
    if (i == 0 || !m->units.listed) SPW_TRY(change_kept(m, &at, KEPT_INPUT, true));
    if (i == 0) SPW_TRY(spw_step_unit_reshard(m, 0));
    SPW_TRY(spw_step_unit_forward(m, at.index + 1));
    SPW_TRY(spw_step_attention_forward(m, at, m->saves));
    if (at.experts) SPW_TRY(spw_step_once(m, at, rows_of(m, rows, pass, i), forward));
    SPW_TRY(change_kept(m, &at, KEPT_RESIDUALS, true));
    SPW_TRY(spw_step_attention_experts_done(m, at));
    if (i + 1 < layers_of(m, pass) && m->units.listed) { /* what it gives is what the next one is given */
        const spw_step_place next = place_of(m, pass, i + 1);
        SPW_TRY(change_kept(m, &next, KEPT_INPUT, true));
    }
    SPW_TRY(spw_step_attention_forward_end(m, at, m->saves));
    SPW_TRY(spw_step_unit_reshard(m, at.index + 1));

cleanup:
    return status;
}

static spw_status layer_backward(spw_step_memory *m, const spw_pass *pass, size_t i,
                                 const spw_step_rows *rows) {
    const spw_step_place at = place_of(m, pass, i);
    spw_status status = SPW_OK;
    m->micro_batch = pass->micro_batch;
    SPW_TRY(change_left(m, &at, false));
    SPW_TRY(change_kept(m, &at, KEPT_RESIDUALS, false));
    SPW_TRY(spw_step_unit_backward(m, at.index + 1));
    SPW_TRY(spw_step_once(m, at, rows_of(m, rows, pass, i), backward));
    SPW_TRY(spw_step_attention_backward(m, at));
    SPW_TRY(change_kept(m, &at, KEPT_INPUT, false));
    SPW_TRY(spw_step_attention_input(m, at));
    SPW_TRY(change_left(m, &at, true));
    SPW_TRY(spw_step_unit_reduce(m, at.index + 1));
    SPW_TRY(drop_reduced(m, at));
    SPW_TRY(spw_step_attention_reduced(m, at));
    SPW_TRY(change_made(m, at.index, true));

cleanup:
    return status;
}

/* The loss, and what a stage without it has behind a forward pass. */
static spw_status end_forward(spw_step_memory *m, const spw_pass *pass) {
    spw_status status = SPW_OK;
    m->at_work = SPW_NO_MOE_LAYER;
    m->micro_batch = pass->micro_batch;
    if (m->stage + 1 == m->pipeline.stages && pass->chunk + 1 < m->pipeline.chunks) return SPW_OK;
    SPW_TRY(spw_step_unit_forward(m, spw_step_units(m) - 1));
    SPW_TRY(change_moment(m, SPW_MOMENT_LOSS, true, true));
    SPW_TRY(spw_step_units_loss(m));
    SPW_TRY(change_moment(m, SPW_MOMENT_LOSS, false, true));

cleanup:
    return status;
}

static spw_status end_backward(spw_step_memory *m, const spw_pass *pass) {
    const size_t cell = pass->micro_batch * m->pipeline.chunks + pass->chunk;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < layers_of(m, pass); i++) {
        const spw_step_place at = place_of(m, pass, i);
        if (!m->keeps[at.experts].stays) SPW_TRY(change_left(m, &at, false));
    }
    SPW_TRY(spw_step_unit_backward(m, 0));
    SPW_TRY(spw_step_attention_gradient(m, false));
    SPW_TRY(spw_step_unit_reduce(m, 0));
    SPW_TRY(make_end(m, pass, 0));
    SPW_TRY(spw_step_units_end(m));
    m->spare[m->spares++] = m->set_of[cell];
    m->set_of[cell] = SIZE_MAX;

cleanup:
    return status;
}

static spw_status pass_forward(spw_step_memory *m, const spw_pass *pass, const spw_step_rows *rows) {
    spw_status status = SPW_OK;
    begin_pass(m, pass);
    SPW_TRY(spw_step_unit_forward(m, 0));
    for (size_t i = 0; i < layers_of(m, pass); i++) SPW_TRY(layer_forward(m, pass, i, rows));
    SPW_TRY(end_forward(m, pass));

cleanup:
    return status;
}

/* Last layer first. */
static spw_status pass_backward(spw_step_memory *m, const spw_pass *pass, const spw_step_rows *rows) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_step_unit_reduce(m, spw_step_units(m) - 1));
    SPW_TRY(make_end(m, pass, 1));
    for (size_t i = layers_of(m, pass); i-- > 0;) SPW_TRY(layer_backward(m, pass, i, rows));
    SPW_TRY(end_backward(m, pass));

cleanup:
    return status;
}

/* A layer forward, then one of the other pass backward: what the one keeps is there while the other works. */
static spw_status pass_pair(spw_step_memory *m, const spw_pass *ahead, const spw_pass *back,
                            const spw_step_rows *rows) {
    const size_t comes = layers_of(m, ahead), goes = layers_of(m, back);
    spw_status status = SPW_OK;
    begin_pass(m, ahead);
    SPW_TRY(make_end(m, back, 1));
    for (size_t j = 0; j < comes || j < goes; j++) {
        if (j < comes) SPW_TRY(layer_forward(m, ahead, j, rows));
        if (j < goes) SPW_TRY(layer_backward(m, back, goes - 1 - j, rows));
    }
    SPW_TRY(end_backward(m, back));
    SPW_TRY(end_forward(m, ahead));

cleanup:
    return status;
}

/* No pass has one between steps. Every step takes them in the same order, so that equal steps have equal lists. */
static void order_sets(spw_step_memory *m) {
    for (size_t i = 0; i < m->sets && m->spares == m->sets; i++) m->spare[i] = m->sets - 1 - i;
}

spw_status spw_step_memory_step(spw_step_memory *m, const spw_step_rows *rows, spw_event_list *list) {
    const size_t passes = spw_pipeline_passes(&m->pipeline);
    spw_status status = SPW_OK;
    if (rows->layers == 0 || rows->micro_batches != m->pipeline.micro_batches)
        return spw_fail(SPW_EARG, "rows of %zu layers and %zu micro-batches; the job has %zu micro-batches",
                        rows->layers, rows->micro_batches, m->pipeline.micro_batches);
    if (m->bare != NULL) return step_of_layers(m, rows, list);
    if (m->listed != NULL) return spw_transformers_step_run(m->listed, list);
    if (m->recorded != NULL) {
        status = spw_recorded_layers_step(m->beside, rows->rows, rows->layers, &m->layers_list);
        return status == SPW_OK ? spw_snapshot_steps_step(m->recorded, m->step++, &m->layers_list, list)
                                : status;
    }
    spw_event_list_clear(list);
    m->out = list;
    m->at_work = SPW_NO_MOE_LAYER;
    order_sets(m);
    status = drop_made(m);
    for (size_t i = 0; i < passes && status == SPW_OK; i++) {
        const spw_pass pass = spw_pipeline_pass(&m->pipeline, m->stage, i);
        m->micro_batch = pass.micro_batch;
        if (spw_pipeline_is_pair(&m->pipeline, m->stage, i)) {
            const spw_pass back = spw_pipeline_pass(&m->pipeline, m->stage, ++i);
            status = pass_pair(m, &pass, &back, rows);
        } else {
            status = pass.backward ? pass_backward(m, &pass, rows) : pass_forward(m, &pass, rows);
        }
        if (status == SPW_OK && i + 1 == passes && m->keeps[0].whole) status = drop_made(m);
        if (status == SPW_OK) status = spw_event_list_mark(list);
    }
    m->micro_batch = 0;
    return status;
}
