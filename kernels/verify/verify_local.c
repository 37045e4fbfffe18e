#include "kernels/verify/verify_local.h"

#include "kernels/gpu/device_pool.h"
#include "kernels/local/local_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/record/routing.h"
#include "reference/bf16.h"
#include "reference/capacity.h"
#include "reference/combine.h"
#include "reference/router.h"
#include "reference/swiglu.h"
#include "reference/token_rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct local_case {
    const char *name;
    size_t tokens, top_k, experts, width, groups, groups_kept, group_terms, sequences;
    bool sigmoid, renormalize, bias;
    float scaling;
    spw_routing routing; /* of the plan; the router makes its own choices */
    int level;
} local_case;

/* Routers: the models' config.json and code; group-limited ones as DeepSeek-V3. */
static const local_case cases[] = {
    {"one token", 1, 1, 1, 8, 1, 1, 1, 1, false, true, false, 1, SPW_ROUTING_UNIFORM, 0},
    {"edges", 77, 3, 10, 72, 1, 1, 1, 7, false, false, false, 1, SPW_ROUTING_EMPTY, 0},
    {"one expert owns all", 50, 2, 12, 24, 3, 2, 1, 5, true, true, true, 1.5f, SPW_ROUTING_ONE, 0},
    {"unused choices", 300, 6, 64, 136, 8, 3, 2, 3, true, true, true, 2.5f, SPW_ROUTING_SHORT, 0},
    {"deepseek-v3", 512, 8, 256, 896, 8, 4, 2, 4, true, true, true, 2.5f, SPW_ROUTING_ZIPF, 1},
    {"mixtral", 1024, 2, 8, 512, 1, 1, 1, 8, false, true, false, 1, SPW_ROUTING_ZIPF, 1},
    {"olmoe", 1024, 8, 64, 256, 1, 1, 1, 2, false, false, false, 1, SPW_ROUTING_ONE, 1},
    {"gpt-oss", 700, 4, 128, 2880, 1, 1, 1, 1, false, true, false, 1, SPW_ROUTING_EMPTY, 1},
    {"fine-grained 7B", 1000, 16, 512, 264, 1, 1, 1, 5, false, true, false, 1, SPW_ROUTING_SHORT, 1},
    {"deepseek-v3 full", 8192, 8, 256, 7168, 8, 4, 2, 2, true, true, true, 2.5f, SPW_ROUTING_ZIPF, 2},
};

/* Numbers that bf16 holds, as fp32 and as bf16 on the device. */
typedef struct bf16_data {
    float *value;
    spw_bf16 *bits, *device;
} bf16_data;

static bf16_data make(spw_device_pool *pool, uint64_t seed, size_t count) {
    bf16_data d = {spw_pool_host(pool, count * sizeof(float)), spw_pool_host(pool, count * 2), NULL};
    if (pool->status != SPW_OK) return d;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) {
        d.bits[i] = spw_bf16_from_float(2.5f * spw_number(SPW_NUMBERS_BELL, seed, i));
        d.value[i] = spw_bf16_to_float(d.bits[i]);
    }
    d.device = spw_pool_device(pool, count * 2, d.bits);
    return d;
}

static float *floats(spw_device_pool *pool, size_t count) {
    return spw_pool_host(pool, count * sizeof(float));
}

/* All that a check needs. */
typedef struct check {
    const local_case *c;
    spw_device_pool pool;
    spw_judge *judge;
} check;

static void count(check *k, spw_status result, const char *what) {
    if (k->pool.status != SPW_OK) return;
    spw_judge_count(k->judge, result, "%s, %s", what, k->c->name);
}

static void launched(check *k, int error, const char *what) {
    if (k->pool.status == SPW_OK) k->pool.status = spw_device_check(error, what);
}

