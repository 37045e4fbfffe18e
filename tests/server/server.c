/* The program for tests that ask it thousands of times: started and linked once, it forks for every question. Nine tenths of a short
 * command's processor time are otherwise spent by the dynamic loader.
 *
 *   spillway-server DESCRIPTOR     a connected stream socket
 *
 * A question: uint32 bytes, with the descriptors of standard input, output and error as SCM_RIGHTS; then that many bytes: uint32
 * words, uint32 variables, and as many texts that end with NUL: the folder to work in, the words of the command line, the environment.
 * The answer: int32, the state that waitpid() gives. The server ends when its socket is closed. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef SPW_LEAKS
#include <sanitizer/lsan_interface.h>
#endif

int spillway_main(int argc, char **argv); /* sim/main.c, by another name */

enum { STREAMS = 3, FAILED = 125 };

static size_t take(int from, void *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = read(from, (char *)data + done, bytes - done);
        if (got <= 0) break;
        done += (size_t)got;
    }
    return done;
}

/* The length of the next question and its descriptors; false at the end. */
static int begin(int from, uint32_t *bytes, int *streams) {
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(STREAMS * sizeof(int))];
    } control;
    struct iovec part = {bytes, sizeof *bytes};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.room,
                          .msg_controllen = sizeof control.room};
    if (recvmsg(from, &head, MSG_WAITALL | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *bytes) return 0;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
    if (rights == NULL || rights->cmsg_len != CMSG_LEN(STREAMS * sizeof(int))) return 0;
    memcpy(streams, CMSG_DATA(rights), STREAMS * sizeof(int));
    return 1;
}

#ifdef SPW_LEAKS
/* Behind all that the program has registered for its end. AddressSanitizer's own end of every object, a tenth of a question, is left out. */
static void leave(int code, void *nothing) {
    (void)nothing;
    (void)fflush(NULL);
    __lsan_do_leak_check(); /* ends the process with another code where it finds one */
    _exit(code);
}
#endif

/* In the child: becomes the program. `text` holds folder, words and environment. */
static int answer(int from, const int *streams, uint32_t words, uint32_t variables, char *text) {
#ifdef SPW_LEAKS
    (void)on_exit(leave, NULL);
#endif
    char **argv = calloc((size_t)words + 1, sizeof *argv);
    const char *const folder = text;
    if (argv == NULL || chdir(folder) != 0) return FAILED;
    (void)close(from);
    for (int i = 0; i < STREAMS; i++) (void)dup2(streams[i], i), (void)close(streams[i]);
    (void)clearenv();
    text += strlen(text) + 1;
    for (uint32_t i = 0; i < words; i++, text += strlen(text) + 1) argv[i] = text;
    for (uint32_t i = 0; i < variables; i++, text += strlen(text) + 1) (void)putenv(text);
    (void)setenv("OMP_WAIT_POLICY", "passive",
                 1); /* OpenMP has read its own long ago: the program shall not start again for it */
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads != NULL && atoi(threads) > 0) omp_set_num_threads(atoi(threads));
    return spillway_main((int)words, argv);
}

int main(int argc, char **argv) {
    /* As the program itself does: threads that wait must not spin, and OpenMP reads its settings before main. */
    if (getenv("OMP_WAIT_POLICY") == NULL && setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
        (void)execv("/proc/self/exe", argv);
    const int from = argc > 1 ? atoi(argv[1]) : -1;
    uint32_t bytes = 0;
    int streams[STREAMS];
    while (begin(from, &bytes, streams)) {
        char *text = malloc((size_t)bytes + 1);
        uint32_t count[2];
        int32_t state = FAILED << 8;
        if (text == NULL || bytes < sizeof count || take(from, text, bytes) != bytes) {
            free(text);
            return 1;
        }
        text[bytes] = '\0';
        memcpy(count, text, sizeof count);
        const pid_t child = fork();
        if (child == 0) exit(answer(from, streams, count[0], count[1], text + sizeof count));
        if (child > 0) (void)waitpid(child, &state, 0);
        for (int i = 0; i < STREAMS; i++) (void)close(streams[i]);
        free(text);
        if (write(from, &state, sizeof state) != (ssize_t)sizeof state) return 1;
    }
    return 0;
}
