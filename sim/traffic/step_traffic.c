#include "sim/traffic/step_traffic.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"
#include "sim/machine/compiled_layer.h"
#include "sim/memory/kept/activation_offload.h"
#include "sim/memory/kept/attention_offload.h"
#include "sim/model/attention.h"
#include "sim/traffic/mesh_traffic.h"
#include "sim/traffic/step_exchanges.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/muon_dealing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"

#include <math.h>
#include <string.h>

#define STACK_ROW(name, text, fsdp, gather, scatter, by_dim) {fsdp, gather, scatter, by_dim},
#define STACK_TEXT(name, text, fsdp, gather, scatter, by_dim) text,
const spw_step_stack spw_step_stacks[SPW_STEP_STACKS] = {SPW_STEP_STACK_LIST(STACK_ROW)};
const char *const spw_step_stack_texts[SPW_STEP_STACKS] = {SPW_STEP_STACK_LIST(STACK_TEXT)};

/* --- The list --- */

typedef struct builder {
    const spw_job *job;
    spw_step_traffic *out;
    size_t tensor;             /* GPUs of a mesh among which most matrices are cut */
    spw_fsdp2_gathers gathers; /* of FSDP2, in a step */
    const spw_state_law *law;
    size_t gradient_bytes; /* of an element that is scattered or summed */
} builder;

/* FSDP2 gathers a unit as often as its policy and the pipeline say; what else a step has of a weight is as often as its place,
 * or once where gradients wait for the end of the step. */
static size_t gathers_of(const builder *b, const spw_step_item *item) {
    if (!b->law->by_units) return 0;
    const bool table = strcmp(item->name, "embedding") == 0;
    return item->place == SPW_PLACE_MOE_LAYER     ? b->gathers.moe_layers
           : item->place == SPW_PLACE_DENSE_LAYER ? b->gathers.dense_layers
           : table                                ? b->gathers.embedding
                                                  : b->gathers.head;
}

static size_t reductions_of(const builder *b, const spw_step_item *item) {
    if (!spw_fsdp2_waits(b->job)) return 0;
    return b->out->times[item->place] / b->out->times[SPW_PLACE_ENDS];
}

/* Shards of one place: to the GPU before each gather, gradients back. */
static void add_host_copy(builder *b, spw_step_item item, uint64_t elements, size_t element_bytes) {
    const size_t shards = b->out->group_size[item.group];
    if (!b->job->fsdp2.on_host) return;
    item.operation = SPW_OPERATION_HOST_COPY;
    item.purpose = SPW_PURPOSE_HOST;
    item.group = SPW_GROUP_HOST;
    item.family = SPW_FAMILY_ALONE;
    spw_step_add(b->out, item, (elements + shards - 1) / shards, element_bytes);
}

static void add_gather(builder *b, spw_step_item item, uint64_t elements) {
    item.in_step = gathers_of(b, &item);
    add_host_copy(b, item, elements, b->job->precision.weights);
    spw_step_add(b->out, item, elements, spw_fsdp2_gathered_bytes(b->job));
}

/* Scattered over those who share the weight; their parts are summed over the replicas. */
static void add_gradient(builder *b, spw_step_item item, uint64_t elements) {
    const size_t g = b->gradient_bytes, shards = b->out->group_size[item.group];
    item.in_step = reductions_of(b, &item);
    spw_step_add(b->out, item, elements, g);
    add_host_copy(b, item, elements, b->job->precision.weights);
    item.operation = SPW_OPERATION_ALL_REDUCE;
    item.group = SPW_GROUP_REPLICAS;
    spw_step_add(b->out, item, (elements + shards - 1) / shards, g);
}

/* A weight matrix: gathered forward and backward, its gradient scattered. */
static void add_weight(builder *b, spw_step_item item, uint64_t elements, bool scattered) {
    item.count = 1;
    item.family = SPW_FAMILY_WEIGHTS;
    const int gathers = b->law->by_units ? 1 : 2; /* of units all of a step together */
    for (int backward = 0; backward < gathers; backward++) {
        item.operation = SPW_OPERATION_ALL_GATHER;
        item.backward = backward;
        add_gather(b, item, elements);
    }
    item.operation = SPW_OPERATION_REDUCE_SCATTER;
    item.backward = true;
    if (scattered) add_gradient(b, item, elements);
}

