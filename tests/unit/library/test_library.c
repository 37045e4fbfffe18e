/* test_library SCRATCH TRACE.h5 JOB.yaml: the library as a program meets it, through its public header alone. */
#include "sim/library/spillway.h"
#include "tests/unit/check.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS = 6, TOP_K = 2, EXPERTS = 4, LAYERS = 3, THREADS = 4 };

static const char *trace_path, *job_path;

static void asks(void) {
    const char *arguments[] = {trace_path, "--job", job_path, "--scheme", "gmm", "--scheme", "ring"};
    spw_answer *answer = NULL;
    size_t rows = 0;
    double peak = 0;
    CHECK(spw_ask("replay", 7, arguments, &answer) == SPW_CODE_OK);
    CHECK(spw_answer_size(answer, "rows", &rows) == SPW_CODE_OK && rows == 2);
    CHECK(spw_answer_real(answer, "rows.1.memory.peak_bytes", &peak) == SPW_CODE_OK && peak > 1e8);
    CHECK(spw_answer_real(answer, "rows.2.memory.peak_bytes", &peak) == SPW_CODE_ARGUMENT);
    CHECK(spw_answer_real(answer, "rows.0.scheme", &peak) == SPW_CODE_ARGUMENT);
    CHECK(strcmp(spw_answer_notes(answer), "") == 0);
    spw_answer_destroy(answer);
    CHECK(spw_ask("model", 1, (const char *[]){"glm-4.5"}, &answer) == SPW_CODE_OK);
    CHECK(spw_answer_real(answer, "parameters_total", &peak) == SPW_CODE_OK && fabs(peak / 355e9 - 1) < 0.01);
    spw_answer_destroy(answer);
    const char *check[] = {"glm-4.5", "--check", "400B"}; /* a check that fails has an answer */
    CHECK(spw_ask("model", 3, check, &answer) == SPW_CODE_MISMATCH && answer != NULL);
    CHECK(strstr(spw_last_error(), "--check") != NULL);
    spw_answer_destroy(answer);
    const char *explain[] = {"--job", job_path, "--scheme", "gmm"};
    CHECK(spw_ask("explain", 4, explain, &answer) == SPW_CODE_OK);
    CHECK(spw_answer_real(answer, "0.bytes", &peak) == SPW_CODE_OK && peak > 0);
    spw_answer_destroy(answer);
    CHECK(spw_ask("plan", 4, explain, &answer) == SPW_CODE_OK);
    CHECK(spw_answer_size(answer, "plan.front", &rows) == SPW_CODE_OK);
    spw_answer_destroy(answer);
    const char *search[] = {"--job", job_path, "--scheme", "gmm", "--search"};
    CHECK(spw_ask("plan", 5, search, &answer) == SPW_CODE_OK && strlen(spw_answer_json(answer)) > 100);
    spw_answer_destroy(answer);
    spw_answer_destroy(NULL);
}

/* What would end the program, or make it print, is an error here. */
static void refuses(void) {
    static const struct {
        const char *command, *words[3], *says;
    } wrong[] = {
        {"dance", {NULL}, "'dance' is no question; there are replay, plan"},
        {"replay", {NULL}, "which trace?"},
        {"replay", {"--no-such"}, "'--no-such' is no option"},
        {"replay", {"--he"}, "'--he' is no option"},
        {"replay", {"--help"}, "'--help' is no option"},
        {"replay", {"-x"}, "'-x' is no option"},
        {"replay", {"x.h5", "--job"}, "--job needs a value"},
        {"replay", {"x.h5", "y.h5"}, "'y.h5' is a second"},
        {"replay", {"x.h5", "--each-step=1"}, "--each-step takes no value"},
        {"replay", {"x.h5", "--o", "y"}, "the beginning of more than one option"},
        {"replay", {"x.h5", "--format", "csv"}, "leave --format out"},
        {"model", {"no-such-model"}, "no-such-model"},
        {"trace info", {"no-such.h5"}, "no-such.h5"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t count = 0;
        spw_answer *answer = NULL;
        while (count < 3 && wrong[i].words[count] != NULL) count++;
        const spw_code code = spw_ask(wrong[i].command, count, wrong[i].words, &answer);
        CHECK(code != SPW_CODE_OK && code != SPW_CODE_MISMATCH && answer == NULL);
        if (strstr(spw_last_error(), wrong[i].says) == NULL) printf("%s\n", spw_last_error());
        CHECK(strstr(spw_last_error(), wrong[i].says) != NULL);
    }
    const char *nothing[] = {NULL};
    spw_answer *answer = NULL;
    CHECK(spw_ask("replay", 1, nothing, &answer) == SPW_CODE_ARGUMENT && answer == NULL);
    /* argp comes back from an error here: more than a list holds, and less than a value */
    enum { MANY = 600 };
    static const char *many[2 * MANY];
    static const char *const options[][2] = {
        {"--set", "batch.micro_batches=4"}, {"--scheme", "gmm"}, {"--over", "pipeline=1"}};
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        for (size_t i = 0; i < 2 * MANY; i++) many[i] = options[o][i % 2];
        CHECK(spw_ask("plan", 2 * MANY, many, &answer) == SPW_CODE_ARGUMENT && answer == NULL);
        CHECK(strstr(spw_last_error(), "more than") != NULL);
    }
    CHECK(spw_ask("plan", 2, (const char *[]){"--set", "batch.micro_batches="}, &answer) ==
          SPW_CODE_ARGUMENT);
    CHECK(spw_ask("plan", 1, (const char *[]){"--model="}, &answer) == SPW_CODE_ARGUMENT);
}

