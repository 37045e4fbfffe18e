#include "reference/schemes/megatron/megatron_tokens.h"

#include "base/memory.h"

#include <string.h>

#define AT(name, r) (g->tensor[SPW_MEGATRON_##name].at[r])

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

static spw_status list_tokens(spw_execution *run, spw_megatron *g, spw_megatron_tokens *tokens, size_t r) {
    const size_t ranks = run->shape.ranks;
    spw_token_lists *l = &tokens->lists[r];
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

/* The first tokens of a rank find a slot there; of the others all choices that live there are lost. */
static void give_slots(spw_execution *run, const spw_megatron *g, spw_megatron_tokens *tokens, size_t d) {
    size_t slots = tokens->most;
    for (size_t r = 0; r < run->shape.ranks && tokens->most > 0; r++) {
        spw_token_lists *l = &tokens->lists[r];
        const size_t wanted = l->sent[d];
        l->sent[d] = wanted < slots ? wanted : slots;
        slots -= l->sent[d];
        for (size_t n = l->sent[d]; n < wanted; n++) {
            const int32_t *choice =
                g->rank[r].choice + (size_t)l->sent_id[d * run->tokens + n] * run->shape.experts;
            for (size_t x = 0; x < run->local; x++) run->out.dropped[r] += choice[d * run->local + x] >= 0;
        }
    }
}

/* Counts go ahead of the rows: the receiver waits for them. */
spw_status spw_megatron_tokens_notify(spw_execution *run, spw_megatron *g, spw_megatron_tokens *tokens) {
    const size_t ranks = run->shape.ranks;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, "counts"));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(list_tokens(run, g, tokens, r));
    for (size_t d = 0; d < ranks; d++) give_slots(run, g, tokens, d);
    for (size_t r = 0; r < ranks; r++) {
        for (size_t d = 0; d < ranks; d++)
            SPW_TRY(spw_fabric_send(run->fabric, r, d, &tokens->lists[r].sent[d], 1, sizeof(size_t), 4));
    }
    for (size_t d = 0; d < ranks; d++) {
        spw_token_lists *l = &tokens->lists[d];
        for (size_t s = 0; s < ranks; s++) {
            size_t rows = 0;
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, &rows, 1, sizeof rows));
            l->begin[s + 1] = l->begin[s] + rows;
        }
        const size_t arrived = l->begin[ranks];
        g->rows[SPW_MEGATRON_ROWS_RECEIVED][d] = tokens->worst ? ranks * run->tokens : arrived;
        SPW_TRY(SPW_SCRATCH(run, arrived * run->local, &l->column));
        SPW_TRY(SPW_SCRATCH(run, arrived * run->local, &l->weight));
        if (tokens->hybrid) SPW_TRY(SPW_SCRATCH(run, arrived * run->shape.hidden, &l->staged));
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
static spw_status receive_choices(spw_execution *run, spw_megatron_tokens *tokens, const spw_megatron *g,
                                  size_t d, size_t s, size_t row) {
    const size_t top_k = run->shape.top_k, experts = node_experts(run), local = run->local;
    spw_token_lists *l = &tokens->lists[d];
    int64_t *expert = NULL;
    float *weight = NULL, *dense = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(top_k, &expert));
    SPW_TRY(SPW_ALLOC(top_k, &weight));
    SPW_TRY(SPW_ALLOC(experts, &dense));
    for (size_t x = 0; x < local; x++) l->column[row * local + x] = -1, l->weight[row * local + x] = 0.0f;
    if (tokens->hybrid) {
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
spw_status spw_megatron_tokens_send(spw_execution *run, spw_megatron *g, spw_megatron_tokens *tokens,
                                    const char *name, bool choices, float *const to[]) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    const bool hybrid = tokens->hybrid;
    const size_t choice_bytes = choices ? (spans_nodes(run) ? 8 : 12) : 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < ranks; r++) {
        const float *x = choices ? spw_rank_x(run, r) : spw_rank_dy(run, r);
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < tokens->lists[r].sent[d]; n++) {
                const int32_t t = tokens->lists[r].sent_id[d * run->tokens + n];
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
            for (size_t row = tokens->lists[d].begin[s]; row < tokens->lists[d].begin[s + 1]; row++) {
                int32_t t = 0;
                if (!hybrid) SPW_TRY(spw_fabric_receive(run->fabric, d, s, &t, 1, sizeof t));
                if (!hybrid && choices) AT(SOURCE, d)[row] = (float)t;
                SPW_TRY(spw_receive_rows(run, d, s, to[d] + row * hidden, 1, hidden));
                if (choices) SPW_TRY(receive_choices(run, tokens, g, d, s, row));
            }
        }
    }
