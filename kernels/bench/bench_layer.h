/* Whole expert layers between the GPUs of a machine at full width, timed. */
#ifndef SPW_KERNELS_BENCH_BENCH_LAYER_H
#define SPW_KERNELS_BENCH_BENCH_LAYER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_bench_layer_request {
    size_t ranks;                         /* a GPU each; 0: all GPUs */
    size_t tokens;                        /* of a rank; 0: 4096 */
    const char *model, *scheme, *routing; /* one of spw_bench_layer_names; NULL: all */
    const char *csv;                      /* a file for the numbers; NULL: none */
    bool unfused;                         /* the plain products (spw_layer_form) */
} spw_bench_layer_request;

/* What can be asked for, separated by commas: of models, schemes or routings (0, 1, 2). Lives as long as the
 * process. */
const char *spw_bench_layer_names(int what);

/* Forward and backward pass of every model, scheme and routing asked for. Prints a table. A pass as a whole is
 * timed without anything in between; its phases in runs of their own, by events on the stream of each rank:
 * medians over fresh routing of the slowest rank. A phase of an exchange holds the wait for the rank that comes
 * last.
 *
 * The columns of the csv: scheme,ranks,gpus,tokens_per_rank,hidden,ffn,experts,top_k,routing,pass,phase,rows_max,
 * rows_mean,bytes_off_rank,ms. rows: that a rank's experts compute, of the rank with most and the mean of all,
 * both means over routings (dense: slots). bytes_off_rank: of an exchange, that a rank sends to or fetches from
 * others, mean of all; of a pass the sum; else 0. phase: those of layer_gpu.h, and total. SPW_EARG: a name that is
 * unknown, experts that the ranks do not divide; SPW_EDEVICE: no GPU, or too little memory, before any is taken;
 * SPW_EIO: the csv. */
SPW_MUST_CHECK spw_status spw_bench_layer(const spw_bench_layer_request *request);

#endif
