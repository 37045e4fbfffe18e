/* What a file says and the figures leave out: a sentence each, printed with every answer. */
#include "sim/model/compressed_attention.h"
#include "sim/model/config/model_keys.h"
#include "sim/model/config/model_reading.h"
#include "sim/model/config/model_wrapper.h"
#include "sim/model/model.h"
#include "sim/print/plural.h"
#include "sim/read/settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void doubt(spw_model *m, const char *format, ...) {
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++) {
        if (m->doubt[i][0] != '\0') continue;
        va_list args;
        va_start(args, format);
        (void)vsnprintf(m->doubt[i], SPW_MODEL_DOUBT, format, args);
        va_end(args);
        return;
    }
}

/* A kind of layers that counts as the model's attention does. */
static void doubt_kind(spw_model *m, const spw_mixer *mixer) {
    if (mixer->attends)
        doubt(m,
              "%zu of the %zu layers have %s: their parameters count as they are, their activations and time "
              "as those of the "
              "other layers",
              mixer->layers, m->layers, mixer->what);
    else if (mixer->recurrence.kind != SPW_RECURRENCE_NONE)
        doubt(m,
              "%zu of the %zu layers have no attention but %s: their parameters, products and what they keep "
              "for the backward pass count as they are, their scan takes no time",
              mixer->layers, m->layers, mixer->what);
    else
        doubt(m,
              "%zu of the %zu layers have no attention but %s: their parameters count as they are, their "
              "activations and "
              "time as those of a layer with attention",
              mixer->layers, m->layers, mixer->what);
}

/* Kinds of layers whose products, and scores if they attend, count as they are: one line for all of them. */
static void doubt_own_kinds(spw_model *m) {
    char names[SPW_MODEL_DOUBT - 160] = "", kept[SPW_MIXER_NAME] = "";
    bool scans = false;
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        const spw_mixer *mixer = &m->mixer[k];
        const size_t used = strlen(names);
        const bool recurs = m->half_layers && mixer->state > 0;
        if (mixer->layers == 0 || (mixer->heads == 0 && !recurs)) continue;
        if (mixer->recurrence.kind != SPW_RECURRENCE_NONE) {
            (void)snprintf(kept, sizeof kept, "%s", mixer->what);
            continue;
        }
        scans = scans || recurs;
        (void)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", mixer->what);
    }
    if (kept[0] != '\0')
        doubt(m,
              "parameters, products and what %s keeps for the backward pass count as they are; a scan takes "
              "no time",
              kept);
    if (names[0] == '\0') return;
    if (spw_attention_is_compressed(m))
        doubt(m,
              "parameters, scores, products and what %s keep for the backward pass count as they are: as "
              "Megatron-Core's own class has it, and of scheme transformers tensor by tensor",
              names);
    else
        doubt(m,
              "parameters%s and products of %s count as they are; what they keep for the backward pass "
              "counts as that of attention with %zu heads, but where a scheme lists it tensor by tensor%s",
              scans ? "" : ", scores", names, m->heads, scans ? "; a scan takes no time" : "");
}

