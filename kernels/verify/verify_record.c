#include "kernels/verify/verify_record.h"

#include "base/memory.h"
#include "kernels/gemm/grouped_gemm_gpu.h"
#include "kernels/gpu/device_pool.h"
#include "kernels/local/local_launch.h"
#include "kernels/record/numbers.h"
#include "kernels/record/record_rules.h"
#include "reference/bf16.h"
#include "reference/combine.h"

#include <string.h>

enum { OUT = 64, MOST_ROWS = 1 << 26 };

/* One destination rank under one scheme. `expert` holds the choices of all sources for the rank's experts, counted
 * from 0, and -1 for the rest; `want_*` is the reference's, `row` and `offset` the GPU's. */
typedef struct destination {
    const spw_record *r;
    const spw_record_scheme *s;
    spw_judge *judge;
    spw_device_pool pool;
    size_t rank, tokens, choices, experts, capacity, buffer, rows;
    int *expert, *want_row;
    size_t *want_offset;
    int *row, *offset, *slot; /* on the device; slot: of capacity alone */
    const int *got_row;
    size_t *dropped; /* [ranks] by source; added to */
    size_t bytes;    /* of the buffer */
    spw_bf16 *moved; /* what the buffer must hold */
    spw_bf16 *buffer_rows;
} destination;

static void count(destination *d, spw_status result, const char *what) {
    if (d->pool.status == SPW_OK)
        spw_judge_count(d->judge, result, "%s, rank %zu: %s", d->s->text, d->rank, what);
}

static void launched(destination *d, int error, const char *what) {
    if (d->pool.status == SPW_OK) d->pool.status = spw_device_check(error, what);
}

/* --- Places --- */

static void want_places(destination *d, const uint8_t *keep) {
    const spw_record *r = d->r;
    const size_t groups = r->ranks * r->sequences, per_group = r->sequence_length * r->top_k;
    int32_t *kept = spw_pool_host(&d->pool, d->choices * sizeof *kept);
    size_t *seen = spw_pool_host(&d->pool, d->experts * sizeof *seen);
    spw_plan plan = {0};
    if (d->pool.status != SPW_OK) return;
    for (size_t i = 0; i < d->choices; i++) kept[i] = keep[i] ? d->expert[i] : -1;
    if (d->s->rule == SPW_RECORD_CAPACITY) {
        for (size_t i = 0; i < d->choices; i++) {
            if (i % per_group == 0) memset(seen, 0, d->experts * sizeof *seen);
            d->want_row[i] = -1;
            if (kept[i] < 0) continue;
            const size_t e = (size_t)kept[i];
            d->want_row[i] = (int)((e * groups + i / per_group) * d->capacity + seen[e]++);
        }
        for (size_t e = 0; e <= d->experts; e++) d->want_offset[e] = e * groups * d->capacity;
        return;
    }
    d->pool.status = spw_ref_plan_create(d->tokens, r->top_k, d->experts, kept, &plan);
    if (d->pool.status != SPW_OK) return;
    memcpy(d->want_row, plan.row, d->choices * sizeof *d->want_row);
    memcpy(d->want_offset, plan.offset, (d->experts + 1) * sizeof *d->want_offset);
    spw_ref_plan_destroy(&plan);
}

static spw_plan_gpu run_plan(destination *d, const int *expert, size_t experts) {
    spw_device_pool *pool = &d->pool;
    const size_t chunks = (d->choices + SPW_PLAN_CHUNK - 1) / SPW_PLAN_CHUNK;
    spw_plan_gpu g = {.assignments = (int)d->choices, .experts = (int)experts};
    g.expert = spw_pool_device(pool, d->choices * 4, expert);
    g.chunk_count = spw_pool_device(pool, chunks * experts * 4, NULL);
    g.count = spw_pool_device(pool, experts * 4, NULL);
    g.offset = spw_pool_device(pool, (experts + 1) * 4, NULL);
    g.row = spw_pool_device(pool, d->choices * 4, NULL);
    g.assignment = spw_pool_device(pool, d->choices * 4, NULL);
    if (pool->status == SPW_OK) launched(d, spw_launch_plan(g, NULL), "plan");
    return g;
}

