#include "sim/manual/python.h"

#include "sim/command/job_options.h"
#include "sim/job/job.h"
#include "sim/read/settings.h"

#include <stdbool.h>
#include <string.h>

enum { KEYWORD = 128, LINE = 120 };

/* A function: its page, what stands before the keywords and in its call, and options that it does not have. */
typedef struct function {
    const char *name, *page, *first, *returns, *text;
    const char *without[12];
    bool keys; /* the keys of a job are keywords too */
} function;

#define SEARCH_OPTIONS "gpus-at-most", "global-batch-at-most", "tokens-per-day", "over", "checkpoint"
static const function functions[] = {
    {"replay",
     "replay",
     "trace: Path, job: Job = None",
     "Replay",
     "Replays a routing trace: what each GPU must hold, what crosses the links, which tokens are dropped.\n\n"
     "    replay(\"trace.h5\", job=\"job.yaml\", scheme=[\"gmm\", \"dense:capacity_factor=1.25\"],\n"
     "           sequences_per_gpu=[1, 2], each_step=True, output=\"result.h5\")",
     {NULL},
     true},
    {"plan",
     "plan",
     "job: Job = None",
     "Plan | Search | Until",
     "Sweeps schemes, parallel splits and batches: what fits and what is fastest.\n\n"
     "    plan(\"job.yaml\", trace=\"trace.h5\", expert_parallel=\"all\", tokens=\"1T\")\n\n"
     "With search=True it is a Search, with until=\"oom\" an Until; search() and until() say the same.\n"
     "Without trace= or routing= the routing is as uneven as that of a model late in its training; "
     "routing=\"balanced\" is even.",
     {"flags", "details"},
     true},
    {"search",
     "plan",
     "job: Job = None",
     "Search",
     "The best point of a space of splits, batches, schemes and remat policies.\n\n"
     "    search(model=\"glm-4.5-air\", cluster=\"mi300x:8x4\", over={\"pipeline\": [1, 2, 4]}, price=2)",
     {"flags", "details", "search", "until", "all"},
     true},
    {"until",
     "plan",
     "job: Job = None, question: str | Sequence[str] = \"oom\"",
     "Until",
     "How uneven routing may get before a point runs out of memory, or a step is too long.\n\n"
     "    until(\"job.yaml\", [\"oom\", \"step=1.1\"])",
     {"flags", "details", "search", "until", "all", SEARCH_OPTIONS},
     true},
    {"flags",
     "plan",
     "job: Job = None, framework: str = \"megatron\"",
     "str",
     "The best point as a framework reads it: megatron, bridge, primus, maxtext or torchtitan.\n\n"
     "    print(flags(\"job.yaml\", \"maxtext\", scheme=\"gmm\"))",
     {"flags", "details", "until", "all"},
     true},
    {"explain",
     "explain",
     "job: Job = None",
     "pandas.DataFrame",
     "Where every byte of a rank's peak comes from: a row a component with formula and source.\n\n"
     "    explain(\"job.yaml\", scheme=\"gmm\")\n\n"
     "With traffic=True a row a collective; with peer=\"megatron\" (or simumax, primus) a row a figure of "
     "that "
     "planner.",
     {NULL},
     true},
    {"job",
     "job",
     "file: Path",
     "FrameworkJob",
     "The job that a training framework's configuration is: a dictionary that every question takes.\n\n"
     "    plan(job(\"run.sh\", cluster=\"h100-8x16\"))",
     {"from"},
     true},
    {"model",
     "model",
     "name: Path",
     "Model",
     "What a model is made of: a preset, or a config.json.\n\n"
     "    model(\"glm-4.5\"), model(\"config.json\", sequence_length=32768)",
     {"diff"},
     false},
    {"score",
     "score",
     "tables: Path | Sequence[Path]",
     "Score",
     "Predictions beside tables of published, compiled or measured runs.\n\n"
     "    score(\"notebooks_data/published/deepseek3_mi355x_c4.csv\").rows",
     {NULL},
     false},
    {"verify",
     "verify",
     "",
     "Verification",
     "Holds the simulator against the reference that executes.\n\n"
     "    verify(scheme=\"gmm\", random=8).agreed",
     {"device", "ranks", "gpus", "phases", "plugin", "kernel", "case", "record", "small", "case-seconds"},
     false},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Keys whose option has another name, and is not one of the table. */
static const struct {
    const char *key, *option;
} renamed[] = {{"batch.sequences_per_gpu", "sequences-per-gpu"},
               {"parallel.expert", "expert-parallel"},
               {"schemes", "scheme"}};

/* --- Keywords --- */

static const char *keyword_of(const char *name, char out[KEYWORD]) {
    const bool word = strcmp(name, "from") == 0; /* one of Python's */
    (void)snprintf(out, KEYWORD, "%s%s", strcmp(name, "as") == 0 ? "peer" : name, word ? "_" : "");
    for (char *c = out; *c != '\0'; c++)
        if (*c == '-' || *c == '.') *c = '_';
    return out;
}

static bool has(const spw_manual *manual, const char *option) {
    for (size_t i = 0; i < manual->pages; i++)
        for (size_t f = 0; f < FUNCTIONS; f++)
            for (size_t k = 0; functions[f].keys && k < manual->page[i].options; k++)
                if (strcmp(manual->page[i].name, functions[f].page) == 0 &&
                    strcmp(manual->page[i].option[k].name, option) == 0)
                    return true;
    return false;
}

/* The keyword of a key that no option sets. */
static const char *keyword_of_key(const spw_manual *manual, const char *path, char out[KEYWORD]) {
    char flat[KEYWORD], dashed[KEYWORD];
    (void)snprintf(dashed, sizeof dashed, "%s", keyword_of(path, flat));
    for (char *c = dashed; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    (void)snprintf(out, KEYWORD, "%.8s%.100s", has(manual, dashed) ? "job_" : "", flat);
    return out;
}

/* Calls `each` for every key that no option sets. */
typedef void each_key(const spw_manual *manual, const char *path, const spw_setting *row, void *state);
static void for_keys(const spw_manual *manual, const spw_setting *row, const char *prefix, each_key *each,
                     void *state) {
    for (; row->key != NULL; row++) {
        char path[96];
        bool named = row->option != NULL;
        (void)snprintf(path, sizeof path, "%.40s%.48s%s", prefix, row->key,
                       row->kind == SPW_SETTING_GROUP ? "." : "");
        for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
            named = named || strcmp(renamed[i].key, path) == 0;
        if (row->kind == SPW_SETTING_GROUP)
            for_keys(manual, row->fields, path, each, state);
        else if (!named)
            each(manual, path, row, state);
    }
}

/* --- Types --- */

static const char *type_of_option(const spw_page_option *o) {
    static const struct {
        const char *argument, *type;
    } types[] = {{"N", "int | str"},
                 {"S", "int"},
                 {"T", "int"},
                 {"X", "float"},
                 {"P", "float"},
                 {"R", "int | str | Sequence[int]"},
                 {"PERCENT", "float"},
                 {"BOOL", "bool"},
                 {"DIR", "Path"},
                 {"LIST", "int | str | Sequence[int]"},
                 {"X[,ep=N]", "float | str"},
                 {"KEY=VALUE", "Mapping[str, Any] | str | Sequence[str]"},
                 {"KEY=LIST", "Mapping[str, Any] | str | Sequence[str]"}};
    if (o->argument == NULL) return "bool";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].argument, o->argument) == 0) return types[i].type;
    if (strncmp(o->argument, "NAME[:KEY", 9) == 0 || strstr(o->argument, "[,...]") != NULL)
        return "str | Sequence[str]";
    return strstr(o->argument, "FILE") != NULL || strstr(o->argument, ".h5") != NULL ? "Path" : "str";
}

