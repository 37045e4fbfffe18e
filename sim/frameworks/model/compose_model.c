#include "sim/frameworks/model/config_text.h"
#include "sim/frameworks/model/layer_list.h"
#include "sim/frameworks/rules.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/model/attention.h"
#include "sim/read/preset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Such numbers come from batch systems and templates: what is none is noted. */
static spw_status count_if_any(spw_draft *d, const char *fact, size_t *out) {
    const char *text = spw_draft_fact(d, fact);
    *out = 0;
    if (text == NULL || text[0] == '\0') return SPW_OK;
    if (text[strspn(text, "0123456789")] != '\0' || strlen(text) > 7)
        return spw_draft_note_fact(d, SPW_NOTE_UNSAID, fact, "no number");
    *out = strtoul(text, NULL, 10);
    return SPW_OK;
}

spw_status spw_compose_gpus(spw_draft *d) {
    size_t gpus = 0, nodes = 0, per_node = 0;
    spw_status status = SPW_OK;
    SPW_TRY(count_if_any(d, "@gpus", &gpus));
    SPW_TRY(count_if_any(d, "@nodes", &nodes));
    SPW_TRY(count_if_any(d, "@gpus_per_node", &per_node));
    if (gpus > 0) {
        SPW_TRY(spw_draft_put_count(d, "gpus", gpus, "@gpus"));
    } else if (nodes > 0 && per_node > 0) {
        SPW_TRY(spw_draft_put_count(d, "gpus", nodes * per_node, "@nodes"));
    } else if (nodes > 0) {
        SPW_TRY(spw_draft_note_fact(d, SPW_NOTE_LACKS, "@nodes",
                                    "GPUs a node are not said: give --cluster or --gpus"));
    }

cleanup:
    return status;
}

/* --- Sizes --- */

typedef struct model_sizes {
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, experts, top_k, expert_ffn, shared_ffn,
        first_dense, query_rank, key_rank, key_dim, rotary_dim, value_dim, vocabulary, groups, groups_kept,
        streams;
    spw_layer_list sparse; /* layers with experts, where Megatron-Core's list says them */
    bool latent, untied, sigmoid, bias, sinks;
    bool plain;                     /* experts of two matrices, without a gate */
    bool biases, query_bias, norms; /* of all products; of queries, keys and values; of norms (LayerNorm) */
    bool query_norm;
} model_sizes;

#define SIZE(name, field) \
    { name, offsetof(model_sizes, field) }
static const struct {
    const char *fact;
    size_t offset;
} size_facts[] = {
    SIZE("@layers", layers),           SIZE("@hidden", hidden),         SIZE("@heads", heads),
    SIZE("@kv_heads", kv_heads),       SIZE("@head_dim", head_dim),     SIZE("@ffn", ffn),
    SIZE("@experts", experts),         SIZE("@top_k", top_k),           SIZE("@expert_ffn", expert_ffn),
    SIZE("@shared_ffn", shared_ffn),   SIZE("@query_rank", query_rank), SIZE("@key_rank", key_rank),
    SIZE("@key_dim", key_dim),         SIZE("@rotary_dim", rotary_dim), SIZE("@value_dim", value_dim),
    SIZE("@vocabulary", vocabulary),   SIZE("@groups", groups),         SIZE("@groups_kept", groups_kept),
    SIZE("@first_dense", first_dense), SIZE("@streams", streams)};

/* Megatron-Core's own where nobody says: GELU, biases, LayerNorm. A saved configuration of Bridge that leaves the activation out keeps
 * its recipe's. MaxText names what stands between the matrices: one function has no gate. */
static void read_activation(spw_draft *d, model_sizes *s) {
    const char *gated = spw_draft_fact(d, "@gated"), *between = spw_draft_fact(d, "@activations");
    const bool megatron = d->framework->all_arguments;
    if (spw_draft_on(d, "@quick_gated")) gated = "true";
    s->plain = gated != NULL ? strcmp(gated, "true") != 0 : megatron;
    if (between != NULL && between[0] != '\0') s->plain = strchr(between, ',') == NULL;
    const char *biases = spw_draft_fact(d, "@biases");
    s->biases = biases != NULL ? strcmp(biases, "true") == 0 : megatron;
    s->query_bias = spw_draft_on(d, "@query_bias");
    const char *norm = spw_draft_fact(d, "@normalization");
    s->norms = norm != NULL ? strcasecmp(norm, "LayerNorm") == 0 : megatron;
}

/* NVIDIA/Megatron-LM d98e8a64 megatron/training/arguments.py: an FFN whose width nobody says is four times the hidden size wide, and with a
 * gate two thirds of that, in whole 64. */
