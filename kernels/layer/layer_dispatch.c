/* gmm-deepep and deepep (docs/schemes.md, sections 3 and 4): a token travels once to every rank that has one of its
 * experts, is fanned out there to the rows of its choices, and their weighted sum travels back. */
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

static size_t worst_rows(const spw_layer_gpu *l) {
    const size_t top_k = l->form.plain.top_k;
    return l->world->ranks * l->tokens * (l->local < top_k ? l->local : top_k);
}

static size_t exchange_bytes(const spw_layer_gpu *l) {
    const size_t top_k = l->form.plain.top_k, row = l->form.plain.hidden * 2;
    return l->world->ranks * l->tokens * (row + 8 * top_k + 4 + row + 4 * top_k + 8 * top_k);
}

static spw_status create(spw_layer_gpu *l, const spw_exchange_variant *variant) {
    const spw_plain_shape s = l->form.plain;
    const spw_dispatch_shape shape = {l->tokens, s.top_k, s.experts, s.hidden, 2};
    return spw_dispatch_create(l->world, shape, variant, 0, &l->dispatch);
}

static spw_status create_worst(spw_layer_gpu *l, const spw_exchange_variant *variant) {
    const spw_status status = create(l, variant);
    return status == SPW_OK ? spw_dispatch_room(l->dispatch, NULL) : status;
}

static spw_status create_exact(spw_layer_gpu *l, const spw_exchange_variant *variant) {
    const spw_status status = create(l, variant);
    if (status == SPW_OK) l->dispatch->keeps = true;
    return status;
}

static spw_status create_rank(spw_layer_gpu *l, size_t rank) {
    return spw_gpu_layer_create_plan(l, rank, l->world->ranks * l->tokens * l->form.plain.top_k);
}

/* Rows that do not come have no choices. */
static spw_status dispatch_worst(spw_layer_gpu *l, const spw_dispatch_input *in) {
    const size_t choices = l->world->ranks * l->tokens * l->form.plain.top_k;
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(cudaMemsetAsync(spw_dispatch_received(l->dispatch, r).expert, 0xff, choices * 4,
                                    l->world->stream[r]),
                    "no choices yet");
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_forward(l->dispatch, in));
cleanup:
    return status;
}

/* The host learns how many tokens come, and with their notices how many rows they fan out to. */
static spw_status dispatch_exact(spw_layer_gpu *l, const spw_dispatch_input *in) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_dispatch_forward_exact(l->dispatch, in));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        int rows = 0;
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(
            cudaMemcpy(&rows, &l->dispatch->handle[r]->offset[l->local], sizeof rows, cudaMemcpyDeviceToHost),
            "read a handle");
        SPW_TRY(spw_gpu_layer_make_room(l, r, (size_t)rows));
    }
cleanup:
    return status;
}

/* The tokens that came stay for the backward pass, in which others take their places. */
static spw_status keep_tokens(spw_layer_gpu *l, size_t r, const void *from) {
    spw_layer_rank *k = &l->rank[r];
    const size_t tokens = l->dispatch->capacity[r], bytes = tokens * l->form.plain.hidden * 2;
    spw_status status = SPW_OK;
    if (tokens > k->token_room) {
        (void)cudaFree(k->token);
        k->token = NULL, k->token_room = 0;
        SPW_TRY_GPU(cudaMalloc((void **)&k->token, bytes), "allocate tokens");
        k->token_room = tokens;
    }
    SPW_TRY_GPU(cudaMemcpyAsync(k->token, from, bytes, cudaMemcpyDeviceToDevice, l->world->stream[r]),
                "keep tokens");
cleanup:
    return status;
}

static spw_gemm_rows rows_of(const spw_layer_gpu *l, size_t r) {
    return (spw_gemm_rows){l->rank[r].plan.assignment, l->form.plain.top_k, l->dispatch->capacity[r]};
}

static spw_status forward(spw_layer_gpu *l, const spw_layer_pass *pass,
                          spw_status (*send)(spw_layer_gpu *, const spw_dispatch_input *)) {
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k;
    spw_dispatch_input in = {.x = {NULL}};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++)
        in.x[r] = pass->x[r], in.expert[r] = pass->expert[r], in.weight[r] = pass->weight[r];
    SPW_TRY(send(l, &in));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        spw_layer_rank *k = &l->rank[r];
        const spw_received got = spw_dispatch_received(l->dispatch, r);
        const int tokens = (int)l->dispatch->capacity[r];
        gpu_stream stream = l->world->stream[r];
        SPW_TRY(spw_world_use(l->world, r));
        k->plan.assignments = tokens * top_k, k->plan.expert = got.expert;
        SPW_TRY_GPU(spw_launch_plan(k->plan, stream), "plan");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_PLAN));
        if (l->fused)
            SPW_TRY(keep_tokens(l, r, got.rows));
        else
            SPW_TRY_GPU(spw_launch_fan_out(tokens, width, top_k, k->plan.row, got.rows, k->x, stream),
                        "fan-out");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_OUT));
        SPW_TRY(spw_gpu_layer_experts_forward(
            l, r, (spw_layer_operands){.x = l->fused ? k->token : k->x, .rows = rows_of(l, r)}, k->y));
        SPW_TRY_GPU(spw_launch_combine((spw_combine_gpu){tokens, width, top_k, k->plan.row, got.weight, k->y,
                                                         l->dispatch->returned[r]},
                                       stream),
                    "fan-in");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_IN));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_combine(l->dispatch, pass->y, NULL, SPW_COUNT_COMBINE));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE));
