#include "sim/schemes/flow_lines.h"

#include <string.h>

spw_counts_parts spw_counts_parts_of(const spw_scheme *scheme, size_t schemes) {
    unsigned parts = SPW_COUNTS_ROUTED;
    for (size_t i = 0; i < schemes; i++) {
        const bool once = spw_scheme_once_a_rank(&scheme[i]) || spw_scheme_by_node(&scheme[i]);
        parts |= once ? SPW_COUNTS_DISTINCT : 0u;
        parts |= scheme[i].type->routing.limit_per_sequence ? SPW_COUNTS_SEQUENCES : 0u;
    }
    return (spw_counts_parts)parts;
}

uint32_t *spw_flow_own_lines(spw_flow *flow, size_t ranks) {
    for (size_t r = 0; r < ranks; r++) flow->wire[r] = flow->line + r * ranks;
    return flow->line;
}

void spw_flow_one_line(spw_flow *flow, size_t ranks, uint64_t rows) {
    const uint32_t each = spw_wire_rows(flow, rows);
    for (size_t d = 0; d < ranks; d++) {
        flow->line[d] = each;
        flow->wire[d] = flow->line;
    }
}

void spw_flow_distinct(const spw_routed_group *routed, spw_flow *flow) {
    const bool one_each = spw_flow_has_one_expert(routed->shape);
    for (size_t r = 0; r < routed->shape->ranks; r++)
        flow->wire[r] = one_each ? spw_routed_of(routed, r) : spw_distinct_of(routed, r);
}

enum { PLACES = 2 * SPW_TRAFFIC_MAX_RANKS };

/* line [ranks] */
static void number_lines(const uint32_t *const *line, size_t ranks, spw_alike *out) {
    uint16_t place[PLACES]; /* the line after which one is free */
    size_t places = 2;
    while (places < 2 * ranks) places *= 2;
    memset(place, 0, places * sizeof *place);
    out->lines = 0;
    for (size_t r = 0; r < ranks; r++) {
        size_t at =
            (size_t)(((uint64_t)(uintptr_t)line[r] * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (places - 1);
        while (place[at] > 0 && line[out->first[place[at] - 1]] != line[r]) at = (at + 1) & (places - 1);
        if (place[at] == 0) {
            out->first[out->lines] = (uint32_t)r;
            out->times[out->lines] = 0;
            place[at] = (uint16_t)++out->lines;
        }
        out->of[r] = place[at] - 1u;
        out->times[out->of[r]]++;
    }
}

void spw_alike_of_flow(const spw_flow *flow, size_t ranks, spw_alike *out) {
    number_lines(flow->wire, ranks, out);
}

void spw_alike_of_counts(const spw_routed_group *routed, spw_alike *out) {
    const uint32_t *line[SPW_TRAFFIC_MAX_RANKS];
    for (size_t r = 0; r < routed->shape->ranks; r++) line[r] = spw_routed_of(routed, r);
    number_lines(line, routed->shape->ranks, out);
}

/* Can no sum of choices of the group be more than 32 bits hold? */
static bool is_narrow(const spw_routed_group *routed) {
    const size_t ranks = routed->shape->ranks;
    uint64_t all = 0;
    for (size_t r = 0; r < ranks; r++) all += routed->counts->assignments[routed->number * ranks + r];
    return all <= UINT32_MAX / 2;
}

enum { AT_ONCE = 4, BLOCK = 512 };

/* Lines that are added at once: each number of the sum is read and written once for all of them. */
typedef struct lines_at_once {
    const uint32_t *line[AT_ONCE];
    size_t lines;
} lines_at_once;

static void add_lines(lines_at_once *l, size_t count, uint32_t *restrict sum) {
    const uint32_t *const *line = l->line;
    if (l->lines == AT_ONCE) {
        const uint32_t *a = line[0], *b = line[1], *c = line[2], *d = line[3];
        for (size_t i = 0; i < count; i++) sum[i] += a[i] + b[i] + c[i] + d[i];
    } else {
        for (size_t n = 0; n < l->lines; n++)
            for (size_t i = 0; i < count; i++) sum[i] += line[n][i];
    }
    l->lines = 0;
}

/* A line that few ranks have is added so often. */
static void add_narrow(lines_at_once *l, const uint32_t *line, uint32_t times, size_t count,
                       uint32_t *restrict sum) {
    for (uint32_t t = 0; t < times && times < AT_ONCE; t++) {
        l->line[l->lines++] = line;
        if (l->lines == AT_ONCE) add_lines(l, count, sum);
    }
    for (size_t i = 0; i < count && times >= AT_ONCE; i++) sum[i] += times * line[i];
}

void spw_chosen_sums(const spw_routed_group *routed, const spw_alike *alike, size_t first, size_t count,
                     uint64_t *sum) {
    const bool narrow = is_narrow(routed);
    for (size_t at = 0; at < count; at += BLOCK) {
        const size_t block = count - at < BLOCK ? count - at : BLOCK;
        lines_at_once waiting = {.lines = 0};
        uint32_t part[BLOCK];
        memset(part, 0, block * sizeof *part);
        memset(sum + at, 0, block * sizeof *sum);
        for (size_t i = 0; i < alike->lines; i++) {
            const uint32_t *line = spw_routed_of(routed, alike->first[i]) + first + at;
            if (narrow)
                add_narrow(&waiting, line, alike->times[i], block, part);
            else
                (void)spw_line_add(line, block, alike->times[i], sum + at);
        }
        add_lines(&waiting, block, part);
        for (size_t i = 0; i < block && narrow; i++) sum[at + i] = part[i];
    }
}
