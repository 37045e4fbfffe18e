#include "sim/traffic/mesh_traffic.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/machine/compiled_layer.h"
#include "sim/model/attention.h"

typedef struct builder {
    const spw_job *job;
    const spw_scheme *scheme;
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

static void mesh_traffic_add(builder *b, const passing *p, spw_operation operation, bool backward,
                             size_t count) {
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
    mesh_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, false, 1);
    mesh_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, true, 1 + again);
    mesh_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1);
}

/* What a product cut by rows makes. Its gradient is gathered once for the weights' and once for the input's. */
static void add_output(builder *b, passing p, bool again) {
    mesh_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    mesh_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, again ? 1 : 0);
    mesh_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, true, 2);
}

/* A sum over the group that is needed forward, again, and for the gradient. */
static void add_sum(builder *b, passing p, size_t count) {
    mesh_traffic_add(b, &p, SPW_OPERATION_ALL_REDUCE, false, count);
    mesh_traffic_add(b, &p, SPW_OPERATION_ALL_REDUCE, true, (b->again ? 2 : 1) * count);
}

/* The mean square of a token's hidden state, in fp32. */
static void add_norms(builder *b, spw_step_place place, size_t count) {
    add_sum(b, (passing){"norms", "4 T", place, SPW_GROUP_TENSOR, b->shape->tokens, sizeof(float)}, count);
}

/* The keys and values of a sequence are gathered from all who have a part of it, and their gradients scattered. */
static void add_keys(builder *b, spw_step_place place) {
    const spw_model *m = &b->job->model;
    const spw_grid g = spw_grid_of(b->job);
    const spw_attention_widths w = spw_attention_widths_of(m);
    const uint64_t tokens = g.context * b->shape->tokens;
    const passing both[] = {{"keys", "CP T keys b / TP", place, SPW_GROUP_CONTEXT, tokens * w.key / g.tensor,
                             b->shape->element_bytes},
                            {"values", "CP T values b / TP", place, SPW_GROUP_CONTEXT,
                             tokens * w.value / g.tensor, b->shape->element_bytes}};
    for (size_t i = 0; i < 2; i++) {
        mesh_traffic_add(b, &both[i], SPW_OPERATION_ALL_GATHER, false, 1);
        mesh_traffic_add(b, &both[i], SPW_OPERATION_ALL_GATHER, true, b->again ? 1 : 0);
        mesh_traffic_add(b, &both[i], SPW_OPERATION_REDUCE_SCATTER, true, 1);
    }
}

/* XLA cuts projections to a low rank by their columns and gathers what comes out, whose norms are sums over the group. */
static void add_low_ranks(builder *b, spw_step_place place) {
    const size_t again = b->again ? 1 : 0, bytes = b->shape->element_bytes;
    spw_matrices list;
    spw_matrices_of_attention(&b->job->model, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        const uint64_t latent = b->shape->tokens * (row->out - row->apart),
                       apart = b->shape->tokens * row->apart;
        if (row->words == NULL || row->words->latent == NULL) continue;
        add_input(
            b,
            (passing){row->words->latent, row->words->latent_formula, place, SPW_GROUP_TENSOR, latent, bytes},
            again);
        if (apart == 0) continue;
        const passing past = {
            row->words->apart, row->words->apart_formula[1], place, SPW_GROUP_TENSOR, apart, bytes};
        mesh_traffic_add(b, &past, SPW_OPERATION_ALL_GATHER, false, 1);
        mesh_traffic_add(b, &past, SPW_OPERATION_ALL_GATHER, true, again);
        mesh_traffic_add(b, &past, SPW_OPERATION_REDUCE_SCATTER, true, 1);
    }
    const size_t norms = spw_attention_widths_of(&b->job->model).latents;
    if (norms > 0) add_norms(b, place, norms);
}

static void add_attention(builder *b, spw_step_place place) {
    add_low_ranks(b, place);
    add_keys(b, place);
    add_norms(b, place, 2); /* before attention, and before what follows it */
    add_input(b, hidden_states(b, place, "attention_input"), b->again ? 1 : 0);
    add_output(b, hidden_states(b, place, "attention_output"), b->again);
}

/* The rows of the experts' last product are terms of a sum; the layer's input is whole in the dispatch, and the router's
 * logits are a sum over parts of the hidden size. Where the layer is recomputed, the gradients of router and
 * shared expert read one gathered input. */
