/* Programs that XLA of JAX 0.11 on compiles: lists with pencil and paper, then sums beside what the compiler says, then which stack and
 * which layout a name means. */
#include "sim/job/recipe/maxtext_settings.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/software.h"
#include "sim/memory/compiled/compiled_layout.h"
#include "sim/memory/compiled/compiled_memory.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double UNBOUNDED = 1e15;

static spw_job job;

static bool same_bytes(const void *a, const void *b, size_t size) { return memcmp(a, b, size) == 0; }

static spw_stack stack_of(const char *name) {
    spw_stack s;
    CHECK_OK(spw_stack_read(name, NULL, &s));
    return s;
}

static spw_compiled_memory predict(const spw_stack *stack, const char *text, size_t sequences) {
    spw_compiled_memory m;
    const spw_scheme s = scheme_of(text);
    CHECK_OK(spw_compiled_memory_predict(stack, &job, &s, sequences, UNBOUNDED, &m));
    return m;
}

static void near(double gib, double want, const char *what) {
    const bool good = fabs(gib - want) <= 1e-4 * want + 1e-6;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.5f GiB, want %.5f\n", what, gib, want);
}

/* GiB of the tensors called `name` at the fullest moment; of the whole layer where it is NULL. */
static double gib_of(const spw_stack *stack, const char *text, size_t sequences, const char *name) {
    const spw_compiled_memory m = predict(stack, text, sequences);
    const spw_scheme s = scheme_of(text);
    spw_compiled_tensor *tensor = NULL;
    size_t count = 0;
    double sum = 0.0;
    if (name == NULL) return m.fullest.layer_bytes / GIB;
    CHECK_OK(spw_compiled_memory_list(stack, &job, &s, sequences, &m.fullest, &tensor, &count));
    for (size_t i = 0; i < count; i++) sum += strcmp(tensor[i].name, name) == 0 ? tensor[i].bytes : 0.0;
    spw_free(tensor);
    return sum / GIB;
}

static void use(const char *model) { CHECK_OK(spw_model_read(model, NULL, &job.model)); }

/* Expert 8 x fsdp 8, 4 x 4096 tokens, bf16, GiB a unit. DeepSeek-V3: W H b 14, W F b 4, N H b 1.75, e H F b 0.875. Mixtral 8x7B: of gmm
 * W H b 1, W F b 3.5, of the ring twice that, R T H b 1, N H b 0.25, e H F b 0.109375, E H F b 0.875; dense 1.25: D H b and T E C b
 * 0.3125, D F b 1.09375. DeepSeek-V2-Lite: W H b 3, W F b 2.0625. gpt-oss: H = F, W H b 2.8125, N H b 0.3515625. */
static void test_lists(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0"), later = stack_of("xla-cuda-0.12.0-maxtext-0.2.5");
    static const char *const sorted = "ring:ragged_sort=true";
    const double scatter = 4.0 * 256 * 4096 * (8 + 2 * 3) / (1 << 30);
    use("deepseek-v3");
    near(gib_of(&s, "gmm", 4, NULL), 3 * 14 + 3 * 0.875, "gmm");
    near(gib_of(&s, "gmm", 4, "exchange_arena_rows"), 2 * 14, "its arena: rows");
    near(gib_of(&s, "gmm", 4, "exchange_arena_assignments"), 2 * 1.75, "its arena: assignments");
    near(gib_of(&s, "ring", 4, "exchange_arena_rows"), 0.0, "a ring has none");
    near(gib_of(&s, "gmm", 4, "head_gradient") + gib_of(&s, "gmm", 4, "logits"), 0.0, "no head tensor");
    near(gib_of(&s, "ring", 1, "head_gradient"), 7168 * 129280 * 2 / GIB, "the larger one");
    near(gib_of(&s, "ring", 4, NULL), 4 * 14 + 3 * 4 + 1.75, "ring");
    near(gib_of(&s, sorted, 4, NULL), 5 * 14 + 3 * 4 + 0.875, "sorted ring");
    near(gib_of(&later, sorted, 4, NULL), 4 * 14 + 3 * 4 + 1.75, "MaxText 0.2.5's");
    use("mixtral-8x7b");
    near(gib_of(&s, "gmm", 4, NULL), 2 * 1 + 3 * 3.5 + 4 * 0.109375, "gmm, F > H");
    near(gib_of(&s, "ragged", 4, NULL), gib_of(&s, "gmm", 4, NULL), "one expert is not masked");
    near(gib_of(&s, "ring", 4, NULL), 4 * 7 + 2 * 2 + 1 + 3 * 0.109375, "ring, F > H");
    near(gib_of(&s, sorted, 4, NULL), 4 * 7 + 2 * 2 + 2 + 3 * 0.109375, "sorted ring, F > H");
    near(gib_of(&s, "dense:capacity_factor=1.25", 4, NULL), 4 * 1.09375 + 3 * 0.3125 + 5 * 0.875 + scatter,
         "gathered dense, F > H");
    use("deepseek-v2-lite");
    near(gib_of(&s, "ring", 4, NULL), 5 * 3 + 3 * 2.0625 + 8 * 2048 * 1408 * 2 / GIB, "a layer is unrolled");
    use("gpt-oss-20b");
    near(gib_of(&s, "gmm", 4, NULL), 10 * 2.8125 + 7 * (4 * 2880 * 2880 * 2 / GIB), "two layers a turn");
    near(gib_of(&s, "gmm", 4, "exchange_arena_assignments"), 4 * 0.3515625, "two layers' arena");
}

