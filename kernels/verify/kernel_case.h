/* Cases for kernels of others: operands, a result full of NaN between guard bands, the reference's answer and the judge. All in host
 * memory; who runs a kernel elsewhere copies. A case is a function of kernel, type, record and number alone. */
#ifndef SPW_KERNELS_VERIFY_KERNEL_CASE_H
#define SPW_KERNELS_VERIFY_KERNEL_CASE_H

#include "kernels/record/record.h"
#include "kernels/verify/judge.h"
#include "kernels/verify/plugin.h"
#include "kernels/verify/sparse_memory.h"

enum {
    SPW_KERNEL_CASE_GUARD = 4096, /* bytes before and behind the output that must not change */
    SPW_KERNEL_SAMPLES = 24       /* rows of a sparse output that are judged, at most */
};

typedef struct spw_kernel_case {
    spw_kernel_call call;
    size_t input_bytes[SPW_KERNEL_INPUTS], output_bytes,
        index_bytes; /* 0: that input or output is not there */
    size_t offsets;  /* elements of call.offset */
    size_t judged;   /* elements of the output that are compared: from the first, or those of the samples */
    size_t samples, sample_width, sample[SPW_KERNEL_SAMPLES]; /* of a sparse case: rows that are judged */
    spw_type output_type; /* the router's weights are float whatever its logits are */
    char name[192];       /* size, routing, layout, numbers */
    /* own */
    void *memory[SPW_KERNEL_INPUTS], *fenced, *fenced_index;
    spw_sparse sparse[SPW_KERNEL_INPUTS + 2];  /* inputs, output, index */
    const void *guarded, *guarded_index;       /* where the guard bands begin; NULL: none */
    uint64_t input_sum[SPW_KERNEL_INPUTS + 1]; /* of the bytes of each input and of offset, before the call */
    int32_t *offset, *want_index;
    float *want, *scale;
    size_t terms;
    bool exact;
} spw_kernel_case;

const char *spw_plugin_kernel_name(spw_kernel kernel);
/* SPW_EARG names those that there are. */
SPW_MUST_CHECK spw_status spw_kernel_parse(const char *name, spw_kernel *out);
/* Cases of a kernel in one type. Made-up routings: sizes x routings x numbers x variants, which are layouts of weights or
 * scores of a router, whose cases have no routing; behind them one of 140,000 rows a variant. Of a record: its ranks x numbers x layouts; a rank has its experts and what
 * reaches them of the first 64 tokens of every source; dispatch and combine have all ranks in a case, and a router has none. */
size_t spw_kernel_cases(spw_kernel kernel, const spw_record *record);
/* Cases behind them, for kernels in host memory alone: kernel_sparse.h. None of a record. */
size_t spw_kernel_sparse_cases(spw_kernel kernel, const spw_record *record);

/* record: NULL for made-up routings. number < spw_kernel_cases() + spw_kernel_sparse_cases(). *out owns its arrays; zeroed on failure. SPW_EARG, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_kernel_case_create(spw_kernel kernel, spw_type type, const spw_record *record,
                                                 size_t number, spw_kernel_case *out);
void spw_kernel_case_destroy(spw_kernel_case *c); /* a zeroed one is fine */

/* Of what stands in call.output. SPW_EMISMATCH: an input or a guard band was written to, or an element lies outside of its bound; then
 * the message says which, what came, and what would have passed. */
SPW_MUST_CHECK spw_status spw_kernel_case_judge(const spw_kernel_case *c, spw_judged *out);

#endif
