/* Megatron-Core's all-to-all dispatcher (docs/schemes.md, section 5.2). Every choice is a row; rows travel by expert and
 * token, with their router weights; the receiver brings together what each of its experts got from all sources. */
#include "reference/schemes/megatron/execute_megatron_alltoall.h"

#include "base/memory.h"
#include "reference/schemes/cut_weights.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/megatron_chunks.h"
#include "reference/schemes/megatron/megatron_sharers.h"

#include <string.h>

#define BORN(name) SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_##name))
#define DIES(name) spw_megatron_dies(run, g, SPW_MEGATRON_##name)
#define AT(name, r) (g->tensor[SPW_MEGATRON_##name].at[r])

static bool many(const spw_execution *run) { return run->local > 1; }

static spw_status permute(spw_execution *run, spw_megatron *g) {
    const bool fused = g->set.fused, slots = g->set.slots;
    const size_t experts = run->shape.experts, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "router");
    BORN(LOGITS);
    if (!fused) BORN(CHOSEN_PROBS);
    BORN(PROBS);
    BORN(MAP);
    spw_megatron_fill_map(run, g);
    spw_step(run, "permute");
    if (fused) BORN(ROW_ID_MAP);
    if (!fused) {
        BORN(COLUMNS);
        BORN(ARGSORT);
        BORN(MAPPING);
        if (slots) DIES(ARGSORT);
        BORN(PROB_COLUMNS);
        if (slots) BORN(PROB_INDEX);
    }
    BORN(SENT_PROBS);
    if (!fused) DIES(PROB_COLUMNS);
    BORN(SENT);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        size_t row = 0;
        spw_gather_rows(spw_rank_x(run, r), g->rank[r].token, g->rows[SPW_MEGATRON_ROWS_SENT][r], hidden,
                        AT(SENT, r));
        for (size_t x = 0; x < experts; x++) {
            for (size_t n = 0; n < g->rank[r].count[x]; n++, row++)
                AT(SENT_PROBS, r)[row] = AT(PROBS, r)[(size_t)g->rank[r].token[row] * experts + x];
        }
    }
    if (!fused) DIES(COLUMNS);
cleanup:
    return status;
}

static spw_status dispatch(spw_execution *run, spw_megatron *g, const char *name) {
    const bool sorts = many(run), copied = sorts || g->set.padded, alone = spw_megatron_alone(run);
    const spw_megatron_tensor rows = alone    ? SPW_MEGATRON_SENT
                                     : copied ? SPW_MEGATRON_RECEIVED
                                              : SPW_MEGATRON_FC1_INPUT,
                              probs = alone    ? SPW_MEGATRON_SENT_PROBS
                                      : copied ? SPW_MEGATRON_RECEIVED_PROBS
                                               : SPW_MEGATRON_ROW_PROBS,
                              sorted = g->set.padded ? SPW_MEGATRON_SORTED : SPW_MEGATRON_FC1_INPUT,
                              sorted_probs =
                                  g->set.padded ? SPW_MEGATRON_SORTED_PROBS : SPW_MEGATRON_ROW_PROBS;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch");
    if (!alone) SPW_TRY(spw_megatron_born(run, g, rows));
    if (!alone) SPW_TRY(spw_megatron_born(run, g, probs));
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, false, SPW_MEGATRON_SENT, rows));
    SPW_TRY(spw_megatron_exchange_probs(run, g, name, false, SPW_MEGATRON_SENT_PROBS, probs));
    if (!alone) DIES(SENT_PROBS);
    if (!sorts) return SPW_OK;
    spw_step(run, "sort chunks");
    if (g->set.fused) BORN(SORT_ID_MAP);
    SPW_TRY(spw_megatron_born(run, g, sorted));
    SPW_TRY(spw_megatron_born(run, g, sorted_probs));
    spw_megatron_sort_chunks(run, g, rows, sorted, run->shape.hidden, false);
    spw_megatron_sort_chunks(run, g, probs, sorted_probs, 1, false);
