#include "reference/schemes/execute_megatron_deepep.h"

#include "base/memory.h"

#include <string.h>

#define BORN(name) SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_##name))
#define DIES(name) spw_megatron_dies(run, g, SPW_MEGATRON_##name)
#define AT(name, r) (g->tensor[SPW_MEGATRON_##name].at[r])

/* What one rank sends and gets. */
typedef struct token_lists {
    size_t *sent;     /* [ranks] tokens to each rank */
    int32_t *sent_id; /* [ranks][tokens] which ones, in order */
    size_t *begin;    /* [ranks + 1] rows that arrive from each source */
    int32_t *column;  /* [rows that arrive][local] which choice of the token an expert is, or -1 */
    float *weight;    /* [rows that arrive][local] */
    float *staged;    /* HybridEP: [rows that arrive][hidden] in its own buffer */
} token_lists;

typedef struct deepep {
    const spw_megatron_deepep *how;
    token_lists lists[SPW_EXECUTION_RANKS];
} deepep;

/* --- Bytes of a row --- */

static bool spans_nodes(const spw_execution *run) {
    return run->shape.node_ranks > 0 && run->shape.ranks > run->shape.node_ranks;
}

/* What says where a row came from: inside a node 4 bytes; between nodes 8, and what fills a row up to 16. */
static size_t source_bytes(const spw_execution *run, size_t choice_bytes) {
    const size_t used = run->shape.hidden * run->shape.element_bytes + run->shape.top_k * choice_bytes;
    return spans_nodes(run) ? spw_megatron_round_up(used + 8, 16) - used : 4;
}

static size_t node_experts(const spw_execution *run) {
    return run->local * (spans_nodes(run) ? run->shape.node_ranks : run->shape.ranks);
}

/* --- Who sends what --- */

static spw_status list_tokens(spw_execution *run, spw_megatron *g, deepep *e, size_t r) {
    const size_t ranks = run->shape.ranks;
    token_lists *l = &e->lists[r];
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, ranks, &l->sent));
    SPW_TRY(SPW_SCRATCH(run, ranks * run->tokens, &l->sent_id));
    SPW_TRY(SPW_SCRATCH(run, ranks + 1, &l->begin));
    for (size_t t = 0; t < run->tokens; t++) {
        for (size_t d = 0; d < ranks; d++) {
            bool wanted = false;
            for (size_t x = 0; x < run->local; x++)
                wanted |= g->rank[r].choice[t * run->shape.experts + d * run->local + x] >= 0;
            if (wanted) l->sent_id[d * run->tokens + l->sent[d]++] = (int32_t)t;
        }
    }
cleanup:
    return status;
}

/* Counts go ahead of the rows: the receiver waits for them. */
static spw_status notify(spw_execution *run, spw_megatron *g, deepep *e) {
    const size_t ranks = run->shape.ranks;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, "counts"));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(list_tokens(run, g, e, r));
        for (size_t d = 0; d < ranks; d++)
            SPW_TRY(spw_fabric_send(run->fabric, r, d, &e->lists[r].sent[d], 1, sizeof(size_t), 4));
    }
    for (size_t d = 0; d < ranks; d++) {
        token_lists *l = &e->lists[d];
        for (size_t s = 0; s < ranks; s++) {
            size_t rows = 0;
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, &rows, 1, sizeof rows));
            l->begin[s + 1] = l->begin[s] + rows;
        }
        const size_t arrived = l->begin[ranks];
        g->rows[SPW_MEGATRON_ROWS_RECEIVED][d] = e->how->worst ? ranks * run->tokens : arrived;
        SPW_TRY(SPW_SCRATCH(run, arrived * run->local, &l->column));
        SPW_TRY(SPW_SCRATCH(run, arrived * run->local, &l->weight));
        if (e->how->hybrid) SPW_TRY(SPW_SCRATCH(run, arrived * run->shape.hidden, &l->staged));
    }
cleanup:
    return status;
}

