#include "kernels/verify/ranks/verify_dispatch.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/verify/ranks/verify_dispatch_checks.h"
#include "reference/bf16.h"
#include "reference/dispatch.h"
#include "reference/float8.h"
#include "reference/schemes/execution.h"

#include <stdlib.h>
#include <string.h>

enum { NARROW = 8 }; /* width of the executed reference that only counts */

/* --- Data --- */

static spw_status create_host(spw_dispatch_run *r) {
    const spw_dispatch_shape s = r->c->shape;
    const size_t all = r->ranks * r->tokens;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(all * r->top_k, &r->expert));
    SPW_TRY(SPW_ALLOC(all * r->top_k, &r->weight));
    SPW_TRY(SPW_ALLOC(all * r->row_bytes, &r->x));
    SPW_TRY(SPW_ALLOC(all * (r->scales + 1), &r->scale));
    SPW_TRY(SPW_ALLOC(r->ranks, &r->rows));
    SPW_TRY(SPW_ALLOC(r->ranks, &r->side));
    for (size_t d = 0; d < r->ranks; d++) {
        SPW_TRY(SPW_ALLOC(r->worst * s.hidden, &r->rows[d]));
        SPW_TRY(SPW_ALLOC(r->worst * r->top_k, &r->side[d]));
    }
    SPW_TRY(SPW_ALLOC(
        r->worst * (r->row_bytes + 4 * (r->scales + 2 * r->top_k + 1)) + r->tokens * s.hidden * 2, &r->got));
    SPW_TRY(SPW_ALLOC(r->tokens * s.hidden, &r->want));
    SPW_TRY(SPW_ALLOC(r->tokens * s.hidden, &r->bound));
    SPW_TRY(SPW_ALLOC(r->ranks * r->ranks, &r->wire));
cleanup:
    return status;
}

static spw_status create_device(spw_dispatch_run *r) {
    const spw_dispatch_shape s = r->c->shape;
    spw_status status = SPW_OK;
    for (size_t rank = r->world->first; rank < r->world->behind; rank++) {
        const size_t bytes[4] = {r->tokens * r->row_bytes, r->tokens * r->scales * 4,
                                 r->tokens * r->top_k * 4, r->tokens * r->top_k * 4};
        SPW_TRY(spw_world_use(r->world, rank));
        for (int i = 0; i < 4; i++) SPW_TRY_GPU(cudaMalloc(&r->memory[rank][i], bytes[i] + 16), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&r->y[rank], r->tokens * s.hidden * 2), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&r->side_sum[rank], r->tokens * r->top_k * 4), "allocate");
        r->in.x[rank] = r->memory[rank][0], r->in.scale[rank] = r->memory[rank][1];
        r->in.expert[rank] = r->memory[rank][2], r->in.weight[rank] = r->memory[rank][3];
    }
cleanup:
    return status;
}

static void destroy(spw_dispatch_run *r) {
    for (size_t rank = r->world->first; rank < r->world->behind; rank++) {
        if (spw_world_use(r->world, rank) != SPW_OK) continue;
        for (int i = 0; i < 4; i++) (void)cudaFree(r->memory[rank][i]);
        (void)cudaFree(r->y[rank]), (void)cudaFree(r->side_sum[rank]);
    }
    for (size_t d = 0; d < r->ranks; d++) {
        if (r->rows != NULL) spw_free(r->rows[d]);
        if (r->side != NULL) spw_free(r->side[d]);
    }
    spw_dispatch_destroy(r->dispatch);
    spw_ref_dispatch_destroy(&r->plan);
    spw_free(r->expert), spw_free(r->weight), spw_free(r->x), spw_free(r->scale), spw_free(r->rows),
        spw_free(r->side);
    spw_free(r->got), spw_free(r->want), spw_free(r->bound), spw_free(r->wire);
}

/* It has arrived when this returns: the stream of a rank does not wait for the copies of the host. */
static spw_status upload(const spw_dispatch_run *r, size_t rank, void *to, const void *from, size_t bytes) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(r->world, rank));
    SPW_TRY_GPU(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "upload");
    SPW_TRY_GPU(cudaStreamSynchronize(NULL), "upload");
cleanup:
    return status;
}