cleanup:
    return status;
}

/* With one expert a rank and padding, what arrives is what is padded. */
static void pad_what_arrived(spw_megatron *g) {
    g->tensor[SPW_MEGATRON_SORTED] = g->tensor[SPW_MEGATRON_RECEIVED];
    g->tensor[SPW_MEGATRON_SORTED_PROBS] = g->tensor[SPW_MEGATRON_RECEIVED_PROBS];
}

static spw_status combine(spw_execution *run, spw_megatron *g, const char *name) {
    const bool sorts = many(run), padded = g->set.padded, first = run->pass == SPW_PASS_FORWARD;
    const spw_megatron_tensor made = padded ? SPW_MEGATRON_UNPADDED : SPW_MEGATRON_FC2_OUTPUT,
                              returned = sorts ? SPW_MEGATRON_UNSORTED : made;
    spw_status status = SPW_OK;
    if (sorts) {
        spw_step(run, "unsort chunks");
        BORN(UNSORTED);
        spw_megatron_sort_chunks(run, g, SPW_MEGATRON_UNSORTED, made, run->shape.hidden, true);
        spw_megatron_dies(run, g, made);
        if (first && !padded) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
        if (padded) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_SORTED, SPW_MEGATRON_SORTED_PROBS);
    }
    spw_step(run, "combine");
    if (spw_megatron_alone(run)) {
        spw_megatron_hand_on(g, returned, SPW_MEGATRON_COMBINED);
        return spw_megatron_exchange_rows(run, g, name, true, SPW_MEGATRON_COMBINED, SPW_MEGATRON_COMBINED);
    }
    BORN(COMBINED);
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, true, returned, SPW_MEGATRON_COMBINED));
    spw_megatron_dies(run, g, returned);
cleanup:
    return status;
}

/* to[token] = sum of its rows, in order of expert. */
static spw_status add_rows(const spw_execution *run, const spw_megatron *g, size_t r, const float *rows,
                           float *to) {
    const size_t hidden = run->shape.hidden;
    double *sum = NULL;
    const spw_status status = SPW_ALLOC(run->tokens * hidden, &sum);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < g->rows[SPW_MEGATRON_ROWS_SENT][r]; i++) {
        for (size_t h = 0; h < hidden; h++)
            sum[(size_t)g->rank[r].token[i] * hidden + h] += (double)rows[i * hidden + h];
    }
    for (size_t i = 0; i < run->tokens * hidden; i++) to[i] = (float)sum[i];
    spw_free(sum);
    return SPW_OK;
}

