/* Exchanges between ranks: all cases, wrong kernels, repetitions. */
#ifndef SPW_KERNELS_VERIFY_RANKS_VERIFY_EXCHANGE_H
#define SPW_KERNELS_VERIFY_RANKS_VERIFY_EXCHANGE_H

#include "base/status.h"
#include "kernels/record/record.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct spw_exchange_request {
    size_t ranks;
    size_t gpus;              /* 0: as many as there are, at most ranks */
    bool phases;              /* kernels never wait for each other, even where they could */
    bool processes;           /* a process a rank; must be asked before anything has touched a GPU */
    bool full;                /* also DeepSeek-V3's shape: 4096 tokens of 7168 */
    size_t repetitions;       /* with fresh routing, spread over all kinds of routing; 0: none */
    const spw_record *record; /* routing and predictions, of as many ranks; NULL: made-up routings */
} spw_exchange_request;

/* As spw_verify_device. */
SPW_MUST_CHECK spw_status spw_verify_exchange(const spw_exchange_request *request);

#endif
