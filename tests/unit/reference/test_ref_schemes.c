/* The executed schemes: dropless ones against the plain layer, dropping ones against the plain layer without the
 * choices that the drop rule takes away; bytes, rows and peaks against the formulas of docs/schemes.md. */
#include "base/memory.h"
#include "reference/capacity.h"
#include "reference/combine.h"
#include "reference/schemes/execution.h"
#include "tests/unit/check.h"
#include "tests/unit/compare.h"
#include "tests/unit/ref_random.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* One layer's data and results; `all` holds every fp32 array. */
typedef struct layer {
    spw_execution_shape shape;
    size_t tokens, assignments, rows_x,
        weights; /* of all ranks: tokens, choices, tokens * hidden; one weight tensor */
    int32_t *expert;
    float *weight, *x, *dy, *w;    /* w: w0, w1, wo */
    float *y, *dx, *d_weight, *dw; /* results */
    uint64_t rows[SPW_EXECUTION_RANKS], dropped[SPW_EXECUTION_RANKS];
    spw_arena *arena;
    spw_fabric *fabric;
} layer;

static void layer_create(spw_execution_shape s, uint64_t seed, layer *l) {
    *l = (layer){.shape = s, .tokens = s.ranks * s.sequences * s.sequence_length};
    l->assignments = l->tokens * s.top_k, l->rows_x = l->tokens * s.hidden;
    l->weights = s.experts * s.hidden * s.ffn;
    CHECK_OK(SPW_ALLOC(l->assignments, &l->expert));
    CHECK_OK(SPW_ALLOC(l->assignments, &l->weight));
    CHECK_OK(SPW_ALLOC(l->rows_x, &l->x));
    CHECK_OK(SPW_ALLOC(l->rows_x, &l->dy));
    CHECK_OK(SPW_ALLOC(3 * l->weights, &l->w));
    l->y = fenced_create(l->rows_x), l->dx = fenced_create(l->rows_x);
    l->d_weight = fenced_create(l->assignments), l->dw = fenced_create(3 * l->weights);
    random_routing(&seed, l->tokens, s.top_k, s.experts, l->expert);
    random_fill(&seed, random_uniform, l->weight, l->assignments);
    random_fill(&seed, random_uniform, l->x, l->rows_x);
    random_fill(&seed, random_uniform, l->dy, l->rows_x);
    random_fill(&seed, random_uniform, l->w, 3 * l->weights);
    if (l->assignments > 3) l->expert[3] = -1; /* an unused slot */
}

static void layer_destroy(layer *l) {
    CHECK_OK(fenced_check(l->y, l->rows_x));
    CHECK_OK(fenced_check(l->dx, l->rows_x));
    CHECK_OK(fenced_check(l->d_weight, l->assignments));
    CHECK_OK(fenced_check(l->dw, 3 * l->weights));
    fenced_destroy(l->dw), fenced_destroy(l->d_weight), fenced_destroy(l->dx), fenced_destroy(l->y);
    spw_free(l->w), spw_free(l->dy), spw_free(l->x), spw_free(l->weight), spw_free(l->expert);
    spw_arena_destroy(l->arena), spw_fabric_destroy(l->fabric);
}

static spw_expert_weights weights_of(const layer *l) {
    return (spw_expert_weights){l->w, l->w + l->weights, l->w + 2 * l->weights};
}
static spw_expert_gradients gradients_of(const layer *l) {
    return (spw_expert_gradients){l->dw, l->dw + l->weights, l->dw + 2 * l->weights};
}

static spw_status execute(layer *l, const char *scheme) {
    const spw_execution_input in = {
        .expert = l->expert, .weight = l->weight, .x = l->x, .dy = l->dy, .weights = weights_of(l)};
    const spw_execution_output out = {.y = l->y,
                                      .dx = l->dx,
                                      .d_weight = l->d_weight,
                                      .gradients = gradients_of(l),
                                      .rows = l->rows,
                                      .dropped = l->dropped};
    spw_arena_destroy(l->arena), spw_fabric_destroy(l->fabric);
    l->arena = NULL, l->fabric = NULL;
    poison(l->y, l->rows_x), poison(l->dx, l->rows_x), poison(l->d_weight, l->assignments),
        poison(l->dw, 3 * l->weights);
    spw_status status = spw_arena_create(l->shape.ranks, &l->arena);
    if (status == SPW_OK) status = spw_fabric_create(l->shape.ranks, &l->fabric);
    if (status != SPW_OK) return status;
    return spw_execute(spw_executor_find(scheme), &l->shape, &in, &out, l->arena, l->fabric);
}

