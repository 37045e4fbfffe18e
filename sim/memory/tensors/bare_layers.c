#include "sim/memory/tensors/bare_layers.h"

#include "base/memory.h"
#include "sim/machine/stack_defaults.h"
#include "sim/memory/tensors/bare_tensors.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/scheme.h"

#include <stdio.h>

enum { MOST = 1 << 24 };
#define NO_SLOT UINT32_MAX

/* Tensors of the layers around their experts, and of the process. */
typedef enum own_tensor {
    NORM_WEIGHT,
    ROUTER_WEIGHT,
    FC1_WEIGHT,
    FC2_WEIGHT,
    INITIAL_WEIGHT,
    DENSE_GRAD,
    EXPERT_GRAD,
    INPUT,
    D_OUTPUT,
    EXPERT_IDS,
    WORKSPACE,
    OTHER_WORKSPACE,
    SCALAR,
    LAYER_OUTPUT,
    NORM,
    NORM_RSTD,
    D_LAYER_OUTPUT,
    D_NORM_INPUT,
    OWN_TENSORS
} own_tensor;
static const char *const own_names[OWN_TENSORS] = {
    "norm_weight", "router_weight", "fc1_weight", "fc2_weight", "initial_weight", "dense_grad",
    "expert_grad", "input",         "d_output",   "expert_ids", "workspace",      "other_workspace",
    "scalar",      "layer_output",  "norm",       "norm_rstd",  "d_layer_output", "d_norm_input"};

typedef struct live_tensor {
    uint64_t bytes;
    uint32_t slot;
} live_tensor;

/* A tensor of a layer, or of the process where the layer is `layers`; `piece` 0 is the whole, or the expert. */
typedef struct place {
    size_t tensor, layer, piece;
} place;

struct spw_bare_layers {
    spw_megatron_shape shape;
    spw_layer layer;                   /* of megatron-alltoall, as PyTorch's allocator sees it */
    size_t begin[SPW_PHASE_COUNT + 1]; /* events of a pass */
    size_t output, d_input;            /* what a layer hands on: who takes it frees it */
    size_t tensors;    /* OWN_TENSORS, those of the layer, and those of the layer that an attribute keeps */
    uint16_t *kind;    /* [tensors] */
    size_t *first;     /* [tensors + 1] cell of a tensor's first piece in its layer */
    live_tensor *live; /* [layers + 1][first[tensors]] */
    uint32_t *spare;   /* slots that are free */
    size_t spares, slots;
    uint64_t *bytes; /* [layer.tensors] of the layer under way */
    /* Of the list under way. */
    spw_event_list *list;
    spw_status status;         /* the first failure; events after it are left out */
    const uint64_t *of_expert; /* [layers][experts_per_rank] of a sequential step */
    bool backward;
};

static spw_status check_shape(const spw_megatron_shape *shape) {
    const size_t figure[] = {shape->layers,           shape->tokens, shape->top_k, shape->experts,
                             shape->experts_per_rank, shape->hidden, shape->ffn};
    for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
        if (figure[i] == 0 || figure[i] > MOST)
            return spw_fail(SPW_EARG,
                            "%zu bare layers of %zu tokens, %zu of %zu experts, hidden %zu, ffn %zu: "
                            "all between 1 and %d",
                            shape->layers, shape->tokens, shape->top_k, shape->experts, shape->hidden,
                            shape->ffn, (int)MOST);
    }
    if (shape->layers > UINT16_MAX / 2)
        return spw_fail(SPW_EARG, "%zu layers: at most %d", shape->layers, UINT16_MAX / 2);
    const double weights = 12.0 * (double)shape->layers * (double)shape->experts_per_rank *
                           (double)shape->hidden * (double)shape->ffn,
                 routing = 8.0 * (double)shape->layers * (double)shape->tokens *
                           ((double)shape->experts + (double)shape->top_k + (double)shape->hidden);
    if (weights > 1e17 || routing > 1e17) return spw_fail(SPW_EARG, "bare layers of more than 10^17 bytes");
    if (shape->sequential && shape->recompute == SPW_RECOMPUTE_MOE_ACT)
        return spw_fail(SPW_EARG, "moe_act recompute is for grouped experts");
    if (shape->sequential && shape->experts_per_rank > SPW_MEGATRON_SEQUENTIAL_EXPERTS)
        return spw_fail(SPW_EARG, "%zu sequential experts on a rank: at most %d", shape->experts_per_rank,
                        (int)SPW_MEGATRON_SEQUENTIAL_EXPERTS);
    if (shape->padded && shape->capacity == 0) return spw_fail(SPW_EARG, "padding needs a capacity");
    return SPW_OK;
}