/* Of a matrix that a mesh's tensor cuts: of MLA's down projections, which its GPUs hold whole, XLA gathers the columns that each
 * multiplies. */
static void add_other(builder *b, spw_step_place place, const char *name, const char *formula,
                      uint64_t elements) {
    add_weight(b,
               (spw_step_item){.name = name,
                               .formula = formula,
                               .purpose = SPW_PURPOSE_OTHER_WEIGHTS,
                               .place = place,
                               .group = SPW_GROUP_ALL},
               elements / b->tensor, true);
}

/* Weights of the mixers of a place's layers are rows of the model's list, in whole or in part. */
static bool is_listed(const spw_model *m) {
    bool listed = spw_attention_is_listed(m) || m->half_layers;
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) listed = listed || m->mixer[k].heads > 0;
    return listed;
}

/* All of them, on average over the place's layers, so that a step has their sum. */
static uint64_t mean_mixer(const spw_model *m, spw_step_place place) {
    const spw_parameters p = spw_model_parameters(m);
    uint64_t sum = 0, layers = 0;
    for (size_t i = 0; i < m->layers; i++) {
        if ((m->is_moe[i] != 0) != (place == SPW_PLACE_MOE_LAYER)) continue;
        sum += p.mixer_per_layer[m->mixer_of[i]];
        layers++;
    }
    return layers > 0 ? sum / layers : 0;
}

/* Matrices only: norms, biases and sinks are a few KiB and not gathered. */
static void add_attention(builder *b, spw_step_place place) {
    const spw_model *m = &b->job->model;
    if (is_listed(m)) {
        const uint64_t elements = mean_mixer(m, place);
        if (elements > 0)
            add_other(b, place, "mixers", "weights of a layer's mixer, on average, w", elements);
        return;
    }
    spw_matrices list;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (!row->vector && row->words != NULL)
            add_other(b, place, row->words->weights, row->words->weights_formula, spw_matrix_elements(row));
    }
}

static void add_ffn(builder *b, spw_step_place place, const char *const names[3], const char *formula,
                    size_t ffn) {
    for (int i = 0; i < 3; i++)
        if (i != 1 || !b->job->model.plain_ffn)
            add_other(b, place, names[i], formula, (uint64_t)b->job->model.hidden * ffn);
}

/* Where a mesh cuts hidden sizes, a GPU multiplies H / TP rows of the router. Its gradient is summed over all that have the same
 * rows and goes to who has the shard; the rows themselves come from there where shards are not smaller, else all are gathered.
 * Where it cuts sequences as well, whole inputs are gathered for the gradient, which is then scattered as any other. */
static void add_cut_router(builder *b, spw_step_item item, uint64_t elements, bool scattered) {
    const size_t shards = b->out->group_size[item.group], w = spw_precision_gathered(b->job),
                 g = b->gradient_bytes;
    if (spw_mesh_gathers_router(b->job)) {
        add_weight(b, item, elements, scattered);
        return;
    }
    if (shards > b->tensor) {
        add_weight(b, item, elements, false);
    } else {
        item.operation = SPW_OPERATION_SEND;
        item.formula = "H E w / TP";
        for (int backward = 0; backward < 2; backward++) {
            item.backward = backward;
            spw_step_add(b->out, item, elements / b->tensor, w);
        }
    }
    item.backward = true;
    item.operation = SPW_OPERATION_ALL_REDUCE;
    item.formula = "H E g / TP";
    if (scattered) spw_step_add(b->out, item, elements / b->tensor, g);
    item.operation = SPW_OPERATION_SEND;
    item.formula = "H E g / G";
    if (scattered) spw_step_add(b->out, item, (elements + shards - 1) / shards, g);
}

