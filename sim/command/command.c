#include "sim/command/command.h"

#include "base/nearest.h"
#include "base/run_files.h"
#include "sim/command/examples.h"
#include "sim/command/job_options.h"
#include "sim/command/option_group.h"
#include "sim/job/common_names.h"
#include "sim/print/wrap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OUTPUTS = 8 };

typedef struct parsing {
    const struct argp *argp;
    void *state;
    FILE *out;        /* in the place of standard error */
    bool wide;        /* --wide */
    size_t layout;    /* the place of --wide among the children */
    const char *name; /* of the command, "trace info" */
    struct {
        const struct argp_option *option;
        const char *path;
    } output[MOST_OUTPUTS]; /* what options marked SPW_OPTION_WRITES say, the last of each */
} parsing;

/* --- The options of every command --- */

enum { OPTION_WIDE = 0x2001 };
static const struct argp_option layout_options[] = {
    {"wide", OPTION_WIDE, 0, 0, "leave lines and tables as long as they are (default: 120 characters)", 0},
    {0}};

static error_t parse_layout(int key, char *text, struct argp_state *state) {
    (void)text;
    if (key != OPTION_WIDE) return ARGP_ERR_UNKNOWN;
    *(bool *)state->input = true;
    return 0;
}

static const struct argp layout_argp = {layout_options, parse_layout, NULL, NULL, NULL, NULL, NULL};

/* --- What argp says of arguments that anybody may have written --- */

static ssize_t write_plain(void *cookie, const char *text, size_t bytes) {
    (void)cookie;
    for (size_t at = 0; at < bytes;) {
        char line[512], plain[512];
        const size_t end = strcspn(text + at, "\n"), most = sizeof line - 1;
        size_t length = end < bytes - at ? end : bytes - at;
        const bool whole = length <= most && at + length < bytes;
        length = length <= most ? length : most;
        memcpy(line, text + at, length);
        line[length] = '\0';
        spw_plain_text(line, plain, sizeof plain);
        (void)fputs(plain, stderr);
        at += length;
        if (whole) (void)fputc('\n', stderr), at++;
    }
    return (ssize_t)bytes;
}

/* Keeps the value of an option that names an output. */
static void take_output(parsing *p, int key, const char *path) {
    const struct argp_option *o = p->argp->options;
    while (o != NULL && (o->name != NULL || o->key != 0) && o->key != key) o++;
    if (o == NULL || o->name == NULL || path == NULL || (o->flags & SPW_OPTION_WRITES) == 0) return;
    for (size_t i = 0; i < MOST_OUTPUTS; i++) {
        if (p->output[i].option != NULL && p->output[i].option != o) continue;
        p->output[i].option = o;
        p->output[i].path = path;
        return;
    }
}

/* Every output is a file of its own. */
static spw_status note_outputs(const parsing *p) {
    spw_status status = SPW_OK;
    for (size_t i = 0; i < MOST_OUTPUTS && p->output[i].option != NULL && status == SPW_OK; i++) {
        char option[64];
        (void)snprintf(option, sizeof option, "--%s", p->output[i].option->name);
        status = spw_file_writes(p->output[i].path, option);
    }
    return status;
}

static error_t parse_plainly(int key, char *text, struct argp_state *state) {
    parsing *p = state->input;
    take_output(p, key, text);
    if (key == ARGP_KEY_INIT) state->err_stream = p->out;
    if (key == ARGP_KEY_INIT && p->argp->parser == NULL && p->argp->children != NULL)
        state->child_inputs[0] = p->state; /* as argp does where there is no parser */
    if (key == ARGP_KEY_INIT && p->layout != SIZE_MAX) state->child_inputs[p->layout] = &p->wide;
    state->input = p->state;
    const error_t error = p->argp->parser != NULL ? p->argp->parser(key, text, state) : ARGP_ERR_UNKNOWN;
    state->input = p;
    return error;
}

/* The name of an option that nobody could have meant: getopt would print it as it is. */
static spw_status check_options(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char name[256], plain[256];
        if (argv[i][0] != '-') continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i], "="), argv[i]);
        spw_plain_text(name, plain, sizeof plain);
        if (strcmp(name, plain) != 0) return spw_fail(SPW_EARG, "'%s' is no option; see --help", plain);
    }
    return SPW_OK;
}

