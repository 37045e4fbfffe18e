/* Steps of Megatron-Core jobs: pipelines by hand, another machine, loads, what is covered. */
#include "sim/job/job.h"
#include "sim/time/megatron/host_optimizer_time.h"
#include "sim/time/megatron/megatron_host.h"
#include "sim/time/megatron/megatron_job_time.h"
#include "sim/time/pipeline_time.h"
#include "sim/weights/block.h"

#include "base/memory.h"
#include "sim/weights/pipeline.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <string.h>

static const char STACK[] = "megatron-h200-2026-11";

static void near(double got, double want, double part, const char *what) {
    if (!(fabs(got - want) <= part * fabs(want))) printf("%s: %.9g, not %.9g\n", what, got, want);
    CHECK(fabs(got - want) <= part * fabs(want));
}

/* --- Pipelines --- */

static double time_of(spw_pipeline p, double forward_s, double backward_s, double send_s, size_t slow_at,
                      double slow) {
    double f[64], b[64], out = -1.0;
    const size_t cells = p.stages * p.micro_batches * p.chunks;
    for (size_t i = 0; i < cells; i++) {
        f[i] = forward_s * (i == slow_at ? slow : 1.0);
        b[i] = backward_s * (i == slow_at ? slow : 1.0);
    }
    CHECK_OK(spw_pipeline_time(&p, f, b, send_s, &out));
    return out;
}

static void test_pipelines(void) {
    const spw_pipeline alone = {1, 1, 5}, four = {4, 1, 8}, loops = {4, 2, 8};
    near(time_of(alone, 1, 2, 0, SIZE_MAX, 0), 15.0, 1e-12, "micro-batches one after the other");
    near(time_of(four, 1, 2, 0, SIZE_MAX, 0), (8 + 4 - 1) * 3.0, 1e-12, "1F1B: (M + P - 1) (f + b)");
    /* Chunks of half the work: the bubble is (P - 1) / v. */
    near(time_of(loops, 0.5, 1, 0, SIZE_MAX, 0), 8 * 3.0 + 3 * 1.5, 1e-12, "interleaved");
    /* A slow micro-batch is paid in full where all is waiting for it, never more than that. */
    const double even = time_of(four, 1, 2, 0, SIZE_MAX, 0);
    for (size_t at = 0; at < 32; at++) {
        const double one = time_of(four, 1, 2, 0, at, 2.0);
        CHECK(one >= even - 1e-12 && one <= even + 3.0 + 1e-12);
    }
    near(time_of(four, 1, 2, 0, 3 * 8 + 4, 2.0), even + 3.0, 1e-12, "the last stage paces");
    /* The first micro-batch goes there and back, the last one comes back: 2 (P - 1) sends at least. */
    CHECK(time_of(four, 1, 2, 0.25, SIZE_MAX, 0) >= even + 6 * 0.25 - 1e-12);
    near(time_of(alone, 1, 2, 9.0, SIZE_MAX, 0), 15.0, 1e-12, "nothing is sent in one stage");
    /* Three chunks: a micro-batch goes through six blocks and back, one behind the other, whichever is slow. */
    const spw_pipeline deep = {2, 3, 2};
    for (size_t at = 0; at < 12; at++)
        CHECK(time_of(deep, 1, 2, 10, at, 50.0) >= 5.0 * (1 + 2) + 50.0 * (1 + 2) + 10 * 10.0 - 1e-9);
    for (int i = 0; i < 4; i++) {
        double seconds[32] = {0.0}, out = 0.0;
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_pipeline_time(&four, seconds, seconds, 0.0, &out), SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
}

/* --- Another machine --- */

static void test_scale(void) {
    spw_megatron_coefficients c, same, other;
    spw_cluster h200, mi355x;
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &h200));
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &mi355x));
    CHECK_OK(spw_megatron_coefficients_scale(&c, &h200, &same));
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++)
        CHECK(spw_megatron_coefficient_of(&c, i)->value == spw_megatron_coefficient_of(&same, i)->value);
    CHECK_OK(spw_megatron_coefficients_scale(&c, &mi355x, &other));
    CHECK(other.scaled && !same.scaled);
    near(other.dense_flops_share.value, 0.650289, 1e-9, "hipBLASLt under XLA, not cuBLAS");
    CHECK(other.dense_flops_share.evidence == SPW_EVIDENCE_FITTED && same.dense_from[0] == '\0');
    CHECK(strcmp(other.dense_from, "maxtext-rocm-2026-05") == 0);
    CHECK(other.gemm_flops_share.value == c.gemm_flops_share.value);
    near(other.peak_flops.value, 9.894e14 * 2.5166e15 / 9.894e14, 1e-9, "peak");
    near(other.copy_bytes_per_s.value, 4.09e12 * 8.0 / 4.8, 1e-9, "copies");
    near(other.exchange_bytes_per_s.value, c.exchange_bytes_per_s.value * 537.6 / 450.0, 1e-9, "all-to-all");
    near(other.network_bytes_per_s.value, 4.35e10, 1e-9, "NICs are alike");
    near(other.host_layer_s.value, c.host_layer_s.value, 0.0, "the host");
    CHECK(other.long_message_share.value == 1.0 && c.long_message_share.value > 1.3);
    (void)strcpy(c.cluster, "no-such");
    CHECK_STATUS(spw_megatron_coefficients_scale(&c, &h200, &other), SPW_ECONFIG);
    CHECK_STATUS(spw_megatron_coefficients_locate(&c), SPW_ECONFIG);
}

