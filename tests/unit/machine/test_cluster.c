/* Cluster files: presets, evidence, and the refusals. */
#include "sim/machine/cluster.h"

#include "base/memory.h"
#include "sim/machine/cluster_levels.h"
#include "tests/unit/check.h"

#include <string.h>

static void expect(const char *text, const char *message) {
    spw_cluster cluster;
    CHECK_STATUS(spw_cluster_parse("c.yaml", text, strlen(text), &cluster), SPW_ECONFIG);
    bool same = strcmp(spw_last_error(), message) == 0;
    CHECK(same);
    if (!same) fprintf(stderr, "  got  %s\n  want %s\n", spw_last_error(), message);
}

static void check_figure(const char *cluster, const char *name, const spw_figure *figure) {
    bool good =
        figure->value > 0 && (unsigned)figure->evidence < SPW_EVIDENCE_COUNT && strlen(figure->source) > 10;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %s\n", cluster, name);
}

/* Every preset loads, is named as its file, and no figure stands without evidence and source. */
static void test_presets(void) {
    size_t count = 0;
    for (const char *const *name = spw_cluster_presets(); *name != NULL; name++, count++) {
        spw_cluster c;
        CHECK_OK(spw_cluster_read(*name, NULL, &c));
        const bool rack = strncmp(*name, "gb", 2) == 0, fast = strstr(*name, "b300") != NULL;
        const bool tpu = c.gpu_generation == SPW_GPU_NONE, four = strstr(*name, "v5p") != NULL;
        const size_t nodes = c.levels.count > 0 ? (rack ? 16 : 128) : four ? 16 : 8;
        CHECK(strcmp(c.name, *name) == 0 && c.nodes == nodes && tpu == (strncmp(*name, "tpu", 3) == 0));
        CHECK(c.gpus_per_node == (size_t)(rack ? 72 : four ? 4 : 8));
        check_figure(*name, "hbm_gib", &c.hbm_gib);
        check_figure(*name, "bf16_flops", &c.bf16_flops);
        check_figure(*name, "fp8_flops", &c.fp8_flops);
        check_figure(*name, "hbm_bytes_per_s", &c.hbm_bytes_per_s);
        check_figure(*name, "link_bytes_per_s", &c.link_bytes_per_s);
        check_figure(*name, "nic_bytes_per_s", &c.nic_bytes_per_s);
        check_figure(*name, "launch_s", &c.launch_s);
        if (tpu) continue; /* links of a torus, and no products in fp8 that are twice as fast */
        const bool ampere = strcmp(*name, "a100-8x8") == 0; /* no fp8; ports of 200 Gb/s */
        CHECK(ampere ? c.fp8_flops.value == c.bf16_flops.value && c.nic_bytes_per_s.value == 25e9 : true);
        if (ampere) continue;
        CHECK(c.fp8_flops.value > 1.99 * c.bf16_flops.value && c.fp8_flops.value < 2.01 * c.bf16_flops.value);
        /* Blackwell and CDNA 4 multiply fp4, twice as fast as fp8 and Blackwell Ultra three times; others do not */
        const bool fp4 = c.gpu_generation == SPW_GPU_BLACKWELL || c.gpu_generation == SPW_GPU_CDNA4;
        const double ratio = c.fp4_flops.value / c.fp8_flops.value;
        CHECK(fp4 ? ratio > (fast ? 2.9 : 1.99) && ratio < (fast ? 3.01 : 2.01) : ratio == 0.0);
        if (fp4) check_figure(*name, "fp4_flops", &c.fp4_flops);
        CHECK(c.nic_bytes_per_s.value == (fast ? 800e9 : 400e9) / 8 &&
              c.link_bytes_per_s.value > c.nic_bytes_per_s.value);
    }
    CHECK(count == 17);
}

