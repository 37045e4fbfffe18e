/* Drop rules: pencil and paper, each rule against a second implementation that counts instead of sorting, and
 * properties over seeds. Token rounding likewise. */
#include "base/memory.h"
#include "reference/capacity.h"
#include "reference/token_rounding.h"
#include "tests/unit/check.h"
#include "tests/unit/ref_random.h"

#include <stdbool.h>
#include <string.h>

enum { TOKENS = 24, TOP_K = 3, EXPERTS = 8, RANKS = 4, ALL = TOKENS * TOP_K };

static void capacities(void) {
    CHECK(spw_ref_capacity_maxtext(4096, 8, 256, 1.0) == 128);
    CHECK(spw_ref_capacity_maxtext(4096, 8, 256, 1.25) == 160);
    CHECK(spw_ref_capacity_maxtext(10, 3, 8, 1.3) == 5);  /* ceil(30 / 8) = 4, 5.2 cut */
    CHECK(spw_ref_capacity_maxtext(0, 3, 8, 1.5) == 1);   /* not below the factor */
    CHECK(spw_ref_capacity_megatron(10, 3, 8, 1.3) == 5); /* 4.875 up */
    CHECK(spw_ref_capacity_megatron(65536, 8, 256, 1.0) == 2048);
    CHECK(spw_ref_capacity_tutel(10, 3, 8, 1.3, 1) == 6); /* 3 * int(1.3 * 2) */
    CHECK(spw_ref_capacity_tutel(10, 3, 8, 1.3, 4) == 8);
}

/* Six tokens, one choice each, all to expert 0 but the last; two ranks of one expert. */
static void pencil(void) {
    const int32_t expert[] = {0, 0, -1, 0, 0, 1};
    const float probability[] = {0.1f, 0.9f, 0, 0.9f, 0.2f, 0.3f};
    const spw_choices c = {6, 1, 2, expert};
    uint8_t keep[6];
    size_t dropped = 0;
#define KEEPS(a, b, d, e, f, n) \
    (keep[0] == (a) && keep[1] == (b) && !keep[2] && keep[3] == (d) && keep[4] == (e) && keep[5] == (f) && \
     dropped == (n))
    CHECK_OK(spw_ref_keep_by_position(c, 6, 2, keep, &dropped));
    CHECK(KEEPS(1, 1, 0, 0, 1, 2));
    CHECK_OK(spw_ref_keep_by_position(c, 3, 1, keep, &dropped));
    CHECK(KEEPS(1, 0, 1, 0, 1, 2));
    CHECK_OK(spw_ref_keep_by_probability(c, probability, 1, keep, &dropped));
    CHECK(KEEPS(0, 1, 0, 0, 1, 3));
    CHECK_OK(spw_ref_keep_by_probability(c, probability, 7, keep, &dropped));
    CHECK(dropped == 0);
    CHECK_OK(spw_ref_keep_by_choice_rank(c, probability, 3, keep, &dropped));
    CHECK(KEEPS(0, 1, 1, 1, 1, 1));
    CHECK_OK(spw_ref_keep_by_source_rank(c, 2, 3, keep, &dropped));
    CHECK(KEEPS(1, 1, 1, 0, 1, 1));
    CHECK_OK(spw_ref_keep_by_expert_id((spw_choices){6, 1, 2, expert}, 1, 4, keep, &dropped));
    CHECK(KEEPS(1, 1, 1, 1, 0, 1));
    /* Two choices: expert 0 is the second choice of token 0 and the first of token 1, which goes first in
     * Tutel. */
    const int32_t two[] = {1, 0, 0, 1};
    CHECK_OK(spw_ref_keep_by_choice_rank((spw_choices){2, 2, 2, two}, NULL, 1, keep, &dropped));
    CHECK(keep[0] && !keep[1] && keep[2] && !keep[3] && dropped == 2);
}

typedef struct rule_case {
    spw_status (*keep)(spw_choices c, const float *value, size_t room, uint8_t *keep, size_t *dropped);
    /* true when a is served before b; both compete for the same room */
    bool (*before)(const int32_t *expert, const float *value, size_t a, size_t b);
    size_t (*queue)(const int32_t *expert, size_t a);
} rule_case;

static size_t token(size_t a) { return a / TOP_K; }
static size_t source(size_t a) { return token(a) / (TOKENS / RANKS); }
static size_t queue_expert(const int32_t *expert, size_t a) { return (size_t)expert[a]; }
static size_t queue_sequence(const int32_t *expert, size_t a) {
    return token(a) / 6 * EXPERTS + (size_t)expert[a];
}
static size_t queue_rank(const int32_t *expert, size_t a) { return (size_t)expert[a] / (EXPERTS / RANKS); }

