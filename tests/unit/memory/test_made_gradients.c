/* Gradients that FSDP2 makes layer by layer in the first backward pass of a step, with pencil and paper, live and in the allocator's
 * lists. DeepSeek-V3: 3 dense layers, then 58 with experts. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/step_memory.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/component_of.h"

#include <math.h>
#include <string.h>

enum { MOE = 58, DENSE = 3, RANKS = 32, ALL = 512 };

static void read_job(const char *batch, const char *parallel, spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text,
                   "model: deepseek-v3\ncluster: h200-64x8\nparallel: {expert: 32%s}\n"
                   "batch: {sequence_length: 256, %s}\nprecision: {weights: bf16, gradients: fp32}\n",
                   parallel, batch);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), out));
}

/* Shards of a GPU in bf16: 8 of 256 experts over 16 GPUs, all else over 512. */
typedef struct shards {
    double moe, dense, embedding, head;
} shards;

static shards shards_of(const spw_job *job) {
    const spw_parameters p = spw_model_parameters(&job->model);
    const double common = (double)(p.attention_per_layer + p.norms_per_layer), table = 129280.0 * 7168.0;
    return (shards){.moe = 2.0 * (8.0 * 3.0 * 7168.0 * 2048.0 / 16.0 +
                                  (common + (double)(p.shared_per_layer + p.router_per_layer)) / ALL),
                    .dense = 2.0 * (common + (double)p.dense_ffn_per_layer) / ALL,
                    .embedding = 2.0 * table / ALL,
                    .head = 2.0 * (table + 7168.0) / ALL};
}

/* A sequence is so short that gradients grow by more than inputs go: the first layer with experts is the fullest. One micro-batch: those
 * of the 57 layers behind it and of the head are there, none at the loss, all at the optimizer's step. Two: all, from the second on. */
static void test_shards(void) {
    static spw_job job;
    static spw_footprint one, two;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    read_job("sequences_per_gpu: 1, micro_batches: 1", ", fsdp: 16", &job);
    const shards s = shards_of(&job);
    const double all = MOE * s.moe + DENSE * s.dense + s.embedding + s.head;
    spw_point point = spw_point_of(&job, &scheme, 1);
    CHECK_OK(spw_footprint_compute(&point, NULL, &one));
    CHECK(fabs(component(&one, "gradients_at_moe_layer") - ((MOE - 1) * s.moe + s.head)) < 4.0);
    CHECK(component(&one, "gradients") < 0.0);
    CHECK(fabs(component(&one, "gradients_at_step") - all) < 4.0);
    const spw_stage_moment *at = one.waiting.at;
    CHECK(at[SPW_MOMENT_MOE_LAYER].made[1] == MOE - 1 && at[SPW_MOMENT_MOE_LAYER].made[0] == 0);
    CHECK(at[SPW_MOMENT_MOE_LAYER].ends[0] == 0 && at[SPW_MOMENT_MOE_LAYER].ends[1] == 1);
    CHECK(at[SPW_MOMENT_DENSE_LAYER].made[1] == MOE &&
          at[SPW_MOMENT_DENSE_LAYER].made[0] == 0); /* its shard is less than an input */
    CHECK(at[SPW_MOMENT_LOSS].made[1] == 0 && at[SPW_MOMENT_LOSS].ends[1] == 0);
    CHECK(at[SPW_MOMENT_STEP].there && fabs((double)at[SPW_MOMENT_STEP].bytes - all) < 4.0);
    read_job("sequences_per_gpu: 2, micro_batches: 2", ", fsdp: 16", &job);
    point = spw_point_of(&job, &scheme, 2);
    CHECK_OK(spw_footprint_compute(&point, NULL, &two));
    CHECK(fabs(component(&two, "gradients") - all) < 4.0);
    CHECK(component(&two, "gradients_at_moe_layer") < 0.0 && component(&two, "gradients_at_step") < 0.0);
    CHECK(two.waiting.at[SPW_MOMENT_LOSS].made[1] == MOE && two.waiting.at[SPW_MOMENT_LOSS].ends[0] == 1);
    /* beside the inputs of the 60 layers behind the fullest one, which are there in its place with two */
    const double input = 256.0 * 7168.0 * 2.0, missing = s.moe + DENSE * s.dense + s.embedding;
    CHECK(fabs((double)two.peak_bytes - (double)one.peak_bytes - missing - (MOE - 1) * input) < 64.0);
}

/* Whole gradients of the stages of GPipe and of 1F1B, in fp32: at the loss, or behind a forward pass, only where a backward pass of the
 * stage came before. */
static void test_stages(void) {
    static const struct {
        spw_schedule schedule;
        size_t micro_batches, stage;
        bool at_loss;
    } cases[] = {{SPW_SCHEDULE_GPIPE, 8, 0, false},       {SPW_SCHEDULE_GPIPE, 8, 3, false},
                 {SPW_SCHEDULE_ONE_F_ONE_B, 8, 0, true},  {SPW_SCHEDULE_ONE_F_ONE_B, 8, 3, true},
                 {SPW_SCHEDULE_ONE_F_ONE_B, 4, 0, false}, {SPW_SCHEDULE_ONE_F_ONE_B, 4, 2, true}};
    static spw_job job;
    static spw_footprint f;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        read_job("sequences_per_gpu: 8, micro_batches: 8", ", pipeline: 4, fsdp: 4", &job);
        job.schedule = cases[i].schedule;
        job.micro_batches = job.sequences_per_gpu[0] = cases[i].micro_batches;
        const spw_point point = spw_point_of(&job, &scheme, cases[i].micro_batches);
        CHECK_OK(spw_footprint_of_stage(&point, cases[i].stage, NULL, &f));
        const spw_stage_moment *at = f.waiting.at;
        const size_t moe = f.stage.moe_layers, dense = f.stage.layers - moe;
        CHECK(at[SPW_MOMENT_LOSS].made[1] == (cases[i].at_loss ? moe : 0));
        CHECK(at[SPW_MOMENT_MOE_LAYER].made[1] == moe && at[SPW_MOMENT_MOE_LAYER].made[0] == dense);
        CHECK(at[SPW_MOMENT_MOE_LAYER].ends[0] == (cases[i].stage == 0));
        CHECK(at[SPW_MOMENT_MOE_LAYER].ends[1] == (cases[i].stage == 3));
        CHECK((component(&f, "fsdp2.whole_gradients") > 0.0) == cases[i].at_loss);
    }
}

