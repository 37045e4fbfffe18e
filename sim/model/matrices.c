#include "sim/model/matrices.h"

#include "base/saturate.h"
#include "sim/model/attention.h"

/* --- Rows --- */

static void add_numbers(spw_matrices *list, bool is_there, const char *name, uint64_t count) {
    spw_matrices_add(list, is_there, (spw_matrix){.name = name, .in = 1, .out = count, .vector = true});
}

/* Whole on every GPU. */
static void add_exact(spw_matrices *list, bool is_there, const char *name, uint64_t in, uint64_t out) {
    spw_matrices_add(list, is_there, (spw_matrix){.name = name, .in = in, .out = out, .exact = true});
}

/* Those of the model's own list. */
static void add_listed(const spw_model *m, spw_matrix_place place, size_t mixer, spw_matrices *out) {
    for (size_t r = 0; r < m->matrices && r < SPW_MODEL_MATRICES; r++)
        if (spw_matrix_is_at(&m->matrix[r], place, mixer)) spw_matrices_add(out, true, m->matrix[r]);
}

/* Gate, up and down of `count` equal FFNs; biases of what they give. */
static void add_ffn(spw_matrices *list, uint64_t in, uint64_t width, uint64_t count, bool gated, bool bias) {
    spw_matrix row = {.name = "gate", .in = in, .out = width, .count = count, .cut = SPW_CUT_OUTPUTS};
    if (count == 0 || width == 0) return;
    spw_matrices_add(list, gated, row);
    row.name = "up", row.joined = gated;
    spw_matrices_add(list, true, row);
    row.name = "down", row.in = width, row.out = in, row.cut = SPW_CUT_INPUTS, row.joined = false;
    row.reads = SPW_READS_RESULT;
    spw_matrices_add(list, true, row);
    row.name = "biases", row.in = 1, row.out = (gated ? 2 : 1) * width + in, row.cut = SPW_CUT_OUTPUTS;
    row.vector = true;
    spw_matrices_add(list, bias, row);
}

/* --- Parts --- */

void spw_matrices_of_attention(const spw_model *m, spw_matrices *out) {
    const spw_attention_kind *kind = spw_attention_kind_of(m);
    out->rows = 0;
    if (kind->list != NULL)
        kind->list(m, out);
    else
        add_listed(m, SPW_IN_MIXER, 0, out);
}

void spw_matrices_of_mixer(const spw_model *m, size_t k, spw_matrices *out) {
    const bool own = k == 0 && !spw_attention_is_listed(m);
    out->rows = 0;
    if (own) spw_matrices_of_attention(m, out);
    add_listed(m, SPW_IN_MIXER, k, out);
    if (own) spw_indexer_list(m, out);
}

void spw_matrices_of_experts(const spw_model *m, size_t count, spw_matrices *out) {
    out->rows = 0;
    add_ffn(out, spw_model_routed_width(m), m->expert_ffn, count, !m->plain_experts, m->expert_bias);
}

void spw_matrices_of_expert(const spw_model *m, spw_matrices *out) { spw_matrices_of_experts(m, 1, out); }

void spw_matrices_of_shared(const spw_model *m, spw_matrices *out) {
    out->rows = 0;
    add_ffn(out, m->hidden, m->shared_ffn, 1, !m->plain_ffn, m->ffn_bias);
    add_exact(out, m->shared_gate, "gate of the shared experts", m->hidden, 1);
}

void spw_matrices_of_dense(const spw_model *m, spw_matrices *out) {
    out->rows = 0;
    add_ffn(out, m->hidden, m->dense_ffn, 1, !m->plain_ffn, m->ffn_bias);
}

size_t spw_model_choices(const spw_model *m) { return m->experts - m->replicas + m->zero_experts; }

