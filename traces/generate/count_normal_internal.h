/* What count_normal.c makes of a tree, and count_normal_draw.c draws from. A place is that of a run's figures; a group of experts and the
 * run of these have one. Splits stand in the order in which they are drawn: a run before its halves, the left half before the right. */
#ifndef SPW_TRACES_GENERATE_COUNT_NORMAL_INTERNAL_H
#define SPW_TRACES_GENERATE_COUNT_NORMAL_INTERNAL_H

#include "traces/generate/count_normal.h"

/* Figures of a run, each beside that of its left half, in the order in which they are drawn. */
enum { N_OF_RUN, N_OF_HALF, R_OF_RUN, R_OF_HALF, Q_OF_RUN, Q_OF_HALF, FIGURES, LEVELS = 2 };
enum { PAIRS = FIGURES * (FIGURES - 1) / 2 };

typedef struct halves {
    uint32_t run, left, right; /* places */
} halves;

/* How the choices of a run are split; means and variance of a token. */
typedef struct choice_split {
    halves at;
    uint32_t most_left, most_right; /* choices of a token */
    double run, half, slope, own, skew, swing;
} choice_split;

/* How the ranks or nodes that are reached are split: the regression row by row, and the variance that it leaves. */
typedef struct reached_split {
    halves at;
    double mean[FIGURES], row[PAIRS], own;
} reached_split;

/* Ranks, or nodes. */
typedef struct count_level {
    size_t size;            /* experts of one */
    double mean, variance;  /* of how many a token reaches */
    size_t blocks, parts;   /* of a block: the smaller ones in it, or experts */
    uint32_t *block, *part; /* places: [blocks], [blocks][parts] */
    size_t splits;
    reached_split *split; /* [splits] */
} count_level;

struct spw_count_normal {
    const spw_count_tree *tree;
    double least; /* variance of an expert, per token; 0: ranks are larger than nodes */
    size_t places, splits;
    uint32_t *expert;     /* [experts] places */
    choice_split *choice; /* [splits] */
    count_level level[LEVELS];
};

#endif