/* The option that `name`, of `length`, is or abbreviates; NULL: none, or more than one. */
static const struct argp_option *find_option(const struct argp *argp, const char *name, size_t length,
                                             size_t *found) {
    const struct argp_option *match = NULL;
    for (const struct argp_option *o = argp->options; o != NULL && (o->name != NULL || o->key != 0); o++) {
        if (o->name == NULL || strncmp(o->name, name, length) != 0) continue;
        match = o;
        if (o->name[length] == '\0') {
            *found = 1;
            return o;
        }
        ++*found;
    }
    for (const struct argp_child *c = argp->children; c != NULL && c->argp != NULL; c++) {
        const size_t before = *found;
        const struct argp_option *below = find_option(c->argp, name, length, found);
        if (below != NULL && below->name[length] == '\0') return below;
        if (*found > before) match = below;
    }
    return match;
}

/* The options by their names, for one that nobody has. */
static void offer_options(const struct argp *argp, spw_nearest *nearest) {
    for (const struct argp_option *o = argp->options; o != NULL && (o->name != NULL || o->key != 0); o++)
        if (o->name != NULL) spw_nearest_offer(nearest, o->name);
    for (const struct argp_child *c = argp->children; c != NULL && c->argp != NULL; c++)
        offer_options(c->argp, nearest);
}

/* Options with a value that a command line has had. Those that may be repeated say so in their help. */
enum { MOST_SEEN = 96 };
typedef struct seen_options {
    const struct argp_option *option[MOST_SEEN];
    size_t count;
} seen_options;

static spw_status see_option(seen_options *seen, const struct argp_option *o) {
    if (o == NULL || o->arg == NULL || (o->flags & SPW_OPTION_LAST) != 0 ||
        (o->doc != NULL && strstr(o->doc, "repeated") != NULL))
        return SPW_OK;
    for (size_t i = 0; i < seen->count; i++)
        if (seen->option[i] == o)
            return spw_fail(
                SPW_EARG, "--%s is given twice; write it once, with a list between commas where it takes one",
                o->name);
    if (seen->count < MOST_SEEN) seen->option[seen->count++] = o;
    return SPW_OK;
}

#define SET_KEY "a key of a job without an option: --set %s=VALUE"
/* Advice where an option is none of the command's but another program's name, or a slip of one; SPW_OK else, and argp says
 * what it says. */
static spw_status check_names(const struct argp *argp, int argc, char **argv) {
    static const char *const of_argp[] = {"help", "usage", "version", "program-name", "HANG"};
    seen_options seen = {.count = 0};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i] + 2;
        char word[64], advice[SPW_ADVICE], own[SPW_ADVICE] = "", key[SPW_JOB_KEY_TEXT];
        size_t length = strcspn(argv[i], "="), found = 0;
        if (argv[i][0] != '-' || argv[i][1] != '-') continue;
        length -= 2;
        const struct argp_option *o = find_option(argp, name, length, &found);
        if (o != NULL && found == 1 && o->arg != NULL && (o->flags & OPTION_ARG_OPTIONAL) == 0 &&
            name[length] != '=')
            i++; /* its value */
        const spw_status once = see_option(&seen, found == 1 ? o : NULL);
        if (once != SPW_OK) return once;
        bool general = false;
        for (size_t k = 0; k < sizeof of_argp / sizeof *of_argp; k++)
            general = general || strncmp(of_argp[k], name, length) == 0;
        if (found > 0 || general || length >= sizeof word) continue;
        (void)snprintf(word, sizeof word, "%.*s", (int)length, name);
        spw_nearest nearest = {.text = word};
        const spw_common_name *common = spw_common_name_find(word, length);
        const char *const option = common != NULL ? common->option : NULL;
        found = 0;
        if (common != NULL && common->note == NULL && option != NULL &&
            find_option(argp, option, strlen(option), &found) == NULL)
            common = NULL; /* of another command */
        const bool sets = find_option(argp, "set", strlen("set"), &found) != NULL;
        offer_options(argp, &nearest);
        if (common != NULL && common->note == NULL && option != NULL)
            (void)snprintf(own, sizeof own, "did you mean --%s?", option);
        else if (sets && common != NULL && common->note == NULL && common->key != NULL)
            (void)snprintf(own, sizeof own, SET_KEY, common->key);
        else if (sets && common != NULL)
            (void)snprintf(own, sizeof own, "%s", spw_common_key_advice(word, length, advice));
        else if (sets && spw_job_key_of_word(word, key))
            (void)snprintf(own, sizeof own, SET_KEY, key);
        else if (nearest.best != NULL)
            (void)snprintf(own, sizeof own, "did you mean --%s?", nearest.best);
        else if (strcmp(word, "output") == 0 && find_option(argp, "format", strlen("format"), &found) != NULL)
            (void)snprintf(own, sizeof own, "its answer goes to standard output, as in --format json > FILE");
        const size_t end = strlen(own);
        if (end > 2 && own[end - 2] == ';') own[end - 2] = '\0';
        if (own[0] != '\0') return spw_fail(SPW_EARG, "--%s is no option of %s; %s", word, argv[0], own);
    }
    return SPW_OK;
}