/* The layer in one process, with the choices that `keep` lets through, and the yardsticks of y and dx. */
typedef struct plain {
    float *y, *dx, *d_weight, *dw, *y_scale, *dx_scale;
} plain;

static void plain_create(const layer *l, const uint8_t *keep, plain *p) {
    const spw_execution_shape s = l->shape;
    int32_t *expert = NULL;
    float *rows = NULL, *out = NULL, *d_out = NULL, *d_rows = NULL, *ffn = NULL;
    spw_plan plan;
    CHECK_OK(SPW_ALLOC(l->assignments, &expert));
    for (size_t i = 0; i < l->assignments; i++) expert[i] = keep[i] ? l->expert[i] : -1;
    CHECK_OK(spw_ref_plan_create(l->tokens, s.top_k, s.experts, expert, &plan));
    float **arrays[] = {&rows, &out, &d_out, &d_rows};
    for (size_t i = 0; i < 4; i++) CHECK_OK(SPW_ALLOC(plan.rows * s.hidden, arrays[i]));
    CHECK_OK(SPW_ALLOC(3 * plan.rows * s.ffn, &ffn));
    float **results[] = {&p->y, &p->dx, &p->y_scale, &p->dx_scale};
    for (size_t i = 0; i < 4; i++) CHECK_OK(SPW_ALLOC(l->rows_x, results[i]));
    CHECK_OK(SPW_ALLOC(l->assignments, &p->d_weight));
    CHECK_OK(SPW_ALLOC(3 * l->weights, &p->dw));
    const spw_expert_state state = {ffn, ffn + plan.rows * s.ffn, ffn + 2 * plan.rows * s.ffn};
    const spw_expert_gradients g = {p->dw, p->dw + l->weights, p->dw + 2 * l->weights};
    const spw_expert_shape e = {.experts = s.experts, .rows = plan.rows, .hidden = s.hidden, .ffn = s.ffn};
    spw_ref_permute(&plan, s.hidden, l->x, rows);
    CHECK_OK(spw_ref_expert_ffn(e, rows, weights_of(l), plan.offset, state, out));
    spw_ref_combine(&plan, s.hidden, out, l->weight, p->y, p->y_scale);
    spw_ref_combine_gradient(&plan, s.hidden, l->dy, out, l->weight,
                             (spw_combine_gradients){d_out, p->d_weight, NULL});
    CHECK_OK(spw_ref_expert_ffn_gradient(e, (spw_expert_inputs){rows, d_out}, weights_of(l), plan.offset,
                                         state, d_rows, g));
    spw_ref_permute_gradient(&plan, s.hidden, d_rows, p->dx, p->dx_scale);
    spw_ref_plan_destroy(&plan);
    spw_free(ffn), spw_free(d_rows), spw_free(d_out), spw_free(out), spw_free(rows), spw_free(expert);
}

static void plain_destroy(plain *p) {
    spw_free(p->y), spw_free(p->dx), spw_free(p->d_weight), spw_free(p->dw), spw_free(p->y_scale),
        spw_free(p->dx_scale);
}

/* Equal bit for bit; or, where partial sums of ranks are rounded on their way, within ranks + 2 roundings more. */
static void compare_layers(const layer *l, const plain *p, bool exact) {
    if (exact) {
        CHECK_OK(compare_exact(l->y, p->y, l->rows_x));
        CHECK_OK(compare_exact(l->dx, p->dx, l->rows_x));
    } else {
        CHECK_OK(compare_sum(l->y, p->y, p->y_scale, l->shape.ranks, l->rows_x));
        CHECK_OK(compare_sum(l->dx, p->dx, p->dx_scale, l->shape.ranks, l->rows_x));
    }
    for (size_t i = 0; i < l->assignments; i++) { /* 0 and -0 alike: a slot without a row is added to 0 */
        CHECK(l->d_weight[i] == p->d_weight[i]);
    }
    CHECK_OK(compare_exact(l->dw, p->dw, 3 * l->weights));
}

/* n[s->d], and U[s->d] when once. */
static size_t pair_rows(const layer *l, const uint8_t *keep, size_t s, size_t d, bool once) {
    const size_t of_rank = l->tokens / l->shape.ranks, local = l->shape.experts / l->shape.ranks;
    size_t rows = 0;
    for (size_t t = s * of_rank; t < (s + 1) * of_rank; t++) {
        size_t hits = 0;
        for (size_t i = t * l->shape.top_k; i < (t + 1) * l->shape.top_k; i++) {
            hits += keep[i] && l->expert[i] >= 0 && (size_t)l->expert[i] / local == d;
        }
        rows += once ? hits > 0 : hits;
    }
    return rows;
}

