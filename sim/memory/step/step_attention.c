/* Attention and router of a layer in the order in which PyTorch allocates their tensors [read: pytorch/torchtitan b5bcd76c
 * torchtitan/models/common/{attention,rope,moe}.py, models/qwen3/model.py; torch 2.11 autograd, whose order was recorded on two GPUs].
 * Queries and keys are turned in fp32. What is kept has slots of the layer's own, all else is there while one layer works. Where
 * nothing is kept (a checkpoint's forward pass) tensors go as soon as nothing needs them. */
#include "sim/memory/step/step_memory.h"
#include "sim/memory/step/step_parts.h"

/* Kept, then those around. */
enum {
    NORM,
    QUERY,
    KEY,
    VALUE,
    QUERY_SIZES,
    TABLE,
    QUERY_TURNED,
    KEY_TURNED,
    OUTPUT,
    SUMS,
    RESIDUAL,
    ROUTER,
    SMALL,
    SMALL_TOO,
    PIECES
};
enum {
    PRODUCT = 64,
    QUERY_NORMED,
    KEY_NORMED,
    QUERY_WIDE,
    KEY_WIDE,
    TURN,
    TURN_2,
    TURN_3,
    TURN_4,
    KEY_TURN,
    KEY_TURN_2,
    KEY_TURN_3,
    KEY_TURN_4,
    BEHIND,
    FFN_NORM,
    ROUTER_GRADIENT,
    GRADIENT,
    GRADIENT_2,
    LAST_WEIGHT,
    FIRST_WEIGHT,
    OUTPUT_GRADIENT,
    QUERY_GRADIENT,
    KEY_GRADIENT,
    VALUE_GRADIENT,
    SUM,
    ABOVE
};
enum { AFTER_CASTS = 2 };

typedef enum attention_width {
    HIDDEN,
    ALL_HEADS,
    KEYS,
    NORMED,
    NORMED_KEYS,
    TOGETHER,
    WIDE,
    WIDE_KEYS,
    ANGLES,
    HEAD,
    HEAD_NORMED,
    FP32_HIDDEN,
    REST,
    FIRST,
    LAST
} attention_width;

typedef struct spw_change {
    uint8_t tensor, width;
    bool born, unless_kept;
} spw_change;

#define BORN(tensor, width) \
    { tensor, width, true, false }
#define DIES(tensor, width) \
    { tensor, width, false, false }
#define GOES(tensor, width) \
    { tensor, width, false, true } /* where nothing is kept */

static const spw_change before_experts[] = {BORN(NORM, HIDDEN),
                                            BORN(PRODUCT, TOGETHER),
                                            BORN(QUERY, ALL_HEADS),
                                            BORN(KEY, KEYS),
                                            BORN(VALUE, KEYS),
                                            DIES(PRODUCT, TOGETHER),
                                            BORN(QUERY_NORMED, NORMED),
                                            BORN(QUERY_SIZES, HEAD_NORMED),
                                            GOES(QUERY, ALL_HEADS),
                                            BORN(KEY_NORMED, NORMED_KEYS),
                                            GOES(KEY, KEYS),
                                            BORN(TABLE, ANGLES),
                                            BORN(QUERY_WIDE, WIDE),
                                            BORN(KEY_WIDE, WIDE_KEYS),
                                            BORN(TURN, WIDE),
                                            BORN(TURN_2, ALL_HEADS),
                                            BORN(TURN_3, WIDE),
                                            DIES(TURN_2, ALL_HEADS),
                                            BORN(TURN_4, WIDE),
                                            DIES(TURN_3, WIDE),
                                            BORN(TURN_3, WIDE),
                                            DIES(TURN, WIDE),
                                            DIES(TURN_4, WIDE),
                                            BORN(KEY_TURN, WIDE_KEYS),
                                            BORN(KEY_TURN_2, KEYS),
                                            BORN(KEY_TURN_3, WIDE_KEYS),
                                            DIES(KEY_TURN_2, KEYS),
                                            BORN(KEY_TURN_4, WIDE_KEYS),
                                            DIES(KEY_TURN_3, WIDE_KEYS),
                                            BORN(KEY_TURN_3, WIDE_KEYS),
                                            DIES(KEY_TURN, WIDE_KEYS),
                                            DIES(KEY_TURN_4, WIDE_KEYS),
                                            BORN(QUERY_TURNED, ALL_HEADS),
                                            BORN(KEY_TURNED, KEYS),
                                            DIES(QUERY_WIDE, WIDE),
                                            DIES(KEY_WIDE, WIDE_KEYS),
                                            DIES(TURN_3, WIDE),
                                            DIES(KEY_TURN_3, WIDE_KEYS),
                                            GOES(TABLE, ANGLES),
                                            DIES(QUERY_NORMED, NORMED),
                                            DIES(KEY_NORMED, NORMED_KEYS),
                                            GOES(QUERY_SIZES, HEAD_NORMED),
                                            BORN(OUTPUT, ALL_HEADS),
                                            BORN(SUMS, HEAD),
                                            GOES(SUMS, HEAD),
                                            BORN(BEHIND, HIDDEN),
                                            GOES(QUERY_TURNED, ALL_HEADS),
                                            GOES(KEY_TURNED, KEYS),
                                            GOES(VALUE, KEYS),
                                            GOES(OUTPUT, ALL_HEADS),
                                            GOES(NORM, HIDDEN),
                                            BORN(RESIDUAL, HIDDEN),
                                            DIES(BEHIND, HIDDEN),
                                            BORN(FFN_NORM, HIDDEN),
                                            BORN(ROUTER, FP32_HIDDEN),
                                            GOES(ROUTER, FP32_HIDDEN),
                                            BORN(SMALL, REST),
                                            BORN(SMALL_TOO, REST),
                                            GOES(SMALL, REST),
                                            GOES(SMALL_TOO, REST)};

