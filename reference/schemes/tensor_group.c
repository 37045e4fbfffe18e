#include "reference/schemes/tensor_group.h"

#include "base/memory.h"

#include <string.h>

size_t spw_group_size(const spw_execution *run) {
    return run->shape.tensor_group ? spw_execution_sharers(&run->shape) : 1;
}
size_t spw_group_ranks(const spw_execution *run) { return run->shape.ranks / spw_group_size(run); }
size_t spw_group_width(const spw_execution *run) { return run->shape.hidden / spw_group_size(run); }

size_t spw_group_peer(const spw_execution *run, size_t rank, size_t place) {
    const size_t t = spw_group_size(run);
    return place * t + rank % t;
}

spw_status spw_group_scratch(spw_execution *run, size_t rows, size_t width, spw_spread *out) {
    *out = (spw_spread){.rows = rows, .width = width};
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_status status = SPW_SCRATCH(run, rows * width, &out->at[r]);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* Columns [first, first + width) of rows of `all` columns, and back. */
static void take(const float *whole, size_t rows, size_t all, size_t first, size_t width, float *part) {
    for (size_t i = 0; i < rows; i++) memcpy(part + i * width, whole + i * all + first, width * sizeof *part);
}
static void put(const float *part, size_t rows, size_t all, size_t first, size_t width, float *whole) {
    for (size_t i = 0; i < rows; i++) memcpy(whole + i * all + first, part + i * width, width * sizeof *part);
}

void spw_group_take(const spw_execution *run, size_t rank, const float *whole, float *part) {
    const size_t width = spw_group_width(run), place = rank % spw_group_size(run);
    take(whole, run->tokens, run->shape.hidden, place * width, width, part);
}
void spw_group_put_tokens(const spw_execution *run, size_t rank, const float *part, float *all) {
    const size_t width = spw_group_width(run), t = spw_group_size(run), hidden = run->shape.hidden;
    put(part, run->tokens, hidden, rank % t * width, width, all + rank / t * run->tokens * hidden);
}

static size_t first_of(const spw_execution *run, size_t rank) {
    return rank / spw_group_size(run) * spw_group_size(run);
}

/* What rank `from` has for rank `to`: all `width` columns, or those of the place of `to`. */
static spw_status send_block(spw_execution *run, size_t from, size_t to, const spw_spread *terms,
                             size_t width, float *room) {
    const float *const rows = terms->at[from];
    const size_t count = terms->rows, all = terms->width;
    if (all == width) return spw_send_rows(run, from, to, rows, count, width);
    take(rows, count, all, to % spw_group_size(run) * width, width, room);
    return spw_send_rows(run, from, to, room, count, width);
}

/* Adds what the group sent to rank r, in order of rank. */
static spw_status add_blocks(spw_execution *run, size_t r, size_t count, float *room, double *sum,
                             float *to) {
    spw_status status = SPW_OK;
    memset(sum, 0, count * sizeof *sum);
    for (size_t s = first_of(run, r); s < first_of(run, r) + spw_group_size(run); s++) {
        SPW_TRY(spw_receive_rows(run, r, s, room, 1, count));
        for (size_t i = 0; i < count; i++) sum[i] += (double)room[i];
    }
    for (size_t i = 0; i < count; i++) to[i] = (float)sum[i];
cleanup:
    return status;
}

spw_status spw_group_scatter(spw_execution *run, const char *exchange, const spw_spread *terms,
                             spw_spread *parts) {
    const size_t rows = terms->rows, width = parts->width, t = spw_group_size(run);
    float *room = NULL;
    double *sum = NULL;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && t == 1; r++)
        memcpy(parts->at[r], terms->at[r], rows * width * sizeof *parts->at[r]);
    if (t == 1) return SPW_OK;
    SPW_TRY(SPW_ALLOC(rows * width, &room));
    SPW_TRY(SPW_ALLOC(rows * width, &sum));
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t r = 0; r < run->shape.ranks; r++)
        for (size_t d = first_of(run, r); d < first_of(run, r) + t; d++)
            SPW_TRY(send_block(run, r, d, terms, width, room));
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(add_blocks(run, r, rows * width, room, sum, parts->at[r]));
cleanup:
    spw_free(sum), spw_free(room);
    return status;
}

spw_status spw_group_gather(spw_execution *run, const char *exchange, const spw_spread *parts,
                            spw_spread *whole) {
    const size_t rows = parts->rows, width = parts->width, t = spw_group_size(run);
    float *room = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(rows * width, &room));
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t r = 0; r < run->shape.ranks; r++)
        for (size_t d = first_of(run, r); d < first_of(run, r) + t; d++)
            SPW_TRY(spw_send_rows(run, r, d, parts->at[r], rows, width));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t s = first_of(run, r); s < first_of(run, r) + t; s++) {
            SPW_TRY(spw_receive_rows(run, r, s, room, rows, width));
            put(room, rows, whole->width, (s - first_of(run, r)) * width, width, whole->at[r]);
        }
    }
cleanup:
    spw_free(room);
    return status;
}

spw_status spw_group_sum(spw_execution *run, const char *exchange, float *const *terms, size_t count,
                         float *out) {
    float *room = NULL, *all = NULL;
    double *sum = NULL;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && spw_group_size(run) == 1; r++)
        memcpy(out + r * count, terms[r], count * sizeof *out);
    if (spw_group_size(run) == 1) return SPW_OK;
    SPW_TRY(SPW_ALLOC(count, &room));
    SPW_TRY(SPW_ALLOC(count, &all));
    SPW_TRY(SPW_ALLOC(count, &sum));
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    for (size_t r = 0; r < run->shape.ranks; r++)
        for (size_t d = first_of(run, r); d < first_of(run, r) + spw_group_size(run); d++)
            SPW_TRY(spw_send_rows(run, r, d, terms[r], 1, count));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        SPW_TRY(add_blocks(run, r, count, room, sum, all));
        memcpy(out + r / spw_group_size(run) * count, all, count * sizeof *all);
    }
cleanup:
    spw_free(sum), spw_free(all), spw_free(room);
    return status;
}