cleanup:
    return status;
}

/* --- Back --- */

static spw_status return_rows(spw_execution *run, const spw_megatron_tokens *tokens, size_t d,
                              const float *from, float *weight, bool gradients) {
    const size_t hidden = run->shape.hidden, local = run->local,
                 choices = tokens->hybrid ? node_experts(run) : run->shape.top_k;
    const spw_token_lists *l = &tokens->lists[d];
    spw_status status = SPW_OK;
    for (size_t j = 0, s = 0; j < l->begin[run->shape.ranks]; j++) {
        while (j >= l->begin[s + 1]) s++;
        const uint32_t source = (uint32_t)j;
        if (!tokens->hybrid)
            SPW_TRY(spw_fabric_send(run->fabric, d, s, &source, 1, sizeof source,
                                    source_bytes(run, gradients ? 4 : 0)));
        SPW_TRY(spw_send_rows(run, d, s, from + j * hidden, 1, hidden));
        if (!gradients) continue;
        memset(weight, 0, choices * sizeof *weight);
        for (size_t x = 0; x < local; x++) { /* by choice, or by expert of the node */
            const int32_t column = l->column[j * local + x];
            if (column >= 0)
                weight[tokens->hybrid ? d * local - node_first(run, d) + x : (size_t)column] =
                    l->weight[j * local + x];
        }
        SPW_TRY(spw_fabric_send(run->fabric, d, s, weight, choices, sizeof *weight, 4));
    }
cleanup:
    return status;
}

/* The gradients of the weights of token t of rank s that rank d has. */
static void take_gradients(spw_execution *run, spw_megatron *g, const spw_megatron_tokens *tokens, size_t s,
                           size_t d, size_t t, const float *weight) {
    const size_t top_k = run->shape.top_k, experts = run->shape.experts, local = run->local;
    for (size_t k = 0; k < top_k; k++) {
        const int32_t choice = spw_rank_expert(run, s)[t * top_k + k];
        const size_t x = (size_t)choice;
        if (choice < 0 || x < d * local || x >= (d + 1) * local || g->rank[s].choice[t * experts + x] < 0)
            continue;
        float *dense = AT(D_PROBS, s), *top = AT(D_TOP_PROBS, s);
        const float value = weight[tokens->hybrid ? x - node_first(run, d) : k];
        if (tokens->top) {
            top[t * top_k + k] = value;
        } else {
            dense[t * experts + x] = value;
        }
    }
}

spw_status spw_megatron_tokens_return(spw_execution *run, spw_megatron *g, const spw_megatron_tokens *tokens,
                                      const char *name, float *const from[], const spw_spread *to,
                                      bool gradients) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden,
                 choices = tokens->hybrid ? node_experts(run) : run->shape.top_k;
    double *sum = NULL;
    float *row = NULL, *weight = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(run->tokens * hidden, &sum));
    SPW_TRY(SPW_ALLOC(hidden, &row));
    SPW_TRY(SPW_ALLOC(choices, &weight));
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t d = 0; d < ranks; d++) SPW_TRY(return_rows(run, tokens, d, from[d], weight, gradients));
    for (size_t s = 0; s < ranks; s++) {
        memset(sum, 0, run->tokens * hidden * sizeof *sum);
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < tokens->lists[s].sent[d]; n++) {
                const size_t t = (size_t)tokens->lists[s].sent_id[d * run->tokens + n];
                uint32_t source = 0;
                if (!tokens->hybrid)
                    SPW_TRY(spw_fabric_receive(run->fabric, s, d, &source, 1, sizeof source));
                SPW_TRY(spw_receive_rows(run, s, d, row, 1, hidden));
                for (size_t h = 0; h < hidden; h++) sum[t * hidden + h] += (double)row[h];
                if (!gradients) continue;
                SPW_TRY(spw_fabric_receive(run->fabric, s, d, weight, choices, sizeof *weight));
                take_gradients(run, g, tokens, s, d, t, weight);
            }
        }
        for (size_t i = 0; i < run->tokens * hidden; i++) to->at[s][i] = (float)sum[i];
    }
cleanup:
    spw_free(sum), spw_free(row), spw_free(weight);
    return status;
}