/* Every exchange of the list carries rows * row_bytes from s to d, `back` the other way round. */
typedef struct wire {
    const char *name;
    bool back;
    uint64_t row_bytes;
} wire;

static void check_wire(const layer *l, const char *scheme, const uint8_t *keep, size_t capacity) {
    const uint64_t row = l->shape.hidden * l->shape.element_bytes, choice = 4 * l->shape.top_k;
    const bool deepep = strcmp(scheme, "gmm-deepep") == 0, ring = strcmp(scheme, "ring") == 0;
    const bool dense = strcmp(scheme, "dense") == 0;
    const uint64_t extra = deepep ? 2 * choice + 4 : ring ? 8 * l->shape.experts : 0, source = deepep ? 4 : 0;
    const wire list[] = {
        {"dispatch", false, row + extra},
        {"combine", true, row + source},
        {"dispatch again", false, row + extra},
        {"combine again", true, deepep || ring ? 0 : row},
        {"combine gradient", false, row + source},
        {"dispatch gradient", true, row + source + (deepep ? choice : 0)},
        {"router gradient", true, ring ? 4 * l->shape.experts : 0},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        for (size_t s = 0; s < l->shape.ranks; s++) {
            for (size_t d = 0; d < l->shape.ranks; d++) {
                const size_t rows = dense  ? l->shape.sequences * capacity * l->shape.experts / l->shape.ranks
                                    : ring ? l->tokens / l->shape.ranks
                                           : pair_rows(l, keep, s, d, deepep);
                CHECK(spw_fabric_bytes(l->fabric, list[i].name, list[i].back ? d : s, list[i].back ? s : d) ==
                      rows * list[i].row_bytes);
            }
        }
    }
}

/* The live sets of docs/schemes.md, sections 1.4, 2.2, 3.3, where hidden = ffn makes the moment plain. */
static void check_peak(const layer *l, const char *scheme, size_t buffer, size_t capacity) {
    const spw_execution_shape s = l->shape;
    const uint64_t tokens = s.sequences * s.sequence_length, n = tokens * s.top_k,
                   local = s.experts / s.ranks;
    const uint64_t h = s.hidden * s.element_bytes, f = s.ffn * s.element_bytes, b = s.element_bytes;
    const bool dense = strcmp(scheme, "dense") == 0, ragged = strcmp(scheme, "ragged") == 0;
    const bool gmm = strcmp(scheme, "gmm") == 0, ring = strcmp(scheme, "ring") == 0;
    const uint64_t rank_tokens = s.ranks * tokens;
    uint64_t want = 3 * buffer * (h + f);
    if (dense) want += 3 * tokens * s.experts * capacity * b;
    if (gmm) want += 2 * n * h;
    if (ragged)
        want =
            buffer * (2 * h + 3 * f + local * (h + f)); /* x, dx and both operands, while act became d_w0 */
    if (!dense && !gmm && !ragged) want += 2 * rank_tokens * h;
    for (size_t r = 0; r < s.ranks; r++) {
        const spw_arena_peak peak = spw_arena_backward_peak(l->arena, r);
        uint64_t sum = 0;
        for (size_t i = 0; i < peak.tensors; i++) sum += peak.tensor_bytes[i];
        CHECK(sum == peak.bytes);
        CHECK(spw_arena_live(l->arena, r) == 0);
        CHECK(spw_arena_forward_peak(l->arena, r).bytes > 0);
        if (ragged) CHECK(peak.bytes >= want);
        if (ring)
            CHECK(peak.bytes == want || peak.bytes == 3 * buffer * (h + f) + rank_tokens * h + buffer * h);
        if (dense || gmm || (!ragged && !ring)) CHECK(peak.bytes == want);
        CHECK(peak.pass != SPW_PASS_FORWARD);
    }
}

