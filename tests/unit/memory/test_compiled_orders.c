/* What the interval of a compiled program spans: each order with pencil and paper, then coverage and width over the compiled programs. */
#include "sim/memory/compiled/compiled_orders.h"

#include "sim/memory/compiled/compiled_memory.h"
#include "sim/score/published/score.h"
#include "tests/unit/check.h"
#include "tests/unit/scheme_of.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double UNBOUNDED = 1e15;

static spw_job job;

static void near(double value, double want, const char *what) {
    const bool good = fabs(value - want) <= 1e-4 * fabs(want) + 1e-6;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.5f, want %.5f\n", what, value, want);
}

static spw_stack stack_of(const char *name) {
    spw_stack s;
    CHECK_OK(spw_stack_read(name, NULL, &s));
    return s;
}

static void use(const char *model) { CHECK_OK(spw_model_read(model, NULL, &job.model)); }

static spw_compiled_memory predict(const spw_stack *stack, const char *text, size_t sequences, double pool) {
    spw_compiled_memory m;
    const spw_scheme s = scheme_of(text);
    CHECK_OK(spw_compiled_memory_predict(stack, &job, &s, sequences, pool, &m));
    return m;
}

/* The interval is `less` and `more` GiB around the list, and 4 % around that. */
static void expect(const char *stack_name, const char *text, size_t sequences, double less, double more,
                   const char *what) {
    const spw_stack stack = stack_of(stack_name);
    const spw_compiled_memory m = predict(&stack, text, sequences, UNBOUNDED);
    const double width = exp(stack.half_width.value + (double)m.unseen * stack.half_width_unseen.value);
    near(m.low_bytes * width / GIB, m.wanted_bytes / GIB - less, what);
    near(m.high_bytes / width / GIB, m.wanted_bytes / GIB + more, what);
}

/* Expert 8 x fsdp 8, 4 x 4096 tokens, bf16, GiB a unit. DeepSeek-V3: W H b 14, W F b 4, D H b at a factor of 1.25 2.1875, E H F b 7. Ring:
 * Mixtral 8x22B W b 4096 2; DeepSeek-V2-Lite W H b 3; gpt-oss W H b 2.8125. Mixtral 8x7B: D H b 0.3125. */
static void test_orders(void) {
    static const char *const cuda = "xla-cuda-0.10.2", *const april = "xla-cuda-0.10.2-april";
    static const char *const dense = "dense:capacity_factor=1.25";
    use("deepseek-v3");
    expect(cuda, "gmm", 4, 0.0, 0.0, "gmm: one order");
    expect(cuda, "ring", 4, 0.0, 0.0, "ring of a uniform scan with F < 2 H");
    expect(cuda, "gmm-deepep", 4, 0.0, 14.0, "DeepEP: few programs");
    expect("xla-rocm-0.10.2-amd", "gmm-deepep", 4, 0.0, 14.0, "a library's calls are not started early");
    expect(cuda, dense, 4, 0.0, 0.0, "gathered dense, EP in a node");
    expect(april, dense, 4, 2.1875, 0.0, "dense with exchanges: one [D, H] less");
    job.remat = SPW_REMAT_SAVE_QKV_PROJ;
    expect(cuda, "gmm", 4, 0.0, 14.0, "gmm that keeps MLA's expanded q, k, v");
    job.remat = SPW_REMAT_FULL;
    job.expert = 16, job.fsdp = 4;
    expect(cuda, dense, 4, 0.0, 7.0, "gathered dense, EP over nodes: a whole gradient");
    job.expert = job.fsdp = 8;
    use("mixtral-8x22b");
    expect(cuda, "ring", 8, 0.0, 4.0, "ring, F > 2 H: two orders, [W, F - 2 H]");
    use("deepseek-v2-lite");
    expect(cuda, "ring", 4, 0.0, 3.0, "ring beside an unrolled layer: one [W, H] more");
    expect(cuda, "gmm", 4, 0.0, 0.0, "gmm beside an unrolled layer");
    use("gpt-oss-20b");
    expect(cuda, "ring", 4, 0.0, 2.8125, "ring, two layers a turn");
    use("mixtral-8x7b");
    expect(april, dense, 8, 2 * 0.3125, 2 * 0.3125, "dense with exchanges, F > H");
}

