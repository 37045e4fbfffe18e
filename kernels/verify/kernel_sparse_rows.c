#include "kernels/verify/kernel_sparse_rows.h"

#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/kernel_operands.h"
#include "reference/router.h"
#include "reference/swiglu.h"

#include <string.h>

enum { SEED_FIRST = 51, SEED_SECOND, SEED_THIRD, RANKS = 2 };

/* Tokens without a choice but for the places, of which place p has expert p mod experts; the second input. */
static spw_status make_choices(spw_kernel_case *c, const spw_sparse_rows *r) {
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(r->rows, &expert));
    for (size_t t = 0; t < r->rows; t++) expert[t] = -1;
    for (size_t p = 0; p < r->places; p++) expert[r->place[p]] = (int32_t)(p % c->call.experts);
    SPW_TRY(spw_kernel_indices(c, 1, r->rows, expert));

cleanup:
    spw_free(expert);
    return status;
}

/* to[i]: the place whose row is the i-th when the places are sorted by p mod `experts` / each, then by place. */
static void sort_places(const spw_sparse_rows *r, size_t experts, size_t each, size_t *to) {
    size_t next = 0;
    for (size_t group = 0; group < experts / each; group++)
        for (size_t p = 0; p < r->places; p++)
            if (p % experts / each == group) to[next++] = p;
}

spw_status spw_sparse_make_permute(spw_kernel_case *c) {
    spw_kernel_call *s = &c->call;
    spw_sparse_rows r = {.rows = s->tokens, .width = s->in};
    size_t from[SPW_KERNEL_SAMPLES];
    float *values = NULL;
    spw_status status = SPW_OK;
    r.places = spw_sparse_places(r.rows, r.width, r.place);
    s->rows = r.places;
    SPW_TRY(spw_sparse_rows_make(c, 0, &r, SEED_FIRST, &values));
    SPW_TRY(make_choices(c, &r));
    SPW_TRY(spw_kernel_output(c, s->rows * s->in, s->rows * s->in));
    sort_places(&r, s->experts, 1, from);
    for (size_t row = 0; row < r.places; row++)
        memcpy(c->want + row * r.width, values + from[row] * r.width, r.width * sizeof *values);
    c->exact = true;

cleanup:
    spw_free(values);
    return status;
}

spw_status spw_sparse_make_unpermute(spw_kernel_case *c) {
    spw_kernel_call *s = &c->call;
    spw_sparse_rows r = {.rows = s->rows, .width = s->in};
    int32_t row[SPW_KERNEL_SAMPLES];
    float *values = NULL, *weight = NULL;
    spw_status status = SPW_OK;
    r.places = spw_sparse_places(r.rows, r.width, r.place);
    s->tokens = r.places;
    SPW_TRY(spw_sparse_rows_make(c, 0, &r, SEED_FIRST, &values));
    SPW_TRY(spw_alloc(r.places, sizeof *weight, &c->memory[2]));
    weight = c->memory[2];
    s->input[2] = weight;
    c->input_bytes[2] = r.places * sizeof *weight;
    SPW_TRY(spw_kernel_output(c, r.places * r.width, r.places * r.width));
    for (size_t t = 0; t < r.places; t++) {
        const size_t place = r.places - 1 - t; /* the other way round */
        row[t] = (int32_t)r.place[place];
        weight[t] = spw_number(SPW_NUMBERS_INTEGER, SEED_THIRD, t);
        for (size_t i = 0; i < r.width; i++)
            c->want[t * r.width + i] = weight[t] * values[place * r.width + i];
    }
    SPW_TRY(spw_kernel_indices(c, 1, r.places, row));
    c->terms = 1;
    c->exact = true;

cleanup:
    spw_free(values);
    return status;
}

spw_status spw_sparse_make_swiglu(spw_kernel_case *c) {
    spw_sparse_rows r = {.rows = c->call.rows, .width = c->call.out};
    float *gate = NULL, *up = NULL;
    spw_status status = SPW_OK;
    r.places = spw_sparse_places(r.rows, r.width, r.place);
    SPW_TRY(spw_sparse_rows_make(c, 0, &r, SEED_FIRST, &gate));
    SPW_TRY(spw_sparse_rows_make(c, 1, &r, SEED_SECOND, &up));
    SPW_TRY(spw_sparse_output_make(c, &r));
    spw_ref_swiglu((spw_swiglu){.limit = 0}, c->judged, gate, up, c->want, c->scale);
    c->terms = SPW_KERNEL_SWIGLU_TERMS;

cleanup:
    spw_free(gate), spw_free(up);
    return status;
}

