/* Micro-batches and stages on a real trace (64 source ranks x 2 sequences of 512 tokens, top 8 of 64): rows of micro-batches
 * against a count over the tokens; memory that follows the routing against windows of micro-batches, added up by hand;
 * several splits in one walk against each on its own; micro-batches that are counted once for several against all choices. */
#include "sim/job/job.h"
#include "sim/replay/replay.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/list.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "traces/generate/generate.h"
#include "traces/generate/made_trace.h"
#include "traces/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 64,
    SEQUENCES = 2,
    LENGTH = 512,
    EXPERTS = 64,
    TOP_K = 8,
    EXPERT_PARALLEL = 8,
    STEPS = 2,
    LAYERS = 4
};

static char trace_path[512], generated_path[512];

static spw_job job_of(size_t stages, size_t micro_batches, const char *remat) {
    char text[512];
    spw_job job;
    (void)snprintf(text, sizeof text,
                   "model: scratch-moe-e64\ncluster: h100-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                   "batch: {sequences_per_gpu: 2, sequence_length: 512, micro_batches: %zu}\nremat: %s\n",
                   micro_batches, remat);
    CHECK_OK(spw_job_parse("job.yaml", NULL, text, strlen(text), &job));
    job.pipeline = stages;
    job.cluster.nodes = 8 * stages;
    return job;
}

static spw_result run_splits(const spw_job *job, size_t splits, const spw_scheme *scheme) {
    spw_result result = {.row = NULL};
    spw_trace *trace = NULL;
    CHECK_OK(spw_trace_open(trace_path, &trace));
    const spw_replay_request request = {
        .trace = trace, .job = job, .splits = splits, .scheme = scheme, .schemes = 1, .seed = 1};
    CHECK_OK(spw_replay_run(&request, &result));
    spw_trace_close(trace);
    return result;
}

static spw_result run(const spw_job *job, const spw_scheme *scheme) { return run_splits(job, 1, scheme); }

/* Tensors that follow the routing: x [rows, H], kept for the backward pass, and dx beside it. */
static void following_layer(const spw_scheme *scheme, const spw_layer_shape *shape, spw_layer_builder *b) {
    static const spw_tensor x = {"x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN},
                            dx = {"dx", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN};
    (void)scheme, (void)shape;
    spw_layer_passes(b, "in", x);
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    spw_layer_born(b, "in", x);
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "gradient", dx);
    spw_layer_dies(b, "out", "x");
    spw_layer_dies(b, "out", "dx");
}

/* gmm with such a layer. */
static spw_scheme following(void) {
    static spw_scheme_type type;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    type = *scheme.type;
    type.memory.layer = following_layer;
    type.trainer = SPW_TRAINER_MAXTEXT_LAYERS;
    scheme.type = &type;
    return scheme;
}

/* --- Rows by hand --- */

static uint32_t rows[STEPS][LAYERS][SEQUENCES][RANKS]; /* that a rank holds of one micro-batch */

static void count_tokens(void) {
    spw_trace *trace = NULL;
    CHECK_OK(spw_trace_open(trace_path, &trace));
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t layer = 0; layer < LAYERS; layer++) {
            spw_trace_record record;
            CHECK_OK(spw_trace_read_record(trace, step, 1, layer, false, &record));
            CHECK(record.tokens == (size_t)RANKS * SEQUENCES * LENGTH && record.id_bytes == 1);
            const uint8_t *id = record.expert_id;
            for (size_t i = 0; i < record.tokens * TOP_K; i++) {
                const size_t token = i / TOP_K, source = token / (SEQUENCES * LENGTH);
                const size_t sequence = token / LENGTH % SEQUENCES, group = source / EXPERT_PARALLEL;
                if (id[i] < EXPERTS)
                    rows[step][layer][sequence]
                        [group * EXPERT_PARALLEL + id[i] / (EXPERTS / EXPERT_PARALLEL)]++;
            }
        }
    }
    spw_trace_close(trace);
}

