/* Memory within a step: the line reaches the predicted peak, neither less nor more; every layer's highest point is what the layer's
 * own list of tensors says; few points stand for many. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/memory_timeline.h"

#include "sim/job/recipe/remat.h"

#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "sim/weights/pipeline.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static spw_job job_of(const char *model, const char *more) {
    char text[512];
    spw_job job;
    (void)snprintf(text, sizeof text,
                   "model: %s\ncluster: mi355x-8x8\nbatch: {sequences_per_gpu: 4, sequence_length: 512%s",
                   model, more);
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    return job;
}

static uint64_t most_of(const spw_memory_timeline *t, double from, double to) {
    uint64_t most = 0;
    for (size_t i = 0; i < t->points; i++)
        if (t->at[i] >= from && t->at[i] <= to && t->bytes[i] > most) most = t->bytes[i];
    return most;
}

static void check_shape(const spw_memory_timeline *t, size_t layers) {
    CHECK(t->points > 4 && t->points <= SPW_MEMORY_TIMELINE_POINTS && t->points <= t->moments);
    CHECK(t->layers == layers);
    CHECK(t->at[0] >= 0.0 && t->at[t->points - 1] >= t->end && t->at[t->points - 1] <= t->end);
    for (size_t i = 1; i < t->points; i++) CHECK(t->at[i - 1] <= t->at[i]);
}

/* --- The line against the footprint --- */

enum { LAYERS = 3 };

/* Rows of the replayed layers, one of which is the footprint's: it has most. */
static void draw_rows(const spw_point *p, spw_rank_rows rows[LAYERS], spw_routed_memory *routed) {
    const spw_rank_rows mean = spw_balanced_rows(p->scheme, &p->shape);
    for (size_t l = 0; l < LAYERS; l++)
        rows[l] = (spw_rank_rows){mean.held + 97 * l, mean.received + 89 * l, mean.sent};
    spw_layer layer;
    CHECK_OK(spw_layer_build(p->scheme, &p->shape, SPW_FLAVOUR_LIVE, &layer));
    *routed = (spw_routed_memory){.rows = rows[LAYERS - 1]};
    const uint64_t saved = spw_layer_live_set(&layer, &routed->rows).saved_bytes;
    routed->saved = (spw_saved_rows){saved * p->job->model.moe_layers, saved, 0};
    spw_layer_destroy(&layer);
}

static void check_point(const spw_job *job, const char *text) {
    spw_scheme scheme;
    spw_rank_rows rows[LAYERS];
    spw_routed_memory routed;
    spw_footprint f;
    spw_memory_timeline t;
    CHECK_OK(spw_scheme_parse(text, &scheme));
    const spw_point p = spw_point_of(job, &scheme, 4);
    const bool saves = spw_remat_keeps_experts(job->remat);
    const size_t stages = spw_pipeline_of(job).stages;
    draw_rows(&p, rows, &routed);
    for (size_t s = 0; s < stages; s++) {
        for (int even = 0; even < 2; even++) {
            CHECK_OK(spw_footprint_of_stage(&p, s, even ? NULL : &routed, &f));
            CHECK_OK(spw_memory_timeline_live(&p, &f, even ? NULL : rows, LAYERS, &t));
            check_shape(&t, f.stage.layers + f.stage.predictions);
            CHECK(most_of(&t, 0.0, t.end) == f.peak_bytes);
            if (t.points == t.moments)
                CHECK(most_of(&t, t.forward_end + 0.1, t.loss_end - 0.1) ==
                      f.fixed_bytes[SPW_MOMENT_LOSS] + (saves ? f.saved.all : 0));
            CHECK(t.bytes[t.points - 1] < t.bytes[t.points / 2]);
        }
    }
}

static void test_peak(void) {
    static const char *const remats[] = {"full", "none"};
    static const char *const schemes[] = {
        "gmm", "ragged", "dense:capacity_factor=1.25", "megatron-alltoall", "megatron-flex", "torchtitan"};
    static const char *const splits[] = {"}\nparallel: {expert: 8, fsdp: 8}",
                                         ", micro_batches: 4}\nparallel: {expert: 8, fsdp: 2, pipeline: 4}"};
    for (size_t r = 0; r < 2; r++)
        for (size_t i = 0; i < 2; i++) {
            char more[256];
            (void)snprintf(more, sizeof more, "%s\nremat: %s\n", splits[i], remats[r]);
            const spw_job small = job_of("scratch-moe-e64", more), large = job_of("deepseek-v3", more);
            for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++) {
                check_point(&small, schemes[s]);
                check_point(&large, schemes[s]);
            }
            (void)snprintf(more, sizeof more, "%s\nremat: %s\noptimizer: distributed\nattention: unfused\n",
                           splits[i], remats[r]);
            const spw_job scores = job_of("mixtral-8x7b", more);
            check_point(&scores, "megatron-alltoall");
        }
    static const char *const modules[] = {
        "selective", "[mla_up_proj]",        "[mla_up_proj, layernorm]", "[moe_act, layernorm, mla_up_proj]",
        "[moe]",     "[shared_experts, mlp]"};
    /* The first stage of the last one has dense layers alone, whose attention is its peak under mla_up_proj. */
    const char *const grids[] = {splits[0], splits[1],
                                 ", micro_batches: 4}\nparallel: {expert: 2, fsdp: 1, pipeline: 32}"};
    for (size_t r = 0; r < sizeof modules / sizeof *modules; r++)
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
            char more[256];
            (void)snprintf(more, sizeof more, "%s\nremat: %s\noptimizer: distributed\n", grids[i],
                           modules[r]);
            const spw_job job = job_of("deepseek-v3", more);
            check_point(&job, "megatron-alltoall");
        }
}