spw_status spw_sparse_make_router(spw_kernel_case *c) {
    const spw_kernel_call *s = &c->call;
    spw_sparse_rows r = {.rows = s->tokens, .width = s->experts};
    float *logits = NULL, *score = NULL;
    spw_status status = SPW_OK;
    r.places = spw_sparse_places(r.rows, r.width, r.place);
    const spw_router router = {.tokens = r.places,
                               .experts = s->experts,
                               .top_k = s->top_k,
                               .score = SPW_SCORE_SOFTMAX,
                               .groups = 1,
                               .groups_kept = 1,
                               .group_terms = 1,
                               .scaling = 1};
    c->output_type = SPW_TYPE_FLOAT;
    SPW_TRY(spw_sparse_rows_make(c, 0, &r, SEED_FIRST, &logits));
    SPW_TRY(SPW_ALLOC(r.places * r.width, &score));
    r.width = s->top_k;
    SPW_TRY(spw_sparse_output_make(c, &r));
    SPW_TRY(spw_sparse_index_make(c, &r));
    SPW_TRY(spw_ref_router(&router, logits, NULL, score, c->want_index, c->want));
    memcpy(c->scale, c->want, c->judged * sizeof *c->scale);
    c->terms = SPW_KERNEL_ROUTER_TERMS + s->experts + s->top_k;

cleanup:
    spw_free(logits), spw_free(score);
    return status;
}

/* Choices of all ranks, where every rank's rows begin, and from[row], the place of a row. */
static spw_status plan_ranks(spw_kernel_case *c, spw_sparse_rows *r, size_t *from) {
    spw_kernel_call *s = &c->call;
    const size_t each = s->experts / RANKS; /* experts of a rank */
    spw_status status = SPW_OK;
    s->ranks = RANKS;
    *r = (spw_sparse_rows){.rows = RANKS * s->tokens, .width = s->in};
    r->places = spw_sparse_places(r->rows, r->width, r->place);
    s->rows = r->places;
    SPW_TRY(make_choices(c, r));
    SPW_TRY(SPW_ALLOC(RANKS + 1, &c->offset));
    for (size_t p = 0; p < r->places; p++) c->offset[p % s->experts / each + 1]++;
    for (size_t d = 0; d < RANKS; d++) c->offset[d + 1] += c->offset[d];
    s->offset = c->offset;
    c->offsets = RANKS + 1;
    sort_places(r, s->experts, each, from);

cleanup:
    return status;
}

spw_status spw_sparse_make_dispatch(spw_kernel_case *c) {
    spw_sparse_rows r;
    size_t from[SPW_KERNEL_SAMPLES];
    float *values = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(plan_ranks(c, &r, from));
    SPW_TRY(spw_sparse_rows_make(c, 0, &r, SEED_FIRST, &values));
    SPW_TRY(spw_kernel_output(c, r.places * r.width, r.places * r.width));
    for (size_t row = 0; row < r.places; row++)
        memcpy(c->want + row * r.width, values + from[row] * r.width, r.width * sizeof *values);
    c->exact = true;

cleanup:
    spw_free(values);
    return status;
}

spw_status spw_sparse_make_combine(spw_kernel_case *c) {
    spw_sparse_rows r;
    size_t from[SPW_KERNEL_SAMPLES];
    float *values = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(plan_ranks(c, &r, from));
    const size_t count = r.places * r.width;
    SPW_TRY(spw_kernel_fill(c, 0, count, count, SPW_NUMBERS_INTEGER, SEED_SECOND, &values));
    SPW_TRY(spw_sparse_output_make(c, &r));
    for (size_t row = 0; row < r.places; row++)
        memcpy(c->want + from[row] * r.width, values + row * r.width, r.width * sizeof *values);
    c->exact = true;

cleanup:
    spw_free(values);
    return status;
}
