#include "sim/routing/imbalance_law.h"

#include "base/memory.h"
#include "traces/generate/random_stream.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <string.h>

enum { SEED = 1, PURPOSE = 0x1aba1, LEAST_PLACEMENTS = 64, MOST_EXPERTS = 1 << 16, HALVINGS = 40 };
static const size_t MOST_PLACED = (size_t)SPW_LAW_PLACEMENTS * 512; /* experts of all placements */
static const double SIGMA_AT_RANDOM = 2.0, SIGMA_IN_ORDER = 8.0;

/* Random placements: consecutive parts of a permutation are the experts of a rank. */
typedef struct placements {
    size_t experts, count;
    uint16_t *expert; /* [count][experts] by popularity, 0 the most popular */
} placements;

double spw_imbalance_most(size_t experts, size_t top_k, size_t ranks) {
    return fmin((double)ranks, (double)experts / (double)top_k);
}

static spw_status place(size_t experts, placements *out) {
    const size_t count = MOST_PLACED / experts;
    spw_random_stream stream;
    spw_status status = SPW_OK;
    *out = (placements){.experts = experts,
                        .count = count > SPW_LAW_PLACEMENTS  ? SPW_LAW_PLACEMENTS
                                 : count >= LEAST_PLACEMENTS ? count
                                                             : LEAST_PLACEMENTS};
    SPW_TRY(SPW_ALLOC(out->count * experts, &out->expert));
    spw_random_stream_init(&stream, SEED, PURPOSE, experts, 0, 0);
    for (size_t p = 0; p < out->count; p++) {
        uint16_t *order = out->expert + p * experts;
        for (size_t i = 0; i < experts; i++) { /* Durstenfeld 1964 */
            const size_t at = spw_random_below(&stream, i + 1);
            order[i] = order[at];
            order[at] = (uint16_t)i;
        }
    }

cleanup:
    return status;
}

/* inclusion [experts], falling, sum top_k. z [experts] falls. */
static void include(const double *z, size_t experts, size_t top_k, double sigma, double *inclusion) {
    size_t whole = 0; /* experts that every token chooses */
    double sum = 0.0;
    for (; whole < top_k; whole++) {
        sum = 0.0;
        for (size_t i = whole; i < experts; i++) sum += exp(sigma * (z[i] - z[whole]));
        if ((double)(top_k - whole) <= sum) break;
        inclusion[whole] = 1.0;
    }
    for (size_t i = whole; i < experts; i++)
        inclusion[i] = whole < top_k ? (double)(top_k - whole) * exp(sigma * (z[i] - z[whole])) / sum : 0.0;
}

/* The largest sum of one rank, and which rank has it. */
static double fullest(const uint16_t *order, const double *inclusion, size_t experts, size_t ranks,
                      size_t *rank) {
    const size_t mine = experts / ranks;
    double most = -1.0;
    for (size_t d = 0; d < ranks; d++) {
        double sum = 0.0;
        for (size_t i = 0; i < mine; i++) sum += inclusion[order[d * mine + i]];
        if (sum > most) most = sum, *rank = d;
    }
    return most;
}

static double at_random(const placements *p, const double *inclusion, size_t top_k, size_t ranks) {
    double sum = 0.0;
    size_t rank = 0;
    for (size_t i = 0; i < p->count; i++)
        sum += fullest(p->expert + i * p->experts, inclusion, p->experts, ranks, &rank);
    return sum / (double)p->count * (double)ranks / (double)top_k;
}

static double in_order(const double *inclusion, size_t experts, size_t top_k, size_t ranks) {
    double sum = 0.0;
    for (size_t i = 0; i < experts / ranks; i++) sum += inclusion[i];
    return sum * (double)ranks / (double)top_k;
}

static double mixed(const placements *p, const spw_imbalance_law *law, size_t ranks) {
    const double random = law->together < 1.0 ? at_random(p, law->inclusion, law->top_k, ranks) : 0.0,
                 gathered = in_order(law->inclusion, law->experts, law->top_k, ranks);
    return (1.0 - law->together) * random + law->together * gathered;
}

/* What the popularities of sigma and together make of the stated size. */
static double made(const placements *p, const double *z, const spw_imbalance_law *law) {
    include(z, law->experts, law->top_k, law->sigma, law->inclusion);
    return mixed(p, law, law->ranks);
}

/* Raises sigma, then together, then sigma again, each from its low to its high end, until the stated size is as uneven as stated. */
static void fit(const placements *p, const double *z, spw_imbalance_law *law) {
    double *const number[] = {&law->sigma, &law->together, &law->sigma};
    const double highest[] = {SIGMA_AT_RANDOM, 1.0, SIGMA_IN_ORDER};
    if (!(law->max_over_mean > 1.0)) (void)made(p, z, law);
    for (size_t i = 0; i < sizeof highest / sizeof *highest && law->max_over_mean > 1.0; i++) {
        double low = *number[i], high = highest[i];
        *number[i] = high;
        if (made(p, z, law) < law->max_over_mean) continue;
        for (int halving = 0; halving < HALVINGS; halving++) {
            *number[i] = 0.5 * (low + high);
            *(made(p, z, law) < law->max_over_mean ? &low : &high) = *number[i];
        }
        return;
    }
}

