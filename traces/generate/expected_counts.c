#include "traces/generate/expected_counts.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>

/* --- Blocks --- */

/* A token in a state of a node, and what is counted of it there: the probability of none, and means of the number and its powers. */
typedef struct part {
    double none, mean, square, cube;
} part;

/* Which number is counted: choices in [low, high), blocks of `block` experts that are reached, or values of the chosen experts. */
typedef struct walk {
    const spw_count_tree *tree;
    size_t low, high, block; /* block 0: choices */
    const double *value;     /* NULL: not these */
    bool cut;                /* a block is no node */
    part *part;              /* [states] */
} walk;

static part certain(double count) {
    return (part){count > 0.0 ? 0.0 : 1.0, count, count * count, count * count * count};
}

/* Of a state of a node from its halves; unreached states have no options. */
static part join(const walk *w, const spw_count_node *n, size_t s) {
    const spw_count_tree *t = w->tree;
    const size_t *first = t->first + n->state + s;
    const part *left = w->part + t->node[n->left].state, *right = w->part + t->node[n->right].state;
    part sum = {0.0, 0.0, 0.0, 0.0};
    double rest = 1.0;
    for (size_t i = first[0]; i < first[1]; i++) {
        const spw_count_option *o = &t->option[i];
        const part *l = &left[o->left], *r = &right[o->right];
        const double share = rest * o->share;
        rest -= share;
        sum.none += share * l->none * r->none;
        sum.mean += share * (l->mean + r->mean);
        sum.square += share * (l->square + 2.0 * l->mean * r->mean + r->square);
        sum.cube += share * (l->cube + 3.0 * (l->square * r->mean + l->mean * r->square) + r->cube);
    }
    return sum;
}

/* Is the count known of a node in every state? Then *out [states] has it. */
static bool known(walk *w, const spw_count_node *n, part *out) {
    const size_t size = n->high - n->low, states = spw_count_states(n);
    const bool outside = w->block == 0 && (n->high <= w->low || n->low >= w->high),
               inside = w->block == 0 && n->low >= w->low && n->high <= w->high;
    if (w->value != NULL) {
        if (n->left != 0) return false;
        out[0] = certain(0.0), out[1] = certain(w->value[n->low]);
        return true;
    }
    if (!outside && !inside && (w->block == 0 || size > w->block)) return false;
    w->cut = w->cut || (w->block > 0 && size < w->block);
    for (size_t s = 0; s < states; s++) {
        const double choices = (double)(s % (n->choices + 1));
        out[s] = certain(outside ? 0.0 : inside ? choices : fmin(choices, 1.0));
    }
    return true;
}

static void describe(walk *w, size_t at) {
    const spw_count_node *n = &w->tree->node[at];
    part *out = w->part + n->state;
    if (known(w, n, out)) return;
    describe(w, n->left);
    if (n->right == 0) { /* a group: not kept, or its experts */
        const part *inside = w->part + w->tree->node[n->left].state;
        for (size_t s = 0; s < spw_count_states(n); s++)
            out[s] = s > n->choices ? inside[s - n->choices - 1] : certain(0.0);
        return;
    }
    describe(w, n->right);
    for (size_t s = 0; s < spw_count_states(n); s++) out[s] = join(w, n, s);
}

/* Of a token: all are in the last state of the root. */
static part of_token(walk *w) {
    describe(w, 0);
    return w->part[w->tree->node[0].state + spw_count_states(&w->tree->node[0]) - 1];
}

static spw_moments moments_of(const part *p) {
    return (spw_moments){p->mean, fmax(0.0, p->square - p->mean * p->mean)};
}

static spw_block_law law_of(const part *p) {
    const double m = p->mean;
    return (spw_block_law){fmax(0.0, 1.0 - p->none), moments_of(p),
                           p->cube - 3.0 * m * p->square + 2.0 * m * m * m};
}

/* From the shares of the states. */
static spw_block_law law_of_node(const spw_count_tree *t, const spw_count_node *n) {
    part sum = {0.0, 0.0, 0.0, 0.0};
    double reached = 0.0;
    for (size_t s = 0; s < spw_count_states(n); s++) {
        const double choices = (double)(s % (n->choices + 1)), share = t->share[n->state + s];
        reached += choices > 0.0 ? share : 0.0;
        sum.mean += share * choices;
        sum.square += share * choices * choices;
        sum.cube += share * choices * choices * choices;
    }
    spw_block_law law = law_of(&sum);
    law.reached = fmin(1.0, reached); /* small ones to rounding */
    return law;
}

