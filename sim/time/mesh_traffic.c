#include "sim/time/mesh_traffic.h"

#include "sim/input/grid.h"
#include "sim/input/remat.h"

typedef struct builder {
    const spw_job *job;
    const spw_layer_shape *shape;
    spw_step_traffic *out;
    size_t rows; /* of the experts' buffer */
    bool again;  /* are layers recomputed? */
} builder;

/* One tensor that passes between the GPUs of a group. */
typedef struct passing {
    const char *name, *formula;
    spw_step_place place;
    spw_step_group group;
    uint64_t elements;
    size_t element_bytes;
} passing;

static void add(builder *b, const passing *p, spw_operation operation, bool backward, size_t count) {
    const spw_step_item item = {.name = p->name,
                                .formula = p->formula,
                                .operation = operation,
                                .purpose =
                                    p->group == SPW_GROUP_TENSOR ? SPW_PURPOSE_TENSOR : SPW_PURPOSE_CONTEXT,
                                .place = p->place,
                                .group = p->group,
                                .backward = backward,
                                .count = count};
    spw_step_add(b->out, item, p->elements, p->element_bytes);
}

static passing hidden_states(const builder *b, spw_step_place place, const char *name) {
    const spw_layer_shape *s = b->shape;
    return (passing){name, "T H b", place, SPW_GROUP_TENSOR, s->tokens * s->hidden, s->element_bytes};
}

/* What products cut by columns read: whole again for the gradient of their weights, and before that where it is recomputed;
 * its gradient is scattered. */
static void add_input(builder *b, passing p, size_t again) {
    add(b, &p, SPW_OPERATION_ALL_GATHER, false, 1);
    add(b, &p, SPW_OPERATION_ALL_GATHER, true, 1 + again);
    add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1);
}

/* What a product cut by rows makes. Its gradient is gathered once for the weights' and once for the input's. */
static void add_output(builder *b, passing p, bool again) {
    add(b, &p, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, again ? 1 : 0);
    add(b, &p, SPW_OPERATION_ALL_GATHER, true, 2);
}

/* A sum over the group that is needed forward, again, and for the gradient. */
static void add_sum(builder *b, passing p, size_t count) {
    add(b, &p, SPW_OPERATION_ALL_REDUCE, false, count);
    add(b, &p, SPW_OPERATION_ALL_REDUCE, true, (b->again ? 2 : 1) * count);
}

/* The mean square of a token's hidden state, in fp32. */
static void add_norms(builder *b, spw_step_place place, size_t count) {
    add_sum(b, (passing){"norms", "4 T", place, SPW_GROUP_TENSOR, b->shape->tokens, sizeof(float)}, count);
}

/* The keys and values of a sequence are gathered from all who have a part of it, and their gradients scattered. */
static void add_keys(builder *b, spw_step_place place) {
    const spw_model *m = &b->job->model;
    const spw_grid g = spw_grid_of(b->job);
    const bool mla = m->attention == SPW_ATTENTION_MLA;
    const uint64_t tokens = g.context * b->shape->tokens;
    const size_t key = mla ? m->heads * (m->nope_dim + m->rope_dim) : m->kv_heads * m->head_dim,
                 value = mla ? m->heads * m->v_head_dim : key;
    const passing both[] = {{"keys", "CP T keys b / TP", place, SPW_GROUP_CONTEXT, tokens * key / g.tensor,
                             b->shape->element_bytes},
                            {"values", "CP T values b / TP", place, SPW_GROUP_CONTEXT,
                             tokens * value / g.tensor, b->shape->element_bytes}};
    for (size_t i = 0; i < 2; i++) {
        add(b, &both[i], SPW_OPERATION_ALL_GATHER, false, 1);
        add(b, &both[i], SPW_OPERATION_ALL_GATHER, true, b->again ? 1 : 0);
        add(b, &both[i], SPW_OPERATION_REDUCE_SCATTER, true, 1);
    }
}

