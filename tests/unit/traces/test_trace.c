/* Traces written and read again: a case by hand, round trips, what is refused, every allocation failing, and a writer that
 * is killed. argv[1]: scratch directory. */
#include "base/memory.h"
#include "tests/unit/trace_sample.h"
#include "traces/generate/generate.h"
#include "traces/shard_names.h"
#include "traces/statistics.h"
#include "traces/trace.h"
#include "traces/trace_verify.h"
#include "traces/write/slice.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[400], path[512], other[512];

/* 2 tokens, 1 layer, top-2 of 4: token 0 chooses 3 and 1, token 1 chooses 1 and nothing. */
static void test_by_hand(void) {
    const int32_t layer_id[] = {7};
    const uint32_t experts[] = {4}, top_k[] = {2};
    const uint16_t ids[] = {3, 1, 1, SPW_TRACE_MISSING}, rank[] = {0, 1};
    const spw_trace_info info = {.layers = 1,
                                 .experts = 4,
                                 .top_k = 2,
                                 .ranks = 2,
                                 .has_tokens = true,
                                 .has_by_rank = true,
                                 .layer_id = layer_id,
                                 .layer_experts = experts,
                                 .layer_top_k = top_k,
                                 .license = "CC0-1.0"};
    const spw_trace_write_settings settings = {.info = &info};
    const spw_trace_write_step step = {
        .id = 5, .phase = 2, .tokens = 2, .tokens_kept = true, .source_rank = rank};
    spw_trace_writer *writer = NULL;
    CHECK_OK(spw_trace_writer_create(path, &settings, &writer));
    if (writer == NULL) return;
    CHECK_OK(spw_trace_writer_begin_step(writer, &step));
    CHECK_OK(spw_trace_writer_put_layer(writer, 0, ids, NULL));
    CHECK_OK(spw_trace_writer_end_step(writer));
    CHECK_OK(spw_trace_writer_finish(writer));

    spw_trace *trace = NULL;
    CHECK_OK(spw_trace_open(path, &trace));
    if (trace == NULL) return;
    const spw_trace_info *got = spw_trace_get_info(trace);
    CHECK(got->steps == 1 && got->layers == 1 && got->experts == 4 && got->top_k == 2 && got->ranks == 2);
    CHECK(got->tokens == 2 && got->step_id[0] == 5 && got->step_phase[0] == 2 && got->layer_id[0] == 7);
    CHECK(strcmp(got->license, "CC0-1.0") == 0 && strcmp(got->source, "") == 0 && got->fast_path);
    spw_trace_record record;
    CHECK_OK(spw_trace_read_record(trace, 0, 1, 0, true, &record));
    const uint8_t *narrow = record.expert_id;
    CHECK(record.tokens == 2 && record.id_bytes == 1 && record.missing == 255 && record.weight == NULL);
    CHECK(narrow[0] == 3 && narrow[1] == 1 && narrow[2] == 1 && narrow[3] == 255);
    uint32_t routed[4] = {9, 9, 9, 9}, by_rank[8] = {9};
    CHECK_OK(spw_trace_read_routed(trace, 0, 0, routed));
    CHECK(routed[0] == 0 && routed[1] == 2 && routed[2] == 0 && routed[3] == 1);
    CHECK_OK(spw_trace_read_by_rank(trace, 0, 0, by_rank));
    CHECK(by_rank[1] == 1 && by_rank[3] == 1 && by_rank[5] == 1 &&
          by_rank[0] + by_rank[2] + by_rank[4] + by_rank[6] + by_rank[7] == 0);
    CHECK_STATUS(spw_trace_read_record(trace, 0, 2, 0, false, &record), SPW_EARG);
    CHECK_STATUS(spw_trace_read_record(trace, 0, 1, 1, false, &record), SPW_EARG);
    CHECK_STATUS(spw_trace_read_routed(trace, 1, 0, routed), SPW_EARG);
    spw_trace_close(trace);
}

