/* Keys of Megatron-Core's recipes: what goes with what, what hides in a step's time, by hand, and what says that it changes nothing. */
#include "sim/job/recipe/megatron_keys.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/memory/live/megatron_notes.h"
#include "sim/schemes/layer.h"
#include "sim/time/megatron/megatron_hidden.h"
#include "sim/time/megatron/offload_time.h"

#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void near(double got, double want, const char *what) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want) + 1e-15)) printf("%s: %.12g, not %.12g\n", what, got, want);
    CHECK(fabs(got - want) <= 1e-9 * fabs(want) + 1e-15);
}

static spw_status parse(const char *more, spw_job *out) {
    char text[1024];
    (void)snprintf(
        text, sizeof text,
        "model: deepseek-v2-lite\ncluster: h100-8x8\nbatch: {sequences_per_gpu: 2, sequence_length: 4096}\n"
        "precision: mixed\n%s",
        more);
    return spw_job_parse("keys.yaml", NULL, text, strlen(text), out);
}

static const char PLAIN[] = "parallel: {expert: 8, fsdp: 8}\noptimizer: distributed\n";

static void test_rules(void) {
    static const struct {
        const char *more, *said; /* "": taken */
    } cases[] = {
        {"optimizer: distributed\noverlap_grad_reduce: true\n", ""},
        {"optimizer: replicated\noverlap_grad_reduce: true\n", ""},
        {"optimizer: sharded\noverlap_grad_reduce: true\n", "use optimizer: distributed or replicated"},
        {"optimizer: distributed\noverlap_grad_reduce: true\noverlap_param_gather: true\n", ""},
        {"optimizer: distributed\noverlap_param_gather: true\n", "needs overlap_grad_reduce"},
        {"optimizer: replicated\noverlap_grad_reduce: true\noverlap_param_gather: true\n", "gathers nothing"},
        {"optimizer: distributed\nremat: none\ndelay_wgrad_compute: true\n",
         "needs overlap_moe_expert_parallel_comm"},
        {"optimizer: distributed\nremat: none\ndelay_wgrad_compute: true\noverlap_moe_expert_parallel_comm: "
         "true\n",
         ""},
        {"optimizer: distributed\nremat: none\nmoe_shared_expert_overlap: "
         "true\noverlap_moe_expert_parallel_comm: true\n",
         "leave one of them out"},
        {"optimizer: distributed\nremat: [shared_experts]\nmoe_shared_expert_overlap: true\n",
         "leave one of them out"},
        {"optimizer: distributed\nremat: full\nmoe_shared_expert_overlap: true\n", ""},
        {"optimizer: distributed\nremat: none\noffload_modules: [moe_act]\nuse_transformer_engine_op_fuser: "
         "true\n",
         "leave one of them out"},
        {"optimizer: distributed\nmegatron_core_release: core_r0.17.0\n", ""},
        {"optimizer: distributed\nmegatron_core_release: newest\n", "write it as 0.17"},
        {"optimizer: distributed\noptimizer_algorithm: muon\nmegatron_core_release: 0.18\n", ""},
        {"optimizer: distributed\noptimizer_algorithm: muon\nmegatron_core_release: 0.17.1\n",
         "muon_layout: ping_pong"},
        {"optimizer: distributed\noptimizer_algorithm: muon\nmuon_layout: ping_pong\nmegatron_core_release: "
         "0.17.1\n",
         ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[512];
        static spw_job job;
        (void)snprintf(more, sizeof more, "parallel: {expert: 8, fsdp: 8}\n%s", cases[i].more);
        const spw_status status = parse(more, &job);
        CHECK(status == (cases[i].said[0] == '\0' ? SPW_OK : SPW_ECONFIG));
        CHECK(strstr(status == SPW_OK ? "" : spw_last_error(), cases[i].said) != NULL);
        if (status != SPW_OK && cases[i].said[0] == '\0') printf("%s: %s\n", cases[i].more, spw_last_error());
    }
}

static void test_release(void) {
    size_t minor = 0;
    CHECK(spw_megatron_release_parse("0.17", &minor) && minor == 17);
    CHECK(spw_megatron_release_parse("core_v0.9.3", &minor) && minor == 9);
    CHECK(spw_megatron_release_parse("v0.18", &minor) && minor == 18);
    CHECK(!spw_megatron_release_parse("", &minor) && !spw_megatron_release_parse("17", &minor));
    CHECK(!spw_megatron_release_parse("0.17rc1", &minor) && !spw_megatron_release_parse("0.", &minor));
    CHECK(!spw_megatron_release_parse("0.4000", &minor));
}

static bool is_said(const spw_job *job, const char *text, const char *words) {
    const spw_scheme scheme = scheme_of(text);
    const char *note = NULL;
    bool said = false;
    for (size_t i = 0; (note = spw_megatron_note(job, &scheme, i)) != NULL; i++)
        said = said || strstr(note, words) != NULL;
    return said;
}

/* What leaves a figure as it is says so; nothing is said of keys that nobody gave. */
static void test_notes(void) {
    static spw_job job;
    CHECK_OK(parse(PLAIN, &job));
    CHECK(!is_said(&job, "megatron-alltoall", ""));
    job.megatron.overlap_gradients = true;
    CHECK(is_said(&job, "megatron-alltoall", "overlap_grad_reduce leaves memory"));
    job.megatron.overlap_shared = true;
    CHECK(!is_said(&job, "megatron-alltoall", "moe_shared_expert_overlap"));
    job.model.shared_ffn = 0;
    CHECK(is_said(&job, "megatron-alltoall", "moe_shared_expert_overlap changes nothing"));
    job.megatron.permute = SPW_FUSION_ON;
    CHECK(is_said(&job, "megatron-alltoall", "moe_permute_fusion leaves memory"));
    CHECK(is_said(&job, "megatron-flex:backend=hybridep", "moe_permute_fusion changes nothing"));
    job.megatron.fused_experts = true;
    CHECK(is_said(&job, "megatron-alltoall", "op_fuser changes nothing"));
    job.precision.recipe = SPW_FP8_MXFP8;
    CHECK(is_said(&job, "megatron-alltoall", "op_fuser leaves memory"));
    /* with one GPU a parameter nothing is summed */
    CHECK_OK(spw_job_parse("alone.yaml", NULL,
                           "model: olmoe-1b-7b\ncluster: h100-1x1\nparallel: {expert: 1, fsdp: 1}\n"
                           "optimizer: distributed\nprecision: mixed\noverlap_grad_reduce: true\n"
                           "batch: {sequences_per_gpu: 1, sequence_length: 64}\n",
                           strlen("model: olmoe-1b-7b\ncluster: h100-1x1\nparallel: {expert: 1, fsdp: 1}\n"
                                  "optimizer: distributed\nprecision: mixed\noverlap_grad_reduce: true\n"
                                  "batch: {sequences_per_gpu: 1, sequence_length: 64}\n"),
                           &job));
    CHECK(is_said(&job, "megatron-alltoall", "overlap_grad_reduce changes nothing"));
}

static void test_schemes(void) {
    static spw_job job;
    CHECK_OK(parse(PLAIN, &job));
    const spw_scheme gather = scheme_of("megatron-allgather"), other = scheme_of("torchtitan");
    CHECK_OK(spw_footprint_check(&job, &other));
    job.megatron.router = SPW_FUSION_ON;
    CHECK_OK(spw_footprint_check(&job, &gather));
    CHECK_STATUS(spw_footprint_check(&job, &other), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "moe_router_fusion is a key of Megatron-Core's schemes") != NULL);
    job.megatron.overlap_shared = true;
    CHECK_STATUS(spw_footprint_check(&job, &gather), SPW_ECONFIG);
}

