#include "traces/generate/count_normal.h"

#include "base/memory.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

/* Figures of a run, each beside that of its left half, in the order in which they are drawn. */
enum { N_OF_RUN, N_OF_HALF, R_OF_RUN, R_OF_HALF, Q_OF_RUN, Q_OF_HALF, FIGURES, LEVELS = 2 };
static const double NOTHING = 1e-9;          /* of a variance: rounding */
static const double ROUNDING = 1.0 / 12.0;   /* the variance of a number between two whole ones */
static const double LEAST_SPREAD = 1.0 / 16; /* of s, where N of the run is far below its mean */

/* How the figures of a run are split. */
typedef struct split {
    size_t figures; /* the first so many of them */
    size_t at; /* in spw_count_normal.number: means, the regression row by row, variances that are left */
    double skew, swing; /* of the choices */
} split;

typedef struct reached {
    double mean, variance;
} reached;

struct spw_count_normal {
    const spw_count_tree *tree;
    size_t block[LEVELS];    /* experts of a rank, of a node */
    double least;            /* variance of an expert, per token; 0: ranks are larger than nodes */
    reached reached[LEVELS]; /* ranks and nodes of a token */
    size_t *order[LEVELS], runs[LEVELS]; /* runs that are a rank or node, or have several */
    split *split;                        /* [nodes] */
    double *number;
    size_t numbers, capacity;
};

/* --- Moments of one token --- */

/* What a token in a state of a run reaches of its ranks and nodes. */
typedef struct reach {
    double mean[LEVELS], square[LEVELS][LEVELS];
} reach;

static size_t size_of(const spw_count_node *n) { return n->high - n->low; }

/* Sums over the ways in which states of a run are split. */
typedef struct moments {
    double mean[FIGURES], square[FIGURES][FIGURES];
} moments;

typedef struct way {
    double share;
    size_t left, right; /* states of the halves */
    double choices, of_left;
} way;

typedef struct looker {
    const spw_count_normal *normal;
    const reach *reach; /* [states] */
} looker;

typedef void take_way(void *context, const looker *l, const spw_count_node *n, size_t state, const way *w);

/* Calls for every way of every state. */
static void go_through(const looker *l, const spw_count_node *n, take_way *take, void *context) {
    const spw_count_tree *t = l->normal->tree;
    const size_t of_left = t->node[n->left].choices + 1;
    for (size_t s = 0; s < spw_count_states(n); s++) {
        double rest = 1.0;
        for (size_t i = t->first[n->state + s]; i < t->first[n->state + s + 1]; i++) {
            const spw_count_option *o = &t->option[i];
            const way w = {.share = rest * o->share,
                           .left = o->left,
                           .right = o->right,
                           .choices = (double)(s % (n->choices + 1)),
                           .of_left = (double)(o->left % of_left)};
            rest -= w.share;
            take(context, l, n, s, &w);
        }
    }
}

static void join_reach(void *context, const looker *l, const spw_count_node *n, size_t s, const way *w) {
    const reach *left = &l->reach[l->normal->tree->node[n->left].state + w->left],
                *right = &l->reach[l->normal->tree->node[n->right].state + w->right];
    reach *out = (reach *)context + n->state + s;
    for (size_t i = 0; i < LEVELS; i++) {
        out->mean[i] += w->share * (left->mean[i] + right->mean[i]);
        for (size_t k = 0; k < LEVELS; k++)
            out->square[i][k] += w->share * (left->square[i][k] + right->square[i][k] +
                                             left->mean[i] * right->mean[k] + right->mean[i] * left->mean[k]);
    }
}

/* A run that is a rank or a node is reached, or not. */
static void close_level(const spw_count_node *n, size_t level, reach *out) {
    for (size_t s = 0; s < spw_count_states(n); s++) {
        const double any = s % (n->choices + 1) > 0 ? 1.0 : 0.0;
        reach *r = &out[n->state + s];
        r->mean[level] = any;
        r->square[level][level] = any;
        r->square[0][1] = r->square[1][0] = any * r->mean[1 - level];
    }
}