/* 1 of 4 experts has 6 of 8 choices, another 2: by hand. */
static void test_statistics(void) {
    const uint32_t routed[] = {6, 2, 0, 0, 0, 0, 0, 0};
    spw_statistics s;
    spw_statistics_of(routed, 8, &s);
    CHECK(s.max_over_mean == 6.0 && s.dead_experts == 6.0);
    CHECK(fabs(s.variation - sqrt((25.0 + 1.0 + 6.0) / 8.0)) < 1e-12);
    CHECK(fabs(s.entropy_bits - (0.75 * log2(4.0 / 3.0) + 0.25 * 2.0)) < 1e-12);
    CHECK(fabs(s.gini - (7.0 * 6.0 + 5.0 * 2.0) / 64.0) < 1e-12);
    CHECK(s.rank_max_over_mean[0] == 4.0 && s.rank_max_over_mean[1] == 6.0 && isnan(s.rank_max_over_mean[2]));
}

static void compare(const trace_sample *sample, const spw_trace_record *record, size_t first, size_t step,
                    size_t layer) {
    static uint16_t ids[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K], weight[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K];
    size_t bad = 0, count = sample->tokens[step] * sample->top_k, from = first * sample->top_k;
    sample_record(sample, step, layer, ids, weight);
    for (size_t i = 0; i < count; i++) {
        unsigned got = record->id_bytes == 1 ? ((const uint8_t *)record->expert_id)[from + i]
                                             : ((const uint16_t *)record->expert_id)[from + i];
        bad += got != (ids[i] == SPW_TRACE_MISSING ? record->missing : ids[i]);
        if (sample->weights) bad += record->weight[from + i] != weight[i];
    }
    CHECK(bad == 0);
}

static void check_columns(const trace_sample *sample, spw_trace *trace, size_t step) {
    static uint16_t rank[SAMPLE_MOST_TOKENS];
    static int32_t sequence[SAMPLE_MOST_TOKENS], position[SAMPLE_MOST_TOKENS];
    spw_trace_columns columns;
    sample_columns(sample, step, rank, sequence, position);
    size_t n = sample->tokens[step];
    CHECK_OK(spw_trace_read_columns(trace, step, 1, &columns));
    CHECK(columns.tokens == n && (columns.source_rank != NULL) == (sample->ranks > 0));
    if (n == 0) return;
    CHECK(columns.sequence != NULL && columns.position != NULL);
    if (columns.sequence == NULL || columns.position == NULL) return;
    CHECK(memcmp(columns.sequence, sequence, n * 4) == 0 && memcmp(columns.position, position, n * 4) == 0);
    if (columns.source_rank != NULL) CHECK(memcmp(columns.source_rank, rank, n * 2) == 0);
}

/* Reads every step and layer in three orders, and all steps at once. */
static void test_round_trip(const trace_sample *sample) {
    spw_trace *trace = NULL;
    spw_trace_record record;
    CHECK_OK(sample_write(sample, path));
    CHECK_OK(spw_trace_open(path, &trace));
    if (trace == NULL) return;
    for (size_t step = 0; step < sample->steps; step++) {
        check_columns(sample, trace, step);
        for (size_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
            CHECK_OK(spw_trace_read_record(trace, step, 1, layer, sample->weights, &record));
            compare(sample, &record, 0, step, layer);
        }
    }
    for (size_t layer = SAMPLE_LAYERS; layer-- > 0;) {
        for (size_t step = sample->steps; step-- > 0;) {
            CHECK_OK(spw_trace_read_record(trace, step, 1, layer, sample->weights, &record));
            compare(sample, &record, 0, step, layer);
        }
        CHECK_OK(spw_trace_read_record(trace, 0, sample->steps, layer, sample->weights, &record));
        for (size_t step = 0, first = 0; step < sample->steps; first += sample->tokens[step++])
            compare(sample, &record, first, step, layer);
    }
    spw_verify_report report;
    CHECK_OK(spw_trace_verify(trace, 0, &report));
    for (int i = 0; i < SPW_VERIFY_CHECKS; i++) CHECK(report.failed[i] == 0);
    CHECK(report.checked[0] > 0 && report.checked[1] > 0);
    spw_verify_clear(&report);
    spw_trace_close(trace);
}

