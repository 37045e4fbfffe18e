/* Counts by the normal law against what count_tree.h expects of them, and against exact draws. */
#include "tests/unit/check.h"
#include "traces/generate/count_normal.h"
#include "traces/generate/expected_counts.h"
#include "traces/generate/made_trace.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 100, PIECES = 400, MOST = 256 };

typedef struct job {
    const char *text;
    size_t experts, top_k, ranks, nodes, tokens;
} job;

static spw_count_tree *tree_of(const job *j, uint64_t seed) {
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
    CHECK_OK(spw_generator_count_tree(generator, 0, j->experts / j->ranks, j->experts / j->nodes, &tree));
    spw_generator_destroy(generator);
    return tree;
}

/* One piece: experts, ranks, nodes. */
typedef struct counts {
    uint32_t expert[MOST], rank[MOST], node[MOST];
} counts;

typedef void draw_function(const void *law, spw_random_stream *stream, void *scratch, size_t tokens,
                           const spw_token_counts *out);

static void draw_normal(const void *law, spw_random_stream *stream, void *scratch, size_t tokens,
                        const spw_token_counts *out) {
    spw_count_normal_sample(law, stream, 1, scratch, tokens, out);
}

static void draw_exact(const void *law, spw_random_stream *stream, void *scratch, size_t tokens,
                       const spw_token_counts *out) {
    spw_count_sample(law, stream, scratch, tokens, out);
}

static void draw_piece(const job *j, const void *law, draw_function *draw, uint64_t number, void *scratch,
                       counts *out) {
    spw_random_stream stream;
    spw_random_stream_init(&stream, 5, number, 0, 0, 0);
    draw(law, &stream, scratch, j->tokens, &(spw_token_counts){out->expert, out->rank, out->node, 1});
}

/* Can tokens have been counted so? */
static void check_possible(const job *j, const counts *c) {
    const size_t of_rank = j->experts / j->ranks, of_node = j->ranks / j->nodes;
    uint64_t all = 0;
    for (size_t n = 0; n < j->nodes; n++) {
        uint64_t reached = 0;
        for (size_t d = n * of_node; d < (n + 1) * of_node; d++) {
            uint32_t rows = 0;
            for (size_t x = d * of_rank; x < (d + 1) * of_rank; x++) {
                CHECK(c->expert[x] <= c->rank[d]);
                rows += c->expert[x];
            }
            CHECK(c->rank[d] <= rows && c->rank[d] <= c->node[n]);
            CHECK(rows <= c->rank[d] * (of_rank < j->top_k ? of_rank : j->top_k));
            reached += c->rank[d];
            all += rows;
        }
        CHECK(c->node[n] <= reached && c->node[n] <= j->tokens);
        CHECK(reached <= c->node[n] * (of_node < j->top_k ? of_node : j->top_k));
    }
    CHECK(all == j->tokens * j->top_k);
}

/* --- Against what is expected --- */

enum { EXPERTS, RANKS, NODES, REACHED_RANKS, REACHED_NODES, COPIES, KINDS };

/* Over figures of all jobs: (mean - expected)^2 over its variance, variance over the expected, third moment less the expected over the
 * deviation cubed. */
typedef struct agreement {
    double squares, ratios, thirds, figures;
} agreement;

typedef struct sums {
    double sum, squares, cubes;
} sums;

static void add(sums *s, double off) { s->sum += off, s->squares += off * off, s->cubes += off * off * off; }

static void judge(agreement *a, const sums *s, double variance, double third) {
    if (!(variance > 4.0)) {
        CHECK(fabs(s->sum / PIECES) < 0.5 + 5.0 * sqrt(variance / PIECES));
        return;
    }
    CHECK(fabs(s->sum / PIECES) < 5.5 * sqrt(variance / PIECES));
    a->squares += s->sum * s->sum / PIECES / variance;
    a->ratios += s->squares / PIECES / variance;
    a->thirds += (s->cubes / PIECES - third) / (variance * sqrt(variance));
    a->figures += 1.0;
}