static void put_choices(const spw_setting *row, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "Literal[");
    for (const spw_choice *c = row->choices; c != NULL && c->name != NULL && used < size; c++)
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", c == row->choices ? "" : ", ", c->name);
    const bool flag = strstr(out, "\"true\"") != NULL && strstr(out, "\"false\"") != NULL;
    if (used < size) (void)snprintf(out + used, size - used, "%s]", flag ? ", True, False" : "");
}

static const char *type_of_key(const spw_setting *row, char *out, size_t size) {
    static const char *const plain[] = {[SPW_SETTING_COUNT] = "int",
                                        [SPW_SETTING_REAL] = "float",
                                        [SPW_SETTING_FLAG] = "bool",
                                        [SPW_SETTING_TEXT] = "str",
                                        [SPW_SETTING_CHOICE] = "str",
                                        [SPW_SETTING_COUNTS] = "int | Sequence[int]",
                                        [SPW_SETTING_TEXTS] = "str | Sequence[str]",
                                        [SPW_SETTING_GROUP] = "str"};
    if (row->kind != SPW_SETTING_CHOICE || row->choices == NULL || row->parts != NULL)
        return plain[row->kind];
    put_choices(row, out, size);
    return out;
}

/* --- The module --- */

/* Text behind text, in lines of at most LINE characters. */
typedef struct flow {
    FILE *out;
    size_t column;
    const char *indent;
} flow;

