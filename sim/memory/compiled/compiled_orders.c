#include "sim/memory/compiled/compiled_orders.h"

#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/machine/stack.h"
#include "sim/model/attention.h"

#include <math.h>

/* Sizes of one layer that orders differ by, in bytes. */
typedef struct sizes {
    double row_hidden, row_ffn; /* [rows, H], [rows, F] of the scheme's buffer */
    double wide;   /* [rows, F - 2 H], 0 where F is smaller: 4 [rows, F] + 2 [rows, H] beyond 3 and 4 */
    double matrix; /* [H, F] of one expert */
    double ranks_experts, all_experts;
} sizes;

bool spw_compiled_is_uniform(const spw_model *m) {
    return m->layers - m->moe_layers != 1 && m->layers_per_turn <= 1 && !m->nested_scans;
}

static sizes sizes_of(const spw_compiled_program *p) {
    const double b = (double)p->shape->element_bytes;
    const double rows = (double)p->scheme->type->memory.buffer_rows(p->scheme, p->shape) * b;
    const double hidden = (double)p->shape->hidden, ffn = (double)p->shape->ffn;
    return (sizes){rows * hidden,
                   rows * ffn,
                   rows * fmax(0.0, ffn - 2.0 * hidden),
                   hidden * ffn * b,
                   (double)p->shape->experts_per_rank,
                   (double)p->shape->experts};
}

static bool is_cut(const spw_compiled_program *p) { return p->cut->stages > 1 || p->cut->micro_batches > 1; }

/* A whole gradient of one matrix waits in gathered dense with F <= H where the expert axis reaches over nodes: DeepSeek-V3 (JAX 0.12) and
 * DeepSeek-V2-Lite (0.10) at EP 16. Not at EP 8. */
static double waiting_gradient(const spw_compiled_program *p, const sizes *s) {
    const bool narrow = p->shape->ffn <= p->shape->hidden;
    return narrow && p->job->expert > p->job->cluster.gpus_per_node ? s->all_experts * s->matrix : 0.0;
}

/* A ring where F > 2 H has two orders of nearly one size. JAX 0.10 takes the list's but in Mixtral 8x22B at 4 sequences. */
static double ring_more(const spw_compiled_program *p, const sizes *s) {
    const bool known = spw_compiled_is_uniform(&p->job->model) && !is_cut(p);
    return known ? fmin(s->wide, s->row_hidden) : s->row_hidden;
}

/* Seven [W, H]: DeepSeek-V3, whose policy keeps MLA's expanded queries, keys and values. */
static bool keeps_expanded(const spw_compiled_program *p) {
    return spw_remat_keeps(p->job->remat).qkv && spw_attention_is_latent(&p->job->model);
}

static double ragged_more(const spw_compiled_program *p, const sizes *s) {
    return keeps_expanded(p) || is_cut(p) ? s->row_hidden : 0.0;
}

/* JAX 0.10. */
static spw_compiled_orders older(const spw_compiled_program *p, const spw_compiled_layer *layer,
                                 const sizes *s) {
    const bool cut = is_cut(p);
    switch (layer->exchange) {
    case SPW_COMPILED_EXCHANGE_RAGGED: return (spw_compiled_orders){0.0, ragged_more(p, s)};
    case SPW_COMPILED_EXCHANGE_GATHER: return (spw_compiled_orders){0.0, ring_more(p, s)};
    case SPW_COMPILED_EXCHANGE_NONE:
        return (spw_compiled_orders){cut ? s->row_hidden : 0.0, cut ? s->row_hidden : waiting_gradient(p, s)};
    case SPW_COMPILED_EXCHANGE_ALL_TO_ALL:
        return (spw_compiled_orders){s->row_hidden,
                                     cut || p->shape->ffn > p->shape->hidden ? s->row_hidden : 0.0};
    case SPW_COMPILED_EXCHANGE_PEELED: return (spw_compiled_orders){s->row_hidden, s->row_hidden};
    case SPW_COMPILED_EXCHANGE_LIBRARY: break;
    }
    return (spw_compiled_orders){0.0, s->row_hidden}; /* few programs, of one model */
}

/* A ring by JAX 0.11 on near its limit: XLA's own sum, before it runs anything again, is up to ring_sum of the list, and
 * where that is past the limit it may take the older order: Mixtral 8x7B at 8 sequences, 76.5 GiB for 82.7. Kimi K2 at 1 does not, at
 * 0.99 of its limit, nor does any at half of it. */
static double ring_less(const spw_compiled_program *p, const sizes *s) {
    return p->stack->ring_sum.value * p->wanted_bytes > p->limit_bytes ? s->wide : 0.0;
}

