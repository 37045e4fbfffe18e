/* The ring of experts (docs/schemes.md, section 2.6): all ranks gather all tokens with what the router said of every
 * expert, each computes the rows of its own experts, the sums of all ranks are added where the tokens are. A buffer
 * with a factor keeps what comes first by expert and position. */
#include "kernels/exchange/ring_launch.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

static size_t all_tokens(const spw_layer_gpu *l) { return l->world->ranks * l->tokens; }
static size_t rows_of(const spw_layer_gpu *l) { return l->form.plain.buffer_rows; }

static size_t exchange_bytes(const spw_layer_gpu *l) {
    const size_t experts = l->form.plain.experts;
    return all_tokens(l) * (l->form.plain.hidden * 4 + experts * 12 + l->form.plain.top_k * 20) +
           l->tokens * experts * 12;
}

static spw_status create(spw_layer_gpu *l, const spw_exchange_variant *variant) {
    spw_plain_shape s = l->form.plain;
    s.kind = SPW_PLAIN_GATHER, s.words = 2 * s.experts, s.side = s.experts;
    if (s.buffer_rows == 0) return spw_fail(SPW_EARG, "a buffer without rows; at least one would be right");
    return spw_plain_create(l->world, s, variant, 0, &l->plain);
}

static spw_status create_rank(spw_layer_gpu *l, size_t rank) {
    const size_t choices = all_tokens(l) * l->form.plain.top_k, experts = l->form.plain.experts;
    spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    SPW_TRY(spw_gpu_layer_create_plan(l, rank, choices));
    SPW_TRY_GPU(cudaMalloc((void **)&k->ring.expert, choices * 4), "allocate choices");
    SPW_TRY_GPU(cudaMalloc((void **)&k->ring.weight, choices * 4), "allocate choices");
    SPW_TRY_GPU(cudaMalloc((void **)&k->ring.d_weight, choices * 4), "allocate choices");
    SPW_TRY_GPU(cudaMalloc((void **)&k->ring.words, l->tokens * experts * 8), "allocate words");
    SPW_TRY_GPU(cudaMalloc((void **)&k->ring.side, l->tokens * experts * 4), "allocate words");
    k->plan.expert = k->ring.expert;
cleanup:
    return status;
}

/* What follows the rows in a buffer of all tokens. */
static float *behind_rows(const spw_layer_gpu *l, void *buffer) {
    return (float *)(void *)((spw_bf16 *)buffer + all_tokens(l) * l->form.plain.hidden);
}

static spw_status gather(spw_layer_gpu *l, const spw_layer_pass *pass) {
    const spw_plain_shape s = l->form.plain;
    const float *words[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        spw_layer_rank *k = &l->rank[r];
        words[r] = k->ring.words, k->ring.choice = pass->expert[r];
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(spw_launch_ring_words((int)l->tokens, (int)s.top_k, (int)s.experts, pass->expert[r],
                                          pass->weight[r], k->ring.words, l->world->stream[r]),
                    "words of the ring");
    }
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_PLAN));
    SPW_TRY(spw_plain_send_rows(l->plain, pass->x, words, NULL, SPW_COUNT_DISPATCH));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH));
cleanup:
    return status;
}

/* Which of the gathered tokens' choices this rank computes, and in which row. */
static spw_status route(const spw_layer_gpu *l, size_t rank) {
    const spw_plain_shape s = l->form.plain;
    const spw_layer_rank *k = &l->rank[rank];
    gpu_stream stream = l->world->stream[rank];
    spw_status status = SPW_OK;
    SPW_TRY_GPU(spw_launch_ring_choices(
                    (int)all_tokens(l), (int)s.top_k, (int)s.experts, (int)(rank * l->local), (int)l->local,
                    behind_rows(l, l->plain->received[rank]), k->ring.expert, k->ring.weight, stream),
                "choices of the ring");
    SPW_TRY_GPU(spw_launch_plan(k->plan, stream), "plan");
    if (k->rows < all_tokens(l) * s.top_k)
        SPW_TRY_GPU(spw_launch_ring_truncate(k->plan.assignments, (int)l->local, (int)k->rows, k->plan.row,
                                             k->own_offset, stream),
                    "truncate the ring's buffer");
    SPW_TRY(spw_gpu_layer_mark(l, rank, SPW_LAYER_PLAN));
cleanup:
    return status;
}

