/* spillway-manual SOURCE FOLDER: writes the manual pages and the completions that are installed, and the two modules of the Python
 * package that have the keywords; the build runs it. SOURCE has bash.sh and zsh.sh. */
#include "base/file.h"
#include "base/memory.h"
#include "sim/manual/completion.h"
#include "sim/manual/man.h"
#include "sim/manual/python.h"

#include <stdio.h>

typedef struct one_page {
    const spw_manual *manual;
    const spw_page *page;
} one_page;

static spw_status print_page(FILE *out, const void *what) {
    const one_page *p = what;
    spw_man_command(p->manual, p->page, out);
    return SPW_OK;
}

static spw_status print_topic(FILE *out, const void *what) {
    spw_man_topic(what, out);
    return SPW_OK;
}

static spw_status write_pages(const spw_manual *manual, const char *folder) {
    char path[4096], name[64];
    spw_status status = SPW_OK;
    for (size_t i = 0; i < manual->pages && status == SPW_OK; i++) {
        const one_page one = {manual, &manual->page[i]};
        spw_man_name(one.page, name, sizeof name);
        (void)snprintf(path, sizeof path, "%s/%s.1", folder, name);
        status = spw_file_print(path, print_page, &one);
    }
    for (const spw_command_topic *t = spw_command_topics; t->name != NULL && status == SPW_OK; t++) {
        (void)snprintf(path, sizeof path, "%s/spillway-%s.%d", folder, t->name, spw_man_section(t));
        status = spw_file_print(path, print_topic, t);
    }
    return status;
}

typedef struct shell {
    const char *source, *target;
    spw_status (*print)(const spw_manual *manual, const char *shell_text, FILE *out);
    const spw_manual *manual;
    char *text;
} shell;

static spw_status print_shell(FILE *out, const void *what) {
    const shell *s = what;
    return s->print(s->manual, s->text, out);
}

static spw_status write_completions(const spw_manual *manual, const char *source, const char *folder) {
    enum { MOST = 1 << 20 };
    shell shells[] = {{"bash.sh", "spillway", spw_completion_bash, manual, NULL},
                      {"zsh.sh", "_spillway", spw_completion_zsh, manual, NULL}};
    char path[4096];
    size_t length = 0;
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof shells / sizeof *shells && status == SPW_OK; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", source, shells[i].source);
        status = spw_file_read(path, MOST, &shells[i].text, &length);
        (void)snprintf(path, sizeof path, "%s/%s", folder, shells[i].target);
        if (status == SPW_OK) status = spw_file_print(path, print_shell, &shells[i]);
        spw_free(shells[i].text);
    }
    return status;
}

typedef struct module {
    const char *name;
    spw_status (*print)(const spw_manual *manual, FILE *out);
    const spw_manual *manual;
} module;

static spw_status print_module(FILE *out, const void *what) {
    const module *m = what;
    return m->print(m->manual, out);
}

static spw_status write_modules(const spw_manual *manual, const char *folder) {
    const module modules[] = {{"questions.py", spw_python_questions, manual},
                              {"planning.py", spw_python_planning, manual},
                              {"keywords.py", spw_python_keywords, manual}};
    char path[4096];
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof modules / sizeof *modules && status == SPW_OK; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, modules[i].name);
        status = spw_file_print(path, print_module, &modules[i]);
    }
    return status;
}

int main(int argc, char **argv) {
    spw_manual *manual = NULL;
    spw_status status = SPW_OK;
    if (argc != 3) {
        fprintf(stderr, "usage: spillway-manual SOURCE FOLDER\n");
        return 2;
    }
    SPW_TRY(spw_manual_open(&manual));
    SPW_TRY(write_pages(manual, argv[2]));
    SPW_TRY(write_completions(manual, argv[1], argv[2]));
    SPW_TRY(write_modules(manual, argv[2]));

cleanup:
    spw_manual_close(manual);
    if (status != SPW_OK) fprintf(stderr, "spillway-manual: %s\n", spw_last_error());
    return spw_status_exit(status);
}