static void add_router(builder *b, bool over_fsdp, bool scattered) {
    const spw_model *m = &b->job->model;
    const uint64_t elements = (uint64_t)m->hidden * m->experts;
    const spw_step_item item = {.name = "router",
                                .formula = "H E w",
                                .purpose = SPW_PURPOSE_OTHER_WEIGHTS,
                                .place = SPW_PLACE_MOE_LAYER,
                                .group = over_fsdp && m->sigmoid_router ? SPW_GROUP_FSDP : SPW_GROUP_ALL,
                                .count = 1};
    if (b->tensor > 1) {
        add_cut_router(b, item, elements, scattered);
    } else {
        add_weight(b, item, elements, scattered);
    }
}

/* GPUs of a context group that multiply the same slots have the same gradient, of which each keeps its shard. */
static void add_replicated_gradient(builder *b, spw_step_item item, uint64_t elements) {
    item.count = 1;
    item.operation = SPW_OPERATION_ALL_REDUCE;
    item.group = SPW_GROUP_FSDP_BATCH;
    item.backward = true;
    spw_step_add(b->out, item, elements, b->gradient_bytes);
}

/* Where a mesh's tensor cuts all experts' weights, XLA gathers them for the recomputation and for the gradients. */
static void add_gather_again(builder *b, spw_step_item item, uint64_t elements) {
    item.count = 1;
    item.operation = SPW_OPERATION_ALL_GATHER;
    item.backward = true;
    spw_step_add(b->out, item, elements, spw_precision_gathered(b->job));
}

/* The rank's experts over fsdp. Gathered layout: then those of all ranks. Peeled: wo of all ranks, whose
 * gradient needs no scatter, since every GPU multiplies the slots of all. */
static void add_experts(builder *b, const spw_compiled_layer *list) {
    static const char *const names[] = {"expert_w0", "expert_w1", "expert_wo"};
    static const char *const all[] = {"all_w0", "all_w1", "all_wo"};
    const spw_model *m = &b->job->model;
    const uint64_t matrix = (uint64_t)spw_model_routed_width(m) * m->expert_ffn / b->tensor;
    const bool peeled = list != NULL && list->exchange == SPW_COMPILED_EXCHANGE_PEELED,
               replicated = list != NULL && list->capacity_slots && b->out->group_size[SPW_GROUP_CONTEXT] > 1;
    for (int i = 0; i < 3; i++) {
        if (i == 1 && m->plain_experts) continue; /* no gate */
        spw_step_item item = {.name = names[i],
                              .formula = "e H F w",
                              .purpose = SPW_PURPOSE_EXPERT_WEIGHTS,
                              .place = SPW_PLACE_MOE_LAYER,
                              .group = SPW_GROUP_FSDP,
                              .other_dim = i == 2};
        const uint64_t own = m->experts / b->job->expert * matrix;
        add_weight(b, item, own, !(peeled && i == 2) && !replicated);
        if (replicated) add_replicated_gradient(b, item, own);
        item.name = all[i];
        item.formula = "E H F w";
        item.group = SPW_GROUP_EXPERT;
        if ((list != NULL && list->all_experts) || (peeled && i == 2))
            add_weight(b, item, m->experts * matrix, !peeled);
        if (list != NULL && list->all_experts && b->tensor > 1)
            add_gather_again(b, item, m->experts * matrix);
    }
}

/* The embedding is sharded: its tokens travel, or the table where that is less. The head is gathered once;
 * the loss follows at once, so its gradient is scattered from the same gather. */
