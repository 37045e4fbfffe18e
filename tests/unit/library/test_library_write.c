/* test_library_write SCRATCH TRACE.h5 JOB.yaml: the library's writer. What it takes, a reader takes; what is refused or dropped leaves
 * no trace of itself; and a full disk is an error, never the end of the process, also where HDF5 tidies up at exit. */
#include "sim/library/spillway.h"
#include "tests/unit/check.h"
#include "traces/disk/hdf5_disk.h"

#include <errno.h>
#include <hdf5.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAYERS = 2, EXPERTS = 300, TOP_K = 3, RANKS = 4, MOST_TOKENS = 20000 };

static const char *trace_path, *job_path;
static uint16_t expert[LAYERS][MOST_TOKENS * TOP_K], weight[MOST_TOKENS * TOP_K], rank[MOST_TOKENS];

/* The content of a step, which its id tells: no expert twice, weights that fall. */
static void make(int64_t id, size_t tokens) {
    for (size_t t = 0; t < tokens; t++) {
        rank[t] = (uint16_t)((t + (size_t)id) % RANKS);
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t k = 0; k < TOP_K; k++)
                expert[l][t * TOP_K + k] = (uint16_t)((t * 7 + (size_t)id * 31 + l * 11 + k * 101) % EXPERTS);
        for (size_t k = 0; k < TOP_K; k++)
            weight[t * TOP_K + k] = (uint16_t)(0x3800 - 0x100 * k - (t + (size_t)id) % 7);
    }
}

static spw_writer *begin_file(const char *path) {
    spw_writer *writer = NULL;
    const spw_writer_settings settings = {.layers = LAYERS,
                                          .experts = EXPERTS,
                                          .top_k = TOP_K,
                                          .ranks = RANKS,
                                          .with_weights = 1,
                                          .by_falling_weight = 1};
    CHECK(spw_writer_create(path, &settings, &writer) == SPW_CODE_OK);
    return writer;
}

/* Puts `layers` of a step; ends it when they are all. */
static spw_code put(spw_writer *writer, int64_t id, size_t tokens, size_t layers) {
    make(id, tokens);
    spw_code code = spw_writer_begin_step(writer, id, tokens, rank);
    for (size_t l = 0; l < layers && code == SPW_CODE_OK; l++)
        code = spw_writer_put_layer(writer, l, expert[l], weight);
    return code == SPW_CODE_OK && layers == LAYERS ? spw_writer_end_step(writer) : code;
}

/* The file holds these steps, and all of what they hold. */
static void holds(const char *path, size_t steps, const int64_t *id, const size_t *tokens) {
    static uint16_t got[MOST_TOKENS * TOP_K], got_weight[MOST_TOKENS * TOP_K], got_rank[MOST_TOKENS];
    spw_reader *reader = NULL;
    spw_reader_shape shape = {.steps = 0};
    int64_t names[16] = {0};
    uint64_t sizes[16] = {0};
    CHECK(spw_reader_open(path, &reader) == SPW_CODE_OK);
    if (reader == NULL) {
        printf("%s\n", spw_last_error());
        return;
    }
    CHECK(spw_reader_get_shape(reader, &shape) == SPW_CODE_OK && shape.steps == steps);
    if (shape.steps == steps) CHECK(spw_reader_get_ids(reader, names, sizes, NULL) == SPW_CODE_OK);
    for (size_t s = 0; s < steps && shape.steps == steps; s++) {
        CHECK(names[s] == id[s] && sizes[s] == tokens[s]);
        make(id[s], tokens[s]);
        for (size_t l = 0; l < LAYERS; l++) {
            uint32_t counts[EXPERTS];
            const size_t choices = tokens[s] * TOP_K, bytes = choices * sizeof *got;
            CHECK(spw_reader_choices(reader, s, l, choices, got, got_weight) == SPW_CODE_OK);
            CHECK(memcmp(got, expert[l], bytes) == 0 && memcmp(got_weight, weight, bytes) == 0);
            CHECK(spw_reader_counts(reader, s, l, counts) ==
                  SPW_CODE_OK); /* which are those of the choices */
        }
        CHECK(spw_reader_source_ranks(reader, s, tokens[s], got_rank) == SPW_CODE_OK);
        CHECK(memcmp(got_rank, rank, tokens[s] * sizeof *rank) == 0);
    }
    spw_reader_close(reader);
    spw_answer *answer = NULL;
    CHECK(spw_ask("trace verify", 1, (const char *[]){path}, &answer) != SPW_CODE_FORMAT);
    spw_answer_destroy(answer);
}

/* --- Steps that are dropped --- */