/* The kept choices of a token that live on rank d: expert of the rank and weight, others -1 and 0. [top_k] each. */
static void choices_of(const spw_execution *run, const spw_megatron *g, size_t r, size_t t, int64_t *expert,
                       float *weight) {
    for (size_t k = 0; k < run->shape.top_k; k++) {
        const int32_t x = spw_rank_expert(run, r)[t * run->shape.top_k + k];
        const bool kept = x >= 0 && g->rank[r].choice[t * run->shape.experts + (size_t)x] >= 0;
        expert[k] = kept ? x : -1;
        weight[k] = kept ? spw_rank_weight(run, r)[t * run->shape.top_k + k] : 0.0f;
    }
}

/* --- Dispatch --- */

/* HybridEP: the weights of the experts of the receiver's node; ours is their place among them. */
static size_t node_first(const spw_execution *run, size_t rank) {
    return spans_nodes(run) ? rank / run->shape.node_ranks * run->shape.node_ranks * run->local : 0;
}

static spw_status send_choices(spw_execution *run, const spw_megatron *g, bool hybrid, size_t r, size_t d,
                               size_t t) {
    const size_t top_k = run->shape.top_k, experts = node_experts(run);
    int64_t *expert = NULL;
    float *weight = NULL, *dense = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(top_k, &expert));
    SPW_TRY(SPW_ALLOC(top_k, &weight));
    SPW_TRY(SPW_ALLOC(experts, &dense));
    choices_of(run, g, r, t, expert, weight);
    if (!hybrid) {
        SPW_TRY(spw_fabric_send(run->fabric, r, d, expert, top_k, sizeof *expert, spans_nodes(run) ? 4 : 8));
        SPW_TRY(spw_fabric_send(run->fabric, r, d, weight, top_k, sizeof *weight, 4));
        goto cleanup;
    }
    for (size_t i = 0; i < experts; i++) dense[i] = -1.0f; /* not chosen; a weight is not negative */
    for (size_t k = 0; k < top_k; k++) {
        const size_t x = (size_t)expert[k] - node_first(run, d);
        if (expert[k] >= 0 && (size_t)expert[k] >= node_first(run, d) && x < experts) dense[x] = weight[k];
    }
    SPW_TRY(spw_fabric_send(run->fabric, r, d, dense, experts, sizeof *dense, 4));
cleanup:
    spw_free(expert), spw_free(weight), spw_free(dense);
    return status;
}

/* Fills column and weight of one row that arrived. */
static spw_status receive_choices(spw_execution *run, deepep *e, const spw_megatron *g, size_t d, size_t s,
                                  size_t row) {
    const size_t top_k = run->shape.top_k, experts = node_experts(run), local = run->local;
    token_lists *l = &e->lists[d];
    int64_t *expert = NULL;
    float *weight = NULL, *dense = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(top_k, &expert));
    SPW_TRY(SPW_ALLOC(top_k, &weight));
    SPW_TRY(SPW_ALLOC(experts, &dense));
    for (size_t x = 0; x < local; x++) l->column[row * local + x] = -1, l->weight[row * local + x] = 0.0f;
    if (e->how->hybrid) {
        SPW_TRY(spw_fabric_receive(run->fabric, d, s, dense, experts, sizeof *dense));
        for (size_t x = 0; x < local; x++) {
            const float w = dense[d * local - node_first(run, d) + x];
            if (w < 0.0f) continue;
            l->column[row * local + x] = (int32_t)x;
            l->weight[row * local + x] = w;
        }
        goto cleanup;
    }
    SPW_TRY(spw_fabric_receive(run->fabric, d, s, expert, top_k, sizeof *expert));
    SPW_TRY(spw_fabric_receive(run->fabric, d, s, weight, top_k, sizeof *weight));
    for (size_t k = 0; k < top_k; k++) {
        AT(RECEIVED_INDEX, d)[row * top_k + k] = (float)expert[k];
        AT(TOKEN_PROBS, d)[row * top_k + k] = weight[k];
        if (expert[k] < 0 || (size_t)expert[k] / local != d) continue;
        l->column[row * local + (size_t)expert[k] % local] = (int32_t)k;
        l->weight[row * local + (size_t)expert[k] % local] = weight[k];
    }
