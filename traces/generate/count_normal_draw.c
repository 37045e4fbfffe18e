#include "traces/generate/count_normal_internal.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

static const double ROUNDING = 1.0 / 12.0;   /* the variance of a number between two whole ones */
static const double LEAST_SPREAD = 1.0 / 16; /* of s, where N of the run is far below its mean */

/* Draws side by side, and what is done in each of them. Numbers are the same however many there are: whole ones are exact as fp64. */
enum { LANES = SPW_COUNT_NORMAL_LANES, FEW = 2 };
typedef double lane_numbers[LANES];
#define EACH_LANE _Pragma("omp simd") for (size_t l = 0; l < lanes; l++)
#define INLINE static inline __attribute__((always_inline)) /* into what is compiled for one processor */

/* --- Normal numbers --- */

enum { CELL_BITS = 9, CELLS = 1 << CELL_BITS, END_CELLS = 8 };
/* Of each cell its first number, and a part in 2^53 of how far it is to the next cell's. */
static double cell_begin[CELLS], cell_wide[CELLS];
static pthread_once_t inverse_once = PTHREAD_ONCE_INIT;

static void list_inverse(void) {
    for (size_t i = 1; i < CELLS; i++) cell_begin[i] = gsl_cdf_ugaussian_Pinv((double)i / CELLS);
    for (size_t i = 1; i + 1 < CELLS; i++) cell_wide[i] = (cell_begin[i + 1] - cell_begin[i]) * 0x1p-53;
}

/* Its highest bit is set in the cells at the ends. */
INLINE uint64_t at_end(uint64_t cell) { return (cell - END_CELLS) | (CELLS - END_CELLS - 1 - cell); }
INLINE bool is_at_end(uint64_t cells) { return cells >> 63 != 0; }

/* Whole numbers below 2^53 as fp64: as 2^84 more than their high parts and 2^52 more than their low ones, which are these numbers' bits.
 * So they are found side by side; one alone is converted. */
INLINE void as_numbers(const uint64_t *whole, size_t lanes, double *out) {
    const double more = 0x1p84 + 0x1p52;
    uint64_t high_bits[LANES] = {0}, low_bits[LANES] = {0};
    double high[LANES], low[LANES];
    if (lanes == 1) {
        out[0] = (double)(int64_t)whole[0];
        return;
    }
    EACH_LANE {
        high_bits[l] = whole[l] >> 32 | UINT64_C(0x4530000000000000);
        low_bits[l] = (whole[l] & UINT32_MAX) | UINT64_C(0x4330000000000000);
    }
    memcpy(high, high_bits, sizeof high);
    memcpy(low, low_bits, sizeof low);
    EACH_LANE out[l] = (high[l] - more) + low[l];
}

/* The next number of each stream. */
INLINE void draw_normals(uint64_t *state, size_t lanes, double *z) {
    uint64_t bits[LANES], cell[LANES], rest[LANES], ends = 0;
    double within[LANES];
    EACH_LANE {
        bits[l] = spw_random_mix(state[l] += SPW_RANDOM_STEP);
        cell[l] = bits[l] >> (64 - CELL_BITS);
        rest[l] = bits[l] << CELL_BITS >> 11;
    }
    as_numbers(rest, lanes, within);
    _Pragma("omp simd reduction(| : ends)") for (size_t l = 0; l < lanes; l++) ends |= at_end(cell[l]);
    for (size_t l = 0; l < lanes; l++) z[l] = cell_begin[cell[l]] + within[l] * cell_wide[cell[l]];
    for (size_t l = 0; l < lanes && is_at_end(ends); l++)
        if (is_at_end(at_end(cell[l])))
            z[l] = gsl_cdf_ugaussian_Pinv(((double)(bits[l] >> 11) + 0.5) * 0x1p-53);
}

double spw_draw_normal(spw_random_stream *stream) {
    double z = 0.0;
    (void)pthread_once(&inverse_once, list_inverse);
    draw_normals(&stream->state, 1, &z);
    return z;
}

/* --- What pieces of as many tokens share --- */

typedef struct choice_scale {
    double run, half, spread, swing, most_left, most_right;
} choice_scale;

typedef struct reached_scale {
    double mean[FIGURES], spread;
} reached_scale;

/* Of the scratch memory. */
typedef struct drawing {
    const spw_count_normal *normal;
    double *tokens;                   /* for which the scales are, or 0 */
    lane_numbers *number;             /* normal ones, in the order in which they are used */
    lane_numbers *figure[1 + LEVELS]; /* N, R, Q by place */
    lane_numbers *least, *most;       /* of the figure that is being drawn */
    choice_scale *choice;
    reached_scale *reached[LEVELS];
} drawing;

static size_t numbers_of(const spw_count_normal *c) {
    return c->splits + LEVELS + c->level[0].splits + c->level[1].splits;
}

size_t spw_count_normal_bytes(const spw_count_normal *c) {
    return (1 + numbers_of(c) + (3 + LEVELS) * c->places) * LANES * sizeof(double) +
           c->splits * sizeof(choice_scale) +
           (c->level[0].splits + c->level[1].splits) * sizeof(reached_scale);
}

