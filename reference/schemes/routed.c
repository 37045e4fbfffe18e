#include "reference/schemes/routed.h"

/* Allocates and numbers what follows from `count`, `sent` and the tile. */
static spw_status arrange(spw_execution *run, size_t tile, spw_routed *routed, spw_experts *experts) {
    const size_t ranks = run->shape.ranks, local = run->local, all = run->shape.experts;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, ranks, &routed->received));
    SPW_TRY(SPW_SCRATCH(run, ranks, &routed->held));
    for (size_t d = 0; d < ranks; d++) {
        for (size_t x = d * local; x < (d + 1) * local; x++) {
            size_t rows = 0;
            for (size_t r = 0; r < ranks; r++) rows += routed->count[r * all + x];
            routed->received[d] += rows;
            routed->held[d] += (rows + tile - 1) / tile * tile;
        }
    }
    SPW_TRY(spw_experts_create_at(run, routed->held, experts));
    for (size_t d = 0; d < ranks; d++) {
        size_t *offset = experts->offset + d * (local + 1), row = 0;
        SPW_TRY(SPW_SCRATCH(run, routed->held[d], &routed->from_x[d]));
        for (size_t x = 0; x < local; x++) {
            size_t place = 0;
            offset[x] = row;
            for (size_t i = 0; i < ranks * local; i++) {
                const size_t n = routed->count[i / local * all + d * local + i % local];
                for (size_t j = 0; j < n && i % local == x; j++)
                    routed->from_x[d][row++] = (int32_t)(place + j);
                place += n;
            }
            while (row % tile != 0) routed->from_x[d][row++] = -1;
        }
        offset[local] = run->out.rows[d] = row;
    }
cleanup:
    return status;
}

static spw_status create(spw_execution *run, spw_routed *routed) {
    const size_t ranks = run->shape.ranks;
    spw_status status = SPW_OK;
    *routed = (spw_routed){.sent = NULL};
    SPW_TRY(SPW_SCRATCH(run, ranks, &routed->sent));
    SPW_TRY(SPW_SCRATCH(run, ranks * run->shape.experts, &routed->count));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(SPW_SCRATCH(run, run->assignments, &routed->row[r]));
        for (size_t i = 0; i < run->assignments; i++) routed->row[r][i] = -1;
    }
cleanup:
    return status;
}

static spw_status create_rows(spw_execution *run, spw_routed *routed, size_t r, size_t rows) {
    spw_status status = SPW_OK;
    routed->sent[r] = rows;
    SPW_TRY(SPW_SCRATCH(run, rows, &routed->assignment[r]));
    SPW_TRY(SPW_SCRATCH(run, rows, &routed->token[r]));
    for (size_t i = 0; i < rows; i++) routed->assignment[r][i] = routed->token[r][i] = -1;
cleanup:
    return status;
}

static void put(spw_execution *run, spw_routed *routed, size_t r, size_t i, size_t row) {
    routed->row[r][i] = (int32_t)row;
    routed->assignment[r][row] = (int32_t)i;
    routed->token[r][row] = (int32_t)(i / run->shape.top_k);
}

spw_status spw_routed_by_choice(spw_execution *run, size_t tile, spw_routed *routed, spw_experts *experts) {
    const size_t all = run->shape.experts;
    spw_status status = create(run, routed);
    if (status != SPW_OK) return status;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const int32_t *expert = spw_rank_expert(run, r);
        size_t rows = 0;
        for (size_t i = 0; i < run->assignments; i++) {
            if (expert[i] >= 0) routed->count[r * all + (size_t)expert[i]]++, rows++;
        }
        SPW_TRY(create_rows(run, routed, r, rows));
        rows = 0;
        for (size_t x = 0; x < all; x++) {
            for (size_t i = 0; i < run->assignments; i++) {
                if (expert[i] == (int32_t)x) put(run, routed, r, i, rows++);
            }
        }
    }
    SPW_TRY(arrange(run, tile, routed, experts));
cleanup:
    return status;
}

spw_status spw_routed_by_place(spw_execution *run, const int32_t *place, size_t capacity, spw_routed *routed,
                               spw_experts *experts) {
    const size_t all = run->shape.experts;
    spw_status status = create(run, routed);
    if (status != SPW_OK) return status;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        SPW_TRY(create_rows(run, routed, r, all * capacity));
        for (size_t x = 0; x < all; x++) routed->count[r * all + x] = capacity;
        for (size_t i = 0; i < run->assignments; i++) {
            const int32_t at = place[r * run->assignments + i], x = spw_rank_expert(run, r)[i];
            if (x >= 0 && at >= 0) put(run, routed, r, i, (size_t)x * capacity + (size_t)at);
            run->out.dropped[r] += x >= 0 && at < 0;
        }
    }
    SPW_TRY(arrange(run, 1, routed, experts));
