#include "reference/schemes/megatron/execute_megatron_deepep.h"

#include "base/memory.h"
#include "reference/schemes/megatron/megatron_tokens.h"
#include "reference/schemes/megatron/waiting_pages.h"

#include <string.h>

#define BORN(name) SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_##name))
#define DIES(name) spw_megatron_dies(run, g, SPW_MEGATRON_##name)
#define AT(name, r) (g->tensor[SPW_MEGATRON_##name].at[r])

typedef struct deepep {
    const spw_megatron_deepep *how;
    spw_megatron_tokens tokens;
    spw_waiting_pages pool; /* where tensors are stashed */
} deepep;

/* Padding with tokens: the first rows that an expert lacks, if every expert of the rank can be filled. */
static void pad_with_tokens(size_t rows, size_t local, size_t align, uint8_t *map) {
    for (int pass = 0; pass < 2; pass++) { /* is it possible? then do it */
        for (size_t x = 0; x < local; x++) {
            size_t have = 0;
            for (size_t i = 0; i < rows; i++) have += map[i * local + x];
            const size_t wanted = spw_megatron_round_up(have, align);
            if (wanted > rows) return;
            for (size_t i = 0; i < rows && have < wanted && pass == 1; i++) {
                have += map[i * local + x] == 0;
                map[i * local + x] = 1;
            }
        }
    }
}

/* All tokens of the group that chose an expert, as every rank knows of the routing maps. */
static size_t chosen_by(const spw_execution *run, const spw_megatron *g, size_t expert) {
    size_t tokens = 0;
    for (size_t s = 0; s < run->shape.ranks; s++) {
        for (size_t t = 0; t < run->tokens; t++)
            tokens += g->rank[s].choice[t * run->shape.experts + expert] >= 0;
    }
    return tokens;
}

/* Experts begin behind those before them, all of whose rows count, padding too. Every pass finds it anew. */
static void drop_beyond(spw_execution *run, const spw_megatron *g, deepep *e, size_t r) {
    const spw_token_lists *l = &e->tokens.lists[r];
    size_t first = 0;
    for (size_t x = 0; x < run->local; x++) {
        const size_t all = chosen_by(run, g, r * run->local + x);
        size_t next = first;
        for (size_t i = 0, source = 0; i < l->begin[run->shape.ranks]; i++) {
            while (i >= l->begin[source + 1]) source++;
            if (l->column[i * run->local + x] < 0 || next++ < e->how->fixed) continue;
            l->column[i * run->local + x] = -1;
            run->out.dropped[source] += run->pass == SPW_PASS_FORWARD;
        }
        first += spw_megatron_round_up(all, g->set.expert_align);
    }
}

/* The rows that an expert has within the limit, those of tokens without a slot too. */
static void measure_zones(const spw_execution *run, const spw_megatron *g, const deepep *e, size_t r,
                          size_t *zone) {
    size_t left = e->how->fixed;
    for (size_t x = 0; x < run->local; x++) {
        const size_t all = spw_megatron_round_up(chosen_by(run, g, r * run->local + x), g->set.expert_align);
        zone[x] = all < left ? all : left;
        left -= zone[x];
    }
}

static spw_status place(spw_execution *run, spw_megatron *g, const deepep *e, size_t r) {
    const size_t local = run->local, rows = e->tokens.lists[r].begin[run->shape.ranks],
                 all = g->rows[SPW_MEGATRON_ROWS_RECEIVED][r];
    const bool tokens_pad = !e->how->hybrid && !g->set.fused;
    uint8_t *map = NULL;
    size_t *zone = NULL;
    spw_status status = SPW_OK;
    if (e->how->drops) {
        SPW_TRY(SPW_SCRATCH(run, local, &zone));
        measure_zones(run, g, e, r, zone);
    }
    SPW_TRY(SPW_SCRATCH(run, all * local, &map));
    for (size_t i = 0; i < rows * local; i++) map[i] = e->tokens.lists[r].column[i] >= 0;
    if (tokens_pad) pad_with_tokens(rows, local, g->set.expert_align, map);
    SPW_TRY(spw_megatron_place_local(run, g, r,
                                     &(spw_local_rows){map, e->tokens.lists[r].column,
                                                       tokens_pad ? 1 : g->set.expert_align, zone,
                                                       e->how->fixed}));
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, spw_megatron *g, deepep *e, const char *name) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused, nccl = e->how->handle_bytes > 0;
    float *to[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    spw_step(run, "router");
    BORN(LOGITS);
    if (!fused) BORN(CHOSEN_PROBS);
    BORN(PROBS);
    BORN(MAP);
    spw_megatron_fill_map(run, g);
    spw_step(run, "preprocess");
    if (fused) BORN(SORTED_IDS);
    if (!hybrid || nccl) {
        BORN(TOP_PROBS);
        BORN(TOP_INDEX);
        if (!fused) DIES(PROBS);
    }
    spw_step(run, "dispatch");
    if (nccl) BORN(HANDLE);
    if (!hybrid) {
        BORN(RECEIVED);
        BORN(RECEIVED_INDEX);
        BORN(TOKEN_PROBS);
        BORN(SOURCE);
    }
    for (size_t r = 0; r < run->shape.ranks; r++)
        to[r] = hybrid ? e->tokens.lists[r].staged : AT(RECEIVED, r);
    SPW_TRY(spw_megatron_tokens_send(run, g, &e->tokens, name, true, to));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        if (e->how->drops) drop_beyond(run, g, e, r);
        if (run->pass == SPW_PASS_FORWARD) SPW_TRY(place(run, g, e, r));
    }
