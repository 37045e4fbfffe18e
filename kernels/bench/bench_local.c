/* The local kernels at DeepSeek-V3's layer: 8192 tokens of 7168, 8 of 256 experts. Bytes are the least that must move: each input
 * read once, each output written once; a row that several tokens' choices share counts once. */
#include "kernels/bench/bench.h"
#include "kernels/gpu/device_pool.h"
#include "kernels/local/float8_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"
#include "kernels/record/routing.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    TOKENS = 8192,
    TOP_K = 8,
    EXPERTS = 256,
    HIDDEN = 7168,
    FFN = 2048,
    ROWS = TOKENS * TOP_K,
    SEQUENCE = 4096,
    CAPACITY = 160,
    SLOTS = EXPERTS * (TOKENS / SEQUENCE) * CAPACITY,
    CODED_EXPERTS = 16, /* of weights [4096][7168], as many numbers as the rows have */
    WEIGHTS = CODED_EXPERTS * 2 * FFN * HIDDEN,
    COLUMN_BLOCKS = ROWS / 128 + EXPERTS
};

typedef struct bench_layer {
    spw_device_pool pool;
    spw_router_gpu router;
    spw_plan_gpu plan;
    spw_capacity_gpu capacity;
    spw_swiglu_gpu swiglu;
    spw_token_rounding_gpu rounding;
    spw_float8_gpu codes;
    spw_float8_weights_gpu weights;
    spw_bf16 *x, *dy, *rows, *out, *gate_up, *act, *d_gate_up, *slots;
    float *logits, *weight, *d_weight;
} layer;

static int router(layer *l) { return spw_launch_router(l->router, NULL); }
static int plan(layer *l) { return spw_launch_plan(l->plan, NULL); }
static int fan_out(layer *l) {
    return spw_launch_fan_out(TOKENS, HIDDEN, TOP_K, l->plan.row, l->x, l->out, NULL);
}
static int combine(layer *l) {
    return spw_launch_combine((spw_combine_gpu){TOKENS, HIDDEN, TOP_K, l->plan.row, l->weight, l->rows, l->x},
                              NULL);
}
static int combine_gradient(layer *l) {
    return spw_launch_combine_gradient(TOKENS, HIDDEN, TOP_K, l->plan.row, l->weight, l->dy, l->rows, l->out,
                                       l->d_weight, NULL);
}
static int swiglu(layer *l) { return spw_launch_swiglu(l->swiglu, l->act, NULL); }
static int swiglu_gradient(layer *l) {
    return spw_launch_swiglu_gradient(l->swiglu, l->act, l->d_gate_up, l->d_gate_up + FFN, NULL);
}
static int capacity(layer *l) { return spw_launch_capacity(l->capacity, NULL); }
static int capacity_scatter(layer *l) {
    const int error = spw_launch_fan_out(TOKENS, HIDDEN, TOP_K, l->capacity.row, l->x, l->slots, NULL);
    return error != 0 ? error
                      : spw_launch_fan_out_clear(SLOTS, HIDDEN, l->capacity.assignment, l->slots, NULL);
}
static int rounding(layer *l) { return spw_launch_token_rounding(l->rounding, NULL); }

/* Codes of rows of the plan that the kernels before have made; w stands in the rows. */
static spw_float8_gpu codes_of(const layer *l, int width, bool by_columns) {
    spw_float8_gpu q = l->codes;
    q.width = width;
    if (!by_columns) q.column_code = NULL;
    return q;
}
static int code_rows(layer *l) { return spw_launch_float8_rows(codes_of(l, HIDDEN, true), l->rows, NULL); }
static int code_gathered(layer *l) {
    return spw_launch_float8_gathered(codes_of(l, HIDDEN, true), l->x, l->plan.assignment, TOP_K, NULL);
}
static int code_gathered_by_rows(layer *l) {
    return spw_launch_float8_gathered(codes_of(l, HIDDEN, false), l->x, l->plan.assignment, TOP_K, NULL);
}
static int code_swiglu(layer *l) {
    return spw_launch_float8_activation(codes_of(l, FFN, true), l->swiglu, NULL);
}
static int code_weights(layer *l) { return spw_launch_float8_weights(l->weights, l->rows, NULL); }
static int turn_codes(layer *l) { return spw_launch_float8_turn(l->weights, NULL); }

