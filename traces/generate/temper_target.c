#include "traces/generate/temper_internal.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

typedef struct wish {
    double weight, value;
    size_t expert;
} wish;

static int heaviest_first(const void *a, const void *b) {
    const wish *x = a, *y = b;
    if (x->weight > y->weight || x->weight < y->weight) return x->weight > y->weight ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

static int largest_rest_first(const void *a, const void *b) {
    const wish *x = a, *y = b;
    const double rest_x = x->value - floor(x->value), rest_y = y->value - floor(y->value);
    if (rest_x > rest_y || rest_x < rest_y) return rest_x > rest_y ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* value = min(tokens, c weight), in the order of heaviest_first(). */
static void share_out(wish *list, size_t count, double total, double tokens) {
    double rest = 0.0;
    size_t full = 0;
    for (size_t i = count; i > 0; i--) rest += list[i - 1].weight; /* the smallest first */
    while (full < count && total - (double)full * tokens > 0.0 &&
           (total - (double)full * tokens) * list[full].weight > tokens * rest) {
        list[full].value = tokens;
        rest -= list[full++].weight;
        if (!(rest > 0.0) && full < count) { /* cancelled */
            rest = 0.0;
            for (size_t i = count; i > full; i--) rest += list[i - 1].weight;
        }
    }
    for (size_t i = full; i < count; i++)
        list[i].value = fmin(tokens, (total - (double)full * tokens) * (list[i].weight / rest));
}

/* Whole numbers that sum to total. */
static void round_off(wish *list, size_t count, uint64_t total, uint64_t tokens, uint32_t *out) {
    static const double ROUNDING = 1e-9;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        list[i].value += ROUNDING * fmax(1.0, list[i].value);
        out[list[i].expert] = (uint32_t)fmin(floor(list[i].value), (double)tokens);
        sum += out[list[i].expert];
    }
    qsort(list, count, sizeof *list, largest_rest_first);
    while (sum != total) {
        const bool more = sum < total;
        for (size_t n = 0; n < count && sum != total; n++) {
            uint32_t *m = &out[list[more ? n : count - 1 - n].expert];
            if (more ? *m >= tokens : *m == 0) continue;
            *m = more ? *m + 1 : *m - 1;
            sum = more ? sum + 1 : sum - 1;
        }
    }
}

spw_status spw_temper_target(const uint32_t *own, const uint64_t *all, size_t experts, uint64_t tokens,
                             double exponent, uint32_t *out) {
    static const double LEAST_LOG = -600.0; /* of a weight: below it nothing is chosen but in need */
    spw_status status = SPW_OK;
    wish *list = NULL;
    uint64_t most = 0, total = 0;
    size_t count = 0;
    SPW_TRY(SPW_ALLOC(experts, &list));
    for (size_t x = 0; x < experts; x++) {
        most = all[x] > most ? all[x] : most;
        total += own[x];
        if (own[x] > tokens)
            SPW_TRY(spw_fail(SPW_EARG, "expert %zu is chosen %u times by %llu tokens", x, own[x],
                             (unsigned long long)tokens));
    }
    for (size_t x = 0; x < experts; x++) {
        out[x] = 0;
        if (own[x] == 0) continue;
        const double power = (exponent - 1.0) * log((double)all[x] / (double)most);
        list[count++] = (wish){.weight = (double)own[x] * exp(fmax(power, LEAST_LOG)), .expert = x};
    }
    qsort(list, count, sizeof *list, heaviest_first);
    share_out(list, count, (double)total, (double)tokens);
    round_off(list, count, total, tokens, out);

cleanup:
    spw_free(list);
    return status;
}

uint64_t spw_temper_fewest_tokens(const uint32_t *own, size_t experts, size_t top_k) {
    uint64_t sum = 0, most = 0;
    for (size_t x = 0; x < experts; x++) {
        sum += own[x];
        most = own[x] > most ? own[x] : most;
    }
    const uint64_t tokens = (sum + top_k - 1) / top_k;
    return tokens > most ? tokens : most;
}