/* --- The layer --- */

/* The scheme whose layers these are. Half a slot less than `capacity` rounds up to it, whatever its factor rounds to. */
static spw_status scheme_of(const spw_megatron_shape *shape, spw_scheme *out) {
    char text[SPW_SCHEME_TEXT];
    const double balanced = (double)(shape->tokens * shape->top_k) / (double)shape->experts;
    if (shape->capacity == 0) return spw_scheme_parse("megatron-alltoall", out);
    (void)snprintf(text, sizeof text, "megatron-alltoall:capacity_factor=%.17g,pad=%s",
                   ((double)shape->capacity - 0.5) / balanced, shape->padded ? "true" : "false");
    return spw_scheme_parse(text, out);
}

static spw_status build_layer(spw_bare_layers *s) {
    static const spw_remat remats[] = {[SPW_RECOMPUTE_NONE] = SPW_REMAT_NONE,
                                       [SPW_RECOMPUTE_MOE_ACT] = SPW_REMAT_MOE_ACT,
                                       [SPW_RECOMPUTE_MOE] = SPW_REMAT_MOE};
    const spw_megatron_shape *m = &s->shape;
    const size_t sharers = m->expert_tensor > 0 ? m->expert_tensor : 1;
    const spw_layer_shape shape = {.ranks = m->experts / m->experts_per_rank * sharers,
                                   .expert_tensor = sharers,
                                   .experts = m->experts,
                                   .experts_per_rank = m->experts_per_rank,
                                   .top_k = m->top_k,
                                   .hidden = m->hidden,
                                   .ffn = m->ffn,
                                   .sequences = 1,
                                   .sequence_length = m->tokens,
                                   .tokens = m->tokens,
                                   .assignments = m->tokens * m->top_k,
                                   .element_bytes = 2,
                                   .sequential_experts = m->sequential,
                                   .remat = remats[m->recompute]};
    spw_scheme scheme;
    spw_status status = scheme_of(m, &scheme);
    if (status == SPW_OK) status = spw_layer_build(&scheme, &shape, SPW_FLAVOUR_TORCH, &s->layer);
    if (status != SPW_OK) return status;
    s->output = OWN_TENSORS + spw_layer_find(&s->layer, "output");
    s->d_input = OWN_TENSORS + spw_layer_find(&s->layer, "dx");
    for (size_t i = 0; i < s->layer.events; i++) s->begin[s->layer.event[i].phase + 1] = i + 1;
    return SPW_OK;
}

/* Cells of a layer: a tensor that single experts have takes one for each of them beside its own. */
static void place_tensors(spw_bare_layers *s) {
    const size_t pieces = s->shape.sequential ? 1 + s->shape.experts_per_rank : 1;
    for (size_t t = 0; t < s->tensors; t++) s->first[t + 1] = 1;
    s->first[FC1_WEIGHT + 1] = s->first[FC2_WEIGHT + 1] = pieces;
    for (size_t i = 0; i < s->layer.events; i++) {
        const spw_event *event = &s->layer.event[i];
        if (event->expert > 0) s->first[OWN_TENSORS + event->tensor + 1] = pieces;
    }
    for (size_t t = 0; t < s->tensors; t++) s->first[t + 1] += s->first[t];
}

