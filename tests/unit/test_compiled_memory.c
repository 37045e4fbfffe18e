/* The memory of compiled programs: one case with pencil and paper, then properties, then stack files. */
#include "sim/memory/compiled_memory.h"

#include "base/file.h"
#include "base/memory.h"
#include "sim/input/remat.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double UNBOUNDED = 1e15;

static spw_job job;

static spw_scheme scheme_of(const char *text) {
    spw_scheme s;
    CHECK_OK(spw_scheme_parse(text, &s));
    return s;
}

static spw_stack stack_of(const char *name) {
    spw_stack s;
    CHECK_OK(spw_stack_read(name, NULL, &s));
    return s;
}

static spw_compiled_memory predict(const spw_stack *stack, const char *text, size_t sequences, double pool) {
    spw_compiled_memory m;
    const spw_scheme s = scheme_of(text);
    CHECK_OK(spw_compiled_memory_predict(stack, &job, &s, sequences, pool, &m));
    return m;
}

static void near(double bytes, double gib, const char *what) {
    const bool good = fabs(bytes / GIB - gib) <= 0.003 * gib + 0.0005;
    CHECK(good);
    if (!good) fprintf(stderr, "  %s: %.4f GiB, want %.4f\n", what, bytes / GIB, gib);
}

/* DeepSeek-V3, expert 8 x fsdp 8, one sequence of 4096, bf16. GiB a unit: T H b 0.0546875, T K H b 0.4375,
 * W H b 3.5, W F b 1 (W = 64 T rows), E C b T 0.3125 at factor 1.25, where D H b is 0.546875 and D F b
 * 0.15625. */
static void test_by_hand(void) {
    const spw_stack counted = stack_of("counted");
    spw_compiled_memory m = predict(&counted, "gmm", 1, UNBOUNDED);
    near(m.argument_bytes, 58.59, "arguments: 671.03e9 x 6 / 64");
    near(m.part_bytes[SPW_COMPILED_GRADIENTS], 19.53, "gradients");
    near(m.part_bytes[SPW_COMPILED_RELAID], 19.03125, "relaid: 3 x 58 x 32 x 896 x 2048 x 2");
    near(m.part_bytes[SPW_COMPILED_GATHERED], 2.625, "gathered: 3 x 0.875");
    near(m.part_bytes[SPW_COMPILED_CARRIES], 61 * 0.0546875, "carries");
    near(m.part_bytes[SPW_COMPILED_LOGITS], 0.98633, "logits: 4096 x 129280 x 2");
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 3.5 + 2 * 1.0 + 2 * 0.4375, "layer of gmm");
    near(m.temporary_bytes, 19.53 + 19.03125 + 2.625 + 3.336 + 0.986 + 16.875, "gmm");
    CHECK(m.part_bytes[SPW_COMPILED_RECOVERED] == 0.0 && m.part_bytes[SPW_COMPILED_SAVED] == 0.0);
    m = predict(&counted, "dense:capacity_factor=1.25", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 6 * 0.546875 + 3 * 0.15625 + 3 * 0.3125, "layer of dense");
    m = predict(&counted, "dense:capacity_factor=1.25,layout=gathered", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_GATHERED], 21.0, "all experts' weights");
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 0.546875 + 3 * 0.15625 + 2 * 0.3125, "layer, gathered");
    m = predict(&counted, "dense:capacity_factor=1.25,layout=peeled", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_DISPATCH], 35.0, "[256, 64, 160, 7168]");
    m = predict(&counted, "ragged", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_MASKED], counted.masked_operands.value * (112.0 + 32.0),
         "masked operands");
    m = predict(&counted, "ring", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 3.5 + 3 * 1.0 + 0.4375, "layer of ring");
    m = predict(&counted, "ring:buffer_factor=2", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 2 * (5 * 0.4375 + 3 * 0.125) + 0.4375, "layer of ring, sorted");
    m = predict(&counted, "gmm-deepep", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 3.5 + 2 * 1.0 + 2 * 0.4375, "layer of gmm-deepep");
}

/* 61 layers, 7 sequences: q and k 128 x 192, v and context 128 x 128; 58 shared experts of 2048, 3 dense of
 * 18432. */
