#include "kernels/verify/verify_gemm.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/verify_element.h"
#include "reference/swiglu.h"

#include <math.h>
#include <string.h>

enum { SAMPLE_ROWS = 640, SAMPLE_COLUMNS = 96, SEED_LEFT = 11, SEED_RIGHT = 12, SEED_ROUTING = 13 };

/* Sorted positions of a dimension that are compared. */
typedef struct sample {
    size_t count, *at;
} sample;

static spw_status sample_create(size_t size, size_t wanted, sample *out) {
    *out = (sample){0};
    const spw_status status = SPW_ALLOC(size < wanted ? size : wanted, &out->at);
    if (status != SPW_OK) return status;
    if (size <= wanted) {
        for (size_t i = 0; i < size; i++) out->at[i] = i;
        out->count = size;
        return SPW_OK;
    }
    for (size_t i = 0; i < wanted; i++) { /* a third at each end, the rest spread out */
        const size_t end = wanted / 3, spread = wanted - 2 * end;
        out->at[i] = i < end            ? i
                     : i < end + spread ? end + (i - end) * (size - 2 * end) / spread
                                        : size - (wanted - i);
    }
    out->count = wanted;
    return SPW_OK;
}

/* The numbers of an operation's operands; a full size and bf16 have the ordinary ones alone. */
typedef struct numbers {
    const char *name;
    int left, right; /* spw_numbers */
    bool exact, overflows;
} numbers;
static const numbers all_numbers[] = {
    {"bell", SPW_NUMBERS_BELL, SPW_NUMBERS_BELL, false, false},
    {"integers", SPW_NUMBERS_INTEGER, SPW_NUMBERS_INTEGER, true, false},
    {"sums beyond fp16", SPW_NUMBERS_LARGE, SPW_NUMBERS_LARGE, true, true},
    {"subnormal numbers", SPW_NUMBERS_TINY, SPW_NUMBERS_LARGE, true, false},
};
enum { ORDINARY_NUMBERS = 2, ALL_NUMBERS = sizeof all_numbers / sizeof *all_numbers };

/* One array as the device was filled with it. */
typedef struct drawn {
    const spw_element *element;
    int kind;
    uint64_t seed;
} drawn;

static float number(drawn a, size_t i) {
    return a.element->to_float(a.element->from_float(spw_number(a.kind, a.seed, i)));
}

/* out [rows.count][columns.count] of the array [..][width] that was filled on the device. */
static spw_status gather(drawn a, sample rows, sample columns, size_t width, float **out) {
    const spw_status status = SPW_ALLOC(rows.count * columns.count, out);
    if (status != SPW_OK) return status;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < rows.count; r++)
        for (size_t c = 0; c < columns.count; c++)
            (*out)[r * columns.count + c] = number(a, rows.at[r] * width + columns.at[c]);
    return SPW_OK;
}

/* All of a verification of one case that is the same for its operations. */
typedef struct bench_data {
    spw_gemm_shape shape;
    const spw_element *element;
    size_t *offset;
    spw_device_array x, dy, w, device_offset, result;
    sample rows, all_rows, in, out, all_in, all_out;
} data;

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

static void data_destroy(data *d) {
    spw_device_array_destroy(&d->x), spw_device_array_destroy(&d->dy), spw_device_array_destroy(&d->w);
    spw_device_array_destroy(&d->device_offset), spw_device_array_destroy(&d->result);
    spw_free(d->rows.at), spw_free(d->all_rows.at), spw_free(d->in.at), spw_free(d->out.at);
    spw_free(d->all_in.at), spw_free(d->all_out.at), spw_free(d->offset);
}

