/* Units of FSDP2 in the order in which PyTorch allocates them [read: torch 2.11 distributed/fsdp/_fully_shard _fsdp_param_group.py
 * unshard, wait_for_unshard, post_backward; _fsdp_state.py _pre_forward, _post_forward; _fsdp_collectives.py foreach_all_gather,
 * foreach_reduce]. Input and output of an all-gather are allocated on the stream of all-gathers, the weights that are copied out of it
 * on the layers' own. In the forward pass an output stays until the next unit's weights are there, the head's until the logits are; in the
 * backward pass it goes at once. A reduce-scatter's input is the layers' own, too, and goes when the next one comes. */
#include "sim/memory/step/step_parts.h"

size_t spw_step_unit_slots(const spw_step_memory *m) {
    return m->units.listed ? UNIT_PARTS * spw_step_units(m) + LOSS_PIECES + AROUND : 0;
}

static const spw_unit_bytes *unit_of(const spw_step_memory *m, size_t unit) {
    const size_t last = spw_step_units(m) - 1;
    if (unit == 0 || unit == last) return &m->units.end[unit == last];
    return &m->units.layer[m->stages.layer[unit - 1].experts];
}

static uint64_t bytes_of(const spw_step_memory *m, spw_unit_part part, size_t unit) {
    const spw_unit_bytes *u = unit_of(m, unit);
    const bool listed = u == &m->units.layer[1] && spw_step_attention_listed(m);
    const uint64_t third = m->units.matrices > 2 ? u->matrix : 0,
                   first = listed ? m->units.attention.first_weight : 0,
                   last = listed ? m->units.attention.last_weight : 0,
                   bytes[UNIT_PARTS] = {u->gathered,
                                        u->shard,
                                        first,
                                        last,
                                        u->weights - first - last,
                                        u->matrix,
                                        u->matrix,
                                        third,
                                        u->gradient - first - last,
                                        u->reduced,
                                        u->reduced_alone};
    return bytes[part];
}

static spw_status change(spw_step_memory *m, spw_unit_part part, size_t unit, bool born) {
    const size_t cell = part * spw_step_units(m) + unit;
    const uint64_t bytes = bytes_of(m, part, unit);
    if (bytes == 0 || m->unit_live[cell] == born) return SPW_OK;
    m->unit_live[cell] = born;
    return spw_step_append(
        m, (spw_memory_event){.bytes = bytes,
                              .slot = (uint32_t)(m->unit_slot + cell),
                              .kind = (uint16_t)(m->layer.tensors + SPW_COMPONENTS + KEPT_UNIT),
                              .stream = part <= UNIT_INPUT ? GATHER_STREAM : MAIN_STREAM,
                              .born = born,
                              .backward = part >= UNIT_GRADIENT});
}

/* Its weights from this part on: all, or matrices of experts alone. */
static spw_status change_weights(spw_step_memory *m, spw_unit_part first, size_t unit, bool born) {
    spw_status status = SPW_OK;
    for (unsigned i = (unsigned)first; i < UNIT_GRADIENT && status == SPW_OK; i++)
        status = change(m, (spw_unit_part)i, unit, born);
    return status;
}

/* Its experts are cast by themselves, where they work. */
static bool casts(const spw_step_memory *m, size_t unit) {
    return spw_step_attention_listed(m) && bytes_of(m, UNIT_REDUCED_ALONE, unit) > 0 &&
           m->experts.first != SIZE_MAX;
}

spw_status spw_step_experts_cast(spw_step_memory *m, size_t unit, bool born) {
    const size_t slot = spw_step_around_slot(m),
                 matrices = m->units.matrices; /* casts take turns in two slots */
    const uint64_t bytes = unit_of(m, unit)->matrix;
    spw_status status = SPW_OK;
    if (!casts(m, unit) || m->unit_live[UNIT_MATRIX * spw_step_units(m) + unit] == born) return SPW_OK;
    for (size_t i = 0; i < matrices; i++) { /* the one before goes when the next one is cast */
        if (born) SPW_TRY(spw_step_append_unit(m, slot + i % 2, bytes, true, false));
        if (born && i > 0) SPW_TRY(spw_step_append_unit(m, slot + (i + 1) % 2, bytes, false, false));
        SPW_TRY(change(m, (spw_unit_part)(UNIT_MATRIX + i), unit, born));
    }
    if (born) SPW_TRY(spw_step_append_unit(m, slot + (matrices + 1) % 2, bytes, false, false));

cleanup:
    return status;
}

/* What is used from the unit's beginning on. */
static spw_status begin_weights(spw_step_memory *m, size_t unit) {
    spw_status status = SPW_OK;
    for (unsigned i = UNIT_FIRST; i <= UNIT_WEIGHTS && status == SPW_OK; i++)
        status = change(m, (spw_unit_part)i, unit, true);
    return status;
}

static spw_status gather(spw_step_memory *m, size_t unit) {
    const size_t cell = UNIT_OUTPUT * spw_step_units(m) + unit;
    spw_status status = SPW_OK;
    if (m->unit_live[cell]) return SPW_OK;
    SPW_TRY(change(m, UNIT_INPUT, unit, true));
    SPW_TRY(change(m, UNIT_OUTPUT, unit, true));
    SPW_TRY(change(m, UNIT_INPUT, unit, false));

cleanup:
    return status;
}

