#include "sim/traffic/step_exchanges.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/remat.h"
#include "sim/model/attention.h"
#include "sim/weights/fp8_memory.h"
#include "sim/weights/optimizer_state.h"

#include <math.h>

typedef struct builder {
    const spw_job *job;
    const spw_layer_shape *shape;
    spw_step_traffic *out;
    size_t tensor, context;
} builder;

/* What a collective of a tensor group carries: one fp8 copy, or all, where TransformerEngine casts before it sends. */
typedef enum carried { CARRIED_BF16, CARRIED_COPY, CARRIED_COPIES, CARRIED } carried;
static const char *const HIDDEN[CARRIED] = {"TP T H b", "TP T H c", "TP T H 2 c"},
                         *const LORA[CARRIED] = {"TP T r b"}, /* no linear layer reads it */
                             *const HEADS[CARRIED] = {"TP T (queries + 2 kv_heads head_dim) b"};

/* One tensor of a token of the tensor group. */
typedef struct passing {
    const char *name;
    const char *const *formula; /* by what is carried */
    size_t width;
    spw_step_place place;
    bool linear;    /* an operand of a linear layer, which an fp8 recipe casts */
    bool again;     /* ... and, where it keeps the bf16 tensor, casts again in the backward pass */
    size_t in_step; /* as an item's */
} passing;

static passing hidden_of(const builder *b, const char *name, spw_step_place place) {
    return (passing){.name = name, .formula = HIDDEN, .width = b->job->model.hidden, .place = place};
}

static void grid_traffic_add(builder *b, const passing *p, spw_operation operation, bool backward,
                             size_t count, carried what) {
    const uint64_t elements = b->tensor * b->shape->tokens * p->width;
    const spw_fp8_gather of = spw_fp8_gather_of(b->job, b->shape->tokens, p->width);
    const double b16 = (double)b->shape->element_bytes, size = !p->linear || what == CARRIED_BF16 ? b16
                                                               : what == CARRIED_COPY             ? of.input
                                                                                      : of.gradient;
    const bool fp8 = size < b16 || size > b16, one = size <= of.input;
    const spw_step_item item = {.name = p->name,
                                .formula = p->formula[!fp8  ? CARRIED_BF16
                                                      : one ? CARRIED_COPY
                                                            : CARRIED_COPIES],
                                .operation = operation,
                                .purpose = SPW_PURPOSE_TENSOR,
                                .place = p->place,
                                .group = SPW_GROUP_TENSOR,
                                .backward = backward,
                                .count = count,
                                .in_step = p->in_step};
    if (fp8) {
        spw_step_add(b->out, item, (uint64_t)llround((double)elements * size), 1);
    } else {
        spw_step_add(b->out, item, elements, b->shape->element_bytes);
    }
}

/* Recipes tensorwise and nvfp4: the GPUs of a group cast with one scale, by the greatest element of all; nvfp4's of each copy in one
 * message. */
static void add_scales(builder *b, const passing *p, size_t forward, size_t backward) {
    spw_step_item item = {.name = p->name,
                          .formula = "greatest element, 4",
                          .operation = SPW_OPERATION_ALL_REDUCE,
                          .purpose = SPW_PURPOSE_TENSOR,
                          .place = p->place,
                          .group = SPW_GROUP_TENSOR,
                          .count = forward};
    const spw_fp8_recipe recipe = b->job->precision.recipe;
    if ((recipe != SPW_FP8_TENSORWISE && recipe != SPW_FP4_NVFP4) || !p->linear) return;
    spw_step_add(b->out, item, 1, sizeof(float));
    item.backward = true;
    item.count = backward;
    spw_step_add(b->out, item, 1, sizeof(float));
}

/* What a product cut by columns reads: gathered, and gathered anew for the gradient of its weights, if they are trained; its
 * gradient is scattered. */