static void add_ends(builder *b, const spw_layer_shape *s) {
    const spw_model *m = &b->job->model;
    const uint64_t table = (uint64_t)m->vocab * m->hidden / b->tensor;
    const size_t w = spw_precision_gathered(b->job);
    spw_step_item item = {.purpose = SPW_PURPOSE_EMBEDDING,
                          .place = SPW_PLACE_ENDS,
                          .group = SPW_GROUP_ALL,
                          .count = 1,
                          .name = "head",
                          .formula = "V H w",
                          .operation = SPW_OPERATION_ALL_GATHER};
    const bool tokens_travel =
        !b->law->by_units && s->tokens * b->job->model.hidden * s->element_bytes <= table * w;
    add_gather(b, item, table);
    item.name = tokens_travel ? "token_ids" : "embedding";
    item.formula = tokens_travel ? "4 G T" : "V H w";
    if (tokens_travel) {
        spw_step_add(b->out, item, b->out->group_size[SPW_GROUP_ALL] * s->tokens, sizeof(int32_t));
    } else {
        add_gather(b, item, table);
    }
    item.operation = SPW_OPERATION_ALL_TO_ALL;
    item.name = "embedded_tokens";
    item.formula = "T H b";
    for (int backward = 0; backward < 2 && tokens_travel; backward++) {
        item.backward = backward;
        spw_step_add(b->out, item, s->tokens * b->job->model.hidden, s->element_bytes);
    }
    item.operation = SPW_OPERATION_REDUCE_SCATTER;
    item.backward = true;
    item.formula = "V H g";
    item.name = "head";
    add_gradient(b, item, table);
    item.name = "embedding";
    if (!tokens_travel) add_gradient(b, item, table);
}

/* Layer by layer. The sorted ring's unsort has no gradient for the weights, so its router has none either. */
static void add_sharded(builder *b, const spw_compiled_layer *list, const spw_step_stack *stack) {
    static const char *const shared[] = {"shared_w0", "shared_w1", "shared_wo"};
    static const char *const dense[] = {"dense_w0", "dense_w1", "dense_wo"};
    const spw_model *m = &b->job->model;
    add_experts(b, list);
    add_attention(b, SPW_PLACE_MOE_LAYER);
    add_router(b, stack->router_over_fsdp, list == NULL || list->program != SPW_PROGRAM_RING_SORTED);
    if (m->latent > 0)
        add_other(b, SPW_PLACE_MOE_LAYER, "latent", "2 H L w", 2 * (uint64_t)m->hidden * m->latent);
    add_ffn(b, SPW_PLACE_MOE_LAYER, shared, "H F_shared w", m->shared_ffn);
    if (m->moe_layers == m->layers) return;
    add_attention(b, SPW_PLACE_DENSE_LAYER);
    add_ffn(b, SPW_PLACE_DENSE_LAYER, dense, "H F_dense w", m->dense_ffn);
}

/* The share of Megatron's optimizer that the host works on: gradients there, new weights back, both in the format of the masters: PyTorch
 * casts on the GPU (notebooks_data/measured/h200_optimizer.csv). */
static void add_offloaded(builder *b, spw_step_item item, uint64_t own) {
    const uint64_t share = (uint64_t)llround(b->job->optimizer_on_host * (double)own);
    const size_t master = spw_master_bytes(b->job), /* gradients are cast before they leave the GPU */
        bytes = master > 0 ? master : b->job->precision.weights;
    item.operation = SPW_OPERATION_HOST_COPY;
    item.purpose = SPW_PURPOSE_HOST;
    item.group = SPW_GROUP_HOST;
    item.formula = "share of the optimizer, m";
    spw_step_add(b->out, item, share, bytes);
    item.backward = false;
    spw_step_add(b->out, item, share, bytes);
}

/* Of gradients that were scattered over the replicas of one optimizer instance: the sum over the instances of what a GPU then has. */
static void add_instances(builder *b, spw_step_item item, uint64_t elements) {
    const size_t shards = b->out->group_size[item.group];
    item.operation = SPW_OPERATION_ALL_REDUCE;
    item.formula = item.purpose == SPW_PURPOSE_EXPERT_WEIGHTS ? "P_routed / R / EDP g" : "P_rest / (DP CP) g";
    item.group = SPW_GROUP_REPLICAS;
    spw_step_add(b->out, item, (elements + shards - 1) / shards, b->job->precision.gradients);
}