cleanup:
    return status;
}

static void fill_row_probs(spw_execution *run, spw_megatron *g, const deepep *e) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const size_t *offset = spw_experts_offset(run, &g->experts, r);
        for (size_t x = 0; x < run->local; x++) {
            for (size_t i = offset[x]; i < offset[x + 1]; i++) {
                const int32_t row = g->rank[r].local_row[i];
                AT(ROW_PROBS, r)
                [i] = row < 0 ? 0.0f : e->tokens.lists[r].weight[(size_t)row * run->local + x];
            }
        }
    }
}

static spw_status permute(spw_execution *run, spw_megatron *g, const deepep *e) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused;
    spw_status status = SPW_OK;
    spw_step(run, hybrid ? "dispatch" : "permute");
    if (hybrid) {
        BORN(FC1_INPUT);
        BORN(ROW_PROBS);
    } else if (fused) {
        BORN(LOCAL_ROW_ID_MAP);
        BORN(FC1_INPUT);
        BORN(ROW_PROBS);
    } else {
        BORN(MULTIHOT);
        BORN(LOCAL_PROBS);
        BORN(LOCAL_MAP);
        DIES(MULTIHOT);
        BORN(LOCAL_COLUMNS);
        BORN(LOCAL_ARGSORT);
        BORN(LOCAL_MAPPING);
        BORN(LOCAL_PROB_COLUMNS);
        BORN(ROW_PROBS);
        DIES(LOCAL_PROB_COLUMNS);
        BORN(FC1_INPUT);
        DIES(LOCAL_COLUMNS);
    }
    fill_row_probs(run, g, e);
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_megatron_copy_local(run, g, r, hybrid ? e->tokens.lists[r].staged : AT(RECEIVED, r),
                                AT(FC1_INPUT, r));
cleanup:
    return status;
}

/* --- Combine --- */

static spw_status combine(spw_execution *run, spw_megatron *g, deepep *e, const char *name) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused, first = run->pass == SPW_PASS_FORWARD;
    const size_t outputs = run->tokens * run->shape.hidden;
    float *from[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    if (!hybrid) {
        spw_step(run, "unpermute");
        BORN(RESTORED);
    }
    for (size_t r = 0; r < run->shape.ranks; r++) {
        from[r] = hybrid ? e->tokens.lists[r].staged : AT(RESTORED, r);
        SPW_TRY(spw_megatron_add_local(run, g, r, AT(FC2_OUTPUT, r), from[r]));
    }
    if (!hybrid) {
        DIES(FC2_OUTPUT);
        if (first) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
    }
    spw_step(run, "combine");
    BORN(OUTPUT);
    SPW_TRY(
        spw_megatron_tokens_return(run, g, &e->tokens, name, from, &g->tensor[SPW_MEGATRON_OUTPUT], false));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(run->out.y + r * outputs, AT(OUTPUT, r), outputs * sizeof(float));
    if (hybrid) {
        DIES(FC2_OUTPUT);
        if (first && e->how->handle_bytes > 0) DIES(HANDLE);
    } else {
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_RESTORED, SPW_MEGATRON_RECEIVED_INDEX);
        if (!fused) DIES(LOCAL_PROBS);
        if (fused) DIES(TOP_INDEX);
        if (fused && first) DIES(LOCAL_ROW_ID_MAP);
    }
cleanup:
    return status;
}

static void end_layer(spw_execution *run, spw_megatron *g, const deepep *e) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused, first = run->pass == SPW_PASS_FORWARD,
               nccl = e->how->handle_bytes > 0;
    spw_step(run, "layer end");
    if (!hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_RECEIVED, SPW_MEGATRON_TOKEN_PROBS);
    if (!hybrid || nccl) DIES(MAP);
    if (first && hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
    if (first && hybrid && !nccl) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_PROBS, SPW_MEGATRON_MAP);
    if (first) {
        DIES(LOGITS);
        if (!fused) DIES(CHOSEN_PROBS);
        if (nccl) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_TOP_PROBS, SPW_MEGATRON_TOP_INDEX);
        if (fused) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_SORTED_IDS, SPW_MEGATRON_PROBS);
        if (!hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_TOP_PROBS, SPW_MEGATRON_SOURCE);
        if (!hybrid && !fused)
            SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_TOP_INDEX, SPW_MEGATRON_LOCAL_ARGSORT,
                             SPW_MEGATRON_LOCAL_MAPPING, SPW_MEGATRON_LOCAL_MAP);
    }
    DIES(OUTPUT);
}

