#include "kernels/bench/bench_layer.h"

#include "base/file.h"
#include "base/memory.h"
#include "kernels/bench/bench_layer_clock.h"
#include "kernels/bench/bench_ranks.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/runtime.h"
#include "kernels/layer/layer_gpu.h"
#include "kernels/record/choices.h"
#include "kernels/record/numbers.h"
#include "kernels/record/numbers_launch.h"
#include "reference/capacity.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SETS = SPW_BENCH_SETS, TOKENS = 4096, PASSES = SPW_LAYER_PASSES };

/* The models' config.json; fine-grained: the shapes of SonicMoE's paper (Guo et al. 2025). */
static const struct model {
    const char *name;
    size_t hidden, ffn, experts, top_k;
} models[] = {
    {"deepseek-v3", 7168, 2048, 256, 8},  {"mixtral-8x7b", 4096, 14336, 8, 2},
    {"qwen3-30b-a3b", 2048, 768, 128, 8}, {"fine-7b", 1536, 256, 128, 8},
    {"fine-30b", 4096, 512, 128, 8},      {"fine-120b", 4096, 1024, 128, 8},
    {"fine-120b-k4", 4096, 2048, 64, 4},
};

static const struct scheme {
    const char *name;
    spw_layer_kind kind;
    spw_plain_kind plain;
    double factor;
} schemes[] = {
    {"gmm-deepep", SPW_LAYER_BY_DISPATCH, SPW_PLAIN_RAGGED, 0},
    {"deepep", SPW_LAYER_BY_EXACT_DISPATCH, SPW_PLAIN_RAGGED, 0},
    {"gmm", SPW_LAYER_BY_PLAIN, SPW_PLAIN_RAGGED, 0},
    {"ring", SPW_LAYER_BY_RING, SPW_PLAIN_GATHER, 0},
    {"dense:capacity_factor=1.25", SPW_LAYER_BY_PLAIN, SPW_PLAIN_CAPACITY, 1.25},
};
static const spw_choice_kind routings[] = {SPW_CHOICES_UNIFORM, SPW_CHOICES_SKEWED};
enum {
    MODELS = sizeof models / sizeof *models,
    SCHEMES = sizeof schemes / sizeof *schemes,
    ROUTINGS = sizeof routings / sizeof *routings
};

static const char *name_of(int what, size_t i) {
    if (what == 0) return i < MODELS ? models[i].name : NULL;
    if (what == 1) return i < SCHEMES ? schemes[i].name : NULL;
    return i < ROUTINGS ? spw_choice_names[routings[i]] : NULL;
}

const char *spw_bench_layer_names(int what) {
    static char text[3][128];
    for (size_t i = 0, length = 0; name_of(what, i) != NULL && length < sizeof text[0]; i++)
        length += (size_t)snprintf(text[what] + length, sizeof text[0] - length, "%s%s", i > 0 ? ", " : "",
                                   name_of(what, i));
    return text[what];
}

typedef struct bench {
    spw_world *world;
    FILE *csv;
    size_t tokens;
    bool unfused;
    const struct model *model;
    const struct scheme *scheme;
    spw_choice_kind routing;
    spw_layer_gpu *layer;
    spw_bf16 *x[SPW_WORLD_RANKS], *dy[SPW_WORLD_RANKS], *y[SPW_WORLD_RANKS], *dx[SPW_WORLD_RANKS];
    float *weight[SPW_WORLD_RANKS], *d_weight[SPW_WORLD_RANKS];
    int *expert[SETS][SPW_WORLD_RANKS];
    double rows_max, rows_mean; /* means over the sets */
} bench;

/* --- Inputs --- */

static spw_layer_form form_of(const bench *b) {
    const struct model *m = b->model;
    const size_t ranks = b->world->ranks, local = m->experts / ranks, choices = b->tokens * m->top_k;
    const bool ring = b->scheme->kind == SPW_LAYER_BY_RING;
    const size_t most = b->tokens * (local < m->top_k ? local : m->top_k);
    return (spw_layer_form){
        .kind = b->scheme->kind,
        .plain = {.kind = b->scheme->plain,
                  .sequences = 1,
                  .sequence_length = b->tokens,
                  .top_k = m->top_k,
                  .experts = m->experts,
                  .hidden = m->hidden,
                  .buffer_rows = ranks * (ring ? choices : most),
                  .capacity = spw_ref_capacity_maxtext(b->tokens, m->top_k, m->experts, b->scheme->factor)},
        .ffn = m->ffn,
        .unfused = b->unfused};
}

