/* A point is a shape, a routing and a way to move rows. How an operation is timed: bench_ranks.h. */
#include "kernels/bench/bench_exchange.h"

#include "base/memory.h"
#include "kernels/bench/bench_links.h"
#include "kernels/bench/bench_plain.h"
#include "kernels/bench/bench_ranks.h"
#include "kernels/bench/nccl_library.h"
#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/record/choices.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SETS = SPW_BENCH_SETS };

typedef struct point {
    spw_dispatch_shape shape;
    spw_choice_kind routing;
    const spw_exchange_variant *variant;
    int blocks;
} point;

typedef struct bench {
    spw_world *world;   /* of the ranks */
    spw_world *machine; /* a rank a GPU, for what is measured beside; may be the same */
    spw_nccl *nccl;
    double all_pairs; /* GB/s */
    point p;
    spw_dispatch *dispatch;
    spw_dispatch_input in[SETS];
    void *memory[SETS][SPW_WORLD_RANKS][4];
    spw_bf16 *y[SPW_WORLD_RANKS];
    float *side[SPW_WORLD_RANKS];
    size_t rows[SETS][SPW_WORLD_RANKS * SPW_WORLD_RANKS]; /* bytes of every pair of GPUs without dedup */
    double off_rank[SETS], off_gpu[SETS]; /* deduplicated rows that leave a rank, and a GPU, mean */
    void *from[SPW_WORLD_RANKS], *to[SPW_WORLD_RANKS]; /* of NCCL, on every GPU */
} bench;

/* --- Inputs --- */

static void count_rows(bench *b, int set, const int32_t *expert) {
    const spw_dispatch_shape s = b->p.shape;
    const size_t ranks = b->world->ranks, gpus = b->machine->ranks;
    const int *device = b->world->device;
    uint64_t off_rank = 0, off_gpu = 0;
    memset(b->rows[set], 0, sizeof b->rows[set]);
    for (size_t t = 0; t < ranks * s.tokens; t++) {
        const size_t from = t / s.tokens;
        uint64_t seen = 0;
        for (size_t k = 0; k < s.top_k; k++) {
            if (expert[t * s.top_k + k] < 0) continue;
            const size_t to = (size_t)expert[t * s.top_k + k] * ranks / s.experts;
            b->rows[set][(size_t)device[from] * gpus + (size_t)device[to]] += s.hidden * s.element_bytes;
            if (seen >> to & 1) continue;
            off_rank += to != from, off_gpu += device[to] != device[from];
            seen |= 1ull << to;
        }
    }
    b->off_rank[set] = (double)off_rank / (double)ranks, b->off_gpu[set] = (double)off_gpu / (double)gpus;
}

static spw_status create_set(bench *b, int set, int32_t *expert) {
    const spw_dispatch_shape s = b->p.shape;
    const size_t ranks = b->world->ranks, choices = s.tokens * s.top_k, row = s.hidden * s.element_bytes;
    const size_t scales = s.element_bytes == 1 ? (s.hidden + 127) / 128 : 0;
    spw_status status = SPW_OK;
    for (size_t r = 0; r < ranks; r++) {
        const size_t bytes[4] = {s.tokens * row, s.tokens * scales * 4 + 16, choices * 4, choices * 4};
        void **m = b->memory[set][r];
        spw_choices_fill(b->p.routing, s.tokens, s.top_k, s.experts, ranks, (uint64_t)set * 64 + r,
                         expert + r * choices);
        SPW_TRY(spw_world_use(b->world, r));
        for (int i = 0; i < 4; i++) SPW_TRY_GPU(cudaMalloc(&m[i], bytes[i]), "allocate");
        SPW_TRY_GPU(
            spw_launch_fill_bf16(m[0], (long)(bytes[0] / 2), SPW_NUMBERS_BELL, (uint64_t)set * 64 + r, NULL),
            "fill");
        SPW_TRY_GPU(spw_launch_fill_float(m[1], (long)(bytes[1] / 4), SPW_NUMBERS_BELL, 1, NULL), "fill");
        SPW_TRY_GPU(cudaMemcpy(m[2], expert + r * choices, choices * 4, cudaMemcpyHostToDevice), "upload");
        SPW_TRY_GPU(spw_launch_fill_float(m[3], (long)choices, SPW_NUMBERS_BELL, 2, NULL), "fill");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "fill");
        b->in[set].x[r] = m[0], b->in[set].scale[r] = scales > 0 ? m[1] : NULL;
        b->in[set].expert[r] = m[2], b->in[set].weight[r] = m[3];
    }
    count_rows(b, set, expert);
cleanup:
    return status;
}

