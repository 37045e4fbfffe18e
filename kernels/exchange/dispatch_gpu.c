#include "kernels/exchange/dispatch_gpu.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <limits.h>
#include <string.h>

enum { SCALE_BLOCK = 128, FEW = 4 };

const spw_exchange_variant spw_exchange_variants[] = {
    {"stores", spw_launch_exchange_send, spw_launch_exchange_reduce, NULL},
    {"both ways", spw_launch_exchange_send, spw_launch_exchange_reduce, spw_launch_exchange_return},
    {NULL, NULL, NULL, NULL},
};

int spw_exchange_blocks(const spw_world *world) {
    const int most = spw_world_blocks(world), few = world->ranks > FEW ? (int)world->ranks : FEW;
    const bool shared = world->wait && spw_world_crowd(world) > 1;
    return shared || most <= 2 * few ? most : most - few;
}

spw_status spw_exchange_take_blocks(const spw_world *world, int asked, int *use) {
    const int most = spw_world_blocks(world);
    *use = asked > 0 ? asked : spw_exchange_blocks(world);
    if (*use <= most) return SPW_OK;
    return spw_fail(
        SPW_EARG,
        "%d blocks a rank, %zu ranks on a GPU of %d multiprocessors: with more than %d each, kernels "
        "could wait for one that finds no room",
        asked, spw_world_crowd(world), spw_device_multiprocessors(), most);
}

static size_t scales_of(const spw_dispatch *d) {
    return d->shape.element_bytes == 1 ? (d->shape.hidden + SCALE_BLOCK - 1) / SCALE_BLOCK : 0;
}

size_t spw_dispatch_row_bytes(const spw_dispatch *d) { return d->shape.hidden * d->shape.element_bytes; }

size_t spw_dispatch_buffer_bytes(const spw_dispatch *d, size_t rank) {
    return d->capacity[rank] * (spw_dispatch_row_bytes(d) + 4 * (scales_of(d) + 2 * d->shape.top_k + 1));
}

spw_received spw_dispatch_received(const spw_dispatch *d, size_t rank) {
    const size_t rows = d->capacity[rank], k = d->shape.top_k;
    spw_received r = {.rows = d->received[rank]};
    r.scale = (float *)(void *)((char *)r.rows + rows * spw_dispatch_row_bytes(d));
    r.expert = (int *)(r.scale + rows * scales_of(d));
    r.weight = (float *)(r.expert + rows * k);
    r.source = (int *)(r.weight + rows * k);
    return r;
}

static spw_status check_shape(const spw_world *world, spw_dispatch_shape s) {
    if (s.element_bytes != 1 && s.element_bytes != 2)
        return spw_fail(SPW_EARG, "elements of %zu bytes; 2 (bf16) or 1 (fp8) would be right",
                        s.element_bytes);
    if (s.hidden == 0 || s.hidden * s.element_bytes % 16 != 0 || s.hidden > 1 << 20)
        return spw_fail(SPW_EARG, "hidden %zu: a row must be a multiple of 16 bytes", s.hidden);
    if (s.experts == 0 || s.experts % world->ranks != 0 || s.experts / world->ranks > SPW_WORLD_EXPERTS)
        return spw_fail(SPW_EARG, "%zu experts on %zu ranks; a multiple of the ranks, at most %d a rank",
                        s.experts, world->ranks, SPW_WORLD_EXPERTS);
    if (s.tokens == 0 || s.top_k == 0 || s.top_k > s.experts || s.tokens * world->ranks > INT_MAX / 16 ||
        s.tokens * s.top_k > INT_MAX / 16)
        return spw_fail(SPW_EARG, "%zu tokens, top-%zu of %zu experts: out of range", s.tokens, s.top_k,
                        s.experts);
    return SPW_OK;
}

static bool is_written_back(const spw_dispatch *d) { return d->variant->back != NULL && d->world->ranks > 1; }

static size_t staged_rows(const spw_dispatch *d) { return (d->world->ranks - 1) * d->shape.tokens; }

