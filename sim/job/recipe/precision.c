#include "sim/job/recipe/precision.h"

#include "sim/job/job_software.h"
#include "sim/job/state_law.h"
#include "sim/job/trainer.h"

#include <stdio.h>
#include <string.h>

enum { OPTIMIZER_KIND = 2 };

static size_t bytes_of(const spw_precision *p, size_t i) {
    const size_t bytes[SPW_PRECISION_KINDS] = {p->weights, p->gradients, p->optimizer, p->activations};
    return bytes[i];
}

const char *spw_precision_name(const spw_precision *p, size_t i) {
    switch (bytes_of(p, i)) {
    case 4: return "fp32";
    case 2: return (p->fp16 >> i & 1u) != 0 ? "fp16" : "bf16";
    default: return "fp8";
    }
}

bool spw_precision_is_bf16(const spw_job *job) {
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++) {
        if (bytes_of(&job->precision, i) != 2) return false;
    }
    return true;
}

bool spw_precision_any_fp8(const spw_job *job) {
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++) {
        if (bytes_of(&job->precision, i) == 1) return true;
    }
    return false;
}

bool spw_precision_lacks_copies(const spw_job *job) {
    const spw_precision *p = &job->precision;
    return p->weights == 1 || p->gradients == 1 || p->activations == 1;
}

bool spw_precision_is_timed(const spw_job *job) {
    return !spw_precision_lacks_copies(job) && job->precision.activations == 2;
}

size_t spw_precision_moments(const spw_precision *p) {
    return p->optimizer + (p->second > 0 ? p->second : p->optimizer);
}

size_t spw_precision_gathered(const spw_job *job) {
    const spw_precision *p = &job->precision;
    if (job->fsdp2.gathered > SPW_GATHERED_SAME) return job->fsdp2.gathered;
    const bool cast = job->fsdp2.gathered == 0 && spw_state_is_sharded(job) && p->activations > 0 &&
                      p->activations < p->weights;
    return cast ? p->activations : p->weights;
}

size_t spw_precision_scattered(const spw_job *job) {
    const size_t gathered = spw_precision_gathered(job), gradients = job->precision.gradients;
    return gathered < job->precision.weights && gathered < gradients ? gathered : gradients;
}

void spw_precision_line(const spw_job *job, char out[SPW_PRECISION_TEXT]) {
    const spw_precision *p = &job->precision;
    const char *master = job->megatron.remainders ? "fp32 master weights, the half that bf16 lacks"
                         : job->master_bytes == 2 ? "bf16 master weights"
                                                  : "fp32 master weights";
    size_t used = 0;
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++) {
        if (i == OPTIMIZER_KIND) continue;
        (void)snprintf(out + used, SPW_PRECISION_TEXT - used, "%s%s %s", used > 0 ? ", " : "",
                       spw_precision_name(p, i), spw_precision_kind(i));
        used = strlen(out);
    }
    if (job->part != SPW_PART_WHOLE) return;
    (void)snprintf(out + used, SPW_PRECISION_TEXT - used, "; %s: %s%s moments, %s",
                   job->muon ? "Muon, and Adam of the rest" : "Adam", spw_precision_name(p, OPTIMIZER_KIND),
                   p->second > 0 ? " first and fp32 second" : "",
                   spw_master_bytes(job) > 0 ? master : "no master weights");
    used = strlen(out);
    if (p->recipe != SPW_FP8_NONE)
        (void)snprintf(out + used, SPW_PRECISION_TEXT - used, "; products of %s, recipe %s%s",
                       spw_fp8_recipe_is_fp4(p->recipe) ? "fp4" : "fp8", spw_fp8_recipe_name(p->recipe),
                       p->fp8_param_gather ? ", weights gathered in it" : "");
}

const char *spw_precision_hint(const spw_job *job) {
    const bool least = job->part == SPW_PART_WHOLE && job->precision.weights < sizeof(float) &&
                       job->precision.optimizer < sizeof(float) && spw_master_bytes(job) == 0;
    return least ? "weights, gradients and moments in fp32 take more: --precision mixed" : NULL;
}

const char *spw_precision_other(const spw_job *job, spw_job *out) {
    const spw_precision *p = &job->precision;
    const bool small = p->weights == 2 && p->gradients == 2 && p->optimizer == 2;
    const char *name = small && spw_master_bytes(job) == 0 ? "mixed" : small ? "framework" : "bf16";
    if (job->part != SPW_PART_WHOLE || p->recipe != SPW_FP8_NONE || p->activations != 2 || p->weights == 1 ||
        p->gradients == 1 || p->optimizer == 1)
        return NULL;
    *out = *job;
    return spw_precision_choose(out, name) ? name : NULL;
}

