#include "traces/generate/sample.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define ONE ((uint64_t)1 << 32)
/* Tokens that share a permutation: their choices stay independent in the first two moments (see the header of
 * generate.h), and a permutation costs as much as a few tokens. */
enum { TOKENS_PER_ORDER = 8, FEW_CELLS = 8 };

struct spw_sampler {
    size_t experts, top_k, groups, kept;
    unsigned cell_shift; /* a cell of the guide table covers 2^cell_shift */
    size_t cells;
    uint64_t *weight;       /* [experts] inclusion * ONE */
    uint64_t *group_weight; /* [groups] */
    uint32_t *group_of;     /* [experts] */
};

typedef struct scratch {
    uint64_t *end;  /* [experts] running sum of the weights in the order visited; with groups the weights */
    uint64_t *mask; /* [groups] all bits of a chosen group */
    uint32_t *
        guide; /* [cells] first place whose end lies beyond the start of the cell; with groups [experts] the group */
    uint16_t *order;  /* [experts] */
    uint16_t *groups; /* [groups] */
} scratch;

/* weight = inclusion * ONE, rounded so that the sum is exactly `total`. */
static void quantise(const double *inclusion, size_t count, uint64_t total, uint64_t *weight) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        double scaled = inclusion[i] * (double)ONE;
        weight[i] = scaled >= (double)ONE ? ONE : (uint64_t)llround(scaled);
        sum += weight[i];
    }
    while (sum != total) { /* a few units of 2^-32 */
        uint64_t before = sum;
        for (size_t i = 0; i < count && sum != total; i++) {
            if (sum < total && weight[i] < ONE && weight[i] > 0) {
                weight[i]++;
                sum++;
            } else if (sum > total && weight[i] > 0 && weight[i] < ONE) {
                weight[i]--;
                sum--;
            }
        }
        if (sum == before) break; /* every weight is 0 or ONE */
    }
}

spw_status spw_sampler_create(const double *inclusion, size_t experts, size_t top_k,
                              const double *group_inclusion, size_t groups, size_t kept, spw_sampler **out) {
    spw_status status = SPW_OK;
    spw_sampler *sampler = NULL;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &sampler));
    *sampler = (spw_sampler){.experts = experts, .top_k = top_k, .groups = groups, .kept = kept};
    uint64_t total = (uint64_t)top_k * ONE;
    while ((total >> sampler->cell_shift) > 4 * experts) sampler->cell_shift++;
    sampler->cells = (size_t)(total >> sampler->cell_shift) + 1;
    SPW_TRY(SPW_ALLOC(experts, &sampler->weight));
    if (groups == 0) {
        quantise(inclusion, experts, total, sampler->weight);
    } else {
        const size_t size = experts / groups; /* at least 1: groups divide experts */
        SPW_TRY(SPW_ALLOC(groups, &sampler->group_weight));
        quantise(group_inclusion, groups, kept * ONE, sampler->group_weight);
        SPW_TRY(SPW_ALLOC(experts, &sampler->group_of));
        for (size_t i = 0; i < groups; i++) {
            quantise(inclusion + i * size, size, total / kept, sampler->weight + i * size);
        }
        for (size_t g = 0; g < groups; g++)
            for (size_t i = 0; i < size; i++) sampler->group_of[g * size + i] = (uint32_t)g;
    }
    *out = sampler;
    sampler = NULL;

cleanup:
    spw_sampler_destroy(sampler);
    return status;
}

void spw_sampler_destroy(spw_sampler *sampler) {
    if (sampler == NULL) return;
    spw_free(sampler->weight);
    spw_free(sampler->group_weight);
    spw_free(sampler->group_of);
    spw_free(sampler);
}

size_t spw_sampler_scratch_bytes(const spw_sampler *sampler) {
    return sampler->experts * (sizeof(uint64_t) + sizeof(uint16_t)) +
           (sampler->cells + FEW_CELLS) * sizeof(uint32_t) +
           sampler->groups * (sizeof(uint16_t) + sizeof(uint64_t));
}

static scratch divide(const spw_sampler *sampler, void *memory) {
    scratch s;
    s.end = memory;
    s.mask = s.end + sampler->experts;
    s.guide = (uint32_t *)(s.mask + sampler->groups);
    s.order = (uint16_t *)(s.guide + sampler->cells + FEW_CELLS);
    s.groups = s.order + sampler->experts;
    return s;
}

