#include "reference/schemes/sorted_rows.h"

#include "reference/schemes/tensor_group.h"

spw_status spw_sorted_create(spw_execution *run, const spw_experts *experts, spw_sorted_rows *out) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++)
        status = SPW_SCRATCH(run, experts->rows, &out->place[r]);
    return status;
}

/* Sorted rows to their places before the sort. */
static spw_status scatter(spw_execution *run, const spw_experts *experts, const spw_sorted_rows *sorted,
                          spw_spread *from, spw_spread *to, const char *name) {
    const size_t width = from->width;
    const spw_status status = spw_born(run, to, name, experts->rows, width);
    if (status != SPW_OK) return status;
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_scatter_rows(from->at[r], sorted->place[r], run->out.rows[r], width, to->at[r]);
    spw_dies(run, from);
    return SPW_OK;
}

spw_status spw_unsort(spw_execution *run, spw_experts *experts, spw_sorted_rows *sorted) {
    spw_step(run, "unsort");
    return scatter(run, experts, sorted, &experts->y, &sorted->y, "y_unsorted");
}

spw_status spw_unsort_gradient(spw_execution *run, spw_experts *experts, spw_sorted_rows *sorted) {
    const size_t width = spw_group_width(run);
    spw_step(run, "unsort gradient");
    const spw_status status = spw_born(run, &experts->dy, "dy", experts->rows, width);
    if (status != SPW_OK) return status;
    for (size_t r = 0; r < run->shape.ranks; r++)
        spw_gather_rows(sorted->dy.at[r], sorted->place[r], run->out.rows[r], width, experts->dy.at[r]);
    spw_dies(run, &sorted->dy);
    return SPW_OK;
}

spw_status spw_sort_gradient(spw_execution *run, spw_experts *experts, spw_sorted_rows *sorted) {
    return scatter(run, experts, sorted, &experts->dx0, &sorted->dx, "dx_unsorted");
}
