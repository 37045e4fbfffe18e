/* The all-to-all dispatcher, for schemes that change something about it. */
#ifndef SPW_REFERENCE_SCHEMES_MEGATRON_EXECUTE_MEGATRON_ALLTOALL_H
#define SPW_REFERENCE_SCHEMES_MEGATRON_EXECUTE_MEGATRON_ALLTOALL_H

#include "reference/schemes/megatron/megatron_ranks.h"

SPW_MUST_CHECK spw_status spw_execute_megatron_alltoall_with(spw_execution *run,
                                                             const spw_megatron_settings *settings);

#endif
