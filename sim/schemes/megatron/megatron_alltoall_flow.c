/* What Megatron-Core's all-to-all dispatcher sends. */
#include "sim/routing/counts.h"
#include "sim/schemes/megatron/megatron_alltoall.h"

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

void spw_megatron_alltoall_flow(const spw_routed_group *routed, spw_flow *out) {
    const spw_scheme *scheme = routed->scheme;
    const spw_layer_shape *s = routed->shape;
    const size_t align = spw_megatron_align(scheme);
    const bool pad_here = spw_megatron_alltoall_pads(scheme);
    const sending by = sending_of(scheme, s);
    const size_t t = spw_layer_sharers(s);
    spw_megatron_flow_begin(routed, out);
    for (size_t first = 0; first < s->experts; first += EXPERTS_AT_ONCE) {
        const size_t end = first + EXPERTS_AT_ONCE < s->experts ? first + EXPERTS_AT_ONCE : s->experts;
        uint64_t received[EXPERTS_AT_ONCE] = {0};
        for (size_t r = 0; r < s->ranks; r++) {
            const uint32_t *routing = routed->counts->routed + (routed->number * s->ranks + r) * s->experts;
            uint64_t *wire = out->wire + r * s->ranks + first / s->experts_per_rank * t + r % t;
            size_t left = s->experts_per_rank - first % s->experts_per_rank; /* of the rank */
            for (size_t x = first; x < end; x++) {
                const uint64_t n = sent_rows(&by, routing[x]);
                *wire += n;
                received[x - first] += n;
                if (--left > 0) continue;
                wire += t;
                left = s->experts_per_rank;
            }
        }
        for (size_t x = first; x < end; x++) {
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