static spw_status read_sizes(spw_draft *d, model_sizes *s, bool *ok) {
    const bool megatron = d->framework->all_arguments;
    *s = (model_sizes){.layers = 0};
    *ok = true;
    for (size_t i = 0; i < sizeof size_facts / sizeof *size_facts; i++) {
        if (spw_draft_is(d, size_facts[i].fact, "-1")) continue; /* MaxText: what others make it */
        const spw_status status = spw_draft_count(d, size_facts[i].fact, 0, 0,
                                                  (size_t *)(void *)((char *)s + size_facts[i].offset));
        if (status != SPW_OK) return status;
    }
    const char *layers = spw_draft_fact(d, "@moe_layers"), *grouped = spw_draft_fact(d, "@grouped_query");
    s->latent = spw_draft_on(d, "@latent") || (s->key_rank > 0 && spw_draft_fact(d, "@latent") == NULL);
    if (!spw_draft_on(d, "@has_streams")) s->streams = 0;
    s->untied = spw_draft_on(d, "@untied");
    s->sigmoid = spw_draft_is(d, "@router_score", "sigmoid");
    s->bias = spw_draft_on(d, "@router_bias");
    s->query_norm = spw_draft_on(d, "@query_norm");
    s->sinks = spw_draft_on(d, "@sinks");
    read_activation(d, s);
    if (s->kv_heads == 0 && megatron && spw_draft_on(d, "@grouped_query")) s->kv_heads = 1;
    if (s->kv_heads == 0 || (grouped != NULL && strcmp(grouped, "false") == 0)) s->kv_heads = s->heads;
    if (s->ffn == 0 && megatron) s->ffn = s->plain ? 4 * s->hidden : 8 * s->hidden / 3 / 64 * 64;
    if (s->expert_ffn == 0) s->expert_ffn = s->ffn;
    *ok = layers == NULL || (spw_layer_list_read(layers, s->layers, &s->sparse) &&
                             (s->layers == 0 || s->sparse.layers == s->layers));
    return *ok ? SPW_OK
               : spw_draft_note_fact(
                     d, SPW_NOTE_LACKS, "@moe_layers",
                     "which layers have experts is said by a number, or by lists of 0 and 1 as "
                     "([0]*3+[1]*58), one for each of num_layers: write so, or give --model NAME");
}

static bool alike(size_t said, size_t there) { return said == 0 || said == there; }

/* Some files have the vocabulary as it is padded. */
static bool vocabulary_alike(size_t said, size_t there) {
    const size_t more = said > there ? said - there : there - said;
    return said == 0 || 100 * more <= there;
}

/* Every size that is said is the preset's. */
static bool is_preset(const model_sizes *s, const spw_model *m) {
    const bool gqa = !spw_attention_is_latent(m);
    const size_t key_rank = spw_attention_size_of(m, "@key_rank"),
                 value_dim = spw_attention_size_of(m, "@value_dim");
    if (!alike(s->layers, m->layers) || !alike(s->hidden, m->hidden) || !alike(s->heads, m->heads))
        return false;
    if (!alike(s->experts, m->experts) || !alike(s->top_k, m->top_k) || !alike(s->expert_ffn, m->expert_ffn))
        return false;
    if (s->streams > 1 && s->streams != m->streams) return false;
    if (s->plain != (spw_expert_matrices(m) == 2) || !vocabulary_alike(s->vocabulary, m->vocab)) return false;
    if (s->sparse.layers > 0 &&
        (s->sparse.layers != m->layers || memcmp(s->sparse.has, m->is_moe, m->layers) != 0))
        return false;
    if (gqa ? s->latent || !alike(s->kv_heads, m->kv_heads) || !alike(s->head_dim, m->head_dim)
            : !s->latent || !alike(s->key_rank, key_rank) || !alike(s->value_dim, value_dim))
        return false;
    if (!gqa && s->query_rank != spw_attention_size_of(m, "@query_rank")) return false;
    return s->shared_ffn == m->shared_ffn &&
           (m->dense_ffn == 0 || m->moe_layers == m->layers || alike(s->ffn, m->dense_ffn));
}

/* What layers have beside the parts whose sizes a file says; NULL: nothing is said of it. A spec of Megatron-Core's own for a transformer has no
 * more. */
static const char *beyond_sizes(spw_draft *d) {
    const char *spec = spw_draft_fact(d, "@spec"), *variant = spw_draft_fact(d, "@variant");
    const bool gate = spw_draft_on(d, "@output_gate");
    if (variant != NULL && variant[0] != '\0') return "@variant";
    if (spec != NULL && spec[0] != '\0' && strstr(spec, "gpt_layer_specs") == NULL) return "@spec";
    return gate ? "@output_gate" : NULL;
}

