#include "reference/schemes/megatron/megatron_ranks.h"

#include "base/memory.h"
#include "reference/capacity.h"
#include "reference/swiglu.h"

#include <stdlib.h>
#include <string.h>

typedef enum tensor_width {
    WIDTH_HIDDEN,
    WIDTH_FFN,
    WIDTH_EXPERTS,
    WIDTH_LOCAL,
    WIDTH_TOP_K,
    WIDTH_ROW_IDS,
    WIDTH_LOCAL_ROW_IDS,
    WIDTH_ONE
} tensor_width;

#define TENSOR_ROW(tensor, name, rows, width, times, element) \
    {name, SPW_MEGATRON_ROWS_##rows, WIDTH_##width, times, element},
static const struct {
    const char *name;
    spw_megatron_rows rows;
    tensor_width width;
    size_t times, element_bytes;
} tensors[] = {SPW_MEGATRON_TENSOR_LIST(TENSOR_ROW)};

spw_status spw_megatron_born(spw_execution *run, spw_megatron *g, spw_megatron_tensor tensor) {
    const size_t times = tensors[tensor].width == WIDTH_FFN && tensors[tensor].times > 1 &&
                                 run->shape.activation.plain != SPW_GATED
                             ? 1
                             : tensors[tensor].times;
    const size_t width[] = {
        [WIDTH_HIDDEN] = run->shape.hidden,         [WIDTH_FFN] = run->shape.ffn,
        [WIDTH_EXPERTS] = run->shape.experts,       [WIDTH_LOCAL] = run->local,
        [WIDTH_TOP_K] = run->shape.top_k,           [WIDTH_ROW_IDS] = 2 * run->shape.experts + 1,
        [WIDTH_LOCAL_ROW_IDS] = 2 * run->local + 1, [WIDTH_ONE] = 1};
    return spw_born_at(run, &g->tensor[tensor], tensors[tensor].name, g->rows[tensors[tensor].rows],
                       width[tensors[tensor].width] * times, tensors[tensor].element_bytes);
}

void spw_megatron_dies(spw_execution *run, spw_megatron *g, spw_megatron_tensor tensor) {
    spw_dies(run, &g->tensor[tensor]);
}

void spw_megatron_die(spw_execution *run, spw_megatron *g, const spw_megatron_tensor *tensor) {
    for (; *tensor != SPW_MEGATRON_TENSOR_COUNT; tensor++) spw_megatron_dies(run, g, *tensor);
}

size_t spw_megatron_round_up(size_t rows, size_t multiple) {
    return (rows + multiple - 1) / multiple * multiple;
}

size_t spw_megatron_align_of(const spw_execution *run) {
    const char *word = spw_execution_word(&run->shape, "align", "none");
    return strcmp(word, "none") == 0 ? 1 : strtoul(word, NULL, 10);
}

/* --- Routing --- */

/* The first tokens that the expert's column lacks get a row too, until it has `wanted`, or all. */
static void pad_column(const spw_execution *run, uint8_t *map, size_t expert, size_t wanted) {
    size_t have = 0;
    for (size_t t = 0; t < run->tokens; t++) have += map[t * run->shape.experts + expert];
    for (size_t t = 0; t < run->tokens && have < wanted; t++) {
        uint8_t *cell = &map[t * run->shape.experts + expert];
        have += *cell == 0;
        *cell = 1;
    }
}

static spw_status drop(spw_execution *run, const spw_megatron *g, size_t r, uint8_t *keep) {
    const spw_execution_shape *s = &run->shape;
    const spw_choices choices = {run->tokens, s->top_k, s->experts, spw_rank_expert(run, r)};
    const size_t capacity =
        spw_ref_capacity_megatron(run->tokens, s->top_k, s->experts, g->set.capacity_factor);
    size_t dropped = 0;
    spw_status status = SPW_OK;
    if (g->set.capacity_factor == 0.0) {
        memset(keep, 1, run->assignments);
    } else if (g->set.by_position) {
        status = spw_ref_keep_by_position(choices, run->tokens, capacity, keep, &dropped);
    } else {
        status = spw_ref_keep_by_probability(choices, spw_rank_weight(run, r), capacity, keep, &dropped);
    }
    run->out.dropped[r] = dropped;
    return status;
}

static void pad_columns(const spw_execution *run, const spw_megatron *g, uint8_t *map) {
    const spw_execution_shape *s = &run->shape;
    for (size_t x = 0; x < s->experts; x++) {
        size_t count = 0;
        for (size_t t = 0; t < run->tokens; t++) count += map[t * s->experts + x];
        if (g->set.slots)
            count = spw_ref_capacity_megatron(run->tokens, s->top_k, s->experts, g->set.capacity_factor);
        pad_column(run, map, x, g->set.slots ? count : spw_megatron_round_up(count, g->set.router_align));
    }
}

static spw_status route(spw_execution *run, spw_megatron *g, size_t r, uint8_t *keep) {
    const size_t experts = run->shape.experts, top_k = run->shape.top_k;
    spw_megatron_rank *p = &g->rank[r];
    size_t rows = 0;
    spw_status status = drop(run, g, r, keep);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < run->tokens * experts; i++) p->choice[i] = -1;
    for (size_t i = 0; i < run->assignments; i++) {
        const int32_t x = spw_rank_expert(run, r)[i];
        if (x < 0 || !keep[i]) continue;
        p->choice[i / top_k * experts + (size_t)x] = (int32_t)i;
        p->map[i / top_k * experts + (size_t)x] = 1;
    }
    pad_columns(run, g, p->map);
    for (size_t i = 0; i < run->tokens * experts; i++) rows += p->map[i];
    SPW_TRY(SPW_SCRATCH(run, rows, &p->token));
    SPW_TRY(SPW_SCRATCH(run, rows, &p->slot));
    rows = 0;
    for (size_t x = 0; x < experts; x++) {
        for (size_t t = 0; t < run->tokens; t++) {
            if (!p->map[t * experts + x]) continue;
            p->count[x]++;
            p->token[rows] = (int32_t)t;
            p->slot[rows++] = p->choice[t * experts + x];
        }
    }
    g->rows[SPW_MEGATRON_ROWS_SENT][r] = rows;
cleanup:
    return status;
}

