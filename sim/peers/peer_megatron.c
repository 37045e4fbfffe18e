#include "sim/peers/peer.h"

#include <string.h>

/* The most loaded shard: 1 / P of the layers, and one embedding; head too without a pipeline. */
static void add_state(const spw_job *job, spw_peer_memory *out) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, layers = (double)m->layers, moe = (double)m->moe_layers;
    const double stages = (double)job->pipeline, vocab = spw_peer_vocab(m);
    const double expert = (double)job->expert, fsdp = (double)job->fsdp;
    const double layer = spw_peer_attention_parameters(m) + 2.0 * hidden;
    const double others = layers * layer + hidden + (layers - moe) * 3.0 * hidden * (double)m->dense_ffn +
                          moe * (3.0 * hidden * (double)m->shared_ffn + hidden * (double)m->experts);
    const double tables = (m->tied_embeddings || job->pipeline > 1 ? 1.0 : 2.0) * hidden * vocab;
    const double rest = others / stages + tables;
    const double routed = moe * 3.0 * hidden * (double)m->expert_ffn * (double)m->experts / (stages * expert);
    const bool replicated = job->optimizer == SPW_OPTIMIZER_REPLICATED;
    out->bytes[SPW_PEER_WEIGHTS] = 2.0 * (rest + routed);
    out->bytes[SPW_PEER_GRADIENTS] = 4.0 * (rest + routed);
    out->bytes[SPW_PEER_OPTIMIZER] =
        replicated ? 12.0 * (rest + routed) : 12.0 * rest / (expert * fsdp) + 12.0 * routed / fsdp;
}

/* Without sequence parallelism, which needs tensor parallelism. */
static void add_activations(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    const spw_model *m = &job->model;
    const spw_pipeline p = spw_pipeline_of(job);
    const double tokens = (double)spw_micro_batch_tokens(job, sequences);
    const double hidden = (double)m->hidden, stages = (double)p.stages;
    double bytes = (double)m->layers * tokens * hidden * 34.0 + (8.0 + hidden) * tokens * stages;
    if (p.chunks > 1) {
        bytes *= 1.0 + (stages - 1.0) / (stages * (double)p.chunks);
    } else if (p.stages > 1 && p.micro_batches < p.stages) {
        bytes *= (double)p.micro_batches / stages;
    }
    if (p.stages == 1) bytes += 2.0 * tokens * (spw_peer_vocab(m) + hidden);
    out->bytes[SPW_PEER_ACTIVATIONS] = 1.05 * bytes;
}

spw_status spw_peer_megatron(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    memset(out, 0, sizeof *out);
    out->reserved = 1.0;
    add_state(job, out);
    add_activations(job, sequences, out);
    return SPW_OK;
}
