/* Whole layers on made-up routings. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_MADE_UP_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_MADE_UP_H

#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/record/record.h"
#include "kernels/verify/judge.h"

/* verify_layer.h on routings of choices.h that leave no choice unused: small shapes, every rule, buffers that are too
 * short among them. */
SPW_MUST_CHECK spw_status spw_verify_made_up_layers(spw_world *world, const spw_exchange_variant *variant,
                                                    spw_judge *judge);
/* Those of one rule on one small routing: for kernels that are wrong on purpose. */
SPW_MUST_CHECK spw_status spw_verify_made_up_layer(spw_world *world, spw_record_rule rule,
                                                   const spw_exchange_variant *variant, spw_judge *judge);

#endif