void spw_matrices_of_router(const spw_model *m, size_t choices, bool by_id, spw_matrices *out) {
    const bool own = !m->listed_router;
    out->rows = 0;
    add_exact(out, own, "router", m->hidden, choices);
    add_numbers(out, own && m->router_bias, "bias of the router", choices);
    add_numbers(out, own && m->selection_bias && !by_id, "bias of the choice", choices);
    add_numbers(out, own && m->router_scales, "scales", choices + m->hidden);
    add_numbers(out, own && m->moe_norm, "norm", m->hidden);
    add_listed(m, SPW_IN_MOE_LAYER, 0, out);
}

static void add_norms(const spw_model *m, spw_matrices *out, const char *name, uint64_t count) {
    spw_matrices_add(out, count > 0,
                     (spw_matrix){.name = name,
                                  .in = 1,
                                  .out = m->hidden * (m->norm_bias ? 2 : 1),
                                  .count = count,
                                  .vector = true,
                                  .norm = true});
}

void spw_matrices_of_norms(const spw_model *m, spw_matrices *out) {
    out->rows = 0;
    add_norms(m, out, "norms", m->layer_norms);
    add_numbers(out, m->layer_scalar, "scale of the layer", 1);
    add_listed(m, SPW_IN_LAYER, 0, out);
}

void spw_matrices_of_embedding(const spw_model *m, spw_matrices *out) {
    out->rows = 0;
    spw_matrices_add(
        out, true,
        (spw_matrix){
            .name = "embedding", .in = m->vocab, .out = m->hidden, .cut = SPW_CUT_INPUTS, .vector = true});
    add_listed(m, SPW_IN_TABLES, 0, out);
}

void spw_matrices_of_end(const spw_model *m, spw_matrices *out) {
    out->rows = 0;
    add_norms(m, out, "final norm", 1);
    add_listed(m, SPW_IN_MODEL, 0, out);
}

void spw_matrices_of_head(const spw_model *m, spw_matrices *out) {
    const uint64_t rows = m->head_rows > 0 ? m->head_rows : m->vocab;
    out->rows = 0;
    add_exact(out, !m->tied_embeddings, "head", m->hidden, rows);
    add_numbers(out, m->head_bias, "bias of the head", rows);
}

/* --- Sums --- */

uint64_t spw_matrices_sum(const spw_matrices *list) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->rows; i++) sum = spw_saturated_sum(sum, spw_matrix_elements(&list->row[i]));
    return sum;
}

uint64_t spw_matrices_sum_whole(const spw_matrices *list) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->rows; i++)
        if (list->row[i].cut == SPW_CUT_NOWHERE)
            sum = spw_saturated_sum(sum, spw_matrix_elements(&list->row[i]));
    return sum;
}

uint64_t spw_matrices_sum_at(const spw_matrices *list, spw_matrix_place place) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->rows; i++)
        if (list->row[i].place == place) sum = spw_saturated_sum(sum, spw_matrix_elements(&list->row[i]));
    return sum;
}

static size_t count_of(const spw_matrix *row) { return row->count > 0 ? (size_t)row->count : 1; }
/* It reads what no row before it has read. */
static bool is_product(const spw_matrix *row) { return !row->vector && !row->exact && !row->joined; }

size_t spw_matrices_products(const spw_matrices *list) {
    size_t products = 0;
    for (size_t i = 0; i < list->rows; i++)
        if (is_product(&list->row[i])) products += count_of(&list->row[i]);
    return products;
}

uint64_t spw_matrices_inputs(const spw_matrices *list, unsigned reads) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->rows; i++) {
        const spw_matrix *row = &list->row[i];
        if (is_product(row) && (reads & 1u << row->reads) != 0) sum += count_of(row) * row->in;
    }
    return sum;
}

uint64_t spw_matrices_outputs(const spw_matrices *list) {
    uint64_t sum = 0;
    for (size_t i = 0; i < list->rows; i++)
        if (!list->row[i].vector && !list->row[i].exact) sum += count_of(&list->row[i]) * list->row[i].out;
    return sum;
}

void spw_matrices_of_module(const spw_matrices *list, unsigned module, spw_matrices *out) {
    out->rows = 0;
    for (size_t i = 0; i < list->rows; i++)
        if ((list->row[i].module & module) != 0) out->row[out->rows++] = list->row[i];
}
