#include "sim/memory/compiled/compiled_step.h"

#include "sim/job/recipe/precision.h"
#include "sim/machine/compiled_layer.h"
#include "sim/machine/stack.h"
#include "sim/memory/compiled/compiled_orders.h"
#include "sim/model/attention.h"

#include <math.h>
#include <string.h>

#define AT(moment) (1U << SPW_STEP_##moment)
enum {
    LOOPS = AT(FORWARD) | AT(HEAD) | AT(RELAY) | AT(BACKWARD) | AT(ATTENTION),
    KEPT = AT(HEAD) | AT(RELAY) | AT(BACKWARD) | AT(ATTENTION),
    BACKWARD_LOOP = AT(BACKWARD) | AT(ATTENTION),
    GRADIENTS = AT(BACKWARD) | AT(ATTENTION) | AT(UPDATE)
};

const char *spw_step_moment_name(spw_step_moment moment) {
    static const char *const names[] = {"forward pass of a MoE layer",   "head",
                                        "before the backward loop",      "backward pass of a MoE layer",
                                        "backward pass of an attention", "optimizer"};
    return (unsigned)moment < SPW_STEP_MOMENTS ? names[moment] : "?";
}

/* The symbols of the formulas, in elements. */
typedef struct symbols {
    const spw_job *job;
    const spw_model *model;
    const spw_compiled_cut *cut;
    const spw_layer_shape *shape;
    spw_step_list *out;
    spw_parameters parameters;
    double b, w, g;        /* bytes of an activation, and of a weight and a gradient as they are kept */
    double used, made;     /* bytes of a weight that was gathered, and of its gradient */
    double gpus;           /* that share a layer's weights */
    double tokens, hidden; /* T, H */
    double ends;           /* T of the ends of the model, and of the layers outside of a pipeline */
    double dense_layers;
    double looped, runs; /* MoE layers whose weights the fullest loop holds, and that a GPU runs in it */
    double outside;      /* MoE layers before the loop of a pipeline */
    double query, key, value, context; /* per token, all heads */
    double projections;                /* weights of one layer's projections that have a head axis */
    bool gathers_tokens;               /* neither gmm nor ragged: dense, ring, DeepEP */
} symbols;

/* `pieces` tensors of one size. */
static void put_pieces(const symbols *s, unsigned when, const char *name, const char *formula, double pieces,
                       double bytes) {
    if (!(bytes > 0.0) || s->out->tensors == SPW_STEP_TENSORS) return;
    s->out->tensor[s->out->tensors++] = (spw_step_tensor){name, formula, bytes, (unsigned)pieces, when};
}

static void put(const symbols *s, unsigned when, const char *name, const char *formula, double bytes) {
    put_pieces(s, when, name, formula, 1.0, bytes);
}

/* Query, key, value and context of `layers` layers, of `tokens` each. */
static void put_attention(const symbols *s, unsigned when, const char *const name[4], double layers,
                          double tokens) {
    static const char *const formulas[] = {"T q b a layer", "T k b a layer", "T v b a layer",
                                           "T context b a layer"};
    const double width[] = {s->query, s->key, s->value, s->context};
    for (int i = 0; i < 4; i++)
        put_pieces(s, when, name[i], formulas[i], layers, layers * tokens * width[i] * s->b);
}

