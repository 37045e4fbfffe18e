#include "sim/time/megatron/megatron_experts.h"

#include <math.h>
#include <stdbool.h>

static const double ELEMENT_BYTES = 2.0; /* bf16 */

double spw_megatron_cat_blocks(const spw_megatron_coefficients *c, size_t hidden, double longest_rows) {
    const double wanted = ceil(longest_rows * (double)hidden * ELEMENT_BYTES / c->cat_block_bytes.value);
    return fmin(c->cat_blocks.value * c->multiprocessors.value, wanted);
}

/* A chunk takes as long as its copy or as its blocks, whichever is longer. */
static double idle_rows(const spw_megatron_coefficients *c, size_t hidden, const double *chunk,
                        size_t chunks) {
    double longest = 0.0, idle = 0.0;
#pragma omp simd reduction(max : longest)
    for (size_t i = 0; i < chunks; i++) longest = chunk[i] > longest ? chunk[i] : longest;
    const double row_s = 2.0 * ELEMENT_BYTES * (double)hidden / c->copy_bytes_per_s.value,
                 least = spw_megatron_cat_blocks(c, hidden, longest) * c->block_s.value / row_s;
#pragma omp simd reduction(+ : idle)
    for (size_t i = 0; i < chunks; i++) idle += least > chunk[i] ? least - chunk[i] : 0.0;
    return idle;
}

/* Of an expert's operand: the part that does not fit into the cache. */
static double beyond_cache(const spw_megatron_coefficients *c, double rows, double depth) {
    const double bytes = ELEMENT_BYTES * rows * depth;
    return bytes > c->cache_bytes.value ? 1.0 - c->cache_bytes.value / bytes : 0.0;
}

static double rows_of(const double *chunk, size_t sources, size_t experts, size_t expert) {
    double rows = 0.0;
    if (experts > 1) {
        for (size_t s = 0; s < sources; s++) rows += chunk[s * experts + expert];
        return rows;
    }
#pragma omp simd reduction(+ : rows)
    for (size_t s = 0; s < sources; s++) rows += chunk[s];
    return rows;
}

/* Rows that differ by one are those of an even share that is no whole number. */
static double unlike_share(const double *chunk, size_t sources, size_t experts) {
    size_t unlike = 0;
    for (size_t e = 0; e < experts; e++) {
        const double rows = rows_of(chunk, sources, experts, e);
        bool alone = rows > 0.0 && experts > 1;
        for (size_t other = 0; other < experts && alone; other++)
            alone = other == e || fabs(rows_of(chunk, sources, experts, other) - rows) > 1.0;
        unlike += alone;
    }
    return (double)unlike / (double)experts;
}

void spw_megatron_experts_load(const spw_megatron_coefficients *c, size_t hidden, size_t ffn,
                               const double *chunk, size_t sources, size_t experts, spw_megatron_load *load) {
    const double depth[SPW_MEGATRON_DEPTH_COUNT] = {[SPW_MEGATRON_DEPTH_HIDDEN] = (double)hidden,
                                                    [SPW_MEGATRON_DEPTH_FFN] = (double)ffn,
                                                    [SPW_MEGATRON_DEPTH_TWICE_FFN] = 2.0 * (double)ffn};
    const double tile = c->tile_rows.value;
    double all = 0.0;
    load->tiled = 0.0;
    load->empty_experts = 0;
    for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT; d++) load->spilled[d] = 0.0;
    for (size_t e = 0; e < experts; e++) {
        const double rows = rows_of(chunk, sources, experts, e);
        all += rows;
        load->tiled += ceil(rows / tile) * tile;
        load->empty_experts += !(rows > 0.0);
        for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT; d++)
            load->spilled[d] += rows * beyond_cache(c, rows, depth[d]);
    }
    for (int d = 0; d < SPW_MEGATRON_DEPTH_COUNT && all > 0.0; d++) load->spilled[d] /= all;
    load->unlike = c->unlike_floor_s.value > 0.0 ? unlike_share(chunk, sources, experts) : 0.0;
    load->idle_rows = idle_rows(c, hidden, chunk, sources * experts);
}