/* The 26 MoE layers of 2 shared experts of 1408 beside exchanges: all of them where a link is slow, as much as it takes where it is
 * fast. */
static void test_shared(void) {
    static const double rates[] = {1e9, 1e14};
    for (size_t i = 0; i < 2; i++) {
        static spw_job job;
        static spw_megatron_coefficients c;
        spw_megatron_load load[8];
        spw_timeline apart, beside;
        const spw_scheme scheme = scheme_of("megatron-alltoall");
        CHECK_OK(parse("parallel: {expert: 8, fsdp: 8}\noptimizer: distributed\nremat: none\n", &job));
        CHECK_OK(spw_megatron_coefficients_read("megatron-te-h100-2026-11", NULL, &c));
        c.exchange_bytes_per_s.value = rates[i];
        c.exchange_latency_s.value = 0.0;
        c.counts_gap_s.value = c.jitter_share.value = 0.0;
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_megatron_load_stated(&c, &point, 1.0, 1, load));
        const spw_megatron_job_request request = {&c, &point, load, 1, 1, 1};
        CHECK_OK(spw_megatron_job_predict(&request, &apart));
        job.megatron.overlap_shared = true;
        CHECK_OK(spw_megatron_job_predict(&request, &beside));
        const double shared = spw_timeline_find(&apart, "shared_expert")->seconds,
                     wire = spw_timeline_find(&apart, "exchanges")->seconds, hidden = i == 0 ? shared : wire;
        CHECK(i == 0 ? wire > 10.0 * shared : wire < 0.1 * shared);
        near(apart.step_s - beside.step_s, hidden, "shared experts hidden");
        near(spw_timeline_find(&beside, "shared_expert")->exposed_s, shared - hidden,
             "and what is left of them");
        /* the interval has them whole */
        CHECK(beside.high_s > apart.step_s);
        CHECK(strstr(beside.outside, "moe_shared_expert_overlap") != NULL);
        CHECK(strstr(apart.outside, "moe_shared_expert_overlap") == NULL);
    }
}

