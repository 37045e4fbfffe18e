#include "reference/schemes/deepep/deepep_ranks.h"

#include "base/memory.h"

#include <math.h>

enum { BLOCK = 128 }; /* numbers that share an fp8 scale */

spw_status spw_deepep_create(spw_execution *run, size_t index_bytes, spw_deepep *g) {
    const size_t ranks = run->shape.ranks, top_k = run->shape.top_k, worst = ranks * run->tokens;
    spw_status status = SPW_OK;
    g->index_bytes = index_bytes;
    for (size_t r = 0; r < ranks; r++) {
        spw_deepep_rank *p = &g->rank[r];
        SPW_TRY(SPW_SCRATCH(run, ranks, &p->sent));
        SPW_TRY(SPW_SCRATCH(run, worst, &p->sent_id));
        SPW_TRY(SPW_SCRATCH(run, ranks + 1, &p->source));
        SPW_TRY(SPW_SCRATCH(run, worst, &p->token));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->expert));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->weight));
        SPW_TRY(SPW_SCRATCH(run, worst * top_k, &p->d_weight));
        for (size_t t = 0; t < run->tokens; t++) {
            for (size_t d = 0; d < ranks; d++) {
                bool wanted = false;
                for (size_t k = 0; k < top_k; k++) {
                    const int32_t x = spw_rank_expert(run, r)[t * top_k + k];
                    wanted |= x >= 0 && (size_t)x / run->local == d;
                }
                if (wanted) p->sent_id[d * run->tokens + p->sent[d]++] = (int32_t)t;
            }
        }
    }
cleanup:
    return status;
}

static bool spans_nodes(const spw_execution *run) {
    return run->shape.node_ranks > 0 && run->shape.ranks > run->shape.node_ranks;
}

static size_t scales_of(const spw_execution *run, bool fp8) {
    return fp8 ? (run->shape.hidden + BLOCK - 1) / BLOCK : 0;
}

static size_t element_bytes(const spw_execution *run, bool fp8) { return fp8 ? 1 : run->shape.element_bytes; }

/* Bytes of the source index. Across nodes: of the source's description, and what fills the row up to 16 bytes. */
static size_t source_bytes(const spw_execution *run, bool fp8, size_t choice_bytes) {
    if (!spans_nodes(run)) return 4;
    const size_t row = run->shape.hidden * element_bytes(run, fp8) + 4 * scales_of(run, fp8) +
                       run->shape.top_k * choice_bytes + 8;
    return 8 + (16 - row % 16) % 16;
}

static spw_status send_row(spw_execution *run, spw_deepep *g, size_t r, size_t d, int32_t t,
                           spw_deepep_message m, const float *x) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k, at = (size_t)t * top_k,
                 index = spans_nodes(run) ? 4 : g->index_bytes, scales = scales_of(run, m.fp8);
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_send(run->fabric, r, d, &t, 1, sizeof t,
                            source_bytes(run, m.fp8, m.choices ? index + 4 : 0)));
    SPW_TRY(spw_fabric_send(run->fabric, r, d, x, hidden, sizeof *x, element_bytes(run, m.fp8)));
    for (size_t s = 0; s < scales;
         s++) { /* of e4m3, whose greatest number is 448; the row itself is not rounded */
        float most = 0.0f;
        for (size_t h = s * BLOCK; h < hidden && h < (s + 1) * BLOCK; h++) most = fmaxf(most, fabsf(x[h]));
        most /= 448.0f;
        SPW_TRY(spw_fabric_send(run->fabric, r, d, &most, 1, sizeof most, 4));
    }
    if (!m.choices) return SPW_OK;
    SPW_TRY(spw_fabric_send(run->fabric, r, d, spw_rank_expert(run, r) + at, top_k, sizeof(int32_t), index));
    SPW_TRY(spw_fabric_send(run->fabric, r, d, spw_rank_weight(run, r) + at, top_k, sizeof(float), 4));
cleanup:
    return status;
}

spw_status spw_deepep_send(spw_execution *run, spw_deepep *g, spw_deepep_message m,
                           const float *(*rows)(const spw_execution *run, size_t rank)) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t d = 0; d < run->shape.ranks; d++) {
            for (size_t n = 0; n < g->rank[r].sent[d]; n++) {
                const int32_t t = g->rank[r].sent_id[d * run->tokens + n];
                SPW_TRY(send_row(run, g, r, d, t, m, rows(run, r) + (size_t)t * run->shape.hidden));
            }
        }
    }
cleanup:
    return status;
}

/* Of a row as it stands in the mailbox. */
static size_t stored_bytes(const spw_execution *run, spw_deepep_message m) {
    return sizeof(int32_t) + (run->shape.hidden + scales_of(run, m.fp8)) * sizeof(float) +
           (m.choices ? run->shape.top_k * (sizeof(int32_t) + sizeof(float)) : 0);
}

