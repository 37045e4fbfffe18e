#include "traces/generate/count_tree.h"

#include "base/memory.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_TOP_K = 32, MOST_STATES = 256, MOST_ROUNDS = 60 };
static const double CLOSE = 1e-8;

/* A tree that is being made: its weights, and the polynomials that they give. */
typedef struct maker {
    const spw_count_law *law;
    spw_count_tree *tree;
    size_t size[3], sizes; /* of blocks, falling; each divides the one before */
    size_t group_size;     /* 0: no groups */
    double limit;          /* of a logarithm of odds */
    double *log_want,
        *log_weight; /* [experts + groups] logarithms of odds that are asked for, and of weights */
    double *room;    /* [experts + groups] */
    double *value;   /* [states] coefficients, up to a factor for each node */
} maker;

/* --- Shape --- */

static bool lie_in_each_other(maker *m) {
    const spw_count_law *law = m->law;
    const size_t all[3] = {m->group_size, law->node_experts, law->rank_experts};
    for (size_t i = 0; i < 3; i++) {
        size_t at = m->sizes;
        if (all[i] == 0 || law->experts % all[i] != 0) {
            if (i == 0 && all[i] == 0) continue;
            return false;
        }
        for (; at > 0 && m->size[at - 1] < all[i]; at--) m->size[at] = m->size[at - 1];
        m->size[at] = all[i];
        m->sizes++;
    }
    for (size_t i = 1; i < m->sizes; i++)
        if (m->size[i - 1] % m->size[i] != 0) return false;
    return true;
}

/* Where a run is split: in the middle of the largest blocks in it. */
static size_t middle(const maker *m, size_t experts) {
    size_t block = 1;
    for (size_t i = m->sizes; i > 0; i--)
        if (m->size[i - 1] < experts) block = m->size[i - 1];
    return (experts / block + 1) / 2 * block;
}

static size_t block_of(size_t low, size_t count, size_t size) {
    return count == size ? low / size : SIZE_MAX;
}

/* Appends the run and all below it; returns its place. */
static size_t grow(maker *m, size_t low, size_t high, bool inside, size_t depth) {
    spw_count_tree *t = m->tree;
    const size_t at = t->nodes++, count = high - low, size = m->group_size;
    spw_count_node *n = &t->node[at];
    const bool gate = !inside && size == count;
    const size_t groups = inside ? 0 : count / size;
    *n = (spw_count_node){.low = low,
                          .high = high,
                          .groups = groups < m->law->kept ? groups : m->law->kept,
                          .choices = count < t->top_k ? count : t->top_k,
                          .state = t->states,
                          .rank = block_of(low, count, m->law->rank_experts),
                          .node = block_of(low, count, m->law->node_experts)};
    if (inside) n->groups = 0;
    t->states += spw_count_states(n);
    if (spw_count_states(n) > t->widest) t->widest = spw_count_states(n);
    if (depth + 1 > t->deepest) t->deepest = depth + 1;
    if (gate) {
        n->left = grow(m, low, high, true, depth + 1);
    } else if (count > 1) {
        const size_t half = low + middle(m, count);
        n->left = grow(m, low, half, inside, depth + 1);
        n->right = grow(m, half, high, inside, depth + 1);
    }
    return at;
}

/* --- Weights --- */

static double log_odds(const maker *m, double p) {
    const double odds = p <= 0.0 ? -m->limit : p >= 1.0 ? m->limit : log(p) - log1p(-p);
    return fmin(m->limit, fmax(-m->limit, odds));
}

/* value of a run from those of its halves, the largest 1. */
static void multiply(const maker *m, const spw_count_node *n) {
    const spw_count_node *l = &m->tree->node[n->left], *r = &m->tree->node[n->right];
    double *out = m->value + n->state, most = 0.0;
    const double *left = m->value + l->state, *right = m->value + r->state;
    memset(out, 0, spw_count_states(n) * sizeof *out);
    for (size_t gl = 0; gl <= l->groups; gl++)
        for (size_t jl = 0; jl <= l->choices; jl++) {
            const double of_left = left[gl * (l->choices + 1) + jl];
            for (size_t gr = 0; gr <= r->groups && gl + gr <= n->groups; gr++) {
                double *into = out + (gl + gr) * (n->choices + 1) + jl;
                const double *of_right = right + gr * (r->choices + 1);
                const size_t room = n->choices - jl, end = r->choices < room ? r->choices : room;
                for (size_t jr = 0; jr <= end; jr++) into[jr] += of_left * of_right[jr];
            }
        }
    for (size_t s = 0; s < spw_count_states(n); s++) most = out[s] > most ? out[s] : most;
    for (size_t s = 0; s < spw_count_states(n) && most > 0.0; s++) out[s] /= most;
}

