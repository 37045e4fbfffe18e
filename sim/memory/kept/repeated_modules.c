#include "sim/memory/kept/repeated_modules.h"

#include "sim/job/recipe/remat_modules.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/mixer_kept.h"
#include "sim/model/attention.h"
#include "sim/model/compressed_attention.h"
#include "sim/weights/fp8_memory.h"

spw_repeated_modules spw_repeated_modules_of(const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    /* TransformerEngine has GQA's input norm and a dense FFN's norm within the products that read them. */
    const bool local = job->attention == SPW_ATTENTION_UNFUSED, latent = spw_attention_is_latent(m);
    const spw_attention_widths w = spw_attention_widths_of(m);
    const bool norms = spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM);
    const bool mlp = spw_remat_repeats(job->remat, SPW_MODULE_MLP);
    const double tokens = (double)s->tokens, b = (double)s->element_bytes, input = spw_fp8_input_bytes(job);
    const bool fp8 = job->precision.recipe != SPW_FP8_NONE,
               up = spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ);
    const spw_fp8_inputs more = spw_fp8_inputs_of(job);
    const double norm = tokens * ((double)m->hidden * b + sizeof(float)); /* with 1 / rms */
    spw_repeated_modules gone = {0.0, 0.0, 0.0};
    if (norms && local) gone.attention += norm;
    if (latent)
        gone.attention +=
            tokens * (double)m->hidden * ((fp8 ? 2.0 * input : b) - spw_fp8_norm_bytes(job, false));
    if (latent && norms) gone.attention += tokens * sizeof(float);
    if (up)
        gone.attention += tokens * ((double)w.latent * input + (double)(w.query + w.key + w.value) * b +
                                    (double)(w.latents * sizeof(float)));
    if (norms) gone.moe += norm;
    if (local ? norms : mlp) gone.dense += norm;
    if (mlp) gone.dense += tokens * ((double)spw_ffn_matrices(m) * (double)m->dense_ffn * b + more.dense);
    if (spw_remat_repeats(job->remat, SPW_MODULE_SHARED_EXPERTS))
        gone.moe += tokens * ((double)spw_ffn_matrices(m) * (double)m->shared_ffn * b + more.shared);
    return gone;
}

bool spw_attention_is_moment(const spw_job *job) {
    return job->attention == SPW_ATTENTION_UNFUSED || spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ);
}

/* DeepSeek-V4's: queries, what made them, and keys; the gradients of the core's output and of queries. */
static void add_compressed(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const size_t wide = m->heads * m->head_dim, sequences = s->sequences > 0 ? s->sequences : 1;
    double most = 0.0;
    for (size_t kind = 0; kind < SPW_MODEL_MIXERS; kind++) {
        if (m->mixer[kind].layers == 0) continue;
        const spw_compressed_attention a = spw_compressed_attention_of(m, kind);
        const double again = spw_compressed_again(&a, sequences, s->tokens / sequences, s->element_bytes);
        most = again > most ? again : most;
    }
    LIVE(SPW_COMPONENT(f, "attention_again",
                       "queries and keys, and gradients of the core's output and queries (7.18)",
                       "{again} + 2 T 'heads head_dim' b", TERM("again", most), TERM("T", s->tokens),
                       TERM("heads head_dim", wide), TERM("b", s->element_bytes)),
         AT_ATTENTION);
}

#define AGAIN "(2 H + 2 q_lora + 2 kv_lora + rope + 4 heads (nope + rope + v))"

void spw_repeated_modules_add(spw_footprint *f, const spw_job *job, const spw_layer_shape *s) {
    const spw_model *m = &job->model;
    const spw_attention_widths w = spw_attention_widths_of(m);
    const double b = (double)s->element_bytes, norm = spw_fp8_norm_bytes(job, true),
                 input = spw_fp8_input_bytes(job);
    const double elements = (double)(2 * m->hidden + 2 * w.latent + w.apart + 4 * w.key + 4 * w.value);
    const double less = (double)m->hidden * (norm - b) + (double)w.latent * (input - b);
    if (!spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ)) return;
    if (spw_attention_is_compressed(m)) {
        add_compressed(f, job, s);
        return;
    }
    LIVE(SPW_COMPONENT(
             f, "attention_again", "queries, keys, values, the core's output, and their gradients (7.3)",
             "T ('" AGAIN "' b + 4 heads [+ 'cast inputs'])", TERM("T", s->tokens), TERM(AGAIN, elements),
             TERM("b", s->element_bytes), TERM("heads", m->heads), TERM("cast inputs", less)),
         AT_ATTENTION);
}
