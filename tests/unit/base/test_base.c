/* Status, checked memory, and output that is never half written. argv[1]: scratch directory. */
#include "base/child.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/supervise.h"
#include "base/text.h"
#include "base/walk.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fwrite(text, 1, strlen(text), file) == strlen(text));
    CHECK(fclose(file) == 0);
}

static void check_content(const char *path, const char *want) {
    char *text = NULL;
    size_t length = 0;
    CHECK_OK(spw_file_read(path, 1 << 20, &text, &length));
    CHECK(text != NULL && length == strlen(want) && strcmp(text, want) == 0);
    spw_free(text);
    spw_file_forget_reads();
}

static void test_status(void) {
    CHECK(strcmp(spw_status_name(SPW_EFORMAT), "SPW_EFORMAT") == 0);
    CHECK(spw_status_exit(SPW_OK) == 0 && spw_status_exit(SPW_EMISMATCH) == 1);
    CHECK(spw_status_exit(SPW_ECONFIG) == 2 && spw_status_exit(SPW_EIO) == 3);
    CHECK(spw_status_exit((spw_status)99) == 3);
    CHECK(spw_fail(SPW_EARG, "top_k %d", 3) == SPW_EARG && strcmp(spw_last_error(), "top_k 3") == 0);
    CHECK(spw_fail_within(SPW_EARG, "line %d", 7) == SPW_EARG);
    CHECK(strcmp(spw_last_error(), "line 7: top_k 3") == 0);
}

static void test_plain_text(void) {
    char out[32];
    CHECK(spw_text_has_gap("1,,2") && spw_text_has_gap(",1") && spw_text_has_gap("1,") &&
          spw_text_has_gap(","));
    CHECK(!spw_text_has_gap("") && !spw_text_has_gap("1") && !spw_text_has_gap("1,2, 3"));
    spw_plain_text("a\x1b[2Jb\n\x7f", out, sizeof out);
    CHECK(strcmp(out, "a?[2Jb??") == 0);
    spw_plain_text("\xc3\xa9\xc2\x85\xff\xe2\x82", out,
                   sizeof out); /* e acute; a control; no UTF-8; cut short */
    CHECK(strcmp(out, "\xc3\xa9????") == 0);
    spw_plain_text("a\xe2\x80\xae"
                   "b\xe2\x81\xa6"
                   "c\xd8\x9c"
                   "d\xe2\x80\x8f",
                   out, sizeof out); /* they turn the text around */
    CHECK(strcmp(out, "a?b?c?d?") == 0);
    spw_plain_text("\xc0\x80|\xed\xa0\x80|\xf0\x9f\x98\x80", out,
                   sizeof out); /* overlong; a surrogate; a face */
    CHECK(strcmp(out, "??|???|\xf0\x9f\x98\x80") == 0);
    spw_plain_text("0123456789", out, 10);
    CHECK(strlen(out) < 10);
}

/* Characters that steer a terminal or turn text around, and those that are none, at every border: Unicode 15, by its names. */
static void test_unfit(void) {
    static const struct {
        uint32_t first, last;
    } unfit[] = {{0x00, 0x08},     /* controls, but for tab and newline */
                 {0x0b, 0x1f},     /* controls */
                 {0x7f, 0x9f},     /* delete, and C1 */
                 {0x61c, 0x61c},   /* Arabic letter mark */
                 {0x200e, 0x200f}, /* left-to-right, right-to-left mark */
                 {0x2028, 0x202e}, /* line and paragraph separator, embeddings, overrides */
                 {0x2066, 0x2069}, /* isolates */
                 {0xfffe, 0xffff}, /* no characters, here and at the end of every plane */
                 {0x1fffe, 0x1ffff}, {0x10fffe, 0x10ffff}};
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        for (uint32_t c = unfit[i].first; c <= unfit[i].last; c++) CHECK(spw_text_is_unfit(c));
        if (unfit[i].first > 0) CHECK(!spw_text_is_unfit(unfit[i].first - 1));
        if (unfit[i].last < 0x10ffff) CHECK(!spw_text_is_unfit(unfit[i].last + 1));
    }
    CHECK(spw_text_is_unfit(SPW_TEXT_BROKEN));
}

