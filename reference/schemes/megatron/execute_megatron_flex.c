/* Megatron-Core's flex dispatcher with DeepEP or HybridEP (docs/schemes.md, section 5.4). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/execute_megatron_deepep.h"

spw_status spw_execute_megatron_flex(spw_execution *run) {
    const spw_megatron_deepep how = {
        .settings = {.capacity_factor = spw_execution_number(&run->shape, "capacity_factor", 0.0),
                     .by_position = spw_execution_is(&run->shape, "policy", "position"),
                     .router_align = 1,
                     .expert_align = spw_megatron_align_of(run)},
        .hybrid = spw_execution_is(&run->shape, "backend", "hybridep")};
    return spw_execute_megatron_deepep(run, &how);
}
