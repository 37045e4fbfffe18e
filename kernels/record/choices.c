#include "kernels/record/choices.h"

#include "kernels/record/numbers.h"

#include <math.h>
#include <stdbool.h>

const char *const spw_choice_names[SPW_CHOICES_KINDS] = {"uniform", "skewed", "all-to-one", "empty-rank",
                                                         "few"};

static size_t find(const float *below, size_t experts, double u) {
    size_t low = 0, high = experts - 1; /* the first x with u < below[x] */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (u < (double)below[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool taken(const int32_t *chosen, size_t count, size_t x) {
    for (size_t i = 0; i < count; i++)
        if (chosen[i] == (int32_t)x) return true;
    return false;
}

void spw_choices_fill(spw_choice_kind kind, size_t tokens, size_t top_k, size_t experts, size_t ranks,
                      uint64_t seed, int32_t *expert) {
    float below[SPW_CHOICES_EXPERTS]; /* cumulative chances */
    double total = 0;
    if (top_k > experts || experts > SPW_CHOICES_EXPERTS || ranks == 0) {
        for (size_t i = 0; i < tokens * top_k; i++) expert[i] = -1;
        return;
    }
    const size_t others = experts - experts / ranks;
    const size_t open = kind == SPW_CHOICES_EMPTY && others >= top_k ? others : experts;
    for (size_t x = 0; x < open; x++) {
        total += kind == SPW_CHOICES_SKEWED ? pow((double)x + 1, -0.8) : 1;
        below[x] = (float)total;
    }
    uint64_t draw = 0;
    for (size_t t = 0; t < tokens; t++) {
        int32_t chosen[SPW_CHOICES_EXPERTS];
        for (size_t k = 0; k < top_k; k++) {
            size_t x = k;
            if (kind != SPW_CHOICES_ONE) {
                x = find(below, open, (double)(spw_number_bits(seed, draw++) >> 11) * 0x1p-53 * total);
                for (int turn = 0; turn < 16 && taken(chosen, k, x); turn++)
                    x = find(below, open, (double)(spw_number_bits(seed, draw++) >> 11) * 0x1p-53 * total);
                while (taken(chosen, k, x)) x = (x + 1) % open;
            }
            chosen[k] = (int32_t)x;
            const bool unused =
                kind == SPW_CHOICES_FEW && (t % 7 == 6 || spw_number_bits(seed + 1, t * top_k + k) % 5 == 0);
            expert[t * top_k + k] = unused ? -1 : (int32_t)x;
        }
    }
}
