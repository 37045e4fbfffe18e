/* MaxText dense_matmul with a capacity factor, all-to-all layout (docs/schemes.md, section 1). Every sequence has
 * `capacity` slots an expert; slots travel and are multiplied whether filled or not. The masks [tokens][experts *
 * capacity] hold at most top_k numbers a token: they count whole and are stored as these. */
#include "reference/capacity.h"
#include "reference/grouped_gemm.h"
#include "reference/schemes/cut_weights.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/tensor_group.h"

#include "base/memory.h"

typedef struct dense {
    spw_experts experts;
    size_t capacity, rows;              /* rows: slots of a rank, sequences * experts * capacity */
    int32_t *slot[SPW_EXECUTION_RANKS]; /* [tokens][top_k] where the masks are not 0; -1: dropped or unused */
    int32_t *
        carried[SPW_EXECUTION_RANKS]; /* the same where the weight is not 0: MaxText casts the mask to bool */
    spw_spread combine_mask, dispatch_mask, sent, returned, dy_sent, d_combine_mask, dx_returned;
    spw_spread received; /* slots as they came to a rank of a tensor group, until all have gathered them */
    spw_spread tokens, parts; /* [tokens][hidden / t] of a rank: what it reads and what it makes */
} dense;

/* slot = (expert * sequences + sequence) * capacity + place: the layout [experts][sequences][capacity]. */
static spw_status place(spw_execution *run, dense *g, size_t rank) {
    const spw_execution_shape *s = &run->shape;
    const int32_t *expert = spw_rank_expert(run, rank);
    size_t *used = NULL, dropped = 0;
    uint8_t *keep = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, run->assignments, &g->slot[rank]));
    SPW_TRY(SPW_SCRATCH(run, run->assignments, &g->carried[rank]));
    SPW_TRY(SPW_ALLOC(s->experts * s->sequences, &used));
    SPW_TRY(SPW_ALLOC(run->assignments, &keep));
    const spw_choices choices = {run->tokens, s->top_k, s->experts, expert};
    if (run->tokens > 0) {
        SPW_TRY(spw_ref_keep_by_position(choices, s->sequence_length, g->capacity, keep, &dropped));
    }
    for (size_t i = 0; i < run->assignments; i++) {
        g->slot[rank][i] = g->carried[rank][i] = -1;
        if (!keep[i]) continue;
        const size_t queue = (size_t)expert[i] * s->sequences + i / s->top_k / s->sequence_length;
        g->slot[rank][i] = (int32_t)(queue * g->capacity + used[queue]++);
        if (spw_rank_weight(run, rank)[i] != 0.0f) g->carried[rank][i] = g->slot[rank][i];
    }
    run->out.dropped[rank] = dropped;
    run->out.rows[rank] = g->rows;
cleanup:
    spw_free(keep), spw_free(used);
    return status;
}

static spw_status create(spw_execution *run, dense *g) {
    const spw_execution_shape *s = &run->shape;
    spw_status status = SPW_OK;
    g->capacity = spw_ref_capacity_maxtext(s->sequence_length, s->top_k, s->experts, s->factor);
    g->rows = s->sequences * s->experts * g->capacity;
    if (g->rows > INT32_MAX) return spw_fail(SPW_EARG, "%zu slots a rank exceed 2^31 - 1", g->rows);
    SPW_TRY(spw_experts_create(run, g->rows, &g->experts));
    SPW_TRY(spw_group_scratch(run, run->tokens, spw_group_width(run), &g->tokens));
    SPW_TRY(spw_group_scratch(run, run->tokens, spw_group_width(run), &g->parts));
    for (size_t r = 0; r < s->ranks; r++) {
        SPW_TRY(place(run, g, r));
        for (size_t x = 0; x <= run->local; x++) { /* all ranks' slots of an expert, filled or not */
            g->experts.offset[r * (run->local + 1) + x] =
                x * spw_group_ranks(run) * s->sequences * g->capacity;
        }
    }
cleanup:
    return status;
}