static void shuffle(spw_random_stream *stream, uint16_t *order, size_t count) {
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)spw_random_below(stream, i);
        uint16_t held = order[i - 1];
        order[i - 1] = order[j];
        order[j] = held;
    }
}

/* guide[c] = the expert in the order that point c << cell_shift falls on. An expert has a few cells as a rule: so many are
 * written at once, and the next expert writes over those that are its own. */
static void build_guide(const spw_sampler *sampler, const scratch *s) {
    const uint64_t step = (uint64_t)1 << sampler->cell_shift;
    uint64_t sum = 0;
    size_t cell = 0;
    for (size_t i = 0; i < sampler->experts; i++) {
        sum += sampler->weight[s->order[i]];
        s->end[i] = sum;
        const size_t beyond = (size_t)((sum + step - 1) >> sampler->cell_shift),
                     end = beyond < sampler->cells ? beyond : sampler->cells;
        for (size_t j = 0; j < FEW_CELLS; j++) s->guide[cell + j] = (uint32_t)i;
        for (size_t j = cell + FEW_CELLS; j < end; j++) s->guide[j] = (uint32_t)i;
        cell = end;
    }
}

/* The experts that the points u, u + ONE, u + 2 ONE ... fall on. */
static void draw_token(const spw_sampler *sampler, const scratch *s, uint64_t u, uint16_t *expert_id) {
    for (size_t k = 0; k < sampler->top_k; k++, u += ONE) {
        size_t i = s->guide[u >> sampler->cell_shift];
        while (s->end[i] <= u) i++;
        expert_id[k] = s->order[i];
    }
}

static void choose_groups(const spw_sampler *sampler, spw_random_stream *stream, scratch *s) {
    uint64_t sum = 0, point = spw_random_below(stream, ONE);
    shuffle(stream, s->groups, sampler->groups);
    for (size_t i = 0; i < sampler->groups; i++) {
        sum += sampler->group_weight[s->groups[i]];
        s->mask[s->groups[i]] = sum > point ? UINT64_MAX : 0;
        if (sum > point) point += ONE;
    }
}

/* What every token of this order looks at, place by place. A table instead of a division: a fifth of the time to draw. */
static void build_places(const spw_sampler *sampler, const scratch *s) {
    for (size_t i = 0; i < sampler->experts; i++) {
        s->end[i] = sampler->weight[s->order[i]];
        s->guide[i] = sampler->group_of[s->order[i]];
    }
}

/* As draw_token(), over the experts of the chosen groups only. Others weigh nothing: a branch for each would be one that no
 * processor can foresee. The sum reaches no point at them, as an expert weighs at most ONE and the points lie ONE apart. */
static void draw_token_of_groups(const spw_sampler *sampler, spw_random_stream *stream, scratch *s,
                                 uint16_t *expert_id) {
    size_t k = 0;
    uint64_t top_k = sampler->top_k, total = top_k * ONE / sampler->kept * sampler->kept, sum = 0;
    choose_groups(sampler, stream, s);
    uint64_t point = spw_random_below(stream, total - (top_k - 1) * ONE);
    for (size_t i = 0; k < top_k && i < sampler->experts; i++) {
        sum += s->end[i] & s->mask[s->guide[i]];
        if (sum <= point) continue;
        expert_id[k++] = s->order[i];
        point += ONE;
    }
}

void spw_sampler_draw(const spw_sampler *sampler, spw_random_stream *stream, void *memory, size_t tokens,
                      uint16_t *expert_id) {
    scratch s = divide(sampler, memory);
    for (size_t i = 0; i < sampler->experts; i++) s.order[i] = (uint16_t)i;
    for (size_t i = 0; i < sampler->groups; i++) s.groups[i] = (uint16_t)i;
    for (size_t token = 0; token < tokens; token++) {
        if (token % TOKENS_PER_ORDER == 0) {
            shuffle(stream, s.order, sampler->experts);
            if (sampler->groups == 0)
                build_guide(sampler, &s);
            else
                build_places(sampler, &s);
        }
        uint16_t *into = expert_id + token * sampler->top_k;
        if (sampler->groups == 0) {
            draw_token(sampler, &s, spw_random_below(stream, ONE), into);
        } else {
            draw_token_of_groups(sampler, stream, &s, into);
        }
    }
}