/* The choices that the other checks use where they must be distinct in a token. */
static int32_t *check_router(check *k, float **score_out, float **weight_out) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t scores = c->tokens * c->experts, choices = c->tokens * c->top_k;
    float *logits = floats(pool, scores), *bias = floats(pool, c->experts), *score = floats(pool, scores);
    float *weight = floats(pool, choices);
    int32_t *expert = spw_pool_host(pool, choices * sizeof *expert);
    if (pool->status != SPW_OK) return NULL;
    for (size_t i = 0; i < scores; i++) logits[i] = 4 * spw_number(SPW_NUMBERS_BELL, 21, i);
    for (size_t i = 0; i < c->experts; i++) bias[i] = 0.1f * spw_number(SPW_NUMBERS_BELL, 22, i);
    const spw_router r = {.tokens = c->tokens,
                          .experts = c->experts,
                          .top_k = c->top_k,
                          .score = c->sigmoid ? SPW_SCORE_SIGMOID : SPW_SCORE_SOFTMAX,
                          .groups = c->groups,
                          .groups_kept = c->groups_kept,
                          .group_terms = c->group_terms,
                          .renormalize = c->renormalize,
                          .scaling = c->scaling};
    pool->status = spw_ref_router(&r, logits, c->bias ? bias : NULL, score, expert, weight);
    spw_router_gpu g = {.tokens = (int)c->tokens,
                        .experts = (int)c->experts,
                        .top_k = (int)c->top_k,
                        .sigmoid = c->sigmoid,
                        .groups = (int)c->groups,
                        .groups_kept = (int)c->groups_kept,
                        .group_terms = (int)c->group_terms,
                        .renormalize = c->renormalize,
                        .scaling = c->scaling};
    g.logits = spw_pool_device(pool, scores * 4, logits);
    g.bias = c->bias ? spw_pool_device(pool, c->experts * 4, bias) : NULL;
    g.score = spw_pool_device(pool, scores * 4, NULL);
    g.expert = spw_pool_device(pool, choices * 4, NULL);
    g.weight = spw_pool_device(pool, choices * 4, NULL);
    if (pool->status == SPW_OK) launched(k, spw_launch_router(g, NULL), "router");
    const float *got_score = spw_pool_fetch(pool, g.score), *got_weight = spw_pool_fetch(pool, g.weight);
    const int *got_expert = spw_pool_fetch(pool, g.expert);
    if (pool->status != SPW_OK) return NULL;
    /* fp64 rounded once on both sides: at most one unit apart, and weights inherit it */
    count(k, spw_judge_float(k->judge, false, scores, 0, got_score, score, score), "router scores");
    count(k, spw_judge_bytes(choices, 4, got_expert, expert), "router choices");
    count(k, spw_judge_float(k->judge, false, choices, c->top_k, got_weight, weight, weight),
          "router weights");
    *score_out = score, *weight_out = weight;
    return expert;
}

static void check_plan(check *k, const int32_t *expert, spw_plan *plan) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t n = c->tokens * c->top_k, chunks = (n + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_plan_gpu g = {.assignments = (int)n, .experts = (int)c->experts};
    g.expert = spw_pool_device(pool, n * 4, expert);
    g.chunk_count = spw_pool_device(pool, chunks * c->experts * 4, NULL);
    g.count = spw_pool_device(pool, c->experts * 4, NULL);
    g.offset = spw_pool_device(pool, (c->experts + 1) * 4, NULL);
    g.row = spw_pool_device(pool, n * 4, NULL), g.assignment = spw_pool_device(pool, n * 4, NULL);
    if (pool->status != SPW_OK) return;
    pool->status = spw_ref_plan_create(c->tokens, c->top_k, c->experts, expert, plan);
    if (pool->status != SPW_OK) return;
    launched(k, spw_launch_plan(g, NULL), "plan");
    const int *row = spw_pool_fetch(pool, g.row), *assignment = spw_pool_fetch(pool, g.assignment);
    const int *counts = spw_pool_fetch(pool, g.count), *offsets = spw_pool_fetch(pool, g.offset);
    int *want = spw_pool_host(pool, (2 * c->experts + 1) * sizeof *want);
    if (pool->status != SPW_OK) return;
    for (size_t e = 0; e < c->experts; e++) want[e] = (int)plan->count[e];
    for (size_t e = 0; e <= c->experts; e++) want[c->experts + e] = (int)plan->offset[e];
    count(k, spw_judge_bytes(c->experts, 4, counts, want), "plan counts");
    count(k, spw_judge_bytes(c->experts + 1, 4, offsets, want + c->experts), "plan offsets");
    count(k, spw_judge_bytes(n, 4, row, plan->row), "plan rows");
    count(k, spw_judge_bytes(plan->rows, 4, assignment, plan->assignment), "plan assignments");
    spw_status behind = SPW_OK;
    for (size_t i = plan->rows; i < n; i++)
        if (assignment[i] != -1)
            behind = spw_fail(SPW_EMISMATCH, "assignment %zu of %zu rows was written", i, plan->rows);
    count(k, behind, "plan assignments behind the last row");
}