static void note(const job *j, const spw_block_law *law[3], const counts *c, const double *reach, sums *s) {
    const uint32_t *const reached[] = {c->rank, c->node};
    const size_t blocks[] = {j->experts, j->ranks, j->nodes};
    for (size_t kind = EXPERTS; kind <= NODES; kind++)
        for (size_t b = 0; b < blocks[kind]; b++) {
            const size_t of_block = j->experts / blocks[kind];
            double rows = 0.0;
            for (size_t x = 0; x < of_block; x++) rows += c->expert[b * of_block + x];
            add(&s[kind * MOST + b], rows - (double)j->tokens * law[kind][b].choices.mean);
        }
    for (size_t level = 0; level < 2; level++) {
        double copies = 0.0;
        for (size_t b = 0; b < blocks[level + 1]; b++) {
            copies += reached[level][b];
            add(&s[(REACHED_RANKS + level) * MOST + b],
                reached[level][b] - (double)j->tokens * law[level + 1][b].reached);
        }
        add(&s[COPIES * MOST + level], copies - (double)j->tokens * reach[level]);
    }
}

static void compare(const job *j, uint64_t seed, agreement *all) {
    spw_count_tree *tree = tree_of(j, seed);
    spw_count_normal *normal = NULL;
    spw_block_law law[3][MOST];
    const spw_block_law *laws[] = {law[0], law[1], law[2]};
    const size_t blocks[] = {j->experts, j->ranks, j->nodes};
    spw_moments reach[2];
    sums *s = calloc(KINDS * MOST, sizeof *s);
    counts c;
    CHECK_OK(spw_count_normal_create(tree, &normal));
    void *scratch = calloc(1, spw_count_normal_bytes(normal));
    for (size_t i = 0; i < 3; i++) CHECK_OK(spw_expected_blocks(tree, j->experts / blocks[i], law[i]));
    for (size_t i = 0; i < 2; i++) CHECK_OK(spw_expected_reach(tree, j->experts / blocks[i + 1], &reach[i]));
    CHECK(spw_count_normal_serves(normal, j->tokens));
    for (uint64_t p = 0; p < PIECES; p++) {
        draw_piece(j, normal, draw_normal, seed * PIECES + p, scratch, &c);
        check_possible(j, &c);
        note(j, laws, &c, (double[]){reach[0].mean, reach[1].mean}, s);
    }
    const double tokens = (double)j->tokens;
    for (size_t i = 0; i < 3; i++)
        for (size_t b = 0; b < blocks[i]; b++) {
            const double p = law[i][b].reached, variance = tokens * p * (1.0 - p);
            judge(&all[i], &s[i * MOST + b], tokens * law[i][b].choices.variance, tokens * law[i][b].third);
            if (i > 0)
                judge(&all[REACHED_RANKS + i - 1], &s[(i + 2) * MOST + b], variance,
                      variance * (1.0 - 2.0 * p));
        }
    for (size_t i = 0; i < 2; i++)
        judge(&all[COPIES], &s[COPIES * MOST + i], tokens * reach[i].variance, 0.0);
    free(s), free(scratch);
    spw_count_normal_destroy(normal);
    spw_count_tree_destroy(tree);
}

