#include "sim/replay/row_sums.h"

#include "sim/replay/result.h"

void spw_row_sums_add(spw_row_sums *s, const spw_traffic *traffic, size_t stands_for) {
    s->dispatch += (double)traffic->dispatch_bytes;
    s->combine += (double)traffic->combine_bytes;
    s->intra += (double)traffic->intra_node_bytes;
    s->inter += (double)traffic->inter_node_bytes;
    s->step_bytes += (double)traffic->layer_bytes * (double)stands_for;
    if (traffic->max_link_bytes > s->max_link) s->max_link = traffic->max_link_bytes;
}

bool spw_row_sums_note(spw_row_sums *s, uint64_t rows, uint64_t times) {
    const bool most = rows > s->rows_max || (rows == s->rows_max && !(s->rows > 0.0));
    s->rows += (double)(times * rows);
    if (most) s->rows_max = rows;
    return most;
}

spw_result_traffic spw_row_sums_traffic(const spw_row_sums *s, double cells, double gpus) {
    return (spw_result_traffic){.dispatch_bytes_per_gpu = s->dispatch / cells,
                                .combine_bytes_per_gpu = s->combine / cells,
                                .step_bytes_per_gpu = s->step_bytes / gpus,
                                .intra_node_bytes = s->intra / cells,
                                .inter_node_bytes = s->inter / cells,
                                .max_link_bytes = s->max_link,
                                .rows_max = s->rows_max,
                                .rows_mean = s->rows / cells};
}