/* Figures worked out by hand from the data sheets. */
static void test_figures(void) {
    spw_cluster c;
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &c));
    CHECK(c.hbm_gib.value == 287.96 && c.hbm_gib.evidence == SPW_EVIDENCE_PUBLISHED);
    CHECK(c.link_bytes_per_s.value == 7 * 76.8e9);
    CHECK(c.bf16_flops.value > 0.9999 * 256 * 4096 * 2.4e9 &&
          c.bf16_flops.value < 1.0001 * 256 * 4096 * 2.4e9);
    CHECK_OK(spw_cluster_read("mi300x-8x8", NULL, &c));
    CHECK(c.link_bytes_per_s.value == 7 * 64e9 && c.bf16_flops.value == 1307.4e12);
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &c));
    CHECK(c.hbm_gib.value < 150109880320.0 / (1 << 30) &&
          c.hbm_gib.value > 150109880320.0 / (1 << 30) - 0.01);
    CHECK(c.hbm_gib.evidence == SPW_EVIDENCE_MEASURED && c.link_bytes_per_s.value == 450e9);
    CHECK_OK(spw_cluster_read("mi325x-8x8", NULL, &c));
    CHECK(c.hbm_bytes_per_s.value == 6e12 && c.bf16_flops.value == 1307.4e12 &&
          c.link_bytes_per_s.value == 7 * 64e9);
    CHECK_OK(spw_cluster_read("gb300-8x72", NULL, &c));
    CHECK(c.bf16_flops.value == 360e15 / 2 / 72 && c.hbm_bytes_per_s.value == 576e12 / 72 &&
          c.link_bytes_per_s.value == 900e9);
    CHECK_OK(spw_cluster_read("b200-8x8", NULL, &c));
    CHECK(c.link_bytes_per_s.value == 900e9);
    CHECK(strcmp(spw_evidence_name(SPW_EVIDENCE_FITTED), "fitted") == 0);
    CHECK(strcmp(spw_evidence_name((spw_evidence)99), "?") == 0);
}

#define FIGURE(name) #name ": {value: 1e12, evidence: assumed, source: here}\n"
#define REST \
    FIGURE(fp8_flops) \
    FIGURE(hbm_bytes_per_s) \
    FIGURE(link_bytes_per_s) \
    FIGURE(nic_bytes_per_s) "launch_s: {value: 0, evidence: assumed, source: here}\n"
#define HEAD "name: own\nnodes: 2\ngpus_per_node: 4\nhbm_gib: {value: 80, evidence: measured, source: here}\n"

static void test_parse(void) {
    spw_cluster c;
    const char *text = HEAD FIGURE(bf16_flops) REST;
    CHECK_OK(spw_cluster_parse("c.yaml", text, strlen(text), &c));
    CHECK(strcmp(c.name, "own") == 0 && c.nodes == 2 && c.gpus_per_node == 4 && c.launch_s.value == 0);
    CHECK(c.hbm_gib.value == 80 && c.hbm_gib.evidence == SPW_EVIDENCE_MEASURED);
    CHECK(strcmp(c.hbm_gib.source, "here") == 0);
    expect(HEAD "bf16_flops: 1e15\n" REST, "c.yaml:5: 'bf16_flops' is '1e15'; it must be a mapping with the "
                                           "keys: value, evidence, source (dense bf16 peak)");
    expect(HEAD "bf16_flops: {value: 1e15, evidence: guessed, source: me}\n" REST,
           "c.yaml:5: 'bf16_flops.evidence' is 'guessed'; it must be one of: datasheet, published, measured, "
           "fitted, assumed "
           "(how we know the value)");
    expect(HEAD "bf16_flops: {value: 1e15, evidence: assumed}\n" REST,
           "c.yaml:5: 'bf16_flops.source' is missing; it must be a text of 1 to 191 printable characters "
           "(where the value was "
           "read or measured)");
    expect(HEAD "bf16_flops: {value: 2.5, evidence: assumed, source: me}\n" REST,
           "c.yaml:5: 'bf16_flops.value' is '2.5'; it must be a number in [1e+09, 1e+18] (dense bf16 peak "
           "per GPU, in FLOP/s)");
    expect(HEAD REST, "c.yaml:1: 'bf16_flops' is missing; it must be a mapping with the keys: value, "
                      "evidence, source (dense "
                      "bf16 peak)");
    expect(HEAD FIGURE(bf16_flop) REST,
           "c.yaml:5: unknown key 'bf16_flop'; did you mean 'bf16_flops'? known keys: name, nodes, "
           "gpus_per_node, gpu_generation, gpu_vendor, hbm_gib, "
           "bf16_flops, fp8_flops, fp4_flops, hbm_bytes_per_s, link_bytes_per_s, nic_bytes_per_s, launch_s, "
           "gpu_watts, "
           "price_per_gpu_hour, gemm, "
           "exchange, link, kernels, levels");
}