/* Head tensors, GiB: logits T V b, gradient H V b. Either where the logits are at most 1 GiB, else by the rule. */
static void test_head(void) {
    static const char *const cuda = "xla-cuda-0.10.2";
    const double v2_lite = 102400.0 * 2 / GIB, mixtral = 32000.0 * 2 / GIB;
    use("deepseek-v2-lite");
    expect(cuda, "ring", 1, (4096 - 2048) * v2_lite, 0.75, "logits of 0.78 GiB may be the gradient");
    expect(cuda, "ring", 2, 0.0, 1.5, "logits of 1.56 GiB stay");
    use("mixtral-8x7b");
    expect(cuda, "dense:capacity_factor=1.25", 4, 0.0, (16384 - 4096) * mixtral, "0.98 GiB may stay");
    expect(cuda, "dense:capacity_factor=1.25", 8, 0.0, 0.0, "1.95 GiB do not");
    use("deepseek-v3");
    const spw_stack stack = stack_of(cuda);
    spw_stack none = stack;
    none.logits_kept_bytes.value = 0.0;
    const spw_compiled_memory with = predict(&stack, "ring", 1, UNBOUNDED),
                              without = predict(&none, "ring", 1, UNBOUNDED);
    near(with.wanted_bytes, without.wanted_bytes, "a uniform scan keeps the gradient though it is larger");
    near(with.high_bytes, without.high_bytes, "and nothing smaller makes the interval higher");
}

/* Past the limit: from the least to the most that programs of the tables recover of what is too much, 0.42 of the rows at most. */
static void test_past(void) {
    spw_stack stack = stack_of("xla-cuda-0.10.2");
    use("deepseek-v3");
    stack.recovered_grouped.value = 0.2, stack.recovered_grouped.uncertainty = 0.1;
    const spw_compiled_memory m = predict(&stack, "gmm", 6, 208.0 * GIB); /* [W, H] 21 GiB */
    const double past = m.wanted_bytes - m.limit_bytes, width = exp(stack.half_width.value);
    CHECK(past > 1.75 * 21.0 * GIB && past < 2.0 * 21.0 * GIB);
    near(m.low_bytes * width, m.wanted_bytes - 0.3 * past, "the most");
    near(m.high_bytes / width, m.wanted_bytes - 0.1 * past, "the least");
    stack.recovered_grouped.uncertainty = 0.9;
    const spw_compiled_memory all = predict(&stack, "gmm", 6, 208.0 * GIB);
    near(all.low_bytes * width, all.limit_bytes, "everything");
    near(all.high_bytes / width, all.wanted_bytes, "nothing");
}

/* Up to 1.75 [W, H] past the limit nothing comes back of gmm's and a ring's rows, in the interval 0.3 [W, H] (DeepSeek-V3, 8 sequences: 28) or
 * all that is too much. ragged_dot's rows do. */
static void test_held(void) {
    const spw_stack stack = stack_of("xla-cuda-0.10.2");
    const double width = exp(stack.half_width.value);
    static const char *const schemes[] = {"gmm", "ring", "ragged"};
    static const struct {
        double past, low; /* GiB */
    } rows[] = {{4.0, 4.0}, {20.0, 8.4}, {48.9, 8.4}, {49.1, 0.0}};
    use("deepseek-v3");
    for (size_t i = 0; i < 12; i++) {
        const char *scheme = schemes[i / 4];
        const double past = rows[i % 4].past, low = rows[i % 4].low;
        const bool held = low > 0.0 && i / 4 < 2;
        const spw_compiled_memory far = predict(&stack, scheme, 8, UNBOUNDED);
        const double limit = far.wanted_bytes - past * GIB;
        const spw_compiled_memory m =
            predict(&stack, scheme, 8, limit / stack.limit_share.value + far.argument_bytes);
        CHECK((m.recovered_bytes == 0.0) == held);
        if (held) near(m.low_bytes * width / GIB, m.wanted_bytes / GIB - low, scheme);
        if (held) near(m.high_bytes / width, m.wanted_bytes, scheme);
    }
}