static void find_reach(const looker *l, reach *out) {
    const spw_count_tree *t = l->normal->tree;
    for (size_t i = t->nodes; i > 0; i--) { /* halves stand behind their run */
        const spw_count_node *n = &t->node[i - 1];
        if (n->left > 0 && n->right == 0)
            memcpy(out + n->state + n->choices + 1, out + t->node[n->left].state,
                   (n->choices + 1) * sizeof *out);
        else if (n->left > 0)
            go_through(l, n, join_reach, out);
        for (size_t level = 0; level < LEVELS; level++)
            if (size_of(n) == l->normal->block[level]) close_level(n, level, out);
    }
}

static double together(const reach *r, size_t i, size_t k) {
    return r->square[i][k] - r->mean[i] * r->mean[k];
}

static void add_way(void *context, const looker *l, const spw_count_node *n, size_t s, const way *w) {
    const reach *left = &l->reach[l->normal->tree->node[n->left].state + w->left],
                *right = &l->reach[l->normal->tree->node[n->right].state + w->right],
                *run = &l->reach[n->state + s];
    const double share = w->share * l->normal->tree->share[n->state + s];
    double mean[FIGURES] = {[N_OF_RUN] = w->choices, [N_OF_HALF] = w->of_left};
    double apart[FIGURES][FIGURES] = {{0.0}};
    moments *m = context;
    bool sums[LEVELS];
    for (size_t i = 0; i < LEVELS; i++) {
        sums[i] = size_of(n) > l->normal->block[i];
        mean[R_OF_RUN + 2 * i] = sums[i] ? left->mean[i] + right->mean[i] : run->mean[i];
        mean[R_OF_HALF + 2 * i] = left->mean[i];
    }
    for (size_t i = 0; i < LEVELS; i++)
        for (size_t k = 0; k < LEVELS; k++) {
            const double of_left = together(left, i, k);
            apart[R_OF_HALF + 2 * i][R_OF_HALF + 2 * k] = of_left;
            if (sums[k]) apart[R_OF_HALF + 2 * i][R_OF_RUN + 2 * k] = of_left;
            if (sums[i]) apart[R_OF_RUN + 2 * i][R_OF_HALF + 2 * k] = of_left;
            if (sums[i] && sums[k])
                apart[R_OF_RUN + 2 * i][R_OF_RUN + 2 * k] = of_left + together(right, i, k);
        }
    for (size_t i = 0; i < FIGURES; i++) {
        m->mean[i] += share * mean[i];
        for (size_t k = 0; k <= i; k++) m->square[i][k] += share * (mean[i] * mean[k] + apart[i][k]);
    }
}

/* Of choices that the regression on the run's leaves over. */
typedef struct rest {
    double mean, of_left, slope; /* of the regression */
    double square, cube, with_run;
} rest;

static void add_rest(void *context, const looker *l, const spw_count_node *n, size_t s, const way *w) {
    rest *r = context;
    const double share = w->share * l->normal->tree->share[n->state + s], run = w->choices - r->mean,
                 off = w->of_left - r->of_left - r->slope * run;
    r->square += share * off * off;
    r->cube += share * off * off * off;
    r->with_run += share * off * off * run;
}

/* --- Regression --- */

static spw_status keep(spw_count_normal *c, double number) {
    if (c->numbers == c->capacity) {
        const size_t more = c->capacity > 0 ? 2 * c->capacity : 1024;
        const spw_status status = SPW_RESIZE(more, &c->number);
        if (status != SPW_OK) return status;
        c->capacity = more;
    }
    c->number[c->numbers++] = number;
    return SPW_OK;
}

/* The figures in turn: each is its mean, the row times what those before it are off from theirs, and something of its own. */
static spw_status regress(spw_count_normal *c, const moments *m, split *s) {
    double row[FIGURES][FIGURES] = {{0.0}}, own[FIGURES];
    spw_status status = SPW_OK;
    s->at = c->numbers;
    for (size_t i = 0; i < s->figures; i++) {
        const double all = m->square[i][i] - m->mean[i] * m->mean[i];
        own[i] = all;
        for (size_t k = 0; k < i; k++) {
            double left = m->square[i][k] - m->mean[i] * m->mean[k];
            for (size_t h = 0; h < k; h++) left -= row[i][h] * row[k][h] * own[h];
            row[i][k] = own[k] > 0.0 ? left / own[k] : 0.0;
            own[i] -= row[i][k] * row[i][k] * own[k];
        }
        if (!(own[i] > NOTHING * (all + NOTHING))) own[i] = 0.0;
    }
    for (size_t i = 0; i < s->figures; i++) SPW_TRY(keep(c, m->mean[i]));
    for (size_t i = 1; i < s->figures; i++)
        for (size_t k = 0; k < i; k++) SPW_TRY(keep(c, row[i][k]));
    for (size_t i = 0; i < s->figures; i++) SPW_TRY(keep(c, own[i]));

cleanup:
    return status;
}

