/* ROCm MaxText moe_dedup, executed (docs/schemes.md, section 3.6). A row carries the ids and weights of its token's choices on
 * the rank it goes to; what a tier cannot hold is dropped on the receiver. */
#include "reference/grouped_gemm.h"
#include "reference/schemes/deepep/fused_experts.h"
#include "reference/schemes/execute_list.h"

#include "base/memory.h"

#include <math.h>

enum { TIERS = 2 };

typedef struct dedup_rank {
    int32_t *slot_rank;     /* [tokens][slots] rank that each slot of a token goes to, -1: none */
    int32_t *slot_row;      /* [tokens][slots] its row among those sent */
    size_t *sent;           /* [ranks + 1] first row sent to each rank */
    size_t *source;         /* [ranks + 1] first row received from each */
    int32_t *place;         /* [ranks * tokens][top_k] place of each received choice in the tiers, -1: none */
    int32_t *origin[TIERS]; /* [capacity] received choice of each row of a tier, -1: none */
    size_t *offset;         /* [local + 1] rows of each expert, tiers end to end */
} dedup_rank;

typedef struct dedup {
    size_t slots, capacity[TIERS], tiers;
    size_t held[TIERS][SPW_EXECUTION_RANKS], slot_rows[SPW_EXECUTION_RANKS], gathered[SPW_EXECUTION_RANKS];
    dedup_rank rank[SPW_EXECUTION_RANKS];
    spw_fused_experts tier[TIERS];
    spw_fused_operands operands;
    spw_spread send_meta, send, received, meta, row_weight[TIERS], summed, returned, d_returned, d_summed,
        d_received[TIERS], d_meta[TIERS], dx_returned, d_meta_returned;
} dedup;

/* --- The plan ----------------------------------------------------------------------------------------------------- */

static void configure(const spw_execution *run, dedup *g) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k, all = ranks * run->assignments;
    const double factor[TIERS] = {spw_execution_number(&run->shape, "buffer_factor", 1.0),
                                  spw_execution_number(&run->shape, "overflow_factor", 0.0)};
    size_t left = all;
    for (size_t i = 0; i < TIERS; i++) {
        const double rows = (double)run->assignments * factor[i];
        g->capacity[i] = rows < (double)left ? (size_t)rows : left;
        left -= g->capacity[i];
    }
    g->tiers = g->capacity[1] > 0 ? 2 : 1;
    const size_t most = (size_t)spw_execution_number(&run->shape, "max_shards", 0.0);
    g->slots = most == 0 ? (ranks < top_k ? ranks : top_k) : most < ranks ? most : ranks;
}

/* Slot m of a token is the m-th rank that it has chosen, in order of rank; rows stand by rank, then by token. */
static void plan_sends(const spw_execution *run, const dedup *g, size_t r) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k;
    const dedup_rank *p = &g->rank[r];
    size_t row = 0;
    for (size_t i = 0; i < run->tokens * g->slots; i++) p->slot_rank[i] = p->slot_row[i] = -1;
    for (size_t t = 0; t < run->tokens; t++) {
        size_t used = 0;
        for (size_t d = 0; d < ranks; d++) {
            bool chosen = false;
            size_t choices = 0;
            for (size_t k = 0; k < top_k; k++) {
                const int32_t x = spw_rank_expert(run, r)[t * top_k + k];
                if (x < 0 || (size_t)x / run->local != d) continue;
                chosen = true;
                choices++;
            }
            if (chosen && used < g->slots) {
                p->slot_rank[t * g->slots + used++] = (int32_t)d;
            } else {
                run->out.dropped[r] += choices;
            }
        }
    }
    for (size_t d = 0; d < ranks; d++) {
        p->sent[d] = row;
        for (size_t i = 0; i < run->tokens * g->slots; i++)
            if (p->slot_rank[i] == (int32_t)d) p->slot_row[i] = (int32_t)row++;
    }
    p->sent[ranks] = row;
}

