#include "kernels/verify/kernel_case.h"

#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/record/routing.h"
#include "reference/bf16.h"
#include "reference/combine.h"
#include "reference/grouped_gemm.h"
#include "reference/plan.h"
#include "reference/swiglu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 0xa5, SEED_FIRST = 21, SEED_SECOND, SEED_THIRD, SEED_ROUTING, RECORD_TOKENS = 64 };

/* Sizes that a tile meets: less than one, an edge beyond it, several. */
static const struct {
    const char *name;
    size_t experts, rows, in, out, top_k;
} sizes[] = {
    {"4 experts x 48 rows, 32 -> 64", 4, 48, 32, 64, 2},
    {"5 experts x 165 rows, 72 -> 136", 5, 165, 72, 136, 3},
    {"16 experts x 320 rows, 128 -> 64", 16, 320, 128, 64, 8},
};
enum { SIZES = sizeof sizes / sizeof *sizes, NUMBERS = 2 };

#define NAME(kernel, name) name,
static const char *const names[] = {SPW_KERNEL_LIST(NAME)};
#undef NAME

const char *spw_plugin_kernel_name(spw_kernel kernel) { return names[kernel]; }

spw_status spw_kernel_parse(const char *name, spw_kernel *out) {
    char list[256] = "";
    for (size_t i = 0; i < SPW_KERNELS; i++) {
        const size_t used = strlen(list);
        if (strcmp(name, names[i]) == 0) {
            *out = (spw_kernel)i;
            return SPW_OK;
        }
        (void)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    return spw_fail(SPW_EARG, "'%s' is no kernel; there are %s", name, list);
}

static bool is_product(spw_kernel kernel) { return kernel <= SPW_KERNEL_WEIGHT_GRADIENT; }

/* Cases of one kind of numbers and one layout. */
static size_t routings(const spw_record *record) {
    return record != NULL ? record->ranks : (size_t)SIZES * SPW_ROUTING_COUNT;
}

size_t spw_kernel_cases(spw_kernel kernel, const spw_record *record) {
    return routings(record) * NUMBERS * (is_product(kernel) ? 2 : 1);
}

/* --- Choices --- */

/* Made up, or those of a record that reach one of its ranks: the first tokens of every source. */
typedef struct choice_source {
    spw_routing routing;
    const spw_record *record;
    size_t rank;
} choice_source;

static size_t record_tokens(const spw_record *record) {
    const size_t own = record->sequences * record->sequence_length;
    return own < RECORD_TOKENS ? own : RECORD_TOKENS;
}

/* expert [tokens][top_k], or -1. */
static void fill_choices(const spw_kernel_call *s, const choice_source *from, int32_t *expert) {
    const size_t choices = s->tokens * s->top_k;
    const spw_record *record = from->record;
    for (size_t i = 0; i < choices; i++) {
        if (record == NULL) {
            expert[i] = spw_routing_expert(from->routing, s->experts, choices, SEED_ROUTING, i);
            continue;
        }
        const size_t of_source = record_tokens(record) * s->top_k, source = i / of_source;
        const size_t of_record = record->sequences * record->sequence_length * s->top_k;
        const int32_t first = (int32_t)(from->rank * s->experts);
        const int32_t x = record->expert[source * of_record + i % of_source];
        expert[i] = x >= first && x < first + (int32_t)s->experts ? x - first : -1;
    }
}

/* As spw_routing_offsets(); of a record the rows are counted, and s->rows becomes their number. */
static spw_status fill_offsets(spw_kernel_call *s, const choice_source *from, size_t *offset,
                               int32_t *offset32) {
    int32_t *expert = NULL;
    if (from->record == NULL) {
        spw_routing_offsets(from->routing, s->experts, s->rows, SEED_ROUTING, offset, offset32);
        return SPW_OK;
    }
    const spw_status status = SPW_ALLOC(s->tokens * s->top_k, &expert);
    if (status != SPW_OK) return status;
    fill_choices(s, from, expert);
    for (size_t e = 0; e <= s->experts; e++) offset[e] = 0;
    for (size_t i = 0; i < s->tokens * s->top_k; i++)
        if (expert[i] >= 0) offset[expert[i] + 1]++;
    offset32[0] = 0;
    for (size_t e = 0; e < s->experts; e++)
        offset[e + 1] += offset[e], offset32[e + 1] = (int32_t)offset[e + 1];
    s->rows = offset[s->experts];
    spw_free(expert);
    return SPW_OK;
}

/* --- Arrays --- */

static size_t element_bytes(spw_type type) {
    return type == SPW_TYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
}

/* The numbers of the reference, `values`, and the kernel's, which are the same in the case's type; NaN from `used` on. */
static spw_status fill(spw_kernel_case *c, size_t input, size_t count, size_t used, int numbers,
                       uint64_t seed, float **values) {
    spw_status status = SPW_OK;
    const size_t bytes = element_bytes(c->call.type);
    SPW_TRY(SPW_ALLOC(count, values));
    SPW_TRY(spw_alloc(count, bytes, &c->memory[input]));
    for (size_t i = 0; i < count; i++) {
        const float value = i < used ? spw_number(numbers, seed, i) : NAN;
        const uint16_t half = spw_bf16_from_float(value);
        (*values)[i] = c->call.type == SPW_TYPE_BF16 ? spw_bf16_to_float(half) : value;
        if (c->call.type == SPW_TYPE_BF16) {
            ((uint16_t *)c->memory[input])[i] = half;
        } else {
            ((float *)c->memory[input])[i] = value;
        }
    }
    c->call.input[input] = c->memory[input];
    c->input_bytes[input] = count * bytes;

cleanup:
    return status;
}

static spw_status make_output(spw_kernel_case *c, size_t count, size_t judged) {
    spw_status status = SPW_OK;
    void *fenced = NULL;
    c->output_bytes = count * element_bytes(c->call.type);
    c->judged = judged;
    SPW_TRY(spw_alloc(c->output_bytes + 2 * (size_t)SPW_KERNEL_CASE_GUARD, 1, &fenced));
    c->fenced = fenced;
    memset(fenced, GUARD, c->output_bytes + 2 * (size_t)SPW_KERNEL_CASE_GUARD);
    c->call.output = (unsigned char *)fenced + SPW_KERNEL_CASE_GUARD;
    memset(c->call.output, 0xff, c->output_bytes); /* NaN in both types */
    SPW_TRY(SPW_ALLOC(count, &c->want));
    SPW_TRY(SPW_ALLOC(count, &c->scale));

cleanup:
    return status;
}

/* --- The kernels --- */

static size_t most_rows(size_t experts, const size_t *offset) {
    size_t most = 0;
    for (size_t e = 0; e < experts; e++) {
        const size_t rows = offset[e + 1] - offset[e];
        most = rows > most ? rows : most;
    }
    return most;
}

static spw_status make_product(spw_kernel_case *c, const choice_source *from, int numbers) {
    const spw_kernel_call *s = &c->call;
    spw_gemm_shape shape = {
        .experts = s->experts, .in = s->in, .out = s->out, .transposed = s->transposed != 0};
    const size_t weights = s->experts * s->in * s->out;
    const bool forward = s->kernel == SPW_KERNEL_GROUPED_GEMM,
               gradient = s->kernel == SPW_KERNEL_WEIGHT_GRADIENT;
    const size_t left_width = s->kernel == SPW_KERNEL_INPUT_GRADIENT ? s->out : s->in;
    const size_t width = forward ? s->out : s->in;
    float *left = NULL, *right = NULL;
    size_t *offset = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->experts + 1, &offset));
    SPW_TRY(SPW_ALLOC(s->experts + 1, &c->offset));
    SPW_TRY(fill_offsets(&c->call, from, offset, c->offset));
    shape.rows = s->rows;
    c->call.offset = c->offset;
    const size_t used = offset[s->experts];
    SPW_TRY(fill(c, 0, s->rows * left_width, used * left_width, numbers, SEED_FIRST, &left));
    if (gradient) {
        SPW_TRY(fill(c, 1, s->rows * s->out, used * s->out, numbers, SEED_SECOND, &right));
        SPW_TRY(make_output(c, weights, weights));
        SPW_TRY(spw_ref_grouped_gemm_weight_gradient(shape, left, right, offset, c->want, c->scale));
        c->terms = most_rows(s->experts, offset);
    } else {
        SPW_TRY(fill(c, 1, weights, weights, numbers, SEED_SECOND, &right));
        SPW_TRY(make_output(c, s->rows * width, used * width));
        SPW_TRY((forward ? spw_ref_grouped_gemm : spw_ref_grouped_gemm_input_gradient)(
            shape, left, right, offset, c->want, c->scale));
        c->terms = left_width;
    }
    c->exact = numbers == SPW_NUMBERS_INTEGER;