static spw_status match_sizes(spw_draft *d, const model_sizes *s, const char *named, const char **found) {
    spw_model *model = NULL;
    spw_status status = SPW_OK;
    model_sizes said = *s;
    const char *beyond = beyond_sizes(d);
    const bool other = beyond != NULL && strcmp(beyond, "@spec") != 0;
    *found = NULL;
    if (said.head_dim == 0 && said.heads > 0 && !said.latent && d->framework->all_arguments)
        said.head_dim = said.hidden / said.heads; /* megatron/training/arguments.py: kv_channels */
    SPW_TRY(SPW_ALLOC(1, &model));
    for (const char *const *preset = spw_model_presets(); *preset != NULL; preset++) {
        SPW_TRY(spw_model_read(*preset, NULL, model));
        const bool meant = named != NULL && strcmp(named, *preset) == 0,
                   more = model->matrices > 0 ||
                          model->indexer_heads > 0; /* parts that no size of the file speaks of */
        if (!is_preset(&said, model) || (more && !meant && beyond == NULL) || (other && !more)) continue;
        if (*found == NULL || meant) *found = *preset;
    }

cleanup:
    spw_free(model);
    return status;
}

/* --- A model of its own --- */

static spw_status vocabulary_of(const char *preset, size_t *out) {
    spw_model *model = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &model));
    SPW_TRY(spw_model_read(preset, NULL, model));
    *out = model->vocab;

cleanup:
    spw_free(model);
    return status;
}

static size_t said_of(const model_sizes *s, const char *fact) {
    for (size_t i = 0; i < sizeof size_facts / sizeof *size_facts; i++)
        if (strcmp(size_facts[i].fact, fact) == 0)
            return *(const size_t *)(const void *)((const char *)s + size_facts[i].offset);
    return 0;
}

