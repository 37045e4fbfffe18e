#include "sim/command/bench/process_use.h"

#include "sim/statistics/quantiles.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static double processor_s(const struct rusage *use) {
    return (double)(use->ru_utime.tv_sec + use->ru_stime.tv_sec) +
           1e-6 * (double)(use->ru_utime.tv_usec + use->ru_stime.tv_usec);
}

void spw_process_print_nowhere(bool heard) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    (void)dup2(nowhere, STDOUT_FILENO);
    if (!heard) (void)dup2(nowhere, STDERR_FILENO);
    (void)close(nowhere);
}

/* The number that stands in a file from its beginning on; NAN: none does. */
static double number_in(FILE *file) {
    char text[64] = "", *end = text;
    rewind(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    const double number = bytes > 0 ? strtod(text, &end) : NAN;
    return end != text && isfinite(number) ? number : NAN;
}

/* In a child. Never returns. */
static void become(const spw_process *process, bool heard, int printed) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would hear what it takes */
    spw_process_print_nowhere(heard);
    (void)dup2(printed, STDOUT_FILENO);
    (void)unsetenv("OMP_WAIT_POLICY");      /* a start by hand has none, either */
    (void)setenv("_", process->program, 1); /* as a shell notes it */
    if (process->one_thread) (void)setenv("OMP_NUM_THREADS", "1", 1);
    (void)execvp(process->program, process->word);
    _exit(127);
}

/* Runs it once, printing into a file that is empty then. */
static spw_status run(const spw_process *process, bool heard, FILE *printed, struct rusage *use, bool *good) {
    int wait_status = 0;
    rewind(printed);
    (void)!ftruncate(fileno(printed), 0);
    const pid_t child = fork();
    if (child < 0) return spw_fail(SPW_EIO, "bench: no process: %s", strerror(errno));
    if (child == 0) become(process, heard, fileno(printed));
    *good = wait4(child, &wait_status, 0, use) == child && wait_status == 0;
    return SPW_OK;
}

spw_status spw_process_use_of(const spw_process *process, uint64_t repeats, spw_process_use *out,
                              bool *good) {
    double taken[SPW_PROCESS_REPEATS], said[SPW_PROCESS_REPEATS];
    struct rusage use = {.ru_maxrss = 0};
    FILE *printed = tmpfile();
    spw_status status = SPW_OK;
    *out = (spw_process_use){.said = NAN};
    *good = true;
    if (printed == NULL) return spw_fail(SPW_EIO, "bench: no temporary file: %s", strerror(errno));
    for (uint64_t i = 0; i < repeats && *good; i++) {
        SPW_TRY(run(process, false, printed, &use, good));
        taken[i] = processor_s(&use);
        said[i] = number_in(printed);
        out->bytes = fmax(out->bytes, 1024.0 * (double)use.ru_maxrss);
    }
    if (*good) {
        out->said = spw_quantile(said, repeats, 0.5);
        out->median_s = spw_quantile(taken, repeats, 0.5);
        out->least_s = spw_quantile(taken, repeats, 0.0);
    } else if (process->explains) {
        bool again = false;
        SPW_TRY(run(process, true, printed, &use, &again));
    }

cleanup:
    (void)fclose(printed);
    return status;
}