/* Turns of four MoE layers, bf16, GiB. Qwen3-Next, expert 8 x fsdp 8, 4096 tokens: W H b 1.25 (8 x 4096 x 10 rows of 2048); three of the
 * four mix tokens by Gated DeltaNet, whose state is 32 x 128 x 128 and 4 of the convolution over 2 x 2048 + 4096, fp32, one of every 64
 * tokens. */
static void test_turns_of_four(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0"), older = stack_of("xla-cuda-0.10.2");
    const double state = 32 * 128 * 128 + 4.0 * (2 * 2048 + 4096);
    use("qwen3-next-80b-a3b");
    near(gib_of(&s, "gmm", 1, "receive_buffers"), 4 * 1.25, "each layer of the turn receives into its own");
    near(gib_of(&s, "gmm", 1, "states_of_chunks"), 3 * 64 * 4 * state / GIB, "states");
    near(gib_of(&s, "gmm", 1, "logits"), 4096.0 * 151936 * 2 / GIB, "logits beside recurrent layers");
    near(gib_of(&s, "ring", 1, "receive_buffers"), 0.0, "a ring has none");
    near(gib_of(&older, "gmm", 1, "receive_buffers"), 0.0, "nor has JAX 0.10");
    use("llama-4-scout");
    near(gib_of(&s, "gmm", 2, "receive_buffers"), 4 * 0.625, "Scout");
    near(gib_of(&s, "gmm", 2, "states_of_chunks") + gib_of(&s, "gmm", 2, "logits"), 0.0, "without states");
    use("gpt-oss-20b");
    near(gib_of(&s, "gmm", 4, "receive_buffers"), 0.0, "two layers a turn");
}

/* Compiled by JAX 0.12.0.1 and MaxText 0.2.5, 64 H200: Llama 4 Scout, gmm, 2 sequences 32.759 GiB; Qwen3.5-35B, whose
 * decoder qwen3_5 is a checkpoint a period, gmm, 1 sequence 20.360 GiB, 4 sequences 70.715. */
static void test_turns_compiled(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0-maxtext-0.2.5");
    use("llama-4-scout");
    spw_compiled_memory m = predict(&s, "gmm", 2);
    CHECK(m.low_bytes < 32.759 * GIB && 32.759 * GIB < m.high_bytes);
    CHECK(fabs(m.temporary_bytes / GIB / 32.759 - 1.0) < 0.07);
    use("qwen3.5-35b-a3b");
    m = predict(&s, "gmm", 1);
    CHECK(m.low_bytes < 20.360 * GIB && 20.360 * GIB < m.high_bytes);
    CHECK(fabs(m.temporary_bytes / GIB / 20.360 - 1.0) < 0.05);
    m = predict(&s, "gmm", 4);
    CHECK(m.low_bytes < 70.715 * GIB && 70.715 * GIB < m.high_bytes);
    CHECK(fabs(m.temporary_bytes / GIB / 70.715 - 1.0) < 0.06);
}

