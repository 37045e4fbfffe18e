#include "kernels/verify/ranks/verify_processes.h"

#include "kernels/gpu/world_link.h"

#include <errno.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Shared with the children. */
typedef struct report {
    spw_judge judge[SPW_WORLD_RANKS];
    spw_status status[SPW_WORLD_RANKS];
} report;

static void run_child(spw_world_link *link, size_t rank, spw_verify_process *process, void *data,
                      report *out) {
    const int share = omp_get_num_procs() / (int)spw_world_link_ranks(link);
    if (rank > 0 && freopen("/dev/null", "w", stdout) == NULL) _Exit(EXIT_FAILURE);
    omp_set_num_threads(share > 0 ? share : 1); /* of the references: all processes compute theirs at once */
    out->status[rank] = process(link, rank, data, &out->judge[rank]);
    if (out->status[rank] != SPW_OK) {
        spw_world_link_leave(link);
        fprintf(stderr, "process %zu: %s\n", rank, spw_last_error());
    }
    fflush(stdout), fflush(stderr);
    _Exit(EXIT_SUCCESS);
}

/* In the order in which they end: the others may wait for one that has died. */
static void await_children(spw_world_link *link, size_t ranks, const pid_t *child, spw_status *status) {
    size_t left = 0;
    for (size_t r = 0; r < ranks; r++) left += child[r] > 0;
    while (left > 0) {
        int ended = 0;
        size_t r = 0;
        const pid_t pid = waitpid(-1, &ended, 0);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return;
        while (r < ranks && child[r] != pid) r++;
        if (r == ranks) continue; /* none of these */
        left--;
        if (WIFEXITED(ended) && WEXITSTATUS(ended) == EXIT_SUCCESS) continue;
        spw_world_link_leave(link);
        if (*status == SPW_OK) *status = spw_fail(SPW_EDEVICE, "process %zu ended before its time", r);
    }
}

spw_status spw_verify_processes(size_t ranks, spw_verify_process *process, void *data, spw_judge *judge) {
    spw_world_link *link = NULL;
    report *out = MAP_FAILED;
    pid_t child[SPW_WORLD_RANKS] = {0};
    spw_status status = SPW_OK;
    SPW_TRY(spw_world_link_create(ranks, &link));
    out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) SPW_TRY(spw_fail(SPW_ENOMEM, "shared memory: %s", strerror(errno)));
    fflush(stdout), fflush(stderr);
    for (size_t r = 0; r < ranks; r++) {
        child[r] = fork();
        if (child[r] == 0) run_child(link, r, process, data, out);
        if (child[r] < 0) {
            spw_world_link_leave(link);
            status = spw_fail(SPW_ENOMEM, "fork: %s", strerror(errno));
            break;
        }
    }
    await_children(link, ranks, child, &status);
    for (size_t r = 0; r < ranks; r++) {
        judge->comparisons += out->judge[r].comparisons, judge->failed += out->judge[r].failed;
        if (status == SPW_OK && out->status[r] != SPW_OK)
            status = spw_fail(out->status[r], "process %zu failed", r);
    }
cleanup:
    if (out != MAP_FAILED) (void)munmap(out, sizeof *out);
    spw_world_link_destroy(link);
    return status;
}