static void check_movement(check *k, const spw_plan *plan) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t n = c->tokens * c->top_k, size = plan->rows * c->width, all = n * c->width,
                 tokens = c->tokens * c->width;
    const bf16_data x = make(pool, 31, tokens), rows = make(pool, 32, all), dy = make(pool, 33, tokens);
    float *want = floats(pool, all), *scale = floats(pool, all), *weight = floats(pool, n),
          *small = floats(pool, n);
    float *small_scale = floats(pool, n);
    spw_bf16 *out = spw_pool_device(pool, all * 2, NULL), *y = spw_pool_device(pool, tokens * 2, NULL);
    spw_bf16 *dx = spw_pool_device(pool, tokens * 2, NULL), *d_rows = spw_pool_device(pool, all * 2, NULL);
    float *d_weight = spw_pool_device(pool, n * 4, NULL);
    const int *row = spw_pool_device(pool, n * 4, plan->row);
    for (size_t i = 0; i < n && pool->status == SPW_OK; i++)
        weight[i] = 0.5f + 0.2f * spw_number(SPW_NUMBERS_BELL, 34, i);
    const float *device_weight = spw_pool_device(pool, n * 4, weight);
    if (pool->status != SPW_OK) return;
    const int t = (int)c->tokens, w = (int)c->width, top_k = (int)c->top_k;
    launched(k, spw_launch_fan_out(t, w, top_k, row, x.device, out, NULL), "fan-out");
    launched(k, spw_launch_combine((spw_combine_gpu){t, w, top_k, row, device_weight, rows.device, y}, NULL),
             "combine");
    launched(k, spw_launch_combine((spw_combine_gpu){t, w, top_k, row, NULL, rows.device, dx}, NULL),
             "fan-out gradient");
    launched(k,
             spw_launch_combine_gradient(t, w, top_k, row, device_weight, dy.device, rows.device, d_rows,
                                         d_weight, NULL),
             "combine gradient");
    const spw_bf16 *got_out = spw_pool_fetch(pool, out), *got_y = spw_pool_fetch(pool, y);
    const spw_bf16 *got_dx = spw_pool_fetch(pool, dx), *got_rows = spw_pool_fetch(pool, d_rows);
    const float *got_weight = spw_pool_fetch(pool, d_weight);
    if (pool->status != SPW_OK) return;
    spw_ref_permute(plan, c->width, x.value, want);
    count(k, spw_judge_bf16(k->judge, true, size, 0, got_out, want, want), "fan-out");
    spw_status behind = SPW_OK;
    for (size_t i = size; i < all; i++)
        if (got_out[i] != 0xffff || got_rows[i] != 0xffff)
            behind = spw_fail(SPW_EMISMATCH, "element %zu behind the rows", i);
    count(k, behind, "rows behind the last");
    spw_ref_combine(plan, c->width, rows.value, weight, want, scale);
    count(k, spw_judge_bf16(k->judge, false, tokens, c->top_k, got_y, want, scale), "combine");
    spw_ref_permute_gradient(plan, c->width, rows.value, want, scale);
    count(k, spw_judge_bf16(k->judge, false, tokens, c->top_k, got_dx, want, scale), "fan-out gradient");
    spw_ref_combine_gradient(plan, c->width, dy.value, rows.value, weight,
                             (spw_combine_gradients){want, small, small_scale});
    for (size_t i = 0; i < size; i++) scale[i] = want[i] < 0 ? -want[i] : want[i];
    count(k, spw_judge_bf16(k->judge, false, size, 1, got_rows, want, scale), "combine gradient, rows");
    count(k, spw_judge_float(k->judge, false, n, c->width, got_weight, small, small_scale),
          "combine gradient, weights");
}

