/* Work in child processes, and what is said of its end. argv[1]: scratch directory. */
#include "base/child.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/supervise.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
    (void)signal(SIGINT, SIG_DFL); /* a shell's background ignores both */
    (void)signal(SIGQUIT, SIG_DFL);
    if (argc != 2) return 2;
    test_child(argv[1]);
    test_own_child(argv[1]);
    test_birth();
#ifdef SPW_SANITIZED /* there the work runs unsupervised */
    (void)test_supervise;
#else
    test_supervise(argv[1]);
#endif
    return check_done();
}
