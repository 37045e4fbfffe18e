#include "sim/memory/step/reserved_parts.h"
#include "traces/generate/random_stream.h"

#include <math.h>

/* Of one figure over the kinds of micro-batches. */
typedef struct spread {
    double mean, deviation;
    uint64_t unit; /* all are multiples of it */
    uint64_t most; /* where several have it, none has more; else no limit */
} spread;

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint64_t figure_of(const spw_rank_rows *rows, int which) {
    return which == 0 ? rows->held : which == 1 ? rows->received : rows->sent;
}

static spread spread_of(const spw_rank_rows *rows, size_t kinds, int which) {
    spread s = {.unit = 0};
    double squares = 0.0;
    size_t with_most = 0;
    for (size_t k = 0; k < kinds; k++) {
        const uint64_t figure = figure_of(&rows[k], which);
        s.mean += (double)figure / (double)kinds;
        if (s.unit != 1) s.unit = common_divisor(s.unit, figure);
        with_most = figure > s.most ? 1 : with_most + (figure == s.most);
        s.most = figure > s.most ? figure : s.most;
    }
    for (size_t k = 0; k < kinds; k++) {
        const double off = (double)figure_of(&rows[k], which) - s.mean;
        squares += off * off;
    }
    s.deviation = kinds > 1 ? sqrt(squares / (double)(kinds - 1)) : 0.0;
    if (with_most < 2) s.most = UINT64_MAX;
    return s;
}

/* Nearly normal, with mean 0 and deviation 1: four uniform numbers together (Irwin and Hall), from the bits of a number. */
static double chance(uint64_t number) {
    const uint64_t x = spw_random_mix(number * UINT64_C(0x9e3779b97f4a7c15));
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++) sum += x >> (16 * i) & 0xffff;
    return ((double)sum / 65536.0 - 2.0) * sqrt(3.0);
}

static uint64_t figure_at(const spread *s, double chance_) {
    const double figure = s->mean + s->deviation * chance_;
    if (s->unit == 0 || !(figure > 0.0)) return 0;
    const double units = s->unit == 1 ? figure : figure / (double)s->unit;
    const uint64_t rounded = (uint64_t)(units + 0.5) * s->unit;
    return rounded < s->most ? rounded : s->most;
}

void spw_reserved_rows_spread(spw_reserved_memory *m, size_t rank) {
    const size_t kinds = m->request.kinds;
    if (kinds == 0 || kinds >= m->micro_batches || m->spread[rank]) return;
    m->spread[rank] = true;
    for (size_t line = rank * m->request.layers; line < (rank + 1) * m->request.layers; line++) {
        spw_rank_rows *rows = m->rows + line * m->micro_batches;
        spread s[3];
        for (int i = 0; i < 3; i++) s[i] = spread_of(rows, kinds, i);
        for (size_t b = kinds, kind = 0; b < m->micro_batches; b++) {
            const double off = chance(line * m->micro_batches + b + 1);
            const bool once = rows[kind].received <= rows[kind].held;
            rows[b].held = figure_at(&s[0], off);
            rows[b].received = figure_at(&s[1], off);
            if (once && rows[b].received > rows[b].held) rows[b].received = rows[b].held;
            rows[b].sent = figure_at(&s[2], off);
            kind = kind + 1 < kinds ? kind + 1 : 0;
        }
    }
}
