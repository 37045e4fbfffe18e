#include "sim/routing/counted_tokens.h"

#include "base/failure.h"
#include "base/memory.h"
#include "traces/generate/generate.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <string.h>

struct spw_counted_tokens {
    spw_trace *trace;
    const spw_trace_info *info;
    size_t ranks;
    uint32_t *count;     /* [ranks][experts] */
    uint16_t *expert_id; /* [tokens][top_k] */
    size_t expert_id_capacity;
};

spw_status spw_counted_tokens_create(spw_trace *trace, size_t ranks, spw_counted_tokens **out) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_ALLOC(1, out);
    if (status != SPW_OK) return status;
    (*out)->trace = trace;
    (*out)->info = info;
    (*out)->ranks = ranks;
    status = SPW_ALLOC((ranks > info->ranks ? ranks : info->ranks) * info->experts, &(*out)->count);
    if (status != SPW_OK) {
        spw_counted_tokens_destroy(*out);
        *out = NULL;
    }
    return status;
}

void spw_counted_tokens_destroy(spw_counted_tokens *c) {
    if (c == NULL) return;
    spw_free(c->count);
    spw_free(c->expert_id);
    spw_free(c);
}

/* Cuts `total` assignments into shares proportional to weight[x], none above `most`, in whole numbers that
 * sum up to it exactly. `phase` in [0, 1) decides who gets the fractions. */
static void apportion(const uint32_t *weight, size_t experts, uint64_t total, uint64_t most, double phase,
                      uint32_t *share) {
    double sum = 0.0, run = phase;
    uint64_t given = 0;
    for (size_t x = 0; x < experts; x++) sum += weight[x];
    for (size_t x = 0; x < experts; x++) {
        run += sum > 0.0 ? (double)total * weight[x] / sum : (double)total / (double)experts;
        uint64_t upto = x + 1 == experts ? total : (uint64_t)run;
        upto = upto < total ? upto : total;
        uint64_t want = upto > given ? upto - given : 0;
        share[x] = (uint32_t)want;
        given += want;
    }
    uint64_t spill = 0; /* what exceeds a token's single visit goes to the others */
    for (size_t x = 0; x < experts; x++) {
        if (share[x] <= most) continue;
        spill += share[x] - most;
        share[x] = (uint32_t)most;
    }
    for (size_t x = 0; x < experts && spill > 0; x++) {
        uint64_t room = most - share[x], take = room < spill ? room : spill;
        share[x] += (uint32_t)take;
        spill -= take;
    }
}

static uint64_t sum_of(const uint32_t *count, size_t experts) {
    uint64_t sum = 0;
    for (size_t x = 0; x < experts; x++) sum += count[x];
    return sum;
}

/* A layer of which nothing was counted says nothing of its routing. */
static spw_status check_any(const spw_counted_tokens *c, const uint32_t *count, size_t rows, size_t step,
                            size_t layer) {
    if (sum_of(count, rows * c->info->experts) > 0) return SPW_OK;
    return spw_fail(SPW_EFORMAT,
                    "the counts of step %" PRId64 ", layer %" PRId32
                    " are all 0; leave the step or the layer out "
                    "with --steps or --layers",
                    c->info->step_id[step], c->info->layer_id[layer]);
}

/* all [experts] = the sum over ranks. */
static void add_ranks(const uint32_t *by_rank, size_t ranks, size_t experts, uint32_t *all) {
    memset(all, 0, experts * sizeof *all);
    for (size_t i = 0; i < ranks * experts; i++) all[i % experts] += by_rank[i];
}

/* The counts of the job's ranks: the trace's own where rank and tokens agree, else its shares. */
static spw_status counts_of_ranks(spw_counted_tokens *c, size_t step, size_t layer, size_t tokens) {
    const size_t experts = c->info->experts, total = tokens * c->info->top_k;
    uint32_t *all = NULL;
    spw_status status = SPW_OK;
    if (c->info->has_by_rank && c->info->ranks == c->ranks) {
        SPW_TRY(spw_trace_read_by_rank(c->trace, step, layer, c->count));
        SPW_TRY(check_any(c, c->count, c->ranks, step, layer));
        SPW_TRY(SPW_ALLOC(2 * experts, &all));
        add_ranks(c->count, c->ranks, experts, all + experts);
        for (size_t r = 0; r < c->ranks; r++) {
            uint32_t *row = c->count + r * experts;
            const uint64_t sum = sum_of(row, experts);
            uint64_t most = 0;
            for (size_t x = 0; x < experts; x++) most = row[x] > most ? row[x] : most;
            if (sum == total && most <= tokens) continue;
            memcpy(all, sum > 0 ? row : all + experts,
                   experts * sizeof *all); /* a rank of no choices: all ranks' */
            apportion(all, experts, total, tokens, 0.5, row);
        }
        goto cleanup;
    }
    if (!c->info->has_routed)
        return spw_fail(SPW_EFORMAT,
                        "counts/by_rank has %zu ranks, the job %zu, and counts/routed is missing",
                        c->info->ranks, c->ranks);
    SPW_TRY(SPW_ALLOC(experts, &all));
    SPW_TRY(spw_trace_read_routed(c->trace, step, layer, all));
    SPW_TRY(check_any(c, all, 1, step, layer));
    for (size_t r = 0; r < c->ranks; r++)
        apportion(all, experts, total, tokens, ((double)r + 0.5) / (double)c->ranks, c->count + r * experts);

cleanup:
    spw_free(all);
    return status;
}

static spw_status compose_rank(const spw_counted_tokens *c, size_t rank, size_t tokens, uint64_t seed) {
    const size_t experts = c->info->experts, top_k = c->info->top_k;
    return spw_compose_tokens(c->count + rank * experts, experts, tokens, top_k, seed + 7919 * rank,
                              c->expert_id + rank * tokens * top_k);
}

static spw_status compose_ranks(const spw_counted_tokens *c, size_t tokens, uint64_t seed) {
    spw_failure failure = SPW_NO_FAILURE;
#pragma omp parallel for schedule(dynamic, 8)
    for (size_t r = 0; r < c->ranks; r++) spw_failure_note(&failure, r, compose_rank(c, r, tokens, seed));
    return spw_failure_tell(&failure);
}

spw_status spw_counted_tokens_draw(spw_counted_tokens *c, size_t step, size_t layer, size_t tokens,
                                   uint64_t seed, spw_trace_record *record) {
    const size_t top_k = c->info->top_k, experts = c->info->experts;
    size_t cells = 0;
    spw_status status = SPW_OK;
    if (!spw_mul_size(tokens, top_k, &cells) || !spw_mul_size(cells, c->ranks, &cells))
        return spw_fail(SPW_ENOMEM, "%zu tokens a rank overflow", tokens);
    if (cells > c->expert_id_capacity) {
        spw_free(c->expert_id);
        c->expert_id_capacity = 0;
        status = SPW_ALLOC(cells, &c->expert_id);
        if (status != SPW_OK) return status;
        c->expert_id_capacity = cells;
    }
    status = counts_of_ranks(c, step, layer, tokens);
    if (status == SPW_OK) status = compose_ranks(c, tokens, seed);
    *record = (spw_trace_record){.tokens = c->ranks * tokens,
                                 .top_k = top_k,
                                 .experts = experts,
                                 .id_bytes = 2,
                                 .missing = UINT16_MAX,
                                 .expert_id = c->expert_id};
    return status;
}
