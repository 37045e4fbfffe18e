#include "sim/command/model/model_tables.h"

#include "sim/command/command.h"
#include "sim/model/attention.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST_HEADING = 28, RUNS_TEXT = 44 };

/* --- Numbers and switches of spw_model --- */

typedef enum field_kind { FIELD_COUNT, FIELD_SWITCH, FIELD_SIZE } field_kind;

static const struct field {
    const char *what;
    field_kind kind;
    size_t offset;
    const char *fact; /* of a size of attention */
} fields[] = {
#define COUNT(what, name) \
    { what, FIELD_COUNT, offsetof(spw_model, name) }
#define SWITCH(what, name) \
    { what, FIELD_SWITCH, offsetof(spw_model, name) }
#define SIZE(what, fact) \
    { what, FIELD_SIZE, 0, fact }
    COUNT("layers", layers),
    COUNT("layers with experts", moe_layers),
    COUNT("hidden size", hidden),
    COUNT("vocabulary", vocab),
    COUNT("experts", experts),
    COUNT("experts a token", top_k),
    COUNT("width of an expert", expert_ffn),
    COUNT("width of experts' rows, 0: hidden size", latent),
    SWITCH("experts of two matrices", plain_experts),
    COUNT("layers in which the id chooses", hash_layers),
    COUNT("width beside the experts", shared_ffn),
    COUNT("width of a dense layer", dense_ffn),
    COUNT("experts that compute nothing", zero_experts),
    COUNT("groups of experts", groups),
    COUNT("groups that a token keeps", groups_kept),
    SWITCH("sigmoid router", sigmoid_router),
    SWITCH("selection bias", selection_bias),
    SWITCH("router bias", router_bias),
    SWITCH("expert biases", expert_bias),
    SWITCH("gate of the shared expert", shared_gate),
    COUNT("heads", heads),
    COUNT("heads of keys and values", kv_heads),
    COUNT("width of a head", head_dim),
    SIZE("width of a value", "@value_dim"),
    SIZE("rank of queries", "@query_rank"),
    SIZE("rank of keys and values", "@key_rank"),
    SIZE("rotary width of latent attention", "@rotary_dim"),
    SWITCH("biases of queries, keys and values", attention_bias),
    SWITCH("bias of attention's output", output_bias),
    SWITCH("norms of queries and keys", qk_norm),
    SWITCH("norms of one head's width", qk_norm_per_head),
    SWITCH("attention sinks", attention_sinks),
    SWITCH("gate of queries' width", query_gate),
    COUNT("heads of the indexer", indexer_heads),
    COUNT("width of an indexer's head", indexer_dim),
    COUNT("norms a layer", layer_norms),
    COUNT("residual streams, 0: one", streams),
    SWITCH("biases of norms", norm_bias),
    SWITCH("one matrix for embedding and head", tied_embeddings),
    COUNT("layers of multi-token prediction", mtp_layers),
#undef COUNT
#undef SWITCH
#undef SIZE
};

static uint64_t value_of(const spw_model *m, const struct field *field) {
    const char *const at = (const char *)m + field->offset;
    if (field->kind == FIELD_SIZE) return spw_attention_size_of(m, field->fact);
    return field->kind == FIELD_COUNT ? *(const size_t *)(const void *)at : *(const bool *)(const void *)at;
}

static void put_value(spw_table *table, field_kind kind, uint64_t value) {
    if (kind != FIELD_SWITCH)
        spw_table_count(table, value);
    else
        spw_table_text(table, value != 0 ? "yes" : "no");
}

static const char *attention_of(const spw_model *m) { return spw_attention_kind_of(m)->words; }

static size_t add_fields(spw_table *table, const spw_model *a, const spw_model *b) {
    size_t rows = 0;
    if (spw_attention_kind_of(a) != spw_attention_kind_of(b)) {
        spw_table_text(table, "attention");
        spw_table_text(table, attention_of(a));
        spw_table_text(table, attention_of(b));
        rows++;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const uint64_t of_a = value_of(a, &fields[i]), of_b = value_of(b, &fields[i]);
        if (of_a == of_b) continue;
        spw_table_text(table, fields[i].what);
        put_value(table, fields[i].kind, of_a);
        put_value(table, fields[i].kind, of_b);
        rows++;
    }
    return rows;
}

/* --- Which layers --- */

static bool has_experts(const spw_model *m, size_t layer, const char *name) {
    (void)name;
    return m->is_moe[layer] != 0;
}
static bool has_no_ffn(const spw_model *m, size_t layer, const char *name) {
    (void)name;
    return m->is_bare[layer] != 0;
}
static bool has_indexer(const spw_model *m, size_t layer, const char *name) {
    (void)name;
    return m->indexer_heads > 0 && m->mixer_of[layer] == 0 && m->shares_indexer[layer] == 0;
}
static bool has_mixer(const spw_model *m, size_t layer, const char *name) {
    return m->mixer_of[layer] > 0 && strcmp(m->mixer[m->mixer_of[layer]].what, name) == 0;
}

