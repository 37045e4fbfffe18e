/* Activation memory of one layer beside the bars of a published figure (SonicMoE's figure 13: GiB a layer on one GPU).
 *
 * What a bar holds. The figure is what autograd keeps for the backward pass, expert weights included: of a model scale the
 * bars differ by multiples of N H and nothing else, and what is left when the scheme's saved bytes are taken off is the
 * expert weights, 3 E H F b, which the bf16 kernels save with their inputs (SonicMoE _UpProjection and _DownProjection,
 * ScatterMoE ParallelLinear, MegaBlocks MemoryOptimizedGroupedGLU: save_for_backward names the weights). SonicMoE's layer
 * function has its router inside, whose linear layer saves the input a second time: T H b more. This reading is inferred
 * from the bars and the code; the figure's own text was not at hand. Columns: notebooks_data/README.md. */
#ifndef SPW_SIM_SCORE_FIGURES_SCORE_LAYER_MEMORY_H
#define SPW_SIM_SCORE_FIGURES_SCORE_LAYER_MEMORY_H

#include "base/status.h"
#include "sim/read/csv.h"
#include "sim/schemes/scheme.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spw_layer_bar {
    size_t line;                /* in the table */
    const char *model, *method; /* live as long as the score */
    const char *scheme;         /* that stands for the method; NULL: none does */
    size_t tokens, hidden, ffn, experts, top_k;
    double bar_bytes;                                 /* NAN: the figure has none */
    uint64_t saved_bytes, weight_bytes, router_bytes; /* predicted: their sum */
} spw_layer_bar;

typedef struct spw_layer_score {
    spw_csv *table;
    spw_layer_bar *bar;
    size_t bars;   /* rows of memory; rows of another metric are passed over */
    size_t others; /* those */
} spw_layer_score;

/* SPW_EIO, SPW_EFORMAT with file and line. Closed by spw_layer_score_close. */
SPW_MUST_CHECK spw_status spw_layer_score_open(const char *path, spw_layer_score *out);
void spw_layer_score_close(spw_layer_score *score);

bool spw_layer_bar_is_scored(const spw_layer_bar *bar);
double spw_layer_bar_predicted(const spw_layer_bar *bar); /* bytes */
double spw_layer_bar_error(const spw_layer_bar *bar);     /* predicted / bar - 1 */

/* |error| over the scored bars of a method, NULL: of all; NAN when there are none. */
typedef struct spw_layer_errors {
    size_t bars, scored;
    double median, max;
} spw_layer_errors;
SPW_MUST_CHECK spw_status spw_layer_score_errors(const spw_layer_score *score, const char *method,
                                                 spw_layer_errors *out);

#endif
