/* Megatron-Core's dispatchers, and Primus' in their place, as schemes. */
#ifndef SPW_SIM_FRAMEWORKS_SCHEMES_MEGATRON_H
#define SPW_SIM_FRAMEWORKS_SCHEMES_MEGATRON_H

#include "sim/frameworks/draft.h"

/* Puts `schemes` and cuda_graph_impl. recipe: of fp8, for which rows are padded; NULL: none. */
SPW_MUST_CHECK spw_status spw_compose_megatron_scheme(spw_draft *draft, const char *recipe);

#endif
