#include "sim/score/published/peak_match.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const double NEAR = 0.004, ROUNDED_GIB = 0.0002; /* of a size; by the four digits of a table */
static const double COUNTS = 0.02;                      /* of the arena */

/* One of our tensors: a list's row has several of one size. */
typedef struct piece {
    const char *name;
    double gib;
    bool taken;
} piece;

static spw_status open_pieces(const spw_compiled_tensor *tensor, size_t count, piece **out, size_t *pieces) {
    *pieces = 0;
    for (size_t i = 0; i < count; i++) *pieces += tensor[i].pieces;
    const spw_status status = SPW_ALLOC(*pieces + 1, out);
    if (status != SPW_OK) return status;
    *pieces = 0;
    for (size_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < tensor[i].pieces; k++)
            (*out)[(*pieces)++] = (piece){tensor[i].name, tensor[i].bytes / GIB / tensor[i].pieces, false};
    }
    return SPW_OK;
}

static bool take(piece *ours, size_t pieces, double gib) {
    for (size_t i = 0; i < pieces; i++) {
        if (ours[i].taken || fabs(ours[i].gib - gib) > NEAR * gib + ROUNDED_GIB) continue;
        ours[i].taken = true;
        return true;
    }
    return false;
}

static void miss(spw_peak_match *m, double gib) {
    if (m->missing < SPW_PEAK_LISTED) m->missing_gib[m->missing] = gib;
    m->missing++;
    m->missing_sum_gib += gib;
}

static void exceed(spw_peak_match *m, const piece *p) {
    if (m->extra < SPW_PEAK_LISTED) {
        (void)snprintf(m->extra_name[m->extra], sizeof m->extra_name[0], "%s", p->name);
        m->extra_gib[m->extra] = p->gib;
    }
    m->extra++;
    m->extra_sum_gib += p->gib;
}

spw_status spw_peak_match_row(const spw_score_cell *cell, const spw_compiled_memory *memory,
                              spw_peak_match *out) {
    const double counts =
        COUNTS * (isnan(cell->temporary_gib) ? memory->temporary_bytes / GIB : cell->temporary_gib);
    spw_compiled_tensor *tensor = NULL;
    piece *ours = NULL;
    size_t count = 0, pieces = 0;
    spw_status status = SPW_OK;
    memset(out, 0, sizeof *out);
    if (cell->peaks == 0) return SPW_OK;
    SPW_TRY(spw_compiled_memory_list(cell->stack, &cell->job, &cell->scheme, cell->job.sequences_per_gpu[0],
                                     &memory->fullest, &tensor, &count));
    SPW_TRY(open_pieces(tensor, count, &ours, &pieces));
    for (size_t i = 0; i < cell->peaks; i++) {
        const bool found = take(ours, pieces, cell->peak_gib[i]);
        if (cell->peak_gib[i] < counts) continue;
        if (found)
            out->matched++;
        else
            miss(out, cell->peak_gib[i]);
    }
    for (size_t i = 0; i < pieces; i++) {
        if (!ours[i].taken && ours[i].gib >= counts) exceed(out, &ours[i]);
    }

cleanup:
    spw_free(ours);
    spw_free(tensor);
    return status;
}