static void destroy_point(bench *b) {
    spw_dispatch_destroy(b->dispatch);
    b->dispatch = NULL;
    for (size_t r = 0; r < b->world->ranks; r++) {
        if (spw_world_use(b->world, r) != SPW_OK) continue;
        for (int set = 0; set < SETS; set++)
            for (int i = 0; i < 4; i++) (void)cudaFree(b->memory[set][r][i]), b->memory[set][r][i] = NULL;
        (void)cudaFree(b->y[r]), (void)cudaFree(b->side[r]);
        b->y[r] = NULL, b->side[r] = NULL;
    }
    for (size_t g = 0; g < b->machine->ranks; g++) {
        if (spw_world_use(b->machine, g) != SPW_OK) continue;
        (void)cudaFree(b->from[g]), (void)cudaFree(b->to[g]);
        b->from[g] = NULL, b->to[g] = NULL;
    }
}

static size_t most_received(const bench *b) {
    size_t most = 0;
    for (int set = 0; set < SETS; set++) {
        for (size_t d = 0; d < b->machine->ranks; d++) {
            size_t bytes = 0;
            for (size_t s = 0; s < b->machine->ranks; s++) bytes += b->rows[set][s * b->machine->ranks + d];
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static spw_status create_nccl(bench *b) {
    const spw_dispatch_shape s = b->p.shape;
    const size_t sent = spw_world_crowd(b->world) * s.tokens * s.top_k * s.hidden * s.element_bytes;
    spw_status status = SPW_OK;
    for (size_t g = 0; b->nccl != NULL && g < b->machine->ranks; g++) {
        SPW_TRY(spw_world_use(b->machine, g));
        SPW_TRY_GPU(cudaMalloc(&b->from[g], sent), "allocate");
        SPW_TRY_GPU(cudaMalloc(&b->to[g], most_received(b) + 16), "allocate");
        SPW_TRY_GPU(spw_launch_fill_bf16(b->from[g], (long)(sent / 2), SPW_NUMBERS_BELL, 9 + g, NULL),
                    "fill");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "fill");
    }
cleanup:
    return status;
}

static spw_status create_point(bench *b, const point *p) {
    const spw_dispatch_shape s = p->shape;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    b->p = *p;
    SPW_TRY(SPW_ALLOC(b->world->ranks * s.tokens * s.top_k, &expert));
    for (int set = 0; set < SETS; set++) SPW_TRY(create_set(b, set, expert));
    SPW_TRY(spw_dispatch_create(b->world, s, p->variant, p->blocks, &b->dispatch));
    SPW_TRY(spw_dispatch_room(b->dispatch, NULL));
    for (size_t r = 0; r < b->world->ranks; r++) {
        SPW_TRY(spw_world_use(b->world, r));
        SPW_TRY_GPU(cudaMalloc((void **)&b->y[r], s.tokens * s.hidden * 2), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&b->side[r], s.tokens * s.top_k * 4), "allocate");
        SPW_TRY_GPU(spw_launch_fill_bf16(b->dispatch->returned[r],
                                         (long)(b->dispatch->capacity[r] * s.hidden), SPW_NUMBERS_BELL, r,
                                         NULL),
                    "fill");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "fill");
    }
    SPW_TRY(create_nccl(b));
cleanup:
    spw_free(expert);
    return status;
}

/* --- Operations --- */

static spw_status run_layout(void *data, int set) {
    bench *b = data;
    return spw_dispatch_layout(b->dispatch, &b->in[set]);
}
static spw_status run_dispatch(void *data, int set) {
    bench *b = data;
    return spw_dispatch_forward(b->dispatch, &b->in[set]);
}
static spw_status run_again(void *data, int set) {
    bench *b = data;
    return spw_dispatch_again(b->dispatch, &b->in[set], SPW_COUNT_OTHER);
}
static spw_status run_combine(void *data, int set) {
    bench *b = data;
    (void)set;
    return spw_dispatch_combine(b->dispatch, b->y, NULL, SPW_COUNT_OTHER);
}
static spw_status run_combine_side(void *data, int set) {
    bench *b = data;
    (void)set;
    return spw_dispatch_combine(b->dispatch, b->y, b->side, SPW_COUNT_OTHER);
}
static spw_status run_nccl(void *data, int set) {
    bench *b = data;
    return spw_nccl_all_to_all(b->nccl, b->rows[set], b->from, b->to);
}

