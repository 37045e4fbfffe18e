/* Megatron-Core's all-gather dispatcher (docs/schemes.md, section 5.3). Every rank sees all tokens with their routing
 * map and router weights, computes what its experts are asked for, and reduce-scatters the sums in fp32. */
#include "base/memory.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/megatron_ranks.h"

#include <string.h>

#define BORN(name) SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_##name))
#define DIES(name) spw_megatron_dies(run, g, SPW_MEGATRON_##name)
#define AT(name, r) (g->tensor[SPW_MEGATRON_##name].at[r])

/* Every rank's rows of `width` to every rank, in order of rank. */
static spw_status all_gather(spw_execution *run, const char *name, const float *const from[],
                             const spw_spread *to, size_t width, size_t element_bytes) {
    const size_t ranks = run->shape.ranks, count = run->tokens * width;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t d = 0; d < ranks; d++)
            SPW_TRY(spw_fabric_send(run->fabric, r, d, from[r], count, sizeof(float), element_bytes));
    }
    for (size_t d = 0; d < ranks; d++) {
        for (size_t s = 0; s < ranks; s++)
            SPW_TRY(spw_fabric_receive(run->fabric, d, s, to->at[d] + s * count, count, sizeof(float)));
    }
cleanup:
    return status;
}

/* to[t] of rank s = sum over ranks of their row of t, in order of rank. */
static spw_status reduce_scatter(spw_execution *run, const char *name, const spw_spread *from,
                                 const spw_spread *to, size_t width, size_t element_bytes) {
    const size_t ranks = run->shape.ranks, count = run->tokens * width;
    double *sum = NULL;
    float *part = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &sum));
    SPW_TRY(SPW_ALLOC(count, &part));
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t d = 0; d < ranks; d++) {
        for (size_t s = 0; s < ranks; s++)
            SPW_TRY(spw_fabric_send(run->fabric, d, s, from->at[d] + s * count, count, sizeof(float),
                                    element_bytes));
    }
    for (size_t s = 0; s < ranks; s++) {
        for (size_t i = 0; i < count; i++) sum[i] = 0.0;
        for (size_t d = 0; d < ranks; d++) {
            SPW_TRY(spw_fabric_receive(run->fabric, s, d, part, count, sizeof(float)));
            for (size_t i = 0; i < count; i++) sum[i] += (double)part[i];
        }
        for (size_t i = 0; i < count; i++) to->at[s][i] = (float)sum[i];
    }
cleanup:
    spw_free(sum), spw_free(part);
    return status;
}

static spw_status gather(spw_execution *run, spw_megatron *g, const char *name) {
    const float *x[SPW_EXECUTION_RANKS] = {NULL}, *map[SPW_EXECUTION_RANKS] = {NULL},
                *probs[SPW_EXECUTION_RANKS] = {NULL};
    const size_t experts = run->shape.experts;
    spw_status status = SPW_OK;
    spw_step(run, "router");
    BORN(LOGITS);
    BORN(CHOSEN_PROBS);
    BORN(PROBS);
    BORN(MAP);
    spw_megatron_fill_map(run, g);
    spw_step(run, "all-gather");
    BORN(GATHERED_MAP);
    BORN(GATHERED_PROBS);
    BORN(GATHERED);
    for (size_t r = 0; r < run->shape.ranks; r++)
        x[r] = spw_rank_x(run, r), map[r] = AT(MAP, r), probs[r] = AT(PROBS, r);
    SPW_TRY(all_gather(run, name, map, &g->tensor[SPW_MEGATRON_GATHERED_MAP], experts, 1));
    SPW_TRY(all_gather(run, name, probs, &g->tensor[SPW_MEGATRON_GATHERED_PROBS], experts, 4));
    SPW_TRY(all_gather(run, name, x, &g->tensor[SPW_MEGATRON_GATHERED], run->shape.hidden,
                       run->shape.element_bytes));
    DIES(PROBS);
cleanup:
    return status;
}

