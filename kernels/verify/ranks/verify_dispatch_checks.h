/* Private to verify_dispatch*.c: what one case holds, and what is checked of it. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_DISPATCH_CHECKS_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_DISPATCH_CHECKS_H

#include "kernels/verify/ranks/verify_dispatch.h"
#include "reference/dispatch.h"

typedef struct spw_dispatch_run {
    spw_world *world;
    const spw_dispatch_case *c;
    spw_judge *judge;
    spw_dispatch *dispatch;
    spw_dispatch_plan plan;
    size_t ranks, tokens, top_k, row_bytes, scales, worst; /* worst: rows of a buffer */
    int32_t *expert;                                       /* [ranks][tokens][top_k] */
    float *weight;
    unsigned char *x;     /* [ranks][tokens][row_bytes] */
    float *scale;         /* [ranks][tokens][scales] */
    float **rows, **side; /* [ranks] of [worst][hidden] and [worst][top_k]: what the ranks return */
    unsigned char *got;   /* room for what is read back */
    float *want, *bound;  /* [tokens][hidden] */
    uint64_t *wire;       /* [ranks][ranks] rows that a dispatch must send */
    spw_dispatch_input in;
    void *memory[SPW_WORLD_RANKS][4]; /* of `in`, and of y and side below */
    spw_bf16 *y[SPW_WORLD_RANKS];
    float *side_sum[SPW_WORLD_RANKS];
} spw_dispatch_run;

/* One comparison of a rank. */
void spw_dispatch_count(spw_dispatch_run *r, spw_status result, size_t rank, const char *what);

/* Each downloads what the last exchange left on a rank (s as a source, d as a destination) and counts comparisons. */
SPW_MUST_CHECK spw_status spw_dispatch_check_layout(spw_dispatch_run *r, size_t s);
/* choices: those of the rows too. */
SPW_MUST_CHECK spw_status spw_dispatch_check_received(spw_dispatch_run *r, size_t d, bool choices,
                                                      const char *what);
/* whole: sums are exact; side: those of the numbers behind the rows too. */
SPW_MUST_CHECK spw_status spw_dispatch_check_combined(spw_dispatch_run *r, size_t s, bool whole, bool side);
/* Bytes of every pair in all exchanges, and of the buffers, of all ranks of this process. */
SPW_MUST_CHECK spw_status spw_dispatch_check_counters(spw_dispatch_run *r);

#endif