cleanup:
    spw_free(expert), spw_free(weight), spw_free(dense);
    return status;
}

/* Rows of tokens [tokens][hidden] of every rank to the ranks that want them; with their choices, or by what is known of
 * them. */
static spw_status send_tokens(spw_execution *run, spw_megatron *g, deepep *e, const char *name, bool choices,
                              float *const to[]) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    const bool hybrid = e->how->hybrid;
    const size_t choice_bytes = choices ? (spans_nodes(run) ? 8 : 12) : 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < ranks; r++) {
        const float *x = choices ? spw_rank_x(run, r) : spw_rank_dy(run, r);
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < e->lists[r].sent[d]; n++) {
                const int32_t t = e->lists[r].sent_id[d * run->tokens + n];
                if (!hybrid)
                    SPW_TRY(
                        spw_fabric_send(run->fabric, r, d, &t, 1, sizeof t, source_bytes(run, choice_bytes)));
                SPW_TRY(spw_send_rows(run, r, d, x + (size_t)t * hidden, 1, hidden));
                if (choices) SPW_TRY(send_choices(run, g, hybrid, r, d, (size_t)t));
            }
        }
    }
    for (size_t d = 0; d < ranks; d++) {
        for (size_t s = 0; s < ranks; s++) {
            for (size_t row = e->lists[d].begin[s]; row < e->lists[d].begin[s + 1]; row++) {
                int32_t t = 0;
                if (!hybrid) SPW_TRY(spw_fabric_receive(run->fabric, d, s, &t, 1, sizeof t));
                if (!hybrid && choices) AT(SOURCE, d)[row] = (float)t;
                SPW_TRY(spw_receive_rows(run, d, s, to[d] + row * hidden, 1, hidden));
                if (choices) SPW_TRY(receive_choices(run, e, g, d, s, row));
            }
        }
    }
cleanup:
    return status;
}

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

static spw_status place(spw_execution *run, spw_megatron *g, const deepep *e, size_t r) {
    const size_t local = run->local, rows = e->lists[r].begin[run->shape.ranks],
                 all = g->rows[SPW_MEGATRON_ROWS_RECEIVED][r];
    const bool tokens_pad = !e->how->hybrid && !g->set.fused;
    uint8_t *map = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, all * local, &map));
    for (size_t i = 0; i < rows * local; i++) map[i] = e->lists[r].column[i] >= 0;
    if (tokens_pad) pad_with_tokens(rows, local, g->set.expert_align, map);
    SPW_TRY(spw_megatron_place_local(run, g, r, map, e->lists[r].column, tokens_pad ? 1 : g->set.expert_align,
                                     e->how->fixed ? run->shape.ranks * run->assignments : 0));
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, spw_megatron *g, deepep *e, const char *name) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused;
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
    if (!hybrid) {
        BORN(TOP_PROBS);
        BORN(TOP_INDEX);
        if (!fused) DIES(PROBS);
    }
    spw_step(run, "dispatch");
    if (!hybrid) {
        BORN(RECEIVED);
        BORN(RECEIVED_INDEX);
        BORN(TOKEN_PROBS);
        BORN(SOURCE);
    }
    for (size_t r = 0; r < run->shape.ranks; r++) to[r] = hybrid ? e->lists[r].staged : AT(RECEIVED, r);
    SPW_TRY(send_tokens(run, g, e, name, true, to));
    if (run->pass == SPW_PASS_FORWARD) {
        for (size_t r = 0; r < run->shape.ranks; r++) SPW_TRY(place(run, g, e, r));
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
                AT(ROW_PROBS, r)[i] = row < 0 ? 0.0f : e->lists[r].weight[(size_t)row * run->local + x];
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
        spw_megatron_copy_local(run, g, r, hybrid ? e->lists[r].staged : AT(RECEIVED, r), AT(FC1_INPUT, r));
cleanup:
    return status;
}