static symbols measure(const spw_job *job, const spw_scheme *scheme, const spw_compiled_cut *cut,
                       const spw_layer_shape *shape, spw_step_list *out) {
    const spw_model *m = &job->model;
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double hidden = (double)m->hidden;
    spw_matrices list;
    symbols s = {.job = job,
                 .model = m,
                 .cut = cut,
                 .shape = shape,
                 .out = out,
                 .parameters = spw_model_parameters(m),
                 .b = (double)shape->element_bytes,
                 .w = (double)job->precision.weights,
                 .g = (double)job->precision.gradients,
                 .used = (double)spw_precision_gathered(job),
                 .made = (double)spw_precision_scattered(job),
                 .gpus = (double)spw_job_gpus(job),
                 .tokens = (double)shape->tokens,
                 .ends = cut->gpu_sequences * (double)job->sequence_length,
                 .hidden = hidden,
                 .dense_layers = (double)(m->layers - m->moe_layers),
                 .looped = (double)(cut->stages > 1 ? cut->piped : m->moe_layers),
                 .runs = (double)(cut->stages > 1 ? cut->turns * cut->layers : m->moe_layers),
                 .outside = (double)(cut->stages > 1 ? cut->outside : 0)};
    s.query = (double)w.query;
    s.key = (double)w.key;
    s.value = (double)w.value;
    s.context = (double)w.context;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++)
        if (!list.row[i].vector && list.row[i].cut != SPW_CUT_NOWHERE &&
            list.row[i].makes != SPW_MAKES_GATE) /* coefficients were fitted without a gate */
            s.projections += (double)spw_matrix_elements(&list.row[i]);
    s.gathers_tokens = spw_scheme_program(scheme)->exchange != SPW_COMPILED_EXCHANGE_RAGGED;
    return s;
}

/* Gradients and, where the program lays them out anew, weights of `layers` MoE layers that `gpus` GPUs share. */
static void put_stacks(const symbols *s, const char *const name[4], double layers, double gpus, bool relaid) {
    const spw_parameters *p = &s->parameters;
    const double experts = (double)p->routed_per_layer * layers / gpus;
    const double stacks =
        3.0 * (double)(1 + s->shape->waiting_layers); /* wi_0, wi_1, wo of every layer of a turn */
    const double others =
        (double)(p->attention_per_layer + p->norms_per_layer + p->shared_per_layer + p->router_per_layer) *
        layers / gpus;
    put_pieces(s, GRADIENTS, name[0], "3 L E H F g / G", stacks, experts * s->g);
    put(s, GRADIENTS, name[1], "(attention + shared + router) L g / G", others * s->g);
    if (!relaid) return;
    if (s->shape->experts_per_rank > 1) {
        put_pieces(s, LOOPS, name[2], "3 L E H F w / G", stacks, experts * s->w);
    } else {
        put(s, LOOPS, "relaid_wo", "L E H F w / G, one expert a rank", experts * s->w / 3.0);
    }
    put(s, LOOPS, name[3], "those with a head axis, L w / G", s->projections * layers * s->w / gpus);
}

/* Of all layers, over all GPUs. A scan over layers lays its stacks out anew, whether they are gathered or not: their axis of
 * layers is not the first. In a pipeline the loop takes its layers as they lie, by round, unless it gathers them; those before it are shared by the
 * GPUs of a stage and are laid out anew as without one, and XLA makes room for their gradients before it needs it. */
static void put_all_stacks(const symbols *s) {
    static const char *const loop[] = {"expert_gradients", "other_gradients", "relaid_expert_weights",
                                       "relaid_projections"};
    static const char *const before[] = {"outside_expert_gradients", "outside_other_gradients",
                                         "outside_relaid_expert_weights", "outside_relaid_projections"};
    const spw_parameters *p = &s->parameters;
    const double stage = s->gpus / (double)s->cut->stages;
    const bool piped = s->cut->stages > 1;
    put_stacks(s, loop, s->looped, s->gpus, !piped || s->job->fsdp > 1);
    if (s->outside > 0.0) put_stacks(s, before, s->outside, stage, true);
    if (!piped && s->cut->micro_batches > 1)
        put(s, LOOPS | AT(UPDATE), "accumulated_gradients", "P g / G", (double)p->total * s->g / s->gpus);
    put(s, GRADIENTS, "embedding_gradients", piped ? "2 V H g P / G" : "2 V H g / G",
        (double)(p->embedding + p->head) * s->g / stage);
}

/* What the turns of a pipeline hand on: the gradient of what comes in, on its way, and of the micro-batches that wait at the ends
 * of the model (M / P on each stage), or for their next round. */