/* A row of a combine, with the numbers beside it. */
static size_t returned_bytes(const spw_dispatch *d) { return d->shape.hidden * 2 + d->shape.top_k * 4; }

static spw_status create_stages(spw_dispatch *d) {
    const size_t flags = (size_t)spw_exchange_return_flags((int)d->shape.hidden);
    size_t bytes[2][SPW_WORLD_RANKS];
    spw_status status = SPW_OK;
    if (!is_written_back(d)) return SPW_OK;
    for (size_t r = 0; r < d->world->ranks; r++)
        bytes[0][r] = staged_rows(d) * returned_bytes(d),
        bytes[1][r] = staged_rows(d) * flags * sizeof(uint64_t);
    SPW_TRY(spw_world_allocate_flags(d->world, bytes[0], d->staged));
    SPW_TRY(spw_world_allocate_flags(d->world, bytes[1], d->arrived));
cleanup:
    return status;
}

spw_status spw_dispatch_create(spw_world *world, spw_dispatch_shape shape,
                               const spw_exchange_variant *variant, int blocks, spw_dispatch **out) {
    spw_dispatch *d = NULL;
    spw_status status = check_shape(world, shape);
    *out = NULL;
    if (status != SPW_OK) return status;
    SPW_TRY(SPW_ALLOC(1, &d));
    d->world = world, d->shape = shape, d->variant = variant;
    SPW_TRY(spw_exchange_take_blocks(world, blocks, &d->blocks));
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaMalloc((void **)&d->place[r], shape.tokens * world->ranks * sizeof(int)),
                    "allocate places");
        SPW_TRY_GPU(cudaMalloc((void **)&d->rank_tokens[r], world->ranks * sizeof(int)), "allocate counts");
        SPW_TRY_GPU(cudaMalloc((void **)&d->expert_tokens[r], shape.experts * sizeof(int)),
                    "allocate counts");
        SPW_TRY_GPU(cudaMalloc((void **)&d->handle[r], sizeof(spw_handle)), "allocate a handle");
        SPW_TRY_GPU(cudaMemset(d->handle[r], 0, sizeof(spw_handle)), "clear a handle");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "clear a handle"); /* the ranks' streams do not wait for it */
    }
    SPW_TRY(create_stages(d));
    *out = d;
    return SPW_OK;
cleanup:
    spw_dispatch_destroy(d);
    return status;
}

void spw_dispatch_destroy(spw_dispatch *d) {
    if (d == NULL) return;
    spw_world_free(d->world, d->received);
    spw_world_free(d->world, d->returned);
    spw_world_free(d->world, d->staged);
    spw_world_free(d->world, d->arrived);
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        if (spw_world_use(d->world, r) != SPW_OK) continue;
        (void)cudaFree(d->place[r]), (void)cudaFree(d->rank_tokens[r]);
        (void)cudaFree(d->expert_tokens[r]), (void)cudaFree(d->handle[r]);
    }
    spw_free(d);
}

/* The sizes are those of all ranks: every process comes to the same answer. */
static bool set_capacity(spw_dispatch *d, const size_t *capacity, size_t bytes[2][SPW_WORLD_RANKS]) {
    bool fits = true;
    for (size_t r = 0; r < d->world->ranks; r++) {
        d->capacity[r] = capacity == NULL ? d->world->ranks * d->shape.tokens : capacity[r];
        bytes[0][r] = spw_dispatch_buffer_bytes(d, r);
        bytes[1][r] = d->capacity[r] * returned_bytes(d);
        fits &= d->received[r] != NULL && bytes[0][r] <= d->room[0][r] && bytes[1][r] <= d->room[1][r];
    }
    return fits;
}

static spw_status make_room(spw_dispatch *d, const size_t *capacity, bool keeps) {
    size_t bytes[2][SPW_WORLD_RANKS];
    spw_status status = SPW_OK;
    if (set_capacity(d, capacity, bytes) && keeps) return SPW_OK;
    SPW_TRY(spw_world_synchronize(d->world));
    spw_world_free(d->world, d->received);
    spw_world_free(d->world, d->returned);
    SPW_TRY(spw_world_allocate(d->world, bytes[0], d->received));
    SPW_TRY(spw_world_allocate(d->world, bytes[1], d->returned));
    memcpy(d->room, bytes, sizeof bytes);
cleanup:
    return status;
}

