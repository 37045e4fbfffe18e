#include "reference/schemes/megatron/megatron_sharers.h"

#include "base/memory.h"
#include "reference/schemes/megatron/megatron_chunks.h"

#include <string.h>

#define BORN(name) SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_##name))
#define DIES(name) spw_megatron_dies(run, g, SPW_MEGATRON_##name)

bool spw_megatron_shares(const spw_execution *run) { return spw_execution_sharers(&run->shape) > 1; }

static bool many(const spw_execution *run) { return run->local > 1; }

bool spw_megatron_alone(const spw_execution *run) {
    return run->shape.ranks == spw_execution_sharers(&run->shape) && (spw_megatron_shares(run) || many(run));
}

/* --- Between the ranks that share experts --- */

static size_t arrived(const spw_megatron *g, size_t rank) {
    return g->rows[SPW_MEGATRON_ROWS_RECEIVED][rank];
}

/* Rows that arrived at each rank to all that share its experts, where they stand one rank after the other. */
static spw_status gather(spw_execution *run, spw_megatron *g, const char *name, spw_megatron_tensor from,
                         spw_megatron_tensor to, size_t width, size_t element_bytes) {
    const size_t t = spw_execution_sharers(&run->shape);
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t d = r / t * t; d < r / t * t + t; d++) {
            if (d != r)
                SPW_TRY(spw_fabric_send(run->fabric, r, d, g->tensor[from].at[r], arrived(g, r) * width,
                                        sizeof(float), element_bytes));
        }
    }
    for (size_t d = 0; d < run->shape.ranks; d++) {
        float *place = g->tensor[to].at[d];
        for (size_t s = d / t * t; s < d / t * t + t; s++) {
            const size_t count = arrived(g, s) * width;
            if (s != d) {
                SPW_TRY(spw_fabric_receive(run->fabric, d, s, place, count, sizeof(float)));
            } else {
                memcpy(place, g->tensor[from].at[d], count * sizeof(float));
            }
            place += count;
        }
    }
cleanup:
    return status;
}

/* What the others made of the rows that arrived at rank r, and its own, in order of rank. */
static spw_status add_parts(spw_execution *run, spw_megatron *g, size_t r, const float *own, size_t width,
                            float *to) {
    const size_t t = spw_execution_sharers(&run->shape), count = arrived(g, r) * width;
    double *sum = NULL;
    float *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &sum));
    SPW_TRY(SPW_ALLOC(count, &part));
    for (size_t s = r / t * t; s < r / t * t + t; s++) {
        if (s != r) SPW_TRY(spw_fabric_receive(run->fabric, r, s, part, count, sizeof *part));
        for (size_t i = 0; i < count; i++) sum[i] += (double)(s != r ? part : own)[i];
    }
    for (size_t i = 0; i < count; i++) to[i] = (float)sum[i];
cleanup:
    spw_free(sum), spw_free(part);
    return status;
}

/* The mirror of gather(): every rank's sums over the ranks that share its experts, of the rows that arrived at it. */
static spw_status scatter(spw_execution *run, spw_megatron *g, const char *name, spw_megatron_tensor from,
                          spw_megatron_tensor to, size_t width, size_t element_bytes) {
    const size_t t = spw_execution_sharers(&run->shape);
    const float *own[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const float *place = g->tensor[from].at[r];
        for (size_t d = r / t * t; d < r / t * t + t; d++) {
            const size_t count = arrived(g, d) * width;
            if (d == r) own[r] = place;
            if (d != r)
                SPW_TRY(spw_fabric_send(run->fabric, r, d, place, count, sizeof(float), element_bytes));
            place += count;
        }
    }
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(add_parts(run, g, r, own[r], width, g->tensor[to].at[r]));
cleanup:
    return status;
}

/* Another type, the same numbers: all are computed in fp32. */
static void cast(const spw_execution *run, const spw_megatron *g, spw_megatron_tensor from,
                 spw_megatron_tensor to, spw_megatron_rows rows) {
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(g->tensor[to].at[r], g->tensor[from].at[r],
               g->rows[rows][r] * run->shape.hidden * sizeof(float));
}

/* --- The layer --- */

