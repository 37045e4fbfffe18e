/* Bytes on links and NICs by hand, and what a replay sums of them. */
#include "sim/schemes/traffic.h"

#include "sim/replay/result.h"
#include "sim/replay/row_sums.h"
#include "tests/unit/check.h"

enum { RANKS = 4, EXPERTS = 8 };

/* Rows from rank to rank, all sums of them different; ranks 0 and 1 are on one node, 2 and 3 on the other. */
static const uint32_t line[RANKS][RANKS] = {
    {1, 2, 4, 8}, {16, 32, 64, 128}, {256, 512, 1024, 2048}, {4096, 8192, 16384, 32768}};
static const uint32_t *wire[RANKS] = {line[0], line[1], line[2], line[3]};
static const spw_layer_shape shape = {.ranks = RANKS,
                                      .node_ranks = 2,
                                      .experts = EXPERTS,
                                      .experts_per_rank = EXPERTS / RANKS,
                                      .top_k = 2,
                                      .hidden = 10,
                                      .ffn = 4,
                                      .sequences = 1,
                                      .sequence_length = 3,
                                      .tokens = 3,
                                      .assignments = 6,
                                      .worst_rows = 24,
                                      .element_bytes = 2};

static void expect_port(const spw_ports *p, uint64_t link_out, uint64_t link_in, uint64_t nic_out,
                        uint64_t nic_in) {
    CHECK(p->link_out == link_out && p->link_in == link_in && p->nic_out == nic_out && p->nic_in == nic_in);
}

static void test_pairs(const spw_counts *counts) {
    spw_scheme scheme;
    spw_group_rows rows;
    spw_traffic traffic;
    uint64_t sent[RANKS], received[RANKS];
    const spw_flow flow = {.wire = wire, .rows = (uint64_t[RANKS]){0}};
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    spw_group_rows_of(&(spw_routed_group){&scheme, &shape, counts, 0}, &flow, &rows);
    expect_port(&rows.port[0], 2, 16, 4 + 8, 256 + 4096);
    expect_port(&rows.port[1], 16, 2, 64 + 128, 512 + 8192);
    expect_port(&rows.port[2], 2048, 16384, 256 + 512, 4 + 64);
    expect_port(&rows.port[3], 16384, 2048, 4096 + 8192, 8 + 128);
    spw_traffic_compute(&(spw_routed_group){&scheme, &shape, counts, 0}, &flow, &rows, true, &traffic, sent,
                        received);
    const uint64_t row = 20, all = 65535 - 1 - 32 - 1024 - 32768; /* off-rank rows */
    CHECK(traffic.dispatch_bytes == all * row && traffic.combine_bytes == all * row);
    CHECK(traffic.layer_bytes == 6 * all * row);
    CHECK(traffic.intra_node_bytes == (2 + 16 + 2048 + 16384) * row);
    CHECK(traffic.inter_node_bytes == (4 + 8 + 64 + 128 + 256 + 512 + 4096 + 8192) * row);
    CHECK(traffic.max_intra_bytes == 16384 * row && traffic.max_inter_bytes == (4096 + 8192) * row);
    CHECK(traffic.max_link_bytes == 16384 * row);
    CHECK(sent[0] == 14 * row && received[0] == (16 + 256 + 4096) * row);
    CHECK(sent[3] == (4096 + 8192 + 16384) * row && received[3] == (8 + 128 + 2048) * row);
    spw_traffic_compute(&(spw_routed_group){&scheme, &shape, counts, 0}, &flow, &rows, false, &traffic, NULL,
                        NULL);
    CHECK(traffic.layer_bytes == 4 * all * row); /* nothing is repeated */
}

/* A token crosses once a node, to the GPU with the sender's index, which forwards it. */
static void test_by_node(spw_counts *counts) {
    spw_scheme scheme;
    spw_group_rows rows;
    const spw_flow flow = {.wire = wire, .rows = (uint64_t[RANKS]){0}};
    CHECK_OK(spw_scheme_parse("deepep", &scheme));
    const uint32_t distinct[RANKS][2] = {{0, 10}, {0, 150}, {600, 0}, {9000, 0}};
    for (size_t r = 0; r < RANKS; r++) {
        for (size_t node = 0; node < 2; node++) counts->distinct_node[2 * r + node] = distinct[r][node];
    }
    spw_group_rows_of(&(spw_routed_group){&scheme, &shape, counts, 0}, &flow, &rows);
    expect_port(&rows.port[0], 2 + 512, 16 + 4096, 10, 600);
    expect_port(&rows.port[1], 16 + 4096, 2 + 512, 150, 9000);
    expect_port(&rows.port[2], 2048 + 8, 16384 + 64, 600, 10);
    expect_port(&rows.port[3], 16384 + 64, 2048 + 8, 9000, 150);
}

static void test_sums(void) {
    const spw_traffic one = {10, 20, 100, 6, 4, 7, 7, 3}, other = {30, 50, 1000, 1, 29, 5, 5, 5};
    spw_row_sums sums = {0};
    spw_row_sums_add(&sums, &one, 3); /* a layer that stands for three */
    spw_row_sums_add(&sums, &other, 2);
    CHECK(spw_row_sums_note(&sums, 5, 1) && !spw_row_sums_note(&sums, 5, 1) &&
          spw_row_sums_note(&sums, 9, 1));
    CHECK(!spw_row_sums_note(&sums, 1, 1) && !spw_row_sums_note(&sums, 2, 2));
    const spw_result_traffic t = spw_row_sums_traffic(&sums, 4.0, 2.0);
    CHECK(t.dispatch_bytes_per_gpu == 10.0 && t.combine_bytes_per_gpu == 17.5);
    CHECK(t.step_bytes_per_gpu == (3.0 * 100.0 + 2.0 * 1000.0) / 2.0);
    CHECK(t.intra_node_bytes == 7.0 / 4.0 && t.inter_node_bytes == 33.0 / 4.0);
    CHECK(t.max_link_bytes == 7 && t.rows_max == 9 && t.rows_mean == 6.0);
}

int main(void) {
    const spw_placement placement = {RANKS, RANKS, 2, EXPERTS};
    spw_counts *counts = NULL;
    CHECK_OK(spw_counts_create(placement, 1, &counts));
    if (counts != NULL) {
        test_pairs(counts);
        test_by_node(counts);
    }
    spw_counts_destroy(counts);
    test_sums();
    return check_done();
}
