#include "sim/time/fp8_time.h"

#include "sim/job/grid.h"
#include "sim/job/recipe/megatron_keys.h"
#include "sim/job/recipe/remat_modules.h"
#include "sim/model/matrices.h"
#include "sim/weights/fp8_memory.h"

static spw_fp8_facts facts_of(const spw_job *job) {
    return spw_fp8_facts_known(job->precision.recipe, job->cluster.gpu_generation);
}

double spw_fp8_product_gain(const spw_job *job) {
    if (job->precision.recipe == SPW_FP8_NONE) return 1.0;
    const spw_cluster *c = &job->cluster;
    const bool fp4 = spw_fp8_recipe_is_fp4(job->precision.recipe);
    return facts_of(job).products_share * (fp4 ? c->fp4_flops.value : c->fp8_flops.value) /
           c->bf16_flops.value;
}

static double cast(const spw_job *job, double inputs, double gradients, bool again) {
    return facts_of(job).cast_bytes * (inputs * (again ? 2.0 : 1.0) + gradients);
}

/* A second cast, in the backward pass, of an input that is kept in bf16; each of the two then writes one copy. */
static double cast_again(const spw_job *job, double inputs) {
    const spw_fp8_facts facts = facts_of(job);
    const double copies = facts.both ? 2.0 : 1.0, copy = facts.written_bytes;
    return facts.from_original ? inputs * (facts.cast_bytes - copies * copy + (2.0 - copies) * copy) : 0.0;
}

/* An input of the experts that is kept in bf16, or computed again; with one scale a tensor it is cast both ways. */
static double experts_again(const spw_job *job, double elements) {
    const spw_fp8_facts facts = facts_of(job);
    return cast_again(job, elements) + (facts.both && !facts.scaled ? elements : 0.0);
}

static double attention_bytes(const spw_job *job) {
    const spw_model *m = &job->model;
    const bool again = job->remat == SPW_REMAT_FULL;
    spw_matrices list, up;
    spw_matrices_of_attention(m, &list);
    spw_matrices_of_module(&list, SPW_MODULE_MLA_UP_PROJ, &up);
    const double read = (double)spw_matrices_inputs(&list, SPW_OF_ANY),
                 made = (double)spw_matrices_outputs(&list),
                 repeated = (double)spw_matrices_inputs(&up, SPW_OF_ANY),
                 normed = (double)(spw_matrices_inputs(&list, SPW_OF_INPUT) -
                                   spw_matrices_inputs(&up, SPW_OF_INPUT));
    double bytes =
        cast(job, read, made, again) + cast_again(job, (double)spw_matrices_inputs(&list, SPW_OF_RESULT));
    if (up.rows == 0) return bytes;
    if (spw_remat_repeats(job->remat, SPW_MODULE_MLA_UP_PROJ)) bytes += cast(job, repeated, 0.0, false);
    if (spw_remat_repeats(job->remat, SPW_MODULE_LAYERNORM)) bytes += cast_again(job, normed);
    return bytes;
}

static double moe_bytes(const spw_job *job) {
    const spw_model *m = &job->model;
    const bool again = spw_remat_runs_again(job->remat, SPW_MODULE_MOE),
               alone = spw_remat_repeats(job->remat, SPW_MODULE_SHARED_EXPERTS);
    const double hidden = (double)m->hidden, rows = (double)m->top_k, ffn = (double)m->expert_ffn,
                 shared = (double)m->shared_ffn, own = m->shared_ffn > 0 ? hidden : 0.0;
    double bytes = cast(job, rows * (hidden + ffn), rows * (hidden + 2.0 * ffn), again) +
                   cast(job, own + shared, own + 2.0 * shared, again || alone);
    if (!alone) bytes += cast_again(job, own);
    if (spw_remat_repeats(job->remat, SPW_MODULE_MOE_ACT)) bytes += experts_again(job, rows * ffn);
    if ((job->offload.modules & SPW_OFFLOAD_EXPERT_FC1) != 0 && !spw_offload_stays(job))
        bytes += experts_again(job, rows * hidden);
    return bytes;
}

static double dense_bytes(const spw_job *job) {
    const bool again = spw_remat_runs_again(job->remat, SPW_MODULE_MLP);
    const double hidden = (double)job->model.hidden, ffn = (double)job->model.dense_ffn;
    return cast(job, hidden + ffn, hidden + 2.0 * ffn, again);
}

double spw_fp8_cast_bytes(const spw_job *job) {
    const spw_model *m = &job->model;
    const double layers = (double)m->layers, moe = (double)m->moe_layers;
    return layers * attention_bytes(job) + moe * moe_bytes(job) + (layers - moe) * dense_bytes(job);
}

static double settled(const spw_job *job, size_t tokens, size_t width) {
    return (double)width * spw_fp8_gather_of(job, tokens, width).settled;
}

double spw_fp8_settle_bytes(const spw_job *job, size_t tokens) {
    const spw_model *m = &job->model;
    const size_t tensor = spw_grid_of(job).tensor;
    const double layers = (double)m->layers, moe = (double)m->moe_layers,
                 hidden = settled(job, tokens, m->hidden), ffn = 2.0 * hidden;
    double attention = 0.0;
    spw_matrices list;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        if (row->vector || row->joined || row->cut == SPW_CUT_NOWHERE) continue;
        attention += settled(job, tokens, row->cut == SPW_CUT_OUTPUTS ? row->in : row->out);
    }
    if (tensor == 1) return 0.0;
    return (double)tensor *
           (layers * attention + (layers - moe) * ffn + (m->shared_ffn > 0 ? moe * ffn : 0.0));
}

double spw_fp8_weight_cast_bytes(const spw_job *job, const spw_stage *stage) {
    return facts_of(job).cast_bytes * spw_fp8_linear_parameters(job, stage);
}