/* --- Backward --- */

static spw_status combine_gradient(spw_execution *run, spw_megatron *g, deepep *e) {
    const bool hybrid = e->how->hybrid;
    float *to[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    if (!hybrid) BORN(D_RESTORED);
    for (size_t r = 0; r < run->shape.ranks; r++)
        to[r] = hybrid ? e->tokens.lists[r].staged : AT(D_RESTORED, r);
    SPW_TRY(spw_megatron_tokens_send(run, g, &e->tokens, "combine gradient", false, to));
    if (!hybrid) spw_step(run, "unpermute gradient");
    BORN(D_FC2_OUTPUT);
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_megatron_copy_local(run, g, r, to[r], AT(D_FC2_OUTPUT, r));
    if (!hybrid) DIES(D_RESTORED);
cleanup:
    return status;
}

/* Gradients of the weights of rows that arrived, in place of the weights. */
static void take_weight_gradients(spw_execution *run, const spw_megatron *g, deepep *e) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const size_t *offset = spw_experts_offset(run, &g->experts, r);
        for (size_t x = 0; x < run->local; x++) {
            for (size_t i = offset[x]; i < offset[x + 1]; i++) {
                const int32_t row = g->rank[r].local_row[i];
                if (row >= 0) e->tokens.lists[r].weight[(size_t)row * run->local + x] = AT(D_ROW_PROBS, r)[i];
            }
        }
    }
}

static spw_status permute_gradient(spw_execution *run, spw_megatron *g, deepep *e, float *from[]) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused;
    spw_status status = SPW_OK;
    if (!hybrid) {
        spw_step(run, "permute gradient");
        BORN(D_RECEIVED);
    }
    for (size_t r = 0; r < run->shape.ranks; r++) {
        from[r] = hybrid ? e->tokens.lists[r].staged : AT(D_RECEIVED, r);
        SPW_TRY(spw_megatron_add_local(run, g, r, AT(D_FC1_INPUT, r), from[r]));
    }
    take_weight_gradients(run, g, e);
    if (hybrid) return SPW_OK;
    DIES(D_FC1_INPUT);
    if (!fused) {
        BORN(D_LOCAL_PROBS);
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_ROW_PROBS, SPW_MEGATRON_LOCAL_ARGSORT);
    }
    BORN(D_TOKEN_PROBS);
    if (fused) {
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_ROW_PROBS, SPW_MEGATRON_LOCAL_ROW_ID_MAP);
    } else {
        DIES(D_LOCAL_PROBS);
    }
cleanup:
    return status;
}

static void spread_top_probs(spw_execution *run, spw_megatron *g) {
    const size_t top_k = run->shape.top_k, experts = run->shape.experts;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < run->assignments; i++) {
            const int32_t x = spw_rank_expert(run, r)[i];
            if (x >= 0 && g->rank[r].choice[i / top_k * experts + (size_t)x] >= 0)
                AT(D_PROBS, r)[i / top_k * experts + (size_t)x] = AT(D_TOP_PROBS, r)[i];
        }
    }
}

