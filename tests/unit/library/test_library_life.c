/* test_library_life SCRATCH TRACE.h5 JOB.yaml: the library in a process that goes on: the same file twice, forked children,
 * arguments that are missing. */
#include "base/child.h"
#include "sim/library/gate.h"
#include "sim/library/spillway.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 3, CHILD_SECONDS = 60 };

static const char *trace_path, *job_path;

static spw_code ask(const char *command, size_t count, const char *const *words) {
    spw_answer *answer = NULL;
    const spw_code code = spw_ask(command, count, words, &answer);
    if (code != SPW_CODE_OK) printf("%s: %s\n", command, spw_last_error());
    spw_answer_destroy(answer);
    return code;
}

static spw_writer *writer_at(const char *path) {
    spw_writer *writer = NULL;
    const spw_writer_settings settings = {.layers = 1, .experts = 4, .top_k = 1};
    CHECK(spw_writer_create(path, &settings, &writer) == SPW_CODE_OK);
    return writer;
}

static spw_code put_step(spw_writer *writer, int64_t id) {
    static const uint16_t expert[TOKENS] = {0, 1, 3};
    spw_code code = spw_writer_begin_step(writer, id, TOKENS, NULL);
    if (code == SPW_CODE_OK) code = spw_writer_put_layer(writer, 0, expert, NULL);
    return code == SPW_CODE_OK ? spw_writer_end_step(writer) : code;
}

static spw_code write_one(const char *path) {
    spw_writer *writer = NULL;
    const spw_writer_settings settings = {.layers = 1, .experts = 4, .top_k = 1};
    spw_code code = spw_writer_create(path, &settings, &writer);
    if (code != SPW_CODE_OK) return code;
    code = put_step(writer, 0);
    const spw_code finished = spw_writer_finish(writer);
    return code != SPW_CODE_OK ? code : finished;
}

/* --- The same again, as when a notebook's cell runs twice --- */

static void writes_again(const char *scratch) {
    char out[512], part[512], made[512], folder[512], ids[512];
    (void)snprintf(out, sizeof out, "%s/life_out.h5", scratch);
    (void)snprintf(part, sizeof part, "%s/life_part.h5", scratch);
    (void)snprintf(made, sizeof made, "%s/life_made.h5", scratch);
    (void)snprintf(folder, sizeof folder, "%s/life_shards", scratch);
    (void)snprintf(ids, sizeof ids, "%s/life_shards/rank00000_step000000000.h5", scratch);
    (void)mkdir(folder, 0777);
    (void)unlink(ids);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(ask("trace generate", 11,
                  (const char *[]){made, "--experts", "8", "--top-k", "2", "--layers", "1", "--ranks", "2",
                                   "--tokens-per-rank", "16"}) == SPW_CODE_OK);
        CHECK(ask("trace slice", 4, (const char *[]){made, part, "--layers", "0:1"}) == SPW_CODE_OK);
        CHECK(ask("trace info", 1, (const char *[]){part}) == SPW_CODE_OK);
        CHECK(ask("replay", 7,
                  (const char *[]){trace_path, "--job", job_path, "--scheme", "gmm", "--output", out}) ==
              SPW_CODE_OK);
        CHECK(write_one(ids) == SPW_CODE_OK);
        CHECK(ask("trace merge", 2, (const char *[]){folder, out}) == SPW_CODE_OK);
        CHECK(write_one(part) == SPW_CODE_OK); /* which was read above */
    }
    CHECK(ask("trace slice", 4, (const char *[]){made, made, "--layers", "0:1"}) == SPW_CODE_ARGUMENT);
}

