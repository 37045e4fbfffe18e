#include "sim/command/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What argp says of arguments that anybody may have written --- */

typedef struct parsing {
    const struct argp *argp;
    void *state;
    FILE *out; /* in the place of standard error */
} parsing;

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

static error_t parse_plainly(int key, char *text, struct argp_state *state) {
    parsing *p = state->input;
    if (key == ARGP_KEY_INIT) state->err_stream = p->out;
    if (key == ARGP_KEY_INIT && p->argp->parser == NULL && p->argp->children != NULL)
        state->child_inputs[0] = p->state; /* as argp does where there is no parser */
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

spw_status spw_command_parse(const struct argp *argp, int argc, char **argv, void *state) {
    struct argp plainly = *argp;
    parsing p = {.argp = argp, .state = state};
    spw_status status = SPW_OK;
    SPW_TRY(check_options(argc, argv));
    p.out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_plain});
    if (p.out == NULL) SPW_TRY(spw_fail(SPW_ENOMEM, "cannot allocate a stream"));
    (void)setvbuf(p.out, NULL, _IOLBF, 0);
    plainly.parser = parse_plainly;
    const int error = argp_parse(&plainly, argc, argv, 0, NULL, &p);
    if (error != 0) status = spw_fail(error == ENOMEM ? SPW_ENOMEM : SPW_EARG, "%s", strerror(error));

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