#define LISTS(rows, more) \
    HEAD FIGURE(bf16_flops) REST "gemm:\n  rows_per_expert: " rows "\n  in: [8, 8]\n  out: [16, 16]\n" \
                                 "  forward_tflops: [3, 4]\n  input_gradient_tflops: [5, 6]\n" more
#define MEASURED "  weight_gradient_tflops: [7, 8]\n  evidence: measured\n"

/* Points of the grouped GEMM: read, optional, and refused when the lists do not belong together. */
static void test_points(void) {
    spw_cluster c;
    const char *text = LISTS("[64, 128]", MEASURED "  source: here\n"), *none = HEAD FIGURE(bf16_flops) REST;
    CHECK_OK(spw_cluster_parse("c.yaml", text, strlen(text), &c));
    CHECK(c.gemm.points == 2 && c.gemm.rows_per_expert[1] == 128 && c.gemm.in[0] == 8 && c.gemm.out[1] == 16);
    CHECK(c.gemm.forward_tflops[0] == 3 && c.gemm.input_gradient_tflops[1] == 6);
    CHECK(c.gemm.weight_gradient_tflops[1] == 8 && c.gemm.evidence == SPW_EVIDENCE_MEASURED);
    CHECK_OK(spw_cluster_parse("c.yaml", none, strlen(none), &c));
    CHECK(c.gemm.points == 0);
    expect(LISTS("[64]", MEASURED "  source: here\n"),
           "c.yaml:11: 'gemm.in' has 2 elements, 'gemm.rows_per_expert' 1; the lists are one length, an "
           "element a point");
    expect(LISTS("[64, 64]", MEASURED "  source: here\n"),
           "c.yaml:11: 'gemm.rows_per_expert' goes from 64 to 64 at point 2; inside a shape it must rise");
    expect(LISTS("[64, 128]", MEASURED),
           "c.yaml:11: 'gemm.source' is missing; say where the points were measured");
    expect(LISTS("[64, 128]", "  evidence: measured\n"),
           "c.yaml:11: 'gemm.weight_gradient_tflops' has 0 elements, 'gemm.rows_per_expert' 2; the lists are "
           "one length, an element a point");
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &c));
    CHECK(c.gemm.points == 28 && c.gemm.evidence == SPW_EVIDENCE_MEASURED && strlen(c.gemm.source) > 10);
    for (size_t i = 0; i < c.gemm.points; i++) {
        const double peak = c.bf16_flops.value / 1e12;
        CHECK((double)c.gemm.forward_tflops[i] < peak && (double)c.gemm.input_gradient_tflops[i] < peak);
        CHECK((double)c.gemm.weight_gradient_tflops[i] < peak);
    }
    CHECK(c.gemm.in[2] == 7168 && c.gemm.out[2] == 4096 && c.gemm.rows_per_expert[2] == 256);
    CHECK(c.gemm.forward_tflops[2] == 730 && c.gemm.weight_gradient_tflops[27] == 694);
}

#define SIZES(bytes, more) \
    HEAD FIGURE(bf16_flops) REST "exchange:\n  bytes: " bytes "\n  dispatch_gb_per_s: [1, 2]\n" \
                                 "  combine_gb_per_s: [3, 4]\n  evidence: published\n" more

