#include "base/processes.h"

#include "base/memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000 };

static const spw_process_link *link_used; /* NULL: alone */
static int own_number, count = 1, loud_stderr = STDERR_FILENO;

size_t spw_processes(void) { return (size_t)count; }
bool spw_process_is_first(void) { return own_number == 0; }

/* How many processes were started together: by mpirun of Open MPI, by that of MPICH, by srun. */
static long started(void) {
    static const struct {
        const char *sign, *size; /* the size counts where the sign is there */
    } starters[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
                    {"PMI_SIZE", "PMI_SIZE"},
                    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"}};
    for (size_t i = 0; i < sizeof starters / sizeof *starters; i++) {
        const char *text = getenv(starters[i].sign) != NULL ? getenv(starters[i].size) : NULL;
        if (text != NULL) return strtol(text, NULL, 10);
    }
    return 1;
}

static void be_silent(void) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int loud = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO);
    if (loud >= 0) loud_stderr = loud;
    if (nowhere < 0) return;
    (void)dup2(nowhere, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO);
    (void)close(nowhere);
}

spw_status spw_processes_begin(const spw_process_link *link) {
    const long processes = started();
    if (processes <= 1) return SPW_OK;
    if (link == NULL)
        return spw_fail(SPW_EARG,
                        "mpirun has started %ld processes, but this program was built without MPI; install "
                        "libopenmpi-dev and build it again with -DSPW_MPI=ON",
                        processes);
    const spw_status status = link->join(&own_number, &count);
    if (status != SPW_OK) return status;
    link_used = link;
    if (own_number > 0) be_silent();
    if (count != processes)
        return spw_fail(
            SPW_EARG,
            "%ld processes were started, but MPI joins %d of them: mpirun must be of the MPI that "
            "the program was built with",
            processes, count);
    return SPW_OK;
}

static void rest(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

void spw_processes_end(spw_status status) {
    const spw_process_link *link = link_used;
    bool met = false;
    if (link == NULL) return;
    link_used = NULL;
    for (long waited = 0; !met && (status == SPW_OK || waited < PATIENCE_MS); waited++) {
        met = link->meet();
        if (!met) rest();
    }
    if (met) {
        link->part();
        return;
    }
    if (own_number > 0)
        (void)dprintf(loud_stderr, "spillway: process %d of %d: %s\n", own_number, count, spw_last_error());
    link->end_all(spw_status_exit(status));
}

spw_status spw_processes_tell(void *data, size_t bytes) {
    return count > 1 ? link_used->tell(data, bytes) : SPW_OK;
}

spw_status spw_processes_gather(const void *mine, size_t bytes, char **out, size_t *out_bytes) {
    *out = NULL;
    *out_bytes = bytes;
    if (count > 1) return link_used->gather(count, mine, bytes, out, out_bytes);
    const spw_status status = SPW_ALLOC(bytes, out);
    if (status == SPW_OK && bytes > 0) memcpy(*out, mine, bytes);
    return status;
}

/* --- Turns --- */

/* Of what is left: many numbers at first, few at the end, so that all finish together. */
static void give(spw_turns *turns, size_t *begin, size_t *end) {
    enum { PARTS_A_PROCESS = 8 };
    const size_t left = turns->count - turns->next;
    *begin = turns->next;
    *end = turns->next += left / ((size_t)count * PARTS_A_PROCESS) + (left > 0);
}

/* Answers whoever asks for numbers; if `all`, until everybody knows that nothing is left. */
static void serve(spw_turns *turns, bool all) {
    while (turns->waiting > 0) {
        size_t begin = 0, end = 0;
        int who = 0;
        if (!link_used->is_asked(&who)) {
            if (!all) return;
            rest();
            continue;
        }
        give(turns, &begin, &end);
        turns->waiting -= begin == end;
        link_used->answer(who, begin, end);
    }
}

void spw_turns_begin(spw_turns *turns, size_t numbers) {
    const bool first = spw_process_is_first();
    *turns = (spw_turns){.count = numbers, .waiting = first ? (size_t)count - 1 : 0};
    if (!first) link_used->ask();
}

bool spw_turns_next(spw_turns *turns, size_t *number) {
    const bool first = spw_process_is_first();
    if (first) serve(turns, false);
    if (turns->begin == turns->end && first) give(turns, &turns->begin, &turns->end);
    if (turns->begin == turns->end && !first && !turns->over) {
        link_used->hear(&turns->begin, &turns->end);
        turns->over = turns->begin == turns->end;
        if (!turns->over) link_used->ask(); /* for the next ones, before these are done: nobody waits */
    }
    if (turns->begin == turns->end) {
        serve(turns, true);
        return false;
    }
    *number = turns->begin++;
    return true;
}