/* Once a step: gradients scattered and new weights gathered over the replicas, or gradients reduced. */
static spw_status add_replicas(builder *b) {
    const spw_job *job = b->job;
    uint64_t padding[2];
    const spw_status status = spw_weight_padding(job, padding);
    if (status != SPW_OK) return status;
    const bool distributed = !b->law->sums_gradients;
    spw_weight_family family[SPW_WEIGHT_FAMILIES];
    const size_t families = spw_weight_families(job, false, family);
    for (size_t i = 0; i < families; i++) {
        const bool experts = family[i].purpose == SPW_PURPOSE_EXPERT_WEIGHTS,
                   fp4 = spw_fp8_recipe_is_fp4(job->precision.recipe);
        const uint64_t elements = family[i].elements + padding[experts ? 0 : 1];
        if (elements == 0) continue; /* frozen */
        spw_step_item item = {.name = experts ? "experts" : "others",
                              .formula = experts ? "P_routed / R g" : "P_rest g",
                              .operation = distributed && !spw_muon_is_dealt(job)
                                               ? SPW_OPERATION_REDUCE_SCATTER
                                               : SPW_OPERATION_ALL_REDUCE,
                              .purpose = family[i].purpose,
                              .place = SPW_PLACE_STEP,
                              .group = family[i].group,
                              .backward = true,
                              .count = 1};
        spw_step_add(b->out, item, elements, job->precision.gradients);
        add_instances(b, item, elements);
        item.formula = experts ? "P_routed / R w" : "P_rest w";
        add_offloaded(b, item, distributed ? elements / b->out->group_size[item.group] : elements);
        item.operation = SPW_OPERATION_ALL_GATHER;
        item.backward = false;
        if (!distributed) continue;
        const double bytes = spw_weight_gathered_bytes(job, &family[i]) * (double)elements;
        if (bytes < (double)(elements * job->precision.weights)) {
            item.formula = fp4       ? experts ? "P_routed / R, fp4" : "P_rest w, linear ones fp4"
                           : experts ? "P_routed / R, fp8"
                                     : "P_rest w, linear ones fp8";
            spw_step_add(b->out, item, (uint64_t)llround(bytes), 1);
        } else {
            spw_step_add(b->out, item, elements, job->precision.weights);
        }
    }
    return SPW_OK;
}

/* What waits in the host's memory: there in the forward pass, back in the backward pass. Of the rows of a balanced layer. */
static void add_offloaded_inputs(builder *b, const spw_point *point) {
    const spw_job *job = b->job;
    const spw_layer_shape *s = &point->shape;
    const uint64_t rows = spw_balanced_rows(point->scheme, s).held, first = spw_layer_first(s);
    const bool copies = spw_offload_stays(job); /* of mxfp8, by column, with their scales */
    const struct {
        unsigned module;
        const char *name, *formula;
        uint64_t elements;
        size_t bytes;
    } tensors[] = {{SPW_OFFLOAD_EXPERT_FC1, copies ? "fc1_input_fp8_t" : "fc1_input",
                    copies ? "33/32 M H" : "M H b", copies ? rows * s->hidden / 32 * 33 : rows * s->hidden,
                    copies ? 1 : s->element_bytes},
                   {SPW_OFFLOAD_MOE_ACT, "fc1_output", first == 1 ? "M F b" : "2 M F b",
                    first * rows * s->ffn, s->element_bytes},
                   {SPW_OFFLOAD_MOE_ACT, "row_probs", "4 M", rows, sizeof(float)}};
    spw_step_item item = {.operation = SPW_OPERATION_HOST_COPY,
                          .purpose = SPW_PURPOSE_HOST,
                          .place = SPW_PLACE_STEP,
                          .group = SPW_GROUP_HOST};
    spw_offloaded_tensor attention[SPW_ATTENTION_TENSORS];
    uint64_t every = 0; /* layers */
    if (job->offload.modules == 0) return;
    for (size_t stage = 0; stage < spw_pipeline_of(job).stages; stage++) {
        const spw_offload_stage at = spw_offload_stage_of(job, stage);
        item.count += at.experts.layers - at.experts.staying;
        every += at.attention.layers - at.attention.staying;
    }
    for (size_t i = 0; i < 2 * sizeof tensors / sizeof *tensors; i++) {
        const size_t t = i / 2;
        if ((job->offload.modules & tensors[t].module) == 0 ||
            tensors[t].elements < SPW_OFFLOAD_LEAST_ELEMENTS)
            continue;
        item.name = tensors[t].name;
        item.formula = tensors[t].formula;
        item.backward = i % 2 == 1;
        spw_step_add(b->out, item, tensors[t].elements, tensors[t].bytes);
    }
    item.count = every;
    const size_t count = spw_attention_offload_list(job, s, attention);
    for (size_t i = 0; i < 2 * count; i++) {
        item.name = attention[i / 2].name;
        item.formula = attention[i / 2].formula;
        item.backward = i % 2 == 1;
        spw_step_add(b->out, item, attention[i / 2].elements, attention[i / 2].bytes);
    }
}