/* While a reader has a file open nothing replaces it; its neighbour's close does not matter. */
static void keeps_what_is_open(const char *scratch) {
    char path[512], other[512];
    spw_reader *reader = NULL, *second = NULL;
    spw_writer *writer = NULL;
    const spw_writer_settings settings = {.layers = 1, .experts = 4, .top_k = 1};
    (void)snprintf(path, sizeof path, "%s/life_open.h5", scratch);
    (void)snprintf(other, sizeof other, "%s/life_other.h5", scratch);
    CHECK(write_one(path) == SPW_CODE_OK && write_one(other) == SPW_CODE_OK);
    CHECK(spw_reader_open(path, &reader) == SPW_CODE_OK && spw_reader_open(other, &second) == SPW_CODE_OK);
    CHECK(spw_writer_create(path, &settings, &writer) == SPW_CODE_ARGUMENT && writer == NULL);
    CHECK(strstr(spw_last_error(), "close that reader first") != NULL);
    spw_reader_close(second);
    CHECK(write_one(other) == SPW_CODE_OK);
    CHECK(write_one(path) == SPW_CODE_ARGUMENT);
    spw_reader_close(reader);
    CHECK(write_one(path) == SPW_CODE_OK);
    FILE *text = fopen(other, "w"); /* what no reader can open is nobody's input */
    CHECK(text != NULL && fputs("no trace", text) >= 0 && fclose(text) == 0);
    CHECK(spw_reader_open(other, &reader) == SPW_CODE_FORMAT && reader == NULL);
    CHECK(write_one(other) == SPW_CODE_OK);
}

/* --- Forked children --- */

/* True when the child ends with 0, and in time. */
static bool child_does(bool (*work)(void *context), void *context) {
    int state = 0;
    (void)fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(CHILD_SECONDS);
        _exit(work(context) ? 0 : 1);
    }
    return waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

static bool asks_there(void *nothing) {
    (void)nothing;
    return ask("replay", 5, (const char *[]){trace_path, "--job", job_path, "--scheme", "gmm"}) ==
           SPW_CODE_OK;
}

static bool computes_there(void *nothing) {
    enum { ROWS = 4096 };
    static float gate[ROWS], up[ROWS], act[ROWS], logits[ROWS], score[ROWS], weight[ROWS / 2];
    static int32_t expert[ROWS / 2];
    (void)nothing;
    return spw_compute_swiglu(ROWS, gate, up, act, NULL) == SPW_CODE_OK &&
           spw_compute_router(ROWS / 8, 8, 4, 0, 1, logits, score, expert, weight) == SPW_CODE_OK;
}

static bool reads_there(void *reader) {
    uint32_t counts[64];
    spw_reader *again = NULL;
    bool good = true;
    for (size_t step = 0; step < 2; step++) {
        uint64_t tokens[2];
        static uint16_t expert[1 << 20];
        good = good && spw_reader_get_ids(reader, NULL, tokens, NULL) == SPW_CODE_OK;
        good = good && spw_reader_counts(reader, step, 0, counts) == SPW_CODE_OK;
        for (size_t layer = 0; layer < 4; layer++)
            good = good &&
                   spw_reader_choices(reader, step, layer, sizeof expert / 2, expert, NULL) == SPW_CODE_OK;
    }
    spw_reader_close(reader);
    good = good && spw_reader_open(trace_path, &again) == SPW_CODE_OK;
    spw_reader_close(again);
    return good;
}

static bool leaves_the_writer(void *writer) {
    static const uint16_t expert[TOKENS] = {0, 1, 2};
    const bool good = spw_writer_put_layer(writer, 0, expert, NULL) == SPW_CODE_ARGUMENT &&
                      strstr(spw_last_error(), "forked") != NULL;
    spw_writer_abandon(writer); /* as a destructor does: the parent's file must stay */
    return good;
}

static void stands_forks(const char *scratch) {
    char path[512];
    spw_reader *reader = NULL;
    CHECK(asks_there(NULL) && computes_there(NULL)); /* OpenMP has its threads now */
    CHECK(child_does(asks_there, NULL));
    CHECK(child_does(computes_there, NULL));
    CHECK(spw_reader_open(trace_path, &reader) == SPW_CODE_OK);
    CHECK(child_does(reads_there, reader));
    spw_reader_close(reader);
    (void)snprintf(path, sizeof path, "%s/life_forked.h5", scratch);
    spw_writer *writer = writer_at(path);
    CHECK(put_step(writer, 0) == SPW_CODE_OK);
    CHECK(child_does(leaves_the_writer, writer));
    CHECK(put_step(writer, 1) == SPW_CODE_OK);
    CHECK(spw_writer_finish(writer) == SPW_CODE_OK);
    CHECK(spw_reader_open(path, &reader) == SPW_CODE_OK);
    spw_reader_close(reader);
}

