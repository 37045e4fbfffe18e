#include "sim/job/goes_with.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/recipe/remat.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/job/state_law.h"
#include "sim/model/attention.h"
#include "sim/model/compressed_attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FEATURE_WORDS(name, words, holds) [SPW_WITH_##name] = (words),
static const char *const features[] = {SPW_JOB_FEATURES(FEATURE_WORDS) SPW_SCHEME_FEATURES(FEATURE_WORDS)};
#undef FEATURE_WORDS

const char *spw_feature_words(spw_feature feature) { return features[feature]; }

static spw_features features_of(const spw_job *j, const spw_grid *g) {
    const spw_model *m = &j->model;
    const spw_precision *p = &j->precision;
    const spw_state_law *law = spw_state_law_of(j);
    spw_features f = {{0}};
#define FEATURE_SET(name, words, holds) spw_features_set(&f, SPW_WITH_##name, holds);
    SPW_JOB_FEATURES(FEATURE_SET)
#undef FEATURE_SET
    return f;
}

/* --- Sentences --- */

enum { NUMBER = 24, WORD = 24, SENTENCE = 4096 };

/* The words of a job by which sentences call its values. */
static const char *word_of(const spw_job *j, const spw_grid *g, const char *name, char number[NUMBER]) {
    const char *mixer = spw_grid_unread_mixer(j);
    const struct {
        const char *name, *text;
    } texts[] = {
        {"optimizer", spw_optimizer_name(j->optimizer)},
        {"recipe", spw_fp8_recipe_name(j->precision.recipe)},
        {"remat", spw_remat_name(j->remat)},
        {"model", j->model.name},
        {"cluster", j->cluster.name},
        {"release", j->megatron.release},
        {"offload", spw_offload_name(&j->offload)},
        {"graph", spw_cuda_graph_name(j->cuda_graph)},
        {"frozen", spw_frozen_name(j->finetune.frozen)},
        {"mixer", mixer != NULL ? mixer : ""},
        {"unsaid", j->expert_tensor == 0 ? " (it is as large as tensor, because nobody gave it)" : ""}};
    const struct {
        const char *name;
        size_t value;
    } numbers[] = {{"tensor", g->tensor},
                   {"context", g->context},
                   {"expert_tensor", g->expert_tensor},
                   {"pipeline", j->pipeline},
                   {"virtual_stages", j->virtual_stages},
                   {"micro_batches", j->micro_batches},
                   {"layers", j->layers},
                   {"fsdp", j->fsdp},
                   {"group", j->expert * j->fsdp},
                   {"prefetch", j->fsdp2.prefetch},
                   {"instances", j->optimizer_instances},
                   {"lora_rank", j->finetune.lora_rank},
                   {"heads", j->model.kv_heads}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].name, name) == 0) return texts[i].text;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, name) != 0) continue;
        (void)snprintf(number, NUMBER, "%zu", numbers[i].value);
        return number;
    }
    return "?";
}

static const char *side_word(const spw_scheme_side *side, const char *name) {
    for (size_t i = 0; side != NULL && side->words[i].name != NULL; i++)
        if (strcmp(side->words[i].name, name) == 0) return side->words[i].text;
    return NULL;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }

/* Braces around anything else than one word are a sentence's own, as in precision: {weights: fp32}. */
static size_t read_word(const char *at, char out[WORD]) {
    size_t length = 0;
    while (length + 1 < WORD && is_letter(at[1 + length])) length++;
    if (at[0] != '{' || at[1 + length] != '}') return 0;
    memcpy(out, at + 1, length);
    out[length] = '\0';
    return length + 2;
}

static spw_status refuse(const spw_job *job, const spw_grid *g, const spw_scheme_side *side,
                         const char *sentence) {
    char out[SENTENCE] = "", name[WORD], number[NUMBER];
    size_t used = 0;
    while (*sentence != '\0' && used + 1 < sizeof out) {
        const size_t length = read_word(sentence, name);
        if (length == 0) {
            out[used++] = *sentence++;
            continue;
        }
        const char *own = side_word(side, name), *text = own != NULL ? own : word_of(job, g, name, number);
        (void)snprintf(out + used, sizeof out - used, "%s", text);
        used += strlen(out + used);
        sentence += length;
    }
    return spw_fail(SPW_ECONFIG, "%s", out);
}

spw_status spw_goes_with_check(const spw_job *job, const spw_scheme_side *side, const char **key) {
    const spw_grid g = spw_grid_of(job);
    spw_features f = features_of(job, &g);
    for (size_t i = 0; side != NULL && i < sizeof f.word / sizeof *f.word; i++)
        f.word[i] |= side->has.word[i];
    for (size_t i = 0; i < spw_pairs_count; i++) {
        const spw_pair *pair = &spw_pairs[i];
        if ((pair->key == NULL) != (side != NULL)) continue;
        if (!spw_features_have(&f, pair->one) || !spw_features_have(&f, pair->other)) continue;
        if (side == NULL) *key = pair->key;
        return refuse(job, &g, side, pair->sentence);
    }
    return SPW_OK;
}