/* Qwen3-Next: a layer a checkpoint in MaxText 0.2.5, a period of four in the tree before it. 12 layers with attention keep 3 x 64 x 2048 x
 * 512 weights each, gathered. Compiled by MaxText 0.2.5 and JAX 0.12.0.1: gmm, 2 sequences, 25.461 GiB. */
static void test_nested(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0-maxtext-0.2.5"), before = stack_of("xla-cuda-0.12.0");
    use("qwen3-next-80b-a3b");
    near(gib_of(&s, "gmm", 2, "gathered_weights_of_periods"), 4.5, "weights of layers with attention");
    /* The loop over chunks of a recurrent layer's backward pass: 14.77 GiB live in the program's dump, which has no logits then. */
    spw_compiled_course course;
    const spw_scheme grouped = scheme_of("gmm");
    CHECK_OK(spw_compiled_memory_course(&s, &job, &grouped, 2, &course));
    const double apart = gib_of(&s, "gmm", 2, "exchange_arena_rows") +
                         gib_of(&s, "gmm", 2, "exchange_arena_assignments") + gib_of(&s, "gmm", 2, "logits");
    CHECK(fabs((course.around[SPW_STEP_ATTENTION] / GIB - apart) / 14.77 - 1.0) < 0.03);
    spw_compiled_course_destroy(&course);
    near(gib_of(&s, "gmm", 2, "carries"), 48 * 8192.0 * 2048 * 2 / (1 << 30), "a carry a layer");
    near(gib_of(&s, "gmm", 2, "waiting_x"), 0.0, "no layer waits");
    near(gib_of(&before, "gmm", 2, "gathered_weights_of_periods"), 0.0, "the tree before");
    near(gib_of(&before, "gmm", 2, "waiting_x"), 3 * 2.5, "three wait");
    const spw_compiled_memory m = predict(&s, "gmm", 2);
    CHECK(m.low_bytes < 25.461 * GIB && 25.461 * GIB < m.high_bytes);
    CHECK(fabs(m.temporary_bytes / GIB / 25.461 - 1.0) < 0.07);
    const spw_compiled_memory ring = predict(&s, "ring", 2); /* 28.109 compiled: one [W, H] of 2.5 more */
    near(ring.high_bytes / exp(s.half_width.value) / GIB, ring.wanted_bytes / GIB + 2.5,
         "a ring's [W, H] more");
    CHECK(ring.low_bytes < 28.109 * GIB && 28.109 * GIB < ring.high_bytes);
}

/* Temporaries by memory_analysis(), JAX 0.12.0.1, MaxText 0.2.5, 64 H200 (notebooks_data/compiled/maxtext_2026_11.csv). */
static void test_compiled(void) {
    static const struct {
        const char *model, *scheme;
        size_t sequences;
        double gib;
    } rows[] = {{"deepseek-v3", "gmm", 4, 131.172},      {"deepseek-v3", "ring", 2, 84.789},
                {"mixtral-8x7b", "gmm", 4, 22.068},      {"mixtral-8x7b", "ring", 4, 41.300},
                {"mixtral-8x7b", "ring", 8, 78.643},     {"mixtral-8x22b", "ring", 4, 58.230},
                {"qwen3-30b-a3b", "ring", 4, 27.227},    {"qwen3-30b-a3b", "gmm", 4, 26.523},
                {"deepseek-v2-lite", "ring", 4, 29.129}, {"deepseek-v2", "ring", 2, 47.489},
                {"gpt-oss-20b", "gmm", 4, 39.171},       {"gpt-oss-20b", "ring", 4, 44.588}};
    const spw_stack s = stack_of("xla-cuda-0.12.0-maxtext-0.2.5");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        use(rows[i].model);
        const spw_compiled_memory m = predict(&s, rows[i].scheme, rows[i].sequences);
        const double ratio = m.temporary_bytes / GIB / rows[i].gib;
        CHECK(fabs(ratio - 1.0) < 0.03);
        CHECK(m.low_bytes < rows[i].gib * GIB && rows[i].gib * GIB < m.high_bytes);
        if (fabs(ratio - 1.0) >= 0.03)
            fprintf(stderr, "  %s %s: %.3f\n", rows[i].model, rows[i].scheme, ratio);
    }
}

