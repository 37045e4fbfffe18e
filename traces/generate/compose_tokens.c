/* Tokens with an exact histogram. */
#include "traces/generate/generate.h"

#include "base/memory.h"
#include "traces/generate/random_stream.h"

#include <stdlib.h>
#include <string.h>

enum { PURPOSE_COMPOSE = 5, MIXING_ROUNDS = 4 };

static spw_status check_counts(const uint32_t *count, size_t experts, size_t tokens, size_t top_k) {
    uint64_t sum = 0;
    if (experts < 1 || experts > UINT16_MAX || top_k < 1 || top_k > experts) {
        return spw_fail(SPW_EARG, "top_k %zu of %zu experts", top_k, experts);
    }
    for (size_t i = 0; i < experts; i++) {
        if (count[i] > tokens) {
            return spw_fail(SPW_EARG,
                            "expert %zu is chosen %u times by %zu tokens; a token chooses it once at most", i,
                            count[i], tokens);
        }
        sum += count[i];
    }
    if (sum != (uint64_t)tokens * top_k) {
        return spw_fail(SPW_EARG, "counts sum to %llu; must be %zu tokens x top_k %zu",
                        (unsigned long long)sum, tokens, top_k);
    }
    return SPW_OK;
}

static void shuffle_rows(spw_random_stream *stream, uint32_t *row, size_t count) {
    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)spw_random_below(stream, i);
        uint32_t held = row[i - 1];
        row[i - 1] = row[j];
        row[j] = held;
    }
}

/* Gives two tokens a random half each of the experts that only one of them has. */
static inline __attribute__((always_inline)) void trade(spw_random_stream *stream, uint16_t *a, uint16_t *b,
                                                        size_t top_k, uint16_t *only, uint16_t *slots) {
    size_t from_a = 0, from_b = 0;
    for (size_t i = 0; i < top_k; i++) {
        bool shared = false;
        for (size_t j = 0; j < top_k; j++) shared |= a[i] == b[j];
        if (!shared) slots[from_a++] = (uint16_t)i;
    }
    for (size_t j = 0; j < top_k; j++) {
        bool shared = false;
        for (size_t i = 0; i < top_k; i++) shared |= a[i] == b[j];
        if (!shared) slots[top_k + from_b++] = (uint16_t)j;
    }
    for (size_t i = 0; i < from_a; i++) {
        only[i] = a[slots[i]];
        only[from_a + i] = b[slots[top_k + i]];
    }
    for (size_t i = 2 * from_a; i > 1; i--) {
        size_t j = (size_t)spw_random_below(stream, i);
        uint16_t held = only[i - 1];
        only[i - 1] = only[j];
        only[j] = held;
    }
    for (size_t i = 0; i < from_a; i++) {
        a[slots[i]] = only[i];
        b[slots[top_k + i]] = only[from_a + i];
    }
}

/* Neighbours in `row` trade; the common widths are constants, so that the loops unroll. */
static void trade_all(spw_random_stream *stream, const uint32_t *row, size_t tokens, size_t top_k,
                      uint16_t *expert_id, uint16_t *work) {
    for (size_t i = 0; i + 1 < tokens; i += 2) {
        uint16_t *a = expert_id + row[i] * top_k, *b = expert_id + row[i + 1] * top_k;
        if (top_k == 8) {
            trade(stream, a, b, 8, work, work + 2 * top_k);
        } else {
            trade(stream, a, b, top_k, work, work + 2 * top_k);
        }
    }
}

spw_status spw_compose_tokens(const uint32_t *count, size_t experts, size_t tokens, size_t top_k,
                              uint64_t seed, uint16_t *expert_id) {
    spw_status status = SPW_OK;
    uint32_t *order = NULL, *row = NULL;
    uint16_t *work = NULL;
    spw_random_stream stream;
    SPW_TRY(check_counts(count, experts, tokens, top_k));
    if (tokens == 0) goto cleanup;
    SPW_TRY(SPW_ALLOC(experts, &order));
    SPW_TRY(SPW_ALLOC(tokens, &row));
    SPW_TRY(SPW_ALLOC(4 * top_k, &work));
    spw_random_stream_init(&stream, seed, PURPOSE_COMPOSE, experts, tokens, top_k);
    for (size_t i = 0; i < experts; i++) order[i] = (uint32_t)i;
    for (size_t i = 0; i < tokens; i++) row[i] = (uint32_t)i;
    shuffle_rows(&stream, order, experts);
    shuffle_rows(&stream, row, tokens);
    /* The experts stand on a line, count[x] places each; token t gets the places t, t + tokens, t + 2 tokens
     * ... An expert has at most `tokens` places in a row, so no token meets it twice. */
    size_t token = 0, slot = 0;
    for (size_t i = 0; i < experts; i++) {
        for (uint32_t n = 0; n < count[order[i]]; n++) {
            expert_id[row[token] * top_k + slot] = (uint16_t)order[i];
            if (++token < tokens) continue;
            token = 0;
            slot++;
        }
    }
    for (int round = 0; round < MIXING_ROUNDS; round++) {
        shuffle_rows(&stream, row, tokens);
        trade_all(&stream, row, tokens, top_k, expert_id, work);
    }

cleanup:
    spw_free(order);
    spw_free(row);
    spw_free(work);
    return status;
}
