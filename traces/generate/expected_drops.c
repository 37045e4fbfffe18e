#include "traces/generate/expected_drops.h"

#include "base/memory.h"

#include <gsl/gsl_randist.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const double ALIKE = 1e-9, NOTHING = 1e-18;

/* --- One expert --- */

/* What one expert drops: moments, and the coefficients [1, terms] of the polynomials. */
typedef struct excess {
    spw_moments moments;
    double term[SPW_DROP_TERMS + 1];
} excess;

/* The orthonormal polynomials of the binomial law (Krawtchouk's):
 *   x k[n] = up[n + 1] k[n + 1] + middle[n] k[n] + up[n] k[n - 1] */
typedef struct polynomials {
    size_t terms;
    double middle[SPW_DROP_TERMS + 1], up[SPW_DROP_TERMS + 1];
} polynomials;

static polynomials polynomials_of(size_t trials, double share, size_t terms) {
    polynomials p = {.terms = terms < trials ? terms : trials};
    for (size_t i = 0; i <= p.terms; i++) {
        const double n = (double)i, left = (double)(trials - i);
        p.middle[i] = share * left + n * (1.0 - share);
        p.up[i] = sqrt(n * (left + 1.0) * share * (1.0 - share));
    }
    return p;
}

/* sum[n] += weight k[n](x) */
static void add_point(const polynomials *p, double x, double weight, double *sum) {
    double before = 0.0, here = 1.0;
    for (size_t n = 0;; n++) {
        sum[n] += weight * here;
        if (n == p->terms) return;
        const double next = ((x - p->middle[n]) * here - p->up[n] * before) / p->up[n + 1];
        before = here, here = next;
    }
}

/* Sums over one tail, away from the mean, of the distance to the capacity: by polynomials [terms + 1], and its square. */
static double sum_tail(const polynomials *p, size_t trials, double share, size_t capacity, bool above,
                       double *sum) {
    const double odds = share / (1.0 - share), last = above ? (double)trials : 0.0, c = (double)capacity;
    double square = 0.0, b = above ? c + 1.0 : c - 1.0;
    if (above ? b > last : b < last) return 0.0;
    double weight = gsl_ran_binomial_pdf((unsigned)b, share, (unsigned)trials);
    while (weight > 0.0) {
        const double over = fabs(b - c), here = weight * over * over;
        add_point(p, b, weight * over, sum);
        square += here;
        if (b == last || here < NOTHING * square) break;
        weight *= above ? ((double)trials - b) / (b + 1.0) * odds : b / ((double)trials - b + 1.0) / odds;
        b += above ? 1.0 : -1.0;
    }
    return square;
}

static excess excess_of(size_t trials, double share, size_t capacity, size_t terms) {
    const double mean = (double)trials * share, variance = mean * (1.0 - share), c = (double)capacity;
    excess e = {.moments = {0.0, 0.0}};
    if (share >= 1.0) e.moments.mean = fmax(0.0, (double)trials - c);
    if (!(share > 0.0) || share >= 1.0 || capacity >= trials) return e;
    const polynomials p = polynomials_of(trials, share, terms);
    const bool above = c + 1.0 > mean;
    const double square = sum_tail(&p, trials, share, capacity, above, e.term);
    e.moments = (spw_moments){e.term[0], square - e.term[0] * e.term[0]};
    if (above) return e;
    /* max(0, b - c) = b - c + max(0, c - b), of which b - c has the coefficients mean - c and its deviation */
    e.moments.variance += variance + 2.0 * sqrt(variance) * e.term[1];
    e.moments.mean += mean - c;
    e.term[1] += sqrt(variance);
    return e;
}

spw_moments spw_binomial_excess(size_t trials, double share, size_t capacity) {
    return excess_of(trials, share, capacity, 1).moments;
}

/* --- Two experts --- */

static double covariance_of(const excess *a, const excess *b, double correlation) {
    double power = 1.0, sum = 0.0;
    for (size_t n = 1; n <= SPW_DROP_TERMS; n++) {
        power *= correlation;
        sum += power * a->term[n] * b->term[n];
        if (fabs(power) < 1e-12) break;
    }
    return sum;
}