/* Third moments of the choices. */
static void shape(const looker *l, const spw_count_node *n, const moments *m, split *s) {
    const double variance = m->square[N_OF_RUN][N_OF_RUN] - m->mean[N_OF_RUN] * m->mean[N_OF_RUN],
                 with = m->square[N_OF_HALF][N_OF_RUN] - m->mean[N_OF_HALF] * m->mean[N_OF_RUN];
    rest r = {.mean = m->mean[N_OF_RUN],
              .of_left = m->mean[N_OF_HALF],
              .slope = variance > NOTHING ? with / variance : 0.0};
    go_through(l, n, add_rest, &r);
    if (r.square > NOTHING) s->skew = r.cube / (6.0 * r.square);
    if (r.square > NOTHING && variance > NOTHING) s->swing = r.with_run / (2.0 * variance * r.square);
}

static spw_status split_node(spw_count_normal *c, const looker *l, size_t at) {
    const spw_count_node *n = &c->tree->node[at];
    split *s = &c->split[at];
    moments m = {.mean = {0.0}};
    go_through(l, n, add_way, &m);
    s->figures = 2;
    for (size_t i = 0; i < LEVELS; i++)
        if (size_of(n) > c->block[i]) s->figures += 2;
    shape(l, n, &m, s);
    return regress(c, &m, s);
}

static void find_blocks(spw_count_normal *c) {
    const spw_count_tree *t = c->tree;
    c->least = INFINITY;
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->rank != SIZE_MAX) c->block[0] = size_of(n);
        if (n->node != SIZE_MAX) c->block[1] = size_of(n);
        if (n->left > 0) continue;
        double chosen = 0.0;
        for (size_t s = 0; s < spw_count_states(n); s++)
            if (s % (n->choices + 1) > 0) chosen += t->share[n->state + s];
        if (chosen > NOTHING && chosen < 1.0 - NOTHING) c->least = fmin(c->least, chosen * (1.0 - chosen));
    }
    if (c->block[0] > c->block[1]) c->least = 0.0;
}

static spw_status find_runs(spw_count_normal *c, size_t level) {
    const spw_count_tree *t = c->tree;
    const spw_status status = SPW_ALLOC(t->nodes, &c->order[level]);
    for (size_t i = 0; i < t->nodes && status == SPW_OK; i++)
        if (size_of(&t->node[i]) >= c->block[level]) c->order[level][c->runs[level]++] = i;
    return status;
}

spw_status spw_count_normal_create(const spw_count_tree *tree, spw_count_normal **out) {
    reach *reaches = NULL;
    spw_count_normal *c = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    c->tree = tree;
    find_blocks(c);
    SPW_TRY(SPW_ALLOC(tree->nodes, &c->split));
    SPW_TRY(SPW_ALLOC(tree->states, &reaches));
    const looker l = {c, reaches};
    find_reach(&l, reaches);
    for (size_t level = 0; level < LEVELS; level++) SPW_TRY(find_runs(c, level));
    const reach *all = &reaches[tree->node[0].state + spw_count_states(&tree->node[0]) - 1];
    for (size_t i = 0; i < LEVELS; i++)
        c->reached[i] = (reached){all->mean[i], fmax(0.0, together(all, i, i))};
    for (size_t i = 0; i < tree->nodes; i++)
        if (tree->node[i].right > 0) SPW_TRY(split_node(c, &l, i));
    *out = c;
    c = NULL;

cleanup:
    spw_free(reaches);
    spw_count_normal_destroy(c);
    return status;
}

