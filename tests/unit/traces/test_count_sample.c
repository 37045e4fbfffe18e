/* Counts that are drawn without tokens: the law against all sets of a few experts, draws against tokens one by one. */
#include "tests/unit/check.h"
#include "traces/generate/made_trace.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- The law, by all sets --- */

enum { MOST_EXPERTS = 12, MOST_GROUPS = 4 };

/* Shares of tokens under weights, set by set: that choose an expert, keep a group, reach a block of `size` experts. */
typedef struct all_sets {
    size_t experts, top_k, groups, kept;
    double weight[MOST_EXPERTS], of_group[MOST_GROUPS];
} all_sets;

static double weight_of_set(const all_sets *a, unsigned set, unsigned groups) {
    const size_t size = a->groups > 0 ? a->experts / a->groups : a->experts;
    double product = 1.0;
    for (size_t g = 0; g < a->groups; g++) product *= groups >> g & 1u ? a->of_group[g] : 1.0;
    for (size_t x = 0; x < a->experts; x++) {
        if (!(set >> x & 1u)) continue;
        if (a->groups > 0 && !(groups >> (x / size) & 1u)) return 0.0;
        product *= a->weight[x];
    }
    return product;
}

static void go_through(const all_sets *a, size_t size, double *chosen, double *kept, double *reached) {
    double sum = 0.0;
    memset(chosen, 0, a->experts * sizeof *chosen);
    memset(kept, 0, MOST_GROUPS * sizeof *kept);
    memset(reached, 0, a->experts / size * sizeof *reached);
    for (unsigned groups = 0; groups < 1u << a->groups; groups++) {
        if ((size_t)__builtin_popcount(groups) != a->kept) continue;
        for (unsigned set = 0; set < 1u << a->experts; set++) {
            if ((size_t)__builtin_popcount(set) != a->top_k) continue;
            const double weight = weight_of_set(a, set, groups);
            sum += weight;
            for (size_t x = 0; x < a->experts; x++) chosen[x] += set >> x & 1u ? weight : 0.0;
            for (size_t g = 0; g < a->groups; g++) kept[g] += groups >> g & 1u ? weight : 0.0;
            for (size_t d = 0; d < a->experts / size; d++)
                reached[d] += (set >> (d * size) & ((1u << size) - 1u)) != 0 ? weight : 0.0;
        }
    }
    for (size_t x = 0; x < a->experts; x++) chosen[x] /= sum;
    for (size_t g = 0; g < a->groups; g++) kept[g] /= sum;
    for (size_t d = 0; d < a->experts / size; d++) reached[d] /= sum;
}

/* What the sets of known weights give is asked for: the tree must find the law again. */
static void check_law(all_sets *a, size_t rank_experts, size_t node_experts) {
    double chosen[MOST_EXPERTS], kept[MOST_GROUPS], ranks[MOST_EXPERTS], nodes[MOST_EXPERTS];
    double inclusion[MOST_EXPERTS], got[MOST_EXPERTS], got_ranks[MOST_EXPERTS], got_nodes[MOST_EXPERTS];
    spw_count_tree *tree = NULL;
    go_through(a, node_experts, chosen, kept, nodes);
    go_through(a, rank_experts, chosen, kept, ranks);
    for (size_t x = 0; x < a->experts; x++)
        inclusion[x] = a->groups > 0 ? chosen[x] / kept[x / (a->experts / a->groups)] : chosen[x];
    const spw_count_law law = {a->experts, a->top_k, inclusion,    a->groups,
                               a->kept,    kept,     rank_experts, node_experts};
    CHECK_OK(spw_count_tree_create(&law, &tree));
    CHECK(tree != NULL);
    if (tree == NULL) return;
    spw_count_tree_reach(tree, got, got_ranks, got_nodes);
    for (size_t x = 0; x < a->experts; x++) CHECK(fabs(got[x] - chosen[x]) < 1e-6);
    for (size_t d = 0; d < a->experts / rank_experts; d++) CHECK(fabs(got_ranks[d] - ranks[d]) < 1e-6);
    for (size_t d = 0; d < a->experts / node_experts; d++) CHECK(fabs(got_nodes[d] - nodes[d]) < 1e-6);
    spw_count_tree_destroy(tree);
}

