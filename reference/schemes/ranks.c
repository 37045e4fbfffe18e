#include "reference/schemes/ranks.h"

#include "base/memory.h"

#include <string.h>

typedef struct spw_scratch {
    struct spw_scratch *next;
    void *memory;
} spw_scratch;

spw_status spw_scratch_take(spw_execution *run, size_t count, size_t size, void **out) {
    spw_scratch *entry = NULL;
    spw_status status = SPW_ALLOC(1, &entry);
    *out = NULL;
    if (status != SPW_OK) return status;
    entry->next = run->scratch;
    run->scratch = entry;
    status = spw_alloc(count, size, &entry->memory);
    *out = entry->memory;
    return status;
}

void spw_scratch_free(spw_execution *run) {
    while (run->scratch != NULL) {
        spw_scratch *entry = run->scratch;
        run->scratch = entry->next;
        spw_free(entry->memory), spw_free(entry);
    }
}

void spw_step(spw_execution *run, const char *step) { spw_arena_moment(run->arena, run->pass, step); }

spw_status spw_born_sparse(spw_execution *run, spw_spread *tensor, const char *name, size_t rows,
                           size_t width, size_t elements) {
    size_t bytes = 0;
    if (!spw_mul_size(rows, width, &bytes) || !spw_mul_size(bytes, run->shape.element_bytes, &bytes)) {
        return spw_fail(SPW_EARG, "%s of %zu x %zu elements overflows size_t", name, rows, width);
    }
    *tensor = (spw_spread){.rows = rows, .width = width};
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_status status = spw_arena_take(run->arena, r, name, elements, bytes, &tensor->at[r]);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

spw_status spw_born(spw_execution *run, spw_spread *tensor, const char *name, size_t rows, size_t width) {
    size_t elements = 0;
    if (!spw_mul_size(rows, width, &elements)) {
        return spw_fail(SPW_EARG, "%s of %zu x %zu elements overflows size_t", name, rows, width);
    }
    return spw_born_sparse(run, tensor, name, rows, width, elements);
}

spw_status spw_born_at(spw_execution *run, spw_spread *tensor, const char *name, const size_t *rows,
                       size_t width, size_t element_bytes) {
    const size_t element = element_bytes > 0 ? element_bytes : run->shape.element_bytes;
    *tensor = (spw_spread){.width = width};
    for (size_t r = 0; r < run->shape.ranks; r++) {
        size_t elements = 0, bytes = 0;
        if (!spw_mul_size(rows[r], width, &elements) || !spw_mul_size(elements, element, &bytes))
            return spw_fail(SPW_EARG, "%s of %zu x %zu elements overflows size_t", name, rows[r], width);
        const spw_status status = spw_arena_take(run->arena, r, name, elements, bytes, &tensor->at[r]);
        if (status != SPW_OK) return status;
        tensor->rows = rows[r] > tensor->rows ? rows[r] : tensor->rows;
    }
    return SPW_OK;
}

void spw_dies(spw_execution *run, spw_spread *tensor) {
    for (size_t r = 0; r < run->shape.ranks; r++) spw_arena_give(run->arena, r, tensor->at[r]);
    *tensor = (spw_spread){.rows = 0};
}

void spw_becomes(spw_execution *run, spw_spread *from, spw_spread *to, const char *name) {
    *to = *from;
    *from = (spw_spread){.rows = 0};
    for (size_t r = 0; r < run->shape.ranks; r++) spw_arena_rename(run->arena, r, to->at[r], name);
}

/* Where the arrays of the input are: the ranks of a tensor group have one between them. */
static size_t place_of(const spw_execution *run, size_t rank) {
    return run->shape.tensor_group ? rank / spw_execution_sharers(&run->shape) : rank;
}

const float *spw_rank_x(const spw_execution *run, size_t rank) {
    return run->in.x + place_of(run, rank) * run->tokens * run->shape.hidden;
}
const float *spw_rank_dy(const spw_execution *run, size_t rank) {
    return run->in.dy + place_of(run, rank) * run->tokens * run->shape.hidden;
}
const int32_t *spw_rank_expert(const spw_execution *run, size_t rank) {
    return run->in.expert + place_of(run, rank) * run->assignments;
}
const float *spw_rank_weight(const spw_execution *run, size_t rank) {
    return run->in.weight + place_of(run, rank) * run->assignments;
}

const float *spw_rank_weights(const spw_execution *run, size_t rank, int weight) {
    const float *all[] = {run->in.weights.w0, run->in.weights.w1, run->in.weights.wo};
    return all[weight] + rank * run->local * run->shape.hidden * run->shape.ffn;
}
float *spw_rank_weight_gradients(const spw_execution *run, size_t rank, int weight) {
    float *all[] = {run->out.gradients.w0, run->out.gradients.w1, run->out.gradients.wo};
    return all[weight] + rank * run->local * run->shape.hidden * run->shape.ffn;
}

void spw_gather_rows(const float *from, const int32_t *index, size_t count, size_t width, float *to) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        if (index[i] >= 0) memcpy(to + i * width, from + (size_t)index[i] * width, width * sizeof *to);
    }
}

void spw_scatter_rows(const float *from, const int32_t *index, size_t count, size_t width, float *to) {
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        if (index[i] >= 0) memcpy(to + (size_t)index[i] * width, from + i * width, width * sizeof *to);
    }
}

void spw_sum_rows(size_t tokens, size_t slots, size_t width, const int32_t *row, const float *weight,
                  const float *rows, float *y) {
#pragma omp parallel for schedule(static)
    for (size_t t = 0; t < tokens; t++) {
        for (size_t h = 0; h < width; h++) {
            double sum = 0.0;
            for (size_t k = 0; k < slots; k++) {
                const size_t i = t * slots + k;
                if (row[i] < 0) continue;
                sum += (weight == NULL ? 1.0 : (double)weight[i]) * (double)rows[(size_t)row[i] * width + h];
            }
            y[t * width + h] = (float)sum;
        }
    }
}

void spw_sum_rows_gradient(const spw_row_table *table, const float *rows, const float *dy, float *d_rows,
                           float *d_weight) {
    const size_t tokens = table->tokens, slots = table->slots, width = table->width;
    const int32_t *const row = table->row;
    const float *const weight = table->weight;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < tokens * slots; i++) {
        const float *d = dy + i / slots * width;
        double sum = 0.0;
        for (size_t h = 0; h < width && row[i] >= 0; h++) {
            const size_t at = (size_t)row[i] * width + h;
            sum += (double)d[h] * (double)rows[at];
            d_rows[at] = (float)((double)weight[i] * (double)d[h]);
        }
        d_weight[i] = (float)sum;
    }
}

spw_status spw_send_rows(spw_execution *run, size_t from, size_t to, const float *rows, size_t count,
                         size_t width) {
    return spw_fabric_send(run->fabric, from, to, rows, count * width, sizeof *rows,
                           run->shape.element_bytes);
}
spw_status spw_receive_rows(spw_execution *run, size_t to, size_t from, float *rows, size_t count,
                            size_t width) {
    return spw_fabric_receive(run->fabric, to, from, rows, count * width, sizeof *rows);
}