static void dropless(spw_execution_shape shape, uint64_t seed) {
    const char *const schemes[] = {"gmm", "ragged", "dense", "gmm-deepep", "ring"};
    const bool exact[] = {true, true, true, false, false};
    layer l;
    plain p;
    uint8_t *all = NULL;
    layer_create(shape, seed, &l);
    CHECK_OK(SPW_ALLOC(l.assignments, &all));
    for (size_t i = 0; i < l.assignments; i++) all[i] = l.expert[i] >= 0;
    plain_create(&l, all, &p);
    const size_t local = shape.experts / shape.ranks,
                 worst = l.tokens * (local < shape.top_k ? local : shape.top_k);
    for (size_t n = 0; n < 5; n++) {
        l.shape.factor = strcmp(schemes[n], "dense") == 0 ? (double)shape.experts : 0.0;
        const size_t capacity =
            spw_ref_capacity_maxtext(shape.sequence_length, shape.top_k, shape.experts, l.shape.factor);
        const size_t buffer = n == 2   ? shape.sequences * shape.experts * capacity
                              : n == 4 ? l.assignments
                                       : worst;
        CHECK_OK(execute(&l, schemes[n]));
        compare_layers(&l, &p, exact[n]);
        check_wire(&l, schemes[n], all, capacity);
        check_peak(&l, schemes[n], buffer, capacity);
        uint64_t rows = 0, dropped = 0;
        for (size_t r = 0; r < shape.ranks; r++) rows += l.rows[r], dropped += l.dropped[r];
        CHECK(dropped == 0);
        if (n != 2) CHECK(rows == l.assignments - (l.assignments > 3));
    }
    plain_destroy(&p), spw_free(all), layer_destroy(&l);
}

static void dropping(spw_execution_shape shape, double factor, uint64_t seed) {
    const char *const schemes[] = {"gmm", "ragged", "dense", "ring"};
    layer l;
    uint8_t *keep = NULL;
    shape.factor = factor;
    layer_create(shape, seed, &l);
    CHECK_OK(SPW_ALLOC(l.assignments, &keep));
    const spw_choices choices = {l.tokens, shape.top_k, shape.experts, l.expert};
    const size_t own = l.assignments / shape.ranks, buffer = (size_t)((double)own * factor);
    for (size_t n = 0; n < 4; n++) {
        const size_t capacity =
            spw_ref_capacity_maxtext(shape.sequence_length, shape.top_k, shape.experts, factor);
        size_t dropped = 0;
        plain p;
        if (n < 2) CHECK_OK(spw_ref_keep_by_source_rank(choices, shape.ranks, buffer, keep, &dropped));
        if (n == 2)
            CHECK_OK(spw_ref_keep_by_position(choices, shape.sequence_length, capacity, keep, &dropped));
        if (n == 3) CHECK_OK(spw_ref_keep_by_expert_id(choices, shape.ranks, buffer, keep, &dropped));
        plain_create(&l, keep, &p);
        CHECK_OK(execute(&l, schemes[n]));
        compare_layers(&l, &p, n < 3);
        check_wire(&l, schemes[n], keep, capacity);
        size_t executed = 0;
        for (size_t r = 0; r < shape.ranks; r++) executed += l.dropped[r];
        CHECK(executed == dropped && dropped > 0);
        plain_destroy(&p);
    }
    spw_free(keep), layer_destroy(&l);
}

/* Schemes without expert parallelism run on one rank. */
static spw_execution_shape shape_for(const spw_executor *e, spw_execution_shape shape) {
    if (strcmp(e->name, "scattermoe") == 0 || strcmp(e->name, "sonicmoe") == 0 ||
        strcmp(e->name, "transformers") == 0)
        shape.ranks = 1;
    return shape;
}

/* Bits do not depend on the number of threads. */
static void threads(spw_execution_shape shape) {
    for (const spw_executor *e = spw_executors; e->name != NULL; e++) {
        layer l, first;
        shape.factor = 1.0;
        layer_create(shape_for(e, shape), 3, &l), layer_create(shape_for(e, shape), 3, &first);
        const int counts[] = {1, 2, 7};
        for (size_t n = 0; n < 3; n++) {
            omp_set_num_threads(counts[n]);
            CHECK_OK(execute(n == 0 ? &first : &l, e->name));
            if (n == 0) continue;
            CHECK_OK(compare_exact(l.y, first.y, l.rows_x));
            CHECK_OK(compare_exact(l.dx, first.dx, l.rows_x));
            CHECK_OK(compare_exact(l.d_weight, first.d_weight, l.assignments));
            CHECK_OK(compare_exact(l.dw, first.dw, 3 * l.weights));
        }
        layer_destroy(&first), layer_destroy(&l);
    }
}