static float number(bool whole, uint64_t seed, size_t i) {
    return spw_number(whole ? SPW_NUMBERS_INTEGER : SPW_NUMBERS_BELL, seed, i);
}

/* Payloads of all ranks: any bits of bf16 but NaN, or fp8 of numbers by the reference. */
static spw_status fill_payload(spw_dispatch_run *r, uint64_t seed) {
    const size_t elements = r->ranks * r->tokens * r->c->shape.hidden;
    float *value = NULL;
    spw_status status = SPW_OK;
    if (r->c->shape.element_bytes == 2) {
        spw_bf16 *x = (spw_bf16 *)(void *)r->x;
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < elements; i++) x[i] = spw_bf16_from_float(number(false, seed, i));
    } else {
        SPW_TRY(SPW_ALLOC(elements, &value));
        for (size_t i = 0; i < elements; i++) value[i] = number(false, seed, i);
        spw_float8_quantize_rows(value, r->ranks * r->tokens, r->c->shape.hidden, r->x, r->scale);
    }
    for (size_t rank = r->world->first; rank < r->world->behind; rank++) {
        SPW_TRY(upload(r, rank, r->memory[rank][0], r->x + rank * r->tokens * r->row_bytes,
                       r->tokens * r->row_bytes));
        SPW_TRY(upload(r, rank, r->memory[rank][1], r->scale + rank * r->tokens * r->scales,
                       r->tokens * r->scales * 4));
    }
cleanup:
    spw_free(value);
    return status;
}

/* What every rank returns, whatever came to it. */
static spw_status fill_returned(spw_dispatch_run *r, bool whole) {
    const size_t hidden = r->c->shape.hidden, rows = r->worst;
    spw_bf16 *bits = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(rows * hidden, &bits));
    for (size_t d = 0; d < r->ranks; d++) {
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < rows * hidden; i++) {
            bits[i] = spw_bf16_from_float(number(whole, 1000 + d, i));
            r->rows[d][i] = spw_bf16_to_float(bits[i]);
        }
        for (size_t i = 0; i < rows * r->top_k; i++) r->side[d][i] = number(true, 2000 + d, i);
        if (d < r->world->first || d >= r->world->behind) continue;
        const size_t capacity = r->dispatch->capacity[d];
        unsigned char *to = r->dispatch->returned[d];
        SPW_TRY(upload(r, d, to, bits, capacity * hidden * 2));
        SPW_TRY(upload(r, d, to + capacity * hidden * 2, r->side[d], capacity * r->top_k * 4));
    }
cleanup:
    spw_free(bits);
    return status;
}

/* Rows of every pair, by the executed reference: it runs the whole layer, NARROW wide, and its fabric counts bytes. */
static spw_status executed_wire(spw_dispatch_run *r) {
    const spw_dispatch_shape *s = &r->c->shape;
    const spw_execution_shape shape = {.ranks = r->ranks,
                                       .experts = s->experts,
                                       .top_k = s->top_k,
                                       .hidden = NARROW,
                                       .ffn = NARROW,
                                       .sequences = 1,
                                       .sequence_length = s->tokens,
                                       .element_bytes = 2};
    const size_t all = r->ranks * s->tokens, matrix = s->experts * NARROW * NARROW;
    const uint64_t row = (uint64_t)NARROW * 2 + 8 * s->top_k + 4;
    float *numbers = NULL, *out = NULL;
    uint64_t *counts = NULL;
    spw_arena *arena = NULL;
    spw_fabric *fabric = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(2 * all * NARROW + 3 * matrix, &numbers));
    SPW_TRY(SPW_ALLOC(2 * all * NARROW + all * s->top_k + 3 * matrix, &out));
    SPW_TRY(SPW_ALLOC(2 * r->ranks, &counts));
    SPW_TRY(spw_arena_create(r->ranks, &arena));
    SPW_TRY(spw_fabric_create(r->ranks, &fabric));
    float *w = numbers + 2 * all * NARROW, *dw = out + 2 * all * NARROW + all * s->top_k;
    const spw_execution_input input = {.expert = r->expert,
                                       .weight = r->weight,
                                       .x = numbers,
                                       .dy = numbers + all * NARROW,
                                       .weights = {w, w + matrix, w + 2 * matrix}};
    const spw_execution_output output = {.y = out,
                                         .dx = out + all * NARROW,
                                         .d_weight = out + 2 * all * NARROW,
                                         .gradients = {dw, dw + matrix, dw + 2 * matrix},
                                         .rows = counts,
                                         .dropped = counts + r->ranks};
    SPW_TRY(spw_execute(spw_executor_find("gmm-deepep"), &shape, &input, &output, arena, fabric));
    for (size_t s_ = 0; s_ < r->ranks; s_++) {
        for (size_t d = 0; d < r->ranks; d++)
            r->wire[s_ * r->ranks + d] = spw_fabric_bytes(fabric, "dispatch", s_, d) / row;
    }