static void check_laws(void) {
    spw_random_stream stream;
    spw_random_stream_init(&stream, 1, 0, 0, 0, 0);
    for (int i = 0; i < 40; i++) {
        all_sets a = {.experts = 12, .top_k = 1 + (size_t)i % 5};
        const double spread = i % 4 == 0 ? 0.0 : 0.5 * (double)(i % 4);
        if (i % 2 == 1) a.groups = i % 3 == 0 ? 3 : 4, a.kept = i % 3 == 0 ? 2 : 3;
        for (size_t x = 0; x < a.experts; x++) a.weight[x] = exp(gsl_ran_gaussian(&stream.rng, spread));
        for (size_t g = 0; g < a.groups; g++) a.of_group[g] = exp(gsl_ran_gaussian(&stream.rng, spread));
        check_law(&a, i % 3 == 0 ? 2 : 1, i % 3 == 0 ? 4 : 3);
        check_law(&a, 12, 12);
    }
}

/* Equal chances: a rank of 4 among 256 experts is missed by C(252, 8) / C(256, 8) of the tokens. */
static void check_equal(void) {
    double inclusion[256], expert[256], rank[64], node[8], missed = 1.0;
    spw_count_tree *tree = NULL;
    for (size_t x = 0; x < 256; x++) inclusion[x] = 8.0 / 256.0;
    for (size_t i = 0; i < 8; i++) missed *= (double)(252 - i) / (double)(256 - i);
    CHECK_OK(spw_count_tree_create(&(spw_count_law){256, 8, inclusion, 0, 0, NULL, 4, 32}, &tree));
    spw_count_tree_reach(tree, expert, rank, node);
    for (size_t d = 0; d < 64; d++) CHECK(fabs(rank[d] - (1.0 - missed)) < 1e-9);
    spw_count_tree_destroy(tree);
    /* 6 experts of a rank do not go into 32 of a node, and 64 choices are too many */
    CHECK_OK(spw_count_tree_create(&(spw_count_law){192, 8, inclusion, 0, 0, NULL, 6, 32}, &tree));
    CHECK(tree == NULL);
    CHECK_OK(spw_count_tree_create(&(spw_count_law){256, 64, inclusion, 0, 0, NULL, 4, 32}, &tree));
    CHECK(tree == NULL);
}

/* --- Binomials --- */

static void check_binomial(uint32_t trials, double share) {
    enum { DRAWS = 20000 };
    double sum = 0.0, squares = 0.0, cubes = 0.0;
    const double mean = trials * share, variance = mean * (1.0 - share);
    spw_random_stream stream;
    spw_random_stream_init(&stream, 7, trials, (uint64_t)(share * 1e6), 0, 0);
    for (int i = 0; i < DRAWS; i++) {
        const uint32_t drawn = spw_draw_binomial(&stream, trials, share, log1p(-share));
        const double off = (double)drawn - mean;
        CHECK(drawn <= trials);
        sum += off, squares += off * off, cubes += off * off * off;
    }
    const double skew = variance * (1.0 - 2.0 * share), error = sqrt(variance / DRAWS);
    CHECK(fabs(sum / DRAWS) < 4.0 * error);
    CHECK(fabs(squares / DRAWS / variance - 1.0) < 5.0 * sqrt((2.0 + 1.0 / variance) / DRAWS));
    CHECK(fabs(cubes / DRAWS - skew) < 6.0 * pow(variance, 1.5) * sqrt((15.0 + 30.0 / variance) / DRAWS));
}

/* Every number as often as the law says, where draws are rejected: chi-square over numbers of at least 20 draws expected. */
static void check_shape(uint32_t trials, double share) {
    enum { DRAWS = 400000, MOST = 4097 };
    static unsigned seen[MOST];
    spw_random_stream stream;
    double square = 0.0;
    size_t numbers = 0;
    memset(seen, 0, sizeof seen);
    spw_random_stream_init(&stream, 11, trials, (uint64_t)(share * 1e6), 0, 0);
    for (int i = 0; i < DRAWS; i++) seen[spw_draw_binomial(&stream, trials, share, log1p(-share))]++;
    for (uint32_t k = 0; k <= trials; k++) {
        const double expected = DRAWS * gsl_ran_binomial_pdf(k, share, trials), off = seen[k] - expected;
        if (expected < 20.0) continue;
        square += off * off / expected;
        numbers++;
    }
    CHECK(numbers > 15);
    CHECK(square < (double)numbers + 4.0 * sqrt(2.0 * (double)numbers));
}