static spw_status name_kinds(spw_bare_layers *s) {
    spw_status status = SPW_OK;
    for (size_t t = 0; t < OWN_TENSORS && status == SPW_OK; t++)
        status = spw_bare_kind_of(own_names[t], &s->kind[t]);
    for (size_t t = 0; t < s->layer.tensors && status == SPW_OK; t++) {
        uint16_t *kind = &s->kind[OWN_TENSORS + t];
        status = spw_bare_kind_of(s->layer.tensor[t].name, kind);
        kind[s->layer.tensors] = *kind;
    }
    return status;
}

spw_status spw_bare_layers_create(const spw_megatron_shape *shape, spw_bare_layers **out) {
    spw_bare_layers *s = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(check_shape(shape));
    SPW_TRY(SPW_ALLOC(1, &s));
    s->shape = *shape;
    SPW_TRY(build_layer(s));
    s->tensors = OWN_TENSORS + 2 * s->layer.tensors;
    SPW_TRY(SPW_ALLOC(s->layer.tensors, &s->bytes));
    SPW_TRY(SPW_ALLOC(s->tensors, &s->kind));
    SPW_TRY(SPW_ALLOC(s->tensors + 1, &s->first));
    SPW_TRY(name_kinds(s));
    place_tensors(s);
    s->slots = s->first[s->tensors] * (shape->layers + 1);
    SPW_TRY(SPW_ALLOC(s->slots, &s->live));
    SPW_TRY(SPW_ALLOC(s->slots, &s->spare));
    for (size_t i = 0; i < s->slots; i++) {
        s->live[i].slot = NO_SLOT;
        s->spare[s->spares++] = (uint32_t)(s->slots - 1 - i);
    }
    *out = s;
    s = NULL;

cleanup:
    spw_bare_layers_destroy(s);
    return status;
}

void spw_bare_layers_destroy(spw_bare_layers *s) {
    if (s == NULL) return;
    spw_layer_destroy(&s->layer);
    spw_free(s->bytes);
    spw_free(s->kind);
    spw_free(s->first);
    spw_free(s->live);
    spw_free(s->spare);
    spw_free(s);
}

size_t spw_bare_layers_slots(const spw_bare_layers *s) { return s->slots; }

/* --- Events --- */

static live_tensor *tensor_at(spw_bare_layers *s, place at) {
    return &s->live[at.layer * s->first[s->tensors] + s->first[at.tensor] + at.piece];
}

static void say(spw_bare_layers *s, place at, live_tensor tensor, bool born) {
    if (s->status != SPW_OK) return;
    s->status = spw_event_list_append(s->list, (spw_memory_event){.bytes = tensor.bytes,
                                                                  .slot = tensor.slot,
                                                                  .kind = s->kind[at.tensor],
                                                                  .layer = (uint16_t)at.layer,
                                                                  .born = born,
                                                                  .backward = s->backward});
}

static void born_at(spw_bare_layers *s, place at, uint64_t bytes) {
    live_tensor *t = tensor_at(s, at);
    *t = (live_tensor){bytes, s->spare[--s->spares]};
    say(s, at, *t, true);
}

/* What is not there changes nothing: the first step has nothing to replace. */
static void die_at(spw_bare_layers *s, place at) {
    live_tensor *t = tensor_at(s, at);
    if (t->slot == NO_SLOT) return;
    say(s, at, *t, false);
    s->spare[s->spares++] = t->slot;
    t->slot = NO_SLOT;
}

static void born(spw_bare_layers *s, own_tensor tensor, size_t layer, uint64_t bytes) {
    born_at(s, (place){tensor, layer, 0}, bytes);
}

static void die(spw_bare_layers *s, size_t tensor, size_t layer) { die_at(s, (place){tensor, layer, 0}); }

/* An attribute gets a new tensor: the old one dies. */
static void keep(spw_bare_layers *s, place at) {
    const place attribute = {at.tensor + s->layer.tensors, at.layer, at.piece};
    live_tensor *t = tensor_at(s, at);
    die_at(s, attribute);
    *tensor_at(s, attribute) = *t;
    t->slot = NO_SLOT;
}

/* In which order a process sets itself up is assumed; of the orders tried, this one puts the most measured runs within
 * 1 MB. It moves allocated bytes by at most 1 MB and reserved bytes by about 0.6 %. */