/* Products of another GPU of the generation go by its power limit, too; copies, and GPUs of another generation, do not. */
static void test_power(void) {
    static const struct {
        const char *cluster;
        double peak, watts;
        bool foreign;
    } cases[] = {{"gb200-8x72", 2.5e15, 1200, false},
                 {"b200-8x8", 2.25e15, 1000, false},
                 {"gb300-8x72", 2.5e15, 1400, false},
                 {"h100-8x8", 9.894e14, 1200, true},
                 {"mi355x-8x8", 2.5166e15, 1200, true}};
    spw_megatron_coefficients c, other;
    CHECK_OK(spw_megatron_coefficients_read("megatron-te-gb200-2026-11", NULL, &c));
    CHECK(c.part == SPW_MEGATRON_WHOLE && c.power_share.value > 0.5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_cluster cluster;
        CHECK_OK(spw_cluster_read(cases[i].cluster, NULL, &cluster));
        CHECK_OK(spw_megatron_coefficients_scale(&c, &cluster, &other));
        near(other.peak_flops.value, cases[i].peak * pow(cases[i].watts / 1200.0, c.power_share.value), 1e-9,
             cases[i].cluster);
        CHECK(other.foreign == cases[i].foreign);
        near(other.copy_bytes_per_s.value, c.copy_bytes_per_s.value * cluster.hbm_bytes_per_s.value / 8e12,
             1e-9, "copies");
        near(other.sorted_bytes_per_s.value,
             c.sorted_bytes_per_s.value * cluster.link_bytes_per_s.value / 9e11, 1e-9, "HybridEP");
    }
    /* an H20 has 400 of an H100's 700 W for 0.15 of its products: nothing holds it back that does not hold the H100 */
    spw_cluster h20, h100;
    CHECK_OK(spw_megatron_coefficients_read("megatron-te-h100-2026-11", NULL, &c));
    CHECK(c.power_share.value > 0.5);
    CHECK_OK(spw_cluster_read("h20-8x8", NULL, &h20));
    CHECK_OK(spw_cluster_read("h100-8x8", NULL, &h100));
    CHECK_OK(spw_megatron_coefficients_scale(&c, &h20, &other));
    near(other.peak_flops.value, c.peak_flops.value * 1.48e14 / 9.894e14, 1e-9, "h20-8x8");
    h100.gpu_watts.value = 350; /* one at half of its power is */
    CHECK_OK(spw_megatron_coefficients_scale(&c, &h100, &other));
    near(other.peak_flops.value, c.peak_flops.value * pow(0.5, c.power_share.value), 1e-9, "h100 at 350 W");
}

/* What was located is not read again: scaling goes by it, whatever the name of the cluster has become. */
static void test_located(void) {
    spw_megatron_coefficients c, fresh, located;
    spw_cluster mi355x;
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &mi355x));
    CHECK_OK(spw_megatron_coefficients_scale(&c, &mi355x, &fresh));
    CHECK(!c.origin.known);
    CHECK_OK(spw_megatron_coefficients_locate(&c));
    (void)strcpy(c.cluster, "no-such");
    CHECK_OK(spw_megatron_coefficients_scale(&c, &mi355x, &located));
    for (size_t i = 0; i < SPW_MEGATRON_COEFFICIENTS; i++)
        CHECK(spw_megatron_coefficient_of(&fresh, i)->value ==
              spw_megatron_coefficient_of(&located, i)->value);
    CHECK(strcmp(located.dense_from, fresh.dense_from) == 0 && located.scaled);
}