spw_status spw_megatron_create(spw_execution *run, const spw_megatron_settings *settings,
                               spw_megatron **out) {
    const size_t ranks = run->shape.ranks, cells = run->tokens * run->shape.experts;
    uint8_t *keep = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_SCRATCH(run, 1, out));
    SPW_TRY(SPW_SCRATCH(run, run->assignments, &keep));
    (*out)->set = *settings;
    for (size_t r = 0; r < ranks; r++) {
        spw_megatron_rank *p = &(*out)->rank[r];
        SPW_TRY(SPW_SCRATCH(run, cells, &p->map));
        SPW_TRY(SPW_SCRATCH(run, cells, &p->choice));
        SPW_TRY(SPW_SCRATCH(run, run->shape.experts, &p->count));
        SPW_TRY(SPW_SCRATCH(run, ranks * run->local, &p->arrived));
        SPW_TRY(SPW_SCRATCH(run, run->local + 1, &p->segment));
        (*out)->rows[SPW_MEGATRON_ROWS_TOKENS][r] = run->tokens;
        SPW_TRY(route(run, *out, r, keep));
    }
    SPW_TRY(spw_experts_create_at(run, (*out)->rows[SPW_MEGATRON_ROWS_EXPERT_ROWS], &(*out)->experts));
cleanup:
    return status;
}

void spw_megatron_fill_map(spw_execution *run, spw_megatron *g) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const spw_megatron_rank *p = &g->rank[r];
        for (size_t i = 0; i < run->tokens * run->shape.experts; i++) {
            g->tensor[SPW_MEGATRON_MAP].at[r][i] = p->map[i];
            g->tensor[SPW_MEGATRON_PROBS].at[r][i] =
                p->choice[i] < 0 ? 0.0f : spw_rank_weight(run, r)[p->choice[i]];
        }
    }
}

void spw_megatron_hand_over_weights(spw_execution *run, const spw_megatron *g) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        for (size_t i = 0; i < run->tokens * run->shape.experts; i++) {
            const int32_t slot = g->rank[r].choice[i];
            if (slot >= 0)
                run->out.d_weight[r * run->assignments + (size_t)slot] =
                    g->tensor[SPW_MEGATRON_D_PROBS].at[r][i];
        }
    }
}

/* --- Rows that arrive as tokens --- */