/* Where a row of gate and up has its numbers: reference/swiglu.h's names. */
typedef struct gate_up_form {
    spw_swiglu kind;
    spw_activation_form form;
} gate_up_form;
static const gate_up_form gate_up_forms[] = {
    {{0, 0}, SPW_FORM_SWIGLU},
    {{2.0f, 1.702f}, SPW_FORM_SWIGLU}, /* a limit that the data reaches */
    {{0, 0}, SPW_FORM_SWIGLU_PAIRS},
    {{2.0f, 1.702f}, SPW_FORM_SWIGLU_PAIRS},
    {{.gate = SPW_GATE_GELU}, SPW_FORM_GEGLU},
    {{.gate = SPW_GATE_GELU}, SPW_FORM_GEGLU_PAIRS},
    {{.plain = SPW_RELU2}, SPW_FORM_RELU2},
};

static bool has_pairs(gate_up_form a) {
    return a.form == SPW_FORM_SWIGLU_PAIRS || a.form == SPW_FORM_GEGLU_PAIRS;
}
static size_t gate_at(gate_up_form a, size_t f) { return has_pairs(a) ? 2 * f : f; }
static size_t up_at(gate_up_form a, size_t ffn, size_t f) {
    return a.form == SPW_FORM_RELU2 ? f : has_pairs(a) ? 2 * f + 1 : ffn + f;
}

/* GeGLU's argument is rounded a few times more than SwiGLU's (swiglu_math.h). */
static void widen(gate_up_form a, size_t count, const float *gate, float *scale) {
    if (a.kind.gate != SPW_GATE_GELU) return;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++) scale[i] *= 2 + 3 * fabsf(gate[i]);
}

static void check_activation(check *k, gate_up_form a) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t n = c->tokens * c->width, ffn = c->width, wide = a.form == SPW_FORM_RELU2 ? ffn : 2 * ffn;
    const bf16_data both = make(pool, 41, c->tokens * wide), d = make(pool, 42, n);
    float *gate = floats(pool, n), *up = floats(pool, n), *want = floats(pool, 2 * n),
          *scale = floats(pool, 2 * n);
    spw_bf16 *act = spw_pool_device(pool, n * 2, NULL),
             *d_both = spw_pool_device(pool, c->tokens * wide * 2, NULL);
    if (pool->status != SPW_OK) return;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        const float *row = both.value + i / ffn * wide;
        gate[i] = row[gate_at(a, i % ffn)], up[i] = row[up_at(a, ffn, i % ffn)];
    }
    const spw_swiglu_gpu s = {.rows = (int)c->tokens,
                              .ffn = (int)ffn,
                              .stride = (int)wide,
                              .limit = a.kind.limit,
                              .alpha = a.kind.alpha,
                              .form = (int)a.form,
                              .gate = both.device,
                              .up = both.device + ffn};
    launched(k, spw_launch_activation(s, act, NULL), "activation");
    launched(k, spw_launch_activation_gradient(s, d.device, d_both, d_both + ffn, NULL),
             "activation gradient");
    const spw_bf16 *got = spw_pool_fetch(pool, act), *got_both = spw_pool_fetch(pool, d_both);
    spw_bf16 *parted = spw_pool_host(pool, 2 * n * 2);
    if (pool->status != SPW_OK) return;
    spw_ref_swiglu(a.kind, n, gate, up, want, scale);
    widen(a, n, gate, scale);
    count(k, spw_judge_bf16(k->judge, false, n, 10, got, want, scale),
          "activation"); /* 10, 23: swiglu_math.h */
    spw_ref_swiglu_gradient(a.kind, n, gate, up, d.value, (spw_swiglu_gradients){want, want + n, scale});
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) scale[n + i] = want[n + i] < 0 ? -want[n + i] : want[n + i];
    widen(a, n, gate, scale), widen(a, n, gate, scale + n);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++) {
        const spw_bf16 *row = got_both + i / ffn * wide;
        parted[i] = row[gate_at(a, i % ffn)];
        parted[n + i] = row[up_at(a, ffn, i % ffn)];
    }
    const size_t judged = a.form == SPW_FORM_RELU2 ? n : 2 * n;
    count(k, spw_judge_bf16(k->judge, false, judged, 23, parted, want, scale), "activation gradient");
}