static spw_status unpermute(spw_execution *run, spw_megatron *g) {
    const bool first = run->pass == SPW_PASS_FORWARD, fused = g->set.fused, slots = g->set.slots,
               shared = spw_megatron_shares(run), copied = many(run) || g->set.padded || shared;
    const size_t outputs = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "unpermute");
    BORN(OUTPUT);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        SPW_TRY(add_rows(run, g, r, AT(COMBINED, r), AT(OUTPUT, r)));
        memcpy(run->out.y + r * outputs, AT(OUTPUT, r), outputs * sizeof *run->out.y);
    }
    DIES(COMBINED);
    spw_step(run, "layer end");
    DIES(SENT);
    if (spw_megatron_alone(run)) {
        DIES(SENT_PROBS);
    } else if (copied) {
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_RECEIVED, SPW_MEGATRON_RECEIVED_PROBS);
    }
    if (first) {
        if (!copied) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
        if (fused && many(run)) DIES(SORT_ID_MAP);
        spw_megatron_dies(run, g,
                          fused   ? SPW_MEGATRON_ROW_ID_MAP
                          : slots ? SPW_MEGATRON_PROB_INDEX
                                  : SPW_MEGATRON_ARGSORT);
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOGITS, SPW_MEGATRON_PROBS, SPW_MEGATRON_MAP);
        if (!fused) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_CHOSEN_PROBS, SPW_MEGATRON_MAPPING);
    }
    DIES(OUTPUT);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, spw_megatron *g) {
    const bool sorts = many(run), padded = g->set.padded, alone = spw_megatron_alone(run);
    const size_t hidden = run->shape.hidden;
    const spw_megatron_tensor made = padded ? SPW_MEGATRON_D_UNPADDED : SPW_MEGATRON_D_FC2_OUTPUT,
                              arrived = alone   ? SPW_MEGATRON_D_COMBINED
                                        : sorts ? SPW_MEGATRON_D_UNSORTED
                                                : made;
    spw_status status = SPW_OK;
    spw_step(run, "unpermute gradient");
    BORN(D_COMBINED);
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_gather_rows(spw_rank_dy(run, r), g->rank[r].token, g->rows[SPW_MEGATRON_ROWS_SENT][r], hidden,
                        AT(D_COMBINED, r));
    if (spw_megatron_shares(run)) return spw_megatron_combine_gradient_shared(run, g);
    spw_step(run, "combine gradient");
    if (!alone) SPW_TRY(spw_megatron_born(run, g, arrived));
    SPW_TRY(spw_megatron_exchange_rows(run, g, "combine gradient", false, SPW_MEGATRON_D_COMBINED, arrived));
    if (!alone) DIES(D_COMBINED);
    if (!sorts) return SPW_OK;
    spw_step(run, "unsort gradient");
    SPW_TRY(spw_megatron_born(run, g, made));
    spw_megatron_sort_chunks(run, g, arrived, made, hidden, false);
    spw_megatron_dies(run, g, arrived);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, spw_megatron *g) {
    const bool sorts = many(run), padded = g->set.padded;
    const spw_megatron_tensor made = padded ? SPW_MEGATRON_D_SORTED : SPW_MEGATRON_D_FC1_INPUT,
                              made_probs = padded ? SPW_MEGATRON_D_SORTED_PROBS : SPW_MEGATRON_D_ROW_PROBS,
                              rows = sorts ? SPW_MEGATRON_D_RECEIVED : made,
                              probs = sorts ? SPW_MEGATRON_D_RECEIVED_PROBS : made_probs;
    spw_status status = SPW_OK;
    if (sorts) {
        spw_step(run, "sort gradient");
        SPW_TRY(spw_megatron_born(run, g, rows));
        spw_megatron_sort_chunks(run, g, rows, made, run->shape.hidden, true);
        spw_megatron_dies(run, g, made);
        SPW_TRY(spw_megatron_born(run, g, probs));
        spw_megatron_sort_chunks(run, g, probs, made_probs, 1, true);
        spw_megatron_dies(run, g, made_probs);
        if (g->set.fused) DIES(SORT_ID_MAP);
    }
    spw_step(run, "dispatch gradient");
    BORN(D_SENT_PROBS);
    SPW_TRY(spw_megatron_exchange_probs(run, g, "dispatch gradient", true, probs, SPW_MEGATRON_D_SENT_PROBS));
    spw_megatron_dies(run, g, probs);
    if (spw_megatron_alone(run)) {
        spw_megatron_hand_on(g, rows, SPW_MEGATRON_D_SENT);
        return spw_megatron_exchange_rows(run, g, "dispatch gradient", true, SPW_MEGATRON_D_SENT,
                                          SPW_MEGATRON_D_SENT);
    }
    BORN(D_SENT);
    SPW_TRY(spw_megatron_exchange_rows(run, g, "dispatch gradient", true, rows, SPW_MEGATRON_D_SENT));
    spw_megatron_dies(run, g, rows);
cleanup:
    return status;
}

