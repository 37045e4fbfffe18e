#include "kernels/verify/ranks/verify_dispatch_checks.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <string.h>

void spw_dispatch_count(spw_dispatch_run *r, spw_status result, size_t rank, const char *what) {
    spw_judge_count(r->judge, result, "%s, %s, %s, rank %zu: %s", r->c->name, r->dispatch->variant->name,
                    spw_choice_names[r->c->routing], rank, what);
}

spw_status spw_dispatch_check_layout(spw_dispatch_run *r, size_t s) {
    const spw_dispatch *d = r->dispatch;
    const size_t local = r->c->shape.experts / r->ranks;
    spw_handle *handle = NULL;
    int *got = (int *)(void *)r->got;
    spw_status status = SPW_OK, result = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &handle));
    SPW_TRY_GPU(cudaMemcpy(got, d->place[s], r->tokens * r->ranks * 4, cudaMemcpyDeviceToHost), "download");
    spw_dispatch_count(
        r, spw_judge_bytes(r->tokens * r->ranks, 4, got, r->plan.place + s * r->tokens * r->ranks), s,
        "places");
    SPW_TRY_GPU(cudaMemcpy(got, d->rank_tokens[s], r->ranks * 4, cudaMemcpyDeviceToHost), "download");
    for (size_t x = 0; x < r->ranks && result == SPW_OK; x++)
        result = spw_judge_equal((uint64_t)got[x], r->plan.sent[s * r->ranks + x]);
    spw_dispatch_count(r, result, s, "tokens by rank"), result = SPW_OK;
    SPW_TRY_GPU(cudaMemcpy(handle, d->handle[s], sizeof *handle, cudaMemcpyDeviceToHost), "download");
    for (size_t i = 0; i < r->ranks * r->ranks && result == SPW_OK; i++)
        result = spw_judge_equal((uint64_t)handle->sent[i / r->ranks][i % r->ranks], r->plan.sent[i]);
    for (size_t x = 0; x < r->ranks && result == SPW_OK; x++)
        result = spw_judge_equal((uint64_t)handle->base[x], r->plan.first[x * (r->ranks + 1) + s]);
    for (size_t x = 0; x <= r->ranks && result == SPW_OK; x++)
        result = spw_judge_equal((uint64_t)handle->first[x], r->plan.first[s * (r->ranks + 1) + x]);
    for (size_t x = 0; x < local && result == SPW_OK; x++)
        result = spw_judge_equal((uint64_t)(handle->offset[x + 1] - handle->offset[x]),
                                 r->plan.choices[s * local + x]);
    spw_dispatch_count(r, result, s, "handle");
cleanup:
    spw_free(handle);
    return status;
}

/* Row j of rank d is the payload of its token, with its words; what stands behind the rows is poison. */
static spw_status received_row(const spw_dispatch_run *r, size_t d, size_t j, bool choices) {
    const size_t capacity = r->dispatch->capacity[d], k = r->top_k, s = r->scales,
                 local = r->c->shape.experts / r->ranks;
    const unsigned char *row = r->got + j * r->row_bytes;
    const uint32_t *scale = (const uint32_t *)(const void *)(r->got + capacity * r->row_bytes);
    const int32_t *expert = (const int32_t *)(scale + capacity * s), *weight = expert + capacity * k,
                  *source = weight + capacity * k;
    const int32_t item = r->plan.item[d * r->worst + j];
    if (item < 0) {
        for (size_t i = 0; i < r->row_bytes; i++)
            if (row[i] != 0xff) return spw_fail(SPW_EMISMATCH, "row %zu behind the last one was written", j);
        return source[j] == -1 ? SPW_OK
                               : spw_fail(SPW_EMISMATCH, "source %zu behind the last row was written", j);
    }
    if (memcmp(row, r->x + (size_t)item * r->row_bytes, r->row_bytes) != 0)
        return spw_fail(SPW_EMISMATCH, "row %zu is not that of item %d", j, (int)item);
    if (s > 0 && memcmp(scale + j * s, r->scale + (size_t)item * s, s * 4) != 0)
        return spw_fail(SPW_EMISMATCH, "scales of row %zu", j);
    if (source[j] != item % (int32_t)r->tokens)
        return spw_fail(SPW_EMISMATCH, "source of row %zu is %d", j, (int)source[j]);
    for (size_t i = 0; i < k && choices; i++) {
        const int32_t x = r->expert[(size_t)item * k + i];
        const bool own = x >= 0 && (size_t)x / local == d;
        float w = 0;
        memcpy(&w, &weight[j * k + i], sizeof w);
        if (expert[j * k + i] != (own ? x % (int32_t)local : -1) ||
            w != (own ? r->weight[(size_t)item * k + i] : 0))
            return spw_fail(SPW_EMISMATCH, "choice %zu of row %zu", i, j);
    }
    return SPW_OK;
}