static void check_capacity(check *k, const int32_t *expert) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t n = c->tokens * c->top_k, group = c->tokens / c->sequences, per_group = group * c->top_k;
    if (group * c->sequences != c->tokens) return;
    const size_t capacity = spw_ref_capacity_maxtext(group, c->top_k, c->experts, 1.25);
    const size_t slots = c->experts * c->sequences * capacity;
    uint8_t *keep = spw_pool_host(pool, n);
    int *want_row = spw_pool_host(pool, n * 4), *want = spw_pool_host(pool, slots * 4);
    size_t dropped = 0, *seen = spw_pool_host(pool, c->experts * sizeof *seen);
    const spw_choices choices = {c->tokens, c->top_k, c->experts, expert};
    if (pool->status == SPW_OK)
        pool->status = spw_ref_keep_by_position(choices, group, capacity, keep, &dropped);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < slots; i++) want[i] = -1;
    for (size_t i = 0; i < n; i++) {
        if (i % per_group == 0) memset(seen, 0, c->experts * sizeof *seen);
        want_row[i] = -1;
        if (!keep[i]) continue;
        const size_t e = (size_t)expert[i];
        want_row[i] = (int)((e * c->sequences + i / per_group) * capacity + seen[e]++);
        want[want_row[i]] = (int)i;
    }
    spw_capacity_gpu g = {.groups = (int)c->sequences,
                          .assignments_per_group = (int)per_group,
                          .experts = (int)c->experts,
                          .capacity = (int)capacity,
                          .expert = spw_pool_device(pool, n * 4, expert)};
    g.row = spw_pool_device(pool, n * 4, NULL), g.assignment = spw_pool_device(pool, slots * 4, NULL);
    if (pool->status == SPW_OK) launched(k, spw_launch_capacity(g, NULL), "capacity");
    const size_t width = 16;
    const bf16_data x = make(pool, 51, c->tokens * width);
    spw_bf16 *out = spw_pool_device(pool, slots * width * 2, NULL),
             *moved = spw_pool_host(pool, slots * width * 2);
    if (pool->status == SPW_OK) {
        const int t = (int)c->tokens, w = (int)width, top_k = (int)c->top_k;
        launched(k, spw_launch_fan_out(t, w, top_k, g.row, x.device, out, NULL), "fan-out");
        launched(k, spw_launch_fan_out_clear((int)slots, w, g.assignment, out, NULL), "empty slots");
    }
    const int *row = spw_pool_fetch(pool, g.row), *assignment = spw_pool_fetch(pool, g.assignment);
    const spw_bf16 *got = spw_pool_fetch(pool, out);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < slots; i++)
        if (want[i] >= 0) memcpy(moved + i * width, x.bits + (size_t)want[i] / c->top_k * width, width * 2);
    count(k, spw_judge_bytes(n, 4, row, want_row), "capacity rows");
    count(k, spw_judge_bytes(slots, 4, assignment, want), "capacity slots");
    count(k, spw_judge_bytes(slots * width, 2, got, moved), "capacity scatter, empty slots 0");
}