/* A thread that is in a call until it is told to leave: it reads a FIFO. */
static void *waits_inside(void *path) {
    spw_answer *answer = NULL;
    (void)spw_ask("model", 1, (const char *[]){path}, &answer);
    spw_answer_destroy(answer);
    return NULL;
}

static bool is_refused(void *nothing) {
    spw_reader *reader = NULL;
    (void)nothing;
    return spw_reader_open(trace_path, &reader) == SPW_CODE_IO && reader == NULL &&
           strstr(spw_last_error(), "forked while another thread") != NULL;
}

/* fork() waits for the call of another thread; when that lasts, the child is told. */
static void refuses_torn(const char *scratch) {
    char path[512];
    pthread_t thread;
    (void)snprintf(path, sizeof path, "%s/life_fifo.json", scratch);
    (void)unlink(path);
    CHECK(mkfifo(path, 0666) == 0);
    spw_gate_patience_ms = 50;
    CHECK(pthread_create(&thread, NULL, waits_inside, path) == 0);
    FILE *end = fopen(path, "w"); /* returns when the thread has opened its end, inside */
    CHECK(end != NULL);
    CHECK(child_does(is_refused, NULL));
    spw_gate_patience_ms = 10000;
    if (end != NULL) (void)fclose(end);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(child_does(asks_there, NULL));
}

/* --- What ends the work of a call --- */

typedef struct asking {
    char path[512];
    spw_code code;
    char message[1024];
} asking;

static void *asks_a_fifo(void *context) {
    asking *a = context;
    spw_answer *answer = NULL;
    a->code = spw_ask("model", 1, (const char *[]){a->path}, &answer);
    (void)snprintf(a->message, sizeof a->message, "%s", spw_last_error());
    spw_answer_destroy(answer);
    return NULL;
}

/* The child of this process; 0: none. */
static pid_t worker_of(void) {
    char path[64], name[64];
    pid_t found = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        (void)snprintf(path, sizeof path, "/proc/self/task/%.16s/children", task->d_name);
        FILE *list = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (list == NULL) continue;
        if (fscanf(list, "%63s", name) == 1) found = (pid_t)strtol(name, NULL, 10);
        (void)fclose(list);
    }
    if (tasks != NULL) (void)closedir(tasks);
    return found;
}

