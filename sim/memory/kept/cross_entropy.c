#include "sim/memory/kept/cross_entropy.h"

#include "sim/job/job.h"
#include "sim/job/trainer.h"
#include "sim/memory/kept/footprint_component.h"
#include "sim/memory/kept/megatron_job.h"

#define MEGATRON "NVIDIA/Megatron-LM megatron/core/tensor_parallel/cross_entropy.py (7.5)"

enum { FP32 = 4, CHUNKS = 8 /* torchtitan's ChunkedLossWrapper */ };

/* Bytes of a logit's place at the fullest moment beside the logit itself, how many of fp32 and of a logit's own; and what is kept
 * until the loss runs backward. */
typedef struct loss_law {
    const char *name, *source;
    unsigned fp32, copies, kept_fp32, kept_copies, chunks;
} loss_law;

static const loss_law laws[] = {
    [SPW_CROSS_ENTROPY_UNFUSED] = {"unfused", "logits, and the softmax in fp32: " MEGATRON, 1, 1, 1, 0, 1},
    [SPW_CROSS_ENTROPY_NATIVE] = {"native", "logits, the softmax in fp32 and PyTorch's copy of it (7.5)", 2,
                                  1, 1, 0, 1},
    [SPW_CROSS_ENTROPY_TE] = {"te", "logits, and their gradient in fp32: TransformerEngine (7.5)", 1, 1, 1, 0,
                              1},
    [SPW_CROSS_ENTROPY_TE_IN_PLACE] = {"te_in_place",
                                       "logits, which their gradient replaces: TransformerEngine (7.5)", 0, 1,
                                       0, 1, 1},
    [SPW_CROSS_ENTROPY_TE_2_20] = {"te_2_20",
                                   "logits, and a copy that their gradient replaces: TransformerEngine 2.20 "
                                   "(7.5)",
                                   0, 2, 0, 1, 1},
    [SPW_CROSS_ENTROPY_CHUNKED] = {"chunked",
                                   "of a chunk: logits; in fp32 log-softmax, its gradient and theirs: "
                                   "torchtitan (7.5)",
                                   3, 1, 0, 0, CHUNKS},
    [SPW_CROSS_ENTROPY_FUSED] = {"fused", "logits and their gradient; the fp32 loss is fused (7.5)", 0, 2, 0,
                                 1, 1},
};

/* Logits are given up before the backward pass, where log-softmax, its gradient and theirs are there at once. */
static const loss_law torchtitan_unfused = {
    "unfused", "in fp32 log-softmax, its gradient and theirs: torchtitan (7.5)", 3, 0, 1, 0, 1};

const char *spw_cross_entropy_name(spw_cross_entropy kind) { return laws[kind].name; }

spw_cross_entropy spw_cross_entropy_of(const spw_job *job, const spw_scheme *scheme) {
    if (job->cross_entropy != SPW_CROSS_ENTROPY_AUTO) return job->cross_entropy;
    const spw_trainer *own = spw_scheme_trainer(scheme);
    return own->brings_loss ? own->loss : spw_scheme_around(scheme, job)->loss;
}

/* Logits in fp32 are not copied: what is computed of them takes their place. */
static double bytes_each(unsigned fp32, unsigned copies, double b, bool in_place) {
    return (double)copies * b + (double)(fp32 - (in_place && b >= FP32 && fp32 > 0 ? 1 : 0)) * FP32;
}

void spw_cross_entropy_add(spw_footprint *f, const spw_job *job, const spw_scheme *scheme,
                           const spw_layer_shape *s, const spw_model *m) {
    const spw_cross_entropy kind = spw_cross_entropy_of(job, scheme);
    const bool own = spw_scheme_trainer(scheme)->brings_loss && kind == SPW_CROSS_ENTROPY_UNFUSED;
    const loss_law *law = own ? &torchtitan_unfused : &laws[kind];
    const bool in_place = !own && (kind == SPW_CROSS_ENTROPY_UNFUSED || kind == SPW_CROSS_ENTROPY_NATIVE);
    const spw_term T = TERM("T", s->tokens), V = TERM("V", m->vocab);
    const double b = (double)s->element_bytes, most = bytes_each(law->fp32, law->copies, b, in_place),
                 kept = bytes_each(law->kept_fp32, law->kept_copies, b, false);
    if (kind == SPW_CROSS_ENTROPY_FUSED) {
        LIVE(SPW_COMPONENT(f, "logits", law->source, "2 T V b", T, V, TERM("b", b)), AT_LOSS);
    } else if (law->chunks > 1) {
        LIVE(SPW_COMPONENT(f, "logits", law->source, "{c} T V / {chunks}", TERM("c", most), T, V,
                           TERM("chunks", law->chunks)),
             AT_LOSS);
        LIVE(SPW_COMPONENT(f, "hidden_gradient", "of all chunks, in fp32: torchtitan (7.5)", "4 T H", T,
                           TERM("H", m->hidden)),
             AT_LOSS);
    } else {
        spw_component *c = SPW_COMPONENT(f, "logits", law->source, "{c} T V", TERM("c", most), T, V);
        LIVE(c, AT_LOSS);
        c->apart = own;
        if (own) {
            f->units.logits = spw_component_bytes(b * T.value * V.value);
            f->units.fp32 = spw_component_bytes(FP32 * T.value * V.value);
        }
    }
    if (job->stage_layout.predictions == 0) return;
    LIVE(SPW_COMPONENT(f, "logits_of_predictions",
                       "what the losses of multi-token prediction keep for their backward pass (7.5)",
                       "{predictions} {c} T V", TERM("predictions", job->stage_layout.predictions),
                       TERM("c", kept), T, V),
         AT_LOSS);
}

const char *spw_cross_entropy_note(const spw_job *job, const spw_scheme *scheme) {
    if (job->part == SPW_PART_WHOLE && scheme->type->memory.whole_steps)
        return "transformers' own loss, with logits in fp32; gradients and Adam's moments have the format of "
               "the "
               "weights, and there are no master weights, whatever precision says of them";
    if (job->cross_entropy != SPW_CROSS_ENTROPY_AUTO || job->part != SPW_PART_WHOLE) return NULL;
    switch (spw_cross_entropy_of(job, scheme)) {
    case SPW_CROSS_ENTROPY_UNFUSED:
        return "Megatron-Core's own loss, with the softmax in fp32 (cross_entropy: unfused); native, te, "
               "te_in_place and te_2_20 are those of --cross-entropy-loss-fusion";
    case SPW_CROSS_ENTROPY_CHUNKED:
        return "torchtitan's loss, of an eighth of the tokens at a time (cross_entropy: chunked)";
    default: return NULL;
    }
}