static bool earlier(const int32_t *expert, const float *value, size_t a, size_t b) {
    return (void)expert, (void)value, a < b;
}
static bool likelier(const int32_t *expert, const float *value, size_t a, size_t b) {
    return (void)expert, value[a] > value[b] || (value[a] == value[b] && a < b);
}
static bool first_choice(const int32_t *expert, const float *value, size_t a, size_t b) {
    (void)expert, (void)value;
    return a % TOP_K < b % TOP_K || (a % TOP_K == b % TOP_K && a < b);
}
static bool first_source(const int32_t *expert, const float *value, size_t a, size_t b) {
    (void)value;
    if (source(a) != source(b)) return source(a) < source(b);
    return expert[a] < expert[b] || (expert[a] == expert[b] && a < b);
}
static bool lower_expert(const int32_t *expert, const float *value, size_t a, size_t b) {
    (void)value;
    return expert[a] < expert[b] || (expert[a] == expert[b] && a < b);
}

static spw_status by_position(spw_choices c, const float *v, size_t room, uint8_t *keep, size_t *dropped) {
    return (void)v, spw_ref_keep_by_position(c, 6, room, keep, dropped);
}
static spw_status by_choice_rank(spw_choices c, const float *v, size_t room, uint8_t *keep, size_t *dropped) {
    return (void)v, spw_ref_keep_by_choice_rank(c, NULL, room, keep, dropped);
}
static spw_status by_source(spw_choices c, const float *v, size_t room, uint8_t *keep, size_t *dropped) {
    return (void)v, spw_ref_keep_by_source_rank(c, RANKS, room, keep, dropped);
}
static spw_status by_expert(spw_choices c, const float *v, size_t room, uint8_t *keep, size_t *dropped) {
    return (void)v, spw_ref_keep_by_expert_id(c, RANKS, room, keep, dropped);
}

static const rule_case rules[] = {
    {by_position, earlier, queue_sequence},       {spw_ref_keep_by_probability, likelier, queue_expert},
    {by_choice_rank, first_choice, queue_expert}, {by_source, first_source, queue_rank},
    {by_expert, lower_expert, queue_rank},
};
enum { RULES = sizeof rules / sizeof rules[0] };

static void against_counting(uint64_t seed) {
    int32_t expert[ALL];
    float value[ALL];
    random_routing(&seed, TOKENS, TOP_K, EXPERTS, expert);
    random_fill(&seed, random_integer, value, ALL); /* many ties */
    expert[17] = -1;
    const spw_choices c = {TOKENS, TOP_K, EXPERTS, expert};
    for (size_t n = 0; n < RULES; n++) {
        size_t before = ALL;
        for (size_t room = 0; room <= TOKENS; room++) {
            uint8_t keep[ALL];
            size_t dropped = 0, want_dropped = 0, wrong = 0;
            CHECK_OK(rules[n].keep(c, value, room, keep, &dropped));
            for (size_t a = 0; a < ALL; a++) {
                size_t ahead = 0;
                for (size_t b = 0; b < ALL && expert[a] >= 0; b++) {
                    ahead += expert[b] >= 0 && rules[n].queue(expert, b) == rules[n].queue(expert, a) &&
                             rules[n].before(expert, value, b, a);
                }
                const bool want = expert[a] >= 0 && ahead < room;
                wrong += keep[a] != want;
                want_dropped += expert[a] >= 0 && !want;
            }
            CHECK(wrong == 0);
            CHECK(dropped == want_dropped);
            CHECK(dropped <= before); /* a smaller capacity never drops less */
            before = dropped;
        }
    }
}

