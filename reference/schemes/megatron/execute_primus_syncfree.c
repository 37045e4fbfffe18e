/* Primus on Megatron-Core, sync-free levels 1 to 3 (docs/schemes.md, section 3.5). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/execute_megatron_alltoall.h"
#include "reference/schemes/megatron/execute_megatron_deepep.h"

#include <stdlib.h>

spw_status spw_execute_primus_syncfree(spw_execution *run) {
    const size_t level = strtoul(spw_execution_word(&run->shape, "level", "2"), NULL, 10),
                 align = spw_megatron_align_of(run);
    const spw_megatron_settings settings = {
        .router_align = level == 1 ? align : 1, .expert_align = level == 1 ? 1 : align, .fused = true};
    const spw_megatron_deepep how = {
        .settings = settings, .worst = true, .fixed = level == 3 ? run->shape.ranks * run->assignments : 0};
    return level == 1 ? spw_execute_megatron_alltoall_with(run, &settings)
                      : spw_execute_megatron_deepep(run, &how);
}