static spw_status create(spw_execution *run, dedup *g) {
    const size_t ranks = run->shape.ranks, all = ranks * run->assignments;
    spw_status status = SPW_OK;
    configure(run, g);
    for (size_t i = 0; i < g->tiers; i++) {
        SPW_TRY(spw_fused_create(run, g->held[i], &g->tier[i]));
        g->tier[i].weight = &g->row_weight[i];
        g->tier[i].overflow = i > 0;
        g->tier[i].operands = &g->operands;
        g->tier[i].first = i > 0 ? g->capacity[0] : 0;
    }
    for (size_t r = 0; r < ranks; r++) {
        dedup_rank *p = &g->rank[r];
        const size_t rows = g->capacity[0] + g->capacity[1], hidden = run->shape.hidden, ffn = run->shape.ffn;
        g->slot_rows[r] = run->tokens * g->slots;
        g->gathered[r] = ranks * run->tokens;
        SPW_TRY(SPW_SCRATCH(run, run->tokens * g->slots, &p->slot_rank));
        SPW_TRY(SPW_SCRATCH(run, run->tokens * g->slots, &p->slot_row));
        SPW_TRY(SPW_SCRATCH(run, ranks + 1, &p->sent));
        SPW_TRY(SPW_SCRATCH(run, ranks + 1, &p->source));
        SPW_TRY(SPW_SCRATCH(run, all, &p->place));
        SPW_TRY(SPW_SCRATCH(run, run->local + 1, &p->offset));
        for (size_t i = 0; i < g->tiers; i++) {
            g->held[i][r] = g->capacity[i];
            SPW_TRY(SPW_SCRATCH(run, g->capacity[i], &p->origin[i]));
        }
        SPW_TRY(SPW_SCRATCH(run, rows * hidden, &g->operands.x[r]));
        SPW_TRY(SPW_SCRATCH(run, rows * hidden, &g->operands.dy[r]));
        SPW_TRY(SPW_SCRATCH(run, rows * ffn, &g->operands.act[r]));
        SPW_TRY(SPW_SCRATCH(run, rows * ffn, &g->operands.d_gate[r]));
        SPW_TRY(SPW_SCRATCH(run, rows * ffn, &g->operands.d_up[r]));
    }
cleanup:
    return status;
}

/* build_expert_tiers: received choices sorted by expert, in order of arrival; the tiers are filled one after the other. */
static void plan_tiers(spw_execution *run, dedup *g, size_t d) {
    const size_t top_k = run->shape.top_k, rows = g->rank[d].source[run->shape.ranks];
    dedup_rank *p = &g->rank[d];
    size_t next = 0;
    for (size_t i = 0; i < g->tiers; i++) {
        for (size_t row = 0; row < g->capacity[i]; row++) p->origin[i][row] = -1;
    }
    for (size_t i = 0; i < rows * top_k; i++) p->place[i] = -1;
    for (size_t x = 0; x < run->local; x++) {
        p->offset[x] = next;
        for (size_t s = 0; s < run->shape.ranks; s++) {
            for (size_t i = p->source[s] * top_k; i < p->source[s + 1] * top_k; i++) {
                const float id = g->meta.at[d][i / top_k * 2 * top_k + i % top_k];
                if (lroundf(id) != (long)x + 1) continue;
                if (next == g->capacity[0] + g->capacity[1]) {
                    run->out.dropped[s]++;
                    continue;
                }
                const size_t tier = next >= g->capacity[0];
                p->origin[tier][next - (tier > 0 ? g->capacity[0] : 0)] = (int32_t)i;
                p->place[i] = (int32_t)next++;
            }
        }
    }
    p->offset[run->local] = run->out.rows[d] = next;
    for (size_t i = 0; i < g->tiers * run->local; i++) { /* an expert's rows in each tier */
        const size_t tier = i / run->local, x = i % run->local, from = tier > 0 ? g->capacity[0] : 0;
        size_t begin = p->offset[x] > from ? p->offset[x] - from : 0;
        size_t end = p->offset[x + 1] > from ? p->offset[x + 1] - from : 0;
        begin = begin < g->capacity[tier] ? begin : g->capacity[tier];
        end = end < g->capacity[tier] ? end : g->capacity[tier];
        g->tier[tier].begin[d * run->local + x] = begin;
        g->tier[tier].count[d * run->local + x] = end - begin;
    }
}