static void check_moments(void) {
    static const job jobs[] = {{"uniform:groups=8,kept=4", 256, 8, 64, 8, 4096},
                               {"reference:groups=4,kept=2", 64, 6, 16, 4, 2048},
                               {"reference", 64, 8, 8, 2, 2048},
                               {"uniform", 128, 4, 64, 8, 4096},
                               {"reference:exponent=0.5", 96, 8, 12, 3, 1024},
                               {"lognormal:sigma=0.4", 32, 4, 32, 4, 1024},
                               {"k-hot:hot=0.5,heat=0.3", 64, 4, 16, 4, 2048},
                               {"zipf:exponent=0.3", 60, 4, 10, 2, 4096},
                               {"uniform", 8, 2, 8, 1, 512},
                               {"dirichlet:alpha=20", 8, 1, 4, 2, 2048}};
    static const char *const names[] = {"experts",       "ranks",         "nodes",
                                        "reached ranks", "reached nodes", "copies"};
    static agreement all[KINDS];
    for (uint64_t i = 0; i < JOBS; i++) compare(&jobs[i % (sizeof jobs / sizeof *jobs)], i, all);
    for (size_t k = 0; k < KINDS; k++) {
        const agreement *a = &all[k];
        printf("%s: %.0f figures, mean square %.3f, variance %.4f, third %.4f\n", names[k], a->figures,
               a->squares / a->figures, a->ratios / a->figures, a->thirds / a->figures);
        CHECK(a->figures >= 120.0);
        CHECK(fabs(a->squares / a->figures - 1.0) < (a->figures > 1000.0 ? 0.1 : 0.35));
        CHECK(fabs(a->ratios / a->figures - 1.0) < (a->figures > 1000.0 ? 0.01 : 0.03));
        CHECK(k == COPIES || fabs(a->thirds / a->figures) < (a->figures > 1000.0 ? 0.02 : 0.06));
    }
}

/* --- Against exact draws --- */

/* Correlations of neighbours, as they are drawn: experts of a rank, ranks of a node, rows of a rank and the tokens that reach it, tokens that
 * reach two ranks, two nodes, a rank and its node. */
enum { PAIRS = 6, DRAWN = 6000 };

static void pair_of(const job *j, const counts *c, size_t pair, double *a, double *b) {
    const size_t of_rank = j->experts / j->ranks;
    double rows[2] = {0.0, 0.0};
    for (size_t x = 0; x < 2 * of_rank; x++) rows[x / of_rank] += c->expert[x];
    const double left[] = {c->expert[0], rows[0], rows[0], c->rank[0], c->node[0], c->rank[0]},
                 right[] = {c->expert[1], rows[1], c->rank[0], c->rank[1], c->node[1], c->node[0]};
    *a = left[pair];
    *b = right[pair];
}

static void correlate(const job *j, const void *law, draw_function *draw, size_t bytes, double out[PAIRS]) {
    double a[PAIRS] = {0}, b[PAIRS] = {0}, aa[PAIRS] = {0}, bb[PAIRS] = {0}, ab[PAIRS] = {0};
    void *scratch = calloc(1, bytes);
    counts c;
    for (uint64_t p = 0; p < DRAWN; p++) {
        draw_piece(j, law, draw, p, scratch, &c);
        for (size_t i = 0; i < PAIRS; i++) {
            double left = 0.0, right = 0.0;
            pair_of(j, &c, i, &left, &right);
            a[i] += left, b[i] += right, aa[i] += left * left, bb[i] += right * right, ab[i] += left * right;
        }
    }
    for (size_t i = 0; i < PAIRS; i++)
        out[i] = (ab[i] - a[i] * b[i] / DRAWN) /
                 sqrt((aa[i] - a[i] * a[i] / DRAWN) * (bb[i] - b[i] * b[i] / DRAWN));
    free(scratch);
}

static void check_pairs(void) {
    static const job jobs[] = {{"uniform:groups=8,kept=4", 256, 8, 64, 8, 4096},
                               {"reference", 64, 8, 16, 4, 1024},
                               {"reference:groups=4,kept=2", 64, 6, 16, 4, 2048}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        spw_count_tree *tree = tree_of(&jobs[i], i);
        spw_count_normal *normal = NULL;
        double exact[PAIRS], near[PAIRS];
        CHECK_OK(spw_count_normal_create(tree, &normal));
        correlate(&jobs[i], tree, draw_exact, spw_count_sample_bytes(tree), exact);
        correlate(&jobs[i], normal, draw_normal, spw_count_normal_bytes(normal), near);
        for (size_t p = 0; p < PAIRS; p++) {
            printf("%s, pair %zu: correlation %.3f, exact %.3f\n", jobs[i].text, p, near[p], exact[p]);
            CHECK(fabs(near[p] - exact[p]) < 0.07);
        }
        spw_count_normal_destroy(normal);
        spw_count_tree_destroy(tree);
    }
}

