#include "traces/generate/count_sample.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { ONE_BY_ONE = 6, LISTED = 4096 };
static const double FEW = 12.0; /* successes on average, up to which they are counted along the law */

static double uniform(spw_random_stream *stream) { return (double)(spw_random_next(stream) >> 11) * 0x1p-53; }

/* Along the law from 0 on: p[i + 1] = p[i] (n - i) / (i + 1) share / (1 - share). */
static uint32_t invert(spw_random_stream *stream, uint32_t trials, double share, double log_rest) {
    const double odds = share / (1.0 - share);
    double p = exp(trials * log_rest), at = uniform(stream);
    uint32_t i = 0;
    while (at >= p && i < trials) {
        at -= p;
        p *= (double)(trials - i) / (double)(i + 1) * odds;
        i++;
    }
    return i;
}

/* log k!, by Stirling's series from 10 on (to 1e-10). */
static double log_factorial(double k) {
    static const double first[] = {1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880};
    static const size_t firsts = sizeof first / sizeof *first;
    const double log_root = 0.91893853320467274178; /* of 2 pi */
    if (k < (double)firsts) return log(first[(int)k]);
    const double x = k + 1.0, square = 1.0 / (x * x);
    return (x - 0.5) * log(x) - x + log_root +
           (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 * square) * square) / x;
}

static double listed[LISTED]; /* log k! */
static pthread_once_t listed_once = PTHREAD_ONCE_INIT;

static void list_factorials(void) {
    for (size_t k = 0; k < LISTED; k++) listed[k] = log_factorial((double)k);
}

static inline double look_up(double k) { return k < LISTED ? listed[(size_t)k] : log_factorial(k); }

/* By transformed rejection: W. Hormann, The generation of binomial random variates, J. Statist. Comput. Simul. 46 (1993), algorithm
 * BTRS, whose hat and squeeze these figures are. Exact for share <= 1/2 and at least 10 successes on average; seven of eight draws
 * take two numbers and no logarithm. */
static uint32_t reject(spw_random_stream *stream, uint32_t trials, double share) {
    const double n = trials, spread = sqrt(n * share * (1.0 - share)), b = 1.15 + 2.53 * spread,
                 a = -0.0873 + 0.0248 * b + 0.01 * share, middle = n * share + 0.5, squeeze = 0.92 - 4.2 / b;
    for (;;) {
        double v = uniform(stream);
        const double u = uniform(stream) - 0.5, edge = 0.5 - fabs(u),
                     k = floor((2.0 * a / edge + b) * u + middle);
        if (edge >= 0.07 && v <= squeeze) return (uint32_t)k;
        if (!(k >= 0.0 && k <= n)) continue;
        const double mode = floor((n + 1.0) * share);
        v *= (2.83 + 5.1 / b) * spread / (a / (edge * edge) + b);
        (void)pthread_once(&listed_once, list_factorials);
        if (log(v) <= look_up(mode) + look_up(n - mode) - look_up(k) - look_up(n - k) +
                          (k - mode) * log(share / (1.0 - share)))
            return (uint32_t)k;
    }
}

static inline uint32_t draw(spw_random_stream *stream, uint32_t trials, double share, double log_rest) {
    if (share >= 1.0) return trials;
    if (trials <= ONE_BY_ONE) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < trials; i++) sum += uniform(stream) < share;
        return sum;
    }
    if (trials * share <= FEW) return invert(stream, trials, share, log_rest);
    if (trials * (1.0 - share) <= FEW) return trials - invert(stream, trials, 1.0 - share, log(share));
    return share <= 0.5 ? reject(stream, trials, share) : trials - reject(stream, trials, 1.0 - share);
}

uint32_t spw_draw_binomial(spw_random_stream *stream, uint32_t trials, double share, double log_rest) {
    return draw(stream, trials, share, log_rest);
}

size_t spw_count_sample_bytes(const spw_count_tree *t) {
    return (t->deepest + 1) * 2 * t->widest * sizeof(uint32_t);
}

typedef struct drawing {
    const spw_count_tree *tree;
    spw_random_stream *stream;
    const spw_token_counts *out;
} drawing;

/* left and right [states of each] += how the tokens in state `s` of a run are split. */
static void split_state(const drawing *d, const spw_count_node *n, size_t s, uint32_t tokens, uint32_t *left,
                        uint32_t *right) {
    const size_t *first = d->tree->first + n->state + s;
    const spw_count_option *o = d->tree->option + first[0], *end = d->tree->option + first[1];
    for (; o < end && tokens > 0; o++) {
        const uint32_t some = draw(d->stream, tokens, o->share, o->log_rest);
        left[o->left] += some;
        right[o->right] += some;
        tokens -= some;
    }
}

/* tokens [states] of a node; `room` is for the nodes below it. */
static void descend(const drawing *d, size_t at, const uint32_t *tokens, uint32_t *room) {
    const spw_count_tree *t = d->tree;
    const spw_count_node *n = &t->node[at];
    const size_t states = spw_count_states(n), choices = n->choices + 1;
    uint32_t *left = room, *right = room + t->widest;
    if (n->rank != SIZE_MAX || n->node != SIZE_MAX || n->left == 0) {
        uint32_t any = 0;
        for (size_t s = 0; s < states; s++) any += s % choices > 0 ? tokens[s] : 0;
        if (n->rank != SIZE_MAX) d->out->rank[n->rank * d->out->rank_stride] = any;
        if (n->node != SIZE_MAX) d->out->node[n->node] = any;
        if (n->left == 0) d->out->expert[n->low] = any;
    }
    if (n->left == 0) return;
    if (n->right == 0) {
        descend(d, n->left, tokens + choices, room);
        return;
    }
    memset(left, 0, spw_count_states(&t->node[n->left]) * sizeof *left);
    memset(right, 0, spw_count_states(&t->node[n->right]) * sizeof *right);
    for (size_t s = 1; s < states; s++)
        if (tokens[s] > 0) split_state(d, n, s, tokens[s], left, right);
    descend(d, n->left, left, room + 2 * t->widest);
    descend(d, n->right, right, room + 2 * t->widest);
}

void spw_count_sample(const spw_count_tree *t, spw_random_stream *stream, void *scratch, size_t tokens,
                      const spw_token_counts *out) {
    const drawing d = {t, stream, out};
    const size_t states = spw_count_states(&t->node[0]);
    uint32_t *all = scratch;
    memset(all, 0, states * sizeof *all);
    all[states - 1] = (uint32_t)tokens;
    descend(&d, 0, all, all + 2 * t->widest);
}