/* --- Exchanges ------------------------------------------------------------------------------------------------------ */

/* Rows packed by destination to the ranks, or back: widths of `element` bytes on the wire. */
static spw_status exchange(spw_execution *run, const dedup *g, bool back, size_t width, size_t element,
                           const spw_spread *from, spw_spread *to) {
    const size_t ranks = run->shape.ranks;
    spw_status status = SPW_OK;
    for (size_t s = 0; s < ranks; s++) {
        for (size_t d = 0; d < ranks; d++) {
            const size_t begin = back ? g->rank[d].source[s] : g->rank[s].sent[d],
                         end = back ? g->rank[d].source[s + 1] : g->rank[s].sent[d + 1];
            SPW_TRY(spw_fabric_send(run->fabric, back ? d : s, back ? s : d,
                                    from->at[back ? d : s] + begin * width, (end - begin) * width,
                                    sizeof(float), element));
        }
    }
    for (size_t d = 0; d < ranks; d++) { /* the receiver packs by source */
        size_t row = 0;
        for (size_t s = 0; s < ranks && !back; s++) {
            const size_t rows = spw_fabric_waiting(run->fabric, d, s) / (width * sizeof(float));
            g->rank[d].source[s] = row;
            SPW_TRY(
                spw_fabric_receive(run->fabric, d, s, to->at[d] + row * width, rows * width, sizeof(float)));
            row += rows;
        }
        if (!back) g->rank[d].source[ranks] = row;
        for (size_t s = 0; s < ranks && back; s++) {
            const size_t begin = g->rank[s].sent[d], rows = g->rank[s].sent[d + 1] - begin;
            SPW_TRY(spw_fabric_receive(run->fabric, s, d, to->at[s] + begin * width, rows * width,
                                       sizeof(float)));
        }
    }
cleanup:
    return status;
}

/* Every slot's copy of its token's row. */
static void fill_slots(const spw_execution *run, const dedup *g, size_t r, const float *x, float *to) {
    const size_t hidden = run->shape.hidden;
    for (size_t i = 0; i < run->tokens * g->slots; i++) {
        const int32_t row = g->rank[r].slot_row[i];
        if (row >= 0)
            spw_gather_rows(x, &(int32_t){(int32_t)(i / g->slots)}, 1, hidden, to + (size_t)row * hidden);
    }
}

/* Local ids, counted from 1, and weights of the choices that live where the slot goes; 0 elsewhere. */
static void fill_metadata(const spw_execution *run, const dedup *g, size_t r) {
    const size_t top_k = run->shape.top_k;
    for (size_t i = 0; i < run->tokens * g->slots; i++) {
        const dedup_rank *p = &g->rank[r];
        if (p->slot_row[i] < 0) continue;
        float *to = g->send_meta.at[r] + (size_t)p->slot_row[i] * 2 * top_k;
        for (size_t k = 0; k < top_k; k++) {
            const size_t choice = i / g->slots * top_k + k;
            const int32_t x = spw_rank_expert(run, r)[choice];
            if (x < 0 || (int32_t)((size_t)x / run->local) != p->slot_rank[i]) continue;
            to[k] = (float)((size_t)x % run->local + 1);
            to[top_k + k] = spw_rank_weight(run, r)[choice];
        }
    }
}

