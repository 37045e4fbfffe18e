/* What a walk over units of work costs: walk_cost COMMAND... runs a command of spillway and says what its units took; walk_cost
 * reduce UNITS BYTES walks over units that take no work and leave so many bytes, by as many processes as mpirun starts. */
#include "base/processes.h"
#include "base/progress.h"
#include "base/walk.h"
#include "sim/command/command.h"
#include "sim/command/job_options.h"

#ifdef SPW_HAVE_MPI
#include "base/mpi_link.h"
static const spw_process_link *const LINK = &spw_mpi_link;
#else
static const spw_process_link *const LINK = NULL;
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double compute_s, take_s;
static size_t units, record_bytes;
static const spw_walk *inner;

static spw_status timed_compute(void *context, size_t unit, spw_note *out) {
    const double start = spw_clock_s();
    const size_t before = out->bytes;
    const spw_status status = inner->compute(context, unit, out);
    compute_s += spw_clock_s() - start;
    record_bytes += out->bytes - before;
    units++;
    return status;
}

static spw_status timed_take(void *context, size_t unit, spw_note_reader *record) {
    const double start = spw_clock_s();
    const spw_status status = inner->take(context, unit, record);
    take_s += spw_clock_s() - start;
    return status;
}

/* The linker has every call of spw_walk_run() come to the second of these (--wrap). */
spw_status real_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint) __asm__("__real_spw_walk_run");
spw_status own_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint) __asm__("__wrap_spw_walk_run");
spw_status own_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint) {
    spw_walk outer = *walk;
    inner = walk;
    outer.compute = timed_compute;
    outer.take = timed_take;
    return real_walk_run(&outer, checkpoint);
}

static spw_status leave_bytes(void *context, size_t unit, spw_note *out) {
    void *at = NULL;
    (void)unit;
    return spw_note_add(out, *(size_t *)context, &at);
}

static spw_status take_bytes(void *context, size_t unit, spw_note_reader *record) {
    const void *at = NULL;
    (void)unit;
    return spw_note_next(record, *(size_t *)context, &at);
}

static spw_status reduce(const char *count, const char *bytes) {
    size_t each = strtoull(bytes, NULL, 10);
    const spw_walk walk = {.what = "reduce",
                           .unit = "units",
                           .units = strtoull(count, NULL, 10),
                           .context = &each,
                           .compute = leave_bytes,
                           .take = take_bytes};
    const double start = spw_clock_s();
    const spw_status status = real_walk_run(&walk, NULL);
    if (status == SPW_OK)
        printf("{\"processes\": %zu, \"seconds_a_unit\": %.9f}\n", spw_processes(),
               (spw_clock_s() - start) / (double)(walk.units > 0 ? walk.units : 1));
    return status;
}

int main(int argc, char **argv) {
    spw_status status = spw_processes_begin(LINK);
    const spw_command_row *command = argc > 1 ? spw_command_find(spw_commands, argv[1]) : NULL;
    if (status == SPW_OK && argc == 4 && strcmp(argv[1], "reduce") == 0) {
        status = reduce(argv[2], argv[3]);
    } else if (status == SPW_OK) {
        spw_job_argp_fill();
        status = command != NULL ? spw_command_run(command, argc, argv)
                                 : spw_fail(SPW_EARG, "write a command of spillway, or reduce UNITS BYTES");
        if (status == SPW_OK && units > 0)
            fprintf(stderr,
                    "{\"units\": %zu, \"compute_s\": %.9f, \"take_s\": %.9f, \"record_bytes\": %zu}\n", units,
                    compute_s, take_s, record_bytes / units);
    }
    if (status != SPW_OK) fprintf(stderr, "walk_cost: %s\n", spw_last_error());
    spw_processes_end(status);
    return spw_status_exit(status);
}