/* A release finds its stack; an unknown one is refused with those that are known. */
static void test_names(void) {
    static const char *const names[][2] = {{"xla-cuda-0.12", "xla-cuda-0.12.0"},
                                           {"xla-cuda-0.12.0.1", "xla-cuda-0.12.0"},
                                           {"xla-cuda-0.11.2", "xla-cuda-0.12.0"},
                                           {"maxtext-0.2.5", "xla-cuda-0.12.0-maxtext-0.2.5"},
                                           {"xla-cuda-0.10.2", "xla-cuda-0.10.2"}};
    static spw_software software;
    spw_stack unknown;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(strcmp(stack_of(names[i][0]).name, names[i][1]) == 0);
    CHECK_STATUS(spw_stack_read("xla-cuda-0.13", NULL, &unknown), SPW_ECONFIG);
    CHECK_OK(spw_software_read("xla-cuda-0.12", &software));
    CHECK(software.timed && strcmp(software.time_stack.name, "xla-cuda-0.10.2") == 0);
}

/* dense in the layout of the stack's tree; one that the tree has not is refused. */
static void test_layouts(void) {
    const spw_stack old = stack_of("xla-cuda-0.10.2-april"), now = stack_of("xla-cuda-0.10.2");
    const spw_stack counted = stack_of("counted");
    spw_scheme s = scheme_of("dense:capacity_factor=1.25");
    CHECK(spw_scheme_option_is(&s, "layout", "auto"));
    CHECK_OK(spw_compiled_layout_settle(&counted, &s));
    CHECK(spw_scheme_option_is(&s, "layout", "auto"));
    CHECK_OK(spw_compiled_layout_settle(&now, &s));
    CHECK(spw_scheme_option_is(&s, "layout", "gathered"));
    CHECK(strcmp(s.text, "dense:capacity_factor=1.25,layout=gathered") == 0);
    CHECK_STATUS(spw_compiled_layout_settle(&old, &s), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "maxtext@7e3f19ff7") != NULL &&
          strstr(spw_last_error(), "xla-cuda-0.12.0") != NULL);
    s = scheme_of("dense:capacity_factor=1.25");
    CHECK_OK(spw_compiled_layout_settle(&old, &s));
    CHECK(spw_scheme_option_is(&s, "layout", "exchange"));
    CHECK_STATUS(spw_compiled_layout_settle(&now, &s), SPW_ECONFIG);
    s = scheme_of("dense:capacity_factor=1.25,layout=peeled");
    CHECK_OK(spw_compiled_layout_settle(&now, &s));
    s = scheme_of("gmm");
    CHECK_OK(spw_compiled_layout_settle(&now, &s));
    use("deepseek-v3");
    CHECK(predict(&now, "dense:capacity_factor=1.25", 1).wanted_bytes ==
          predict(&now, "dense:capacity_factor=1.25,layout=gathered", 1).wanted_bytes);
    CHECK(predict(&old, "dense:capacity_factor=1.25", 1).wanted_bytes <
          predict(&now, "dense:capacity_factor=1.25", 1).wanted_bytes - 10.0 * GIB);
}

/* MaxText with weight_dtype=float32 alone: moments bf16 and fp32, gradients fp32, 10 bytes a parameter: 97.765 GiB of arguments, 127.849 of
 * temporaries by the compiler. */
static void test_precision(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0");
    const spw_precision before = job.precision;
    use("deepseek-v3");
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    CHECK(!spw_precision_choose(&job, "bf16 weights=fp31") &&
          !spw_precision_choose(&job, "bf16 wheels=fp32"));
    CHECK(same_bytes(&before, &job.precision, sizeof before));
    CHECK(spw_precision_choose(&job, "bf16 weights=fp32"));
    CHECK(job.precision.weights == 4 && job.precision.gradients == 4 && job.precision.second == 4);
    const spw_compiled_memory m = predict(&s, "gmm", 2);
    CHECK(fabs(m.argument_bytes / GIB / 97.765 - 1.0) < 0.003);
    CHECK(fabs(m.temporary_bytes / GIB / 127.849 - 1.0) < 0.02);
    job.precision = before;
}

/* Settings of MaxText: what changes nothing, what a job says otherwise, what is refused by its name; temporaries by the compiler (Mixtral
 * 8x7B, gmm, 4 sequences, JAX 0.12): 22.068 full, 18.193 with inputs on the host, 36.068 with save_dot_with_context_except_mlp,
 * 24.246 over two replicas. */