static void test_round_trips(void) {
    const size_t few[] = {5, 0, 130, 1}, many[] = {4000, 300, 300, 4096, 17, 4001, 299};
    test_round_trip(&(trace_sample){.experts = 8, .top_k = 2, .steps = 4, .tokens = few, .seed = 1});
    test_round_trip(&(trace_sample){.experts = 255,
                                    .top_k = 8,
                                    .ranks = 4,
                                    .steps = 7,
                                    .tokens = many,
                                    .missing = true,
                                    .weights = true,
                                    .seed = 2});
    test_round_trip(&(trace_sample){
        .experts = 256, .top_k = 8, .ranks = 3, .steps = 7, .tokens = many, .missing = true, .seed = 3});
    test_round_trip(&(trace_sample){
        .experts = 1000, .top_k = 1, .ranks = 64, .steps = 7, .tokens = many, .weights = true, .seed = 4});
    test_round_trip(
        &(trace_sample){.experts = 8, .top_k = 8, .ranks = 1, .steps = 4, .tokens = few, .seed = 5});
}

/* Distinct ranks and nodes of the tokens that chose anything, the means of all steps: counted token by token. 64 experts on 4 to 64
 * ranks; with one choice a token, a fifth of the tokens have none. */
static void test_touched(size_t top_k) {
    static uint16_t ids[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K], weight[SAMPLE_MOST_TOKENS * SAMPLE_MOST_K];
    enum { EXPERTS = 64, STEPS = 2 };
    const size_t tokens[STEPS] = {200, 90};
    const trace_sample sample = {
        .experts = EXPERTS, .top_k = top_k, .steps = STEPS, .tokens = tokens, .missing = true, .seed = 11};
    static spw_layer_statistics found[SAMPLE_LAYERS];
    spw_trace *trace = NULL;
    CHECK_OK(sample_write(&sample, path));
    CHECK_OK(spw_trace_open(path, &trace));
    if (trace == NULL) return;
    CHECK_OK(spw_trace_statistics(trace, NULL, found));
    spw_trace_close(trace);
    for (size_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        for (size_t i = 0; i < SPW_STATISTICS_SIZES; i++) {
            double mean[2] = {0.0, 0.0}; /* of ranks, of nodes */
            size_t without = 0;
            for (size_t step = 0; step < STEPS; step++) {
                size_t seen[2] = {0, 0}, choosing = 0;
                sample_record(&sample, step, layer, ids, weight);
                for (size_t token = 0; token < tokens[step]; token++) {
                    bool on[2][EXPERTS] = {{false}}, any = false;
                    for (size_t k = 0; k < top_k; k++) {
                        const size_t id = ids[token * top_k + k], local = EXPERTS / spw_statistics_size[i];
                        if (id == SPW_TRACE_MISSING) continue;
                        any = on[0][id / local] = on[1][id / local / SPW_STATISTICS_NODE_RANKS] = true;
                    }
                    choosing += any;
                    without += !any;
                    for (size_t place = 0; place < EXPERTS; place++)
                        for (int kind = 0; kind < 2; kind++) seen[kind] += on[kind][place];
                }
                for (int kind = 0; kind < 2; kind++)
                    mean[kind] += (double)seen[kind] / (double)choosing / STEPS;
            }
            CHECK((without > 0) == (top_k == 1));
            CHECK(fabs(found[layer].mean.ranks_touched[i] - mean[0]) < 1e-12);
            CHECK(fabs(found[layer].mean.nodes_touched[i] - mean[1]) < 1e-12);
        }
    }
}