static void check_binomials(void) {
    static const uint32_t trials[] = {1, 5, 6, 7, 20, 100, 4096, 1000000};
    static const double share[] = {0.001, 0.05, 0.3, 0.5, 0.8, 0.99};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (size_t j = 0; j < sizeof share / sizeof *share; j++)
            if (trials[i] * share[j] * (1.0 - share[j]) > 0.02) check_binomial(trials[i], share[j]);
    spw_random_stream stream;
    spw_random_stream_init(&stream, 7, 0, 0, 0, 0);
    check_shape(30, 0.45);
    check_shape(130, 0.1);
    check_shape(1000, 0.02);
    check_shape(700, 0.7);
    CHECK(spw_draw_binomial(&stream, 100, 1.0, -INFINITY) == 100);
}

/* --- Against tokens one by one --- */

enum { PIECES = 24, TOKENS = 384, JOBS = 500 };

typedef struct job {
    char text[96];
    size_t experts, top_k, ranks, nodes;
    bool even; /* nearly: laws agree to higher order */
} job;

/* Sums over pieces. */
typedef struct sums {
    double sum, squares;
} sums;
static void add(sums *s, double value) { s->sum += value, s->squares += value * value; }
static double mean_of(const sums *s) { return s->sum / PIECES; }
static double variance_of(const sums *s) { return (s->squares - s->sum * s->sum / PIECES) / (PIECES - 1); }

/* Figures of a piece: experts, ranks, nodes, then the fullest rank's rows and the most reached rank's tokens. */
static size_t figures_of(const job *j) { return j->experts + j->ranks + j->nodes + 2; }

static void note_piece(const job *j, const uint32_t *row, sums *out) {
    const size_t local = j->experts / j->ranks, counted = j->experts + j->ranks + j->nodes;
    double fullest = 0.0, reached = 0.0;
    uint64_t all = 0;
    for (size_t d = 0; d < j->ranks; d++) {
        uint32_t rows = 0, most = 0;
        for (size_t x = d * local; x < (d + 1) * local; x++) {
            rows += row[x];
            most = row[x] > most ? row[x] : most;
        }
        const uint32_t there = row[j->experts + d];
        CHECK(most <= there && there <= rows && there <= TOKENS);
        CHECK(there <= row[j->experts + j->ranks + d * j->nodes / j->ranks]);
        fullest = fmax(fullest, rows);
        reached = fmax(reached, there);
        all += rows;
    }
    CHECK(all == TOKENS * j->top_k);
    for (size_t i = 0; i < counted; i++) add(&out[i], row[i]);
    add(&out[counted], fullest);
    add(&out[counted + 1], reached);
}

static void count_piece(const job *j, const spw_trace_record *record, size_t first, uint32_t *row) {
    const size_t of_rank = j->experts / j->ranks, of_node = j->experts / j->nodes;
    memset(row, 0, figures_of(j) * sizeof *row);
    for (size_t t = first; t < first + TOKENS; t++) {
        uint64_t ranks = 0, nodes = 0;
        for (size_t k = 0; k < j->top_k; k++) {
            const size_t x = spw_trace_record_id(record, t * j->top_k + k);
            row[x]++;
            ranks |= (uint64_t)1 << x / of_rank;
            nodes |= (uint64_t)1 << x / of_node;
        }
        for (size_t d = 0; d < j->ranks; d++) row[j->experts + d] += (uint32_t)(ranks >> d & 1u);
        for (size_t d = 0; d < j->nodes; d++) row[j->experts + j->ranks + d] += (uint32_t)(nodes >> d & 1u);
    }
}

/* Of all jobs: squares of differences of means over their variances, of experts, ranks, nodes and the two most; and sums of variances. */
typedef struct agreement {
    double squares[4], count[4], drawn[4], counted[4];
} agreement;