/* Points of an exchange, the same way. */
static void test_exchange(void) {
    spw_cluster c;
    const char *text = SIZES("[10, 20]", "  source: here\n");
    CHECK_OK(spw_cluster_parse("c.yaml", text, strlen(text), &c));
    CHECK(c.exchange.points == 2 && c.exchange.bytes[1] == 20 && c.exchange.dispatch_gb_per_s[0] == 1);
    CHECK(c.exchange.combine_gb_per_s[1] == 4 && c.exchange.evidence == SPW_EVIDENCE_PUBLISHED);
    expect(SIZES("[10]", "  source: here\n"), "c.yaml:11: 'exchange.dispatch_gb_per_s' has 2 elements, "
                                              "'exchange.bytes' 1; the lists are one length, an "
                                              "element a point");
    expect(SIZES("[10, 10]", "  source: here\n"),
           "c.yaml:11: 'exchange.bytes' goes from 10 to 10 at point 2; it must rise");
    expect(SIZES("[10, 20]", ""),
           "c.yaml:11: 'exchange.source' is missing; say where the points were measured");
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &c));
    CHECK(c.exchange.points == 2 && c.exchange.combine_gb_per_s[1] == 420);
}

#define LINKS(sizes, more) \
    HEAD FIGURE(bf16_flops) REST "link:\n  message_bytes: " sizes "\n  latency_ns: [2000, 9000]\n" \
                                 "  out_mb_per_s: [1, 2]\n  in_mb_per_s: [3, 4]\n" \
                                 "  exchange_mb_per_s: [5, 6]\n" more
#define INCAST "  incast_mb_per_s: [7, 8]\n  evidence: measured\n"

/* Figures of our own kernels: all may be left out, a source may not. */
static void test_kernels(void) {
#define KERNELS(source) \
    HEAD FIGURE(bf16_flops) REST "kernels: {copy_gb_per_s: 4000, slot_ns: 4.5" source "}\n"
    static const char good[] = KERNELS(", evidence: measured, source: a test"), bad[] = KERNELS("");
#undef KERNELS
    spw_cluster c;
    CHECK_OK(spw_cluster_parse("c.yaml", good, sizeof good - 1, &c));
    CHECK(c.kernels.copy_gb_per_s == 4000.0 && c.kernels.slot_ns == 4.5 && c.kernels.send_share == 0.0);
    CHECK(c.kernels.evidence == SPW_EVIDENCE_MEASURED && strcmp(c.kernels.source, "a test") == 0);
    CHECK_STATUS(spw_cluster_parse("c.yaml", bad, sizeof bad - 1, &c), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "'kernels.source' is missing") != NULL);
}

/* A price may be left out, its source may not. */
static void test_price(void) {
#define PRICE(source) HEAD FIGURE(bf16_flops) REST "price_per_gpu_hour: {value: 2.5" source "}\n"
    static const char good[] = PRICE(", evidence: published, source: a list"), bad[] = PRICE("");
#undef PRICE
    spw_cluster c;
    CHECK_OK(spw_cluster_parse("c.yaml", good, sizeof good - 1, &c));
    CHECK(c.price_per_gpu_hour.value == 2.5 && c.price_per_gpu_hour.evidence == SPW_EVIDENCE_PUBLISHED);
    CHECK_STATUS(spw_cluster_parse("c.yaml", bad, sizeof bad - 1, &c), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "'price_per_gpu_hour.source' is missing") != NULL);
}

/* Points of the links: the same. */
static void test_links(void) {
    spw_cluster c;
    const char *text = LINKS("[1024, 4096]", INCAST "  source: here\n  gpus: 2\n");
    const char *none = HEAD FIGURE(bf16_flops) REST;
    CHECK_OK(spw_cluster_parse("c.yaml", text, strlen(text), &c));
    CHECK(c.link.points == 2 && c.link.message_bytes[1] == 4096 && c.link.latency_ns[0] == 2000);
    CHECK(c.link.out_mb_per_s[1] == 2 && c.link.in_mb_per_s[0] == 3 && c.link.exchange_mb_per_s[1] == 6);
    CHECK(c.link.incast_mb_per_s[1] == 8 && c.link.gpus == 2 && c.link.evidence == SPW_EVIDENCE_MEASURED);
    CHECK_OK(spw_cluster_parse("c.yaml", none, strlen(none), &c));
    CHECK(c.link.points == 0 && c.link.gpus == 0);
    expect(
        LINKS("[1024]", INCAST "  source: here\n  gpus: 2\n"),
        "c.yaml:11: 'link.latency_ns' has 2 elements, 'link.message_bytes' 1; the lists are one length, an "
        "element a point");
    expect(LINKS("[4096, 4096]", INCAST "  source: here\n  gpus: 2\n"),
           "c.yaml:11: 'link.message_bytes' goes from 4096 to 4096 at point 2; it must rise");
    expect(LINKS("[1024, 4096]", INCAST "  gpus: 2\n"),
           "c.yaml:11: 'link.source' is missing; say where the points were measured");
    expect(LINKS("[1024, 4096]", INCAST "  source: here\n"),
           "c.yaml:11: 'link.gpus' is 0; points are measured between at least 2");
}