static void put_pipeline(const symbols *s) {
    const spw_compiled_cut *c = s->cut;
    const size_t rounds = c->micro_batches / c->stages;
    const double rows = s->tokens * s->hidden * s->b, waiting = (double)rounds;
    if (c->stages == 1) return;
    put_pieces(s, BACKWARD_LOOP, "handed_on", "2 T H b", 2.0, 2.0 * rows);
    put_pieces(s, LOOPS, "micro_batches_of_ends", "M / P T H b", waiting, waiting * rows);
    if (c->stores) put(s, LOOPS, "micro_batches_between_rounds", "M T H b", (double)c->micro_batches * rows);
}

/* A scan of one turn is unrolled: the recomputation of that layer is merged with its forward pass and lives to the end. */
static void put_dense_layers(const symbols *s) {
    static const char *const attention[] = {"dense_layer_query", "dense_layer_key", "dense_layer_value",
                                            "dense_layer_context"};
    const spw_model *m = s->model;
    const double rows = s->ends * s->hidden * s->b, wide = (double)m->dense_ffn;
    const double products = s->gathers_tokens ? 1.0 : 3.0;
    if (s->dense_layers > 1.0 && s->job->remat != SPW_REMAT_INPUT_OFFLOADED)
        put(s, LOOPS, "dense_carries", "L_dense T H b", s->dense_layers * rows);
    if (s->dense_layers != 1.0) return;
    put_attention(s, LOOPS, attention, 1.0, s->ends);
    put_pieces(s, LOOPS, "dense_layer_residuals", "3 T H b", 3.0, 3.0 * rows);
    put_pieces(s, LOOPS, "dense_layer_products", products > 1.0 ? "3 T F_dense b" : "T F_dense b", products,
               products * s->ends * wide * s->b);
    put_pieces(s, LOOPS, "dense_layer_weights", "3 H F_dense w", 3.0, 3.0 * s->hidden * wide * s->used);
    put(s, LOOPS, "dense_layer_projections", "projections w", s->projections * s->used);
    put(s, LOOPS, "embedding_exchange", "T H b", rows);
    const spw_attention_widths w = spw_attention_widths_of(m);
    if (w.latents > 0)
        put(s, LOOPS, "rotary_table", "8 T heads rope / 2",
            4.0 * s->ends * (double)m->heads * (double)w.rotary_dim);
}

/* One turn of the backward loop: attention and residuals of its layers. */
static void put_turn(const symbols *s) {
    static const char *const attention[] = {"query", "key", "value", "context"};
    static const char *const gradients[] = {"d_query", "d_key", "d_value", "d_context"};
    enum { TURN = BACKWARD_LOOP | AT(FORWARD) };
    const spw_model *m = s->model;
    const double rows = s->tokens * s->hidden * s->b;
    const double layers = (double)(1 + s->shape->waiting_layers), residuals = 4.0 + 3.0 * (layers - 1.0);
    put_attention(s, TURN, attention, layers, s->tokens);
    put_attention(s, AT(ATTENTION), gradients, 1.0, s->tokens);
    const spw_attention_widths w = spw_attention_widths_of(m);
    if (w.latents > 0) {
        put(s, TURN, "low_rank_qkv", "2 T (q rank + kv rank + rope) b",
            2.0 * s->tokens * (double)(w.latent + w.apart) * s->b);
    } else if (m->qk_norm) {
        put_pieces(s, TURN, "query_before_norm", "T q b a layer", layers,
                   layers * s->tokens * s->query * s->b);
        put_pieces(s, TURN, "key_before_norm", "T k b a layer", layers, layers * s->tokens * s->key * s->b);
    }
    put(s, TURN, "gathered_projections", "projections w a layer", layers * s->projections * s->used);
    put_pieces(s, TURN, "residuals", "(4 + 3 other layers of a turn) T H b", residuals, residuals * rows);
    if (m->shared_ffn > 0) {
        put_pieces(s, TURN, "shared_expert", "2 T H b", 2.0, 2.0 * rows);
        put_pieces(s, TURN, "shared_expert_products", "2 T F_shared b", 2.0,
                   2.0 * s->tokens * (double)m->shared_ffn * s->b);
    }
    if (s->gathers_tokens)
        put_pieces(s, KEPT, "final_norm", "2 T H b", 2.0, 2.0 * s->ends * s->hidden * s->b);
}