cleanup:
    spw_free(left), spw_free(right), spw_free(offset);
    return status;
}

static spw_status keep_indices(spw_kernel_case *c, size_t input, size_t count, const int32_t *from) {
    const spw_status status = spw_alloc(count, sizeof *from, &c->memory[input]);
    if (status != SPW_OK) return status;
    memcpy(c->memory[input], from, count * sizeof *from);
    c->call.input[input] = c->memory[input];
    c->input_bytes[input] = count * sizeof *from;
    return SPW_OK;
}

static spw_status make_movement(spw_kernel_case *c, const choice_source *from, int numbers) {
    spw_kernel_call *s = &c->call;
    const size_t choices = s->tokens * s->top_k;
    int32_t *expert = NULL;
    float *values = NULL, *weight = NULL;
    spw_plan plan = {.rows = 0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(choices, &expert));
    fill_choices(s, from, expert);
    SPW_TRY(spw_ref_plan_create(s->tokens, s->top_k, s->experts, expert, &plan));
    s->rows = plan.rows;
    if (s->kernel == SPW_KERNEL_PERMUTE) {
        SPW_TRY(fill(c, 0, s->tokens * s->in, s->tokens * s->in, numbers, SEED_FIRST, &values));
        SPW_TRY(keep_indices(c, 1, choices, expert));
        SPW_TRY(make_output(c, plan.rows * s->in, plan.rows * s->in));
        spw_ref_permute(&plan, s->in, values, c->want);
        c->exact = true;
    } else {
        SPW_TRY(fill(c, 0, plan.rows * s->in, plan.rows * s->in, numbers, SEED_FIRST, &values));
        SPW_TRY(keep_indices(c, 1, choices, plan.row));
        SPW_TRY(spw_alloc(choices, sizeof *weight, &c->memory[2]));
        weight = c->memory[2];
        for (size_t i = 0; i < choices; i++) weight[i] = fabsf(spw_number(numbers, SEED_THIRD, i));
        s->input[2] = weight;
        c->input_bytes[2] = choices * sizeof *weight;
        SPW_TRY(make_output(c, s->tokens * s->in, s->tokens * s->in));
        spw_ref_combine(&plan, s->in, values, weight, c->want, c->scale);
        c->terms = s->top_k;
        c->exact = numbers == SPW_NUMBERS_INTEGER;
    }

cleanup:
    spw_ref_plan_destroy(&plan);
    spw_free(expert), spw_free(values);
    return status;
}