static void damage(spw_execution_shape shape) {
    layer l;
    for (const spw_executor *e = spw_executors; e->name != NULL; e++) {
        int n = 0;
        layer_create(shape_for(e, shape), 1, &l);
        l.shape.factor = 1.0;
        for (spw_status status = SPW_ENOMEM; status == SPW_ENOMEM; n++) {
            spw_alloc_fail_after(n);
            status = execute(&l, e->name);
            spw_alloc_fail_after(-1);
            if (status != SPW_OK) CHECK(status == SPW_ENOMEM);
        }
        CHECK(n > 30);
        layer_destroy(&l);
    }
    layer_create(shape, 1, &l);
    spw_execution_shape bad[] = {shape, shape, shape, shape};
    bad[0].ranks = 3, bad[1].top_k = shape.experts + 1, bad[2].factor = -1, bad[3].sequences = SIZE_MAX / 2;
    for (size_t i = 0; i < 4; i++) {
        l.shape = bad[i];
        if (i == 0) l.shape.experts = 8;
        CHECK_STATUS(execute(&l, "gmm"), SPW_EARG);
    }
    l.shape = shape, l.expert[0] = (int32_t)shape.experts;
    CHECK_STATUS(execute(&l, "gmm"), SPW_EARG);
    CHECK(spw_executor_find("none") == NULL);
    l.expert[0] = 0;
    layer_destroy(&l);
}

static void fabric(void) {
    spw_fabric *f = NULL;
    int number = 7, got = 0;
    CHECK_OK(spw_fabric_create(2, &f));
    CHECK_OK(spw_fabric_begin(f, "first"));
    CHECK_OK(spw_fabric_send(f, 0, 1, &number, 1, sizeof number, 2));
    number = 9; /* what was sent is a copy */
    CHECK_STATUS(spw_fabric_receive(f, 0, 1, &got, 1, sizeof got), SPW_EMISMATCH);
    CHECK_STATUS(spw_fabric_receive(f, 1, 0, &got, 2, sizeof got), SPW_EMISMATCH);
    CHECK_STATUS(spw_fabric_begin(f, "second"), SPW_EMISMATCH);
    CHECK(spw_fabric_waiting(f, 1, 0) == sizeof number);
    CHECK_OK(spw_fabric_receive(f, 1, 0, &got, 1, sizeof got));
    CHECK(got == 7);
    CHECK_OK(spw_fabric_begin(f, "second"));
    CHECK(spw_fabric_bytes(f, "first", 0, 1) == 2 && spw_fabric_bytes(f, "first", 1, 0) == 0);
    CHECK(spw_fabric_bytes(f, "third", 0, 1) == 0 && spw_fabric_exchanges(f) == 2);
    CHECK(strcmp(spw_fabric_exchange(f, 1), "second") == 0);
    spw_fabric_destroy(f);
}

static void arena(void) {
    spw_arena *a = NULL;
    float *x = NULL, *y = NULL;
    CHECK_OK(spw_arena_create(2, &a));
    spw_arena_moment(a, SPW_PASS_FORWARD, "one");
    CHECK_OK(spw_arena_take(a, 1, "x", 4, 8, &x));
    spw_arena_moment(a, SPW_PASS_FORWARD, "two");
    CHECK_OK(spw_arena_take(a, 1, "y", 4, 8, &y));
    spw_arena_give(a, 1, x);
    spw_arena_rename(a, 1, y, "z");
    spw_arena_moment(a, SPW_PASS_BACKWARD, "three");
    CHECK_OK(spw_arena_take(a, 1, "w", 1, 1, &x));
    const spw_arena_peak forward = spw_arena_forward_peak(a, 1), backward = spw_arena_backward_peak(a, 1);
    CHECK(forward.bytes == 16 && forward.tensors == 2 && strcmp(forward.step, "two") == 0);
    CHECK(backward.bytes == 9 && strcmp(backward.name[0], "z") == 0 && strcmp(backward.step, "three") == 0);
    CHECK(spw_arena_saved(a, 1) == 8 && spw_arena_live(a, 1) == 9 && spw_arena_live(a, 0) == 0);
    CHECK(spw_arena_forward_peak(a, 0).bytes == 0);
    spw_arena_destroy(a); /* with what still lives */
}

int main(void) {
    const spw_execution_shape shape = {.ranks = 4,
                                       .experts = 8,
                                       .top_k = 3,
                                       .hidden = 6,
                                       .ffn = 6,
                                       .sequences = 2,
                                       .sequence_length = 10,
                                       .element_bytes = 2};
    fabric();
    arena();
    for (uint64_t seed = 1; seed <= 3; seed++) {
        spw_execution_shape s = shape;
        dropless(s, seed);
        dropping(s, 0.5, seed), dropping(s, 0.8, seed);
        s.ranks = 8; /* fewer local experts than top_k */
        dropless(s, seed);
        s.ranks = 1, s.top_k = 1;
        dropless(s, seed);
    }
    const spw_execution_shape small = {.ranks = 2,
                                       .experts = 4,
                                       .top_k = 2,
                                       .hidden = 3,
                                       .ffn = 3,
                                       .sequences = 1,
                                       .sequence_length = 4,
                                       .element_bytes = 4};
    threads(shape);
    damage(small);
    return check_done();
}
