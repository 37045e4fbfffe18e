/* The time of compiled programs: work counted with pencil and paper, loads against drawn tokens, one knob at a time,
 * then stack files. */
#include "sim/routing/counts.h"
#include "sim/schemes/scheme.h"
#include "sim/time/compiled/compiled_time.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/calibrate/calibrate_time.h"
#include "sim/time/compiled/compiled_work.h"
#include "sim/time/exchange_rate.h"
#include "sim/time/routing_load.h"
#include "tests/unit/compiled_sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static spw_job job;
static spw_time_stack stack;

/* --- Counted work --- */

/* DeepSeek-V3, one sequence of 4096 a GPU, expert 8 x fsdp 8. D = 256 x 160 = 40960 slots at factor 1.25. */
static void test_work(void) {
    const spw_scheme dense = scheme_of("dense:capacity_factor=1.25"), gmm = scheme_of("gmm"),
                     scatter = scheme_of("gmm-deepep:fan_in=scatter2"), ragged = scheme_of("ragged");
    spw_routing_layer load = load_of(&job, "dense:capacity_factor=1.25", 1, 1.0);
    spw_compiled_work w;
    CHECK(load.rows == 40960.0 && load.tiled_rows == 40960.0 && load.link_rows == 7 * 5120.0 &&
          load.nic_rows == 0.0);
    const spw_compiled_load loads = {&load, 1, 1};
    spw_compiled_cut cut;
    CHECK_OK(spw_compiled_cut_of(&job, 1, &cut));
    spw_compiled_work_count(&job, &dense, dense.type->compiled.list(&dense), &cut, &loads, &w);
    near(w.experts, 58 * 4 * 6.0 * 40960 * 7168 * 2048, 1e-12, "experts of dense");
    near(w.masks, 58 * 6 * 2.0 * 4096 * 40960 * 7168, 1e-12, "dispatch and combine einsums");
    near(w.model.projections, 4 * 2.0 * 4096 * 61 * 187107328, 1e-3, "projections");
    near(w.model.attention, 4.5 * 61 * 4096.0 * 4096 * 128 * 320, 1e-12, "scores");
    near(w.model.dense_ffn, 4 * 6.0 * 4096 * 3 * 7168 * 18432, 1e-12, "dense FFN");
    near(w.model.shared_expert, 4 * 6.0 * 4096 * 58 * 7168 * 2048, 1e-12, "shared expert");
    near(w.model.router, 4 * 2.0 * 4096 * 58 * 7168 * 256, 1e-12, "router");
    near(w.model.head, 3 * 2.0 * 4096 * 7168 * 129280, 1e-12, "head");
    near(w.mask_bytes, 20 * 58 * 4096.0 * 40960 * 2, 1e-12, "masks");
    near(w.row_bytes, 58 * 2.0 * 40960 * (20 * 7168 + 11 * 2048), 1e-12, "rows of dense");
    CHECK(!w.library_products && w.scatter_bytes == 0.0);
    /* gathered over fsdp: 7/8 of 3 x 32 x 7168 x 2048 x 2 B a layer, twice; the rest over 64 GPUs, an eighth a NIC */
    const double routed = 58 * 3 * 32.0 * 7168 * 2048 * 2 * 7 / 8,
                 others = 671.0264e9 - 58 * 3 * 256.0 * 7168 * 2048;
    near(w.gathers.nic_bytes, 2 * routed + 2 * others * 2 * 63 / 64 / 8, 1e-4, "gathers");
    near(w.scatters.nic_bytes, w.gathers.nic_bytes / 2, 1e-12, "scatters");
    near(w.gathers.hops, 2 * (3 * 58 * 7 + 61 * 63), 1e-12, "hops");
    near(w.model.optimizer_bytes, 671.0264e9 / 64 * 14, 1e-4, "optimizer");
    CHECK(w.gathers.link_bytes == 0.0);
    /* gmm: 4096 x 8 rows at every rank, W = 64 T rows in the buffer */
    load = load_of(&job, "gmm", 1, 1.0);
    CHECK(load.rows == 32768.0 && load.tiled_rows == 32768.0 + 32 * 128 && load.link_rows == 28672.0);
    spw_compiled_work_count(&job, &gmm, gmm.type->compiled.list(&gmm), &cut, &loads, &w);
    near(w.experts, 58 * 4 * 6.0 * (32768 + 4096) * 7168 * 2048, 1e-12, "experts of gmm");
    near(w.row_bytes, 58 * 2.0 * (64.0 * 4096 * (26 * 7168 + 11 * 2048) + 14.0 * 32768 * 7168), 1e-12,
         "rows of gmm");
    CHECK(w.library_products && w.masks == 0.0 && w.mask_bytes == 0.0);
    load = load_of(&job, "gmm-deepep", 1, 1.0);
    spw_compiled_work_count(&job, &scatter, scatter.type->compiled.list(&scatter), &cut, &loads, &w);
    near(w.scatter_bytes, 2 * 58 * 64.0 * 4096 * 7168 * 2, 1e-12, "two scatters of W rows");
    spw_compiled_work_count(&job, &ragged, ragged.type->compiled.list(&ragged), &cut, &loads, &w);
    near(w.experts, 58 * 4 * 6.0 * 32 * 64 * 4096 * 7168 * 2048, 1e-12, "every row with every expert");
    CHECK(!w.library_products);
}

