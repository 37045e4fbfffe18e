#include "sim/routing/micro_batch.h"

#include "sim/routing/counts.h"

spw_status spw_micro_batch_layout(const spw_layout *layout, size_t index, size_t count, spw_layout *out) {
    const size_t each = layout->sequences / count, first = index * each;
    spw_layout_clear(out);
    for (size_t rank = 0; rank < layout->ranks; rank++) {
        for (size_t i = layout->begin[rank]; i < layout->begin[rank + 1]; i++) {
            spw_segment segment = layout->segment[i];
            if (segment.sequence < first || segment.sequence >= first + each) continue;
            segment.sequence -= (uint32_t)first;
            const spw_status status = spw_layout_put(out, rank, segment);
            if (status != SPW_OK) return status;
        }
    }
    spw_layout_close(out);
    return SPW_OK;
}
