/* The judge of `spillway verify` is judged: a scheme that is wrong on purpose in its bytes, rows, drops or tensors must be
 * found to disagree with the layer that is executed, and the right one must not. */
#include "sim/verify/agreement.h"
#include "sim/verify/verify_cases.h"

#include "tests/unit/check.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 2, EXPERTS = 4, TOKENS = 6, TOP_K = 2 };

static const spw_scheme_type *right;

static size_t wrong_exchanges(const spw_scheme *scheme, const spw_layer_shape *s,
                              spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    const size_t count = right->traffic.exchanges(scheme, s, out);
    out[count - 1].row_bytes++;
    return count;
}

static size_t wrong_rows(const spw_scheme *scheme, const spw_layer_shape *s) {
    return right->memory.buffer_rows(scheme, s) + 1;
}

static void wrong_drops(const spw_routed_group *routed, spw_flow *out) {
    right->routing.flow(routed, out);
    out->dropped[0]++;
}

/* Rank `source` sends rank 0 or 1 more than the scheme says. */
static void send_more(spw_flow *out, size_t source, size_t d, uint32_t more) {
    static uint32_t line[RANKS];
    memcpy(line, out->wire[source], sizeof line);
    line[d] += more;
    out->wire[source] = line;
}

static void wrong_wire(const spw_routed_group *routed, spw_flow *out) {
    right->routing.flow(routed, out);
    send_more(out, 0, 1, 1);
}

/* home: every choice is an expert of the token's own rank. */
static void run_choices(const spw_scheme *scheme, bool home, spw_verify_tally *tally) {
    int32_t expert[RANKS * TOKENS * TOP_K];
    for (int32_t t = 0; t < RANKS * TOKENS; t++) {
        expert[t * TOP_K] = t % 3 == 0 ? 0 : t % EXPERTS;
        expert[t * TOP_K + 1] = t % 3 == 0 ? 1 : (t + 2) % EXPERTS;
        for (int32_t k = 0; k < TOP_K && home; k++)
            expert[t * TOP_K + k] = t / TOKENS * (EXPERTS / RANKS) + k;
    }
    const spw_verify_case c = {.shape = {.ranks = RANKS,
                                         .node_ranks = RANKS,
                                         .experts = EXPERTS,
                                         .experts_per_rank = EXPERTS / RANKS,
                                         .top_k = TOP_K,
                                         .hidden = 8,
                                         .ffn = 4,
                                         .sequences = 1,
                                         .sequence_length = TOKENS,
                                         .tokens = TOKENS,
                                         .assignments = TOKENS * TOP_K,
                                         .worst_rows = RANKS * TOKENS * TOP_K,
                                         .element_bytes = 2,
                                         .remat = SPW_REMAT_FULL},
                               .expert = expert,
                               .seed = 1};
    CHECK_OK(spw_verify_run(scheme, &c, tally));
}

static void run_into(const spw_scheme *scheme, spw_verify_tally *tally) { run_choices(scheme, false, tally); }

/* Bytes are those that cross a link: none where every token stays at home. */
static void check_bytes(const spw_scheme *scheme) {
    spw_verify_tally away = {.comparisons = 0}, home = {.comparisons = 0};
    run_choices(scheme, false, &away);
    run_choices(scheme, true, &home);
    for (int side = 0; side < 2; side++) CHECK(away.bytes[side] > 0 && home.bytes[side] == 0);
    CHECK(home.agreed == home.comparisons);
}

/* Comparisons that failed. */
static size_t misses(const spw_scheme *scheme) {
    spw_verify_tally tally = {.comparisons = 0};
    run_into(scheme, &tally);
    CHECK(tally.cases == 1 && tally.comparisons > 20 && tally.agreed <= tally.comparisons);
    CHECK((tally.first_miss[0] == '\0') == (tally.agreed == tally.comparisons));
    return tally.comparisons - tally.agreed;
}