static void add_experts(builder *b) {
    const spw_layer_shape *s = b->shape;
    const spw_step_place place = SPW_PLACE_MOE_LAYER;
    const bool shared = b->again && b->job->model.shared_ffn > 0,
               router = spw_mesh_gathers_router(b->job) && !shared;
    const passing input = hidden_states(b, place, "experts_input"),
                  rows = {"experts_output", "rows H b",          place,
                          SPW_GROUP_TENSOR, b->rows * s->hidden, s->element_bytes};
    mesh_traffic_add(b, &input, SPW_OPERATION_ALL_GATHER, false, 1);
    mesh_traffic_add(b, &input, SPW_OPERATION_ALL_GATHER, true, (b->again ? 1U : 0U) + (router ? 1U : 0U));
    mesh_traffic_add(b, &input, SPW_OPERATION_REDUCE_SCATTER, true, 1);
    mesh_traffic_add(b, &rows, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    mesh_traffic_add(b, &rows, SPW_OPERATION_REDUCE_SCATTER, true, b->again ? 1 : 0);
    mesh_traffic_add(b, &rows, SPW_OPERATION_ALL_GATHER, true, 1);
    add_sum(b,
            (passing){"logits", "T E b", place, SPW_GROUP_TENSOR, s->tokens * s->experts, s->element_bytes},
            1);
}

/* Slots travel in parts, are gathered for the products and the gradients of their weights, and leave the last product as terms of
 * a sum. Where they are exchanged and weights are gathered, XLA gathers rows once for each gradient. */
static void add_slots(builder *b, const spw_compiled_layer *list) {
    const spw_layer_shape *s = b->shape;
    const spw_step_place place = SPW_PLACE_MOE_LAYER;
    const spw_step_group t = SPW_GROUP_TENSOR;
    const uint64_t capacity = spw_scheme_capacity(b->scheme, s);
    const size_t *size = b->out->group_size;
    const bool twice = !list->all_experts && size[SPW_GROUP_EXPERT] > 1 && size[SPW_GROUP_FSDP] > 1;
    const passing slots = {"slots", "D H b", place, t, b->rows * s->hidden, s->element_bytes},
                  logits = {"logits", "T E b", place, t, s->tokens * s->experts, s->element_bytes},
                  masks = {"masks", "T E C b", place, t, s->tokens * s->experts * capacity, s->element_bytes},
                  weights = {"choice_weights", "T K b", place, t, s->assignments, s->element_bytes},
                  parts = {"slots",
                           "D H b",
                           place,
                           SPW_GROUP_CONTEXT,
                           b->rows * s->hidden / spw_grid_mesh_tensor(b->job),
                           s->element_bytes};
    mesh_traffic_add(b, &slots, SPW_OPERATION_ALL_GATHER, false, 1);
    mesh_traffic_add(b, &slots, SPW_OPERATION_ALL_GATHER, true, twice ? 4 : 2);
    mesh_traffic_add(b, &slots, SPW_OPERATION_REDUCE_SCATTER, false, 1);
    mesh_traffic_add(b, &slots, SPW_OPERATION_REDUCE_SCATTER, true, 2);
    mesh_traffic_add(b, &logits, SPW_OPERATION_ALL_REDUCE, false, 1);
    mesh_traffic_add(b, &logits, SPW_OPERATION_ALL_REDUCE, true, 1);
    mesh_traffic_add(b, &masks, SPW_OPERATION_ALL_REDUCE, true, 1);
    mesh_traffic_add(b, &weights, SPW_OPERATION_ALL_REDUCE, true, 1);
    mesh_traffic_add(b, &parts, SPW_OPERATION_ALL_REDUCE, false, 1);
    mesh_traffic_add(b, &parts, SPW_OPERATION_ALL_REDUCE, true, 2);
}

/* One tensor of the scatter of the top-k weights. */
static void add_index(spw_step_traffic *out, const passing *p, spw_operation operation, bool forward,
                      size_t backward) {
    spw_step_item item = {.name = p->name,
                          .formula = p->formula,
                          .operation = operation,
                          .purpose = SPW_PURPOSE_INDICES,
                          .place = SPW_PLACE_MOE_LAYER,
                          .group = p->group,
                          .count = forward ? 1 : 0};
    spw_step_add(out, item, p->elements, p->element_bytes);
    item.backward = true;
    item.count = backward;
    spw_step_add(out, item, p->elements, p->element_bytes);
}

void spw_mesh_indices_add(const spw_job *job, const spw_layer_shape *s, spw_step_traffic *out) {
    const spw_grid g = spw_grid_of(job);
    const spw_step_group c = SPW_GROUP_CONTEXT, batch = SPW_GROUP_BATCH, all = SPW_GROUP_ALL;
    const spw_step_place place = SPW_PLACE_MOE_LAYER;
    const uint64_t own = g.context * s->tokens, whole = out->group_size[all] * s->tokens, k = s->top_k,
                   e = s->experts;
    const uint64_t parts = g.tensor < out->group_size[all] ? g.tensor : out->group_size[all];
    const size_t b = s->element_bytes;
    const passing gathered[] = {{"choice_logits", "CP T E b", place, c, own * e, b},
                                {"choice_masks", "CP T K E", place, c, own * k * e, 1},
                                {"choice_indices", "12 CP T K", place, c, own * k, 12},
                                {"choice_updates", "4 CP T K", place, c, own * k, 4},
                                {"choice_logits", "b G T E", place, batch, whole * e, b},
                                {"choice_indices", "12 G T K", place, batch, whole * k, 12},
                                {"choice_updates", "4 G T K", place, batch, whole * k, 4}};
    const passing spread = {"spread_weights", "b G T E / TP", place, all, whole * e / parts, b},
                  mine = {"spread_weights", "CP T E b", place, c, own * e, b};
    for (size_t i = 0; i < sizeof gathered / sizeof *gathered; i++)
        add_index(out, &gathered[i], SPW_OPERATION_ALL_GATHER, true, 1);
    add_index(out, &spread, SPW_OPERATION_ALL_REDUCE, true, 1);
    passing back = spread;
    back.group = batch;
    if (g.tensor == 1 || out->group_size[batch] > g.tensor)
        add_index(out, &back, SPW_OPERATION_ALL_GATHER, false, 1);
    add_index(out, &mine, SPW_OPERATION_ALL_GATHER, false, 1);
}

bool spw_mesh_gathers_router(const spw_job *job) {
    const spw_grid g = spw_grid_of(job);
    return g.mesh_tensor > 1 && g.mesh_context > 1;
}

/* The recomputed output of the last FFN of a layer is needed by nothing; a shared expert reads what dropless experts gathered. */
static void add_ffn(builder *b, spw_step_place place, size_t ffn, bool gathered) {
    if (ffn == 0) return;
    add_input(b, hidden_states(b, place, "ffn_input"), b->again && !gathered ? 1 : 0);
    add_output(b, hidden_states(b, place, "ffn_output"), false);
}

/* The head reads the last hidden states; of the loss the greatest logit, the target's, and the sum of exponentials. */
static void add_ends(builder *b) {
    const passing loss = {"loss", "4 T", SPW_PLACE_ENDS, SPW_GROUP_TENSOR, b->shape->tokens, sizeof(float)};
    add_input(b, hidden_states(b, SPW_PLACE_ENDS, "head_input"), 0);
    mesh_traffic_add(b, &loss, SPW_OPERATION_ALL_REDUCE, false, 3);
}

spw_status spw_mesh_traffic_add(const spw_point *point, spw_step_traffic *out) {
    const spw_job *job = point->job;
    const spw_model *m = &job->model;
    const size_t tensor = spw_grid_mesh_tensor(job);
    const spw_compiled_layer *list = spw_scheme_program(point->scheme);
    const bool slots = list != NULL && list->capacity_slots;
    builder b = {job,
                 point->scheme,
                 &point->shape,
                 out,
                 point->scheme->type->memory.buffer_rows(point->scheme, &point->shape),
                 job->remat == SPW_REMAT_FULL};
    if (job->remat != SPW_REMAT_FULL && job->remat != SPW_REMAT_NONE)
        return spw_fail(
            SPW_ECONFIG,
            "the collectives of a step with tensor %zu and context %zu are described for remat none and "
            "full alone, not for %s; use one of them, or make both axes 1",
            tensor, spw_grid_of(job).context, spw_remat_name(job->remat));
    if (slots && job->remat != SPW_REMAT_FULL)
        return spw_fail(
            SPW_ECONFIG,
            "scheme '%s': the collectives of a step with tensor %zu and context %zu are described for remat "
            "full alone, not for %s, where XLA keeps gathered weights; use full, or make both axes 1",
            point->scheme->text, tensor, spw_grid_of(job).context, spw_remat_name(job->remat));
    add_attention(&b, SPW_PLACE_MOE_LAYER);
    if (slots) {
        add_slots(&b, list);
    } else {
        add_experts(&b);
    }
    add_ffn(&b, SPW_PLACE_MOE_LAYER, m->shared_ffn, !slots);
    if (m->moe_layers < m->layers) {
        add_attention(&b, SPW_PLACE_DENSE_LAYER);
        add_ffn(&b, SPW_PLACE_DENSE_LAYER, m->dense_ffn, false);
    }
    add_ends(&b);
    return SPW_OK;
}
