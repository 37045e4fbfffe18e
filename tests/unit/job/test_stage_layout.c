/* Which stage holds which layers: the layout string and the other ways to say it, by hand after what Megatron-Core builds. */
#include "sim/job/stage_layout.h"

#include "sim/job/job.h"
#include "sim/memory/live/assumed_layout.h"
#include "sim/weights/block.h"
#include "sim/weights/optimizer_state.h"
#include "sim/weights/pipeline.h"
#include "sim/weights/stage.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

enum { MOST = 64 };

static void put(const char *text, spw_stage_layout *out) {
    memset(out, 0, sizeof *out);
    (void)snprintf(out->text, sizeof out->text, "%s", text);
}

/* `want` ends with -1. */
static void expect(const char *text, const int *want) {
    static spw_stage_layout layout;
    size_t n = 0;
    put(text, &layout);
    CHECK_OK(spw_stage_layout_parse(&layout));
    for (; want[n] >= 0; n++) CHECK(n < layout.blocks && layout.layers[n] == want[n]);
    CHECK(layout.blocks == n);
}

static void refuse(const char *text, const char *message) {
    static spw_stage_layout layout;
    put(text, &layout);
    CHECK_STATUS(spw_stage_layout_parse(&layout), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), message) != NULL);
    if (strstr(spw_last_error(), message) == NULL) fprintf(stderr, "  got %s\n", spw_last_error());
}

static void test_letters(void) {
    expect("Et|tL", (const int[]){1, 1, -1});
    expect("E,t*3|,(tt|)*3L", (const int[]){3, 2, 2, 2, 0, -1});
    expect("Et(t|tt)*2L", (const int[]){2, 3, 2, -1}); /* Ett|ttt|ttL */
    expect("E|*3t|L", (const int[]){0, 0, 0, 1, 0, -1});
    expect("Et*0|t*12L", (const int[]){0, 12, -1});
    expect("E(t*2|)*2tL", (const int[]){2, 2, 1, -1});
    expect("E(t)*2*3|L", (const int[]){4, 0, -1}); /* Ett*3|L, then t and t*3 */
    static spw_stage_layout layout;
    put("Ettt|(tt|)*29,m|L", &layout);
    CHECK_OK(spw_stage_layout_parse(&layout));
    CHECK(layout.blocks == 32 && layout.predictions == 1 && layout.prediction_block == 30);
    CHECK(spw_stage_layout_predictions(&layout, 30) == 1 && spw_stage_layout_predictions(&layout, 31) == 0);
}

static void test_refusals(void) {
    refuse("Et|xL", "unknown letter 'x' at position 4 of the layout; write E (embedding)");
    refuse("Et,t*2|,(tz|)*2L", "unknown letter 'z' at position 11");
    refuse("Et (t|)*2L", "unknown letter ' ' at position 3");
    refuse("E()*2|tL", "unknown letter '(' at position 2");     /* nothing is repeated */
    refuse("E((t)*2)*2|L", "unknown letter '(' at position 3"); /* groups do not nest: up to the first ) */
    refuse("tt|tL", "0 times E; write it once, as the first letter of the first block");
    refuse("|Et|tL", "1 times E; write it once");
    refuse("EE|tL", "2 times E");
    refuse("Et|t", "0 times L; write it once, as the last letter of the last block");
    refuse("EtL|t", "1 times L");
    refuse("Et|tL|", "1 times L");
    refuse("Em|tL", "1 times m, but not all in one block behind the last t");
    refuse("Et|m|mL", "2 times m, but not all in one block");
    refuse("Et*99999999999999999999999|L", "grows to more than 4096 letters at position 2");
    refuse("E(t|)*2000L", "more than 1024 blocks");
    refuse("Et*4095|L", "grows to more than 4096 letters");
}

static const char job_text[] =
    "model: deepseek-v3\ncluster: h200-64x8\n"
    "parallel: {expert: %d, fsdp: %d, pipeline: %d, virtual_stages: %d%s}\n"
    "batch: {sequences_per_gpu: 64, sequence_length: 4096, micro_batches: 64}\noptimizer: distributed\n";