/* Sums over cases: of two equal ones everything is twice what it is of one, and every choice is a row or dropped on both sides. */
static void check_sums(const spw_scheme *scheme, bool padded) {
    spw_verify_tally once = {.comparisons = 0}, twice = {.comparisons = 0};
    run_into(scheme, &once);
    run_into(scheme, &twice);
    run_into(scheme, &twice);
    CHECK(twice.cases == 2 && twice.comparisons == 2 * once.comparisons && twice.agreed == 2 * once.agreed);
    for (int side = 0; side < 2; side++) {
        CHECK(once.rows[side] > 0 && once.rows[side] == once.rows[1 - side]);
        CHECK(twice.rows[side] == 2 * once.rows[side]);
        CHECK(once.dropped[side] == once.dropped[1 - side]);
        CHECK(twice.dropped[side] == 2 * once.dropped[side]);
        CHECK(padded || once.rows[side] + once.dropped[side] == RANKS * TOKENS * TOP_K);
    }
    CHECK((once.dropped[0] > 0) == (strchr(scheme->text, ':') != NULL)); /* what has a limit here drops */
}

static void test_scheme(const char *text) {
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse(text, &scheme));
    CHECK(misses(&scheme) == 0);
    check_sums(&scheme, strncmp(text, "dense", 5) == 0);
    if (strcmp(text, "gmm") == 0) check_bytes(&scheme);
    right = scheme.type;
    spw_scheme_type wrong = *right;
    scheme.type = &wrong;
    wrong.traffic.exchanges = wrong_exchanges;
    CHECK(misses(&scheme) > 0);
    wrong = *right;
    wrong.memory.buffer_rows = wrong_rows;
    CHECK(misses(&scheme) > 0);
    wrong = *right;
    wrong.routing.flow = wrong_drops;
    CHECK(misses(&scheme) > 0);
    wrong.routing.flow = wrong_wire;
    CHECK(misses(&scheme) > 0);
}

/* --- What is said, and how often --- */

static void wrong_reach(const spw_routed_group *routed, spw_flow *out) { /* keeps what the execution drops */
    right->routing.flow(routed, out);
    for (size_t i = 0; i < RANKS * EXPERTS; i++) out->limit[i] += 2;
}

static void wrong_two_ranks(const spw_routed_group *routed, spw_flow *out) {
    right->routing.flow(routed, out);
    out->rows[1] += 3;
    out->dropped[1]++;
}

static void wrong_way_back(const spw_routed_group *routed, spw_flow *out) { /* from rank 1 to 0 */
    right->routing.flow(routed, out);
    send_more(out, 1, 0, 2);
}

/* `type` in the scheme's place: so many misses, of which the first begins so. */
static void expect_misses(spw_scheme scheme, const spw_scheme_type *type, size_t count, const char *first) {
    spw_verify_tally tally = {.comparisons = 0};
    scheme.type = type;
    run_into(&scheme, &tally);
    CHECK(tally.comparisons - tally.agreed == count);
    CHECK(strncmp(tally.first_miss, first, strlen(first)) == 0);
    if (tally.comparisons - tally.agreed != count || strncmp(tally.first_miss, first, strlen(first)) != 0)
        fprintf(stderr, "%zu misses, '%s'; %zu, '%s' would be right\n", tally.comparisons - tally.agreed,
                tally.first_miss, count, first);
}

/* What is wrong is named by what and where it is, and nothing else is blamed. */
static void test_sentences(void) {
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("gmm:buffer_factor=0.5", &scheme));
    right = scheme.type;
    spw_scheme_type wrong = *right;
    wrong.routing.flow = wrong_drops;
    expect_misses(scheme, &wrong, 1, "gmm:buffer_factor=0.5: dropped assignments of rank 0: predicted ");
    wrong = *right;
    wrong.routing.flow = wrong_two_ranks;
    expect_misses(scheme, &wrong, 2, "gmm:buffer_factor=0.5: rows of rank 1: predicted ");
    wrong = *right;
    wrong.routing.flow = wrong_wire;
    expect_misses(scheme, &wrong, 6,
                  "gmm:buffer_factor=0.5: bytes of 'dispatch' from rank 0 to 1: predicted ");
    wrong.routing.flow = wrong_way_back;
    expect_misses(scheme, &wrong, 6,
                  "gmm:buffer_factor=0.5: bytes of 'dispatch' from rank 1 to 0: predicted ");
    wrong = *right;
    wrong.memory.buffer_rows = wrong_rows;
    expect_misses(scheme, &wrong, 6, "gmm:buffer_factor=0.5: forward peak bytes of rank 0: predicted ");
}

