#include "sim/routing/micro_batch.h"

#include "sim/routing/counts.h"

/* The rank's first segment of a sequence from `sequence` on: they stand in order. */
static size_t first_of(const spw_layout *layout, size_t rank, size_t sequence) {
    size_t low = layout->begin[rank], high = layout->begin[rank + 1];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (layout->segment[middle].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

spw_status spw_micro_batch_layout(const spw_layout *layout, size_t index, size_t count, spw_layout *out) {
    const size_t each = layout->sequences / count, first = index * each;
    spw_layout_clear(out);
    for (size_t rank = 0; rank < layout->ranks; rank++) {
        const size_t end = first_of(layout, rank, first + each);
        for (size_t i = first_of(layout, rank, first); i < end; i++) {
            spw_segment segment = layout->segment[i];
            segment.sequence -= (uint32_t)first;
            const spw_status status = spw_layout_put(out, rank, segment);
            if (status != SPW_OK) return status;
        }
    }
    spw_layout_close(out);
    return SPW_OK;
}