static spw_status read_job(int pipeline, int chunks, const char *keys, spw_job *out) {
    char text[1024];
    (void)snprintf(text, sizeof text, job_text, pipeline == 1 ? 256 : 512 / pipeline, pipeline == 1 ? 2 : 1,
                   pipeline, chunks, keys);
    return spw_job_parse("job", NULL, text, strlen(text), out);
}

/* Layers of every block in order, and that they are all of the model's. */
static void expect_job(int pipeline, int chunks, const char *keys, const int *want) {
    static spw_job job;
    size_t layers = 0, moe = 0, n = 0;
    double parameters = 0.0;
    CHECK_OK(read_job(pipeline, chunks, keys, &job));
    const spw_pipeline p = spw_pipeline_of(&job);
    for (size_t c = 0; c < p.chunks; c++) {
        for (size_t s = 0; s < p.stages; s++, n++) {
            const spw_block block = spw_pipeline_block(&p, &job.model, s, c);
            CHECK(block.first == layers && (int)block.layers == want[n]);
            layers += block.layers;
        }
    }
    CHECK(want[n] == -1 && layers == job.model.layers);
    for (size_t s = 0; s < p.stages; s++) {
        const spw_stage stage = spw_pipeline_stage(&p, &job.model, s);
        const spw_held_parameters held = spw_stage_parameters(&job.model, &stage);
        parameters += held.routed + held.rest;
        moe += stage.moe_layers;
        CHECK(stage.embedding == (s == 0) && stage.head == (s + 1 == p.stages));
    }
    const spw_mtp_parameters mtp = spw_mtp_parameters_of(&job.model);
    const spw_parameters whole = spw_model_parameters(&job.model);
    if (job.stage_layout.predictions > 0) parameters -= (double)(mtp.routed + mtp.rest + whole.embedding);
    CHECK(moe == job.model.moe_layers);
    CHECK(fabs(parameters / (double)whole.total - 1.0) < 1e-12);
}

static void refuse_job(int pipeline, int chunks, const char *keys, const char *message) {
    static spw_job job;
    CHECK_STATUS(read_job(pipeline, chunks, keys, &job), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), message) != NULL);
    if (strstr(spw_last_error(), message) == NULL) fprintf(stderr, "  got %s\n", spw_last_error());
}

/* DeepSeek-V3: 61 layers, the first 3 dense, 1 of multi-token prediction. */
static void test_jobs(void) {
#define FIRST ", decoder_first_pipeline_num_layers: "
#define LAST ", decoder_last_pipeline_num_layers: "
#define EMBEDDING ", account_for_embedding_in_pipeline_split: true"
#define LOSS ", account_for_loss_in_pipeline_split: true"
#define LAYOUT ", pipeline_model_parallel_layout: "
    expect_job(16, 0, FIRST "3" LAST "2", (const int[]){3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 2, -1});
    expect_job(4, 0, FIRST "13", (const int[]){13, 16, 16, 16, -1});
    expect_job(4, 0, LAST "7", (const int[]){18, 18, 18, 7, -1});
    expect_job(2, 0, FIRST "30" LAST "31", (const int[]){30, 31, -1});
    expect_job(2, 0, EMBEDDING, (const int[]){30, 31, -1});
    expect_job(2, 0, LOSS, (const int[]){31, 30, -1});
    expect_job(2, 31, LOSS, (const int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, -1});
    expect_job(4, 2, LAYOUT "'Et*6|(t*8|)*6,t*7,L'", (const int[]){6, 8, 8, 8, 8, 8, 8, 7, -1});
    expect_job(16, 0, LAYOUT "'E|(t*5|)*12,t|m|L'",
               (const int[]){0, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 0, 0, -1});
    expect_job(16, 2, LAYOUT "'Ettt|(tt|)*29,m|L'",
               (const int[]){3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                             2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, -1});
    /* The blocks say how many there are. */
    expect_job(8, 0, LAYOUT "'Ettt|(tt|)*29,m|L'",
               (const int[]){3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                             2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, -1});
}

