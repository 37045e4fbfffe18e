#include "traces/generate/count_normal_internal.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <pthread.h>

static const double ROUNDING = 1.0 / 12.0;   /* the variance of a number between two whole ones */
static const double LEAST_SPREAD = 1.0 / 16; /* of s, where N of the run is far below its mean */

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
    const double within = (double)(int64_t)(bits << CELL_BITS >> 11) * 0x1p-53;
    return inverse[cell] + within * (inverse[cell + 1] - inverse[cell]);
}

double spw_draw_normal(spw_random_stream *stream) {
    (void)pthread_once(&inverse_once, list_inverse);
    return draw_normal(stream);
}

/* --- What pieces of as many tokens share --- */

typedef struct choice_scale {
    double run, half, spread, swing;
} choice_scale;

typedef struct reached_scale {
    double mean[FIGURES], spread;
} reached_scale;

/* Of the scratch memory. */
typedef struct drawing {
    const spw_count_normal *normal;
    double *tokens; /* for which the scales are, or 0 */
    choice_scale *choice;
    reached_scale *reached[LEVELS];
    double *number;              /* normal ones, in the order in which they are used */
    int64_t *figure[1 + LEVELS]; /* N, R, Q by place */
    int64_t *least, *most;       /* of the figure that is being drawn */
} drawing;

static size_t numbers_of(const spw_count_normal *c) {
    return c->splits + LEVELS + c->level[0].splits + c->level[1].splits;
}

size_t spw_count_normal_bytes(const spw_count_normal *c) {
    return (1 + numbers_of(c)) * sizeof(double) + c->splits * sizeof(choice_scale) +
           (c->level[0].splits + c->level[1].splits) * sizeof(reached_scale) +
           (3 + LEVELS) * c->places * sizeof(int64_t);
}

static drawing lay_out(const spw_count_normal *c, void *scratch) {
    drawing d = {.normal = c, .tokens = scratch};
    d.choice = (choice_scale *)(void *)(d.tokens + 1);
    d.reached[0] = (reached_scale *)(void *)(d.choice + c->splits);
    d.reached[1] = d.reached[0] + c->level[0].splits;
    d.number = (double *)(void *)(d.reached[1] + c->level[1].splits);
    d.figure[0] = (int64_t *)(void *)(d.number + numbers_of(c));
    for (size_t i = 0; i < LEVELS; i++) d.figure[i + 1] = d.figure[i] + c->places;
    d.least = d.figure[LEVELS] + c->places;
    d.most = d.least + c->places;
    return d;
}

static double spread(double tokens, double variance) {
    const double all = tokens * variance - ROUNDING;
    return all > 0.0 ? sqrt(all) : 0.0;
}

static void scale(const drawing *d, double tokens) {
    const spw_count_normal *c = d->normal;
    const double share = 1.0 / tokens;
    *d->tokens = tokens;
    for (size_t i = 0; i < c->splits; i++) {
        const choice_split *s = &c->choice[i];
        d->choice[i] =
            (choice_scale){tokens * s->run, tokens * s->half, spread(tokens, s->own), s->swing * share};
    }
    for (size_t level = 0; level < LEVELS; level++)
        for (size_t i = 0; i < c->level[level].splits; i++) {
            const reached_split *s = &c->level[level].split[i];
            reached_scale *out = &d->reached[level][i];
            for (size_t k = 0; k < FIGURES; k++) out->mean[k] = tokens * s->mean[k];
            out->spread = spread(tokens, s->own);
        }
}

/* --- Draws --- */

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t more(int64_t a, int64_t b) { return a > b ? a : b; }

/* The nearest whole number from low on to high, which are not negative. */
static int64_t near(double value, int64_t low, int64_t high) {
    return value > (double)low ? less((int64_t)(value + 0.5), high) : low;
}

/* Choices of the left half of each run; the right one has the rest. Returns the normal numbers behind those used. */
static const double *draw_choices(const drawing *d) {
    const spw_count_normal *c = d->normal;
    const int64_t tokens = (int64_t)*d->tokens;
    int64_t *choices = d->figure[0];
    choices[0] = tokens * (int64_t)c->tree->top_k;
    for (size_t i = 0; i < c->splits; i++) {
        const choice_split *s = &c->choice[i];
        const choice_scale *of = &d->choice[i];
        const int64_t all = choices[s->at.run];
        const double off = (double)all - of->run, z = d->number[i], wide = 1.0 + of->swing * off,
                     wider = wide > LEAST_SPREAD ? wide : LEAST_SPREAD,
                     value = of->half + s->slope * off + of->spread * wider * z + s->skew * (z * z - 1.0);
        const int64_t left =
            near(value, more(0, all - s->most_right * tokens), less(all, s->most_left * tokens));
        choices[s->at.left] = left;
        choices[s->at.right] = all - left;
    }
    return d->number + c->splits;
}