static void rounding(uint64_t seed) {
    CHECK(spw_ref_rounded_count(64, 128, SPW_ROUND_NEAREST) == 0 &&
          spw_ref_rounded_count(65, 128, SPW_ROUND_NEAREST) == 128);
    CHECK(spw_ref_rounded_count(192, 128, SPW_ROUND_NEAREST) == 256 &&
          spw_ref_rounded_count(320, 128, SPW_ROUND_NEAREST) == 256);
    CHECK(spw_ref_rounded_count(1, 128, SPW_ROUND_UP) == 128 &&
          spw_ref_rounded_count(0, 128, SPW_ROUND_UP) == 0);
    CHECK(spw_ref_rounded_count(255, 128, SPW_ROUND_DOWN) == 128 &&
          spw_ref_rounded_count(256, 128, SPW_ROUND_DOWN) == 256);
    enum { TILE = 4 };
    int32_t expert[ALL];
    float score[TOKENS * EXPERTS], weight[ALL], taken[TOKENS * EXPERTS];
    uint8_t member[TOKENS * EXPERTS];
    size_t count[EXPERTS], chosen[EXPERTS] = {0};
    random_routing(&seed, TOKENS, TOP_K, EXPERTS, expert);
    for (size_t i = 0; i < TOKENS * EXPERTS; i++) score[i] = (float)random_below(&seed, 20) / 20.0f;
    for (size_t i = 0; i < ALL; i++) weight[i] = (float)random_below(&seed, 20) / 20.0f;
    for (size_t i = 0; i < ALL; i++) chosen[expert[i]]++;
    for (spw_rounding r = SPW_ROUND_NEAREST; r <= SPW_ROUND_DOWN; r++) {
        CHECK_OK(spw_ref_token_rounding(
            &(spw_rounded_choices){TOKENS, TOP_K, EXPERTS, TILE, r, score, expert, weight}, taken, member,
            count));
        for (size_t x = 0; x < EXPERTS; x++) {
            size_t members = 0, kept = 0;
            float worst_in = 2,
                  best_out = -2; /* by SonicMoE's preference: weight if chosen, else score - 1 */
            for (size_t t = 0; t < TOKENS; t++) {
                float preference = score[t * EXPERTS + x] - 1.0f, value = score[t * EXPERTS + x];
                for (size_t k = 0; k < TOP_K; k++) {
                    if (expert[t * TOP_K + k] == (int32_t)x)
                        preference = value = weight[t * TOP_K + k], kept += member[t * EXPERTS + x];
                }
                members += member[t * EXPERTS + x];
                CHECK(taken[t * EXPERTS + x] == (member[t * EXPERTS + x] ? value : 0.0f));
                if (member[t * EXPERTS + x] && preference < worst_in) worst_in = preference;
                if (!member[t * EXPERTS + x] && preference > best_out) best_out = preference;
            }
            CHECK(members == count[x] && (count[x] % TILE == 0 || count[x] == TOKENS));
            CHECK(kept == (count[x] < chosen[x] ? count[x] : chosen[x]));
            CHECK(worst_in >= best_out || members == 0 || members == TOKENS);
        }
    }
}

static void damage(void) {
    const int32_t beyond[] = {8}, good[] = {1};
    const float one[8] = {0};
    float taken[8];
    uint8_t keep[8];
    size_t n = 0, count[8];
    CHECK_STATUS(spw_ref_keep_by_position((spw_choices){1, 1, 8, beyond}, 1, 1, keep, &n), SPW_EARG);
    CHECK_STATUS(spw_ref_keep_by_position((spw_choices){1, 1, 8, good}, 0, 1, keep, &n), SPW_EARG);
    CHECK_STATUS(spw_ref_keep_by_source_rank((spw_choices){1, 1, 8, good}, 3, 1, keep, &n), SPW_EARG);
    CHECK_STATUS(spw_ref_keep_by_expert_id((spw_choices){1, 1, 8, good}, 0, 1, keep, &n), SPW_EARG);
    CHECK_STATUS(spw_ref_keep_by_choice_rank((spw_choices){SIZE_MAX, 2, 8, good}, NULL, 1, keep, &n),
                 SPW_EARG);
    spw_alloc_fail_after(0);
    CHECK_STATUS(spw_ref_keep_by_probability((spw_choices){1, 1, 8, good}, one, 1, keep, &n), SPW_ENOMEM);
    spw_alloc_fail_after(0);
    CHECK_STATUS(spw_ref_token_rounding(&(spw_rounded_choices){1, 1, 8, 4, SPW_ROUND_UP, one, good, one},
                                        taken, keep, count),
                 SPW_ENOMEM);
    spw_alloc_fail_after(-1);
    CHECK_STATUS(spw_ref_token_rounding(&(spw_rounded_choices){1, 1, 8, 0, SPW_ROUND_UP, one, good, one},
                                        taken, keep, count),
                 SPW_EARG);
    CHECK_STATUS(spw_ref_token_rounding(&(spw_rounded_choices){1, 1, 8, 4, SPW_ROUND_UP, one, beyond, one},
                                        taken, keep, count),
                 SPW_EARG);
    const int32_t none[] = {-1}; /* chose nothing: 0 rows round to 0 */
    CHECK_OK(spw_ref_token_rounding(&(spw_rounded_choices){1, 1, 1, 1, SPW_ROUND_UP, one, none, one}, taken,
                                    keep, count));
    CHECK(count[0] == 0 && keep[0] == 0);
    CHECK_OK(spw_ref_keep_by_position((spw_choices){0, 1, 8, good}, 1, 1, keep, &n));
    CHECK(n == 0);
}

int main(void) {
    capacities();
    pencil();
    for (uint64_t seed = 1; seed <= 10; seed++) against_counting(seed), rounding(seed);
    damage();
    return check_done();
}
