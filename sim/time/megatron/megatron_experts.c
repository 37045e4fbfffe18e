#include "sim/time/megatron/megatron_experts.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static const double ELEMENT_BYTES = 2.0; /* bf16 */

double spw_megatron_cat_blocks(const spw_megatron_coefficients *c, size_t hidden, double longest_rows) {
    const double wanted = ceil(longest_rows * (double)hidden * ELEMENT_BYTES / c->cat_block_bytes.value);
    return fmin(c->cat_blocks.value * c->multiprocessors.value, wanted);
}

/* A chunk takes as long as its copy or as its blocks, whichever is longer. Counted and added up apart, so that whole numbers give
 * the same sum in any order and however often a source stands there. */
static double idle_rows(const spw_megatron_coefficients *c, size_t hidden, const spw_megatron_chunks *k) {
    double longest = 0.0, shorter = 0.0, rows = 0.0;
    const size_t chunks = k->sources * k->experts;
#pragma omp simd reduction(max : longest)
    for (size_t i = 0; i < chunks; i++) longest = k->rows[i] > longest ? k->rows[i] : longest;
    const double row_s = 2.0 * ELEMENT_BYTES * (double)hidden / c->copy_bytes_per_s.value,
                 least = spw_megatron_cat_blocks(c, hidden, longest) * c->block_s.value / row_s;
    for (size_t s = 0; s < k->sources; s++) {
        const double times = k->times != NULL ? (double)k->times[s] : 1.0, *chunk = k->rows + s * k->experts;
        for (size_t e = 0; e < k->experts; e++) {
            shorter += least > chunk[e] ? times : 0.0;
            rows += least > chunk[e] ? times * chunk[e] : 0.0;
        }
    }
    return shorter * least - rows;
}

/* Of an expert's operand: the part that does not fit into the cache. */
static double beyond_cache(const spw_megatron_coefficients *c, double rows, double depth) {
    const double bytes = ELEMENT_BYTES * rows * depth;
    return bytes > c->cache_bytes.value ? 1.0 - c->cache_bytes.value / bytes : 0.0;
}

/* Rows of every expert. */
static void sum_rows(const spw_megatron_chunks *k) {
    for (size_t e = 0; e < k->experts; e++) k->sum[e] = 0.0;
    for (size_t s = 0; s < k->sources; s++) {
        const double times = k->times != NULL ? (double)k->times[s] : 1.0;
        for (size_t e = 0; e < k->experts; e++) k->sum[e] += times * k->rows[s * k->experts + e];
    }
}

static int by_rows(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

enum { FEW_EXPERTS = 32 }; /* which are sorted at once */

static void sort_rows(double *rows, size_t experts) {
    if (experts > FEW_EXPERTS) {
        qsort(rows, experts, sizeof *rows, by_rows);
        return;
    }
    for (size_t i = 1; i < experts; i++) {
        const double one = rows[i];
        size_t place = i;
        for (; place > 0 && rows[place - 1] > one; place--) rows[place] = rows[place - 1];
        rows[place] = one;
    }
}

/* Rows that differ by one are those of an even share that is no whole number. Sorts the rows. */
static double unlike_share(double *rows, size_t experts) {
    size_t unlike = 0;
    sort_rows(rows, experts);
    for (size_t e = 0; e < experts && experts > 1; e++) {
        const bool below = e == 0 || rows[e] - rows[e - 1] > 1.0,
                   above = e + 1 == experts || rows[e + 1] - rows[e] > 1.0;
        unlike += rows[e] > 0.0 && below && above;
    }
    return (double)unlike / (double)experts;
}

void spw_megatron_experts_sums(const spw_megatron_coefficients *c, size_t hidden, size_t ffn, double *sum,
                               size_t experts, spw_megatron_load *load) {
    const double depth[SPW_MEGATRON_DEPTH_COUNT] = {[SPW_MEGATRON_DEPTH_HIDDEN] = (double)hidden,
                                                    [SPW_MEGATRON_DEPTH_FFN] = (double)ffn,
                                                    [SPW_MEGATRON_DEPTH_TWICE_FFN] = 2.0 * (double)ffn};
    const double tile = c->tile_rows.value;
    double all = 0.0;
    load->tiled = load->idle_rows = 0.0;
    load->empty_experts = 0;
    for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT; d++) load->spilled[d] = 0.0;
    for (size_t e = 0; e < experts; e++) {
        const double rows = sum[e];
        all += rows;
        load->tiled += ceil(rows / tile) * tile;
        load->empty_experts += !(rows > 0.0);
        for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT; d++)
            load->spilled[d] += rows * beyond_cache(c, rows, depth[d]);
    }
    for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT && all > 0.0; d++) load->spilled[d] /= all;
    load->unlike = c->unlike_floor_s.value > 0.0 ? unlike_share(sum, experts) : 0.0;
}

void spw_megatron_experts_load(const spw_megatron_coefficients *c, size_t hidden, size_t ffn,
                               const spw_megatron_chunks *chunks, spw_megatron_load *load) {
    sum_rows(chunks);
    spw_megatron_experts_sums(c, hidden, ffn, chunks->sum, chunks->experts, load);
    load->idle_rows = idle_rows(c, hidden, chunks);
}
