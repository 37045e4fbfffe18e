#include "reference/capacity.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

/* Not less than 0, cut to an integer as Python's int() does. */
static size_t truncated(double x) { return x >= 1.0 ? (size_t)x : 0; }
static size_t ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

size_t spw_ref_capacity_maxtext(size_t tokens_per_group, size_t top_k, size_t experts, double factor) {
    const double average = (double)ceil_div(tokens_per_group * top_k, experts);
    return truncated(fmax(average * factor, factor));
}

size_t spw_ref_capacity_megatron(size_t tokens, size_t top_k, size_t experts, double factor) {
    return truncated(ceil((double)(tokens * top_k) / (double)experts * factor));
}

size_t spw_ref_capacity_tutel(size_t tokens, size_t top_k, size_t experts, double factor, size_t alignment) {
    const size_t capacity = top_k * truncated(factor * (double)ceil_div(tokens, experts));
    return alignment > 1 ? ceil_div(capacity, alignment) * alignment : capacity;
}

/* An assignment in the order in which the rule serves: by queue, then by key, then by its own place. */
typedef struct entry {
    size_t queue, key, place;
    float preference; /* larger first; before `place` */
} entry;

static int compare_entries(const void *left, const void *right) {
    const entry *a = left, *b = right;
    if (a->queue != b->queue) return a->queue < b->queue ? -1 : 1;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    if (a->preference > b->preference) return -1;
    if (a->preference < b->preference) return 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* How a rule turns assignment i of expert x into an entry; `rule` holds what it needs. */
typedef struct drop_rule {
    spw_choices choices;
    size_t group, ranks, local; /* tokens a group; expert-parallel size; experts a rank */
    const float *preference;
} drop_rule;
typedef entry entry_of(const drop_rule *rule, size_t i, size_t x);

/* Every queue keeps its first `room` entries: the plainest form of all these rules, a sort and a count. */
static spw_status serve(const drop_rule *rule, entry_of *make, size_t room, uint8_t *keep, size_t *dropped) {
    const spw_choices c = rule->choices;
    size_t assignments = 0, used = 0, held = 0;
    entry *entries = NULL;
    spw_status status = SPW_OK;
    *dropped = 0;
    if (!spw_mul_size(c.tokens, c.top_k, &assignments)) return spw_fail(SPW_EARG, "tokens x top_k overflows");
    SPW_TRY(SPW_ALLOC(assignments, &entries));
    for (size_t i = 0; i < assignments; i++) {
        keep[i] = 0;
        if (c.expert[i] < 0) continue;
        if ((size_t)c.expert[i] >= c.experts) {
            status = spw_fail(SPW_EARG, "token %zu names expert %d of %zu", i / c.top_k, (int)c.expert[i],
                              c.experts);
            goto cleanup;
        }
        entries[used++] = make(rule, i, (size_t)c.expert[i]);
    }
    if (used > 0) qsort(entries, used, sizeof *entries, compare_entries);
    for (size_t n = 0; n < used; n++) {
        held = n > 0 && entries[n].queue == entries[n - 1].queue ? held + 1 : 0;
        if (held < room) keep[entries[n].place] = 1;
        if (held >= room) ++*dropped;
    }
cleanup:
    spw_free(entries);
    return status;
}

static entry by_position(const drop_rule *rule, size_t i, size_t x) {
    const size_t group = i / rule->choices.top_k / rule->group;
    return (entry){.queue = group * rule->choices.experts + x, .place = i};
}

spw_status spw_ref_keep_by_position(spw_choices choices, size_t tokens_per_group, size_t capacity,
                                    uint8_t *keep, size_t *dropped) {
    if (tokens_per_group == 0 || choices.tokens % tokens_per_group != 0) {
        return spw_fail(SPW_EARG, "groups of %zu tokens do not divide %zu tokens", tokens_per_group,
                        choices.tokens);
    }
    const drop_rule rule = {.choices = choices, .group = tokens_per_group};
    return serve(&rule, by_position, capacity, keep, dropped);
}

static entry by_probability(const drop_rule *rule, size_t i, size_t x) {
    return (entry){.queue = x, .preference = rule->preference[i], .place = i};
}

spw_status spw_ref_keep_by_probability(spw_choices choices, const float *probability, size_t capacity,
                                       uint8_t *keep, size_t *dropped) {
    const drop_rule rule = {.choices = choices, .preference = probability};
    const size_t room = capacity > choices.tokens ? SIZE_MAX : capacity;
    return serve(&rule, by_probability, room, keep, dropped);
}

static entry by_choice_rank(const drop_rule *rule, size_t i, size_t x) {
    const size_t token = i / rule->choices.top_k;
    return (entry){.queue = x,
                   .key = i % rule->choices.top_k,
                   .preference = rule->preference == NULL ? 0.0f : rule->preference[token],
                   .place = i};
}

spw_status spw_ref_keep_by_choice_rank(spw_choices choices, const float *priority, size_t capacity,
                                       uint8_t *keep, size_t *dropped) {
    const drop_rule rule = {.choices = choices, .preference = priority};
    return serve(&rule, by_choice_rank, capacity, keep, dropped);
}

static spw_status check_ranks(spw_choices c, size_t ranks) {
    if (ranks == 0 || c.experts < ranks || c.experts % ranks != 0 || c.tokens % ranks != 0) {
        return spw_fail(SPW_EARG, "%zu ranks do not divide %zu experts and %zu tokens", ranks, c.experts,
                        c.tokens);
    }
    return SPW_OK;
}

static entry by_source_rank(const drop_rule *rule, size_t i, size_t x) {
    const spw_choices c = rule->choices;
    const size_t source = i / c.top_k / (c.tokens / rule->ranks);
    return (entry){.queue = x / rule->local, .key = source * c.experts + x, .place = i};
}

spw_status spw_ref_keep_by_source_rank(spw_choices choices, size_t ranks, size_t rows, uint8_t *keep,
                                       size_t *dropped) {
    const spw_status status = check_ranks(choices, ranks);
    if (status != SPW_OK) return status;
    const drop_rule rule = {.choices = choices, .ranks = ranks, .local = choices.experts / ranks};
    return serve(&rule, by_source_rank, rows, keep, dropped);
}

static entry by_expert_id(const drop_rule *rule, size_t i, size_t x) {
    return (entry){.queue = x / rule->local, .key = x, .place = i};
}

spw_status spw_ref_keep_by_expert_id(spw_choices choices, size_t ranks, size_t rows, uint8_t *keep,
                                     size_t *dropped) {
    const spw_status status = check_ranks(choices, ranks);
    if (status != SPW_OK) return status;
    const drop_rule rule = {.choices = choices, .ranks = ranks, .local = choices.experts / ranks};
    return serve(&rule, by_expert_id, rows, keep, dropped);
}