/* --- Combine --- */

/* One row a token that arrived back to its source, summed there in order of rank; `to` [tokens][hidden] of a rank. With
 * `gradients` the weights' gradients too. */
static spw_status send_back(spw_execution *run, spw_megatron *g, const deepep *e, const char *name,
                            float *const from[], const spw_spread *to, bool gradients) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, local = run->local,
                 top_k = run->shape.top_k, dense = node_experts(run);
    const bool hybrid = e->how->hybrid;
    double *sum = NULL;
    float *row = NULL, *weight = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(run->tokens * hidden, &sum));
    SPW_TRY(SPW_ALLOC(hidden, &row));
    SPW_TRY(SPW_ALLOC(hybrid ? dense : top_k, &weight));
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t d = 0; d < ranks; d++) {
        const token_lists *l = &e->lists[d];
        for (size_t j = 0, s = 0; j < l->begin[ranks]; j++) {
            while (j >= l->begin[s + 1]) s++;
            const uint32_t source = (uint32_t)j;
            if (!hybrid)
                SPW_TRY(spw_fabric_send(run->fabric, d, s, &source, 1, sizeof source,
                                        source_bytes(run, gradients ? 4 : 0)));
            SPW_TRY(spw_send_rows(run, d, s, from[d] + j * hidden, 1, hidden));
            if (!gradients) continue;
            memset(weight, 0, (hybrid ? dense : top_k) * sizeof *weight);
            for (size_t x = 0; x < local; x++) {
                const int32_t column = l->column[j * local + x];
                if (column < 0) continue;
                /* Behind DeepEP by choice, behind HybridEP by expert of the node. */
                weight[hybrid ? d * local - node_first(run, d) + x : (size_t)column] =
                    l->weight[j * local + x];
            }
            SPW_TRY(spw_fabric_send(run->fabric, d, s, weight, hybrid ? dense : top_k, sizeof *weight, 4));
        }
    }
    for (size_t s = 0; s < ranks; s++) {
        memset(sum, 0, run->tokens * hidden * sizeof *sum);
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < e->lists[s].sent[d]; n++) {
                const size_t t = (size_t)e->lists[s].sent_id[d * run->tokens + n];
                uint32_t source = 0;
                if (!hybrid) SPW_TRY(spw_fabric_receive(run->fabric, s, d, &source, 1, sizeof source));
                SPW_TRY(spw_receive_rows(run, s, d, row, 1, hidden));
                for (size_t h = 0; h < hidden; h++) sum[t * hidden + h] += (double)row[h];
                if (!gradients) continue;
                SPW_TRY(
                    spw_fabric_receive(run->fabric, s, d, weight, hybrid ? dense : top_k, sizeof *weight));
                for (size_t k = 0; k < top_k; k++) {
                    const int32_t x = spw_rank_expert(run, s)[t * top_k + k];
                    if (x < 0 || (size_t)x / local != d ||
                        g->rank[s].choice[t * run->shape.experts + (size_t)x] < 0)
                        continue;
                    if (hybrid) {
                        AT(D_PROBS, s)
                        [t * run->shape.experts + (size_t) x] = weight[(size_t)x - node_first(run, d)];
                    } else {
                        AT(D_TOP_PROBS, s)[t * top_k + k] = weight[k];
                    }
                }
            }
        }
        for (size_t i = 0; i < run->tokens * hidden; i++) to->at[s][i] = (float)sum[i];
    }