static spw_status data_create(const spw_gemm_case *c, data *d) {
    spw_status status = SPW_OK;
    int *offset32 = NULL;
    *d = (data){
        .shape = {.experts = c->experts, .rows = c->rows, .in = c->in, .out = c->out, .element = c->element},
        .element = spw_element_of(c->element)};
    const size_t weights = c->experts * c->in * c->out;
    SPW_TRY(SPW_ALLOC(c->experts + 1, &d->offset));
    SPW_TRY(SPW_ALLOC(c->experts + 1, &offset32));
    spw_routing_offsets(c->routing, c->experts, c->rows, SEED_ROUTING, d->offset, offset32);
    SPW_TRY(spw_device_array_create(c->rows * c->in * 2, &d->x));
    SPW_TRY(spw_device_array_create(c->rows * c->out * 2, &d->dy));
    SPW_TRY(spw_device_array_create(weights * 2, &d->w));
    SPW_TRY(spw_device_array_create(largest(weights, c->rows * largest(c->in, c->out)) * 2, &d->result));
    SPW_TRY(spw_device_array_create((c->experts + 1) * sizeof(int), &d->device_offset));
    SPW_TRY(spw_device_upload(&d->device_offset, offset32));
    SPW_TRY(sample_create(c->rows, SAMPLE_ROWS, &d->rows));
    SPW_TRY(sample_create(c->rows, c->rows, &d->all_rows));
    SPW_TRY(sample_create(c->in, SAMPLE_COLUMNS, &d->in));
    SPW_TRY(sample_create(c->out, SAMPLE_COLUMNS, &d->out));
    SPW_TRY(sample_create(c->in, c->in, &d->all_in));
    SPW_TRY(sample_create(c->out, c->out, &d->all_out));
    if (d->rows.count < c->rows) { /* the last rows of the largest group's neighbours: where groups meet */
        for (size_t e = 1; e <= c->experts && e < d->rows.count / 2; e++)
            for (size_t i = 0; i < d->rows.count; i++)
                if (d->rows.at[i] >= d->offset[e] && d->offset[e] > 0 && i > 0 &&
                    d->rows.at[i - 1] < d->offset[e]) {
                    d->rows.at[i - 1] = d->offset[e] - 1;
                    break;
                }
    }
cleanup:
    spw_free(offset32);
    return status;
}

/* The reference's operands and its answer for the sampled part. */
typedef struct answer {
    float *left, *right, *want, *scale;
    size_t *offset;
    size_t count, terms;
} answer;

static void answer_destroy(answer *a) {
    spw_free(a->left), spw_free(a->right), spw_free(a->want), spw_free(a->scale), spw_free(a->offset);
    *a = (answer){0};
}

static size_t below(sample s, size_t limit) {
    size_t count = 0;
    while (count < s.count && s.at[count] < limit) count++;
    return count;
}

/* w of all experts at the sampled positions, in the layout of shape.transposed. */
static spw_status gather_weights(const data *d, drawn a, sample in, sample out, float **w) {
    const spw_gemm_shape s = d->shape;
    const sample outer = s.transposed ? out : in, inner = s.transposed ? in : out;
    const size_t height = s.transposed ? s.out : s.in, width = s.transposed ? s.in : s.out;
    const spw_status status = SPW_ALLOC(s.experts * outer.count * inner.count, w);
    if (status != SPW_OK) return status;
#pragma omp parallel for schedule(static) collapse(2)
    for (size_t e = 0; e < s.experts; e++)
        for (size_t i = 0; i < outer.count; i++)
            for (size_t j = 0; j < inner.count; j++)
                (*w)[(e * outer.count + i) * inner.count + j] =
                    number(a, (e * height + outer.at[i]) * width + inner.at[j]);
    return SPW_OK;
}

static spw_status answer_create(const data *d, spw_gemm_operation operation, const numbers *of, answer *a) {
    spw_status status = SPW_OK;
    const bool forward = operation == SPW_GEMM_FORWARD, weights = operation == SPW_GEMM_WEIGHT_GRADIENT;
    const sample rows = weights ? d->all_rows : d->rows;
    const drawn left = {d->element, of->left, SEED_LEFT}, right = {d->element, of->right, SEED_RIGHT};
    const sample in = forward ? d->all_in : d->in;
    const sample out = operation == SPW_GEMM_INPUT_GRADIENT ? d->all_out : d->out;
    spw_gemm_shape s = d->shape;
    s.rows = rows.count, s.in = in.count, s.out = out.count;
    *a = (answer){.count = weights ? s.experts * s.in * s.out : s.rows * (forward ? s.out : s.in)};
    SPW_TRY(SPW_ALLOC(s.experts + 1, &a->offset));
    for (size_t e = 0; e <= s.experts; e++) a->offset[e] = below(rows, d->offset[e]);
    SPW_TRY(SPW_ALLOC(a->count, &a->want));
    SPW_TRY(SPW_ALLOC(a->count, &a->scale));
    if (weights) {
        for (size_t e = 0; e < s.experts; e++) a->terms = largest(a->terms, a->offset[e + 1] - a->offset[e]);
        SPW_TRY(gather(left, rows, in, d->shape.in, &a->left));
        SPW_TRY(gather(right, rows, out, d->shape.out, &a->right));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(s, a->left, a->right, a->offset, a->want, a->scale));
    } else {
        a->terms = forward ? s.in : s.out;
        SPW_TRY(gather(left, rows, forward ? in : out, forward ? s.in : s.out, &a->left));
        SPW_TRY(gather_weights(d, right, in, out, &a->right));
        if (forward)
            SPW_TRY(spw_ref_grouped_gemm(s, a->left, a->right, a->offset, a->want, a->scale));
        else
            SPW_TRY(spw_ref_grouped_gemm_input_gradient(s, a->left, a->right, a->offset, a->want, a->scale));
    }