/* What ranks can have: each is reached by no fewer tokens than an expert of it has, nor by more than it has choices. So a node by its
 * ranks. */
static void bound(const drawing *d, size_t at_level) {
    const count_level *level = &d->normal->level[at_level];
    const int64_t top_k = (int64_t)d->normal->tree->top_k, most = less((int64_t)level->parts, top_k);
    const int64_t *figure = d->figure[at_level];
    for (size_t i = 0; i < level->blocks; i++) {
        const uint32_t *part = level->part + i * level->parts, place = level->block[i];
        int64_t least = (figure[place] + most - 1) / most;
        for (size_t k = 0; k < level->parts; k++) least = more(least, figure[part[k]]);
        d->least[place] = least;
        d->most[place] = less((int64_t)*d->tokens, figure[place]);
    }
    for (size_t i = level->splits; i > 0; i--) { /* from the smallest on */
        const halves *at = &level->split[i - 1].at;
        d->least[at->run] = d->least[at->left] + d->least[at->right];
        d->most[at->run] = d->most[at->left] + d->most[at->right];
    }
}

/* Of the left half of a run the tokens that reach its ranks, or nodes, by the regression on the figures before. */
static inline void draw_reached(const drawing *d, const reached_split *s, const reached_scale *of,
                                size_t level, double z) {
    const size_t last = R_OF_HALF + 2 * level;
    int64_t *figure = d->figure[level + 1];
    double off[FIGURES], value = 0.0;
    for (size_t i = 0; i <= last; i++) {
        const double *row = s->row + i * (i - 1) / 2;
        value = of->mean[i];
        for (size_t k = 0; k < i; k++) value += row[k] * off[k];
        const size_t of_level = i / 2;
        if (i < last) off[i] = (double)d->figure[of_level][i % 2 == 0 ? s->at.run : s->at.left] - value;
    }
    const int64_t all = figure[s->at.run],
                  left = near(value + of->spread * z, more(d->least[s->at.left], all - d->most[s->at.right]),
                              less(d->most[s->at.left], all - d->least[s->at.right]));
    figure[s->at.left] = left;
    figure[s->at.right] = all - left;
}

static const double *draw_level(const drawing *d, size_t at_level, const double *z) {
    const count_level *level = &d->normal->level[at_level];
    const double tokens = *d->tokens;
    bound(d, at_level);
    d->figure[at_level + 1][0] =
        near(tokens * level->mean + spread(tokens, level->variance) * *z++, d->least[0], d->most[0]);
    for (size_t i = 0; i < level->splits; i++) {
        if (at_level == 0)
            draw_reached(d, &level->split[i], &d->reached[0][i], 0, *z++);
        else
            draw_reached(d, &level->split[i], &d->reached[1][i], 1, *z++);
    }
    return z;
}

void spw_count_normal_sample(const spw_count_normal *c, spw_random_stream *stream, void *scratch,
                             size_t tokens, const spw_token_counts *out) {
    const drawing d = lay_out(c, scratch);
    const size_t numbers = numbers_of(c);
    (void)pthread_once(&inverse_once, list_inverse);
    if (*d.tokens != (double)tokens) scale(&d, (double)tokens);
    for (size_t i = 0; i < numbers; i++) d.number[i] = draw_normal(stream);
    const double *z = draw_choices(&d);
    for (size_t i = 0; i < LEVELS; i++) z = draw_level(&d, i, z);
    for (size_t x = 0; x < c->tree->experts; x++) out->expert[x] = (uint32_t)d.figure[0][c->expert[x]];
    for (size_t i = 0; i < c->level[0].blocks; i++)
        out->rank[i * out->rank_stride] = (uint32_t)d.figure[1][c->level[0].block[i]];
    for (size_t i = 0; i < c->level[1].blocks; i++)
        out->node[i] = (uint32_t)d.figure[2][c->level[1].block[i]];
}