static const spw_change behind_experts[] = {DIES(FFN_NORM, HIDDEN)}, forward_end[] = {GOES(RESIDUAL, HIDDEN)};

static const spw_change backward[] = {BORN(ROUTER_GRADIENT, FP32_HIDDEN),
                                      DIES(ROUTER, FP32_HIDDEN),
                                      DIES(SMALL, REST),
                                      DIES(SMALL_TOO, REST),
                                      BORN(GRADIENT, HIDDEN),
                                      DIES(ROUTER_GRADIENT, FP32_HIDDEN),
                                      DIES(GRADIENT, HIDDEN),
                                      BORN(GRADIENT, HIDDEN),
                                      DIES(RESIDUAL, HIDDEN),
                                      DIES(GRADIENT, HIDDEN),
                                      BORN(LAST_WEIGHT, LAST),
                                      BORN(OUTPUT_GRADIENT, ALL_HEADS),
                                      BORN(QUERY_GRADIENT, ALL_HEADS),
                                      BORN(KEY_GRADIENT, KEYS),
                                      BORN(VALUE_GRADIENT, KEYS),
                                      BORN(SUM, WIDE),
                                      BORN(TURN, ALL_HEADS),
                                      BORN(TURN_2, ALL_HEADS),
                                      DIES(TURN_2, ALL_HEADS),
                                      DIES(TURN, ALL_HEADS),
                                      DIES(SUM, WIDE),
                                      DIES(OUTPUT_GRADIENT, ALL_HEADS),
                                      DIES(KEY_TURNED, KEYS),
                                      DIES(QUERY_TURNED, ALL_HEADS),
                                      DIES(VALUE, KEYS),
                                      DIES(SUMS, HEAD),
                                      DIES(OUTPUT, ALL_HEADS),
                                      BORN(KEY_WIDE, WIDE_KEYS),
                                      DIES(KEY_GRADIENT, KEYS),
                                      BORN(QUERY_WIDE, WIDE),
                                      DIES(QUERY_GRADIENT, ALL_HEADS),
                                      BORN(KEY_TURN, WIDE_KEYS),
                                      BORN(KEY_TURN_2, KEYS),
                                      BORN(KEY_TURN_3, WIDE_KEYS),
                                      DIES(KEY_TURN_2, KEYS),
                                      BORN(KEY_TURN_4, WIDE_KEYS),
                                      DIES(KEY_TURN, WIDE_KEYS),
                                      DIES(KEY_TURN_4, WIDE_KEYS),
                                      BORN(KEY_TURN, WIDE_KEYS),
                                      DIES(KEY_WIDE, WIDE_KEYS),
                                      DIES(KEY_TURN, WIDE_KEYS),
                                      BORN(TURN, WIDE),
                                      BORN(TURN_2, ALL_HEADS),
                                      BORN(TURN_3, WIDE),
                                      DIES(TURN_2, ALL_HEADS),
                                      BORN(TURN_4, WIDE),
                                      DIES(TURN, WIDE),
                                      DIES(TURN_4, WIDE),
                                      BORN(TURN, WIDE),
                                      DIES(QUERY_WIDE, WIDE),
                                      DIES(TABLE, ANGLES),
                                      DIES(TURN, WIDE),
                                      BORN(KEY_TURN, KEYS),
                                      DIES(KEY_TURN_3, WIDE_KEYS),
                                      BORN(TURN, ALL_HEADS),
                                      DIES(TURN_3, WIDE),
                                      BORN(KEY_NORMED, NORMED_KEYS),
                                      DIES(KEY_TURN, KEYS),
                                      DIES(KEY, KEYS),
                                      BORN(QUERY_NORMED, NORMED),
                                      DIES(TURN, ALL_HEADS),
                                      DIES(QUERY, ALL_HEADS),
                                      DIES(QUERY_SIZES, HEAD_NORMED),
                                      BORN(PRODUCT, TOGETHER),
                                      DIES(QUERY_NORMED, NORMED),
                                      DIES(KEY_NORMED, NORMED_KEYS),
                                      DIES(VALUE_GRADIENT, KEYS),
                                      BORN(FIRST_WEIGHT, FIRST),
                                      BORN(GRADIENT, HIDDEN),
                                      DIES(PRODUCT, TOGETHER),
                                      DIES(NORM, HIDDEN),
                                      BORN(GRADIENT_2, HIDDEN),
                                      DIES(GRADIENT, HIDDEN)};