/* A row of the layers that `is` of each; none where they are the same, or all or none in both. Returns the rows. */
static size_t add_kind(spw_table *table, const spw_model *const model[2],
                       bool (*is)(const spw_model *, size_t, const char *), const char *name,
                       const char *what) {
    uint8_t mark[2][SPW_MODEL_MAX_LAYERS] = {{0}};
    size_t layers[2] = {0};
    for (size_t side = 0; side < 2; side++) {
        for (size_t i = 0; i < model[side]->layers; i++) {
            mark[side][i] = is(model[side], i, name);
            layers[side] += mark[side][i];
        }
    }
    const bool none = layers[0] + layers[1] == 0,
               all = layers[0] == model[0]->layers && layers[1] == model[1]->layers;
    if (none || all ||
        (model[0]->layers == model[1]->layers && memcmp(mark[0], mark[1], model[0]->layers) == 0))
        return 0;
    spw_table_text(table, what);
    for (size_t side = 0; side < 2; side++) {
        char runs[RUNS_TEXT];
        spw_table_text(table, spw_layer_runs(mark[side], model[side]->layers, runs, sizeof runs));
    }
    return 1;
}

/* Whether a mixer of that name comes before the k-th of `side`. */
static bool seen_before(const spw_model *const model[2], size_t side, size_t k) {
    const char *const name = model[side]->mixer[k].what;
    for (size_t s = 0; s <= side; s++)
        for (size_t i = 1; i < (s < side ? (size_t)SPW_MODEL_MIXERS : k); i++)
            if (model[s]->mixer[i].layers > 0 && strcmp(model[s]->mixer[i].what, name) == 0) return true;
    return false;
}

static size_t add_layers(spw_table *table, const spw_model *a, const spw_model *b) {
    const spw_model *const model[2] = {a, b};
    size_t rows = add_kind(table, model, has_experts, NULL, "which layers have experts");
    rows += add_kind(table, model, has_no_ffn, NULL, "which layers have no FFN");
    rows += add_kind(table, model, has_indexer, NULL, "which layers have an indexer");
    for (size_t side = 0; side < 2; side++) {
        for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) {
            const spw_mixer *const mixer = &model[side]->mixer[k];
            char what[SPW_MIXER_NAME + 32];
            if (mixer->layers == 0 || seen_before(model, side, k)) continue;
            (void)snprintf(what, sizeof what, "which layers have %s", mixer->what);
            rows += add_kind(table, model, has_mixer, mixer->what, what);
        }
    }
    return rows;
}

/* --- Parameters --- */

static size_t add_parameters(spw_table *table, const spw_model *a, const spw_model *b) {
    const spw_parameters p = spw_model_parameters(a), q = spw_model_parameters(b);
    const struct {
        const char *what;
        uint64_t of_a, of_b;
    } parts[] = {
        {"parameters of the embedding", p.embedding, q.embedding},
        {"parameters of the head", p.head, q.head},
        {"parameters of all mixers", p.mixers, q.mixers},
        {"parameters of all routed experts", spw_model_routed(a), spw_model_routed(b)},
        {"parameters of all shared experts", a->moe_layers * p.shared_per_layer,
         b->moe_layers * q.shared_per_layer},
        {"parameters of all routers", a->moe_layers * p.router_per_layer, b->moe_layers * q.router_per_layer},
        {"parameters in all", p.total, q.total},
        {"parameters at work on a token", p.active, q.active},
    };
    size_t rows = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].of_a == parts[i].of_b) continue;
        spw_table_text(table, parts[i].what);
        spw_table_count(table, parts[i].of_a);
        spw_table_count(table, parts[i].of_b);
        rows++;
    }
    return rows;
}

spw_status spw_model_diff(const spw_model *a, const spw_model *b, spw_format format) {
    const bool named = strlen(a->name) <= LONGEST_HEADING && strlen(b->name) <= LONGEST_HEADING;
    const spw_column columns[] = {
        {"what", "what"}, {"a", named ? a->name : "A"}, {"b", named ? b->name : "B"}, {NULL, NULL}};
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    SPW_TRY(spw_table_create(columns, &table));
    const size_t rows = add_fields(table, a, b) + add_layers(table, a, b) + add_parameters(table, a, b);
    if (rows == 0 && format == SPW_FORMAT_TABLE)
        printf("%s and %s have the same shapes\n", a->name, b->name);
    else if (!named && format == SPW_FORMAT_TABLE)
        printf("A  %s\nB  %s\n\n", a->name, b->name);
    if (rows > 0 || format != SPW_FORMAT_TABLE) SPW_TRY(spw_table_print(table, format, spw_command_out()));

cleanup:
    spw_table_destroy(table);
    return status;
}
