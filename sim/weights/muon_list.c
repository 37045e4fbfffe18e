/* Matrices of Muon: whose they are, and which of a block. */
#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/model/matrices.h"
#include "sim/weights/block.h"
#include "sim/weights/muon_packing.h"

#include <string.h>

bool spw_muon_is_layer_wise(const spw_job *job) {
    return job->muon && job->optimizer == SPW_OPTIMIZER_DISTRIBUTED && job->part == SPW_PART_WHOLE;
}

typedef spw_muon_list matrices;

static void muon_list_add(matrices *list, uint64_t rows, uint64_t columns, uint64_t count) {
    if (rows == 0 || columns == 0 || count == 0) return;
    list->kind[list->kinds++] = (spw_muon_matrices){rows, columns, count};
}

/* The last of the list is shared by so many GPUs. */
static void share(matrices *list, size_t sharers, bool by_columns) {
    if (list->kinds == 0) return;
    list->kind[list->kinds - 1].sharers = sharers > 1 ? sharers : 0;
    list->kind[list->kinds - 1].by_columns = by_columns;
}

/* Matrices of a list, of so many layers, of which `indexers` have an indexer of their own; `sharers` GPUs share what is cut. Groups of a grouped product are matrices of their own;
 * joined ones are one, of which Muon orthogonalizes the parts of attention's by themselves. */
static void add_list(matrices *list, const spw_matrices *of, size_t sharers, uint64_t layers,
                     uint64_t indexers) {
    for (size_t i = 0; i < of->rows && layers > 0; i++) {
        const spw_matrix *row = &of->row[i];
        const uint64_t count = row->count > 0 ? row->count : 1,
                       many = (row->place == SPW_IN_INDEXER ? indexers : layers) * count;
        const bool outputs = row->cut == SPW_CUT_OUTPUTS, inputs = row->cut == SPW_CUT_INPUTS;
        if (row->vector || row->joined) continue;
        if (count > 1) {
            muon_list_add(list, row->out, row->in, many / (row->cut == SPW_CUT_NOWHERE ? 1 : sharers));
            continue;
        }
        uint64_t rows = row->out, part[SPW_MUON_PARTS] = {row->out / sharers};
        size_t joined = 0;
        for (size_t j = i + 1; j < of->rows && of->row[j].joined; j++, joined++) {
            rows += of->row[j].out;
            if (of->row[j].makes != SPW_MAKES_OTHER)
                part[of->row[j].makes - SPW_MAKES_QUERIES] = of->row[j].out / sharers;
        }
        if ((outputs && rows < sharers) || (inputs && row->in < sharers)) continue;
        muon_list_add(list, outputs ? rows / sharers : rows, inputs ? row->in / sharers : row->in, many);
        if (outputs || inputs) share(list, sharers, inputs);
        if (joined > 0 && row->makes != SPW_MAKES_OTHER && list->kinds > 0)
            memcpy(list->kind[list->kinds - 1].part, part, sizeof part);
    }
}

void spw_muon_block_matrices(const spw_job *job, const spw_block *b, spw_muon_list out[2]) {
    const spw_model *m = &job->model;
    const spw_grid g = spw_grid_of(job);
    const uint64_t moe = b->moe_layers + b->predictions;
    out[0].kinds = out[1].kinds = 0;
    uint64_t attending = b->layers + b->predictions;
    spw_matrices of;
    for (size_t k = 1; k < SPW_MODEL_MIXERS; k++) attending -= b->mixer_layers[k];
    spw_matrices_of_expert(m, &of);
    add_list(&out[0], &of, g.expert_tensor, moe * m->experts / g.expert, 0);
    for (size_t k = 0; k < SPW_MODEL_MIXERS; k++) {
        if (k > 0 && b->mixer_layers[k] == 0) continue;
        spw_matrices_of_mixer(m, k, &of);
        add_list(&out[1], &of, g.tensor, k == 0 ? attending : b->mixer_layers[k],
                 attending - b->shared_indexers);
    }
    spw_matrices_of_dense(m, &of);
    add_list(&out[1], &of, g.tensor, b->layers - b->moe_layers - b->bare_layers, 0);
    spw_matrices_of_shared(m, &of);
    add_list(&out[1], &of, g.tensor, moe, 0);
    spw_matrices_of_router(m, spw_model_choices(m), false, &of);
    add_list(&out[1], &of, g.tensor, moe, 0);
    muon_list_add(&out[1], m->hidden / g.tensor, 2 * m->hidden, b->predictions);
    if (b->predictions > 0) share(&out[1], g.tensor, false);
}
