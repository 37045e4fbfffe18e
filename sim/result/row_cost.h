/* What a row's speed means to whoever pays: how much of the GPUs' peak it is, and what an amount of training takes.
 *
 *   FLOP/s of a GPU  = tokens/s of a GPU x FLOP of a token in training (sim/model/token_work.h)
 *   MFU              = that / the cluster's dense bf16 peak of a GPU (Chowdhery et al. 2022, PaLM, appendix B)
 *
 * Work that is done twice under remat counts once; assignments that a scheme drops count as work; the peak is that of bf16
 * under recipes of fp8, too. Every figure has the interval of the step time.
 *
 * Of a job that is one replica of a framework's mesh, tokens a day, days, GPU hours and money are those of all replicas
 * (sim/job/replicas.h): a step takes the seconds of their sum of gradients longer, and at its fastest none of them. */
#ifndef SPW_SIM_RESULT_ROW_COST_H
#define SPW_SIM_RESULT_ROW_COST_H

#include "sim/job/job_words.h"

#include <stddef.h>

typedef struct spw_result_row spw_result_row;

/* X(field): the figures, by the names that they have in JSON and CSV. */
#define SPW_ROW_COST_LIST(X) \
    X(tokens_per_day) /* of all GPUs */ \
    X(flops_per_s_per_gpu) \
    X(mfu) /* a share */ \
    X(days) \
    X(gpu_hours) \
    X(money) /* in the currency of the price */

/* A number and its interval; NAN where there is none. */
typedef struct spw_cost_figure {
    double value, low, high;
} spw_cost_figure;

#define SPW_ROW_COST_FIELD(name) spw_cost_figure name;
typedef struct spw_row_cost {
    SPW_ROW_COST_LIST(SPW_ROW_COST_FIELD)
} spw_row_cost;
#undef SPW_ROW_COST_FIELD

/* Of training on `tokens` tokens (0: none were named, and days, gpu_hours and money are NAN). Without a time everything is
 * NAN; FLOP/s and MFU are NAN for a part of a model, money without a price. */
spw_row_cost spw_row_cost_of(const spw_result_row *row, const spw_job *job, double tokens);

/* The same of a speed in tokens/s of a GPU, with steps of step_s, on `gpus` of the job's GPUs. */
spw_row_cost spw_cost_of_speed(spw_cost_figure speed, double step_s, const spw_job *job, size_t gpus,
                               double tokens);

/* Tokens to count the cost of: those that were asked for; else, where GPUs have a price, 1e12; else 0. */
double spw_cost_tokens(const spw_job *job, double asked);

enum { SPW_ROW_COSTS = 6 };
/* The figures in the order of the list, with their names. */
typedef struct spw_named_cost {
    const char *name, *low, *high; /* "mfu", "mfu_low", "mfu_high" */
    spw_cost_figure figure;
} spw_named_cost;
void spw_row_cost_list(const spw_row_cost *cost, spw_named_cost out[SPW_ROW_COSTS]);

#endif
