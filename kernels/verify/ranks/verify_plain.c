#include "kernels/verify/ranks/verify_plain.h"

#include "base/memory.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/numbers.h"
#include "kernels/record/record_rules.h"
#include "reference/bf16.h"
#include "reference/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    spw_world *world;
    const spw_record *r;
    const spw_record_scheme *s;
    spw_judge *judge;
    spw_plain_exchange *e;
    size_t ranks, tokens, top_k, hidden, local, choices, words; /* tokens, choices: of a rank */
    int32_t *row;   /* [ranks][choices] in the buffer of the expert's rank, or -1: what the reference says */
    int32_t *item;  /* [ranks][rows] the token of each row, source rank * tokens + token, or -1 */
    spw_bf16 *x;    /* [ranks][tokens][hidden] */
    float *weight;  /* [ranks][choices] */
    float *logits;  /* [ranks][tokens][words] */
    spw_bf16 *back; /* [ranks][rows][hidden] */
    unsigned char *got;
    float *want, *bound;
    void *memory[SPW_WORLD_RANKS][5]; /* x, expert, weight, logits, y on the device */
} run;

static void count(run *k, spw_status result, size_t rank, const char *what) {
    spw_judge_count(k->judge, result, "%s, %s, rank %zu: %s", k->s->text, k->e->variant->name, rank, what);
}

/* --- What must come out --- */

static spw_status places_by_expert(run *k, size_t d, const uint8_t *keep) {
    const size_t all = k->ranks * k->choices;
    int32_t *expert = NULL;
    spw_plan plan = {0};
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(all, &expert));
    for (size_t i = 0; i < all; i++) {
        const int32_t x = k->r->expert[i];
        expert[i] = keep[i] && (size_t)x / k->local == d ? x % (int32_t)k->local : -1;
    }
    SPW_TRY(spw_ref_plan_create(k->ranks * k->tokens, k->top_k, k->local, expert, &plan));
    for (size_t i = 0; i < all; i++) {
        if (plan.row[i] < 0) continue;
        k->row[i] = plan.row[i];
        k->item[d * k->e->rows + (size_t)plan.row[i]] = (int32_t)(i / k->top_k);
    }
cleanup:
    spw_ref_plan_destroy(&plan);
    spw_free(expert);
    return status;
}

static spw_status places_by_slot(run *k, const uint8_t *keep) {
    const size_t per_sequence = k->r->sequence_length * k->top_k, groups = k->ranks * k->r->sequences;
    const size_t capacity = k->e->shape.capacity;
    size_t *seen = NULL;
    const spw_status status = SPW_ALLOC(k->r->experts, &seen);
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < k->ranks * k->choices; i++) {
        if (i % per_sequence == 0) memset(seen, 0, k->r->experts * sizeof *seen);
        if (!keep[i]) continue;
        const size_t x = (size_t)k->r->expert[i];
        const size_t row = (x % k->local * groups + i / per_sequence) * capacity + seen[x]++;
        k->row[i] = (int32_t)row;
        k->item[x / k->local * k->e->rows + row] = (int32_t)(i / k->top_k);
    }
    spw_free(seen);
    return SPW_OK;
}

static spw_status want_places(run *k) {
    const size_t all = k->ranks * k->choices;
    uint8_t *keep = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(all, &keep));
    for (size_t i = 0; i < all; i++) k->row[i] = -1;
    for (size_t i = 0; i < k->ranks * k->e->rows; i++) k->item[i] = -1;
    if (k->e->shape.kind == SPW_PLAIN_GATHER) {
        for (size_t i = 0; i < k->ranks * k->e->rows; i++) k->item[i] = (int32_t)(i % k->e->rows);
    } else {
        SPW_TRY(spw_record_keep(k->r, k->s, spw_record_buffer(k->r, k->s), keep));
        if (k->e->shape.kind == SPW_PLAIN_CAPACITY) SPW_TRY(places_by_slot(k, keep));
        for (size_t d = 0; d < k->ranks && k->e->shape.kind == SPW_PLAIN_RAGGED; d++)
            SPW_TRY(places_by_expert(k, d, keep));
    }