spw_status spw_bare_layers_begin(spw_bare_layers *s, spw_event_list *list) {
    const spw_megatron_shape *m = &s->shape;
    const uint64_t H = m->hidden, F = m->ffn, E = m->experts, e = m->experts_per_rank, L = m->layers,
                   TH = m->tokens * H;
    const size_t process = m->layers;
    spw_event_list_clear(list);
    s->list = list;
    s->status = SPW_OK;
    const uint64_t workspace =
        (uint64_t)spw_default_workspace_hopper_bytes.value; /* as on the GPUs that were measured */
    s->backward = false;
    born(s, INITIAL_WEIGHT, process, 12 * H * F);
    die(s, INITIAL_WEIGHT, process);
    for (size_t l = 0; l < m->layers; l++) {
        born(s, NORM_WEIGHT, l, 2 * H);
        born(s, ROUTER_WEIGHT, l, 2 * H * E);
        for (size_t x = 1; x <= e && m->sequential; x++) {
            born_at(s, (place){FC1_WEIGHT, l, x}, 4 * H * F);
            born_at(s, (place){FC2_WEIGHT, l, x}, 2 * H * F);
        }
        if (m->sequential) continue;
        born(s, FC1_WEIGHT, l, 4 * e * H * F);
        born(s, FC2_WEIGHT, l, 2 * e * H * F);
    }
    born(s, WORKSPACE, process, workspace);
    born(s, OTHER_WORKSPACE, process, workspace);
    born(s, SCALAR, process, 1);
    born(s, DENSE_GRAD, process, 4 * L * (H + H * E));
    born(s, EXPERT_GRAD, process, 12 * L * e * H * F);
    born(s, EXPERT_IDS, process, 8 * L * m->tokens * m->top_k);
    born(s, INPUT, process, 2 * TH);
    born(s, D_OUTPUT, process, 2 * TH);
    return s->status;
}

/* --- A step --- */

static uint64_t bytes_of(const spw_bare_layers *s, size_t layer, const spw_event *event) {
    const spw_layer_tensor *t = &s->layer.tensor[event->tensor];
    if (event->expert == 0) return s->bytes[event->tensor];
    return spw_layer_row_bytes(t, s->of_expert[layer * s->shape.experts_per_rank + event->expert - 1]);
}

/* One pass of one layer of experts. */
static void run(spw_bare_layers *s, size_t layer, spw_phase phase, const spw_megatron_rows *of) {
    const uint64_t *held = of->held != NULL ? of->held : of->received;
    const spw_rank_rows rows = {held[layer], of->received[layer], of->sent[layer]};
    for (size_t t = 0; t < s->layer.tensors; t++) s->bytes[t] = spw_layer_bytes(&s->layer.tensor[t], &rows);
    for (size_t i = s->begin[phase]; i < s->begin[phase + 1]; i++) {
        const spw_event *event = &s->layer.event[i];
        const place at = {OWN_TENSORS + event->tensor, layer, event->expert};
        const bool handed_on = at.tensor == s->output || at.tensor == s->d_input;
        if (event->sign > 0) {
            born_at(s, at, bytes_of(s, layer, event));
        } else if (event->sign == 0) {
            keep(s, at);
        } else if (!handed_on) {
            die_at(s, at);
        }
    }
}

/* The first pass of a layer that is recomputed saves nothing; any other leaves what the backward pass needs. */
static void forward(spw_bare_layers *s, const spw_megatron_rows *rows) {
    const size_t layers = s->shape.layers;
    const uint64_t T = s->shape.tokens, H = s->shape.hidden;
    const bool again = s->shape.recompute == SPW_RECOMPUTE_MOE;
    for (size_t l = 0; l < layers && again; l++) { /* what the last step's checkpoints still hold */
        die(s, NORM, l);
        die(s, LAYER_OUTPUT, l);
    }
    for (size_t l = 0; l < layers; l++) {
        born(s, NORM, l, 2 * T * H);
        born(s, NORM_RSTD, l, 4 * T);
        run(s, l, again ? SPW_PHASE_FORWARD : SPW_PHASE_RECOMPUTE, rows);
        born(s, LAYER_OUTPUT, l, 2 * T * H);
        die(s, s->output, l);
    }
}

