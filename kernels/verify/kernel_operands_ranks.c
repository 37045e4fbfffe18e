#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/kernel_operands.h"
#include "reference/dispatch.h"
#include "reference/router.h"

#include <math.h>
#include <string.h>

enum { SEED_LOGITS = 31, SEED_TOKENS, SEED_ROWS };

spw_status spw_kernel_make_router(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    spw_kernel_call *s = &c->call;
    const size_t choices = s->tokens * s->top_k;
    const spw_router router = {.tokens = s->tokens,
                               .experts = s->experts,
                               .top_k = s->top_k,
                               .score = s->sigmoid ? SPW_SCORE_SIGMOID : SPW_SCORE_SOFTMAX,
                               .groups = 1,
                               .groups_kept = 1,
                               .group_terms = 1,
                               .renormalize = s->renormalize != 0,
                               .scaling = 1};
    float *logits = NULL, *score = NULL;
    spw_status status = SPW_OK;
    (void)from;
    c->output_type = SPW_TYPE_FLOAT;
    SPW_TRY(
        spw_kernel_fill(c, 0, s->tokens * s->experts, s->tokens * s->experts, numbers, SEED_LOGITS, &logits));
    SPW_TRY(spw_kernel_output(c, choices, choices));
    SPW_TRY(spw_kernel_index_output(c, choices));
    SPW_TRY(SPW_ALLOC(s->tokens * s->experts, &score));
    SPW_TRY(spw_ref_router(&router, logits, NULL, score, c->want_index, c->want));
    memcpy(c->scale, c->want, choices * sizeof *c->scale);
    c->terms = SPW_KERNEL_ROUTER_TERMS + s->experts + s->top_k;

cleanup:
    spw_free(logits), spw_free(score);
    return status;
}

/* The plan of dispatch and combine, the experts that a kernel gets as its second input, and where every rank's rows begin. */
static spw_status plan_ranks(spw_kernel_case *c, const spw_choice_source *from, spw_dispatch_plan *plan) {
    spw_kernel_call *s = &c->call;
    const size_t choices = s->ranks * s->tokens * s->top_k;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(choices, &expert));
    spw_kernel_choices(s, from, choices, expert);
    SPW_TRY(spw_ref_dispatch_create(s->ranks, s->tokens, s->top_k, s->experts, expert, plan));
    SPW_TRY(spw_kernel_indices(c, 1, choices, expert));
    SPW_TRY(SPW_ALLOC(s->ranks + 1, &c->offset));
    for (size_t d = 0; d < s->ranks; d++)
        c->offset[d + 1] = c->offset[d] + (int32_t)plan->first[d * (s->ranks + 1) + s->ranks];
    s->offset = c->offset;
    c->offsets = s->ranks + 1;
    s->rows = (size_t)c->offset[s->ranks];

cleanup:
    spw_free(expert);
    return status;
}

spw_status spw_kernel_make_dispatch(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    const spw_kernel_call *s = &c->call;
    spw_dispatch_plan plan = {.ranks = 0};
    float *x = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(plan_ranks(c, from, &plan));
    const size_t tokens = s->ranks * s->tokens;
    SPW_TRY(spw_kernel_fill(c, 0, tokens * s->in, tokens * s->in, numbers, SEED_TOKENS, &x));
    SPW_TRY(spw_kernel_output(c, s->rows * s->in, s->rows * s->in));
    for (size_t d = 0; d < s->ranks; d++)
        for (size_t r = 0; r < (size_t)(c->offset[d + 1] - c->offset[d]); r++)
            memcpy(c->want + ((size_t)c->offset[d] + r) * s->in,
                   x + (size_t)plan.item[d * tokens + r] * s->in, s->in * sizeof *x);
    c->exact = true;

cleanup:
    spw_ref_dispatch_destroy(&plan);
    spw_free(x);
    return status;
}

spw_status spw_kernel_make_combine(spw_kernel_case *c, const spw_choice_source *from, int numbers) {
    const spw_kernel_call *s = &c->call;
    spw_dispatch_plan plan = {.ranks = 0};
    float *rows = NULL;
    const float **of_rank = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(plan_ranks(c, from, &plan));
    const size_t own = s->tokens * s->in;
    SPW_TRY(spw_kernel_fill(c, 0, s->rows * s->in, s->rows * s->in, numbers, SEED_ROWS, &rows));
    SPW_TRY(spw_kernel_output(c, s->ranks * own, s->ranks * own));
    SPW_TRY(SPW_ALLOC(s->ranks, &of_rank));
    for (size_t d = 0; d < s->ranks; d++) of_rank[d] = rows + (size_t)c->offset[d] * s->in;
    for (size_t source = 0; source < s->ranks; source++)
        spw_ref_dispatch_combine(&plan, source, s->in, of_rank, c->want + source * own,
                                 c->scale + source * own);
    c->terms = s->ranks;
    c->exact = numbers == SPW_NUMBERS_INTEGER;

cleanup:
    spw_ref_dispatch_destroy(&plan);
    spw_free(rows), spw_free(of_rank);
    return status;
}
