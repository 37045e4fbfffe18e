#include "sim/manual/completion.h"

#include "sim/manual/values.h"

#include <string.h>

/* Text inside of single quotes, where `special` has a backslash before it. */
static void put_quoted(const char *text, const char *special, FILE *out) {
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            (void)fputs("'\\''", out);
        else
            fprintf(out, "%s%c", strchr(special, *text) != NULL ? "\\" : "", *text);
    }
}

/* ":what:(words)", ":what:_files -g ..." of what an option or an argument takes. */
static void put_action(const char *what, const spw_values *values, FILE *out) {
    (void)fputc(':', out);
    put_quoted(what, ":[]\\", out);
    (void)fputc(':', out);
    if (values->endings[0] == '\0') {
        if (values->words[0] != '\0')
            fprintf(out, "(%s)", values->words);
        else
            (void)fputc(' ', out);
        return;
    }
    (void)fputs("{", out);
    if (values->words[0] != '\0') fprintf(out, "compadd -- %s; ", values->words);
    if (values->endings[0] == '*') {
        (void)fputs("_files}", out);
    } else if (strcmp(values->endings, "/") == 0) {
        (void)fputs("_files -/}", out);
    } else {
        (void)fputs("_files -g \"*.(", out);
        bool first = true;
        for (const char *ending = values->endings; *ending != '\0';) {
            const size_t length = strcspn(ending, " ");
            if (ending[0] != '/') {
                fprintf(out, "%s%.*s", first ? "" : "|", (int)length, ending);
                first = false;
            }
            ending += length + (ending[length] == ' ');
        }
        (void)fputs(")(-.)\"}", out);
    }
}

static spw_status put_page(const spw_page *page, FILE *out) {
    spw_status status = SPW_OK;
    spw_values values;
    fprintf(out, "    ('%s') _arguments \\\n", page->name);
    for (size_t i = 0; i < page->options; i++) {
        const spw_page_option *o = &page->option[i];
        const char *text = o->text != NULL ? o->text : "";
        fprintf(out, "        '*--%s%s[", o->name, o->argument != NULL ? "=" : "");
        put_quoted(text, ":[]\\", out);
        (void)fputc(']', out);
        if (o->argument != NULL) {
            SPW_TRY(spw_values_of(o->name, o->argument, &values));
            put_action(o->argument, &values, out);
        }
        (void)fputs("' \\\n", out);
    }
    (void)fputs(
        "        '--help[print the options and end]' '--usage[print the names of the options and end]'", out);
    SPW_TRY(spw_values_of_usage(page->usage, &values));
    if (values.words[0] != '\0' || values.endings[0] != '\0') {
        (void)fputs(" \\\n        '*", out);
        put_action("argument", &values, out);
        (void)fputc('\'', out);
    }
    (void)fputs(" ;;\n", out);

cleanup:
    return status;
}

static void put_row(const char *name, const char *help, FILE *out) {
    (void)fputs(" '", out);
    put_quoted(name, ":\\", out);
    (void)fputc(':', out);
    put_quoted(help, "\\", out);
    (void)fputc('\'', out);
}

spw_status spw_completion_zsh(const spw_manual *manual, const char *shell_text, FILE *out) {
    spw_status status = SPW_OK;
    (void)fputs(
        "#compdef spillway\n# Completion of spillway " SPW_VERSION
        " for zsh, made from the program's own tables: do not edit.\n\n"
        "_spillway_describe() { # COMMAND: its parts; '': the commands\n    local -a rows\n    case $1 in\n",
        out);
    for (size_t i = 0; i < manual->pages; i++) {
        if (manual->page[i].parts == NULL) continue;
        fprintf(out, "    ('%s') rows=(", manual->page[i].name);
        for (const spw_command_row *row = manual->page[i].parts; row->name != NULL; row++)
            put_row(row->name, row->help, out);
        (void)fputs(") ;;\n", out);
    }
    (void)fputs("    esac\n    _describe 'command' rows\n}\n\n_spillway_has_parts() {\n    case $1 in\n    (",
                out);
    const char *between = "";
    for (size_t i = 1; i < manual->pages; i++) {
        if (manual->page[i].parts == NULL) continue;
        fprintf(out, "%s%s", between, manual->page[i].name);
        between = "|";
    }
    (void)fputs(") return 0 ;;\n    esac\n    return 1\n}\n\n_spillway_topics() {\n    local -a rows=(", out);
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++)
        put_row(t->name, t->help, out);
    (void)fputs(")\n    _describe 'topic' rows\n}\n\n_spillway_arguments() {\n    case $1 in\n", out);
    for (size_t i = 0; i < manual->pages; i++)
        if (manual->page[i].parts == NULL) SPW_TRY(put_page(&manual->page[i], out));
    (void)fputs("    esac\n}\n", out);
    (void)fputs(shell_text, out);

cleanup:
    return status;
}