/* All that stands for the left half of a run, for the right one, which is alike; `each` [states]. */
static void repeat_left(const spw_count_tree *t, const spw_count_node *n, double *each) {
    const size_t left = t->node[n->left].state, right = t->node[n->right].state;
    memcpy(each + right, each + left, (right - left) * sizeof *each);
}

/* A group that is kept, from its experts. */
static void evaluate_group(const maker *m, const spw_count_node *n) {
    const double weight = m->log_weight[m->law->experts + n->low / m->group_size],
                 *inside = m->value + m->tree->node[n->left].state;
    double *out = m->value + n->state;
    memset(out, 0, (n->choices + 1) * sizeof *out);
    out[0] = exp(-fmax(weight, 0.0));
    for (size_t j = 0; j <= n->choices; j++) out[n->choices + 1 + j] = exp(fmin(weight, 0.0)) * inside[j];
}

/* A run, behind its halves. */
static void evaluate(const maker *m, const spw_count_node *n) {
    const spw_count_tree *t = m->tree;
    double *out = m->value + n->state;
    if (n->left == 0) { /* the larger of the two is 1 */
        const double weight = m->log_weight[n->low];
        out[0] = weight > 0.0 ? exp(-weight) : 1.0;
        out[1] = weight > 0.0 ? 1.0 : exp(weight);
        return;
    }
    evaluate(m, &t->node[n->left]);
    if (n->right == 0) {
        evaluate_group(m, n);
        return;
    }
    if (spw_count_halves_alike(t, n))
        repeat_left(t, n, m->value);
    else
        evaluate(m, &t->node[n->right]);
    multiply(m, n);
}

/* The states of the halves of a run as parts of a state (g, j): those of the left half with so many groups, by their choices. The state of
 * the right half beside each of them falls as they rise. */
typedef struct splits {
    const double *left, *right; /* values of the first of them */
    size_t at_left, at_right, count;
} splits;

static splits splits_of(const maker *m, const spw_count_node *n, size_t g, size_t j, size_t g_left) {
    const spw_count_node *l = &m->tree->node[n->left], *r = &m->tree->node[n->right];
    const size_t low = j > r->choices ? j - r->choices : 0, high = j < l->choices ? j : l->choices,
                 at_left = g_left * (l->choices + 1) + low,
                 at_right = (g - g_left) * (r->choices + 1) + j - low;
    return (splits){.left = m->value + l->state + at_left,
                    .right = m->value + r->state + at_right,
                    .at_left = at_left,
                    .at_right = at_right,
                    .count = low <= high ? high - low + 1 : 0};
}

/* The groups of the left half among g of a run: from .. to. */
static void groups_of(const maker *m, const spw_count_node *n, size_t g, size_t *from, size_t *to) {
    const spw_count_node *l = &m->tree->node[n->left], *r = &m->tree->node[n->right];
    *from = g > r->groups ? g - r->groups : 0;
    *to = g < l->groups ? g : l->groups;
}

/* `here` of the tokens are in the state (g, j) of a run: adds them to the states of its halves. */
static void propagate_state(const maker *m, const spw_count_node *n, size_t g, size_t j, double here) {
    double *left = m->tree->share + m->tree->node[n->left].state,
           *right = m->tree->share + m->tree->node[n->right].state, sum = 0.0;
    size_t from = 0, to = 0;
    groups_of(m, n, g, &from, &to);
    for (size_t i = from; i <= to; i++) {
        const splits s = splits_of(m, n, g, j, i);
        for (size_t k = 0; k < s.count; k++) sum += s.left[k] * *(s.right - k);
    }
    for (size_t i = from; i <= to && sum > 0.0; i++) {
        const splits s = splits_of(m, n, g, j, i);
        for (size_t k = 0; k < s.count; k++) {
            const double share = here * (s.left[k] * *(s.right - k)) / sum;
            left[s.at_left + k] += share;
            right[s.at_right - k] += share;
        }
    }
}