static spw_status make_swiglu(spw_kernel_case *c, const choice_source *from, int numbers) {
    enum { TERMS = 10 }; /* of an evaluation in fp32: kernels/local/swiglu_math.h */
    if (from->record != NULL) c->call.rows = c->call.tokens;
    const size_t count = c->call.rows * c->call.out;
    float *gate = NULL, *up = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(fill(c, 0, count, count, numbers, SEED_FIRST, &gate));
    SPW_TRY(fill(c, 1, count, count, numbers, SEED_SECOND, &up));
    SPW_TRY(make_output(c, count, count));
    spw_ref_swiglu((spw_swiglu){.limit = 0}, count, gate, up, c->want, c->scale);
    c->terms = TERMS;

cleanup:
    spw_free(gate), spw_free(up);
    return status;
}

/* Sizes and name of case `number`, whose layout and kind of numbers are decided. */
static void describe(spw_kernel_case *c, size_t routing, const spw_record *record, const char *suffix) {
    spw_kernel_call *s = &c->call;
    char size[sizeof c->name / 2];
    if (record == NULL) {
        const size_t at = routing % SIZES;
        s->experts = sizes[at].experts, s->rows = sizes[at].rows, s->in = sizes[at].in,
        s->out = sizes[at].out;
        s->top_k = sizes[at].top_k, s->tokens = s->rows / s->top_k;
        (void)snprintf(c->name, sizeof c->name, "%s, %s%s", sizes[at].name,
                       spw_routing_names[routing / SIZES], suffix);
        return;
    }
    s->experts = record->experts / record->ranks, s->in = record->hidden, s->out = record->hidden;
    s->top_k = record->top_k, s->tokens = record->ranks * record_tokens(record);
    (void)snprintf(size, sizeof size, "%zu experts of rank %zu, %zu tokens, %zu -> %zu", s->experts, routing,
                   s->tokens, s->in, s->out);
    (void)snprintf(c->name, sizeof c->name, "%s%s", size, suffix);
}