/* --- Jobs --- */

static spw_job job_of(const char *more) {
    char text[512];
    spw_job job;
    const int length = snprintf(
        text, sizeof text,
        "model: deepseek-v2-lite\ncluster: h200-8x8\nbatch: {sequences_per_gpu: 2, sequence_length: 4096}\n"
        "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
        "optimizer: distributed\n%s",
        more);
    CHECK_OK(spw_job_parse("test", NULL, text, (size_t)length, &job));
    return job;
}

/* 8192 tokens x 6 = 49152 choices of 64 experts: 768 an expert and rank. */
static void test_loads(void) {
    spw_megatron_coefficients c;
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    static const struct {
        const char *scheme, *split;
        double received, sent, link, nic;
    } cases[] = {
        {"megatron-alltoall", "{expert: 8, fsdp: 8}", 49152, 49152, 49152.0 * 7 / 8, 0},
        {"megatron-alltoall", "{expert: 16, fsdp: 4}", 49152, 49152, 49152.0 * 7 / 16, 49152.0 / 2},
        {"megatron-allgather", "{expert: 16, fsdp: 4}", 49152, 0, 8192 * 7, 8192 * 8},
        {"megatron-alltoall:capacity_factor=0.5,policy=position", "{expert: 8, fsdp: 8}", 24576, 24576, 21504,
         0},
        {"megatron-alltoall:capacity_factor=2,policy=position,pad=true", "{expert: 8, fsdp: 8}", 98304, 98304,
         86016, 0},
        {"megatron-flex", "{expert: 8, fsdp: 8}", 49152, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char split[128];
        spw_megatron_load load[16];
        (void)snprintf(split, sizeof split, "parallel: %s\nremat: none\n", cases[i].split);
        const spw_job job = job_of(split);
        const spw_scheme scheme = scheme_of(cases[i].scheme);
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, load));
        for (size_t r = 0; r < job.expert; r++) {
            near(load[r].received, cases[i].received, 0.0, "received");
            near(load[r].tiled, cases[i].received, 0.0, "whole tiles");
            near(load[r].sent, cases[i].sent, 0.0, "sent");
            CHECK(load[r].empty_experts == 0 && load[r].idle_rows >= 0.0);
            if (cases[i].link == 0) continue;
            CHECK(load[r].link_in == cases[i].link && load[r].link_out == cases[i].link);
            CHECK(load[r].nic_in == cases[i].nic && load[r].nic_out == cases[i].nic);
        }
    }
    /* A token goes once to a rank: of 6 choices, 8 ranks see T (1 - C(56, 6) / C(64, 6)). */
    const spw_job job = job_of("parallel: {expert: 8, fsdp: 8}\nremat: none\n");
    const spw_scheme flex = scheme_of("megatron-flex");
    spw_megatron_load load[8];
    double missed = 1.0;
    for (int j = 0; j < 6; j++) missed *= (56.0 - j) / (64.0 - j);
    const spw_point point = spw_point_of(&job, &flex, 2);
    CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, load));
    near(load[3].link_in, 7 * 8192 * (1.0 - missed), 1e-3, "tokens once a rank");
    CHECK_OK(spw_megatron_load_stated(&c, &point, 2.0, 1, load));
    CHECK(load[0].received == 2 * 49152.0 && load[1].received < 49152.0);
    CHECK_STATUS(spw_megatron_load_stated(&c, &point, 9.0, 1, load), SPW_ECONFIG);
}

/* Who shares the busy experts has X times the mean, whatever the number of those who share them; the others what is left. */
static void test_shared_loads(void) {
    spw_megatron_coefficients c;
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    for (size_t sharers = 1; sharers <= 4; sharers *= 2) {
        char split[128];
        spw_megatron_load even[32], busy[32];
        const size_t owners = 8, ranks = owners * sharers;
        (void)snprintf(split, sizeof split,
                       "parallel: {tensor: %zu, expert_tensor: %zu, expert: 8, fsdp: %zu}\nremat: none\n",
                       sharers, sharers, 8 / sharers);
        const spw_job job = job_of(split);
        const spw_scheme scheme = scheme_of("megatron-alltoall");
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, even));
        CHECK_OK(spw_megatron_load_stated(&c, &point, 3.0, 1, busy));
        for (size_t r = 0; r < ranks; r++)
            near(busy[r].received / even[r].received, r < sharers ? 3.0 : (8.0 - 3.0) / 7, 2e-3,
                 "of the mean");
    }
}

