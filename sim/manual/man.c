#include "sim/manual/man.h"

#include "sim/command/examples.h"
#include "sim/command/job_options.h"
#include "sim/read/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- Text for troff --- */

static void put_character(char c, FILE *out) {
    static const struct {
        char plain;
        const char *escaped;
    } table[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                 {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].plain != c) continue;
        (void)fputs(table[i].escaped, out);
        return;
    }
    (void)fputc(c, out);
}

/* `length` bytes of running text; what stands between backquotes is bold. A line feed is a blank. */
static void put_part(const char *text, size_t length, FILE *out) {
    bool bold = false;
    if (length > 0 && text[0] == '.') (void)fputs("\\&", out);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '`') {
            bold = !bold;
            (void)fputs(bold ? "\\fB" : "\\fR", out);
        } else if (text[i] == '\n') {
            (void)fputc(' ', out);
        } else {
            put_character(text[i], out);
        }
    }
}

static void put(const char *text, FILE *out) { put_part(text, strlen(text), out); }

static void put_line(const char *text, FILE *out) {
    put(text, out);
    (void)fputc('\n', out);
}

/* Of an entry, what stands before its ": ", as in "--routing NAME[:KEY=VALUE]: what"; all of it: it is none. */
static size_t name_length(const char *entry, size_t length) {
    for (size_t i = 0; i + 1 < length; i++)
        if (entry[i] == ':' && entry[i + 1] == ' ') return i;
    return length;
}

/* Paragraphs; a line that begins with two blanks is an entry, "name: what", and one with more belongs to the one above. */
static void put_paragraphs(const char *text, FILE *out) {
    bool first = true;
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n"), blanks = strspn(text, " ");
        const char *word = text + blanks;
        const size_t rest = length - blanks, name = name_length(word, rest);
        if (blanks > 2) {
            (void)fputs(".br\n", out);
            put_part(word, rest, out);
        } else if (blanks == 2 && name < rest) {
            (void)fputs(".TP\n\\fB", out);
            put_part(word, name, out);
            (void)fputs("\\fR\n", out);
            put_part(word + name + 2, rest - name - 2, out);
        } else {
            if (!first) (void)fputs(".PP\n", out);
            put_part(text, length, out);
        }
        (void)fputc('\n', out);
        text += length + (text[length] == '\n');
        first = false;
    }
}

/* --- Parts of a page --- */

static void put_head(const char *name, int section, FILE *out) {
    (void)fputs("'\\\" t\n.\\\" Made from the program's own tables: do not edit.\n.TH ", out);
    for (; *name != '\0'; name++) put_character((char)toupper((unsigned char)*name), out);
    fprintf(out, " %d \"" SPW_RELEASED "\" \"Spillway " SPW_VERSION "\" \"%s\"\n.SH NAME\n", section,
            section == 1   ? "User Commands"
            : section == 5 ? "File Formats"
                           : "Miscellanea");
}

static void put_option(const spw_page_option *option, FILE *out) {
    (void)fputs(".TP\n", out);
    if (option->letter != 0) fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    (void)fputs("\\fB\\-\\-", out);
    put(option->name, out);
    (void)fputs("\\fR", out);
    if (option->argument != NULL) {
        (void)fputs("=\\fI", out);
        put(option->argument, out);
        (void)fputs("\\fR", out);
    }
    (void)fputc('\n', out);
    put_line(option->text != NULL ? option->text : "", out);
}

static void put_options(const spw_page *page, FILE *out) {
    static const spw_page_option always[] = {
        {.name = "help", .letter = '?', .text = "print the options and end"},
        {.name = "usage", .text = "print the names of the options and end"},
    };
    const char *heading = NULL;
    (void)fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < page->options; i++) {
        const char *own = page->option[i].heading;
        if (own != NULL && own != heading) fprintf(out, ".SS \"%s\"\n", own);
        heading = own;
        put_option(&page->option[i], out);
    }
    if (heading != NULL) (void)fputs(".SS \"Help\"\n", out);
    for (size_t i = 0; i < sizeof always / sizeof *always; i++) put_option(&always[i], out);
}