/* Layers of first and last stage in chunks: scratch numbers without a model, 24 layers over 4 stages in 2 chunks. */
static void test_chunks(void) {
    static spw_stage_layout layout;
    const spw_stage_cut cut = {.layers = 24, .stages = 4, .chunks = 2};
    const size_t want[2][4] = {{2, 4, 4, 2}, {2, 4, 4, 2}};
    const char *key = "";
    layout = (spw_stage_layout){.first = 4, .last = 4};
    CHECK_OK(spw_stage_layout_check(&layout, &cut, "m", &key));
    for (size_t c = 0; c < 2; c++)
        for (size_t s = 0; s < 4; s++) CHECK(spw_stage_layout_layers(&layout, &cut, s, c) == want[c][s]);
    layout = (spw_stage_layout){.embedding = true, .loss = true};
    const spw_stage_cut counted = {.layers = 22, .stages = 4, .chunks = 2};
    const size_t with_ends[2][4] = {{2, 3, 3, 3}, {3, 3, 3, 2}};
    CHECK_OK(spw_stage_layout_check(&layout, &counted, "m", &key));
    for (size_t c = 0; c < 2; c++)
        for (size_t s = 0; s < 4; s++)
            CHECK(spw_stage_layout_layers(&layout, &counted, s, c) == with_ends[c][s]);
    layout = (spw_stage_layout){.first = 3, .last = 5};
    CHECK_STATUS(spw_stage_layout_check(&layout, &cut, "m", &key), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), "the 3 layers of the first stage do not divide into virtual_stages 2") !=
          NULL);
    CHECK(strcmp(key, "parallel.decoder_first_pipeline_num_layers") == 0);
}

static void test_refused_jobs(void) {
    refuse_job(16, 0, FIRST "3", "the 61 layers of model 'deepseek-v3' for each of the other 15 stages");
    refuse_job(2, 0, FIRST "30" LAST "30", "the other 0 stages");
    refuse_job(1, 0, FIRST "3", "but pipeline is 1; leave it out");
    refuse_job(1, 0, LAYOUT "'Et*30|t*31mL'", "but pipeline is 1; leave it out");
    refuse_job(4, 0, FIRST "13" LOSS, "exclude one another; keep one of the three");
    refuse_job(4, 0, EMBEDDING, "'deepseek-v3' and the embedding are 62, which 4 stages do not");
    refuse_job(4, 0, LAYOUT "'Et*30|t*30|L'",
               "3 blocks, which are not pipeline 4 x virtual_stages 1; write 4");
    refuse_job(4, 0, LAYOUT "'Et*30|t*30||L'", "the layout has 60 layers (t), model 'deepseek-v3' has 61");
    refuse_job(4, 0, LAYOUT "'Et*30|t*31|mm|L'", "2 times m, model 'deepseek-v3' has 1");
    refuse_job(4, 2, LAYOUT "'Et*30|t*31|m|||||L'", "m in block 2, chunk 0 of stage 2");
    refuse_job(4, 2, LAYOUT "'Et*30|t*31|||m|||L'", "m in block 4, chunk 1 of stage 0");
    refuse_job(4, 0, LAYOUT "'Et*30|t*31|?|L'", "unknown letter '?' at position 12");
}

/* The stage of multi-token prediction holds its layer and an embedding of its own, and keeps its layer's input. */
static void test_prediction(void) {
    static spw_job with, without;
    CHECK_OK(read_job(4, 0, LAYOUT "'Et*30|t*30|tm|L'", &with));
    CHECK_OK(read_job(4, 0, LAYOUT "'Et*30|t*30|t|L'", &without));
    const spw_pipeline p = spw_pipeline_of(&with), q = spw_pipeline_of(&without);
    const spw_stage a = spw_pipeline_stage(&p, &with.model, 2), b = spw_pipeline_stage(&q, &without.model, 2);
    const spw_held_parameters more = spw_stage_parameters(&with.model, &a),
                              less = spw_stage_parameters(&without.model, &b);
    CHECK(a.predictions == 1 && b.predictions == 0 && a.layers == 1 && a.kept_layers == 2 * b.kept_layers);
    CHECK(a.kept_moe_layers == 2 * b.kept_moe_layers);
    /* 256 experts of 3 x 7168 x 2048 */
    CHECK(fabs(more.routed - less.routed - 256.0 * 3.0 * 7168.0 * 2048.0) < 1.0);
    CHECK(more.rest - less.rest > 129280.0 * 7168.0 + 2.0 * 7168.0 * 7168.0 + 3.0 * 7168.0 * 2048.0);
    CHECK(strstr(with.model.doubt[0], "in the memory and the time of its stage") != NULL);
    CHECK(strstr(without.model.doubt[0], "not in these figures") != NULL);
}