static spw_status router_gradient(spw_execution *run, spw_megatron *g, const deepep *e) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused, nccl = e->how->handle_bytes > 0;
    spw_status status = SPW_OK;
    spw_step(run, "router gradient");
    if (!hybrid || nccl) {
        BORN(D_PROBS);
        spread_top_probs(run, g);
        DIES(D_TOP_PROBS);
    }
    if (fused) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_SORTED_IDS, SPW_MEGATRON_PROBS);
    if (!hybrid && !fused) DIES(TOP_INDEX);
    BORN(D_LOGITS);
    spw_megatron_hand_over_weights(run, g);
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_PROBS, SPW_MEGATRON_LOGITS);
    if (!fused) DIES(CHOSEN_PROBS);
    DIES(D_LOGITS);
    spw_step(run, "layer end");
    if (!hybrid || nccl) DIES(TOP_PROBS);
    if (nccl) DIES(TOP_INDEX);
    if (!hybrid && !fused) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOCAL_MAP, SPW_MEGATRON_LOCAL_MAPPING);
    if (hybrid && !nccl) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_PROBS, SPW_MEGATRON_MAP);
    DIES(D_X);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, spw_megatron *g, deepep *e, float *const from[]) {
    const bool hybrid = e->how->hybrid, nccl = e->how->handle_bytes > 0, dense = hybrid && !nccl;
    const size_t outputs = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    BORN(D_X);
    if (dense) {
        BORN(D_PROBS);
    } else {
        BORN(D_TOP_PROBS);
    }
    SPW_TRY(spw_megatron_tokens_return(run, g, &e->tokens, "dispatch gradient", from,
                                       &g->tensor[SPW_MEGATRON_D_X], true));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(run->out.dx + r * outputs, AT(D_X, r), outputs * sizeof(float));
    if (hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_FC1_INPUT, SPW_MEGATRON_D_ROW_PROBS);
    if (nccl) DIES(HANDLE);
    if (!hybrid)
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_RECEIVED, SPW_MEGATRON_D_TOKEN_PROBS, SPW_MEGATRON_SOURCE);
    SPW_TRY(router_gradient(run, g, e));
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, spw_megatron *g, deepep *e, const char *there,
                          const char *back) {
    spw_status status = SPW_OK;
    SPW_TRY(dispatch(run, g, e, there));
    SPW_TRY(permute(run, g, e));
    SPW_TRY(spw_megatron_experts_forward(run, g));
    SPW_TRY(combine(run, g, e, back));
    end_layer(run, g, e);
cleanup:
    return status;
}

/* --- Paged stash --- */

static const spw_megatron_tensor stashed[] = {SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_FC1_OUTPUT,
                                              SPW_MEGATRON_ROW_PROBS, SPW_MEGATRON_FC2_INPUT};
enum { STASHED = sizeof stashed / sizeof *stashed };

/* Gate and up of fc1_output stand one behind the other, so each is a tensor of its own here. */
static size_t parts_of(const spw_execution *run, size_t i) {
    return stashed[i] == SPW_MEGATRON_FC1_OUTPUT && run->shape.activation.plain == SPW_GATED ? 2 : 1;
}
static size_t width_of(const spw_execution *run, size_t i) {
    const size_t width[STASHED] = {run->shape.hidden, run->shape.ffn, 1, run->shape.ffn};
    return width[i];
}

/* The rows that are in use, to pages or back; what repeats its activation does not keep it. */
static spw_status move_stash(spw_execution *run, spw_megatron *g, deepep *e, bool back) {
    spw_status status = SPW_OK;
    if (e->how->page == 0) return SPW_OK;
    e->pool.page_rows = e->how->page;
    spw_step(run, back ? "reload" : "stash");
    for (size_t i = 0; i < STASHED; i++) {
        const spw_megatron_tensor t = stashed[i];
        if (t == SPW_MEGATRON_FC2_INPUT && run->shape.recompute_activation) continue;
        if (back) SPW_TRY(spw_megatron_born(run, g, t));
        for (size_t r = 0; r < run->shape.ranks; r++) {
            for (size_t part = 0; part < parts_of(run, i); part++) {
                float *rows =
                    g->tensor[t].at[r] + part * g->rows[SPW_MEGATRON_ROWS_EXPERT_ROWS][r] * width_of(run, i);
                if (back) {
                    SPW_TRY(spw_waiting_pages_pop(&e->pool, run->out.rows[r], width_of(run, i), rows));
                } else {
                    SPW_TRY(spw_waiting_pages_push(run, &e->pool, run->out.rows[r], width_of(run, i), rows));
                }
            }
        }
        if (!back) spw_megatron_dies(run, g, t);
    }
cleanup:
    return status;
}

spw_status spw_execute_megatron_deepep(spw_execution *run, const spw_megatron_deepep *how) {
    float *gradient[SPW_EXECUTION_RANKS] = {NULL};
    spw_megatron *g = NULL;
    deepep *e = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, 1, &e));
    e->how = how;
    e->tokens.hybrid = how->hybrid, e->tokens.worst = how->worst;
    e->tokens.top = !how->hybrid || how->handle_bytes > 0;
    e->tokens.most = how->handle_bytes > 0 ? how->fixed : 0;
    SPW_TRY(spw_megatron_create(run, &how->settings, &g));
    for (size_t r = 0; r < run->shape.ranks; r++) g->rows[SPW_MEGATRON_ROWS_HANDLE][r] = how->handle_bytes;
    SPW_TRY(spw_megatron_tokens_notify(run, g, &e->tokens));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, g, e, "dispatch", "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, g, e, "dispatch again", "combine again"));
    SPW_TRY(move_stash(run, g, e, false));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(move_stash(run, g, e, true));
    SPW_TRY(combine_gradient(run, g, e));
    SPW_TRY(spw_megatron_experts_backward(run, g));
    SPW_TRY(permute_gradient(run, g, e, gradient));
    SPW_TRY(dispatch_gradient(run, g, e, gradient));
cleanup:
    return status;
}