spw_status spw_megatron_dispatch_shared(spw_execution *run, spw_megatron *g, const char *name) {
    const bool alone = spw_megatron_alone(run);
    const char *gathering = run->pass == SPW_PASS_FORWARD ? "gather" : "gather again";
    const spw_megatron_tensor rows = alone ? SPW_MEGATRON_SENT : SPW_MEGATRON_RECEIVED,
                              probs = alone ? SPW_MEGATRON_SENT_PROBS : SPW_MEGATRON_RECEIVED_PROBS,
                              held = many(run) ? SPW_MEGATRON_HELD_ROWS : SPW_MEGATRON_FC1_INPUT,
                              held_probs = many(run) ? SPW_MEGATRON_HELD_PROBS : SPW_MEGATRON_ROW_PROBS;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch");
    if (!alone) BORN(RECEIVED);
    if (!alone) BORN(RECEIVED_PROBS);
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, false, SPW_MEGATRON_SENT, rows));
    SPW_TRY(spw_megatron_exchange_probs(run, g, name, false, SPW_MEGATRON_SENT_PROBS, probs));
    if (!alone) DIES(SENT_PROBS);
    spw_step(run, "gather");
    SPW_TRY(spw_megatron_born(run, g, held));
    SPW_TRY(spw_megatron_born(run, g, held_probs));
    SPW_TRY(gather(run, g, gathering, rows, held, run->shape.hidden, run->shape.element_bytes));
    SPW_TRY(gather(run, g, gathering, probs, held_probs, 1, 4));
    if (!many(run)) return SPW_OK;
    spw_step(run, "sort chunks");
    BORN(FC1_INPUT);
    BORN(ROW_PROBS);
    spw_megatron_sort_chunks(run, g, held, SPW_MEGATRON_FC1_INPUT, run->shape.hidden, false);
    spw_megatron_sort_chunks(run, g, held_probs, SPW_MEGATRON_ROW_PROBS, 1, false);
    DIES(HELD_ROWS);
    DIES(HELD_PROBS);
cleanup:
    return status;
}

void spw_megatron_hand_on(spw_megatron *g, spw_megatron_tensor from, spw_megatron_tensor to) {
    g->tensor[to] = g->tensor[from];
    g->tensor[from] = (spw_spread){.rows = 0};
}

spw_status spw_megatron_combine_shared(spw_execution *run, spw_megatron *g, const char *name) {
    const bool first = run->pass == SPW_PASS_FORWARD;
    const spw_megatron_tensor held = many(run) ? SPW_MEGATRON_HELD_UNSORTED : SPW_MEGATRON_FC2_OUTPUT;
    spw_status status = SPW_OK;
    if (many(run)) {
        spw_step(run, "unsort chunks");
        BORN(HELD_UNSORTED);
        spw_megatron_sort_chunks(run, g, held, SPW_MEGATRON_FC2_OUTPUT, run->shape.hidden, true);
    }
    spw_step(run, "scatter");
    BORN(SCATTER_INPUT);
    cast(run, g, held, SPW_MEGATRON_SCATTER_INPUT, SPW_MEGATRON_ROWS_EXPERT_ROWS);
    BORN(SCATTERED_SUM);
    SPW_TRY(scatter(run, g, first ? "scatter" : "scatter again", SPW_MEGATRON_SCATTER_INPUT,
                    SPW_MEGATRON_SCATTERED_SUM, run->shape.hidden, sizeof(float)));
    DIES(SCATTER_INPUT);
    BORN(SCATTERED);
    cast(run, g, SPW_MEGATRON_SCATTERED_SUM, SPW_MEGATRON_SCATTERED, SPW_MEGATRON_ROWS_RECEIVED);
    DIES(SCATTERED_SUM);
    if (many(run)) DIES(HELD_UNSORTED);
    DIES(FC2_OUTPUT);
    if (first) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
    spw_step(run, "combine");
    if (spw_megatron_alone(run)) {
        spw_megatron_hand_on(g, SPW_MEGATRON_SCATTERED, SPW_MEGATRON_COMBINED);
        return spw_megatron_exchange_rows(run, g, name, true, SPW_MEGATRON_COMBINED, SPW_MEGATRON_COMBINED);
    }
    BORN(COMBINED);
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, true, SPW_MEGATRON_SCATTERED, SPW_MEGATRON_COMBINED));
    DIES(SCATTERED);
cleanup:
    return status;
}

