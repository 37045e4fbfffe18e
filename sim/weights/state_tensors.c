#include "sim/weights/state_tensors.h"

#include "base/memory.h"
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/job/state_law.h"
#include "sim/model/attention.h"
#include "sim/model/matrices.h"
#include "sim/weights/block.h"
#include "sim/weights/fsdp2.h"
#include "sim/weights/muon_packing.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"

#include <math.h>

enum { EXPERTS, REST, PARTS };

/* How a GPU has the parameters of one part: of so many shards one; `each`: of every parameter a part. */
typedef struct sharing {
    double shards;
    bool each;
} sharing;

static void sharing_of(const spw_job *job, sharing out[PARTS]) {
    const spw_grid g = spw_grid_of(job);
    const double copies = (double)spw_state_copies(job);
    const spw_state_law *law = spw_state_law_of(job);
    const bool shared = law->shares_moments;
    out[EXPERTS] = (sharing){shared ? fmax((double)g.expert_data / copies, 1.0) : 1.0, law->by_units};
    out[REST] = (sharing){shared ? fmax((double)(g.data * g.context) / copies, 1.0) : 1.0, law->by_units};
}

static void put(spw_state_tensors *t, double elements, double count, sharing how) {
    const double whole = how.each ? count : floor(count / how.shards),
                 rest = how.each ? 0.0 : elements * (count / how.shards - whole);
    const double room = (double)(SPW_STATE_TENSORS - 1 - t->count),
                 joined = room > 0.0 ? fmax(ceil(whole / fmax(room / 2.0, 1.0)), 1.0) : 0.0;
    if (!(joined > 0.0)) return;
    const double one = how.each ? elements / how.shards : elements;
    for (double left = whole; left > 0.0 && t->count < SPW_STATE_TENSORS; left -= joined)
        t->elements[t->count++] = one * fmin(joined, left);
    if (rest >= 1.0 && t->count < SPW_STATE_TENSORS) t->elements[t->count++] = floor(rest);
}

/* A kind of matrix: how many a GPU has whole, and the elements of the part of one. */
typedef struct pile {
    double elements, whole, rest;
} pile;

enum { PILES = PARTS * SPW_MUON_KINDS };

/* How many of `whole` one layer of so many has: they are dealt evenly. */
static double share_of(double whole, double layer, double layers) {
    return floor(whole * (layer + 1.0) / layers) - floor(whole * layer / layers);
}

/* `layer` of so many, from the last: its share of a kind, of which the last has the part. */
static void put_share(spw_state_tensors *t, const pile *p, double layer, double layers) {
    put(t, p->elements, share_of(p->whole, layer, layers), (sharing){1.0, false});
    if (layer + 1.0 == layers && p->rest >= 1.0 && t->count < SPW_STATE_TENSORS)
        t->elements[t->count++] = floor(p->rest);
}

/* Of the parts that `takes` names. */
static void put_layers(spw_state_tensors *t, const spw_job *job, const spw_block *block,
                       const sharing how[PARTS], const bool takes[PARTS]) {
    const size_t layers = block->layers + block->predictions;
    spw_muon_list list[PARTS];
    pile kinds[PILES];
    size_t piles = 0;
    spw_muon_block_matrices(job, block, list);
    for (int part = EXPERTS; part <= REST; part++)
        for (size_t k = takes[part] ? list[part].kinds : 0; k-- > 0;) {
            const spw_muon_matrices *m = &list[part].kind[k];
            const double elements = (double)m->rows * (double)m->columns,
                         has = (double)m->count / how[part].shards, whole = floor(has);
            kinds[piles].elements = elements;
            kinds[piles].whole = whole;
            kinds[piles++].rest = elements * (has - whole);
        }
    for (size_t layer = 0; layer < layers; layer++)
        for (size_t i = 0; i < piles; i++) put_share(t, &kinds[i], (double)layer, (double)layers);
}

/* One layer's matrix: queries, keys and values, or gate and up, are parameters of their own. */
static void put_apart(spw_state_tensors *t, const spw_job *job, const spw_muon_matrices *m, double stacked,
                      sharing how) {
    const spw_model *model = &job->model;
    const double columns = (double)m->columns * stacked;
    const bool together = how.each && spw_attention_widths_of(model).latents == 0; /* torchtitan's wqkv */
    double rows = (double)m->rows;
    for (size_t i = 0; i < SPW_MUON_PARTS && !together; i++) {
        const double part = (double)m->part[i];
        if (!(part > 0.0) || part > rows) continue;
        put(t, part * columns, 1.0, how);
        rows -= part;
    }
    const bool pair = m->columns == model->hidden && rows == (double)m->rows &&
                      (rows == 2.0 * (double)model->expert_ffn || rows == 2.0 * (double)model->dense_ffn ||
                       rows == 2.0 * (double)model->shared_ffn);
    if (rows > 0.0) put(t, rows * columns / (pair ? 2.0 : 1.0), pair ? 2.0 : 1.0, how);
}