/* Six [W, F] and two [W, H] in place of what the list has: both products and their gradients wait, where H is between F and 2 F. gmm without a
 * shared expert (4 [W, H] + 3 [W, F] with its arena): OLMoE's sizes, and MiniMax-M2's half of it. A ring beside an unrolled layer (5 [W, H] +
 * 3 [W, F]): GLM-4.7-Flash's, but not DeepSeek-V2-Lite. By JAX 0.12, seen. */
static double products_less(const spw_compiled_program *p, const sizes *s, bool gathers) {
    const spw_model *m = &p->job->model;
    const double narrow = (gathers ? 3.0 : 2.0) * s->row_hidden - 3.0 * s->row_ffn;
    if (p->shape->ffn > p->shape->hidden || 2 * p->shape->ffn < p->shape->hidden) return 0.0;
    if (gathers ? m->layers - m->moe_layers != 1 : m->shared_ffn > 0 || !spw_compiled_is_uniform(m))
        return 0.0;
    return fmin(fmax(0.0, narrow), s->row_hidden);
}

/* Past its limit XLA may gather a ring's rows a second time beside the first, and so need more than before: OLMoE's sizes at 4 sequences by JAX
 * 0.12, 25.5 GiB before and 29.3 after. No program of JAX 0.10 does. */
static double ring_again(const spw_compiled_program *p, const sizes *s) {
    return p->wanted_bytes > p->limit_bytes ? s->row_hidden : 0.0;
}

/* Qwen3-Next by JAX 0.12 and MaxText 0.2.5, a checkpoint a layer though its layers are unlike, holds one [W, H] more than the list. */
static double nested_more(const spw_compiled_program *p, const sizes *s) {
    const spw_model *m = &p->job->model;
    return m->nested_scans > 0 && m->layers_per_turn <= 1 ? s->row_hidden : 0.0;
}

/* JAX 0.11 on: orders behind ragged all-to-alls differ by weights alone, those of a ring are known but near its limit. */
static spw_compiled_orders apart(const spw_compiled_program *p, const spw_compiled_layer *layer,
                                 const sizes *s) {
    switch (layer->exchange) {
    case SPW_COMPILED_EXCHANGE_RAGGED:
        return (spw_compiled_orders){products_less(p, s, false), s->ranks_experts * s->matrix};
    case SPW_COMPILED_EXCHANGE_GATHER:
        return (spw_compiled_orders){fmax(ring_less(p, s), products_less(p, s, true)),
                                     fmax(nested_more(p, s), ring_again(p, s))};
    case SPW_COMPILED_EXCHANGE_NONE:
        return (spw_compiled_orders){s->row_hidden, s->row_hidden + waiting_gradient(p, s)};
    default: break;
    }
    return (spw_compiled_orders){layer->capacity_slots ? s->row_hidden : 0.0, s->row_hidden};
}

/* XLA's latency-hiding scheduler starts exchanges early: another [W, H] + [W, F], and the order of 7 [W, H]. A library's call it cannot start
 * early. Where the scheduler's own sum, hiding_sum of the list, is below the limit, it is not short of memory and no program has it. Where the
 * list is past the limit by more than one [W, H], it was run again with less memory, and none has it either (DeepSeek-V3 over 16 ranks at 4
 * sequences, 0.7 [W, H] past it, still has). */
static double hiding_more(const spw_compiled_program *p, const spw_compiled_layer *layer, const sizes *s) {
    const double more = 2.0 * s->row_hidden + s->row_ffn;
    if (layer->exchange == SPW_COMPILED_EXCHANGE_LIBRARY && !keeps_expanded(p) && !is_cut(p))
        return s->row_hidden;
    if (p->stack->hiding_sum.value * p->wanted_bytes <= p->limit_bytes && !keeps_expanded(p) && !is_cut(p))
        return 0.0;
    return p->wanted_bytes - p->limit_bytes > s->row_hidden ? 0.0 : more;
}

double spw_compiled_row_bytes(const spw_compiled_program *p) { return sizes_of(p).row_hidden; }

spw_compiled_orders spw_compiled_orders_of(const spw_compiled_program *p) {
    const spw_compiled_layer *layer = spw_scheme_program(p->scheme);
    const sizes s = sizes_of(p);
    spw_compiled_orders o = p->stack->exchange_arena ? apart(p, layer, &s) : older(p, layer, &s);
    if (p->stack->latency_hiding && !layer->capacity_slots) o.more = hiding_more(p, layer, &s);
    if (layer->masked_operands) { /* ragged_dot: how many operands are masked at once */
        o.more += s.ranks_experts * (s.row_hidden + s.row_ffn);
        o.less += s.ranks_experts * s.row_ffn;
    }
    return o;
}