static void test_numbers(void) {
    static const struct {
        const char *text;
        double value;
        size_t used;
    } cases[] = {{"1.5e3B", 1500.0, 5}, {"-2", -2.0, 2},    {".5", 0.5, 2}, {"0", 0.0, 1},
                 {"0x10B", 0.0, 0},     {"-0X1p4", 0.0, 0}, {" 5", 0.0, 0}, {"inf", 0.0, 0},
                 {"nan", 0.0, 0},       {"", 0.0, 0},       {"+7", 7.0, 2}, {"-", 0.0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *end = NULL;
        CHECK(spw_text_number(cases[i].text, &end) == cases[i].value && end == cases[i].text + cases[i].used);
    }
    size_t length = 4;
    const char *marked = "\xef\xbb\xbf{";
    CHECK(spw_text_skip_mark(marked, &length) == marked + 3 && length == 1);
    CHECK(spw_text_skip_mark("{", &length)[0] == '{' && length == 1);
}

static void test_memory(void) {
    double *numbers = NULL;
    CHECK_OK(SPW_ALLOC(100, &numbers));
    CHECK(numbers != NULL && numbers[99] == 0.0 && ((uintptr_t)numbers & 63) == 0);
    spw_free(numbers);
    CHECK_STATUS(SPW_ALLOC(SIZE_MAX / 4, &numbers), SPW_ENOMEM);
    CHECK(numbers == NULL);
    char *text = NULL; /* a product that fits, and no longer does when it is rounded up */
    for (size_t less = 0; less < 64; less++) CHECK_STATUS(SPW_ALLOC(SIZE_MAX - less, &text), SPW_ENOMEM);
    CHECK(text == NULL);
    spw_alloc_fail_after(1);
    CHECK_OK(SPW_ALLOC(1, &numbers));
    spw_free(numbers);
    CHECK_STATUS(SPW_ALLOC(1, &numbers), SPW_ENOMEM);
    CHECK_OK(SPW_ALLOC(1, &numbers));
    spw_free(numbers);
    spw_forget_causes();
}

/* What a library met stands behind what is blamed on a file, and no run succeeds that met it. */
/* What is held comes back, and a limit is held. */
static void test_memory_limit(void) {
    const size_t before = spw_memory_held();
    char *some = NULL, *more = NULL;
    CHECK_OK(SPW_ALLOC(100000, &some));
    CHECK(spw_memory_held() >= before + 100000 && spw_memory_held() < before + 110000);
    CHECK(spw_memory_resident() > 100000);
    spw_memory_limit(1 << 20, before + 150000);
    CHECK(spw_memory_limited() == 1 << 20);
    CHECK(SPW_ALLOC(100000, &more) == SPW_ENOMEM && strstr(spw_last_error(), "1048576 bytes") != NULL);
    CHECK_OK(SPW_ALLOC(40000, &more));
    spw_free(more);
    spw_memory_limit(0, 0);
    CHECK_OK(SPW_ALLOC(1000000, &more));
    spw_free(more);
    spw_free(some);
    CHECK(spw_memory_held() == before);
    spw_forget_causes();
}

static void test_causes(void) {
    CHECK(spw_settle(SPW_OK) == SPW_OK && spw_settle(SPW_EMISMATCH) == SPW_EMISMATCH);
    spw_note_cause(SPW_ENOMEM, "out of memory in a library");
    spw_note_cause(SPW_EIO, "later, and of the same");
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_ENOMEM);
    CHECK(strcmp(spw_last_error(), "f.h5: out of memory in a library") == 0);
    CHECK(spw_fail(SPW_EARG, "no such option") == SPW_EARG);
    CHECK(spw_settle(SPW_OK) == SPW_ENOMEM && spw_settle(SPW_EMISMATCH) == SPW_ENOMEM);
    CHECK(spw_settle(SPW_EIO) == SPW_EIO);
    spw_forget_causes();
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_EFORMAT && spw_settle(SPW_OK) == SPW_OK);
    char *memory = NULL;
    spw_alloc_fail_after(0);
    CHECK_STATUS(SPW_ALLOC(1, &memory), SPW_ENOMEM);
    CHECK(spw_settle(SPW_OK) == SPW_ENOMEM); /* whoever may have swallowed it */
    CHECK(spw_fail(SPW_EFORMAT, "f.h5: damaged") == SPW_EFORMAT);
    spw_alloc_fail_after(-1);
    CHECK(spw_settle(SPW_OK) == SPW_OK);
}