/* Layer by layer, by hand: what is fixed beside a MoE layer, and the most that its own tensors are. */
static void test_layers(void) {
    const spw_job job = job_of("scratch-moe-e64", "}\nparallel: {expert: 8, fsdp: 8}\nremat: full\n");
    spw_scheme scheme;
    spw_rank_rows rows[LAYERS];
    spw_routed_memory routed;
    spw_footprint f;
    spw_memory_timeline t;
    spw_layer layer;
    size_t id[SPW_MODEL_MAX_LAYERS], moe = 0;
    const uint64_t carry =
        UINT64_C(4) * 512 * 768 * 2; /* a layer's input: later layers have given theirs back */
    CHECK_OK(spw_scheme_parse("hybrid-ep", &scheme));
    const spw_point p = spw_point_of(&job, &scheme, 4);
    draw_rows(&p, rows, &routed);
    CHECK_OK(spw_footprint_of_stage(&p, 0, &routed, &f));
    CHECK_OK(spw_memory_timeline_live(&p, &f, rows, LAYERS, &t));
    CHECK_OK(spw_layer_build(&scheme, &p.shape, SPW_FLAVOUR_LIVE, &layer));
    const size_t layers = spw_memory_timeline_layers(&job, &f.stage, SPW_MODEL_MAX_LAYERS, id);
    CHECK(layers == job.model.layers && t.points == t.moments);
    for (size_t i = 0; i < layers; i++) {
        const double forward = (double)i, backward = t.loss_end + (double)(layers - 1 - i);
        CHECK(id[i] == i);
        if (!job.model.is_moe[i]) {
            CHECK(most_of(&t, backward + 0.1, backward + 0.9) ==
                  f.beside_bytes[SPW_MOMENT_DENSE_LAYER] + (i + 1) * carry);
            continue;
        }
        const bool most = i == f.waiting.at[SPW_MOMENT_MOE_LAYER].place; /* has the footprint's rows */
        const spw_rank_rows *here = most ? &f.rows : &rows[moe % LAYERS];
        const spw_live_set live = spw_layer_live_set(&layer, here);
        moe++;
        CHECK(most_of(&t, backward + 1e-3, backward + 0.999) ==
              f.beside_bytes[SPW_MOMENT_MOE_LAYER] + (i + 1) * carry + live.backward_bytes);
        const uint64_t before = most_of(&t, forward, forward),
                       highest = most_of(&t, forward + 1e-3, forward + 0.999);
        CHECK(highest == before + carry + live.forward_bytes);
    }
    CHECK(moe == job.model.moe_layers);
    spw_layer_destroy(&layer);
}

/* --- Fewer points --- */

static void test_thin(void) {
    enum { MANY = 20000 };
    static double at[MANY];
    static uint64_t bytes[MANY];
    spw_memory_timeline t;
    srand(3);
    for (size_t count = 2; count <= MANY; count = count * 3 + 1) {
        for (size_t i = 0; i < count; i++) {
            at[i] = (double)i / 7.0;
            bytes[i] = 1000 + (uint64_t)(rand() % 100000);
        }
        CHECK_OK(spw_memory_timeline_thin(at, bytes, count, &t));
        CHECK(t.points <= SPW_MEMORY_TIMELINE_POINTS && t.moments == count);
        CHECK(t.bytes[0] == bytes[0] && t.bytes[t.points - 1] == bytes[count - 1]);
        if (count <= SPW_MEMORY_TIMELINE_POINTS) CHECK(t.points == count);
        /* What is highest in a hundredth is highest within one stretch of it. */
        const double end = at[count - 1], stretch = end / 299.0 + 1e-9;
        for (int part = 0; part < 100; part++) {
            const double from = 0.01 * part * end, to = 0.01 * (part + 1) * end;
            uint64_t most = 0;
            for (size_t i = 0; i < count; i++)
                if (at[i] >= from && at[i] < to && bytes[i] > most) most = bytes[i];
            CHECK(most_of(&t, from - stretch, to + stretch) >= most);
        }
    }
    for (size_t i = 0; i < MANY; i++) at[i] = (double)i;
    for (size_t i = 0; i < MANY; i++) bytes[i] = i < 5000 ? i : 10000 - (i < 10000 ? i : 10000);
    CHECK_OK(spw_memory_timeline_thin(at, bytes, MANY, &t)); /* one hill: its top and its ends */
    CHECK(t.points == 4 && most_of(&t, 0.0, at[MANY - 1]) == 5000);
}

int main(void) {
    test_peak();
    test_layers();
    test_thin();
    return check_done();
}