static spw_status permute_gradient(spw_execution *run, spw_megatron *g) {
    const bool fused = g->set.fused, slots = g->set.slots;
    const size_t outputs = run->tokens * run->shape.hidden, experts = run->shape.experts;
    spw_status status = SPW_OK;
    spw_step(run, "permute gradient");
    BORN(D_X);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        SPW_TRY(add_rows(run, g, r, AT(D_SENT, r), AT(D_X, r)));
        memcpy(run->out.dx + r * outputs, AT(D_X, r), outputs * sizeof *run->out.dx);
    }
    DIES(D_SENT);
    BORN(D_PROBS);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_megatron_rank *p = &g->rank[r];
        size_t row = 0;
        for (size_t x = 0; x < experts; x++) {
            for (size_t n = 0; n < p->count[x]; n++, row++)
                AT(D_PROBS, r)[(size_t)p->token[row] * experts + x] = AT(D_SENT_PROBS, r)[row];
        }
    }
    DIES(D_SENT_PROBS);
    spw_megatron_dies(run, g,
                      fused   ? SPW_MEGATRON_ROW_ID_MAP
                      : slots ? SPW_MEGATRON_PROB_INDEX
                              : SPW_MEGATRON_ARGSORT);
    spw_step(run, "router gradient"); /* of padding nothing is left: its weight is not the router's */
    BORN(D_LOGITS);
    spw_megatron_hand_over_weights(run, g);
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_PROBS, SPW_MEGATRON_LOGITS);
    if (!fused) DIES(CHOSEN_PROBS);
    DIES(D_LOGITS);
    spw_step(run, "layer end");
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_PROBS, SPW_MEGATRON_MAP);
    if (!fused) DIES(MAPPING);
    DIES(D_X);
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, spw_megatron *g, const char *to, const char *from) {
    spw_status status = SPW_OK;
    const bool shared = spw_megatron_shares(run);
    SPW_TRY(permute(run, g));
    SPW_TRY((shared ? spw_megatron_dispatch_shared : dispatch)(run, g, to));
    if (g->set.padded && !many(run)) pad_what_arrived(g);
    SPW_TRY(spw_megatron_experts_forward(run, g));
    SPW_TRY((shared ? spw_megatron_combine_shared : combine)(run, g, from));
    SPW_TRY(unpermute(run, g));
cleanup:
    return status;
}

spw_status spw_execute_megatron_alltoall_with(spw_execution *run, const spw_megatron_settings *settings) {
    const bool shared = spw_megatron_shares(run);
    spw_expert_gradients whole = {.w0 = NULL};
    spw_megatron *g = NULL;
    spw_status status = SPW_OK;
    if (shared && settings->padded)
        return spw_fail(SPW_EARG, "rows that experts pad are not executed where %zu ranks share an expert",
                        run->shape.expert_tensor);
    if (shared) SPW_TRY(spw_cut_weights(run, &whole));
    SPW_TRY(spw_megatron_create(run, settings, &g));
    SPW_TRY(spw_megatron_exchange_counts(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, g, "dispatch", "combine"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, g, "dispatch again", "combine again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(spw_megatron_experts_backward(run, g));
    SPW_TRY((shared ? spw_megatron_dispatch_gradient_shared : dispatch_gradient)(run, g));
    SPW_TRY(permute_gradient(run, g));
    if (shared) spw_join_gradients(run, &whole);
cleanup:
    return status;
}

spw_status spw_execute_megatron_alltoall(spw_execution *run) {
    const size_t align = spw_megatron_align_of(run);
    const bool router = spw_execution_is(&run->shape, "pay", "router");
    const double factor = spw_execution_number(&run->shape, "capacity_factor", run->shape.factor);
    const spw_megatron_settings settings = {.capacity_factor = factor,
                                            .by_position =
                                                spw_execution_is(&run->shape, "policy", "position"),
                                            .slots = spw_execution_is(&run->shape, "pad", "true"),
                                            .router_align = router ? align : 1,
                                            .expert_align = router ? 1 : align,
                                            .padded = !router && align > 1};
    return spw_execute_megatron_alltoall_with(run, &settings);
}