/* Equal splits: [experts][sequences * capacity] of every rank becomes [local][ranks][sequences * capacity]. */
static spw_status exchange(spw_execution *run, const dense *g, const char *name, const spw_spread *from,
                           bool back, spw_spread *to) {
    const size_t ranks = run->shape.ranks, groups = spw_group_ranks(run), width = spw_group_width(run),
                 block = run->shape.sequences * g->capacity;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < run->shape.experts; i++) {
            const size_t place = i / run->local, local = i % run->local, peer = spw_group_peer(run, r, place);
            const size_t at =
                back ? local * groups + place : i; /* the expert-sorted side, or the token side */
            SPW_TRY(spw_send_rows(run, r, peer, from->at[r] + at * block * width, block, width));
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < run->shape.experts; i++) {
            const size_t place = i / run->local, local = i % run->local, peer = spw_group_peer(run, r, place);
            const size_t at = back ? i : local * groups + place;
            SPW_TRY(spw_receive_rows(run, r, peer, to->at[r] + at * block * width, block, width));
        }
    }
cleanup:
    return status;
}

/* dispatched[slot(t, k)] = x[t], or weight[t][k] * dy[t], of the columns that a rank has. */
static void fill_slots(const spw_execution *run, const int32_t *slot, const float *tokens,
                       const float *weight, float *slots) {
    const size_t width = spw_group_width(run);
    for (size_t i = 0; i < run->assignments; i++) {
        if (slot[i] < 0) continue;
        for (size_t h = 0; h < width; h++) {
            const double value = (double)tokens[i / run->shape.top_k * width + h];
            slots[(size_t)slot[i] * width + h] = (float)(weight == NULL ? value : (double)weight[i] * value);
        }
    }
}

/* Whole slots out of what came to the ranks of a tensor group. */
static spw_status gather(spw_execution *run, dense *g) {
    spw_status status = SPW_OK;
    if (spw_group_size(run) == 1) return SPW_OK;
    spw_step(run, "gather of x");
    SPW_TRY(spw_born(run, &g->experts.x, "x", g->rows, run->shape.hidden));
    SPW_TRY(spw_group_gather(run, "gather of x", &g->received, &g->experts.x));
cleanup:
    return status;
}

static spw_spread *arrived(const spw_execution *run, dense *g) {
    return spw_group_size(run) > 1 ? &g->received : &g->experts.x;
}

/* masks, dispatch, all-to-all, w0, w1, swiglu: forward and recomputed alike. */
static spw_status to_experts(spw_execution *run, dense *g, const char *name) {
    const size_t ranks = run->shape.ranks, width = spw_group_width(run), ffn = run->shape.ffn;
    const size_t slots = run->shape.experts * g->capacity;
    spw_status status = SPW_OK;
    spw_step(run, "masks");
    SPW_TRY(spw_born_sparse(run, &g->combine_mask, "combine_mask", run->tokens, slots, run->assignments));
    SPW_TRY(spw_born_sparse(run, &g->dispatch_mask, "dispatch_mask", run->tokens, slots, run->assignments));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < run->assignments; i++) {
            g->combine_mask.at[r][i] = g->slot[r][i] < 0 ? 0.0f : spw_rank_weight(run, r)[i];
            g->dispatch_mask.at[r][i] = g->carried[r][i] < 0 ? 0.0f : 1.0f;
        }
    }
    spw_step(run, "dispatch");
    SPW_TRY(spw_born(run, &g->sent, "dispatched", g->rows, width));
    for (size_t r = 0; r < ranks; r++) {
        spw_group_take(run, r, spw_rank_x(run, r), g->tokens.at[r]);
        fill_slots(run, g->carried[r], g->tokens.at[r], g->dispatch_mask.at[r], g->sent.at[r]);
    }
    spw_step(run, "all-to-all");
    SPW_TRY(spw_born(run, arrived(run, g), spw_group_size(run) > 1 ? "received" : "x", g->rows, width));
    SPW_TRY(exchange(run, g, name, &g->sent, false, arrived(run, g)));
    spw_dies(run, &g->sent);
    SPW_TRY(gather(run, g));
    spw_step(run, "gemm w0");
    SPW_TRY(spw_born(run, &g->experts.w0, "w0_out", g->rows, ffn));
    SPW_TRY(spw_experts_product(run, &g->experts, 0, &g->experts.x, &g->experts.w0));
    spw_step(run, "gemm w1");
    SPW_TRY(spw_born(run, &g->experts.w1, "w1_out", g->rows, ffn));
    SPW_TRY(spw_experts_product(run, &g->experts, 1, &g->experts.x, &g->experts.w1));
    if (spw_group_size(run) > 1) spw_dies(run, &g->experts.x);
    spw_step(run, "swiglu");
    SPW_TRY(spw_born(run, &g->experts.act, "act", g->rows, ffn));
    spw_experts_swiglu(run, &g->experts);