static void add_input(builder *b, passing p, bool again) {
    const size_t trained = b->job->finetune.frozen == SPW_FROZEN_BASE ? 0 : 1;
    grid_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, false, 1, CARRIED_COPY);
    grid_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, true, trained + (again ? 1 : 0), CARRIED_COPY);
    grid_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1, CARRIED_BF16);
    add_scales(b, &p, 1, (again ? 1u : 0u) + (p.again ? 1u : 0u));
}

/* What no product reads: gathered, once more by remat full, and its gradient scattered, where it has one. */
static void add_gathered(builder *b, passing p, bool full, bool back) {
    grid_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, false, 1, CARRIED_BF16);
    grid_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, true, full ? 1 : 0, CARRIED_BF16);
    if (back) grid_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1, CARRIED_BF16);
}

/* What a product cut by rows makes: scattered, and its gradient gathered. */
static void add_output(builder *b, passing p, bool again) {
    grid_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, false, 1, CARRIED_BF16);
    grid_traffic_add(b, &p, SPW_OPERATION_ALL_GATHER, true, 1, CARRIED_COPIES);
    if (again) grid_traffic_add(b, &p, SPW_OPERATION_REDUCE_SCATTER, true, 1, CARRIED_BF16);
    add_scales(b, &p, 0, 1);
}

/* Adapters of Megatron-Bridge: A x of the product cut by columns is gathered; that of the one cut by rows is summed, and what
 * its B makes is gathered and then cut along the sequence. Backward B's input is summed, and the cut gathered. */
static void add_adapters(builder *b, spw_step_place place, bool full) {
    const size_t rank = b->job->finetune.lora_rank;
    const passing in = {"attention_input_lora", LORA, rank, place},
                  sum = {"attention_output_lora", LORA, rank, place},
                  out = hidden_of(b, "attention_output_lora", place);
    const size_t again = full ? 1 : 0;
    if (!spw_finetune_adapts(&b->job->finetune, SPW_LORA_ATTENTION)) return;
    grid_traffic_add(b, &in, SPW_OPERATION_ALL_GATHER, false, 1, CARRIED_BF16);
    grid_traffic_add(b, &in, SPW_OPERATION_ALL_GATHER, true, again, CARRIED_BF16);
    grid_traffic_add(b, &in, SPW_OPERATION_ALL_REDUCE, true, 1, CARRIED_BF16);
    grid_traffic_add(b, &sum, SPW_OPERATION_ALL_REDUCE, false, 1, CARRIED_BF16);
    grid_traffic_add(b, &sum, SPW_OPERATION_ALL_REDUCE, true, 1 + again, CARRIED_BF16);
    grid_traffic_add(b, &out, SPW_OPERATION_ALL_GATHER, false, 1, CARRIED_BF16);
    grid_traffic_add(b, &out, SPW_OPERATION_ALL_GATHER, true, 1 + again, CARRIED_BF16);
}

/* How often an indexer runs in a place. */
static size_t indexed_times(const builder *b, spw_step_place place) {
    const spw_model *m = &b->job->model;
    size_t layers = 0;
    for (size_t i = 0; i < m->layers; i++)
        layers += (m->is_moe[i] != 0) == (place == SPW_PLACE_MOE_LAYER) && m->mixer_of[i] == 0 &&
                  m->shares_indexer[i] == 0;
    return layers * b->out->times[SPW_PLACE_ENDS];
}

/* What a row of the list reads, gathered, where its file has words for it. */
static passing read_by(const spw_matrix *row, spw_step_place place) {
    return (passing){
        .name = row->words->tokens, .formula = row->words->tokens_formula, .width = row->in, .place = place};
}

/* The indexer of sparse attention gathers what it reads once more, and without its own loss nothing comes back. */
static void add_indexer(builder *b, spw_step_place place, const spw_matrices *list, bool full) {
    const size_t times = indexed_times(b, place);
    for (size_t i = list->rows; i-- > 0 && times > 0;) { /* layers that share one run none */
        const spw_matrix *row = &list->row[i];
        if (row->place != SPW_IN_INDEXER || row->words == NULL) continue;
        passing p = read_by(row, place);
        p.in_step = times;
        add_gathered(b, p, full, false);
    }
}

