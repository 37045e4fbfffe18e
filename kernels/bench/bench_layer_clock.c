#include "kernels/bench/bench_layer_clock.h"

#include "base/memory.h"
#include "kernels/bench/bench.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"

enum { PASSES = SPW_LAYER_PASSES, RUNS = 12, WARM = 4, ALL = RUNS + WARM, MARKS = 24 };

/* Of one rank in one pass: event 0 is its beginning, event i the end of phase[i]. */
typedef struct track {
    cudaEvent_t event[MARKS];
    spw_layer_phase phase[MARKS];
    int count;
} track;

typedef struct phase_clock {
    spw_world *world;
    track *tracks; /* [ALL][PASSES][ranks] */
    int run, pass;
} phase_clock;

static track *track_of(const phase_clock *c, int run, int pass, size_t rank) {
    return &c->tracks[((size_t)run * PASSES + (size_t)pass) * c->world->ranks + rank];
}

static spw_status record(const phase_clock *c, track *t, size_t rank, spw_layer_phase phase) {
    spw_status status = SPW_OK;
    if (t->count == MARKS) return spw_fail(SPW_EARG, "a pass of more than %d phases", MARKS - 1);
    SPW_TRY_GPU(cudaEventCreate(&t->event[t->count]), "create event");
    t->phase[t->count] = phase;
    SPW_TRY_GPU(cudaEventRecord(t->event[t->count++], (cudaStream_t)c->world->stream[rank]), "record event");
cleanup:
    return status;
}

static spw_status mark(void *data, size_t rank, spw_layer_phase phase) {
    const phase_clock *c = data;
    return record(c, track_of(c, c->run, c->pass, rank), rank, phase);
}

static spw_status run_pass(phase_clock *c, spw_bench_ranks_step *step, void *data) {
    spw_status status = SPW_OK;
    SPW_TRY(spw_bench_meet(c->world));
    for (size_t r = 0; r < c->world->ranks; r++) {
        SPW_TRY(spw_world_use(c->world, r));
        SPW_TRY(record(c, track_of(c, c->run, c->pass, r), r, SPW_LAYER_PHASES));
    }
    SPW_TRY(step(data, c->run % SPW_BENCH_SETS));
cleanup:
    return status;
}

/* ms [SPW_LAYER_PHASES]: the slowest rank's of one run. */
static spw_status read_run(const phase_clock *c, int run, int pass, double *ms, bool *there) {
    spw_status status = SPW_OK;
    for (int p = 0; p < SPW_LAYER_PHASES; p++) ms[p] = 0;
    for (size_t r = 0; r < c->world->ranks; r++) {
        const track *t = track_of(c, run, pass, r);
        double own[SPW_LAYER_PHASES] = {0};
        for (int i = 1; i < t->count; i++) {
            float elapsed = 0;
            SPW_TRY_GPU(cudaEventElapsedTime(&elapsed, t->event[i - 1], t->event[i]), "read event");
            own[t->phase[i]] += (double)elapsed;
            there[t->phase[i]] = true;
        }
        for (int p = 0; p < SPW_LAYER_PHASES; p++) ms[p] = own[p] > ms[p] ? own[p] : ms[p];
    }
cleanup:
    return status;
}

static spw_status read_times(const phase_clock *c, spw_layer_times *out) {
    double ms[RUNS][SPW_LAYER_PHASES], sorted[RUNS];
    spw_status status = SPW_OK;
    for (int pass = 0; pass < PASSES; pass++) {
        for (int run = 0; run < RUNS; run++)
            SPW_TRY(read_run(c, run + WARM, pass, ms[run], out->there[pass]));
        for (int p = 0; p < SPW_LAYER_PHASES; p++) {
            for (int run = 0; run < RUNS; run++) sorted[run] = ms[run][p];
            out->ms[pass][p] = spw_bench_median(sorted, RUNS);
        }
    }
cleanup:
    return status;
}

static spw_status read_bytes(spw_world *world, spw_layer_times *out) {
    static const struct {
        int pass, counter;
        spw_layer_phase phase;
    } exchanges[] = {{0, SPW_COUNT_DISPATCH, SPW_LAYER_DISPATCH},
                     {0, SPW_COUNT_COMBINE, SPW_LAYER_COMBINE},
                     {1, SPW_COUNT_COMBINE_GRADIENT, SPW_LAYER_COMBINE_GRADIENT},
                     {1, SPW_COUNT_ROUTER_GRADIENT, SPW_LAYER_ROUTER_GRADIENT},
                     {1, SPW_COUNT_DISPATCH_GRADIENT, SPW_LAYER_DISPATCH_GRADIENT}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof exchanges / sizeof *exchanges; i++) {
        double sum = 0;
        for (size_t r = 0; r < world->ranks; r++) {
            uint64_t bytes[SPW_WORLD_RANKS];
            SPW_TRY(spw_world_counter(world, r, exchanges[i].counter, bytes));
            for (size_t d = 0; d < world->ranks; d++)
                if (d != r) sum += (double)bytes[d];
        }
        out->bytes[exchanges[i].pass][exchanges[i].phase] = sum / (double)(world->ranks * ALL);
    }
cleanup:
    return status;
}

spw_status spw_layer_time_phases(spw_layer_gpu *layer, spw_bench_ranks_step *const steps[PASSES], void *data,
                                 spw_layer_times *out) {
    phase_clock c = {.world = layer->world};
    const size_t tracks = (size_t)ALL * PASSES * layer->world->ranks;
    spw_status status = SPW_OK;
    *out = (spw_layer_times){.ms = {{0}}};
    SPW_TRY(SPW_ALLOC(tracks, &c.tracks));
    SPW_TRY(spw_world_clear_counters(layer->world));
    layer->watch = (spw_layer_watch){mark, &c};
    for (c.run = 0; c.run < ALL; c.run++)
        for (c.pass = 0; c.pass < PASSES; c.pass++) SPW_TRY(run_pass(&c, steps[c.pass], data));
    SPW_TRY(spw_world_synchronize(layer->world));
    SPW_TRY(read_times(&c, out));
    SPW_TRY(read_bytes(layer->world, out));
cleanup:
    layer->watch = (spw_layer_watch){NULL, NULL};
    for (size_t i = 0; i < tracks && c.tracks != NULL; i++)
        for (int n = 0; n < MARKS; n++)
            if (c.tracks[i].event[n] != NULL) (void)cudaEventDestroy(c.tracks[i].event[n]);
    spw_free(c.tracks);
    return status;
}
