/* Megatron-Core behind HybridEP with a limit of rows a rank and the paged stash (docs/schemes.md, section 5.6): the pass whose
 * overflow is found at its end. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/execute_megatron_deepep.h"

spw_status spw_execute_megatron_syncfree(spw_execution *run) {
    const size_t align = spw_megatron_align_of(run);
    const double limit = (double)run->assignments * spw_execution_number(&run->shape, "rank_capacity", 1.0);
    const bool stashes = spw_execution_number(&run->shape, "stash", 0.0) > 0.0;
    const spw_megatron_deepep how = {.settings = {.router_align = 1, .expert_align = align},
                                     .hybrid = true,
                                     .fixed = spw_megatron_round_up((size_t)limit, align),
                                     .drops = true,
                                     .page = stashes ? (size_t)spw_execution_number(&run->shape, "page", 64.0)
                                                     : 0};
    return spw_execute_megatron_deepep(run, &how);
}