cleanup:
    spw_free(keep);
    return status;
}

/* --- Data --- */

static spw_status create(run *k) {
    const size_t tokens = k->ranks * k->tokens, rows = k->ranks * k->e->rows;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(k->ranks * k->choices, &k->row));
    SPW_TRY(SPW_ALLOC(rows, &k->item));
    SPW_TRY(SPW_ALLOC(tokens * k->hidden, &k->x));
    SPW_TRY(SPW_ALLOC(k->ranks * k->choices, &k->weight));
    SPW_TRY(SPW_ALLOC(tokens * k->words + 1, &k->logits));
    SPW_TRY(SPW_ALLOC(rows * k->hidden, &k->back));
    SPW_TRY(SPW_ALLOC(k->e->rows * (k->hidden * 2 + k->words * 4) +
                          (k->e->items + k->tokens) * k->hidden * 2 + k->choices * 4,
                      &k->got));
    SPW_TRY(SPW_ALLOC(k->tokens * k->hidden, &k->want));
    SPW_TRY(SPW_ALLOC(k->tokens * k->hidden, &k->bound));
    for (size_t i = 0; i < tokens * k->hidden; i++)
        k->x[i] = spw_bf16_from_float(spw_number(SPW_NUMBERS_BELL, 31, i));
    for (size_t i = 0; i < k->ranks * k->choices; i++) k->weight[i] = spw_number(SPW_NUMBERS_BELL, 32, i);
    for (size_t i = 0; i < tokens * k->words; i++) k->logits[i] = spw_number(SPW_NUMBERS_BELL, 33, i);
    for (size_t i = 0; i < rows * k->hidden; i++)
        k->back[i] = spw_bf16_from_float(spw_number(SPW_NUMBERS_BELL, 34, i));
    SPW_TRY(want_places(k));
    for (size_t r = k->world->first; r < k->world->behind; r++) {
        const struct {
            const void *from;
            size_t bytes;
        } parts[5] = {{k->x + r * k->tokens * k->hidden, k->tokens * k->hidden * 2},
                      {k->r->expert + r * k->choices, k->choices * 4},
                      {k->weight + r * k->choices, k->choices * 4},
                      {k->logits + r * k->tokens * k->words, k->tokens * k->words * 4},
                      {NULL, k->tokens * k->hidden * 2}};
        SPW_TRY(spw_world_use(k->world, r));
        for (int i = 0; i < 5; i++) {
            SPW_TRY_GPU(cudaMalloc(&k->memory[r][i], parts[i].bytes + 16), "allocate");
            SPW_TRY_GPU(cudaMemset(k->memory[r][i], 0xff, parts[i].bytes + 16), "poison");
            if (parts[i].from != NULL)
                SPW_TRY_GPU(
                    cudaMemcpy(k->memory[r][i], parts[i].from, parts[i].bytes, cudaMemcpyHostToDevice),
                    "upload");
        }
        SPW_TRY_GPU(cudaMemcpy(k->e->returned[r], k->back + r * k->e->rows * k->hidden,
                               k->e->rows * k->hidden * 2, cudaMemcpyHostToDevice),
                    "upload");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "upload");
    }
    SPW_TRY(spw_world_clear_counters(k->world));
cleanup:
    return status;
}

static void destroy(run *k) {
    for (size_t r = k->world->first; r < k->world->behind; r++) {
        if (spw_world_use(k->world, r) != SPW_OK) continue;
        for (int i = 0; i < 5; i++) (void)cudaFree(k->memory[r][i]);
    }
    spw_plain_destroy(k->e);
    spw_free(k->row), spw_free(k->item), spw_free(k->x), spw_free(k->weight), spw_free(k->logits),
        spw_free(k->back);
    spw_free(k->got), spw_free(k->want), spw_free(k->bound);
}

/* --- Checks --- */