cleanup:
    return status;
}

/* got [rows.count][columns.count] of a result [..][width] on the device. */
static spw_status pick(const spw_device_array *result, size_t width, sample rows, sample columns,
                       spw_bf16 *got) {
    const size_t bytes = rows.count * columns.count * sizeof *got;
    spw_device_array row = {0}, column = {0}, picked = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_device_array_create(rows.count * sizeof *rows.at, &row));
    SPW_TRY(spw_device_array_create(columns.count * sizeof *columns.at, &column));
    SPW_TRY(spw_device_array_create(bytes, &picked));
    SPW_TRY(spw_device_upload(&row, rows.at));
    SPW_TRY(spw_device_upload(&column, columns.at));
    const spw_pick places = {row.data, column.data, (long)rows.count, (long)columns.count};
    SPW_TRY(spw_device_check(spw_launch_pick(result->data, (long)width, places, picked.data, NULL), "pick"));
    SPW_TRY(spw_device_download(&picked, got));
cleanup:
    spw_device_array_destroy(&row), spw_device_array_destroy(&column), spw_device_array_destroy(&picked);
    return status;
}

/* got [answer.count]: the sampled elements of the result. */
static spw_status pick_operation(const data *d, spw_gemm_operation operation, spw_bf16 *got) {
    const spw_gemm_shape s = d->shape;
    if (operation == SPW_GEMM_FORWARD) return pick(&d->result, s.out, d->rows, d->out, got);
    if (operation == SPW_GEMM_INPUT_GRADIENT) return pick(&d->result, s.in, d->rows, d->in, got);
    const sample outer = s.transposed ? d->out : d->in, inner = s.transposed ? d->in : d->out;
    const size_t height = s.transposed ? s.out : s.in, width = s.transposed ? s.in : s.out;
    sample all = {.count = s.experts * outer.count};
    spw_status status = SPW_ALLOC(all.count, &all.at);
    for (size_t i = 0; i < all.count && status == SPW_OK; i++)
        all.at[i] = i / outer.count * height + outer.at[i % outer.count];
    if (status == SPW_OK) status = pick(&d->result, width, all, inner, got);
    spw_free(all.at);
    return status;
}

/* Of the result's first `count` elements none is NaN, nor infinite where sums may not be. */
static spw_status check_finished(const data *d, size_t count, bool overflows) {
    const int least = d->element->infinity + overflows;
    unsigned long long found = 0;
    spw_device_array unfinished = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_device_array_create(sizeof found, &unfinished));
    SPW_TRY(spw_device_upload(&unfinished, &found));
    SPW_TRY(spw_device_check(
        spw_launch_count_unfinished(d->result.data, (long)count, least, unfinished.data, NULL), "count"));
    SPW_TRY(spw_device_download(&unfinished, &found));
    if (found != 0)
        status = spw_fail(SPW_EMISMATCH, "%llu of %zu elements are NaN%s", found, count,
                          overflows ? "" : " or inf");
cleanup:
    spw_device_array_destroy(&unfinished);
    return status;
}

static spw_status run_variant(const spw_gemm_variant *variant, const data *d, spw_gemm_operation operation,
                              size_t count, bool overflows) {
    spw_status status = SPW_OK;
    const size_t bytes = count * sizeof(spw_bf16);
    const spw_bf16 *left = operation == SPW_GEMM_INPUT_GRADIENT ? d->dy.data : d->x.data;
    const spw_bf16 *right = operation == SPW_GEMM_WEIGHT_GRADIENT ? d->dy.data : d->w.data;
    SPW_TRY(spw_device_array_poison(&d->result));
    SPW_TRY(spw_gpu_grouped_gemm(variant, operation, d->shape, left, right, d->device_offset.data,
                                 d->result.data, NULL));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(check_finished(d, count, overflows));
    SPW_TRY(spw_device_array_guards(&d->result));
    const spw_device_array behind = {(unsigned char *)d->result.data + bytes, d->result.bytes - bytes};
    if (behind.bytes > 0) { /* the rest of the array must still be poison */
        unsigned char next[64];
        const spw_device_array edge = {behind.data, behind.bytes < sizeof next ? behind.bytes : sizeof next};
        SPW_TRY(spw_device_download(&edge, next));
        for (size_t i = 0; i < edge.bytes; i++)
            if (next[i] != 0xff) return spw_fail(SPW_EMISMATCH, "byte %zu behind the result was written", i);
    }
cleanup:
    return status;
}

