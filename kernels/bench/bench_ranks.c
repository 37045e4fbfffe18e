#include "kernels/bench/bench_ranks.h"

#include "base/memory.h"
#include "kernels/bench/bench.h"
#include "kernels/exchange/dispatch_gpu.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/links_launch.h"
#include "kernels/gpu/runtime.h"

#include <stdio.h>

enum { RUNS = SPW_BENCH_RANKS_RUNS, ALL = RUNS + SPW_BENCH_RANKS_WARM };
enum { PAUSE_NS_A_RANK = 2000000 }; /* the host launches for one rank after the other */

typedef struct events {
    cudaEvent_t at[SPW_WORLD_RANKS][ALL][2]; /* before, after */
} events;

/* An exchange of nothing. */
spw_status spw_bench_meet(spw_world *world) {
    spw_status status = SPW_OK;
    world->epoch++;
    for (size_t r = 0; r < world->ranks; r++) {
        const spw_send_gpu nothing = {.copies = 1, .row_bytes = 16, .blocks = 1, .counter = SPW_COUNT_OTHER};
        const spw_peers peers = spw_world_peers(world, r);
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(spw_launch_exchange_send(&nothing, &peers, world->stream[r]), "meet");
    }
cleanup:
    return status;
}

static spw_status mark(spw_world *world, events *e, int run, int after) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < world->ranks; r++) {
        SPW_TRY(spw_world_use(world, r));
        SPW_TRY_GPU(cudaEventRecord(e->at[r][run][after], (cudaStream_t)world->stream[r]), "record event");
    }
cleanup:
    return status;
}

static spw_status create(spw_world *world, events *e) {
    spw_status status = SPW_OK;
    for (size_t r = 0; r < world->ranks; r++) {
        SPW_TRY(spw_world_use(world, r));
        for (int i = 0; i < 2 * ALL; i++)
            SPW_TRY_GPU(cudaEventCreate(&e->at[r][i / 2][i % 2]), "create event");
        SPW_TRY_GPU(spw_launch_link_pause(world->ranks * PAUSE_NS_A_RANK, world->stream[r]), "pause");
    }
cleanup:
    return status;
}

static void destroy(spw_world *world, events *e) {
    for (size_t r = 0; r < world->ranks && e != NULL; r++)
        for (int i = 0; i < 2 * ALL; i++)
            if (e->at[r][i / 2][i % 2] != NULL) (void)cudaEventDestroy(e->at[r][i / 2][i % 2]);
    spw_free(e);
}

const char *spw_bench_folded(const spw_world *world) { return spw_world_crowd(world) > 1 ? " (folded)" : ""; }

void spw_bench_end_row(const spw_world *world, double off_gpu_bytes) {
    if (spw_world_crowd(world) > 1) printf(",%zu,%.2f", world->gpus, 1e-6 * off_gpu_bytes);
    printf("\n");
    fflush(stdout);
}

spw_status spw_bench_ranks(spw_world *world, spw_bench_ranks_step *first, spw_bench_ranks_step *run,
                           void *data, double *ms) {
    double times[RUNS];
    events *e = NULL;
    spw_status status = SPW_OK;
    if (!world->wait || world->link != NULL)
        return spw_fail(SPW_EDEVICE, "exchanges are timed in one process whose kernels wait for each other");
    SPW_TRY(SPW_ALLOC(1, &e));
    SPW_TRY(create(world, e));
    for (int i = 0; i < ALL; i++) {
        if (first != NULL) SPW_TRY(first(data, i % SPW_BENCH_SETS));
        SPW_TRY(spw_bench_meet(world));
        SPW_TRY(mark(world, e, i, 0));
        SPW_TRY(run(data, i % SPW_BENCH_SETS));
        SPW_TRY(mark(world, e, i, 1));
    }
    SPW_TRY(spw_world_synchronize(world));
    for (int i = 0; i < RUNS; i++) {
        times[i] = 0;
        for (size_t r = 0; r < world->ranks; r++) {
            const cudaEvent_t *at = e->at[r][i + SPW_BENCH_RANKS_WARM];
            float elapsed = 0;
            SPW_TRY_GPU(cudaEventElapsedTime(&elapsed, at[0], at[1]), "read event");
            times[i] = (double)elapsed > times[i] ? (double)elapsed : times[i];
        }
    }
    *ms = spw_bench_median(times, RUNS);
cleanup:
    destroy(world, e);
    return status;
}