/* Three numbered shards, from 0 or from 1: a folder with all of them is read, one with any of them gone is not. */
static void test_numbered(void) {
    enum { SHARDS = 3 };
    char inside[600], file[SHARDS][700];
    (void)snprintf(inside, sizeof inside, "%s/numbered", folder);
    CHECK(mkdir(inside, 0777) == 0);
    for (unsigned from = 0; from < 2; from++) {
        for (unsigned there = 1; there < 1U << SHARDS; there++) {
            spw_shard_names names;
            for (unsigned i = 0; i < SHARDS; i++) {
                (void)snprintf(file[i], sizeof file[i], "%s/t-0000%u-of-00003.h5", inside, from + i);
                FILE *made = (there >> i & 1) != 0 ? fopen(file[i], "w") : NULL;
                CHECK((made != NULL) == ((there >> i & 1) != 0));
                if (made != NULL) (void)fclose(made);
            }
            const spw_status status = spw_shard_names_read(inside, &names);
            CHECK(status == (there == (1U << SHARDS) - 1 ? SPW_OK : SPW_EIO));
            CHECK(status == SPW_OK || strstr(spw_last_error(), ": missing; its fellow ") != NULL);
            spw_shard_names_clear(&names);
            for (unsigned i = 0; i < SHARDS; i++) (void)unlink(file[i]);
        }
    }
    CHECK(rmdir(inside) == 0);
}

static void test_slice(void) {
    const size_t tokens[] = {400, 300, 200};
    const trace_sample sample = {
        .experts = 16, .top_k = 2, .ranks = 4, .steps = 3, .tokens = tokens, .weights = true, .seed = 6};
    const size_t steps[] = {0, 2};
    spw_trace *trace = NULL;
    spw_trace_record record;
    CHECK_OK(sample_write(&sample, path));
    CHECK_OK(spw_trace_slice(
        path, other, &(spw_slice_settings){.step = steps, .steps = 2, .layer_begin = 1, .layer_end = 3}));
    CHECK_OK(spw_trace_open(other, &trace));
    if (trace == NULL) return;
    const spw_trace_info *info = spw_trace_get_info(trace);
    CHECK(info->steps == 2 && info->layers == 2 && info->layer_id[0] == 3 && info->step_id[1] == 12 &&
          info->has_weights);
    CHECK(strstr(info->note, "slice") != NULL && strcmp(info->source, "a test") == 0 && info->ranks == 4);
    CHECK_OK(spw_trace_read_record(trace, 1, 1, 0, true, &record));
    compare(&sample, &record, 0, 2, 1);
    spw_trace_close(trace);
    spw_file_forget_reads();
    CHECK_OK(spw_trace_slice(
        path, other,
        &(spw_slice_settings){
            .step = steps, .steps = 1, .layer_end = 1, .rank_begin = 1, .rank_end = 3, .max_tokens = 150}));
    CHECK_OK(spw_trace_open(other, &trace));
    if (trace == NULL) return;
    spw_trace_columns columns;
    CHECK_OK(spw_trace_read_columns(trace, 0, 1, &columns));
    CHECK(columns.tokens == 150 && columns.source_rank[0] == 0 && columns.source_rank[99] == 0 &&
          columns.source_rank[100] == 1);
    spw_trace_close(trace);
    const size_t falling[] = {2, 0};
    CHECK_STATUS(
        spw_trace_slice(path, other, &(spw_slice_settings){.step = falling, .steps = 2, .layer_end = 1}),
        SPW_EARG);
    CHECK_STATUS(
        spw_trace_slice(path, other, &(spw_slice_settings){.step = steps, .steps = 2, .layer_end = 4}),
        SPW_EARG);
    CHECK_STATUS(
        spw_trace_slice(path, other,
                        &(spw_slice_settings){.step = steps, .steps = 2, .layer_end = 1, .rank_end = 5}),
        SPW_EARG);
}