static spw_status fill(const data *d, const spw_device_array *array, size_t count, int kind, uint64_t seed) {
    return spw_device_check(d->element->fill(array->data, (long)count, kind, seed, NULL), "fill");
}

static spw_status verify_operation(const spw_gemm_variant *variants, const spw_gemm_case *c, const data *d,
                                   spw_gemm_operation operation, const numbers *of, spw_judge *judge) {
    static const char *const names[] = {"forward", "input gradient", "weight gradient"};
    spw_status status = SPW_OK;
    const spw_gemm_shape s = d->shape;
    const size_t count = operation == SPW_GEMM_WEIGHT_GRADIENT ? s.experts * s.in * s.out
                         : operation == SPW_GEMM_FORWARD       ? s.rows * s.out
                                                               : s.rows * s.in;
    const bool dy_right = operation == SPW_GEMM_WEIGHT_GRADIENT;
    answer want = {0};
    spw_bf16 *got = NULL;
    SPW_TRY(answer_create(d, operation, of, &want));
    SPW_TRY(SPW_ALLOC(want.count, &got));
    SPW_TRY(fill(d, &d->x, s.rows * s.in, of->left, SEED_LEFT));
    SPW_TRY(
        fill(d, &d->dy, s.rows * s.out, dy_right ? of->right : of->left, dy_right ? SEED_RIGHT : SEED_LEFT));
    SPW_TRY(fill(d, &d->w, s.experts * s.in * s.out, of->right, SEED_RIGHT));
    for (const spw_gemm_variant *v = variants; v->name != NULL; v++) {
        if (c->fast_only && v[1].name != NULL) continue;
        spw_status result = run_variant(v, d, operation, count, of->overflows);
        if (result == SPW_OK) result = pick_operation(d, operation, got);
        if (result == SPW_EDEVICE)
            SPW_TRY(spw_fail_within(result, "%s %s, %s, %s", v->name, names[operation], c->name,
                                    spw_routing_names[c->routing]));
        if (result == SPW_OK)
            result = d->element->judge(judge, of->exact, want.count, want.terms, got, want.want, want.scale);
        spw_judge_count(judge, result, "%s %s, %s, %s, %s, %s, %s", v->name, names[operation],
                        d->element->name, c->name, spw_routing_names[c->routing],
                        s.transposed ? "[out][in]" : "[in][out]", of->name);
    }
cleanup:
    spw_free(got);
    answer_destroy(&want);
    return status;
}

spw_status spw_verify_gemm(const spw_gemm_variant *variants, const spw_gemm_case *c, spw_judge *judge) {
    const int kinds = c->element == SPW_GEMM_FP16 && !c->fast_only ? ALL_NUMBERS : ORDINARY_NUMBERS;
    spw_status status = SPW_OK;
    data d;
    SPW_TRY(data_create(c, &d));
    for (int transposed = 0; transposed < 2; transposed++) {
        d.shape.transposed = transposed;
        for (int operation = SPW_GEMM_FORWARD; operation <= SPW_GEMM_WEIGHT_GRADIENT; operation++)
            for (int kind = 0; kind < kinds; kind++)
                SPW_TRY(verify_operation(variants, c, &d, (spw_gemm_operation)operation, &all_numbers[kind],
                                         judge));
    }
cleanup:
    data_destroy(&d);
    return status;
}

spw_status spw_verify_gemm_tiles(const spw_gemm_variant *variants, const spw_gemm_case *c, spw_judge *judge) {
    if (variants->name == NULL || c->fast_only) return SPW_OK;
    return spw_verify_gemm(variants, c, judge);
}

/* Of the product with an activation; all of 0: SwiGLU. */
static const struct activated {
    const char *name;
    spw_gemm_activation activation;
} activated[] = {{"SwiGLU", {{0, 0}, false, NULL}},
                 {"clamped", {{.limit = 1.5f, .alpha = 1.702f}, false, NULL}},
                 {"GeGLU", {{.gate = SPW_GATE_GELU}, false, NULL}}};

/* want [rows][pairs] and its yardstick from the sums of gate and up: to first order an error d of the sums moves act by
 * |d act / d gate| d + |d act / d up| d, and 1.15 bounds the slopes of silu and of gelu; 10 more terms evaluate them
 * (swiglu_math.h), and GeGLU's argument is rounded a few times more. */