/* Its gradients are there beside the routed experts': 8192 tokens, 2 experts of 1408, 2048 wide, 2 bytes. */
static void test_shared_memory(void) {
    static spw_job job;
    static spw_footprint apart, beside;
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    CHECK_OK(parse(PLAIN, &job));
    const spw_point point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &apart));
    job.megatron.overlap_shared = true;
    CHECK_OK(spw_footprint_compute(&point, NULL, &beside));
    size_t found = 0;
    for (size_t i = 0; i < beside.components; i++) {
        if (strcmp(beside.component[i].name, "shared_expert_beside") != 0) continue;
        CHECK(beside.component[i].bytes == 8192u * (2u * 2816u + 2048u) * 2u);
        CHECK(beside.component[i].live[SPW_MOMENT_MOE_LAYER] && !beside.component[i].live[SPW_MOMENT_LOSS]);
        found++;
    }
    CHECK(found == 1 && beside.components == apart.components + 1);
}

/* HybridEP, M = 8192 x 6 rows of 2048 numbers, experts of 1408. What the experts keep is H + 3 F numbers a row. Gradients of weights at
 * once: most is there at the gradient of fc2's input, + H + F. Behind those of inputs: at SwiGLU's, + 2 F and a weight of 4 bytes. */
static void test_delayed(void) {
    static spw_job job;
    spw_live_set at_once, delayed;
    spw_layer layer;
    const spw_scheme scheme = scheme_of("megatron-flex:backend=hybridep");
    const uint64_t rows = 8192u * 6u;
    CHECK_OK(parse("parallel: {expert: 8, fsdp: 8}\noptimizer: distributed\nremat: none\n"
                   "overlap_moe_expert_parallel_comm: true\n",
                   &job));
    for (int later = 0; later < 2; later++) {
        job.megatron.delay_weight_gradients = later == 1;
        const spw_point point = spw_point_of(&job, &scheme, 2);
        const spw_rank_rows even = spw_balanced_rows(&scheme, &point.shape);
        CHECK(even.held == rows);
        CHECK_OK(spw_layer_build(&scheme, &point.shape, SPW_FLAVOUR_LIVE, &layer));
        *(later == 1 ? &delayed : &at_once) = spw_layer_live_set(&layer, &even);
        spw_layer_destroy(&layer);
    }
    CHECK(delayed.saved_bytes == at_once.saved_bytes);
    CHECK(delayed.backward_bytes - at_once.backward_bytes == rows * (2 * 1408 * 2 + 4));
}

