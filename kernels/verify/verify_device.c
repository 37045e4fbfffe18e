#include "kernels/verify/verify_device.h"

#include "kernels/gpu/device.h"
#include "kernels/verify/verify_gemm.h"
#include "kernels/verify/verify_local.h"
#include "kernels/verify/verify_record.h"

#include "base/progress.h"

#include <stdio.h>
#include <string.h>

/* Widths and expert counts of the models; rows and, in the reduced ones, widths are cut so that the reference
 * is quick. Sources: the models' config.json; fine-grained 7B: FLAME-MoE's and OLMoE's pattern with 1024-wide
 * experts. */
static const spw_gemm_case small_cases[] = {
    {"one row", 1, 1, 8, 8, SPW_ROUTING_UNIFORM, false},
    {"few rows, many experts", 64, 40, 64, 72, SPW_ROUTING_UNIFORM, false},
    {"edges of 8", 5, 300, 264, 520, SPW_ROUTING_UNIFORM, false},
    {"edges of 8", 5, 700, 136, 248, SPW_ROUTING_ZIPF, false},
    {"one expert", 8, 515, 192, 320, SPW_ROUTING_ONE, false},
    {"empty experts", 9, 515, 320, 192, SPW_ROUTING_EMPTY, false},
    {"short", 6, 1001, 256, 256, SPW_ROUTING_SHORT, false},
    {"one row", 1, 1, 8, 8, SPW_ROUTING_UNIFORM, false, SPW_GEMM_FP16},
    {"edges of 8", 5, 700, 136, 248, SPW_ROUTING_ZIPF, false, SPW_GEMM_FP16},
    {"empty experts", 9, 515, 320, 192, SPW_ROUTING_EMPTY, false, SPW_GEMM_FP16},
    {"short", 6, 1001, 256, 256, SPW_ROUTING_SHORT, false, SPW_GEMM_FP16},
};
static const spw_gemm_case reduced_cases[] = {
    {"deepseek-v3 / 8", 32, 2048, 896, 512, SPW_ROUTING_UNIFORM, false},
    {"deepseek-v3 / 8", 32, 2048, 896, 512, SPW_ROUTING_ZIPF, false},
    {"deepseek-v3 / 8 down", 32, 2048, 256, 896, SPW_ROUTING_EMPTY, false},
    {"mixtral / 8", 8, 2048, 512, 1792, SPW_ROUTING_ONE, false},
    {"olmoe / 4", 64, 2048, 512, 512, SPW_ROUTING_ZIPF, false},
    {"gpt-oss / 4", 32, 1536, 720, 1440, SPW_ROUTING_UNIFORM, false},
    {"fine-grained 7B / 4", 128, 2048, 512, 192, SPW_ROUTING_ZIPF, false},
    {"dead experts", 512, 600, 512, 384, SPW_ROUTING_ONE,
     false}, /* many tiles of no sum, one after the other */
    {"deepseek-v3 / 8", 32, 2048, 896, 512, SPW_ROUTING_ZIPF, false, SPW_GEMM_FP16},
    {"gpt-oss / 4", 32, 1536, 720, 1440, SPW_ROUTING_UNIFORM, false, SPW_GEMM_FP16},
};
static const spw_gemm_case full_cases[] = {
    {"deepseek-v3 gate and up", 32, 65536, 7168, 4096, SPW_ROUTING_UNIFORM, true},
    {"deepseek-v3 gate and up", 32, 65536, 7168, 4096, SPW_ROUTING_ZIPF, true},
    {"deepseek-v3 down", 32, 65536, 2048, 7168, SPW_ROUTING_ZIPF, true},
    {"mixtral gate and up", 8, 32768, 4096, 28672, SPW_ROUTING_EMPTY, true},
    {"olmoe gate and up", 64, 65536, 2048, 2048, SPW_ROUTING_ONE, true},
    {"gpt-oss gate and up", 32, 32768, 2880, 5760, SPW_ROUTING_ZIPF, true},
    {"fine-grained 7B", 128, 65536, 2048, 768, SPW_ROUTING_SHORT, true},
    {"gpt-oss gate and up", 32, 32768, 2880, 5760, SPW_ROUTING_ZIPF, true, SPW_GEMM_FP16},
};

