/* What DeepEP and HybridEP do not take, beside sizes worked out by hand from their sources: the largest that is taken, and the next. */
#include "sim/schemes/library_limits.h"

#include "tests/unit/check.h"

#include <string.h>

/* DeepSeek-V3's layer: 256 experts, top 8, hidden 7168, bf16. */
static spw_layer_shape layer_of(size_t ranks, size_t node_ranks, size_t tokens) {
    return (spw_layer_shape){.ranks = ranks,
                             .expert_tensor = 1,
                             .experts = 256,
                             .experts_per_rank = ranks <= 256 ? 256 / ranks : 1,
                             .top_k = 8,
                             .hidden = 7168,
                             .ffn = 2048,
                             .tokens = tokens,
                             .assignments = 8 * tokens,
                             .element_bytes = 2,
                             .node_ranks = node_ranks < ranks ? node_ranks : ranks,
                             .library_limits = true};
}

/* words: what a refusal must say; NULL: the layer is taken. */
static void expect(const char *text, const spw_layer_shape *shape, const char *words) {
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse(text, &scheme));
    const spw_status status = spw_library_check(&scheme, shape);
    CHECK((status == SPW_OK) == (words == NULL));
    if (words != NULL) {
        CHECK(status == SPW_ECONFIG && strstr(spw_last_error(), words) != NULL);
        CHECK(strstr(spw_last_error(), "limit of") != NULL);
        spw_layer_shape ignored = *shape;
        ignored.library_limits = false;
        CHECK_OK(spw_library_check(&scheme, &ignored));
    }
}

static void test_deepep(void) {
    static const size_t taken[] = {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 144, 160},
                        refused[] = {3, 6, 12, 40, 56, 72, 168, 256};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const spw_layer_shape s = layer_of(taken[i], 8, 4096);
        expect("megatron-flex", &s, NULL);
        expect("deepep", &s, NULL);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const spw_layer_shape s = layer_of(refused[i], 8, 4096);
        expect("megatron-flex", &s, "expert-parallel ranks, not");
        expect("deepep", &s, "expert-parallel ranks, not");
        expect("deepep:buffers=v2", &s, NULL);
        expect("megatron-alltoall", &s, NULL);
    }
    spw_layer_shape s = layer_of(24, 6, 4096); /* 4 nodes of 6 */
    expect("megatron-flex", &s, "a multiple of 8 ranks of the group on a node between nodes, not 6");
    s = layer_of(64, 64, 4096); /* of a rack */
    expect("megatron-flex", &s, NULL);
    s = layer_of(1, 8, 4096);
    s.hidden = 2052;
    expect("megatron-flex", &s, NULL); /* nothing is exchanged */
    s = layer_of(8, 8, 4096);
    s.hidden = 2052; /* rows of 4104 bytes, 256.5 int4 */
    expect("megatron-flex", &s, "a multiple of 16 bytes a token, not 4104");
    s.hidden = 2056;
    expect("megatron-flex", &s, NULL);
    s.top_k = 129;
    expect("megatron-flex", &s, "at most 128 choices a token");
}

/* get_low_latency_rdma_size_hint of 256 experts and 7168: a slot of 14560 bytes a token and expert, twice to send and twice to receive,
 * and counters of 1024 bytes twice: 4 x 14560 x 256 T + 2048, rounded up past 128. Below 16 x (2^31 - 1) for T of 2304, not of 2305. */
static void test_low_latency(void) {
    spw_layer_shape s = layer_of(64, 8, 2304);
    expect("deepep-ll", &s, NULL);
    s = layer_of(64, 8, 2305);
    expect("deepep-ll", &s, "at most 34359738351 bytes of buffer, not 34366");
    s = layer_of(64, 8, 128);
    s.hidden = 7680;
    expect("deepep-ll", &s, "hidden numbers a token, not 7680");
    s.hidden = 7168;
    s.top_k = 11;
    expect("deepep-ll", &s, NULL);
    s.top_k = 12;
    expect("deepep-ll", &s, "at most 11 choices a token, not 12");
}

/* 3 x 21844 + 1 = 65533, 3 x 21845 + 1 = 65536. */
static void test_hybridep(void) {
    static const char *const schemes[] = {"hybrid-ep", "megatron-flex:backend=hybridep",
                                          "torchtitan-hybridep", "megatron-syncfree:rank_capacity=1.25"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        spw_layer_shape s = layer_of(16, 8, 21844);
        expect(schemes[i], &s, NULL);
        s.tokens = 21845;
        expect(schemes[i], &s, "at most 21844 tokens a rank and micro-batch between nodes, not 21845");
        s.node_ranks = 16; /* the same in a rack */
        expect(schemes[i], &s, NULL);
        s.hidden = 2052;
        expect(schemes[i], &s, "a multiple of 16 hidden numbers a token, not 2052");
        s = layer_of(80, 80, 1024);
        s.experts_per_rank = 4;
        expect(schemes[i], &s, "at most 72 ranks of the group on a node, not 80");
        s = layer_of(6, 6, 1024);
        s.experts_per_rank = 1;
        expect(schemes[i], &s, "a multiple of 4 experts a node, not 6");
        s = layer_of(34, 1, 1024);
        s.experts_per_rank = 4;
        expect(schemes[i], &s, "at most 33 nodes, not 34");
    }
}

/* Every row has its evidence. */
static void test_rows(void) {
    size_t count = 0;
    const spw_library_limit *row = spw_library_limits(&count);
    CHECK(count >= 13);
    for (size_t i = 0; i < count; i++)
        CHECK(row[i].version[0] != '\0' && row[i].source[0] != '\0' && strcmp(row[i].evidence, "read") == 0);
}

int main(void) {
    test_deepep();
    test_low_latency();
    test_hybridep();
    test_rows();
    return check_done();
}