/* Refused before anything is taken. */
static spw_status check_memory(const bench *b) {
    const size_t choices = b->tokens * b->model->top_k, margin = (size_t)1 << 30;
    size_t layer = 0;
    spw_status status = SPW_OK;
    SPW_TRY(spw_gpu_layer_bytes(b->world, form_of(b), &layer));
    const size_t bytes = layer + 4 * b->tokens * b->model->hidden * 2 + (SETS + 2) * choices * 4 + margin;
    for (size_t r = 0; r < b->world->ranks; r++) {
        size_t there = 0, all = 0;
        SPW_TRY(spw_world_use(b->world, r));
        SPW_TRY_GPU(cudaMemGetInfo(&there, &all), "ask for free memory");
        if (bytes > there)
            SPW_TRY(spw_fail(SPW_EDEVICE,
                             "%s as %s takes %.1f GB of a GPU, GPU %zu has %.1f GB free; fewer tokens or "
                             "more GPUs would be right",
                             b->model->name, b->scheme->name, 1e-9 * (double)bytes, r, 1e-9 * (double)there));
    }
cleanup:
    return status;
}

static spw_status fill(spw_bf16 *to, size_t elements, unsigned long long seed) {
    return spw_device_check(spw_launch_fill_bf16(to, (long)elements, SPW_NUMBERS_BELL, seed, NULL), "fill");
}

static spw_status create(bench *b) {
    const struct model *m = b->model;
    const size_t wide = b->tokens * m->hidden, choices = b->tokens * m->top_k;
    spw_status status = SPW_OK;
    SPW_TRY(check_memory(b));
    SPW_TRY(spw_gpu_layer_create(b->world, form_of(b), spw_exchange_variants, &b->layer));
    for (size_t r = 0; r < b->world->ranks; r++) {
        const spw_layer_rank *k = &b->layer->rank[r];
        const size_t matrix = b->layer->local * m->hidden * m->ffn;
        spw_bf16 **const wide_arrays[] = {&b->x[r], &b->dy[r], &b->y[r], &b->dx[r]};
        SPW_TRY(spw_world_use(b->world, r));
        for (int i = 0; i < 4; i++) SPW_TRY_GPU(cudaMalloc((void **)wide_arrays[i], wide * 2), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&b->weight[r], choices * 4), "allocate");
        SPW_TRY_GPU(cudaMalloc((void **)&b->d_weight[r], choices * 4), "allocate");
        for (int set = 0; set < SETS; set++)
            SPW_TRY_GPU(cudaMalloc((void **)&b->expert[set][r], choices * 4), "allocate");
        SPW_TRY(fill(b->x[r], wide, 10 + r));
        SPW_TRY(fill(b->dy[r], wide, 80 + r));
        SPW_TRY(fill(k->gate_up_weight, 2 * matrix, 150 + r));
        SPW_TRY(fill(k->down_weight, matrix, 220 + r));
        SPW_TRY_GPU(spw_launch_fill_float(b->weight[r], (long)choices, SPW_NUMBERS_BELL, 290 + r, NULL),
                    "fill");
        SPW_TRY_GPU(cudaDeviceSynchronize(), "fill");
    }
cleanup:
    return status;
}

static void destroy(bench *b) {
    spw_gpu_layer_destroy(b->layer);
    b->layer = NULL;
    for (size_t r = 0; r < b->world->ranks; r++) {
        void *memory[] = {b->x[r], b->dy[r], b->y[r], b->dx[r], b->weight[r], b->d_weight[r]};
        if (spw_world_use(b->world, r) != SPW_OK) continue;
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) (void)cudaFree(memory[i]);
        for (int set = 0; set < SETS; set++) (void)cudaFree(b->expert[set][r]), b->expert[set][r] = NULL;
        b->x[r] = b->dy[r] = b->y[r] = b->dx[r] = NULL, b->weight[r] = b->d_weight[r] = NULL;
    }
}