/* Goes up the tree with the probability of every expert, given the state of a node above it. */
typedef struct climb {
    const spw_count_tree *tree;
    const double *share; /* [experts] */
    const excess *drop;  /* [experts] */
    double *given;       /* [experts][widest] of the node at work */
    double *meets;       /* [widest][widest] how often the states of its halves meet */
    double *met;         /* [widest] */
    double covariance;
} climb;

/* Of one expert on the left and those on the right. */
static void add_pairs(climb *c, const spw_count_node *n, size_t x) {
    const spw_count_tree *t = c->tree;
    const size_t lefts = spw_count_states(&t->node[n->left]), rights = spw_count_states(&t->node[n->right]);
    const double *of_x = c->given + x * t->widest, p = c->share[x];
    memset(c->met, 0, rights * sizeof *c->met);
    for (size_t l = 0; l < lefts; l++)
        for (size_t r = 0; r < rights; r++) c->met[r] += of_x[l] * c->meets[l * t->widest + r];
    for (size_t y = t->node[n->right].low; y < t->node[n->right].high; y++) {
        const double *of_y = c->given + y * t->widest, q = c->share[y];
        double both = 0.0;
        if (!(c->drop[y].moments.variance > 0.0)) continue;
        for (size_t r = 0; r < rights; r++) both += c->met[r] * of_y[r];
        c->covariance +=
            covariance_of(&c->drop[x], &c->drop[y], (both - p * q) / sqrt(p * (1.0 - p) * q * (1.0 - q)));
    }
}

/* given of the halves' experts from the states of the halves to those of the node. */
static void lift(climb *c, const spw_count_node *n, size_t x, bool on_left, double *room) {
    const spw_count_tree *t = c->tree;
    double *of_x = c->given + x * t->widest;
    for (size_t s = 0; s < spw_count_states(n); s++) {
        const size_t *first = t->first + n->state + s;
        double rest = 1.0;
        room[s] = 0.0;
        for (size_t i = first[0]; i < first[1]; i++) {
            const double share = rest * t->option[i].share;
            rest -= share;
            room[s] += share * of_x[on_left ? t->option[i].left : t->option[i].right];
        }
    }
    memcpy(of_x, room, spw_count_states(n) * sizeof *of_x);
}

static void meet(climb *c, const spw_count_node *n) {
    const spw_count_tree *t = c->tree;
    memset(c->meets, 0, t->widest * t->widest * sizeof *c->meets);
    for (size_t s = 0; s < spw_count_states(n); s++) {
        const size_t *first = t->first + n->state + s;
        double rest = t->share[n->state + s];
        for (size_t i = first[0]; i < first[1]; i++) {
            const double share = rest * t->option[i].share;
            rest -= share;
            c->meets[t->option[i].left * t->widest + t->option[i].right] += share;
        }
    }
}

static void climb_node(climb *c, const spw_count_node *n) {
    const spw_count_tree *t = c->tree;
    if (n->left == 0) {
        c->given[n->low * t->widest] = 0.0;
        c->given[n->low * t->widest + 1] = 1.0;
        return;
    }
    for (size_t x = n->low; x < n->high && n->right == 0; x++) { /* a group: none, or as inside */
        double *of_x = c->given + x * t->widest;
        memmove(of_x + n->choices + 1, of_x, (n->choices + 1) * sizeof *of_x);
        memset(of_x, 0, (n->choices + 1) * sizeof *of_x);
    }
    if (n->right == 0) return;
    const size_t middle = t->node[n->right].low;
    meet(c, n);
    for (size_t x = n->low; x < middle; x++)
        if (c->drop[x].moments.variance > 0.0) add_pairs(c, n, x);
    for (size_t x = n->low; x < n->high; x++)
        if (c->drop[x].moments.variance > 0.0) lift(c, n, x, x < middle, c->met);
}

static spw_status add_all_pairs(const spw_count_tree *t, const double *share, const excess *drop,
                                double *covariance) {
    climb c = {.tree = t, .share = share, .drop = drop};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(t->experts * t->widest, &c.given));
    SPW_TRY(SPW_ALLOC(t->widest * t->widest, &c.meets));
    SPW_TRY(SPW_ALLOC(t->widest, &c.met));
    for (size_t i = t->nodes; i > 0; i--) climb_node(&c, &t->node[i - 1]); /* halves stand behind their run */
    *covariance += c.covariance;