/* A preset with another number of nodes; everything else is the preset's. */
static void test_other_nodes(void) {
    spw_cluster large, preset;
    CHECK_OK(spw_cluster_read("h200-32x8", NULL, &large));
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &preset));
    CHECK(large.nodes == 32 && large.gpus_per_node == 8 && strcmp(large.name, "h200-32x8") == 0);
    CHECK(large.hbm_gib.value == preset.hbm_gib.value && large.link.points == preset.link.points);
    CHECK_OK(spw_cluster_read("mi355x-2x8", NULL, &large));
    CHECK(large.nodes == 2);
    CHECK_OK(spw_cluster_read("h200:8x32", NULL, &large)); /* GPUs a node first */
    CHECK(large.nodes == 32 && large.gpus_per_node == 8 && strcmp(large.name, "h200-32x8") == 0);
    CHECK_OK(spw_cluster_read("gb200:72x4", NULL, &large));
    CHECK(large.nodes == 4 && large.gpus_per_node == 72 && strcmp(large.name, "gb200-4x72") == 0);
    CHECK_OK(spw_cluster_read("mi325x", NULL, &large));
    CHECK(large.nodes == 8 && strcmp(large.name, "mi325x-8x8") == 0);
    CHECK_OK(spw_cluster_read("h200-32x4", NULL, &large)); /* half of a node's GPUs */
    CHECK(large.nodes == 32 && large.gpus_per_node == 4);
    char words[SPW_CLUSTER_WORDS]; /* whatever the notation */
    CHECK(large.preset_node == 8 && strcmp(spw_cluster_words(&large, words), "32 nodes of 4 GPUs") == 0);
    CHECK_OK(spw_cluster_read("h200:4x32", NULL, &large));
    CHECK(strcmp(spw_cluster_words(&large, words), "32 nodes of 4 GPUs") == 0);
    CHECK(strcmp(spw_cluster_name_words("h200-32x8", words), "32 nodes of 8 GPUs") == 0);
    CHECK(strcmp(spw_cluster_name_words("h200-1x1", words), "1 node of 1 GPU") == 0);
    CHECK(spw_cluster_name_words("mine", words)[0] == '\0' &&
          spw_cluster_name_words("h200-x", words)[0] == '\0');
    CHECK_STATUS(spw_cluster_read("h200:16x4", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "has 16 GPUs a node, and a node of 'h200-8x8' has 8; write 8 or fewer") !=
          NULL);
    CHECK_STATUS(spw_cluster_read("tpu-v5p:8x4", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "4 or fewer, as in tpu-v5p:4x8 ") != NULL);
    CHECK_STATUS(spw_cluster_read("h1000:8x4", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "did you mean 'h100:8x4'? ") != NULL);
    CHECK_STATUS(spw_cluster_read("GB200-nvl27:64x2", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "did you mean 'gb200-nvl72:64x2'? ") != NULL);
    static const char *const wrong[] = {"h200:8x0",  "h200:8", "h200:", "h200:8x4x2",
                                        "h200: 8x4", ":8x4",   "h200-8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(spw_cluster_read(wrong[i], NULL, &large), SPW_ECONFIG);
    CHECK_STATUS(spw_cluster_read("h200:8x0", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "GPUs of a node and nodes, each 1 to 65536") != NULL);
    CHECK_STATUS(spw_cluster_read("h200-0x8", NULL, &large), SPW_ECONFIG);
    CHECK_STATUS(spw_cluster_read("h2-8x8", NULL, &large), SPW_ECONFIG);
    CHECK_STATUS(spw_cluster_read("a800:8x4", NULL, &large), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "a preset's name (a100, b200,") != NULL);
    CHECK(strstr(spw_last_error(), "h800, mi300x") != NULL);
    CHECK_STATUS(spw_cluster_read("h200-99999999999999999999x8", NULL, &large), SPW_ECONFIG);
}