spw_status spw_expected_blocks(const spw_count_tree *t, size_t block, spw_block_law *out) {
    const size_t blocks = t->experts / block;
    walk w = {.tree = t};
    spw_status status = SPW_OK;
    size_t found = 0;
    for (size_t b = 0; b < blocks; b++) out[b].reached = -1.0;
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->high - n->low != block || n->low % block != 0 || out[n->low / block].reached >= 0.0) continue;
        out[n->low / block] = law_of_node(t, n);
        found++;
    }
    if (found == blocks) return SPW_OK;
    SPW_TRY(SPW_ALLOC(t->states, &w.part));
    for (size_t b = 0; b < blocks; b++) {
        if (out[b].reached >= 0.0) continue;
        w.low = b * block, w.high = w.low + block;
        const part p = of_token(&w);
        out[b] = law_of(&p);
    }

cleanup:
    spw_free(w.part);
    return status;
}

spw_moments spw_expected_rows(const spw_block_law *law, double tokens) {
    return (spw_moments){tokens * law->choices.mean, tokens * law->choices.variance};
}

spw_moments spw_expected_copies(const spw_block_law *law, double tokens) {
    return (spw_moments){tokens * law->reached, tokens * law->reached * (1.0 - law->reached)};
}

spw_status spw_expected_reach(const spw_count_tree *t, size_t block, spw_moments *out) {
    const size_t blocks = t->experts / block;
    walk w = {.tree = t, .block = block};
    spw_block_law *law = NULL;
    spw_status status = SPW_OK;
    *out = (spw_moments){0.0, NAN};
    SPW_TRY(SPW_ALLOC(t->states, &w.part));
    const part p = of_token(&w);
    if (!w.cut) {
        *out = moments_of(&p);
        goto cleanup;
    }
    SPW_TRY(SPW_ALLOC(blocks, &law));
    SPW_TRY(spw_expected_blocks(t, block, law));
    for (size_t b = 0; b < blocks; b++) out->mean += law[b].reached;

cleanup:
    spw_free(w.part);
    spw_free(law);
    return status;
}

spw_status spw_expected_sum(const spw_count_tree *t, const double *value, spw_moments *out) {
    walk w = {.tree = t, .value = value};
    const spw_status status = SPW_ALLOC(t->states, &w.part);
    if (status != SPW_OK) return status;
    const part p = of_token(&w);
    *out = moments_of(&p);
    spw_free(w.part);
    return SPW_OK;
}

/* --- The fullest --- */

enum { POINTS = 32 };
static const double FAR = 8.0; /* standard deviations */

/* Of a number with this skewness and z standard deviations above its mean: the probability to be below. */
static double below(double z, double skewness) {
    if (z > FAR) return 1.0;
    if (fabs(skewness) > 1e-6) {
        const double base = 1.0 + 0.5 * skewness * z;
        if (base <= 0.0) return skewness > 0.0 ? 0.0 : 1.0;
        z = 6.0 / skewness * (cbrt(base) - 1.0) + skewness / 6.0;
    }
    return 0.5 * erfc(-z * M_SQRT1_2);
}

double spw_expected_fullest(const spw_block_law *law, size_t blocks, double tokens) {
    double together = 0.0, low = -INFINITY, high = -INFINITY, sum = 0.0;
    for (size_t b = 0; b < blocks; b++) together += law[b].choices.variance;
    if (blocks > 1) together /= (double)blocks * ((double)blocks - 1.0);
    for (size_t b = 0; b < blocks; b++) {
        const double mean = tokens * law[b].choices.mean,
                     spread = sqrt(tokens * (law[b].choices.variance + together));
        low = fmax(low, mean - FAR * spread); /* the largest is above every one of them */
        high = fmax(high, mean + FAR * spread);
    }
    const double width = (high - low) / POINTS;
    if (!(width > 0.0)) return high;
    for (size_t i = 0; i < POINTS; i++) { /* mean = high - integral of the probability to be below */
        const double at = low + ((double)i + 0.5) * width;
        double all = 1.0;
        for (size_t b = 0; b < blocks && all > 1e-15; b++) {
            const double spread = sqrt(tokens * (law[b].choices.variance + together));
            all *= below((at - tokens * law[b].choices.mean) / spread,
                         tokens * law[b].third / (spread * spread * spread));
        }
        sum += all;
    }
    return high - sum * width;
}