/* A library may end the program: its temporary files go, but a child's end takes none of them. */
static void test_exit(const char *path) {
    char gone[512];
    int message[2], code = 0;
    spw_file file;
    CHECK(pipe(message) == 0);
    const pid_t child = fork();
    if (child == 0) {
        if (spw_file_begin(path, &file) != SPW_OK) _exit(2);
        const pid_t grandchild = fork();
        if (grandchild == 0) exit(0);
        (void)waitpid(grandchild, &code, 0);
        const char there = access(file.temporary, F_OK) == 0 ? 'y' : 'n';
        (void)!write(message[1], &there, 1);
        (void)!write(message[1], file.temporary, strlen(file.temporary) + 1);
        exit(1);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFEXITED(code) && WEXITSTATUS(code) == 1);
    CHECK(read(message[0], gone, 1) == 1 && gone[0] == 'y');
    CHECK(read(message[0], gone, sizeof gone) > 1 && access(gone, F_OK) != 0);
    (void)close(message[0]);
    (void)close(message[1]);
}

/* Stops this process until another one has slept for so long: as a process for which a busy machine has no time. */
static void stop_for(unsigned seconds) {
    const pid_t stopped = getpid(), waker = fork();
    if (waker == 0) {
        (void)sleep(seconds);
        (void)kill(stopped, SIGCONT);
        _exit(0);
    }
    if (waker > 0) (void)raise(SIGSTOP);
}

static spw_status speak(void *context, FILE *out) {
    const char *what = context;
    (void)fputs("a child that speaks\n", stderr);
    if (strcmp(what, "crash") == 0) raise(SIGKILL);
    if (strcmp(what, "refuse") == 0) return spw_fail(SPW_EIO, "no %s", what);
    for (volatile bool ever = strcmp(what, "for ever") == 0; ever;) {
    }
    if (strcmp(what, "sleep") == 0) pause();
    if (strcmp(what, "stopped") == 0) stop_for(4);
    if (what[0] == '/' && mkdir(what, 0700) == 0) pause(); /* the first child makes the folder */
    (void)fputs(what, out);
    return SPW_OK;
}