static void writes_and_reads(const char *scratch) {
    static const uint16_t expert[TOKENS * TOP_K] = {0, 1, 2, 3, 1, 0, 3, SPW_NO_EXPERT, 2, 1, 0, 3};
    static const uint16_t rank[TOKENS] = {0, 0, 0, 1, 1, 1};
    uint16_t weight[TOKENS * TOP_K], read[TOKENS * TOP_K], read_weight[TOKENS * TOP_K], read_rank[TOKENS];
    char path[512];
    struct stat file;
    struct sigaction action;
    (void)snprintf(path, sizeof path, "%s/library_trace.h5", scratch);
    (void)unlink(path);
    for (size_t i = 0; i < TOKENS * TOP_K; i++) weight[i] = i % TOP_K == 0 ? 0x3a00 : 0x3400; /* 0.75, 0.25 */
    const spw_writer_settings settings = {.layers = LAYERS,
                                          .experts = EXPERTS,
                                          .top_k = TOP_K,
                                          .ranks = 2,
                                          .with_weights = 1,
                                          .by_falling_weight = 1,
                                          .model = "tiny",
                                          .source = "test",
                                          .license = "CC0-1.0"};
    spw_writer *writer = NULL;
    CHECK(spw_writer_create(path, &settings, &writer) == SPW_CODE_OK);
    CHECK(stat(path, &file) != 0); /* not before it is whole */
    for (int64_t step = 10; step < 12; step++) {
        CHECK(spw_writer_begin_step(writer, step, TOKENS, rank) == SPW_CODE_OK);
        for (size_t l = 0; l < LAYERS; l++)
            CHECK(spw_writer_put_layer(writer, l, expert, weight) == SPW_CODE_OK);
        CHECK(spw_writer_put_layer(writer, LAYERS, expert, weight) == SPW_CODE_ARGUMENT);
        CHECK(spw_writer_end_step(writer) == SPW_CODE_OK);
    }
    CHECK(spw_writer_finish(writer) == SPW_CODE_OK);
    CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGXFSZ, NULL, &action) == 0 && action.sa_handler == SIG_DFL);

    spw_reader *reader = NULL;
    spw_reader_shape shape;
    int64_t step_id[2];
    uint64_t step_tokens[2];
    int32_t layer_id[LAYERS];
    uint32_t counts[EXPERTS];
    CHECK(spw_reader_open(path, &reader) == SPW_CODE_OK);
    CHECK(spw_reader_get_shape(reader, &shape) == SPW_CODE_OK);
    CHECK(shape.steps == 2 && shape.layers == LAYERS && shape.experts == EXPERTS && shape.top_k == TOP_K);
    CHECK(shape.ranks == 2 && shape.tokens == 2 * TOKENS && shape.has_weights);
    CHECK(spw_reader_get_ids(reader, step_id, step_tokens, layer_id) == SPW_CODE_OK);
    CHECK(step_id[1] == 11 && step_tokens[0] == TOKENS && layer_id[2] == 2);
    CHECK(spw_reader_choices(reader, 1, 2, TOKENS * TOP_K, read, read_weight) == SPW_CODE_OK);
    CHECK(memcmp(read, expert, sizeof read) == 0 && memcmp(read_weight, weight, sizeof weight) == 0);
    CHECK(spw_reader_choices(reader, 1, 2, TOKENS * TOP_K - 1, read, NULL) == SPW_CODE_ARGUMENT);
    CHECK(spw_reader_choices(reader, 2, 0, TOKENS * TOP_K, read, NULL) == SPW_CODE_ARGUMENT);
    for (size_t late = 0; late < 2; late++) { /* one behind the last step, and the last layer */
        CHECK(spw_reader_counts(reader, late ? 2 : 0, late ? 0 : LAYERS, counts) == SPW_CODE_ARGUMENT);
        CHECK(strstr(spw_last_error(), "2 steps and 3 layers, counted from 0") != NULL);
        CHECK(spw_reader_choices(reader, late ? 2 : 1, late ? 0 : LAYERS, TOKENS * TOP_K, read, NULL) ==
              SPW_CODE_ARGUMENT);
        CHECK(strstr(spw_last_error(), "2 steps and 3 layers, counted from 0") != NULL);
    }
    CHECK(spw_reader_counts(reader, 0, 0, counts) == SPW_CODE_OK);
    CHECK(counts[0] == 3 && counts[1] == 3 && counts[2] == 2 && counts[3] == 3);
    CHECK(spw_reader_source_ranks(reader, 0, TOKENS, read_rank) == SPW_CODE_OK);
    CHECK(memcmp(read_rank, rank, sizeof rank) == 0);
    spw_reader_close(reader);
    CHECK(spw_writer_create(path, &(spw_writer_settings){.layers = 0}, &writer) == SPW_CODE_ARGUMENT);
}