/* Of the fused products every element is compared, in fp64 on the host: widths are cut further. */
static const spw_gemm_case fused_cases[] = {
    {"deepseek-v3 / 16", 8, 1500, 448, 512, SPW_ROUTING_ZIPF, false},
    {"gpt-oss / 8", 4, 1111, 360, 720, SPW_ROUTING_UNIFORM, false},
    {"fine-grained 7B / 4", 32, 2000, 384, 128, SPW_ROUTING_EMPTY, false},
    {"one row, fused", 1, 1, 8, 16, SPW_ROUTING_UNIFORM, false},
    {"edges of 8, fused", 5, 300, 136, 528, SPW_ROUTING_SHORT, false},
    {"deepseek-v3 / 16", 8, 1500, 448, 512, SPW_ROUTING_ZIPF, false, SPW_GEMM_FP16},
    {"edges of 8, fused", 5, 300, 136, 528, SPW_ROUTING_SHORT, false, SPW_GEMM_FP16},
};

/* The fewest and smallest in which each ring of stages comes round, a block has several tiles and edges are ragged: for tools under which a
 * kernel takes a thousand times as long. */
static const spw_gemm_case race_cases[] = {
    {"rings come round", 3, 300, 480, 272, SPW_ROUTING_ZIPF, false},
    {"rings come round", 3, 300, 464, 272, SPW_ROUTING_SHORT, false, SPW_GEMM_FP16},
};

/* More tiles than multiprocessors. */
static const spw_gemm_case block_cases[] = {
    {"gpt-oss / 4, in part", 32, 1536, 720, 1440, SPW_ROUTING_UNIFORM, false, SPW_GEMM_BF16},
    {"gpt-oss / 4, in part", 32, 1536, 720, 1440, SPW_ROUTING_SHORT, false, SPW_GEMM_FP16},
};

static const struct {
    const char *name;
    const spw_gemm_case *cases;
    size_t count;
    int local; /* the level of cases without a product */
    const spw_gemm_case *fused;
    size_t fused_count, block_count;
} levels[] = {
    {"small", small_cases, sizeof small_cases / sizeof *small_cases, 0, small_cases,
     sizeof small_cases / sizeof *small_cases, 0},
    {"reduced", reduced_cases, sizeof reduced_cases / sizeof *reduced_cases, 1, fused_cases,
     sizeof fused_cases / sizeof *fused_cases, sizeof block_cases / sizeof *block_cases},
    {"full", full_cases, sizeof full_cases / sizeof *full_cases, 2, NULL, 0, 0},
    {"races", race_cases, sizeof race_cases / sizeof *race_cases, 0, race_cases,
     sizeof race_cases / sizeof *race_cases, 1},
};