/* Bytes of codes and scales of rows. */
#define CODES(width) (1.0 * ROWS * (width) * (1 + 4.0 / 128))

static const double row_bytes = 2.0 * HIDDEN, score_bytes = 4.0 * TOKENS * EXPERTS;
static const struct bench_kernel {
    const char *name;
    int (*launch)(layer *);
    double rows_moved, scores_moved, other; /* rows of HIDDEN, arrays of scores, bytes */
} kernels[] = {
    {"router top-k", router, 0, 2, 8.0 * ROWS},
    {"plan: counts and permutation", plan, 0, 0, 12.0 * ROWS},
    {"fan-out", fan_out, ROWS + TOKENS, 0, 4.0 * ROWS},
    {"combine", combine, ROWS + TOKENS, 0, 8.0 * ROWS},
    {"combine gradient", combine_gradient, 2.0 * ROWS + TOKENS, 0, 12.0 * ROWS},
    {"swiglu", swiglu, 0, 0, 6.0 * ROWS *FFN},
    {"swiglu gradient", swiglu_gradient, 0, 0, 10.0 * ROWS *FFN},
    {"capacity places", capacity, 0, 0, 8.0 * ROWS + 4.0 * SLOTS},
    {"capacity scatter", capacity_scatter, SLOTS + TOKENS, 0, 0},
    {"token rounding", rounding, 0, 2, (1.0 * TOKENS + 8) * EXPERTS + 8.0 * ROWS},
    {"fp8 of rows, both ways", code_rows, ROWS, 0, 2 * CODES(HIDDEN)},
    {"fp8 of gathered rows, both ways", code_gathered, TOKENS, 0, 2 * CODES(HIDDEN) + 4.0 * ROWS},
    {"fp8 of gathered rows, by rows", code_gathered_by_rows, TOKENS, 0, CODES(HIDDEN) + 4.0 * ROWS},
    {"fp8 of swiglu, both ways", code_swiglu, 0, 0, 4.0 * ROWS *FFN + 2 * CODES(FFN)},
    {"fp8 of weights, both ways", code_weights, 0, 0, 4.0 * WEIGHTS},
    {"fp8 of weights, transposed", turn_codes, 0, 0, 2.0 * WEIGHTS},
};

typedef struct run {
    layer *l;
    const struct bench_kernel *kernel;
} run;

static spw_status prepare(void *pointer, int number) {
    layer *l = ((run *)pointer)->l;
    const struct {
        void *data;
        long count;
    } arrays[] = {{l->x, (long)TOKENS * HIDDEN},
                  {l->dy, (long)TOKENS * HIDDEN},
                  {l->rows, (long)ROWS * HIDDEN},
                  {l->gate_up, (long)ROWS * 2 * FFN},
                  {l->act, (long)ROWS * FFN}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        const int error = spw_launch_fill_bf16(arrays[i].data, arrays[i].count, SPW_NUMBERS_BELL,
                                               16 * (unsigned long long)number + i, NULL);
        if (error != 0) return spw_device_check(error, "fill");
    }
    return spw_device_check(spw_launch_fill_float(l->logits, (long)TOKENS * EXPERTS, SPW_NUMBERS_BELL,
                                                  16 * (unsigned long long)number + 9, NULL),
                            "fill");
}

static spw_status work(void *pointer, int number) {
    run *r = pointer;
    (void)number;
    return spw_device_check(r->kernel->launch(r->l), r->kernel->name);
}

static spw_bf16 *halves(layer *l, size_t count) { return spw_pool_device(&l->pool, count * 2, NULL); }
static void *words(layer *l, size_t count) { return spw_pool_device(&l->pool, count * 4, NULL); }

