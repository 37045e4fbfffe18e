#include "kernels/bench/bench_plain.h"

#include "base/memory.h"
#include "kernels/bench/bench_ranks.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/choices.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"

#include <stdio.h>

enum { TOKENS = 4096, TOP_K = 8, EXPERTS = 256, HIDDEN = 7168, CHOICES = TOKENS * TOP_K };

typedef struct plain_bench {
    spw_world *world;
    spw_nccl *nccl;
    spw_plain_exchange *e;
    spw_bf16 *x[SPW_WORLD_RANKS], *y[SPW_WORLD_RANKS];
    int *expert[SPW_BENCH_SETS][SPW_WORLD_RANKS];
    size_t bytes[SPW_BENCH_SETS][SPW_WORLD_RANKS * SPW_WORLD_RANKS]; /* of every pair, ragged */
    void *from[SPW_WORLD_RANKS], *to[SPW_WORLD_RANKS];               /* of the library */
} plain_bench;

static bool gathers(const plain_bench *b) { return b->e->shape.kind == SPW_PLAIN_GATHER; }

static spw_status send_all(void *data, int set) {
    plain_bench *b = data;
    return spw_plain_send(b->e, (const spw_bf16 *const *)b->x, (const int *const *)b->expert[set], NULL);
}
static spw_status send_rows(void *data, int set) {
    plain_bench *b = data;
    (void)set;
    return spw_plain_send_rows(b->e, (const spw_bf16 *const *)(gathers(b) ? b->x : b->e->local), NULL, NULL,
                               SPW_COUNT_COMBINE_GRADIENT);
}
static spw_status return_rows(void *data, int set) {
    plain_bench *b = data;
    (void)set;
    return spw_plain_return_rows(b->e, gathers(b) ? b->y : b->e->local, SPW_COUNT_COMBINE);
}
static spw_status library_ragged(void *data, int set) {
    plain_bench *b = data;
    return spw_nccl_all_to_all(b->nccl, b->bytes[set], b->from, b->to);
}
static spw_status library_equal(void *data, int set) {
    plain_bench *b = data;
    size_t bytes[SPW_WORLD_RANKS * SPW_WORLD_RANKS];
    (void)set;
    for (size_t i = 0; i < b->world->ranks * b->world->ranks; i++)
        bytes[i] = b->e->rows * HIDDEN * 2 / b->world->ranks;
    return spw_nccl_all_to_all(b->nccl, bytes, b->from, b->to);
}
static spw_status library_gather(void *data, int set) {
    plain_bench *b = data;
    (void)set;
    return spw_nccl_all_gather(b->nccl, (size_t)TOKENS * HIDDEN * 2, b->from, b->to);
}
static spw_status library_reduce(void *data, int set) {
    plain_bench *b = data;
    (void)set;
    return spw_nccl_reduce_scatter(b->nccl, (size_t)TOKENS * HIDDEN, b->from, b->to);
}

/* `counter`: where the bytes of what is timed are counted; the library's are those of the line before. */
static const struct plain_operation {
    const char *name, *how;
    spw_bench_ranks_step *first, *run;
    spw_plain_kind kind;
    int counter;
} operations[] = {
    {"ragged: plan; sort and rows there", "stores", NULL, send_all, SPW_PLAIN_RAGGED, SPW_COUNT_DISPATCH},
    {"ragged: rows there", "stores", send_all, send_rows, SPW_PLAIN_RAGGED, SPW_COUNT_COMBINE_GRADIENT},
    {"ragged: rows back", "stores", send_all, return_rows, SPW_PLAIN_RAGGED, SPW_COUNT_COMBINE},
    {"ragged: rows", "nccl", NULL, library_ragged, SPW_PLAIN_RAGGED, -1},
    {"capacity slots there", "stores", send_all, send_rows, SPW_PLAIN_CAPACITY, SPW_COUNT_COMBINE_GRADIENT},
    {"capacity slots back", "stores", send_all, return_rows, SPW_PLAIN_CAPACITY, SPW_COUNT_COMBINE},
    {"capacity slots", "nccl", NULL, library_equal, SPW_PLAIN_CAPACITY, -1},
    {"all-gather", "stores", NULL, send_rows, SPW_PLAIN_GATHER, SPW_COUNT_COMBINE_GRADIENT},
    {"all-gather", "nccl", NULL, library_gather, SPW_PLAIN_GATHER, -1},
    {"reduce-scatter", "stores", NULL, return_rows, SPW_PLAIN_GATHER, SPW_COUNT_COMBINE},
    {"reduce-scatter", "nccl", NULL, library_reduce, SPW_PLAIN_GATHER, -1},
};

