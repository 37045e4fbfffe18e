#include "reference/schemes/megatron/megatron_chunks.h"

#include <string.h>

static const size_t *counts_for(const spw_execution *run, const spw_megatron *g, size_t from, size_t to) {
    return g->rank[from].count + to / spw_execution_sharers(&run->shape) * run->local;
}

static void add_counts(const spw_execution *run, spw_megatron *g, size_t d) {
    const size_t ranks = run->shape.ranks, local = run->local, t = spw_execution_sharers(&run->shape);
    spw_megatron_rank *p = &g->rank[d];
    size_t *offset = g->experts.offset + d * (local + 1), received = 0;
    for (size_t x = 0; x < local; x++) {
        size_t rows = 0;
        for (size_t s = 0; s < ranks; s++) {
            rows += p->arrived[s * local + x];
            if (s % t == d % t) received += p->arrived[s * local + x];
        }
        p->segment[x + 1] = p->segment[x] + rows;
        offset[x + 1] = offset[x] + spw_megatron_round_up(rows, g->set.expert_align);
    }
    g->rows[SPW_MEGATRON_ROWS_RECEIVED][d] = received;
    g->rows[SPW_MEGATRON_ROWS_EXPERT_ROWS][d] = run->out.rows[d] = offset[local];
}

spw_status spw_megatron_exchange_counts(spw_execution *run, spw_megatron *g) {
    const size_t ranks = run->shape.ranks, local = run->local;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, "counts"));
    for (size_t r = 0; r < ranks; r++) {
        for (size_t d = 0; d < ranks; d++)
            SPW_TRY(spw_fabric_send(run->fabric, r, d, counts_for(run, g, r, d), local, sizeof(size_t), 4));
    }
    for (size_t d = 0; d < ranks; d++) {
        for (size_t s = 0; s < ranks; s++)
            SPW_TRY(
                spw_fabric_receive(run->fabric, d, s, g->rank[d].arrived + s * local, local, sizeof(size_t)));
        add_counts(run, g, d);
    }
cleanup:
    return status;
}

/* Rows of one rank to another, before they are sorted. */
static size_t rows_between(const spw_execution *run, const spw_megatron *g, size_t from, size_t to) {
    const size_t t = spw_execution_sharers(&run->shape), *count = counts_for(run, g, from, to);
    size_t rows = 0;
    for (size_t x = 0; x < run->local && from % t == to % t; x++) rows += count[x];
    return rows;
}

typedef struct exchanged {
    const char *name;
    bool back;
    size_t width, element_bytes; /* of a row */
} exchanged;

static spw_status exchange(spw_execution *run, const spw_megatron *g, exchanged e, const spw_spread *from,
                           const spw_spread *to) {
    const size_t ranks = run->shape.ranks, width = e.width;
    spw_status status = SPW_OK;
    SPW_TRY(spw_fabric_begin(run->fabric, e.name));
    for (size_t r = 0; r < ranks; r++) {
        size_t row = 0;
        for (size_t d = 0; d < ranks; d++) {
            const size_t rows = e.back ? rows_between(run, g, d, r) : rows_between(run, g, r, d);
            SPW_TRY(spw_fabric_send(run->fabric, r, d, from->at[r] + row * width, rows * width, sizeof(float),
                                    e.element_bytes));
            row += rows;
        }
    }
    for (size_t d = 0; d < ranks; d++) {
        size_t row = 0;
        for (size_t s = 0; s < ranks; s++) {
            const size_t rows = e.back ? rows_between(run, g, d, s) : rows_between(run, g, s, d);
            SPW_TRY(
                spw_fabric_receive(run->fabric, d, s, to->at[d] + row * width, rows * width, sizeof(float)));
            row += rows;
        }
    }
cleanup:
    return status;
}

spw_status spw_megatron_exchange_rows(spw_execution *run, spw_megatron *g, const char *name, bool back,
                                      spw_megatron_tensor from, spw_megatron_tensor to) {
    return exchange(run, g, (exchanged){name, back, run->shape.hidden, run->shape.element_bytes},
                    &g->tensor[from], &g->tensor[to]);
}

spw_status spw_megatron_exchange_probs(spw_execution *run, spw_megatron *g, const char *name, bool back,
                                       spw_megatron_tensor from, spw_megatron_tensor to) {
    return exchange(run, g, (exchanged){name, back, 1, 4}, &g->tensor[from], &g->tensor[to]);
}

void spw_megatron_sort_chunks(const spw_execution *run, const spw_megatron *g, spw_megatron_tensor arrived,
                              spw_megatron_tensor sorted, size_t width, bool back) {
    const size_t ranks = run->shape.ranks, local = run->local, t = spw_execution_sharers(&run->shape);
    for (size_t r = 0; r < ranks; r++) {
        const spw_megatron_rank *p = &g->rank[r];
        size_t row = 0;
        for (size_t i = 0; i < ranks; i++) {
            const size_t s = i % (ranks / t) * t + i / (ranks / t);
            for (size_t x = 0; x < local; x++) {
                const size_t rows = p->arrived[s * local + x];
                size_t place = p->segment[x];
                for (size_t before = 0; before < s; before++) place += p->arrived[before * local + x];
                float *one = g->tensor[arrived].at[r] + row * width,
                      *other = g->tensor[sorted].at[r] + place * width;
                memcpy(back ? one : other, back ? other : one, rows * width * sizeof *one);
                row += rows;
            }
        }
    }
}