/* Of every size against chunks of 8192 rows: within one, from one into the next, over several; whatever of it is written. */
static void drops_steps(const char *scratch) {
    static const size_t sizes[] = {1, 500, 8191, 8192, 9000, 20000};
    char path[512];
    (void)snprintf(path, sizeof path, "%s/write_dropped.h5", scratch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t layers = 0; layers <= LAYERS; layers++) {
            const int64_t id[] = {1, 2, 5};
            const size_t before = i % 2 == 0 ? 700 : 8192, tokens[] = {before, 9000, 100};
            spw_writer *writer = begin_file(path);
            CHECK(spw_writer_drop_step(writer) == SPW_CODE_OK); /* there is none */
            CHECK(put(writer, 1, before, LAYERS) == SPW_CODE_OK);
            for (int turn = 0; turn < 2; turn++) {
                make(2, sizes[i]);
                CHECK(spw_writer_begin_step(writer, 9, sizes[i], rank) == SPW_CODE_OK);
                for (size_t l = 0; l < layers; l++)
                    CHECK(spw_writer_put_layer(writer, l, expert[l], weight) == SPW_CODE_OK);
                CHECK(spw_writer_drop_step(writer) == SPW_CODE_OK);
            }
            CHECK(put(writer, 2, 9000, LAYERS) == SPW_CODE_OK);
            CHECK(put(writer, 3, sizes[i], layers < LAYERS ? layers : 1) == SPW_CODE_OK);
            CHECK(spw_writer_finish(NULL) == SPW_CODE_ARGUMENT &&
                  spw_writer_drop_step(writer) == SPW_CODE_OK);
            CHECK(put(writer, 5, 100, LAYERS) == SPW_CODE_OK);
            CHECK(put(writer, 6, sizes[i], 1) == SPW_CODE_OK); /* the last one, after which nothing comes */
            CHECK(spw_writer_drop_step(writer) == SPW_CODE_OK);
            CHECK(spw_writer_finish(writer) == SPW_CODE_OK);
            holds(path, 3, id, tokens);
        }
    }
}

/* --- What is refused --- */

static void refuses_steps(const char *scratch) {
    static const uint64_t none_tokens[] = {(uint64_t)1 << 32, (uint64_t)1 << 62, UINT64_MAX};
    char path[512];
    struct stat file;
    (void)snprintf(path, sizeof path, "%s/write_refused.h5", scratch);
    (void)unlink(path);
    spw_writer *writer = begin_file(path);
    for (size_t i = 0; i < 3; i++)
        CHECK(spw_writer_begin_step(writer, 0, none_tokens[i], rank) == SPW_CODE_ARGUMENT);
    make(4, 10);
    rank[9] = RANKS;
    CHECK(spw_writer_begin_step(writer, 4, 10, rank) == SPW_CODE_ARGUMENT);
    make(4, 10);
    CHECK(spw_writer_begin_step(writer, 4, 10, rank) == SPW_CODE_OK);
    expert[0][5] = EXPERTS;
    CHECK(spw_writer_put_layer(writer, 0, expert[0], weight) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_put_layer(writer, 1, expert[1], weight) == SPW_CODE_OK);
    CHECK(spw_writer_end_step(writer) == SPW_CODE_ARGUMENT); /* layer 0 was not put */
    make(4, 10);
    expert[0][3] = expert[0][4]; /* twice in token 1 */
    CHECK(spw_writer_put_layer(writer, 0, expert[0], weight) == SPW_CODE_ARGUMENT);
    CHECK(strstr(spw_last_error(), "token 1: an expert twice") != NULL);
    make(4, 10);
    static const uint16_t bad_weight[] = {0x7c00, 0x7e00, 0xfc00, 0xbc00,
                                          0x3b00}; /* inf, NaN, -inf, -1, one that rises */
    for (size_t i = 0; i < sizeof bad_weight / sizeof *bad_weight; i++) {
        make(4, 10);
        weight[4] = bad_weight[i];
        CHECK(spw_writer_put_layer(writer, 0, expert[0], weight) == SPW_CODE_ARGUMENT);
        CHECK(strstr(spw_last_error(), "token 1: a weight") != NULL);
    }
    make(4, 10);
    CHECK(spw_writer_put_layer(writer, 0, expert[0], NULL) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_put_layer(writer, 0, NULL, weight) == SPW_CODE_ARGUMENT);
    expert[0][4] = SPW_NO_EXPERT, expert[0][5] = SPW_NO_EXPERT,
    weight[4] = 0x7e00; /* twice nobody, of no weight */
    CHECK(spw_writer_put_layer(writer, 0, expert[0], weight) == SPW_CODE_OK);
    CHECK(spw_writer_put_layer(writer, 0, expert[0], weight) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_begin_step(writer, 5, 10, rank) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_drop_step(writer) == SPW_CODE_OK);
    CHECK(put(writer, 4, 10, LAYERS) == SPW_CODE_OK);
    CHECK(put(writer, 4, 10, LAYERS) == SPW_CODE_ARGUMENT && put(writer, 3, 10, LAYERS) == SPW_CODE_ARGUMENT);
    CHECK(put(writer, INT64_MIN, 10, LAYERS) == SPW_CODE_ARGUMENT);
    CHECK(stat(path, &file) != 0);
    CHECK(spw_writer_finish(writer) == SPW_CODE_OK);
    holds(path, 1, (const int64_t[]){4}, (const size_t[]){10});
}