void spw_count_normal_destroy(spw_count_normal *c) {
    if (c == NULL) return;
    for (size_t level = 0; level < LEVELS; level++) spw_free(c->order[level]);
    spw_free(c->split);
    spw_free(c->number);
    spw_free(c);
}

bool spw_count_normal_serves(const spw_count_normal *c, size_t tokens) {
    return (double)tokens * c->least >= SPW_COUNT_NORMAL_VARIANCE;
}

/* --- Normal numbers --- */

enum { CELL_BITS = 9, CELLS = 1 << CELL_BITS, END_CELLS = 8 };
static double inverse[CELLS + 1];
static pthread_once_t inverse_once = PTHREAD_ONCE_INIT;

static void list_inverse(void) {
    for (size_t i = 1; i < CELLS; i++) inverse[i] = gsl_cdf_ugaussian_Pinv((double)i / CELLS);
}

static inline double draw_normal(spw_random_stream *stream) {
    const uint64_t bits = spw_random_next(stream);
    const size_t cell = bits >> (64 - CELL_BITS);
    if (cell - END_CELLS >= CELLS - 2 * END_CELLS)
        return gsl_cdf_ugaussian_Pinv(((double)(bits >> 11) + 0.5) * 0x1p-53);
    const double within = (double)(bits << CELL_BITS >> 11) * 0x1p-53;
    return inverse[cell] + within * (inverse[cell + 1] - inverse[cell]);
}

double spw_draw_normal(spw_random_stream *stream) {
    (void)pthread_once(&inverse_once, list_inverse);
    return draw_normal(stream);
}

/* --- Draws --- */

/* A run, as it is drawn. */
typedef struct run {
    int64_t figure[1 + LEVELS]; /* N, R, Q */
    int64_t least, most;        /* of the figure that is being drawn */
} run;

size_t spw_count_normal_bytes(const spw_count_normal *c) { return c->tree->nodes * sizeof(run); }

typedef struct drawing {
    const spw_count_normal *normal;
    spw_random_stream *stream;
    run *run; /* [nodes] */
    double tokens;
} drawing;

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t more(int64_t a, int64_t b) { return a > b ? a : b; }

/* The nearest whole number from low on to high, which are not negative. */
static int64_t near(double value, int64_t low, int64_t high) {
    return value > (double)low ? less((int64_t)(value + 0.5), high) : low;
}

static double expected(const drawing *d, const split *s, size_t i, const double *off) {
    const double *number = d->normal->number + s->at, *row = number + s->figures + i * (i - 1) / 2;
    double value = d->tokens * number[i];
    for (size_t k = 0; k < i; k++) value += row[k] * off[k];
    return value;
}

static double spread(const drawing *d, double variance) {
    const double all = d->tokens * variance - ROUNDING;
    return all > 0.0 ? sqrt(all) : 0.0;
}

/* Choices of the left half of a run; the right one has the rest. */
static void draw_choices(const drawing *d, const spw_count_node *n, const split *s, double share) {
    const double *number = d->normal->number + s->at, *row = number + s->figures,
                 *own = row + s->figures * (s->figures - 1) / 2;
    run *left = &d->run[n->left], *right = &d->run[n->right];
    const int64_t all = d->run[n - d->normal->tree->node].figure[0], tokens = (int64_t)d->tokens;
    const double off = (double)all - d->tokens * number[N_OF_RUN], z = draw_normal(d->stream),
                 wider = fmax(LEAST_SPREAD, 1.0 + s->swing * share * off);
    const double value = d->tokens * number[N_OF_HALF] + row[0] * off +
                         spread(d, own[N_OF_HALF]) * wider * z + s->skew * (z * z - 1.0);
    const int64_t most_left = (int64_t)d->normal->tree->node[n->left].choices * tokens,
                  most_right = (int64_t)d->normal->tree->node[n->right].choices * tokens;
    left->figure[0] = near(value, more(0, all - most_right), less(all, most_left));
    right->figure[0] = all - left->figure[0];
}

static void draw_all_choices(const drawing *d) {
    const spw_count_tree *t = d->normal->tree;
    const double share = 1.0 / d->tokens;
    d->run[0].figure[0] = (int64_t)d->tokens * (int64_t)t->top_k;
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->right > 0)
            draw_choices(d, n, &d->normal->split[i], share);
        else if (n->left > 0)
            d->run[n->left].figure[0] = d->run[i].figure[0];
    }
}