/* --- Loads --- */

/* Tokens that draw top_k different experts: how many want a rank. */
static double drawn(size_t ranks, size_t experts, size_t top_k, size_t tokens) {
    size_t hits = 0, chosen[16];
    srand(7);
    for (size_t t = 0; t < tokens; t++) {
        bool wanted = false;
        for (size_t k = 0; k < top_k;) {
            const size_t x = (size_t)rand() % experts;
            bool again = false;
            for (size_t j = 0; j < k; j++) again = again || chosen[j] == x;
            if (again) continue;
            chosen[k++] = x;
            wanted = wanted || x / (experts / ranks) == 0;
        }
        hits += wanted;
    }
    return (double)hits / (double)tokens;
}

static void test_loads(void) {
    spw_job two_nodes = job;
    two_nodes.expert = 16;
    two_nodes.fsdp = 4;
    spw_routing_layer load = load_of(&job, "gmm-deepep", 2, 1.0);
    near(load.link_rows, 7 * 8192 * drawn(8, 256, 8, 200000), 0.01, "tokens that want another rank");
    load = load_of(&two_nodes, "gmm-deepep", 2, 1.0);
    near(load.nic_rows, 8192 * drawn(2, 256, 8, 200000), 0.01, "tokens that want the other node");
    load = load_of(&two_nodes, "gmm", 1, 1.0);
    CHECK(load.link_rows == 7 * 2048.0 && load.nic_rows == 8 * 2048.0);
    /* twice the mean: twice the rows, twice what comes in, less the rank's own */
    load = load_of(&job, "gmm", 1, 2.0);
    CHECK(load.rows == 65536.0 && load.link_rows == 7 * 8192.0);
    load = load_of(&job, "dense:capacity_factor=2", 1, 2.0);
    CHECK(load.rows == 65536.0 && load.link_rows == 7 * 8192.0);
    load = load_of(&job, "dense:capacity_factor=2", 1, 1.0);
    CHECK(load.rows == 65536.0 && load.link_rows == 7 * 8192.0);
    /* 16 tokens: 8 x 16 x 8 choices of 256 experts are 4 an expert, in one tile unless there is none of them */
    spw_job few = job;
    few.sequence_length = 16;
    load = load_of(&few, "gmm", 1, 1.0);
    near(load.tiled_rows, 32 * 256 * (1.0 - exp(-4.0)), 1e-9, "tiles of a few rows");
    const spw_scheme gmm = scheme_of("gmm");
    CHECK_STATUS(stated(&job, &gmm, 1, 8.5, &load), SPW_ECONFIG);
    CHECK_STATUS(stated(&job, &gmm, 1, 0.9, &load), SPW_ECONFIG);
    CHECK_STATUS(stated(&job, &gmm, 1, NAN, &load), SPW_ECONFIG);
    for (int n = 0; n < 8; n++) {
        spw_alloc_fail_after(n);
        spw_status status = stated(&job, &gmm, 1, 1.0, &load);
        spw_alloc_fail_after(-1);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
    }
}