/* A refused layer is a step without it, and what stood at the path stays. */
static void keeps_the_old_file(const char *scratch) {
    char path[512], text[16] = "";
    const uint16_t bad[] = {9, 9, 9};
    (void)snprintf(path, sizeof path, "%s/write_precious.h5", scratch);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("precious", file) >= 0 && fclose(file) == 0);
    spw_writer *writer = NULL;
    CHECK(spw_writer_create(path, &(spw_writer_settings){.layers = 1, .experts = 8, .top_k = 1}, &writer) ==
          SPW_CODE_OK);
    CHECK(spw_writer_begin_step(writer, 0, 3, NULL) == SPW_CODE_OK);
    CHECK(spw_writer_put_layer(writer, 0, bad, NULL) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_put_layer(writer, 0, (const uint16_t[]){0, 1, 2}, bad) ==
          SPW_CODE_ARGUMENT); /* no weights */
    CHECK(spw_writer_end_step(writer) == SPW_CODE_ARGUMENT);
    CHECK(spw_writer_finish(writer) == SPW_CODE_ARGUMENT);
    file = fopen(path, "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "precious") == 0);
    if (file != NULL) (void)fclose(file);
}

static void refuses_settings(const char *scratch) {
    static const int32_t twice[] = {3, 3}, below[] = {3, -1}, far[] = {1 << 20, 1 << 20},
                         good[] = {1 << 20, 7};
    const spw_writer_settings base = {.layers = 2, .experts = 8, .top_k = 2};
    spw_writer_settings bad[10];
    char path[512];
    spw_writer *writer = NULL;
    for (size_t i = 0; i < 10; i++) bad[i] = base;
    bad[0].layer_id = twice, bad[1].layer_id = below, bad[2].layer_id = far;
    bad[3].hidden = (size_t)1 << 50, bad[4].model_layers = SIZE_MAX;
    bad[5].ranks = 65537, bad[6].ranks = 65536, bad[6].experts = 1024; /* 2^26 counts */
    bad[7].top_k = 9, bad[8].experts = 65536, bad[9].layers = 4097;
    (void)snprintf(path, sizeof path, "%s/write_settings.h5", scratch);
    for (size_t i = 0; i < 10; i++) {
        CHECK(spw_writer_create(path, &bad[i], &writer) == SPW_CODE_ARGUMENT && writer == NULL);
    }
    bad[0].layer_id = good;
    CHECK(spw_writer_create(path, &bad[0], &writer) == SPW_CODE_OK);
    spw_writer_abandon(writer);
}

/* --- A full disk --- */

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static bool names(const char *path, spw_code code) {
    const bool told = code == SPW_CODE_IO && strstr(spw_last_error(), path) != NULL &&
                      strstr(spw_last_error(), "File too large") != NULL;
    if (!told) printf("code %d: %s\n", (int)code, spw_last_error());
    return told;
}

/* No file may be longer than `bytes`: the first call that writes more says so and names the file. True when all went well. */
static bool writes_within(const char *path, rlim_t bytes) {
    spw_answer *answer = NULL;
    spw_code code = SPW_CODE_OK;
    bool good = true;
    limit_files(bytes);
    spw_writer *writer = begin_file(path);
    for (int64_t id = 0; id < 3 && code == SPW_CODE_OK; id++) {
        code = put(writer, id, 9000, LAYERS);
        if (code != SPW_CODE_OK) good = names(path, code) && good;
        if (code != SPW_CODE_OK && id == 1) (void)spw_writer_drop_step(writer);
    }
    const spw_code finished = spw_writer_finish(writer);
    good = good && (code == SPW_CODE_OK ? names(path, finished) : finished != SPW_CODE_OK);
    code = spw_ask("trace generate", 11,
                   (const char *[]){path, "--experts", "64", "--top-k", "8", "--layers", "2", "--ranks", "8",
                                    "--tokens-per-rank", "512"},
                   &answer);
    good = names(path, code) && good;
    code = spw_ask("replay", 7,
                   (const char *[]){trace_path, "--job", job_path, "--scheme", "gmm", "--output", path},
                   &answer);
    good = names(path, code) && answer == NULL && good;
    limit_files(RLIM_INFINITY);
    return good;
}