cleanup:
    return status;
}

static spw_status from_experts(spw_execution *run, dense *g, const char *name, bool keep) {
    spw_experts *e = &g->experts;
    spw_status status = SPW_OK;
    if (!keep)
        spw_dies(run, arrived(run, g)), spw_dies(run, &e->w0), spw_dies(run, &e->w1),
            spw_dies(run, &g->dispatch_mask);
    spw_step(run, "gemm wo");
    SPW_TRY(spw_born(run, &e->y, spw_experts_last(run), g->rows, run->shape.hidden));
    SPW_TRY(spw_experts_product(run, e, 2, &e->act, &e->y));
    if (!keep) spw_dies(run, &e->act);
    SPW_TRY(spw_experts_sum_y(run, e));
    spw_step(run, "all-to-all back");
    SPW_TRY(spw_born(run, &g->returned, "y_returned", g->rows, spw_group_width(run)));
    SPW_TRY(exchange(run, g, name, &e->y, true, &g->returned));
    spw_dies(run, &e->y);
cleanup:
    return status;
}

static void combine(spw_execution *run, dense *g) {
    spw_step(run, "combine");
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(run->tokens, run->shape.top_k, spw_group_width(run), g->slot[r], g->combine_mask.at[r],
                     g->returned.at[r], g->parts.at[r]);
        spw_group_put_tokens(run, r, g->parts.at[r], run->out.y);
    }
    spw_dies(run, &g->returned), spw_dies(run, &g->combine_mask);
}

static spw_status combine_gradient(spw_execution *run, dense *g) {
    const size_t ranks = run->shape.ranks, width = spw_group_width(run);
    const size_t slots = run->shape.experts * g->capacity;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_born(run, &g->dy_sent, "dy_sent", g->rows, width));
    SPW_TRY(spw_born_sparse(run, &g->d_combine_mask, "d_combine_mask", run->tokens, slots, run->assignments));
    for (size_t r = 0; r < ranks; r++) {
        spw_group_take(run, r, spw_rank_dy(run, r), g->tokens.at[r]);
        fill_slots(run, g->slot[r], g->tokens.at[r], g->combine_mask.at[r], g->dy_sent.at[r]);
        for (size_t i = 0; i < run->assignments; i++) {
            const float *dy = g->tokens.at[r] + i / run->shape.top_k * width;
            double sum = 0.0;
            for (size_t h = 0; h < width && g->slot[r][i] >= 0; h++) {
                sum += (double)dy[h] * (double)g->returned.at[r][(size_t)g->slot[r][i] * width + h];
            }
            g->d_combine_mask.at[r][i] = (float)sum;
        }
    }
    spw_dies(run, &g->returned), spw_dies(run, &g->combine_mask);
    spw_step(run, "mask gradient");
    SPW_TRY(spw_group_sum(run, "sum of masks", g->d_combine_mask.at, run->assignments, run->out.d_weight));
    spw_dies(run, &g->d_combine_mask);
    spw_step(run, "all-to-all of dy");
    SPW_TRY(spw_born(run, &g->experts.dy, "dy", g->rows, width));
    SPW_TRY(exchange(run, g, "combine gradient", &g->dy_sent, false, &g->experts.dy));
    spw_dies(run, &g->dy_sent);
cleanup:
    return status;
}

/* dx += d_w1_out w1^T, in blocks of rows: the GEMM of the real code adds to what stands there. Products are rounded to
 * fp32 before the sum. */
static spw_status add_second_product(spw_execution *run, const dense *g, size_t rank, float *dx) {
    enum { BLOCK = 64 };
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    const size_t *offset = g->experts.offset + rank * (run->local + 1);
    float *block = NULL;
    spw_status status = SPW_ALLOC(BLOCK * hidden, &block);
    for (size_t x = 0; x < run->local && status == SPW_OK; x++) {
        for (size_t row = offset[x]; row < offset[x + 1] && status == SPW_OK; row += BLOCK) {
            const size_t rows = offset[x + 1] - row < BLOCK ? offset[x + 1] - row : BLOCK, all[] = {0, rows};
            const spw_gemm_shape s = {.experts = 1, .rows = rows, .in = hidden, .out = ffn};
            status = spw_ref_grouped_gemm_input_gradient(s, g->experts.dw1.at[rank] + row * ffn,
                                                         spw_rank_weights(run, rank, 1) + x * hidden * ffn,
                                                         all, block, NULL);
            for (size_t i = 0; i < rows * hidden && status == SPW_OK; i++) dx[row * hidden + i] += block[i];
        }
    }
    spw_free(block);
    return status;
}