/* Every number as often as the binomial law says: the largest difference of the chances to be no larger. */
static double furthest(const size_t *seen, size_t tokens, double share, size_t draws) {
    double below = 0.0, most = 0.0;
    for (size_t k = 0; k <= tokens; k++) {
        below += (double)seen[k] / (double)draws;
        most = fmax(most, fabs(below - gsl_cdf_binomial_P((unsigned)k, share, (unsigned)tokens)));
    }
    return most;
}

static void check_shapes(void) {
    enum { FEWEST = 304 }; /* tokens that it serves */
    const job j = {"uniform:groups=8,kept=4", 256, 8, 64, 8, FEWEST};
    static size_t expert[FEWEST + 1], rank[FEWEST + 1], node[FEWEST + 1];
    spw_count_tree *tree = tree_of(&j, 1);
    spw_count_normal *normal = NULL;
    spw_block_law law[2][64];
    counts c;
    CHECK_OK(spw_count_normal_create(tree, &normal));
    CHECK_OK(spw_expected_blocks(tree, 4, law[0]));
    CHECK_OK(spw_expected_blocks(tree, 32, law[1]));
    void *scratch = calloc(1, spw_count_normal_bytes(normal));
    for (uint64_t p = 0; p < DRAWN; p++) {
        draw_piece(&j, normal, draw_normal, p, scratch, &c);
        for (size_t x = 0; x < 4; x++)
            expert[c.expert[x * 64 + 3]]++, rank[c.rank[16 * x]]++, node[c.node[2 * x]]++;
    }
    const double of[] = {furthest(expert, FEWEST, 8.0 / 256.0, 4 * DRAWN),
                         furthest(rank, FEWEST, law[0][0].reached, 4 * DRAWN),
                         furthest(node, FEWEST, law[1][0].reached, 4 * DRAWN)};
    printf("furthest from the binomial law: experts %.4f, ranks %.4f, nodes %.4f\n", of[0], of[1], of[2]);
    for (size_t i = 0; i < 3; i++) CHECK(of[i] < 0.015);
    free(scratch);
    spw_count_normal_destroy(normal);
    spw_count_tree_destroy(tree);
}

static void check_normal_numbers(void) {
    enum { NUMBERS = 200000 };
    spw_random_stream stream;
    double moment[4] = {0.0};
    size_t beyond = 0;
    spw_random_stream_init(&stream, 3, 0, 0, 0, 0);
    for (size_t i = 0; i < NUMBERS; i++) {
        const double z = spw_draw_normal(&stream);
        for (size_t k = 0; k < 4; k++) moment[k] += pow(z, (double)k + 1.0) / NUMBERS;
        beyond += fabs(z) > 3.0;
    }
    CHECK(fabs(moment[0]) < 0.01 && fabs(moment[1] - 1.0) < 0.015);
    CHECK(fabs(moment[2]) < 0.03 && fabs(moment[3] - 3.0) < 0.12);
    CHECK(fabs((double)beyond / NUMBERS - 0.0027) < 0.0005);
}

