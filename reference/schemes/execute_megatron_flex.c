/* Megatron-Core's flex dispatcher with DeepEP or HybridEP (docs/schemes.md, section 5.4). */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/execute_megatron_deepep.h"

spw_status spw_execute_megatron_flex(spw_execution *run) {
    enum { BACKEND, CAPACITY_FACTOR, POLICY, ALIGN };
    const bool bare = run->shape.option == NULL;
    const spw_megatron_deepep how = {
        .settings = {.capacity_factor = bare ? 0.0 : spw_megatron_option(run, CAPACITY_FACTOR),
                     .by_position = spw_megatron_option(run, POLICY) == 1.0,
                     .router_align = 1,
                     .expert_align = spw_megatron_align_of(spw_megatron_option(run, ALIGN))},
        .hybrid = !bare && spw_megatron_option(run, BACKEND) == 1.0};
    return spw_execute_megatron_deepep(run, &how);
}
