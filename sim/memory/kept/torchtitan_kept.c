#include "sim/memory/kept/torchtitan_kept.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_kept.h"
#include "sim/model/attention.h"
#include "sim/schemes/point.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/stage.h"

#include <math.h>
#include <string.h>

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

static uint64_t take(double bytes, double *left) {
    *left -= bytes;
    return spw_component_bytes(bytes);
}

/* Where every layer has such an attention and experts, and keeps all of it or nothing; else it stays a component. */
static void list_attention(spw_footprint *f, const spw_job *job, const spw_stage *stage,
                           const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const bool plain = !m->half_layers && m->shared_ffn == 0 && m->latent == 0 && m->streams <= 1 &&
                       !m->query_gate && spw_attention_widths_of(m).latents == 0 &&
                       stage->moe_layers == stage->layers && stage->predictions == 0;
    double left = 0.0;
    if (!plain || job->attention == SPW_ATTENTION_UNFUSED || job->finetune.frozen != SPW_FROZEN_NONE ||
        spw_grid_of(job).tensor > 1 || (job->remat != SPW_REMAT_NONE && job->remat != SPW_REMAT_FULL))
        return;
    for (size_t i = 0; i < f->components; i++) {
        spw_component *c = &f->component[i];
        if (strcmp(c->name, "attention") != 0 && strcmp(c->name, "router") != 0) continue;
        c->apart = true;
        left += (double)c->bytes;
    }
    const double T = (double)s->tokens, b = (double)s->element_bytes, hidden = T * b * (double)m->hidden,
                 query = T * b * (double)(m->heads * m->head_dim),
                 key = T * b * (double)(m->kv_heads * m->head_dim), w = (double)spw_fsdp2_gathered_bytes(job),
                 normed = m->qk_norm ? 1.0 : 0.0;
    spw_attention_bytes *a = &f->units.attention;
    a->hidden = take(hidden, &left);
    a->query = take(query, &left);
    a->key = take(key, &left);
    a->table = take(T * angles(m), &left);
    a->router = take(T * (double)(FP32 * m->hidden), &left);
    a->head = take(T * (double)(FP32 * m->heads), &left);
    a->normed_query = spw_component_bytes(normed * query);
    a->normed_key = spw_component_bytes(normed * key);
    a->first_weight =
        spw_component_bytes(w * (double)(m->hidden * (m->heads + 2 * m->kv_heads) * m->head_dim));
    a->last_weight = spw_component_bytes(w * (double)(m->hidden * m->heads * m->head_dim));
    left -= hidden + 2.0 * query + 2.0 * key + normed * T * (double)(FP32 * m->heads);
    a->small = spw_component_bytes(fmax(left, 0.0));
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
    list_attention(f, job, stage, s);
}