/* expert_fc1 under mxfp8: memory is that of moe_act alone, and 33/32 bytes a number of fc1's input are copied each way. */
static void test_offload_stays(void) {
    static spw_job job;
    static spw_footprint f;
    static const spw_megatron_coefficients c = {.host_link_bytes_per_s = {.value = 55.2e9}};
    static const char *const modules[] = {"moe_act", "moe_act, expert_fc1"};
    uint64_t peak[2];
    double copies_s[2];
    const spw_scheme scheme = scheme_of("megatron-alltoall:align=32");
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        (void)snprintf(
            text, sizeof text,
            "model: deepseek-v2-lite\ncluster: b200-8x8\nbatch: {sequences_per_gpu: 2, sequence_length: "
            "4096}\n"
            "precision: {weights: bf16, gradients: fp32, optimizer: fp32, recipe: mxfp8}\nremat: none\n"
            "parallel: {expert: 8, fsdp: 8}\noptimizer: distributed\noffload_modules: [%s]\n",
            modules[i]);
        CHECK_OK(spw_job_parse("offload.yaml", NULL, text, strlen(text), &job));
        const spw_point point = spw_point_of(&job, &scheme, 2);
        CHECK_OK(spw_footprint_compute(&point, NULL, &f));
        peak[i] = spw_footprint_walked_peak(&f, &f.waiting, 0);
        CHECK_OK(spw_offload_layer_s(&c, &point, 0, &copies_s[i]));
        CHECK(spw_offload_stays(&job) == (i == 1));
    }
    CHECK(peak[0] == peak[1] && peak[0] > 0);
    /* 49152 rows of 2048 numbers over 8 experts a rank, 6144 each, a multiple of 32; 25 of 26 layers leave */
    near(copies_s[1] - copies_s[0], 49152.0 * 2048 * 33 / 32 / 55.2e9 * 25 / 26, "copies of fc1's input");
}

/* A stage's collectives by hand: 4 s of them, 2 micro-batches and 2 stages whose backward passes take 3 and 5 s. */
static void test_collectives(void) {
    static spw_job job;
    static const double forward_s[] = {1, 1, 2, 2}, backward_s[] = {3, 3, 5, 5};
    CHECK_OK(parse("parallel: {expert: 8, fsdp: 4, pipeline: 2}\noptimizer: distributed\n", &job));
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    const spw_point point = spw_point_of(&job, &scheme, 2);
    const spw_megatron_job_request request = {.point = &point};
    double forward[4], backward[4];
    memcpy(forward, forward_s, sizeof forward);
    memcpy(backward, backward_s, sizeof backward);
    const spw_prediction p = {.q = &request,
                              .pipeline = {.stages = 2, .chunks = 1, .micro_batches = 2},
                              .forward_s = forward,
                              .backward_s = backward};
    near(spw_hidden_gradients_s(&p, 0, 4.0), 0.0, "nothing was said");
    job.megatron.overlap_gradients = job.megatron.overlap_gathers = true;
    /* The second stage has one bucket: nothing behind its own passes, 3 s behind the first stage's last one, 1 s of its first. */
    near(spw_hidden_gradients_s(&p, 1, 4.0), 3.0, "gradients of the second stage");
    near(spw_hidden_gathers_s(&p, 1, 4.0), 1.0, "weights of the second stage");
    near(spw_hidden_gathers_s(&p, 1, 0.5), 0.5, "no more than there is");
    /* The first: 14 layers, so some 2.9e9 parameters here over 40e6 are n buckets, of which the last hides behind nothing. */
    const double most = spw_hidden_gradients_s(&p, 0, 1.0);
    const double parts = 1.0 / (1.0 - most);
    near(parts, floor(parts + 0.5), "a whole number of buckets");
    CHECK(parts > 10.0 && parts < 100.0);
    near(spw_hidden_gradients_s(&p, 0, 100.0), 3.0, "no more than the pass");
}