static void test_writer_refuses(void) {
    const int32_t layer_id[] = {0};
    const uint32_t experts[] = {4}, top_k[] = {2};
    const uint16_t good[] = {0, 1}, bad[] = {0, 4}, rank[] = {2};
    spw_trace_info info = {.layers = 1,
                           .experts = 4,
                           .top_k = 2,
                           .ranks = 2,
                           .has_tokens = true,
                           .layer_id = layer_id,
                           .layer_experts = experts,
                           .layer_top_k = top_k};
    const spw_trace_write_settings settings = {.info = &info};
    spw_trace_writer *writer = NULL;
    (void)unlink(path);
    CHECK_OK(spw_trace_writer_create(path, &settings, &writer));
    if (writer == NULL) return;
    CHECK_STATUS(
        spw_trace_writer_begin_step(writer, &(spw_trace_write_step){.tokens = 1, .tokens_kept = true}),
        SPW_EARG);
    CHECK_STATUS(spw_trace_writer_begin_step(
                     writer, &(spw_trace_write_step){.tokens = 1, .tokens_kept = true, .source_rank = rank}),
                 SPW_EARG);
    const uint16_t zero[] = {0};
    CHECK_OK(spw_trace_writer_begin_step(
        writer, &(spw_trace_write_step){.tokens = 1, .tokens_kept = true, .source_rank = zero}));
    CHECK_STATUS(spw_trace_writer_put_layer(writer, 0, bad, NULL), SPW_EARG);
    CHECK_STATUS(spw_trace_writer_end_step(writer), SPW_EARG); /* a refused layer is not there */
    CHECK_OK(spw_trace_writer_put_layer(writer, 0, good, NULL));
    CHECK_STATUS(spw_trace_writer_put_layer(writer, 0, good, NULL), SPW_EARG); /* twice */
    CHECK_STATUS(spw_trace_writer_finish(writer), SPW_EARG);                   /* not ended */
    CHECK(access(path, F_OK) != 0);
    info.top_k = 5;
    CHECK_STATUS(spw_trace_writer_create(path, &settings, &writer), SPW_EARG);
    CHECK_STATUS(
        spw_trace_writer_create("/no/such/folder/x.h5", &(spw_trace_write_settings){.info = &info}, &writer),
        SPW_EARG);
    info.top_k = 2;
    CHECK_STATUS(spw_trace_writer_create("/no/such/folder/x.h5", &settings, &writer), SPW_EIO);
}

/* The stages of everything, each of which is run again and again with another allocation failing. */
static const size_t stage_tokens[] = {60, 20};
static const trace_sample stage_sample = {
    .experts = 300, .top_k = 2, .ranks = 2, .steps = 2, .tokens = stage_tokens, .weights = true, .seed = 7};
static spw_trace *stage_trace;

static spw_status stage_write(void) { return sample_write(&stage_sample, path); }

static spw_status stage_read(void) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    spw_trace_record record;
    spw_trace_columns columns;
    SPW_TRY(spw_trace_open(path, &trace));
    SPW_TRY(spw_trace_read_columns(trace, 0, 2, &columns));
    SPW_TRY(spw_trace_read_record(trace, 0, 2, 1, true, &record));

cleanup:
    spw_trace_close(trace);
    return status;
}

static spw_status stage_verify(void) {
    spw_verify_report report;
    spw_layer_statistics statistics[SAMPLE_LAYERS];
    spw_status status = spw_trace_verify(stage_trace, 0, &report);
    spw_verify_clear(&report);
    return status == SPW_OK ? spw_trace_statistics(stage_trace, NULL, statistics) : status;
}

static spw_status stage_slice(void) {
    return spw_trace_slice(path, other,
                           &(spw_slice_settings){.step = (const size_t[]){1}, .steps = 1, .layer_end = 2});
}