/* Layers of a turn that mix tokens by a recurrence. */
static double state_layers(const spw_model *m, double *elements) {
    double layers = 0.0;
    *elements = 0.0;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        if (m->mixer[k].state == 0) continue;
        layers += (double)m->mixer[k].layers;
        *elements = fmax(*elements, (double)m->mixer[k].state);
    }
    return layers * (double)(m->layers_per_turn > 0 ? m->layers_per_turn : 1) / (double)m->layers;
}

/* A recurrence keeps its state, fp32, of every chunk of tokens until its backward pass. All layers of a turn run again before the first of
 * them runs backward. */
static void put_states(const symbols *s, const spw_stack *stack) {
    double elements;
    const double layers = state_layers(s->model, &elements), stacks = stack->state_stacks.value;
    put_pieces(s, BACKWARD_LOOP, "states_of_chunks", "4 T / chunk x state, of recurrent layers of a turn",
               layers * stacks,
               layers * stacks * sizeof(float) * s->tokens / stack->state_chunk_tokens.value * elements);
}

/* The backward pass of one recurrent layer, chunk by chunk: live values of Qwen3-Next, 2 sequences, JAX 0.12, where 14.8 GiB are live at the
 * loop over chunks. v values a token, h heads of them, c tokens a chunk; x + 2 y of the projection and of the convolution. */
static void put_recurrence(const symbols *s, const spw_stack *stack) {
    const double chunk = stack->state_chunk_tokens.value, single = sizeof(float) * s->tokens;
    const spw_mixer *widest = NULL;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer *m = &s->model->mixer[k];
        if (m->state > 0 && m->layers > 0 && (widest == NULL || m->out_of > widest->out_of)) widest = m;
    }
    if (widest == NULL) return;
    const double values = (double)widest->out_of, heads = (double)widest->value_heads;
    const double projected = (double)widest->into - 2.0 * heads;
    put_pieces(s, AT(ATTENTION), "chunk_rows", "4 T v", 16.0, 16.0 * single * values);
    put_pieces(s, AT(ATTENTION), "chunk_pairs", "4 T c h", 8.0, 8.0 * single * chunk * heads);
    put(s, AT(ATTENTION), "gradient_of_states", "4 T / c x state", single / chunk * (double)widest->state);
    put_pieces(s, AT(ATTENTION), "recurrent_rows", "T v b", 9.0, 9.0 * s->tokens * values * s->b);
    put(s, AT(ATTENTION), "recurrent_projection", "T (x + 2 y) b",
        s->tokens * (projected + 2.0 * fmax(0.0, projected - values)) * s->b);
}

/* Qwen3-Next's layer with attention runs in a loop of one turn behind those without: what it gathers in the forward pass is kept of every
 * period for the backward pass, which does not gather it again. */
static void put_periods(const symbols *s, const spw_remat_tree *tree) {
    double elements;
    const spw_model *m = s->model;
    const double recurrent = state_layers(m, &elements) * (double)m->layers; /* of a turn of one layer */
    const double gathered =
        3.0 * (double)s->shape->experts_per_rank * s->hidden * (double)m->expert_ffn * s->b;
    if (recurrent <= 0.0 || !spw_remat_scans_alone(tree, m)) return;
    put(s, KEPT, "gathered_weights_of_periods", "3 e H F w a layer with attention",
        ((double)m->layers - recurrent) * gathered);
}