cleanup:
    spw_free(c.given);
    spw_free(c.meets);
    spw_free(c.met);
    return status;
}

/* --- Many experts --- */

/* Experts in equal groups, or all in one: the correlation of two is `factor` sqrt(v w), v and w their variances in a token. */
typedef struct bonds {
    size_t groups, size;
    double *inside; /* [groups] factor of two of the same group */
    double apart;   /* of others */
    double most;    /* no correlation is above */
} bonds;

static double variance_of(double share) { return share * (1.0 - share); }

/* By the variance of a group's choices, and as that of all choices is 0. */
static spw_status bonds_of(const spw_count_tree *t, const double *share, bonds *out) {
    spw_block_law *law = NULL;
    double all = 0.0, squares = 0.0, own = 0.0;
    spw_status status = SPW_OK;
    *out = (bonds){.groups = 1, .size = t->experts};
    for (size_t i = 0; i < t->nodes && out->groups == 1; i++)
        if (t->node[i].left != 0 && t->node[i].right == 0) out->size = t->node[i].high - t->node[i].low;
    out->groups = t->experts / out->size;
    SPW_TRY(SPW_ALLOC(out->groups, &out->inside));
    SPW_TRY(SPW_ALLOC(out->groups, &law));
    SPW_TRY(spw_expected_blocks(t, out->size, law));
    for (size_t g = 0; g < out->groups; g++) {
        double sum = 0.0, square = 0.0, most = 0.0;
        for (size_t x = g * out->size; x < (g + 1) * out->size; x++) {
            const double v = variance_of(share[x]);
            sum += v, square += v * v, most = fmax(most, v);
        }
        const double pairs = sum * sum - square;
        out->inside[g] = pairs > 0.0 ? (law[g].choices.variance - sum) / pairs : 0.0;
        out->most = fmax(out->most, fabs(out->inside[g]) * most);
        all += sum, squares += sum * sum, own += law[g].choices.variance;
    }
    if (all * all > squares && out->groups > 1) out->apart = -own / (all * all - squares);

cleanup:
    spw_free(law);
    return status;
}

/* Twice the sum over pairs of what the polynomials from the second on give. */
static double add_bonds(const bonds *b, const double *share, const excess *drop, size_t terms) {
    double sum = 0.0;
    for (size_t n = 2; n <= terms; n++) {
        const double apart = pow(b->apart, (double)n);
        double all = 0.0;
        for (size_t g = 0; g < b->groups; g++) {
            double part = 0.0, squares = 0.0;
            for (size_t x = g * b->size; x < (g + 1) * b->size; x++) {
                if (!(drop[x].moments.variance > 0.0)) continue;
                const double each = pow(variance_of(share[x]), 0.5 * (double)n) * drop[x].term[n];
                part += each, squares += each * each;
            }
            sum += pow(b->inside[g], (double)n) * (part * part - squares) - apart * part * part;
            all += part;
        }
        sum += apart * all * all;
    }
    return sum;
}

/* Twice the sum over pairs of the first: the variance of a sum that is a token's, without its own terms. */
static spw_status add_first(const spw_count_tree *t, const double *share, const excess *drop, double *sum) {
    double *value = NULL;
    spw_moments of_token = {0.0, 0.0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(t->experts, &value));
    for (size_t x = 0; x < t->experts; x++)
        if (drop[x].moments.variance > 0.0) value[x] = drop[x].term[1] / sqrt(variance_of(share[x]));
    SPW_TRY(spw_expected_sum(t, value, &of_token));
    *sum += of_token.variance;
    for (size_t x = 0; x < t->experts; x++)
        if (drop[x].moments.variance > 0.0) *sum -= drop[x].term[1] * drop[x].term[1];

cleanup:
    spw_free(value);
    return status;
}

