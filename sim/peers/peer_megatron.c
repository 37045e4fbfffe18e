#include "sim/job/job.h"
#include "sim/peers/peer.h"
#include "sim/weights/pipeline.h"

#include "sim/job/grid.h"

#include <string.h>

/* Padded to a multiple of 128 for each GPU of a tensor group. */
static double vocab_of(const spw_job *job) {
    const size_t multiple = 128 * spw_grid_of(job).tensor,
                 padded = (job->model.vocab + multiple - 1) / multiple * multiple;
    return (double)padded;
}

/* The most loaded shard: 1 / P of the layers, and one embedding; head too without a pipeline. Norms, router and gate are
 * whole on every GPU of a tensor group; the optimizer is over the data-parallel ranks, without context. */
static void add_state(const spw_job *job, spw_peer_memory *out) {
    const spw_model *m = &job->model;
    const spw_grid g = spw_grid_of(job);
    const double hidden = (double)m->hidden, layers = (double)m->layers, moe = (double)m->moe_layers;
    const double stages = (double)g.pipeline, tensor = (double)g.tensor;
    const double cut = layers * spw_peer_attention_parameters(m) +
                       (layers - moe) * 3.0 * hidden * (double)m->dense_ffn +
                       moe * 3.0 * hidden * (double)m->shared_ffn;
    const double whole = layers * 2.0 * hidden + hidden + moe * hidden * (double)m->experts;
    const double tables = (m->tied_embeddings || g.pipeline > 1 ? 1.0 : 2.0) * hidden * vocab_of(job);
    const double rest = (cut / stages + tables) / tensor + whole / stages;
    const double routed = moe * 3.0 * hidden * (double)m->expert_ffn * (double)m->experts /
                          (stages * (double)(g.expert * g.expert_tensor));
    const bool replicated = job->optimizer == SPW_OPTIMIZER_REPLICATED;
    out->bytes[SPW_PEER_WEIGHTS] = 2.0 * (rest + routed);
    out->bytes[SPW_PEER_GRADIENTS] = 4.0 * (rest + routed);
    out->bytes[SPW_PEER_OPTIMIZER] =
        replicated ? 12.0 * (rest + routed)
                   : 12.0 * rest / (double)g.data + 12.0 * routed / (double)g.expert_data;
}

/* The formula with sequence parallelism is for selective recompute alone; any other job takes the one without. Neither
 * knows context parallelism. */
static void add_activations(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    const spw_model *m = &job->model;
    const spw_pipeline p = spw_pipeline_of(job);
    const double tokens = (double)spw_micro_batch_tokens(job, sequences),
                 tensor = (double)spw_grid_of(job).tensor;
    const double hidden = (double)m->hidden, stages = (double)p.stages, vocab = vocab_of(job);
    const bool sliced = tensor > 1.0 && job->remat == SPW_REMAT_SELECTIVE;
    const double ffn = (double)(m->dense_ffn > 0 ? m->dense_ffn : m->expert_ffn);
    const double layer = sliced ? 18.0 * hidden + 4.0 * ffn : (10.0 + 24.0 / tensor) * hidden;
    double bytes = (double)m->layers * tokens * layer + (8.0 + hidden) * tokens * stages;
    if (p.chunks > 1) {
        bytes *= 1.0 + (stages - 1.0) / (stages * (double)p.chunks);
    } else if (p.stages > 1 && p.micro_batches < p.stages) {
        bytes *= (double)p.micro_batches / stages;
    }
    if (p.stages == 1)
        bytes += sliced ? 4.0 * tokens * (vocab + hidden) : 2.0 * tokens * (vocab / tensor + hidden);
    out->bytes[SPW_PEER_ACTIVATIONS] = sliced ? bytes / tensor : 1.05 * bytes;
}

spw_status spw_peer_megatron(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    memset(out, 0, sizeof *out);
    out->reserved = 1.0;
    add_state(job, out);
    add_activations(job, sequences, out);
    return SPW_OK;
}