static void place_by_capacity(destination *d) {
    const spw_record *r = d->r;
    spw_device_pool *pool = &d->pool;
    int *offset = spw_pool_host(pool, (d->experts + 1) * sizeof *offset);
    spw_capacity_gpu g = {.groups = (int)(r->ranks * r->sequences),
                          .assignments_per_group = (int)(r->sequence_length * r->top_k),
                          .experts = (int)d->experts,
                          .capacity = (int)d->capacity};
    g.expert = spw_pool_device(pool, d->choices * 4, d->expert);
    g.row = spw_pool_device(pool, d->choices * 4, NULL);
    g.assignment = spw_pool_device(pool, d->buffer * 4, NULL);
    if (pool->status != SPW_OK) return;
    launched(d, spw_launch_capacity(g, NULL), "capacity");
    for (size_t e = 0; e <= d->experts; e++) offset[e] = (int)(e * (d->buffer / d->experts));
    d->row = g.row, d->slot = g.assignment;
    d->offset = spw_pool_device(pool, (d->experts + 1) * 4, offset);
    d->got_row = spw_pool_fetch(pool, g.row);
    d->rows = d->buffer; /* empty slots included */
}

/* A plan by (source, expert) or by expert is the order in which rows find room: what stands beyond the buffer is dropped, and the
 * rest is planned again. */
static void place_by_rows(destination *d) {
    const bool by_source = d->s->rule == SPW_RECORD_SOURCE;
    const size_t per_rank = d->choices / d->r->ranks;
    int *key = spw_pool_host(&d->pool, d->choices * sizeof *key);
    if (d->pool.status != SPW_OK) return;
    for (size_t source = 0, i = 0; source < d->r->ranks; source++)
        for (const size_t behind = i + per_rank; i < behind; i++)
            key[i] = d->expert[i] < 0 ? -1 : (int)(by_source ? source * d->experts : 0) + d->expert[i];
    const spw_plan_gpu order = run_plan(d, key, by_source ? d->r->experts : d->experts);
    const int *place = spw_pool_fetch(&d->pool, order.row);
    if (d->pool.status != SPW_OK) return;
    for (size_t i = 0; i < d->choices; i++)
        key[i] = place[i] >= 0 && (size_t)place[i] < d->buffer ? d->expert[i] : -1;
    const spw_plan_gpu plan = run_plan(d, key, d->experts);
    d->row = plan.row, d->offset = plan.offset;
    d->got_row = spw_pool_fetch(&d->pool, plan.row);
    const int *offset = spw_pool_fetch(&d->pool, plan.offset);
    if (d->pool.status != SPW_OK) return;
    d->rows = offset[d->experts] < 0 ? SIZE_MAX : (size_t)offset[d->experts];
    spw_status good = SPW_OK;
    for (size_t e = 0; e <= d->experts; e++)
        if ((size_t)offset[e] != d->want_offset[e])
            good = spw_fail(SPW_EMISMATCH, "offset %zu is %d, want %zu", e, offset[e], d->want_offset[e]);
    count(d, good, "offsets");
}

static void check_places(destination *d, const uint8_t *keep) {
    want_places(d, keep);
    if (d->pool.status != SPW_OK) return;
    if (d->s->rule == SPW_RECORD_CAPACITY)
        place_by_capacity(d);
    else
        place_by_rows(d);
    if (d->pool.status != SPW_OK) return;
    count(d, spw_judge_bytes(d->choices, 4, d->got_row, d->want_row), "places");
    for (size_t i = 0; i < d->choices; i++)
        d->dropped[i / (d->choices / d->r->ranks)] += d->expert[i] >= 0 && d->got_row[i] < 0;
}

/* --- Values --- */

static spw_bf16 *numbers(destination *d, uint64_t seed, size_t size) {
    spw_bf16 *bits = spw_pool_host(&d->pool, size * sizeof *bits);
    for (size_t i = 0; i < size && bits != NULL; i++)
        bits[i] = spw_bf16_from_float(spw_number(SPW_NUMBERS_BELL, seed, i));
    return bits;
}

static float *widened(destination *d, const spw_bf16 *bits, size_t size) {
    float *value = spw_pool_host(&d->pool, size * sizeof *value);
    for (size_t i = 0; i < size && value != NULL; i++) value[i] = spw_bf16_to_float(bits[i]);
    return value;
}