spw_status spw_dispatch_room(spw_dispatch *d, const size_t *capacity) {
    return make_room(d, capacity, false);
}

static spw_send_gpu send_of(const spw_dispatch *d, const spw_dispatch_input *in, size_t rank, int parts,
                            int counter) {
    spw_send_gpu a = {.items = (int)d->shape.tokens,
                      .copies = (int)d->world->ranks,
                      .row_bytes = (int)spw_dispatch_row_bytes(d),
                      .scales = (int)scales_of(d),
                      .top_k = (int)d->shape.top_k,
                      .local = (int)(d->shape.experts / d->world->ranks),
                      .parts = parts,
                      .counter = counter,
                      .blocks = d->blocks,
                      .payload = in->x[rank],
                      .scale = in->scale[rank],
                      .expert = in->expert[rank],
                      .weight = in->weight[rank],
                      .place = d->place[rank],
                      .base = d->handle[rank]->base,
                      .handle = d->handle[rank]};
    for (size_t r = 0; r < d->world->ranks; r++)
        a.window[r] = d->received[r], a.capacity[r] = (int)d->capacity[r];
    return a;
}

static spw_status send(spw_dispatch *d, const spw_dispatch_input *in, int parts, int counter) {
    spw_status status = SPW_OK;
    if (d->shape.element_bytes == 1) parts |= SPW_SEND_SCALES;
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        const spw_send_gpu a = send_of(d, in, r, parts, counter);
        const spw_peers peers = spw_world_peers(d->world, r);
        SPW_TRY(spw_world_use(d->world, r));
        SPW_TRY_GPU(d->variant->send(&a, &peers, d->world->stream[r]), d->variant->name);
    }
    SPW_TRY(spw_world_phase(d->world));
cleanup:
    return status;
}

spw_status spw_dispatch_layout(spw_dispatch *d, const spw_dispatch_input *in) {
    spw_status status = SPW_OK;
    d->world->epoch++;
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        const spw_layout_gpu a = {.tokens = (int)d->shape.tokens,
                                  .top_k = (int)d->shape.top_k,
                                  .experts = (int)d->shape.experts,
                                  .expert = in->expert[r],
                                  .place = d->place[r],
                                  .rank_tokens = d->rank_tokens[r],
                                  .expert_tokens = d->expert_tokens[r]};
        SPW_TRY(spw_world_use(d->world, r));
        SPW_TRY_GPU(spw_launch_exchange_layout(a, spw_world_peers(d->world, r), d->world->stream[r]),
                    "layout");
    }
    SPW_TRY(spw_world_phase(d->world));
cleanup:
    return status;
}

spw_status spw_dispatch_rows(spw_dispatch *d, const spw_dispatch_input *in) {
    return send(d, in, SPW_SEND_NOTICED | SPW_SEND_CHOICES | SPW_SEND_SOURCE, SPW_COUNT_DISPATCH);
}

spw_status spw_dispatch_forward(spw_dispatch *d, const spw_dispatch_input *in) {
    const spw_status status = spw_dispatch_layout(d, in);
    return status == SPW_OK ? spw_dispatch_rows(d, in) : status;
}

