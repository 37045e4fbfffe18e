/* Megatron-Core's hybrid models: a letter a layer, of Mamba-2, attention, experts or a dense FFN alone. They are built as Nemotron-H. */
#include "sim/frameworks/model/config_text.h"
#include "sim/frameworks/rules.h"

#include "base/memory.h"
#include "sim/job/job.h"

#include <stdio.h>
#include <string.h>

enum { PLACEHOLDER = 128 }; /* rows of an embedding of which nobody says how many */

/* Facts as keys of Nemotron-H's config.json. NVIDIA/Megatron-LM d98e8a64 megatron/training/arguments.py: what is taken where they are
 * not said. 0: nothing is, and the key stays away. */
static const struct {
    const char *fact, *key;
    size_t silent;
} hybrid_sizes[] = {{"@hidden", "hidden_size", 0},
                    {"@vocabulary", "vocab_size", PLACEHOLDER},
                    {"@heads", "num_attention_heads", 0},
                    {"@experts", "n_routed_experts", 0},
                    {"@top_k", "num_experts_per_tok", 0},
                    {"@shared_ffn", "moe_shared_expert_intermediate_size", 0},
                    {"@latent_experts", "moe_latent_size", 0},
                    {"@mamba_head_dim", "mamba_head_dim", 64},
                    {"@mamba_state", "ssm_state_size", 128},
                    {"@mamba_groups", "n_groups", 8},
                    {"@groups", "n_group", 0},
                    {"@groups_kept", "topk_group", 0}};

/* As Nemotron-H has them, whatever is said: scores of the router and its bias for the choice, norms, and biases, which are few. */
static const char *const as_nemotron[] = {"@router_score", "@router_bias", "@normalization", "@biases",
                                          "@query_norm"};

/* Sizes that others make where they are not said: d98e8a64 arguments.py and megatron/core/ssm/mamba_mixer.py (its expand is 2). */
static spw_status add_made(spw_draft *d, char text[SPW_JOB_NAME]) {
    const char *grouped = spw_draft_fact(d, "@grouped_query");
    size_t hidden = 0, heads = 0, ffn = 0, head_dim = 0, value = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_draft_count(d, "@hidden", 1, 0, &hidden));
    SPW_TRY(spw_draft_count(d, "@heads", 1, 1, &heads));
    SPW_TRY(spw_draft_count(d, "@ffn", 1, 4 * hidden, &ffn));
    spw_config_add(text, "intermediate_size", ffn);
    SPW_TRY(spw_draft_count(d, "@expert_ffn", 1, ffn, &value));
    spw_config_add(text, "moe_intermediate_size", value);
    SPW_TRY(spw_draft_count(d, "@kv_heads", 1, heads, &value));
    spw_config_add(text, "num_key_value_heads",
                   grouped != NULL && strcmp(grouped, "false") == 0 ? heads : value);
    SPW_TRY(spw_draft_count(d, "@head_dim", 1, hidden / heads, &value));
    spw_config_add(text, "head_dim", value);
    SPW_TRY(spw_draft_count(d, "@mamba_head_dim", 1, 64, &head_dim));
    SPW_TRY(spw_draft_count(d, "@mamba_heads", 1, 2 * hidden / head_dim, &value));
    spw_config_add(text, "mamba_num_heads", value);

cleanup:
    return status;
}

static spw_status write_config(spw_draft *d, const char *pattern, char text[SPW_JOB_NAME], bool *vocabulary) {
    spw_status status = SPW_OK;
    (void)snprintf(
        text, SPW_JOB_NAME,
        "{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"%s\", \"conv_kernel\": 4, "
        "\"use_conv_bias\": true, \"mlp_hidden_act\": \"relu2\"",
        pattern);
    spw_config_add(text, "num_hidden_layers", strlen(pattern));
    for (size_t i = 0; i < sizeof hybrid_sizes / sizeof *hybrid_sizes; i++) {
        size_t value = 0;
        SPW_TRY(spw_draft_count(d, hybrid_sizes[i].fact, 1, hybrid_sizes[i].silent, &value));
        spw_config_add(text, hybrid_sizes[i].key, value);
    }
    SPW_TRY(add_made(d, text));
    for (size_t i = 0; i < sizeof as_nemotron / sizeof *as_nemotron; i++)
        (void)spw_draft_fact(d, as_nemotron[i]);
    *vocabulary = spw_draft_fact(d, "@vocabulary") != NULL;
    SPW_TRY(spw_config_end(d, text, spw_draft_on(d, "@untied")));

cleanup:
    return status;
}

/* All but the embedding, whose rows some files have padded. */
static bool alike(const spw_model *a, const spw_model *b) {
    const spw_parameters of_a = spw_model_parameters(a), of_b = spw_model_parameters(b);
    return a->half_layers && a->layers == b->layers && a->hidden == b->hidden && a->experts == b->experts &&
           a->top_k == b->top_k && a->heads == b->heads && memcmp(a->is_moe, b->is_moe, a->layers) == 0 &&
           memcmp(a->mixer_of, b->mixer_of, a->layers) == 0 &&
           of_a.total - of_a.embedding - of_a.head == of_b.total - of_b.embedding - of_b.head;
}