spw_status spw_megatron_place_local(spw_execution *run, spw_megatron *g, size_t rank,
                                    const spw_local_rows *in) {
    const uint8_t *const map = in->map;
    const size_t local = run->local, arrived = g->rows[SPW_MEGATRON_ROWS_RECEIVED][rank];
    spw_megatron_rank *p = &g->rank[rank];
    size_t *offset = g->experts.offset + rank * (local + 1), row = 0;
    spw_status status = SPW_OK;
    for (size_t x = 0; x < local; x++) {
        size_t rows = 0;
        for (size_t i = 0; i < arrived; i++) rows += map[i * local + x];
        offset[x + 1] =
            offset[x] + (in->zone != NULL ? in->zone[x] : spw_megatron_round_up(rows, in->multiple));
    }
    run->out.rows[rank] = offset[local];
    g->rows[SPW_MEGATRON_ROWS_EXPERT_ROWS][rank] = in->fixed > 0 ? in->fixed : offset[local];
    SPW_TRY(SPW_SCRATCH(run, offset[local], &p->local_row));
    SPW_TRY(SPW_SCRATCH(run, offset[local], &p->local_slot));
    for (size_t x = 0; x < local; x++) {
        for (size_t i = 0; i < arrived; i++) {
            if (!map[i * local + x]) continue;
            p->local_row[row] = (int32_t)i;
            p->local_slot[row++] = in->choice[i * local + x];
        }
        for (; row < offset[x + 1]; row++) p->local_row[row] = p->local_slot[row] = -1;
    }
cleanup:
    return status;
}

spw_status spw_megatron_add_local(const spw_execution *run, const spw_megatron *g, size_t rank,
                                  const float *from, float *to) {
    const size_t hidden = run->shape.hidden, cells = g->rows[SPW_MEGATRON_ROWS_RECEIVED][rank] * hidden;
    const spw_megatron_rank *p = &g->rank[rank];
    double *sum = NULL;
    const spw_status status = SPW_ALLOC(cells, &sum);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < run->out.rows[rank]; i++) {
        for (size_t h = 0; h < hidden && p->local_row[i] >= 0; h++)
            sum[(size_t)p->local_row[i] * hidden + h] += (double)from[i * hidden + h];
    }
    for (size_t i = 0; i < cells; i++) to[i] = (float)sum[i];
    spw_free(sum);
    return SPW_OK;
}

void spw_megatron_copy_local(const spw_execution *run, const spw_megatron *g, size_t rank, const float *from,
                             float *to) {
    spw_gather_rows(from, g->rank[rank].local_row, run->out.rows[rank], run->shape.hidden, to);
}

/* --- Experts --- */

/* Matrices of the first product: gate and up, or one. */
static int first_of(const spw_execution *run) { return run->shape.activation.plain == SPW_GATED ? 2 : 1; }

/* Of one rank; fc1_output is gate [rows][ffn], then up [rows][ffn], which experts of two matrices do not have. */
typedef struct rank_view {
    size_t rows, used, wide;
    float *gate, *up;
} rank_view;

static rank_view view(const spw_execution *run, const spw_megatron *g, spw_megatron_tensor tensor, size_t r) {
    const size_t rows = g->rows[SPW_MEGATRON_ROWS_EXPERT_ROWS][r], wide = rows * run->shape.ffn;
    float *at = g->tensor[tensor].at[r];
    const bool gated = run->shape.activation.plain == SPW_GATED;
    return (rank_view){rows, spw_experts_offset(run, &g->experts, r)[run->local], wide, at,
                       at != NULL && gated ? at + wide : NULL};
}

/* Copies rows between their places with and without the padding of each expert. */
static void move_segments(const spw_execution *run, const spw_megatron *g, spw_megatron_tensor without,
                          spw_megatron_tensor with, size_t width, bool pad) {
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const size_t *segment = g->rank[r].segment, *offset = spw_experts_offset(run, &g->experts, r);
        for (size_t x = 0; x < run->local; x++) {
            float *narrow = g->tensor[without].at[r] + segment[x] * width,
                  *wide = g->tensor[with].at[r] + offset[x] * width;
            memcpy(pad ? wide : narrow, pad ? narrow : wide,
                   (segment[x + 1] - segment[x]) * width * sizeof *wide);
        }
    }
}

static spw_status fc1(spw_execution *run, spw_megatron *g) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < run->shape.ranks && status == SPW_OK; r++) {
        const rank_view v = view(run, g, SPW_MEGATRON_FC1_OUTPUT, r);
        for (int weight = 0; weight < first_of(run) && status == SPW_OK; weight++)
            status = spw_ref_grouped_gemm(
                spw_experts_shape(run, &g->experts, r, weight), g->tensor[SPW_MEGATRON_FC1_INPUT].at[r],
                spw_rank_weights(run, r, weight), spw_experts_offset(run, &g->experts, r),
                weight == 0 ? v.gate : v.up, NULL);
    }
    return status;
}

