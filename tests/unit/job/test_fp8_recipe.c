/* fp4 recipes by hand: bytes of copies, multiples, where they run, what a tensor group gathers, how much faster products are. */
#include "sim/job/job.h"
#include "sim/job/recipe/fp8_recipe.h"
#include "sim/time/fp8_time.h"
#include "sim/traffic/weight_families.h"
#include "sim/weights/fp8_memory.h"

#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static bool near(double got, double want) { return fabs(got - want) <= 1e-12 * fabs(want); }

/* 1024 numbers of nvfp4: 512 bytes and 64 scales; of mxfp4 512 and 32. Two copies of a weight. */
static void test_copies(void) {
    spw_fp8_facts nvfp4, mxfp4, mxfp8;
    CHECK_OK(spw_fp8_facts_of(SPW_FP4_NVFP4, SPW_GPU_BLACKWELL, &nvfp4));
    CHECK_OK(spw_fp8_facts_of(SPW_FP4_MXFP4, SPW_GPU_CDNA4, &mxfp4));
    CHECK_OK(spw_fp8_facts_of(SPW_FP8_MXFP8, SPW_GPU_BLACKWELL, &mxfp8));
    CHECK(near(1024.0 * nvfp4.copy_bytes, 512 + 64) && near(1024.0 * nvfp4.weight_bytes, 2 * (512 + 64)));
    CHECK(near(1024.0 * mxfp4.copy_bytes, 512 + 32) && near(1024.0 * mxfp4.weight_bytes, 2 * (512 + 32)));
    CHECK(near(1024.0 * mxfp8.copy_bytes, 1024 + 32) && near(1024.0 * mxfp8.weight_bytes, 2 * (1024 + 32)));
    CHECK(near(nvfp4.cast_bytes, 2 * 2 + 2 * 9.0 / 16) && near(mxfp4.cast_bytes, 2 + 2 * 17.0 / 32));
    CHECK(nvfp4.align == 128 && mxfp4.align == 128 && nvfp4.from_original && mxfp4.from_original);
    CHECK(nvfp4.products_width > mxfp8.products_width &&
          strcmp(nvfp4.products_are, "stated, not measured") == 0);
    CHECK(spw_fp8_recipe_is_fp4(SPW_FP4_NVFP4) && spw_fp8_recipe_is_fp4(SPW_FP4_MXFP4) &&
          !spw_fp8_recipe_is_fp4(SPW_FP8_MXFP8) && !spw_fp8_recipe_is_fp4(SPW_FP8_NONE));
}

static void test_refused(void) {
    static const struct {
        spw_fp8_recipe recipe;
        spw_gpu_generation gpu;
        const char *words;
    } cases[] = {{SPW_FP4_NVFP4, SPW_GPU_HOPPER, "recipe nvfp4 needs FP4 products of Blackwell"},
                 {SPW_FP4_NVFP4, SPW_GPU_CDNA4, "on CDNA 4 use mxfp4"},
                 {SPW_FP4_NVFP4, SPW_GPU_NONE, "recipe nvfp4 is TransformerEngine's"},
                 {SPW_FP4_MXFP4, SPW_GPU_BLACKWELL, "recipe mxfp4 is of AMD's TransformerEngine"},
                 {SPW_FP4_MXFP4, SPW_GPU_CDNA3, "needs FP4 products of CDNA 4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spw_fp8_facts facts;
        CHECK(spw_fp8_facts_of(cases[i].recipe, cases[i].gpu, &facts) == SPW_ECONFIG);
        CHECK(strstr(spw_last_error(), cases[i].words) != NULL);
    }
}

/* What a tensor group of two gathers; 12 tokens cannot be cast, so they travel in bf16 and are cast then. */
static void test_gathers(spw_job *job) {
    job->precision.recipe = SPW_FP4_NVFP4;
    const spw_fp8_gather in = spw_fp8_gather_of(job, 64, 4096), odd = spw_fp8_gather_of(job, 12, 4096);
    CHECK(near(in.input, 0.5625) && near(in.gradient, 1.125) && near(in.held, 1.125) &&
          near(in.settled, 1.125));
    CHECK(near(odd.input, 2.0) && near(odd.gradient, 2.0) && near(odd.held, 2.5625));
}

/* 0.6 of 9 over 2.25 PFLOP/s; a weight that is FP4 itself travels as half a byte. */
static void test_products(spw_job *job) {
    const spw_weight_family all_linear = {.elements = 1000, .linear = 1000},
                            half = {.elements = 1000, .linear = 500};
    job->precision.recipe = SPW_FP4_NVFP4;
    CHECK(near(spw_fp8_product_gain(job), 0.6 * 9.0 / 2.25));
    job->precision.fp8_param_gather = true;
    CHECK(near(spw_weight_gathered_bytes(job, &all_linear), 0.5));
    CHECK(near(spw_weight_gathered_bytes(job, &half), 0.5 * 0.5 + 0.5 * 2.0));
    job->precision.fp8_param_gather = false;
    job->precision.recipe = SPW_FP8_NONE;
    CHECK(near(spw_fp8_product_gain(job), 1.0));
}

int main(void) {
    static spw_job read;
    spw_job *const job = &read;
    static const char text[] = "model: mixtral-8x7b\ncluster: b200-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                               "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                               "precision: {recipe: nvfp4}\noptimizer: distributed\n"
                               "schemes: [\"megatron-alltoall:align=128\"]\n";
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, sizeof text - 1, job));
    test_copies();
    test_refused();
    test_gathers(job);
    test_products(job);
    return check_done();
}