spw_status spw_dispatch_forward_exact(spw_dispatch *d, const spw_dispatch_input *in) {
    uint64_t rows[SPW_WORLD_RANKS] = {0};
    size_t capacity[SPW_WORLD_RANKS] = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_dispatch_layout(d, in));
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        const spw_send_gpu a = send_of(d, in, r, 0, 0);
        const spw_peers peers = spw_world_peers(d->world, r);
        SPW_TRY(spw_world_use(d->world, r));
        SPW_TRY_GPU(spw_launch_exchange_notices(&a, &peers, d->world->stream[r]), "notices");
    }
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        int received = 0;
        SPW_TRY(spw_world_use(d->world, r));
        SPW_TRY_GPU(cudaStreamSynchronize(d->world->stream[r]), "wait for notices");
        SPW_TRY_GPU(cudaMemcpy(&received, &d->handle[r]->first[d->world->ranks], sizeof received,
                               cudaMemcpyDeviceToHost),
                    "read a handle");
        if (received < 0) SPW_TRY(spw_world_synchronize(d->world)); /* names the rank that never came */
        rows[r] = (uint64_t)received;
    }
    SPW_TRY(spw_world_share(d->world, rows));
    for (size_t r = 0; r < d->world->ranks; r++) capacity[r] = (size_t)rows[r];
    SPW_TRY(make_room(d, capacity, d->keeps));
    d->world->epoch++;
    SPW_TRY(send(d, in, SPW_SEND_CHOICES | SPW_SEND_SOURCE, SPW_COUNT_DISPATCH));
cleanup:
    return status;
}

spw_status spw_dispatch_again(spw_dispatch *d, const spw_dispatch_input *in, spw_dispatch_counter counter) {
    d->world->epoch++;
    return send(d, in, SPW_SEND_SOURCE, (int)counter);
}

static spw_reduce_gpu reduce_of(const spw_dispatch *d, size_t rank, spw_bf16 *y, float *side, int counter) {
    spw_reduce_gpu a = {.items = (int)d->shape.tokens,
                        .copies = (int)d->world->ranks,
                        .width = (int)d->shape.hidden,
                        .side = side == NULL ? 0 : (int)d->shape.top_k,
                        .counter = counter,
                        .blocks = d->blocks,
                        .place = d->place[rank],
                        .base = d->handle[rank]->base,
                        .y = y,
                        .side_sum = side};
    for (size_t from = 0; from < d->world->ranks; from++) {
        a.window[from] = d->returned[from], a.capacity[from] = (int)d->capacity[from];
        a.source[from] = spw_dispatch_received(d, from).source;
    }
    return a;
}

static int launch_back(const spw_dispatch *d, size_t rank, const spw_reduce_gpu *add, const spw_peers *peers,
                       int parts) {
    spw_return_gpu a = {
        .add = *add, .handle = d->handle[rank], .parts = parts, .staged_rows = (int)staged_rows(d)};
    for (size_t r = 0; r < d->world->ranks; r++) a.staged[r] = d->staged[r], a.arrived[r] = d->arrived[r];
    return d->variant->back(&a, peers, d->world->stream[rank]);
}

/* parts: of spw_return_gpu, 0 for a variant without. */
static spw_status combine(spw_dispatch *d, spw_bf16 *const *y, float *const *side,
                          spw_dispatch_counter counter, int parts) {
    spw_status status = SPW_OK;
    for (size_t r = d->world->first; r < d->world->behind; r++) {
        const spw_reduce_gpu a = reduce_of(d, r, y[r], side == NULL ? NULL : side[r], (int)counter);
        const spw_peers peers = spw_world_peers(d->world, r);
        SPW_TRY(spw_world_use(d->world, r));
        SPW_TRY_GPU(parts != 0 ? launch_back(d, r, &a, &peers, parts)
                               : d->variant->reduce(&a, &peers, d->world->stream[r]),
                    d->variant->name);
    }
    SPW_TRY(spw_world_phase(d->world));
cleanup:
    return status;
}

spw_status spw_dispatch_combine(spw_dispatch *d, spw_bf16 *const *y, float *const *side,
                                spw_dispatch_counter counter) {
    d->world->epoch++;
    if (!is_written_back(d)) return combine(d, y, side, counter, 0);
    if (d->world->wait) return combine(d, y, side, counter, SPW_RETURN_SEND | SPW_RETURN_ADD);
    const spw_status status = combine(d, y, side, counter, SPW_RETURN_SEND);
    return status == SPW_OK ? combine(d, y, side, counter, SPW_RETURN_ADD) : status;
}