/* What a child says comes back; what it does to itself does not. */
static void test_child(const char *folder) {
    char *reply = NULL, slept[512];
    size_t bytes = 0;
    FILE *said = tmpfile();
    const int before = dup(STDERR_FILENO);
    CHECK(said != NULL && before >= 0);
    if (said == NULL || before < 0) return;
    (void)dup2(fileno(said), STDERR_FILENO);
    spw_status spoken = spw_child_run("f", 5, 16, speak, "quiet", &reply, &bytes);
    (void)dup2(before, STDERR_FILENO);
    (void)close(before);
    CHECK_OK(spoken);
    spw_free(reply);
#ifndef SPW_SANITIZED /* there a sanitizer's word is let through */
    CHECK(lseek(fileno(said), 0, SEEK_END) == 0);
#endif
    (void)fclose(said);
    CHECK_OK(spw_child_run("f", 5, 16, speak, "hello", &reply, &bytes));
    CHECK(bytes == 5 && reply != NULL && strcmp(reply, "hello") == 0);
    spw_free(reply);
    CHECK_STATUS(spw_child_run("f", 5, 4, speak, "hello", &reply, &bytes), SPW_EFORMAT);
    CHECK(reply == NULL && strstr(spw_last_error(), "f: damaged") != NULL);
    CHECK_STATUS(spw_child_run("f", 5, 16, speak, "refuse", &reply, &bytes), SPW_EIO);
    CHECK(reply == NULL && strcmp(spw_last_error(), "no refuse") == 0);
    CHECK_STATUS(spw_child_run("f", 5, 16, speak, "crash", &reply, &bytes), SPW_EFORMAT);
    CHECK(strstr(spw_last_error(), "Killed") != NULL);
    CHECK_STATUS(spw_child_run("f", 1, 16, speak, "for ever", &reply, &bytes), SPW_EFORMAT);
    const unsigned patience = spw_child_patience_s;
    spw_child_patience_s = 2;
    CHECK_STATUS(spw_child_run("f", 5, 16, speak, "sleep", &reply, &bytes), SPW_EIO);
    CHECK(reply == NULL && strstr(spw_last_error(), "f: no answer") != NULL);
    CHECK_OK(spw_child_run("f", 5, 16, speak, "stopped", &reply, &bytes));
    CHECK(reply != NULL && strcmp(reply, "stopped") == 0);
    spw_free(reply);
    (void)snprintf(slept, sizeof slept, "%s/base_child_slept", folder);
    (void)rmdir(slept);
    CHECK_OK(spw_child_run("f", 5, sizeof slept, speak, slept, &reply, &bytes));
    CHECK(reply != NULL && strcmp(reply, slept) == 0 && rmdir(slept) == 0);
    spw_free(reply);
    spw_child_patience_s = patience;
}

/* An output never replaces what the run has read, whatever it is called. */
static void test_inputs(const char *folder) {
    char path[512], hard[512], soft[512], late[512];
    spw_file file;
    FILE *opened = NULL;
    snprintf(path, sizeof path, "%s/base_input.txt", folder);
    snprintf(hard, sizeof hard, "%s/base_input_hard.txt", folder);
    snprintf(soft, sizeof soft, "%s/base_input_soft.txt", folder);
    snprintf(late, sizeof late, "%s/base_input_late.txt", folder);
    (void)unlink(hard);
    (void)unlink(soft);
    write_text(path, "read");
    write_text(late, "read late");
    CHECK(link(path, hard) == 0 && symlink(path, soft) == 0);
    CHECK_OK(spw_file_begin(late, &file));
    write_text(file.temporary, "written");
    CHECK_OK(spw_file_open(path, &opened));
    if (opened != NULL) (void)fclose(opened);
    CHECK_OK(spw_file_reads(late));
    CHECK_STATUS(spw_file_commit(&file), SPW_EARG); /* read since its beginning */
    CHECK_STATUS(spw_file_begin(path, &file), SPW_EARG);
    CHECK_STATUS(spw_file_begin(hard, &file), SPW_EARG);
    CHECK_STATUS(spw_file_begin(soft, &file), SPW_EARG);
    CHECK(strstr(spw_last_error(), "is the input") != NULL);
    CHECK_OK(spw_file_reads("/no/such/file")); /* whoever opens it says what is wrong */
    spw_file_forget_reads();
    CHECK_OK(spw_file_begin(path, &file));
    spw_file_discard(&file);
    check_content(late, "read late");
    check_content(path, "read");
}

