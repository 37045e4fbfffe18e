/* What a walk over units of work costs: walk_cost COMMAND... runs a command of spillway and says what its units took; walk_cost
 * reduce UNITS BYTES [COMPUTE_US [TAKE_US]] walks over units that leave so many bytes, after so long a sleep, and that the first
 * process takes so long to take, by as many processes as mpirun starts; walk_cost each FOLDER COMMAND... has every process say what it
 * found, not the first alone. */
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

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double compute_s, take_s, walk_s;
static size_t units, all_units, record_bytes, groups,
    last_group = SIZE_MAX; /* groups: of units, as steps are, that were begun */
static const spw_walk *inner;

/* Of the processor, as others may use the machine. */
static double processor_s(void) {
    struct timespec used = {.tv_sec = 0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static spw_status timed_compute(void *context, size_t unit, spw_note *out) {
    const double start = processor_s();
    const size_t before = out->bytes;
    const spw_status status = inner->compute(context, unit, out);
    compute_s += processor_s() - start;
    record_bytes += out->bytes - before;
    const size_t group = inner->group > 0 ? unit / inner->group : unit;
    groups += group != last_group;
    last_group = group;
    units++;
    return status;
}

static spw_status timed_take(void *context, size_t unit, spw_note_reader *record) {
    const double start = processor_s();
    const spw_status status = inner->take(context, unit, record);
    take_s += processor_s() - start;
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
    const double start = spw_clock_s();
    const spw_status status = real_walk_run(&outer, checkpoint);
    walk_s += spw_clock_s() - start;
    all_units += walk->units;
    return status;
}

/* Units that take no processor time: so more processes than cores can be tried. */
typedef struct reduction {
    size_t bytes;
    long compute_us, take_us; /* asleep, and at work */
} reduction;
enum { MILLION = 1000000 };

static spw_status leave_bytes(void *context, size_t unit, spw_note *out) {
    const reduction *r = context;
    void *at = NULL;
    (void)unit;
    if (r->compute_us > 0)
        (void)nanosleep(&(struct timespec){r->compute_us / MILLION, r->compute_us % MILLION * 1000}, NULL);
    return spw_note_add(out, r->bytes, &at);
}

static spw_status take_bytes(void *context, size_t unit, spw_note_reader *record) {
    const reduction *r = context;
    const void *at = NULL;
    const double start = spw_clock_s();
    (void)unit;
    while ((spw_clock_s() - start) * MILLION < (double)r->take_us) {
    }
    return spw_note_next(record, r->bytes, &at);
}

static spw_status nothing_found(void *context, const spw_state *state) {
    (void)context, (void)state;
    return SPW_OK;
}

static spw_status reduce(int argc, char **argv) {
    reduction each = {.bytes = strtoull(argv[3], NULL, 10),
                      .compute_us = argc > 4 ? strtol(argv[4], NULL, 10) : 0,
                      .take_us = argc > 5 ? strtol(argv[5], NULL, 10) : 0};
    const spw_walk walk = {.what = "reduce",
                           .unit = "units",
                           .units = strtoull(argv[2], NULL, 10),
                           .context = &each,
                           .compute = leave_bytes,
                           .take = take_bytes,
                           .found = nothing_found};
    const double start = spw_clock_s();
    const spw_status status = real_walk_run(&walk, NULL);
    if (status == SPW_OK)
        printf("{\"processes\": %zu, \"seconds_a_unit\": %.9f}\n", spw_processes(),
               (spw_clock_s() - start) / (double)(walk.units > 0 ? walk.units : 1));
    return status;
}

/* What a process that is not the first prints goes into FOLDER/NUMBER, and not nowhere; what its units took into FOLDER/NUMBER.cost. */
static spw_status speak_up(const char *folder) {
    const char *number =
        getenv("OMPI_COMM_WORLD_RANK") != NULL ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
    char path[4096];
    if (number == NULL || spw_process_is_first()) return SPW_OK;
    (void)snprintf(path, sizeof path, "%s/%s", folder, number);
    if (freopen(path, "w", stdout) == NULL) return spw_fail(SPW_EIO, "%s: cannot be written", path);
    (void)snprintf(path, sizeof path, "%s/%s.cost", folder, number);
    return freopen(path, "w", stderr) != NULL ? SPW_OK : spw_fail(SPW_EIO, "%s: cannot be written", path);
}

int main(int argc, char **argv) {
    spw_status status = spw_processes_begin(LINK);
    if (status == SPW_OK && argc > 2 && strcmp(argv[1], "each") == 0) {
        status = speak_up(argv[2]);
        argc -= 2;
        argv += 2;
    }
    const spw_command_row *command = argc > 1 ? spw_command_find(spw_commands, argv[1]) : NULL;
    if (status == SPW_OK && argc >= 4 && strcmp(argv[1], "reduce") == 0) {
        status = reduce(argc, argv);
    } else if (status == SPW_OK) {
        spw_job_argp_fill();
        status = command != NULL
                     ? spw_command_run(command, argc, argv)
                     : spw_fail(SPW_EARG,
                                "write a command of spillway, or reduce UNITS BYTES [COMPUTE_US [TAKE_US]]");
        if (status == SPW_OK && units > 0)
            fprintf(stderr,
                    "{\"units\": %zu, \"groups\": %zu, \"compute_s\": %.9f, \"take_s\": %.9f, "
                    "\"record_bytes\": %zu, "
                    "\"all_units\": %zu, \"walk_s\": %.9f}\n",
                    units, groups, compute_s, take_s, record_bytes / units, all_units, walk_s);
    }
    if (status != SPW_OK) fprintf(stderr, "walk_cost: %s\n", spw_last_error());
    (void)fflush(NULL); /* mpirun ends the others when one has failed */
    spw_processes_end(status);
    return spw_status_exit(status);
}
