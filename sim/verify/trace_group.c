#include "sim/verify/trace_group.h"

#include "sim/job/job.h"
#include "traces/trace.h"

static size_t shrunk(size_t width, size_t shrink, size_t least) {
    return width / shrink > least ? width / shrink : least;
}

spw_status spw_trace_group_job(const spw_trace_info *info, const spw_trace_group_settings *settings,
                               spw_job *job) {
    const size_t sharers = settings->expert_tensor > 0 ? settings->expert_tensor : 1;
    size_t sets = settings->expert_parallel;
    for (size_t r = 1; r <= 8 && settings->expert_parallel == 0; r++) {
        if (info->experts % r == 0 && (info->ranks == 0 || info->ranks % (r * sharers) == 0)) sets = r;
    }
    if (sets == 0) sets = 1;
    const size_t group = sets * sharers;
    if (info->experts % sets != 0 || (info->ranks > 0 && info->ranks % group != 0)) {
        return spw_fail(
            SPW_EARG,
            "--expert-parallel %zu must divide the trace's %zu experts, and times --expert-tensor "
            "%zu its %zu ranks",
            sets, info->experts, sharers, info->ranks);
    }
    const size_t ranks = info->ranks > 0 ? info->ranks : group;
    size_t tokens = info->ranks > 0 && info->step_tokens[0] >= ranks ? (size_t)info->step_tokens[0] / ranks
                                                                     : settings->tokens;
    const size_t length =
        info->sequence_length > 0 && tokens % info->sequence_length == 0 ? info->sequence_length : tokens;
    job->model.layers = job->model.moe_layers = info->layers;
    job->model.experts = info->experts;
    job->model.top_k = info->top_k;
    job->model.hidden = shrunk(info->model_hidden, settings->shrink, 8);
    job->model.expert_ffn = shrunk(info->model_ffn, settings->shrink, 4);
    job->model.expert_ffn += (sharers - job->model.expert_ffn % sharers) % sharers;
    job->cluster.gpus_per_node = 8;
    job->expert = sets;
    job->expert_tensor = sharers;
    job->fsdp = ranks / group;
    job->pipeline = job->tensor = 1;
    job->batches = 1;
    job->sequences_per_gpu[0] = tokens / length;
    job->sequence_length = length;
    job->precision.activations = 2;
    return SPW_OK;
}
