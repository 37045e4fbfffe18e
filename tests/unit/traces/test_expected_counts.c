/* Expected counts and drops: against all sets of a few experts and all ways in which a few tokens take them, and
 * against draws in 500 jobs. */
#include "tests/unit/check.h"
#include "traces/generate/count_sample.h"
#include "traces/generate/expected_drops.h"
#include "traces/generate/generate.h"

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- All sets, all ways --- */

enum { FEW_EXPERTS = 8, SETS = 1 << FEW_EXPERTS };

/* How often a token of a state of a node chooses the experts of `set` there, and no others of the node. */
static double chance(const spw_count_tree *t, size_t at, size_t s, unsigned set) {
    const spw_count_node *n = &t->node[at];
    const unsigned all = ((1u << (n->high - n->low)) - 1u) << n->low;
    double sum = 0.0, rest = 1.0;
    if (n->left == 0) return ((set & all) != 0) == (s == 1) ? 1.0 : 0.0;
    if (n->right == 0 && s <= n->choices) return s == 0 && (set & all) == 0 ? 1.0 : 0.0;
    if (n->right == 0) return chance(t, n->left, s - n->choices - 1, set);
    for (size_t i = t->first[n->state + s]; i < t->first[n->state + s + 1]; i++) {
        const spw_count_option *o = &t->option[i];
        sum += rest * o->share * chance(t, n->left, o->left, set) * chance(t, n->right, o->right, set);
        rest *= 1.0 - o->share;
    }
    return sum;
}

static void check_blocks_by_sets(const spw_count_tree *t, const double *sets) {
    for (size_t block = 1; block <= t->experts; block++) {
        spw_block_law law[FEW_EXPERTS];
        spw_moments reach;
        double mean = 0.0, square = 0.0;
        if (t->experts % block != 0) continue;
        CHECK_OK(spw_expected_blocks(t, block, law));
        CHECK_OK(spw_expected_reach(t, block, &reach));
        for (size_t b = 0; b < t->experts / block; b++) {
            double reached = 0.0, choices = 0.0, squares = 0.0, third = 0.0;
            for (unsigned set = 0; set < 1u << t->experts; set++) {
                const double has = (double)__builtin_popcount(set >> (b * block) & ((1u << block) - 1u));
                reached += has > 0.0 ? sets[set] : 0.0;
                choices += sets[set] * has, squares += sets[set] * has * has;
            }
            for (unsigned set = 0; set < 1u << t->experts; set++)
                third += sets[set] *
                         pow(__builtin_popcount(set >> (b * block) & ((1u << block) - 1u)) - choices, 3.0);
            CHECK(fabs(law[b].third - third) < 1e-12);
            CHECK(fabs(law[b].reached - reached) < 1e-12);
            CHECK(fabs(law[b].choices.mean - choices) < 1e-12);
            CHECK(fabs(law[b].choices.variance - (squares - choices * choices)) < 1e-12);
        }
        for (unsigned set = 0; set < 1u << t->experts; set++) {
            double blocks = 0.0;
            for (size_t b = 0; b < t->experts / block; b++)
                blocks += (set >> (b * block) & ((1u << block) - 1u)) != 0 ? 1.0 : 0.0;
            mean += sets[set] * blocks, square += sets[set] * blocks * blocks;
        }
        CHECK(fabs(reach.mean - mean) < 1e-12);
        CHECK(isnan(reach.variance) || fabs(reach.variance - (square - mean * mean)) < 1e-12);
    }
}

/* ways [(tokens + 1)^experts]: how often so many tokens choose each expert. */
static void take_token(size_t experts, size_t base, const double *sets, const double *from, double *to,
                       size_t ways) {
    memset(to, 0, ways * sizeof *to);
    for (unsigned set = 0; set < 1u << experts; set++) {
        size_t step = 0, power = 1;
        for (size_t x = 0; x < experts; x++, power *= base) step += set >> x & 1u ? power : 0;
        for (size_t w = 0; w + step < ways && sets[set] > 0.0; w++) to[w + step] += from[w] * sets[set];
    }
}

