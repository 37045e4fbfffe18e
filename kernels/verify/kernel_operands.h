/* The operands of a case and what is right for them: the inside of kernel_case.h. */
#ifndef SPW_KERNELS_VERIFY_KERNEL_OPERANDS_H
#define SPW_KERNELS_VERIFY_KERNEL_OPERANDS_H

#include "kernels/record/routing.h"
#include "kernels/verify/kernel_case.h"

enum { SPW_KERNEL_GUARD = 0xa5 }; /* every byte of a guard band */

/* Terms of an evaluation in fp32. swiglu: kernels/local/swiglu_math.h. router, beside experts and top_k: relative errors in units of
 * 2^-24; |logit - largest| <= 16 is rounded before exp, which adds 2; so do the terms of a sum; two divisions. */
enum { SPW_KERNEL_SWIGLU_TERMS = 10, SPW_KERNEL_ROUTER_TERMS = 2 * (16 + 2) + 2 };

/* Where choices are from: made up, or those of a record that reach one of its ranks. */
typedef struct spw_choice_source {
    spw_routing routing;
    const spw_record *record;
    size_t rank;
} spw_choice_source;

/* Fills a case whose call has its sizes. numbers: of spw_numbers. SPW_EARG, SPW_ENOMEM. */
typedef spw_status spw_kernel_maker(spw_kernel_case *c, const spw_choice_source *from, int numbers);
spw_kernel_maker spw_kernel_make_product, spw_kernel_make_movement, spw_kernel_make_swiglu,
    spw_kernel_make_router, spw_kernel_make_dispatch, spw_kernel_make_combine;

/* Tokens of a source of a record that take part. */
size_t spw_kernel_record_tokens(const spw_record *record);
/* expert [choices], or -1: of the experts of the call, which are all or those of the rank. */
void spw_kernel_choices(const spw_kernel_call *s, const spw_choice_source *from, size_t choices,
                        int32_t *expert);
size_t spw_kernel_type_bytes(spw_type type);
/* array[at] = value, rounded to the type; returns it as it is there. */
float spw_kernel_store(spw_type type, void *array, size_t at, float value);
/* The numbers of the reference, *values, and the kernel's, which are the same in the case's type; NaN from `used` on. */
SPW_MUST_CHECK spw_status spw_kernel_fill(spw_kernel_case *c, size_t input, size_t count, size_t used,
                                          int numbers, uint64_t seed, float **values);
SPW_MUST_CHECK spw_status spw_kernel_indices(spw_kernel_case *c, size_t input, size_t count,
                                             const int32_t *from);
/* The output, in c->output_type, and what is right, which the caller fills; the first `judged` elements are compared. */
SPW_MUST_CHECK spw_status spw_kernel_output(spw_kernel_case *c, size_t count, size_t judged);
SPW_MUST_CHECK spw_status spw_kernel_index_output(spw_kernel_case *c, size_t count);

#endif