/* A step of 10 s with copies of 1 s there and back, and 3 s of the host's Adam of which 2 wait: copies hidden behind a host twice as fast
 * are 10 - 1 - 1 - 2 / 2 s, nothing hidden behind one half as fast is 10 + 1 + 1 + 3. */
static void test_host_doubt(void) {
    spw_timeline t;
    spw_timeline_clear(&t);
    CHECK_OK(spw_timeline_add(&t, "products", "", SPW_STREAM_COMPUTE, 6.0, 6.0));
    CHECK_OK(spw_timeline_add(&t, "host_gradients", "", SPW_STREAM_HOST, 1.0, 1.0));
    CHECK_OK(spw_timeline_add(&t, "host_optimizer", "", SPW_STREAM_HOST, 3.0, 2.0));
    CHECK_OK(spw_timeline_add(&t, "host_weights", "", SPW_STREAM_HOST, 1.0, 1.0));
    spw_timeline_finish(&t, 1.0);
    t.low_s = t.high_s = t.step_s;
    spw_host_optimizer_doubt(&t);
    near(t.step_s, 10.0, 1e-12, "step");
    near(t.low_s, 7.0, 1e-12, "low end");
    near(t.high_s, 15.0, 1e-12, "high end");
}

/* The host of a layer, by hand: 8 experts a GPU, gaps of 1, 0.1, 2 and 4 ms. */
static void test_host(void) {
    static const struct {
        const char *scheme;
        spw_cuda_graph graph;
        double layer, moe, counts;
        size_t tensor;
        bool recipe, full, half;
    } cases[] = {
        {"megatron-flex", SPW_GRAPH_NONE, 1, 0.8, 0, 1, false, false, false},
        {"megatron-alltoall", SPW_GRAPH_NONE, 1, 0.8, 4, 1, false, false, false},
        {"megatron-alltoall", SPW_GRAPH_NONE, 3, 0.8, 4, 1, true, false, false},
        {"megatron-alltoall", SPW_GRAPH_LOCAL, 0.5, 0.4, 2, 1, false, false, false},
        {"megatron-flex", SPW_GRAPH_TRANSFORMER_ENGINE, 1.5, 0.4, 0, 1, true, false, false},
        {"megatron-alltoall", SPW_GRAPH_NONE, 3, 2.4, 12, 2, false, false, false},
        {"megatron-alltoall", SPW_GRAPH_NONE, 4.0 / 3.0, 3.2 / 3.0, 16.0 / 3.0, 1, false, true, false},
        {"megatron-flex", SPW_GRAPH_NONE, 0.5, 0.8, 0, 1, false, false, true},
        {"megatron-syncfree:rank_capacity=2", SPW_GRAPH_FULL_ITERATION, 0, 0, 0, 1, true, false, false},
        {"megatron-syncfree:rank_capacity=2,graph=full", SPW_GRAPH_NONE, 0, 0, 0, 1, false, false, false}};
    const spw_megatron_coefficients c = {.layer_gap_s = {.value = 1e-3},
                                         .expert_gap_s = {.value = 1e-4},
                                         .recipe_gap_s = {.value = 2e-3},
                                         .counts_gap_s = {.value = 4e-3},
                                         .partial_graph_share = {.value = 0.5},
                                         .tensor_gap_share = {.value = 3.0},
                                         .host_floor_s = {.value = 5e-3},
                                         .sequential_floor_s = {.value = 5e-4},
                                         .expert_floor_s = {.value = 2e-4},
                                         .recipe_floor_s = {.value = 3e-3},
                                         .floor_forward_share = {.value = 0.6},
                                         .unlike_floor_s = {.value = 9e-3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_job job = job_of("parallel: {expert: 8, fsdp: 8}\nremat: none\n");
        const spw_scheme scheme = scheme_of(cases[i].scheme);
        job.cuda_graph = cases[i].graph;
        job.tensor = cases[i].tensor;
        job.precision.recipe = cases[i].recipe ? SPW_FP8_TENSORWISE : SPW_FP8_NONE;
        job.remat = cases[i].full ? SPW_REMAT_FULL : SPW_REMAT_NONE;
        job.model.half_layers = cases[i].half;
        spw_point point = spw_point_of(&job, &scheme, 2);
        point.shape.experts_per_rank = 8;
        const spw_megatron_host h = spw_megatron_host_of(&c, &point);
        near(1e3 * h.layer_s, cases[i].layer, 1e-12, "gaps of a layer");
        near(1e3 * h.moe_layer_s, cases[i].moe, 1e-12, "of its experts");
        near(1e3 * h.counts_s, cases[i].counts, 1e-12, "of counts");
        near(h.forward_share, cases[i].full ? 0.25 : 1.0 / 3.0, 1e-12, "forward");
        if (h.floor_s > 0.0)
            near(h.floor_forward_share, cases[i].full ? 0.45 : 0.6, 1e-12, "of the floor, forward");
        const double graph = cases[i].graph == SPW_GRAPH_NONE ? 1.0 : 0.5,
                     share = h.floor_s > 0.0 ? (cases[i].full ? 4.0 / 3.0 : 1.0) * graph : 0.0;
        near(1e3 * h.floor_s, share * (cases[i].half ? 0.5 : 1.0) * (cases[i].recipe ? 8.0 : 5.0), 1e-12,
             "the floor of a layer");
        near(1e3 * h.moe_floor_s, share * 8 * 0.2, 1e-12, "experts together");
        near(1e3 * h.unlike_s, share * 9, 1e-12, "experts with rows of their own");
        job.muon = true;
        near(1e3 * spw_megatron_host_of(&c, &point).moe_floor_s, share * 8 * 0.7, 1e-12, "experts in a row");
    }
    /* Two layers, one of experts: 2 x 1 + 1 x 0.8 + counts that 3 of 4 ms of exchanges cover; the floor of 5 ms a layer. */
    spw_megatron_host h = {.layer_s = 1e-3, .moe_layer_s = 8e-4, .counts_s = 4e-3, .floor_s = 5e-3};
    const spw_block block = {.layers = 2, .moe_layers = 1};
    spw_megatron_host slow = {.floor_s = 5e-3, .moe_floor_s = 4e-2, .unlike_s = 8e-3};
    const struct {
        spw_megatron_host *host;
        double share, floor_share;
        spw_megatron_pass pass;
        double s;
        const char *what;
    } passes[] = {{&h, 1.0, 0.3, {20e-3, 3e-3, 0.0}, 23.8e-3, "gaps"},
                  {&h, 1.0, 0.3, {20e-3, 6e-3, 0.0}, 22.8e-3, "covered by exchanges"},
                  {&h, 0.3, 1.0, {1e-3, 0.0, 0.0}, 10e-3, "the host's floor"},
                  {&h, 0.5, 0.1, {20e-3, 0.0, 0.0}, 23.4e-3, "half of it"},
                  {&slow, 0.1, 0.5, {1e-3, 0.0, 0.0}, 25e-3, "the host's floor, experts in a row"},
                  {&slow, 0.1, 0.5, {1e-3, 0.0, 0.75}, 28e-3, "three quarters with rows of their own"}};
    for (size_t i = 0; i < 2 * (sizeof passes / sizeof *passes); i++) {
        const bool back = i % 2 == 1;
        spw_megatron_host *host = passes[i / 2].host;
        host->forward_share = back ? 1.0 - passes[i / 2].share : passes[i / 2].share;
        host->floor_forward_share = back ? 1.0 - passes[i / 2].floor_share : passes[i / 2].floor_share;
        near(spw_megatron_pass_s(host, &block, back, &passes[i / 2].pass), passes[i / 2].s, 1e-12,
             passes[i / 2].what);
    }
}

static void test_covers(void) {
    static const struct {
        const char *scheme, *more;
        bool covered;
    } cases[] = {{"megatron-alltoall", "remat: none\n", true},
                 {"megatron-alltoall", "remat: full\n", true},
                 {"megatron-alltoall", "remat: selective\n", true},
                 {"megatron-alltoall", "remat: minimal\n", false},
                 {"megatron-alltoall:align=16", "remat: none\n", false},
                 {"megatron-flex", "remat: moe\n", true},
                 {"megatron-flex:backend=hybridep", "remat: moe\n", true},
                 {"megatron-flex:backend=hybridep,align=16", "remat: moe\n", false},
                 {"megatron-syncfree:rank_capacity=2", "remat: none\n", true},
                 {"megatron-allgather", "remat: moe_act\n", true},
                 {"megablocks", "remat: none\n", false},
                 {"primus-syncfree", "remat: none\n", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[128];
        (void)snprintf(more, sizeof more, "parallel: {expert: 8, fsdp: 8}\n%s", cases[i].more);
        const spw_job job = job_of(more);
        const spw_scheme scheme = scheme_of(cases[i].scheme);
        CHECK(spw_megatron_job_covers(&job, &scheme) == cases[i].covered);
    }
    spw_job job = job_of("parallel: {expert: 8, fsdp: 8}\nremat: none\n");
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    const spw_point point = spw_point_of(&job, &scheme, 1);
    const spw_megatron_job_request request = {.point = &point};
    spw_timeline time;
    job.precision.weights = 1;
    CHECK(!spw_megatron_job_covers(&job, &scheme));
    CHECK_STATUS(spw_megatron_job_predict(&request, &time), SPW_ECONFIG);
}

/* A group that is behind sets the step; waiting for it inside a group is a component; memory fails once each. */
static void test_groups(void) {
    const spw_job job = job_of("parallel: {expert: 8, fsdp: 8}\nremat: none\n");
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    spw_megatron_coefficients c;
    spw_megatron_load load[2][8];
    spw_timeline even, one, both;
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    const spw_point point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, load[0]));
    memcpy(load[1], load[0], sizeof load[0]);
    spw_megatron_job_request request = {&c, &point, &load[0][0], 1, 2, 1};
    CHECK_OK(spw_megatron_job_predict(&request, &even));
    load[1][3].received = load[1][3].tiled = 1.5 * load[1][3].received;
    CHECK_OK(spw_megatron_job_predict(&request, &one));
    request.load = load[1], request.groups = 1;
    CHECK_OK(spw_megatron_job_predict(&request, &both));
    near(one.step_s, both.step_s, 1e-12, "the slowest group");
    CHECK(one.step_s > 1.1 * even.step_s);
    const double waited = spw_timeline_find(&one, "waiting")->seconds,
                 before = spw_timeline_find(&even, "waiting")->seconds;
    CHECK(waited > before + 0.8 * (one.step_s - even.step_s));
    for (int i = 0; i < 10; i++) {
        spw_alloc_fail_after(i);
        CHECK_STATUS(spw_megatron_job_predict(&request, &one), SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
}

/* Between two stages go all streams of the hidden state: 4 of them carry 2 bytes x tokens x hidden x 3 more. One micro-batch goes there
 * and back, so that the step has two sends. In each layer they are mixed twice: 9 x 4 + 2 times hidden are read and written, and
 * multiplied 4 x hidden by 4 x 4 + 2 x 4 and 4 x 4 by hidden, in a pass forward and two backward. */
static void test_streams(void) {
    spw_job job = job_of("parallel: {expert: 8, fsdp: 4, pipeline: 2}\nremat: none\n");
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    spw_megatron_coefficients c;
    spw_megatron_load load[2][8];
    double step_s[2];
    CHECK_OK(spw_megatron_coefficients_read(STACK, NULL, &c));
    for (size_t i = 0; i < 2; i++) {
        spw_timeline time;
        job.model.streams = i == 0 ? 1 : 4;
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, load[0]));
        memcpy(load[1], load[0], sizeof load[0]);
        const spw_megatron_job_request request = {&c, &point, &load[0][0], 1, 2, 1};
        CHECK_OK(spw_megatron_job_predict(&request, &time));
        step_s[i] = time.step_s;
    }
    const double bytes = 2.0 * 8192 * 2048;
    const double mixings = 3.0 * 2.0 * (double)job.model.layers,
                 moved = mixings * (9 * 4 + 2) * bytes * c.elementwise_share.value / c.copy_bytes_per_s.value,
                 multiplied =
                     mixings * (4 * 24 + 16) * bytes / (c.peak_flops.value * c.dense_flops_share.value);
    near(step_s[1] - step_s[0], 2.0 * 3.0 * bytes / c.network_bytes_per_s.value + moved + multiplied, 1e-6,
         "three more streams, sent twice, and what mixes them");
}

int main(void) {
    test_streams();
    test_pipelines();
    test_scale();
    test_power();
    test_host();
    test_located();
    test_loads();
    test_shared_loads();
    test_host_doubt();
    test_covers();
    test_groups();
    return check_done();
}
