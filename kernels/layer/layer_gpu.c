#include "kernels/layer/layer_gpu.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_steps.h"

#define PHASE_NAME(name, text) [SPW_LAYER_##name] = (text),
const char *const spw_layer_phase_names[SPW_LAYER_PHASES] = {SPW_LAYER_PHASE_LIST(PHASE_NAME)};

static const spw_layer_arrangement *arrangement_of(const spw_layer_gpu *l) {
    static const spw_layer_arrangement *const arrangements[SPW_LAYER_KINDS] = {
        [SPW_LAYER_BY_DISPATCH] = &spw_layer_by_dispatch,
        [SPW_LAYER_BY_EXACT_DISPATCH] = &spw_layer_by_exact_dispatch,
        [SPW_LAYER_BY_PLAIN] = &spw_layer_by_plain,
        [SPW_LAYER_BY_RING] = &spw_layer_by_ring};
    return arrangements[l->form.kind];
}

/* --- Memory --- */

enum { ROW_TENSORS = 9, WEIGHTS = 4 };
typedef struct tensor {
    spw_bf16 **at;
    size_t width;
} tensor;

/* Products that gather are a fifth to a third slower than others: docs/validation_gpu.md, "Fused products". With wider
 * experts that costs more than the copies of rows that they save. */
enum { WIDEST_FUSED = 512 };

/* out [ROW_TENSORS]: width 0 for what the arrangement has elsewhere, or does without. */
static void row_tensors(const spw_layer_gpu *l, spw_layer_rank *k, tensor *out) {
    const size_t f = l->form.ffn, h = arrangement_of(l)->own_rows ? l->form.plain.hidden : 0;
    const size_t copies = l->fused ? 0 : h;
    const size_t sums = 2 * ((f + SPW_GEMM_ROW_SUM_TILE - 1) / SPW_GEMM_ROW_SUM_TILE);
    const tensor all[ROW_TENSORS] = {{&k->x, copies},
                                     {&k->y, h},
                                     {&k->dy, copies},
                                     {&k->dx, h},
                                     {&k->gate_up, 2 * f},
                                     {&k->d_gate_up, 2 * f},
                                     {&k->act, f},
                                     {&k->d_act, l->fused ? 0 : f},
                                     {&k->row_sum, l->fused ? sums : 0}};
    for (int i = 0; i < ROW_TENSORS; i++) out[i] = all[i];
}

/* out [WEIGHTS]: elements as width. */
static void weight_tensors(const spw_layer_gpu *l, spw_layer_rank *k, tensor *out) {
    const size_t matrix = l->local * l->form.plain.hidden * l->form.ffn;
    const tensor all[WEIGHTS] = {{&k->gate_up_weight, 2 * matrix},
                                 {&k->down_weight, matrix},
                                 {&k->gate_up_gradient, 2 * matrix},
                                 {&k->down_gradient, matrix}};
    for (int i = 0; i < WEIGHTS; i++) out[i] = all[i];
}

static spw_status take(spw_bf16 **at, size_t elements) {
    spw_status status = SPW_OK;
    SPW_TRY_GPU(cudaMalloc((void **)at, elements * 2 + 16), "allocate a layer");
    SPW_TRY_GPU(cudaMemset(*at, 0xff, elements * 2), "poison a layer");
cleanup:
    return status;
}

spw_status spw_gpu_layer_make_room(spw_layer_gpu *l, size_t rank, size_t rows) {
    spw_layer_rank *k = &l->rank[rank];
    tensor all[ROW_TENSORS];
    spw_status status = SPW_OK;
    k->rows = rows;
    if (k->gate_up != NULL && rows <= k->room) return SPW_OK;
    k->room = 0;
    row_tensors(l, k, all);
    for (int i = 0; i < ROW_TENSORS; i++) {
        (void)cudaFree(*all[i].at);
        *all[i].at = NULL;
        if (all[i].width > 0) SPW_TRY(take(all[i].at, rows * all[i].width));
    }
    k->room = rows;
    SPW_TRY_GPU(cudaDeviceSynchronize(), "poison a layer");
cleanup:
    return status;
}