static spw_status create(plain_bench *b) {
    const size_t ranks = b->world->ranks, row = (size_t)HIDDEN * 2, ids = CHOICES * sizeof *b->expert[0][0];
    const size_t most = CHOICES > ranks * TOKENS ? CHOICES : ranks * TOKENS; /* gathers move all tokens */
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(CHOICES, &expert));
    for (size_t r = 0; r < ranks; r++) {
        SPW_TRY(spw_world_use(b->world, r));
        SPW_TRY_GPU(cudaMalloc((void **)&b->x[r], TOKENS * row), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&b->y[r], TOKENS * row), "allocate");
        SPW_TRY_GPU(cudaMalloc(&b->from[r], most * row), "allocate");
        SPW_TRY_GPU(cudaMalloc(&b->to[r], 2 * most * row), "allocate");
        SPW_TRY_GPU(spw_launch_fill_bf16(b->x[r], (long)TOKENS * HIDDEN, SPW_NUMBERS_BELL, r, NULL), "fill");
        SPW_TRY_GPU(spw_launch_fill_bf16(b->from[r], (long)(most * HIDDEN), SPW_NUMBERS_BELL, 9 + r, NULL),
                    "fill");
        for (int set = 0; set < SPW_BENCH_SETS; set++) {
            spw_choices_fill(SPW_CHOICES_UNIFORM, TOKENS, TOP_K, EXPERTS, ranks, (uint64_t)set * 64 + r,
                             expert);
            for (size_t i = 0; i < CHOICES; i++)
                b->bytes[set][r * ranks + (size_t)expert[i] / (EXPERTS / ranks)] += row;
            SPW_TRY_GPU(cudaMalloc((void **)&b->expert[set][r], ids), "allocate");
            SPW_TRY_GPU(cudaMemcpy(b->expert[set][r], expert, ids, cudaMemcpyHostToDevice), "upload");
        }
        SPW_TRY_GPU(cudaDeviceSynchronize(), "fill");
    }
cleanup:
    spw_free(expert);
    return status;
}

static void destroy(plain_bench *b) {
    for (size_t r = 0; r < b->world->ranks; r++) {
        if (spw_world_use(b->world, r) != SPW_OK) continue;
        (void)cudaFree(b->x[r]), (void)cudaFree(b->y[r]), (void)cudaFree(b->from[r]),
            (void)cudaFree(b->to[r]);
        for (int set = 0; set < SPW_BENCH_SETS; set++) (void)cudaFree(b->expert[set][r]);
    }
    spw_plain_destroy(b->e);
}

/* Bytes of one exchange that leave a rank, and a GPU, mean. */
static spw_status mean_bytes(const plain_bench *b, int counter, double *off_rank, double *off_gpu) {
    const size_t ranks = b->world->ranks, runs = SPW_BENCH_RANKS_RUNS + SPW_BENCH_RANKS_WARM;
    const int *device = b->world->device;
    uint64_t bytes[SPW_WORLD_RANKS];
    *off_rank = *off_gpu = 0;
    for (size_t r = 0; r < ranks; r++) {
        const spw_status status = spw_world_counter(b->world, r, counter, bytes);
        if (status != SPW_OK) return status;
        for (size_t d = 0; d < ranks; d++) {
            if (d != r) *off_rank += (double)bytes[d] / (double)(ranks * runs);
            if (device[d] != device[r]) *off_gpu += (double)bytes[d] / (double)(b->world->gpus * runs);
        }
    }
    return SPW_OK;
}

static spw_status run(plain_bench *b, const spw_exchange_variant *variant, double all_pairs) {
    const size_t ranks = b->world->ranks;
    double off_rank = 0, off_gpu = 0, ms = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct plain_operation *o = &operations[i];
        if (o->counter < 0 && b->nccl == NULL) continue;
        if (b->e == NULL || b->e->shape.kind != o->kind) {
            const spw_plain_shape shape = {.kind = o->kind,
                                           .sequences = 1,
                                           .sequence_length = TOKENS,
                                           .top_k = TOP_K,
                                           .experts = EXPERTS,
                                           .hidden = HIDDEN,
                                           .buffer_rows = ranks * CHOICES,
                                           .capacity = CHOICES / EXPERTS};
            spw_plain_destroy(b->e);
            b->e = NULL;
            SPW_TRY(spw_plain_create(b->world, shape, variant, 0, &b->e));
        }
        SPW_TRY(spw_world_clear_counters(b->world));
        SPW_TRY(spw_bench_ranks(b->world, o->first, o->run, b, &ms));
        if (o->counter >= 0) SPW_TRY(mean_bytes(b, o->counter, &off_rank, &off_gpu));
        printf("%s%s,%s,%zu,%d,%d,%d,%d,bf16,uniform,%d,%.4f,%.2f,%.1f,%.3f", o->name,
               spw_bench_folded(b->world), o->how, ranks, TOKENS, HIDDEN, TOP_K, EXPERTS,
               o->counter < 0 ? 0 : b->e->blocks, ms, 1e-6 * off_rank, 1e-6 * off_gpu / ms,
               1e-6 * off_gpu / ms / all_pairs);
        spw_bench_end_row(b->world, off_gpu);
    }
cleanup:
    return status;
}

spw_status spw_bench_plain(spw_world *world, spw_nccl *nccl, const spw_exchange_variant *variant,
                           double all_pairs_gb_per_s) {
    plain_bench *b = NULL;
    spw_status status = SPW_ALLOC(1, &b);
    if (status != SPW_OK) return status;
    b->world = world, b->nccl = nccl;
    status = create(b);
    if (status == SPW_OK) status = run(b, variant, all_pairs_gb_per_s);
    destroy(b);
    spw_free(b);
    return status;
}