static spw_status create(layer *l) {
    l->x = halves(l, (size_t)TOKENS * HIDDEN), l->dy = halves(l, (size_t)TOKENS * HIDDEN);
    l->rows = halves(l, (size_t)ROWS * HIDDEN), l->out = halves(l, (size_t)ROWS * HIDDEN);
    l->gate_up = halves(l, (size_t)ROWS * 2 * FFN), l->d_gate_up = halves(l, (size_t)ROWS * 2 * FFN);
    l->act = halves(l, (size_t)ROWS * FFN);
    l->slots = halves(l, (size_t)SLOTS * HIDDEN);
    l->logits = words(l, (size_t)TOKENS * EXPERTS), l->weight = words(l, ROWS), l->d_weight = words(l, ROWS);
    l->router = (spw_router_gpu){.tokens = TOKENS,
                                 .experts = EXPERTS,
                                 .top_k = TOP_K,
                                 .sigmoid = 1,
                                 .groups = 8,
                                 .groups_kept = 4,
                                 .group_terms = 2,
                                 .renormalize = 1,
                                 .scaling = 2.5f,
                                 .logits = l->logits};
    l->router.score = words(l, (size_t)TOKENS * EXPERTS), l->router.weight = words(l, ROWS),
    l->router.expert = words(l, ROWS);
    l->plan = (spw_plan_gpu){.assignments = ROWS, .experts = EXPERTS, .expert = l->router.expert};
    l->plan.chunk_count = words(l, (size_t)ROWS / SPW_PLAN_CHUNK * EXPERTS),
    l->plan.count = words(l, EXPERTS);
    l->plan.offset = words(l, EXPERTS + 1), l->plan.row = words(l, ROWS), l->plan.assignment = words(l, ROWS);
    l->capacity = (spw_capacity_gpu){.groups = TOKENS / SEQUENCE,
                                     .assignments_per_group = SEQUENCE * TOP_K,
                                     .experts = EXPERTS,
                                     .capacity = CAPACITY,
                                     .expert = l->router.expert,
                                     .row = words(l, ROWS)};
    l->capacity.assignment = words(l, SLOTS);
    l->swiglu = (spw_swiglu_gpu){
        .rows = ROWS, .ffn = FFN, .stride = 2 * FFN, .gate = l->gate_up, .up = l->gate_up + FFN};
    l->rounding = (spw_token_rounding_gpu){.tokens = TOKENS,
                                           .top_k = TOP_K,
                                           .experts = EXPERTS,
                                           .tile = 128,
                                           .score = l->router.score,
                                           .expert = l->router.expert,
                                           .weight = l->router.weight};
    l->rounding.keys = words(l, (size_t)TOKENS * EXPERTS), l->rounding.limits = words(l, (size_t)2 * EXPERTS);
    l->rounding.taken = words(l, (size_t)TOKENS * EXPERTS), l->rounding.count = words(l, EXPERTS);
    l->rounding.member = spw_pool_device(&l->pool, (size_t)TOKENS * EXPERTS, NULL);
    l->codes = (spw_float8_gpu){.experts = EXPERTS, .rows = ROWS, .offset = l->plan.offset};
    l->codes.code = spw_pool_device(&l->pool, (size_t)ROWS * HIDDEN, NULL);
    l->codes.scale = words(l, (size_t)ROWS * HIDDEN / 128);
    l->codes.column_code = spw_pool_device(&l->pool, (size_t)COLUMN_BLOCKS * 128 * HIDDEN, NULL);
    l->codes.column_scale = words(l, (size_t)COLUMN_BLOCKS * HIDDEN);
    l->weights = (spw_float8_weights_gpu){
        CODED_EXPERTS,        2 * FFN, HIDDEN, 0, l->codes.code, l->codes.scale, l->codes.column_code,
        l->codes.column_scale};
    if (l->pool.status == SPW_OK)
        l->pool.status =
            spw_device_check(spw_launch_fill_float(l->weight, ROWS, SPW_NUMBERS_BELL, 3, NULL), "fill");
    return l->pool.status;
}

spw_status spw_bench_local(void) {
    spw_status status = SPW_OK;
    layer l;
    memset(&l, 0, sizeof l);
    SPW_TRY(create(&l));
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const struct bench_kernel *k = &kernels[i];
        double ms = 0;
        SPW_TRY(spw_bench_time(prepare, work, &(run){&l, k}, &ms));
        const double bytes = k->rows_moved * row_bytes + k->scores_moved * score_bytes + k->other;
        printf("spillway,%s,deepseek-v3 layer,,%d,%d,%d,%d,%.4f,%.1f,GB/s\n", k->name, EXPERTS, ROWS, HIDDEN,
               FFN, ms, 1e-6 * bytes / ms);
        fflush(stdout);
    }
cleanup:
    spw_pool_destroy(&l.pool);
    return status;
}