/* Kernels of PyTorch by hand: 8192 tokens of 2048 numbers. */
static void test_kernels(void) {
    static spw_job job;
    double share = 0.0;
    const spw_megatron_coefficients c = {.copy_bytes_per_s = {.value = 1e12},
                                         .unfused_router_bytes = {.value = 10.0},
                                         .scatter_bytes_per_s = {.value = 8.0},
                                         .index_add_bytes_per_s = {.value = 9.0},
                                         .unfused_unpermute_share = {.value = 0.25},
                                         .unfused_permute_share = {.value = 0.5}};
    CHECK_OK(parse("parallel: {expert: 8, fsdp: 8}\noptimizer: distributed\nremat: none\n", &job));
    const spw_scheme scheme = scheme_of("megatron-alltoall");
    const spw_point point = spw_point_of(&job, &scheme, 2);
    spw_megatron_coefficients said = c;
    near(spw_unfused_router_s(&c, &point, &share), 0.0, "auto");
    near(spw_unfused_rotation_s(&c, &point, &share), 0.0, "auto");
    job.megatron.router = job.megatron.rope = SPW_FUSION_OFF;
    near(spw_unfused_router_s(&c, &point, &share), 10.0 * 8192 * 2048 * 26 / 1e12, "26 routers");
    near(share, 1.0, "forward");
    /* 16 heads and one key of 64 rotated numbers, 27 layers, 10 + 8 passes of 2 bytes */
    near(spw_unfused_rotation_s(&c, &point, &share), 18.0 * 17 * 64 * 8192 * 2 * 27 / 1e12, "rotation");
    near(share, 10.0 / 18.0, "forward");
    job.remat = SPW_REMAT_MOE; /* the router is in the module, attention is not */
    near(spw_unfused_router_s(&c, &point, &share), 2 * 10.0 * 8192 * 2048 * 26 / 1e12, "26 routers, moe");
    near(share, 0.5, "forward");
    near(spw_unfused_rotation_s(&c, &point, &share), 18.0 * 17 * 64 * 8192 * 2 * 27 / 1e12, "rotation, moe");
    job.remat = SPW_REMAT_FULL;
    near(spw_unfused_router_s(&c, &point, &share), 2 * 10.0 * 8192 * 2048 * 26 / 1e12, "26 routers, twice");
    near(share, 0.5, "forward");
    near(spw_unfused_rotation_s(&c, &point, &share), 28.0 * 17 * 64 * 8192 * 2 * 27 / 1e12,
         "rotation, twice");
    spw_megatron_kernels_said(&job, &said);
    near(said.scatter_bytes_per_s.value, 8.0, "auto");
    job.megatron.permute = SPW_FUSION_OFF;
    spw_megatron_kernels_said(&job, &said);
    near(said.scatter_bytes_per_s.value, 2.0, "a quarter");
    near(said.index_add_bytes_per_s.value, 4.5, "half");
    /* a stack of PyTorch's kernels has nothing to add */
    spw_megatron_coefficients plain = c;
    plain.unfused_router_bytes.value = 0.0;
    near(spw_unfused_rotation_s(&plain, &point, &share), 0.0, "PyTorch's own");
}

int main(void) {
    test_rules();
    test_release();
    test_notes();
    test_schemes();
    test_shared();
    test_shared_memory();
    test_delayed();
    test_offload_stays();
    test_collectives();
    test_kernels();
    return check_done();
}