static void put_usage(const spw_page *page, FILE *out) {
    const char *line = page->usage != NULL ? page->usage : "";
    (void)fputs(".SH SYNOPSIS\n", out);
    do {
        const size_t length = strcspn(line, "\n");
        fprintf(out, ".B spillway %s\n", page->name);
        if (page->parts != NULL)
            (void)fputs(page->name[0] == '\0' ? "\\fICOMMAND\\fR " : "\\fIPART\\fR ", out);
        (void)fputs("[\\fIOPTION\\fR]... ", out);
        put_part(line, length, out);
        line += length + (line[length] == '\n');
        (void)fputs(*line != '\0' ? "\n.br\n" : "\n", out);
    } while (*line != '\0');
}

static void put_parts(const spw_page *page, FILE *out) {
    fprintf(out, ".SH %s\n", page->name[0] == '\0' ? "COMMANDS" : "PARTS");
    for (const spw_command_row *row = page->parts; row->name != NULL; row++) {
        (void)fputs(".TP\n\\fB", out);
        put(row->name, out);
        (void)fputs("\\fR\n", out);
        put_line(row->help, out);
    }
}

static void put_examples(const spw_page *page, FILE *out) {
    bool first = true;
    for (const spw_example *e = spw_examples; e->page != NULL; e++) {
        if (page->name[0] != '\0' && strcmp(e->page, page->name) != 0) continue;
        (void)fputs(first ? ".SH EXAMPLES\n" : ".PP\n", out);
        put_line(e->purpose, out);
        (void)fputs(".PP\n.RS 4\n.nh\n.ad l\n\\fB", out);
        put(e->line, out);
        (void)fputs("\\fR\n.ad\n.hy\n.RE\n", out);
        first = false;
    }
}

/* Every exit status with the texts of base/status.h that lead to it. */
static void put_exit_status(FILE *out) {
    (void)fputs(".SH EXIT STATUS\n", out);
    for (int value = 0; value <= 3; value++) {
        bool first = true;
        fprintf(out, ".TP\n.B %d\n", value);
        for (int s = 0; s < SPW_STATUS_COUNT; s++) {
            if (spw_status_exit((spw_status)s) != value) continue;
            if (!first) (void)fputs(", or ", out);
            put(spw_status_text((spw_status)s), out);
            first = false;
        }
        (void)fputs(".\n", out);
    }
}

static bool takes_job(const spw_page *page) {
    for (size_t i = 0; i < page->options; i++)
        if (strcmp(page->option[i].name, "job") == 0) return true;
    return false;
}

static void put_reference(const char *name, int section, bool last, FILE *out) {
    (void)fputs("\\fB", out);
    put(name, out);
    fprintf(out, "\\fR(%d)%s\n", section, last ? "" : ",");
}

/* The page above and the parts below; the files that a job is made of. */
static void put_see_also(const spw_manual *manual, const spw_page *page, FILE *out) {
    char name[64];
    (void)fputs(".SH SEE ALSO\n.nh\n.ad l\n", out);
    if (page->name[0] != '\0') put_reference("spillway", 1, false, out);
    for (const spw_page *other = manual->page; other < manual->page + manual->pages; other++) {
        const size_t length = strlen(other->name);
        const bool above =
            length > 0 && strncmp(page->name, other->name, length) == 0 && page->name[length] == ' ';
        const bool below = page->parts != NULL && strrchr(other->name, ' ') != NULL &&
                           strncmp(page->name, other->name, strlen(page->name)) == 0;
        const bool command = page->name[0] == '\0' && length > 0 && strchr(other->name, ' ') == NULL;
        if (other == page || !(above || command || (below && page->name[0] != '\0'))) continue;
        spw_man_name(other, name, sizeof name);
        put_reference(name, 1, false, out);
    }
    if (takes_job(page) || page->name[0] == '\0')
        for (const spw_command_topic *t = spw_command_topics; t->name != NULL; t++) {
            (void)snprintf(name, sizeof name, "spillway-%s", t->name);
            put_reference(name, spw_man_section(t), false, out);
        }
    (void)fputs(
        "and the documents in\n.IR /usr/share/doc/spillway ,\nof which docs/README.md is the index.\n", out);
}