static void put(flow *f, const char *text) {
    const size_t length = strlen(text);
    if (f->column + length + 1 > LINE) {
        fprintf(f->out, "\n%s", f->indent);
        f->column = strlen(f->indent);
    } else if (f->column > strlen(f->indent)) {
        (void)fputc(' ', f->out);
        f->column++;
    }
    (void)fputs(text, f->out);
    f->column += length;
}

static void put_keyword(const spw_manual *manual, const char *path, const spw_setting *row, void *state) {
    char type[512], name[KEYWORD], text[1024];
    (void)snprintf(text, sizeof text, "%s: %s | None = None,", keyword_of_key(manual, path, name),
                   type_of_key(row, type, sizeof type));
    put(state, text);
}

/* Text of a string literal between double quotes. */
static void put_quoted(const char *text, FILE *out) {
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') (void)fputc('\\', out);
        (void)fputc(*text == '\n' ? ' ' : *text, out);
    }
    (void)fputc('"', out);
}

static bool lacks(const function *f, const char *option) {
    static const char *const never[] = {"job", "format", "wide"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strcmp(never[i], option) == 0) return true;
    for (size_t i = 0; i < sizeof f->without / sizeof *f->without && f->without[i] != NULL; i++)
        if (strcmp(f->without[i], option) == 0) return true;
    return false;
}

static void put_function(const spw_manual *manual, const spw_page *page, const function *f, FILE *out) {
    flow line = {out, 0, "        "};
    char name[KEYWORD], text[512];
    fprintf(out, "\n\n@_documented(\"%s\")\ndef %s(\n        ", f->page, f->name);
    line.column = strlen(line.indent);
    if (f->first[0] != '\0') {
        (void)snprintf(text, sizeof text, "%s,", f->first);
        put(&line, text);
    }
    put(&line, "*,");
    for (size_t k = 0; k < page->options; k++) {
        const spw_page_option *o = &page->option[k];
        if (lacks(f, o->name)) continue;
        (void)snprintf(text, sizeof text, "%s: %s%s,", keyword_of(o->name, name), type_of_option(o),
                       o->argument == NULL ? " = False" : " | None = None");
        put(&line, text);
    }
    if (f->keys) for_keys(manual, spw_job_settings(), "", put_keyword, &line);
    put(&line, "**others: Any)");
    fprintf(out, " -> %s:\n    \"\"\"", f->returns);
    for (const char *c = f->text; *c != '\0'; c++) {
        (void)fputc(*c, out);
        if (*c == '\n' && c[1] != '\n') (void)fputs("    ", out);
    }
    fprintf(out, "\n    \"\"\"\n    return _planner.ask_%s(**_given(locals()))\n", f->name);
}