static void test_maxtext_settings(void) {
    const spw_stack s = stack_of("xla-cuda-0.12.0");
    const spw_job before = job;
    char precision[64] = "bf16";
    use("mixtral-8x7b");
    const spw_job mixtral = job;
    CHECK_OK(spw_maxtext_settings_apply(
        "merge_gating_gmm=True num_vocab_tiling=8 use_ragged_sort=True x=1 words", &job));
    CHECK(same_bytes(&job, &mixtral, sizeof job));
    CHECK_STATUS(spw_maxtext_settings_apply("merge_gating_gmm=True prefuse_moe_weights=True", &job),
                 SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "MaxText's prefuse_moe_weights=True: ") != NULL &&
          strstr(spw_last_error(), "nearest: gmm") != NULL);
    CHECK_OK(spw_maxtext_settings_apply(
        "prefuse_moe_weights=False moe_x_sorted=remat moe_dropless_fallback=None", &job));
    CHECK_STATUS(spw_maxtext_settings_apply("moe_dropless_fallback=layer", &job), SPW_ECONFIG);
    CHECK_STATUS(spw_maxtext_settings_apply("dcn_data_parallelism=3", &job), SPW_ECONFIG);
    CHECK_OK(spw_maxtext_settings_apply("decoder_layer_input=offload", &job));
    CHECK(job.remat == SPW_REMAT_INPUT_OFFLOADED);
    CHECK(fabs(predict(&s, "gmm", 4).temporary_bytes / GIB / 18.193 - 1.0) < 0.02);
    CHECK_OK(spw_remat_parse("save_dot_with_context_except_mlp", &job.remat));
    CHECK(fabs(predict(&s, "gmm", 4).temporary_bytes / GIB / 36.068 - 1.0) < 0.02);
    job.remat = SPW_REMAT_FULL;
    CHECK_OK(spw_maxtext_settings_apply("dcn_data_parallelism=2", &job));
    CHECK(job.fsdp == 4 && job.cluster.nodes == 4);
    CHECK(fabs(predict(&s, "gmm", 4).temporary_bytes / GIB / 24.246 - 1.0) < 0.02);
    CHECK(fabs(predict(&s, "gmm", 4).argument_bytes / GIB / 8.157 - 1.0) < 0.002);
    job = before;
    spw_maxtext_precision("grad_dtype=float32 weight_dtype=float32 mu_dtype=bfloat16", precision,
                          sizeof precision);
    CHECK(strcmp(precision, "bf16 weights=fp32 gradients=fp32") == 0);
    CHECK_STATUS(spw_remat_parse("minimal_offloaded", &job.remat), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "nearest: full") != NULL);
}

/* gpt-oss: two layers a turn of the scan. A compiled program has five reduce-scatters of the tokens a turn: two forward, two of the
 * gradients, and the combine of the first layer again; in a model of uniform layers two a layer. */
static void test_combine_again(void) {
    static const char *const models[] = {"gpt-oss-20b", "mixtral-8x7b"};
    const double want[] = {2.5, 2.0};
    for (int i = 0; i < 2; i++) {
        spw_exchange list[SPW_SCHEME_EXCHANGES];
        double rows = 0.0;
        const spw_scheme ring = scheme_of("ring");
        use(models[i]);
        const spw_layer_shape shape = spw_layer_shape_of(&job, 4);
        const size_t count = ring.type->traffic.exchanges(&ring, &shape, list);
        for (size_t k = 0; k < count; k++)
            if (list[k].back && !list[k].for_router)
                rows += (double)list[k].row_bytes / (2.0 * (double)shape.hidden);
        CHECK(rows == want[i]);
    }
}

int main(void) {
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &job.cluster));
    job.expert = job.fsdp = 8;
    job.pipeline = job.tensor = 1;
    job.sequence_length = 4096;
    job.precision = (spw_precision){2, 2, 2, 2};
    job.remat = SPW_REMAT_FULL;
    test_lists();
    test_turns_of_four();
    test_nested();
    test_turns_compiled();
    test_compiled();
    test_names();
    test_layouts();
    test_precision();
    test_maxtext_settings();
    test_combine_again();
    return check_done();
}