/* The choices of all sets, and the rows that follow from them. */
static spw_status route(bench *b) {
    const struct model *m = b->model;
    const size_t ranks = b->world->ranks, choices = b->tokens * m->top_k, local = m->experts / ranks;
    const bool slots = b->scheme->plain == SPW_PLAIN_CAPACITY;
    int32_t *expert = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(choices, &expert));
    b->rows_max = b->rows_mean = 0;
    for (int set = 0; set < SETS; set++) {
        size_t rows[SPW_WORLD_RANKS] = {0}, most = 0, sum = 0;
        for (size_t r = 0; r < ranks; r++) {
            spw_choices_fill(b->routing, b->tokens, m->top_k, m->experts, ranks, (uint64_t)set * 64 + r,
                             expert);
            for (size_t i = 0; i < choices; i++) rows[(size_t)expert[i] / local]++;
            SPW_TRY(spw_world_use(b->world, r));
            SPW_TRY_GPU(cudaMemcpy(b->expert[set][r], expert, choices * 4, cudaMemcpyHostToDevice), "upload");
            SPW_TRY_GPU(cudaDeviceSynchronize(), "upload"); /* the ranks' streams do not wait for it */
        }
        for (size_t r = 0; r < ranks; r++) {
            if (slots) rows[r] = b->layer->rank[r].rows;
            most = rows[r] > most ? rows[r] : most, sum += rows[r];
        }
        b->rows_max += (double)most / SETS, b->rows_mean += (double)sum / (double)(ranks * SETS);
    }
cleanup:
    spw_free(expert);
    return status;
}

/* --- Timing --- */

static spw_status forward(void *data, int set) {
    bench *b = data;
    return spw_gpu_layer_forward(b->layer, (const spw_bf16 *const *)b->x, (const int *const *)b->expert[set],
                                 (const float *const *)b->weight, b->y);
}
static spw_status backward(void *data, int set) {
    bench *b = data;
    (void)set;
    return spw_gpu_layer_backward(b->layer, (const spw_bf16 *const *)b->dy, (const float *const *)b->weight,
                                  b->dx, b->d_weight);
}
static spw_bench_ranks_step *const steps[PASSES] = {forward, backward};
static const char *const pass_names[PASSES] = {"forward", "backward"};

static void write_row(const bench *b, int pass, const char *phase, double bytes, double ms) {
    const struct model *m = b->model;
    if (b->csv == NULL) return;
    fprintf(b->csv, "%s,%zu,%zu,%zu,%zu,%zu,%zu,%zu,%s,%s,%s,%.0f,%.0f,%.0f,%.4f\n", b->scheme->name,
            b->world->ranks, b->world->gpus, b->tokens, m->hidden, m->ffn, m->experts, m->top_k,
            spw_choice_names[b->routing], pass_names[pass], phase, b->rows_max, b->rows_mean, bytes, ms);
}

static void print(const bench *b, const spw_layer_times *t, const double total[PASSES]) {
    printf("%s, %s, %s: rows of a rank %.0f at most, %.0f mean\n", b->model->name, b->scheme->name,
           spw_choice_names[b->routing], b->rows_max, b->rows_mean);
    for (int pass = 0; pass < PASSES; pass++) {
        double sum = 0, bytes = 0;
        printf("  %-8s %9.3f ms =", pass_names[pass], total[pass]);
        for (int phase = 0; phase < SPW_LAYER_PHASES; phase++) {
            const double ms = t->ms[pass][phase];
            if (!t->there[pass][phase]) continue;
            printf("%s %s %.3f", sum > 0 ? " +" : "", spw_layer_phase_names[phase], ms);
            write_row(b, pass, spw_layer_phase_names[phase], t->bytes[pass][phase], ms);
            sum += ms, bytes += t->bytes[pass][phase];
        }
        printf(" (sum %.3f)\n", sum);
        write_row(b, pass, "total", bytes, total[pass]);
    }
    fflush(stdout);
}

static spw_status run_point(bench *b) {
    double total[PASSES];
    spw_layer_times times;
    spw_status status = SPW_OK;
    SPW_TRY(route(b));
    SPW_TRY(spw_bench_ranks(b->world, NULL, forward, b, &total[0]));
    SPW_TRY(spw_bench_ranks(b->world, forward, backward, b, &total[1]));
    SPW_TRY(spw_layer_time_phases(b->layer, steps, b, &times));
    print(b, &times, total);
cleanup:
    return status;
}

/* --- What is run --- */