cleanup:
    spw_fabric_destroy(fabric);
    spw_arena_destroy(arena);
    spw_free(counts), spw_free(out), spw_free(numbers);
    return status;
}

/* Choices of all ranks, the reference's plan, and clean buffers and counters. */
static spw_status begin(spw_dispatch_run *r, uint64_t seed) {
    const size_t choices = r->tokens * r->top_k;
    spw_status status = SPW_OK;
    for (size_t s = 0; s < r->ranks; s++) {
        if (r->c->expert != NULL)
            memcpy(r->expert + s * choices, r->c->expert + s * choices, choices * sizeof *r->expert);
        else
            spw_choices_fill(r->c->routing, r->tokens, r->top_k, r->c->shape.experts, r->ranks, seed * 64 + s,
                             r->expert + s * choices);
    }
    for (size_t i = 0; i < r->ranks * choices; i++) r->weight[i] = number(false, seed + 7, i);
    spw_ref_dispatch_destroy(&r->plan);
    SPW_TRY(spw_ref_dispatch_create(r->ranks, r->tokens, r->top_k, r->c->shape.experts, r->expert, &r->plan));
    for (size_t i = 0; i < r->ranks * r->ranks; i++)
        r->wire[i] =
            r->c->predicted != NULL ? r->c->predicted->wire[i / r->ranks][i % r->ranks] : r->plan.sent[i];
    for (size_t rank = r->world->first; rank < r->world->behind; rank++) {
        SPW_TRY(upload(r, rank, r->memory[rank][2], r->expert + rank * choices, choices * 4));
        SPW_TRY(upload(r, rank, r->memory[rank][3], r->weight + rank * choices, choices * 4));
    }
    SPW_TRY(spw_world_clear_counters(r->world));
cleanup:
    return status;
}

static spw_status poison(spw_dispatch_run *r) {
    spw_status status = SPW_OK;
    for (size_t rank = r->world->first; rank < r->world->behind; rank++) {
        SPW_TRY(spw_world_use(r->world, rank));
        SPW_TRY_GPU(
            cudaMemset(r->dispatch->received[rank], 0xff, spw_dispatch_buffer_bytes(r->dispatch, rank)),
            "poison");
        SPW_TRY_GPU(cudaMemset(r->y[rank], 0xff, r->tokens * r->c->shape.hidden * 2), "poison");
        SPW_TRY_GPU(cudaMemset(r->side_sum[rank], 0xff, r->tokens * r->top_k * 4), "poison");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "poison");
    }
cleanup:
    return status;
}

/* --- The exchanges, each checked at once --- */

static spw_status backward(spw_dispatch_run *r, uint64_t seed, bool whole) {
    spw_status status = SPW_OK;
    SPW_TRY(fill_payload(r, seed + 3));
    SPW_TRY(spw_world_share(r->world, NULL));
    SPW_TRY(spw_dispatch_again(r->dispatch, &r->in, SPW_COUNT_COMBINE_GRADIENT));
    SPW_TRY(spw_world_synchronize(r->world));
    for (size_t d = r->world->first; d < r->world->behind; d++)
        SPW_TRY(spw_dispatch_check_received(r, d, true, "rows again"));
    SPW_TRY(poison(r)); /* y and side_sum; the handle's sources are needed: */
    SPW_TRY(spw_world_share(r->world, NULL));
    SPW_TRY(spw_dispatch_again(r->dispatch, &r->in, SPW_COUNT_OTHER));
    SPW_TRY(spw_dispatch_combine(r->dispatch, r->y, r->side_sum, SPW_COUNT_DISPATCH_GRADIENT));
    SPW_TRY(spw_world_synchronize(r->world));
    for (size_t s = r->world->first; s < r->world->behind; s++)
        SPW_TRY(spw_dispatch_check_combined(r, s, whole, true));
cleanup:
    return status;
}