/* Two outputs of a run are two files, whether they are there already or not. */
static void test_two_outputs(const char *folder) {
    char path[512], hard[512], soft[512], fresh[512], around[600], other[512];
    snprintf(path, sizeof path, "%s/base_out.txt", folder);
    snprintf(hard, sizeof hard, "%s/base_out_hard.txt", folder);
    snprintf(soft, sizeof soft, "%s/base_out_soft.txt", folder);
    snprintf(fresh, sizeof fresh, "%s/base_out_fresh.txt", folder);
    snprintf(around, sizeof around, "%s/./../%s/base_out_fresh.txt", folder, strrchr(folder, '/') + 1);
    snprintf(other, sizeof other, "%s/base_out_other.txt", folder);
    (void)unlink(hard);
    (void)unlink(soft);
    (void)unlink(fresh);
    write_text(path, "there");
    CHECK(link(path, hard) == 0 && symlink(path, soft) == 0);
    spw_file_forget_reads();
    CHECK_OK(spw_file_writes(path, "--a"));
    CHECK_STATUS(spw_file_writes(path, "--b"), SPW_EARG);
    CHECK_STATUS(spw_file_writes(hard, "--b"), SPW_EARG);
    CHECK_STATUS(spw_file_writes(soft, "--b"), SPW_EARG);
    CHECK(strstr(spw_last_error(), "--b") != NULL && strstr(spw_last_error(), "--a") != NULL);
    CHECK_OK(spw_file_writes(fresh, "--c"));
    CHECK_STATUS(spw_file_writes(around, "--d"), SPW_EARG);
    CHECK_OK(spw_file_writes(other, "--e"));
    CHECK_OK(spw_file_writes("/no/such/folder/x", "--f")); /* whoever begins it says what is wrong */
    spw_file_forget_reads();
    CHECK_OK(spw_file_writes(path, "--b"));
    spw_file_forget_reads();
}

/* What a run of a library notes ends with the run, and no other run may write over it before. */
static void test_runs(const char *folder) {
    char path[512];
    spw_file file;
    snprintf(path, sizeof path, "%s/base_runs.txt", folder);
    write_text(path, "read");
    spw_file_forget_reads();
    const size_t reader = spw_run_begin();
    CHECK_OK(spw_file_reads(path));
    const size_t writer = spw_run_begin();
    CHECK(writer != reader);
    CHECK_STATUS(spw_file_begin(path, &file), SPW_EARG);
    CHECK(strstr(spw_last_error(), "close that reader first") != NULL);
    CHECK_STATUS(spw_file_writes(path, "--a"), SPW_EARG);
    spw_run_end(reader);
    CHECK_OK(spw_file_begin(path, &file));
    spw_file_discard(&file);
    CHECK_OK(spw_file_writes(path, "--a"));
    spw_run_end(writer);
    (void)spw_run_begin();
    CHECK_OK(spw_file_writes(path, "--b")); /* an output of a run that has ended */
    const size_t beside = spw_run_begin();
    CHECK_OK(spw_file_writes(
        path, "--b")); /* and of one that goes on beside it, as its own file replaces the other whole */
    CHECK_STATUS(spw_file_writes(path, "--c"), SPW_EARG);
    spw_run_end(beside);
    spw_file_forget_reads();
}

/* What the shell sends standard output or standard error to is an output, too. */
static void test_output_over_stream(const char *folder, int stream, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/base_stream.txt", folder);
    (void)fflush(NULL);
    const int before = dup(stream), own = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CHECK(before >= 0 && own >= 0 && dup2(own, stream) >= 0);
    spw_file file;
    const spw_status begun = spw_file_begin(path, &file), noted = spw_file_writes(path, "--a");
    CHECK(dup2(before, stream) >= 0);
    (void)close(before);
    (void)close(own);
    CHECK(begun == SPW_EARG && noted == SPW_EARG);
    CHECK(strstr(spw_last_error(), name) != NULL);
}

static char left_path[600];

/* Begins a file and ends by the signal, or only begins it and says where. */
static spw_status leaves_a_file(void *context, FILE *out) {
    spw_file file;
    const spw_status status = spw_file_begin(left_path, &file);
    if (status != SPW_OK) return status;
    (void)raise(*(const int *)context);
    (void)fprintf(out, "%s", file.temporary);
    spw_file_discard(&file);
    return SPW_OK;
}

