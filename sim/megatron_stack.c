#include "sim/megatron_stack.h"

#include "base/memory.h"

#define DISPATCHER "token_dispatcher.py, MoEAlltoAllTokenDispatcher"
#define UTILS "moe_utils.py"
#define ROUTING "moe_utils.py, topk_routing_with_score_function"
#define EXPERTS "experts.py, TEGroupedMLP"
#define AUTOGRAD "autograd of the line that made it"

/* Kind, name, bytes, source. H hidden, F ffn, T tokens, K top_k, E experts, e experts of this rank, M rows received, N
 * rows sent, C capacity. */
#define KIND_LIST(X) \
    X(NORM_WEIGHT, "norm weights", "2 H a layer", "model") \
    X(ROUTER_WEIGHT, "router weights", "2 H E a layer", "model") \
    X(FC1_WEIGHT, "fc1 weights", "4 e H F a layer", "model") \
    X(FC2_WEIGHT, "fc2 weights", "2 e H F a layer", "model") \
    X(INITIAL, "an expert's fc1 in fp32 and bf16", "12 H F", "initialisation: freed, its segment stays") \
    X(DENSE_GRAD, "main_grad of norms and routers", "4 (H + H E) L", "DistributedDataParallel, fp32") \
    X(EXPERT_GRAD, "main_grad of experts", "12 e H F L", "DistributedDataParallel, fp32") \
    X(INPUT, "input and gradient of the output", "2 T H each", "the run") \
    X(CHOICES, "expert ids", "8 T K L", "the run") \
    X(WORKSPACE, "cuBLAS workspaces", "32 MiB each", "PyTorch, CUDAHooks on Hopper") \
    X(SCALAR, "a scalar", "1", "the run") \
    X(LAYER_OUTPUT, "output of the layer", "2 T H", "moe_layer.py") \
    X(NORM, "norm output", "2 T H", "saved by the router and by permute") \
    X(NORM_RSTD, "norm rstd", "4 T", "saved by RMSNorm") \
    X(NORM_FP32, "norm output in fp32", "4 T H", UTILS ", RouterGatingLinearFunction") \
    X(LOGITS, "logits", "4 T E", ROUTING ": gather saves its input") \
    X(SCORES, "chosen logits", "4 T K", ROUTING) \
    X(CHOSEN_PROBS, "chosen probs", "4 T K", ROUTING ": softmax saves its result") \
    X(ROUTE_TEMPORARY, "zeros and integer maps", "4 T E", ROUTING) \
    X(PROBS_NEW, "routing probs", "4 T E", ROUTING) \
    X(MAP_NEW, "routing map", "T E", ROUTING) \
    X(CAPACITY_VALUES, "top of the columns", "4 C E + 8 C E", UTILS ", apply_router_token_dropping") \
    X(PROBS_KEPT, "routing probs, kept", "4 T E", DISPATCHER ".probs") \
    X(MAP_KEPT, "routing map, kept", "T E", DISPATCHER ".routing_map") \
    X(MAPPING_KEPT, "permutation, kept", "8 N", DISPATCHER ".reversed_local_input_permutation_mapping") \
    X(SPLITS, "splits", "64", DISPATCHER ".preprocess; sizes fitted to the byte") \
    X(COUNTS, "counts", "64", DISPATCHER ".preprocess; sizes fitted to the byte") \
    X(MAP_COLUMNS, "routing map by columns", "T E", UTILS ", permute") \
    X(SORTED, "argsort of the map", "8 T E", UTILS ", permute: the slice that is saved keeps all of it") \
    X(SORT_TEMPORARY, "sort", "8 T E and T E", "PyTorch, stable sort") \
    X(MAPPING_NEW, "permutation", "8 N", UTILS ", permute") \
    X(PROB_COLUMNS, "probs by columns", "4 T E", UTILS ", permute") \
    X(PROB_INDEX, "indices of probs", "8 N", UTILS ", permute with padding: saved by index_select") \
    X(SENT_PROBS, "permuted probs", "4 N", UTILS ", permute") \
    X(SENT, "permuted rows", "2 N H", UTILS ", permute: held by a name until the layer ends") \
    X(RECEIVED, "received rows", "2 M H", DISPATCHER ".token_dispatch: held by a name") \
    X(RECEIVED_PROBS, "received probs", "4 M", DISPATCHER ".token_dispatch: held by a name") \
    X(FC1_INPUT, "fc1 input", "2 M H", DISPATCHER ".dispatch_postprocess, saved by fc1") \
    X(ROW_PROBS, "sorted probs", "4 M", DISPATCHER ".dispatch_postprocess, saved by the activation") \
    X(FC1_OUTPUT, "fc1 output", "4 M F", EXPERTS ", saved by the activation") \
    X(FC2_INPUT, "fc2 input", "2 M F", EXPERTS ", saved by fc2") \
    X(FC2_OUTPUT, "fc2 output", "2 M H", EXPERTS ": held by a name while it is unsorted") \
    X(UNSORTED, "unsorted rows", "2 M H", DISPATCHER ".combine_preprocess") \
    X(COMBINED, "combined rows", "2 N H", DISPATCHER ".token_combine") \
    X(MOE_OUTPUT, "unpermuted output", "2 T H", UTILS ", unpermute") \
    X(D_X, "gradient of the layer's output", "2 T H", AUTOGRAD) \
    X(D_SENT, "gradient of sent rows", "2 N H", AUTOGRAD) \
    X(D_ROWS, "gradient of received rows", "2 M H", AUTOGRAD) \
    X(D_FC2_OUTPUT, "gradient of the fc2 output", "2 M H", AUTOGRAD) \
    X(D_FC2_INPUT, "gradient of the fc2 input", "2 M F", AUTOGRAD) \
    X(D_FC2_WEIGHT, "gradient of fc2 weights", "2 e H F", "bf16, before it is added to main_grad") \
    X(D_FC1_OUTPUT, "gradient of the fc1 output", "4 M F", AUTOGRAD) \
    X(D_PROBS, "gradient of probs", "4 M", AUTOGRAD) \
    X(D_FC1_INPUT, "gradient of the fc1 input", "2 M H", AUTOGRAD) \
    X(D_FC1_WEIGHT, "gradient of fc1 weights", "4 e H F", "bf16, before it is added to main_grad") \
    X(D_NORM, "gradient of the norm output", "2 T H", AUTOGRAD) \
    X(D_LOGITS, "gradient of logits", "4 T E", AUTOGRAD) \
    X(D_NORM_FP32, "router's input gradient in fp32", "4 T H", UTILS ", RouterGatingLinearFunction") \
    X(D_NORM_ROUTER, "router's input gradient", "2 T H", UTILS ", RouterGatingLinearFunction") \
    X(D_NORM_INPUT, "gradient of the norm input", "2 T H", AUTOGRAD)

