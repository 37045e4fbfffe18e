#include "base/processes.h"

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

static void rest(long microseconds) {
    (void)nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000}, NULL);
}

void spw_processes_end(spw_status status) {
    const spw_process_link *link = link_used;
    bool met = false;
    if (link == NULL) return;
    link_used = NULL;
    for (long waited = 0; !met && (status == SPW_OK || waited < PATIENCE_MS); waited++) {
        met = link->meet();
        if (!met) rest(1000);
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

const spw_process_link *spw_processes_link(void) { return count > 1 ? link_used : NULL; }

void spw_processes_rest(long *waited_us) {
    enum { LEAST_US = 100, MOST_US = 1000, PARTS = 8 };
    const long part = *waited_us / PARTS, now = part < LEAST_US ? LEAST_US : part < MOST_US ? part : MOST_US;
    rest(now);
    *waited_us += now;
}
