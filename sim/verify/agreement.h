/* The simulator held against the reference that executes: for one group and one layer of a trace, rows, bytes of every
 * rank pair and exchange, drops and peak bytes, predicted and executed; and the values that come out. */
#ifndef SPW_SIM_VERIFY_AGREEMENT_H
#define SPW_SIM_VERIFY_AGREEMENT_H

#include "base/status.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stdint.h>

/* What one group does in one layer. */
typedef struct spw_verify_case {
    spw_layer_shape shape;
    const int32_t *expert; /* [ranks][tokens][top_k] ids, or -1: no choice */
    uint64_t seed;         /* of weights, tokens and gradients */
    bool cuts; /* may hidden sizes be cut among tensor groups? spw_verify_run() goes by the shape */
} spw_verify_case;

/* How the values of a scheme compare with those of the plain layer on the choices that it keeps. */
typedef enum spw_agreement { SPW_AGREE_EXACT, SPW_AGREE_BOUND, SPW_AGREE_NOT } spw_agreement;

/* Sums over cases. A comparison is one number against one number; values count one an array. */
typedef struct spw_verify_tally {
    size_t cases, comparisons, agreed;
    uint64_t rows[2], bytes[2], dropped[2],
        peak_bytes[2];    /* [0] predicted, [1] executed; peak: of the last case */
    spw_agreement values; /* the worst so far */
    double worst_share;   /* of the bound that an error used */
    char first_miss[256]; /* what disagreed first; "" */
} spw_verify_tally;

/* Runs one case and adds to `tally`. A disagreement is counted, not an error. */
SPW_MUST_CHECK spw_status spw_verify_run(const spw_scheme *scheme, const spw_verify_case *c,
                                         spw_verify_tally *tally);

/* Gradients of the plain layer against central differences of the same formula in fp64 (one small case by seed, with
 * weighted activations where it is even). The
 * allowed error is derived: (terms + 2) 2^-24 times the sum of magnitudes. Adds to `tally`. */
SPW_MUST_CHECK spw_status spw_verify_gradients(uint64_t seed, spw_verify_tally *tally);

#endif