static void check_drops_by_ways(const spw_count_tree *t, const double *sets, size_t tokens) {
    size_t ways = 1;
    for (size_t x = 0; x < t->experts; x++) ways *= tokens + 1;
    double *now = calloc(ways, sizeof *now), *next = calloc(ways, sizeof *next);
    now[0] = 1.0;
    for (size_t i = 0; i < tokens; i++) {
        take_token(t->experts, tokens + 1, sets, now, next, ways);
        double *old = now;
        now = next, next = old;
    }
    for (size_t capacity = 0; capacity <= tokens; capacity++) {
        double mean = 0.0, square = 0.0;
        spw_moments got;
        for (size_t w = 0; w < ways; w++) {
            size_t left = w, dropped = 0;
            for (; left > 0; left /= tokens + 1)
                dropped += left % (tokens + 1) > capacity ? left % (tokens + 1) - capacity : 0;
            mean += now[w] * (double)dropped, square += now[w] * (double)dropped * (double)dropped;
        }
        CHECK_OK(spw_expected_drops(t, tokens, capacity, &got));
        CHECK(fabs(got.mean - mean) < 1e-12 * (1.0 + mean));
        CHECK(fabs(got.variance - (square - mean * mean)) < 1e-11 * (1.0 + square));
    }
    free(now), free(next);
}

static void check_by_sets(void) {
    static const struct {
        size_t experts, top_k, groups, kept, rank, node, tokens;
    } shape[] = {{4, 1, 0, 0, 2, 4, 6}, {4, 2, 0, 0, 1, 2, 6}, {6, 3, 0, 0, 2, 6, 3}, {6, 2, 3, 2, 1, 2, 3},
                 {6, 2, 2, 1, 3, 6, 3}, {8, 3, 4, 2, 2, 4, 2}, {8, 4, 0, 0, 4, 8, 2}, {2, 1, 0, 0, 1, 2, 12},
                 {8, 2, 2, 1, 1, 8, 2}, {6, 2, 0, 0, 6, 6, 3}, {4, 3, 0, 0, 1, 4, 6}};
    static const double spread[] = {0.0, 0.5, 2.0};
    spw_random_stream stream;
    spw_random_stream_init(&stream, 3, 0, 0, 0, 0);
    for (size_t i = 0; i < 3 * sizeof shape / sizeof *shape; i++) {
        const size_t at = i / 3, experts = shape[at].experts;
        double inclusion[FEW_EXPERTS], group[FEW_EXPERTS], sets[SETS], sum = 0.0;
        const size_t of_group = experts / (shape[at].groups > 0 ? shape[at].groups : 1);
        const double size = (double)of_group;
        for (size_t x = 0; x < experts; x++) inclusion[x] = exp(gsl_ran_gaussian(&stream.rng, spread[i % 3]));
        for (size_t x = 0; x < experts; x++) sum += inclusion[x];
        for (size_t x = 0; x < experts; x++) /* below 1, and near to the number of choices */
            inclusion[x] = fmin(0.97, inclusion[x] * (double)shape[at].top_k / sum);
        for (size_t g = 0; g < shape[at].groups; g++)
            group[g] = (double)shape[at].kept / (double)shape[at].groups * (g == 0 ? 0.9 : 1.0);
        for (size_t x = 0; x < experts && shape[at].groups > 0; x++)
            inclusion[x] = fmin(0.97, (double)shape[at].top_k / ((double)shape[at].kept * size) *
                                          (x % 2 == 0 ? 1.0 + 0.1 * spread[i % 3] : 1.0));
        const spw_count_law law = {experts,        shape[at].top_k, inclusion,      shape[at].groups,
                                   shape[at].kept, group,           shape[at].rank, shape[at].node};
        spw_count_tree *t = NULL;
        CHECK_OK(spw_count_tree_create(&law, &t));
        CHECK(t != NULL);
        if (t == NULL) continue;
        sum = 0.0;
        for (unsigned set = 0; set < 1u << experts; set++)
            sum += sets[set] = chance(t, 0, spw_count_states(&t->node[0]) - 1, set);
        CHECK(fabs(sum - 1.0) < 1e-13);
        check_blocks_by_sets(t, sets);
        check_drops_by_ways(t, sets, shape[at].tokens);
        spw_count_tree_destroy(t);
    }
}

/* --- One expert, by sums over the whole law --- */