/* Two ranks, four experts, 600 and 200 choices: tiles by expert, the worst rank of each kind. */
static void test_raise(void) {
    uint32_t routed[] = {300, 1, 0, 299, 100, 0, 1, 99}, limit[] = {300, 1, 0, 299, 100, 0, 1, 99};
    uint64_t rows[] = {401, 399}, dropped[] = {0, 0};
    const uint32_t first[] = {301, 299}, second[] = {100, 100}, *wire[] = {first, second};
    spw_counts counts = {.placement = {2, 2, 8, 4}, .sequences = 1, .group_nodes = 1, .routed = routed};
    const spw_flow flow = {.wire = wire, .rows = rows, .limit = limit, .dropped = dropped};
    const spw_layer_shape shape = {.ranks = 2,
                                   .experts = 4,
                                   .experts_per_rank = 2,
                                   .top_k = 2,
                                   .hidden = 10,
                                   .ffn = 4,
                                   .sequences = 1,
                                   .sequence_length = 300,
                                   .tokens = 300,
                                   .assignments = 600,
                                   .worst_rows = 1200,
                                   .element_bytes = 2};
    const spw_scheme gmm = scheme_of("gmm");
    const spw_traffic traffic = {.max_intra_bytes = 5980, .max_inter_bytes = 40};
    spw_routing_layer load = {0.0, 0.0, 400.0, 0.0};
    spw_routing_load_raise(&(spw_routed_group){&gmm, &shape, &counts, 0}, &flow, &traffic, &load);
    CHECK(load.rows == 401.0 && load.tiled_rows == 512.0 + 256.0); /* 400 and 1 rows; 1 and 398: 256 + 512 */
    CHECK(load.link_rows == 400.0 && load.nic_rows == 2.0);
    limit[0] = 0; /* 100 and 1 rows are left at rank 0 */
    load = (spw_routing_layer){.rows = 0.0};
    rows[0] = 101;
    limit[3] = limit[7] = 0; /* 1 and none at rank 1: an empty expert has no tile */
    rows[1] = 1;
    spw_routing_load_raise(&(spw_routed_group){&gmm, &shape, &counts, 0}, &flow, &traffic, &load);
    CHECK(load.rows == 101.0 && load.tiled_rows == 512.0 && load.link_rows == 299.0);
}

/* --- One knob at a time --- */

static void test_knobs(void) {
    static const char *const schemes[] = {"dense:capacity_factor=1.25", "gmm", "gmm-deepep", "ring"};
    for (size_t i = 0; i < 4; i++) {
        const spw_timeline base = predict(&job, &stack, schemes[i], 4, 1.0);
        spw_job other = job;
        spw_time_stack with = stack;
        other.cluster.nic_bytes_per_s.value *= 2.0;
        spw_timeline t = predict(&other, &stack, schemes[i], 4, 1.0);
        expect_moved(&base, &t, "weight_gathers gradient_scatters");
        const double latency = 2 * (3 * 58 * 7 + 61 * 63) * stack.latency_s.value;
        near(seconds(&t, "weight_gathers") - latency, (seconds(&base, "weight_gathers") - latency) / 2, 1e-9,
             "half the time on the NIC");
        CHECK(t.step_s < base.step_s);
        with.latency_s.value /= 2.0;
        t = predict(&job, &with, schemes[i], 4, 1.0);
        expect_moved(&base, &t, "exchanges weight_gathers gradient_scatters");
        near(seconds(&base, "weight_gathers") - seconds(&t, "weight_gathers"), latency / 2, 1e-9,
             "half the hops");
        with = stack;
        with.hidden_share.value = 0.0;
        t = predict(&job, &with, schemes[i], 4, 1.0);
        expect_moved(&base, &t, "");
        double hidden = 0.0;
        for (size_t c = 0; c < base.components; c++)
            hidden += base.component[c].seconds - base.component[c].exposed_s;
        near(t.step_s, base.step_s + hidden, 1e-12, "nothing hides");
        CHECK(hidden > 1.0);
        other = job;
        other.cluster.hbm_bytes_per_s.value *= 2.0;
        t = predict(&other, &stack, schemes[i], 4, 1.0);
        expect_moved(&base, &t,
                     i == 0 ? "elementwise row_moves masks optimizer" : "elementwise row_moves optimizer");
        t = predict(&job, &stack, schemes[i], 4, 1.5);
        expect_moved(&base, &t,
                     i == 0   ? ""                /* slots are slots */
                     : i == 3 ? "expert_products" /* all tokens go everywhere anyway */
                              : "expert_products exchanges");
        CHECK(i == 0 ? t.step_s == base.step_s : t.step_s > base.step_s);
    }
}