spw_status spw_gpu_layer_create_plan(spw_layer_gpu *l, size_t rank, size_t choices) {
    const size_t chunks = (choices + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_layer_rank *k = &l->rank[rank];
    spw_plan_gpu *p = &k->plan;
    spw_status status = SPW_OK;
    *p = (spw_plan_gpu){.assignments = (int)choices, .experts = (int)l->local};
    SPW_TRY_GPU(cudaMalloc((void **)&p->chunk_count, chunks * l->local * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->count, l->local * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->row, choices * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&p->assignment, choices * 4), "allocate a plan");
    SPW_TRY_GPU(cudaMalloc((void **)&k->own_offset, (l->local + 1) * 4), "allocate offsets");
    p->offset = k->own_offset, k->offset = k->own_offset;
cleanup:
    return status;
}

/* Its sizes; everything else is NULL. */
static void size_layer(spw_layer_gpu *l, spw_world *world, spw_layer_form form) {
    l->world = world, l->form = form;
    l->fused =
        spw_gpu_has_fused_gemm() && !form.unfused && arrangement_of(l)->gathers && form.ffn <= WIDEST_FUSED;
    l->tokens = form.plain.sequences * form.plain.sequence_length;
    l->local = form.plain.experts / world->ranks;
}

spw_status spw_gpu_layer_bytes(spw_world *world, spw_layer_form form, size_t *bytes) {
    spw_layer_gpu *l = NULL;
    tensor rows[ROW_TENSORS], weights[WEIGHTS];
    const spw_status status = SPW_ALLOC(1, &l);
    if (status != SPW_OK) return status;
    size_layer(l, world, form);
    row_tensors(l, &l->rank[0], rows), weight_tensors(l, &l->rank[0], weights);
    *bytes = arrangement_of(l)->exchange_bytes(l);
    for (int i = 0; i < ROW_TENSORS; i++) *bytes += arrangement_of(l)->rows(l) * rows[i].width * 2;
    for (int i = 0; i < WEIGHTS; i++) *bytes += weights[i].width * 2;
    if (l->fused) *bytes += world->ranks * l->tokens * form.plain.hidden * 2;
    spw_free(l);
    return SPW_OK;
}

spw_status spw_gpu_layer_create(spw_world *world, spw_layer_form form, const spw_exchange_variant *variant,
                                spw_layer_gpu **out) {
    spw_layer_gpu *l = NULL;
    tensor weights[WEIGHTS];
    spw_status status = SPW_OK;
    *out = NULL;
    if (form.plain.experts == 0 || form.plain.experts % world->ranks != 0)
        return spw_fail(SPW_EARG, "%zu experts on %zu ranks; a multiple of the ranks would be right",
                        form.plain.experts, world->ranks);
    if (form.plain.top_k == 0 || form.plain.top_k > SPW_GPU_TOP_K_MAX)
        return spw_fail(SPW_EARG, "top-%zu; 1 to %d would be right", form.plain.top_k, SPW_GPU_TOP_K_MAX);
    SPW_TRY(SPW_ALLOC(1, &l));
    size_layer(l, world, form);
    for (l->gemm = spw_gemm_variants; l->gemm[1].name != NULL;) l->gemm++; /* the fastest */
    const spw_layer_arrangement *a = arrangement_of(l);
    SPW_TRY(a->create(l, variant));
    for (size_t r = world->first; r < world->behind; r++) {
        SPW_TRY(spw_world_use(world, r));
        weight_tensors(l, &l->rank[r], weights);
        for (int i = 0; i < WEIGHTS; i++) SPW_TRY(take(weights[i].at, weights[i].width));
        SPW_TRY(a->create_rank(l, r));
        if (!a->later) SPW_TRY(spw_gpu_layer_make_room(l, r, a->rows(l)));
        SPW_TRY_GPU(cudaDeviceSynchronize(), "poison a layer");
    }
    *out = l;
    return SPW_OK;
cleanup:
    spw_gpu_layer_destroy(l);
    return status;
}

void spw_gpu_layer_destroy(spw_layer_gpu *l) {
    if (l == NULL) return;
    for (size_t r = l->world->first; r < l->world->behind; r++) {
        spw_layer_rank *k = &l->rank[r];
        tensor rows[ROW_TENSORS], weights[WEIGHTS];
        void *memory[] = {k->d_local,       k->own_offset,      k->plan.chunk_count, k->plan.count,
                          k->plan.row,      k->plan.assignment, k->ring.expert,      k->ring.weight,
                          k->ring.d_weight, k->ring.words,      k->ring.side,        k->token};
        if (spw_world_use(l->world, r) != SPW_OK) continue;
        row_tensors(l, k, rows), weight_tensors(l, k, weights);
        for (int i = 0; i < ROW_TENSORS; i++) (void)cudaFree(*rows[i].at);
        for (int i = 0; i < WEIGHTS; i++) (void)cudaFree(*weights[i].at);
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
    }
    spw_world_free(l->world, l->dy);
    spw_dispatch_destroy(l->dispatch);
    spw_plain_destroy(l->plain);
    spw_free(l);
}

/* --- The experts of one rank --- */

spw_status spw_gpu_layer_mark(const spw_layer_gpu *l, size_t rank, spw_layer_phase phase) {
    return l->watch.mark != NULL ? l->watch.mark(l->watch.data, rank, phase) : SPW_OK;
}

spw_status spw_gpu_layer_mark_all(const spw_layer_gpu *l, spw_layer_phase phase) {
    spw_status status = SPW_OK;
    for (size_t r = l->world->first; r < l->world->behind && l->watch.mark != NULL; r++) {
        SPW_TRY(spw_world_use(l->world, r));
        SPW_TRY(spw_gpu_layer_mark(l, r, phase));
    }
cleanup:
    return status;
}

static spw_status gemm(const spw_layer_gpu *l, size_t rank, spw_gemm_operation operation, size_t in,
                       size_t out, const spw_bf16 *left, const spw_bf16 *right, spw_bf16 *result,
                       spw_layer_phase phase) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, in, out, false};
    const spw_status status = spw_gpu_grouped_gemm(l->gemm, operation, shape, left, right, k->offset, result,
                                                   l->world->stream[rank]);
    return status == SPW_OK ? spw_gpu_layer_mark(l, rank, phase) : status;
}