/* Elements of the norms over all heads of queries and of keys; 0 where a model has none. */
static uint64_t head_norms_of(const spw_model *m) {
    const bool there = spw_attention_is_grouped(m) && m->qk_norm && !m->qk_norm_per_head;
    return there ? (m->heads + m->kv_heads) * m->head_dim : 0;
}

/* Each sums the squares of its own heads; the sum of all is an all-reduce of one number a token, which autograd does not see. */
static void add_head_norms(builder *b, spw_step_place place, bool full) {
    spw_step_item item = {.name = "head_norms",
                          .formula = "4 TP T",
                          .operation = SPW_OPERATION_ALL_REDUCE,
                          .purpose = SPW_PURPOSE_TENSOR,
                          .place = place,
                          .group = SPW_GROUP_TENSOR,
                          .count = 2};
    if (head_norms_of(&b->job->model) == 0) return;
    spw_step_add(b->out, item, b->tensor * b->shape->tokens, sizeof(float));
    item.backward = true;
    item.count = full ? 2 : 0;
    spw_step_add(b->out, item, b->tensor * b->shape->tokens, sizeof(float));
}

/* Which kinds of mixers are meant, by number. */
typedef bool (*chosen)(const spw_model *m, size_t kind);

/* Its keys and values go round a context group. */
static bool is_ring(const spw_model *m, size_t kind) {
    const spw_mixer *mixer = &m->mixer[kind];
    return kind == 0 || (mixer->attends && mixer->heads > 0 && mixer->every == 0);
}
static bool is_attention(const spw_model *m, size_t kind) {
    (void)m;
    return kind == 0;
}
/* It has products at all. */
static bool is_product(const spw_model *m, size_t kind) {
    return kind == 0 || spw_matrix_at(m, SPW_IN_MIXER, kind, 0) != NULL;
}

/* Layers of a place with such a mixer, times micro-batches. */
static size_t times_of(const builder *b, spw_step_place place, chosen is, size_t kind) {
    const spw_model *m = &b->job->model;
    size_t layers = 0;
    for (size_t i = 0; i < m->layers; i++) {
        const bool here = (m->is_moe[i] != 0) == (place == SPW_PLACE_MOE_LAYER);
        if (here && (is != NULL ? is(m, m->mixer_of[i]) : m->mixer_of[i] == kind)) layers++;
    }
    return layers * b->out->times[SPW_PLACE_ENDS];
}

/* How often such a mixer runs in a place, where another takes its turn there, else 0; false where it never does. */
static bool works(const builder *b, spw_step_place place, chosen is, size_t *in_step) {
    const bool mixed = b->job->model.other_layers > 0;
    *in_step = mixed ? times_of(b, place, is, 0) : 0;
    return !mixed || *in_step > 0;
}

/* More GPUs than key and value heads: each gathers queries, keys and values of the group and takes its heads. */
static void add_shared_heads(builder *b, spw_step_place place, bool full) {
    passing heads = {"shared_heads", HEADS, spw_model_query_key_value(&b->job->model), place};
    if (spw_grid_shares_heads(b->job) && works(b, place, is_attention, &heads.in_step))
        add_gathered(b, heads, full, true);
}

/* What products cut by columns read. Keys and values that an indexer chooses among are gathered for themselves, and stay. */
static void add_projections(builder *b, spw_step_place place, const spw_matrices *list, size_t in_step) {
    const bool full = b->job->remat == SPW_REMAT_FULL, sparse = b->job->model.indexer_heads > 0;
    for (size_t i = 0; i < list->rows; i++) {
        const spw_matrix *row = &list->row[i];
        if (row->words == NULL || row->words->tokens == NULL || row->cut != SPW_CUT_OUTPUTS) continue;
        passing p = read_by(row, place);
        p.linear = !sparse || row->makes != SPW_MAKES_KEYS, p.in_step = in_step;
        if (!p.linear)
            add_gathered(b, p, full, true), add_indexer(b, place, list, full);
        else
            add_input(b, p, row->module != 0 ? spw_remat_runs_again(b->job->remat, row->module) : full);
    }
    for (size_t i = 0; i < list->rows; i++) { /* gathered once, and outside of what a module runs again */
        const spw_matrix *row = &list->row[i];
        if (row->apart > 0 && row->words != NULL)
            add_gathered(b, (passing){row->words->apart, row->words->apart_formula, row->apart, place}, full,
                         true);
    }
}