/* Layers of other kinds than attention and experts: counted, and what of them is not. */
static void doubt_layers(spw_model *m) {
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++)
        if (m->mixer[k].layers > 0 && m->mixer[k].heads == 0 && !m->half_layers) doubt_kind(m, &m->mixer[k]);
    doubt_own_kinds(m);
    if (m->streams > 1)
        doubt(m,
              "%zu residual streams count with their mixing as in Megatron-Core's, Primus' and transformers' "
              "modules (docs/schemes.md, 7.18); no program of them by XLA is described",
              m->streams);
    if (m->loop_passes > 1)
        doubt(m,
              "layers %zu to %zu run %zu times with the same weights: work a token counts all passes; rows, "
              "exchanges, what is "
              "kept and time count one",
              m->loop_start, m->loop_end - 1, m->loop_passes);
    if (m->residual_blocks > 0)
        doubt(m,
              "layers attend over the sums of blocks of %zu layers: its parameters and the sums that stay "
              "alive "
              "count, what the mixing keeps and its time do not",
              m->residual_blocks);
    if (m->hash_layers > 0)
        doubt(m,
              "in %zu layer%s the token's id chooses the experts: generated routing has them choose as the "
              "other layers do; "
              "--routing hash says what the frequencies of words alone make of them",
              m->hash_layers, spw_plural(m->hash_layers));
    if (m->indexer_heads > 0)
        doubt(m, "attention reads what a sparse indexer chooses: its parameters count, its scores do not, "
                 "and attention is "
                 "counted over the whole sequence");
    if (m->lacking_experts + m->lacking_choices > 0)
        doubt(m,
              "layers differ in experts or choices: parameters and work count those of each layer; routing, "
              "rows and times take %zu "
              "experts and %zu choices in all",
              m->experts, m->top_k);
    if (m->zero_experts > 0)
        doubt(m,
              "%zu of a token's %zu choices are experts that compute nothing: active parameters take choices "
              "for even; rows "
              "and traffic take all %zu for experts that compute",
              m->zero_experts, m->experts + m->zero_experts, m->top_k);
}

static double mtp_billions(const spw_model *m) {
    const spw_mtp_parameters p = spw_mtp_parameters_of(m);
    return (double)m->mtp_layers * (double)(p.routed + p.rest) / 1e9;
}

static void describe_mtp(const spw_model *m, const char *where, char out[SPW_MODEL_DOUBT]) {
    const bool one = m->mtp_layers == 1;
    (void)snprintf(
        out, SPW_MODEL_DOUBT,
        "the model's %zu layer%s of multi-token prediction (%.1f B parameters beside the %.1f B that "
        "count) %s %s",
        m->mtp_layers, one ? "" : "s", mtp_billions(m), (double)spw_model_parameters(m).total / 1e9,
        one ? "is" : "are", where);
}

void spw_model_count_mtp(spw_model *m) {
    for (size_t i = 0; i < SPW_MODEL_DOUBTS; i++)
        if (strstr(m->doubt[i], "of multi-token prediction") != NULL)
            describe_mtp(m, "in the memory and the time of its stage, but not in traffic", m->doubt[i]);
}

/* Keys that somebody kept from being read by a '_', and a word on tied embeddings that does not count. */
static void note_unread(const spw_reading *in, spw_model *m) {
    char names[SPW_MODEL_DOUBT - 120] = "";
    const char *unread = NULL;
    bool tied = false;
    const size_t silenced = spw_reading_silenced(in, names, sizeof names);
    if (silenced > 0)
        doubt(m,
              "%s not read, as %s with '_': %s; if a layer has weights for %s, every figure leaves them out",
              silenced == 1 ? "a key is" : "some keys are", silenced == 1 ? "it begins" : "they begin", names,
              silenced == 1 ? "it" : "them");
    if (spw_wrapper_tie(in, &tied, &unread) == SPW_OK && unread != NULL)
        doubt(m,
              "embedding and head are %s, as %s says; 'tie_word_embeddings' of %s is not read for this "
              "class in transformers 5.24",
              tied ? "one matrix" : "two matrices",
              strcmp(unread, "text_config") == 0 ? "the outer file (or its default)"
                                                 : "text_config (or its default)",
              unread);
}

