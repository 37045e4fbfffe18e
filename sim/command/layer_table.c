#include "sim/command/layer_table.h"

#include "sim/command/command.h"
#include "sim/command/layer_runs.h"

enum { RUNS_TEXT = 1024, MATRICES = SPW_MODEL_MATRICES + 24, KINDS = 48 };

/* --- Matrices of a part --- */

typedef struct matrix {
    const char *name;
    uint64_t in, out, count;
} matrix;

typedef struct matrices {
    matrix row[MATRICES];
    size_t rows;
} matrices;

/* Nothing is added where one of the numbers is 0. */
static void add(matrices *list, const char *name, uint64_t in, uint64_t out, uint64_t count) {
    if (in > 0 && out > 0 && count > 0 && list->rows < MATRICES)
        list->row[list->rows++] = (matrix){name, in, out, count};
}

static void add_grouped(const spw_model *m, matrices *list) {
    const uint64_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim, v = m->kv_heads * m->v_head_dim;
    const uint64_t bias = m->attention_bias, norm = m->qk_norm;
    add(list, "queries", m->hidden, q, 1);
    add(list, "keys", m->hidden, k, 1);
    add(list, "values", m->hidden, v, 1);
    add(list, "gate of the output", m->hidden, q, m->query_gate);
    add(list, "output", m->heads * m->v_head_dim, m->hidden, 1);
    add(list, "biases of queries, keys, values", 1, q + k + v, bias);
    add(list, "bias of the output", 1, m->hidden, m->output_bias);
    add(list, "norms of queries and keys", 1, m->qk_norm_per_head ? 2 * m->head_dim : q + k, norm);
    add(list, "sinks", 1, m->heads, m->attention_sinks);
    add(list, "bias of the gate", 1, m->gate_bias ? q : m->heads, m->query_gate_bias || m->gate_bias);
}

static void add_latent(const spw_model *m, matrices *list) {
    const uint64_t q = m->heads * (m->nope_dim + m->rope_dim), down = m->kv_lora_rank + m->rope_dim;
    const uint64_t rank = m->q_lora_rank;
    add(list, "queries", m->hidden, q, rank == 0);
    add(list, "queries, down", m->hidden, rank, 1);
    add(list, "norm of queries", 1, rank, 1);
    add(list, "queries, up", rank, q, 1);
    add(list, "keys and values, down", m->hidden, down, 1);
    add(list, "norm of keys and values", 1, m->kv_lora_rank, 1);
    add(list, "keys and values, up", m->kv_lora_rank, m->heads * (m->nope_dim + m->v_head_dim), 1);
    add(list, "output", m->heads * m->v_head_dim, m->hidden, 1);
    add(list, "biases", 1, rank + down, m->attention_bias);
    add(list, "bias of the output", 1, m->hidden, m->output_bias);
}

static void add_indexer(const spw_model *m, matrices *list) {
    add(list, "indexer: queries", m->q_lora_rank, m->indexer_heads * m->indexer_dim, 1);
    add(list, "indexer: keys", m->hidden, m->indexer_dim, 1);
    add(list, "indexer: norm of keys", 1, 2 * m->indexer_dim, m->indexer_heads > 0);
    add(list, "indexer: weights", m->hidden, m->indexer_heads, 1);
}

/* Rows of the model's own list. */
static void add_listed(const spw_model *m, spw_matrix_place place, size_t mixer, matrices *list) {
    const spw_matrix *row = NULL;
    for (size_t i = 0; (row = spw_matrix_at(m, place, mixer, i)) != NULL; i++)
        add(list, row->name, row->in, row->out, row->count > 0 ? row->count : 1);
}

/* Gate, up and down of `count` equal FFNs. */
static void add_ffn(uint64_t in, uint64_t width, uint64_t count, size_t kinds, bool bias, matrices *list) {
    add(list, "gate", in, width, kinds == 3 ? count : 0);
    add(list, "up", in, width, count);
    add(list, "down", width, in, count);
    add(list, "biases", 1, (kinds - 1) * width + in, bias ? count : 0);
}