/* The head's weight gradient may be made before the backward loop or behind it: then the logits live through the loop in its place. Behind
 * ragged all-to-alls the smaller of the two lives in every program, and by XLA of JAX 0.11 on neither, but for the logits of a model with
 * recurrent layers. Elsewhere the logits stay where
 * MaxText's layers are not one uniform scan, and the gradient where they are. Exceptions were seen with logits of at most logits_kept
 * bytes alone, both ways: the interval holds both there. */
static void put_head(const symbols *s, spw_flavour flavour, double logits_kept) {
    const double vocab = (double)s->model->vocab;
    const double logits = s->ends * vocab * s->b, gradient = s->hidden * vocab * s->made;
    const bool ragged = !s->gathers_tokens, apart = flavour == SPW_FLAVOUR_XLA_APART;
    double elements;
    const bool recurrent = apart && state_layers(s->model, &elements) > 0.0;
    const bool is_logits =
        ragged ? recurrent || (!apart && logits < gradient) : !spw_compiled_is_uniform(s->model);
    spw_step_list *out = s->out;
    out->head_bytes = ragged && apart && !recurrent ? 0.0 : is_logits ? logits : gradient;
    out->head_least_bytes = out->head_most_bytes = out->head_bytes;
    if (ragged && recurrent) out->head_least_bytes = 0.0; /* of one program */
    if (!ragged && logits <= logits_kept) {
        out->head_least_bytes = is_logits ? fmin(logits, gradient) : gradient;
        out->head_most_bytes = fmax(out->head_bytes, logits);
    }
    put(s, BACKWARD_LOOP | AT(RELAY), is_logits ? "logits" : "head_gradient", is_logits ? "T V b" : "H V g",
        out->head_bytes);
    put(s, AT(HEAD), "logits_of_head", "T V b", logits);
    if (flavour == SPW_FLAVOUR_XLA_HIDING) put(s, AT(HEAD), "d_logits", "T V b", logits);
    put(s, AT(HEAD) | AT(UPDATE), "whole_head_gradient", "H V g", gradient);
}

/* What a policy keeps of the attention and of the other FFNs, of `layers` layers: a stack a name. */
static void put_saved_layers(const symbols *s, const char *const name[6], double tokens, double wide) {
    const spw_remat_names names = spw_remat_keeps(s->job->remat);
    const double token = tokens * s->b;
    if (names.qkv) put(s, KEPT, name[0], "L T q b", token * s->query);
    if (names.qkv) put(s, KEPT, name[1], "L T k b", token * s->key);
    if (names.qkv) put(s, KEPT, name[2], "L T v b", token * s->value);
    if (names.out) put(s, KEPT, name[3], "L T H b", token * s->hidden);
    if (names.context) put(s, KEPT, name[4], "L T context b", token * s->context);
    if (names.wi) put_pieces(s, KEPT, name[5], "2 L T F b", 2.0, 2.0 * token * wide);
}

/* What a remat policy keeps of every layer, by the checkpoint names of the tree. */
static void put_saved(const symbols *s, const spw_scheme *scheme, const spw_remat_tree *tree) {
    static const char *const moe[] = {"saved_query",    "saved_key",     "saved_value",
                                      "saved_out_proj", "saved_context", "saved_shared_products"};
    static const char *const dense[] = {"saved_dense_query",   "saved_dense_key",
                                        "saved_dense_value",   "saved_dense_out_proj",
                                        "saved_dense_context", "saved_dense_products"};
    const spw_compiled_layer *program = spw_scheme_program(scheme);
    const spw_remat_expert_tensors kept = spw_remat_experts(tree, program->capacity_slots, s->job->remat);
    const double layers = s->runs + s->outside * s->ends / s->tokens; /* of T tokens */
    const double rows = (double)scheme->type->memory.buffer_rows(scheme, s->shape) * layers * s->b;
    put_saved_layers(s, moe, layers * s->tokens, (double)s->model->shared_ffn);
    put_saved_layers(s, dense, s->dense_layers * s->ends, (double)s->model->dense_ffn);
    put_pieces(s, KEPT, "saved_mlpwi", "mlpwi's L rows F b", kept.ffn,
               kept.ffn * rows * (double)s->model->expert_ffn);
    put(s, KEPT, "saved_mlpwo", "L rows H b", kept.hidden * rows * s->hidden);
    if (program->all_experts)
        put(s, AT(RELAY), "saved_mlpwo_relaid", "L rows H b", kept.hidden * rows * s->hidden);
}