static drawing lay_out(const spw_count_normal *c, void *scratch) {
    drawing d = {.normal = c, .tokens = scratch};
    d.number = (double(*)[LANES])scratch + 1;
    d.figure[0] = d.number + numbers_of(c);
    for (size_t i = 0; i < LEVELS; i++) d.figure[i + 1] = d.figure[i] + c->places;
    d.least = d.figure[LEVELS] + c->places;
    d.most = d.least + c->places;
    d.choice = (choice_scale *)(void *)(d.most + c->places);
    d.reached[0] = (reached_scale *)(void *)(d.choice + c->splits);
    d.reached[1] = d.reached[0] + c->level[0].splits;
    return d;
}

void spw_count_normal_begin(void *scratch) { *(double *)scratch = 0.0; }

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
        d->choice[i] = (choice_scale){.run = tokens * s->run,
                                      .half = tokens * s->half,
                                      .spread = spread(tokens, s->own),
                                      .swing = s->swing * share,
                                      .most_left = tokens * (double)s->most_left,
                                      .most_right = tokens * (double)s->most_right};
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

INLINE double less(double a, double b) { return a < b ? a : b; }
INLINE double more(double a, double b) { return a > b ? a : b; }

/* Of a number that is not negative. */
INLINE double whole(double value) {
    const double near = (value + 0x1p52) - 0x1p52;
    return near > value ? near - 1.0 : near;
}

/* The nearest whole number from low on to high, which are not negative. */
INLINE double near(double value, double low, double high) {
    const double nearest = less(whole(value + 0.5), high);
    return value > low ? nearest : low;
}

/* Choices of the left half of each run; the right one has the rest. Returns the numbers behind those used. */
INLINE const lane_numbers *draw_choices(const drawing *d, size_t lanes) {
    const spw_count_normal *c = d->normal;
    const double choices = *d->tokens * (double)c->tree->top_k;
    EACH_LANE d->figure[0][0][l] = choices;
    for (size_t i = 0; i < c->splits; i++) {
        const choice_split s = c->choice[i];
        const choice_scale of = d->choice[i];
        const double *run = d->figure[0][s.at.run], *z = d->number[i];
        double *left = d->figure[0][s.at.left], *right = d->figure[0][s.at.right];
        EACH_LANE {
            const double all = run[l], off = all - of.run, wide = 1.0 + of.swing * off,
                         wider = more(wide, LEAST_SPREAD),
                         value = of.half + s.slope * off + of.spread * wider * z[l] +
                                 s.skew * (z[l] * z[l] - 1.0),
                         some = near(value, more(0.0, all - of.most_right), less(all, of.most_left));
            left[l] = some;
            right[l] = all - some;
        }
    }
    return d->number + c->splits;
}

/* What ranks can have: each is reached by no fewer tokens than an expert of it has, nor by more than it has choices. So a node by its
 * ranks. */
INLINE void bound(const drawing *d, size_t lanes, size_t at_level) {
    const count_level *level = &d->normal->level[at_level];
    const double parts = (double)level->parts, most = less(parts, (double)d->normal->tree->top_k),
                 tokens = *d->tokens;
    for (size_t i = 0; i < level->blocks; i++) {
        const uint32_t *part = level->part + i * level->parts, place = level->block[i];
        const double *all = d->figure[at_level][place];
        double *least = d->least[place], *greatest = d->most[place];
        EACH_LANE least[l] = whole((all[l] + most - 1.0) / most);
        for (size_t k = 0; k < level->parts; k++) {
            const double *one = d->figure[at_level][part[k]];
            EACH_LANE least[l] = more(least[l], one[l]);
        }
        EACH_LANE greatest[l] = less(tokens, all[l]);
    }
    for (size_t i = level->splits; i > 0; i--) { /* from the smallest on */
        const halves at = level->split[i - 1].at;
        EACH_LANE d->least[at.run][l] = d->least[at.left][l] + d->least[at.right][l];
        EACH_LANE d->most[at.run][l] = d->most[at.left][l] + d->most[at.right][l];
    }
}

/* Of the left half of a run the tokens that reach its ranks, or nodes, by the regression on the figures before. */
INLINE void draw_reached(const drawing *d, size_t lanes, size_t level, size_t split, const double *z) {
    const size_t last = R_OF_HALF + 2 * level;
    const reached_split *s = &d->normal->level[level].split[split];
    const reached_scale *of = &d->reached[level][split];
    const double *run = d->figure[level + 1][s->at.run];
    double off[FIGURES][LANES], value[LANES], *left = d->figure[level + 1][s->at.left],
                                              *right = d->figure[level + 1][s->at.right];
    for (size_t i = 0; i <= last; i++) {
        const double *row = s->row + i * (i - 1) / 2;
        const double *had = d->figure[i / 2][i % 2 == 0 ? s->at.run : s->at.left];
        EACH_LANE value[l] = of->mean[i];
        for (size_t k = 0; k < i; k++) EACH_LANE value[l] += row[k] * off[k][l];
        if (i < last) EACH_LANE off[i][l] = had[l] - value[l];
    }
    EACH_LANE {
        const double all = run[l], some = near(value[l] + of->spread * z[l],
                                               more(d->least[s->at.left][l], all - d->most[s->at.right][l]),
                                               less(d->most[s->at.left][l], all - d->least[s->at.right][l]));
        left[l] = some;
        right[l] = all - some;
    }
}