static void add_attention(builder *b, spw_step_place place) {
    add_keys(b, place);
    add_norms(b, place, 2); /* before attention, and before what follows it */
    add_input(b, hidden_states(b, place, "attention_input"), b->again ? 1 : 0);
    add_output(b, hidden_states(b, place, "attention_output"), b->again);
}

/* The rows of the experts' last product are terms of a sum; the layer's input is whole in the dispatch, and the router's
 * logits are a sum over parts of the hidden size. */
static void add_experts(builder *b) {
    const spw_layer_shape *s = b->shape;
    const spw_step_place place = SPW_PLACE_MOE_LAYER;
    const passing input = hidden_states(b, place, "experts_input"),
                  rows = {"experts_output", "rows H b",          place,
                          SPW_GROUP_TENSOR, b->rows * s->hidden, s->element_bytes};
    add(b, &input, SPW_OPERATION_ALL_GATHER, false, 1);
    add(b, &input, SPW_OPERATION_ALL_GATHER, true, b->again ? 1 : 0);
    add(b, &input, SPW_OPERATION_REDUCE_SCATTER, true, 1);
    add(b, &rows, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    add(b, &rows, SPW_OPERATION_REDUCE_SCATTER, true, b->again ? 1 : 0);
    add(b, &rows, SPW_OPERATION_ALL_GATHER, true, 1);
    add_sum(b,
            (passing){"logits", "T E b", place, SPW_GROUP_TENSOR, s->tokens * s->experts, s->element_bytes},
            1);
}

/* The recomputed output of the last FFN of a layer is needed by nothing; a shared expert reads what the experts gathered. */
static void add_ffn(builder *b, spw_step_place place, size_t ffn) {
    if (ffn == 0) return;
    add_input(b, hidden_states(b, place, "ffn_input"), b->again && place == SPW_PLACE_DENSE_LAYER ? 1 : 0);
    add_output(b, hidden_states(b, place, "ffn_output"), false);
}

/* The head reads the last hidden states; of the loss the greatest logit, the target's, and the sum of exponentials. */
static void add_ends(builder *b) {
    const passing loss = {"loss", "4 T", SPW_PLACE_ENDS, SPW_GROUP_TENSOR, b->shape->tokens, sizeof(float)};
    add_input(b, hidden_states(b, SPW_PLACE_ENDS, "head_input"), 0);
    add(b, &loss, SPW_OPERATION_ALL_REDUCE, false, 3);
}

spw_status spw_mesh_traffic_add(const spw_point *point, spw_step_traffic *out) {
    const spw_job *job = point->job;
    const spw_model *m = &job->model;
    const size_t tensor = spw_grid_mesh_tensor(job);
    builder b = {job, &point->shape, out,
                 point->scheme->type->memory.buffer_rows(point->scheme, &point->shape),
                 job->remat == SPW_REMAT_FULL};
    if (job->remat != SPW_REMAT_FULL && job->remat != SPW_REMAT_NONE)
        return spw_fail(
            SPW_ECONFIG,
            "the collectives of a step with tensor %zu and context %zu are described for remat none and "
            "full alone, not for %s; use one of them, or make both axes 1",
            tensor, spw_grid_of(job).context, spw_remat_name(job->remat));
    if (m->attention == SPW_ATTENTION_MLA && tensor > 1)
        return spw_fail(SPW_ECONFIG,
                        "the collectives of a step with tensor %zu are not described for MLA, whose low-rank "
                        "products XLA cuts in several ways; make tensor 1",
                        tensor);
    add_attention(&b, SPW_PLACE_MOE_LAYER);
    add_experts(&b);
    add_ffn(&b, SPW_PLACE_MOE_LAYER, m->shared_ffn);
    if (m->moe_layers < m->layers) {
        add_attention(&b, SPW_PLACE_DENSE_LAYER);
        add_ffn(&b, SPW_PLACE_DENSE_LAYER, m->dense_ffn);
    }
    add_ends(&b);
    return SPW_OK;
}