/* What getopt would print of itself. */
static spw_status check_own(const struct argp *argp, int argc, char **argv) {
    seen_options seen = {.count = 0};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-') continue;
        const char *name = argv[i] + 2;
        size_t length = strcspn(name, "="), found = 0;
        const struct argp_option *o = argv[i][1] == '-' ? find_option(argp, name, length, &found) : NULL;
        if (o == NULL || found != 1)
            return spw_fail(SPW_EARG, "%s: '%s' is %s", argv[0], argv[i],
                            found > 1 ? "the beginning of more than one option" : "no option");
        const spw_status once = see_option(&seen, o);
        if (once != SPW_OK) return once;
        if (o->arg == NULL && name[length] == '=')
            return spw_fail(SPW_EARG, "%s: --%s takes no value", argv[0], o->name);
        if (o->arg == NULL || (o->flags & OPTION_ARG_OPTIONAL) != 0 || name[length] == '=') continue;
        if (++i == argc || strcmp(argv[i], "--format") == 0) /* which the asker puts last */
            return spw_fail(SPW_EARG, "%s: --%s needs a value, as in --%s %s", argv[0], o->name, o->name,
                            o->arg);
    }
    return SPW_OK;
}

/* Where nothing may be printed: what argp says becomes the message. */
static spw_status parse_own(const struct argp *argp, int argc, char **argv, void *state) {
    struct argp quiet = *argp;
    parsing p = {.argp = argp, .state = state, .layout = SIZE_MAX};
    char *said = NULL;
    size_t bytes = 0;
    spw_status status = SPW_OK;
    SPW_TRY(check_own(argp, argc, argv));
    p.out = open_memstream(&said, &bytes);
    if (p.out == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a stream"));
    quiet.parser = parse_plainly;
    const int error = argp_parse(&quiet, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP, NULL, &p);
    if (fflush(p.out) != 0) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot keep what is wrong with the options"));
    const char *text = bytes > 0 ? strstr(said, ": ") : NULL;
    if (text != NULL) SPW_TRY(spw_fail(SPW_EARG, "%.*s", (int)strcspn(text + 2, "\n"), text + 2));
    if (error != 0)
        status = spw_fail(error == ENOMEM ? SPW_ENOMEM : SPW_EARG, "%s: %s", argv[0], strerror(error));
    if (status == SPW_OK) status = note_outputs(&p);

cleanup:
    if (p.out != NULL) (void)fclose(p.out);
    free(said);
    return status;
}

/* --- What a command takes, for those who ask --- */

static _Thread_local struct {
    spw_command_listener *hear;
    void *state;
    bool heard;
} listening;

spw_status spw_command_describe(const spw_command_row *row, spw_command_listener *listener, void *state) {
    char name[64], *argv[] = {name, NULL};
    (void)snprintf(name, sizeof name, "spillway %s", row->name);
    listening.hear = listener, listening.state = state, listening.heard = false;
    const spw_status status = row->run(1, argv);
    listening.hear = NULL;
    return listening.heard
               ? SPW_OK
               : spw_fail_within(status != SPW_OK ? status : SPW_EARG, "describing %s", row->name);
}

enum { MOST_CHILDREN = 4 };

/* The options of a command and those of every command; returns the place of the latter. Commands on a job have theirs in groups. */
static size_t add_layout(struct argp *argp, struct argp_child children[MOST_CHILDREN + 3],
                         spw_grouped_options *grouped) {
    size_t count = 0;
    bool groups = false;
    while (argp->children != NULL && argp->children[count].argp != NULL && count < MOST_CHILDREN) {
        children[count] = argp->children[count];
        groups = groups || children[count].argp == &spw_job_argp;
        count++;
    }
    children[count].argp = &layout_argp;
    argp->children = children;
    if (!groups) return count;
    argp->options = spw_option_group_add(argp, grouped)->options;
    for (size_t i = 0; i <= count; i++) children[i].argp = spw_option_group_add(children[i].argp, grouped);
    children[count + 1].argp = spw_option_group_headings(grouped);
    return count;
}

/* --- Examples below the options --- */

enum { EXAMPLE_WIDTH = 72 }; /* argp breaks lines at 79 characters */

/* A comment of as many lines as it takes. */
static void print_purpose(const char *purpose, FILE *out) {
    const char *at = purpose;
    for (size_t length; (length = spw_wrap_next(&purpose, EXAMPLE_WIDTH)) > 0; at = purpose)
        (void)fprintf(out, "  # %.*s\n", (int)length, at);
}

/* A command, which goes on behind a backslash where it is long. An option and its value stay together. */
static void print_line(const char *line, FILE *out) {
    size_t used = 0;
    (void)fputs("  ", out);
    for (const char *word = line; *word != '\0';) {
        size_t length = strcspn(word, " ");
        if (word[0] == '-' && word[length] == ' ' && word[length + 1] != '-')
            length += 1 + strcspn(word + length + 1, " ");
        if (used > 0 && used + 1 + length > EXAMPLE_WIDTH) {
            (void)fputs(" \\\n     ", out);
            used = 4;
        }
        used += (size_t)fprintf(out, "%s%.*s", used > 0 ? " " : "", (int)length, word);
        word += length + (word[length] == ' ');
    }
    (void)fputc('\n', out);
}

static bool is_example_of(const spw_example *e, const char *command) {
    const size_t length = strlen(command);
    return strncmp(e->page, command, length) == 0 && (e->page[length] == '\0' || e->page[length] == ' ');
}

void spw_command_examples(const char *command, FILE *out) {
    const char *heading = "Examples:\n";
    for (const spw_example *e = spw_examples; e->page != NULL; e++) {
        if (!is_example_of(e, command)) continue;
        (void)fputs(heading, out);
        print_purpose(e->purpose, out);
        print_line(e->line, out);
        heading = "";
    }
}

/* argp asks for every text of a help; behind all others come the examples. */
static char *filter_help(int key, const char *text, void *input) {
    const parsing *p = input;
    char *made = NULL;
    size_t bytes = 0;
    if (key != ARGP_KEY_HELP_EXTRA)
        return p != NULL && p->argp->help_filter != NULL ? p->argp->help_filter(key, text, p->state)
                                                         : (char *)text;
    FILE *memory = p != NULL ? open_memstream(&made, &bytes) : NULL;
    if (memory == NULL) return NULL;
    spw_command_examples(p->name, memory);
    if (fclose(memory) == 0 && bytes > 0) return made;
    free(made);
    return NULL;
}

spw_status spw_command_parse(const struct argp *argp, int argc, char **argv, void *state) {
    struct argp_child children[MOST_CHILDREN + 3] = {{0}};
    struct argp plainly = *argp;
    spw_grouped_options grouped = {.argps = 0};
    parsing p = {.argp = argp, .state = state, .name = strchr(argv[0], ' ')};
    spw_status status = SPW_OK;
    plainly.parser = parse_plainly;
    p.name = p.name != NULL ? p.name + 1 : "";
    p.layout = add_layout(&plainly, children, &grouped);
    if (listening.hear != NULL) {
        listening.hear(&plainly, listening.state);
        listening.heard = true;
        return spw_fail(SPW_EARG, "%s is described, not run", argv[0]);
    }
    if (spw_command_is_redirected()) return parse_own(argp, argc, argv, state);
    SPW_TRY(check_options(argc, argv));
    SPW_TRY(check_names(&plainly, argc, argv));
    SPW_TRY(spw_command_lines_at(SPW_LINE_CHARACTERS));
    plainly.help_filter = filter_help;
    p.out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_plain});
    if (p.out == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a stream"));
    (void)setvbuf(p.out, NULL, _IOLBF, 0);
    const int error = argp_parse(&plainly, argc, argv, 0, NULL, &p);
    if (error != 0) status = spw_fail(error == ENOMEM ? SPW_ENOMEM : SPW_EARG, "%s", strerror(error));
    if (status == SPW_OK && p.wide) status = spw_command_lines_at(SIZE_MAX);
    if (status == SPW_OK) status = note_outputs(&p);

cleanup:
    if (p.out != NULL) (void)fclose(p.out);
    return status;
}

bool spw_asks_for_help(const char *word) {
    static const char *const words[] = {"--help", "-?", "help"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], word) == 0) return true;
    }
    return false;
}