/* The preset that the text is; NULL: none. */
static spw_status find_preset(const spw_draft *d, const char *text, bool vocabulary, const char **found) {
    spw_model *said = NULL, *preset = NULL;
    spw_status status = SPW_OK;
    *found = NULL;
    SPW_TRY(SPW_ALLOC(1, &said));
    SPW_TRY(SPW_ALLOC(1, &preset));
    SPW_TRY(spw_model_parse(d->where, text, strlen(text), said));
    for (const char *const *name = spw_model_presets(); *name != NULL && *found == NULL; name++) {
        SPW_TRY(spw_model_read(*name, NULL, preset));
        const size_t more =
            said->vocab > preset->vocab ? said->vocab - preset->vocab : preset->vocab - said->vocab;
        if (alike(preset, said) && (!vocabulary || 100 * more <= preset->vocab)) *found = *name;
    }

cleanup:
    spw_free(preset);
    spw_free(said);
    return status;
}

/* Why no model can be made; NULL: one can. */
static const char *refusal(spw_draft *d, const char *pattern, size_t layers) {
    if (pattern[strspn(pattern, "M*E-")] != '\0')
        return "of the letters of a hybrid model's layers M, *, E and - are read: give --model NAME";
    if (strchr(pattern, 'E') == NULL) return "it has no experts; models without them are not planned";
    if (layers > 0 && layers != strlen(pattern)) return "it has not one letter for each of num_layers";
    if (spw_draft_on(d, "@gated") || spw_draft_on(d, "@quick_gated"))
        return "a hybrid's experts are read without a gate (swiglu): give --model NAME";
    if (spw_draft_fact(d, "@hidden") == NULL || spw_draft_fact(d, "@heads") == NULL ||
        spw_draft_fact(d, "@experts") == NULL || spw_draft_fact(d, "@top_k") == NULL)
        return "beside it hidden size, heads, experts and choices are not all said: give --model NAME";
    return NULL;
}

/* The letters of the layers. A '|' between them ends a part of a stage; parts that are not all as large are planned as if they were. */
static spw_status take_letters(spw_draft *d, const char *said, char *out, size_t size) {
    size_t parts = 1, used = 0, begin = 0, first = 0, stages = 1;
    bool even = true;
    spw_status status = SPW_OK;
    for (; *said != '\0' && *said != '/' && used + 1 < size; said++) {
        if (*said != '|') {
            out[used++] = *said;
            continue;
        }
        if (parts++ == 1) first = used;
        even = even && used - begin == first;
        begin = used;
    }
    out[used] = '\0';
    if (parts == 1) return SPW_OK;
    SPW_TRY(spw_draft_count(d, "parallel.pipeline", 1, 1, &stages));
    if (parts % stages == 0 && parts > stages)
        SPW_TRY(spw_draft_put_count(d, "parallel.virtual_stages", parts / stages, "@pattern"));
    if (!even || used - begin != first || parts % stages != 0)
        SPW_TRY(spw_draft_note_more(
            d, "@pattern", NULL,
            "its stages, between '|', differ; they are planned with layers shared out evenly"));

cleanup:
    return status;
}

spw_status spw_compose_hybrid(spw_draft *d) {
    const char *said = spw_draft_fact(d, "@pattern"), *found = NULL;
    const char *behind = strchr(said, '/'); /* layers of multi-token prediction */
    char text[SPW_JOB_NAME], what[SPW_NOTE_WHY], pattern[SPW_JOB_NAME];
    bool vocabulary = false;
    size_t layers = 0;
    spw_status status = SPW_OK;
    SPW_TRY(take_letters(d, said, pattern, sizeof pattern));
    SPW_TRY(spw_draft_count(d, "@layers", 1, 0, &layers));
    const char *why = refusal(d, pattern, layers);
    if (why != NULL) return spw_draft_note_fact(d, SPW_NOTE_LACKS, "@pattern", why);
    if (behind != NULL && behind[1] != '\0')
        SPW_TRY(spw_draft_note_more(d, "@pattern", NULL,
                                    "its layers of multi-token prediction, behind '/', are not counted"));
    SPW_TRY(write_config(d, pattern, text, &vocabulary));
    SPW_TRY(find_preset(d, text, vocabulary, &found));
    if (found == NULL && !vocabulary)
        return spw_draft_note_fact(
            d, SPW_NOTE_LACKS, "@pattern",
            "no preset has its sizes, and the file does not say its vocabulary: give --model NAME");
    if (found == NULL) {
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, "model: of the file's sizes",
                                    "no preset has them; layers as Nemotron-H's"));
        SPW_TRY(spw_draft_put_text(d, "model", text, "@pattern"));
    } else {
        (void)snprintf(what, sizeof what, "model: %s", found);
        SPW_TRY(spw_draft_note_text(d, SPW_NOTE_ASSUMED, what, "the preset that has all sizes of the file"));
        SPW_TRY(spw_draft_put(d, "model", found, "@pattern"));
    }

cleanup:
    return status;
}