static void test_resize(void) {
    spw_cluster c;
    CHECK_OK(spw_cluster_read("h200", NULL, &c));
    CHECK_OK(spw_cluster_resize(&c, 256));
    CHECK(c.nodes == 32 && c.gpus_per_node == 8 && strcmp(c.name, "h200-32x8") == 0);
    CHECK_OK(spw_cluster_resize(&c, 4));
    CHECK(c.nodes == 1 && c.gpus_per_node == 4 && strcmp(c.name, "h200-1x4") == 0);
    CHECK_STATUS(spw_cluster_resize(&c, 12), SPW_ECONFIG); /* a part of a node is no node */
    CHECK_OK(spw_cluster_resize(&c, 16));
    CHECK(c.nodes == 2 && c.gpus_per_node == 8 && strcmp(c.name, "h200-2x8") == 0);
    CHECK_OK(spw_cluster_read("gb300", NULL, &c));
    CHECK_STATUS(spw_cluster_resize(&c, 128), SPW_ECONFIG);
    CHECK(strcmp(spw_last_error(),
                 "128 GPUs are no whole nodes of 72, as cluster 'gb300-8x72' has; take 72 or 144, or "
                 "use 64 of each node: --cluster gb300:64x2") == 0);
    CHECK_STATUS(spw_cluster_resize(&c, 72 * 65537), SPW_ECONFIG);
}

#define LEVELS(size, switches, port, more) \
    HEAD FIGURE(bf16_flops) REST "levels:\n  name: [leaf, spine]\n  size: " size "\n  switches: " switches \
                                 "\n  port_mb_per_s: " port "\n  latency_ns: [1, 20]\n" more
#define READ "  source: here\n"

/* 2 nodes of 4 GPUs, each node on 2 rails; a unit of the first level joins one node. */
static void test_levels(void) {
    spw_cluster c;
    const char *text = LEVELS("[1, 2]", "[2, 1]", "[1000000, 5]", READ), *none = HEAD FIGURE(bf16_flops) REST;
    CHECK_OK(spw_cluster_parse("c.yaml", none, strlen(none), &c));
    CHECK(c.levels.count == 0 && !spw_levels_are_several(&c) && spw_levels_rate(&c, 0) == 1e12);
    CHECK(spw_levels_latency(&c, 0) == 0.0);
    CHECK_OK(spw_cluster_parse("c.yaml", text, strlen(text), &c));
    CHECK(c.levels.count == 2 && spw_levels_are_several(&c) && strcmp(c.levels.name[1], "spine") == 0);
    CHECK(spw_levels_rate(&c, 0) == 1e12 && spw_levels_rate(&c, 1) == 5e6);
    CHECK(spw_levels_latency(&c, 0) == 1e-9 && spw_levels_latency(&c, 1) > 20.9e-9);
    CHECK(spw_levels_members(&c, 0) == 8 && spw_levels_members(&c, 1) == 4);
    for (size_t gpu = 0; gpu < 8; gpu++) {
        static const size_t unit[] = {0, 1, 0, 1, 2, 3, 2, 3};
        CHECK(spw_levels_member(&c, 0, gpu) == gpu && spw_levels_member(&c, 1, gpu) == unit[gpu]);
    }
    expect(LEVELS("[2]", "[2, 1]", "[1000000, 5]", READ),
           "c.yaml:11: 'levels.size' has 1 elements, 'levels.name' 2; the lists are one length, an element a "
           "level");
    expect(LEVELS("[1, 2]", "[2, 1]", "[1000000, 5]", ""),
           "c.yaml:11: 'levels.source' is missing; say where the levels were read");
    expect(LEVELS("[2, 2]", "[2, 1]", "[1000000, 5]", READ),
           "c.yaml:11: the product of 'levels.size' is at least 4, and the cluster has 2 nodes of 4 GPUs; it "
           "must be 2");
    expect(
        LEVELS("[1, 1]", "[2, 1]", "[1000000, 5]", READ),
        "c.yaml:11: the product of 'levels.size' is 1, and the cluster has 2 nodes of 4 GPUs; it must be 2");
    expect(LEVELS("[1, 2]", "[2, 1]", "[999, 5]", READ),
           "c.yaml:11: 'levels.port_mb_per_s' begins with 999; the ports of the first level are the NICs, "
           "1000000 by "
           "'nic_bytes_per_s'");
    expect(LEVELS("[1, 2]", "[3, 1]", "[1000000, 5]", READ),
           "c.yaml:11: 'levels.switches' has 3 at level 'leaf', which does not divide the 4 GPUs of a node");
    expect(LEVELS("[1, 2]", "[2, 2]", "[1000000, 5]", READ),
           "c.yaml:11: 'levels.switches' ends with 2; the last level joins all rails, so it is 1");
    expect(LEVELS("[1, 2]", "[2, 1]", "[1000000, 0]", READ),
           "c.yaml:15: 'levels.port_mb_per_s' is '0'; it must be a whole number in [1, 1000000000] or a list "
           "of 1 to 6 "
           "of them (10^6 bytes/s one way of a member: of a NIC, then of all uplinks of a unit of the level "
           "below)");
}