static spw_status stage_generate(void) {
    spw_generate_settings settings = {
        .experts = 16, .top_k = 2, .layers = 1, .steps = 1, .ranks = 2, .tokens_per_rank = 8};
    spw_status status = spw_distribution_parse("dirichlet:groups=4,kept=2", &settings.distribution);
    return status == SPW_OK ? spw_generate_trace(&settings, other) : status;
}

static spw_status stage_compose(void) {
    uint16_t ids[4];
    return spw_compose_tokens((const uint32_t[]){2, 1, 1}, 3, 2, 2, 1, ids);
}

static void test_allocations(void) {
    spw_status (*const stages[])(void) = {stage_write, stage_read,     stage_verify,
                                          stage_slice, stage_generate, stage_compose};
    CHECK_OK(stage_write());
    CHECK_OK(spw_trace_open(path, &stage_trace));
    for (size_t i = 0; i < sizeof stages / sizeof *stages && stage_trace != NULL; i++) {
        int failing = 0;
        spw_status status = SPW_ENOMEM;
        for (; failing < 500 && status == SPW_ENOMEM; failing++) {
            spw_alloc_fail_after(failing);
            status = stages[i]();
        }
        spw_alloc_fail_after(-1);
        CHECK_STATUS(status, SPW_OK);
        CHECK(failing > 2 && failing < 500);
        CHECK_OK(stages[i]());
    }
    spw_trace_close(stage_trace);
}

static size_t files_in_folder(void) {
    size_t count = 0;
    DIR *stream = opendir(folder);
    for (struct dirent *entry = stream != NULL ? readdir(stream) : NULL; entry != NULL;
         entry = readdir(stream)) {
        count += strncmp(entry->d_name, "killed.h5", 9) == 0 && strlen(entry->d_name) == 9;
    }
    if (stream != NULL) (void)closedir(stream);
    return count;
}

/* A child writes and is killed at some moment: the target is either absent or whole. */
static void test_killed(void) {
    char target[512];
    size_t whole = 0, absent = 0;
    (void)snprintf(target, sizeof target, "%s/killed.h5", folder);
    for (unsigned moment = 0; moment < 12; moment++) {
        (void)unlink(target);
        int state = 0;
        pid_t child = fork();
        if (child == 0) {
            if (moment == 0) (void)raise(SIGSTOP); /* killed before it begins, however busy the machine is */
            spw_generate_settings settings = {
                .experts = 64, .top_k = 4, .layers = 8, .steps = 40, .ranks = 4, .tokens_per_rank = 512};
            _exit(spw_distribution_parse("uniform", &settings.distribution) == SPW_OK &&
                          spw_generate_trace(&settings, target) == SPW_OK
                      ? 0
                      : 1);
        }
        if (moment == 0) CHECK(waitpid(child, &state, WUNTRACED) == child && WIFSTOPPED(state));
        (void)usleep(moment * 8000);
        (void)kill(child, moment < 11 ? SIGKILL : SIGCONT); /* the last one may end */
        CHECK(waitpid(child, &state, 0) == child);
        spw_trace *trace = NULL;
        if (files_in_folder() == 0) {
            absent++;
            continue;
        }
        CHECK_OK(spw_trace_open(target, &trace));
        spw_trace_close(trace);
        whole++;
    }
    CHECK(absent > 0 && whole > 0);
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    if (argc < 2) return check_done();
    (void)snprintf(folder, sizeof folder, "%s/test_trace_files.XXXXXX", argv[1]);
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/a.h5", folder);
    (void)snprintf(other, sizeof other, "%s/b.h5", folder);
    test_killed(); /* first: forks before any thread exists */
    test_by_hand();
    test_statistics();
    test_round_trips();
    test_touched(1);
    test_touched(5);
    test_numbered();
    test_slice();
    test_writer_refuses();
    test_allocations();
    char command[600];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
    return check_done();
}
