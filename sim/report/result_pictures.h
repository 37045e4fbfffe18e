/* What a report draws, read from a result file (docs/result_format.md). The file is a stranger's: a child process opens
 * and reduces it, and this one never does. */
#ifndef SPW_SIM_REPORT_RESULT_PICTURES_H
#define SPW_SIM_REPORT_RESULT_PICTURES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Steps, layers and ranks beyond these are drawn together, each bin by its largest. */
enum { SPW_PICTURE_STEPS = 120, SPW_PICTURE_LAYERS = 80, SPW_PICTURE_RANKS = 256 };
/* Experts are drawn for so many steps, each bin by its largest; links between so many parts of the ranks, summed. */
enum { SPW_EXPERT_STEPS = 6, SPW_EXPERT_LAYERS = 40, SPW_EXPERT_BINS = 128, SPW_LINK_PARTS = 64 };
enum { SPW_PICTURE_LIVE, SPW_PICTURE_ALLOCATED, SPW_PICTURE_RESERVED, SPW_PICTURE_MEMORIES };

/* Of one result, a row of the summary. The arrays are as long as the bins, and live as long as the pictures. */
typedef struct spw_result_picture {
    uint64_t sequences;   /* per GPU */
    double *gib;          /* [SPW_PICTURE_MEMORIES][step_bins] of the rank that has most */
    float *max_over_mean; /* [layer_bins][step_bins] rows of the fullest rank over the mean; 0: no rows */
    double *
        links; /* [link_parts][link_parts] bytes of one dispatch from part to part, mean over steps and layers */
    uint64_t *rows;      /* [rank_bins] by rank in the worst step and layer */
    uint64_t worst_rows; /* the most that a rank holds: there, by ... */
    int64_t worst_step;  /* id */
    int32_t worst_layer; /* id */
    size_t worst_rank;
    double worst_mean;  /* rows of a rank there, mean */
    double worst_ratio; /* the largest max/mean anywhere, at ... */
    int64_t ratio_step;
    int32_t ratio_layer;
} spw_result_picture;

typedef struct spw_result_pictures {
    size_t results, steps, layers, ranks;          /* of the file */
    size_t step_bins, layer_bins, rank_bins;       /* of the pictures */
    int64_t step[SPW_PICTURE_STEPS], last_step;    /* id of the first step of each bin */
    int32_t layer[SPW_PICTURE_LAYERS], last_layer; /* id of the first layer of each bin */
    size_t experts, expert_steps, expert_layers,
        expert_bins;                       /* 0: the file does not say what experts were chosen */
    size_t link_parts;                     /* 0: nor what crosses which link */
    int64_t expert_step[SPW_EXPERT_STEPS]; /* id of the first step of each */
    double
        hot_ratio; /* the most that one expert is chosen, over the mean of its layer; 0: nothing is chosen. There: */
    size_t hot_expert;
    int64_t hot_step;  /* id */
    int32_t hot_layer; /* id */
    size_t summary_bytes;
    spw_result_picture *picture; /* [results] */
    const float *chosen; /* [expert_steps][expert_layers][expert_bins] choices over the mean of the layer */
    const char *summary; /* JSON [summary_bytes] */
    char *block;         /* what the arrays and the summary lie in */
} spw_result_pictures;

/* SPW_EIO: missing or unreadable; SPW_EFORMAT: no spillway-result 1.x, damaged, cut short, or of sizes that cannot be. */
SPW_MUST_CHECK spw_status spw_result_pictures_read(const char *path, spw_result_pictures *out);
void spw_result_pictures_clear(spw_result_pictures *pictures); /* a zeroed one is fine */

#endif