static spw_status dispatch(spw_execution *run, dedup *g, const char *name) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, metadata = 2 * run->shape.top_k;
    spw_status status = SPW_OK;
    spw_step(run, "metadata");
    for (size_t r = 0; r < ranks; r++) run->out.dropped[r] = 0;
    SPW_TRY(spw_born_at(run, &g->send_meta, "send_meta", g->slot_rows, metadata, 4));
    for (size_t r = 0; r < ranks; r++) plan_sends(run, g, r), fill_metadata(run, g, r);
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, name));
    SPW_TRY(spw_born_at(run, &g->send, "send", g->slot_rows, hidden, 0));
    for (size_t r = 0; r < ranks; r++) fill_slots(run, g, r, spw_rank_x(run, r), g->send.at[r]);
    SPW_TRY(spw_born_at(run, &g->received, "received", g->gathered, hidden, 0));
    SPW_TRY(exchange(run, g, false, hidden, run->shape.element_bytes, &g->send, &g->received));
    spw_dies(run, &g->send);
    SPW_TRY(spw_born_at(run, &g->meta, "received_meta", g->gathered, metadata, 4));
    SPW_TRY(exchange(run, g, false, metadata, 4, &g->send_meta, &g->meta));
    spw_dies(run, &g->send_meta);
    for (size_t r = 0; r < ranks; r++) plan_tiers(run, g, r);
cleanup:
    return status;
}

/* --- Tiers ---------------------------------------------------------------------------------------------------------- */

static spw_status expand(spw_execution *run, dedup *g, size_t tier) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    spw_fused_experts *e = &g->tier[tier];
    spw_status status = SPW_OK;
    spw_step(run, tier > 0 ? "overflow expand" : "expand");
    SPW_TRY(spw_fused_born(run, e, &e->x, tier > 0 ? "overflow x" : "x", hidden, 0));
    SPW_TRY(
        spw_fused_born(run, e, &g->row_weight[tier], tier > 0 ? "overflow row_weight" : "row_weight", 1, 4));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t row = 0; row < g->capacity[tier]; row++) {
            const int32_t choice = g->rank[r].origin[tier][row];
            if (choice < 0) continue;
            const int32_t from = choice / (int32_t)top_k;
            spw_gather_rows(g->received.at[r], &from, 1, hidden, e->x.at[r] + row * hidden);
            g->row_weight[tier].at[r][row] =
                g->meta.at[r][(size_t)from * 2 * top_k + top_k + (size_t)choice % top_k];
        }
    }
    if (tier + 1 == g->tiers) spw_dies(run, &g->received), spw_dies(run, &g->meta);
cleanup:
    return status;
}

/* out[row] = sum over the row's choices of their rows in a tier, or in all of them. */
static void reduce(const spw_execution *run, const dedup *g, size_t r, size_t first, size_t end,
                   const spw_spread *const rows[TIERS], float *out) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    for (size_t i = 0; i < g->rank[r].source[run->shape.ranks] * hidden; i++) {
        double sum = 0.0;
        for (size_t k = i / hidden * top_k; k < (i / hidden + 1) * top_k; k++) {
            const int32_t place = g->rank[r].place[k];
            const size_t tier = place >= 0 && (size_t)place >= g->capacity[0],
                         row = tier > 0 ? (size_t)place - g->capacity[0] : (size_t)place;
            if (place >= 0 && tier >= first && tier < end)
                sum += (double)rows[tier]->at[r][row * hidden + i % hidden];
        }
        out[i] = (float)sum;
    }
}

/* out [ranks][tokens][hidden] = sum over a token's slots, in order of rank. */
static void sum_slots(const spw_execution *run, const dedup *g, const spw_spread *rows, float *out) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(run->tokens, g->slots, run->shape.hidden, g->rank[r].slot_row, NULL, rows->at[r],
                     out + r * run->tokens * run->shape.hidden);
    }
}