/* Kernels that are wrong on purpose: the judge must reject every result of theirs. */
static int forget_an_expert(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                            gpu_stream stream) {
    p.experts--;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
static int write_beside(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    p.c += 8;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
static int read_beside(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    p.a += 8;
    return spw_launch_gemm_tiled(form, element, p, stream);
}
/* Operands and results of fp16 for those of bf16, and the other way round. */
static int take_the_other_type(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p,
                               gpu_stream stream) {
    return spw_launch_gemm_tiled(form, element == SPW_GEMM_FP16 ? SPW_GEMM_BF16 : SPW_GEMM_FP16, p, stream);
}
static int do_nothing(spw_gemm_form form, spw_gemm_element element, spw_gemm_problem p, gpu_stream stream) {
    (void)form, (void)element, (void)p, (void)stream;
    return 0;
}

/* The same for fp8, of the fastest kernel. */
static int fast_float8(spw_gemm_float8_problem p, gpu_stream stream) {
    const spw_gemm_float8_variant *fast = spw_gemm_float8_variants;
    while (fast[1].name != NULL) fast++;
    return fast->launch(p, stream);
}
static int forget_an_expert_float8(spw_gemm_float8_problem p, gpu_stream stream) {
    p.pairs.experts--;
    return fast_float8(p, stream);
}
static int write_beside_float8(spw_gemm_float8_problem p, gpu_stream stream) {
    p.pairs.c += 8;
    return fast_float8(p, stream);
}
static int read_beside_float8(spw_gemm_float8_problem p, gpu_stream stream) {
    p.pairs.a += 8;
    return fast_float8(p, stream);
}
static int next_scales_of_rows(spw_gemm_float8_problem p, gpu_stream stream) {
    p.a_scale++;
    return fast_float8(p, stream);
}
static int next_scales_of_weights(spw_gemm_float8_problem p, gpu_stream stream) {
    p.b_scale++;
    return fast_float8(p, stream);
}

/* The same for its gradient of weights. */
static int fast_gradient(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    const spw_gemm_float8_variant *fast = spw_gemm_float8_variants;
    while (fast[1].name != NULL) fast++;
    return fast->weights(w, stream);
}
static int forget_an_expert_gradient(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    w.p.experts--;
    return fast_gradient(w, stream);
}
static int write_beside_gradient(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    w.p.c += 8, w.main += 8;
    return fast_gradient(w, stream);
}
static int read_beside_gradient(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    w.p.a += 8;
    return fast_gradient(w, stream);
}
static int next_scales_of_x(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    w.a_scale += w.p.inner;
    return fast_gradient(w, stream);
}
static int next_scales_of_dy(spw_gemm_float8_weights_problem w, gpu_stream stream) {
    w.b_scale += w.p.columns;
    return fast_gradient(w, stream);
}

static spw_status reject_wrong_kernels(spw_judge *judge) {
    static const spw_gemm_variant wrong[] = {{"forgets an expert", forget_an_expert},
                                             {"writes beside", write_beside},
                                             {"reads beside", read_beside},
                                             {"takes the other type", take_the_other_type},
                                             {"does nothing", do_nothing},
                                             {NULL, NULL}};
    /* Of the widest interval: that of Hopper's tensor cores. */
    static const spw_gemm_float8_variant wrong_float8[] = {
        {"forgets an expert", forget_an_expert_float8, 14, forget_an_expert_gradient},
        {"writes beside", write_beside_float8, 14, write_beside_gradient},
        {"reads beside", read_beside_float8, 14, read_beside_gradient},
        {"takes the next block's scales of rows", next_scales_of_rows, 14, next_scales_of_x},
        {"takes the next block's scales of weights", next_scales_of_weights, 14, next_scales_of_dy},
        {NULL, NULL, 0, NULL}};
    static const spw_gemm_case one = {"wrong on purpose", 3, 200, 64, 72, SPW_ROUTING_UNIFORM, false};
    static const spw_gemm_case one_fp16 = {"wrong on purpose",  3,     200,          64, 72,
                                           SPW_ROUTING_UNIFORM, false, SPW_GEMM_FP16};
    static const spw_gemm_case blocks = {"wrong on purpose", 3, 200, 272, 144, SPW_ROUTING_UNIFORM, false};
    static const spw_gemm_case blocks_fp16 = {"wrong on purpose",  3,     200,          272, 144,
                                              SPW_ROUTING_UNIFORM, false, SPW_GEMM_FP16};
    spw_judge unseen = {.quiet = true};
    spw_status status = spw_verify_gemm(wrong, &one, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm(wrong, &one_fp16, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm_strides_wrong(&one, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm_strides_wrong(&one_fp16, &unseen);
    if (status == SPW_OK) status = spw_verify_float8_strides_wrong(&blocks, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm_float8(wrong_float8, &blocks, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm_float8_gradient(wrong_float8, &blocks, &unseen);
    if (status == SPW_OK) status = spw_verify_float8_wrong(&unseen);
    if (status == SPW_OK) status = spw_verify_gemm_fused_wrong(&blocks, &unseen);
    if (status == SPW_OK) status = spw_verify_gemm_fused_wrong(&blocks_fp16, &unseen);
    if (status != SPW_OK) return status;
    printf("wrong kernels: %zu of %zu results rejected\n", unseen.failed, unseen.comparisons);
    spw_judge_count(
        judge,
        unseen.failed == unseen.comparisons && unseen.failed > 0
            ? SPW_OK
            : spw_fail(SPW_EMISMATCH, "%zu wrong results were accepted", unseen.comparisons - unseen.failed),
        "wrong kernels");
    return SPW_OK;
}

static spw_status products(const spw_gemm_case *c, spw_judge *judge) {
    return spw_verify_gemm(spw_gemm_variants, c, judge);
}
static spw_status tiles(const spw_gemm_case *c, spw_judge *judge) {
    return spw_verify_gemm_tiles(spw_gemm_tile_variants, c, judge);
}
static spw_status products_apart(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = spw_verify_gemm_strides(spw_gemm_variants, c, judge);
    if (status == SPW_OK) status = spw_verify_gemm_strides(spw_gemm_tile_variants, c, judge);
    return status == SPW_OK ? spw_verify_float8_strides(c, judge) : status;
}
/* Results of fp8 are bf16. */
static spw_status float8(const spw_gemm_case *c, spw_judge *judge) {
    return c->element == SPW_GEMM_BF16 ? spw_verify_gemm_float8(spw_gemm_float8_variants, c, judge) : SPW_OK;
}
static spw_status float8_gradient(const spw_gemm_case *c, spw_judge *judge) {
    return c->element == SPW_GEMM_BF16 ? spw_verify_gemm_float8_gradient(spw_gemm_float8_variants, c, judge)
                                       : SPW_OK;
}
static spw_status mxfp8(const spw_gemm_case *c, spw_judge *judge) {
    return c->element == SPW_GEMM_BF16 ? spw_verify_gemm_mxfp8(c, judge) : SPW_OK;
}

/* What is compared, by which of a level's cases or by itself. */
typedef enum of_cases { ALL_CASES, FUSED_CASES, BLOCK_CASES } of_cases;
static const struct kind {
    const char *name;
    of_cases cases;
    spw_status (*product)(const spw_gemm_case *, spw_judge *);
    spw_status (*other)(int level, spw_judge *);
} kinds[] = {
    {"products", ALL_CASES, products, NULL},
    {"other tiles", ALL_CASES, tiles, NULL},
    {"SwiGLU", ALL_CASES, spw_verify_gemm_swiglu, NULL},
    {"fused", FUSED_CASES, spw_verify_gemm_fused, NULL},
    {"strides", FUSED_CASES, products_apart, NULL},
    {"some blocks", BLOCK_CASES, spw_verify_gemm_blocks, NULL},
    {"fp8", ALL_CASES, float8, NULL},
    {"fp8 gradient of weights", ALL_CASES, float8_gradient, NULL},
    {"MXFP8", ALL_CASES, mxfp8, NULL},
    {"local", ALL_CASES, NULL, spw_verify_local},
    {"codes of fp8", ALL_CASES, NULL, spw_verify_float8},
};
enum { KINDS = sizeof kinds / sizeof *kinds, SLOW_S = 10 };

static spw_status run_kind(const struct kind *k, size_t level, spw_judge *judge) {
    const struct {
        const spw_gemm_case *cases;
        size_t count;
    } of[] = {[ALL_CASES] = {levels[level].cases, levels[level].count},
              [FUSED_CASES] = {levels[level].fused, levels[level].fused_count},
              [BLOCK_CASES] = {block_cases, levels[level].block_count}};
    if (k->other != NULL) return k->other(levels[level].local, judge);
    for (size_t i = 0; i < of[k->cases].count; i++) {
        const spw_gemm_case *c = &of[k->cases].cases[i];
        const double start = spw_clock_s();
        const spw_status status = k->product(c, judge);
        if (status != SPW_OK) return status;
        if (spw_clock_s() - start > SLOW_S)
            printf("%-8s %s, %s, %s: %.0f s\n", levels[level].name, k->name, c->name,
                   spw_routing_names[c->routing], spw_clock_s() - start);
    }
    return SPW_OK;
}

/* One kind after the other, or one. Cases that take long say so. */
static spw_status run_level(size_t level, const struct kind *only, spw_judge *judge) {
    const double start = spw_clock_s();
    for (const struct kind *k = kinds; k < kinds + KINDS; k++) {
        if (only != NULL && k != only) continue;
        const spw_status status = run_kind(k, level, judge);
        if (status != SPW_OK) return status;
    }
    printf("%-8s %s %6zu comparisons, %zu failed, %.1f s, largest error of a product %.3f of the allowance\n",
           levels[level].name, only == NULL ? "all kinds" : only->name, judge->comparisons, judge->failed,
           spw_clock_s() - start, judge->worst);
    return SPW_OK;
}

/* NULL for all of them. */
static spw_status find_kind(const char *name, const struct kind **out) {
    char all[256] = "";
    *out = NULL;
    if (name == NULL) return SPW_OK;
    for (size_t k = 0; k < KINDS; k++) {
        if (strcmp(name, kinds[k].name) == 0) *out = &kinds[k];
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", k == 0 ? "" : ", ", kinds[k].name);
    }
    return *out != NULL ? SPW_OK : spw_fail(SPW_EARG, "kind '%s' is unknown; the kinds are %s", name, all);
}

static spw_status run_record(const char *path, spw_judge *judge) {
    spw_record record;
    spw_status status = spw_record_read(path, &record);
    if (status == SPW_OK) status = spw_verify_record(&record, judge);
    spw_record_destroy(&record);
    return status;
}

spw_status spw_verify_device(const char *level, const char *kind, const char *record_path) {
    spw_judge judge = {0};
    const struct kind *only = NULL;
    spw_status status = find_kind(kind, &only);
    if (status != SPW_OK) return status;
    const size_t count = sizeof levels / sizeof *levels;
    size_t first = 0, last = count;
    if (level != NULL && strcmp(level, "all") != 0) {
        while (first < count && strcmp(level, levels[first].name) != 0) first++;
        if (first == count)
            return spw_fail(SPW_EARG, "level '%s' is unknown; use small, reduced, full, races or all", level);
        last = first + 1;
    }
    if (spw_device_count() == 0) return spw_fail(SPW_EDEVICE, "no GPU");
    printf("%s, %d multiprocessors\n", spw_device_name(), spw_device_multiprocessors());
    if (record_path != NULL) status = run_record(record_path, &judge);
    if (level != NULL && only == NULL && status == SPW_OK) status = reject_wrong_kernels(&judge);
    for (size_t i = first; level != NULL && i < last && status == SPW_OK; i++)
        status = run_level(i, only, &judge);
    printf("%zu comparisons, %zu failed%s\n", judge.comparisons, judge.failed,
           status == SPW_OK ? "" : ", and then it stopped: not all was compared");
    if (status != SPW_OK) return spw_fail_within(status, "stopped");
    if (judge.comparisons == 0) return spw_fail(SPW_EMISMATCH, "nothing was compared");
    return judge.failed == 0
               ? SPW_OK
               : spw_fail(SPW_EMISMATCH, "%zu of %zu comparisons failed", judge.failed, judge.comparisons);
}