/* Another size keeps the lower levels; rails of one unit still meet above it. */
static void test_resized_levels(void) {
    spw_cluster c;
    CHECK_OK(spw_cluster_read("h200-rail", NULL, &c));
    CHECK(c.nodes * c.gpus_per_node == 1024 && c.levels.count == 2);
    CHECK_OK(spw_cluster_resize(&c, 2048));
    CHECK(c.levels.count == 2 && c.levels.size[0] == 32 && c.levels.size[1] == 8);
    CHECK_OK(spw_cluster_resize(&c, 128));
    CHECK(c.levels.count == 2 && c.levels.size[0] == 16 && c.levels.size[1] == 1);
    CHECK_OK(spw_cluster_resize(&c, 8));
    CHECK(c.levels.count == 0);
    CHECK_STATUS(spw_cluster_read("h200-rail-48x8", NULL, &c), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "48 nodes are no whole units of level 'leaf'") != NULL);
    CHECK_STATUS(spw_cluster_read("h200-rail-32x4", NULL, &c), SPW_ECONFIG);
    CHECK_OK(spw_cluster_read("gb300-nvl72", NULL, &c));
    CHECK(c.nodes == 16 && c.levels.count == 2);
}

/* What a preset says of its uplinks in words: as many bytes/s up as down, or 16 ports up for 32 down. */
static void test_uplinks(void) {
    static const struct {
        const char *name;
        size_t down_over_up;
    } presets[] = {{"gb200-nvl72-16x72", 1}, {"gb300-nvl72-16x72", 1}, {"h200-rail-128x8", 2}};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        spw_cluster c;
        CHECK_OK(spw_cluster_read(presets[i].name, NULL, &c));
        const spw_levels *l = &c.levels;
        CHECK(l->count == 2 && (double)l->port_mb_per_s[0] * 1e6 == c.nic_bytes_per_s.value);
        const size_t below =
            l->size[0] * c.gpus_per_node / l->switches[0]; /* GPUs of a unit on one of its rails */
        CHECK(l->port_mb_per_s[1] * presets[i].down_over_up == below * l->port_mb_per_s[0]);
    }
}

/* Before anything else has read it: a preset is parsed once. */
static void test_memory(void) {
    spw_cluster c;
    spw_alloc_fail_after(0);
    CHECK_STATUS(spw_cluster_read("mi355x-8x8", NULL, &c), SPW_ENOMEM);
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &c));
}

int main(void) {
    test_memory();
    test_presets();
    test_figures();
    test_parse();
    test_points();
    test_exchange();
    test_links();
    test_kernels();
    test_price();
    test_other_nodes();
    test_resize();
    test_levels();
    test_resized_levels();
    test_uplinks();
    return check_done();
}