/* 2 experts, 3 rows, pencil and paper. */
static void computes(void) {
    const spw_product_shape shape = {.experts = 2, .rows = 3, .in = 2, .out = 1};
    const float x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, -1, 10, 20};
    const size_t offset[] = {0, 1, 3};
    float y[3], scale[3];
    CHECK(spw_compute_product(SPW_PRODUCT_FORWARD, &shape, x, w, offset, y, scale) == SPW_CODE_OK);
    CHECK(y[0] == -1 && y[1] == 110 && y[2] == 170 && scale[0] == 3);
    const size_t wrong[] = {0, 2, 1};
    CHECK(spw_compute_product(SPW_PRODUCT_FORWARD, &shape, x, w, wrong, y, scale) == SPW_CODE_ARGUMENT);
    CHECK(spw_compute_product((spw_product)3, &shape, x, w, offset, y, scale) == SPW_CODE_ARGUMENT);
    const int32_t expert[] = {1, 0, 1, -1};
    const float token[] = {7, 8}, halves[] = {0.5F, 2, 0.25F, 0};
    float rows[4], back[2];
    CHECK(spw_compute_permute(2, 2, 2, expert, 1, token, rows) == SPW_CODE_OK);
    CHECK(rows[0] == 7 && rows[1] == 7 && rows[2] == 8);
    CHECK(spw_compute_unpermute(2, 2, 2, expert, 1, rows, halves, back, NULL) == SPW_CODE_OK);
    CHECK(back[0] == 17.5F && back[1] == 2);
    float limits[] = {-1, 110, 170.0001F};
    spw_comparison c;
    CHECK(spw_compare_float(3, 2, limits, y, scale, &c) == SPW_CODE_MISMATCH);
    CHECK(c.failed == 1 && c.worst_at == 2 && c.worst > 1 && c.want == 170 && c.high < 170.0001 &&
          c.low < 170);
    CHECK(spw_compare_float(3, 2, y, y, scale, &c) == SPW_CODE_OK && c.worst == 0);
    limits[0] = NAN;
    CHECK(spw_compare_float(1, 2, limits, y, scale, &c) == SPW_CODE_MISMATCH && isinf(c.worst));
    const uint16_t one[] = {0x3f80, 0x3f81};
    const float ones[] = {1, 1}, magnitudes[] = {1, 1};
    CHECK(spw_compare_bf16(1, 8, one, ones, magnitudes, &c) == SPW_CODE_OK && c.worst <= 1);
    CHECK(spw_compare_bf16(2, 8, one, ones, magnitudes, &c) == SPW_CODE_MISMATCH && c.worst_at == 1);
}

static bool computes_alike(void) {
    const float gate[] = {0, 1, -1}, up[] = {5, 0, 0};
    float act[3];
    return spw_compute_swiglu(3, gate, up, act, NULL) == SPW_CODE_OK && act[0] == 0 && act[1] == 0;
}

typedef struct worker {
    size_t id, failures;
} worker;

/* Every thread has its own error, and its own answers. */
static void *work(void *argument) {
    worker *own = argument;
    size_t *failures = &own->failures;
    char name[64];
    for (int turn = 0; turn < 3; turn++) {
        spw_answer *answer = NULL;
        spw_reader *reader = NULL;
        (void)snprintf(name, sizeof name, "no-model-%zu-%d", own->id, turn);
        *failures += spw_ask("model", 1, (const char *[]){name}, &answer) == SPW_CODE_OK;
        *failures += strstr(spw_last_error(), name) == NULL;
        *failures += spw_ask("model", 1, (const char *[]){"olmoe-1b-7b"}, &answer) != SPW_CODE_OK;
        *failures += strstr(spw_answer_json(answer), "OLMoE") == NULL;
        spw_answer_destroy(answer);
        *failures += spw_reader_open(trace_path, &reader) != SPW_CODE_OK;
        spw_reader_close(reader);
        *failures += computes_alike() ? 0 : 1;
    }
    return NULL;
}

static void stands_threads(void) {
    pthread_t thread[THREADS];
    worker own[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        own[i] = (worker){.id = i};
        CHECK(pthread_create(&thread[i], NULL, work, &own[i]) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
        CHECK(own[i].failures == 0);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    trace_path = argv[2], job_path = argv[3];
    asks();
    refuses();
    writes_and_reads(argv[1]);
    computes();
    stands_threads();
    return check_done();
}