/* The columns of the rank's experts, from what was gathered; where the rows are is known after the first pass. */
static spw_status take_local(spw_execution *run, spw_megatron *g, size_t r) {
    const size_t local = run->local, experts = run->shape.experts, rows = run->shape.ranks * run->tokens;
    uint8_t *map = NULL;
    int32_t *choice = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, rows * local, &map));
    SPW_TRY(SPW_SCRATCH(run, rows * local, &choice));
    for (size_t i = 0; i < rows * local; i++) {
        const size_t from = i / local * experts + r * local + i % local;
        AT(LOCAL_MAP, r)[i] = AT(GATHERED_MAP, r)[from];
        AT(LOCAL_PROBS, r)[i] = AT(GATHERED_PROBS, r)[from];
        map[i] = AT(LOCAL_MAP, r)[i] != 0.0f;
        choice[i] = (int32_t)(i % local); /* its column */
    }
    if (run->pass == SPW_PASS_FORWARD)
        SPW_TRY(spw_megatron_place_local(run, g, r, &(spw_local_rows){map, choice, 1, NULL, 0}));
cleanup:
    return status;
}

static spw_status permute(spw_execution *run, spw_megatron *g) {
    spw_status status = SPW_OK;
    spw_step(run, "permute");
    BORN(LOCAL_MAP);
    BORN(LOCAL_PROBS);
    for (size_t r = 0; r < run->shape.ranks; r++) SPW_TRY(take_local(run, g, r));
    BORN(LOCAL_COLUMNS);
    BORN(LOCAL_ARGSORT);
    BORN(LOCAL_MAPPING);
    BORN(FC1_INPUT);
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_megatron_copy_local(run, g, r, AT(GATHERED, r), AT(FC1_INPUT, r));
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOCAL_COLUMNS, SPW_MEGATRON_LOCAL_ARGSORT);
    BORN(LOCAL_PROB_COLUMNS);
    BORN(PROB_MASK);
    BORN(ROW_PROBS);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_megatron_rank *p = &g->rank[r];
        for (size_t i = 0; i < run->out.rows[r]; i++) AT(ROW_PROBS, r)
        [i] = AT(LOCAL_PROBS, r)[(size_t)p->local_row[i] * run->local + (size_t)p->local_slot[i]];
    }
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOCAL_PROBS, SPW_MEGATRON_GATHERED_MAP);
cleanup:
    return status;
}

static spw_status combine(spw_execution *run, spw_megatron *g, const char *name) {
    const bool first = run->pass == SPW_PASS_FORWARD;
    const size_t outputs = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "unpermute");
    BORN(RESTORED);
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(spw_megatron_add_local(run, g, r, AT(FC2_OUTPUT, r), AT(RESTORED, r)));
    DIES(FC2_OUTPUT);
    if (first) DIES(FC1_INPUT);
    spw_step(run, "reduce-scatter");
    BORN(CAST);
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(AT(CAST, r), AT(RESTORED, r), run->shape.ranks * outputs * sizeof(float));
    BORN(REDUCED);
    SPW_TRY(reduce_scatter(run, name, &g->tensor[SPW_MEGATRON_CAST], &g->tensor[SPW_MEGATRON_REDUCED],
                           run->shape.hidden, 4));
    DIES(CAST);
    BORN(OUTPUT);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        memcpy(AT(OUTPUT, r), AT(REDUCED, r), outputs * sizeof(float));
        memcpy(run->out.y + r * outputs, AT(OUTPUT, r), outputs * sizeof(float));
    }
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_REDUCED, SPW_MEGATRON_RESTORED);
    spw_step(run, "layer end");
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_GATHERED, SPW_MEGATRON_GATHERED_PROBS, SPW_MEGATRON_MAP);
    if (first)
        SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOGITS, SPW_MEGATRON_CHOSEN_PROBS, SPW_MEGATRON_LOCAL_MAP,
                         SPW_MEGATRON_LOCAL_MAPPING, SPW_MEGATRON_LOCAL_PROB_COLUMNS, SPW_MEGATRON_PROB_MASK,
                         SPW_MEGATRON_ROW_PROBS);
    DIES(OUTPUT);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, spw_megatron *g) {
    const size_t ranks = run->shape.ranks, outputs = run->tokens * run->shape.hidden;
    const float *dy[SPW_EXECUTION_RANKS] = {NULL};
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    BORN(GATHERED); /* one buffer for all layers and passes */
    BORN(D_REDUCED);
    for (size_t r = 0; r < ranks; r++) {
        memcpy(AT(D_REDUCED, r), spw_rank_dy(run, r), outputs * sizeof(float));
        dy[r] = AT(D_REDUCED, r);
    }
    BORN(D_CAST);
    SPW_TRY(all_gather(run, "combine gradient", dy, &g->tensor[SPW_MEGATRON_D_CAST], run->shape.hidden, 4));
    DIES(D_REDUCED);
    BORN(D_RESTORED);
    for (size_t r = 0; r < ranks; r++)
        memcpy(AT(D_RESTORED, r), AT(D_CAST, r), ranks * outputs * sizeof(float));
    DIES(D_CAST);
    spw_step(run, "unpermute gradient");
    BORN(D_FC2_OUTPUT);
    for (size_t r = 0; r < ranks; r++)
        spw_megatron_copy_local(run, g, r, AT(D_RESTORED, r), AT(D_FC2_OUTPUT, r));
    DIES(D_RESTORED);
cleanup:
    return status;
}