cleanup:
    spw_free(sum), spw_free(row), spw_free(weight);
    return status;
}

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
        from[r] = hybrid ? e->lists[r].staged : AT(RESTORED, r);
        SPW_TRY(spw_megatron_add_local(run, g, r, AT(FC2_OUTPUT, r), from[r]));
    }
    if (!hybrid) {
        DIES(FC2_OUTPUT);
        if (first) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
    }
    spw_step(run, "combine");
    BORN(OUTPUT);
    SPW_TRY(send_back(run, g, e, name, from, &g->tensor[SPW_MEGATRON_OUTPUT], false));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(run->out.y + r * outputs, AT(OUTPUT, r), outputs * sizeof(float));
    if (hybrid) {
        DIES(FC2_OUTPUT);
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
    const bool hybrid = e->how->hybrid, fused = g->set.fused, first = run->pass == SPW_PASS_FORWARD;
    spw_step(run, "layer end");
    if (!hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_RECEIVED, SPW_MEGATRON_TOKEN_PROBS, SPW_MEGATRON_MAP);
    if (first && hybrid)
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS, SPW_MEGATRON_PROBS,
                         SPW_MEGATRON_MAP);
    if (first) {
        DIES(LOGITS);
        if (!fused) DIES(CHOSEN_PROBS);
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
    for (size_t r = 0; r < run->shape.ranks; r++) to[r] = hybrid ? e->lists[r].staged : AT(D_RESTORED, r);
    SPW_TRY(send_tokens(run, g, e, "combine gradient", false, to));
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
                if (row >= 0) e->lists[r].weight[(size_t)row * run->local + x] = AT(D_ROW_PROBS, r)[i];
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
        from[r] = hybrid ? e->lists[r].staged : AT(D_RECEIVED, r);
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

static spw_status dispatch_gradient(spw_execution *run, spw_megatron *g, deepep *e, float *const from[]) {
    const bool hybrid = e->how->hybrid, fused = g->set.fused;
    const size_t outputs = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    BORN(D_X);
    if (hybrid) {
        BORN(D_PROBS);
    } else {
        BORN(D_TOP_PROBS);
    }
    SPW_TRY(send_back(run, g, e, "dispatch gradient", from, &g->tensor[SPW_MEGATRON_D_X], true));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(run->out.dx + r * outputs, AT(D_X, r), outputs * sizeof(float));
    if (hybrid) {
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_FC1_INPUT, SPW_MEGATRON_D_ROW_PROBS);
        spw_step(run, "router gradient");
    } else {
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_RECEIVED, SPW_MEGATRON_D_TOKEN_PROBS, SPW_MEGATRON_SOURCE);
        spw_step(run, "router gradient");
        BORN(D_PROBS);
        spread_top_probs(run, g);
        DIES(D_TOP_PROBS);
        if (fused) {
            SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_SORTED_IDS, SPW_MEGATRON_PROBS);
        } else {
            DIES(TOP_INDEX);
        }
    }
    BORN(D_LOGITS);
    spw_megatron_hand_over_weights(run, g);
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_PROBS, SPW_MEGATRON_LOGITS);
    if (!fused) DIES(CHOSEN_PROBS);
    DIES(D_LOGITS);
    spw_step(run, "layer end");
    if (!hybrid) DIES(TOP_PROBS);
    if (!hybrid && !fused) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOCAL_MAP, SPW_MEGATRON_LOCAL_MAPPING);
    if (hybrid) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_PROBS, SPW_MEGATRON_MAP);
    DIES(D_X);
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

spw_status spw_execute_megatron_deepep(spw_execution *run, const spw_megatron_deepep *how) {
    float *gradient[SPW_EXECUTION_RANKS] = {NULL};
    spw_megatron *g = NULL;
    deepep *e = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, 1, &e));
    e->how = how;
    SPW_TRY(spw_megatron_create(run, &how->settings, &g));
    SPW_TRY(notify(run, g, e));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, g, e, "dispatch", "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, g, e, "dispatch again", "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g, e));
    SPW_TRY(spw_megatron_experts_backward(run, g));
    SPW_TRY(permute_gradient(run, g, e, gradient));
    SPW_TRY(dispatch_gradient(run, g, e, gradient));
cleanup:
    return status;
}
