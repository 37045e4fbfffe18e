#include "reference/token_rounding.h"

#include "base/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t spw_ref_rounded_count(size_t count, size_t tile, spw_rounding rounding) {
    const size_t whole = count / tile, rest = count % tile;
    bool up = rounding == SPW_ROUND_UP && rest > 0;
    if (rounding == SPW_ROUND_NEAREST) {
        up = rest > tile - rest || (rest == tile - rest && whole % 2 == 1); /* half to even */
    }
    return (whole + up) * tile;
}

typedef struct candidate {
    bool chosen;
    float value; /* the weight of a token that chose the expert, the score of one that did not */
    size_t token;
} candidate;

static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->chosen != b->chosen) return a->chosen ? -1 : 1;
    if (a->value > b->value) return -1;
    if (a->value < b->value) return 1;
    return (a->token > b->token) - (a->token < b->token);
}

spw_status spw_ref_token_rounding(const spw_rounded_choices *c, float *taken, uint8_t *member,
                                  size_t *count) {
    const size_t tokens = c->tokens, top_k = c->top_k, experts = c->experts;
    const int32_t *const expert = c->expert;
    candidate *all = NULL;
    spw_status status = SPW_OK;
    if (c->tile == 0) return spw_fail(SPW_EARG, "tile is 0 rows");
    for (size_t i = 0; i < tokens * top_k; i++) {
        if (expert[i] >= 0 && (size_t)expert[i] >= experts)
            return spw_fail(SPW_EARG, "token %zu names expert %d of %zu", i / top_k, (int)expert[i], experts);
    }
    SPW_TRY(SPW_ALLOC(tokens, &all));
    memset(taken, 0, tokens * experts * sizeof *taken);
    memset(member, 0, tokens * experts);
    for (size_t x = 0; x < experts; x++) {
        size_t chosen = 0;
        for (size_t t = 0; t < tokens; t++) {
            all[t] = (candidate){.value = c->score[t * experts + x], .token = t};
            for (size_t k = 0; k < top_k; k++) {
                if (expert[t * top_k + k] < 0 || (size_t)expert[t * top_k + k] != x) continue;
                all[t] = (candidate){.chosen = true, .value = c->weight[t * top_k + k], .token = t};
            }
            chosen += all[t].chosen;
        }
        if (tokens > 0) qsort(all, tokens, sizeof *all, compare_candidates);
        const size_t target = spw_ref_rounded_count(chosen, c->tile, c->rounding);
        count[x] = target < tokens ? target : tokens;
        for (size_t n = 0; n < count[x]; n++) {
            taken[all[n].token * experts + x] = all[n].value;
            member[all[n].token * experts + x] = 1;
        }
    }
cleanup:
    spw_free(all);
    return status;
}
