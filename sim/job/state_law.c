#include "sim/job/state_law.h"

#include "sim/job/job.h"

/* Formats that a framework's own defaults are: docs/schemes.md, section 7.1 and 7.8. */
#define ALL_FP32 \
    { .weights = sizeof(float) }
#define BF16_WEIGHTS \
    { .weights = 2, .gradients = sizeof(float), .moments = sizeof(float) }
#define SHARDED_BY_ALL "train state sharded over all GPUs, as MaxText and FSDP do (7.1)"

static const spw_state_law sharded = {.source = SHARDED_BY_ALL,
                                      .gradients = "stacked gradients of the layer scan (7.7)",
                                      .shares_weights = true,
                                      .shares_moments = true,
                                      .gathers_a_step = 2,
                                      .follows_weights = true,
                                      .formats = ALL_FP32},
                           fsdp2 = {.source = SHARDED_BY_ALL,
                                    .gradients =
                                        "sharded gradients, in the format of the sharded weights (7.14)",
                                    .shares_weights = true,
                                    .shares_moments = true,
                                    .by_units = true,
                                    .gathers_a_step = 2,
                                    .follows_weights = true,
                                    .formats = ALL_FP32},
                           distributed = {.source =
                                              "Megatron distributed optimizer, expert data parallelism (7.8)",
                                          .gradients = "gradient buffers (7.8)",
                                          .shares_moments = true,
                                          .gathers_a_step = 1,
                                          .megatron = true,
                                          .master_bytes = sizeof(float),
                                          .formats = BF16_WEIGHTS,
                                          .expert_tensor = 1},
                           replicated = {.source = "Megatron optimizer on every replica (7.8)",
                                         .gradients = "gradient buffers (7.8)",
                                         .sums_gradients = true,
                                         .megatron = true,
                                         .master_bytes = sizeof(float),
                                         .formats = BF16_WEIGHTS,
                                         .expert_tensor = 1};

const spw_state_law *spw_state_law_of(const spw_job *job) {
    static const spw_state_law *const laws[] = {[SPW_OPTIMIZER_SHARDED] = &sharded,
                                                [SPW_OPTIMIZER_DISTRIBUTED] = &distributed,
                                                [SPW_OPTIMIZER_REPLICATED] = &replicated,
                                                [SPW_OPTIMIZER_AUTO] = &distributed};
    const spw_reshard reshard = job->fsdp2.reshard;
    const bool wrapped = reshard != SPW_RESHARD_OFF && reshard != SPW_RESHARD_DEFAULT;
    const spw_state_law *law = laws[job->optimizer];
    return wrapped && law->shares_weights ? &fsdp2 : law;
}

size_t spw_master_bytes(const spw_job *job) {
    if (job->master_bytes != SPW_MASTER_AUTO) return job->master_bytes;
    const size_t own = spw_state_law_of(job)->master_bytes;
    return job->precision.weights < own ? own : 0;
}

size_t spw_master_kept_bytes(const spw_job *job) {
    const size_t all = spw_master_bytes(job);
    return job->megatron.remainders && all > job->precision.weights ? all - job->precision.weights : all;
}

bool spw_state_is_megatron(const spw_job *job) {
    return spw_state_law_of(job)->megatron && job->part == SPW_PART_WHOLE;
}

bool spw_state_is_sharded(const spw_job *job) {
    return spw_state_law_of(job)->shares_weights && job->part == SPW_PART_WHOLE;
}
