#include "sim/job/recipe/precision_fill.h"

#include "sim/job/job_software.h"
#include "sim/job/recipe/precision.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"

#include <string.h>

enum { WEIGHTS, GRADIENTS, OPTIMIZER };
enum { FP16 = 0x100, AUTO = 0x200, MIXED = 0x400 }; /* beside the bytes, until they are filled in */
const spw_choice spw_precision_formats[] = {
    {"auto", AUTO},     {"framework", AUTO}, {"mixed", MIXED}, {"bf16", 2},
    {"fp16", 2 + FP16}, {"fp32", 4},         {"fp8", 1},       {NULL, 0}};

/* A frozen base stays as it was loaded, in 16 bits; what is trained beside it is in fp32, as PEFT makes adapters
 * (autocast_adapter_dtype) and accelerate from 1.13 on keeps what it trains: huggingface/accelerate
 * src/accelerate/utils/fsdp_utils.py (fsdp2_prepare_model casts what requires a gradient). */
static bool has_loaded_base(const spw_job *job) {
    const spw_trainer_id of = job->finetune.frozen == SPW_FROZEN_BASE ? spw_job_trainer(job) : SPW_TRAINERS;
    return of != SPW_TRAINERS && spw_trainer_row(of)->tunes;
}

static size_t unsaid(const spw_job *job, unsigned kind, bool mixed) {
    const size_t weights = job->precision.weights, like_weights = weights > 1 ? weights : 2;
    if (!mixed && kind <= OPTIMIZER && has_loaded_base(job)) return kind == WEIGHTS ? 2 : 4;
    const spw_state_formats own = spw_state_law_of(job)->formats;
    switch (kind) {
    case WEIGHTS: return job->part != SPW_PART_WHOLE && !mixed ? 2 : own.weights;
    case GRADIENTS:
        return own.gradients > 0 ? (weights == 2 + FP16 ? weights : own.gradients) : mixed ? 4 : like_weights;
    case OPTIMIZER: return own.moments > 0 || mixed ? 4 : like_weights;
    default: return 2;
    }
}

/* MaxText's grad_dtype is a cast before the update, and its mu_dtype is of Adam's first moment: src/maxtext/trainers/pre_train/train.py,
 * src/maxtext/optimizers/optimizers.py. PyTorch keeps both in the format of the weight. */
static void follow_weights(spw_precision *p) {
    if (p->optimizer < p->weights) p->second = p->weights, p->followed |= 1U << OPTIMIZER;
    if (p->gradients < p->weights) p->gradients = p->weights, p->followed |= 1U << GRADIENTS;
}

void spw_precision_fill(spw_job *job) {
    spw_precision *const p = &job->precision;
    size_t *const field[] = {&p->weights, &p->gradients, &p->optimizer, &p->activations};
    for (unsigned i = 0; i < sizeof field / sizeof *field; i++) {
        const bool mixed = *field[i] == MIXED, automatic = *field[i] == AUTO;
        if (mixed || automatic) *field[i] = unsaid(job, i, mixed);
        if (automatic && *field[i] == sizeof(float)) p->assumed |= 1U << i;
    }
    for (unsigned i = 0; i < sizeof field / sizeof *field; i++) {
        if ((*field[i] & FP16) != 0) p->fp16 |= 1U << i;
        *field[i] &= FP16 - 1;
    }
    if (spw_state_law_of(job)->follows_weights && p->weights == sizeof(float)) follow_weights(p);
}

void spw_precision_unfill(spw_job *job) {
    spw_precision *const p = &job->precision;
    size_t *const field[] = {&p->weights, &p->gradients, &p->optimizer, &p->activations};
    for (unsigned i = 0; i < sizeof field / sizeof *field; i++)
        if ((p->fp16 >> i & 1) != 0) *field[i] |= FP16;
}

static const spw_choice *find_format(const char *word, size_t length) {
    const spw_choice *c = spw_precision_formats;
    while (c->name != NULL && (strlen(c->name) != length || strncmp(c->name, word, length) != 0)) c++;
    return c->name != NULL ? c : NULL;
}

/* One of "weights=fp32 optimizer=bf16"; false where it is none. */
static bool choose_part(spw_precision *p, const char *part, size_t length) {
    size_t *const field[] = {&p->weights, &p->gradients, &p->optimizer, &p->activations};
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++) {
        const char *kind = spw_precision_kind(i);
        const size_t key = strlen(kind);
        if (length <= key + 1 || strncmp(part, kind, key) != 0 || part[key] != '=') continue;
        const spw_choice *c = find_format(part + key + 1, length - key - 1);
        if (c != NULL) *field[i] = c->value;
        return c != NULL;
    }
    return false;
}

bool spw_precision_choose(spw_job *job, const char *words) {
    const size_t first = strcspn(words, " ");
    const spw_choice *c = find_format(words, first);
    if (c == NULL) return false;
    spw_precision chosen = {c->value, c->value, c->value, c->value};
    for (const char *at = words + first; *at != '\0';) {
        at += strspn(at, " ");
        const size_t length = strcspn(at, " ");
        if (length > 0 && !choose_part(&chosen, at, length)) return false;
        at += length;
    }
    job->precision = chosen;
    job->master_bytes = SPW_MASTER_AUTO;
    spw_precision_fill(job);
    return true;
}

const char *spw_precision_kind(size_t i) {
    static const char *const names[SPW_PRECISION_KINDS] = {"weights", "gradients", "optimizer",
                                                           "activations"};
    return names[i];
}