static bool asked(const char *wanted, const char *name) {
    return wanted == NULL || strcmp(wanted, name) == 0;
}

static spw_status check_names(const spw_bench_layer_request *q) {
    static const char *const kinds[] = {"model", "scheme", "routing"};
    const char *const wanted[] = {q->model, q->scheme, q->routing};
    for (int what = 0; what < 3; what++) {
        bool found = wanted[what] == NULL;
        for (size_t i = 0; !found && name_of(what, i) != NULL; i++)
            found = strcmp(wanted[what], name_of(what, i)) == 0;
        if (!found)
            return spw_fail(SPW_EARG, "%s '%s' is unknown; use one of %s", kinds[what], wanted[what],
                            spw_bench_layer_names(what));
    }
    return SPW_OK;
}

static spw_status run_model(bench *b, const spw_bench_layer_request *q) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < SCHEMES; i++) {
        if (!asked(q->scheme, schemes[i].name)) continue;
        b->scheme = &schemes[i];
        SPW_TRY(create(b));
        for (size_t n = 0; n < ROUTINGS; n++) {
            if (!asked(q->routing, spw_choice_names[routings[n]])) continue;
            b->routing = routings[n];
            SPW_TRY(run_point(b));
        }
        destroy(b);
    }
cleanup:
    destroy(b);
    return status;
}

static spw_status run_all(bench *b, const spw_bench_layer_request *q) {
    spw_status status = SPW_OK;
    printf("%s, %zu ranks on %zu GPUs, %zu tokens a rank%s; medians over fresh routing, slowest rank\n",
           spw_device_name(), b->world->ranks, b->world->gpus, b->tokens,
           b->unfused ? ", plain products" : "");
    if (b->csv != NULL)
        fprintf(b->csv, "scheme,ranks,gpus,tokens_per_rank,hidden,ffn,experts,top_k,routing,pass,phase,"
                        "rows_max,rows_mean,bytes_off_rank,ms\n");
    for (size_t i = 0; i < MODELS; i++) {
        if (!asked(q->model, models[i].name)) continue;
        b->model = &models[i];
        if (b->model->experts % b->world->ranks != 0)
            SPW_TRY(spw_fail(SPW_EARG,
                             "%s has %zu experts, which %zu ranks do not divide; ask for another model",
                             b->model->name, b->model->experts, b->world->ranks));
        SPW_TRY(run_model(b, q));
    }
cleanup:
    return status;
}

/* The csv is there as a whole or not at all. */
static spw_status run_into(bench *b, const spw_bench_layer_request *q) {
    spw_file file = {NULL, NULL};
    spw_status status = SPW_OK;
    if (q->csv != NULL) {
        SPW_TRY(spw_file_begin(q->csv, &file));
        b->csv = fopen(file.temporary, "w");
        if (b->csv == NULL) SPW_TRY(spw_fail(SPW_EIO, "%s: %s", q->csv, strerror(errno)));
    }
    SPW_TRY(run_all(b, q));
    if (b->csv != NULL) {
        const bool good = ferror(b->csv) == 0;
        const bool closed = fclose(b->csv) == 0;
        b->csv = NULL;
        if (!good || !closed) SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written", q->csv));
        SPW_TRY(spw_file_commit(&file));
    }
cleanup:
    if (b->csv != NULL) (void)fclose(b->csv);
    spw_file_discard(&file);
    return status;
}

spw_status spw_bench_layer(const spw_bench_layer_request *q) {
    const size_t gpus = (size_t)spw_device_count(), ranks = q->ranks > 0 ? q->ranks : gpus;
    bench *b = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(check_names(q));
    if (gpus == 0) SPW_TRY(spw_fail(SPW_EDEVICE, "no GPU"));
    if (ranks > gpus)
        SPW_TRY(
            spw_fail(SPW_EDEVICE, "%zu ranks on %zu GPUs; layers are timed with a rank a GPU", ranks, gpus));
    SPW_TRY(SPW_ALLOC(1, &b));
    b->tokens = q->tokens > 0 ? q->tokens : TOKENS, b->unfused = q->unfused;
    SPW_TRY(spw_world_create(ranks, ranks, false, &b->world));
    SPW_TRY(run_into(b, q));
cleanup:
    if (b != NULL) spw_world_destroy(b->world);
    spw_free(b);
    return status;
}