INLINE const lane_numbers *draw_level(const drawing *d, size_t lanes, size_t at_level,
                                      const lane_numbers *z) {
    const count_level *level = &d->normal->level[at_level];
    const double tokens = *d->tokens, mean = tokens * level->mean,
                 deviation = spread(tokens, level->variance);
    bound(d, lanes, at_level);
    EACH_LANE d->figure[at_level + 1][0][l] = near(mean + deviation * z[0][l], d->least[0][l], d->most[0][l]);
    for (size_t i = 0; i < level->splits; i++) draw_reached(d, lanes, at_level, i, z[1 + i]);
    return z + 1 + level->splits;
}

typedef void sampler(const drawing *d, uint64_t *state);

#define DEFINE_SAMPLER(target, name, lanes) \
    target static void name(const drawing *d, uint64_t *state) { \
        const size_t numbers = numbers_of(d->normal); \
        for (size_t i = 0; i < numbers; i++) draw_normals(state, lanes, d->number[i]); \
        const lane_numbers *z = draw_choices(d, lanes); \
        z = draw_level(d, lanes, 0, z); \
        (void)draw_level(d, lanes, 1, z); \
    }
#define BASELINE /* of the processor that this is compiled for */

DEFINE_SAMPLER(BASELINE, sample_one, 1)
DEFINE_SAMPLER(BASELINE, sample_lanes, LANES)
#ifdef __x86_64__
DEFINE_SAMPLER(__attribute__((target("avx2"))), sample_v3, LANES)
DEFINE_SAMPLER(__attribute__((target("avx512f,avx512dq,avx512vl"))), sample_v4, LANES)

static sampler *sampler_here(void) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return sample_v4;
    return __builtin_cpu_supports("avx2") ? sample_v3 : sample_lanes;
}
#else
static sampler *sampler_here(void) { return sample_lanes; }
#endif

/* Experts of all lanes: a whole number is the low half of 2^52 more than it. */
static void give_experts(const drawing *d, const spw_token_counts *out) {
    const spw_count_normal *c = d->normal;
    const size_t lanes = LANES;
    uint32_t *row[LANES];
    for (size_t l = 0; l < lanes; l++) row[l] = out[l].expert;
    for (size_t x = 0; x < c->tree->experts; x++) {
        const double *figure = d->figure[0][c->expert[x]];
        lane_numbers more;
        uint64_t bits[LANES];
        EACH_LANE more[l] = figure[l] + 0x1p52;
        memcpy(bits, more, sizeof bits);
        for (size_t l = 0; l < lanes; l++) row[l][x] = (uint32_t)bits[l];
    }
}

static void give_experts_of(const drawing *d, size_t lane, uint32_t *expert) {
    const spw_count_normal *c = d->normal;
    for (size_t x = 0; x < c->tree->experts; x++) expert[x] = (uint32_t)d->figure[0][c->expert[x]][lane];
}

/* What was drawn in one lane of ranks and nodes. */
static void give(const drawing *d, size_t lane, const spw_token_counts *out) {
    const spw_count_normal *c = d->normal;
    for (size_t i = 0; i < c->level[0].blocks; i++)
        out->rank[i * out->rank_stride] = (uint32_t)d->figure[1][c->level[0].block[i]][lane];
    for (size_t i = 0; i < c->level[1].blocks; i++)
        out->node[i] = (uint32_t)d->figure[2][c->level[1].block[i]][lane];
}

void spw_count_normal_sample(const spw_count_normal *c, spw_random_stream *stream, size_t pieces,
                             void *scratch, size_t tokens, const spw_token_counts *out) {
    const drawing d = lay_out(c, scratch);
    const size_t lanes = pieces > FEW ? LANES : 1;
    sampler *const sample = pieces > FEW ? sampler_here() : sample_one;
    (void)pthread_once(&inverse_once, list_inverse);
    if (*d.tokens != (double)tokens) scale(&d, (double)tokens);
    for (size_t first = 0; first < pieces; first += lanes) {
        uint64_t state[LANES] = {0};
        const size_t end = pieces - first < lanes ? pieces - first : lanes;
        for (size_t l = 0; l < end; l++) state[l] = stream[first + l].state;
        sample(&d, state);
        if (end == LANES) give_experts(&d, &out[first]);
        for (size_t l = 0; l < end; l++) {
            stream[first + l].state = state[l];
            if (end < LANES) give_experts_of(&d, l, out[first + l].expert);
            give(&d, l, &out[first + l]);
        }
    }
}
