/* torchtitan's MoE behind HybridEP (docs/schemes.md, section 6.7): rows come permuted to the experts, and scores multiply what the
 * experts make, before it returns. */
#include "reference/schemes/deepep/hybrid_rows.h"
#include "reference/schemes/execute_list.h"
#include "reference/schemes/torch/autograd_glu.h"

typedef struct titan {
    spw_hybrid_rows rows;
    spw_autograd_glu glu;
    spw_spread map, dense, row_scores, scores, weighted, output;
    spw_spread d_weighted, products, d_scores, d_row_scores, dx, d_dense, d_top_scores;
} titan;

static spw_status dispatch(spw_execution *run, void *state, const char *exchange) {
    titan *m = state;
    const size_t experts = run->shape.experts, *held = m->rows.held;
    spw_status status = SPW_OK;
    spw_step(run, "indices to map");
    SPW_TRY(spw_born_at(run, &m->map, "routing_map", m->rows.tokens, experts, 1));
    SPW_TRY(spw_born_at(run, &m->dense, "dense_scores", m->rows.tokens, experts, 4));
    SPW_TRY(spw_hybrid_preprocess(run, &m->rows));
    for (size_t i = 0; i < run->shape.ranks * (run->local + 1); i++) {
        const size_t rank = i / (run->local + 1), x = i % (run->local + 1);
        m->glu.experts.offset[i] =
            x < run->local ? m->rows.begin[rank * run->local + x] : run->out.rows[rank];
    }
    spw_step(run, "dispatch");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_born_at(run, &m->glu.experts.x, "x", held, run->shape.hidden, 0));
    SPW_TRY(spw_born_at(run, &m->row_scores, "row_scores", held, 1, 4));
    SPW_TRY(spw_hybrid_move(run, &m->rows, &m->row_scores, spw_rank_x, &m->glu.experts.x));
    spw_dies(run, &m->map), spw_dies(run, &m->dense);
    spw_step(run, "scores");
    SPW_TRY(spw_born_at(run, &m->scores, "scores_bf16", held, 1, 2));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < held[r]; i++) m->scores.at[r][i] = m->row_scores.at[r][i];
    }
    spw_dies(run, &m->row_scores);
cleanup:
    return status;
}

/* to = from times the score of its row. */
static void weigh(const spw_execution *run, const titan *m, const spw_spread *from, spw_spread *to) {
    const size_t hidden = run->shape.hidden;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < m->rows.held[r] * hidden; i++)
            to->at[r][i] = (float)((double)m->scores.at[r][i / hidden] * (double)from->at[r][i]);
    }
}

static spw_status combine(spw_execution *run, void *state, const char *exchange) {
    titan *m = state;
    const bool forward = run->pass == SPW_PASS_FORWARD;
    spw_status status = SPW_OK;
    spw_step(run, "weight");
    SPW_TRY(spw_born_at(run, &m->weighted, "weighted", m->rows.held, run->shape.hidden, 0));
    weigh(run, m, &m->glu.experts.y, &m->weighted);
    spw_step(run, "combine");
    SPW_TRY(spw_fabric_begin(run->fabric, exchange));
    SPW_TRY(spw_hybrid_return(run, &m->rows, NULL, &m->weighted, run->out.y));
    SPW_TRY(spw_born_at(run, &m->output, "output", m->rows.tokens, run->shape.hidden, 0));
    spw_dies(run, &m->weighted);
    spw_step(run, "layer end");
    if (forward)
        spw_dies(run, &m->glu.experts.y), spw_dies(run, &m->glu.experts.x), spw_dies(run, &m->scores);
    if (forward) spw_hybrid_maps_die(run, &m->rows);
    spw_dies(run, &m->output);
cleanup:
    return status;
}

/* d_scores: the returned rows times what the experts made, summed over the hidden size. */
static void score_gradient(const spw_execution *run, titan *m) {
    const size_t hidden = run->shape.hidden;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < m->rows.held[r]; i++) {
            double sum = 0.0;
            for (size_t h = i * hidden; h < (i + 1) * hidden; h++)
                sum += (double)m->d_weighted.at[r][h] * (double)m->glu.experts.y.at[r][h];
            m->d_scores.at[r][i] = (float)sum;
        }
    }
}

