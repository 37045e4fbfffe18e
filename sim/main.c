#include "sim/command/command.h"

#include "base/processes.h"
#ifdef SPW_HAVE_MPI
#include "base/mpi_link.h"
#endif
#include "base/nearest.h"
#include "base/stop.h"
#include "base/supervise.h"
#include "sim/command/job_options.h"
#include "sim/print/wrap.h"
#include "sim/read/settings.h"

#include <hdf5.h>
#include <jansson.h>
#include <malloc.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef SPW_HAVE_MPI
static const spw_process_link *const LINK = &spw_mpi_link;
#else
static const spw_process_link *const LINK = NULL;
#endif

static void usage(FILE *out) {
    fprintf(out,
            "usage: spillway COMMAND [OPTION]... (spillway COMMAND --help tells more; spillway --version)\n");
    spw_command_list(spw_commands, out);
    fprintf(out, "  %-9s %s\n", "help", "this list; help COMMAND; help TOPIC, where a topic is:");
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        fprintf(out, "            %-9s %s\n", t->name, t->help);
}

static bool is_topic(const char *word) {
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        if (strcmp(word, t->name) == 0) return true;
    return false;
}

static const char *list_topics(char *out, size_t size) {
    out[0] = '\0';
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        (void)snprintf(out + strlen(out), size - strlen(out), "%s%s", out[0] != '\0' ? ", " : "", t->name);
    return out;
}

/* What may be meant by a word that is no command, behind it. false: nothing comes near. */
static bool suggest(const char *word) {
    spw_nearest topic = {.text = word}, command = {.text = word};
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        spw_nearest_offer(&topic, t->name);
    for (const spw_command_row *c = spw_commands; c->name != NULL; c++) spw_nearest_offer(&command, c->name);
    const bool asks = topic.best != NULL && (command.best == NULL || topic.distance < command.distance);
    const char *best = asks ? topic.best : command.best;
    if (best == NULL) return false;
    fprintf(stderr, "; did you mean `spillway %s%s'? `spillway help' lists all\n", asks ? "help " : "", best);
    return true;
}

static spw_status help(const char *topic) {
    char topics[256];
    if (topic != NULL && spw_asks_for_help(topic)) topic = NULL;
    for (const spw_command_topic *t = spw_command_topics; topic != NULL && t->name != NULL; t++) {
        if (strcmp(topic, t->name) != 0) continue;
        const spw_status status =
            spw_command_lines_at(t->settings != NULL ? SPW_HELP_CHARACTERS : SPW_LINE_CHARACTERS);
        if (status == SPW_OK && t->settings != NULL) spw_settings_describe(t->settings(), stdout);
        return status == SPW_OK && t->print != NULL ? t->print(stdout) : status;
    }
    if (topic != NULL)
        return spw_fail(SPW_EARG,
                        "there is no help on '%s'; topics are %s and the commands that spillway help lists",
                        topic, list_topics(topics, sizeof topics));
    usage(stdout);
    return SPW_OK;
}

/* jansson tells a text that is wrong from one that it had no memory for by chance only. */
static void *allocate_json(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) spw_note_cause(SPW_ENOMEM, "out of memory");
    return memory;
}

/* More threads than these serve nothing, and far more of them find no stack: who asks for more gets one a processor. */
static long most_threads(void) {
    enum { LEAST = 64, A_PROCESSOR = 4 };
    const long processors = A_PROCESSOR * sysconf(_SC_NPROCESSORS_ONLN);
    return processors > LEAST ? processors : LEAST;
}

/* Threads that wait must not spin: on a shared machine the spinning takes the core that the work needs (up to 10 times
 * slower with one other process on 2 cores). OpenMP libraries read their settings before main, and some end the program
 * over a number of threads that they cannot have, so the program starts itself once more with settings that will do.
 * Where that is not possible, nothing is lost. */