/* Each rank of a tensor group has terms of the gradient of its slots, and keeps the sum of its columns. */
static spw_status sum_dx(spw_execution *run, dense *g) {
    spw_spread term = g->experts.dx0;
    spw_status status = SPW_OK;
    if (spw_group_size(run) == 1) return SPW_OK;
    spw_step(run, "sum of dx");
    SPW_TRY(spw_born(run, &g->experts.dx0, "dx", g->rows, spw_group_width(run)));
    SPW_TRY(spw_group_scatter(run, "sum of dx", &term, &g->experts.dx0));
    spw_dies(run, &term);
cleanup:
    return status;
}

static spw_status backward(spw_execution *run, dense *g) {
    spw_experts *e = &g->experts;
    const size_t hidden = run->shape.hidden, ffn = run->shape.ffn;
    spw_status status = SPW_OK;
    SPW_TRY(spw_experts_gather_dy(run, e));
    spw_step(run, "wo weight gradient");
    SPW_TRY(spw_experts_weight_gradient(run, e, 2, &e->act, &e->dy));
    spw_dies(run, &e->act);
    spw_step(run, "gemm wo input gradient");
    SPW_TRY(spw_born(run, &e->dw0, "d_w0_out", g->rows, ffn));
    SPW_TRY(spw_experts_input_gradient(run, e, 2, &e->dy, &e->dw0));
    spw_dies(run, &e->dy);
    spw_experts_swiglu_gradient(run, e);
    SPW_TRY(gather(run, g));
    spw_step(run, "w0 w1 weight gradients");
    SPW_TRY(spw_experts_weight_gradient(run, e, 0, &e->x, &e->dw0));
    SPW_TRY(spw_experts_weight_gradient(run, e, 1, &e->x, &e->dw1));
    spw_dies(run, &e->x);
    if (spw_group_size(run) > 1) spw_dies(run, &g->received);
    spw_step(run, "gemm w0 w1 input gradient");
    SPW_TRY(spw_born(run, &e->dx0, spw_group_size(run) > 1 ? "dx_term" : "dx", g->rows, hidden));
    SPW_TRY(spw_experts_input_gradient(run, e, 0, &e->dw0, &e->dx0));
    for (size_t r = 0; r < run->shape.ranks; r++) SPW_TRY(add_second_product(run, g, r, e->dx0.at[r]));
    spw_dies(run, &e->dw0), spw_dies(run, &e->dw1);
    SPW_TRY(sum_dx(run, g));
    spw_step(run, "all-to-all of dx");
    SPW_TRY(spw_born(run, &g->dx_returned, "dx_returned", g->rows, spw_group_width(run)));
    SPW_TRY(exchange(run, g, "dispatch gradient", &e->dx0, true, &g->dx_returned));
    spw_dies(run, &e->dx0);
    spw_step(run, "dispatch gradient");
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(run->tokens, run->shape.top_k, spw_group_width(run), g->carried[r],
                     g->dispatch_mask.at[r], g->dx_returned.at[r], g->parts.at[r]);
        spw_group_put_tokens(run, r, g->parts.at[r], run->out.dx);
    }
    spw_dies(run, &g->dx_returned), spw_dies(run, &g->dispatch_mask);
cleanup:
    return status;
}

spw_status spw_execute_dense(spw_execution *run) {
    dense *g = NULL;
    spw_expert_gradients whole;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    if (spw_group_size(run) > 1) SPW_TRY(spw_cut_weights(run, &whole));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(to_experts(run, g, "dispatch"));
    SPW_TRY(from_experts(run, g, "combine", false));
    combine(run, g);
    run->pass = SPW_PASS_RECOMPUTE;
    SPW_TRY(to_experts(run, g, "dispatch again"));
    SPW_TRY(from_experts(run, g, "combine again", true));
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    SPW_TRY(backward(run, g));
    if (spw_group_size(run) > 1) spw_join_gradients(run, &whole);
cleanup:
    return status;
}
