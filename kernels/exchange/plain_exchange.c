#include "kernels/exchange/plain_exchange.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

#include <limits.h>
#include <string.h>

static spw_status check_shape(const spw_world *world, spw_plain_shape s) {
    if (s.hidden == 0 || s.hidden % 8 != 0)
        return spw_fail(SPW_EARG, "hidden %zu: a multiple of 8 is needed", s.hidden);
    if (s.experts == 0 || s.experts % world->ranks != 0 || s.experts > SPW_WORLD_EXPERTS)
        return spw_fail(SPW_EARG, "%zu experts on %zu ranks; a multiple of the ranks, at most %d", s.experts,
                        world->ranks, SPW_WORLD_EXPERTS);
    if (s.kind != SPW_PLAIN_GATHER && (s.top_k == 0 || s.top_k > SPW_GPU_TOP_K_MAX))
        return spw_fail(SPW_EARG, "top-%zu; 1 to %d would be right", s.top_k, SPW_GPU_TOP_K_MAX);
    if ((s.kind == SPW_PLAIN_RAGGED && s.buffer_rows == 0) ||
        (s.kind == SPW_PLAIN_CAPACITY && s.capacity == 0) || s.sequences * s.sequence_length == 0)
        return spw_fail(SPW_EARG, "an exchange of nothing");
    return SPW_OK;
}

/* Places that no routing changes. */
static spw_status fixed_places(spw_plain_exchange *e, size_t rank) {
    const spw_plain_shape s = e->shape;
    const size_t ranks = e->world->ranks, local = s.experts / ranks;
    int *place = NULL, *to = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(e->items * e->copies, &place));
    SPW_TRY(SPW_ALLOC(e->items * e->copies, &to));
    for (size_t i = 0; i < e->items; i++) {
        for (size_t f = 0; f < e->copies; f++) {
            if (s.kind == SPW_PLAIN_GATHER) {
                place[i * e->copies + f] = (int)(rank * e->tokens + i), to[i * e->copies + f] = (int)f;
                continue;
            }
            const size_t position = i % s.capacity, sequence = i / s.capacity % s.sequences,
                         expert = i / (s.capacity * s.sequences);
            to[i] = (int)(expert / local);
            place[i] =
                (int)(((expert % local * ranks + rank) * s.sequences + sequence) * s.capacity + position);
        }
    }
    SPW_TRY_GPU(
        cudaMemcpy(e->place[rank], place, e->items * e->copies * sizeof *place, cudaMemcpyHostToDevice),
        "upload places");
    SPW_TRY_GPU(cudaMemcpy(e->to[rank], to, e->items * e->copies * sizeof *to, cudaMemcpyHostToDevice),
                "upload places");
    SPW_TRY_GPU(cudaDeviceSynchronize(), "upload places"); /* the ranks' streams do not wait for it */
cleanup:
    spw_free(to), spw_free(place);
    return status;
}

