/* The same routing, more uneven or less: what a trace recorded with the popularity of its experts raised to a power.
 *
 * Of one step and layer, rank s has T[s] tokens that choose n[s][x] times expert x, N[x] = sum over s of n[s][x]. With the
 * exponent t it is to choose it
 *
 *   m[s][x] = min(T[s], c[s] n[s][x] (N[x] / max N)^(t - 1))
 *
 * times, c[s] such that the sum over x stays that of n[s], rounded to whole choices by largest remainders. t = 1 is the trace as it
 * was recorded, t = 0 gives every expert that was chosen at all the same load over all ranks (as far as T allows), t = 2 squares the
 * popularities, and the larger t, the more the hottest experts have; an expert that nobody chose stays so. Hot experts stay
 * those that were hot, in each layer and step its own.
 *
 * Choices move one by one: the tokens keep what they chose but for those that must change, which are taken evenly along the
 * rank's tokens from a seed, and some that two tokens trade where none can change alone. A choice keeps its slot and its weight. Groups of experts to which a router limits a token are not
 * looked at. */
#ifndef SPW_TRACES_GENERATE_TEMPER_H
#define SPW_TRACES_GENERATE_TEMPER_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct spw_trace spw_trace;

typedef struct spw_temper_settings {
    double exponent; /* t >= 0 */
    uint64_t seed;
    size_t step_begin, step_end;   /* positions, half open; end 0: all */
    size_t layer_begin, layer_end; /* the same */
} spw_temper_settings;

/* m of one rank: own [experts] is n[s], all [experts] is N, tokens T[s]; out [experts] sums to own, each at most `tokens`.
 * SPW_EARG when own has more than `tokens` of an expert. */
SPW_MUST_CHECK spw_status spw_temper_target(const uint32_t *own, const uint64_t *all, size_t experts,
                                            uint64_t tokens, double exponent, uint32_t *out);

/* Writes the chosen steps and layers so. Where the trace has counts alone, those are changed, and T is what they need at least. */
SPW_MUST_CHECK spw_status spw_trace_temper(const char *in_path, const char *out_path,
                                           const spw_temper_settings *settings);

/* Of 2, 4, ... 64 the least exponent with which, in the mean over steps and layers, the top_k hottest experts get nine tenths of the
 * choices; 64 where none does. The exponent of `settings` is not looked at. */
SPW_MUST_CHECK spw_status spw_temper_most(const char *path, const spw_temper_settings *settings, double *out);

/* How uneven the recorded loads are, of the worst step and layer: the fullest of `ranks` parts of consecutive experts over their
 * mean (NAN where they do not divide the experts), and the fullest expert over the mean. */
SPW_MUST_CHECK spw_status spw_trace_skew(spw_trace *trace, size_t ranks, double *part, double *expert);

#endif
