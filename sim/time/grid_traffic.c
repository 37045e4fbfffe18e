#include "sim/time/grid_traffic.h"

#include "sim/input/grid.h"
#include "sim/input/remat.h"
#include "sim/memory/optimizer_state.h"

typedef struct builder {
    const spw_job *job;
    const spw_layer_shape *shape;
    spw_step_traffic *out;
    size_t tensor, context;
} builder;

/* One tensor of `width` elements a token of the tensor group. */
typedef struct passing {
    const char *name, *formula;
    spw_step_place place;
    uint64_t width;
} passing;

static void add(builder *b, const passing *p, spw_operation operation, bool backward, size_t count) {
    const spw_step_item item = {.name = p->name,
                                .formula = p->formula,
                                .operation = operation,
                                .purpose = SPW_PURPOSE_TENSOR,
                                .place = p->place,
                                .group = SPW_GROUP_TENSOR,
                                .backward = backward,
                                .count = count};
    spw_step_add(b->out, item, b->tensor * b->shape->tokens * p->width, b->shape->element_bytes);
}

/* What a product cut by columns reads: gathered, and gathered anew for the gradient of its weights; its gradient is
 * scattered. */
static void add_input(builder *b, passing p, bool again) {
    add(b, &p, SPW_OPERATION_ALL_GATHER, false, 1);
    add(b, &p, SPW_OPERATION_ALL_GATHER, true, again ? 2 : 1);
    add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1);
}

/* What a product cut by rows makes: scattered, and its gradient gathered. */
static void add_output(builder *b, passing p, bool again) {
    add(b, &p, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    add(b, &p, SPW_OPERATION_ALL_GATHER, true, 1);
    if (again) add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1);
}

static void add_attention(builder *b, spw_step_place place, bool again) {
    const spw_model *m = &b->job->model;
    if (m->attention == SPW_ATTENTION_MLA) {
        const bool low = m->q_lora_rank > 0;
        add_input(
            b,
            (passing){"queries", low ? "TP T q_lora b" : "TP T H b", place, low ? m->q_lora_rank : m->hidden},
            again);
        add_input(b, (passing){"keys_values", "TP T kv_lora b", place, m->kv_lora_rank}, again);
        /* gathered once: no product reads it */
        const passing rope = {"rotary_key", "TP T rope b", place, m->rope_dim};
        add(b, &rope, SPW_OPERATION_ALL_GATHER, false, 1);
        add(b, &rope, SPW_OPERATION_ALL_GATHER, true, again ? 1 : 0);
        add(b, &rope, SPW_OPERATION_REDUCE_SCATTER, true, 1);
    } else {
        add_input(b, (passing){"attention_input", "TP T H b", place, m->hidden}, again);
    }
    add_output(b, (passing){"attention_output", "TP T H b", place, m->hidden}, again);
}

static void add_ffn(builder *b, spw_step_place place, size_t ffn, bool again) {
    if (ffn == 0) return;
    add_input(b, (passing){"ffn_input", "TP T H b", place, b->job->model.hidden}, again);
    add_output(b, (passing){"ffn_output", "TP T H b", place, b->job->model.hidden}, again);
}

/* Tokens are summed over the parts of the vocabulary and scattered; of the loss the greatest logit, the target's, and the
 * sum of exponentials, each a number a token in fp32. */
static void add_ends(builder *b) {
    const uint64_t hidden = b->job->model.hidden;
    add_output(b, (passing){"embedding", "TP T H b", SPW_PLACE_ENDS, hidden}, false);
    add_input(b, (passing){"head_input", "TP T H b", SPW_PLACE_ENDS, hidden}, false);
    const spw_step_item loss = {.name = "loss",
                                .formula = "4 TP T",
                                .operation = SPW_OPERATION_ALL_REDUCE,
                                .purpose = SPW_PURPOSE_TENSOR,
                                .place = SPW_PLACE_ENDS,
                                .group = SPW_GROUP_TENSOR,
                                .count = 3};
    spw_step_add(b->out, loss, b->tensor * b->shape->tokens, sizeof(float));
}

/* Gradients of what every GPU of a tensor group holds whole, and sees a part of the sequence for. */
static void add_replicated(builder *b) {
    const spw_model *m = &b->job->model;
    const spw_replicated_parameters whole = spw_replicated_parameters_of(m);
    const spw_step_item item = {.name = "replicated",
                                .formula = "P_whole g",
                                .operation = SPW_OPERATION_ALL_REDUCE,
                                .purpose = SPW_PURPOSE_TENSOR,
                                .place = SPW_PLACE_STEP,
                                .group = SPW_GROUP_TENSOR,
                                .backward = true,
                                .count = 1};
    spw_step_add(b->out, item, whole.layer * m->layers + whole.moe_layer * m->moe_layers + whole.head,
                 b->job->precision.gradients);
}

/* Keys and values go round the ring of a context group; backward they do again, and their gradients with them. */
static void add_ring(builder *b, spw_step_place place, bool again) {
    const spw_model *m = &b->job->model;
    const uint64_t width = m->attention == SPW_ATTENTION_MLA
                               ? m->heads * (m->nope_dim + m->rope_dim + m->v_head_dim)
                               : m->kv_heads * (m->head_dim + m->v_head_dim);
    spw_step_item item = {.name = "keys_values",
                          .formula = m->attention == SPW_ATTENTION_MLA ? "T heads (nope + rope + v) b"
                                                                       : "T kv_heads (head_dim + v) b",
                          .operation = SPW_OPERATION_SEND,
                          .purpose = SPW_PURPOSE_CONTEXT,
                          .place = place,
                          .group = SPW_GROUP_CONTEXT,
                          .count = b->context - 1};
    spw_step_add(b->out, item, b->shape->tokens * width, b->shape->element_bytes);
    item.backward = true;
    item.count *= again ? 3 : 2;
    spw_step_add(b->out, item, b->shape->tokens * width, b->shape->element_bytes);
}

void spw_grid_traffic_add(const spw_point *point, spw_step_traffic *out) {
    const spw_job *job = point->job;
    const spw_model *m = &job->model;
    const spw_grid g = spw_grid_of(job);
    const bool full = job->remat == SPW_REMAT_FULL;
    builder b = {job, &point->shape, out, g.tensor, g.context};
    add_attention(&b, SPW_PLACE_MOE_LAYER, full);
    add_ffn(&b, SPW_PLACE_MOE_LAYER, m->shared_ffn, full || job->remat == SPW_REMAT_MOE);
    add_ring(&b, SPW_PLACE_MOE_LAYER, full || job->remat == SPW_REMAT_SELECTIVE);
    if (m->moe_layers < m->layers) {
        add_attention(&b, SPW_PLACE_DENSE_LAYER, full);
        add_ffn(&b, SPW_PLACE_DENSE_LAYER, m->dense_ffn, full);
        add_ring(&b, SPW_PLACE_DENSE_LAYER, full || job->remat == SPW_REMAT_SELECTIVE);
    }
    add_ends(&b);
    add_replicated(&b);
}