static spw_swiglu_gpu swiglu_of(const spw_layer_gpu *l, const spw_layer_rank *k) {
    const int ffn = (int)l->form.ffn;
    return (spw_swiglu_gpu){
        .rows = (int)k->rows, .ffn = ffn, .stride = 2 * ffn, .gate = k->gate_up, .up = k->gate_up + ffn};
}

/* gate_up, act and y of x. */
static spw_status forward_fused(const spw_layer_gpu *l, size_t rank, spw_layer_operands o) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, l->form.plain.hidden, 2 * l->form.ffn, false};
    const spw_gemm_up g = {o.x, k->gate_up_weight, k->offset, k->gate_up, k->act};
    const spw_status status = spw_gpu_grouped_gemm_up(shape, o.rows, &g, l->world->stream[rank]);
    return status == SPW_OK ? spw_gpu_layer_mark(l, rank, SPW_LAYER_GEMM1) : status;
}

spw_status spw_gpu_layer_experts_forward(const spw_layer_gpu *l, size_t rank, spw_layer_operands o,
                                         spw_bf16 *y) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    spw_status status = SPW_OK;
    if (l->fused) {
        SPW_TRY(forward_fused(l, rank, o));
    } else {
        SPW_TRY(
            gemm(l, rank, SPW_GEMM_FORWARD, h, 2 * f, o.x, k->gate_up_weight, k->gate_up, SPW_LAYER_GEMM1));
        SPW_TRY_GPU(spw_launch_swiglu(swiglu_of(l, k), k->act, l->world->stream[rank]), "swiglu");
        SPW_TRY(spw_gpu_layer_mark(l, rank, SPW_LAYER_SWIGLU));
    }
    SPW_TRY(gemm(l, rank, SPW_GEMM_FORWARD, f, h, k->act, k->down_weight, y, SPW_LAYER_GEMM2));
cleanup:
    return status;
}