void spw_deepep_arrive(spw_execution *run, spw_deepep *g, spw_deepep_message m) {
    for (size_t d = 0; d < run->shape.ranks; d++) {
        spw_deepep_rank *p = &g->rank[d];
        p->received = 0;
        for (size_t s = 0; s < run->shape.ranks; s++) {
            p->source[s] = p->received;
            p->received += spw_fabric_waiting(run->fabric, d, s) / stored_bytes(run, m);
        }
        p->source[run->shape.ranks] = g->rows[d] = p->received;
    }
}

/* Row `row` of what rank d gets of rank s. */
typedef struct received_row {
    size_t d, s, row;
    float *to, *scale;
} received_row;

static spw_status receive_row(spw_execution *run, spw_deepep_rank *p, spw_deepep_message m, received_row at) {
    const size_t d = at.d, s = at.s, row = at.row;
    const size_t top_k = run->shape.top_k, scales = scales_of(run, m.fp8);
    int32_t *const expert = p->expert + row * top_k;
    float *const weight = p->weight + row * top_k;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_receive(run->fabric, d, s, &p->token[row], 1, sizeof p->token[row]));
    SPW_TRY(spw_receive_rows(run, d, s, at.to, 1, run->shape.hidden));
    if (scales > 0) SPW_TRY(spw_fabric_receive(run->fabric, d, s, at.scale, scales, sizeof *at.scale));
    if (!m.choices) return SPW_OK;
    SPW_TRY(spw_fabric_receive(run->fabric, d, s, expert, top_k, sizeof *expert));
    SPW_TRY(spw_fabric_receive(run->fabric, d, s, weight, top_k, sizeof *weight));
    for (size_t k = 0; k < top_k; k++) {
        if (expert[k] < 0 || (size_t)expert[k] / run->local != d) weight[k] = 0.0f;
    }
cleanup:
    return status;
}

spw_status spw_deepep_receive(spw_execution *run, spw_deepep *g, spw_deepep_message m, spw_spread *to,
                              spw_spread *scales) {
    const size_t hidden = run->shape.hidden, blocks = scales_of(run, m.fp8);
    spw_status status = SPW_OK;
    for (size_t d = 0; d < run->shape.ranks; d++) {
        spw_deepep_rank *p = &g->rank[d];
        for (size_t s = 0; s < run->shape.ranks; s++) {
            for (size_t row = p->source[s]; row < p->source[s + 1]; row++) {
                const received_row at = {d, s, row, to->at[d] + row * hidden,
                                         scales != NULL ? scales->at[d] + row * blocks : NULL};
                SPW_TRY(receive_row(run, p, m, at));
            }
        }
    }
cleanup:
    return status;
}

static spw_status send_back(spw_execution *run, spw_deepep *g, const spw_spread *rows, bool weights) {
    const size_t hidden = run->shape.hidden, top_k = run->shape.top_k,
                 source = source_bytes(run, false, weights ? 4 : 0);
    spw_status status = SPW_OK;
    for (size_t d = 0; d < run->shape.ranks; d++) {
        const spw_deepep_rank *p = &g->rank[d];
        for (size_t j = 0, s = 0; j < p->received; j++) {
            while (j >= p->source[s + 1]) s++;
            SPW_TRY(spw_fabric_send(run->fabric, d, s, &p->token[j], 1, sizeof p->token[j], source));
            SPW_TRY(spw_send_rows(run, d, s, rows->at[d] + j * hidden, 1, hidden));
            if (!weights) continue;
            SPW_TRY(spw_fabric_send(run->fabric, d, s, p->d_weight + j * top_k, top_k, sizeof(float), 4));
        }
    }
cleanup:
    return status;
}

spw_status spw_deepep_return(spw_execution *run, spw_deepep *g, const spw_spread *rows, bool weights,
                             float *to) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden, top_k = run->shape.top_k,
                 numbers = run->tokens * hidden;
    double *sum = NULL;
    float *row = NULL, *choice = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(numbers, &sum));
    SPW_TRY(SPW_ALLOC(hidden, &row));
    SPW_TRY(SPW_ALLOC(top_k, &choice));
    SPW_TRY(send_back(run, g, rows, weights));
    for (size_t s = 0; s < ranks; s++) {
        for (size_t i = 0; i < numbers; i++) sum[i] = 0.0;
        for (size_t d = 0; d < ranks; d++) {
            for (size_t n = 0; n < g->rank[s].sent[d]; n++) {
                int32_t t = 0;
                SPW_TRY(spw_fabric_receive(run->fabric, s, d, &t, 1, sizeof t));
                SPW_TRY(spw_receive_rows(run, s, d, row, 1, hidden));
                for (size_t h = 0; h < hidden; h++) sum[(size_t)t * hidden + h] += (double)row[h];
                if (!weights) continue;
                SPW_TRY(spw_fabric_receive(run->fabric, s, d, choice, top_k, sizeof *choice));
                for (size_t k = 0; k < top_k; k++) { /* 0 but from the rank that has the expert */
                    run->out.d_weight[s * run->assignments + (size_t)t * top_k + k] += choice[k];
                }
            }
        }
        for (size_t i = 0; i < numbers; i++) to[s * numbers + i] = (float)sum[i];
    }
cleanup:
    spw_free(choice), spw_free(row), spw_free(sum);
    return status;
}