/* The step is the sum of what is exposed; stragglers add up layer by layer. */
static void test_sums(void) {
    const spw_scheme gmm = scheme_of("gmm");
    const spw_routing_layer a = load_of(&job, "gmm", 2, 1.0), b = load_of(&job, "gmm", 2, 2.0),
                            both[] = {a, b};
    spw_time_request request = {&stack, &job, &gmm, 2, both, 2, 0.0};
    spw_timeline t, ta = predict(&job, &stack, "gmm", 2, 1.0), tb = predict(&job, &stack, "gmm", 2, 2.0);
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    near(seconds(&t, "expert_products"),
         (seconds(&ta, "expert_products") + seconds(&tb, "expert_products")) / 2, 1e-12, "29 layers each");
    near(seconds(&t, "exchanges"), (seconds(&ta, "exchanges") + seconds(&tb, "exchanges")) / 2, 1e-12,
         "29 each");
    double sum = 0.0;
    for (size_t i = 0; i < t.components; i++) {
        sum += t.component[i].exposed_s;
        CHECK(t.component[i].exposed_s >= 0.0 && t.component[i].exposed_s <= t.component[i].seconds);
    }
    near(t.step_s, sum, 1e-12, "step");
    near(t.tokens_per_s_per_gpu, 8192 / sum, 1e-12, "tokens/s");
    CHECK(t.low_s < t.step_s && t.step_s < t.high_s && t.outside[0] == '\0');
    request.input_s = 3.0;
    CHECK_OK(spw_compiled_time_predict(&request, &tb));
    expect_moved(&t, &tb, "input_wait");
    near(tb.step_s, t.step_s + 3.0, 1e-12, "waits for its input");
    request = (spw_time_request){&stack, &job, &gmm, 2, NULL, 0, 0.0};
    CHECK_OK(spw_compiled_time_predict(&request, &tb));
    expect_moved(&ta, &tb, "");
}

/* 8 stages: 7 of 63 turns are empty, as amd-agi/maxtext-slurm says of its runs. Behind a capacity empty turns take as long as
 * others; else their rows of zeros all go to one rank. */
static void test_pipeline(void) {
    static const char *const parts[] = {"shared_expert", "router", "mask_products", "row_moves", "masks"};
    static const char *const all[] = {"attention_projections", "attention", "elementwise"};
    spw_job staged = job;
    staged.fsdp = 1;
    staged.pipeline = 8;
    const spw_timeline t = predict(&staged, &stack, "dense:capacity_factor=1.25", 7, 1.0);
    double loop = seconds(&t, "expert_products") + seconds(&t, "exchanges");
    for (size_t i = 0; i < 5; i++) loop += seconds(&t, parts[i]);
    loop *= 56.0 / 58;
    for (size_t i = 0; i < 3; i++) loop += seconds(&t, all[i]) * 56 / 61;
    near(seconds(&t, "pipeline_bubble") / (seconds(&t, "pipeline_bubble") + loop), 7.0 / 63, 1e-9, "bubble");
    const double rate = stack.network_share.value * job.cluster.nic_bytes_per_s.value;
    near(seconds(&t, "pipeline_sends"), 63 * 4 * (28672.0 * 7168 * 2 / rate + stack.latency_s.value), 1e-9,
         "392 MiB four times a turn");
    CHECK(strstr(t.outside, "pipelines") != NULL && t.high_s / t.low_s > 1.2);
    /* a GPU works as much as without a pipeline, and gathers no experts */
    const spw_timeline whole = predict(&job, &stack, "dense:capacity_factor=1.25", 7, 1.0);
    near(seconds(&t, "expert_products"), seconds(&whole, "expert_products"), 1e-9, "the same work");
    CHECK(seconds(&t, "weight_gathers") < 0.3 * seconds(&whole, "weight_gathers"));
    /* 7 turns on zeros: eight times the rows of a balanced rank, in products and exchanges */
    const spw_timeline deepep = predict(&staged, &stack, "gmm-deepep", 7, 1.0);
    CHECK(seconds(&deepep, "pipeline_bubble") > 7.0 / 58 * 8 * seconds(&deepep, "expert_products"));
}

/* Gradient accumulation: work of a micro-batch, and its gathers, as often as there are micro-batches; one optimizer. */
static void test_accumulation(void) {
    spw_job parts = job;
    parts.micro_batches = 4;
    const spw_timeline once = predict(&job, &stack, "gmm", 2, 1.0),
                       t = predict(&parts, &stack, "gmm", 8, 1.0);
    near(t.step_s, 4.0 * (once.step_s - seconds(&once, "optimizer")) + seconds(&once, "optimizer"), 1e-9,
         "parts");
    near(seconds(&t, "weight_gathers"), 4.0 * seconds(&once, "weight_gathers"), 1e-9, "gathers");
    CHECK(strstr(t.outside, "micro-batches not in the fitted tables") != NULL);
}

/* --- What is covered --- */

