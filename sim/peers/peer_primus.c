#include "sim/job/job.h"
#include "sim/model/attention.h"
#include "sim/peers/peer.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <string.h>

static double least(double a, double b) { return a < b ? a : b; }

static double parameters(const spw_job *job, const spw_stage *stage) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, layers = (double)stage->layers, moe = (double)stage->moe_layers;
    double sum = layers * (6.0 * hidden + spw_peer_attention_parameters(m)); /* three norms with biases */
    sum += (layers - moe) * 3.0 * hidden * (double)m->dense_ffn;
    sum += moe * (3.0 * hidden * (double)m->expert_ffn * (double)m->experts / (double)job->expert +
                  3.0 * hidden * (double)m->shared_ffn + hidden * (double)m->experts);
    if (stage->embedding) sum += spw_peer_vocab(m) * hidden;
    if (stage->head) sum += 2.0 * hidden + spw_peer_vocab(m) * hidden;
    return sum;
}

/* Elements a token that attention keeps; flash attention is on in its configurations, and MLA's norms too. */
static double attention(const spw_model *m) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double query = (double)w.query, key = (double)w.key;
    if (spw_attention_is_latent(m)) return 5.0 * query + 2.0 * (double)w.value;
    return 2.0 * query + 2.0 * key + (double)m->hidden + (m->qk_norm ? 2.0 * key : 0.0);
}

static double activations(const spw_job *job, const spw_pipeline *p, const spw_stage *stage, double tokens,
                          bool full) {
    const spw_model *m = &job->model;
    const double hidden = (double)m->hidden, ffn = 3.0 * (double)m->expert_ffn;
    const double layers = (double)stage->layers, moe = (double)stage->moe_layers;
    const double core = job->remat == SPW_REMAT_SELECTIVE ? 0.0 : attention(m);
    const double around = 5.0 * hidden + core; /* norms, residuals, attention */
    const double experts = (double)m->top_k * ffn + 2.0 * hidden + (m->shared_ffn > 0 ? ffn + hidden : 0.0);
    const double dense = 3.0 * (double)m->dense_ffn + hidden;
    double elements = full ? layers * hidden : layers * around + moe * experts + (layers - moe) * dense;
    if (stage->embedding) elements += hidden;
    if (stage->head) elements += hidden + 3.0 * spw_peer_vocab(m); /* logits in bf16, then in fp32 */
    const double stages = (double)p->stages;
    const double batch = tokens / (double)job->sequence_length * (double)p->micro_batches;
    const double accumulated = batch * (double)job->expert; /* the batch over the replicas of the experts */
    const double penalty = p->chunks > 1 ? 1.0 + (stages - 1.0) / (stages * (double)p->chunks) : 1.0;
    return 2.0 * tokens * elements * stages * least(1.0, accumulated / stages) * penalty;
}

spw_status spw_peer_primus(const spw_job *job, size_t sequences, spw_peer_memory *out) {
    const spw_pipeline p = spw_pipeline_of(job);
    const double tokens = (double)spw_micro_batch_tokens(job, sequences);
    const double replicas = job->optimizer == SPW_OPTIMIZER_REPLICATED ? 1.0 : (double)job->fsdp;
    bool full = false;
    const spw_status status = job->remat == SPW_REMAT_SELECTIVE ? SPW_OK : spw_peer_remat(job, &full);
    memset(out, 0, sizeof *out);
    for (size_t s = 0; s < p.stages && status == SPW_OK; s++) {
        const spw_stage stage = spw_pipeline_stage(&p, &job->model, s);
        const double held = parameters(job, &stage);
        const spw_peer_memory here = {.bytes = {2.0 * held, 2.0 * held, 10.0 * held / replicas,
                                                activations(job, &p, &stage, tokens, full)},
                                      .stage = s,
                                      .reserved = 1.0,
                                      .layer_rows = tokens * (double)job->model.top_k};
        if (s == 0 || spw_peer_sum(&here) > spw_peer_sum(out)) *out = here;
    }
    return status;
}
