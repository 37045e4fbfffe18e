/* Cases for kernels of others: operands, a result full of NaN between guard bands, the reference's answer and the judge. All in host
 * memory; who runs a kernel elsewhere copies. A case is a function of kernel, type, record and number alone. */
#ifndef SPW_KERNELS_VERIFY_KERNEL_CASE_H
#define SPW_KERNELS_VERIFY_KERNEL_CASE_H

#include "kernels/record/record.h"
#include "kernels/verify/judge.h"
#include "kernels/verify/plugin.h"

enum { SPW_KERNEL_CASE_GUARD = 4096 }; /* bytes before and behind the output that must not change */

typedef struct spw_kernel_case {
    spw_kernel_call call;
    size_t input_bytes[SPW_KERNEL_INPUTS], output_bytes,
        index_bytes;      /* 0: that input or output is not there */
    size_t offsets;       /* elements of call.offset */
    size_t judged;        /* elements of the output, from the first, that are compared */
    spw_type output_type; /* the router's weights are float whatever its logits are */
    char name[192];       /* size, routing, layout, numbers */
    /* own */
    void *memory[SPW_KERNEL_INPUTS], *fenced, *fenced_index;
    int32_t *offset, *want_index;
    float *want, *scale;
    size_t terms;
    bool exact;
} spw_kernel_case;

const char *spw_plugin_kernel_name(spw_kernel kernel);
/* SPW_EARG names those that there are. */
SPW_MUST_CHECK spw_status spw_kernel_parse(const char *name, spw_kernel *out);
/* Cases of a kernel in one type. Made-up routings: sizes x routings x numbers x variants, which are layouts of weights or
 * scores of a router, whose cases have no routing. Of a record: its ranks x numbers x layouts; a rank has its experts and what
 * reaches them of the first 64 tokens of every source; dispatch and combine have all ranks in a case, and a router has none. */
size_t spw_kernel_cases(spw_kernel kernel, const spw_record *record);

/* record: NULL for made-up routings. number < spw_kernel_cases(). *out owns its arrays; zeroed on failure. SPW_EARG, SPW_ENOMEM. */
SPW_MUST_CHECK spw_status spw_kernel_case_create(spw_kernel kernel, spw_type type, const spw_record *record,
                                                 size_t number, spw_kernel_case *out);
void spw_kernel_case_destroy(spw_kernel_case *c); /* a zeroed one is fine */

/* Of what stands in call.output. SPW_EMISMATCH: a guard band was written to, or an element lies outside of its bound; then
 * the message says which, what came, and what would have passed. */
SPW_MUST_CHECK spw_status spw_kernel_case_judge(const spw_kernel_case *c, spw_judged *out);

#endif