static spw_status put_generic(spw_draft *d, const model_sizes *s) {
    char text[SPW_JOB_NAME];
    const size_t shared = s->shared_ffn / s->expert_ffn;
    const bool whole = shared * s->expert_ffn == s->shared_ffn;
    (void)snprintf(text, sizeof text, "{\"model_type\": \"generic\"");
    const struct {
        const char *key;
        size_t value;
    } sizes[] = {{"num_hidden_layers", s->layers},
                 {"hidden_size", s->hidden},
                 {"vocab_size", s->vocabulary},
                 {"num_attention_heads", s->heads},
                 {"num_key_value_heads", s->latent ? 0 : s->kv_heads},
                 {"head_dim", s->latent ? 0 : s->head_dim},
                 {"intermediate_size", s->ffn},
                 {"n_routed_experts", s->experts},
                 {"num_experts_per_tok", s->top_k},
                 {"moe_intermediate_size", s->expert_ffn},
                 {"n_shared_experts", whole ? shared : 0},
                 {"shared_expert_intermediate_size", whole ? 0 : s->shared_ffn},
                 {"first_k_dense_replace", s->first_dense},
                 {"hc_mult", s->streams > 1 ? s->streams : 0}},
      groups[] = {{"n_group", s->groups_kept > 0 ? s->groups : 0},
                  {"topk_group", s->groups > 0 ? s->groups_kept : 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        spw_config_add(text, sizes[i].key, sizes[i].value);
    for (const spw_attention_size *of = spw_latent_attention.sizes; s->latent && of->key != NULL; of++)
        spw_config_add(text, of->key, said_of(s, of->fact));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        spw_config_add(text, groups[i].key, groups[i].value);
    if (s->plain) spw_config_add(text, "expert_matrices", 2);
    if (s->plain) spw_config_add(text, "ffn_matrices", 2);
    spw_status status = spw_layer_list_keys(&s->sparse, text, sizeof text);
    if (status != SPW_OK) return status;
    const size_t used = strlen(text);
    (void)snprintf(text + used, sizeof text - used, "%s%s%s%s%s%s%s",
                   (s->biases || s->query_bias) && !s->latent ? ", \"qkv_bias\": true" : "",
                   s->biases ? ", \"expert_bias\": true" : "", s->norms ? ", \"norm_bias\": true" : "",
                   s->query_norm && !s->latent ? ", \"use_qk_norm\": true" : "",
                   s->sinks ? ", \"attention_sinks\": true" : "",
                   s->sigmoid ? ", \"scoring_func\": \"sigmoid\"" : "",
                   s->bias ? ", \"topk_method\": \"noaux_tc\"" : "");
    status = spw_config_end(d, text, s->untied);
    if (status != SPW_OK) return status;
    return spw_draft_put_text(d, "model", text, "@layers");
}

static const char in_code[] =
    "no preset has the sizes beside it, which do not say these layers: give --model NAME";
static const char no_experts[] = "it has no experts; models without them are not planned";

/* Nothing is said of experts, and what else is said may be all that a preset with experts has. */
static bool is_dense(const model_sizes *s) {
    return s->layers > 0 && s->hidden > 0 && s->heads > 0 && s->experts == 0 && s->top_k == 0 &&
           (s->expert_ffn == 0 || s->expert_ffn == s->ffn) && s->shared_ffn == 0;
}

/* What a generic model needs, and its sizes; "" is all right. */
static const char *missing(const model_sizes *s) {
    if (s->layers == 0 || s->hidden == 0 || s->heads == 0)
        return "layers, hidden size and heads are not all said";
    if (s->experts == 0 || s->top_k == 0) return "experts, and how many a token chooses, are not all said";
    if (s->expert_ffn == 0) return "the width of an expert is not said";
    if (s->latent && (s->key_rank == 0 || s->key_dim == 0 || s->rotary_dim == 0 || s->value_dim == 0))
        return "sizes of latent attention are not all said";
    return "";
}

spw_status spw_compose_named_model(spw_draft *d) {
    const char *name = spw_draft_fact(d, "@model_name"),
               *named = name != NULL ? spw_model_of_name(name) : NULL;
    if (named == NULL) return spw_compose_model(d);
    bool sizes = false;
    for (size_t i = 0; i < sizeof size_facts / sizeof *size_facts; i++)
        sizes = spw_draft_fact(d, size_facts[i].fact) != NULL || sizes;
    (void)spw_draft_fact(d, "@activations");
    const spw_status status =
        !sizes ? SPW_OK
               : spw_draft_note_text(d, SPW_NOTE_ASSUMED, "model: the preset's sizes",
                                     "MaxText reads the named model's over those of the file");
    return status != SPW_OK ? status : spw_draft_put(d, "model", named, "@model_name");
}

spw_status spw_compose_model(spw_draft *d) {
    const char *name = spw_draft_fact(d, "@model_name"),
               *named = name != NULL ? spw_model_of_name(name) : NULL, *found = NULL;
    model_sizes sizes;
    bool ok = false;
    char what[SPW_NOTE_WHY];
    (void)beyond_sizes(d);
    if (spw_draft_fact(d, "@pattern") != NULL) return spw_compose_hybrid(d);
    spw_status status = read_sizes(d, &sizes, &ok);
    if (status != SPW_OK) return status;
    if (ok && sizes.layers > 0 && sizes.hidden > 0) {
        if (named == NULL && is_dense(&sizes))
            return spw_draft_note_text(d, SPW_NOTE_LACKS, "model", no_experts);
        status = match_sizes(d, &sizes, named, &found);
        if (status != SPW_OK) return status;
        if (found != NULL) {
            (void)snprintf(what, sizeof what, "model: %s", found);
            status =
                spw_draft_note_text(d, SPW_NOTE_ASSUMED, what, "the preset that has all sizes of the file");
            return status == SPW_OK ? spw_draft_put(d, "model", found, "@layers") : status;
        }
        if (beyond_sizes(d) != NULL) return spw_draft_note_fact(d, SPW_NOTE_LACKS, beyond_sizes(d), in_code);
        const char *why = missing(&sizes);
        if (why[0] == '\0' && sizes.vocabulary == 0 && named != NULL)
            status = vocabulary_of(named, &sizes.vocabulary);
        if (status != SPW_OK) return status;
        if (why[0] == '\0' && sizes.vocabulary == 0)
            why = "no preset has its sizes, and the file does not say its vocabulary (vocab_size)";
        if (why[0] == '\0') {
            status =
                spw_draft_note_text(d, SPW_NOTE_ASSUMED, "model: of the file's sizes",
                                    sizes.plain ? "no preset has them; experts of two matrices, as it has "
                                                  "no gated activation (swiglu)"
                                                : "no preset has them; experts of three matrices");
            return status == SPW_OK ? put_generic(d, &sizes) : status;
        }
        (void)snprintf(what, sizeof what, "%s: give --model NAME, or --model config.json", why);
        return spw_draft_note_text(d, SPW_NOTE_LACKS, "model", what);
    }
    if (named != NULL) return spw_draft_put(d, "model", named, "@model_name");
    if (name == NULL) return SPW_OK;
    const char *near = spw_model_nearest(name);
    (void)snprintf(what, sizeof what, "no preset of that name%s%s",
                   near != NULL ? "; nearest: --model " : ": give --model NAME", near != NULL ? near : "");
    return spw_draft_note_fact(d, SPW_NOTE_LACKS, "@model_name", what);
}