/* Values: exact where every sum has its order, within a bound where they are judged so, wrong where other choices are kept. */
static void test_values(void) {
    spw_scheme scheme;
    spw_verify_tally exact = {.comparisons = 0}, bound = {.comparisons = 0}, off = {.comparisons = 0};
    CHECK_OK(spw_scheme_parse("dense:capacity_factor=1", &scheme));
    run_into(&scheme, &exact);
    CHECK(exact.values == SPW_AGREE_EXACT && exact.worst_share <= 0.0);
    right = scheme.type;
    spw_scheme_type other = *right;
    other.values.weighted_activation = !right->values.weighted_activation;
    scheme.type = &other;
    run_into(&scheme, &bound);
    CHECK(bound.values == SPW_AGREE_BOUND && bound.agreed == bound.comparisons);
    CHECK(bound.worst_share > 0.0 && bound.worst_share < 1.0 && bound.comparisons == exact.comparisons);
    other = *right;
    other.routing.flow = wrong_reach;
    run_into(&scheme, &off);
    CHECK(off.values == SPW_AGREE_NOT && off.comparisons - off.agreed == 6);
    CHECK(strstr(off.first_miss, "y differs from the plain layer beyond the bound") != NULL);
    run_into(&scheme, &exact); /* the worst so far stays, and so does what was missed first */
    scheme.type = right;
    run_into(&scheme, &exact);
    CHECK(exact.values == SPW_AGREE_NOT && strcmp(exact.first_miss, off.first_miss) == 0);
}

/* Several schemes of which one is wrong: its tally alone says so. */
static void test_one_of_several(void) {
    static const char *const texts[] = {"gmm", "dense:capacity_factor=1.25", "gmm:buffer_factor=0.5", "ring"};
    static spw_verification v;
    for (size_t i = 0; i < 4; i++) CHECK_OK(spw_scheme_parse(texts[i], &v.scheme[i]));
    v.schemes = 4;
    right = v.scheme[2].type;
    spw_scheme_type wrong = *right;
    wrong.routing.flow = wrong_drops;
    v.scheme[2].type = &wrong;
    for (uint64_t seed = 1; seed <= 12; seed++) CHECK_OK(spw_verify_random(&v, seed));
    for (size_t i = 0; i < 4; i++) {
        CHECK(v.tally[i].cases == (i == 2 ? 9 : 12)); /* a buffer is none of a single rank */
        const size_t misses = v.tally[i].comparisons - v.tally[i].agreed;
        CHECK(misses == (i == 2 ? 14 : 0)); /* one a GPU of the first rank */
        CHECK((v.tally[i].first_miss[0] != '\0') == (i == 2));
        CHECK(v.tally[i].rows[0] > 0 && v.tally[i].dropped[1] + misses == v.tally[i].dropped[0]);
    }
}

/* Gradients by differences: as many comparisons as there are numbers, all of them within what is derived. */
static void test_gradients(void) {
    for (uint64_t seed = 3; seed <= 4; seed++) {
        spw_verify_tally tally = {.comparisons = 0};
        CHECK_OK(spw_verify_gradients(seed, &tally));
        CHECK(tally.cases == 1 && tally.comparisons == 6 * 8 + 6 * 2 + 3 * 4 * 8 * 6);
        CHECK(tally.agreed == tally.comparisons && tally.first_miss[0] == '\0');
        CHECK(tally.worst_share > 0.001 && tally.worst_share < 1.0);
    }
}

int main(void) {
    test_sentences();
    test_values();
    test_one_of_several();
    test_gradients();
    test_scheme("dense:capacity_factor=1");
    test_scheme("gmm");
    test_scheme("gmm:buffer_factor=0.5");
    test_scheme("ring");
    return check_done();
}
