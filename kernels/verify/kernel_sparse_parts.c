/* What sparse cases are made of: places, rows, indices, outputs. */
#include "base/memory.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/kernel_operands.h"
#include "kernels/verify/kernel_sparse.h"
#include "kernels/verify/kernel_sparse_rows.h"

#include <string.h>

size_t spw_sparse_places(size_t rows, size_t width, size_t place[SPW_KERNEL_SAMPLES]) {
    const size_t wanted[] = {0, 5, 65535, 65536, (1 << 24) - 1, 1 << 24, rows - 1},
                 edge = ((size_t)1 << 31) / width, edges[] = {edge - 1, edge, 2 * edge - 1, 2 * edge};
    size_t count = 0, all[sizeof wanted / sizeof *wanted + sizeof edges / sizeof *edges];
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) all[count++] = wanted[i];
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) all[count++] = edges[i];
    size_t kept = 0;
    for (size_t least = 0; kept < SPW_KERNEL_SAMPLES;) { /* rising, each once */
        size_t next = rows;
        for (size_t i = 0; i < count; i++)
            if (all[i] >= least && all[i] < next) next = all[i];
        if (next >= rows) break;
        place[kept++] = next;
        least = next + 1;
    }
    return kept;
}

spw_status spw_sparse_rows_make(spw_kernel_case *c, size_t input, const spw_sparse_rows *r, uint64_t seed,
                                float **values) {
    const size_t bytes = r->rows * r->width * spw_kernel_type_bytes(c->call.type);
    spw_sparse *s = &c->sparse[input];
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(r->places * r->width, values));
    SPW_TRY(spw_sparse_zeros(bytes, s));
    for (size_t p = 0; p < r->places; p++) {
        for (size_t i = 0; i < r->width; i++) { /* integers: the same in all types */
            const float value = spw_number(SPW_NUMBERS_INTEGER, seed, p * r->width + i);
            const size_t at = r->place[p] * r->width + i;
            (*values)[p * r->width + i] = spw_kernel_store(c->call.type, s->memory, at, value);
        }
    }
    c->call.input[input] = s->memory;
    c->input_bytes[input] = bytes;

cleanup:
    return status;
}

/* A sink between guard bands. */
static spw_status make_sink(const spw_sparse_rows *r, size_t element, spw_sparse *sink, void **inner,
                            size_t *bytes) {
    size_t at[SPW_KERNEL_SAMPLES];
    const size_t guard = SPW_KERNEL_CASE_GUARD;
    *bytes = r->rows * r->width * element;
    for (size_t p = 0; p < r->places; p++) at[p] = guard + r->place[p] * r->width * element;
    const spw_status status =
        spw_sparse_sink(*bytes + 2 * guard, at, r->places, r->width * element, guard, sink);
    if (status != SPW_OK) return status;
    memset(sink->memory, SPW_KERNEL_GUARD, guard);
    memset(sink->memory + guard + *bytes, SPW_KERNEL_GUARD, guard);
    *inner = sink->memory + guard;
    return SPW_OK;
}

spw_status spw_sparse_output_make(spw_kernel_case *c, const spw_sparse_rows *r) {
    spw_sparse *sink = &c->sparse[SPW_KERNEL_INPUTS];
    spw_status status = SPW_OK;
    SPW_TRY(make_sink(r, spw_kernel_type_bytes(c->output_type), sink, &c->call.output, &c->output_bytes));
    c->guarded = sink->memory;
    c->samples = r->places;
    c->sample_width = r->width;
    memcpy(c->sample, r->place, r->places * sizeof *r->place);
    c->judged = r->places * r->width;
    SPW_TRY(SPW_ALLOC(c->judged, &c->want));
    SPW_TRY(SPW_ALLOC(c->judged, &c->scale));

cleanup:
    return status;
}

spw_status spw_sparse_index_make(spw_kernel_case *c, const spw_sparse_rows *r) {
    spw_sparse *sink = &c->sparse[SPW_KERNEL_INPUTS + 1];
    void *inner = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(make_sink(r, sizeof *c->call.index, sink, &inner, &c->index_bytes));
    c->guarded_index = sink->memory;
    c->call.index = inner;
    SPW_TRY(SPW_ALLOC(r->places * r->width, &c->want_index));

cleanup:
    return status;
}