/* `first`: what must have run on the set before, untimed. */
static const struct operation {
    const char *name;
    spw_bench_ranks_step *first, *run;
    int back; /* counts bf16 rows, whatever was dispatched */
} operations[] = {
    {"layout", NULL, run_layout, 0},
    {"dispatch", NULL, run_dispatch, 0},
    {"dispatch again", run_dispatch, run_again, 0},
    {"combine", run_dispatch, run_combine, 1},
    {"combine with gradients of choices", run_dispatch, run_combine_side, 1},
    {"nccl all-to-all without dedup", NULL, run_nccl, 0},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Out of a rank and out of a GPU, mean; NCCL knows GPUs alone. */
static void mean_bytes(const bench *b, const struct operation *o, double *off_rank, double *off_gpu) {
    const size_t gpus = b->machine->ranks;
    const double row = (double)(b->p.shape.hidden * (o->back ? 2 : b->p.shape.element_bytes)) / SETS;
    *off_rank = *off_gpu = 0;
    for (int set = 0; set < SETS && o->run != run_layout; set++) {
        if (o->run != run_nccl) *off_rank += row * b->off_rank[set], *off_gpu += row * b->off_gpu[set];
        for (size_t i = 0; i < gpus * gpus && o->run == run_nccl; i++)
            if (i / gpus != i % gpus) *off_gpu += (double)b->rows[set][i] / (double)(gpus * SETS);
    }
    if (o->run == run_nccl) *off_rank = *off_gpu;
}

/* ms [OPERATIONS]: 0 where `only` says otherwise. */
static spw_status run_point(bench *b, const point *p, unsigned only, double *ms) {
    spw_status status = create_point(b, p);
    for (int i = 0; i < OPERATIONS && status == SPW_OK; i++) {
        const struct operation *o = &operations[i];
        ms[i] = 0;
        if (!(only >> i & 1) || (o->run == run_nccl && b->nccl == NULL)) continue;
        status = spw_bench_ranks(o->run == run_nccl ? b->machine : b->world, o->first, o->run, b, &ms[i]);
        if (status != SPW_OK) break;
        double off_rank = 0, off_gpu = 0;
        mean_bytes(b, o, &off_rank, &off_gpu);
        const double rate = 1e-6 * off_gpu / ms[i];
        printf("%s%s,%s,%zu,%zu,%zu,%zu,%zu,%s,%s,%d,%.4f,%.2f,%.1f,%.3f", o->name,
               spw_bench_folded(b->world), o->run == run_nccl ? "nccl" : p->variant->name, b->world->ranks,
               p->shape.tokens, p->shape.hidden, p->shape.top_k, p->shape.experts,
               p->shape.element_bytes == 1 ? "fp8" : "bf16", spw_choice_names[p->routing], p->blocks, ms[i],
               1e-6 * off_rank, rate, rate / b->all_pairs);
        spw_bench_end_row(b->world, off_gpu);
    }
    destroy_point(b);
    return status;
}

/* --- What is run --- */

enum {
    LAYOUT = 1,
    DISPATCH = 2,
    AGAIN = 4,
    COMBINE = 8,
    SIDE = 16,
    NCCL = 32,
    ROWS = DISPATCH | AGAIN | COMBINE,
    ALL = 63
};

static const spw_dispatch_shape base_shape = {4096, 8, 256, 7168, 2};

/* Every way at every number of multiprocessors; *best: the two fastest, for the rows that go out and those that come
 * back. */
static spw_status sweep_blocks(bench *b, bool quick, point *best) {
    static const int counts[] = {8, 16, 24, 32, 48, 64, 96, 112, 128, 0};
    const int most = spw_world_blocks(b->world);
    double least = 1e30;
    spw_status status = SPW_OK;
    for (const spw_exchange_variant *v = spw_exchange_variants; v->name != NULL; v++) {
        for (size_t i = quick ? 3 : 0; i < sizeof counts / sizeof *counts; i += quick ? 2 : 1) {
            double ms[OPERATIONS];
            const point p = {base_shape, SPW_CHOICES_UNIFORM, v, counts[i] > 0 ? counts[i] : most};
            if (counts[i] >= most) continue; /* the last is `most` */
            SPW_TRY(run_point(b, &p, ROWS, ms));
            if (ms[1] + ms[3] >= least) continue;
            least = ms[1] + ms[3];
            *best = p;
        }
    }
cleanup:
    return status;
}

static spw_status sweep_shapes(bench *b, const point *best) {
    static const size_t tokens[] = {128, 512, 1024, 2048, 8192}, hidden[] = {1024, 2048, 4096};
    double ms[OPERATIONS];
    point p = *best;
    spw_status status = SPW_OK;
    for (int kind = 0; kind < SPW_CHOICES_KINDS; kind++) {
        p.routing = (spw_choice_kind)kind;
        SPW_TRY(run_point(b, &p, ALL, ms));
    }
    p = *best;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        p.shape.tokens = tokens[i];
        SPW_TRY(run_point(b, &p, ROWS | NCCL, ms));
    }
    p = *best;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        p.shape.hidden = hidden[i];
        SPW_TRY(run_point(b, &p, ROWS | NCCL, ms));
    }
    p = *best;
    p.shape.element_bytes = 1;
    SPW_TRY(run_point(b, &p, DISPATCH | AGAIN | NCCL, ms));
