/* What other planners' formulas share. */
#include "sim/job/job.h"
#include "sim/model/matrices.h"
#include "sim/peers/peer.h"

double spw_peer_sum(const spw_peer_memory *memory) {
    double sum = 0.0;
    for (int i = 0; i < SPW_PEER_PARTS; i++) sum += memory->bytes[i];
    return sum;
}

double spw_peer_attention_parameters(const spw_model *m) {
    double sum = 0.0;
    spw_matrices list;
    spw_matrices_of_attention(m, &list);
    for (size_t i = 0; i < list.rows; i++) {
        const spw_matrix *row = &list.row[i];
        const bool norm = row->norm && row->reads == SPW_READS_LATENT;
        if (norm || (!row->vector && row->makes != SPW_MAKES_GATE)) sum += (double)spw_matrix_elements(row);
    }
    return sum;
}

double spw_peer_vocab(const spw_model *m) {
    enum { MULTIPLE = 128 };
    const size_t padded = (m->vocab + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    return (double)padded;
}

spw_status spw_peer_remat(const spw_job *job, bool *full) {
    *full = job->remat == SPW_REMAT_FULL;
    if (*full || job->remat == SPW_REMAT_NONE) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "remat %s has no counterpart there; use none or full",
                    spw_remat_name(job->remat));
}