void spw_man_name(const spw_page *page, char *out, size_t size) {
    (void)snprintf(out, size, "spillway%s%s", page->name[0] != '\0' ? "-" : "", page->name);
    for (; *out != '\0'; out++)
        if (*out == ' ') *out = '-';
}

static void put_program(FILE *out) {
    put_line(
        "Replays routing traces, which say which experts each token chose, and says for "
        "capacity-factor and dropless schemes what each GPU must hold, what crosses each link, which "
        "tokens are dropped and how long a step takes. `spillway help` lists the commands, "
        "`spillway COMMAND --help` the options of one, and `spillway --version` says which version this is.",
        out);
    put_paragraphs(
        "\nA job is a model, a cluster, a parallel split and a batch: a file (`--job FILE`), or options "
        "alone, of which `--model` and `--cluster` are the least.\n",
        out);
}

void spw_man_command(const spw_manual *manual, const spw_page *page, FILE *out) {
    char name[64];
    spw_man_name(page, name, sizeof name);
    put_head(name, 1, out);
    put(name, out);
    (void)fputs(" \\- ", out);
    put_line(page->summary, out);
    put_usage(page, out);
    (void)fputs(".SH DESCRIPTION\n", out);
    if (page->name[0] == '\0') put_program(out);
    if (page->text != NULL)
        put_paragraphs(page->text, out);
    else if (page->name[0] != '\0')
        put_line("Has parts, each with options of its own.", out);
    if (page->parts != NULL)
        put_parts(page, out);
    else
        put_options(page, out);
    if (page->more != NULL) {
        (void)fputs(".SH NOTES\n", out);
        put_paragraphs(page->more, out);
    }
    put_examples(page, out);
    put_exit_status(out);
    if (page->name[0] == '\0')
        (void)fputs(
            ".SH ENVIRONMENT\n.TP\n.B OMP_NUM_THREADS\nhow many threads work (all processors, unless said). "
            "Results do not depend on it.\n",
            out);
    put_see_also(manual, page, out);
}

/* --- Keys of files, and lists --- */

int spw_man_section(const spw_command_topic *topic) { return topic->settings != NULL ? 5 : 7; }

static void put_list(const spw_command_topic *topic, FILE *out) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (memory != NULL) {
        if (topic->print(memory) != SPW_OK) (void)fputs(spw_last_error(), stderr);
        if (fclose(memory) != 0) text[0] = '\0';
    }
    if (text != NULL) put_paragraphs(text, out);
    free(text);
    (void)fputs(".SH SEE ALSO\n.BR spillway (1),\n.BR spillway\\-plan (1)\n", out);
}

void spw_man_topic(const spw_command_topic *topic, FILE *out) {
    char name[64], *lines = NULL, *rest = NULL;
    size_t bytes = 0;
    (void)snprintf(name, sizeof name, "spillway-%s", topic->name);
    put_head(name, spw_man_section(topic), out);
    put(name, out);
    (void)fputs(" \\- ", out);
    put_line(topic->help, out);
    (void)fputs(".SH DESCRIPTION\n", out);
    if (topic->settings == NULL) {
        put_list(topic, out);
        return;
    }
    put_line("A YAML file. A key with dots stands in the mapping that the word before the dot names, as "
             "batch.sequence_length in `batch: {sequence_length: 4096}`.",
             out);
    (void)fputs(".SH KEYS\n", out);
    FILE *memory = open_memstream(&lines, &bytes);
    if (memory != NULL) {
        spw_settings_describe(topic->settings(), memory);
        if (fclose(memory) != 0) lines[0] = '\0';
    }
    for (char *line = lines != NULL ? strtok_r(lines, "\n", &rest) : NULL; line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *text = strchr(line, ':');
        if (text == NULL) continue;
        *text = '\0';
        fprintf(out, ".TP\n.B %s\n", line);
        put_line(text + 2, out);
    }
    free(lines);
    (void)fputs(".SH SEE ALSO\n.BR spillway (1),\n.BR spillway\\-plan (1),\n.BR spillway\\-replay (1)\n",
                out);
}