/* What a rank can have: it is reached by no fewer tokens than an expert of it has, nor by more than it has choices. So a node by its ranks. */
static void bound(const drawing *d, size_t at, size_t level, run *r) {
    const spw_count_normal *c = d->normal;
    const size_t below = level > 0 ? c->block[level - 1] : 1;
    const int64_t parts = (int64_t)(c->block[level] / below), top_k = (int64_t)c->tree->top_k;
    int64_t left = parts;
    r->most = less((int64_t)d->tokens, r->figure[level]);
    r->least = (r->figure[level] + less(parts, top_k) - 1) / less(parts, top_k);
    for (size_t i = at; left > 0; i++) {
        const spw_count_node *n = &c->tree->node[i];
        if (size_of(n) != below || (n->left > 0 && n->right == 0)) continue; /* a group is there twice */
        r->least = more(r->least, d->run[i].figure[level]);
        left--;
    }
}

/* Of the left half of a run the tokens that reach its ranks, or nodes. */
static void draw_reached(const drawing *d, size_t at, size_t level) {
    const spw_count_node *n = &d->normal->tree->node[at];
    const split *s = &d->normal->split[at];
    const size_t figure = level + 1, i = R_OF_HALF + 2 * level;
    const run *whole = &d->run[at];
    run *left = &d->run[n->left], *right = &d->run[n->right];
    double off[FIGURES];
    for (size_t k = 0; k < i; k++) {
        const size_t of = k / 2;
        off[k] = (double)(k % 2 == 0 ? whole : left)->figure[of] - expected(d, s, k, off);
    }
    const double own = d->normal->number[s->at + s->figures * (s->figures + 1) / 2 + i],
                 value = expected(d, s, i, off) + spread(d, own) * draw_normal(d->stream);
    const int64_t all = whole->figure[figure];
    left->figure[figure] =
        near(value, more(left->least, all - right->most), less(left->most, all - right->least));
    right->figure[figure] = all - left->figure[figure];
}

static void draw_level(const drawing *d, size_t level) {
    const spw_count_normal *c = d->normal;
    const spw_count_tree *t = c->tree;
    const size_t *order = c->order[level], runs = c->runs[level];
    run *all = &d->run[0];
    for (size_t i = runs; i > 0; i--) { /* from the smallest on */
        const spw_count_node *n = &t->node[order[i - 1]];
        run *r = &d->run[order[i - 1]];
        if (size_of(n) == c->block[level]) {
            bound(d, order[i - 1], level, r);
        } else {
            r->least = d->run[n->left].least + (n->right > 0 ? d->run[n->right].least : 0);
            r->most = d->run[n->left].most + (n->right > 0 ? d->run[n->right].most : 0);
        }
    }
    all->figure[level + 1] = near(d->tokens * c->reached[level].mean +
                                      spread(d, c->reached[level].variance) * draw_normal(d->stream),
                                  all->least, all->most);
    for (size_t i = 0; i < runs; i++) {
        const spw_count_node *n = &t->node[order[i]];
        if (n->left > 0 && n->right == 0)
            d->run[n->left].figure[level + 1] = d->run[order[i]].figure[level + 1];
        else if (size_of(n) > c->block[level])
            draw_reached(d, order[i], level);
    }
}

void spw_count_normal_sample(const spw_count_normal *c, spw_random_stream *stream, void *scratch,
                             size_t tokens, const spw_token_counts *out) {
    const spw_count_tree *t = c->tree;
    const drawing d = {c, stream, scratch, (double)tokens};
    (void)pthread_once(&inverse_once, list_inverse);
    draw_all_choices(&d);
    for (size_t level = 0; level < LEVELS; level++) draw_level(&d, level);
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->node != SIZE_MAX) out->node[n->node] = (uint32_t)d.run[i].figure[2];
        if (n->rank != SIZE_MAX) out->rank[n->rank * out->rank_stride] = (uint32_t)d.run[i].figure[1];
        if (n->left == 0) out->expert[n->low] = (uint32_t)d.run[i].figure[0];
    }
}