static spw_status create_rank(spw_plain_exchange *e, size_t rank) {
    const spw_plain_shape s = e->shape;
    const size_t choices = e->tokens * s.top_k, chunks = (choices + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_plan_gpu *p = &e->plan[rank];
    spw_capacity_gpu *c = &e->slots[rank];
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(e->world, rank));
    SPW_TRY_GPU(cudaMalloc((void **)&e->place[rank], e->items * e->copies * 4), "allocate places");
    SPW_TRY_GPU(cudaMalloc((void **)&e->to[rank], e->items * e->copies * 4), "allocate places");
    if (s.kind == SPW_PLAIN_RAGGED) {
        *p = (spw_plan_gpu){.assignments = (int)choices, .experts = (int)s.experts};
        SPW_TRY_GPU(cudaMalloc((void **)&p->chunk_count, chunks * s.experts * 4), "allocate a plan");
        SPW_TRY_GPU(cudaMalloc((void **)&p->count, s.experts * 4), "allocate a plan");
        SPW_TRY_GPU(cudaMalloc((void **)&p->offset, (s.experts + 1) * 4), "allocate a plan");
        SPW_TRY_GPU(cudaMalloc((void **)&p->row, choices * 4), "allocate a plan");
        SPW_TRY_GPU(cudaMalloc((void **)&p->assignment, choices * 4), "allocate a plan");
        SPW_TRY_GPU(cudaMalloc((void **)&e->offset[rank], (s.experts + 1) * 4), "allocate offsets");
        SPW_TRY_GPU(cudaMalloc((void **)&e->local[rank], e->items * s.hidden * 2), "allocate rows");
        return SPW_OK;
    }
    if (s.kind == SPW_PLAIN_CAPACITY) {
        *c = (spw_capacity_gpu){.groups = (int)s.sequences,
                                .assignments_per_group = (int)(s.sequence_length * s.top_k),
                                .experts = (int)s.experts,
                                .capacity = (int)s.capacity};
        SPW_TRY_GPU(cudaMalloc((void **)&c->row, choices * 4), "allocate slots");
        SPW_TRY_GPU(cudaMalloc((void **)&c->assignment, e->items * 4), "allocate slots");
        SPW_TRY_GPU(cudaMalloc((void **)&e->local[rank], e->items * s.hidden * 2), "allocate slots");
    }
    SPW_TRY(fixed_places(e, rank));
cleanup:
    return status;
}

spw_status spw_plain_create(spw_world *world, spw_plain_shape shape, const spw_exchange_variant *variant,
                            int blocks, spw_plain_exchange **out) {
    spw_plain_exchange *e = NULL;
    size_t received[SPW_WORLD_RANKS], returned[SPW_WORLD_RANKS];
    spw_status status = check_shape(world, shape);
    *out = NULL;
    if (status != SPW_OK) return status;
    SPW_TRY(SPW_ALLOC(1, &e));
    e->world = world, e->shape = shape, e->variant = variant;
    SPW_TRY(spw_exchange_take_blocks(world, blocks, &e->blocks));
    e->tokens = shape.sequences * shape.sequence_length;
    const size_t slots = shape.experts * shape.sequences * shape.capacity;
    const struct {
        size_t rows, items, copies;
    } sizes[] = {[SPW_PLAIN_RAGGED] = {shape.buffer_rows, e->tokens * shape.top_k, 1},
                 [SPW_PLAIN_CAPACITY] = {slots, slots, 1},
                 [SPW_PLAIN_GATHER] = {world->ranks * e->tokens, e->tokens, world->ranks}};
    e->rows = sizes[shape.kind].rows, e->items = sizes[shape.kind].items,
    e->copies = sizes[shape.kind].copies;
    if (e->rows > INT_MAX / 2 || e->items * e->copies > INT_MAX / 2)
        SPW_TRY(spw_fail(SPW_EARG, "%zu rows are too many", e->rows));
    for (size_t r = 0; r < world->ranks; r++) {
        received[r] = e->rows * (shape.hidden * 2 + shape.words * 4);
        returned[r] = e->rows * (shape.hidden * 2 + shape.side * 4);
    }
    SPW_TRY(spw_world_allocate(world, received, e->received));
    SPW_TRY(spw_world_allocate(world, returned, e->returned));
    for (size_t r = world->first; r < world->behind; r++) SPW_TRY(create_rank(e, r));
    *out = e;
    return SPW_OK;
cleanup:
    spw_plain_destroy(e);
    return status;
}

void spw_plain_destroy(spw_plain_exchange *e) {
    if (e == NULL) return;
    spw_world_free(e->world, e->received);
    spw_world_free(e->world, e->returned);
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        void *memory[] = {e->place[r],      e->to[r],
                          e->offset[r],     e->plan[r].chunk_count,
                          e->plan[r].count, e->plan[r].offset,
                          e->plan[r].row,   e->plan[r].assignment,
                          e->slots[r].row,  e->slots[r].assignment,
                          e->local[r]};
        if (spw_world_use(e->world, r) != SPW_OK) continue;
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
    }
    spw_free(e);
}

