#include "sim/memory/kept/selective_ops.h"

#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/model/attention.h"

enum { FP32 = 4, INDEX = 8, BEST = 2 /* of each group, whose sum says which groups are kept */ };

/* Products of a layer so far that count, and elements a token that are kept of them. */
typedef struct products {
    size_t count;
    double kept;
} products;

static void add_product(products *p, double width, bool biased) {
    if (!biased) p->count++;
    if (biased || p->count % 2 == 1) p->kept += width;
}

/* Queries, keys and values are one product; w1 and w3 of an FFN, joined elsewhere, are two. */
static void add_attention(products *p, const spw_model *m) {
    spw_matrices list;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (row->vector || row->joined) continue;
        double width = (double)row->out;
        for (size_t j = i + 1; j < list.rows && list.row[j].joined; j++) width += (double)list.row[j].out;
        add_product(p, width, row->reads == SPW_READS_RESULT ? m->output_bias : m->attention_bias);
    }
}

static void add_ffn(products *p, const spw_matrices *list) {
    for (size_t i = 0; i < list->rows; i++)
        if (!list->row[i].vector) add_product(p, (double)list->row[i].out, false);
}

/* Of the choice of experts: the best of each group, the groups, the experts. A router with a bias is a product with one, in fp32. */
static double router_bytes(const spw_model *m) {
    const double groups = m->groups > 1 ? (double)(BEST * m->groups + m->groups_kept) : 0.0,
                 gate = m->router_bias ? (double)(FP32 * m->experts) : 0.0;
    return (groups + (double)m->top_k) * (FP32 + INDEX) + gate;
}

double spw_selective_ops_kept(const spw_job *job, const spw_layer_shape *s, bool experts) {
    const spw_model *m = &job->model;
    const double b = (double)s->element_bytes;
    products p = {0, 0.0};
    spw_matrices list;
    add_attention(&p, m);
    if (experts)
        spw_matrices_of_shared(m, &list);
    else
        spw_matrices_of_dense(m, &list);
    add_ffn(&p, &list);
    const double core = (double)spw_attention_widths_of(m).context * b + (double)(FP32 * m->heads);
    return (double)s->tokens * (p.kept * b + core + (experts ? router_bytes(m) : 0.0));
}

bool spw_selective_ops_are_read(const spw_model *m) {
    bool mixers = false;
    for (size_t i = 1; i < SPW_MODEL_MIXERS; i++) mixers = mixers || m->mixer[i].layers > 0;
    return !mixers && !spw_attention_is_listed(m) && m->indexer_heads == 0 && !m->query_gate &&
           m->latent == 0 && !m->half_layers && spw_model_carried(m) == m->hidden;
}