/* What every turn of the scans keeps: its input. A pipeline keeps one a layer of every turn. */
static void put_carries(const symbols *s) {
    const double unlike = (double)(s->model->layers_per_turn > 0 ? s->model->layers_per_turn : 1);
    const double rows = s->hidden * s->b;
    if (s->job->remat == SPW_REMAT_INPUT_OFFLOADED && s->cut->stages == 1) {
        put(s, LOOPS, "input_on_its_way", "T H b", s->tokens * rows); /* to the host or from it */
        return;
    }
    if (s->cut->stages == 1) {
        put(s, LOOPS, "carries", "turns T H b", s->runs / unlike * s->tokens * rows);
        return;
    }
    put_pieces(s, LOOPS, "iteration_inputs", "n (M V + P - 1) T H b", (double)s->cut->layers,
               s->runs * s->tokens * rows);
    put(s, LOOPS, "outside_carries", "L_outside T H b", s->outside / unlike * s->ends * rows);
}

/* The arena of ragged all-to-alls (memory space 7) lives all the step, beside the default one: the tokens as they are received and
 * as they are sorted by expert, and both exchanges' buffers of assignments, of every other layer of a turn as well. In turns of three MoE
 * layers and more the buffers that the layers receive into lie in the default arena beside it, one each, all the step: Llama 4 Scout and
 * Qwen3.5. */
static void put_exchange_arena(const symbols *s, const spw_scheme *scheme) {
    enum { ALWAYS = (1U << SPW_STEP_MOMENTS) - 1 };
    const double buffers = s->shape->waiting_layers > 0 ? 4.0 : 2.0;
    const double rows = (double)scheme->type->memory.buffer_rows(scheme, s->shape) * s->hidden * s->b;
    const double assignments = (double)s->shape->assignments * s->hidden * s->b;
    const double layers = (double)(1 + s->shape->waiting_layers);
    if (s->gathers_tokens) return;
    if (layers > 2.0)
        put_pieces(s, ALWAYS, "receive_buffers", "[W, H] b a layer of the turn", layers, layers * rows);
    put_pieces(s, ALWAYS, "exchange_arena_rows", "2 [W, H] b", 2.0, 2.0 * rows);
    put_pieces(s, ALWAYS, "exchange_arena_assignments",
               buffers > 2.0 ? "4 [N, H] b, several layers a turn" : "2 [N, H] b", buffers,
               buffers * assignments);
}

void spw_step_list_fill(const spw_step_program *p, spw_step_list *out) {
    memset(out, 0, sizeof *out);
    const symbols s = measure(p->job, p->scheme, p->cut, p->shape, out);
    put_carries(&s);
    put_all_stacks(&s);
    put_pipeline(&s);
    put_dense_layers(&s);
    put_turn(&s);
    put_states(&s, p->stack);
    put_recurrence(&s, p->stack);
    put_periods(&s, p->tree);
    put_head(&s, p->flavour, p->stack->logits_kept_bytes.value);
    put_saved(&s, p->scheme, p->tree);
    if (p->flavour == SPW_FLAVOUR_XLA_APART) put_exchange_arena(&s, p->scheme);
}

double spw_step_list_sum(const spw_step_list *list, spw_step_moment moment) {
    double sum = 0.0;
    for (size_t i = 0; i < list->tensors; i++) {
        if ((list->tensor[i].when >> moment & 1U) != 0) sum += list->tensor[i].bytes;
    }
    return sum;
}