/* A gradient of weights, of which rows of x or of dy are gathered where any are. */
static spw_status weights(const spw_layer_gpu *l, size_t rank, size_t in, size_t out, spw_gemm_rows rows,
                          spw_gemm_weight_gradient g, spw_layer_phase phase) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, in, out, false};
    if (!l->fused) return gemm(l, rank, SPW_GEMM_WEIGHT_GRADIENT, in, out, g.x, g.dy, g.dw, phase);
    g.offset = k->offset;
    const spw_status status = spw_gpu_grouped_gemm_weight_gradient(shape, rows, &g, l->world->stream[rank]);
    return status == SPW_OK ? spw_gpu_layer_mark(l, rank, phase) : status;
}

/* d_gate_up of dy, and act times the rows' weights. */
static spw_status backward_fused(const spw_layer_gpu *l, size_t rank, spw_layer_operands o) {
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_shape shape = {l->local, k->rows, l->form.ffn, l->form.plain.hidden, false};
    const spw_gemm_down_gradient g = {.dy = o.dy,
                                      .weight = o.weight,
                                      .w = k->down_weight,
                                      .h = k->gate_up,
                                      .offset = k->offset,
                                      .d_h = k->d_gate_up,
                                      .act = k->act,
                                      .row_sum = (float *)(void *)k->row_sum};
    const spw_status status = spw_gpu_grouped_gemm_down_gradient(shape, o.rows, &g, l->world->stream[rank]);
    return status == SPW_OK ? spw_gpu_layer_mark(l, rank, SPW_LAYER_GEMM2_INPUT_GRADIENT) : status;
}

spw_status spw_gpu_layer_experts_backward(const spw_layer_gpu *l, size_t rank, spw_layer_operands o,
                                          spw_bf16 *dx) {
    const size_t h = l->form.plain.hidden, f = l->form.ffn;
    const spw_layer_rank *k = &l->rank[rank];
    const spw_gemm_weight_gradient down = {.x = k->act, .dy = o.dy, .dw = k->down_gradient};
    const spw_gemm_weight_gradient up = {
        .x = o.x, .dy = k->d_gate_up, .gathers_x = true, .dw = k->gate_up_gradient};
    spw_status status = SPW_OK;
    if (l->fused)
        SPW_TRY(backward_fused(l, rank, o));
    else
        SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, f, h, o.dy, k->down_weight, k->d_act,
                     SPW_LAYER_GEMM2_INPUT_GRADIENT));
    SPW_TRY(weights(l, rank, f, h, o.rows, down, SPW_LAYER_GEMM2_WEIGHT_GRADIENT));
    if (!l->fused) {
        SPW_TRY_GPU(spw_launch_swiglu_gradient(swiglu_of(l, k), k->d_act, k->d_gate_up, k->d_gate_up + f,
                                               l->world->stream[rank]),
                    "swiglu gradient");
        SPW_TRY(spw_gpu_layer_mark(l, rank, SPW_LAYER_SWIGLU_GRADIENT));
    }
    SPW_TRY(gemm(l, rank, SPW_GEMM_INPUT_GRADIENT, h, 2 * f, k->d_gate_up, k->gate_up_weight, dx,
                 SPW_LAYER_GEMM1_INPUT_GRADIENT));
    SPW_TRY(weights(l, rank, h, 2 * f, o.rows, up, SPW_LAYER_GEMM1_WEIGHT_GRADIENT));
cleanup:
    return status;
}

/* --- Passes --- */

spw_status spw_gpu_layer_forward(spw_layer_gpu *l, const spw_bf16 *const *x, const int *const *expert,
                                 const float *const *weight, spw_bf16 *const *y) {
    const spw_layer_pass pass = {.x = x, .expert = expert, .weight = weight, .y = y};
    return arrangement_of(l)->forward(l, &pass);
}

spw_status spw_gpu_layer_backward(spw_layer_gpu *l, const spw_bf16 *const *dy, const float *const *weight,
                                  spw_bf16 *const *dx, float *const *d_weight) {
    const spw_layer_pass pass = {.x = dy, .weight = weight, .y = dx, .d_weight = d_weight};
    return arrangement_of(l)->backward(l, &pass);
}