static spw_status forward(spw_layer_gpu *l, const spw_layer_pass *pass) {
    const int width = (int)l->form.plain.hidden, top_k = (int)l->form.plain.top_k, all = (int)all_tokens(l);
    spw_plain_exchange *e = l->plain;
    spw_status status = SPW_OK;
    SPW_TRY(gather(l, pass));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        gpu_stream stream = l->world->stream[r];
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(route(l, r));
        SPW_TRY_GPU(spw_launch_fan_out(all, width, top_k, k->plan.row, e->received[r], k->x, stream),
                    "fan-out");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_OUT));
        SPW_TRY(spw_gpu_layer_experts_forward(l, r, (spw_layer_operands){.x = k->x}, k->y));
        SPW_TRY_GPU(spw_launch_combine((spw_combine_gpu){all, width, top_k, k->plan.row, k->ring.weight, k->y,
                                                         e->returned[r]},
                                       stream),
                    "fan-in");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_IN));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return_rows(e, pass->y, SPW_COUNT_COMBINE));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE));
cleanup:
    return status;
}

/* Every rank returns one number an expert for each token: the transpose of what travelled with it. */
static spw_status return_weight_gradients(spw_layer_gpu *l, float *const *d_weight) {
    const spw_plain_shape s = l->form.plain;
    float *side[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind; r++) side[r] = l->rank[r].ring.side;
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return_side(l->plain, side, SPW_COUNT_ROUTER_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(spw_launch_ring_pick((int)l->tokens, (int)s.top_k, (int)s.experts, l->rank[r].ring.choice,
                                         side[r], d_weight[r], l->world->stream[r]),
                    "gradients of choices");
    }
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_ROUTER_GRADIENT));
cleanup:
    return status;
}

static spw_status backward(spw_layer_gpu *l, const spw_layer_pass *pass) {
    const spw_plain_shape s = l->form.plain;
    const int width = (int)s.hidden, top_k = (int)s.top_k, all = (int)all_tokens(l);
    spw_plain_exchange *e = l->plain;
    spw_status status = SPW_OK;
    SPW_TRY(spw_plain_send_rows(e, pass->x, NULL, NULL, SPW_COUNT_COMBINE_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_COMBINE_GRADIENT));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        gpu_stream stream = l->world->stream[r];
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY_GPU(spw_launch_combine_gradient(all, width, top_k, k->plan.row, k->ring.weight,
                                                e->received[r], k->y, k->dy, k->ring.d_weight, stream),
                    "fan-in gradient");
        SPW_TRY_GPU(spw_launch_ring_side(all, top_k, (int)s.experts, (int)(r * l->local), k->ring.expert,
                                         k->ring.d_weight, behind_rows(l, e->returned[r]), stream),
                    "gradients of choices");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_IN_GRADIENT));
    }
    SPW_TRY(return_weight_gradients(l, pass->d_weight));
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        const spw_layer_rank *k = &l->rank[r];
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(spw_gpu_layer_experts_backward(l, r, (spw_layer_operands){.x = k->x, .dy = k->dy}, k->dx));
        SPW_TRY_GPU(
            spw_launch_combine((spw_combine_gpu){all, width, top_k, k->plan.row, NULL, k->dx, e->returned[r]},
                               l->world->stream[r]),
            "fan-out gradient");
        SPW_TRY(spw_gpu_layer_mark(l, r, SPW_LAYER_FAN_OUT_GRADIENT));
    }
    SPW_TRY(spw_world_phase(l->world));
    SPW_TRY(spw_plain_return_rows(e, pass->y, SPW_COUNT_DISPATCH_GRADIENT));
    SPW_TRY(spw_gpu_layer_mark_all(l, SPW_LAYER_DISPATCH_GRADIENT));
cleanup:
    return status;
}

const spw_layer_arrangement spw_layer_by_ring = {.rows = rows_of,
                                                 .exchange_bytes = exchange_bytes,
                                                 .create = create,
                                                 .create_rank = create_rank,
                                                 .forward = forward,
                                                 .backward = backward,
                                                 .own_rows = true};