static spw_status exact(spw_dispatch_run *r) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_share(r->world, NULL));
    SPW_TRY(spw_dispatch_forward_exact(r->dispatch, &r->in));
    SPW_TRY(fill_returned(r, false));
    SPW_TRY(spw_world_share(r->world, NULL)); /* all have filled */
    SPW_TRY(spw_dispatch_combine(r->dispatch, r->y, NULL, SPW_COUNT_OTHER));
    SPW_TRY(spw_world_synchronize(r->world));
    for (size_t d = r->world->first; d < r->world->behind; d++) {
        uint64_t rows = 0;
        for (size_t s = 0; s < r->ranks; s++) rows += r->wire[s * r->ranks + d];
        spw_dispatch_count(r, spw_judge_equal(r->dispatch->capacity[d], rows), d, "rows of the exact buffer");
        SPW_TRY(spw_dispatch_check_received(r, d, true, "rows in exact buffers"));
        SPW_TRY(spw_dispatch_check_combined(r, d, false, false));
    }
cleanup:
    return status;
}

static spw_status once(spw_dispatch_run *r, uint64_t seed, bool whole) {
    spw_status status = SPW_OK;
    SPW_TRY(begin(r, seed));
    SPW_TRY(poison(r));
    SPW_TRY(
        spw_world_share(r->world, NULL)); /* processes check at their own pace; kernels do not wait long */
    SPW_TRY(spw_dispatch_forward(r->dispatch, &r->in));
    SPW_TRY(spw_world_synchronize(r->world));
    for (size_t d = r->world->first; d < r->world->behind; d++) {
        SPW_TRY(spw_dispatch_check_layout(r, d));
        SPW_TRY(spw_dispatch_check_received(r, d, true, "rows"));
    }
    SPW_TRY(spw_world_share(r->world, NULL));
    SPW_TRY(spw_dispatch_combine(r->dispatch, r->y, NULL, SPW_COUNT_COMBINE));
    SPW_TRY(spw_world_synchronize(r->world));
    for (size_t s = r->world->first; s < r->world->behind; s++)
        SPW_TRY(spw_dispatch_check_combined(r, s, whole, false));
cleanup:
    return status;
}

spw_status spw_verify_dispatch(spw_world *world, const spw_dispatch_case *c,
                               const spw_exchange_variant *variant, size_t repetitions, spw_judge *judge) {
    const bool whole = repetitions > 1;
    spw_status status = SPW_OK;
    spw_dispatch_run *r = NULL;
    SPW_TRY(SPW_ALLOC(1, &r));
    *r = (spw_dispatch_run){.world = world,
                            .c = c,
                            .judge = judge,
                            .ranks = world->ranks,
                            .tokens = c->shape.tokens,
                            .top_k = c->shape.top_k};
    SPW_TRY(spw_dispatch_create(world, c->shape, variant, 0, &r->dispatch));
    r->row_bytes = spw_dispatch_row_bytes(r->dispatch), r->worst = r->ranks * r->tokens;
    r->scales = c->shape.element_bytes == 1 ? (c->shape.hidden + SPW_FLOAT8_BLOCK - 1) / SPW_FLOAT8_BLOCK : 0;
    SPW_TRY(create_host(r));
    SPW_TRY(create_device(r));
    SPW_TRY(spw_dispatch_room(r->dispatch, NULL));
    SPW_TRY(fill_payload(r, 1));
    SPW_TRY(fill_returned(r, whole));
    for (size_t i = 0; i < repetitions; i++) {
        SPW_TRY(once(r, i, whole));
        if (whole) continue;
        if (c->predicted == NULL) SPW_TRY(executed_wire(r));
        SPW_TRY(backward(r, i, whole));
        SPW_TRY(spw_dispatch_check_counters(r));
        SPW_TRY(exact(r));
    }
cleanup:
    if (r != NULL) destroy(r);
    spw_free(r);
    return status;
}