/* Bytes of gradients that are there, event by event: at the list's begin, up to its first backward event, at its end. */
typedef struct course {
    uint64_t begin, before_backward, end;
} course;

static course follow(const spw_event_list *list, size_t kind, uint64_t *live) {
    course c = {.begin = *live};
    bool backward = false;
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *e = &list->event[i];
        backward = backward || (e->kind != kind && e->backward);
        if (e->kind == kind) *live = e->born ? *live + e->bytes : *live - e->bytes;
        if (!backward && !(e->kind == kind && e->born)) c.before_backward = *live;
    }
    c.end = *live;
    return c;
}

/* How many are born; sharded ones on a stream of their own, whole ones on the layers'. */
static size_t births(const spw_event_list *list, size_t kind, uint8_t stream) {
    size_t count = 0;
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *e = &list->event[i];
        count += e->kind == kind && e->born;
        if (e->kind == kind) CHECK(e->stream == stream);
    }
    return count;
}

/* What has the stream of the all-gathers: their inputs and outputs, each once in the forward pass and once in the backward pass, but of the
 * head, whose weights stay for its backward pass. No more than two outputs and an input are there at once. */
static void check_gathers(const spw_event_list *list, const spw_footprint *f) {
    const spw_unit_bytes *u[] = {&f->units.layer[0], &f->units.layer[1], &f->units.end[0], &f->units.end[1]};
    const size_t passes[] = {2 * DENSE, 2 * MOE, 2, 1};
    size_t outputs[4] = {0}, inputs[4] = {0}, live = 0, most = 0, others = 0;
    for (size_t i = 0; i < list->events; i++) {
        const spw_memory_event *e = &list->event[i];
        if (e->stream != 1) continue;
        live = e->born ? live + 1 : live - 1;
        most = live > most ? live : most;
        bool known = false;
        for (size_t k = 0; k < 4 && e->born && !known; k++) {
            known = e->bytes == u[k]->gathered || e->bytes == u[k]->shard;
            outputs[k] += e->bytes == u[k]->gathered;
            inputs[k] += e->bytes == u[k]->shard;
        }
        others += e->born && !known;
    }
    CHECK(most == 3 && live == 0 && others == 0);
    for (size_t k = 0; k < 4; k++) CHECK(outputs[k] == passes[k] && inputs[k] == passes[k]);
}

/* The lists: one micro-batch and two have none before the first backward pass of a step, in the second step as in the first; all stay
 * behind the last. Whole ones of a stage go with the last. A later micro-batch has each sharded one once more, which is added and goes. */
static void test_lists(void) {
    static spw_job job;
    static spw_footprint f;
    static spw_rank_rows rows[MOE * 4];
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("torchtitan", &scheme));
    for (size_t stages = 1; stages <= 2; stages++) {
        for (size_t micro = 1; micro <= 4; micro *= 2) {
            read_job("sequences_per_gpu: 4, micro_batches: 4",
                     stages == 1 ? ", fsdp: 16" : ", pipeline: 2, fsdp: 8", &job);
            job.micro_batches = job.sequences_per_gpu[0] = micro;
            const spw_point point = spw_point_of(&job, &scheme, micro);
            spw_step_memory *memory = NULL;
            spw_event_list list = {.events = 0};
            spw_layer layer;
            uint64_t live = 0;
            CHECK_OK(spw_layer_build(&scheme, &point.shape, SPW_FLAVOUR_LIVE, &layer));
            const size_t kind = layer.tensors + SPW_COMPONENTS + 3;
            spw_layer_destroy(&layer);
            for (size_t i = 0; i < MOE * micro; i++) rows[i] = spw_balanced_rows(&scheme, &point.shape);
            CHECK_OK(spw_footprint_of_stage(&point, 0, NULL, &f));
            CHECK_OK(spw_step_memory_create(&point, &f, NULL, &memory));
            CHECK_OK(spw_step_memory_begin(memory, &list));
            course c = follow(&list, kind, &live);
            CHECK(c.end == 0);
            for (size_t step = 0; step < 2; step++) {
                CHECK_OK(spw_step_memory_step(memory, &(spw_step_rows){rows, MOE, micro}, &list));
                c = follow(&list, kind, &live);
                const double all = (double)f.waiting.at[SPW_MOMENT_STEP].bytes;
                CHECK(c.before_backward == 0);
                if (stages == 1 && micro == 1) check_gathers(&list, &f);
                CHECK(births(&list, kind, stages == 1 ? 2 : 0) ==
                      (stages == 1 ? micro * (MOE + DENSE + 2) : f.stage.layers + 1));
                CHECK(stages == 1 ? fabs((double)c.end - all) < MOE + DENSE + 2 : c.end == 0);
                CHECK(c.begin == (step == 0 || stages > 1 ? 0 : c.end));
            }
            spw_event_list_destroy(&list);
            spw_step_memory_destroy(memory);
        }
    }
}

int main(void) {
    test_shards();
    test_stages();
    test_lists();
    return check_done();
}