/* share of every state below a run, from it down. */
static void propagate_run(const maker *m, const spw_count_node *n) {
    const spw_count_tree *t = m->tree;
    if (n->left == 0) return;
    for (size_t g = n->right == 0 ? 1 : 0, s = g * (n->choices + 1); g <= n->groups; g++)
        for (size_t j = 0; j <= n->choices; j++, s++) {
            const double here = t->share[n->state + s];
            if (!(here > 0.0)) continue;
            if (n->right == 0)
                t->share[t->node[n->left].state + j] += here;
            else if (m->value[n->state + s] > 0.0)
                propagate_state(m, n, g, j, here);
        }
    propagate_run(m, &t->node[n->left]);
    if (n->right == 0) return;
    if (spw_count_halves_alike(t, n))
        repeat_left(t, n, t->share);
    else
        propagate_run(m, &t->node[n->right]);
}

static void propagate(const maker *m) {
    const spw_count_tree *t = m->tree;
    memset(t->share, 0, t->states * sizeof *t->share);
    t->share[spw_count_states(&t->node[0]) - 1] = 1.0;
    propagate_run(m, &t->node[0]);
}

/* have [count] towards log_want, logarithms of odds: a Newton step with Hajek's covariance v[i] (i = j) - v[i] v[j] / sum of v. *worst grows to the largest
 * difference of a logarithm of odds. */
static void step(const maker *m, const double *log_want, const double *have, size_t count, double *log_weight,
                 double *worst) {
    double *v = m->room, sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += v[i] = have[i] * (1.0 - have[i]);
    for (int round = 0; round < 4; round++) {
        double next = 0.0;
        for (size_t i = 0; i < count; i++)
            next += v[i] = have[i] * (1.0 - have[i]) / fmax(0.1, 1.0 - (sum > 0.0 ? v[i] / sum : 0.0));
        sum = next;
    }
    for (size_t i = 0; i < count; i++) {
        const double lacks = log_want[i] - log_odds(m, have[i]);
        *worst = fmax(*worst, fabs(lacks));
        log_weight[i] += lacks * fmax(0.1, 1.0 - (sum > 0.0 ? v[i] / sum : 0.0));
    }
}

/* Shares of tokens that choose an expert, of those that keep its group; and that keep a group. have [experts + groups] */
static void look(const maker *m, double *have) {
    const spw_count_tree *t = m->tree;
    const size_t experts = t->experts;
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->left == 0) have[n->low] = t->share[n->state + 1];
        if (n->left == 0 || n->right != 0) continue;
        double *kept = &have[experts + n->low / m->group_size];
        *kept = 0.0;
        for (size_t j = 0; j <= n->choices; j++) *kept += t->share[n->state + n->choices + 1 + j];
    }
    for (size_t x = 0; x < experts && m->law->groups > 0; x++) {
        const double kept = have[experts + x / m->group_size];
        have[x] = kept > 0.0 ? have[x] / kept : 0.0;
    }
}

static void solve(const maker *m, double *have) {
    const spw_count_law *law = m->law;
    for (size_t x = 0; x < law->experts; x++) m->log_want[x] = log_odds(m, law->inclusion[x]);
    for (size_t g = 0; g < law->groups; g++)
        m->log_want[law->experts + g] = log_odds(m, law->group_inclusion[g]);
    memcpy(m->log_weight, m->log_want, (law->experts + law->groups) * sizeof *m->log_weight);
    for (int round = 0; round < MOST_ROUNDS; round++) {
        double worst = 0.0;
        evaluate(m, &m->tree->node[0]);
        propagate(m);
        look(m, have);
        step(m, m->log_want, have, law->experts, m->log_weight, &worst);
        step(m, m->log_want + law->experts, have + law->experts, law->groups, m->log_weight + law->experts,
             &worst);
        if (worst < CLOSE) return; /* the step did nothing that could be seen */
    }
}

/* --- The table of splits --- */

static void list_state(const maker *m, const spw_count_node *n, size_t s, bool counts) {
    spw_count_tree *t = m->tree;
    const size_t g = s / (n->choices + 1), j = s % (n->choices + 1), begin = t->options;
    size_t from = 0, to = 0;
    double left = 0.0;
    if (!(m->value[n->state + s] > 0.0)) return;
    groups_of(m, n, g, &from, &to);
    for (size_t i = from; i <= to; i++) {
        const splits part = splits_of(m, n, g, j, i);
        for (size_t k = 0; k < part.count; k++) {
            const double share = part.left[k] * *(part.right - k);
            if (!(share > 0.0)) continue;
            if (!counts)
                t->option[t->options] = (spw_count_option){.share = share,
                                                           .left = (uint32_t)(part.at_left + k),
                                                           .right = (uint32_t)(part.at_right - k)};
            t->options++;
        }
    }
    for (size_t i = t->options; i > begin && !counts; i--) {
        spw_count_option *o = &t->option[i - 1];
        left += o->share;
        o->share = i == t->options ? 1.0 : o->share / left;
        o->log_rest = log1p(-fmin(o->share, 1.0 - 1e-16));
    }
}