cleanup:
    return status;
}

spw_status spw_routed_send(spw_execution *run, const spw_routed *routed, const char *exchange,
                           const spw_spread *from, spw_spread *to) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, all = run->shape.experts;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t r = 0; r < ranks; r++) {
        size_t row = 0;
        for (size_t x = 0; x < all; row += routed->count[r * all + x++]) {
            SPW_TRY(spw_send_rows(run, r, x / run->local, from->at[r] + row * hidden,
                                  routed->count[r * all + x], hidden));
        }
    }
    for (size_t d = 0; d < ranks; d++) {
        size_t row = 0;
        for (size_t i = 0; i < ranks * run->local; i++) {
            const size_t n = routed->count[i / run->local * all + d * run->local + i % run->local];
            SPW_TRY(spw_receive_rows(run, d, i / run->local, to->at[d] + row * hidden, n, hidden));
            row += n;
        }
    }
cleanup:
    return status;
}

spw_status spw_routed_return(spw_execution *run, const spw_routed *routed, const char *exchange,
                             const spw_spread *from, spw_spread *to) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, all = run->shape.experts;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t d = 0; d < ranks; d++) {
        size_t row = 0;
        for (size_t i = 0; i < ranks * run->local; i++) {
            const size_t n = routed->count[i / run->local * all + d * run->local + i % run->local];
            SPW_TRY(spw_send_rows(run, d, i / run->local, from->at[d] + row * hidden, n, hidden));
            row += n;
        }
    }
    for (size_t r = 0; r < ranks; r++) {
        size_t row = 0;
        for (size_t x = 0; x < all; row += routed->count[r * all + x++]) {
            SPW_TRY(spw_receive_rows(run, r, x / run->local, to->at[r] + row * hidden,
                                     routed->count[r * all + x], hidden));
        }
    }
cleanup:
    return status;
}

void spw_routed_to_experts(spw_execution *run, const spw_routed *routed, const spw_spread *from,
                           spw_spread *to) {
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_gather_rows(from->at[r], routed->from_x[r], routed->held[r], run->shape.hidden, to->at[r]);
}

void spw_routed_from_experts(spw_execution *run, const spw_routed *routed, const spw_spread *from,
                             spw_spread *to) {
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_scatter_rows(from->at[r], routed->from_x[r], routed->held[r], run->shape.hidden, to->at[r]);
}

void spw_routed_gather(spw_execution *run, const spw_routed *routed, const float *tokens, bool weighted,
                       spw_spread *to) {
    const size_t hidden = run->shape.hidden;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const float *x = tokens + r * run->tokens * hidden, *weight = spw_rank_weight(run, r);
        spw_gather_rows(x, routed->token[r], routed->sent[r], hidden, to->at[r]);
        for (size_t i = 0; i < routed->sent[r] * hidden && weighted; i++) {
            const int32_t choice = routed->assignment[r][i / hidden];
            if (choice >= 0) to->at[r][i] = (float)((double)weight[choice] * (double)to->at[r][i]);
        }
    }
}

void spw_routed_sum(spw_execution *run, const spw_routed *routed, const spw_spread *rows, bool weighted,
                    float *y) {
    const size_t hidden = run->shape.hidden;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        spw_sum_rows(run->tokens, run->shape.top_k, hidden, routed->row[r],
                     weighted ? spw_rank_weight(run, r) : NULL, rows->at[r], y + r * run->tokens * hidden);
    }
}

void spw_routed_weight_gradient(spw_execution *run, const spw_routed *routed, const spw_spread *rows) {
    const size_t hidden = run->shape.hidden;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < run->assignments; i++) {
            const float *dy = spw_rank_dy(run, r) + i / run->shape.top_k * hidden;
            double sum = 0.0;
            for (size_t h = 0; h < hidden && routed->row[r][i] >= 0; h++)
                sum += (double)dy[h] * (double)rows->at[r][(size_t)routed->row[r][i] * hidden + h];
            run->out.d_weight[r * run->assignments + i] = (float)sum;
        }
    }
}
