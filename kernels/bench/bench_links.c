#include "kernels/bench/bench_links.h"

#include "base/progress.h"
#include "kernels/bench/bench.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/links_launch.h"
#include "kernels/gpu/runtime.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RUNS = 5, FLAG_BYTES = 64 * 32 * 4, MOST_MESSAGES = 200 };

typedef struct links {
    spw_world *world;
    void *from[SPW_WORLD_RANKS], *to[SPW_WORLD_RANKS], *flags[SPW_WORLD_RANKS];
    gpu_stream stream[SPW_WORLD_RANKS][SPW_WORLD_RANKS]; /* of a GPU, for each other one */
} links;

static spw_status create(links *l, spw_world *world, size_t bytes) {
    size_t data[SPW_WORLD_RANKS], flags[SPW_WORLD_RANKS];
    spw_status status = SPW_OK;
    *l = (links){.world = world};
    if (world->ranks < 2 || world->gpus < world->ranks || !world->wait || world->link != NULL)
        return spw_fail(SPW_EDEVICE, "links are measured by one process with at least two GPUs, a rank each");
    for (size_t r = 0; r < world->ranks; r++) data[r] = bytes * world->ranks, flags[r] = FLAG_BYTES;
    SPW_TRY(spw_world_allocate(world, data, l->from));
    SPW_TRY(spw_world_allocate(world, data, l->to));
    SPW_TRY(spw_world_allocate_flags(world, flags, l->flags));
    for (size_t a = 0; a < world->ranks; a++) {
        SPW_TRY(spw_world_use(world, a));
        for (size_t b = 0; b < world->ranks; b++)
            SPW_TRY_GPU(cudaStreamCreateWithFlags((cudaStream_t *)&l->stream[a][b], cudaStreamNonBlocking),
                        "create stream");
    }
cleanup:
    return status;
}

static void destroy(links *l) {
    spw_world_free(l->world, l->from), spw_world_free(l->world, l->to), spw_world_free(l->world, l->flags);
    for (size_t a = 0; a < l->world->ranks; a++) {
        if (spw_world_use(l->world, a) != SPW_OK) continue;
        for (size_t b = 0; b < l->world->ranks; b++)
            if (l->stream[a][b] != NULL) (void)cudaStreamDestroy((cudaStream_t)l->stream[a][b]);
    }
}

static spw_status wait_for_all(const links *l) {
    spw_status status = SPW_OK;
    for (size_t a = 0; a < l->world->ranks; a++) {
        SPW_TRY(spw_world_use(l->world, a));
        SPW_TRY_GPU(cudaDeviceSynchronize(), "synchronize");
    }
cleanup:
    return status;
}

/* Who copies to whom; `by` runs the copy. */
typedef enum pattern { OUT, IN, EXCHANGE, INCAST, PATTERNS } pattern;

static bool takes_part(pattern p, size_t from, size_t to) {
    switch (p) {
    case OUT: return from == 0 && to == 1;
    case IN: return from == 1 && to == 0;
    case EXCHANGE: return from != to;
    default: return from != 0 && to == 0;
    }
}

static spw_status copy_once(const links *l, pattern p, size_t bytes) {
    const size_t ranks = l->world->ranks;
    spw_status status = SPW_OK;
    for (size_t step = 1; step < ranks; step++) { /* neighbours first: the order does not favour one GPU */
        for (size_t from = 0; from < ranks; from++) {
            const size_t to = (from + step) % ranks, by = p == IN ? to : from, other = p == IN ? from : to;
            if (!takes_part(p, from, to)) continue;
            SPW_TRY(spw_world_use(l->world, by));
            SPW_TRY_GPU(cudaMemcpyPeerAsync((char *)l->to[to] + from * bytes, l->world->device[to],
                                            (char *)l->from[from] + to * bytes, l->world->device[from], bytes,
                                            (cudaStream_t)l->stream[by][other]),
                        "peer copy");
        }
    }
cleanup:
    return status;
}

/* 10^9 bytes/s of the busiest GPU's one direction: median of RUNS, messages one behind the other. */
static spw_status copy_rate(const links *l, pattern p, size_t bytes, double *gb_per_s) {
    const size_t fit = ((size_t)1 << 30) / bytes, messages = fit < 4               ? 4
                                                             : fit > MOST_MESSAGES ? MOST_MESSAGES
                                                                                   : fit;
    const size_t per_gpu = p == EXCHANGE || p == INCAST ? l->world->ranks - 1 : 1;
    double rate[RUNS];
    spw_status status = SPW_OK;
    for (int run = -1; run < RUNS; run++) {
        const double start = spw_clock_s();
        for (size_t i = 0; i < messages; i++) SPW_TRY(copy_once(l, p, bytes));
        SPW_TRY(wait_for_all(l));
        if (run >= 0) rate[run] = 1e-9 * (double)(messages * per_gpu * bytes) / (spw_clock_s() - start);
    }
    *gb_per_s = spw_bench_median(rate, RUNS);
cleanup:
    return status;
}