static spw_status received_rows(const run *k, size_t d) {
    const unsigned char blank =
        k->e->shape.kind == SPW_PLAIN_CAPACITY ? 0 : 0xff; /* empty slots travel, other rows stay poison */
    const float *words = (const float *)(const void *)(k->got + k->e->rows * k->hidden * 2);
    for (size_t j = 0; j < k->e->rows; j++) {
        const unsigned char *row = k->got + j * k->hidden * 2;
        const int32_t item = k->item[d * k->e->rows + j];
        if (item >= 0) {
            if (memcmp(row, k->x + (size_t)item * k->hidden, k->hidden * 2) != 0)
                return spw_fail(SPW_EMISMATCH, "row %zu is not that of item %d", j, (int)item);
            if (memcmp(words + j * k->words, k->logits + (size_t)item * k->words, k->words * 4) != 0)
                return spw_fail(SPW_EMISMATCH, "words of row %zu", j);
            continue;
        }
        for (size_t i = 0; i < k->hidden * 2; i++)
            if (row[i] != blank) return spw_fail(SPW_EMISMATCH, "row %zu should have been left alone", j);
    }
    return SPW_OK;
}

/* y of one rank, and the yardstick of its rounding. */
static void want_sums(run *k, size_t s) {
    const bool gather = k->e->shape.kind == SPW_PLAIN_GATHER;
    const size_t terms = gather ? k->ranks : k->top_k;
    for (size_t i = 0; i < k->tokens * k->hidden; i++) {
        const size_t t = i / k->hidden, h = i % k->hidden;
        double sum = 0, scale = 0;
        for (size_t n = 0; n < terms; n++) {
            const size_t choice = s * k->choices + t * k->top_k + n;
            if (!gather && k->row[choice] < 0) continue;
            const size_t d = gather ? n : (size_t)k->r->expert[choice] / k->local;
            const size_t row = gather ? s * k->tokens + t : (size_t)k->row[choice];
            const double value = (double)spw_bf16_to_float(k->back[(d * k->e->rows + row) * k->hidden + h]) *
                                 (gather ? 1 : (double)k->weight[choice]);
            sum += value, scale += fabs(value);
        }
        k->want[i] = (float)sum, k->bound[i] = (float)scale;
    }
}

static spw_status check_rank(run *k, size_t r) {
    const spw_plain_kind kind = k->e->shape.kind;
    const size_t terms = kind == SPW_PLAIN_GATHER ? k->ranks : k->top_k;
    uint64_t bytes[SPW_WORLD_RANKS], dropped = 0;
    spw_status status = SPW_OK, result = SPW_OK;
    SPW_TRY_GPU(cudaMemcpy(k->got, k->e->received[r], k->e->rows * (k->hidden * 2 + k->words * 4),
                           cudaMemcpyDeviceToHost),
                "download");
    count(k, received_rows(k, r), r, "rows");
    want_sums(k, r);
    SPW_TRY_GPU(cudaMemcpy(k->got, k->memory[r][4], k->tokens * k->hidden * 2, cudaMemcpyDeviceToHost),
                "download");
    count(k,
          spw_judge_bf16(k->judge, false, k->tokens * k->hidden, terms, (const spw_bf16 *)(void *)k->got,
                         k->want, k->bound),
          r, "sums");
    for (int back = 0; back < 2; back++) {
        result = SPW_OK;
        SPW_TRY(spw_world_counter(k->world, r, back ? SPW_COUNT_COMBINE : SPW_COUNT_DISPATCH, bytes));
        for (size_t d = 0; d < k->ranks && result == SPW_OK; d++)
            result =
                spw_judge_equal(bytes[d], k->s->wire[r][d] * (back ? k->s->back_bytes : k->s->row_bytes));
        count(k, result, r, back ? "bytes of the way back" : "bytes of the way there");
    }
    if (kind == SPW_PLAIN_GATHER) return SPW_OK;
    const bool ragged =
        kind == SPW_PLAIN_RAGGED; /* its places are those of rows, the others those of choices */
    int *got = (int *)(void *)k->got;
    SPW_TRY_GPU(
        cudaMemcpy(got, ragged ? k->e->place[r] : k->e->slots[r].row, k->choices * 4, cudaMemcpyDeviceToHost),
        "download");
    for (size_t i = 0; i < k->choices; i++)
        dropped += (uint64_t)(k->r->expert[r * k->choices + i] >= 0) - (got[i] >= 0);
    count(k, spw_judge_equal(dropped, k->s->dropped[r]), r, "drops");
    int rows = (int)k->e->rows;
    if (kind == SPW_PLAIN_RAGGED)
        SPW_TRY_GPU(cudaMemcpy(&rows, k->e->offset[r] + k->local, sizeof rows, cudaMemcpyDeviceToHost),
                    "download");
    count(k, spw_judge_equal((uint64_t)rows, k->s->rows[r]), r, "rows held");
    count(k, spw_judge_equal(k->e->rows * k->hidden * 2, k->s->buffer_bytes), r, "bytes allocated");
cleanup:
    return status;
}

