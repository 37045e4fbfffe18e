#include "sim/memory/step_memory.h"

#include "base/memory.h"
#include "sim/input/remat.h"
#include "sim/memory/megatron_job.h"
#include "sim/schemes/layer.h"

#include <string.h>

/* A component of the footprint that does not follow the routing; its slot is its position. */
typedef struct fixed_tensor {
    uint64_t bytes;
    bool live[SPW_MOMENT_COUNT];
} fixed_tensor;

/* What a layer keeps beside its experts' rows, and leaves behind. */
enum { KEPT_INPUT, KEPT_RESIDUALS, KEPT_LEFT, KEPT };

struct spw_step_memory {
    spw_layer layer;
    size_t layers;
    size_t ranks;    /* of the group */
    bool saves;      /* no remat */
    uint64_t *bytes; /* [tensors] of the layer under way */
    fixed_tensor fixed[SPW_COMPONENTS];
    size_t fixed_count;
    bool *live; /* [layers][tensors] */
    const spw_model *model;
    spw_waiting_layer keeps[2]; /* where layers are freed one by one */
    bool frees;
    spw_event_list *out;
    bool shares;                        /* bare layers with expert_tensor */
    spw_bare_layers *bare;              /* its list takes the place of all the above; NULL: none */
    uint64_t *received, *sent, *held;   /* [layers], of it */
    const spw_snapshot_steps *recorded; /* its lists stand among those of a snapshot; NULL: none */
    spw_event_list layers_list;         /* of the bare layers then */
    size_t step;
};

spw_status spw_step_memory_create(const spw_point *point, const spw_footprint *footprint,
                                  const spw_snapshot_steps *recorded, spw_step_memory **out) {
    const spw_job *job = point->job;
    spw_step_memory *m = NULL;
    size_t cells = 0;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &m));
    SPW_TRY(spw_layer_build(point->scheme, &point->shape, SPW_FLAVOUR_LIVE, &m->layer));
    m->layers = job->model.moe_layers;
    m->ranks = point->shape.ranks;
    m->model = &point->job->model;
    m->frees = footprint->frees;
    memcpy(m->keeps, footprint->keeps, sizeof m->keeps);
    m->saves = spw_remat_keeps_experts(job->remat);
    for (size_t i = 0; i < footprint->components; i++) {
        const spw_component *c = &footprint->component[i];
        if (c->routed || c->waits || c->bytes == 0) continue;
        fixed_tensor *tensor = &m->fixed[m->fixed_count++];
        tensor->bytes = c->bytes;
        memcpy(tensor->live, c->live, sizeof tensor->live);
    }
    if (m->layers > UINT16_MAX || !spw_mul_size(m->layers, m->layer.tensors, &cells) ||
        cells + m->ranks >= UINT32_MAX / 2)
        SPW_TRY(spw_fail(SPW_EARG, "%zu MoE layers of %zu tensors: too many", m->layers, m->layer.tensors));
    SPW_TRY(SPW_ALLOC(cells > 0 ? cells : 1, &m->live));
    SPW_TRY(SPW_ALLOC(m->layer.tensors, &m->bytes));
    spw_megatron_shape bare;
    m->recorded = recorded;
    if (recorded != NULL) SPW_TRY(spw_megatron_recorded_layers(point, &bare));
    if (recorded != NULL || spw_megatron_job_layers(point, &bare)) {
        SPW_TRY(spw_bare_layers_create(&bare, &m->bare));
        SPW_TRY(SPW_ALLOC(m->layers, &m->received));
        SPW_TRY(SPW_ALLOC(m->layers, &m->sent));
        SPW_TRY(SPW_ALLOC(m->layers, &m->held));
        m->shares = bare.expert_tensor > 1;
    }
    *out = m;
    m = NULL;

cleanup:
    spw_step_memory_destroy(m);
    return status;
}

void spw_step_memory_destroy(spw_step_memory *m) {
    if (m == NULL) return;
    spw_bare_layers_destroy(m->bare);
    spw_event_list_destroy(&m->layers_list);
    spw_free(m->received);
    spw_free(m->sent);
    spw_free(m->held);
    spw_free(m->live);
    spw_free(m->bytes);
    spw_layer_destroy(&m->layer);
    spw_free(m);
}

size_t spw_step_memory_slots(const spw_step_memory *m) {
    if (m->recorded != NULL) return spw_snapshot_steps_slots(m->recorded);
    if (m->bare != NULL) return spw_bare_layers_slots(m->bare);
    return SPW_COMPONENTS + m->layers * m->layer.tensors + KEPT * m->model->layers + m->ranks;
}

/* --- Events --- */

typedef struct place {
    size_t layer;
    bool backward;
} place;

static bool is_always(const fixed_tensor *t) {
    for (int m = 0; m < SPW_MOMENT_COUNT; m++)
        if (!t->live[m]) return false;
    return true;
}