static void test_outside(void) {
    const spw_scheme gmm = scheme_of("gmm");
    spw_job other = job;
    spw_time_request request = {&stack, &other, &gmm, 2, NULL, 0, 0.0};
    spw_timeline t = predict(&job, &stack, "gmm", 17, 1.0);
    CHECK(strcmp(t.outside, "sequences other than 1 to 16") == 0);
    t = predict(&job, &stack, "ring", 2, 1.0);
    CHECK(strcmp(t.outside, "ring not in the fitted tables") == 0);
    t = predict(&job, &stack, "dense:capacity_factor=1.25,layout=peeled", 2, 1.0);
    CHECK(strcmp(t.outside, "dense_peeled not in the fitted tables") == 0);
    t = predict(&job, &stack, "ragged", 2, 1.0);
    CHECK(strcmp(t.outside, "ragged_dot not in the fitted tables") == 0);
    t = predict(&job, &stack, "dense:capacity_factor=1.25,layout=gathered", 2, 1.0);
    CHECK(strcmp(t.outside, "dense_gathered not in the fitted tables") == 0 &&
          seconds(&t, "exchanges") == 0.0);
    other.remat = SPW_REMAT_SAVE_OUT_PROJ;
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(strcmp(t.outside, "remat save_out_proj: timed as full") == 0);
    other.remat = SPW_REMAT_NONE;
    CHECK_STATUS(spw_compiled_time_predict(&request, &t), SPW_ECONFIG);
    other = job;
    other.tensor = 2;
    other.remat = SPW_REMAT_SAVE_OUT_PROJ;
    CHECK_STATUS(spw_compiled_time_predict(&request, &t), SPW_ECONFIG);
    other.remat = SPW_REMAT_FULL;
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(strcmp(t.outside, "MaxText's mesh with tensor 2 and context 1, of which no run is known") == 0);
    other = job;
    CHECK_OK(spw_model_read("kimi-k2", NULL, &other.model));
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(strcmp(t.outside, "model not in the fitted tables") == 0);
    other = job;
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &other.cluster));
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(strcmp(t.outside, "cluster not in the fitted tables") == 0);
    other.expert = 4, other.fsdp = 16;
    request.sequences = 17;
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(strcmp(t.outside, "fsdp sizes other than 8 4; cluster not in the fitted tables; expert-parallel "
                            "sizes other than 8 16; "
                            "sequences other than 1 to 16") == 0);
    other.expert = 16, other.fsdp = 4, other.cluster = job.cluster;
    request.sequences = 2;
    CHECK_OK(spw_compiled_time_predict(&request, &t));
    CHECK(t.outside[0] == '\0');
}

/* --- Measured rates, stack files --- */

static void test_rates(void) {
    const spw_cluster *c = &job.cluster;
    CHECK(spw_exchange_rate(c, false, 1.0) == 142e9 && spw_exchange_rate(c, true, 1e12) == 420e9);
    near(spw_exchange_rate(c, false, 155460000.0), 345e9, 1e-12, "the point itself");
    near(spw_exchange_rate(c, true, sqrt(4858000.0 * 155460000.0)), 348e9, 1e-9, "half way in the logarithm");
    near(spw_exchange_fill(c, true, 4858000.0), 276.0 / 420.0, 1e-12, "a small message");
    CHECK(spw_exchange_fill(c, false, 1e15) == 1.0);
    spw_cluster none;
    CHECK_OK(spw_cluster_read("b200-8x8", NULL, &none));
    CHECK(isnan(spw_exchange_rate(&none, false, 1e6)) && spw_exchange_fill(&none, false, 1e6) == 1.0);
}