static spw_status release_gathered(spw_step_memory *m) {
    const size_t unit = m->gathered;
    m->gathered = SIZE_MAX;
    return unit == SIZE_MAX ? SPW_OK : change(m, UNIT_OUTPUT, unit, false);
}

spw_status spw_step_unit_forward(spw_step_memory *m, size_t unit) {
    spw_status status = SPW_OK;
    if (!m->units.listed) return SPW_OK;
    SPW_TRY(gather(m, unit));
    SPW_TRY(release_gathered(m));
    SPW_TRY(begin_weights(m, unit));
    m->gathered = unit;
    for (size_t n = 1; n <= m->ahead && unit + n < spw_step_units(m); n++) SPW_TRY(gather(m, unit + n));
    if (!casts(m, unit)) SPW_TRY(change_weights(m, UNIT_MATRIX, unit, true));

cleanup:
    return status;
}

spw_status spw_step_unit_reshard(spw_step_memory *m, size_t unit) {
    return m->units.listed ? change_weights(m, UNIT_FIRST, unit, false) : SPW_OK;
}

/* The head's weights are still there. */
spw_status spw_step_unit_backward(spw_step_memory *m, size_t unit) {
    spw_status status = SPW_OK;
    if (!m->units.listed) return SPW_OK;
    if (!m->unit_live[UNIT_WEIGHTS * spw_step_units(m) + unit]) SPW_TRY(gather(m, unit));
    SPW_TRY(begin_weights(m, unit));
    SPW_TRY(change(m, UNIT_OUTPUT, unit, false));
    for (size_t n = 1; n <= m->ahead && n <= unit; n++) SPW_TRY(gather(m, unit - n));
    if (!casts(m, unit)) SPW_TRY(change_weights(m, UNIT_MATRIX, unit, true));

cleanup:
    return status;
}

static spw_status release_reduced(spw_step_memory *m) {
    const size_t count = spw_step_units(m), cell = m->reducing;
    m->reducing = SIZE_MAX;
    return cell == SIZE_MAX ? SPW_OK : change(m, (spw_unit_part)(cell / count), cell % count, false);
}

/* The input of the one before goes first. */
static spw_status reduce(spw_step_memory *m, spw_unit_part part, size_t unit) {
    spw_status status = SPW_OK;
    if (bytes_of(m, part, unit) == 0) return SPW_OK;
    SPW_TRY(release_reduced(m));
    m->reducing = part * spw_step_units(m) + unit;
    SPW_TRY(change(m, part, unit, true));

cleanup:
    return status;
}

spw_status spw_step_unit_alone(spw_step_memory *m, size_t unit) {
    spw_status status = SPW_OK;
    if (!m->units.listed || bytes_of(m, UNIT_REDUCED_ALONE, unit) == 0) return SPW_OK;
    SPW_TRY(change_weights(m, UNIT_MATRIX, unit, false));
    SPW_TRY(reduce(m, UNIT_REDUCED_ALONE, unit));

cleanup:
    return status;
}

spw_status spw_step_unit_reduce(spw_step_memory *m, size_t unit) {
    spw_status status = SPW_OK;
    if (!m->units.listed) return SPW_OK;
    SPW_TRY(change(m, UNIT_GRADIENT, unit, true));
    SPW_TRY(change_weights(m, UNIT_FIRST, unit, false));
    SPW_TRY(reduce(m, UNIT_REDUCED, unit));
    SPW_TRY(change(m, UNIT_GRADIENT, unit, false));

cleanup:
    return status;
}

static spw_status change_loss(spw_step_memory *m, size_t piece, bool born) {
    const uint64_t bytes = piece == LOSS_LOGITS ? m->units.logits : m->units.fp32;
    return bytes == 0 ? SPW_OK : spw_step_append_unit(m, spw_step_loss_slot(m) + piece, bytes, born, true);
}

/* pytorch/torchtitan components/loss.py cross_entropy_loss and torch's log_softmax: logits, the same in fp32, log-softmax, which stays;
 * its gradient, theirs in fp32 and cast; then the gradient of the head. A loss in pieces has its own in the moment of the loss. */
spw_status spw_step_units_loss(spw_step_memory *m) {
    static const struct {
        uint8_t piece;
        bool born;
    } order[] = {{LOSS_LOGITS, true},    {LOSS_FP32, true},   {LOSS_FP32 + 1, true}, {LOSS_FP32, false},
                 {LOSS_LOGITS, false},   {LOSS_FP32, true},   {LOSS_FP32 + 2, true}, {LOSS_FP32, false},
                 {LOSS_FP32 + 1, false}, {LOSS_LOGITS, true}, {LOSS_FP32 + 2, false}};
    const size_t head = spw_step_units(m) - 1;
    spw_status status = SPW_OK;
    if (!m->units.listed) return SPW_OK;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        SPW_TRY(change_loss(m, order[i].piece, order[i].born));
        if (i == 0) SPW_TRY(release_gathered(m)); /* the forward pass of the model has ended */
    }
    SPW_TRY(spw_step_unit_backward(m, head));
    SPW_TRY(change(m, UNIT_GRADIENT, head, true));
    SPW_TRY(spw_step_workspace(m, true));
    SPW_TRY(change_loss(m, LOSS_LOGITS, false));
    SPW_TRY(spw_step_attention_gradient(m, true));

cleanup:
    return status;
}

spw_status spw_step_units_end(spw_step_memory *m) { return release_reduced(m); }
