#include "sim/input/precision_fill.h"

#include "sim/input/precision.h"

#include <string.h>

enum { WEIGHTS, GRADIENTS, OPTIMIZER };
enum { FP16 = 0x100, AUTO = 0x200, MIXED = 0x400 }; /* beside the bytes, until they are filled in */
const spw_choice spw_precision_formats[] = {
    {"auto", AUTO},     {"framework", AUTO}, {"mixed", MIXED}, {"bf16", 2},
    {"fp16", 2 + FP16}, {"fp32", 4},         {"fp8", 1},       {NULL, 0}};

static size_t unsaid(const spw_job *job, unsigned kind, bool mixed) {
    const size_t weights = job->precision.weights, like_weights = weights > 1 ? weights : 2;
    const bool megatron = job->optimizer != SPW_OPTIMIZER_SHARDED;
    switch (kind) {
    case WEIGHTS: return megatron || (job->part != SPW_PART_WHOLE && !mixed) ? 2 : 4;
    case GRADIENTS: return megatron ? (weights == 2 + FP16 ? weights : 4) : mixed ? 4 : like_weights;
    case OPTIMIZER: return megatron || mixed ? 4 : like_weights;
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
    if (job->optimizer == SPW_OPTIMIZER_SHARDED && p->weights == sizeof(float)) follow_weights(p);
}

void spw_precision_unfill(spw_job *job) {
    spw_precision *const p = &job->precision;
    size_t *const field[] = {&p->weights, &p->gradients, &p->optimizer, &p->activations};
    for (unsigned i = 0; i < sizeof field / sizeof *field; i++)
        if ((p->fp16 >> i & 1) != 0) *field[i] |= FP16;
}

bool spw_precision_choose(spw_job *job, const char *word) {
    const spw_choice *c = spw_precision_formats;
    while (c->name != NULL && strcmp(c->name, word) != 0) c++;
    if (c->name == NULL) return false;
    job->precision = (spw_precision){c->value, c->value, c->value, c->value};
    job->master_bytes = SPW_MASTER_AUTO;
    spw_precision_fill(job);
    return true;
}