/* fc2_input = router weight x swiglu(gate, up). */
static void activate(spw_execution *run, spw_megatron *g) {
    const size_t ffn = run->shape.ffn;
    for (size_t r = 0; r < run->shape.ranks; r++) {
        const rank_view v = view(run, g, SPW_MEGATRON_FC1_OUTPUT, r);
        float *act = g->tensor[SPW_MEGATRON_FC2_INPUT].at[r];
        spw_ref_swiglu(run->shape.activation, v.used * ffn, v.gate, v.up, act, NULL);
        for (size_t i = 0; i < v.used * ffn; i++) act[i] *= g->tensor[SPW_MEGATRON_ROW_PROBS].at[r][i / ffn];
    }
}

spw_status spw_megatron_experts_forward(spw_execution *run, spw_megatron *g) {
    const bool first = run->pass == SPW_PASS_FORWARD;
    spw_status status = SPW_OK;
    if (g->set.padded) {
        spw_step(run, "pad");
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_FC1_INPUT));
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_ROW_PROBS));
        move_segments(run, g, SPW_MEGATRON_SORTED, SPW_MEGATRON_FC1_INPUT, run->shape.hidden, true);
        move_segments(run, g, SPW_MEGATRON_SORTED_PROBS, SPW_MEGATRON_ROW_PROBS, 1, true);
    }
    spw_step(run, "fc1");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_FC1_OUTPUT));
    SPW_TRY(fc1(run, g));
    spw_step(run, "swiglu");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_FC2_INPUT));
    activate(run, g);
    spw_step(run, "fc2");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_FC2_OUTPUT));
    SPW_TRY(spw_experts_product(run, &g->experts, 2, &g->tensor[SPW_MEGATRON_FC2_INPUT],
                                &g->tensor[SPW_MEGATRON_FC2_OUTPUT]));
    if (first || run->shape.recompute_activation) spw_megatron_dies(run, g, SPW_MEGATRON_FC2_INPUT);
    if (first) spw_megatron_dies(run, g, SPW_MEGATRON_FC1_OUTPUT);
    if (g->set.padded) {
        spw_step(run, "unpad");
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_UNPADDED));
        move_segments(run, g, SPW_MEGATRON_UNPADDED, SPW_MEGATRON_FC2_OUTPUT, run->shape.hidden, false);
        spw_megatron_dies(run, g, SPW_MEGATRON_FC2_OUTPUT);
        if (first) SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_INPUT, SPW_MEGATRON_ROW_PROBS);
    }
cleanup:
    return status;
}

/* Gradients of one rank through fc2_input = p a(gate, up): d_p = sum of d a, d_a = p d. */
static spw_status activation_gradient(const spw_execution *run, spw_megatron *g, size_t r) {
    const size_t ffn = run->shape.ffn;
    const rank_view in = view(run, g, SPW_MEGATRON_FC1_OUTPUT, r),
                    out = view(run, g, SPW_MEGATRON_D_FC1_OUTPUT, r);
    const float *d = g->tensor[SPW_MEGATRON_D_FC2_INPUT].at[r], *p = g->tensor[SPW_MEGATRON_ROW_PROBS].at[r];
    float *act = NULL;
    const spw_status status = SPW_ALLOC(in.used * ffn, &act);
    if (status != SPW_OK) return status;
    spw_ref_swiglu(run->shape.activation, in.used * ffn, in.gate, in.up, act, NULL);
    for (size_t row = 0; row < in.used; row++) {
        double sum = 0.0;
        for (size_t i = row * ffn; i < (row + 1) * ffn; i++) {
            sum += (double)d[i] * (double)act[i];
            act[i] = p[row] * d[i];
        }
        g->tensor[SPW_MEGATRON_D_ROW_PROBS].at[r][row] = (float)sum;
    }
    spw_ref_swiglu_gradient(run->shape.activation, in.used * ffn, in.gate, in.up, act,
                            (spw_swiglu_gradients){out.gate, out.up, NULL});
    spw_free(act);
    return SPW_OK;
}