/* --- Forward --- */

/* RAGGED: every rank tells all how many rows it has for each expert. */
static spw_status assign_ragged(spw_plain_exchange *e) {
    spw_ragged_gpu a[SPW_WORLD_RANKS];
    spw_status status = SPW_OK;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        const spw_plan_gpu *p = &e->plan[r];
        a[r] = (spw_ragged_gpu){.tokens = (int)e->tokens,
                                .top_k = (int)e->shape.top_k,
                                .experts = (int)e->shape.experts,
                                .capacity = (int)e->rows,
                                .blocks = e->blocks,
                                .expert = p->expert,
                                .row = p->row,
                                .count = p->count,
                                .offset = p->offset,
                                .place = e->place[r],
                                .to = e->to[r],
                                .received = e->offset[r]};
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(spw_launch_plan(*p, e->world->stream[r]), "plan");
        SPW_TRY_GPU(spw_launch_ragged_publish(a[r], spw_world_peers(e->world, r), e->world->stream[r]),
                    "publish");
    }
    SPW_TRY(spw_world_phase(e->world));
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(spw_launch_ragged_assign(a[r], spw_world_peers(e->world, r), e->world->stream[r]),
                    "assign");
    }
cleanup:
    return status;
}

spw_status spw_plain_assign(spw_plain_exchange *e, const int *const *expert) {
    spw_status status = SPW_OK;
    e->world->epoch++;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        e->plan[r].expert = e->slots[r].expert = expert[r];
        if (e->shape.kind != SPW_PLAIN_CAPACITY) continue;
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(spw_launch_capacity(e->slots[r], e->world->stream[r]), "capacity");
    }
    if (e->shape.kind == SPW_PLAIN_RAGGED) SPW_TRY(assign_ragged(e));
cleanup:
    return status;
}

const int *spw_plain_choice_rows(const spw_plain_exchange *e, size_t rank) {
    return e->shape.kind == SPW_PLAIN_RAGGED ? e->plan[rank].row : e->slots[rank].row;
}

spw_status spw_plain_fan_out(spw_plain_exchange *e, const spw_bf16 *const *x) {
    const int width = (int)e->shape.hidden;
    spw_status status = SPW_OK;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        gpu_stream stream = e->world->stream[r];
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(spw_launch_fan_out((int)e->tokens, width, (int)e->shape.top_k,
                                       spw_plain_choice_rows(e, r), x[r], e->local[r], stream),
                    "fan-out");
        if (e->shape.kind == SPW_PLAIN_CAPACITY)
            SPW_TRY_GPU(
                spw_launch_fan_out_clear((int)e->items, width, e->slots[r].assignment, e->local[r], stream),
                "clear slots");
    }
cleanup:
    return status;
}

spw_status spw_plain_send_rows(spw_plain_exchange *e, const spw_bf16 *const *rows, const float *const *words,
                               void *const *into, spw_dispatch_counter counter) {
    spw_status status = SPW_OK;
    e->world->epoch++;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        spw_send_gpu a = {.items = (int)e->items,
                          .copies = (int)e->copies,
                          .row_bytes = (int)e->shape.hidden * 2,
                          .scales = (int)e->shape.words,
                          .local = (int)(e->shape.experts / e->world->ranks),
                          .parts = words != NULL ? SPW_SEND_SCALES : 0,
                          .counter = (int)counter,
                          .blocks = e->blocks,
                          .spread = e->copies == 1 ? (int)e->world->ranks : 1,
                          .payload = (const unsigned char *)rows[r],
                          .scale = words != NULL ? words[r] : NULL,
                          .place = e->place[r],
                          .to = e->to[r]};
        const spw_peers peers = spw_world_peers(e->world, r);
        for (size_t d = 0; d < e->world->ranks; d++)
            a.window[d] = into != NULL ? into[d] : e->received[d], a.capacity[d] = (int)e->rows;
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(e->variant->send(&a, &peers, e->world->stream[r]), e->variant->name);
    }
    SPW_TRY(spw_world_phase(e->world));
