#include "sim/memory/megatron_stack.h"

#include "base/memory.h"
#include "sim/memory/megatron_tensors.h"

enum { WORKSPACE_MIB = 32, MOST = 1 << 24 };
#define NO_SLOT UINT32_MAX

typedef struct live_tensor {
    uint64_t bytes;
    uint32_t slot;
} live_tensor;

struct spw_megatron_stack {
    spw_megatron_shape shape;
    live_tensor *live; /* [kinds][layers + 1][pieces] */
    size_t pieces;     /* 1, or 1 + experts_per_rank: the whole, then what belongs to one expert */
    uint32_t *spare;   /* slots that are free */
    size_t spares, slots;
    /* Of the list under way. */
    spw_event_list *list;
    spw_status status;         /* the first failure; events after it are left out */
    const uint64_t *of_expert; /* [layers][experts_per_rank] of a sequential step */
    bool backward;
    uint64_t T, K, E, e, H, F;
};

spw_status spw_megatron_stack_create(const spw_megatron_shape *shape, spw_megatron_stack **out) {
    const size_t figure[] = {shape->layers,           shape->tokens, shape->top_k, shape->experts,
                             shape->experts_per_rank, shape->hidden, shape->ffn};
    spw_megatron_stack *s = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    for (size_t i = 0; i < sizeof figure / sizeof *figure; i++) {
        if (figure[i] == 0 || figure[i] > MOST)
            return spw_fail(SPW_EARG,
                            "a stack of %zu layers, %zu tokens, %zu of %zu experts, hidden %zu, ffn %zu: "
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
    if (weights > 1e17 || routing > 1e17) return spw_fail(SPW_EARG, "a stack of more than 10^17 bytes");
    if (shape->sequential && shape->recompute == SPW_RECOMPUTE_MOE_ACT)
        return spw_fail(SPW_EARG, "moe_act recompute is for grouped experts");
    if (shape->sequential && shape->experts_per_rank > SPW_MEGATRON_SEQUENTIAL_EXPERTS)
        return spw_fail(SPW_EARG, "%zu sequential experts on a rank: at most %d", shape->experts_per_rank,
                        (int)SPW_MEGATRON_SEQUENTIAL_EXPERTS);
    if (shape->padded && shape->capacity == 0) return spw_fail(SPW_EARG, "padding needs a capacity");
    SPW_TRY(SPW_ALLOC(1, &s));
    s->shape = *shape;
    s->T = shape->tokens;
    s->K = shape->top_k;
    s->E = shape->experts;
    s->e = shape->experts_per_rank;
    s->H = shape->hidden;
    s->F = shape->ffn;
    s->pieces = shape->sequential ? 1 + shape->experts_per_rank : 1;
    s->slots = SPW_BARE_KINDS * (shape->layers + 1) * s->pieces;
    SPW_TRY(SPW_ALLOC(s->slots, &s->live));
    SPW_TRY(SPW_ALLOC(s->slots, &s->spare));
    for (size_t i = 0; i < s->slots; i++) {
        s->live[i].slot = NO_SLOT;
        s->spare[s->spares++] = (uint32_t)(s->slots - 1 - i);
    }
    *out = s;
    s = NULL;

cleanup:
    spw_megatron_stack_destroy(s);
    return status;
}

void spw_megatron_stack_destroy(spw_megatron_stack *s) {
    if (s == NULL) return;
    spw_free(s->live);
    spw_free(s->spare);
    spw_free(s);
}

size_t spw_megatron_stack_slots(const spw_megatron_stack *s) { return s->slots; }

/* --- Events. A tensor is known by its kind and layer; `layers` stands for what belongs to none. --- */

static live_tensor *piece_of(spw_megatron_stack *s, int kind, size_t layer, size_t piece) {
    return &s->live[((size_t)kind * (s->shape.layers + 1) + layer) * s->pieces + piece];
}

static live_tensor *tensor_of(spw_megatron_stack *s, int kind, size_t layer) {
    return piece_of(s, kind, layer, 0);
}

static void say(spw_megatron_stack *s, int kind, size_t layer, live_tensor tensor, bool born) {
    if (s->status != SPW_OK) return;
    s->status = spw_event_list_append(s->list, (spw_memory_event){.bytes = tensor.bytes,
                                                                  .slot = tensor.slot,
                                                                  .kind = (uint16_t)kind,
                                                                  .layer = (uint16_t)layer,
                                                                  .born = born,
                                                                  .backward = s->backward});
}

static void die_piece(spw_megatron_stack *s, int kind, size_t layer, size_t piece) {
    live_tensor *t = piece_of(s, kind, layer, piece);
    if (t->slot == NO_SLOT) return;
    say(s, kind, layer, *t, false);
    s->spare[s->spares++] = t->slot;
    t->slot = NO_SLOT;
}

static void born_piece(spw_megatron_stack *s, int kind, size_t layer, size_t piece, uint64_t bytes) {
    live_tensor *t = piece_of(s, kind, layer, piece);
    *t = (live_tensor){bytes, s->spare[--s->spares]};
    say(s, kind, layer, *t, true);
}

static void die(spw_megatron_stack *s, int kind, size_t layer) { die_piece(s, kind, layer, 0); }

static void born(spw_megatron_stack *s, int kind, size_t layer, uint64_t bytes) {
    born_piece(s, kind, layer, 0, bytes);
}

/* Those of the experts; the whole stays. */
static void die_pieces(spw_megatron_stack *s, int kind, size_t layer) {
    for (size_t x = 1; x < s->pieces; x++) die_piece(s, kind, layer, x);
}

static void pass(spw_megatron_stack *s, int kind, size_t layer, uint64_t bytes) {
    born(s, kind, layer, bytes);
    die(s, kind, layer);
}

/* An attribute gets a new tensor: the old one dies. The new one is known by the attribute from its birth on. */
static void become(spw_megatron_stack *s, int from, int to, size_t layer) {
    live_tensor *t = tensor_of(s, from, layer), *kept = tensor_of(s, to, layer);
    if (kept->slot != NO_SLOT) die(s, to, layer);
    for (size_t i = s->list->events; i-- > 0 && s->status == SPW_OK;) {
        spw_memory_event *event = &s->list->event[i];
        if (event->born && event->slot == t->slot) {
            event->kind = (uint16_t)to;
            break;
        }
    }
    *kept = *t;
    t->slot = NO_SLOT;
}

/* In which order a process sets itself up is assumed; of the orders tried, this one puts the most measured runs within
 * 1 MB. It moves allocated bytes by at most 1 MB and reserved bytes by about 0.6 %. */
spw_status spw_megatron_stack_begin(spw_megatron_stack *s, spw_event_list *list) {
    const size_t layers = s->shape.layers;
    const uint64_t H = s->H, F = s->F, E = s->E, e = s->e, L = layers;
    spw_event_list_clear(list);
    s->list = list;
    s->status = SPW_OK;
    s->backward = false;
    pass(s, SPW_BARE_INITIAL, layers, 12 * H * F);
    for (size_t l = 0; l < layers; l++) {
        born(s, SPW_BARE_NORM_WEIGHT, l, 2 * H);
        born(s, SPW_BARE_ROUTER_WEIGHT, l, 2 * H * E);
        if (s->shape.sequential) {
            for (size_t x = 1; x < s->pieces; x++) {
                born_piece(s, SPW_BARE_FC1_WEIGHT, l, x, 4 * H * F);
                born_piece(s, SPW_BARE_FC2_WEIGHT, l, x, 2 * H * F);
            }
            continue;
        }
        born(s, SPW_BARE_FC1_WEIGHT, l, 4 * e * H * F);
        born(s, SPW_BARE_FC2_WEIGHT, l, 2 * e * H * F);
    }
    born(s, SPW_BARE_WORKSPACE, 0, (uint64_t)WORKSPACE_MIB << 20);
    born(s, SPW_BARE_WORKSPACE, layers, (uint64_t)WORKSPACE_MIB << 20);
    born(s, SPW_BARE_SCALAR, layers, 1);
    born(s, SPW_BARE_DENSE_GRAD, layers, 4 * L * (H + H * E));
    born(s, SPW_BARE_EXPERT_GRAD, layers, 12 * L * e * H * F);
    born(s, SPW_BARE_CHOICES, layers, 8 * L * s->T * s->K);
    born(s, SPW_BARE_INPUT, 0, 2 * s->T * H);
    born(s, SPW_BARE_INPUT, layers, 2 * s->T * H);
    return s->status;
}

/* --- Forward --- */

static void drop_over_capacity(spw_megatron_stack *s, size_t l) {
    const uint64_t C = s->shape.capacity, TE = s->T * s->E;
    if (C == 0 || C > s->T) return;
    born(s, SPW_BARE_CAPACITY_VALUES, l, 4 * C * s->E);
    born(s, SPW_BARE_CAPACITY_VALUES, s->shape.layers, 8 * C * s->E);
    pass(s, SPW_BARE_ROUTE_TEMPORARY, l, 4 * TE);
    die(s, SPW_BARE_CAPACITY_VALUES, l);
    die(s, SPW_BARE_CAPACITY_VALUES, s->shape.layers);
}

static void route(spw_megatron_stack *s, size_t l) {
    const uint64_t TE = s->T * s->E, TK = s->T * s->K;
    const size_t other = s->shape.layers; /* a second temporary of the same kind */
    born(s, SPW_BARE_NORM_FP32, l, 4 * s->T * s->H);
    born(s, SPW_BARE_LOGITS, l, 4 * TE);
    die(s, SPW_BARE_NORM_FP32, l);
    born(s, SPW_BARE_SCORES, l, 4 * TK);
    born(s, SPW_BARE_CHOSEN_PROBS, l, 4 * TK);
    born(s, SPW_BARE_ROUTE_TEMPORARY, l, 4 * TE);
    born(s, SPW_BARE_PROBS_NEW, l, 4 * TE);
    die(s, SPW_BARE_ROUTE_TEMPORARY, l);
    born(s, SPW_BARE_ROUTE_TEMPORARY, l, 4 * TE);
    born(s, SPW_BARE_ROUTE_TEMPORARY, other, 4 * TE);
    die(s, SPW_BARE_ROUTE_TEMPORARY, l);
    born(s, SPW_BARE_ROUTE_TEMPORARY, l, 4 * TE);
    die(s, SPW_BARE_ROUTE_TEMPORARY, other);
    born(s, SPW_BARE_MAP_NEW, l, TE);
    die(s, SPW_BARE_ROUTE_TEMPORARY, l);
    die(s, SPW_BARE_SCORES, l);
    drop_over_capacity(s, l);
    become(s, SPW_BARE_PROBS_NEW, SPW_BARE_PROBS_KEPT, l);
    become(s, SPW_BARE_MAP_NEW, SPW_BARE_MAP_KEPT, l);
    born(s, SPW_BARE_SPLITS, l, 64);
    born(s, SPW_BARE_COUNTS, l, 64);
}

static void permute(spw_megatron_stack *s, size_t l, uint64_t N) {
    const uint64_t TE = s->T * s->E;
    const size_t other = s->shape.layers;
    born(s, SPW_BARE_MAP_COLUMNS, l, TE);
    born(s, SPW_BARE_SORTED, l, 8 * TE);
    born(s, SPW_BARE_SORT_TEMPORARY, l, TE);
    pass(s, SPW_BARE_SORT_TEMPORARY, other, 8 * TE);
    die(s, SPW_BARE_SORT_TEMPORARY, l);
    born(s, SPW_BARE_MAPPING_NEW, l, 8 * N);
    if (s->shape.padded) die(s, SPW_BARE_SORTED, l);
    born(s, SPW_BARE_PROB_COLUMNS, l, 4 * TE);
    if (s->shape.padded) born(s, SPW_BARE_PROB_INDEX, l, 8 * N);
    born(s, SPW_BARE_SENT_PROBS, l, 4 * N);
    die(s, SPW_BARE_PROB_COLUMNS, l);
    born(s, SPW_BARE_SENT, l, 2 * N * s->H);
    die(s, SPW_BARE_MAP_COLUMNS, l);
    become(s, SPW_BARE_MAPPING_NEW, SPW_BARE_MAPPING_KEPT, l);
}

static void grouped_experts(spw_megatron_stack *s, size_t l, uint64_t M, bool saving) {
    born(s, SPW_BARE_FC1_OUTPUT, l, 4 * M * s->F);
    born(s, SPW_BARE_FC2_INPUT, l, 2 * M * s->F);
    born(s, SPW_BARE_FC2_OUTPUT, l, 2 * M * s->H);
    if (s->shape.recompute == SPW_RECOMPUTE_MOE_ACT || !saving) die(s, SPW_BARE_FC2_INPUT, l);
    if (!saving) die(s, SPW_BARE_FC1_OUTPUT, l);
}

/* One expert after the other; their outputs wait in a list until all are joined. */
static void sequential_experts(spw_megatron_stack *s, size_t l, uint64_t M, bool saving) {
    const uint64_t *rows = s->of_expert + l * s->e;
    for (size_t x = 1; x < s->pieces; x++) {
        born_piece(s, SPW_BARE_FC1_OUTPUT, l, x, 4 * rows[x - 1] * s->F);
        born_piece(s, SPW_BARE_FC2_INPUT, l, x, 2 * rows[x - 1] * s->F);
        if (!saving) die_piece(s, SPW_BARE_FC1_OUTPUT, l, x);
        born_piece(s, SPW_BARE_FC2_OUTPUT, l, x, 2 * rows[x - 1] * s->H);
        if (!saving) die_piece(s, SPW_BARE_FC2_INPUT, l, x);
    }
    born(s, SPW_BARE_FC2_OUTPUT, l, 2 * M * s->H);
    die_pieces(s, SPW_BARE_FC2_OUTPUT, l);
}

/* Without `saving` (the first pass of a layer that is recomputed) a tensor dies when its last name does. */
static void experts(spw_megatron_stack *s, size_t l, uint64_t M, uint64_t N, bool saving) {
    const uint64_t H = s->H;
    born(s, SPW_BARE_RECEIVED, l, 2 * M * H);
    born(s, SPW_BARE_RECEIVED_PROBS, l, 4 * M);
    die(s, SPW_BARE_SENT_PROBS, l);
    born(s, SPW_BARE_FC1_INPUT, l, 2 * M * H);
    born(s, SPW_BARE_ROW_PROBS, l, 4 * M);
    if (s->shape.sequential) {
        sequential_experts(s, l, M, saving);
    } else {
        grouped_experts(s, l, M, saving);
    }
    born(s, SPW_BARE_UNSORTED, l, 2 * M * H);
    die(s, SPW_BARE_FC2_OUTPUT, l);
    if (!saving) {
        die(s, SPW_BARE_FC1_INPUT, l);
        die(s, SPW_BARE_ROW_PROBS, l);
    }
    born(s, SPW_BARE_COMBINED, l, 2 * N * H);
    die(s, SPW_BARE_UNSORTED, l);
    born(s, SPW_BARE_MOE_OUTPUT, l, 2 * s->T * H);
    die(s, SPW_BARE_COMBINED, l);
    die(s, SPW_BARE_SENT, l);
    die(s, SPW_BARE_RECEIVED, l);
    die(s, SPW_BARE_RECEIVED_PROBS, l);
}

static void free_routing(spw_megatron_stack *s, size_t l) {
    die(s, SPW_BARE_SORTED, l);
    die(s, SPW_BARE_PROB_INDEX, l);
    die(s, SPW_BARE_LOGITS, l);
    die(s, SPW_BARE_CHOSEN_PROBS, l);
    die(s, SPW_BARE_SPLITS, l);
    die(s, SPW_BARE_COUNTS, l);
}

static void moe_layer(spw_megatron_stack *s, size_t l, uint64_t M, uint64_t N, bool saving) {
    route(s, l);
    permute(s, l, N);
    experts(s, l, M, N, saving);
    if (!saving) free_routing(s, l);
}

static void forward(spw_megatron_stack *s, const uint64_t *received, const uint64_t *sent) {
    const bool saving = s->shape.recompute != SPW_RECOMPUTE_MOE;
    for (size_t l = 0; l < s->shape.layers && !saving;
         l++) { /* what the last step's checkpoints still hold */
        die(s, SPW_BARE_NORM, l);
        die(s, SPW_BARE_LAYER_OUTPUT, l);
    }
    for (size_t l = 0; l < s->shape.layers; l++) {
        born(s, SPW_BARE_NORM, l, 2 * s->T * s->H);
        born(s, SPW_BARE_NORM_RSTD, l, 4 * s->T);
        moe_layer(s, l, received[l], sent[l], saving);
        born(s, SPW_BARE_LAYER_OUTPUT, l, 2 * s->T * s->H);
        die(s, SPW_BARE_MOE_OUTPUT, l);
    }
}

/* --- Backward --- */

static void grouped_experts_backward(spw_megatron_stack *s, size_t l, uint64_t M) {
    const uint64_t H = s->H, F = s->F, e = s->e;
    if (s->shape.recompute == SPW_RECOMPUTE_MOE_ACT) born(s, SPW_BARE_FC2_INPUT, l, 2 * M * F);
    born(s, SPW_BARE_D_FC2_INPUT, l, 2 * M * F);
    born(s, SPW_BARE_D_FC2_WEIGHT, l, 2 * e * F * H);
    die(s, SPW_BARE_FC2_INPUT, l);
    die(s, SPW_BARE_D_FC2_OUTPUT, l);
    die(s, SPW_BARE_D_FC2_WEIGHT, l);
    born(s, SPW_BARE_D_FC1_OUTPUT, l, 4 * M * F);
    born(s, SPW_BARE_D_PROBS, l, 4 * M);
    die(s, SPW_BARE_FC1_OUTPUT, l);
    die(s, SPW_BARE_D_FC2_INPUT, l);
    die(s, SPW_BARE_ROW_PROBS, l);
    born(s, SPW_BARE_D_FC1_INPUT, l, 2 * M * H);
    born(s, SPW_BARE_D_FC1_WEIGHT, l, 4 * e * F * H);
    die(s, SPW_BARE_D_FC1_OUTPUT, l);
    die(s, SPW_BARE_FC1_INPUT, l);
    die(s, SPW_BARE_D_FC1_WEIGHT, l);
}

/* Last expert first. All of them share the storage of the fc1 input and of the gradient of the fc2 output. */
static void sequential_experts_backward(spw_megatron_stack *s, size_t l, uint64_t M) {
    const uint64_t H = s->H, F = s->F, *rows = s->of_expert + l * s->e;
    for (size_t x = s->pieces - 1; x > 0; x--) {
        const uint64_t m = rows[x - 1];
        born_piece(s, SPW_BARE_D_FC2_INPUT, l, x, 2 * m * F);
        born_piece(s, SPW_BARE_D_FC2_WEIGHT, l, x, 2 * F * H);
        die_piece(s, SPW_BARE_FC2_INPUT, l, x);
        if (x == 1) die(s, SPW_BARE_D_FC2_OUTPUT, l);
        die_piece(s, SPW_BARE_D_FC2_WEIGHT, l, x);
        born_piece(s, SPW_BARE_D_FC1_OUTPUT, l, x, 4 * m * F);
        born_piece(s, SPW_BARE_D_PROBS, l, x, 4 * m);
        die_piece(s, SPW_BARE_FC1_OUTPUT, l, x);
        die_piece(s, SPW_BARE_D_FC2_INPUT, l, x);
        born_piece(s, SPW_BARE_D_FC1_INPUT, l, x, 2 * m * H);
        born_piece(s, SPW_BARE_D_FC1_WEIGHT, l, x, 4 * F * H);
        die_piece(s, SPW_BARE_D_FC1_OUTPUT, l, x);
        if (x == 1) die(s, SPW_BARE_FC1_INPUT, l);
        die_piece(s, SPW_BARE_D_FC1_WEIGHT, l, x);
    }
    die(s, SPW_BARE_ROW_PROBS, l);
    born(s, SPW_BARE_D_PROBS, l, 4 * M);
    die_pieces(s, SPW_BARE_D_PROBS, l);
    born(s, SPW_BARE_D_FC1_INPUT, l, 2 * M * H);
    die_pieces(s, SPW_BARE_D_FC1_INPUT, l);
}

static void experts_backward(spw_megatron_stack *s, size_t l, uint64_t M, uint64_t N) {
    const uint64_t H = s->H;
    born(s, SPW_BARE_D_SENT, l, 2 * N * H);
    born(s, SPW_BARE_D_ROWS, l, 2 * M * H);
    die(s, SPW_BARE_D_SENT, l);
    born(s, SPW_BARE_D_FC2_OUTPUT, l, 2 * M * H);
    die(s, SPW_BARE_D_ROWS, l);
    if (s->shape.sequential) {
        sequential_experts_backward(s, l, M);
    } else {
        grouped_experts_backward(s, l, M);
    }
    born(s, SPW_BARE_D_ROWS, l, 2 * M * H);
    die(s, SPW_BARE_D_FC1_INPUT, l);
    pass(s, SPW_BARE_ROW_PROBS, l, 4 * M); /* gradients of probs, unsorted */
    die(s, SPW_BARE_D_PROBS, l);
    born(s, SPW_BARE_D_SENT, l, 2 * N * H);
    die(s, SPW_BARE_D_ROWS, l);
}

static void router_backward(spw_megatron_stack *s, size_t l) {
    const uint64_t TE = s->T * s->E, TH = s->T * s->H;
    const size_t other = s->shape.layers;
    born(s, SPW_BARE_D_NORM, l, 2 * TH);
    die(s, SPW_BARE_D_SENT, l);
    born(s, SPW_BARE_ROUTE_TEMPORARY, l, 4 * TE);
    born(s, SPW_BARE_ROUTE_TEMPORARY, other, 4 * TE);
    die(s, SPW_BARE_ROUTE_TEMPORARY, l);
    die(s, SPW_BARE_ROUTE_TEMPORARY, other);
    born(s, SPW_BARE_D_LOGITS, l, 4 * TE);
    born(s, SPW_BARE_D_NORM_FP32, l, 4 * TH);
    born(s, SPW_BARE_D_NORM_ROUTER, l, 2 * TH);
    die(s, SPW_BARE_D_NORM_FP32, l);
    pass(s, SPW_BARE_NORM_FP32, l, 4 * TH);
    die(s, SPW_BARE_D_LOGITS, l);
    die(s, SPW_BARE_D_NORM_ROUTER, l);
    free_routing(s, l);
}

static void backward(spw_megatron_stack *s, const uint64_t *received, const uint64_t *sent) {
    const size_t layers = s->shape.layers;
    const uint64_t TH = s->T * s->H;
    const bool again = s->shape.recompute == SPW_RECOMPUTE_MOE;
    s->backward = true;
    for (size_t l = layers; l-- > 0;) {
        if (again) moe_layer(s, l, received[l], sent[l], true);
        experts_backward(s, l, received[l], sent[l]);
        router_backward(s, l);
        die(s, SPW_BARE_MOE_OUTPUT, l);
        born(s, SPW_BARE_D_NORM_INPUT, l, 2 * TH);
        die(s, SPW_BARE_D_NORM, l);
        if (!again) die(s, SPW_BARE_NORM, l);
        die(s, SPW_BARE_NORM_RSTD, l);
        born(s, SPW_BARE_D_X, l, 2 * TH);
        die(s, SPW_BARE_D_NORM_INPUT, l);
        die(s, SPW_BARE_D_X, l + 1);
        if (!again) die(s, SPW_BARE_LAYER_OUTPUT, l);
    }
    die(s, SPW_BARE_D_X, 0);
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

spw_status spw_megatron_stack_step(spw_megatron_stack *s, const spw_megatron_rows *rows,
                                   spw_event_list *list) {
    spw_status status = check_rows(&s->shape, rows);
    if (status != SPW_OK) return status;
    spw_event_list_clear(list);
    s->list = list;
    s->status = SPW_OK;
    s->backward = false;
    s->of_expert = rows->of_expert;
    forward(s, rows->received, rows->sent);
    backward(s, rows->received, rows->sent);
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