/* A law says when it serves; pieces of a trace are drawn by it then, and no split of the experts changes the choices of an expert. */
static void check_trace(void) {
    enum { TOKENS = 4096 };
    static counts wide, narrow, again;
    spw_generate_settings s = {.experts = 128,
                               .top_k = 8,
                               .layers = 2,
                               .steps = 1,
                               .ranks = 4,
                               .tokens_per_rank = TOKENS,
                               .seed = 9};
    spw_random_stream stream;
    spw_trace *trace = NULL;
    spw_trace_record law;
    const spw_count_tree *tree = NULL;
    spw_count_normal *normal = NULL;
    CHECK_OK(spw_distribution_parse("reference", &s.distribution));
    CHECK_OK(spw_trace_make(&s, &trace));
    CHECK_OK(spw_trace_read_law(trace, 0, 1, (spw_expert_blocks){8, 64}, &law));
    void *scratch = calloc(1, 1 << 20);
    CHECK(spw_piece_law_bytes(law.law) < 1 << 20);
    spw_piece_law_draw(law.law, scratch, &(uint64_t){TOKENS}, 1, TOKENS,
                       &(spw_token_counts){wide.expert, wide.rank, wide.node, 1});
    uint64_t choices = 0; /* another number of tokens, by the same scratch */
    spw_piece_law_draw(law.law, scratch, &(uint64_t){0}, 1, 2 * TOKENS,
                       &(spw_token_counts){again.expert, again.rank, again.node, 1});
    for (size_t x = 0; x < 128; x++) choices += again.expert[x];
    CHECK(choices == 2 * TOKENS * 8);
    CHECK_OK(spw_trace_read_tree(trace, 0, 1, &tree));
    CHECK_OK(spw_count_normal_create(tree, &normal));
    CHECK(spw_count_normal_serves(normal, TOKENS) && !spw_count_normal_serves(normal, 64));
    spw_count_normal_begin(scratch);                      /* the next law's */
    spw_random_stream_init(&stream, 9, 12, 0, 1, TOKENS); /* as made_trace.c does */
    spw_count_normal_sample(normal, &stream, 1, scratch, TOKENS,
                            &(spw_token_counts){again.expert, again.rank, again.node, 1});
    CHECK(memcmp(&wide, &again, sizeof wide) == 0);
    CHECK_OK(spw_trace_read_law(trace, 0, 1, (spw_expert_blocks){32, 128}, &law));
    spw_piece_law_begin(law.law, scratch);
    spw_piece_law_draw(law.law, scratch, &(uint64_t){TOKENS}, 1, TOKENS,
                       &(spw_token_counts){narrow.expert, narrow.rank, narrow.node, 1});
    CHECK(memcmp(wide.expert, narrow.expert, sizeof wide.expert) == 0);
    CHECK(narrow.node[0] == TOKENS);
    free(scratch);
    spw_count_normal_destroy(normal);
    spw_trace_close(trace);
}

/* Side by side, in whole groups and in what is left of one, pieces are drawn as alone, of whatever was drawn before. */
static void check_side_by_side(void) {
    enum { AT_ONCE = 2 * SPW_COUNT_NORMAL_LANES + 3 };
    static counts together[AT_ONCE], alone;
    const job j = {"reference:groups=8,kept=4", 256, 8, 64, 8, 4096};
    spw_count_tree *tree = tree_of(&j, 1);
    spw_count_normal *normal = NULL;
    CHECK_OK(spw_count_normal_create(tree, &normal));
    void *scratch = malloc(spw_count_normal_bytes(normal)), *other = malloc(spw_count_normal_bytes(normal));
    spw_count_normal_begin(scratch), spw_count_normal_begin(other);
    for (size_t pieces = 1; pieces <= AT_ONCE; pieces++) {
        spw_random_stream stream[AT_ONCE];
        spw_token_counts out[AT_ONCE];
        for (size_t i = 0; i < pieces; i++) {
            spw_random_stream_init(&stream[i], 5, i, 0, 0, pieces);
            out[i] = (spw_token_counts){together[i].expert, together[i].rank, together[i].node, 1};
        }
        spw_count_normal_sample(normal, stream, pieces, scratch, j.tokens, out);
        for (size_t i = 0; i < pieces; i++) {
            spw_random_stream one;
            spw_random_stream_init(&one, 5, i, 0, 0, pieces);
            draw_normal(normal, &one, other, j.tokens,
                        &(spw_token_counts){alone.expert, alone.rank, alone.node, 1});
            check_possible(&j, &together[i]);
            CHECK(memcmp(&together[i], &alone, sizeof alone) == 0 && stream[i].state == one.state);
        }
    }
    free(scratch), free(other);
    spw_count_normal_destroy(normal);
    spw_count_tree_destroy(tree);
}

