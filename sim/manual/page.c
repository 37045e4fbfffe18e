#include "sim/manual/page.h"

#include "base/memory.h"
#include "sim/command/job_options.h"
#include "sim/command/option_group.h"

#include <argp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_options(spw_page *page, const struct argp *argp) {
    for (const struct argp_option *o = argp->options; o != NULL && (o->name != NULL || o->doc != NULL); o++) {
        if (o->name == NULL || (o->flags & OPTION_HIDDEN) != 0) continue;
        if (page->options == SPW_PAGE_OPTIONS) {
            page->status =
                spw_fail(SPW_EARG, "%s has more than %d options", page->name, (int)SPW_PAGE_OPTIONS);
            return;
        }
        page->option[page->options++] =
            (spw_page_option){.name = o->name,
                              .argument = o->arg,
                              .text = o->doc,
                              .letter = (char)(o->key > ' ' && o->key <= '~' ? o->key : 0),
                              .group = o->group,
                              .heading = spw_option_group_name(o->group)};
    }
    for (const struct argp_child *c = argp->children; c != NULL && c->argp != NULL; c++)
        add_options(page, c->argp);
}

static spw_status copy_text(const char *text, size_t length, char **out) {
    const spw_status status = SPW_ALLOC(length + 1, out);
    if (status == SPW_OK) memcpy(*out, text, length);
    return status;
}

static spw_status add_texts(spw_page *page, const struct argp *argp) {
    spw_status status = SPW_OK;
    const char *doc = argp->doc != NULL ? argp->doc : "", *more = strchr(doc, '\v');
    char *made = NULL;
    SPW_TRY(copy_text(doc, more != NULL ? (size_t)(more - doc) : strlen(doc), &page->text));
    if (more == NULL) return SPW_OK;
    const char *said = more + 1;
    if (argp->help_filter != NULL) {
        made = argp->help_filter(ARGP_KEY_HELP_POST_DOC, said, NULL);
        if (made == NULL) return spw_fail(SPW_ENOMEM, "cannot make the text of %s", page->name);
        said = made;
    }
    SPW_TRY(copy_text(said, strlen(said), &page->more));

cleanup:
    if (argp->help_filter != NULL && made != more + 1) free(made);
    return status;
}

/* Groups in their order, options of one by their names, as the help has them. */
static int by_group(const void *a, const void *b) {
    const spw_page_option *x = a, *y = b;
    return x->group != y->group ? (x->group > y->group) - (x->group < y->group) : strcmp(x->name, y->name);
}

static void hear(const struct argp *argp, void *state) {
    spw_page *page = state;
    page->usage = argp->args_doc;
    add_options(page, argp);
    qsort(page->option, page->options, sizeof *page->option, by_group);
    if (page->status == SPW_OK) page->status = add_texts(page, argp);
}

static spw_status add_rows(spw_manual *manual, const char *before, const spw_command_row *rows) {
    spw_status status = SPW_OK;
    for (; rows->name != NULL && status == SPW_OK; rows++) {
        if (manual->pages == SPW_MANUAL_PAGES)
            return spw_fail(SPW_EARG, "there are more than %d commands and parts", (int)SPW_MANUAL_PAGES);
        spw_page *page = &manual->page[manual->pages++];
        (void)snprintf(page->name, sizeof page->name, "%s%s%s", before, before[0] != '\0' ? " " : "",
                       rows->name);
        page->summary = rows->help;
        page->parts = rows->parts;
        if (rows->parts != NULL)
            status = add_rows(manual, page->name, rows->parts);
        else
            status = spw_command_describe(rows, hear, page);
        if (status == SPW_OK) status = page->status;
    }
    return status;
}

spw_status spw_manual_open(spw_manual **out) {
    spw_status status = SPW_OK;
    spw_job_argp_fill();
    SPW_TRY(SPW_ALLOC(1, out));
    (*out)->page[0].summary = "plans Mixture-of-Experts training jobs under real routing";
    (*out)->page[0].parts = spw_commands;
    (*out)->pages = 1;
    SPW_TRY(add_rows(*out, "", spw_commands));

cleanup:
    if (status != SPW_OK) {
        spw_manual_close(*out);
        *out = NULL;
    }
    return status;
}

void spw_manual_close(spw_manual *manual) {
    for (size_t i = 0; manual != NULL && i < manual->pages; i++) {
        spw_free(manual->page[i].text);
        spw_free(manual->page[i].more);
    }
    spw_free(manual);
}
