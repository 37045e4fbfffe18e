#include "sim/model/matrix.h"

#include "base/saturate.h"
#include "sim/model/matrices.h"
#include "sim/model/model.h"

void spw_matrix_add(spw_model *m, spw_matrix row) {
    if (row.in == 0 || row.out == 0) return;
    if (row.cut == SPW_CUT_INPUTS)
        row.reads = SPW_READS_RESULT;
    else if (!row.vector && row.in != m->hidden)
        row.reads = SPW_READS_LATENT;
    if (m->matrices < SPW_MODEL_MATRICES) m->matrix[m->matrices] = row;
    m->matrices++;
}

bool spw_matrix_is_at(const spw_matrix *row, spw_matrix_place place, size_t mixer) {
    return row->place == place && (place != SPW_IN_MIXER || row->mixer == mixer);
}

const spw_matrix *spw_matrix_at(const spw_model *m, spw_matrix_place place, size_t mixer, size_t i) {
    for (size_t r = 0; r < m->matrices; r++)
        if (spw_matrix_is_at(&m->matrix[r], place, mixer) && i-- == 0) return &m->matrix[r];
    return NULL;
}

uint64_t spw_matrix_elements(const spw_matrix *row) {
    return spw_saturated_product(row->count > 0 ? row->count : 1, spw_saturated_product(row->in, row->out));
}

static uint64_t sum(const spw_model *m, spw_matrix_place place, size_t mixer, bool whole) {
    uint64_t elements = 0;
    for (size_t r = 0; r < m->matrices; r++) {
        const spw_matrix *row = &m->matrix[r];
        if (spw_matrix_is_at(row, place, mixer) && (!whole || row->cut == SPW_CUT_NOWHERE))
            elements = spw_saturated_sum(elements, spw_matrix_elements(row));
    }
    return elements;
}

uint64_t spw_matrices_elements(const spw_model *m, spw_matrix_place place, size_t mixer) {
    return sum(m, place, mixer, false);
}

uint64_t spw_matrices_whole(const spw_model *m, spw_matrix_place place, size_t mixer) {
    return sum(m, place, mixer, true);
}

void spw_matrices_add(spw_matrices *list, bool is_there, spw_matrix row) {
    if (is_there && row.in > 0 && row.out > 0 && list->rows < SPW_LIST_ROWS) list->row[list->rows++] = row;
}
