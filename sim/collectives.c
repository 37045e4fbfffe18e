#include "sim/collectives.h"

#include <string.h>

#define COLLECTIVE_TEXT(name, text) text,
const char *spw_collective_name(spw_collective collective) {
    static const char *const names[] = {SPW_COLLECTIVE_LIST(COLLECTIVE_TEXT)};
    return (unsigned)collective < SPW_COLLECTIVES ? names[collective] : "?";
}

static void add(spw_collectives *out, spw_collective collective, bool backward, size_t count,
                uint64_t bytes) {
    out->sum[collective][backward].count += count;
    out->sum[collective][backward].bytes += count * bytes;
}

/* The peeled layout exchanges D slots: going there as inputs of hidden width, coming back before the last
 * product, as rows of F; backward three of hidden width and one of F. */
static void add_peeled(spw_collectives *out, uint64_t slots, const spw_layer_shape *s) {
    const uint64_t hidden = slots * s->hidden * s->element_bytes, ffn = slots * s->ffn * s->element_bytes;
    add(out, SPW_COLLECTIVE_ALL_TO_ALL, false, 1, hidden);
    add(out, SPW_COLLECTIVE_ALL_TO_ALL, false, 1, ffn);
    add(out, SPW_COLLECTIVE_ALL_TO_ALL, true, 3, hidden);
    add(out, SPW_COLLECTIVE_ALL_TO_ALL, true, 1, ffn);
}

/* One collective an exchange. Backward, a ragged one needs its sizes again: four exchanges of a count a
 * rank. */
static void add_exchanges(spw_collectives *out, const spw_scheme *scheme, const spw_layer_shape *s,
                          spw_compiled_exchange kind) {
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    const size_t count = scheme->type->exchanges(scheme, s, exchange);
    const uint64_t row = s->hidden * s->element_bytes;
    for (size_t i = 0; i < count; i++) {
        const bool backward = exchange[i].phase != SPW_PHASE_FORWARD;
        if (kind == SPW_COMPILED_EXCHANGE_ALL_TO_ALL) {
            add(out, SPW_COLLECTIVE_ALL_TO_ALL, backward, 1, scheme->type->buffer_rows(scheme, s) * row);
        } else if (kind == SPW_COMPILED_EXCHANGE_RAGGED) {
            add(out, SPW_COLLECTIVE_RAGGED_ALL_TO_ALL, backward, 1, s->assignments * row);
        } else if (exchange[i].row_bytes >= row) { /* not what goes for the router alone */
            add(out, exchange[i].back ? SPW_COLLECTIVE_TOKEN_SCATTER : SPW_COLLECTIVE_TOKEN_GATHER, backward,
                1, s->ranks * s->tokens * row);
        }
    }
    if (kind == SPW_COMPILED_EXCHANGE_RAGGED)
        add(out, SPW_COLLECTIVE_ALL_TO_ALL, true, 4, s->ranks * sizeof(int32_t));
}

spw_status spw_collectives_of(const spw_scheme *scheme, const spw_layer_shape *s, spw_collectives *out) {
    memset(out, 0, sizeof *out);
    if (scheme->type->compiled == NULL)
        return spw_fail(SPW_ECONFIG, "scheme '%s' has no list of tensors for programs that XLA compiles whole", scheme->text);
    const spw_compiled_exchange kind = scheme->type->compiled(scheme)->exchange;
    switch (kind) {
    case SPW_COMPILED_EXCHANGE_NONE: return SPW_OK;
    case SPW_COMPILED_EXCHANGE_LIBRARY:
        return spw_fail(SPW_ECONFIG, "scheme '%s' exchanges by a library call, not by a collective of XLA",
                        scheme->text);
    case SPW_COMPILED_EXCHANGE_PEELED:
        add_peeled(out, scheme->type->buffer_rows(scheme, s), s);
        return SPW_OK;
    default: add_exchanges(out, scheme, s, kind); return SPW_OK;
    }
}