/* In a child that ends by exit(), with HDF5 begun by the program itself, as where h5py was imported first: it then tidies up. */
static void stands_full_disks(const char *scratch) {
    char path[512], out[512];
    (void)snprintf(path, sizeof path, "%s/write_full.h5", scratch);
    (void)snprintf(out, sizeof out, "%s/write_after.h5", scratch);
    (void)unlink(path);
#ifdef SPW_SANITIZED
    const rlim_t least =
        2000; /* libomp, with which clang's is built, makes a file of 1024 bytes in memory whenever a process begins */
#else
    const rlim_t least = 0;
#endif
    for (rlim_t bytes = least; bytes < 20000; bytes = bytes * 3 / 2 + 100) {
        int state = 0;
        (void)fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            (void)signal(SIGXFSZ, SIG_IGN);
            (void)alarm(1800);
            bool good = H5open() >= 0 && writes_within(path, bytes);
            spw_writer *writer = begin_file(out); /* the disk has room again */
            good =
                good && put(writer, 1, 50, LAYERS) == SPW_CODE_OK && spw_writer_finish(writer) == SPW_CODE_OK;
            good = good && access(path, F_OK) != 0 && H5close() >= 0;
#ifdef SPW_SANITIZED
            _exit(good ? 0 : 7); /* the sanitizer would look for leaks */
#else
            exit(good ? 0 : 7);
#endif
        }
        CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0);
        if (state != 0) printf("%llu bytes: state %x\n", (unsigned long long)bytes, (unsigned)state);
    }
}

/* What HDF5 meets below it when the disk is full: its metadata reads as it was written, the rest as nothing. */
static void keeps_metadata(const char *scratch) {
    char path[512], got[8] = "";
    spw_hdf5_disk disk = {.error = 0};
    (void)snprintf(path, sizeof path, "%s/write_driver.h5", scratch);
    const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    CHECK(spw_hdf5_disk_use(list, &disk) == SPW_OK);
    H5FD_t *file = H5FDopen(path, H5F_ACC_RDWR | H5F_ACC_CREAT | H5F_ACC_TRUNC, list, HADDR_UNDEF);
    CHECK(file != NULL && H5FDset_eoa(file, H5FD_MEM_DEFAULT, 4096) >= 0);
    CHECK(H5FDwrite(file, H5FD_MEM_OHDR, H5P_DEFAULT, 0, 8, "abcdefgh") >= 0 && disk.error == 0);
    CHECK(spw_hdf5_disk_check(&disk) == SPW_OK);
    (void)signal(SIGXFSZ, SIG_IGN);
    limit_files(8);
    CHECK(H5FDwrite(file, H5FD_MEM_DRAW, H5P_DEFAULT, 8, 4, "lost") >= 0 && disk.error == EFBIG);
    CHECK(H5FDwrite(file, H5FD_MEM_OHDR, H5P_DEFAULT, 4, 4, "EFGH") >= 0);
    CHECK(H5FDwrite(file, H5FD_MEM_BTREE, H5P_DEFAULT, 6, 4, "1234") >= 0);
    CHECK(H5FDread(file, H5FD_MEM_OHDR, H5P_DEFAULT, 2, 8, got) >= 0 && memcmp(got, "cdEF1234", 8) == 0);
    CHECK(H5FDread(file, H5FD_MEM_DRAW, H5P_DEFAULT, 10, 8, got) >= 0 &&
          memcmp(got, "\0\0\0\0\0\0\0", 8) == 0);
    CHECK(H5FDtruncate(file, H5P_DEFAULT, 1) >= 0 && H5FDclose(file) >= 0);
    limit_files(RLIM_INFINITY);
    (void)signal(SIGXFSZ, SIG_DFL);
    CHECK(spw_hdf5_disk_check(&disk) == SPW_EIO && strstr(spw_last_error(), "File too large") != NULL);
    CHECK(H5Pclose(list) >= 0);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    trace_path = argv[2], job_path = argv[3];
    stands_full_disks(argv[1]); /* before this process has begun HDF5 */
    keeps_metadata(argv[1]);
    refuses_settings(argv[1]);
    refuses_steps(argv[1]);
    keeps_the_old_file(argv[1]);
    drops_steps(argv[1]);
    return check_done();
}
