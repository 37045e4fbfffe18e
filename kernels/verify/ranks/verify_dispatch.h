/* One case of dispatch and combine between ranks, again and again with other routings, against the reference. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_DISPATCH_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_DISPATCH_H

#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/record/choices.h"
#include "kernels/record/record.h"
#include "kernels/verify/judge.h"

typedef struct spw_dispatch_case {
    const char *name;
    spw_dispatch_shape shape;
    spw_choice_kind routing;
    const int32_t *expert; /* [ranks][tokens][top_k], or NULL: made up */
    const spw_record_scheme
        *predicted; /* rows and bytes; NULL: the rows are the executed reference's, the bytes
                                           those of docs/schemes.md */
} spw_dispatch_case;

/* Values, places, counts, bytes of every pair, the memory allocated and what was left alone. `repetitions` > 1: with
 * fresh routing and whole numbers each time. A comparison is one thing of one rank of this process. */
SPW_MUST_CHECK spw_status spw_verify_dispatch(spw_world *world, const spw_dispatch_case *c,
                                              const spw_exchange_variant *variant, size_t repetitions,
                                              spw_judge *judge);

#endif