static void check_excess(size_t trials, double share, size_t capacity) {
    double mean = 0.0, square = 0.0, wide = 0.0;
    for (size_t b = capacity + 1; b <= trials; b++) {
        const double p = gsl_ran_binomial_pdf((unsigned)b, share, (unsigned)trials),
                     d = (double)(b - capacity);
        mean += p * d, square += p * d * d;
    }
    const spw_moments got = spw_binomial_excess(trials, share, capacity);
    wide = square > 0.0 ? square : 1.0;
    CHECK(fabs(got.mean - mean) <= 1e-9 * mean);
    CHECK(fabs(got.variance - (square - mean * mean)) <= 1e-9 * wide);
}

static void check_one(void) {
    static const size_t trials[] = {1, 7, 64, 1000, 4096, 100000}, parts[] = {0, 1, 5, 10, 12, 15, 20, 40};
    static const double share[] = {1e-4, 0.03125, 0.3, 0.5, 0.9, 0.999};
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (size_t j = 0; j < sizeof share / sizeof *share; j++)
            for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
                check_excess(trials[i], share[j],
                             (size_t)((double)trials[i] * share[j] * (double)parts[k] / 10.0));
    CHECK(spw_binomial_excess(10, 0.0, 3).mean == 0.0);
    CHECK(spw_binomial_excess(10, 1.0, 3).mean == 7.0);
    CHECK(spw_binomial_excess(10, 1.0, 3).variance == 0.0);
    /* of a million tokens and 256 experts one in 31250 is dropped beyond 4 standard deviations */
    const double far = spw_binomial_excess(1000000, 1.0 / 32.0, 31250 + 696).mean;
    CHECK(far > 1e-4 && far < 2e-3);
}

/* --- Against draws --- */

enum { JOBS = 500, DRAWS = 48, MOST = 256, KINDS = 7 };
static const char *const kind_name[KINDS] = {
    "rows of an expert", "rows of a rank",    "copies to a rank",        "copies to a node",
    "copies of tokens",  "drops of a source", "rows of the fullest rank"};

typedef struct job {
    char text[96];
    size_t experts, top_k, ranks, nodes, tokens, capacity;
} job;

/* A figure of a job: expected, and sums over draws of the difference and its square. */
typedef struct figure {
    size_t kind;
    spw_moments expected;
    double off, square;
} figure;

/* Over jobs: sums of the mean square of z, of the mean of variances over the expected ones, and of their squares. Of the fullest rank,
 * whose variance is not expected, in place of that how far it is off, in its own standard deviations. */
typedef struct tally {
    double jobs, z, z_square, ratio, ratio_square;
} tally;

static job random_job(spw_random_stream *stream) {
    static const struct {
        size_t experts, top_k, ranks, nodes;
    } shape[] = {{8, 2, 8, 1},    {8, 1, 4, 2},   {60, 4, 10, 2},  {64, 6, 8, 1},
                 {64, 8, 16, 4},  {16, 2, 4, 2},  {128, 8, 16, 2}, {256, 8, 32, 4},
                 {160, 6, 40, 5}, {32, 4, 32, 4}, {96, 8, 12, 3},  {4, 1, 2, 1}};
    static const char *const kind[] = {"uniform",
                                       "uniform",
                                       "reference",
                                       "reference:exponent=%.2f",
                                       "lognormal:sigma=%.2f",
                                       "zipf:exponent=%.2f",
                                       "dirichlet:alpha=%.2f",
                                       "k-hot:hot=0.5,heat=%.2f",
                                       "reference:groups=4,kept=2,exponent=%.2f"};
    enum { NAMES = sizeof kind / sizeof *kind };
    const size_t a = spw_random_below(stream, sizeof shape / sizeof *shape);
    size_t b = spw_random_below(stream, NAMES);
    job j = {.experts = shape[a].experts,
             .top_k = shape[a].top_k,
             .ranks = shape[a].ranks,
             .nodes = shape[a].nodes,
             .tokens = (size_t)(16.0 * exp2(8.0 * gsl_rng_uniform(&stream->rng)))};
    const bool nests = j.experts >= 32 && j.nodes != 5 && j.nodes != 3 && j.ranks != 10;
    const double even = (double)(j.tokens * j.top_k) / (double)j.experts;
    if (b == NAMES - 1 && !nests) b = 0;
    j.capacity = (size_t)ceil(even * exp2(2.0 * gsl_rng_uniform(&stream->rng) - 0.7));
    (void)snprintf(j.text, sizeof j.text, kind[b],
                   (b == 7 ? 0.9 : 0.2 + 2.0) * gsl_rng_uniform(&stream->rng));
    return j;
}