/* Where layers do not divide, the layout that is named makes the very blocks that are counted without it. */
static void expect_assumed(spw_job *job, const spw_scheme *scheme, size_t layers, size_t stages,
                           size_t chunks) {
    static spw_stage_layout layout;
    char text[SPW_LAYOUT_TEXT] = "";
    job->model.layers = layers;
    const spw_pipeline p = {.stages = stages, .chunks = chunks, .micro_batches = 1};
    const bool uneven = stages > 1 && layers % (stages * chunks) != 0;
    CHECK(spw_assumed_layout(&p, job, scheme, text) == uneven);
    if (!uneven) return;
    put(text, &layout);
    CHECK_OK(spw_stage_layout_parse(&layout));
    CHECK(layout.blocks == stages * chunks);
    for (size_t i = 0; i < layout.blocks; i++)
        CHECK(spw_pipeline_block(&p, &job->model, i % stages, i / stages).layers == layout.layers[i]);
}

static void test_assumed(void) {
    static spw_job job;
    spw_scheme megatron, compiled, torchtitan;
    char text[SPW_LAYOUT_TEXT], note[SPW_ASSUMED_LAYOUT_TEXT];
    CHECK_OK(spw_scheme_parse("megatron-alltoall", &megatron));
    CHECK_OK(spw_scheme_parse("gmm", &compiled));
    CHECK_OK(spw_scheme_parse("torchtitan", &torchtitan));
    CHECK_OK(read_job(16, 2, "", &job));
    const spw_pipeline p = spw_pipeline_of(&job);
    CHECK(spw_assumed_layout(&p, &job, &megatron, text) && strcmp(text, "Ett(|tt)*28(|t)*3L") == 0);
    CHECK(spw_assumed_layout_note(&p, &job, &megatron, note));
    CHECK(strstr(note, "61 layers") != NULL && strstr(note, "pipeline 16 x 2 virtual stages") != NULL &&
          strstr(note, "--pipeline-model-parallel-layout 'Ett(|tt)*28(|t)*3L'") != NULL &&
          strstr(note, "13 stages of 4, 3 stages of 3 layers") != NULL);
    CHECK(!spw_assumed_layout(&p, &job, &compiled, text));
    CHECK(spw_assumed_layout(&p, &job, &torchtitan, text)); /* under Megatron-Core's optimizer */
    job.optimizer = SPW_OPTIMIZER_SHARDED;
    CHECK(!spw_assumed_layout(&p, &job, &torchtitan, text) && spw_assumed_layout(&p, &job, &megatron, text));
    CHECK_OK(read_job(16, 2, LAYOUT "'Ettt|(tt|)*29,m|L'", &job));
    const spw_pipeline said = spw_pipeline_of(&job);
    CHECK(!spw_assumed_layout(&said, &job, &megatron, text));
    for (size_t layers = 1; layers <= 130; layers++)
        for (size_t stages = 1; stages <= 32 && stages <= layers; stages++)
            for (size_t chunks = 1; chunks * stages <= layers && chunks <= 5; chunks++)
                expect_assumed(&job, &megatron, layers, stages, chunks);
    expect_assumed(&job, &megatron, 1024, 1000, 1);
    expect_assumed(&job, &megatron, 1023, 511, 2);
}

int main(void) {
    test_letters();
    test_refusals();
    test_jobs();
    test_chunks();
    test_refused_jobs();
    test_prediction();
    test_assumed();
    return check_done();
}