cleanup:
    return status;
}

static spw_status small_size(bench *b, const point *best) {
    const int most = spw_world_blocks(b->world);
    double ms[OPERATIONS], microseconds = 0;
    spw_status status = SPW_OK;
    for (const spw_exchange_variant *v = spw_exchange_variants; v->name != NULL; v++) {
        point p = *best;
        p.shape.tokens = 128, p.variant = v, p.blocks = 64 < most ? 64 : most;
        SPW_TRY(run_point(b, &p, ALL, ms));
    }
    SPW_TRY(spw_bench_round_trip(b->machine, &microseconds));
    printf("round trip of 16 bytes,echo,2,,,,,,,,%.4f,,,", 1e-3 * microseconds);
    spw_bench_end_row(b->world, 16);
cleanup:
    return status;
}

static spw_status all_pairs(bench *b, double *gb_per_s) {
    const size_t gpus = b->machine->ranks, bytes = (size_t)256 << 20;
    const spw_status status = spw_bench_all_pairs(b->machine, bytes, gb_per_s);
    if (status != SPW_OK) return status;
    printf("all pairs of peer copies,runtime,%zu,,,,,,,,,%.2f,%.1f,1", gpus, 1e-6 * (double)bytes, *gb_per_s);
    spw_bench_end_row(b->world, (double)(bytes * (gpus - 1)));
    return SPW_OK;
}

static spw_status run_all(bench *b, const spw_bench_exchange_request *q, spw_link_curve *curve) {
    spw_status status = SPW_OK;
    point best = {base_shape, SPW_CHOICES_UNIFORM, spw_exchange_variants, spw_world_blocks(b->world)};
    double again = 0;
    SPW_TRY(all_pairs(b, &b->all_pairs));
    SPW_TRY(sweep_blocks(b, q->quick, &best));
    SPW_TRY(small_size(b, &best));
    if (!q->quick) SPW_TRY(sweep_shapes(b, &best));
    if (!q->quick)
        SPW_TRY(
            spw_bench_plain(b->world, b->world == b->machine ? b->nccl : NULL, best.variant, b->all_pairs));
    SPW_TRY(all_pairs(b, &again));
    if (curve != NULL) SPW_TRY(spw_bench_link_curve(b->machine, curve));
cleanup:
    return status;
}

spw_status spw_bench_exchange(const spw_bench_exchange_request *q, spw_link_curve *curve) {
    bench *b = NULL;
    spw_status status = SPW_OK;
    spw_world_prepare();
    const size_t there = (size_t)spw_device_count(),
                 most = q->ranks > 0 && q->ranks < there ? q->ranks : there;
    const size_t gpus = q->gpus > 0 ? q->gpus : most, ranks = q->ranks > 0 ? q->ranks : gpus;
    if (gpus < 2 || gpus > there || ranks < gpus)
        return spw_fail(SPW_EDEVICE,
                        "%zu ranks on %zu GPUs of %zu; at least two GPUs are needed, and a rank for each",
                        ranks, gpus, there);
    SPW_TRY(SPW_ALLOC(1, &b));
    SPW_TRY(spw_world_create(gpus, gpus, false, &b->machine));
    b->world = b->machine;
    if (ranks > gpus) SPW_TRY(spw_world_create(ranks, gpus, false, &b->world));
    if (!b->world->wait)
        SPW_TRY(spw_fail(SPW_EDEVICE, "%zu ranks on %zu GPUs cannot wait for each other there", ranks, gpus));
    if (base_shape.experts % ranks != 0)
        SPW_TRY(spw_fail(SPW_EARG, "%zu experts on %zu ranks; a divisor would be right", base_shape.experts,
                         ranks));
    if (spw_nccl_create(b->machine, &b->nccl) != SPW_OK)
        fprintf(stderr, "NCCL is left out: %s\n", spw_last_error());
    printf("what,how,ranks,tokens,hidden,top_k,experts,dtype,routing,multiprocessors,ms,off_rank_megabytes,"
           "gb_per_s,of_all_pairs%s\n",
           ranks > gpus ? ",gpus,off_gpu_megabytes" : "");
    SPW_TRY(run_all(b, q, curve));
cleanup:
    if (b != NULL) {
        spw_nccl_destroy(b->nccl);
        if (b->world != b->machine) spw_world_destroy(b->world);
        spw_world_destroy(b->machine);
    }
    spw_free(b);
    return status;
}