static void add_router(const spw_model *m, bool by_id, size_t fewer, matrices *list) {
    const uint64_t choices = m->listed_router ? 0 : m->experts - fewer - m->replicas + m->zero_experts;
    add(list, "router", m->hidden, choices, 1);
    add(list, "bias of the router", 1, choices, m->router_bias);
    add(list, "bias of the choice", 1, choices, m->selection_bias && !by_id);
    add(list, "scales", 1, choices + m->hidden, m->router_scales);
    add(list, "norm", 1, m->hidden, m->moe_norm);
    add_listed(m, SPW_IN_MOE_LAYER, 0, list);
}

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
                     const matrices *list) {
    for (size_t i = 0; i < list->rows; i++) {
        const matrix *row = &list->row[i];
        spw_table_text(table, where);
        spw_table_count(table, layers);
        spw_table_text(table, part);
        spw_table_text(table, row->name);
        spw_table_count(table, row->in);
        spw_table_count(table, row->out);
        spw_table_count(table, row->count);
        spw_table_scaled(table, (double)(row->in * row->out * row->count), 1e6, "%.3f");
    }
}

static void put_mixer(spw_table *table, const spw_model *m, const kind *k) {
    matrices list = {.rows = 0};
    const bool named = k->mixer > 0 || m->attention == SPW_ATTENTION_LISTED;
    if (!named && m->attention == SPW_ATTENTION_MLA) add_latent(m, &list);
    if (!named && m->attention == SPW_ATTENTION_GQA) add_grouped(m, &list);
    add_listed(m, SPW_IN_MIXER, k->mixer, &list);
    if (k->indexer) add_indexer(m, &list);
    put_part(table, k->where, k->layers, named ? m->mixer[k->mixer].what : "attention", &list);
}

static void put_kind(spw_table *table, const spw_model *m, const kind *k) {
    matrices experts = {.rows = 0}, shared = {.rows = 0}, router = {.rows = 0}, dense = {.rows = 0},
             norms = {.rows = 0};
    put_mixer(table, m, k);
    if (k->experts) {
        add_router(m, k->by_id, k->fewer, &router);
        add_ffn(spw_model_routed_width(m), m->expert_ffn, m->experts - k->fewer, spw_expert_matrices(m),
                m->expert_bias, &experts);
        add_ffn(m->hidden, m->shared_ffn, m->shared_ffn > 0, spw_ffn_matrices(m), m->ffn_bias, &shared);
        add(&shared, "gate of the shared experts", m->hidden, 1, m->shared_gate);
    } else if (!k->bare) {
        add_ffn(m->hidden, m->dense_ffn, 1, spw_ffn_matrices(m), m->ffn_bias && m->dense_ffn > 0, &dense);
    }
    add(&norms, "norms", 1, m->hidden * (m->norm_bias ? 2 : 1), m->layer_norms);
    add(&norms, "scale of the layer", 1, 1, m->layer_scalar);
    add_listed(m, SPW_IN_LAYER, 0, &norms);
    put_part(table, k->where, k->layers, "router", &router);
    put_part(table, k->where, k->layers, "routed experts", &experts);
    put_part(table, k->where, k->layers, "shared experts", &shared);
    put_part(table, k->where, k->layers, "dense FFN", &dense);
    put_part(table, k->where, k->layers,
             m->streams > 0 || m->residual_blocks > 0 ? "norms and streams" : "norms", &norms);
}

spw_status spw_layer_table_print(const spw_model *m, spw_format format) {
    spw_status status = SPW_OK;
    spw_table *table = NULL;
    kind kinds[KINDS];
    matrices whole = {.rows = 0};
    const size_t count = list_kinds(m, kinds);
    SPW_TRY(spw_table_create(columns, &table));
    for (size_t k = 0; k < count; k++) put_kind(table, m, &kinds[k]);
    add(&whole, "embedding", m->vocab, m->hidden, 1);
    add_listed(m, SPW_IN_TABLES, 0, &whole);
    add(&whole, "final norm", 1, m->hidden * (m->norm_bias ? 2 : 1), 1);
    add_listed(m, SPW_IN_MODEL, 0, &whole);
    const size_t head = m->head_rows > 0 ? m->head_rows : m->vocab;
    add(&whole, "head", m->hidden, head, !m->tied_embeddings);
    add(&whole, "bias of the head", 1, head, m->head_bias);
    put_part(table, "beside them", 1, "model", &whole);
    status = spw_table_print(table, format, spw_command_out());

cleanup:
    spw_table_destroy(table);
    return status;
}