spw_status spw_megatron_combine_gradient_shared(spw_execution *run, spw_megatron *g) {
    const char *name = "combine gradient", *step = "scatter gradient";
    const bool alone = spw_megatron_alone(run);
    const spw_megatron_tensor rows = alone ? SPW_MEGATRON_D_COMBINED : SPW_MEGATRON_D_SCATTERED,
                              held = many(run) ? SPW_MEGATRON_D_HELD_UNSORTED : SPW_MEGATRON_D_FC2_OUTPUT;
    spw_status status = SPW_OK;
    spw_step(run, name);
    if (!alone) BORN(D_SCATTERED);
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, false, SPW_MEGATRON_D_COMBINED, rows));
    if (!alone) DIES(D_COMBINED);
    spw_step(run, step);
    BORN(D_SCATTERED_SUM);
    cast(run, g, rows, SPW_MEGATRON_D_SCATTERED_SUM, SPW_MEGATRON_ROWS_RECEIVED);
    spw_megatron_dies(run, g, rows);
    BORN(D_SCATTER_INPUT);
    SPW_TRY(gather(run, g, step, SPW_MEGATRON_D_SCATTERED_SUM, SPW_MEGATRON_D_SCATTER_INPUT,
                   run->shape.hidden, sizeof(float)));
    DIES(D_SCATTERED_SUM);
    SPW_TRY(spw_megatron_born(run, g, held));
    cast(run, g, SPW_MEGATRON_D_SCATTER_INPUT, held, SPW_MEGATRON_ROWS_EXPERT_ROWS);
    DIES(D_SCATTER_INPUT);
    if (!many(run)) return SPW_OK;
    spw_step(run, "unsort gradient");
    BORN(D_FC2_OUTPUT);
    spw_megatron_sort_chunks(run, g, held, SPW_MEGATRON_D_FC2_OUTPUT, run->shape.hidden, false);
    DIES(D_HELD_UNSORTED);
cleanup:
    return status;
}

static spw_status gather_gradient(spw_execution *run, spw_megatron *g) {
    const char *step = "gather gradient";
    const spw_megatron_tensor held = many(run) ? SPW_MEGATRON_D_HELD_ROWS : SPW_MEGATRON_D_FC1_INPUT,
                              held_probs = many(run) ? SPW_MEGATRON_D_HELD_PROBS : SPW_MEGATRON_D_ROW_PROBS;
    spw_status status = SPW_OK;
    if (many(run)) {
        spw_step(run, "sort gradient");
        BORN(D_HELD_ROWS);
        spw_megatron_sort_chunks(run, g, held, SPW_MEGATRON_D_FC1_INPUT, run->shape.hidden, true);
        DIES(D_FC1_INPUT);
        BORN(D_HELD_PROBS);
        spw_megatron_sort_chunks(run, g, held_probs, SPW_MEGATRON_D_ROW_PROBS, 1, true);
        DIES(D_ROW_PROBS);
    }
    spw_step(run, step);
    BORN(D_RECEIVED_PROBS);
    SPW_TRY(scatter(run, g, step, held_probs, SPW_MEGATRON_D_RECEIVED_PROBS, 1, 4));
    spw_megatron_dies(run, g, held_probs);
    BORN(D_RECEIVED);
    SPW_TRY(
        scatter(run, g, step, held, SPW_MEGATRON_D_RECEIVED, run->shape.hidden, run->shape.element_bytes));
    spw_megatron_dies(run, g, held);
cleanup:
    return status;
}

spw_status spw_megatron_dispatch_gradient_shared(spw_execution *run, spw_megatron *g) {
    const char *name = "dispatch gradient";
    spw_status status = SPW_OK;
    SPW_TRY(gather_gradient(run, g));
    spw_step(run, name);
    BORN(D_SENT_PROBS);
    SPW_TRY(spw_megatron_exchange_probs(run, g, name, true, SPW_MEGATRON_D_RECEIVED_PROBS,
                                        SPW_MEGATRON_D_SENT_PROBS));
    DIES(D_RECEIVED_PROBS);
    if (spw_megatron_alone(run)) {
        spw_megatron_hand_on(g, SPW_MEGATRON_D_RECEIVED, SPW_MEGATRON_D_SENT);
        return spw_megatron_exchange_rows(run, g, name, true, SPW_MEGATRON_D_SENT, SPW_MEGATRON_D_SENT);
    }
    BORN(D_SENT);
    SPW_TRY(spw_megatron_exchange_rows(run, g, name, true, SPW_MEGATRON_D_RECEIVED, SPW_MEGATRON_D_SENT));
    DIES(D_RECEIVED);
cleanup:
    return status;
}