static void compare(const job *j, uint64_t seed, agreement *all) {
    spw_generate_settings s = {.experts = j->experts,
                               .top_k = j->top_k,
                               .layers = 1,
                               .steps = 1,
                               .ranks = PIECES,
                               .tokens_per_rank = TOKENS,
                               .seed = seed,
                               .distribution_text = j->text};
    const spw_expert_blocks blocks = {j->experts / j->ranks, j->experts / j->nodes};
    const size_t figures = figures_of(j);
    spw_trace *trace = NULL;
    spw_trace_record law, record;
    CHECK_OK(spw_distribution_parse(j->text, &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    CHECK_OK(spw_trace_read_law(trace, 0, 0, blocks, &law));
    CHECK(law.law != NULL && law.expert_id == NULL);
    CHECK_OK(spw_trace_read_record(trace, 0, 1, 0, false, &record));
    uint32_t *row = calloc(figures, sizeof *row);
    sums *drawn = calloc(figures, sizeof *drawn), *counted = calloc(figures, sizeof *counted);
    void *scratch = calloc(1, spw_piece_law_bytes(law.law));
    const spw_token_counts out = {row, row + j->experts, row + j->experts + j->ranks, 1};
    for (size_t p = 0; p < PIECES; p++) {
        spw_piece_law_draw(law.law, scratch, &(uint64_t){p * TOKENS}, 1, TOKENS, &out);
        note_piece(j, row, drawn);
        count_piece(j, &record, p * TOKENS, row);
        note_piece(j, row, counted);
    }
    for (size_t i = 0; i < figures; i++) {
        const size_t kind = i < j->experts ? 0 : i < j->experts + j->ranks ? 1 : i + 2 < figures ? 2 : 3;
        const double off = mean_of(&drawn[i]) - mean_of(&counted[i]),
                     variance = variance_of(&drawn[i]) + variance_of(&counted[i]);
        CHECK(fabs(off) < 6.0 * sqrt(variance / PIECES) + 0.015 * mean_of(&counted[i]) + 2.0);
        if (!j->even || !(variance > 0.5)) continue;
        all->squares[kind] += off * off / (variance / PIECES);
        all->count[kind] += 1.0;
        all->drawn[kind] += variance_of(&drawn[i]);
        all->counted[kind] += variance_of(&counted[i]);
    }
    free(row), free(drawn), free(counted), free(scratch);
    spw_trace_close(trace);
}

static job random_job(spw_random_stream *stream) {
    static const struct {
        size_t experts, top_k, ranks, nodes;
    } shape[] = {{8, 2, 8, 1},    {8, 1, 4, 2},    {60, 4, 10, 2},  {64, 6, 8, 1},  {64, 8, 16, 4},
                 {128, 8, 16, 2}, {256, 8, 64, 8}, {160, 6, 40, 5}, {32, 4, 32, 4}, {96, 8, 12, 3}};
    static const struct {
        const char *text;
        bool even;
    } kind[] = {{"uniform", true},
                {"reference", true},
                {"lognormal:sigma=%.2f", true},
                {"zipf:exponent=%.2f", false},
                {"dirichlet:alpha=%.2f", false},
                {"k-hot:hot=0.5,heat=%.2f", true},
                {"reference:groups=4,kept=2,exponent=%.2f", true}};
    const size_t a = spw_random_below(stream, sizeof shape / sizeof *shape),
                 b = spw_random_below(stream, sizeof kind / sizeof *kind);
    job j = {.experts = shape[a].experts,
             .top_k = shape[a].top_k,
             .ranks = shape[a].ranks,
             .nodes = shape[a].nodes,
             .even = kind[b].even};
    const bool nests =
        j.experts % 4 == 0 && j.nodes != 5 && j.nodes != 3 && j.ranks != 10 && j.top_k <= j.experts / 2;
    const double parameter = 0.2 + 0.6 * gsl_rng_uniform(&stream->rng);
    if (b == 6 && !nests)
        (void)snprintf(j.text, sizeof j.text, "uniform");
    else
        (void)snprintf(j.text, sizeof j.text, kind[b].text, parameter);
    return j;
}

static void check_jobs(void) {
    /* Eight drawn tokens share an order of the experts (traces/generate/sample.c), so a little more is by chance where experts meet. */
    static const double apart[4] = {0.03, 0.07, 0.12, 0.1};
    agreement all = {{0.0}, {0.0}, {0.0}, {0.0}};
    spw_random_stream stream;
    spw_random_stream_init(&stream, 11, 0, 0, 0, 0);
    for (uint64_t i = 0; i < JOBS; i++) {
        const job j = random_job(&stream);
        compare(&j, i, &all);
    }
    for (size_t kind = 0; kind < 4; kind++) {
        const double excess = all.squares[kind] / all.count[kind],
                     ratio = all.drawn[kind] / all.counted[kind];
        printf("%zu: %.0f figures, mean square %.3f, variances %.3f\n", kind, all.count[kind], excess, ratio);
        CHECK(all.count[kind] > 400.0);
        CHECK(excess > 0.8 && excess < 1.25); /* 1.09 by Student's law */
        CHECK(fabs(ratio - 1.0) < apart[kind]);
    }
}

/* A draw is a function of seed, step, layer and place, and no split of the experts changes the choices of an expert. */
static void check_repeats(void) {
    uint32_t wide[128 + 16 + 2], narrow[128 + 4 + 1], again[128 + 16 + 2];
    spw_generate_settings s = {
        .experts = 128, .top_k = 8, .layers = 2, .steps = 2, .ranks = 4, .tokens_per_rank = 64};
    spw_trace *trace = NULL;
    spw_trace_record law;
    CHECK_OK(spw_distribution_parse("drift:popularity=reference", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    CHECK_OK(spw_trace_read_law(trace, 1, 1, (spw_expert_blocks){8, 64}, &law));
    void *scratch = calloc(1, 1 << 20);
    CHECK(spw_piece_law_bytes(law.law) < 1 << 20);
    spw_piece_law_draw(law.law, scratch, &(uint64_t){64}, 1, 64,
                       &(spw_token_counts){wide, wide + 128, wide + 144, 1});
    spw_piece_law_draw(law.law, scratch, &(uint64_t){128}, 1, 64,
                       &(spw_token_counts){again, again + 128, again + 144, 1});
    CHECK(memcmp(wide, again, sizeof wide) != 0);
    CHECK_OK(spw_trace_read_law(trace, 0, 0, (spw_expert_blocks){8, 64}, &law));
    CHECK_OK(spw_trace_read_law(trace, 1, 1, (spw_expert_blocks){32, 128}, &law));
    spw_piece_law_draw(law.law, scratch, &(uint64_t){64}, 1, 64,
                       &(spw_token_counts){narrow, narrow + 128, narrow + 132, 1});
    CHECK(memcmp(wide, narrow, 128 * sizeof *wide) == 0);
    free(scratch);
    spw_trace_close(trace);
}

/* The tree of a step and layer, by whatever blocks it was read last; of a new one all experts are one block. */
static void check_trees(void) {
    spw_generate_settings s = {
        .experts = 64, .top_k = 4, .layers = 2, .steps = 2, .ranks = 1, .tokens_per_rank = 64};
    double expert[64], again[64], rank[8], node[8];
    spw_trace *trace = NULL;
    spw_trace_record law;
    const spw_count_tree *tree = NULL, *other = NULL;
    CHECK_OK(spw_distribution_parse("drift:popularity=reference", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    CHECK_OK(spw_trace_read_law(trace, 1, 1, (spw_expert_blocks){8, 64}, &law));
    CHECK_OK(spw_trace_read_tree(trace, 1, 1, &tree));
    spw_count_tree_reach(tree, expert, rank, node);
    CHECK_OK(spw_trace_read_tree(trace, 1, 0, &other));
    CHECK(other != tree);
    CHECK_OK(spw_trace_read_tree(trace, 1, 1, &other));
    CHECK(other == tree);
    CHECK_OK(spw_trace_read_tree(trace, 0, 1, &tree));
    spw_count_tree_reach(tree, again, rank, node);
    double apart = 0.0;
    for (size_t x = 0; x < 64; x++) apart = fmax(apart, fabs(expert[x] - again[x]));
    CHECK(apart > 1e-6);
    CHECK(fabs(rank[0] - 1.0) < 1e-12 && fabs(node[0] - 1.0) < 1e-12);
    CHECK_OK(spw_trace_read_tree(trace, 1, 1, &tree));
    spw_count_tree_reach(tree, again, rank, node);
    for (size_t x = 0; x < 64; x++) CHECK(fabs(expert[x] - again[x]) < 1e-6);
    spw_trace_close(trace);
}

/* Tokens that follow another law are not counted so. */
static void check_others(void) {
    static const char *const text[] = {"hash:hash=1", "megatron-w0"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        spw_generate_settings s = {.experts = 64,
                                   .top_k = 4,
                                   .layers = 2,
                                   .steps = 1,
                                   .ranks = 2,
                                   .tokens_per_rank = 64,
                                   .distribution_text = text[i]};
        spw_trace *trace = NULL;
        spw_trace_record law;
        CHECK_OK(spw_distribution_parse(text[i], &s.distribution));
        CHECK_OK(spw_trace_make(&s, &trace));
        CHECK_OK(spw_trace_read_law(trace, 0, 0, (spw_expert_blocks){8, 64}, &law));
        CHECK(law.law == NULL);
        CHECK_OK(spw_trace_read_law(trace, 0, 1, (spw_expert_blocks){8, 64}, &law));
        CHECK((law.law != NULL) == (i == 0));
        spw_trace_close(trace);
    }
}

int main(void) {
    check_laws();
    check_equal();
    check_binomials();
    check_repeats();
    check_trees();
    check_others();
    check_jobs();
    return check_done();
}