static void add_attention(builder *b, spw_step_place place) {
    const spw_model *m = &b->job->model;
    const bool full = b->job->remat == SPW_REMAT_FULL;
    passing output = hidden_of(b, "attention_output", place);
    spw_matrices list;
    /* where layers are a mixer or an FFN alone; else every layer has a mixer */
    if (m->half_layers && !works(b, place, is_product, &output.in_step)) return;
    spw_matrices_of_mixer(m, 0, &list);
    if (!spw_attention_is_listed(m)) {
        add_projections(b, place, &list, output.in_step);
    } else {
        passing input = hidden_of(b, "attention_input", place);
        input.linear = true, input.in_step = output.in_step;
        add_input(b, input, full);
    }
    if (!spw_attention_is_latent(m)) {
        add_shared_heads(b, place, full);
        add_head_norms(b, place, full);
    }
    output.linear = true;
    add_output(b, output, full);
    add_adapters(b, place, full);
}

static void add_ffn(builder *b, spw_step_place place, size_t ffn, bool again) {
    /* shared experts that run again by themselves keep no bf16 input: their checkpoint does */
    const bool shared =
        place == SPW_PLACE_MOE_LAYER && !spw_remat_repeats(b->job->remat, SPW_MODULE_SHARED_EXPERTS);
    const spw_model *m = &b->job->model;
    const size_t in_step = place == SPW_PLACE_DENSE_LAYER && m->bare_layers > 0
                               ? spw_model_dense_layers(m) * b->out->times[SPW_PLACE_ENDS]
                               : 0;
    if (ffn == 0) return;
    passing input = hidden_of(b, "ffn_input", place), output = hidden_of(b, "ffn_output", place);
    input.linear = output.linear = true, input.again = shared;
    input.in_step = output.in_step = in_step;
    add_input(b, input, again);
    add_output(b, output, again);
}

/* Tokens are summed over the parts of the vocabulary and scattered; of the loss the greatest logit, the target's, and the
 * sum of exponentials, each a number a token in fp32. */
static void add_ends(builder *b) {
    const passing embedding = hidden_of(b, "embedding", SPW_PLACE_ENDS);
    if (b->job->finetune.frozen == SPW_FROZEN_BASE)
        grid_traffic_add(b, &embedding, SPW_OPERATION_REDUCE_SCATTER, false, 1,
                         CARRIED_BF16); /* no gradient comes back */
    else
        add_output(b, embedding, false);
    add_input(b, hidden_of(b, "head_input", SPW_PLACE_ENDS), false);
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
    const uint64_t head_norms = head_norms_of(m) / b->tensor * m->layers; /* cut, and summed by their names */
    const spw_step_item item = {.name = "replicated",
                                .formula = "P_whole g",
                                .operation = SPW_OPERATION_ALL_REDUCE,
                                .purpose = SPW_PURPOSE_TENSOR,
                                .place = SPW_PLACE_STEP,
                                .group = SPW_GROUP_TENSOR,
                                .backward = true,
                                .count = 1};
    if (b->job->finetune.frozen == SPW_FROZEN_BASE) return; /* adapters are cut */
    spw_step_add(b->out, item,
                 whole.norms * m->layers + whole.mixers + whole.moe_layer * m->moe_layers + whole.head +
                     head_norms,
                 b->job->precision.gradients);
}

