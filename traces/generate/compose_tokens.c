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

/* Tokens in a random order, in which neighbours trade. So what trades is walked through from end to end: only the move into another
 * order looks at places far from each other, and knows all of them ahead. */
typedef struct line {
    size_t tokens, top_k;
    uint16_t *id, *next;  /* [tokens][top_k] as they stand, and room for the next order */
    uint32_t *row, *from; /* the token that stands at each place, and room for where it comes from */
} line;

/* The common widths are constants here and below, so that loops unroll. */
static inline __attribute__((always_inline)) void move_all(const line *l, size_t top_k) {
    for (size_t i = 0; i < l->tokens; i++) {
        memcpy(l->next + i * top_k, l->id + l->from[i] * top_k, top_k * sizeof *l->id);
        l->from[i] = l->row[l->from[i]];
    }
}

static void reorder(spw_random_stream *stream, line *l) {
    for (size_t i = 0; i < l->tokens; i++) l->from[i] = (uint32_t)i;
    shuffle_rows(stream, l->from, l->tokens);
    if (l->top_k == 8)
        move_all(l, 8);
    else
        move_all(l, l->top_k);
    uint16_t *const id = l->id;
    uint32_t *const row = l->row;
    l->id = l->next, l->next = id;
    l->row = l->from, l->from = row;
}

static void trade_all(spw_random_stream *stream, const line *l, uint16_t *work) {
    for (size_t i = 0; i + 1 < l->tokens; i += 2) {
        uint16_t *a = l->id + i * l->top_k, *b = a + l->top_k;
        if (l->top_k == 8) {
            trade(stream, a, b, 8, work, work + 2 * l->top_k);
        } else {
            trade(stream, a, b, l->top_k, work, work + 2 * l->top_k);
        }
    }
}

/* The experts stand on a line, count[x] places each; the token at t gets the places t, t + tokens, t + 2 tokens ... An expert has at
 * most `tokens` places in a row, so no token meets it twice. */
static void deal(const uint32_t *count, const uint32_t *order, size_t experts, const line *l) {
    size_t token = 0, slot = 0;
    for (size_t i = 0; i < experts; i++) {
        for (uint32_t n = 0; n < count[order[i]]; n++) {
            l->id[token * l->top_k + slot] = (uint16_t)order[i];
            if (++token < l->tokens) continue;
            token = 0;
            slot++;
        }
    }
}

static void put_back(const line *l, uint16_t *expert_id) {
    for (size_t i = 0; i < l->tokens; i++)
        memcpy(expert_id + l->row[i] * l->top_k, l->id + i * l->top_k, l->top_k * sizeof *expert_id);
}

spw_status spw_compose_tokens(const uint32_t *count, size_t experts, size_t tokens, size_t top_k,
                              uint64_t seed, uint16_t *expert_id) {
    _Static_assert(MIXING_ROUNDS % 2 == 0, "the last order does not stand in expert_id");
    spw_status status = SPW_OK;
    uint32_t *order = NULL;
    uint16_t *work = NULL;
    line l = {.tokens = tokens, .top_k = top_k, .next = expert_id};
    spw_random_stream stream;
    SPW_TRY(check_counts(count, experts, tokens, top_k));
    if (tokens == 0) goto cleanup;
    SPW_TRY(SPW_ALLOC(experts, &order));
    SPW_TRY(SPW_ALLOC(tokens, &l.row));
    SPW_TRY(SPW_ALLOC(tokens, &l.from));
    SPW_TRY(SPW_ALLOC(tokens * top_k, &l.id));
    SPW_TRY(SPW_ALLOC(4 * top_k, &work));
    spw_random_stream_init(&stream, seed, PURPOSE_COMPOSE, experts, tokens, top_k);
    for (size_t i = 0; i < experts; i++) order[i] = (uint32_t)i;
    for (size_t i = 0; i < tokens; i++) l.row[i] = (uint32_t)i;
    shuffle_rows(&stream, order, experts);
    shuffle_rows(&stream, l.row, tokens);
    deal(count, order, experts, &l);
    for (int round = 0; round < MIXING_ROUNDS; round++) {
        reorder(&stream, &l);
        trade_all(&stream, &l, work);
    }
    put_back(&l, expert_id);

cleanup:
    spw_free(order);
    spw_free(l.row);
    spw_free(l.from);
    spw_free(l.id);
    spw_free(work);
    return status;
}