/* Work of our own: what ends it is an error, and leaves nothing behind. */
static void test_own_child(const char *folder) {
    static const struct {
        int signal_number;
        spw_status want;
    } ends[] = {{SIGSEGV, SPW_ENOMEM}, {SIGKILL, SPW_ENOMEM}, {SIGTERM, SPW_EIO}, {0, SPW_OK}};
    char *reply = NULL, place[512];
    size_t bytes = 0;
    if (!spw_child_is_apart()) return; /* under a sanitizer */
    (void)snprintf(place, sizeof place, "%s/base_own", folder);
    (void)mkdir(place, 0777);
    (void)snprintf(left_path, sizeof left_path, "%s/base_own/file.txt", folder);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int signal_number = ends[i].signal_number;
        CHECK_STATUS(spw_child_do("work", leaves_a_file, &signal_number, &reply, &bytes), ends[i].want);
        spw_forget_causes(); /* no memory: the run would end so */
        if (signal_number != 0) CHECK(strstr(spw_last_error(), "work: ended by signal") != NULL);
        if (signal_number == 0) CHECK(reply != NULL && strstr(reply, "file.txt.spw-") != NULL);
        spw_free(reply);
        size_t files = 0;
        DIR *list = opendir(place);
        while (list != NULL && readdir(list) != NULL) files++;
        if (list != NULL) (void)closedir(list);
        CHECK(files == 2); /* . and .. */
    }
}

static int births_that_fail;
static volatile int *works; /* of all processes */

static void count_birth(void) { births_that_fail--; }

static void die_at_birth(void) {
    if (births_that_fail >= 0) (void)raise(SIGKILL);
}

static spw_status works_once(void *context, FILE *out) {
    (void)context;
    ++*works;
    (void)fputs("worked", out);
    return SPW_OK;
}

/* What was put into a record comes back in order; a record that was cut anywhere is refused where something is missing. */
static void test_notes(void) {
    static const size_t part[] = {8, 1, 17, 64, 3, 5};
    enum { PARTS = sizeof part / sizeof *part };
    spw_note note = {.data = NULL};
    for (size_t i = 0; i < PARTS; i++) {
        void *at = NULL;
        CHECK_OK(spw_note_add(&note, part[i], &at));
        CHECK(at != NULL && (uintptr_t)at % 8 == 0);
        if (at != NULL) memset(at, (int)i + 1, part[i]);
    }
    for (size_t bytes = 0; bytes <= note.bytes; bytes++) {
        spw_note_reader reader = {note.data, bytes};
        size_t i = 0, end = 0;
        for (; i < PARTS; i++) {
            const void *at = NULL;
            end += (part[i] + 7) / 8 * 8;
            const spw_status status = spw_note_next(&reader, part[i], &at);
            CHECK(status == (end <= bytes ? SPW_OK : SPW_EFORMAT) && reader.bytes <= bytes);
            if (status != SPW_OK) break;
            const unsigned char *data = at;
            CHECK(data[0] == i + 1 && data[part[i] - 1] == i + 1);
        }
        CHECK((i == PARTS) == (bytes == note.bytes));
    }
    spw_free(note.data);
}

