/* Megatron-Core behind NCCL EP (docs/schemes.md, section 5.7): predicted is executed on random routing, buffers with pencil and
 * paper, tokens without a slot, and what is refused. */
#include "sim/schemes/deepep/nccl_ep.h"

#include "sim/routing/counts.h"
#include "sim/schemes/deepep/deepep_buffers.h"
#include "tests/unit/check.h"
#include "tests/unit/executed.h"
#include "tests/unit/scheme_of.h"

#include <string.h>

enum { SEEDS = 300 };

static void test_executed(void) {
    static const char *const texts[] = {
        "megatron-ncclep", "megatron-ncclep:align=32", "megatron-ncclep:rank_capacity=1",
        "megatron-ncclep:rank_capacity=0.4,align=16", "megatron-ncclep:rank_capacity=0.17"};
    enum { SCHEMES = sizeof texts / sizeof *texts };
    spw_verification *v = executed(texts, SCHEMES, SEEDS);
    for (size_t i = 0; i < SCHEMES && v != NULL; i++) {
        const spw_verify_tally *tally = &v->tally[i];
        CHECK(tally->values != SPW_AGREE_NOT);
        CHECK(tally->cases >= (i == 4 ? 10 : 50));
    }
    spw_free(v);
}

/* DeepSeek-V3 over 8 ranks of a node and 4096 tokens: 262144 slots without a limit. The tables of a dispatch in pieces of 256
 * bytes: 4096 from which node, 262144 x 32 experts of a slot, 4096 x 8 x 4 places, as many masks of 8, 4096 x 256 x 4
 * weights, 4096 x 8 x 8 ids, twice 262144 x 8 x 4 of slots, 4096 x 8 x 4 slots of tokens; three counts. */
static void test_buffers(void) {
    const spw_layer_shape v3 = shape_of(8, 256, 8, 7168, 2048, 1, 4096);
    const uint64_t tables = 4096 + 262144 * 32 + 131072 + 262144 + 4194304 + 262144 + 2 * 8388608 + 131072;
    CHECK(spw_nccl_ep_handle_bytes(&v3, 262144) == tables + 256 + 256 + 512);
    CHECK(spw_nccl_ep_group_bytes(&v3, 49152) ==
          2u * 469762048 + 2u * 49152 * 1024 + 49152u * 14336 + 32768u * 32 + (32u << 20));
    /* Two nodes of four: tables by node, and buffers between them. 61 tokens are 64. */
    spw_layer_shape two = shape_of(8, 16, 2, 8, 8, 1, 61);
    two.node_ranks = 4;
    CHECK(spw_nccl_ep_tokens(&two) == 64);
    CHECK(spw_nccl_ep_handle_bytes(&two, 100) == 256 + 256 + 256 + 256 + 2 * 64 * 4 * 4 + 2 * 64 * 4 * 8 +
                                                     64 * 16 + 256 + 256 + 2 * 1024 + 8 * 64 * 4);
    const uint64_t near = 2 * 8 * 64 * 16 + 2 * 3328 + 1792 + 8 * 64 * 2 + (32u << 20),
                   between = 2 * 4096 + 2 * 4096 + 2 * 4096 + 2 * 4096 + 4096 + 4096 + 2 * 4096;
    CHECK(spw_nccl_ep_group_bytes(&two, 100) == near + between);
}

/* Four ranks of 64 tokens; every token chooses both experts of rank 0, which has 96 slots: the first 96 tokens are sent, and
 * their rows for expert 0 fill all places. */
static void test_slots(void) {
    enum { RANKS = 4, EXPERTS = 8, TOKENS = 64 };
    spw_layer_shape s = shape_of(RANKS, EXPERTS, 2, 8, 8, 1, TOKENS);
    const spw_scheme scheme = scheme_of("megatron-ncclep:rank_capacity=0.75"); /* 64 x 2 x 0.75 = 96 rows */
    int32_t expert[RANKS * TOKENS * 2];
    uint8_t kept[RANKS * TOKENS * 2] = {0};
    const spw_choices choices = {expert, NULL};
    size_t sent = 0;
    for (size_t i = 0; i < sizeof expert / sizeof *expert; i++) expert[i] = (int32_t)(i % 2);
    CHECK(scheme.type->memory.buffer_rows(&scheme, &s) == 96);
    CHECK_OK(scheme.type->routing.keep(&scheme, &s, &choices, kept));
    for (size_t i = 0; i < sizeof kept; i++) {
        sent += kept[i];
        CHECK(kept[i] == (i / 2 < 96));
    }
    CHECK(sent == 192);

    uint32_t routed[RANKS * EXPERTS] = {0}, chosen[RANKS * EXPERTS] = {0}, limit[RANKS * EXPERTS];
    uint64_t rows[RANKS], dropped[RANKS];
    const uint32_t *wire[RANKS];
    uint32_t distinct[RANKS * RANKS] = {0};
    for (size_t r = 0; r < RANKS; r++) {
        distinct[r * RANKS] = r == 0 ? 64 : r == 1 ? 32 : 0;
        for (size_t x = 0; x < 2; x++)
            routed[r * EXPERTS + x] = distinct[r * RANKS], chosen[r * EXPERTS + x] = 64;
    }
    const spw_placement placement = {RANKS, RANKS, 8, EXPERTS};
    const spw_counts before = {.placement = placement, .sequences = 1, .routed = chosen},
                     counts = {
                         .placement = placement, .sequences = 1, .routed = routed, .distinct = distinct};
    spw_flow flow = {.wire = wire, .rows = rows, .limit = limit, .dropped = dropped, .chosen = &before};
    scheme.type->routing.flow(&(spw_routed_group){&scheme, &s, &counts, 0}, &flow);
    CHECK(rows[0] == 96 && rows[1] == 0 && wire[0][0] == 64 && wire[1][0] == 32 && wire[2][0] == 0);
    CHECK(limit[0] == 64 && limit[EXPERTS] == 32 && limit[1] == 0 && limit[EXPERTS + 1] == 0);
    CHECK(dropped[0] == 64 && dropped[1] == 32); /* beside those that keep() dropped */
}

static void check_refused(const char *text, spw_layer_shape shape, const char *what) {
    const spw_scheme s = scheme_of(text);
    CHECK_STATUS(spw_scheme_check(&s, &shape), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), what) != NULL);
}

static void test_refusals(void) {
    const spw_layer_shape v3 = shape_of(8, 256, 8, 7168, 2048, 1, 4096);
    check_refused("megatron-ncclep:rank_capacity=0.124", v3, "rank_capacity=0.125 or more would be right");
    check_refused("megatron-ncclep", shape_of(8, 24, 2, 8, 8, 1, 64),
                  "3 experts a rank; NCCL EP takes a power of two");
    check_refused("megatron-ncclep", shape_of(2, 2, 2, 8, 8, 1, 64), "of a node a multiple of 4");
    check_refused("megatron-ncclep", shape_of(1, 8, 2, 8, 8, 1, 64),
                  "two expert-parallel ranks or more, not 1");
    spw_layer_shape odd = shape_of(6, 24, 2, 8, 8, 1, 64);
    odd.node_ranks = 4;
    check_refused("megatron-ncclep", odd, "a multiple of the node would be right");
}

int main(void) {
    test_executed();
    test_buffers();
    test_slots();
    test_refusals();
    return check_done();
}