/* As many as matter. */
static size_t terms_of(const bonds *b) {
    const double most = fmin(b->most, 0.999);
    const double terms = most > 0.0 ? ceil(log(1e-7) / log(most)) : 0.0;
    return (size_t)fmin(fmax(terms, 2.0), (double)SPW_DROP_TERMS);
}

/* --- All --- */

typedef struct load {
    double share;
    size_t expert;
} load;

static int by_share(const void *left, const void *right) {
    const load *a = left, *b = right;
    return (a->share > b->share) - (a->share < b->share);
}

/* Equal ones once; order [experts], sorted. */
static void drop_all(const load *order, size_t experts, size_t tokens, size_t capacity, size_t terms,
                     excess *drop) {
    const load *last = order;
    for (size_t i = 0; i < experts; i++) {
        const bool again = i > 0 && order[i].share - last->share <= ALIKE * order[i].share;
        drop[order[i].expert] =
            again ? drop[last->expert] : excess_of(tokens, order[i].share, capacity, terms);
        if (!again) last = &order[i];
    }
}

/* Every expert, and every two of them, are chosen as often as any other. */
static spw_moments all_alike(const spw_count_tree *t, double share, size_t tokens, size_t capacity) {
    const excess one = excess_of(tokens, share, capacity, SPW_DROP_TERMS);
    const double experts = (double)t->experts,
                 pair = experts > 1.0 ? covariance_of(&one, &one, -1.0 / (experts - 1.0)) : 0.0;
    return (spw_moments){experts * one.moments.mean,
                         experts * (one.moments.variance + (experts - 1.0) * pair)};
}

/* share [experts], and order by it. */
static spw_status sort(const spw_count_tree *t, double *share, load *order) {
    spw_block_law *law = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(t->experts, &law));
    SPW_TRY(spw_expected_blocks(t, 1, law));
    for (size_t x = 0; x < t->experts; x++) {
        share[x] = law[x].reached;
        order[x] = (load){share[x], x};
    }
    qsort(order, t->experts, sizeof *order, by_share);

cleanup:
    spw_free(law);
    return status;
}

static spw_status drops_of(const spw_count_tree *t, size_t tokens, size_t capacity, bool paired,
                           spw_moments *out) {
    double *share = NULL, covariance = 0.0; /* twice, over all pairs */
    excess *drop = NULL;
    load *order = NULL;
    bonds b = {.groups = 0};
    spw_status status = SPW_OK;
    *out = (spw_moments){0.0, 0.0};
    SPW_TRY(SPW_ALLOC(t->experts, &share));
    SPW_TRY(SPW_ALLOC(t->experts, &order));
    SPW_TRY(SPW_ALLOC(t->experts, &drop));
    SPW_TRY(sort(t, share, order));
    if (t->node[0].groups == 0 && order[t->experts - 1].share - order[0].share <= ALIKE * order[0].share) {
        *out = all_alike(t, share[0], tokens, capacity);
        goto cleanup;
    }
    if (!paired) SPW_TRY(bonds_of(t, share, &b));
    const size_t terms = paired ? SPW_DROP_TERMS : terms_of(&b);
    drop_all(order, t->experts, tokens, capacity, terms, drop);
    if (paired) {
        SPW_TRY(add_all_pairs(t, share, drop, &covariance));
        covariance *= 2.0;
    } else {
        SPW_TRY(add_first(t, share, drop, &covariance));
        covariance += add_bonds(&b, share, drop, terms);
    }
    for (size_t x = 0; x < t->experts; x++) {
        out->mean += drop[x].moments.mean;
        out->variance += drop[x].moments.variance;
    }
    out->variance = fmax(0.0, out->variance + covariance);

cleanup:
    spw_free(share);
    spw_free(order);
    spw_free(drop);
    spw_free(b.inside);
    return status;
}

spw_status spw_expected_drops(const spw_count_tree *t, size_t tokens, size_t capacity, spw_moments *out) {
    return drops_of(t, tokens, capacity, t->experts <= SPW_DROP_PAIRED, out);
}

spw_status spw_expected_drops_by_pairs(const spw_count_tree *t, size_t tokens, size_t capacity,
                                       spw_moments *out) {
    return drops_of(t, tokens, capacity, true, out);
}
