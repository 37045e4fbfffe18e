#include "sim/memory/kept/torchtitan_kept.h"

#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_kept.h"
#include "sim/model/attention.h"
#include "sim/schemes/point.h"
#include "sim/weights/stage.h"

#include <math.h>

enum { FP32 = 4, INDEX = 8, LAYER_NORMS = 2, COMPLEX = 4, COSINE_AND_SINE = 8 };

static bool is_there(const spw_job *job, const spw_scheme *scheme) {
    return job->part == SPW_PART_WHOLE && spw_scheme_around(scheme, job)->widens;
}

/* Of one position: a complex number of two values of a latent's key, else cosine and sine of each of a head's. */
static double angles(const spw_model *m) {
    const spw_attention_widths w = spw_attention_widths_of(m);
    return (double)(w.rotary_dim * (w.latents > 0 ? COMPLEX : COSINE_AND_SINE));
}

double spw_torchtitan_layer_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t norms = LAYER_NORMS + spw_attention_widths_of(m).latents +
                         (m->qk_norm ? m->qk_norm_per_head ? m->heads + m->kv_heads : 2 : 0);
    if (!is_there(job, scheme)) return 0.0;
    return (double)s->tokens * ((double)(FP32 * norms) + angles(m));
}

double spw_torchtitan_router_kept(const spw_job *job, const spw_scheme *scheme, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const double normed = m->shared_ffn > 0 ? 0.0 : (double)(s->element_bytes * m->hidden),
                 summed = (double)(FP32 * (m->top_k + 1));
    if (!is_there(job, scheme)) return 0.0;
    return (double)s->tokens *
           ((double)(FP32 * (m->hidden + m->experts) + INDEX * m->top_k) + summed - normed);
}

void spw_torchtitan_kept_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                             const spw_stage *stage, const spw_layer_shape *s) {
    if (!is_there(job, scheme)) return;
    spw_pytorch_workspaces_add(f, job);
    spw_component *c =
        SPW_COMPONENT(f, "angles", "a table a layer (7.14)", "L S angles", TERM("L", stage->layers),
                      TERM("S", job->sequence_length), TERM("angles", angles(&job->model)));
    c->argument = true;
    LIVE(c, ALWAYS);
    if (stage->head)
        LIVE(SPW_COMPONENT(f, "last_norm", "its input and output (7.14)", "2 T H b", TERM("T", s->tokens),
                           TERM("H", job->model.hidden), TERM("b", s->element_bytes)),
             AT_LOSS);
    if (stage->moe_layers + stage->predictions > 0)
        LIVE(SPW_COMPONENT(
                 f, "router", "its input and scores in fp32 (7.14)", "T each", TERM("T", s->tokens),
                 TERM("each", fmax(spw_torchtitan_router_kept(job, scheme, s), 0.0) / (double)s->tokens)),
             AT_MOE_LAYER);
}