static void test_remat(void) {
    const double unit = 7 * 4096 * 2.0 / GIB; /* GiB an element a token */
    static const struct {
        spw_remat remat;
        size_t elements;
    } cases[] = {
        {SPW_REMAT_FULL, 0},
        {SPW_REMAT_SAVE_OUT_PROJ, 61 * 7168},
        {SPW_REMAT_SAVE_QKV_PROJ, 61 * 65536},
        {SPW_REMAT_SAVE_DOT_EXCEPT_MLP, 61 * (65536 + 7168)},
        {SPW_REMAT_SAVE_DOT_EXCEPT_MLPWI, 61 * (65536 + 7168)},
        {SPW_REMAT_MINIMAL, 61 * (65536 + 7168) + 58 * 2 * 2048 + 3 * 2 * 18432},
        {SPW_REMAT_MINIMAL_WITH_CONTEXT, 61 * (65536 + 7168 + 16384) + 58 * 2 * 2048 + 3 * 2 * 18432},
    };
    spw_stack stack = stack_of("counted");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job.remat = cases[i].remat;
        CHECK(spw_remat_token_elements(&job.model, job.remat) == cases[i].elements);
        stack.keeps_expert_products = false;
        spw_compiled_memory m = predict(&stack, "gmm", 7, UNBOUNDED);
        near(m.part_bytes[SPW_COMPILED_SAVED], (double)cases[i].elements * unit, spw_remat_name(job.remat));
        stack.keeps_expert_products = true; /* 58 layers x 7 x (2 x W F b, W H b) */
        m = predict(&stack, "gmm", 7, UNBOUNDED);
        const spw_remat_expert_tensors e = spw_remat_experts(job.remat);
        near(m.part_bytes[SPW_COMPILED_SAVED],
             (double)cases[i].elements * unit + 58 * 7 * (e.ffn * 1.0 + e.hidden * 3.5),
             "with expert products");
    }
    CHECK(spw_remat_experts(SPW_REMAT_MINIMAL).ffn == 2 && spw_remat_experts(SPW_REMAT_MINIMAL).hidden == 1);
    CHECK(spw_remat_experts(SPW_REMAT_SAVE_DOT_EXCEPT_MLPWI).ffn == 0 &&
          spw_remat_experts(SPW_REMAT_SAVE_DOT_EXCEPT_MLPWI).hidden == 1);
    CHECK(spw_remat_experts(SPW_REMAT_SAVE_OUT_PROJ).hidden == 0);
    spw_remat remat = SPW_REMAT_FULL;
    CHECK_OK(spw_remat_parse("minimal_with_context", &remat));
    CHECK(remat == SPW_REMAT_MINIMAL_WITH_CONTEXT);
    CHECK_STATUS(spw_remat_parse("minimal_", &remat), SPW_ECONFIG);
    job.remat = SPW_REMAT_FULL;
}

/* Mixtral: grouped-query attention, F > H, one expert a rank, so rows = 8 T in gmm and 16 T in ring. */
static void test_other_model(void) {
    const spw_stack counted = stack_of("counted");
    const spw_job before = job;
    CHECK_OK(spw_model_read("mixtral-8x7b", NULL, &job.model));
    CHECK(spw_remat_token_elements(&job.model, SPW_REMAT_SAVE_QKV_PROJ) == 32 * (4096 + 2 * 1024));
    spw_compiled_memory m = predict(&counted, "gmm", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 0.25 + 2 * 0.875 + 2 * 0.0625, "layer of gmm, Mixtral");
    m = predict(&counted, "ring", 1, UNBOUNDED);
    near(m.part_bytes[SPW_COMPILED_LAYER], 4 * 0.5 + 3 * 1.75 + 0.25, "layer of ring, Mixtral");
    job = before;
}

/* Past the limit: something is recovered, never more than its part, more of it the farther past; the
 * temporary still grows with what is wanted and with the pool. */
static void test_limit(void) {
    static const char *const presets[] = {"xla-cuda-0.10.2", "xla-rocm-0.10.2-amd", "maxtext-rocm-2026-05"};
    static const char *const schemes[] = {"dense:capacity_factor=4", "gmm", "gmm-deepep", "ring", "ragged"};
    for (size_t i = 0; i < 3; i++) {
        const spw_stack stack = stack_of(presets[i]);
        for (size_t s = 0; s < 5; s++) {
            double last = 0.0, recovered = 0.0;
            for (size_t p = 1; p <= 32; p++) {
                const spw_compiled_memory m = predict(&stack, schemes[s], p, 267.8 * GIB);
                const double share = s == 0 ? stack.recovered_dense.value : stack.recovered_grouped.value;
                CHECK(m.temporary_bytes > last && m.temporary_bytes <= m.wanted_bytes);
                CHECK(m.part_bytes[SPW_COMPILED_RECOVERED] >= recovered);
                CHECK(m.part_bytes[SPW_COMPILED_RECOVERED] <= share * m.part_bytes[SPW_COMPILED_LAYER]);
                CHECK(m.wanted_bytes > m.limit_bytes || m.part_bytes[SPW_COMPILED_RECOVERED] == 0.0);
                CHECK(m.low_bytes < m.temporary_bytes && m.temporary_bytes < m.high_bytes);
                const spw_compiled_memory larger = predict(&stack, schemes[s], p, 300.0 * GIB);
                CHECK(larger.temporary_bytes >= m.temporary_bytes && larger.wanted_bytes == m.wanted_bytes);
                last = m.temporary_bytes;
                recovered = m.part_bytes[SPW_COMPILED_RECOVERED];
            }
            CHECK(s == 4 || recovered > 0.0);
        }
    }
}

