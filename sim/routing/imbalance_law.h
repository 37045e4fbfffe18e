/* From one stated unevenness to that of every expert-parallel size: the law of `plan --imbalance`.
 *
 * The experts of a layer have log-normal popularities, the quantiles of the distribution:
 *
 *     p[i] = exp(sigma z[i]),  z[i] = the standard normal quantile of 1 - (i + 1/2) / experts,  i = 0 .. experts - 1,
 *
 * and a token chooses expert i with the probability pi[i] = min(1, c p[i]), c such that their sum is top_k (traces/generate/generate.h).
 * A placement puts experts / R of them on each of R ranks, and every placement is as likely as any other. max_over_mean(R) is the
 * mean over all placements of the largest sum of pi on one rank, over top_k / R. sigma is the one number that is fitted: with it
 * max_over_mean of the stated size is the stated number. So EP 1 has exactly 1, and more ranks are never more even. The mean is
 * taken over SPW_LAW_PLACEMENTS placements (fewer of more than 512 experts) by a fixed seed, the same for all sizes.
 *
 * sigma ends at 2 with random placement: no routing that we have seen is so uneven. Beyond, popular experts lie together:
 * max_over_mean is (1 - together) times that of random placement plus `together` times that of experts in the order of their
 * popularity. Where that is not enough (together = 1), sigma grows on, to 8.
 *
 * Why log-normal and random: of up to 12 layers each of five models' real routing, placed at random or as they were, max_over_mean
 * at EP 4 or 8 foretells that of the other sizes with an error of 3 to 9 % (17 % of one with 32 experts); Zipf's law has 8 to 22 %, and
 * experts placed in the order of their popularity 12 to 60 % (docs/imbalance.md). */
#ifndef SPW_SIM_ROUTING_IMBALANCE_LAW_H
#define SPW_SIM_ROUTING_IMBALANCE_LAW_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { SPW_LAW_PLACEMENTS = 2048, SPW_LAW_SIZES = 64 };

typedef struct spw_imbalance_law {
    size_t experts, top_k;
    size_t ranks;         /* of the stated number */
    double max_over_mean; /* the stated number */
    double sigma, together;
    size_t sizes; /* expert-parallel sizes that divide the experts, rising; 1 is the first */
    size_t size[SPW_LAW_SIZES];
    double at[SPW_LAW_SIZES]; /* max_over_mean of each */
    double *inclusion;        /* [experts] pi, falling */
    uint16_t *placement; /* [sizes][experts] a placement about as uneven as `at`, its fullest rank first */
} spw_imbalance_law;

/* The most uneven that `ranks` ranks can be: min(ranks, experts / top_k), as the choices of a token are different experts. */
double spw_imbalance_most(size_t experts, size_t top_k, size_t ranks);

/* SPW_ECONFIG where `ranks` ranks cannot be that uneven, or do not divide the experts. */
SPW_MUST_CHECK spw_status spw_imbalance_law_create(size_t experts, size_t top_k, size_t ranks,
                                                   double max_over_mean, spw_imbalance_law *out);
void spw_imbalance_law_destroy(spw_imbalance_law *law); /* a zeroed one is fine */

/* max_over_mean of so many ranks; of the next smaller size where they do not divide the experts. */
double spw_imbalance_law_at(const spw_imbalance_law *law, size_t ranks);

/* Fills inclusion [experts] as that placement of so many ranks has them. */
void spw_imbalance_law_place(const spw_imbalance_law *law, size_t ranks, double *inclusion);

#endif