/* Of layer `layer` of a block, what stands before its experts or behind them: its router, and what layers with experts alone have. */
static void put_layer_rest(spw_state_tensors *t, const spw_job *job, const spw_block *block,
                           const spw_muon_list *list, size_t layer, bool behind, sharing how) {
    const size_t layers = block->layers + block->predictions, moe = block->moe_layers + block->predictions,
                 dense = layers - moe;
    for (size_t k = 0; k < list->kinds; k++) {
        const spw_muon_matrices *m = &list->kind[k];
        const bool with_experts = m->count == moe && moe < layers, without = m->count == dense,
                   router = m->rows == spw_model_choices(&job->model) && m->columns == job->model.hidden;
        const double of = (double)(with_experts ? moe
                                   : without    ? dense
                                                : layers),
                     at = (double)layer - (with_experts ? (double)dense : 0.0);
        if ((with_experts || router) != behind || at < 0.0 || at >= of) continue;
        const size_t here = (size_t)share_of((double)m->count, at, of);
        for (size_t n = 0; n < here; n++) put_apart(t, job, m, 1.0, how);
    }
}

/* FSDP2: as torchtitan's blocks name them, attention before experts, experts before their router. */
static void put_units(spw_state_tensors *t, const spw_job *job, const spw_block *block,
                      const sharing how[PARTS]) {
    const size_t layers = block->layers + block->predictions, moe = block->moe_layers + block->predictions,
                 dense = layers - moe;
    spw_muon_list list[PARTS];
    spw_muon_block_matrices(job, block, list);
    for (size_t layer = 0; layer < layers; layer++) {
        put_layer_rest(t, job, block, &list[REST], layer, false, how[REST]);
        for (size_t k = 0; layer >= dense && k < list[EXPERTS].kinds; k++) {
            const spw_muon_matrices *m = &list[EXPERTS].kind[k];
            put_apart(t, job, m, (double)m->count / (double)moe, how[EXPERTS]);
        }
        put_layer_rest(t, job, block, &list[REST], layer, true, how[REST]);
    }
}

static void put_all(spw_state_tensors *t, const spw_job *job, const spw_stage *stage,
                    const sharing how[PARTS]) {
    const spw_pipeline p = spw_pipeline_of(job);
    const double table =
        (double)job->model.vocab * (double)job->model.hidden / (double)spw_grid_of(job).tensor;
    const bool units = how[REST].each, apart = spw_grid_of(job).expert > 1,
               first = units ? stage->embedding : stage->head, last = units ? stage->head : stage->embedding;
    const bool takes[][PARTS] = {{!apart, true}, {apart, false}};
    for (size_t pass = 0; pass < (units || !apart ? 1 : 2); pass++) {
        const bool ends = takes[pass][REST];
        if (ends && first) put(t, table, 1.0, how[REST]);
        for (size_t c = 0; c < p.chunks; c++) {
            const spw_block block = spw_pipeline_block(&p, &job->model, stage->index, c);
            if (units)
                put_units(t, job, &block, how);
            else
                put_layers(t, job, &block, how, takes[pass]);
        }
        if (ends && last) put(t, table, 1.0, how[REST]);
    }
}

spw_status spw_state_tensors_create(const spw_job *job, const spw_stage *stage, spw_state_tensors *out) {
    const spw_held_parameters held = spw_job_parameters(job, stage);
    sharing how[PARTS];
    double sum = 0.0;
    spw_status status = SPW_OK;
    *out = (spw_state_tensors){.all = spw_optimizer_state_of(job, &held).updated};
    SPW_TRY(SPW_RESIZE(SPW_STATE_TENSORS, &out->elements));
    sharing_of(job, how);
    put_all(out, job, stage, how);
    for (size_t i = 0; i < out->count; i++) sum += out->elements[i];
    out->all = fmax(out->all, sum); /* fewer are trained: each in proportion */

cleanup:
    return status;
}

spw_status spw_weight_tensors_create(const spw_job *job, const spw_stage *stage, uint64_t bytes,
                                     spw_state_tensors *out) {
    const spw_held_parameters held = spw_job_parameters(job, stage);
    const spw_cut_parameters cut = spw_cut_parameters_of(job, &held);
    const spw_state_law *law = spw_state_law_of(job);
    const sharing whole[PARTS] = {{1.0, false}, {1.0, false}};
    const double all = cut.routed + cut.rest;
    double sum = 0.0;
    spw_status status = SPW_OK;
    *out = (spw_state_tensors){.all = all};
    if (!law->megatron || !law->shares_moments || law->shares_weights || law->by_units ||
        fabs(all * (double)job->precision.weights - (double)bytes) > 1.0)
        return SPW_OK;
    SPW_TRY(SPW_RESIZE(SPW_STATE_TENSORS, &out->elements));
    put_all(out, job, stage, whole);
    for (size_t i = 0; i < out->count; i++) sum += out->elements[i];
    if (sum > all) out->count = 0; /* what is listed is not what the stage holds */

cleanup:
    return status;
}

void spw_state_tensors_destroy(spw_state_tensors *t) {
    spw_free(t->elements);
    *t = (spw_state_tensors){.count = 0};
}

void spw_state_tensors_bytes(const spw_state_tensors *t, uint64_t bytes, uint64_t *out) {
    uint64_t left = bytes;
    for (size_t i = 0; i < t->count; i++) {
        const double part = t->all > 0.0 ? floor((double)bytes * (t->elements[i] / t->all) + 0.5) : 0.0;
        out[i] = part < (double)left ? (uint64_t)part : left;
        left -= out[i];
    }
    out[t->count] = left;
}