static void test_micro_batches(void) {
    const spw_job whole = job_of(1, 1, "full"), parts = job_of(1, 2, "full");
    spw_scheme scheme;
    uint32_t most = 0;
    CHECK_OK(spw_scheme_parse("gmm", &scheme));
    spw_result a = run(&whole, &scheme), b = run(&parts, &scheme);
    for (size_t i = 0; i < sizeof rows / sizeof(uint32_t); i++) {
        const uint32_t here = (&rows[0][0][0][0])[i];
        most = here > most ? here : most;
    }
    CHECK(a.rows == 1 && b.rows == 1 && b.row[0].traffic.rows_max == most);
    CHECK(b.row[0].match == SPW_MATCH_EXACT);
    CHECK(fabs(2.0 * b.row[0].traffic.rows_mean / a.row[0].traffic.rows_mean - 1.0) < 1e-12);
    CHECK(fabs(b.row[0].traffic.step_bytes_per_gpu / a.row[0].traffic.step_bytes_per_gpu - 1.0) < 1e-12);
    spw_result_clear(&a);
    spw_result_clear(&b);
    CHECK_OK(spw_scheme_parse("dense:capacity_factor=1.25", &scheme)); /* capacity is of a sequence anyway */
    a = run(&whole, &scheme), b = run(&parts, &scheme);
    CHECK(a.row[0].drops.dropped == b.row[0].drops.dropped &&
          a.row[0].drops.assignments == b.row[0].drops.assignments && a.row[0].drops.dropped > 0);
    spw_result_clear(&a);
    spw_result_clear(&b);
}

/* --- Memory by hand: P stages, 1F1B, layers in turn --- */

static uint64_t greatest(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* What the layers of a stage keep of one micro-batch on a rank, and its largest layer. */
static uint64_t kept(const spw_job *job, size_t stages, size_t stage, size_t step, size_t micro, size_t rank,
                     uint64_t *largest) {
    const size_t each = job->model.layers / stages, more = job->model.layers % stages;
    const size_t first = stage * each + (stage < more ? stage : more), layers = each + (stage < more);
    uint64_t sum = 0;
    size_t moe = 0;
    for (size_t l = 0; l < job->model.layers; l++) {
        if (!job->model.is_moe[l]) continue;
        const uint64_t bytes = (uint64_t)rows[step][moe++ % LAYERS][micro][rank] * job->model.hidden * 2;
        if (l < first || l >= first + layers) continue;
        sum += bytes;
        *largest = greatest(*largest, bytes);
    }
    return sum;
}

static void test_memory(size_t stages) {
    const spw_job job = job_of(stages, SEQUENCES, "none");
    const spw_scheme scheme = following();
    spw_result result = run(&job, &scheme);
    uint64_t want = 0;
    for (size_t stage = 0; stage < stages; stage++) {
        spw_footprint f;
        const spw_point point = spw_point_of(&job, &scheme, SEQUENCES);
        CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &f));
        for (size_t step = 0; step < STEPS; step++) {
            for (size_t rank = 0; rank < RANKS; rank++) {
                uint64_t largest = 0;
                const uint64_t one = kept(&job, stages, stage, step, 0, rank, &largest);
                const uint64_t two = kept(&job, stages, stage, step, 1, rank, &largest);
                /* the last stage has one micro-batch in flight, the others both */
                const uint64_t saved = stage + 1 == stages ? greatest(one, two) : one + two;
                const uint64_t others = saved > largest ? saved - largest : 0;
                want = greatest(want, f.fixed_bytes[SPW_MOMENT_MOE_LAYER] + 2 * largest + others);
                want = greatest(want, f.fixed_bytes[SPW_MOMENT_LOSS] + saved);
                want = greatest(want, f.fixed_bytes[SPW_MOMENT_DENSE_LAYER] + saved);
            }
        }
    }
    CHECK(result.rows == 1 && result.row[0].memory.max_bytes == want);
    if (result.rows == 1) CHECK(result.row[0].footprint.peak_bytes == want);
    spw_result_clear(&result);
}

/* --- The same where layers are freed one by one --- */

/* What one micro-batch keeps on a rank before layer `end` of a stage, beside inputs; all of them: `end` beyond the last. */
static double waiting(const spw_job *job, const spw_footprint *f, size_t first, size_t end,
                      const uint64_t *x) {
    double sum = 0.0;
    for (size_t l = first; l < end; l++) {
        const bool moe = job->model.is_moe[l];
        sum += f->keeps[moe].input + f->keeps[moe].saved + (moe ? (double)x[l] : 0.0);
    }
    return sum;
}

/* Layer by layer backward, the micro-batches in the order of 1F1B: the last stage has one in flight, the others both. */
static double peak_of_stage(const spw_job *job, const spw_footprint *f, size_t stages, size_t step,
                            size_t rank) {
    const size_t stage = f->stage.index, each = job->model.layers / stages, more = job->model.layers % stages;
    const size_t first = stage * each + (stage < more ? stage : more), end = first + each + (stage < more);
    uint64_t x[SEQUENCES][SPW_MODEL_MAX_LAYERS];
    double peak = 0.0, all[SEQUENCES];
    for (size_t b = 0; b < SEQUENCES; b++) {
        for (size_t l = 0, moe = 0; l < job->model.layers; l++)
            x[b][l] = job->model.is_moe[l]
                          ? (uint64_t)rows[step][moe++ % LAYERS][b][rank] * job->model.hidden * 2
                          : 0;
        all[b] = waiting(job, f, first, end, x[b]);
    }
    for (size_t b = 0; b < SEQUENCES; b++) {
        const double others = stage + 1 < stages && b == 0 ? all[1] : 0.0;
        for (size_t l = end; l-- > first;) {
            const bool moe = job->model.is_moe[l];
            const double now = others + waiting(job, f, first, l, x[b]) + f->keeps[moe].input +
                               (moe ? 2.0 * (double)x[b][l] : 0.0);
            peak = fmax(peak,
                        now + (double)f->beside_bytes[moe ? SPW_MOMENT_MOE_LAYER : SPW_MOMENT_DENSE_LAYER]);
        }
        const double loss = stage + 1 < stages ? all[0] + (b > 0 ? all[1] : 0.0) : all[b];
        peak = fmax(peak, loss + (double)f->beside_bytes[SPW_MOMENT_LOSS]);
    }
    return peak;
}