/* Puts the most popular experts of other ranks in place of the least popular of rank 0, as far as `wanted` goes. */
static void fill_up(const spw_imbalance_law *law, size_t ranks, double wanted, uint16_t *order) {
    const size_t mine = law->experts / ranks;
    double sum = 0.0;
    for (size_t i = 0; i < mine; i++) sum += law->inclusion[order[i]];
    for (size_t popular = 0; popular < law->experts; popular++) {
        size_t at = mine, least = 0;
        for (size_t i = 1; i < mine; i++)
            if (order[i] > order[least]) least = i;
        while (at < law->experts && order[at] != popular) at++;
        if (at == law->experts || order[least] <= popular) continue; /* it is here already */
        const double more = law->inclusion[popular] - law->inclusion[order[least]];
        if (sum + more > wanted) continue;
        sum += more;
        order[at] = order[least];
        order[least] = (uint16_t)popular;
    }
}

/* The placement whose fullest rank is nearest to `wanted`, that rank in the place of the first. */
static void choose(const placements *p, const spw_imbalance_law *law, size_t ranks, double wanted,
                   uint16_t *out) {
    const size_t mine = law->experts / ranks;
    const double sum = wanted * (double)law->top_k / (double)ranks;
    size_t best = 0, rank = 0;
    double nearest = INFINITY;
    for (size_t i = 0; i < p->count; i++) {
        size_t full = 0;
        const double off =
            fabs(fullest(p->expert + i * p->experts, law->inclusion, p->experts, ranks, &full) - sum);
        if (off < nearest) nearest = off, best = i, rank = full;
    }
    memcpy(out, p->expert + best * p->experts, law->experts * sizeof *out);
    for (size_t i = 0; i < mine; i++) {
        const uint16_t first = out[i];
        out[i] = out[rank * mine + i];
        out[rank * mine + i] = first;
    }
    fill_up(law, ranks, sum, out);
}

static spw_status check(size_t experts, size_t top_k, size_t ranks, double max_over_mean) {
    const double most = spw_imbalance_most(experts, top_k, ranks);
    if (ranks == 0 || experts % ranks != 0 || experts > MOST_EXPERTS)
        return spw_fail(SPW_ECONFIG, "imbalance %g at EP %zu: %zu ranks do not divide %zu experts",
                        max_over_mean, ranks, ranks, experts);
    if (max_over_mean >= 1.0 && max_over_mean <= most * (1.0 + 1e-12)) return SPW_OK;
    if (ranks == 1)
        return spw_fail(SPW_ECONFIG,
                        "imbalance %g at EP 1: a group of one rank is even, whatever the routing; say at "
                        "which expert-parallel size it was measured, as in --imbalance %g,ep=8",
                        max_over_mean, max_over_mean);
    return spw_fail(SPW_ECONFIG,
                    "imbalance %g at EP %zu: the fullest rank's rows over the mean are in [1, %g], as a "
                    "token chooses %zu different experts of %zu",
                    max_over_mean, ranks, most, top_k, experts);
}

spw_status spw_imbalance_law_create(size_t experts, size_t top_k, size_t ranks, double max_over_mean,
                                    spw_imbalance_law *out) {
    placements p = {.experts = 0};
    double *z = NULL;
    spw_status status = SPW_OK;
    *out = (spw_imbalance_law){
        .experts = experts, .top_k = top_k, .ranks = ranks, .max_over_mean = max_over_mean};
    SPW_TRY(check(experts, top_k, ranks, max_over_mean));
    SPW_TRY(place(experts, &p));
    SPW_TRY(SPW_ALLOC(experts, &z));
    SPW_TRY(SPW_ALLOC(experts, &out->inclusion));
    SPW_TRY(SPW_ALLOC(SPW_LAW_SIZES * experts, &out->placement));
    for (size_t i = 0; i < experts; i++) z[i] = gsl_cdf_ugaussian_Qinv(((double)i + 0.5) / (double)experts);
    fit(&p, z, out);
    for (size_t r = 1; r <= experts && out->sizes < SPW_LAW_SIZES; r++) {
        if (experts % r != 0) continue;
        out->size[out->sizes] = r;
        out->at[out->sizes] = r == ranks ? max_over_mean : r == 1 ? 1.0 : fmax(1.0, mixed(&p, out, r));
        choose(&p, out, r, out->at[out->sizes], out->placement + out->sizes * experts);
        out->sizes++;
    }

cleanup:
    spw_free(p.expert);
    spw_free(z);
    if (status != SPW_OK) spw_imbalance_law_destroy(out);
    return status;
}

void spw_imbalance_law_destroy(spw_imbalance_law *law) {
    spw_free(law->inclusion);
    spw_free(law->placement);
    *law = (spw_imbalance_law){.sizes = 0};
}

static size_t size_of(const spw_imbalance_law *law, size_t ranks) {
    size_t at = 0;
    while (at + 1 < law->sizes && law->size[at + 1] <= ranks) at++;
    return at;
}

double spw_imbalance_law_at(const spw_imbalance_law *law, size_t ranks) {
    return law->at[size_of(law, ranks)];
}

void spw_imbalance_law_place(const spw_imbalance_law *law, size_t ranks, double *inclusion) {
    const uint16_t *order = law->placement + size_of(law, ranks) * law->experts;
    for (size_t i = 0; i < law->experts; i++) inclusion[i] = law->inclusion[order[i]];
}