static spw_status permute_gradient(spw_execution *run, spw_megatron *g) {
    const size_t local = run->local, experts = run->shape.experts;
    spw_status status = SPW_OK;
    spw_step(run, "permute gradient");
    BORN(D_LOCAL_PROBS);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_megatron_rank *p = &g->rank[r];
        for (size_t i = 0; i < run->out.rows[r]; i++) AT(D_LOCAL_PROBS, r)
        [(size_t)p->local_row[i] * local + (size_t)p->local_slot[i]] = AT(D_ROW_PROBS, r)[i];
    }
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_ROW_PROBS, SPW_MEGATRON_LOCAL_PROB_COLUMNS,
                     SPW_MEGATRON_PROB_MASK);
    BORN(D_GATHERED_PROBS);
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < run->shape.ranks * run->tokens * local; i++)
            AT(D_GATHERED_PROBS, r)[i / local * experts + r * local + i % local] = AT(D_LOCAL_PROBS, r)[i];
    }
    DIES(D_LOCAL_PROBS);
    BORN(D_RECEIVED);
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(spw_megatron_add_local(run, g, r, AT(D_FC1_INPUT, r), AT(D_RECEIVED, r)));
    DIES(D_FC1_INPUT);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, spw_megatron *g) {
    const size_t outputs = run->tokens * run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    BORN(D_X);
    SPW_TRY(reduce_scatter(run, "dispatch gradient", &g->tensor[SPW_MEGATRON_D_RECEIVED],
                           &g->tensor[SPW_MEGATRON_D_X], run->shape.hidden, run->shape.element_bytes));
    for (size_t r = 0; r < run->shape.ranks; r++)
        memcpy(run->out.dx + r * outputs, AT(D_X, r), outputs * sizeof(float));
    DIES(D_RECEIVED);
    BORN(D_PROBS);
    SPW_TRY(reduce_scatter(run, "dispatch gradient", &g->tensor[SPW_MEGATRON_D_GATHERED_PROBS],
                           &g->tensor[SPW_MEGATRON_D_PROBS], run->shape.experts, 4));
    DIES(D_GATHERED_PROBS);
    spw_step(run, "router gradient");
    BORN(D_LOGITS);
    spw_megatron_hand_over_weights(run, g);
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_PROBS, SPW_MEGATRON_LOGITS, SPW_MEGATRON_CHOSEN_PROBS,
                     SPW_MEGATRON_D_LOGITS);
    spw_step(run, "layer end");
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_LOCAL_MAP, SPW_MEGATRON_LOCAL_MAPPING, SPW_MEGATRON_GATHERED,
                     SPW_MEGATRON_D_X);
cleanup:
    return status;
}

static spw_status forward(spw_execution *run, spw_megatron *g, const char *there, const char *back) {
    spw_status status = SPW_OK;
    SPW_TRY(gather(run, g, there));
    SPW_TRY(permute(run, g));
    SPW_TRY(spw_megatron_experts_forward(run, g));
    SPW_TRY(combine(run, g, back));
cleanup:
    return status;
}

spw_status spw_execute_megatron_allgather(spw_execution *run) {
    const double factor = spw_execution_number(&run->shape, "capacity_factor", run->shape.factor);
    const spw_megatron_settings settings = {.capacity_factor = factor,
                                            .by_position =
                                                spw_execution_is(&run->shape, "policy", "position"),
                                            .router_align = 1,
                                            .expert_align = 1};
    spw_megatron *g = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_megatron_create(run, &settings, &g));
    for (size_t r = 0; r < run->shape.ranks; r++)
        g->rows[SPW_MEGATRON_ROWS_RECEIVED][r] = run->shape.ranks * run->tokens;
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(forward(run, g, "all-gather", "reduce-scatter"));
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(forward(run, g, "all-gather again", "reduce-scatter again"));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(spw_megatron_experts_backward(run, g));
    SPW_TRY(permute_gradient(run, g));
    SPW_TRY(dispatch_gradient(run, g));
cleanup:
    return status;
}
