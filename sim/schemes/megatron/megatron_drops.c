/* Which choices Megatron-Core keeps: capacities, and who is dropped. */
#include "base/memory.h"
#include "sim/schemes/megatron/megatron_layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const spw_megatron_policies[] = {"probs", "position", NULL};

const char *const spw_megatron_aligns[] = {"none", "16", "32", "128", "256", NULL};

size_t spw_megatron_capacity(const spw_scheme *scheme, const spw_layer_shape *s) {
    const double factor = spw_scheme_option_value(scheme, "capacity_factor");
    if (isnan(factor) || factor == 0.0) return SIZE_MAX;
    const double slots = ceil((double)s->assignments / (double)s->experts * factor);
    return slots > (double)s->tokens ? SIZE_MAX : (size_t)slots;
}

double spw_megatron_worst_factor(const spw_scheme *scheme, const spw_layer_shape *s) {
    (void)scheme;
    return (double)s->experts / (double)s->top_k;
}

size_t spw_megatron_align(const spw_scheme *scheme) {
    static const size_t multiples[] = {1, 16, 32, 128, 256};
    const double choice = spw_scheme_option_value(scheme, "align");
    return isnan(choice) ? 1 : multiples[(size_t)choice];
}

spw_drop_rule spw_megatron_drop_rule(const spw_scheme *scheme) {
    const double factor = spw_scheme_option_value(scheme, "capacity_factor");
    if (isnan(factor) || factor == 0.0) return SPW_DROP_BY_LIMIT;
    return spw_scheme_option_is(scheme, "policy", "probs") ? SPW_DROP_BY_WEIGHT : SPW_DROP_BY_TOKEN;
}

typedef struct candidate {
    float weight;
    uint32_t place; /* choice of the rank, in token order */
} candidate;

static int by_weight(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->weight > b->weight) return -1;
    if (a->weight < b->weight) return 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* The choices of one rank, expert by expert. begin [experts + 1], which comes with the choices of expert x in begin[x + 1]; list
   [assignments]. */
static void bucket(const spw_layer_shape *s, const int32_t *expert, const float *weight, size_t *begin,
                   candidate *list) {
    for (size_t x = 0; x < s->experts; x++) begin[x + 1] += begin[x];
    for (size_t i = 0; i < s->assignments; i++) { /* begin[x] runs to the end of x */
        if (expert[i] >= 0)
            list[begin[expert[i]]++] = (candidate){isnan(weight[i]) ? 0.0f : weight[i], (uint32_t)i};
    }
    memmove(begin + 1, begin, s->experts * sizeof *begin);
    begin[0] = 0;
}

/* The first choices of each expert, in token order. count [experts]: 0. Whether that is all of them. */
static bool keep_first(const spw_layer_shape *s, const int32_t *expert, size_t capacity, size_t *count,
                       uint8_t *kept) {
    size_t dropped = 0;
    for (size_t i = 0; i < s->assignments; i++) {
        if (expert[i] < 0) continue;
        kept[i] = count[expert[i]]++ < capacity;
        dropped += !kept[i];
    }
    return dropped == 0;
}

/* The choices of each expert with the largest weights. begin and list as in bucket(). */
static void keep_heaviest(const spw_layer_shape *s, const int32_t *expert, const float *weight,
                          size_t capacity, size_t *begin, candidate *list, uint8_t *kept) {
    bucket(s, expert, weight, begin, list);
    for (size_t x = 0; x < s->experts; x++) {
        candidate *mine = list + begin[x];
        const size_t count = begin[x + 1] - begin[x];
        if (count <= capacity) continue;
        qsort(mine, count, sizeof *mine, by_weight);
        for (size_t i = 0; i < count; i++) kept[mine[i].place] = i < capacity;
    }
}

spw_status spw_megatron_keep(const spw_scheme *scheme, const spw_layer_shape *s, const spw_choices *choices,
                             uint8_t *kept) {
    const size_t capacity = spw_megatron_capacity(scheme, s);
    size_t *begin = NULL;
    candidate *list = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(s->experts + 1, &begin));
    SPW_TRY(SPW_ALLOC(s->assignments, &list));
    for (size_t r = 0; r < s->ranks; r++) {
        const size_t first = r * s->assignments;
        memset(begin, 0, (s->experts + 1) * sizeof *begin);
        if (keep_first(s, choices->expert + first, capacity, begin + 1, kept + first) ||
            choices->weight == NULL)
            continue;
        keep_heaviest(s, choices->expert + first, choices->weight + first, capacity, begin, list,
                      kept + first);
    }

cleanup:
    spw_free(begin), spw_free(list);
    return status;
}

void spw_megatron_flow_begin(const spw_routed_group *routed, spw_flow *out) {
    const spw_layer_shape *s = routed->shape;
    memset(out->rows, 0, s->ranks * sizeof *out->rows);
    memset(out->dropped, 0, s->ranks * sizeof *out->dropped);
}