static void test_freed(size_t stages) {
    static spw_scheme_type type;
    const spw_job job = job_of(stages, SEQUENCES, "none");
    spw_scheme scheme = following();
    type = *scheme.type;
    type.trainer = SPW_TRAINER_PYTORCH;
    scheme.type = &type;
    spw_result result = run(&job, &scheme);
    const spw_point point = spw_point_of(&job, &scheme, SEQUENCES);
    double want = 0.0;
    for (size_t stage = 0; stage < stages; stage++) {
        spw_footprint f;
        CHECK_OK(spw_footprint_of_stage(&point, stage, NULL, &f));
        for (size_t step = 0; step < STEPS; step++)
            for (size_t rank = 0; rank < RANKS; rank++)
                want = fmax(want, peak_of_stage(&job, &f, stages, step, rank));
    }
    CHECK(result.rows == 1 && fabs((double)result.row[0].memory.max_bytes - want) < 4.0);
    if (result.rows == 1) CHECK(result.row[0].footprint.peak_bytes == result.row[0].memory.max_bytes);
    spw_result_clear(&result);
}

/* --- Beside each other --- */

static void test_splits(void) {
    spw_job job[2] = {job_of(2, SEQUENCES, "none"), job_of(2, SEQUENCES, "none")};
    const spw_scheme scheme = following();
    job[1].expert = 4, job[1].fsdp = 16;
    CHECK_OK(spw_job_check(&job[1]));
    spw_result both = run_splits(job, 2, &scheme);
    CHECK(both.rows == 2);
    for (size_t i = 0; i < both.rows; i++) {
        spw_result one = run(&job[i], &scheme);
        const spw_result_row *x = &one.row[0], *y = &both.row[i];
        CHECK(one.rows == 1 && y->expert == job[i].expert && y->fsdp == job[i].fsdp);
        CHECK(x->traffic.step_bytes_per_gpu == y->traffic.step_bytes_per_gpu &&
              x->traffic.max_link_bytes == y->traffic.max_link_bytes &&
              x->traffic.rows_max == y->traffic.rows_max && x->traffic.rows_mean == y->traffic.rows_mean);
        CHECK(x->drops.assignments == y->drops.assignments && x->drops.assignments > 0);
        CHECK(x->memory.max_bytes == y->memory.max_bytes && x->memory.worst_rank == y->memory.worst_rank &&
              x->memory.worst_layer == y->memory.worst_layer);
        spw_result_clear(&one);
    }
    if (both.rows == 2) CHECK(both.row[0].traffic.rows_max != both.row[1].traffic.rows_max);
    spw_result_clear(&both);
}

/* Whatever the parts of a step, a row says what its drop rule takes for granted of the trace. */
static void test_assumptions(void) {
    static const char *const granted = "first slot is its first choice";
    spw_scheme scheme;
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = LAYERS,
                                      .steps = 1,
                                      .ranks = RANKS,
                                      .tokens_per_rank = (size_t)SEQUENCES * LENGTH,
                                      .sequence_length = LENGTH,
                                      .distribution_text = "uniform",
                                      .generator = "test"};
    CHECK_OK(spw_distribution_parse(settings.distribution_text, &settings.distribution));
    CHECK_OK(spw_generate_trace(&settings, generated_path)); /* its slots are in no order of preference */
    (void)snprintf(trace_path, sizeof trace_path, "%s", generated_path);
    CHECK_OK(spw_scheme_parse("tutel:capacity_factor=1", &scheme));
    for (size_t micro_batches = 1; micro_batches <= SEQUENCES; micro_batches++) {
        const spw_job job = job_of(1, micro_batches, "none");
        spw_result result = run(&job, &scheme);
        size_t said = 0;
        for (size_t i = 0; result.rows == 1 && i < result.row[0].assumptions.count; i++)
            said += strstr(result.row[0].assumptions.text[i], granted) != NULL;
        CHECK(said == 1);
        spw_result_clear(&result);
    }
}

