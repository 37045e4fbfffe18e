/* Exchanges of compiled programs over nodes, and stacks that no run was fitted for. */
#include "sim/job/software.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/compiled_sample.h"

#include <stdio.h>

static spw_job job;
static spw_time_stack stack;

/* --- Nodes --- */

/* Between nodes the NIC carries exchanges too, and the slower of link and NIC counts. */
static void test_two_nodes(void) {
    spw_job two_nodes = job, faster;
    two_nodes.expert = 16;
    two_nodes.fsdp = 4;
    faster = two_nodes;
    faster.cluster.nic_bytes_per_s.value *= 2.0;
    const spw_timeline base = predict(&two_nodes, &stack, "dense:capacity_factor=2", 4, 1.0);
    spw_timeline t = predict(&faster, &stack, "dense:capacity_factor=2", 4, 1.0);
    expect_moved(&base, &t, "exchanges weight_gathers gradient_scatters");
    faster = two_nodes;
    faster.cluster.link_bytes_per_s.value *= 2.0;
    t = predict(&faster, &stack, "dense:capacity_factor=2", 4, 1.0);
    expect_moved(&base, &t, "exchanges"); /* by what the NIC does not hide of the shorter leg */
    spw_time_stack with = stack;
    with.serial_share.value = 0.0;
    const spw_timeline hidden = predict(&two_nodes, &with, "dense:capacity_factor=2", 4, 1.0);
    t = predict(&faster, &with, "dense:capacity_factor=2", 4, 1.0);
    expect_moved(&hidden, &t, "");
    /* 65536 slots a sequence, 8 of 16 ranks beyond the node, 14336 B a row: six exchanges in each of 58 layers */
    near(seconds(&hidden, "exchanges"),
         58 * 6 * (stack.latency_s.value + 4 * 65536 / 2.0 * 14336.0 / (stack.alltoall_share.value * 50e9)),
         1e-9, "bytes that leave the node over the NIC");
    with.serial_share.value = 1.0;
    t = predict(&two_nodes, &with, "dense:capacity_factor=2", 4, 1.0);
    near(seconds(&t, "exchanges") - seconds(&hidden, "exchanges"),
         58 * 6 * (4 * 65536 * 7 / 16.0 * 14336.0 / (stack.link_share.value * 537.6e9)), 1e-9,
         "the link after the NIC");
    with = stack;
    with.network_share.value /= 2.0; /* rings alone */
    t = predict(&two_nodes, &with, "dense:capacity_factor=2", 4, 1.0);
    expect_moved(&base, &t, "weight_gathers gradient_scatters");
    with = stack;
    with.alltoall_share.value /= 2.0;
    t = predict(&two_nodes, &with, "dense:capacity_factor=2", 4, 1.0);
    expect_moved(&base, &t, "exchanges");
}

/* 16384 GPUs: no run of a ring of more than 64 is known, so the step may be as short as with the hops of such a one, and the
 * interval says so. */
static void test_long_rings(void) {
    spw_job wide = job, seen = job;
    CHECK_OK(spw_cluster_read("mi355x-2048x8", NULL, &wide.cluster));
    wide.fsdp = 2048;
    const spw_timeline t = predict(&wide, &stack, "gmm", 1, 1.0),
                       base = predict(&seen, &stack, "gmm", 1, 1.0);
    CHECK(strstr(t.outside, "rings of 16384 GPUs, runs are known of 64 at most") != NULL);
    CHECK(strstr(base.outside, "rings") == NULL);
    /* gathers and scatters: three matrices of 58 layers over fsdp, one tensor of 61 layers over all, three times */
    const double more = 3.0 * (58 * 3 * (2047.0 - 63.0) + 61 * (16383.0 - 63.0)) * stack.latency_s.value;
    const double hidden = stack.hidden_share.value;
    CHECK(t.low_s < t.step_s - (1.0 - hidden) * more);
    CHECK(t.high_s / t.step_s > base.high_s / base.step_s);
}

/* More nodes: the NIC carries a larger part of the same rows and the interval follows what is not known of it. */
static void test_more_nodes(void) {
    double width = 0.0;
    for (size_t nodes = 2; nodes <= 16; nodes *= 2) {
        spw_job wide = job;
        CHECK_OK(spw_cluster_read(nodes > 8 ? "mi355x-16x8" : "mi355x-8x8", NULL, &wide.cluster));
        (void)snprintf(wide.cluster.name, sizeof wide.cluster.name,
                       "mi355x-8x8"); /* no matter of this test */
        wide.expert = 8 * nodes;
        wide.fsdp = nodes > 8 ? 1 : 8 / nodes; /* rings of 64 GPUs, which were seen, but for the last */
        spw_time_stack with = stack;
        with.serial_share.value = 0.0;
        (void)snprintf(with.fsdp, sizeof with.fsdp, "8 4 2 1");
        const spw_timeline t = predict(&wide, &with, "gmm", 4, 1.0);
        near(seconds(&t, "exchanges"),
             58 * 6 *
                 (stack.latency_s.value + 4 * 32768.0 * (double)(nodes - 1) / (double)nodes * 14336.0 /
                                              (stack.alltoall_share.value * 50e9)),
             1e-9, "what leaves the node");
        CHECK(nodes > 2 || t.outside[0] == '\0');
        CHECK((strstr(t.outside, "groups over 16 nodes, exchanges are published of 8 at most") != NULL) ==
              (nodes == 16));
        const double now = log(t.high_s / t.step_s);
        CHECK(nodes == 4 || nodes == 16 ? now > 1.2 * width : nodes == 2 || now > 0.95 * width);
        width = now;
    }
}