/* A model_type without a row: what it was read as, and which switches nothing here knows. */
static void note_kin(const spw_reading *in, spw_model *m) {
    const spw_attention_kind *kind = spw_attention_kind_of(m);
    char names[SPW_MODEL_DOUBT - 200] = "", shown[SPW_SETTINGS_SHOWN];
    const char *key, *type = spw_wrapper_type(in);
    json_t *value;
    if (!in->kin) return;
    json_object_foreach((json_t *)(uintptr_t)in->root, key, value) {
        const size_t used = strlen(names);
        if (!in->family->by_meaning || !json_is_true(value) || spw_family_reads(in->family, kind, key) ||
            spw_model_key_is_quiet(key, value) || spw_model_key_sounds_quiet(key, value) ||
            used + SPW_SETTINGS_SHOWN + 4 > sizeof names)
            continue;
        (void)snprintf(names + used, sizeof names - used, "%s%s",
                       used == 0 ? "; not counted is what these may add: " : ", ",
                       spw_settings_shown(key, strlen(key), shown));
    }
    char said[SPW_SETTINGS_SHOWN];
    (void)spw_settings_shown(type, strlen(type), said);
    if (in->family->by_meaning)
        doubt(m,
              "model_type '%s' is not known: its parts are read by the meaning of its keys; small parts that "
              "no key names "
              "(norms, biases) may be missing%s",
              said, names);
    else
        doubt(m,
              "model_type '%s' is not known: it is read as %s, which has all of its keys; what no key names "
              "(norms, biases, "
              "gates, the rule of the choice) is as there",
              said, in->family->model_type);
}

/* Numbers of the tables that a token looks up: what their rows go into, or a row itself. */
static double looked_up(const spw_model *m) {
    double numbers = 0.0;
    for (size_t i = 0; i < m->matrices; i++) {
        const spw_matrix *one = &m->matrix[i];
        if (one->looks_up) numbers += one->vector ? (double)one->out : (double)one->in * (double)one->count;
    }
    return numbers;
}

static void doubt_tables(spw_model *m) {
    const double all = (double)spw_model_parameters(m).tables, token = looked_up(m);
    if (!(all > 0.0)) return;
    doubt(m,
          "tables beside the embedding (%.1f B numbers, %.0f of them for a token) count on the GPUs of its "
          "stage, "
          "looked up in no time; in the host's memory, which is not modelled, they would be %.1f GiB in bf16 "
          "and "
          "%.0f bytes a token each way",
          all / 1e9, token, all * 2.0 / 1073741824.0, token * 2.0);
}

/* What the file asks for and is not in the figures. */
void spw_reading_doubts(const spw_reading *in, spw_model *m) {
    const json_int_t mtp = spw_model_mtp_layers(in->root), window = spw_model_window(in->root);
    char text[SPW_MODEL_DOUBT];
    note_kin(in, m);
    m->mtp_layers = mtp > 0 && mtp <= SPW_MODEL_MAX_LAYERS ? (size_t)mtp : 0;
    describe_mtp(m, "not in these figures, neither memory and traffic nor time", text);
    if (m->mtp_layers > 0) doubt(m, "%s", text);
    if (window > 0 && !spw_family_has(in->family, SPW_WINDOW))
        doubt(m,
              "the model's attention looks back %lld tokens in some or all layers; its work is counted over "
              "the whole sequence in all of them",
              (long long)window);
    doubt_layers(m);
    doubt_tables(m);
    if (spw_attention_is_grouped(m) && spw_reading_at(in->root, "head_dim") == NULL &&
        m->heads * m->head_dim != m->hidden && m->hidden / m->heads == m->head_dim)
        doubt(m,
              "the file has no head_dim: heads are taken as %zu wide, hidden_size by num_attention_heads "
              "rounded down, as "
              "transformers does",
              m->head_dim);
    if (in->family->usual_top_k > 0 && !spw_reading_has(in, in->family->top_k))
        doubt(m,
              "the file does not say how many experts a token chooses: taken are %zu, as in every published "
              "file of %s models",
              m->top_k, in->family->model_type);
    if (in->family->text_first)
        doubt(m, "tokens of images have experts of their own beside those of text, which are not counted");
    if (in->outer != in->root)
        doubt(m, "only the language model of the file's text_config counts, none of what reads images or "
                 "sound beside it");
    note_unread(in, m);
}