cleanup:
    return status;
}

static spw_status forward_worst(spw_layer_gpu *l, const spw_layer_pass *pass) {
    return forward(l, pass, dispatch_worst);
}
static spw_status forward_exact(spw_layer_gpu *l, const spw_layer_pass *pass) {
    return forward(l, pass, dispatch_exact);
}

/* dx of the rows and d_weight of the choices that came, of gradients of the sums of the tokens that came. */
static spw_status backward_fused(const spw_layer_gpu *l, size_t r, const spw_received *got, float *d_weight) {
    const spw_layer_rank *k = &l->rank[r];
    const int choices = (int)(l->dispatch->capacity[r] * l->form.plain.top_k);
    const int parts = (int)((l->form.ffn + SPW_GEMM_ROW_SUM_TILE - 1) / SPW_GEMM_ROW_SUM_TILE);
    const spw_layer_operands operands = {
        .x = k->token, .dy = got->rows, .rows = rows_of(l, r), .weight = got->weight};
    spw_status status = SPW_OK;
    SPW_TRY(spw_gpu_layer_experts_backward(l, r, operands, k->dx));
    SPW_TRY_GPU(spw_launch_row_sums(choices, (int)k->rows, parts, k->plan.row,
                                    (const float *)(const void *)k->row_sum, d_weight, l->world->stream[r]),
                "gradients of choices");
    SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_ROUTER_GRADIENT));
cleanup:
    return status;
}

static spw_status backward_plain(const spw_layer_gpu *l, size_t r, const spw_received *got, float *d_weight) {
    const spw_layer_rank *k = &l->rank[r];
    spw_status status = SPW_OK;
    SPW_TRY_GPU(spw_launch_combine_gradient((int)l->dispatch->capacity[r], (int)l->form.plain.hidden,
                                            (int)l->form.plain.top_k, k->plan.row, got->weight, got->rows,
                                            k->y, k->dy, d_weight, l->world->stream[r]),
                "fan-in gradient");
    SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_IN_GRADIENT));
    SPW_TRY(spw_gpu_layer_experts_backward(l, r, (spw_layer_operands){.x = k->x, .dy = k->dy}, k->dx));
cleanup:
    return status;
}

static spw_status backward(spw_layer_gpu *l, const spw_layer_pass *pass) {
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k;
    spw_dispatch_input in = {.x = {NULL}};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) in.x[r] = pass->x[r];
    SPW_TRY(spw_dispatch_again(l->dispatch, &in, SPW_COUNT_COMBINE_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        const spw_received got = spw_dispatch_received(l->dispatch, r);
        const int tokens = (int)l->dispatch->capacity[r];
        gpu_stream stream = l->world->stream[r];
        spw_bf16 *rows = l->dispatch->returned[r];
        float *side = (float *)(void *)(rows + l->dispatch->capacity[r] * l->form.plain.hidden);
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(l->fused ? backward_fused(l, r, &got, side) : backward_plain(l, r, &got, side));
        SPW_TRY_GPU(spw_launch_combine(
                        (spw_combine_gpu){tokens, width, top_k, k->plan.row, NULL, k->dx, rows}, stream),
                    "fan-out gradient");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_OUT_GRADIENT));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_dispatch_combine(l->dispatch, pass->y, pass->d_weight, SPW_COUNT_DISPATCH_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH_GRADIENT));
cleanup:
    return status;
}

const spw_layer_arrangement spw_layer_by_dispatch = {.rows = worst_rows,
                                                     .exchange_bytes = exchange_bytes,
                                                     .create = create_worst,
                                                     .create_rank = create_rank,
                                                     .forward = forward_worst,
                                                     .backward = backward,
                                                     .own_rows = true,
                                                     .gathers = true};

const spw_layer_arrangement spw_layer_by_exact_dispatch = {.rows = worst_rows,
                                                           .exchange_bytes = exchange_bytes,
                                                           .create = create_exact,
                                                           .create_rank = create_rank,
                                                           .forward = forward_exact,
                                                           .backward = backward,
                                                           .own_rows = true,
                                                           .gathers = true,
                                                           .later = true};