/* The law of the first layer, by blocks. */
static spw_count_tree *tree_of(const job *j, uint64_t seed, size_t rank_experts, size_t node_experts) {
    spw_generate_settings s = {.experts = j->experts,
                               .top_k = j->top_k,
                               .layers = 1,
                               .steps = 1,
                               .ranks = 1,
                               .tokens_per_rank = 1,
                               .seed = seed};
    spw_generator *generator = NULL;
    spw_count_tree *tree = NULL;
    CHECK_OK(spw_distribution_parse(j->text, &s.distribution));
    CHECK_OK(spw_generator_create(&s, &generator));
    CHECK_OK(spw_generator_count_tree(generator, 0, rank_experts, node_experts, &tree));
    CHECK(tree != NULL);
    spw_generator_destroy(generator);
    return tree;
}

/* Of many experts the sum over pairs is short: how far the variance is off at most, without groups and with them. */
static double furthest[2];

static void compare_pairs(const job *j, const spw_count_tree *t, const spw_moments *drops) {
    const bool grouped = strstr(j->text, "groups") != NULL;
    spw_moments pairs;
    CHECK_OK(spw_expected_drops_by_pairs(t, j->tokens, j->capacity, &pairs));
    CHECK(fabs(drops->mean - pairs.mean) <= 1e-9 * pairs.mean);
    if (!(pairs.variance > 1e-6)) return;
    const double off = fabs(drops->variance / pairs.variance - 1.0);
    CHECK(off < (grouped ? 5e-3 : 2e-4));
    furthest[grouped] = fmax(furthest[grouped], off);
}

/* What is expected, of a tree that knows the blocks or of one that cuts them. Returns how many figures. */
static size_t expect(const job *j, const spw_count_tree *blocks, const spw_count_tree *any, figure *f) {
    static spw_block_law expert[MOST], rank[MOST], node[MOST];
    const double tokens = (double)j->tokens;
    spw_moments reach, drops;
    size_t n = 0;
    CHECK_OK(spw_expected_blocks(any, 1, expert));
    CHECK_OK(spw_expected_blocks(any, j->experts / j->ranks, rank));
    CHECK_OK(spw_expected_blocks(any, j->experts / j->nodes, node));
    CHECK_OK(spw_expected_reach(blocks, j->experts / j->ranks, &reach));
    CHECK_OK(spw_expected_drops(any, j->tokens, j->capacity, &drops));
    CHECK(isfinite(reach.variance));
    if (j->experts > SPW_DROP_PAIRED) compare_pairs(j, any, &drops);
    for (size_t x = 0; x < j->experts; x++) f[n++] = (figure){0, spw_expected_rows(&expert[x], tokens), 0, 0};
    for (size_t d = 0; d < j->ranks; d++) f[n++] = (figure){1, spw_expected_rows(&rank[d], tokens), 0, 0};
    for (size_t d = 0; d < j->ranks; d++) f[n++] = (figure){2, spw_expected_copies(&rank[d], tokens), 0, 0};
    for (size_t d = 0; d < j->nodes; d++) f[n++] = (figure){3, spw_expected_copies(&node[d], tokens), 0, 0};
    f[n++] = (figure){4, {tokens * reach.mean, tokens * reach.variance}, 0, 0};
    f[n++] = (figure){5, drops, 0, 0};
    f[n++] = (figure){6, {spw_expected_fullest(rank, j->ranks, tokens), NAN}, 0, 0};
    return n;
}

static void note(figure *f, double value) {
    const double off = value - f->expected.mean;
    f->off += off, f->square += off * off;
}

static void draw(const job *j, const spw_count_tree *t, spw_random_stream *stream, void *scratch, figure *f) {
    uint32_t expert[MOST], rank[MOST], node[MOST];
    const size_t local = j->experts / j->ranks;
    double reached = 0.0, dropped = 0.0, fullest = 0.0;
    spw_count_sample(t, stream, scratch, j->tokens, &(spw_token_counts){expert, rank, node, 1});
    for (size_t x = 0; x < j->experts; x++, f++) {
        note(f, expert[x]);
        dropped += expert[x] > j->capacity ? expert[x] - (double)j->capacity : 0.0;
    }
    for (size_t d = 0; d < j->ranks; d++, f++) {
        double rows = 0.0;
        for (size_t x = d * local; x < (d + 1) * local; x++) rows += expert[x];
        note(f, rows);
        fullest = fmax(fullest, rows);
        reached += rank[d];
    }
    for (size_t d = 0; d < j->ranks; d++, f++) note(f, rank[d]);
    for (size_t d = 0; d < j->nodes; d++, f++) note(f, node[d]);
    note(f++, reached);
    note(f++, dropped);
    note(f, fullest);
}