spw_status spw_verify_plain(spw_world *world, const spw_record *record, const spw_record_scheme *scheme,
                            const spw_exchange_variant *variant, spw_judge *judge) {
    static const spw_plain_kind kinds[SPW_RECORD_RULES] = {[SPW_RECORD_CAPACITY] = SPW_PLAIN_CAPACITY,
                                                           [SPW_RECORD_SOURCE] = SPW_PLAIN_RAGGED,
                                                           [SPW_RECORD_EXPERT] = SPW_PLAIN_GATHER};
    const spw_plain_kind kind = kinds[scheme->rule];
    const size_t buffer = spw_record_buffer(record, scheme);
    const spw_plain_shape shape = {
        .kind = kind,
        .sequences = record->sequences,
        .sequence_length = record->sequence_length,
        .top_k = record->top_k,
        .experts = record->experts,
        .hidden = record->hidden,
        .buffer_rows = buffer,
        .capacity = kind == SPW_PLAIN_CAPACITY ? buffer / (record->sequences * record->experts) : 0,
        .words = kind == SPW_PLAIN_GATHER ? 2 * record->experts : 0};
    const spw_bf16 *x[SPW_WORLD_RANKS] = {NULL};
    const int *expert[SPW_WORLD_RANKS] = {NULL};
    const float *weight[SPW_WORLD_RANKS] = {NULL}, *logits[SPW_WORLD_RANKS] = {NULL};
    spw_bf16 *y[SPW_WORLD_RANKS] = {NULL};
    spw_status status = SPW_OK;
    run *k = NULL;
    SPW_TRY(SPW_ALLOC(1, &k));
    *k = (run){.world = world,
               .r = record,
               .s = scheme,
               .judge = judge,
               .ranks = record->ranks,
               .tokens = spw_record_tokens(record),
               .top_k = record->top_k,
               .hidden = record->hidden,
               .local = record->experts / record->ranks,
               .words = shape.words};
    k->choices = k->tokens * k->top_k;
    SPW_TRY(spw_plain_create(world, shape, variant, 0, &k->e));
    SPW_TRY(create(k));
    for (size_t r = world->first; r < world->behind; r++)
        x[r] = k->memory[r][0], expert[r] = k->memory[r][1], weight[r] = k->memory[r][2],
        logits[r] = k->memory[r][3], y[r] = k->memory[r][4];
    SPW_TRY(spw_world_share(world, NULL));
    SPW_TRY(spw_plain_send(k->e, x, expert, shape.words > 0 ? logits : NULL));
    SPW_TRY(spw_plain_return(k->e, weight, y, SPW_COUNT_COMBINE));
    SPW_TRY(spw_world_synchronize(world));
    for (size_t r = world->first; r < world->behind; r++) SPW_TRY(check_rank(k, r));
cleanup:
    if (k != NULL) destroy(k);
    spw_free(k);
    return status;
}