spw_status spw_dispatch_check_received(spw_dispatch_run *r, size_t d, bool choices, const char *what) {
    spw_status status = SPW_OK, result = SPW_OK;
    SPW_TRY_GPU(cudaMemcpy(r->got, r->dispatch->received[d], spw_dispatch_buffer_bytes(r->dispatch, d),
                           cudaMemcpyDeviceToHost),
                "download");
    for (size_t j = 0; j < r->dispatch->capacity[d] && result == SPW_OK; j++)
        result = received_row(r, d, j, choices);
    spw_dispatch_count(r, result, d, what);
cleanup:
    return status;
}

spw_status spw_dispatch_check_combined(spw_dispatch_run *r, size_t s, bool whole, bool side) {
    const size_t hidden = r->c->shape.hidden, choices = r->tokens * r->top_k;
    spw_status status = SPW_OK;
    spw_ref_dispatch_combine(&r->plan, s, hidden, (const float *const *)r->rows, r->want, r->bound);
    SPW_TRY_GPU(cudaMemcpy(r->got, r->y[s], r->tokens * hidden * 2, cudaMemcpyDeviceToHost), "download");
    spw_dispatch_count(r,
                       spw_judge_bf16(r->judge, whole, r->tokens * hidden, r->ranks,
                                      (const spw_bf16 *)(void *)r->got, r->want, r->bound),
                       s, "combined");
    if (!side) return SPW_OK;
    spw_ref_dispatch_combine(&r->plan, s, r->top_k, (const float *const *)r->side, r->want, NULL);
    SPW_TRY_GPU(cudaMemcpy(r->got, r->side_sum[s], choices * 4, cudaMemcpyDeviceToHost), "download");
    spw_dispatch_count(
        r, spw_judge_float(r->judge, true, choices, r->ranks, (const float *)(void *)r->got, r->want, NULL),
        s, "gradients of choices");
cleanup:
    return status;
}

static spw_status check_bytes(spw_dispatch_run *r, size_t rank, spw_dispatch_counter counter, uint64_t row,
                              const char *what) {
    uint64_t bytes[SPW_WORLD_RANKS];
    spw_status result = SPW_OK;
    const spw_status status = spw_world_counter(r->world, rank, (int)counter, bytes);
    for (size_t d = 0; d < r->ranks && status == SPW_OK && result == SPW_OK; d++)
        result = spw_judge_equal(bytes[d], r->wire[rank * r->ranks + d] * row);
    if (status == SPW_OK) spw_dispatch_count(r, result, rank, what);
    return status;
}

spw_status spw_dispatch_check_counters(spw_dispatch_run *r) {
    const uint64_t row = r->row_bytes + 4 * r->scales, k = r->top_k, back = 2 * r->c->shape.hidden;
    const spw_record_scheme *p = r->c->predicted;
    const uint64_t received = r->worst * r->row_bytes;
    spw_status status = SPW_OK;
    for (size_t s = r->world->first; s < r->world->behind; s++) {
        SPW_TRY(check_bytes(r, s, SPW_COUNT_DISPATCH, p != NULL ? p->row_bytes : row + 8 * k + 4,
                            "bytes of the dispatch"));
        SPW_TRY(check_bytes(r, s, SPW_COUNT_COMBINE, p != NULL ? p->back_bytes : back + 4,
                            "bytes of the combine"));
        SPW_TRY(check_bytes(r, s, SPW_COUNT_COMBINE_GRADIENT, row + 4, "bytes of the combine's gradient"));
        SPW_TRY(check_bytes(r, s, SPW_COUNT_DISPATCH_GRADIENT, back + 4 * k + 4,
                            "bytes of the dispatch's gradient"));
        spw_dispatch_count(
            r,
            spw_judge_equal(r->dispatch->capacity[s] * r->row_bytes, p != NULL ? p->buffer_bytes : received),
            s, "bytes allocated");
        if (p == NULL) continue;
        int held = 0;
        SPW_TRY_GPU(cudaMemcpy(&held, &r->dispatch->handle[s]->offset[r->c->shape.experts / r->ranks],
                               sizeof held, cudaMemcpyDeviceToHost),
                    "download");
        spw_dispatch_count(r, spw_judge_equal((uint64_t)held, p->rows[s]), s, "rows held");
    }
cleanup:
    return status;
}