static void backward(spw_bare_layers *s, const spw_megatron_rows *rows) {
    const uint64_t TH = s->shape.tokens * s->shape.hidden;
    const bool again = s->shape.recompute == SPW_RECOMPUTE_MOE;
    s->backward = true;
    for (size_t l = s->shape.layers; l-- > 0;) {
        if (again) run(s, l, SPW_PHASE_RECOMPUTE, rows);
        run(s, l, SPW_PHASE_BACKWARD, rows);
        die(s, s->output, l);
        born(s, D_NORM_INPUT, l, 2 * TH);
        die(s, s->d_input, l);
        if (!again) die(s, NORM, l);
        die(s, NORM_RSTD, l);
        born(s, D_LAYER_OUTPUT, l, 2 * TH);
        die(s, D_NORM_INPUT, l);
        die(s, D_LAYER_OUTPUT, l + 1);
        if (!again) die(s, LAYER_OUTPUT, l);
    }
    die(s, D_LAYER_OUTPUT, 0);
}

static spw_status check_rows(const spw_megatron_shape *shape, const spw_megatron_rows *rows) {
    if (shape->sequential && rows->of_expert == NULL)
        return spw_fail(SPW_EARG, "sequential experts need the rows of every expert");
    for (size_t l = 0; l < shape->layers; l++) {
        uint64_t sum = 0;
        for (size_t x = 0; shape->sequential && x < shape->experts_per_rank; x++)
            sum += rows->of_expert[l * shape->experts_per_rank + x];
        if (rows->received[l] >> 32 != 0 || rows->sent[l] >> 32 != 0)
            return spw_fail(SPW_EARG, "layer %zu: more than 2^32 rows", l);
        if (shape->sequential && sum != rows->received[l])
            return spw_fail(SPW_EARG, "layer %zu: the experts have %llu rows, the rank %llu", l,
                            (unsigned long long)sum, (unsigned long long)rows->received[l]);
    }
    return SPW_OK;
}

spw_status spw_bare_layers_step(spw_bare_layers *s, const spw_megatron_rows *rows, spw_event_list *list) {
    spw_status status = check_rows(&s->shape, rows);
    if (status != SPW_OK) return status;
    spw_event_list_clear(list);
    s->list = list;
    s->status = SPW_OK;
    s->backward = false;
    s->of_expert = rows->of_expert;
    forward(s, rows);
    backward(s, rows);
    s->of_expert = NULL;
    return s->status;
}

/* --- Closed form --- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

spw_megatron_bytes spw_megatron_closed_form(const spw_megatron_shape *shape, const uint64_t *received,
                                            const uint64_t *sent) {
    const uint64_t T = shape->tokens, K = shape->top_k, E = shape->experts, H = shape->hidden, F = shape->ffn;
    const bool act = shape->recompute == SPW_RECOMPUTE_MOE_ACT;
    spw_megatron_bytes out = {0, 0, 0, 0};
    uint64_t saved = 0;
    for (size_t l = 0; l < shape->layers; l++) {
        const uint64_t M = received[l], N = sent[l];
        saved += 2 * M * (H + (act ? 2 : 3) * F) + 4 * M + 4 * T * H + 4 * T * K + 4 * T + 128;
        saved += shape->padded ? 4 * T * E + 8 * N : 12 * T * E;
        const uint64_t rows = larger(N + 3 * M, larger(2 * N + 2 * M, 2 * N + M + T));
        out.forward_bytes = larger(out.forward_bytes, saved - 2 * T * H + 4 * M + 2 * H * rows);
        uint64_t back =
            saved + 4 * shape->experts_per_rank * F * H + 2 * H * M + (l + 1 < shape->layers ? 2 * T * H : 0);
        if (!act) back -= 2 * F * M;
        out.backward_bytes = larger(out.backward_bytes, back);
    }
    out.after_forward_bytes = saved;
    out.peak_bytes = larger(out.forward_bytes, out.backward_bytes);
    return out;
}