/* At most thirteen coefficients are fitted for all stacks together: what is fitted in two of them is one number. */
static void test_stacks(const char *scratch) {
    double values[64];
    size_t fitted = 0, stacks = 0;
    char path[512];
    for (const char *const *name = spw_time_stack_presets(); *name != NULL; name++, stacks++) {
        spw_time_stack s, again;
        CHECK_OK(spw_time_stack_read(*name, NULL, &s));
        CHECK(strcmp(s.name, *name) == 0);
        for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
            const spw_coefficient *k = spw_time_coefficient(&s, i);
            bool known = false;
            CHECK(strlen(k->source) > 10);
            if (k->evidence != SPW_EVIDENCE_FITTED) continue;
            CHECK(k->uncertainty > 0.0 && k->uncertainty < 0.2 * k->value);
            for (size_t v = 0; v < fitted; v++) known = known || values[v] == k->value;
            if (!known && fitted < 64) values[fitted++] = k->value;
        }
        (void)snprintf(path, sizeof path, "%s/time_stack.yaml", scratch);
        spw_file_forget_reads();
        CHECK_OK(spw_time_stack_write(&s, path));
        CHECK_OK(spw_time_stack_read(path, NULL, &again));
        CHECK(strcmp(s.schemes, again.schemes) == 0 && s.sequences_max == again.sequences_max);
        for (size_t i = 0; i < SPW_TIME_ROWS; i++) {
            const spw_coefficient *a = spw_time_coefficient(&s, i), *b = spw_time_coefficient(&again, i);
            CHECK(a->value == b->value && a->evidence == b->evidence && strcmp(a->source, b->source) == 0);
        }
        CHECK(s.latency_s.value == again.latency_s.value && s.half_width.value == again.half_width.value);
    }
    CHECK(stacks == 3 && fitted > 0 && fitted <= 13);
    spw_time_stack s;
    CHECK_STATUS(spw_time_stack_read("no-such-stack", NULL, &s), SPW_ECONFIG);
    CHECK_STATUS(spw_time_stack_write(&stack, "/nowhere/at/all.yaml"), SPW_EIO);
    s = stack;
    s.dense_share.value = 1.5; /* of the peak */
    spw_file_forget_reads();
    CHECK_OK(spw_time_stack_write(&s, path));
    CHECK_STATUS(spw_time_stack_read(path, NULL, &s), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "'dense_share' is 1.5; it must be in [0.01, 1]") != NULL);
}

static void test_timeline(void) {
    spw_timeline t;
    spw_timeline_clear(&t);
    for (int i = 0; i < SPW_TIMELINE_COMPONENTS; i++)
        CHECK_OK(spw_timeline_add(&t, i == 3 ? "third" : "x", "help", SPW_STREAM_COMPUTE, 2.0, 0.5));
    CHECK_STATUS(spw_timeline_add(&t, "one more", "help", SPW_STREAM_HOST, 1.0, 1.0), SPW_EARG);
    spw_timeline_finish(&t, SPW_TIMELINE_COMPONENTS);
    CHECK(t.step_s == SPW_TIMELINE_COMPONENTS * 0.5 && t.tokens_per_s_per_gpu == 2.0);
    CHECK(spw_timeline_find(&t, "third") == &t.component[3] && spw_timeline_find(&t, "no") == NULL);
    CHECK(strcmp(spw_stream_name(SPW_STREAM_COLLECTIVE), "collective") == 0);
}

/* Every early allocation of a fit fails once: nothing leaks, nothing but memory is blamed. */
static void test_fit_memory(const char *table) {
    const char *const stacks[] = {"maxtext-rocm-2026-04"};
    const spw_calibrate_time_request request = {&table, 1, stacks, 1, NULL, 0};
    spw_time_calibration c;
    for (int n = 0; n < 40; n++) {
        spw_alloc_fail_after(n);
        CHECK_STATUS(spw_calibrate_time(&request, &c), SPW_ENOMEM);
    }
    spw_alloc_fail_after(-1);
    CHECK_OK(spw_calibrate_time(&request, &c));
    CHECK(c.runs == 53 && c.kernels == 0 && c.stacks == 1 && c.mape < 0.03);
    CHECK(c.stack[0].text_imbalance.evidence == SPW_EVIDENCE_ASSUMED); /* no real text in this table */
    CHECK(c.stack[0].dense_share.evidence == SPW_EVIDENCE_FITTED);
    /* What the fit has seen, as the columns of the table have it. */
    const spw_time_stack *s = &c.stack[0];
    CHECK(s->sequences_min == 1 && s->sequences_max == 16 && strcmp(s->sequence_lengths, "4096") == 0);
    CHECK(strcmp(s->expert_parallel, "8") == 0 && strcmp(s->fsdp, "8") == 0);
    CHECK(strcmp(s->models, "deepseek-v3") == 0 && strcmp(s->clusters, "mi355x-8x8") == 0);
    CHECK(strcmp(s->schemes, "dense gmm gmm_deepep") == 0);
    spw_time_calibration_close(&c);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    read_sample(&job, &stack);
    test_timeline();
    test_work();
    test_loads();
    test_raise();
    test_knobs();
    test_sums();
    test_pipeline();
    test_accumulation();
    test_outside();
    test_rates();
    test_stacks(argv[1]);
    test_fit_memory(argv[2]);
    return check_done();
}
