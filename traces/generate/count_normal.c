#include "traces/generate/count_normal.h"

#include "base/memory.h"
#include "traces/generate/count_normal_internal.h"

#include <math.h>
#include <string.h>

static const double NOTHING = 1e-9; /* of a variance: rounding */

/* --- Moments of one token --- */

/* What a token in a state of a run reaches of its ranks and nodes. */
typedef struct reach {
    double mean[LEVELS], square[LEVELS][LEVELS];
} reach;

static size_t size_of(const spw_count_node *n) { return n->high - n->low; }

/* Sums over the ways in which states of a run are split. */
typedef struct moments {
    size_t figures; /* the first so many of them */
    double mean[FIGURES], square[FIGURES][FIGURES];
} moments;

typedef struct way {
    double share;       /* of the state's tokens */
    size_t left, right; /* states of the halves */
    double choices, of_left;
} way;

typedef struct looker {
    const spw_count_normal *normal;
    const reach *reach; /* [states] */
} looker;

typedef void take_way(void *context, const looker *l, const spw_count_node *n, size_t state, const way *w);

/* Calls for every way of every state. */
static inline void go_through(const looker *l, const spw_count_node *n, take_way *take, void *context) {
    const spw_count_tree *t = l->normal->tree;
    const uint32_t of_left = (uint32_t)t->node[n->left].choices + 1, choices = (uint32_t)n->choices + 1;
    for (size_t s = 0; s < spw_count_states(n); s++) {
        double rest = 1.0;
        for (size_t i = t->first[n->state + s]; i < t->first[n->state + s + 1]; i++) {
            const spw_count_option *o = &t->option[i];
            const way w = {.share = rest * o->share,
                           .left = o->left,
                           .right = o->right,
                           .choices = (double)((uint32_t)s % choices),
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

/* Of a run and all below it; within a rank or a node, whichever is smaller (`least`), none is reached. */
static void find_reach(const looker *l, const spw_count_node *n, size_t least, reach *out) {
    const spw_count_tree *t = l->normal->tree;
    const spw_count_node *left = &t->node[n->left], *right = &t->node[n->right];
    memset(out + n->state, 0, spw_count_states(n) * sizeof *out);
    if (n->left > 0) find_reach(l, left, least, out);
    if (n->right > 0 && spw_count_halves_alike(t, n))
        memcpy(out + right->state, out + left->state, (right->state - left->state) * sizeof *out);
    else if (n->right > 0)
        find_reach(l, right, least, out);
    if (n->left > 0 && n->right == 0)
        memcpy(out + n->state + n->choices + 1, out + left->state, (n->choices + 1) * sizeof *out);
    else if (size_of(n) > least)
        go_through(l, n, join_reach, out);
    for (size_t level = 0; level < LEVELS; level++)
        if (size_of(n) == l->normal->level[level].size) close_level(n, level, out);
}

static double together(const reach *r, size_t i, size_t k) {
    return r->square[i][k] - r->mean[i] * r->mean[k];
}

/* Choices alone: of a run within a rank. */
static inline void add_choices(void *context, const looker *l, const spw_count_node *n, size_t s,
                               const way *w) {
    const double share = w->share * l->normal->tree->share[n->state + s];
    moments *m = context;
    m->mean[N_OF_RUN] += share * w->choices;
    m->mean[N_OF_HALF] += share * w->of_left;
    m->square[N_OF_RUN][N_OF_RUN] += share * (w->choices * w->choices);
    m->square[N_OF_HALF][N_OF_RUN] += share * (w->of_left * w->choices);
    m->square[N_OF_HALF][N_OF_HALF] += share * (w->of_left * w->of_left);
}

static void add_way(void *context, const looker *l, const spw_count_node *n, size_t s, const way *w) {
    const reach *left = &l->reach[l->normal->tree->node[n->left].state + w->left],
                *right = &l->reach[l->normal->tree->node[n->right].state + w->right];
    const double share = w->share * l->normal->tree->share[n->state + s];
    double mean[FIGURES] = {[N_OF_RUN] = w->choices, [N_OF_HALF] = w->of_left};
    double apart[FIGURES][FIGURES] = {{0.0}};
    moments *m = context;
    const size_t levels = m->figures / 2 - 1;
    for (size_t i = 0; i < levels; i++) {
        mean[R_OF_RUN + 2 * i] = left->mean[i] + right->mean[i];
        mean[R_OF_HALF + 2 * i] = left->mean[i];
    }
    for (size_t i = 0; i < levels; i++)
        for (size_t k = 0; k < levels; k++) {
            const double of_left = together(left, i, k);
            apart[R_OF_HALF + 2 * i][R_OF_HALF + 2 * k] = of_left;
            apart[R_OF_HALF + 2 * i][R_OF_RUN + 2 * k] = of_left;
            apart[R_OF_RUN + 2 * i][R_OF_HALF + 2 * k] = of_left;
            apart[R_OF_RUN + 2 * i][R_OF_RUN + 2 * k] = of_left + together(right, i, k);
        }
    for (size_t i = 0; i < m->figures; i++) {
        m->mean[i] += share * mean[i];
        for (size_t k = 0; k <= i; k++) m->square[i][k] += share * (mean[i] * mean[k] + apart[i][k]);
    }
}

/* Of choices that the regression on the run's leaves over. */
typedef struct rest {
    double mean, of_left, slope; /* of the regression */
    double square, cube, with_run;
} rest;

static inline void add_rest(void *context, const looker *l, const spw_count_node *n, size_t s, const way *w) {
    rest *r = context;
    const double share = w->share * l->normal->tree->share[n->state + s], run = w->choices - r->mean,
                 off = w->of_left - r->of_left - r->slope * run;
    r->square += share * off * off;
    r->cube += share * off * off * off;
    r->with_run += share * off * off * run;
}

/* --- Regression --- */

/* The figures in turn: each is its mean, the row times what those before it are off from theirs, and something of its own. */
static void regress(const moments *m, double row[PAIRS], double own[FIGURES]) {
    for (size_t i = 0; i < m->figures; i++) {
        const double all = m->square[i][i] - m->mean[i] * m->mean[i];
        double *of = row + i * (i - 1) / 2;
        own[i] = all;
        for (size_t k = 0; k < i; k++) {
            double left = m->square[i][k] - m->mean[i] * m->mean[k];
            for (size_t h = 0; h < k; h++) left -= of[h] * row[k * (k - 1) / 2 + h] * own[h];
            of[k] = own[k] > 0.0 ? left / own[k] : 0.0;
            own[i] -= of[k] * of[k] * own[k];
        }
        if (!(own[i] > NOTHING * (all + NOTHING))) own[i] = 0.0;
    }
}

/* Third moments of the choices. */
static void shape(const looker *l, const spw_count_node *n, const moments *m, choice_split *s) {
    const double variance = m->square[N_OF_RUN][N_OF_RUN] - m->mean[N_OF_RUN] * m->mean[N_OF_RUN],
                 with = m->square[N_OF_HALF][N_OF_RUN] - m->mean[N_OF_HALF] * m->mean[N_OF_RUN];
    rest r = {.mean = m->mean[N_OF_RUN],
              .of_left = m->mean[N_OF_HALF],
              .slope = variance > NOTHING ? with / variance : 0.0};
    go_through(l, n, add_rest, &r);
    if (r.square > NOTHING) s->skew = r.cube / (6.0 * r.square);
    if (r.square > NOTHING && variance > NOTHING) s->swing = r.with_run / (2.0 * variance * r.square);
}

static void split_node(spw_count_normal *c, const looker *l, const spw_count_node *n, halves at) {
    choice_split *s = &c->choice[c->splits++];
    moments m = {.figures = 2};
    double row[PAIRS], own[FIGURES];
    for (size_t i = 0; i < LEVELS; i++)
        if (size_of(n) > c->level[i].size) m.figures += 2;
    if (m.figures == 2)
        go_through(l, n, add_choices, &m);
    else
        go_through(l, n, add_way, &m);
    regress(&m, row, own);
    *s = (choice_split){.at = at,
                        .most_left = (uint32_t)c->tree->node[n->left].choices,
                        .most_right = (uint32_t)c->tree->node[n->right].choices,
                        .run = m.mean[N_OF_RUN],
                        .half = m.mean[N_OF_HALF],
                        .slope = row[0],
                        .own = own[N_OF_HALF]};
    shape(l, n, &m, s);
    for (size_t i = 0; i < LEVELS && 2 * i + 2 < m.figures; i++) {
        count_level *level = &c->level[i];
        reached_split *r = &level->split[level->splits++];
        *r = (reached_split){.at = at, .own = own[R_OF_HALF + 2 * i]};
        memcpy(r->mean, m.mean, sizeof m.mean);
        memcpy(r->row, row, sizeof row);
    }
}

static halves behind(halves at, uint32_t places) {
    return (halves){at.run + places, at.left + places, at.right + places};
}

/* The splits of the left half of a run from these on, for the right one, which is alike, so many places behind. */
static void split_again(spw_count_normal *c, size_t choice, const size_t reached[LEVELS], uint32_t places) {
    for (size_t i = choice, end = c->splits; i < end; i++) {
        c->choice[c->splits] = c->choice[i];
        c->choice[c->splits++].at = behind(c->choice[i].at, places);
    }
    for (size_t k = 0; k < LEVELS; k++) {
        count_level *level = &c->level[k];
        for (size_t i = reached[k], end = level->splits; i < end; i++) {
            level->split[level->splits] = level->split[i];
            level->split[level->splits++].at = behind(level->split[i].at, places);
        }
    }
}

/* A run and all below it; place [nodes] */
static void split_run(spw_count_normal *c, const looker *l, size_t node, const uint32_t *place) {
    const spw_count_tree *t = c->tree;
    const spw_count_node *n = &t->node[node];
    if (n->left == 0) return;
    if (n->right > 0) split_node(c, l, n, (halves){place[node], place[n->left], place[n->right]});
    const size_t choice = c->splits, reached[LEVELS] = {c->level[0].splits, c->level[1].splits};
    split_run(c, l, n->left, place);
    if (n->right == 0) return;
    if (spw_count_halves_alike(t, n))
        split_again(c, choice, reached, place[n->right] - place[n->left]);
    else
        split_run(c, l, n->right, place);
}

/* --- Places --- */

static void find_sizes(spw_count_normal *c) {
    const spw_count_tree *t = c->tree;
    c->least = INFINITY;
    for (size_t i = 0; i < t->nodes; i++) {
        const spw_count_node *n = &t->node[i];
        if (n->rank != SIZE_MAX) c->level[0].size = size_of(n);
        if (n->node != SIZE_MAX) c->level[1].size = size_of(n);
        if (n->left > 0) continue;
        double chosen = 0.0;
        for (size_t s = 0; s < spw_count_states(n); s++)
            if (s % (n->choices + 1) > 0) chosen += t->share[n->state + s];
        if (chosen > NOTHING && chosen < 1.0 - NOTHING) c->least = fmin(c->least, chosen * (1.0 - chosen));
    }
    if (c->level[0].size > c->level[1].size) c->least = 0.0;
}

static spw_status make_level(spw_count_normal *c, size_t i) {
    count_level *level = &c->level[i];
    const size_t experts = c->tree->experts, below = i > 0 ? c->level[0].size : 1;
    spw_status status = SPW_OK;
    level->parts = level->size / below;
    SPW_TRY(SPW_ALLOC(experts / level->size, &level->block));
    SPW_TRY(SPW_ALLOC(experts, &level->part));
    SPW_TRY(SPW_ALLOC(experts / level->size, &level->split));

cleanup:
    return status;
}

/* A run that is a rank or node, and what is in it. */
static void enter(spw_count_normal *c, const spw_count_node *n, uint32_t place) {
    for (size_t i = 0; i < LEVELS; i++) {
        count_level *level = &c->level[i];
        const size_t below = i > 0 ? c->level[0].size : 1;
        if (size_of(n) == level->size) level->block[n->low / level->size] = place;
        if (size_of(n) == below) level->part[n->low / below] = place;
    }
    if (n->left == 0) c->expert[n->low] = place;
}

/* place [nodes] */
static void number_places(spw_count_normal *c, uint32_t *place) {
    const spw_count_tree *t = c->tree;
    for (size_t i = 0; i < t->nodes; i++) {
        const bool inside = i > 0 && t->node[i - 1].left == i && t->node[i - 1].right == 0; /* of a group */
        place[i] = inside ? place[i - 1] : (uint32_t)c->places++;
        enter(c, &t->node[i], place[i]);
    }
}

spw_status spw_count_normal_create(const spw_count_tree *tree, spw_count_normal **out) {
    reach *reaches = NULL;
    uint32_t *place = NULL;
    spw_count_normal *c = NULL;
    spw_status status = SPW_OK;
    *out = NULL;
    SPW_TRY(SPW_ALLOC(1, &c));
    c->tree = tree;
    find_sizes(c);
    if (c->least == 0.0) goto made;
    SPW_TRY(SPW_ALLOC(tree->experts, &c->choice));
    SPW_TRY(SPW_ALLOC(tree->experts, &c->expert));
    for (size_t i = 0; i < LEVELS; i++) SPW_TRY(make_level(c, i));
    SPW_TRY(SPW_ALLOC(tree->nodes, &place));
    number_places(c, place);
    SPW_TRY(SPW_RESIZE(tree->states, &reaches));
    const looker l = {c, reaches};
    const size_t sizes[LEVELS] = {c->level[0].size, c->level[1].size};
    find_reach(&l, tree->node, sizes[0] < sizes[1] ? sizes[0] : sizes[1], reaches);
    const reach *all = &reaches[tree->node[0].state + spw_count_states(&tree->node[0]) - 1];
    for (size_t i = 0; i < LEVELS; i++) {
        c->level[i].mean = all->mean[i];
        c->level[i].variance = fmax(0.0, together(all, i, i));
        c->level[i].blocks = tree->experts / c->level[i].size;
    }
    split_run(c, &l, 0, place);
made:
    *out = c;
    c = NULL;

cleanup:
    spw_free(reaches);
    spw_free(place);
    spw_count_normal_destroy(c);
    return status;
}

void spw_count_normal_destroy(spw_count_normal *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < LEVELS; i++) {
        spw_free(c->level[i].block);
        spw_free(c->level[i].part);
        spw_free(c->level[i].split);
    }
    spw_free(c->choice);
    spw_free(c->expert);
    spw_free(c);
}

bool spw_count_normal_serves(const spw_count_normal *c, size_t tokens) {
    return (double)tokens * c->least >= SPW_COUNT_NORMAL_VARIANCE;
}