static void test_refusals(void) {
    spw_stack stack = stack_of("counted");
    spw_compiled_memory m;
    const spw_scheme gmm = scheme_of("gmm");
    const spw_job before = job;
    job.remat = SPW_REMAT_NONE;
    CHECK_STATUS(spw_compiled_memory_predict(&stack, &job, &gmm, 1, UNBOUNDED, &m), SPW_ECONFIG);
    job = before;
    job.pipeline = 2;
    CHECK_STATUS(spw_compiled_memory_predict(&stack, &job, &gmm, 1, UNBOUNDED, &m), SPW_ECONFIG);
    job = before;
    CHECK(strcmp(predict(&stack, "gmm", 1, UNBOUNDED).outside,
                 "gmm not in the fitted tables; model not in the fitted tables") == 0);
    stack = stack_of("xla-cuda-0.10.2");
    CHECK(predict(&stack, "gmm", 16, UNBOUNDED).outside[0] == '\0');
    CHECK(strcmp(predict(&stack, "gmm", 17, UNBOUNDED).outside, "sequences other than 1 to 16") == 0);
    CHECK(strstr(predict(&stack, "gmm-deepep", 1, UNBOUNDED).outside, "gmm_deepep not in") != NULL);
    CHECK_OK(spw_model_read("deepseek-v2-lite", NULL, &job.model));
    CHECK(strcmp(predict(&stack, "gmm", 1, UNBOUNDED).outside, "model not in the fitted tables") == 0);
    stack = stack_of("maxtext-rocm-2026-05"); /* it says where it was fitted */
    job = before;
    job.expert = 16, job.fsdp = 4;
    CHECK(predict(&stack, "gmm", 1, UNBOUNDED).outside[0] == '\0');
    job.expert = 32, job.fsdp = 2;
    CHECK_OK(spw_cluster_read("h200-8x8", NULL, &job.cluster));
    CHECK(strcmp(predict(&stack, "gmm", 1, UNBOUNDED).outside,
                 "cluster not in the fitted tables; expert-parallel sizes other than 8 16") == 0);
    job = before;
}

/* Every preset is named as its file, has evidence for each figure, and survives being written and read. */
static void test_stacks(const char *folder) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/stack.yaml", folder);
    size_t count = 0;
    for (const char *const *name = spw_stack_presets(); *name != NULL; name++, count++) {
        spw_stack s = stack_of(*name), again;
        CHECK(strcmp(s.name, *name) == 0 && spw_stack_covers(&s, *name) && !spw_stack_covers(&s, "x"));
        spw_file_forget_reads();
        CHECK_OK(spw_stack_write(&s, path));
        CHECK_OK(spw_stack_read(path, NULL, &again));
        for (size_t i = 0; i < SPW_STACK_FITTED; i++) {
            const spw_coefficient *a = spw_stack_coefficient(&s, i), *b = spw_stack_coefficient(&again, i);
            CHECK(a->value >= spw_stack_rows[i].minimum && a->value <= spw_stack_rows[i].maximum);
            CHECK(fabs(a->value - b->value) < 1e-6 && a->evidence == b->evidence && strlen(a->source) > 8);
            CHECK(strcmp(a->source, b->source) == 0);
            CHECK(a->evidence != SPW_EVIDENCE_FITTED || a->uncertainty > 0.0);
        }
        CHECK(strcmp(s.models, again.models) == 0 && strcmp(s.tables, again.tables) == 0);
        CHECK(s.covered == again.covered && s.keeps_expert_products == again.keeps_expert_products);
    }
    CHECK(count == 5);
    const spw_stack cuda = stack_of("xla-cuda-0.10.2");
    CHECK(spw_stack_covers(&cuda, "maxtext@e591f30c+xla-cuda-0.10.2-default"));
    CHECK_STATUS(spw_stack_write(&cuda, "no such folder/stack.yaml"), SPW_EIO);
    const char *bad = "name: x\n";
    spw_stack s;
    CHECK_STATUS(spw_stack_parse("s.yaml", bad, strlen(bad), &s), SPW_ECONFIG);
    CHECK_STATUS(spw_stack_read("xla-cuda", NULL, &s), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "stack 'xla-cuda' is unknown") != NULL);
}

int main(int argc, char **argv) {
    CHECK_OK(spw_model_read("deepseek-v3", NULL, &job.model));
    CHECK_OK(spw_cluster_read("mi355x-8x8", NULL, &job.cluster));
    job.expert = job.fsdp = 8;
    job.pipeline = job.tensor = 1;
    job.sequence_length = 4096;
    job.precision = (spw_precision){2, 2, 2, 2};
    job.remat = SPW_REMAT_FULL;
    test_by_hand();
    test_remat();
    test_other_model();
    test_limit();
    test_refusals();
    test_stacks(argc > 1 ? argv[1] : ".");
    return check_done();
}