spw_status spw_kernel_case_create(spw_kernel kernel, spw_type type, const spw_record *record, size_t number,
                                  spw_kernel_case *out) {
    *out = (spw_kernel_case){.judged = 0};
    if ((unsigned)kernel >= SPW_KERNELS || (unsigned)type > SPW_TYPE_FLOAT)
        return spw_fail(SPW_EARG, "kernel %d, type %d: there are %d kernels and 2 types", (int)kernel,
                        (int)type, SPW_KERNELS);
    const size_t cases = spw_kernel_cases(kernel, record);
    if (number >= cases)
        return spw_fail(SPW_EARG, "case %zu: %s has the cases 0 to %zu", number, names[kernel], cases - 1);
    const size_t routing = number % routings(record), numbers = number / routings(record) % NUMBERS;
    const int transposed = number / routings(record) / NUMBERS > 0;
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, ", %s%s", numbers == SPW_NUMBERS_INTEGER ? "integers" : "bell",
                   !is_product(kernel) ? ""
                   : transposed        ? ", [out][in]"
                                       : ", [in][out]");
    out->call = (spw_kernel_call){.kernel = kernel, .type = type, .transposed = transposed};
    describe(out, routing, record, suffix);
    const choice_source from = {.routing = (spw_routing)(routing / SIZES), .record = record, .rank = routing};
    const spw_status status = is_product(kernel)            ? make_product(out, &from, (int)numbers)
                              : kernel == SPW_KERNEL_SWIGLU ? make_swiglu(out, &from, (int)numbers)
                                                            : make_movement(out, &from, (int)numbers);
    if (status != SPW_OK) spw_kernel_case_destroy(out);
    return status;
}

void spw_kernel_case_destroy(spw_kernel_case *c) {
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) spw_free(c->memory[i]);
    spw_free(c->fenced), spw_free(c->offset), spw_free(c->want), spw_free(c->scale);
    *c = (spw_kernel_case){.judged = 0};
}

spw_status spw_kernel_case_judge(const spw_kernel_case *c, spw_judged *out) {
    const unsigned char *before = c->fenced, *after = (const unsigned char *)c->call.output + c->output_bytes;
    const float *scale = c->exact ? NULL : c->scale;
    if (c->call.type == SPW_TYPE_BF16) {
        spw_judge_all_bf16(c->judged, c->terms, c->call.output, c->want, scale, out);
    } else {
        spw_judge_all_float(c->judged, c->terms, c->call.output, c->want, scale, out);
    }
    for (size_t i = 0; i < SPW_KERNEL_CASE_GUARD; i++) {
        if (before[i] == GUARD && after[i] == GUARD) continue;
        out->failed += 1;
        out->worst = INFINITY;
        return spw_fail(SPW_EMISMATCH, "the kernel wrote outside of its output, %s it",
                        before[i] != GUARD ? "before" : "behind");
    }
    if (out->failed == 0) return SPW_OK;
    return spw_fail(
        SPW_EMISMATCH,
        "%zu of %zu elements are wrong; the worst, %zu, is %.9g where %.9g is right and %.9g to %.9g passes",
        out->failed, out->elements, out->at, out->got, out->want, out->low, out->high);
}