static void activate(const struct activated *a, size_t rows, size_t pairs, const answer *sums, float *want,
                     float *scale) {
    const spw_swiglu kind = a->activation.kind;
    const float shift = kind.limit > 0 ? 1 : 0;
    for (size_t r = 0; r < rows; r++) {
        const float *gate = sums->want + r * 2 * pairs, *up = gate + pairs,
                    *both = sums->scale + r * 2 * pairs;
        spw_ref_swiglu(kind, pairs, gate, up, want + r * pairs, scale + r * pairs);
        for (size_t i = 0; i < pairs; i++) {
            const float bent = kind.gate == SPW_GATE_GELU ? 2 + 3 * fabsf(gate[i]) : 1;
            scale[r * pairs + i] = 1.15f * (fabsf(up[i]) + shift) * both[i] +
                                   fabsf(gate[i]) * both[pairs + i] + bent * scale[r * pairs + i];
        }
    }
}

static spw_status run_activated(const struct activated *a, const data *d) {
    if (a == activated)
        return spw_gpu_grouped_gemm_swiglu(d->shape, d->x.data, d->w.data, d->device_offset.data,
                                           d->result.data, NULL);
    return spw_gpu_grouped_gemm_activated(d->shape, &a->activation, d->x.data, d->w.data,
                                          d->device_offset.data, d->result.data, NULL);
}

static spw_status verify_activated_layout(const struct activated *a, const spw_gemm_case *c, data *d,
                                          spw_judge *judge) {
    spw_status status = SPW_OK;
    const size_t ffn = c->out / 2, pairs = d->out.count / 2, count = c->rows * ffn;
    answer sums = {0};
    const sample columns = {pairs, d->out.at};
    float *want = NULL, *scale = NULL;
    spw_bf16 *got = NULL;
    SPW_TRY(answer_create(d, SPW_GEMM_FORWARD, all_numbers, &sums));
    SPW_TRY(SPW_ALLOC(d->rows.count * pairs, &want));
    SPW_TRY(SPW_ALLOC(d->rows.count * pairs, &scale));
    SPW_TRY(SPW_ALLOC(d->rows.count * pairs, &got));
    activate(a, d->rows.count, pairs, &sums, want, scale);
    SPW_TRY(fill(d, &d->x, c->rows * c->in, SPW_NUMBERS_BELL, SEED_LEFT));
    SPW_TRY(fill(d, &d->w, c->experts * c->in * c->out, SPW_NUMBERS_BELL, SEED_RIGHT));
    SPW_TRY(spw_device_array_poison(&d->result));
    SPW_TRY(run_activated(a, d));
    SPW_TRY(spw_device_finish(SPW_KERNEL_SECONDS));
    SPW_TRY(pick(&d->result, ffn, d->rows, columns, got));
    spw_status verdict =
        d->element->judge(judge, false, d->rows.count * pairs, sums.terms + 10, got, want, scale);
    if (verdict == SPW_OK) verdict = check_finished(d, count, false);
    if (verdict == SPW_OK) verdict = spw_device_array_guards(&d->result);
    spw_judge_count(judge, verdict, "fused %s, %s, %s, %s, %s", a->name, d->element->name, c->name,
                    spw_routing_names[c->routing], d->shape.transposed ? "[out][in]" : "[in][out]");
cleanup:
    spw_free(got), spw_free(scale), spw_free(want);
    answer_destroy(&sums);
    return status;
}

spw_status spw_verify_gemm_swiglu(const spw_gemm_case *c, spw_judge *judge) {
    spw_status status = SPW_OK;
    data d;
    if (c->out % 16 != 0) return SPW_OK;
    SPW_TRY(data_create(c, &d));
    spw_free(d.out.at), d.out.at = NULL;
    SPW_TRY(sample_create(c->out / 2, SAMPLE_COLUMNS, &d.out)); /* of gate; then the same of up */
    size_t *both = NULL;
    SPW_TRY(SPW_ALLOC(2 * d.out.count, &both));
    for (size_t i = 0; i < d.out.count; i++)
        both[i] = d.out.at[i], both[d.out.count + i] = c->out / 2 + d.out.at[i];
    spw_free(d.out.at);
    d.out = (sample){2 * d.out.count, both};
    for (int transposed = 0; transposed < 2; transposed++) {
        d.shape.transposed = transposed;
        for (size_t i = 0; i < sizeof activated / sizeof *activated; i++)
            SPW_TRY(verify_activated_layout(&activated[i], c, &d, judge));
    }
cleanup:
    data_destroy(&d);
    return status;
}