cleanup:
    return status;
}

spw_status spw_plain_send(spw_plain_exchange *e, const spw_bf16 *const *x, const int *const *expert,
                          const float *const *words) {
    const bool gather = e->shape.kind == SPW_PLAIN_GATHER;
    spw_status status = SPW_OK;
    if (!gather) SPW_TRY(spw_plain_assign(e, expert));
    if (!gather) SPW_TRY(spw_plain_fan_out(e, x));
    SPW_TRY(spw_plain_send_rows(e, gather ? x : (const spw_bf16 *const *)e->local, words, NULL,
                                SPW_COUNT_DISPATCH));
cleanup:
    return status;
}

/* --- Back --- */

/* `rows` of `width` elements, or with width 0 the numbers behind them. */
static spw_status fetch(spw_plain_exchange *e, spw_bf16 *const *rows, float *const *side,
                        spw_dispatch_counter counter) {
    const size_t row_bytes = e->shape.hidden * 2;
    spw_status status = SPW_OK;
    e->world->epoch++;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        spw_reduce_gpu a = {.items = (int)e->items,
                            .copies = (int)e->copies,
                            .width = rows != NULL ? (int)e->shape.hidden : 0,
                            .side = side != NULL ? (int)e->shape.side : 0,
                            .counter = (int)counter,
                            .blocks = e->blocks,
                            .spread = e->copies == 1 ? (int)e->world->ranks : 1,
                            .place = e->place[r],
                            .to = e->to[r],
                            .y = rows != NULL ? rows[r] : NULL,
                            .side_sum = side != NULL ? side[r] : NULL};
        const spw_peers peers = spw_world_peers(e->world, r);
        for (size_t d = 0; d < e->world->ranks; d++) {
            a.window[d] = (const unsigned char *)e->returned[d] + (rows != NULL ? 0 : e->rows * row_bytes);
            a.capacity[d] = (int)e->rows;
        }
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(e->variant->reduce(&a, &peers, e->world->stream[r]), e->variant->name);
    }
    SPW_TRY(spw_world_phase(e->world));
cleanup:
    return status;
}

spw_status spw_plain_return_rows(spw_plain_exchange *e, spw_bf16 *const *rows, spw_dispatch_counter counter) {
    return fetch(e, rows, NULL, counter);
}

spw_status spw_plain_return_side(spw_plain_exchange *e, float *const *sum, spw_dispatch_counter counter) {
    if (e->shape.side == 0) return spw_fail(SPW_EARG, "nothing stands behind the rows of this exchange");
    return fetch(e, NULL, sum, counter);
}

spw_status spw_plain_fan_in(spw_plain_exchange *e, const float *const *weight, spw_bf16 *const *y) {
    spw_status status = SPW_OK;
    for (size_t r = e->world->first; r < e->world->behind; r++) {
        SPW_TRY(spw_world_use(e->world, r));
        SPW_TRY_GPU(
            spw_launch_combine((spw_combine_gpu){(int)e->tokens, (int)e->shape.hidden, (int)e->shape.top_k,
                                                 spw_plain_choice_rows(e, r),
                                                 weight != NULL ? weight[r] : NULL, e->local[r], y[r]},
                               e->world->stream[r]),
            "combine");
    }
cleanup:
    return status;
}

spw_status spw_plain_return(spw_plain_exchange *e, const float *const *weight, spw_bf16 *const *y,
                            spw_dispatch_counter counter) {
    if (e->shape.kind == SPW_PLAIN_GATHER) return spw_plain_return_rows(e, y, counter);
    const spw_status status = spw_plain_return_rows(e, e->local, counter);
    return status == SPW_OK ? spw_plain_fan_in(e, weight, y) : status;
}
