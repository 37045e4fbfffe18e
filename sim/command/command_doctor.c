#include "sim/command/command.h"

#include "kernels/gpu/device.h"
#include "sim/print/plural.h"

#include <errno.h>
#include <gsl/gsl_version.h>
#include <hdf5.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* OK works. ABSENT is not there, and something optional does not work. BAD breaks what the program needs. */
typedef enum doctor_state { OK, ABSENT, BAD } doctor_state;
enum { FINDING_TEXT = 400 };

typedef struct finding {
    const char *what;
    doctor_state (*look)(char out[FINDING_TEXT]);
} finding;

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static doctor_state look_threads(char out[FINDING_TEXT]) {
    const char *asked = getenv("OMP_NUM_THREADS");
    int threads = 0;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
    }
    (void)snprintf(out, FINDING_TEXT, "%d thread%s on %ld processor%s; OMP_NUM_THREADS %s%s", threads,
                   spw_plural((size_t)threads), sysconf(_SC_NPROCESSORS_ONLN),
                   spw_plural((size_t)sysconf(_SC_NPROCESSORS_ONLN)), asked != NULL ? "is " : "is not set",
                   asked != NULL ? asked : "");
    return OK;
}

static doctor_state look_memory(char out[FINDING_TEXT]) {
    const double page = (double)sysconf(_SC_PAGESIZE);
    (void)snprintf(out, FINDING_TEXT,
                   "%.1f GiB in this machine, %.1f free now; --memory sets a limit for plan and replay",
                   page * (double)sysconf(_SC_PHYS_PAGES) / GIB,
                   page * (double)sysconf(_SC_AVPHYS_PAGES) / GIB);
    return OK;
}

static doctor_state look_hdf5(char out[FINDING_TEXT]) {
    unsigned major = 0, minor = 0, release = 0;
    if (H5get_libversion(&major, &minor, &release) < 0) {
        (void)snprintf(out, FINDING_TEXT, "the library does not answer: no trace or result can be read");
        return BAD;
    }
    const bool gzip = H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0;
    (void)snprintf(out, FINDING_TEXT, "%u.%u.%u, built with %d.%d.%d; %s", major, minor, release,
                   H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE,
                   gzip ? "compressed traces work" : "no gzip filter: compressed traces cannot be read");
    return gzip ? OK : BAD;
}

static doctor_state look_gsl(char out[FINDING_TEXT]) {
    (void)snprintf(out, FINDING_TEXT, "%s, built with " GSL_VERSION, gsl_version);
    return OK;
}

static doctor_state look_gpu(char out[FINDING_TEXT]) {
    const int count = spw_device_count();
    if (count > 0) {
        (void)snprintf(out, FINDING_TEXT, "%d x %s (%s)", count, spw_device_name(),
                       spw_device_architecture());
        return OK;
    }
    (void)snprintf(out, FINDING_TEXT,
                   "%s; `verify --device gpu`, `bench dispatch` and `bench layer` do not work",
                   spw_device_runtime()[0] == '\0' ? "built without CUDA or HIP (docs/install.md)"
                                                   : "the runtime finds no GPU");
    return ABSENT;
}

static doctor_state look_processes(char out[FINDING_TEXT]) {
#ifdef SPW_HAVE_MPI
    (void)snprintf(out, FINDING_TEXT,
                   "built with MPI: mpirun shares replay, plan, trace info and trace verify");
    return OK;
#else
    (void)snprintf(out, FINDING_TEXT, "built without MPI: mpirun cannot share work (docs/processes.md)");
    return ABSENT;
#endif
}

/* plan --until makes a recorded trace more uneven there. */
static doctor_state look_temporary(char out[FINDING_TEXT]) {
    static const double LEAST_GIB = 1.0;
    const char *asked = getenv("TMPDIR"), *folder = asked != NULL ? asked : "/tmp";
    char path[4096];
    struct statvfs room;
    (void)snprintf(path, sizeof path, "%s/spillway-doctor-XXXXXX", folder);
    const int file = mkstemp(path);
    if (file < 0) {
        (void)snprintf(out, FINDING_TEXT,
                       "%.200s: %s; plan --until --trace cannot write its routings: set TMPDIR", folder,
                       strerror(errno));
        return ABSENT;
    }
    (void)close(file);
    (void)unlink(path);
    if (statvfs(folder, &room) != 0) room.f_bavail = 0;
    const double free_gib = (double)room.f_bavail * (double)room.f_frsize / GIB;
    (void)snprintf(out, FINDING_TEXT, "%.200s has %.1f GiB free%s", folder, free_gib,
                   free_gib < LEAST_GIB ? ", too little for plan --until of a large trace: set TMPDIR" : "");
    return free_gib < LEAST_GIB ? ABSENT : OK;
}

static const finding findings[] = {
    {"threads", look_threads}, {"memory", look_memory}, {"HDF5", look_hdf5},           {"GSL", look_gsl},
    {"GPU", look_gpu},         {"MPI", look_processes}, {"temporary", look_temporary},
};

static error_t doctor_parse(int key, char *text, struct argp_state *state) {
    if (key == ARGP_KEY_ARG) argp_error(state, "'%s': doctor takes nothing but options", text);
    return key == ARGP_KEY_ARG ? 0 : ARGP_ERR_UNKNOWN;
}

static const struct argp argp = {
    .parser = doctor_parse,
    .doc =
        "Says what is installed and what works here: threads, memory, libraries, the GPU runtime, MPI, and "
        "space for temporary files. What does not work is named with its reason. Exit status 1 when "
        "something "
        "that every plan needs does not work.",
};

spw_status spw_command_doctor(int argc, char **argv) {
    static const char *const words[] = {[OK] = "works", [ABSENT] = "absent", [BAD] = "BROKEN"};
    const size_t count = sizeof findings / sizeof *findings;
    size_t broken = 0;
    FILE *out = spw_command_out();
    spw_status status = spw_command_parse(&argp, argc, argv, NULL);
    for (size_t i = 0; i < count && status == SPW_OK; i++) {
        char text[FINDING_TEXT];
        const doctor_state found = findings[i].look(text);
        broken += found == BAD;
        fprintf(out, "%-10s %-7s %s\n", findings[i].what, words[found], text);
    }
    if (status == SPW_OK && broken > 0)
        status = spw_fail(SPW_EMISMATCH, "%zu thing%s that every plan needs: see BROKEN above", broken,
                          spw_plural(broken));
    return status;
}