/* --- NVIDIA --- */

static void expect_software(const char *cluster, const char *want) {
    spw_software software;
    spw_job other = job;
    (void)snprintf(other.cluster.name, sizeof other.cluster.name, "%s", cluster);
    CHECK_OK(spw_software_newest(&other, true, false, &software));
    CHECK(strcmp(software.names, want) == 0);
    if (strcmp(software.names, want) != 0)
        fprintf(stderr, "  %s: %s, want %s\n", cluster, software.names, want);
}

/* Times of programs that no run was fitted for: rates of their own, an interval that is wider than where runs were, and words
 * for it. Twice the peak, twice as fast. */
static void test_nvidia(void) {
    static const char *const clusters[] = {"h100-8x8", "h200-8x8",   "b200-8x8",
                                           "b300-8x8", "gb200-8x72", "gb300-8x72"};
    static const char *const schemes[] = {"dense:capacity_factor=1.25", "gmm", "ragged", "gmm-deepep",
                                          "ring"};
    const spw_timeline fitted = predict(&job, &stack, "gmm", 4, 1.0);
    const double seen = log(fitted.high_s / fitted.step_s);
    spw_time_stack cuda;
    CHECK_OK(spw_time_stack_read("xla-cuda-0.10.2", NULL, &cuda));
    CHECK(!spw_time_stack_is_fitted(&cuda) && spw_time_stack_is_fitted(&stack));
    for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
        const spw_coefficient *k = spw_time_coefficient(&cuda, i);
        CHECK(k->evidence != SPW_EVIDENCE_FITTED && k->uncertainty >= 0.05 * k->value);
        CHECK(k->value != spw_time_coefficient(&stack, i)->value);
    }
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
        for (size_t s = 0; s < 5; s++) {
            spw_job other = job;
            CHECK_OK(spw_cluster_read(clusters[c], NULL, &other.cluster));
            const spw_timeline t = predict(&other, &cuda, schemes[s], 4, 1.0);
            CHECK(log(t.high_s / t.step_s) > 1.5 * seen && log(t.step_s / t.low_s) > 1.5 * seen);
            CHECK(strcmp(t.outside, "no run of xla-cuda-0.10.2 was fitted: rates of single kernels and "
                                    "assumed shares") == 0);
            other.cluster.bf16_flops.value *= 2.0;
            const spw_timeline faster = predict(&other, &cuda, schemes[s], 4, 1.0);
            near(seconds(&faster, "expert_products"), seconds(&t, "expert_products") / 2, 1e-12,
                 "twice the peak");
        }
        expect_software(clusters[c], "xla-cuda-0.10.2");
    }
    spw_job large = job;
    CHECK_OK(spw_cluster_read("h200-32x8", NULL, &large.cluster));
    large.fsdp = 32;
    const spw_timeline t = predict(&large, &cuda, "gmm", 4, 1.0);
    CHECK(strstr(t.outside, " is none of ") == NULL); /* the same GPU, on more nodes */
    (void)snprintf(large.cluster.name, sizeof large.cluster.name, "x900-32x8");
    const spw_timeline unknown = predict(&large, &cuda, "gmm", 4, 1.0);
    CHECK(strstr(unknown.outside,
                 "; the GPU of cluster x900-32x8 is none of a100-8x8 h100-8x8 h20-8x8 h800-8x8 "
                 "h200-8x8 b200-8x8 b300-8x8 gb200-8x72 gb300-8x72") != NULL);
    CHECK(unknown.high_s - unknown.low_s > t.high_s - t.low_s);
    expect_software("h200-32x8", "xla-cuda-0.10.2");
    expect_software("gb200-2x72", "xla-cuda-0.10.2");
    expect_software("mi325x-8x8", "maxtext-rocm-2026-05");
    expect_software("mi355x-8x8", "maxtext-rocm-2026-05");
    expect_software("mi355x-128x8", "maxtext-rocm-2026-05");
    expect_software("two-nodes", "maxtext-rocm-2026-05"); /* nobody's: what was fitted */
    expect_software("h20-8x8", "xla-cuda-0.10.2");
    expect_software("h2-8x8", "maxtext-rocm-2026-05");
    expect_software("h200", "maxtext-rocm-2026-05");
}

int main(void) {
    read_sample(&job, &stack);
    test_two_nodes();
    test_long_rings();
    test_more_nodes();
    test_nvidia();
    return check_done();
}