/* A signal that ends the work of a call is an error of the call. */
static void outlives_its_work(const char *scratch) {
    if (!spw_child_is_apart()) return; /* under a sanitizer */
    static const struct {
        int signal_number;
        spw_code code;
        const char *says;
    } ends[] = {{SIGSEGV, SPW_CODE_MEMORY, "ended by signal 11"},
                {SIGKILL, SPW_CODE_MEMORY, "no output was replaced"},
                {SIGINT, SPW_CODE_IO, "ended by signal 2"}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        pthread_t thread;
        asking a = {.code = SPW_CODE_OK};
        (void)snprintf(a.path, sizeof a.path, "%s/life_fifo_%zu.json", scratch, i);
        (void)unlink(a.path);
        CHECK(mkfifo(a.path, 0666) == 0);
        CHECK(signal(ends[i].signal_number, SIG_DFL) != SIG_ERR ||
              ends[i].signal_number == SIGKILL); /* a shell's background ignores SIGINT */
        CHECK(pthread_create(&thread, NULL, asks_a_fifo, &a) == 0);
        FILE *end = fopen(a.path, "w"); /* returns when the work has opened its end */
        const pid_t worker = worker_of();
        CHECK(end != NULL && worker > 0);
        CHECK(worker > 0 && kill(worker, ends[i].signal_number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(a.code == ends[i].code && strstr(a.message, ends[i].says) != NULL);
        if (a.code != ends[i].code) printf("%d: %s\n", (int)a.code, a.message);
        if (end != NULL) (void)fclose(end);
    }
    CHECK(asks_there(NULL));
}

/* --- Missing arguments --- */

static void needs_arguments(void) {
    spw_answer *answer = NULL;
    spw_reader *reader = NULL;
    spw_writer *writer = NULL;
    spw_case *one = NULL;
    spw_case_facts facts;
    spw_answer *none = NULL;
    spw_comparison c;
    size_t size = 0, offset[2] = {0, 1};
    double real = 0;
    const float f[4] = {0};
    float g[4] = {0};
    const uint16_t b[4] = {0};
    int32_t e[4] = {0};
    const spw_product_shape shape = {.experts = 1, .rows = 1, .in = 1, .out = 1};
    const spw_writer_settings settings = {.layers = 1, .experts = 4, .top_k = 1};
    CHECK(ask("model", 1, (const char *[]){"olmoe-1b-7b"}) == SPW_CODE_OK);
    CHECK(spw_ask("model", 1, (const char *[]){"olmoe-1b-7b"}, &answer) == SPW_CODE_OK);
    CHECK(spw_reader_open(trace_path, &reader) == SPW_CODE_OK);
    CHECK(spw_case_create("swiglu", "float", NULL, 0, &one) == SPW_CODE_OK);
    const spw_code codes[] = {
        spw_ask(NULL, 0, NULL, &none),
        spw_ask("model", 1, NULL, &none),
        spw_ask("model", 0, NULL, NULL),
        spw_answer_real(NULL, "a", &real),
        spw_answer_size(NULL, "a", &size),
        spw_reader_open(NULL, &(spw_reader *){NULL}),
        spw_reader_open(trace_path, NULL),
        spw_reader_get_shape(NULL, &(spw_reader_shape){.steps = 0}),
        spw_reader_get_shape(reader, NULL),
        spw_reader_get_ids(NULL, NULL, NULL, NULL),
        spw_reader_counts(NULL, 0, 0, &(uint32_t){0}),
        spw_reader_counts(reader, 0, 0, NULL),
        spw_reader_choices(NULL, 0, 0, 1, &(uint16_t){0}, NULL),
        spw_reader_choices(reader, 0, 0, 1, NULL, NULL),
        spw_reader_source_ranks(NULL, 0, 1, &(uint16_t){0}),
        spw_reader_source_ranks(reader, 0, 1, NULL),
        spw_writer_create(NULL, &settings, &writer),
        spw_writer_create("x.h5", NULL, &writer),
        spw_writer_create("x.h5", &settings, NULL),
        spw_writer_begin_step(NULL, 0, 1, NULL),
        spw_writer_put_layer(NULL, 0, b, NULL),
        spw_writer_end_step(NULL),
        spw_writer_finish(NULL),
        spw_compute_product(SPW_PRODUCT_FORWARD, NULL, f, f, offset, g, NULL),
        spw_compute_product(SPW_PRODUCT_FORWARD, &shape, NULL, f, offset, g, NULL),
        spw_compute_product(SPW_PRODUCT_FORWARD, &shape, f, NULL, offset, g, NULL),
        spw_compute_product(SPW_PRODUCT_FORWARD, &shape, f, f, NULL, g, NULL),
        spw_compute_product(SPW_PRODUCT_FORWARD, &shape, f, f, offset, NULL, NULL),
        spw_compute_swiglu(1, NULL, f, g, NULL),
        spw_compute_swiglu(1, f, NULL, g, NULL),
        spw_compute_swiglu(1, f, f, NULL, NULL),
        spw_compute_swiglu_gradient(1, NULL, f, f, g, g, NULL),
        spw_compute_swiglu_gradient(1, f, NULL, f, g, g, NULL),
        spw_compute_swiglu_gradient(1, f, f, NULL, g, g, NULL),
        spw_compute_swiglu_gradient(1, f, f, f, NULL, g, NULL),
        spw_compute_swiglu_gradient(1, f, f, f, g, NULL, NULL),
        spw_compute_router(1, 2, 1, 0, 0, NULL, g, e, g),
        spw_compute_router(1, 2, 1, 0, 0, f, NULL, e, g),
        spw_compute_router(1, 2, 1, 0, 0, f, g, NULL, g),
        spw_compute_router(1, 2, 1, 0, 0, f, g, e, NULL),
        spw_compute_order(1, 1, 1, NULL, offset, e, e),
        spw_compute_order(1, 1, 1, e, NULL, e, e),
        spw_compute_order(1, 1, 1, e, offset, NULL, e),
        spw_compute_order(1, 1, 1, e, offset, e, NULL),
        spw_compute_permute(1, 1, 1, NULL, 1, f, g),
        spw_compute_permute(1, 1, 1, e, 1, NULL, g),
        spw_compute_permute(1, 1, 1, e, 1, f, NULL),
        spw_compute_unpermute(1, 1, 1, NULL, 1, f, f, g, NULL),
        spw_compute_unpermute(1, 1, 1, e, 1, NULL, f, g, NULL),
        spw_compute_unpermute(1, 1, 1, e, 1, f, f, NULL, NULL),
        spw_compare_bf16(1, 1, NULL, f, f, &c),
        spw_compare_bf16(1, 1, b, NULL, f, &c),
        spw_compare_bf16(1, 1, b, f, NULL, &c),
        spw_compare_bf16(1, 1, b, f, f, NULL),
        spw_compare_float(1, 1, NULL, f, f, &c),
        spw_compare_float(1, 1, f, NULL, f, &c),
        spw_compare_float(1, 1, f, f, NULL, &c),
        spw_compare_float(1, 1, f, f, f, NULL),
        spw_case_count(NULL, NULL, &size),
        spw_case_count("swiglu", NULL, NULL),
        spw_case_create(NULL, "float", NULL, 0, &(spw_case *){NULL}),
        spw_case_create("swiglu", NULL, NULL, 0, &(spw_case *){NULL}),
        spw_case_create("swiglu", "float", NULL, 0, NULL),
        spw_case_judge(NULL, &c),
        spw_case_judge(one, NULL),
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i] != SPW_CODE_ARGUMENT) printf("call %zu: %d\n", i, (int)codes[i]);
        CHECK(codes[i] == SPW_CODE_ARGUMENT);
    }
    CHECK(none == NULL && writer == NULL);
    CHECK(spw_answer_real(answer, NULL, &real) == SPW_CODE_ARGUMENT);
    CHECK(spw_answer_real(answer, "parameters_total", NULL) == SPW_CODE_ARGUMENT);
    CHECK(strstr(spw_last_error(), "spw_answer_real: out is NULL") != NULL);
    CHECK(spw_answer_size(answer, NULL, &size) == SPW_CODE_ARGUMENT);
    CHECK(spw_answer_size(answer, "", NULL) == SPW_CODE_ARGUMENT);
    CHECK(strcmp(spw_answer_json(NULL), "") == 0 && strcmp(spw_answer_notes(NULL), "") == 0);
    spw_case_get_facts(NULL, &facts);
    CHECK(facts.call == NULL);
    spw_case_get_facts(one, NULL);
    CHECK(spw_compute_swiglu(0, NULL, NULL, NULL, NULL) == SPW_CODE_OK); /* no elements, no arrays */
    spw_answer_destroy(answer);
    spw_case_destroy(one);
    spw_case_destroy(NULL);
    spw_reader_close(reader);
    spw_writer_abandon(NULL);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    trace_path = argv[2], job_path = argv[3];
    writes_again(argv[1]);
    keeps_what_is_open(argv[1]);
    needs_arguments();
    stands_forks(argv[1]);
    refuses_torn(argv[1]);
    outlives_its_work(argv[1]);
    return check_done();
}