static spw_status combine(spw_execution *run, dedup *g) {
    const size_t hidden = run->shape.hidden;
    const spw_spread *const y[TIERS] = {&g->tier[0].y, &g->tier[1].y};
    spw_status status = SPW_OK;
    spw_step(run, "reduce");
    SPW_TRY(spw_born_at(run, &g->summed, "summed", g->gathered, hidden, 0));
    for (size_t r = 0; r < run->shape.ranks; r++) reduce(run, g, r, 0, TIERS, y, g->summed.at[r]);
    for (size_t i = 0; i < g->tiers; i++) spw_dies(run, &g->tier[i].y);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine"));
    SPW_TRY(spw_born_at(run, &g->returned, "returned", g->slot_rows, hidden, 0));
    SPW_TRY(exchange(run, g, true, hidden, run->shape.element_bytes, &g->summed, &g->returned));
    spw_dies(run, &g->summed);
    spw_step(run, "sum over shards");
    sum_slots(run, g, &g->returned, run->out.y);
    spw_dies(run, &g->returned);
cleanup:
    return status;
}

static spw_status combine_gradient(spw_execution *run, dedup *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born_at(run, &g->d_returned, "d_returned", g->slot_rows, hidden, 0));
    for (size_t r = 0; r < ranks; r++) fill_slots(run, g, r, spw_rank_dy(run, r), g->d_returned.at[r]);
    SPW_TRY(spw_born_at(run, &g->d_summed, "d_summed", g->gathered, hidden, 0));
    SPW_TRY(exchange(run, g, false, hidden, run->shape.element_bytes, &g->d_returned, &g->d_summed));
    spw_dies(run, &g->d_returned);
    spw_step(run, "reduce gradient");
    for (size_t i = 0; i < g->tiers; i++) {
        spw_fused_experts *e = &g->tier[i];
        SPW_TRY(spw_fused_born(run, e, &e->dy, i > 0 ? "overflow dy" : "dy", hidden, 0));
        for (size_t row = 0; row < ranks * g->capacity[i]; row++) {
            const size_t r = row / g->capacity[i], at = row % g->capacity[i];
            const int32_t choice = g->rank[r].origin[i][at], from = choice / (int32_t)run->shape.top_k;
            if (choice >= 0) spw_gather_rows(g->d_summed.at[r], &from, 1, hidden, e->dy.at[r] + at * hidden);
        }
    }
    spw_dies(run, &g->d_summed);
cleanup:
    return status;
}

static spw_status tier_gradient(spw_execution *run, dedup *g, size_t tier) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    const spw_spread *const dx[TIERS] = {&g->tier[0].dx, &g->tier[1].dx};
    spw_status status = SPW_OK;
    SPW_TRY(spw_fused_backward(run, &g->tier[tier]));
    spw_step(run, tier > 0 ? "overflow expand gradient" : "expand gradient");
    SPW_TRY(spw_born_at(run, &g->d_received[tier], tier > 0 ? "overflow d_received" : "d_received",
                        g->gathered, hidden, 0));
    SPW_TRY(spw_born_at(run, &g->d_meta[tier], tier > 0 ? "overflow d_received_meta" : "d_received_meta",
                        g->gathered, 2 * top_k, 4));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        reduce(run, g, r, tier, tier + 1, dx, g->d_received[tier].at[r]);
        for (size_t row = 0; row < g->capacity[tier]; row++) {
            const int32_t choice = g->rank[r].origin[tier][row];
            if (choice < 0) continue;
            g->d_meta[tier].at[r][(size_t)choice / top_k * 2 * top_k + top_k + (size_t)choice % top_k] =
                g->tier[tier].d_weight.at[r][row];
        }
    }
    spw_dies(run, &g->tier[tier].dx), spw_dies(run, &g->tier[tier].d_weight);
cleanup:
    return status;
}

static void sum_tiers(spw_execution *run, dedup *g) {
    const size_t hidden = run->shape.hidden, metadata = 2 * run->shape.top_k;
    spw_step(run, "sum of tiers");
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < g->gathered[r] * hidden; i++)
            g->d_received[0].at[r][i] += g->d_received[1].at[r][i];
        for (size_t i = 0; i < g->gathered[r] * metadata; i++) g->d_meta[0].at[r][i] += g->d_meta[1].at[r][i];
    }
    spw_dies(run, &g->d_received[1]), spw_dies(run, &g->d_meta[1]);
}

