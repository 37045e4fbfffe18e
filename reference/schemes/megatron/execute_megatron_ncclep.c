/* Megatron-Core behind NCCL EP (docs/schemes.md, section 5.7): the pass whose overflow is found at its end. */
#include "reference/schemes/execute_list.h"
#include "reference/schemes/megatron/execute_megatron_deepep.h"

enum { CHUNK = 64 };

/* The tables of a dispatch, each up to a multiple of 256 bytes: which node a token comes from and goes to, which expert a slot
 * is for, where a token goes on every rank, masks of ranks, dense weights, ids, counts, where a slot's rows and weights are. */
static size_t handle_bytes(const spw_execution *run, size_t slots) {
    const size_t ranks = run->shape.ranks,
                 near = run->shape.node_ranks > 0 && run->shape.node_ranks < ranks ? run->shape.node_ranks
                                                                                   : ranks,
                 nodes = ranks / near, tokens = spw_megatron_round_up(run->tokens, CHUNK);
    const size_t table[] = {nodes * tokens,
                            (nodes - 1) * tokens,
                            slots * run->local,
                            4,
                            nodes * tokens * near * 4,
                            nodes * tokens * near * 8 * ((near + 63) / 64),
                            nodes == 1 ? tokens * run->shape.experts * 4 : 0,
                            tokens * run->shape.top_k * 8,
                            run->local * 4,
                            (run->local + 1) * 8,
                            slots * run->shape.top_k * 4,
                            slots * run->shape.top_k * 4,
                            tokens * near * nodes * 4};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) bytes += spw_megatron_round_up(table[i], 256);
    return bytes;
}

spw_status spw_execute_megatron_ncclep(spw_execution *run) {
    const size_t align = spw_megatron_align_of(run),
                 choices = spw_megatron_round_up(run->tokens, CHUNK) * run->shape.top_k;
    const double factor = spw_execution_number(&run->shape, "rank_capacity", 0.0);
    const size_t fixed = spw_megatron_round_up((size_t)((double)choices * factor), align);
    const spw_megatron_deepep how = {.settings = {.router_align = 1, .expert_align = align},
                                     .hybrid = true,
                                     .fixed = fixed,
                                     .drops = fixed > 0,
                                     .handle_bytes =
                                         handle_bytes(run, fixed > 0 ? fixed : run->shape.ranks * choices)};
    return spw_execute_megatron_deepep(run, &how);
}
