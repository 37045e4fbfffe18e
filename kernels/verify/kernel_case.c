#include "kernels/verify/kernel_case.h"

#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/kernel_operands.h"
#include "kernels/verify/kernel_sparse.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sizes that a tile meets: less than one, an edge beyond it, several. */
static const struct {
    const char *name;
    size_t experts, ranks, rows, in, out, top_k;
} sizes[] = {
    {"4 experts x 48 rows, 32 -> 64", 4, 4, 48, 32, 64, 2},
    {"5 experts x 165 rows, 72 -> 136", 5, 5, 165, 72, 136, 3},
    {"16 experts x 320 rows, 128 -> 64", 16, 4, 320, 128, 64, 8},
    {"4 experts x 140000 rows, 8 -> 8", 4, 4, 140000, 8, 8, 2}, /* more than 2^16 rows and tokens */
};
enum { LARGE = sizeof sizes / sizeof *sizes - 1, SIZES = LARGE, NUMBERS = 2 };

#define NAME(kernel, name) name,
static const char *const names[] = {SPW_KERNEL_LIST(NAME)};
#undef NAME

const char *spw_plugin_kernel_name(spw_kernel kernel) { return names[kernel]; }

spw_status spw_kernel_parse(const char *name, spw_kernel *out) {
    char list[256] = ""; /* of all names */
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

/* What makes a kernel's cases, and what they differ by beside size, routing and numbers. */
static const struct {
    spw_kernel_maker *make;
    bool routed;   /* its cases differ by routing */
    bool of_ranks; /* a case has all ranks */
    size_t variants;
    const char *variant[3];
} kinds[SPW_KERNELS] = {
    [SPW_KERNEL_GROUPED_GEMM] = {spw_kernel_make_product, true, false, 2, {", [in][out]", ", [out][in]"}},
    [SPW_KERNEL_INPUT_GRADIENT] = {spw_kernel_make_product, true, false, 2, {", [in][out]", ", [out][in]"}},
    [SPW_KERNEL_WEIGHT_GRADIENT] = {spw_kernel_make_product, true, false, 2, {", [in][out]", ", [out][in]"}},
    [SPW_KERNEL_PERMUTE] = {spw_kernel_make_movement, true, false, 1, {""}},
    [SPW_KERNEL_UNPERMUTE] = {spw_kernel_make_movement, true, false, 1, {""}},
    [SPW_KERNEL_SWIGLU] = {spw_kernel_make_swiglu, true, false, 1, {""}},
    [SPW_KERNEL_ROUTER] = {spw_kernel_make_router,
                           false,
                           false,
                           3,
                           {", softmax", ", softmax, renormalised", ", sigmoid, renormalised"}},
    [SPW_KERNEL_DISPATCH] = {spw_kernel_make_dispatch, true, true, 1, {""}},
    [SPW_KERNEL_COMBINE] = {spw_kernel_make_combine, true, true, 1, {""}},
};

/* Cases of one kind of numbers and one variant. */
static size_t routings(spw_kernel kernel, const spw_record *record) {
    if (!kinds[kernel].routed) return record != NULL ? 0 : (size_t)SIZES;
    if (record == NULL) return (size_t)SIZES * SPW_ROUTING_COUNT;
    return kinds[kernel].of_ranks ? 1 : record->ranks;
}

/* Cases of all sizes but the large one. */
static size_t small_cases(spw_kernel kernel, const spw_record *record) {
    return routings(kernel, record) * NUMBERS * kinds[kernel].variants;
}

size_t spw_kernel_cases(spw_kernel kernel, const spw_record *record) {
    return small_cases(kernel, record) + (record == NULL ? kinds[kernel].variants : 0);
}

size_t spw_kernel_sparse_cases(spw_kernel kernel, const spw_record *record) {
    return record == NULL ? spw_kernel_sparse_count(kernel) : 0;
}

/* What a case differs by from others of its kernel and type. size: of `sizes`, if there is no record. */
typedef struct case_place {
    size_t size, routing, numbers, variant;
} case_place;

static case_place place_of(spw_kernel kernel, const spw_record *record, size_t number) {
    const size_t small = small_cases(kernel, record), each = routings(kernel, record);
    if (number >= small) return (case_place){LARGE, SPW_ROUTING_ZIPF, SPW_NUMBERS_INTEGER, number - small};
    const size_t at = number % each;
    return (case_place){at % SIZES, record == NULL ? at / SIZES : at, number / each % NUMBERS,
                        number / each / NUMBERS};
}

/* Sizes and name of a case, whose kind of numbers and variant are in `suffix`. */
static void describe(spw_kernel_case *c, case_place place, const spw_record *record, const char *suffix) {
    spw_kernel_call *s = &c->call;
    const bool of_ranks = kinds[s->kernel].of_ranks;
    char size[96];
    if (record == NULL) {
        const size_t at = place.size;
        s->experts = sizes[at].experts, s->rows = sizes[at].rows, s->in = sizes[at].in,
        s->out = sizes[at].out;
        s->top_k = sizes[at].top_k, s->tokens = s->rows / s->top_k, s->ranks = of_ranks ? sizes[at].ranks : 0;
        (void)snprintf(c->name, sizeof c->name, "%s%s%s%s", sizes[at].name,
                       kinds[s->kernel].routed ? ", " : "",
                       kinds[s->kernel].routed ? spw_routing_names[place.routing] : "", suffix);
        return;
    }
    const size_t tokens = spw_kernel_record_tokens(record);
    s->ranks = of_ranks ? record->ranks : 0;
    s->experts = of_ranks ? record->experts : record->experts / record->ranks;
    s->tokens = of_ranks ? tokens : record->ranks * tokens;
    s->in = record->hidden, s->out = record->hidden, s->top_k = record->top_k;
    if (of_ranks)
        (void)snprintf(size, sizeof size, "%zu ranks x %zu tokens", s->ranks, tokens);
    else
        (void)snprintf(size, sizeof size, "%zu experts of rank %zu, %zu tokens", s->experts, place.routing,
                       s->tokens);
    (void)snprintf(c->name, sizeof c->name, "%s, %zu -> %zu%s", size, s->in, s->out, suffix);
}

static spw_status check_case(spw_kernel kernel, spw_type type, const spw_record *record, size_t number) {
    if ((unsigned)kernel >= SPW_KERNELS || (unsigned)type >= SPW_TYPES)
        return spw_fail(SPW_EARG, "kernel %d, type %d: there are %d kernels and %d types", (int)kernel,
                        (int)type, SPW_KERNELS, SPW_TYPES);
    const size_t cases = spw_kernel_cases(kernel, record) + spw_kernel_sparse_cases(kernel, record);
    if (cases == 0)
        return spw_fail(SPW_EARG, "a routing record has no logits, so no cases of %s", names[kernel]);
    if (number >= cases)
        return spw_fail(SPW_EARG, "case %zu: %s has the cases 0 to %zu", number, names[kernel], cases - 1);
    return SPW_OK;
}

/* FNV-1a, Fowler, Noll, Vo; eight bytes at a time. */
static uint64_t sum_of(const void *data, size_t bytes) {
    uint64_t sum = 0xcbf29ce484222325u, word = 0;
    for (size_t i = 0; i < bytes; i += sizeof word) {
        word = 0;
        memcpy(&word, (const unsigned char *)data + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        sum = (sum ^ word) * 0x100000001b3u;
        sum ^= sum >> 29; /* or the upper half of a word would only reach the upper half of the sum */
    }
    return sum;
}

/* Sparse inputs cannot be written to: reading all of one would take too long. */
static void sum_inputs(const spw_kernel_case *c, uint64_t sum[SPW_KERNEL_INPUTS + 1]) {
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++)
        sum[i] = c->memory[i] != NULL ? sum_of(c->memory[i], c->input_bytes[i]) : 0;
    sum[SPW_KERNEL_INPUTS] = c->offset != NULL ? sum_of(c->offset, c->offsets * sizeof *c->offset) : 0;
}

static spw_status make_case(spw_kernel_case *c, const spw_record *record, size_t number) {
    const spw_kernel kernel = c->call.kernel;
    const size_t cases = spw_kernel_cases(kernel, record);
    if (number >= cases) return spw_kernel_sparse_make(c, number - cases);
    const case_place place = place_of(kernel, record, number);
    char suffix[64];
    (void)snprintf(suffix, sizeof suffix, ", %s%s",
                   place.numbers == SPW_NUMBERS_INTEGER ? "integers" : "bell",
                   kinds[kernel].variant[place.variant]);
    if (kernel == SPW_KERNEL_ROUTER) {
        c->call.renormalize = place.variant > 0, c->call.sigmoid = place.variant > 1;
    } else {
        c->call.transposed = (int)place.variant;
    }
    describe(c, place, record, suffix);
    const spw_choice_source from = {.routing = record == NULL ? (spw_routing)place.routing : 0,
                                    .record = record,
                                    .rank = kinds[kernel].of_ranks ? 0 : place.routing};
    return kinds[kernel].make(c, &from, (int)place.numbers);
}

spw_status spw_kernel_case_create(spw_kernel kernel, spw_type type, const spw_record *record, size_t number,
                                  spw_kernel_case *out) {
    *out = (spw_kernel_case){.judged = 0};
    spw_status status = check_case(kernel, type, record, number);
    if (status != SPW_OK) return status;
    out->call = (spw_kernel_call){.kernel = kernel, .type = type};
    out->output_type = type;
    status = make_case(out, record, number);
    if (status == SPW_OK) sum_inputs(out, out->input_sum);
    if (status != SPW_OK) spw_kernel_case_destroy(out);
    return status;
}

void spw_kernel_case_destroy(spw_kernel_case *c) {
    for (size_t i = 0; i < SPW_KERNEL_INPUTS; i++) spw_free(c->memory[i]);
    for (size_t i = 0; i < SPW_KERNEL_INPUTS + 2; i++) spw_sparse_destroy(&c->sparse[i]);
    spw_free(c->fenced), spw_free(c->fenced_index), spw_free(c->offset);
    spw_free(c->want), spw_free(c->scale), spw_free(c->want_index);
    *c = (spw_kernel_case){.judged = 0};
}

/* --- The judge --- */

static spw_status judge_guards(const void *fenced, size_t bytes, const char *what, spw_judged *out) {
    const unsigned char *before = fenced, *after = before + SPW_KERNEL_CASE_GUARD + bytes;
    for (size_t i = 0; fenced != NULL && i < SPW_KERNEL_CASE_GUARD; i++) {
        if (before[i] == SPW_KERNEL_GUARD && after[i] == SPW_KERNEL_GUARD) continue;
        out->failed += 1;
        out->worst = INFINITY;
        return spw_fail(SPW_EMISMATCH, "the kernel wrote outside of its %s, %s it", what,
                        before[i] != SPW_KERNEL_GUARD ? "before" : "behind");
    }
    return SPW_OK;
}

static spw_status judge_inputs(const spw_kernel_case *c, spw_judged *out) {
    uint64_t sum[SPW_KERNEL_INPUTS + 1];
    sum_inputs(c, sum);
    for (size_t i = 0; i <= SPW_KERNEL_INPUTS; i++) {
        char input[32] = "offset";
        if (sum[i] == c->input_sum[i]) continue;
        if (i < SPW_KERNEL_INPUTS) (void)snprintf(input, sizeof input, "input %zu", i);
        out->failed += 1;
        out->worst = INFINITY;
        return spw_fail(SPW_EMISMATCH, "the kernel wrote to its %s, which must stay as it is", input);
    }
    return SPW_OK;
}

/* Where element i of those that are judged stands in the output. */
static size_t element_of(const spw_kernel_case *c, size_t i) {
    return c->samples == 0 ? i : c->sample[i / c->sample_width] * c->sample_width + i % c->sample_width;
}

static spw_status judge_index(const spw_kernel_case *c, spw_judged *out) {
    const size_t count = c->samples > 0 ? c->judged : c->index_bytes / sizeof *c->want_index;
    size_t failed = 0, at = 0;
    if (c->index_bytes == 0) return SPW_OK;
    for (size_t i = 0; i < count; i++) {
        if (c->call.index[element_of(c, i)] == c->want_index[i]) continue;
        if (failed++ == 0) at = i;
    }
    if (failed == 0) return SPW_OK;
    const size_t element = element_of(c, at);
    const double got = (double)c->call.index[element], want = (double)c->want_index[at];
    *out = (spw_judged){.elements = count,
                        .failed = failed,
                        .at = element,
                        .worst = INFINITY,
                        .got = got,
                        .want = want,
                        .low = want,
                        .high = want};
    return spw_fail(SPW_EMISMATCH,
                    "%zu of %zu indices are wrong; the first, %zu, is %" PRId32 " where %" PRId32 " is right",
                    failed, count, element, c->call.index[element], c->want_index[at]);
}

/* *gathered: what stands in the samples' rows, or NULL where all of the output is judged from its first element on. */
static spw_status gather(const spw_kernel_case *c, void **gathered) {
    const size_t row = c->sample_width * spw_kernel_type_bytes(c->output_type);
    *gathered = NULL;
    if (c->samples == 0) return SPW_OK;
    const spw_status status = spw_alloc(c->samples, row, gathered);
    for (size_t i = 0; i < c->samples && status == SPW_OK; i++)
        memcpy((unsigned char *)*gathered + i * row,
               (const unsigned char *)c->call.output + c->sample[i] * row, row);
    return status;
}

spw_status spw_kernel_case_judge(const spw_kernel_case *c, spw_judged *out) {
    const float *scale = c->exact ? NULL : c->scale;
    void *gathered = NULL;
    spw_status status = gather(c, &gathered);
    if (status != SPW_OK) return status;
    const void *got = gathered != NULL ? gathered : c->call.output;
    if (c->output_type == SPW_TYPE_BF16) {
        spw_judge_all_bf16(c->judged, c->terms, got, c->want, scale, out);
    } else if (c->output_type == SPW_TYPE_FP16) {
        spw_judge_all_fp16(c->judged, c->terms, got, c->want, scale, out);
    } else {
        spw_judge_all_float(c->judged, c->terms, got, c->want, scale, out);
    }
    spw_free(gathered);
    if (out->elements > 0) out->at = element_of(c, out->at);
    status = judge_inputs(c, out);
    if (status == SPW_OK) status = judge_guards(c->guarded, c->output_bytes, "output", out);
    if (status == SPW_OK) status = judge_guards(c->guarded_index, c->index_bytes, "index", out);
    if (status == SPW_OK) status = judge_index(c, out);
    if (status != SPW_OK || out->failed == 0) return status;
    return spw_fail(
        SPW_EMISMATCH,
        "%zu of %zu elements are wrong; the worst, %zu, is %.9g where %.9g is right and %.9g to %.9g passes",
        out->failed, out->elements, out->at, out->got, out->want, out->low, out->high);
}