static spw_status change_fixed(spw_step_memory *m, size_t i, bool born, bool backward) {
    return spw_event_list_append(m->out, (spw_memory_event){.bytes = m->fixed[i].bytes,
                                                            .slot = (uint32_t)i,
                                                            .kind = (uint16_t)(m->layer.tensors + i),
                                                            .born = born,
                                                            .backward = backward});
}

/* What is there at a moment and not always is born, or dies. */
static spw_status change_moment(spw_step_memory *m, spw_moment at, bool born, bool backward) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < m->fixed_count && status == SPW_OK; i++) {
        if (m->fixed[i].live[at] && !is_always(&m->fixed[i])) status = change_fixed(m, i, born, backward);
    }
    return status;
}

static spw_status pass_moment(spw_step_memory *m, spw_moment at) {
    const spw_status status = change_moment(m, at, true, true);
    return status == SPW_OK ? change_moment(m, at, false, true) : status;
}

/* Pieces of an exchange, of which there is one at a time: each rank's is an allocation. Which rank sends how much is not known
 * here: equally much, but for rows that do not divide. */
static spw_status change_pieces(spw_step_memory *m, place at, size_t tensor, bool born) {
    const spw_layer_tensor *t = &m->layer.tensor[tensor];
    const uint64_t row = spw_layer_row_bytes(t, 1), rows = row > 0 ? m->bytes[tensor] / row : 0;
    const size_t first = SPW_COMPONENTS + m->layers * m->layer.tensors + KEPT * m->model->layers;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < m->ranks && status == SPW_OK; r++) {
        const uint64_t some = rows / m->ranks + (r < rows % m->ranks ? 1 : 0);
        if (some == 0) break;
        status = spw_event_list_append(m->out, (spw_memory_event){.bytes = some * row,
                                                                  .slot = (uint32_t)(first + r),
                                                                  .kind = (uint16_t)tensor,
                                                                  .layer = (uint16_t)at.layer,
                                                                  .born = born,
                                                                  .backward = at.backward});
    }
    return status;
}

/* A tensor that is born twice, or dies without having been born, changes nothing. */
static spw_status change(spw_step_memory *m, place at, size_t tensor, bool born) {
    const size_t cell = at.layer * m->layer.tensors + tensor;
    if (m->live[cell] == born) return SPW_OK;
    m->live[cell] = born;
    if (m->layer.tensor[tensor].by_rank) return change_pieces(m, at, tensor, born);
    return spw_event_list_append(m->out, (spw_memory_event){.bytes = m->bytes[tensor],
                                                            .slot = (uint32_t)(SPW_COMPONENTS + cell),
                                                            .kind = (uint16_t)tensor,
                                                            .layer = (uint16_t)at.layer,
                                                            .born = born,
                                                            .backward = at.backward});
}

/* Runs the events of a pass. `keep`: what the backward pass needs does not die. */
static spw_status run(spw_step_memory *m, place at, spw_phase phase, bool keep) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < m->layer.events && status == SPW_OK; i++) {
        const spw_event *event = &m->layer.event[i];
        if (event->phase != phase || (keep && event->sign < 0 && m->layer.tensor[event->tensor].needed))
            continue;
        status = change(m, at, event->tensor, event->sign > 0);
    }
    return status;
}

/* Afterwards the layer holds what `saves` says, or nothing. */
static spw_status settle(spw_step_memory *m, place at, bool saves) {
    spw_status status = SPW_OK;
    for (size_t t = 0; t < m->layer.tensors && status == SPW_OK; t++)
        status = change(m, at, t, saves && m->layer.tensor[t].needed);
    return status;
}

static void measure(spw_step_memory *m, const spw_rank_rows *rows) {
    for (size_t t = 0; t < m->layer.tensors; t++) m->bytes[t] = spw_layer_bytes(&m->layer.tensor[t], rows);
}

spw_status spw_step_memory_begin(spw_step_memory *m, spw_event_list *list) {
    spw_status status = SPW_OK;
    if (m->bare != NULL) status = spw_bare_layers_begin(m->bare, list);
    if (m->recorded != NULL && status == SPW_OK) status = spw_snapshot_steps_begin(m->recorded, list);
    if (m->bare != NULL) return status;
    spw_event_list_clear(list);
    m->out = list;
    for (size_t i = 0; i < m->fixed_count && status == SPW_OK; i++) {
        if (is_always(&m->fixed[i])) status = change_fixed(m, i, true, false);
    }
    return status;
}