static const spw_change behind_input[] = {DIES(GRADIENT_2, HIDDEN)},
                        reduced[] = {DIES(LAST_WEIGHT, LAST), DIES(FIRST_WEIGHT, FIRST)};

static uint64_t bytes_of(const spw_attention_bytes *a, const spw_change *c) {
    const uint64_t normed = a->normed_query > 0 ? a->head : 0;
    switch ((attention_width)c->width) {
    case HIDDEN: return a->hidden;
    case ALL_HEADS: return a->query;
    case KEYS: return a->key;
    case NORMED: return a->normed_query;
    case NORMED_KEYS: return a->normed_key;
    case TOGETHER: return a->query + 2 * a->key;
    case WIDE: return 2 * a->query;
    case WIDE_KEYS: return 2 * a->key;
    case ANGLES: return a->table;
    case HEAD: return a->head;
    case HEAD_NORMED: return normed;
    case FP32_HIDDEN: return a->router;
    case REST: return c->tensor == SMALL ? a->small / 2 : a->small - a->small / 2;
    case FIRST: return a->first_weight;
    case LAST: return a->last_weight;
    }
    return 0;
}

static spw_status change(spw_step_memory *m, spw_step_place at, const spw_change *c) {
    const uint64_t bytes = bytes_of(&m->units.attention, c);
    const size_t slot = c->tensor < PIECES ? spw_step_kept_slot(m, at, KEPT_RESIDUALS + c->tensor)
                                           : spw_step_around_slot(m) + AFTER_CASTS + c->tensor - PRODUCT;
    return bytes == 0 ? SPW_OK : spw_step_append_unit(m, slot, bytes, c->born, at.backward);
}

/* [read: torch 2.11 aten/src/ATen/cuda/CublasHandlePool.cpp getCUDABlasLtWorkspace: a block of the allocator, kept a handle] */
spw_status spw_step_workspace(spw_step_memory *m, bool back) {
    if (m->workspace == 0 || m->has_workspace[back]) return SPW_OK;
    m->has_workspace[back] = true;
    return spw_step_append_unit(m, spw_step_around_slot(m) + AROUND - 1 - (back ? 1 : 0), m->workspace, true,
                                back);
}

static spw_status run(spw_step_memory *m, spw_step_place at, const spw_change *list, size_t count,
                      bool keep) {
    spw_status status = SPW_OK;
    if (!spw_step_attention_listed(m) || !at.experts) return SPW_OK;
    for (size_t i = 0; i < count && status == SPW_OK; i++)
        if (!keep || !list[i].unless_kept) {
            status = change(m, at, &list[i]);
            if (status == SPW_OK && list[i].tensor == PRODUCT) status = spw_step_workspace(m, false);
        }
    return status;
}

#define RUN(list, keep) run(m, at, list, sizeof(list) / sizeof(*(list)), keep)

spw_status spw_step_attention_forward(spw_step_memory *m, spw_step_place at, bool keep) {
    return RUN(before_experts, keep);
}

spw_status spw_step_attention_experts_done(spw_step_memory *m, spw_step_place at) {
    return RUN(behind_experts, true);
}

spw_status spw_step_attention_forward_end(spw_step_memory *m, spw_step_place at, bool keep) {
    return RUN(forward_end, keep);
}

spw_status spw_step_attention_backward(spw_step_memory *m, spw_step_place at) { return RUN(backward, true); }

spw_status spw_step_attention_input(spw_step_memory *m, spw_step_place at) { return RUN(behind_input, true); }

spw_status spw_step_attention_reduced(spw_step_memory *m, spw_step_place at) { return RUN(reduced, true); }

spw_status spw_step_attention_gradient(spw_step_memory *m, bool born) {
    const spw_change above = {ABOVE, HIDDEN, born, false};
    const spw_step_place at = {.backward = true};
    return spw_step_attention_listed(m) ? change(m, at, &above) : SPW_OK;
}