static void set_up_threads(char **argv) {
    bool again = getenv("OMP_WAIT_POLICY") == NULL && setenv("OMP_WAIT_POLICY", "passive", 1) == 0;
    const char *asked = getenv("OMP_NUM_THREADS");
    if (asked != NULL && strtol(asked, NULL, 10) > most_threads()) {
        char there[32];
        (void)snprintf(there, sizeof there, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
        again = setenv("OMP_NUM_THREADS", there, 1) == 0 || again;
    }
    if (again) (void)execv("/proc/self/exe", argv);
}

static char *
    noted; /* what wait_passively() has put the setting in place of, until main puts it back; NULL: nothing */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Before any library's own start, where no function of C may be called yet: the setting takes the place of what a shell notes
 * for itself, `_` or, where it has replaced itself by the program, its folder, as the array has no room for one more. Saves the second
 * start of set_up_threads. */
__attribute__((no_sanitize("address"), no_sanitize("thread"))) static void
wait_passively(int argc, char **argv, char **all) {
    static char passive[] = "OMP_WAIT_POLICY=passive";
    static const char notes[][8] = {"_=", "PWD=", "OLDPWD=", "SHLVL="};
    enum { NOTES = sizeof notes / sizeof *notes };
    char **place = NULL;
    size_t best = NOTES;
    (void)argc, (void)argv;
    for (char **one = all; *one != NULL; one++) {
        size_t same = 0;
        while (passive[same] != '=' && (*one)[same] == passive[same]) same++;
        if (passive[same] == '=' && (*one)[same] == '=') return;
        for (size_t i = 0; i < best; i++) {
            for (same = 0; notes[i][same] != '\0' && (*one)[same] == notes[i][same];) same++;
            if (notes[i][same] == '\0') best = i, place = one;
        }
    }
    if (place == NULL) return;
    noted = *place;
    *place = passive;
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char **, char **) = wait_passively;
#endif

/* What was freed stays for what comes next: otherwise the kernel takes the pages of every larger array back, to clear and map
 * as many for the next one. */
static void set_up_memory(void) {
    enum { MIB = 1 << 20, KEPT_MIB = 16, ARRAY_MIB = 4 };
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_MIB * MIB);
    (void)mallopt(M_MMAP_THRESHOLD, ARRAY_MIB * MIB);
}

static bool finished;

static int finish(spw_status status) {
    finished = true;
    status = spw_settle(status);
    if (status == SPW_OK) status = spw_command_said();
    if (status != SPW_OK) fprintf(stderr, "spillway: %s\n", spw_last_error());
    spw_processes_end(status);
    spw_stop_end();
    return spw_status_exit(status);
}

/* argp ends the program itself after a help. */
static void finish_help(void) {
    const int status = finished ? 0 : finish(SPW_OK);
    if (status != 0) _exit(status);
}

/* What many processes do together; of all else each would do the whole. */
static spw_status check_shared(int argc, char **argv) {
    static const char *const shared[][2] = {
        {"replay", NULL}, {"plan", NULL}, {"trace", "info"}, {"trace", "verify"}};
    bool good = spw_processes() == 1;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        good = good || (argc > 1 && strcmp(argv[1], shared[i][0]) == 0 &&
                        (shared[i][1] == NULL || (argc > 2 && strcmp(argv[2], shared[i][1]) == 0)));
    if (good) return SPW_OK;
    return spw_fail(SPW_EARG,
                    "%zu processes can share replay, plan, trace info and trace verify; start all else "
                    "without mpirun",
                    spw_processes());
}

static int run(int argc, char **argv) {
    static char self[] = "spillway", asked[] = "--help";
    (void)atexit(finish_help);
    json_set_alloc_funcs(allocate_json, free);
    (void)
        H5dont_atexit(); /* every file is closed by its owner; HDF5's own tidying crashes after a failed write */
    argp_err_exit_status = 2;
    const spw_status joined = spw_processes_begin(LINK);
    if (joined != SPW_OK) return finish(joined);
    if (argc > 2 && spw_asks_for_help(argv[1]) && !is_topic(argv[2]) && /* help job: its keys */
        spw_command_find(spw_commands, argv[2]) != NULL) {              /* help plan: plan --help */
        char *const command = argv[2];
        argv[1] = command, argv[2] = asked;
    }
    if (argc > 1 && spw_asks_for_help(argv[1])) return finish(help(argv[2]));
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("spillway " SPW_VERSION "\n");
        return finish(SPW_OK);
    }
    const spw_status shared = check_shared(argc, argv);
    if (shared != SPW_OK) return finish(shared);
    spw_job_argp_fill();
    const spw_command_row *command = argc > 1 ? spw_command_find(spw_commands, argv[1]) : NULL;
    if (command != NULL) {
        argv[0] = self;
        return finish(spw_command_run(command, argc, argv));
    }
    if (argc > 1) {
        char plain[256];
        spw_plain_text(argv[1], plain, sizeof plain);
        fprintf(stderr, "spillway: unknown command '%s'", plain);
        if (suggest(plain)) return 2;
        fputc('\n', stderr);
    }
    usage(stderr);
    return 2;
}

int main(int argc, char **argv) {
    if (noted != NULL) (void)putenv(noted);
    set_up_threads(argv);
    set_up_memory();
    return spw_supervise(argc, argv, run);
}