static void check_fan_out(destination *d) {
    const size_t hidden = d->r->hidden, size = d->buffer * hidden;
    spw_device_pool *pool = &d->pool;
    const spw_bf16 *x = numbers(d, 71, d->tokens * hidden);
    const spw_bf16 *device_x = spw_pool_device(pool, d->tokens * hidden * 2, x);
    d->moved = spw_pool_host(pool, size * 2);
    d->buffer_rows = spw_pool_device(pool, size * 2, NULL);
    if (pool->status != SPW_OK) return;
    d->bytes = pool->array[pool->arrays - 1].bytes;
    launched(d,
             spw_launch_fan_out((int)d->tokens, (int)hidden, (int)d->r->top_k, d->row, device_x,
                                d->buffer_rows, NULL),
             "fan-out");
    if (d->slot != NULL)
        launched(d, spw_launch_fan_out_clear((int)d->buffer, (int)hidden, d->slot, d->buffer_rows, NULL),
                 "empty slots");
    else
        memset(d->moved, 0xff, size * 2); /* behind the rows nobody writes */
    const spw_bf16 *got = spw_pool_fetch(pool, d->buffer_rows);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < d->choices; i++)
        if (d->want_row[i] >= 0)
            memcpy(d->moved + (size_t)d->want_row[i] * hidden, x + i / d->r->top_k * hidden, hidden * 2);
    count(d, spw_judge_bytes(size, 2, got, d->moved), "fan-out");
}

static void check_combine(destination *d, const spw_bf16 *y, const spw_bf16 *got_y) {
    spw_device_pool *pool = &d->pool;
    const size_t size = d->tokens * OUT;
    const float *rows = widened(d, got_y, d->buffer * OUT);
    float *weight = spw_pool_host(pool, d->choices * 4), *want = spw_pool_host(pool, size * 4),
          *scale = spw_pool_host(pool, size * 4);
    if (pool->status != SPW_OK) return;
    for (size_t i = 0; i < d->choices; i++) weight[i] = 0.5f + 0.2f * spw_number(SPW_NUMBERS_BELL, 73, i);
    const float *device_weight = spw_pool_device(pool, d->choices * 4, weight);
    spw_bf16 *sum = spw_pool_device(pool, size * 2, NULL);
    if (pool->status != SPW_OK) return;
    launched(
        d,
        spw_launch_combine(
            (spw_combine_gpu){(int)d->tokens, OUT, (int)d->r->top_k, d->row, device_weight, y, sum}, NULL),
        "combine");
    const spw_bf16 *got = spw_pool_fetch(pool, sum);
    if (pool->status != SPW_OK) return;
    const spw_plan plan = {.tokens = d->tokens, .top_k = d->r->top_k, .rows = d->buffer, .row = d->want_row};
    spw_ref_combine(&plan, OUT, rows, weight, want, scale);
    count(d, spw_judge_bf16(d->judge, false, size, d->r->top_k, got, want, scale), "combine");
}

static void check_gemm(destination *d) {
    spw_device_pool *pool = &d->pool;
    const size_t hidden = d->r->hidden, size = d->buffer * OUT, matrix = d->experts * hidden * OUT;
    const spw_gemm_shape shape = {d->experts, d->buffer, hidden, OUT, false};
    const spw_bf16 *w = numbers(d, 72, matrix), *device_w = spw_pool_device(pool, matrix * 2, w);
    const float *x = widened(d, d->moved, d->buffer * hidden), *weights = widened(d, w, matrix);
    float *want = spw_pool_host(pool, size * 4), *scale = spw_pool_host(pool, size * 4);
    spw_bf16 *y = NULL;
    const spw_bf16 *got = NULL;
    if (pool->status == SPW_OK)
        pool->status = spw_ref_grouped_gemm(shape, x, weights, d->want_offset, want, scale);
    for (const spw_gemm_variant *v = spw_gemm_variants; v->name != NULL && pool->status == SPW_OK; v++) {
        y = spw_pool_device(pool, size * 2, NULL);
        if (pool->status == SPW_OK)
            pool->status = spw_gpu_grouped_gemm(v, SPW_GEMM_FORWARD, shape, d->buffer_rows, device_w,
                                                d->offset, y, NULL);
        got = spw_pool_fetch(pool, y);
        if (pool->status == SPW_OK)
            count(d, spw_judge_bf16(d->judge, false, size, hidden, got, want, scale), v->name);
    }
    if (pool->status == SPW_OK) check_combine(d, y, got);
}

/* --- All of it --- */