/* A ring by JAX 0.12 whose list is past limit / ring_sum: Mixtral 8x22B [W, F - 2 H] less, 2 a sequence and rank; nothing where F < 2 H, nor
 * farther from the limit. */
static void test_near_limit(void) {
    const spw_stack stack = stack_of("xla-cuda-0.12.0");
    const double width = exp(stack.half_width.value);
    static const struct {
        const char *model;
        double of, less; /* `of`: the limit over the list */
    } rows[] = {{"mixtral-8x22b", 1.3, 2.0},
                {"mixtral-8x22b", 1.4, 0.0},
                {"deepseek-v2", 1.3, 0.0},
                {"deepseek-v3", 1.3, 0.0}};
    near(stack.ring_sum.value, 1.36, "ring_sum");
    for (size_t i = 0; i < 4; i++) {
        use(rows[i].model);
        const spw_compiled_memory far = predict(&stack, "ring", 4, UNBOUNDED);
        const double pool = rows[i].of * far.wanted_bytes / stack.limit_share.value + far.argument_bytes;
        const spw_compiled_memory m = predict(&stack, "ring", 4, pool);
        near(far.low_bytes * width / GIB, far.wanted_bytes / GIB, "far from the limit");
        near(m.low_bytes * width / GIB, m.wanted_bytes / GIB - rows[i].less, rows[i].model);
    }
    use("deepseek-v2-lite"); /* W b 4096 3: 3 [W, H] - 3 [W, F], as both products may wait */
    expect("xla-cuda-0.12.0", "ring", 4, 3 * (3.0 - 2.0625), 0.0, "a ring beside an unrolled layer");
    use("olmoe-1b-7b"); /* [W, H] 4, [W, F] 2; a matrix of 8 experts 1 / 32 */
    expect("xla-cuda-0.12.0", "gmm", 4, 2 * 4.0 - 3 * 2.0, 1.0 / 32, "gmm without a shared expert, H = 2 F");
    use("qwen3-30b-a3b");
    expect("xla-cuda-0.12.0", "gmm", 4, 0.0, 3.0 * 16 / 1024, "not where F is under half of H");
    use("deepseek-v3"); /* past it, rows may be gathered beside the first: [W, H] 14 */
    const spw_compiled_memory far = predict(&stack, "ring", 4, UNBOUNDED);
    const spw_compiled_memory m =
        predict(&stack, "ring", 4, 0.9 * far.wanted_bytes / stack.limit_share.value + far.argument_bytes);
    near(m.high_bytes / width / GIB, m.wanted_bytes / GIB + 14.0, "past the limit");
    near(far.high_bytes / width, far.wanted_bytes, "far from it");
}

/* Gathered dense past its limit: 3 [E, H, F] of DeepSeek-V3 are 21 GiB. Up to 42 past it, three quarters of that come back; the interval
 * has half and all. Farther the fitted share of the rows. */
static void test_gathered_again(void) {
    const spw_stack stack = stack_of("xla-cuda-0.10.2");
    const double width = exp(stack.half_width.value), past[] = {8.0 * GIB, 20.0 * GIB};
    static const char *const dense = "dense:capacity_factor=1.25";
    use("deepseek-v3");
    const spw_compiled_memory far = predict(&stack, dense, 8, UNBOUNDED);
    near(far.fullest.weights_bytes / GIB, 21.0, "gathered weights");
    for (size_t i = 0; i < 2; i++) {
        const double limit = far.wanted_bytes - past[i];
        const spw_compiled_memory m =
            predict(&stack, dense, 8, limit / stack.limit_share.value + far.argument_bytes);
        near(m.temporary_bytes, far.wanted_bytes - 0.75 * past[i], "three quarters");
        near(m.high_bytes / width, far.wanted_bytes - 0.5 * past[i], "half");
        near(m.low_bytes * width, limit, "all of it");
    }
    const double limit = far.wanted_bytes - 43.0 * GIB;
    const spw_compiled_memory m =
        predict(&stack, dense, 8, limit / stack.limit_share.value + far.argument_bytes);
    CHECK(m.temporary_bytes > far.wanted_bytes - 0.5 * 21.0 * GIB);
    near(predict(&stack, "ring", 8, UNBOUNDED).fullest.weights_bytes, 0.0, "a ring gathers none of others");
}

