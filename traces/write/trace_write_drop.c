/* A step that never was: the file and the ledger go back to where they stood when it began. */
#include "traces/write/trace_write_internal.h"

#include "base/memory.h"

spw_status spw_trace_writer_mark(spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    if (!writer->droppable) return SPW_OK;
    if (writer->ids != NULL) SPW_TRY(spw_chunk_writer_mark(writer->ids));
    if (writer->weights != NULL) SPW_TRY(spw_chunk_writer_mark(writer->weights));
    SPW_TRY(spw_hdf5_ledger_copy(&writer->ledger, &writer->before));

cleanup:
    return status;
}

static bool cut(hid_t dataset, int rank, hsize_t rows) {
    hsize_t extent[4] = {0};
    const hid_t space = dataset >= 0 ? H5Dget_space(dataset) : H5I_INVALID_HID;
    if (dataset < 0) return true; /* the trace has none */
    const bool known = space >= 0 && rank <= 4 && H5Sget_simple_extent_dims(space, extent, NULL) == rank;
    if (space >= 0) (void)H5Sclose(space);
    if (!known || extent[0] <= rows) return known;
    extent[0] = rows;
    return H5Dset_extent(dataset, extent) >= 0;
}

spw_status spw_trace_writer_drop_step(spw_trace_writer *writer) {
    const struct {
        hid_t dataset;
        int rank;
        hsize_t rows;
    } datasets[] = {{writer->expert_id, 3, writer->rows_before},
                    {writer->weight, 3, writer->rows_before},
                    {writer->source_rank, 1, writer->rows_before},
                    {writer->sequence, 1, writer->rows_before},
                    {writer->position, 1, writer->rows_before},
                    {writer->routed, 3, writer->steps},
                    {writer->by_rank, 4, writer->steps}};
    bool good = true;
    if (!writer->in_step) return SPW_OK;
    if (!writer->droppable) return spw_fail(SPW_EARG, "this writer drops no steps; abandon it");
    if (writer->ids != NULL) spw_chunk_writer_rewind(writer->ids);
    if (writer->weights != NULL) spw_chunk_writer_rewind(writer->weights);
    for (size_t i = 0; i < sizeof datasets / sizeof *datasets; i++)
        good = cut(datasets[i].dataset, datasets[i].rank, datasets[i].rows) && good;
    const spw_status status = spw_hdf5_ledger_copy(&writer->before, &writer->ledger);
    writer->torn = !good || status != SPW_OK;
    if (!good) return spw_fail(SPW_EIO, "the step cannot be dropped (disk full, or out of memory?)");
    if (status != SPW_OK) return status;
    writer->rows = writer->rows_before;
    writer->in_step = false;
    return SPW_OK;
}