static spw_status verify_rank(destination *d, const uint8_t *keep) {
    spw_device_pool *pool = &d->pool;
    d->expert = spw_pool_host(pool, d->choices * sizeof *d->expert);
    d->want_row = spw_pool_host(pool, d->choices * sizeof *d->want_row);
    d->want_offset = spw_pool_host(pool, (d->experts + 1) * sizeof *d->want_offset);
    if (pool->status != SPW_OK) return pool->status;
    const int first = (int)(d->rank * d->experts), behind = first + (int)d->experts;
    for (size_t i = 0; i < d->choices; i++) {
        const int x = d->r->expert[i];
        d->expert[i] = x >= first && x < behind ? x - first : -1;
    }
    check_places(d, keep);
    if (pool->status == SPW_OK) check_fan_out(d);
    if (pool->status == SPW_OK) check_gemm(d);
    if (pool->status != SPW_OK) return pool->status;
    count(d, spw_judge_equal(d->rows, d->s->rows[d->rank]), "rows");
    count(d, spw_judge_equal(d->bytes, d->s->buffer_bytes), "bytes allocated for the buffer");
    const spw_status guards = spw_pool_guards(pool);
    if (guards != SPW_OK && guards != SPW_EMISMATCH) return guards;
    pool->status = SPW_OK;
    count(d, guards, "guards");
    return SPW_OK;
}

static spw_status verify_scheme(const spw_record *r, const spw_record_scheme *s, spw_judge *judge) {
    spw_status status = SPW_OK;
    const size_t tokens = r->ranks * spw_record_tokens(r), choices = tokens * r->top_k,
                 buffer = spw_record_buffer(r, s);
    size_t dropped[SPW_RECORD_RANKS] = {0};
    uint8_t *keep = NULL;
    destination d = {.r = NULL};
    if (buffer == 0 || buffer > MOST_ROWS)
        SPW_TRY(spw_fail(SPW_EARG, "%s: a buffer of %zu rows; must be 1 to %d", s->text, buffer, MOST_ROWS));
    SPW_TRY(SPW_ALLOC(choices, &keep));
    SPW_TRY(spw_record_keep(r, s, buffer, keep));
    spw_judge_count(judge, spw_judge_equal(buffer, s->buffer_rows), "%s: rows of the buffer", s->text);
    for (size_t rank = 0; rank < r->ranks; rank++) {
        d = (destination){.r = r,
                          .s = s,
                          .judge = judge,
                          .rank = rank,
                          .tokens = tokens,
                          .choices = choices,
                          .experts = r->experts / r->ranks,
                          .capacity = buffer / (r->sequences * r->experts),
                          .buffer = buffer,
                          .dropped = dropped};
        SPW_TRY(verify_rank(&d, keep));
        spw_pool_destroy(&d.pool);
    }
    for (size_t rank = 0; rank < r->ranks; rank++)
        spw_judge_count(judge, spw_judge_equal(dropped[rank], s->dropped[rank]),
                        "%s: drops of source rank %zu", s->text, rank);
cleanup:
    spw_pool_destroy(&d.pool);
    spw_free(keep);
    return status;
}

static spw_status reject_wrong_predictions(const spw_record *r, spw_judge *judge) {
    spw_record_scheme wrong = r->scheme[0];
    spw_judge unseen = {.quiet = true};
    const size_t expected = 3 * r->ranks + 1;
    wrong.buffer_rows++, wrong.buffer_bytes++;
    for (size_t i = 0; i < r->ranks; i++) wrong.rows[i]++, wrong.dropped[i]++;
    const spw_status status = verify_scheme(r, &wrong, &unseen);
    if (status != SPW_OK) return status;
    printf("wrong predictions: %zu of %zu rejected\n", unseen.failed, expected);
    spw_judge_count(judge,
                    unseen.failed == expected
                        ? SPW_OK
                        : spw_fail(SPW_EMISMATCH, "%zu of %zu were rejected", unseen.failed, expected),
                    "wrong predictions");
    return SPW_OK;
}

spw_status spw_verify_record(const spw_record *r, spw_judge *judge) {
    spw_status status = SPW_OK;
    printf("record: %s; %zu ranks, top-%zu of %zu experts, %zu tokens a rank, hidden %zu\n", r->origin,
           r->ranks, r->top_k, r->experts, spw_record_tokens(r), r->hidden);
    for (size_t i = 0; i < r->schemes; i++) {
        const size_t before = judge->comparisons, failed = judge->failed;
        if (r->scheme[i].rule == SPW_RECORD_TOKEN) {
            printf("%-28s only between ranks (--ranks)\n", r->scheme[i].text);
            continue;
        }
        SPW_TRY(verify_scheme(r, &r->scheme[i], judge));
        printf("%-28s %4zu comparisons, %zu failed\n", r->scheme[i].text, judge->comparisons - before,
               judge->failed - failed);
    }
    if (r->schemes > 0 && r->scheme[0].rule != SPW_RECORD_TOKEN) SPW_TRY(reject_wrong_predictions(r, judge));
cleanup:
    return status;
}