static void put_key_help(const spw_manual *manual, const char *path, const spw_setting *row, void *state) {
    char name[KEYWORD];
    fprintf(state, "    \"%s\": (\"%s\", ", keyword_of_key(manual, path, name), path);
    put_quoted(row->help, state);
    (void)fputs("),\n", state);
}

static void put_option_helps(const spw_page *page, FILE *out) {
    char name[KEYWORD];
    fprintf(out, "    \"%s\": {\n", page->name);
    for (size_t k = 0; k < page->options; k++) {
        if (page->option[k].text == NULL) continue;
        fprintf(out, "        \"%s\": ", keyword_of(page->option[k].name, name));
        put_quoted(page->option[k].text, out);
        (void)fputs(",\n", out);
    }
    (void)fputs("    },\n", out);
}

static const spw_page *find_page(const spw_manual *manual, const char *name) {
    for (size_t i = 0; i < manual->pages; i++)
        if (strcmp(manual->page[i].name, name) == 0) return &manual->page[i];
    return NULL;
}

/* What plan answers, with all that it does, stands in a module of its own: one would be too long to read. */
static bool is_planning(const function *f) { return strcmp(f->page, "plan") == 0; }

static spw_status put_module(const spw_manual *manual, bool planning, FILE *out) {
    fprintf(out,
            "\"\"\"Functions that %s, with a keyword for every option and every key of a job. Made by "
            "spillway-manual from the\nprogram's tables (sim/manual/python.c): do not edit. The test "
            "python_keywords --accept writes it.\n\"\"\"\n"
            "# ruff: noqa: E501\n"
            "from __future__ import annotations\n\n"
            "from collections.abc import Mapping, Sequence\n"
            "from typing import TYPE_CHECKING, Any, Literal\n\n"
            "from . import planner as _planner\n"
            "from ._asking import documented as _documented\n"
            "from ._asking import given as _given\n\n"
            "if TYPE_CHECKING:\n%s\n",
            planning ? "plan a job" : "ask about a job",
            planning
                ? "    from .planner import Job, Path, Plan, Search, Until"
                : "    import pandas\n\n"
                  "    from .planner import FrameworkJob, Job, Model, Path, Replay, Score, Verification");
    for (size_t i = 0; i < FUNCTIONS; i++) {
        if (is_planning(&functions[i]) != planning) continue;
        const spw_page *page = find_page(manual, functions[i].page);
        if (page == NULL) return spw_fail(SPW_EARG, "'%s' is no command", functions[i].page);
        put_function(manual, page, &functions[i], out);
    }
    return SPW_OK;
}

spw_status spw_python_questions(const spw_manual *manual, FILE *out) {
    return put_module(manual, false, out);
}

spw_status spw_python_planning(const spw_manual *manual, FILE *out) { return put_module(manual, true, out); }

spw_status spw_python_keywords(const spw_manual *manual, FILE *out) {
    (void)fputs(
        "\"\"\"What keywords mean. Made by spillway-manual from the program's tables (sim/manual/python.c): "
        "do not edit.\"\"\"\n"
        "# ruff: noqa: E501\n"
        "KEYS = {  # keyword: the key of the job that it sets, and what that is\n",
        out);
    for_keys(manual, spw_job_settings(), "", put_key_help, out);
    (void)fputs("}\n\nOPTIONS = {  # command: its options as keywords, and what they are\n", out);
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const spw_page *page = find_page(manual, functions[i].page);
        bool first = true;
        for (size_t k = 0; k < i; k++) first = first && strcmp(functions[k].page, functions[i].page) != 0;
        if (page == NULL) return spw_fail(SPW_EARG, "'%s' is no command", functions[i].page);
        if (first) put_option_helps(page, out);
    }
    (void)fputs("}\n", out);
    return SPW_OK;
}