static void compare_trees(const spw_count_tree *even, const spw_count_tree *uneven) {
    CHECK(even->even && !uneven->even);
    CHECK(even->nodes == uneven->nodes && even->states == uneven->states && even->options == uneven->options);
    for (size_t i = 0; i < even->states && even->states == uneven->states; i++)
        CHECK(fabs(even->share[i] - uneven->share[i]) < 1e-9 && even->first[i] == uneven->first[i]);
    CHECK(even->first[even->states] == even->options);
    for (size_t i = 0; i < even->options && even->options == uneven->options; i++) {
        const spw_count_option *a = &even->option[i], *b = &uneven->option[i];
        CHECK(fabs(a->share - b->share) < 1e-9 && a->left == b->left && a->right == b->right);
    }
}

static void compare_draws(const job *j, const spw_count_tree *even, const spw_count_tree *uneven) {
    const spw_count_tree *tree[2] = {even, uneven};
    counts drawn[2];
    memset(drawn, 0, sizeof drawn);
    for (size_t i = 0; i < 2; i++) {
        spw_count_normal *normal = NULL;
        CHECK_OK(spw_count_normal_create(tree[i], &normal));
        CHECK(spw_count_normal_serves(normal, j->tokens));
        void *scratch = calloc(1, spw_count_normal_bytes(normal));
        spw_count_normal_begin(scratch);
        draw_piece(j, normal, draw_normal, 3, scratch, &drawn[i]);
        free(scratch);
        spw_count_normal_destroy(normal);
    }
    check_possible(j, &drawn[0]);
    CHECK(memcmp(&drawn[0], &drawn[1], sizeof drawn[0]) == 0);
}

/* Where all experts are asked for as often, one half of a run stands for the other: a tree that is made so is that of experts one of
 * which is asked for a little more often, for which nothing stands for anything else. */
static void check_even(void) {
    static const struct {
        job job;
        size_t groups, kept;
    } jobs[] = {{{"", 96, 4, 16, 2, 4096}, 0, 0},
                {{"", 60, 5, 12, 4, 4096}, 0, 0},
                {{"", 128, 8, 32, 4, 4096}, 4, 2},
                {{"", 72, 6, 12, 4, 4096}, 12, 5}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        const job *j = &jobs[i].job;
        double inclusion[MOST], kept[MOST];
        const size_t groups = jobs[i].groups;
        spw_count_law law = {.experts = j->experts,
                             .top_k = j->top_k,
                             .inclusion = inclusion,
                             .groups = groups,
                             .kept = jobs[i].kept,
                             .group_inclusion = groups > 0 ? kept : NULL,
                             .rank_experts = j->experts / j->ranks,
                             .node_experts = j->experts / j->nodes};
        spw_count_tree *tree[2] = {NULL, NULL};
        const double of_group = groups > 0 ? (double)jobs[i].kept / (double)groups : 1.0;
        for (size_t x = 0; x < j->experts; x++)
            inclusion[x] = (double)j->top_k / ((double)j->experts * of_group);
        for (size_t g = 0; g < groups; g++) kept[g] = of_group;
        for (size_t t = 0; t < 2; t++) {
            CHECK_OK(spw_count_tree_create(&law, &tree[t]));
            inclusion[j->experts - 1] *= 1.0 + 1e-12;
        }
        compare_trees(tree[0], tree[1]);
        compare_draws(j, tree[0], tree[1]);
        for (size_t t = 0; t < 2; t++) spw_count_tree_destroy(tree[t]);
    }
}

int main(void) {
    check_even();
    check_normal_numbers();
    check_side_by_side();
    check_trace();
    check_moments();
    check_pairs();
    check_shapes();
    return check_done();
}
