/* What Megatron-Core's all-to-all dispatcher sends. */
#include "sim/routing/counts.h"
#include "sim/schemes/flow_lines.h"
#include "sim/schemes/megatron/megatron_alltoall.h"

#include <string.h>

bool spw_megatron_alltoall_pads(const spw_scheme *scheme) {
    return spw_megatron_align(scheme) > 1 && spw_scheme_option_is(scheme, "pay", "experts");
}

bool spw_megatron_alltoall_fills(const spw_scheme *scheme) {
    return spw_scheme_option_is(scheme, "pad", "true");
}

/* Rows that one rank sends to one expert: what the options say, read once. */
typedef struct sending {
    bool slots;
    size_t capacity, align, tokens; /* align 1: the router adds none */
} sending;

static sending sending_of(const spw_scheme *scheme, const spw_layer_shape *s) {
    return (sending){.slots = spw_megatron_alltoall_fills(scheme),
                     .capacity = spw_megatron_capacity(scheme, s),
                     .align = spw_megatron_alltoall_pads(scheme) ? 1 : spw_megatron_align(scheme),
                     .tokens = s->tokens};
}

/* Of `kept` choices: a router can only add tokens that it has. */
static uint64_t sent_rows(const sending *by, uint64_t kept) {
    const uint64_t rows = by->slots ? by->capacity : by->align > 1 ? spw_pad_up(kept, by->align) : kept;
    return rows < by->tokens ? rows : by->tokens;
}

enum { EXPERTS_AT_ONCE = 512 }; /* along the lines of tables that may be large */

/* What each of `times` ranks sends to `experts` of them: n, and added to `received`. */
static void send_rows(const sending *by, const uint32_t *restrict kept, size_t experts, uint64_t times,
                      uint64_t *restrict n, uint64_t *restrict received) {
    if (!by->slots && by->align == 1) {
        for (size_t x = 0; x < experts; x++) n[x] = kept[x] < by->tokens ? kept[x] : by->tokens;
    } else {
        for (size_t x = 0; x < experts; x++) n[x] = sent_rows(by, kept[x]);
    }
    for (size_t x = 0; x < experts; x++) received[x] += times * n[x];
}

/* Adds rows of experts from `first` on to those of their ranks, the first of which is `wire`; every t-th one has its own. */
static void add_rows(const spw_layer_shape *s, size_t first, const uint64_t *n, size_t experts, spw_flow *out,
                     uint32_t *wire) {
    const size_t t = spw_layer_sharers(s);
    wire += first / s->experts_per_rank * t;
    size_t left = s->experts_per_rank - first % s->experts_per_rank; /* of the rank */
    uint64_t sum = 0;
    for (size_t x = 0; x < experts; x++) {
        sum += n[x];
        if (--left > 0 && x + 1 < experts) continue;
        *wire = spw_wire_rows(out, *wire + sum);
        wire += t;
        left = s->experts_per_rank;
        sum = 0;
    }
}

/* Is what the ranks send to each other what stands in the counts? Where every rank has an expert to itself and the router adds
 * nothing, unless tokens chose an expert twice, which counts as one row. */
static bool sends_counts(const spw_routed_group *routed, const sending *by, const spw_alike *alike) {
    const spw_layer_shape *s = routed->shape;
    if (s->experts_per_rank > 1 || spw_layer_sharers(s) > 1 || by->slots || by->align > 1) return false;
    uint32_t most = 0;
    for (size_t line = 0; line < alike->lines; line++) {
        const uint32_t *n = spw_routed_of(routed, alike->first[line]);
        for (size_t x = 0; x < s->experts; x++) most = n[x] > most ? n[x] : most;
    }
    return most <= by->tokens;
}

/* Ranks that share experts send to those of their own number, each by itself. */
static void find_alike(const spw_routed_group *routed, spw_alike *out) {
    const size_t ranks = routed->shape->ranks;
    if (spw_layer_sharers(routed->shape) == 1) {
        spw_alike_of_counts(routed, out);
        return;
    }
    out->lines = ranks;
    for (uint32_t r = 0; r < ranks; r++) out->of[r] = out->first[r] = r, out->times[r] = 1;
}

size_t spw_megatron_alltoall_lines(const spw_routed_group *routed) {
    const sending by = sending_of(routed->scheme, routed->shape);
    spw_alike alike;
    find_alike(routed, &alike);
    return sends_counts(routed, &by, &alike) ? 0 : alike.lines;
}

/* Where lines stand: NULL in the counts, else the first of flow.line. */
static uint32_t *place_lines(const spw_routed_group *routed, const sending *by, const spw_alike *alike,
                             spw_flow *out) {
    const size_t ranks = routed->shape->ranks;
    const bool counted = sends_counts(routed, by, alike);
    for (size_t r = 0; r < ranks; r++)
        out->wire[r] = counted ? spw_routed_of(routed, r) : out->line + alike->of[r] * ranks;
    if (counted) return NULL;
    memset(out->line, 0, alike->lines * ranks * sizeof *out->line);
    return out->line;
}

void spw_megatron_alltoall_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_scheme *scheme = routed->scheme;
    const spw_layer_shape *s = routed->shape;
    const size_t align = spw_megatron_align(scheme);
    const bool pad_here = spw_megatron_alltoall_pads(scheme);
    const sending by = sending_of(scheme, s);
    const size_t t = spw_layer_sharers(s);
    spw_alike alike;
    find_alike(routed, &alike);
    spw_megatron_flow_begin(routed, out);
    uint32_t *own = place_lines(routed, &by, &alike, out);
    for (size_t first = 0; first < s->experts; first += EXPERTS_AT_ONCE) {
        const size_t experts = first + EXPERTS_AT_ONCE < s->experts ? EXPERTS_AT_ONCE : s->experts - first;
        uint64_t n[EXPERTS_AT_ONCE], received[EXPERTS_AT_ONCE] = {0};
        for (size_t line = 0; line < alike.lines; line++) {
            const size_t r = alike.first[line];
            send_rows(&by, spw_routed_of(routed, r) + first, experts, alike.times[line], n, received);
            if (own != NULL) add_rows(s, first, n, experts, out, own + line * s->ranks + r % t);
        }
        for (size_t x = first; x < first + experts; x++) {
            uint64_t *rows = out->rows + x / s->experts_per_rank * t;
            const uint64_t held = pad_here ? spw_pad_up(received[x - first], align) : received[x - first];
            for (size_t j = 0; j < t; j++) rows[j] += held;
        }
    }
}

void spw_megatron_alltoall_balance(const spw_scheme *scheme, const spw_layer_shape *s, spw_rank_rows *rows) {
    const size_t capacity = spw_megatron_capacity(scheme, s), align = spw_megatron_align(scheme),
                 even = (s->assignments + s->experts - 1) / s->experts;
    if (capacity == SIZE_MAX && align == 1) return;
    const sending by = sending_of(scheme, s);
    const uint64_t n = sent_rows(&by, even < capacity ? even : capacity), held = s->ranks * n;
    rows->sent = rows->received = s->experts * n;
    rows->held = s->experts_per_rank * (spw_megatron_alltoall_pads(scheme) ? spw_pad_up(held, align) : held);
}