/* d_fc1_input = d_gate w0^T + d_up w1^T, two rounded products and their rounded sum; and both weight gradients. */
static spw_status fc1_input_gradient(spw_execution *run, spw_megatron *g, size_t r) {
    const size_t *offset = spw_experts_offset(run, &g->experts, r);
    const rank_view v = view(run, g, SPW_MEGATRON_D_FC1_OUTPUT, r);
    const spw_gemm_shape shape = spw_experts_shape(run, &g->experts, r, 0);
    float *dx = g->tensor[SPW_MEGATRON_D_FC1_INPUT].at[r], *second = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(
        spw_ref_grouped_gemm_input_gradient(shape, v.gate, spw_rank_weights(run, r, 0), offset, dx, NULL));
    if (v.up == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(v.rows * run->shape.hidden, &second));
    SPW_TRY(
        spw_ref_grouped_gemm_input_gradient(shape, v.up, spw_rank_weights(run, r, 1), offset, second, NULL));
    for (size_t i = 0; i < v.used * run->shape.hidden; i++) dx[i] += second[i];
cleanup:
    spw_free(second);
    return status;
}

static spw_status fc1_weight_gradient(spw_execution *run, spw_megatron *g, size_t r) {
    const rank_view v = view(run, g, SPW_MEGATRON_D_FC1_OUTPUT, r);
    spw_status status = SPW_OK;
    for (int weight = 0; weight < first_of(run) && status == SPW_OK; weight++)
        status = spw_ref_grouped_gemm_weight_gradient(
            spw_experts_shape(run, &g->experts, r, weight), g->tensor[SPW_MEGATRON_FC1_INPUT].at[r],
            weight == 0 ? v.gate : v.up, spw_experts_offset(run, &g->experts, r),
            spw_rank_weight_gradients(run, r, weight), NULL);
    return status;
}

spw_status spw_megatron_experts_backward(spw_execution *run, spw_megatron *g) {
    const size_t ranks = run->shape.ranks, hidden = run->shape.hidden;
    spw_spread *t = g->tensor;
    spw_status status = SPW_OK;
    if (g->set.padded) {
        spw_step(run, "unpad gradient");
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_FC2_OUTPUT));
        move_segments(run, g, SPW_MEGATRON_D_UNPADDED, SPW_MEGATRON_D_FC2_OUTPUT, hidden, true);
        spw_megatron_dies(run, g, SPW_MEGATRON_D_UNPADDED);
    }
    if (run->shape.recompute_activation) {
        spw_step(run, "swiglu again");
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_FC2_INPUT));
        activate(run, g);
    }
    spw_step(run, "fc2 input gradient");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_FC2_INPUT));
    SPW_TRY(spw_experts_input_gradient(run, &g->experts, 2, &t[SPW_MEGATRON_D_FC2_OUTPUT],
                                       &t[SPW_MEGATRON_D_FC2_INPUT]));
    spw_step(run, "fc2 weight gradient");
    SPW_TRY(spw_experts_weight_gradient(run, &g->experts, 2, &t[SPW_MEGATRON_FC2_INPUT],
                                        &t[SPW_MEGATRON_D_FC2_OUTPUT]));
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC2_INPUT, SPW_MEGATRON_D_FC2_OUTPUT);
    spw_step(run, "swiglu gradient");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_FC1_OUTPUT));
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_ROW_PROBS));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(activation_gradient(run, g, r));
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_FC1_OUTPUT, SPW_MEGATRON_D_FC2_INPUT, SPW_MEGATRON_ROW_PROBS);
    spw_step(run, "fc1 input gradient");
    SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_FC1_INPUT));
    for (size_t r = 0; r < ranks; r++) SPW_TRY(fc1_input_gradient(run, g, r));
    spw_step(run, "fc1 weight gradient");
    for (size_t r = 0; r < ranks; r++) SPW_TRY(fc1_weight_gradient(run, g, r));
    SPW_MEGATRON_DIE(run, g, SPW_MEGATRON_D_FC1_OUTPUT, SPW_MEGATRON_FC1_INPUT);
    if (g->set.padded) {
        spw_step(run, "pad gradient");
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_SORTED));
        move_segments(run, g, SPW_MEGATRON_D_SORTED, SPW_MEGATRON_D_FC1_INPUT, hidden, false);
        spw_megatron_dies(run, g, SPW_MEGATRON_D_FC1_INPUT);
        SPW_TRY(spw_megatron_born(run, g, SPW_MEGATRON_D_SORTED_PROBS));
        move_segments(run, g, SPW_MEGATRON_D_SORTED_PROBS, SPW_MEGATRON_D_ROW_PROBS, 1, false);
        spw_megatron_dies(run, g, SPW_MEGATRON_D_ROW_PROBS);
    }
cleanup:
    return status;
}
