/* Schemes and shapes for tests of schemes. */
#ifndef SPW_TESTS_SCHEME_OF_H
#define SPW_TESTS_SCHEME_OF_H

#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"

static inline spw_scheme scheme_of(const char *text) {
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse(text, &scheme));
    return scheme;
}

/* All ranks of the group on one node. */
static inline spw_layer_shape shape_of(size_t ranks, size_t experts, size_t top_k, size_t hidden, size_t ffn,
                                       size_t sequences, size_t length) {
    const size_t local = experts / ranks, tokens = sequences * length;
    return (spw_layer_shape){.ranks = ranks,
                             .experts = experts,
                             .experts_per_rank = local,
                             .top_k = top_k,
                             .hidden = hidden,
                             .ffn = ffn,
                             .sequences = sequences,
                             .sequence_length = length,
                             .tokens = tokens,
                             .assignments = tokens * top_k,
                             .worst_rows = ranks * tokens * (local < top_k ? local : top_k),
                             .element_bytes = 2,
                             .node_ranks = ranks};
}

#endif