/* What a library does at fork() may end a child before its work begins: another one does it, once; the second such end is told. */
static void test_birth(void) {
    static const struct {
        int fail, works;
        spw_status do_it, run_it;
    } births[] = {
        {0, 1, SPW_OK, SPW_OK},
        {1, 1, SPW_OK, SPW_OK},
        {2, 0, SPW_ENOMEM, SPW_OK}, /* what looks damaged is read again, and that child's work begins */
        {4, 0, SPW_ENOMEM, SPW_EFORMAT}};
    char *reply = NULL;
    size_t bytes = 0;
    works = mmap(NULL, sizeof *works, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(works != MAP_FAILED && pthread_atfork(count_birth, NULL, die_at_birth) == 0);
    for (size_t i = 0; i < sizeof births / sizeof *births; i++) {
        *works = 0;
        births_that_fail = births[i].fail;
        CHECK_STATUS(spw_child_do("work", works_once, NULL, &reply, &bytes), births[i].do_it);
        CHECK(*works == births[i].works && (reply != NULL) == (births[i].do_it == SPW_OK));
        if (births[i].do_it != SPW_OK) CHECK(strstr(spw_last_error(), "work: ended by signal 9") != NULL);
        spw_forget_causes(); /* no memory: the run would end so */
        spw_free(reply);
        *works = 0;
        births_that_fail = births[i].fail;
        CHECK_STATUS(spw_child_run("f", 5, 16, works_once, NULL, &reply, &bytes), births[i].run_it);
        CHECK(*works == (births[i].run_it == SPW_OK) && (reply != NULL) == (*works == 1));
        spw_free(reply);
    }
    births_that_fail = 0;
}

/* A file that a process left which was killed goes when the same output is begun again; that of a living one stays. */
static void test_stale(const char *folder) {
    char path[512], dead[600] = "", alive[600] = "";
    int message[2], code = 0;
    spw_file file;
    snprintf(path, sizeof path, "%s/base_stale.txt", folder);
    CHECK(pipe(message) == 0);
    const pid_t child = fork();
    if (child == 0) {
        if (spw_file_begin(path, &file) != SPW_OK) _exit(2);
        (void)!write(message[1], file.temporary, strlen(file.temporary) + 1);
        (void)raise(SIGKILL);
    }
    CHECK(waitpid(child, &code, 0) == child && WIFSIGNALED(code));
    CHECK(read(message[0], dead, sizeof dead) > 1 && access(dead, F_OK) == 0);
    (void)close(message[0]);
    (void)close(message[1]);
    CHECK_OK(spw_file_begin(path, &file));
    CHECK(access(dead, F_OK) != 0 && access(file.temporary, F_OK) == 0);
    snprintf(alive, sizeof alive, "%s", file.temporary);
    spw_file another;
    CHECK_OK(spw_file_begin(path, &another));
    CHECK(access(alive, F_OK) == 0);
    spw_file_discard(&another);
    CHECK(access(alive, F_OK) == 0);
    spw_file_discard(&file);
}

static char supervised_path[512];

/* What a library or the system may do to the child that works: the first argument. */
static int supervised(int argc, char **argv) {
    spw_file file;
    const int number = argc > 1 ? atoi(argv[1]) : 0;
    if (spw_file_begin(supervised_path, &file) != SPW_OK) return 99;
    if (strcmp(argv[0], "signal") == 0) (void)raise(number);
    if (strcmp(argv[0], "exit") == 0) exit(number);
    spw_file_discard(&file);
    return number;
}

/* However the work ends, the status says it in our terms and nothing is left behind. */
static void test_supervise(const char *folder) {
    static const struct {
        const char *how, *number;
        int code, signal_number;
    } cases[] = {{"return", "0", 0, 0},      {"return", "1", 1, 0},      {"exit", "1", 3, 0},
                 {"exit", "2", 2, 0},        {"exit", "255", 3, 0},      {"signal", "9", 3, 0},
                 {"signal", "11", 3, 0},     {"signal", "6", 3, 0},      {"signal", "15", 0, SIGTERM},
                 {"signal", "2", 0, SIGINT}, {"signal", "3", 0, SIGQUIT}};
    snprintf(supervised_path, sizeof supervised_path, "%s/supervised/out", folder);
    char inside[512];
    snprintf(inside, sizeof inside, "%s/supervised", folder);
    CHECK(mkdir(inside, 0700) == 0 || errno == EEXIST);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char how[16], number[16], *arguments[] = {how, number, NULL};
        int code = 0;
        (void)snprintf(how, sizeof how, "%s", cases[i].how);
        (void)snprintf(number, sizeof number, "%s", cases[i].number);
        const pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL) _exit(98);
            _exit(spw_supervise(2, arguments, supervised));
        }
        CHECK(waitpid(child, &code, 0) == child);
        if (cases[i].signal_number != 0) {
            CHECK(WIFSIGNALED(code) && WTERMSIG(code) == cases[i].signal_number);
        } else {
            CHECK(WIFEXITED(code) && WEXITSTATUS(code) == cases[i].code);
        }
        CHECK(rmdir(inside) == 0 && mkdir(inside, 0700) == 0); /* empty */
    }
}

