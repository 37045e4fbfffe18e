#include "sim/command/model_diff.h"

#include "sim/command/command.h"

#include <stdio.h>

enum { RUNS_TEXT = 96 };

/* --- Numbers and switches of spw_model --- */

typedef enum field_kind { FIELD_COUNT, FIELD_SWITCH } field_kind;

static const struct field {
    const char *what;
    field_kind kind;
    size_t offset;
} fields[] = {
#define COUNT(what, name) \
    { what, FIELD_COUNT, offsetof(spw_model, name) }
#define SWITCH(what, name) \
    { what, FIELD_SWITCH, offsetof(spw_model, name) }
    COUNT("layers", layers),
    COUNT("layers with experts", moe_layers),
    COUNT("hidden size", hidden),
    COUNT("vocabulary", vocab),
    COUNT("experts", experts),
    COUNT("experts a token", top_k),
    COUNT("width of an expert", expert_ffn),
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
    COUNT("width of a value", v_head_dim),
    COUNT("rank of queries", q_lora_rank),
    COUNT("rank of keys and values", kv_lora_rank),
    COUNT("rotary width of latent attention", rope_dim),
    SWITCH("biases of queries, keys and values", attention_bias),
    SWITCH("bias of attention's output", output_bias),
    SWITCH("norms of queries and keys", qk_norm),
    SWITCH("norms of one head's width", qk_norm_per_head),
    SWITCH("attention sinks", attention_sinks),
    SWITCH("gate of queries' width", query_gate),
    COUNT("heads of the indexer", indexer_heads),
    COUNT("width of an indexer's head", indexer_dim),
    COUNT("norms a layer", layer_norms),
    SWITCH("biases of norms", norm_bias),
    SWITCH("one matrix for embedding and head", tied_embeddings),
    COUNT("layers of multi-token prediction", mtp_layers),
#undef COUNT
#undef SWITCH
};

static uint64_t value_of(const spw_model *m, const struct field *field) {
    const char *const at = (const char *)m + field->offset;
    return field->kind == FIELD_COUNT ? *(const size_t *)(const void *)at : *(const bool *)(const void *)at;
}

static void put_value(spw_table *table, field_kind kind, uint64_t value) {
    if (kind == FIELD_COUNT)
        spw_table_count(table, value);
    else
        spw_table_text(table, value != 0 ? "yes" : "no");
}

static const char *attention_of(const spw_model *m) {
    return m->attention == SPW_ATTENTION_MLA ? "latent" : "grouped queries";
}

static size_t add_fields(spw_table *table, const spw_model *a, const spw_model *b) {
    size_t rows = 0;
    if (a->attention != b->attention) {
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

static bool has_experts(const spw_model *m, size_t layer) { return m->is_moe[layer] != 0; }
static bool has_other_mixer(const spw_model *m, size_t layer) { return m->mixer_of[layer] != 0; }
static bool has_indexer(const spw_model *m, size_t layer) {
    return m->indexer_heads > 0 && !has_other_mixer(m, layer) && m->shares_indexer[layer] == 0;
}

static const struct {
    const char *what;
    bool (*is)(const spw_model *m, size_t layer);
} kinds[] = {{"which layers have experts", has_experts},
             {"which layers have another mixer than attention", has_other_mixer},
             {"which layers have an indexer", has_indexer}};

/* "0-2, 5, 7-9": the layers, counted from 0; "..." where there is no room; "none". */
static void write_runs(const spw_model *m, bool (*is)(const spw_model *, size_t), char out[RUNS_TEXT]) {
    size_t used = 0;
    (void)snprintf(out, RUNS_TEXT, "none");
    for (size_t i = 0; i < m->layers; i++) {
        if (!is(m, i) || (i > 0 && is(m, i - 1))) continue;
        size_t last = i;
        while (last + 1 < m->layers && is(m, last + 1)) last++;
        if (used + 24 > RUNS_TEXT) {
            (void)snprintf(out + used, RUNS_TEXT - used, ", ...");
            return;
        }
        used += (size_t)snprintf(out + used, RUNS_TEXT - used, "%s%zu", used > 0 ? ", " : "", i);
        if (last > i) used += (size_t)snprintf(out + used, RUNS_TEXT - used, "-%zu", last);
    }
}

static size_t layers_that(const spw_model *m, bool (*is)(const spw_model *, size_t)) {
    size_t layers = 0;
    for (size_t i = 0; i < m->layers; i++) layers += is(m, i);
    return layers;
}

/* A kind that no layer of either is, or every layer of both, says nothing beside the number of layers. */
static bool says_nothing(const spw_model *a, const spw_model *b, bool (*is)(const spw_model *, size_t)) {
    const size_t of_a = layers_that(a, is), of_b = layers_that(b, is);
    return (of_a == 0 && of_b == 0) || (of_a == a->layers && of_b == b->layers);
}

static size_t add_layers(spw_table *table, const spw_model *a, const spw_model *b) {
    size_t rows = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        char of_a[RUNS_TEXT], of_b[RUNS_TEXT];
        bool same = a->layers == b->layers;
        for (size_t i = 0; same && i < a->layers; i++) same = kinds[k].is(a, i) == kinds[k].is(b, i);
        write_runs(a, kinds[k].is, of_a);
        write_runs(b, kinds[k].is, of_b);
        if (same || says_nothing(a, b, kinds[k].is)) continue;
        spw_table_text(table, kinds[k].what);
        spw_table_text(table, of_a);
        spw_table_text(table, of_b);
        rows++;
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
        {"parameters of all routed experts", a->moe_layers * p.routed_per_layer,
         b->moe_layers * q.routed_per_layer},
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
    const spw_column columns[] = {{"what", "what"}, {"a", a->name}, {"b", b->name}, {NULL, NULL}};
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    SPW_TRY(spw_table_create(columns, &table));
    const size_t rows = add_fields(table, a, b) + add_layers(table, a, b) + add_parameters(table, a, b);
    if (rows == 0 && format == SPW_FORMAT_TABLE)
        printf("%s and %s have the same shapes\n", a->name, b->name);
    else
        SPW_TRY(spw_table_print(table, format, spw_command_out()));

cleanup:
    spw_table_destroy(table);
    return status;
}
