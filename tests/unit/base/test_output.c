/* Output that is never half written, nor over an input. argv[1]: scratch directory. */
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
    if (argc != 2) return 2;
    test_inputs(argv[1]);
    test_two_outputs(argv[1]);
    test_runs(argv[1]);
    test_output_over_stream(argv[1], STDOUT_FILENO, "standard output");
    test_output_over_stream(argv[1], STDERR_FILENO, "standard error");
    test_stale(argv[1]);
    test_file(argv[1]);
    return check_done();
}
