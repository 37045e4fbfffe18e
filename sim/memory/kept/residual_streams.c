#include "sim/memory/kept/residual_streams.h"

#include "sim/job/job.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/repeated_modules.h"
#include "sim/model/attention.h"
#include "sim/model/compressed_attention.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/weights/block.h"
#include "sim/weights/pipeline.h"

#include <stdio.h>

static double parts(const spw_model *m) { return m->half_layers ? 1.0 : 2.0; }

double spw_streams_kept(const spw_model *m) {
    const double n = (double)m->streams, h = (double)m->hidden, p = parts(m);
    if (m->streams < 2) return 0.0;
    return (p - 1.0) * n * h + (2.0 * p - 1.0) * h;
}

double spw_streams_mixing_bytes(const spw_model *m, size_t b) {
    const double n = (double)m->streams;
    if (m->streams < 2) return 0.0;
    return parts(m) * ((double)sizeof(float) * (2.0 * n * n + 4.0 * n + 1.0) + (double)b * (n * n + 2.0 * n));
}

double spw_streams_moved(const spw_model *m) {
    return m->streams < 2 ? 0.0 : parts(m) * (9.0 * (double)m->streams + 2.0) * (double)m->hidden;
}

double spw_streams_products(const spw_model *m) {
    const double n = (double)m->streams, h = (double)m->hidden;
    return m->streams < 2 ? 0.0 : parts(m) * (n * h * (n * n + 2.0 * n) + n * n * h);
}

double spw_streams_moved_again(const spw_model *m) {
    return m->streams < 2 ? 0.0 : parts(m) * (7.0 * (double)m->streams + 4.0) * (double)m->hidden;
}

/* The kernels that Megatron-Core fuses are of Blackwell; Bridge's recipes turn them off on other GPUs. */
static bool is_fused(const spw_job *job) {
    if (job->megatron.streams != SPW_FUSION_AUTO) return job->megatron.streams == SPW_FUSION_ON;
    return job->cluster.gpu_generation == SPW_GPU_BLACKWELL;
}

static double wide_bytes(const spw_job *job, const spw_scheme *scheme) {
    const spw_model *m = &job->model;
    const bool wide = spw_scheme_trainer(scheme)->wide_streams ||
                      (spw_scheme_around(scheme, job)->keeps_modules && !is_fused(job));
    return m->streams > 1 && wide ? parts(m) * (double)(m->streams * m->hidden * sizeof(float)) : 0.0;
}

/* Norms of [hidden] that are modules of their own, whose outputs nothing else frees. */
static double norms_again(const spw_job *job, bool experts) {
    const spw_model *m = &job->model;
    const bool apart = job->attention == SPW_ATTENTION_UNFUSED,
               mixer = apart || spw_attention_is_latent(m) || spw_attention_is_compressed(m);
    if (spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM)) return 0.0;
    if (m->half_layers) return experts ? 1.0 : 0.0;
    return (mixer ? 1.0 : 0.0) + (experts || apart ? 1.0 : 0.0);
}

spw_streams_again spw_streams_again_of(const spw_job *job, const spw_stage *stage, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const double n = (double)m->streams, p = parts(m),
                 row = (double)s->tokens * (double)(m->hidden * s->element_bytes);
    spw_streams_again out = {.share = 1.0};
    size_t layers = 0, groups = 0, predictions = 0;
    if (m->streams < 2 || !spw_remat_repeats(job->remat, SPW_MODULE_MHC)) return out;
    for (size_t c = 0; c < pipeline.chunks; c++) {
        const spw_block block = spw_pipeline_block(&pipeline, m, stage->index, c);
        const size_t most = job->megatron.streams_group > 0 ? job->megatron.streams_group : m->layers,
                     here = block.layers < most ? block.layers : most;
        layers += block.layers;
        predictions += block.predictions;
        groups += (block.layers + most - 1) / most;
        out.layers = here > out.layers ? here : out.layers;
    }
    if (layers == 0) return out;
    out.share = (double)layers / (double)(layers + predictions);
    for (size_t moe = 0; moe < 2; moe++) out.layer[moe] = ((p - 1.0) * n + p + norms_again(job, moe)) * row;
    out.input = (double)(layers - groups) / (double)layers * n * row;
    out.group = (double)(out.layers - 1) * (n * row + out.layer[stage->moe_layers > 0]);
    return out;
}

double spw_streams_kept_bytes(const spw_job *job, const spw_scheme *scheme) {
    return spw_streams_kept(&job->model) * (double)job->precision.activations +
           spw_streams_mixing_bytes(&job->model, job->precision.activations) + wide_bytes(job, scheme);
}

/* Layers of later blocks read the sums of earlier ones, so that these stay until their own block runs backward. */
static void add_blocks(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    if (m->residual_blocks == 0 || f->stage.layers == 0) return;
    const size_t blocks = (m->layers + m->residual_blocks - 1) / m->residual_blocks,
                 flying = (f->stage.kept_layers + f->stage.layers - 1) / f->stage.layers;
    LIVE(SPW_COMPONENT(f, "residual_blocks", "sums of blocks of layers, which later layers attend to (7.18)",
                       "micro_batches blocks T H b", TERM("micro_batches", flying), TERM("blocks", blocks),
                       TERM("T", s->tokens), TERM("H", m->hidden), TERM("b", s->element_bytes)),
         ALWAYS);
}

void spw_streams_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                     const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_streams_again again = spw_streams_again_of(job, &f->stage, s);
    const spw_term n = TERM("n", m->streams), T = TERM("T", s->tokens), H = TERM("H", m->hidden),
                   b = TERM("b", s->element_bytes);
    add_blocks(f, job, s);
    if (!(spw_streams_kept(m) > 0.0)) return;
    LIVE(SPW_COMPONENT(f, "residual_streams", "what the mixing of residual streams keeps (7.18)",
                       "T (({parts} n H + {alone} H) b + {mixing} [+ 'fp32 copies'])", T,
                       TERM("parts", parts(m) - 1.0), n, H, TERM("alone", 2.0 * parts(m) - 1.0), b,
                       TERM("mixing", spw_streams_mixing_bytes(m, s->element_bytes)),
                       TERM("fp32 copies", wide_bytes(job, scheme))),
         AT_LAYERS);
    if (!(again.group > 0.0)) return;
    LIVE(SPW_COMPONENT(f, "mhc_group", "what module mhc made again of the other layers of a group (7.18)",
                       "layers (n T H b + {layer})", TERM("layers", again.layers - 1), n, T, H, b,
                       TERM("layer", again.layer[f->stage.moe_layers > 0])),
         {[SPW_MOMENT_MOE_LAYER] = true,
          [SPW_MOMENT_DENSE_LAYER] = true,
          [SPW_MOMENT_ATTENTION] = spw_attention_is_moment(job)});
}