/* The options of the left half of a run, for the right one, which is alike. begin: of the first of them. */
static void list_again(const maker *m, const spw_count_node *n, size_t begin, bool counts) {
    spw_count_tree *t = m->tree;
    const size_t left = t->node[n->left].state, right = t->node[n->right].state, options = t->options - begin;
    for (size_t s = left; s < right; s++) t->first[s + right - left] = t->first[s] + options;
    if (!counts) memcpy(t->option + t->options, t->option + begin, options * sizeof *t->option);
    t->options += options;
}

/* Counts the options of a run and of all below it, or writes them. */
static void list_run(const maker *m, const spw_count_node *n, bool counts) {
    spw_count_tree *t = m->tree;
    for (size_t s = 0; s < spw_count_states(n); s++) {
        t->first[n->state + s] = t->options;
        if (n->right != 0 && t->share[n->state + s] > 0.0) list_state(m, n, s, counts);
    }
    if (n->left == 0) return;
    const size_t begin = t->options;
    list_run(m, &t->node[n->left], counts);
    if (n->right == 0) return;
    if (spw_count_halves_alike(t, n))
        list_again(m, n, begin, counts);
    else
        list_run(m, &t->node[n->right], counts);
}

static void list_splits(const maker *m, bool counts) {
    spw_count_tree *t = m->tree;
    t->options = 0;
    list_run(m, &t->node[0], counts);
    t->first[t->states] = t->options;
}

static bool are_equal(const double *number, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (number[i] != number[0]) return false;
    return true;
}

void spw_count_tree_destroy(spw_count_tree *t) {
    if (t == NULL) return;
    spw_free(t->node);
    spw_free(t->share);
    spw_free(t->first);
    spw_free(t->option);
    spw_free(t);
}

spw_status spw_count_tree_create(const spw_count_law *law, spw_count_tree **out) {
    const size_t count = law->experts + law->groups;
    maker m = {.law = law, .group_size = law->groups > 0 ? law->experts / law->groups : 0};
    double *have = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    if (law->top_k > MOST_TOP_K || (law->kept + 1) * (law->top_k + 1) > MOST_STATES || !lie_in_each_other(&m))
        return SPW_OK;
    m.limit = fmin(27.0, 600.0 / (double)law->top_k);
    SPW_TRY(SPW_ALLOC(1, &m.tree));
    spw_count_tree *t = m.tree;
    t->experts = law->experts;
    t->top_k = law->top_k;
    SPW_TRY(SPW_RESIZE(2 * count + 2, &t->node)); /* here and below what is read was written before */
    t->even = are_equal(law->inclusion, law->experts) && are_equal(law->group_inclusion, law->groups);
    (void)grow(&m, 0, law->experts, law->groups == 0, 0);
    SPW_TRY(SPW_RESIZE(t->states, &t->share));
    SPW_TRY(SPW_RESIZE(t->states + 1, &t->first));
    SPW_TRY(SPW_RESIZE(t->states, &m.value));
    SPW_TRY(SPW_ALLOC(count, &m.log_want));
    SPW_TRY(SPW_ALLOC(count, &m.log_weight));
    SPW_TRY(SPW_ALLOC(count, &m.room));
    SPW_TRY(SPW_ALLOC(count, &have));
    solve(&m, have);
    list_splits(&m, true);
    SPW_TRY(SPW_RESIZE(t->options + 1, &t->option));
    list_splits(&m, false);
    *out = t;
    m.tree = NULL;

cleanup:
    spw_free(m.value);
    spw_free(m.log_want);
    spw_free(m.log_weight);
    spw_free(m.room);
    spw_free(have);
    spw_count_tree_destroy(m.tree);
    return status;
}

/* --- Closed forms --- */

void spw_count_tree_reach(const spw_count_tree *t, double *expert, double *rank, double *node) {
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        double any = 0.0;
        for (size_t s = 0; s < spw_count_states(n); s++)
            if (s % (n->choices + 1) > 0) any += t->share[n->state + s];
        if (n->left == 0) expert[n->low] = any;
        if (n->rank != SIZE_MAX) rank[n->rank] = any;
        if (n->node != SIZE_MAX) node[n->node] = any;
    }
}
