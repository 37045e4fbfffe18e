#include "sim/manual/completion.h"

#include "sim/manual/values.h"
#include "sim/schemes/scheme.h"

#include <string.h>

static void put_parts(const spw_manual *manual, FILE *out) {
    (void)fputs("_spillway_parts() { # COMMAND: its parts; '': the commands\n    case $1 in\n", out);
    for (size_t i = 0; i < manual->pages; i++) {
        const spw_page *page = &manual->page[i];
        if (page->parts == NULL) continue;
        fprintf(out, "    '%s') echo '", page->name);
        for (const spw_command_row *row = page->parts; row->name != NULL; row++)
            fprintf(out, "%s%s", row == page->parts ? "" : " ", row->name);
        (void)fputs("' ;;\n", out);
    }
    (void)fputs("    esac\n}\n\n_spillway_topics() { echo '", out);
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        fprintf(out, "%s%s", t == spw_command_topics ? "" : " ", t->name);
    (void)fputs("'; }\n\n", out);
}

/* The options that take a value, or those that take none. */
static void put_options(const spw_manual *manual, const char *function, bool take, FILE *out) {
    fprintf(out, "%s() { # COMMAND: its options that take %s\n    case $1 in\n", function,
            take ? "a value" : "none");
    for (size_t i = 0; i < manual->pages; i++) {
        const spw_page *page = &manual->page[i];
        const char *between = "";
        if (page->parts != NULL) continue;
        fprintf(out, "    '%s') echo '", page->name);
        for (size_t k = 0; k < page->options; k++) {
            if ((page->option[k].argument != NULL) != take) continue;
            fprintf(out, "%s--%s", between, page->option[k].name);
            between = " ";
        }
        (void)fputs("' ;;\n", out);
    }
    (void)fputs("    esac\n}\n\n", out);
}

static void put_values(const char *name, const char *option, const spw_values *values, FILE *out) {
    if (values->words[0] == '\0' && values->endings[0] == '\0') return;
    fprintf(out, "    '%s %s%s') printf '%%s\\n' '%s' '%s' ;;\n", name, option[0] != '\0' ? "--" : "", option,
            values->words, values->endings);
}

static void put_scheme_keys(FILE *out) {
    (void)fputs("_spillway_scheme_keys() { # SCHEME: its options\n    case $1 in\n", out);
    for (size_t i = 0; spw_scheme_types[i] != NULL; i++) {
        const spw_scheme_option *option = spw_scheme_types[i]->options;
        if (option == NULL || option->name == NULL) continue;
        fprintf(out, "    %s) echo '", spw_scheme_types[i]->name);
        for (const spw_scheme_option *o = option; o->name != NULL; o++)
            fprintf(out, "%s%s=", o == option ? "" : " ", o->name);
        (void)fputs("' ;;\n", out);
    }
    (void)fputs("    esac\n}\n\n", out);
}

spw_status spw_completion_bash(const spw_manual *manual, const char *shell_text, FILE *out) {
    spw_status status = SPW_OK;
    spw_values values;
    (void)fputs("# Completion of spillway " SPW_VERSION
                " for bash, made from the program's own tables: do not edit.\n\n",
                out);
    put_parts(manual, out);
    put_options(manual, "_spillway_options", true, out);
    put_options(manual, "_spillway_flags", false, out);
    (void)fputs("_spillway_values() { # COMMAND --OPTION, or COMMAND '': words, then endings of files\n"
                "    case \"$1 $2\" in\n",
                out);
    for (size_t i = 0; i < manual->pages; i++) {
        const spw_page *page = &manual->page[i];
        if (page->parts != NULL) continue;
        SPW_TRY(spw_values_of_usage(page->usage, &values));
        put_values(page->name, "", &values, out);
        for (size_t k = 0; k < page->options; k++) {
            if (page->option[k].argument == NULL) continue;
            SPW_TRY(spw_values_of(page->option[k].name, page->option[k].argument, &values));
            put_values(page->name, page->option[k].name, &values, out);
        }
    }
    (void)fputs("    esac\n}\n\n", out);
    put_scheme_keys(out);
    (void)fputs(shell_text, out);

cleanup:
    return status;
}