static spw_status combine_gradient(spw_execution *run, void *state) {
    titan *m = state;
    const size_t hidden = run->shape.hidden, *held = m->rows.held;
    spw_status status = SPW_OK;
    spw_step(run, "combine gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "combine gradient"));
    SPW_TRY(spw_born_at(run, &m->d_weighted, "d_weighted", held, hidden, 0));
    SPW_TRY(spw_hybrid_move(run, &m->rows, NULL, spw_rank_dy, &m->d_weighted));
    spw_step(run, "weight gradient");
    SPW_TRY(spw_born_at(run, &m->glu.experts.dy, "dy", held, hidden, 0));
    weigh(run, m, &m->d_weighted, &m->glu.experts.dy);
    SPW_TRY(spw_born_at(run, &m->products, "score_products", held, hidden, 0));
    SPW_TRY(spw_born_at(run, &m->d_scores, "d_scores_bf16", held, 1, 2));
    score_gradient(run, m);
    spw_dies(run, &m->products), spw_dies(run, &m->glu.experts.y), spw_dies(run, &m->scores);
    spw_dies(run, &m->d_weighted);
cleanup:
    return status;
}

static spw_status dispatch_gradient(spw_execution *run, void *state) {
    titan *m = state;
    const size_t *tokens = m->rows.tokens, *held = m->rows.held;
    spw_status status = SPW_OK;
    spw_step(run, "scores gradient");
    SPW_TRY(spw_born_at(run, &m->d_row_scores, "d_row_scores", held, 1, 4));
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < held[r]; i++) m->d_row_scores.at[r][i] = m->d_scores.at[r][i];
    }
    spw_dies(run, &m->d_scores);
    spw_step(run, "dispatch gradient");
    SPW_TRY(spw_fabric_begin(run->fabric, "dispatch gradient"));
    SPW_TRY(spw_born_at(run, &m->dx, "dx", tokens, run->shape.hidden, 0));
    SPW_TRY(spw_born_at(run, &m->d_dense, "d_dense_scores", tokens, run->shape.experts, 4));
    SPW_TRY(spw_hybrid_return(run, &m->rows, &m->d_row_scores, &m->glu.experts.dx1, run->out.dx));
    SPW_TRY(spw_born_at(run, &m->d_top_scores, "d_top_scores", tokens, run->shape.top_k, 4));
    spw_dies(run, &m->d_dense), spw_dies(run, &m->glu.experts.dx1), spw_dies(run, &m->d_row_scores);
    spw_hybrid_maps_die(run, &m->rows);
    spw_step(run, "layer end");
    spw_dies(run, &m->dx), spw_dies(run, &m->d_top_scores);
cleanup:
    return status;
}

static spw_status create(spw_execution *run, titan *m) {
    const size_t top_k = run->shape.top_k, each = run->local < top_k ? run->local : top_k,
                 worst = run->shape.ranks * run->tokens * each;
    const double factor = spw_execution_number(&run->shape, "capacity", 0.0);
    spw_status status = SPW_OK;
    SPW_TRY(spw_hybrid_create(run, (size_t)spw_execution_number(&run->shape, "pad", 1.0), factor > 0.0,
                              (size_t)((double)worst * factor), &m->rows));
    SPW_TRY(spw_experts_create_at(run, m->rows.held, &m->glu.experts));
    for (size_t r = 0; r < run->shape.ranks; r++)
        SPW_TRY(SPW_SCRATCH(run, (worst + run->local * m->rows.pad + m->rows.limit) * run->shape.ffn,
                            &m->glu.gate[r]));
cleanup:
    return status;
}

static const spw_scheme_passes layer = {dispatch, combine, combine_gradient, dispatch_gradient};

spw_status spw_execute_torchtitan_hybridep(spw_execution *run) {
    titan *m = NULL;
    spw_status status = SPW_SCRATCH(run, 1, &m);
    if (status != SPW_OK) return status;
    SPW_TRY(create(run, m));
    status = spw_run_passes(run, &layer, m, &spw_glu_up_last, &m->glu);
cleanup:
    return status;
}