/* Of bare layers, or of a recorded job that has them. */
static spw_status step_of_layers(spw_step_memory *m, const spw_rank_rows *rows, size_t layers,
                                 spw_event_list *list) {
    const spw_megatron_rows all = {.received = m->received, .sent = m->sent, .held = m->held};
    for (size_t l = 0; l < m->layers; l++) {
        const spw_rank_rows *of = &rows[l % layers];
        m->held[l] = of->held;
        m->received[l] = m->shares ? of->received : of->held;
        m->sent[l] = of->sent;
    }
    if (m->recorded == NULL) return spw_bare_layers_step(m->bare, &all, list);
    const spw_status status = spw_bare_layers_step(m->bare, &all, &m->layers_list);
    return status == SPW_OK ? spw_snapshot_steps_step(m->recorded, m->step++, &m->layers_list, list) : status;
}

static spw_status change_kept(spw_step_memory *m, size_t layer, bool experts, int what, bool born) {
    const spw_waiting_layer *k = &m->keeps[experts];
    const double bytes[KEPT] = {
        [KEPT_INPUT] = k->input + k->policy, [KEPT_RESIDUALS] = k->saved, [KEPT_LEFT] = k->left};
    const uint64_t whole = (uint64_t)(bytes[what] + 0.5);
    if (!m->frees || whole == 0) return SPW_OK;
    return spw_event_list_append(
        m->out, (spw_memory_event){.bytes = whole,
                                   .slot = (uint32_t)(SPW_COMPONENTS + m->layers * m->layer.tensors +
                                                      KEPT * layer + (size_t)what),
                                   .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + (size_t)what),
                                   .born = born,
                                   .backward = what == KEPT_LEFT || !born});
}

/* Bare layers are all the same, and their model does not name them. */
static bool has_experts(const spw_step_memory *m, size_t layer) {
    return m->model->layers == m->model->moe_layers || m->model->is_moe[layer];
}

/* What is beside a layer at work is there in the forward pass that keeps it, too: attention of the same layer. */
static spw_status forward(spw_step_memory *m, size_t moe, const spw_rank_rows *rows) {
    const place at = {moe, false};
    spw_status status = SPW_OK;
    measure(m, rows);
    if (m->saves) SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, true, false));
    SPW_TRY(run(m, at, SPW_PHASE_FORWARD, m->saves));
    SPW_TRY(settle(m, at, m->saves));
    if (m->saves) SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, false, false));

cleanup:
    return status;
}

static spw_status backward(spw_step_memory *m, size_t moe, const spw_rank_rows *rows) {
    const place at = {moe, true};
    spw_status status = SPW_OK;
    measure(m, rows);
    SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, true, true));
    if (!m->saves) SPW_TRY(run(m, at, SPW_PHASE_RECOMPUTE, false));
    SPW_TRY(run(m, at, SPW_PHASE_BACKWARD, false));
    SPW_TRY(settle(m, at, false));
    SPW_TRY(change_moment(m, SPW_MOMENT_MOE_LAYER, false, true));

cleanup:
    return status;
}

/* Backward, last layer first. */
static spw_status run_backward(spw_step_memory *m, const spw_rank_rows *rows, size_t layers) {
    spw_status status = SPW_OK;
    for (size_t i = m->model->layers, moe = m->layers; i-- > 0;) {
        const bool experts = has_experts(m, i);
        SPW_TRY(change_kept(m, i, experts, KEPT_RESIDUALS, false));
        if (experts) moe--;
        if (experts) SPW_TRY(backward(m, moe, &rows[moe % layers]));
        if (!experts) SPW_TRY(pass_moment(m, SPW_MOMENT_DENSE_LAYER));
        SPW_TRY(pass_moment(m, SPW_MOMENT_ATTENTION));
        SPW_TRY(change_kept(m, i, experts, KEPT_INPUT, false));
        SPW_TRY(change_kept(m, i, experts, KEPT_LEFT, true));
    }
    for (size_t i = 0; i < m->model->layers; i++)
        SPW_TRY(change_kept(m, i, has_experts(m, i), KEPT_LEFT, false));

cleanup:
    return status;
}

spw_status spw_step_memory_step(spw_step_memory *m, const spw_rank_rows *rows, size_t layers,
                                spw_event_list *list) {
    spw_status status = SPW_OK;
    if (layers == 0) return spw_fail(SPW_EARG, "no layers");
    if (m->bare != NULL) return step_of_layers(m, rows, layers, list);
    spw_event_list_clear(list);
    m->out = list;
    for (size_t i = 0, moe = 0; i < m->model->layers; i++) {
        const bool experts = has_experts(m, i);
        SPW_TRY(change_kept(m, i, experts, KEPT_INPUT, true));
        if (experts) SPW_TRY(forward(m, moe, &rows[moe % layers]));
        moe += experts;
        SPW_TRY(change_kept(m, i, experts, KEPT_RESIDUALS, true));
    }
    SPW_TRY(pass_moment(m, SPW_MOMENT_LOSS));
    SPW_TRY(run_backward(m, rows, layers));

cleanup:
    return status;
}
