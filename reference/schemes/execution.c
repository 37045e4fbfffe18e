#include "reference/schemes/execution.h"

#include "reference/schemes/execute_list.h"
#include "reference/schemes/ranks.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

const spw_executor spw_executors[] = {
    {"dense", spw_execute_dense, .groups = true},
    {"ragged", spw_execute_ragged, .groups = true},
    {"gmm", spw_execute_gmm, .groups = true},
    {"gmm-deepep", spw_execute_gmm_deepep},
    {"ring", spw_execute_ring, .groups = true},
    {"megatron-alltoall", spw_execute_megatron_alltoall, .shares = true},
    {"megatron-allgather", spw_execute_megatron_allgather},
    {"megatron-flex", spw_execute_megatron_flex},
    {"megatron-syncfree", spw_execute_megatron_syncfree},
    {"megatron-ncclep", spw_execute_megatron_ncclep},
    {"primus-syncfree", spw_execute_primus_syncfree},
    {"primus-megamoe", spw_execute_primus_megamoe},
    {"ragged-deepep", spw_execute_ragged_deepep},
    {"ragged-ring", spw_execute_ragged_ring, .groups = true},
    {"deepep", spw_execute_deepep},
    {"deepep-ll", spw_execute_deepep_ll},
    {"hybrid-ep", spw_execute_hybrid_ep},
    {"moe-dedup", spw_execute_moe_dedup},
    {"megablocks", spw_execute_megablocks},
    {"tutel", spw_execute_tutel},
    {"scattermoe", spw_execute_scattermoe},
    {"sonicmoe", spw_execute_sonicmoe},
    {"transformers", spw_execute_transformers},
    {"torchtitan", spw_execute_torchtitan},
    {"torchtitan-hybridep", spw_execute_torchtitan_hybridep},
    {"torchtitan-async", spw_execute_torchtitan_async},
    {.name = NULL},
};

const spw_executor *spw_executor_find(const char *name) {
    for (const spw_executor *e = spw_executors; e->name != NULL; e++) {
        if (strcmp(e->name, name) == 0) return e;
    }
    return NULL;
}

/* Ranks with tokens of their own. */
static size_t token_ranks(const spw_execution_shape *s) {
    return s->tensor_group ? s->ranks / spw_execution_sharers(s) : s->ranks;
}

static spw_status check(const spw_execution_shape *s, const int32_t *expert) {
    size_t tokens = 0, assignments = 0, all = 0;
    const size_t t = spw_execution_sharers(s);
    if (s->ranks == 0 || s->ranks > SPW_EXECUTION_RANKS || s->experts == 0 || s->ranks % t != 0 ||
        s->experts % (s->ranks / t) != 0) {
        return spw_fail(
            SPW_EARG,
            "%zu ranks, of which %zu share an expert; 1 to %d that are a multiple of %zu and over "
            "it divide the %zu experts would be right",
            s->ranks, t, SPW_EXECUTION_RANKS, t, s->experts);
    }
    if (s->top_k == 0 || s->top_k > s->experts) {
        return spw_fail(SPW_EARG, "top_k %zu of %zu experts; 1 to experts would be right", s->top_k,
                        s->experts);
    }
    if (!spw_mul_size(s->sequences, s->sequence_length, &tokens) ||
        !spw_mul_size(tokens, s->top_k, &assignments) || !spw_mul_size(assignments, token_ranks(s), &all) ||
        all > INT32_MAX) {
        return spw_fail(SPW_EARG,
                        "%zu ranks x %zu sequences x %zu tokens x top_k %zu exceed 2^31 - 1 assignments",
                        s->ranks, s->sequences, s->sequence_length, s->top_k);
    }
    if (s->tensor_group && s->hidden % t != 0)
        return spw_fail(SPW_EARG,
                        "%zu ranks of a tensor group do not divide hidden %zu; a divisor would be right", t,
                        s->hidden);
    if (!isfinite(s->factor) || s->factor < 0.0)
        return spw_fail(SPW_EARG, "factor %g is not 0 or more", s->factor);
    for (size_t i = 0; i < all; i++) {
        if (expert[i] >= 0 && (size_t)expert[i] >= s->experts) {
            return spw_fail(SPW_EARG, "rank %zu, token %zu names expert %d of %zu", i / assignments,
                            i % assignments / s->top_k, (int)expert[i], s->experts);
        }
    }
    return SPW_OK;
}

spw_status spw_execute(const spw_executor *executor, const spw_execution_shape *shape,
                       const spw_execution_input *input, const spw_execution_output *output, spw_arena *arena,
                       spw_fabric *fabric) {
    spw_status status = check(shape, input->expert);
    if (status != SPW_OK) return status;
    if (spw_execution_sharers(shape) > 1 && !(shape->tensor_group ? executor->groups : executor->shares))
        return spw_fail(SPW_EARG, "%s is not executed where %zu ranks share an expert; 1 would be right",
                        executor->name, shape->expert_tensor);
    const size_t tokens = shape->sequences * shape->sequence_length, assignments = tokens * shape->top_k;
    spw_execution run = {.shape = *shape,
                         .tokens = tokens,
                         .assignments = assignments,
                         .local = shape->experts / (shape->ranks / spw_execution_sharers(shape)),
                         .in = *input,
                         .out = *output,
                         .arena = arena,
                         .fabric = fabric};
    const size_t with_tokens = token_ranks(shape);
    memset(output->d_weight, 0, with_tokens * assignments * sizeof *output->d_weight);
    if (input->score != NULL)
        memset(output->d_score, 0, with_tokens * tokens * shape->experts * sizeof *output->d_score);
    for (size_t r = 0; r < shape->ranks; r++) output->rows[r] = output->dropped[r] = 0;
    status = executor->run(&run);
    spw_scratch_free(&run);
    if (status != SPW_OK) return spw_fail_within(status, "%s", executor->name);
    return spw_fabric_begin(fabric, "end"); /* refuses letters that nobody read */
}