/* A mixer that needs a whole sequence: context ranks exchange parts of it for parts of the heads, and back. */
static void add_other_mixer(builder *b, spw_step_place place, size_t kind) {
    const spw_mixer *mixer = &b->job->model.mixer[kind];
    const bool full = b->job->remat == SPW_REMAT_FULL;
    const struct {
        const char *name, *formula;
        uint64_t width;
    } exchanged[] = {{"mixer_input", "T (2 keys + 2 values + 2 heads) b", mixer->into},
                     {"mixer_output", "T values b", mixer->out_of}};
    for (size_t i = 0; i < 2 * sizeof exchanged / sizeof *exchanged; i++) {
        const bool backward = i % 2 == 1;
        const spw_step_item item = {.name = exchanged[i / 2].name,
                                    .formula = exchanged[i / 2].formula,
                                    .operation = SPW_OPERATION_ALL_TO_ALL,
                                    .purpose = SPW_PURPOSE_CONTEXT,
                                    .place = place,
                                    .group = SPW_GROUP_CONTEXT,
                                    .backward = backward,
                                    .count = backward && full ? 2 : 1,
                                    .in_step = times_of(b, place, NULL, kind)};
        if (item.in_step > 0)
            spw_step_add(b->out, item, b->shape->tokens * exchanged[i / 2].width, b->shape->element_bytes);
    }
}

/* Keys and values go round the ring of a context group; backward they do again, and their gradients with them. */
static void add_ring(builder *b, spw_step_place place, bool again) {
    const spw_model *m = &b->job->model;
    const bool shared = spw_grid_shares_heads(b->job); /* a head a GPU, its own or another's as well */
    const size_t kv_heads = shared ? b->tensor : m->kv_heads;
    const spw_attention_widths w = spw_attention_widths_of(m);
    const bool latent = spw_attention_is_latent(m);
    const uint64_t width = latent ? w.key + w.value : kv_heads * (w.key_dim + w.value_dim);
    spw_step_item item = {.name = "keys_values",
                          .formula = latent   ? "T heads (nope + rope + v) b"
                                     : shared ? "TP T (head_dim + v) b"
                                              : "T kv_heads (head_dim + v) b",
                          .operation = SPW_OPERATION_SEND,
                          .purpose = SPW_PURPOSE_CONTEXT,
                          .place = place,
                          .group = SPW_GROUP_CONTEXT,
                          .count = b->context - 1};
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].into > 0) add_other_mixer(b, place, k);
    if (!works(b, place, is_ring, &item.in_step)) return;
    spw_step_add(b->out, item, b->shape->tokens * width, b->shape->element_bytes);
    item.backward = true;
    item.count *= again ? 3 : 2;
    spw_step_add(b->out, item, b->shape->tokens * width, b->shape->element_bytes);
}

void spw_grid_traffic_add(const spw_point *point, spw_step_traffic *out) {
    const spw_job *job = point->job;
    const spw_model *m = &job->model;
    const spw_grid g = spw_grid_of(job);
    const bool core = spw_remat_runs_again(job->remat, SPW_MODULE_CORE_ATTN);
    builder b = {job, &point->shape, out, g.tensor, g.context};
    add_attention(&b, SPW_PLACE_MOE_LAYER);
    add_ffn(&b, SPW_PLACE_MOE_LAYER, m->shared_ffn,
            spw_remat_runs_again(job->remat, SPW_MODULE_MOE | SPW_MODULE_SHARED_EXPERTS));
    add_ring(&b, SPW_PLACE_MOE_LAYER, core);
    if (m->moe_layers < m->layers) {
        add_attention(&b, SPW_PLACE_DENSE_LAYER);
        add_ffn(&b, SPW_PLACE_DENSE_LAYER, m->dense_ffn, spw_remat_runs_again(job->remat, SPW_MODULE_MLP));
        add_ring(&b, SPW_PLACE_DENSE_LAYER, core);
    }
    add_ends(&b);
    add_replicated(&b);
}