/* Nanoseconds of one message, half a round trip, by a kernel. */
static spw_status message_time(const links *l, size_t bytes, double *ns) {
    const size_t pieces = bytes / 16384;
    const int turns = bytes > 1 << 20 ? 50 : 500, blocks = (int)(pieces < 1 ? 1 : pieces > 64 ? 64 : pieces);
    double times[RUNS];
    cudaEvent_t event[2] = {NULL, NULL};
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_use(l->world, 0));
    for (int i = 0; i < 2; i++) SPW_TRY_GPU(cudaEventCreate(&event[i]), "create event");
    for (int run = -1; run < RUNS; run++) {
        float elapsed = 0;
        for (size_t a = 0; a < 2; a++) {
            SPW_TRY(spw_world_use(l->world, a));
            SPW_TRY_GPU(cudaMemset(l->flags[a], 0, FLAG_BYTES), "clear flags");
            SPW_TRY_GPU(cudaDeviceSynchronize(), "clear flags");
        }
        for (size_t a = 2; a-- > 0;) { /* the one that answers first */
            const spw_echo_gpu e = {.bytes = (long)bytes,
                                    .turns = turns,
                                    .second = (int)a,
                                    .blocks = blocks,
                                    .from = l->from[a],
                                    .to = l->to[1 - a],
                                    .own_flags = l->flags[a],
                                    .their_flags = l->flags[1 - a]};
            SPW_TRY(spw_world_use(l->world, a));
            if (a == 0) SPW_TRY_GPU(cudaEventRecord(event[0], l->world->stream[0]), "record event");
            SPW_TRY_GPU(spw_launch_link_echo(e, l->world->stream[a]), "echo");
            if (a == 0) SPW_TRY_GPU(cudaEventRecord(event[1], l->world->stream[0]), "record event");
        }
        SPW_TRY(wait_for_all(l));
        SPW_TRY_GPU(cudaEventElapsedTime(&elapsed, event[0], event[1]), "read event");
        if (run >= 0) times[run] = 1e6 * (double)elapsed / (2 * turns);
    }
    *ns = spw_bench_median(times, RUNS);
cleanup:
    for (int i = 0; i < 2; i++)
        if (event[i] != NULL) (void)cudaEventDestroy(event[i]);
    return status;
}

spw_status spw_bench_link_curve(spw_world *world, spw_link_curve *out) {
    static const size_t sizes[] = {1024,    4096,    16384,    65536,    262144,
                                   1048576, 4194304, 16777216, 67108864, 268435456};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    const time_t now = time(NULL);
    struct tm day;
    char date[16] = "?";
    links l;
    spw_status status = SPW_OK;
    *out = (spw_link_curve){.points = SIZES, .gpus = world->ranks};
    SPW_TRY(create(&l, world, sizes[SIZES - 1]));
    for (size_t i = 0; i < SIZES; i++) {
        double value = 0;
        out->value[0][i] = sizes[i];
        SPW_TRY(message_time(&l, sizes[i], &value));
        out->value[1][i] = (size_t)(value + 0.5);
        for (int p = 0; p < PATTERNS; p++) {
            SPW_TRY(copy_rate(&l, (pattern)p, sizes[i], &value));
            out->value[2 + p][i] = value < 1e-3 ? 1 : (size_t)(value * 1e3 + 0.5);
        }
    }
    if (gmtime_r(&now, &day) != NULL) (void)strftime(date, sizeof date, "%Y-%m-%d", &day);
    (void)snprintf(out->source, sizeof out->source,
                   "%zu %.60s, runtime's peer copies, echoes by a kernel, %s", world->ranks,
                   spw_device_name(), date);
cleanup:
    destroy(&l);
    return status;
}

spw_status spw_bench_all_pairs(spw_world *world, size_t bytes, double *gb_per_s) {
    links l;
    spw_status status = create(&l, world, bytes);
    if (status == SPW_OK) status = copy_rate(&l, EXCHANGE, bytes, gb_per_s);
    destroy(&l);
    return status;
}

spw_status spw_bench_round_trip(spw_world *world, double *microseconds) {
    links l;
    double ns = 0;
    spw_status status = create(&l, world, 1024);
    if (status == SPW_OK) status = message_time(&l, 16, &ns);
    *microseconds = 2e-3 * ns;
    destroy(&l);
    return status;
}