/* Every block of layers but the last sends its output on, every one but the first a gradient back. */
static void add_sends(builder *b, const spw_pipeline *p, const spw_layer_shape *s) {
    spw_step_item item = {.name = "activations",
                          .formula = "T H b",
                          .operation = SPW_OPERATION_SEND,
                          .purpose = SPW_PURPOSE_PIPELINE,
                          .place = SPW_PLACE_ENDS,
                          .group = SPW_GROUP_PIPELINE,
                          .count = p->stages * p->chunks - 1};
    for (int backward = 0; backward < 2; backward++) {
        item.backward = backward;
        spw_step_add(b->out, item, s->tokens * spw_model_carried(&b->job->model), s->element_bytes);
    }
}

spw_status spw_step_traffic_of(const spw_point *point, const spw_step_stack *stack, spw_step_traffic *out) {
    spw_job room;
    const spw_scheme *scheme = point->scheme;
    const spw_job *job = spw_fsdp2_job(point->job, scheme, &room);
    const spw_model *m = &job->model;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const spw_grid grid = spw_grid_of(job);
    const size_t micro = pipeline.micro_batches;
    const spw_compiled_layer *list = spw_scheme_program(scheme);
    builder b = {.job = job,
                 .law = spw_state_law_of(job),
                 .out = out,
                 .tensor = grid.mesh_tensor,
                 .gradient_bytes = spw_scheme_trainer(scheme)->casts_gradients ? spw_precision_scattered(job)
                                                                               : job->precision.gradients};
    if (b.law->by_units) b.gathers = spw_fsdp2_gathers_of(job);
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    out->times[SPW_PLACE_MOE_LAYER] = m->moe_layers * micro;
    out->times[SPW_PLACE_DENSE_LAYER] = (m->layers - m->moe_layers) * micro;
    out->times[SPW_PLACE_ENDS] = micro;
    out->times[SPW_PLACE_STEP] = 1;
    out->group_size[SPW_GROUP_EXPERT] = job->expert;
    const size_t copies = spw_state_copies(job);
    out->group_size[SPW_GROUP_FSDP] = job->fsdp / copies;
    out->group_size[SPW_GROUP_ALL] = grid.data * grid.context / copies;
    out->group_size[SPW_GROUP_REPLICAS] = copies;
    out->group_size[SPW_GROUP_HOST] = 2; /* the GPU and its host */
    out->group_size[SPW_GROUP_TENSOR] = grid.tensor;
    out->group_size[SPW_GROUP_CONTEXT] = grid.context;
    out->group_size[SPW_GROUP_PIPELINE] = pipeline.stages;
    out->group_size[SPW_GROUP_BATCH] = grid.data;
    out->group_size[SPW_GROUP_FSDP_BATCH] = job->fsdp / grid.context;
    if (list != NULL) spw_step_exchanges_add(point, out);
    add_sends(&b, &pipeline, &point->shape);
    add_offloaded_inputs(&b, point);
    if (spw_grid_mesh_gpus(&grid) > 1) {
        status = spw_mesh_traffic_add(point, out);
    } else {
        spw_grid_traffic_add(point, out);
    }
    if (b.law->shares_weights) {
        add_sharded(&b, list, stack);
        add_ends(&b, &point->shape);
    } else {
        const spw_status replicas = add_replicas(&b);
        if (status == SPW_OK) status = replicas;
    }
    if (status == SPW_OK && out->overflow)
        status = spw_fail(SPW_ECONFIG, "the collectives of a step do not fit in 63 bits; use "
                                       "fewer sequences a GPU or a smaller model");
    return status;
}