static void test_file(const char *folder) {
    char path[512], gone[512];
    snprintf(path, sizeof path, "%s/base_file.txt", folder);
    spw_file file;
    write_text(path, "before");
    CHECK_OK(spw_file_begin(path, &file));
    write_text(file.temporary, "half");
    check_content(path, "before"); /* untouched until the commit */
    snprintf(gone, sizeof gone, "%s", file.temporary);
    spw_file_discard(&file);
    CHECK(access(gone, F_OK) != 0);
    spw_file_discard(&file);
    check_content(path, "before");

    CHECK_OK(spw_file_begin(path, &file));
    write_text(file.temporary, "whole");
    CHECK_OK(spw_file_commit(&file));
    check_content(path, "whole");
    spw_file_discard(&file);

    CHECK_STATUS(spw_file_begin("/no/such/folder/x", &file), SPW_EIO);
    char link[512];
    snprintf(link, sizeof link, "%s/base_link.txt", folder);
    (void)unlink(link);
    CHECK(symlink(path, link) == 0);
    CHECK_STATUS(spw_file_begin("/dev/null", &file), SPW_EIO); /* never replaced by a file */
    CHECK_STATUS(spw_file_begin(folder, &file), SPW_EIO);
    CHECK_OK(spw_file_begin(link, &file));
    write_text(file.temporary, "through");
    CHECK_OK(spw_file_commit(&file));
    check_content(path, "through"); /* the link stays, its target is replaced */
    struct stat mode;
    CHECK(chmod(path, 0640) == 0);
    CHECK_OK(spw_file_begin(path, &file));
    CHECK_OK(spw_file_commit(&file));
    CHECK(stat(path, &mode) == 0 && (mode.st_mode & 0777) == 0640);
    CHECK(chmod(path, 0444) == 0);
    CHECK_STATUS(spw_file_begin(path, &file), SPW_EIO);
    CHECK(chmod(path, 0600) == 0);
    write_text(path, "through");
    (void)unlink(link);
    CHECK(symlink("/no/such/file", link) == 0);
    CHECK_STATUS(spw_file_begin(link, &file), SPW_EIO);
    CHECK(strstr(spw_last_error(), "link") != NULL);
    (void)unlink(link);
    test_exit(path);
    char *text = NULL;
    size_t length = 0;
    CHECK_STATUS(spw_file_read("/no/such/file", 10, &text, &length), SPW_EIO);
    CHECK_STATUS(spw_file_read(path, 4, &text, &length), SPW_EIO);
    CHECK(text == NULL);
    spw_file_forget_reads();
    for (int n = 0; n < 3; n++) {
        spw_alloc_fail_after(n);
        spw_status status = spw_file_begin(path, &file);
        spw_alloc_fail_after(-1);
        CHECK(status == (n < 2 ? SPW_ENOMEM : SPW_OK));
        spw_file_discard(&file);
    }
    (void)unlink(path);
}

int main(int argc, char **argv) {
    (void)signal(SIGINT, SIG_DFL); /* a shell's background ignores both */
    (void)signal(SIGQUIT, SIG_DFL);
    if (argc != 2) return 2;
    test_status();
    test_plain_text();
    test_unfit();
    test_numbers();
    test_memory();
    test_memory_limit();
    test_causes();
    test_child(argv[1]);
    test_inputs(argv[1]);
    test_two_outputs(argv[1]);
    test_runs(argv[1]);
    test_output_over_stream(argv[1], STDOUT_FILENO, "standard output");
    test_output_over_stream(argv[1], STDERR_FILENO, "standard error");
    test_own_child(argv[1]);
    test_birth();
    test_notes();
    test_stale(argv[1]);
#ifdef SPW_SANITIZED /* there the work runs unsupervised */
    (void)test_supervise;
#else
    test_supervise(argv[1]);
#endif
    test_file(argv[1]);
    return check_done();
}