/* Adds "gradients and Adam's moments" of the bits to `text`; `how`: the options for bf16. */
static void name_kinds(unsigned bits, char text[64], char how[128]) {
    static const char *const nouns[SPW_PRECISION_KINDS] = {"weights", "gradients", "Adam's moments",
                                                           "activations"};
    unsigned left = bits;
    for (size_t i = 0; i < SPW_PRECISION_KINDS; i++) {
        const size_t used = strlen(text), length = strlen(how);
        if ((bits >> i & 1U) == 0) continue;
        left &= ~(1U << i);
        (void)snprintf(text + used, 64 - used, "%s%s", used == 0 ? "" : left != 0 ? ", " : " and ", nouns[i]);
        (void)snprintf(how + length, 128 - length, " --set precision.%s=bf16", spw_precision_kind(i));
    }
}

/* Where nobody said it: whose fp32 it is. */
static const char *whose(const spw_job *job, bool sharded) {
    const spw_trainer_id of = sharded ? spw_job_trainer(job) : SPW_TRAINERS;
    if (of != SPW_TRAINERS && spw_trainer_row(of)->unsaid_words != NULL)
        return spw_trainer_row(of)->unsaid_words;
    return sharded ? "MaxText's and torchtitan's own defaults" : "Megatron-Core's own defaults";
}

bool spw_precision_assumed(const spw_job *job, char out[SPW_PRECISION_TEXT]) {
    char what[64] = "", how[128] = "";
    const spw_precision *p = &job->precision;
    const bool sharded = spw_state_law_of(job)->follows_weights;
    size_t used = 0;
    if ((p->assumed | p->followed) == 0 || job->part != SPW_PART_WHOLE) return false;
    out[0] = '\0';
    if (p->assumed != 0) {
        name_kinds(p->assumed, what, how);
        if (sharded) (void)snprintf(how, sizeof how, " --precision bf16");
        if (job->origin[0] != '\0')
            (void)snprintf(out, SPW_PRECISION_TEXT,
                           "%s in fp32, which the file of %s does not say (optimizer: %s); less:%s", what,
                           job->origin, spw_optimizer_name(job->optimizer), how);
        else
            (void)snprintf(out, SPW_PRECISION_TEXT,
                           "%s in fp32, which nobody said: %s (optimizer: %s); less:%s", what,
                           whose(job, sharded), spw_optimizer_name(job->optimizer), how);
        used = strlen(out);
    }
    if (p->followed == 0) return true;
    what[0] = '\0';
    name_kinds(p->followed & 2U, what, how);
    if ((p->followed & 4U) != 0)
        (void)snprintf(what + strlen(what), sizeof what - strlen(what), "%sAdam's second moment",
                       what[0] != '\0' ? " and " : "");
    (void)snprintf(out + used, SPW_PRECISION_TEXT - used,
                   "%s%s in fp32 whatever is said: they follow the weights", used > 0 ? "; " : "", what);
    return true;
}

bool spw_precision_note(const spw_job *job, char out[SPW_PRECISION_TEXT]) {
    int used = snprintf(out, SPW_PRECISION_TEXT, "fp8");
    if (job->precision.recipe != SPW_FP8_NONE && !spw_state_law_of(job)->megatron) {
        (void)snprintf(
            out, SPW_PRECISION_TEXT,
            "fp8 recipe %s, sharded weights: operands wait for the backward pass in bf16 and are cast "
            "in each pass, by "
            "kernels taken to be as fast as TransformerEngine's; rows are exchanged in bf16",
            spw_fp8_recipe_name(job->precision.recipe));
        return true;
    }
    if (job->precision.recipe != SPW_FP8_NONE) {
        (void)snprintf(
            out, SPW_PRECISION_TEXT,
            "%s recipe %s: copies of linear layers' weights and inputs are counted tensor by tensor; scales "
            "that are padded or laid out again for a product are not, and rows are exchanged in bf16",
            spw_fp8_recipe_is_fp4(job->precision.recipe) ? "fp4" : "fp8",
            spw_fp8_recipe_name(job->precision.recipe));
        return true;
    }
    if (!spw_precision_any_fp8(job)) return false;
    for (size_t i = 0, named = 0; i < SPW_PRECISION_KINDS; i++) {
        if (bytes_of(&job->precision, i) != 1) continue;
        used += snprintf(out + used, SPW_PRECISION_TEXT - (size_t)used, "%s %s", named++ > 0 ? "," : "",
                         spw_precision_kind(i));
    }
    (void)snprintf(
        out + used, SPW_PRECISION_TEXT - (size_t)used,
        ": one byte an element is counted; what a recipe keeps beside that is not: %stransposed copies, "
        "scales, tensors that stay in higher precision",
        job->precision.weights == 1 && spw_master_bytes(job) == 0 ? "master weights, " : "");
    return true;
}