/* Latency hiding, W H b 14, W F b 4: 2 [W, H] + [W, F] more, but not where one [W, H] is past the limit, nor where 1.45 of the list is below
 * it. */
static void test_hiding(void) {
    const spw_stack stack = stack_of("xla-rocm-0.10.2-amd");
    const double width = exp(stack.half_width.value);
    use("deepseek-v3");
    spw_compiled_memory m = predict(&stack, "gmm", 4, UNBOUNDED);
    near(m.high_bytes / width, m.wanted_bytes, "the scheduler is not short of memory");
    const double wanted = m.wanted_bytes, arguments = m.argument_bytes;
    m = predict(&stack, "gmm", 4, 1.46 * wanted / 0.95 + arguments);
    near(m.high_bytes / width, wanted, "not short of it");
    m = predict(&stack, "gmm", 4, 1.44 * wanted / 0.95 + arguments);
    near(m.high_bytes / width / GIB, wanted / GIB + 32.0, "exchanges in flight");
    m = predict(&stack, "gmm", 4, (wanted - 13.0 * GIB) / 0.95 + arguments);
    CHECK(m.high_bytes / width > wanted + (32.0 - 13.0) * GIB);
    m = predict(&stack, "gmm", 4, (wanted - 15.0 * GIB) / 0.95 + arguments);
    CHECK(m.wanted_bytes - m.limit_bytes > 14.0 * GIB);
    near(m.high_bytes / width, wanted, "scheduled again with less memory");
}

static int upwards(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Compiled programs of a table: how many, the share inside the interval, widths at the median and at the tenth. `rocm`: those of AMD's
 * flags too. */
static void expect_table(const char *path, bool rocm, size_t rows, double inside, double median,
                         double tenth) {
    enum { MOST = 512 };
    static double width[MOST];
    spw_score score;
    size_t count = 0, held = 0;
    CHECK_OK(spw_score_open(&path, 1, NULL, NULL, &score));
    for (size_t i = 0; i < score.rows && count < MOST; i++) {
        const spw_score_row *r = &score.row[i];
        if (r->cell.skipped[0] != '\0' || isnan(r->cell.temporary_gib)) continue;
        if (!rocm && strstr(r->cell.stack_name, "rocm") != NULL) continue;
        const double truth = r->cell.temporary_gib * GIB;
        held += r->memory.low_bytes <= truth && truth <= r->memory.high_bytes;
        width[count++] = (r->memory.high_bytes - r->memory.low_bytes) / r->memory.temporary_bytes;
    }
    qsort(width, count, sizeof *width, upwards);
    CHECK(count >= rows);
    CHECK((double)held >= inside * (double)count);
    CHECK(count > 0 && width[count / 2] <= median && width[count - count / 10 - 1] <= tenth);
    printf("%s: %zu of %zu inside, widths %.3f and %.3f\n", path, held, count, width[count / 2],
           width[count - count / 10 - 1]);
    spw_score_close(&score);
}

int main(int argc, char **argv) {
    char path[512];
    const char *tables = argc > 1 ? argv[1] : ".";
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &job.cluster));
    job.expert = job.fsdp = 8;
    job.pipeline = job.tensor = job.micro_batches = 1;
    job.sequence_length = 4096;
    job.precision = (spw_precision){2, 2, 2, 2};
    job.remat = SPW_REMAT_FULL;
    test_orders();
    test_head();
    test_past();
    test_held();
    test_hiding();
    test_near_limit();
    test_gathered_again();
    (void)snprintf(path, sizeof path, "%s/compiled/maxtext_memory.csv", tables);
    expect_table(path, false, 211, 0.95, 0.12, 0.25);
    expect_table(path, true, 259, 0.95, 0.12, 0.30);
    (void)snprintf(path, sizeof path, "%s/compiled/maxtext_2026_11.csv", tables);
    expect_table(path, false, 37, 0.95, 0.12, 0.25);
    (void)snprintf(path, sizeof path, "%s/compiled/maxtext_2026_11_unseen.csv", tables);
    expect_table(path, false, 10, 0.95, 0.12, 0.20);
    return check_done();
}