static void check_rounding(check *k, spw_rounding rounding, const float *score, const int32_t *expert,
                           const float *weight) {
    const local_case *c = k->c;
    spw_device_pool *pool = &k->pool;
    const size_t cells = c->tokens * c->experts, choices = c->tokens * c->top_k, tile = 16;
    float *taken = floats(pool, cells);
    uint8_t *member = spw_pool_host(pool, cells);
    size_t *counts = spw_pool_host(pool, c->experts * sizeof *counts);
    int *want_count = spw_pool_host(pool, c->experts * 4);
    if (pool->status == SPW_OK)
        pool->status = spw_ref_token_rounding(
            &(spw_rounded_choices){c->tokens, c->top_k, c->experts, tile, rounding, score, expert, weight},
            taken, member, counts);
    if (pool->status != SPW_OK) return;
    for (size_t e = 0; e < c->experts; e++) want_count[e] = (int)counts[e];
    spw_token_rounding_gpu g = {.tokens = (int)c->tokens,
                                .top_k = (int)c->top_k,
                                .experts = (int)c->experts,
                                .tile = (int)tile,
                                .rounding = (int)rounding};
    g.score = spw_pool_device(pool, cells * 4, score), g.expert = spw_pool_device(pool, choices * 4, expert);
    g.weight = spw_pool_device(pool, choices * 4, weight), g.keys = spw_pool_device(pool, cells * 4, NULL);
    g.limits = spw_pool_device(pool, c->experts * 8, NULL), g.taken = spw_pool_device(pool, cells * 4, NULL);
    g.member = spw_pool_device(pool, cells, NULL), g.count = spw_pool_device(pool, c->experts * 4, NULL);
    if (pool->status == SPW_OK) launched(k, spw_launch_token_rounding(g, NULL), "token rounding");
    const float *got_taken = spw_pool_fetch(pool, g.taken);
    const uint8_t *got_member = spw_pool_fetch(pool, g.member);
    const int *got_count = spw_pool_fetch(pool, g.count);
    if (pool->status != SPW_OK) return;
    count(k, spw_judge_bytes(c->experts, 4, got_count, want_count), "token rounding counts");
    count(k, spw_judge_bytes(cells, 1, got_member, member), "token rounding members");
    count(k, spw_judge_bytes(cells, 4, got_taken, taken), "token rounding weights");
}

/* Ends a check: guards, then all memory is given back. */
static spw_status finish(check *k, const char *what) {
    const spw_status guards = k->pool.status == SPW_OK ? spw_pool_guards(&k->pool) : k->pool.status;
    const bool mismatch = guards == SPW_EMISMATCH;
    if (guards == SPW_OK || mismatch) k->pool.status = SPW_OK, count(k, guards, what);
    spw_pool_destroy(&k->pool);
    return mismatch ? SPW_OK : guards;
}

static spw_status verify_case(const local_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    check routed = {.c = c, .judge = judge}, moved = {.c = c, .judge = judge},
          other = {.c = c, .judge = judge};
    spw_plan plan = {0};
    const size_t n = c->tokens * c->top_k;
    float *score = NULL, *weight = NULL;
    const int32_t *chosen = check_router(&routed, &score, &weight);
    int32_t *expert = spw_pool_host(&moved.pool, n * sizeof *expert);
    for (size_t i = 0; i < n && expert != NULL; i++)
        expert[i] = spw_routing_expert(c->routing, c->experts, n, 61, i);
    check_plan(&moved, expert, &plan);
    if (moved.pool.status == SPW_OK) check_movement(&moved, &plan);
    for (size_t i = 0; i < sizeof gate_up_forms / sizeof *gate_up_forms; i++) {
        check form = {.c = c,
                      .judge = judge}; /* a pool of its own: all forms together are more than one holds */
        check_activation(&form, gate_up_forms[i]);
        SPW_TRY(finish(&form, "guards of the activation's arrays"));
    }
    if (moved.pool.status == SPW_OK) check_capacity(&other, expert);
    for (int r = SPW_ROUND_NEAREST; r <= SPW_ROUND_DOWN && routed.pool.status == SPW_OK && c->level < 2; r++)
        check_rounding(&routed, (spw_rounding)r, score, chosen, weight);
    SPW_TRY(finish(&routed, "guards of the router's arrays"));
    SPW_TRY(finish(&moved, "guards of the plan's arrays"));
    SPW_TRY(finish(&other, "guards of the other arrays"));
cleanup:
    spw_pool_destroy(&routed.pool), spw_pool_destroy(&moved.pool), spw_pool_destroy(&other.pool);
    spw_ref_plan_destroy(&plan);
    return status;
}

spw_status spw_verify_local(int level, spw_judge *judge) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].level != level) continue;
        const spw_status status = verify_case(&cases[i], judge);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}