#define KIND_ENUM(kind, name, formula, source) kind,
#define KIND_ROW(kind, name, formula, source) {name, formula, source},
enum { KIND_LIST(KIND_ENUM) KINDS };
const spw_tensor_kind spw_megatron_kinds[SPW_TENSOR_KINDS] = {KIND_LIST(KIND_ROW)};
_Static_assert((int)KINDS <= (int)SPW_TENSOR_KINDS, "SPW_TENSOR_KINDS is too small");

enum { WORKSPACE_MIB = 32, MOST = 1 << 24 };
#define NO_SLOT UINT32_MAX

typedef struct live_tensor {
    uint64_t bytes;
    uint32_t slot;
} live_tensor;

struct spw_megatron_stack {
    spw_megatron_shape shape;
    live_tensor *live; /* [KINDS][layers + 1] */
    uint32_t *spare;   /* slots that are free */
    size_t spares, slots;
    /* Of the list under way. */
    spw_event_list *list;
    spw_status status; /* the first failure; events after it are left out */
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
    if (shape->padded && shape->capacity == 0) return spw_fail(SPW_EARG, "padding needs a capacity");
    SPW_TRY(SPW_ALLOC(1, &s));
    s->shape = *shape;
    s->T = shape->tokens;
    s->K = shape->top_k;
    s->E = shape->experts;
    s->e = shape->experts_per_rank;
    s->H = shape->hidden;
    s->F = shape->ffn;
    s->slots = KINDS * (shape->layers + 1);
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

static live_tensor *tensor_of(spw_megatron_stack *s, int kind, size_t layer) {
    return &s->live[(size_t)kind * (s->shape.layers + 1) + layer];
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

static void die(spw_megatron_stack *s, int kind, size_t layer) {
    live_tensor *t = tensor_of(s, kind, layer);
    if (t->slot == NO_SLOT) return;
    say(s, kind, layer, *t, false);
    s->spare[s->spares++] = t->slot;
    t->slot = NO_SLOT;
}

static void born(spw_megatron_stack *s, int kind, size_t layer, uint64_t bytes) {
    live_tensor *t = tensor_of(s, kind, layer);
    *t = (live_tensor){bytes, s->spare[--s->spares]};
    say(s, kind, layer, *t, true);
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
    pass(s, INITIAL, layers, 12 * H * F);
    for (size_t l = 0; l < layers; l++) {
        born(s, NORM_WEIGHT, l, 2 * H);
        born(s, ROUTER_WEIGHT, l, 2 * H * E);
        born(s, FC1_WEIGHT, l, 4 * e * H * F);
        born(s, FC2_WEIGHT, l, 2 * e * H * F);
    }
    born(s, WORKSPACE, 0, (uint64_t)WORKSPACE_MIB << 20);
    born(s, WORKSPACE, layers, (uint64_t)WORKSPACE_MIB << 20);
    born(s, SCALAR, layers, 1);
    born(s, DENSE_GRAD, layers, 4 * L * (H + H * E));
    born(s, EXPERT_GRAD, layers, 12 * L * e * H * F);
    born(s, CHOICES, layers, 8 * L * s->T * s->K);
    born(s, INPUT, 0, 2 * s->T * H);
    born(s, INPUT, layers, 2 * s->T * H);
    return s->status;
}

/* --- Forward --- */

static void drop_over_capacity(spw_megatron_stack *s, size_t l) {
    const uint64_t C = s->shape.capacity, TE = s->T * s->E;
    if (C == 0 || C > s->T) return;
    born(s, CAPACITY_VALUES, l, 4 * C * s->E);
    born(s, CAPACITY_VALUES, s->shape.layers, 8 * C * s->E);
    pass(s, ROUTE_TEMPORARY, l, 4 * TE);
    die(s, CAPACITY_VALUES, l);
    die(s, CAPACITY_VALUES, s->shape.layers);
}

static void route(spw_megatron_stack *s, size_t l) {
    const uint64_t TE = s->T * s->E, TK = s->T * s->K;
    const size_t other = s->shape.layers; /* a second temporary of the same kind */
    born(s, NORM_FP32, l, 4 * s->T * s->H);
    born(s, LOGITS, l, 4 * TE);
    die(s, NORM_FP32, l);
    born(s, SCORES, l, 4 * TK);
    born(s, CHOSEN_PROBS, l, 4 * TK);
    born(s, ROUTE_TEMPORARY, l, 4 * TE);
    born(s, PROBS_NEW, l, 4 * TE);
    die(s, ROUTE_TEMPORARY, l);
    born(s, ROUTE_TEMPORARY, l, 4 * TE);
    born(s, ROUTE_TEMPORARY, other, 4 * TE);
    die(s, ROUTE_TEMPORARY, l);
    born(s, ROUTE_TEMPORARY, l, 4 * TE);
    die(s, ROUTE_TEMPORARY, other);
    born(s, MAP_NEW, l, TE);
    die(s, ROUTE_TEMPORARY, l);
    die(s, SCORES, l);
    drop_over_capacity(s, l);
    become(s, PROBS_NEW, PROBS_KEPT, l);
    become(s, MAP_NEW, MAP_KEPT, l);
    born(s, SPLITS, l, 64);
    born(s, COUNTS, l, 64);
}

static void permute(spw_megatron_stack *s, size_t l, uint64_t N) {
    const uint64_t TE = s->T * s->E;
    const size_t other = s->shape.layers;
    born(s, MAP_COLUMNS, l, TE);
    born(s, SORTED, l, 8 * TE);
    born(s, SORT_TEMPORARY, l, TE);
    pass(s, SORT_TEMPORARY, other, 8 * TE);
    die(s, SORT_TEMPORARY, l);
    born(s, MAPPING_NEW, l, 8 * N);
    if (s->shape.padded) die(s, SORTED, l);
    born(s, PROB_COLUMNS, l, 4 * TE);
    if (s->shape.padded) born(s, PROB_INDEX, l, 8 * N);
    born(s, SENT_PROBS, l, 4 * N);
    die(s, PROB_COLUMNS, l);
    born(s, SENT, l, 2 * N * s->H);
    die(s, MAP_COLUMNS, l);
    become(s, MAPPING_NEW, MAPPING_KEPT, l);
}

/* Without `saving` (the first pass of a layer that is recomputed) a tensor dies when its last name does. */
static void experts(spw_megatron_stack *s, size_t l, uint64_t M, uint64_t N, bool saving) {
    const uint64_t H = s->H, F = s->F;
    born(s, RECEIVED, l, 2 * M * H);
    born(s, RECEIVED_PROBS, l, 4 * M);
    die(s, SENT_PROBS, l);
    born(s, FC1_INPUT, l, 2 * M * H);
    born(s, ROW_PROBS, l, 4 * M);
    born(s, FC1_OUTPUT, l, 4 * M * F);
    born(s, FC2_INPUT, l, 2 * M * F);
    born(s, FC2_OUTPUT, l, 2 * M * H);
    if (s->shape.recompute == SPW_RECOMPUTE_MOE_ACT || !saving) die(s, FC2_INPUT, l);
    if (!saving) die(s, FC1_OUTPUT, l);
    born(s, UNSORTED, l, 2 * M * H);
    die(s, FC2_OUTPUT, l);
    if (!saving) {
        die(s, FC1_INPUT, l);
        die(s, ROW_PROBS, l);
    }
    born(s, COMBINED, l, 2 * N * H);
    die(s, UNSORTED, l);
    born(s, MOE_OUTPUT, l, 2 * s->T * H);
    die(s, COMBINED, l);
    die(s, SENT, l);
    die(s, RECEIVED, l);
    die(s, RECEIVED_PROBS, l);
}

static void free_routing(spw_megatron_stack *s, size_t l) {
    die(s, SORTED, l);
    die(s, PROB_INDEX, l);
    die(s, LOGITS, l);
    die(s, CHOSEN_PROBS, l);
    die(s, SPLITS, l);
    die(s, COUNTS, l);
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
        die(s, NORM, l);
        die(s, LAYER_OUTPUT, l);
    }
    for (size_t l = 0; l < s->shape.layers; l++) {
        born(s, NORM, l, 2 * s->T * s->H);
        born(s, NORM_RSTD, l, 4 * s->T);
        moe_layer(s, l, received[l], sent[l], saving);
        born(s, LAYER_OUTPUT, l, 2 * s->T * s->H);
        die(s, MOE_OUTPUT, l);
    }
}

/* --- Backward --- */

static void experts_backward(spw_megatron_stack *s, size_t l, uint64_t M, uint64_t N) {
    const uint64_t H = s->H, F = s->F, e = s->e;
    born(s, D_SENT, l, 2 * N * H);
    born(s, D_ROWS, l, 2 * M * H);
    die(s, D_SENT, l);
    born(s, D_FC2_OUTPUT, l, 2 * M * H);
    die(s, D_ROWS, l);
    if (s->shape.recompute == SPW_RECOMPUTE_MOE_ACT) born(s, FC2_INPUT, l, 2 * M * F);
    born(s, D_FC2_INPUT, l, 2 * M * F);
    born(s, D_FC2_WEIGHT, l, 2 * e * F * H);
    die(s, FC2_INPUT, l);
    die(s, D_FC2_OUTPUT, l);
    die(s, D_FC2_WEIGHT, l);
    born(s, D_FC1_OUTPUT, l, 4 * M * F);
    born(s, D_PROBS, l, 4 * M);
    die(s, FC1_OUTPUT, l);
    die(s, D_FC2_INPUT, l);
    die(s, ROW_PROBS, l);
    born(s, D_FC1_INPUT, l, 2 * M * H);
    born(s, D_FC1_WEIGHT, l, 4 * e * F * H);
    die(s, D_FC1_OUTPUT, l);
    die(s, FC1_INPUT, l);
    die(s, D_FC1_WEIGHT, l);
    born(s, D_ROWS, l, 2 * M * H);
    die(s, D_FC1_INPUT, l);
    pass(s, ROW_PROBS, l, 4 * M); /* gradients of probs, unsorted */
    die(s, D_PROBS, l);
    born(s, D_SENT, l, 2 * N * H);
    die(s, D_ROWS, l);
}

static void router_backward(spw_megatron_stack *s, size_t l) {
    const uint64_t TE = s->T * s->E, TH = s->T * s->H;
    const size_t other = s->shape.layers;
    born(s, D_NORM, l, 2 * TH);
    die(s, D_SENT, l);
    born(s, ROUTE_TEMPORARY, l, 4 * TE);
    born(s, ROUTE_TEMPORARY, other, 4 * TE);
    die(s, ROUTE_TEMPORARY, l);
    die(s, ROUTE_TEMPORARY, other);
    born(s, D_LOGITS, l, 4 * TE);
    born(s, D_NORM_FP32, l, 4 * TH);
    born(s, D_NORM_ROUTER, l, 2 * TH);
    die(s, D_NORM_FP32, l);
    pass(s, NORM_FP32, l, 4 * TH);
    die(s, D_LOGITS, l);
    die(s, D_NORM_ROUTER, l);
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
        die(s, MOE_OUTPUT, l);
        born(s, D_NORM_INPUT, l, 2 * TH);
        die(s, D_NORM, l);
        if (!again) die(s, NORM, l);
        die(s, NORM_RSTD, l);
        born(s, D_X, l, 2 * TH);
        die(s, D_NORM_INPUT, l);
        die(s, D_X, l + 1);
        if (!again) die(s, LAYER_OUTPUT, l);
    }
    die(s, D_X, 0);
}

spw_status spw_megatron_stack_step(spw_megatron_stack *s, const uint64_t *received, const uint64_t *sent,
                                   spw_event_list *list) {
    for (size_t l = 0; l < s->shape.layers; l++) {
        if (received[l] >> 32 != 0 || sent[l] >> 32 != 0)
            return spw_fail(SPW_EARG, "layer %zu: more than 2^32 rows", l);
    }
    spw_event_list_clear(list);
    s->list = list;
    s->status = SPW_OK;
    s->backward = false;
    forward(s, received, sent);
    backward(s, received, sent);
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