/* A stated imbalance is that of every micro-batch of every layer, whatever the trace says; until_oracle holds its memory against
 * routing of that kind. */
static void test_stated(size_t stages) {
    static const double times[] = {1.0, 1.5, 8.0};
    const spw_job job = job_of(stages, 2, "none");
    uint64_t before = 0;
    spw_trace *trace = NULL;
    spw_scheme scheme;
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    CHECK_OK(spw_trace_open(trace_path, &trace));
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        spw_imbalance_law law;
        spw_result result = {.row = NULL};
        CHECK_OK(spw_imbalance_law_create(job.model.experts, job.model.top_k, job.expert, times[i], &law));
        const spw_replay_request request = {
            .trace = trace, .job = &job, .scheme = &scheme, .schemes = 1, .seed = 1, .imbalance = &law};
        CHECK_OK(spw_replay_run(&request, &result));
        CHECK(result.rows == 1 && result.row[0].traffic.rows_max == (uint64_t)(times[i] * LENGTH * TOP_K));
        CHECK(result.rows == 1 && result.row[0].memory.max_bytes > before);
        before = result.rows == 1 ? result.row[0].memory.max_bytes : 0;
        spw_result_clear(&result);
        spw_imbalance_law_destroy(&law);
    }
    spw_trace_close(trace);
}

/* --- Micro-batches that are as others in turn: of generated routing only the first kinds differ --- */

/* What the ranks of a step received and sent, by a sink. */
typedef struct received {
    uint64_t rows, bytes;
    size_t steps;
} received;

static spw_status add_step(void *state, const spw_replay_step *step) {
    received *sum = state;
    for (size_t i = 0; i < step->layers * step->ranks; i++) {
        sum->rows += step->rows_received[i];
        sum->bytes += step->bytes_sent[i];
    }
    sum->steps++;
    return SPW_OK;
}

/* Without dedupe each choice is a row: so many are there, whichever micro-batches are counted once for several. */
static void test_kinds(size_t micro_batches) {
    spw_generate_settings settings = {.experts = EXPERTS,
                                      .top_k = TOP_K,
                                      .layers = LAYERS,
                                      .steps = 1,
                                      .ranks = 1,
                                      .tokens_per_rank = LENGTH,
                                      .sequence_length = LENGTH,
                                      .distribution_text = "uniform"};
    const uint64_t choices = (uint64_t)micro_batches * RANKS * LENGTH * TOP_K * LAYERS;
    spw_job job = job_of(1, 1, "full");
    spw_trace *trace = NULL;
    spw_result result = {.row = NULL};
    received sum = {0, 0, 0};
    spw_scheme scheme;
    job.micro_batches = job.sequences_per_gpu[0] = micro_batches;
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &scheme));
    CHECK_OK(spw_distribution_parse(settings.distribution_text, &settings.distribution));
    CHECK_OK(spw_trace_make(&settings, &trace));
    const spw_replay_request request = {.trace = trace,
                                        .job = &job,
                                        .scheme = &scheme,
                                        .schemes = 1,
                                        .seed = 1,
                                        .skips_lost_tokens = true,
                                        .sink = {&sum, add_step}};
    CHECK_OK(spw_replay_run(&request, &result));
    CHECK(sum.steps == 1 && sum.rows == choices);
    CHECK(result.rows == 1 && result.row[0].drops.assignments == choices && result.row[0].drops.dropped == 0);
    const double cells = (double)(micro_batches * RANKS * LAYERS);
    CHECK(result.rows == 1 && fabs(result.row[0].traffic.rows_mean * cells - (double)choices) < 0.5);
    CHECK(result.rows == 1 && fabs(result.row[0].traffic.dispatch_bytes_per_gpu * cells - (double)sum.bytes) <
                                  1e-9 * (double)sum.bytes);
    spw_result_clear(&result);
    spw_trace_close(trace);
}

int main(int argc, char **argv) {
    (void)snprintf(trace_path, sizeof trace_path, "%s/training_aux_e64_slice.h5", argc > 1 ? argv[1] : ".");
    (void)snprintf(generated_path, sizeof generated_path, "%s/pipeline_generated.h5",
                   argc > 2 ? argv[2] : ".");
    count_tokens();
    test_micro_batches();
    for (size_t stages = 1; stages <= 3; stages++) test_memory(stages);
    for (size_t stages = 1; stages <= 5; stages++) test_freed(stages);
    test_splits();
    for (size_t stages = 1; stages <= 3; stages++) test_stated(stages);
    test_assumptions();
    for (size_t micro_batches = 7; micro_batches <= 37; micro_batches += 10) test_kinds(micro_batches);
    return check_done();
}