/* Means within 5 standard errors, and a little more where few things are counted, whose law is skewed; what does not vary is met. */
static void judge(const job *j, const figure *f, size_t figures, tally *all) {
    double z[KINDS] = {0.0}, ratio[KINDS] = {0.0}, counted[KINDS] = {0.0};
    for (size_t i = 0; i < figures; i++) {
        const spw_moments *e = &f[i].expected;
        const bool spread = isfinite(e->variance);
        const double mean = f[i].off / DRAWS, square = f[i].square / DRAWS,
                     variance = spread ? e->variance : (square - mean * mean) * DRAWS / (DRAWS - 1.0),
                     score = mean / sqrt(fmax(variance, 1e-30) / DRAWS);
        if (spread && DRAWS * variance < 1e-9) CHECK(fabs(mean) < 1e-3);
        if (DRAWS * variance < 20.0) continue;
        if (spread && !(fabs(score) < 5.0 + 20.0 / sqrt(DRAWS * variance))) {
            printf("%s, %zu experts, %zu of %zu tokens: %s %g off %g\n", j->text, j->experts, j->capacity,
                   j->tokens, kind_name[f[i].kind], e->mean, score);
            CHECK(false);
        }
        z[f[i].kind] += score * score;
        ratio[f[i].kind] += spread ? square / variance : score / sqrt(DRAWS); /* fullest: in deviations */
        counted[f[i].kind] += 1.0;
    }
    for (size_t k = 0; k < KINDS; k++) {
        if (!(counted[k] > 0.0)) continue;
        const double mean_z = z[k] / counted[k], mean_ratio = ratio[k] / counted[k];
        all[k].jobs += 1.0;
        all[k].z += mean_z, all[k].z_square += mean_z * mean_z;
        all[k].ratio += mean_ratio, all[k].ratio_square += mean_ratio * mean_ratio;
    }
}

static void check_jobs(void) {
    static figure f[4 * MOST];
    tally all[KINDS] = {{0}};
    spw_random_stream stream;
    spw_random_stream_init(&stream, 19, 0, 0, 0, 0);
    for (uint64_t i = 0; i < JOBS; i++) {
        const job j = random_job(&stream);
        spw_count_tree *blocks = tree_of(&j, i, j.experts / j.ranks, j.experts / j.nodes),
                       *any = i % 4 == 0 ? tree_of(&j, i, 1, j.experts) : blocks;
        void *scratch = malloc(spw_count_sample_bytes(blocks));
        const size_t figures = expect(&j, blocks, any, f);
        for (size_t d = 0; d < DRAWS; d++) draw(&j, blocks, &stream, scratch, f);
        judge(&j, f, figures, all);
        free(scratch);
        if (any != blocks) spw_count_tree_destroy(any);
        spw_count_tree_destroy(blocks);
    }
    printf("variance of drops: at most %.1e off that by pairs, of groups %.1e\n", furthest[0], furthest[1]);
    for (size_t k = 0; k < KINDS; k++) {
        const tally *a = &all[k];
        const double z = a->z / a->jobs, ratio = a->ratio / a->jobs,
                     z_error = sqrt((a->z_square / a->jobs - z * z) / a->jobs),
                     ratio_error = sqrt((a->ratio_square / a->jobs - ratio * ratio) / a->jobs);
        printf("%-25s %3.0f jobs, z^2 %.3f +- %.3f, %s %.4f +- %.4f\n", kind_name[k], a->jobs, z, z_error,
               k < 6 ? "variance ratio" : "deviations off", ratio, ratio_error);
        CHECK(a->jobs > 300.0);
        CHECK(fabs(z - 1.0) < 4.0 * z_error);
        CHECK(fabs(ratio - (k == 6 ? 0.0 : 1.0)) < 4.0 * ratio_error);
        CHECK(z_error < 0.1 && ratio_error < 0.02);
    }
}

int main(void) {
    check_by_sets();
    check_one();
    check_jobs();
    return check_done();
}