/* Of the rows of all tiers, so that an expert in two of them is summed once and in order. */
static spw_status weight_gradients(spw_execution *run, dedup *g) {
    const spw_fused_operands *o = &g->operands;
    const size_t rows = g->capacity[0] + g->capacity[1];
    const spw_gemm_shape
        up = {.experts = run->local, .rows = rows, .in = run->shape.hidden, .out = run->shape.ffn},
        down = {.experts = run->local, .rows = rows, .in = run->shape.ffn, .out = run->shape.hidden};
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const size_t *offset = g->rank[r].offset;
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(up, o->x[r], o->d_gate[r], offset,
                                                     spw_rank_weight_gradients(run, r, 0), NULL));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(up, o->x[r], o->d_up[r], offset,
                                                     spw_rank_weight_gradients(run, r, 1), NULL));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(down, o->act[r], o->dy[r], offset,
                                                     spw_rank_weight_gradients(run, r, 2), NULL));
    }
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, dedup *g) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k;
    spw_status status = SPW_OK;
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_born_at(run, &g->dx_returned, "dx_returned", g->slot_rows, hidden, 0));
    SPW_TRY(exchange(run, g, true, hidden, run->shape.element_bytes, &g->d_received[0], &g->dx_returned));
    spw_dies(run, &g->d_received[0]);
    SPW_TRY(spw_born_at(run, &g->d_meta_returned, "d_meta_returned", g->slot_rows, 2 * top_k, 4));
    SPW_TRY(exchange(run, g, true, 2 * top_k, 4, &g->d_meta[0], &g->d_meta_returned));
    spw_dies(run, &g->d_meta[0]);
    spw_step(run, "sum over shards");
    sum_slots(run, g, &g->dx_returned, run->out.dx);
    for (size_t i = 0; i < run->shape.ranks * run->tokens * g->slots; i++) {
        const size_t r = i / (run->tokens * g->slots), slot = i % (run->tokens * g->slots);
        const int32_t row = g->rank[r].slot_row[slot];
        for (size_t k = 0; k < top_k && row >= 0; k++) {
            run->out.d_weight[r * run->assignments + slot / g->slots * top_k + k] +=
                g->d_meta_returned.at[r][(size_t)row * 2 * top_k + top_k + k];
        }
    }
    spw_dies(run, &g->dx_returned), spw_dies(run, &g->d_meta_returned);
cleanup:
    return status;
}

spw_status spw_execute_moe_dedup(spw_execution *run) {
    dedup *g = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &g);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, g));
    run->pass = SPW_PASS_FORWARD;
    SPW_TRY(dispatch(run, g, "dispatch"));
    for (size_t i = 0; i < g->tiers; i++) {
        SPW_TRY(expand(run, g, i));
        SPW_TRY(spw_fused_forward(run, &g->tier[i], false));
    }
    SPW_TRY(combine(run, g));
    run->pass =
        SPW_PASS_RECOMPUTE; /* nothing needs y, so neither the down product nor the combine is repeated */
    SPW_TRY(dispatch(run, g, "dispatch again"));
    for (size_t i = 0; i < g->tiers; i++) {
        SPW_TRY(expand(run, g, i));
        SPW_TRY(spw_fused_up(run, &g->tier[i], true));
    }
    run->pass = SPW_PASS_BACKWARD;
    SPW_TRY(combine_gradient(run, g));
    for (size_t i = g->tiers; i-- > 0;) SPW_TRY(tier_gradient(run, g, i));
    if (g->tiers > 1) sum_tiers(run, g);
    SPW_TRY(weight_gradients(run, g));
    SPW_TRY(dispatch_gradient(run, g));
cleanup:
    return status;
}
