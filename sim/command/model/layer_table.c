#include "sim/command/model/model_tables.h"

#include "sim/command/command.h"
#include "sim/model/attention.h"

enum { RUNS_TEXT = 1024, KINDS = 48 };

/* --- Kinds of layers --- */

typedef struct kind {
    size_t mixer, fewer;                /* experts than the layer that has most */
    bool experts, bare, indexer, by_id; /* by_id: a hash layer */
    size_t layers;
    char where[RUNS_TEXT];
} kind;

static size_t experts_before(const spw_model *m, size_t layer) {
    size_t layers = 0;
    for (size_t i = 0; i < layer; i++) layers += m->is_moe[i];
    return layers;
}

static kind kind_of(const spw_model *m, size_t layer) {
    const size_t mixer = m->mixer_of[layer];
    const bool experts = m->is_moe[layer] != 0;
    return (kind){.mixer = mixer,
                  .fewer = m->fewer_experts[layer],
                  .experts = experts,
                  .bare = m->is_bare[layer] != 0,
                  .indexer = mixer == 0 && m->indexer_heads > 0 && m->shares_indexer[layer] == 0,
                  .by_id = experts && experts_before(m, layer) < m->hash_layers};
}

static bool same(const kind *a, const kind *b) {
    return a->mixer == b->mixer && a->fewer == b->fewer && a->experts == b->experts && a->bare == b->bare &&
           a->indexer == b->indexer && a->by_id == b->by_id;
}

static void write_runs(const spw_model *m, kind *k) {
    uint8_t mark[SPW_MODEL_MAX_LAYERS];
    for (size_t i = 0; i < m->layers; i++) {
        const kind here = kind_of(m, i);
        mark[i] = same(&here, k);
    }
    (void)spw_layer_runs(mark, m->layers, k->where, sizeof k->where);
}

static size_t list_kinds(const spw_model *m, kind out[KINDS]) {
    size_t kinds = 0;
    for (size_t i = 0; i < m->layers; i++) {
        const kind here = kind_of(m, i);
        size_t k = 0;
        while (k < kinds && !same(&out[k], &here)) k++;
        if (k == kinds && kinds == KINDS) k = --kinds; /* the last of too many */
        if (k == kinds) out[kinds++] = here;
        out[k].layers++;
    }
    for (size_t k = 0; k < kinds; k++) write_runs(m, &out[k]);
    return kinds;
}

/* --- The table --- */

static const spw_column columns[] = {
    {"layers", "layers"},    {"layer_count", "of them"},  {"part", "part"},
    {"matrix", "matrix"},    {"inputs", "inputs"},        {"outputs", "outputs"},
    {"count", "equal ones"}, {"parameters", "M a layer"}, {NULL, NULL}};

static void put_part(spw_table *table, const char *where, size_t layers, const char *part,
                     const spw_matrices *list) {
    for (size_t i = 0; i < list->rows; i++) {
        const spw_matrix *row = &list->row[i];
        spw_table_text(table, where);
        spw_table_count(table, layers);
        spw_table_text(table, part);
        spw_table_text(table, row->name);
        spw_table_count(table, row->in);
        spw_table_count(table, row->out);
        spw_table_count(table, row->count > 0 ? row->count : 1);
        spw_table_scaled(table, (double)spw_matrix_elements(row), 1e6, "%.3f");
    }
}

static void put_mixer(spw_table *table, const spw_model *m, const kind *k) {
    const bool named = k->mixer > 0 || spw_attention_is_listed(m);
    spw_matrices list;
    spw_matrices_of_mixer(m, k->mixer, &list);
    while (!k->indexer && list.rows > 0 && list.row[list.rows - 1].place == SPW_IN_INDEXER) list.rows--;
    put_part(table, k->where, k->layers, named ? m->mixer[k->mixer].what : "attention", &list);
}

static void put_kind(spw_table *table, const spw_model *m, const kind *k) {
    spw_matrices list;
    put_mixer(table, m, k);
    if (k->experts) {
        spw_matrices_of_router(m, spw_model_choices(m) - k->fewer, k->by_id, &list);
        put_part(table, k->where, k->layers, "router", &list);
        spw_matrices_of_experts(m, m->experts - k->fewer, &list);
        put_part(table, k->where, k->layers, "routed experts", &list);
        spw_matrices_of_shared(m, &list);
        put_part(table, k->where, k->layers, "shared experts", &list);
    } else if (!k->bare) {
        spw_matrices_of_dense(m, &list);
        put_part(table, k->where, k->layers, "dense FFN", &list);
    }
    spw_matrices_of_norms(m, &list);
    put_part(table, k->where, k->layers,
             m->streams > 0 || m->residual_blocks > 0 ? "norms and streams" : "norms", &list);
}

spw_status spw_layer_table_print(const spw_model *m, spw_format format) {
    static void (*const whole[])(const spw_model *m, spw_matrices *out) = {
        spw_matrices_of_embedding, spw_matrices_of_end, spw_matrices_of_head};
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    kind kinds[KINDS];
    const size_t count = list_kinds(m, kinds);
    SPW_TRY(spw_table_create(columns, &table));
    for (size_t k = 0; k < count; k++) put_kind(table, m, &kinds[k]);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        spw_matrices list;
        whole[i](m, &list);
        put_part(table, "beside them", 1, "model", &list);
    }
    status = spw_table_print(table, format, spw_command_out());

cleanup:
    spw_table_destroy(table);
    return status;
}
