#include "sim/manual/values.h"

#include "sim/job/job.h"
#include "sim/read/preset.h"
#include "sim/read/settings.h"
#include "sim/schemes/scheme.h"
#include "traces/generate/generate.h"
#include "traces/importers/importer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static spw_status values_add(char *list, size_t size, const char *word) {
    const size_t used = strlen(list);
    if (used + strlen(word) + 2 > size)
        return spw_fail(SPW_EARG, "'%s' is one value too many for a completion", word);
    (void)snprintf(list + used, size - used, "%s%s", used > 0 ? " " : "", word);
    return SPW_OK;
}

static spw_status add_word(spw_values *out, const char *word) {
    return values_add(out->words, sizeof out->words, word);
}

static spw_status add_presets(spw_values *out, const char *const *files) {
    spw_status status = SPW_OK;
    for (; *files != NULL && status == SPW_OK; files++) status = add_word(out, *files);
    return status;
}

static spw_status models(spw_values *out) { return add_presets(out, spw_model_names); }
static spw_status clusters(spw_values *out) { return add_presets(out, spw_cluster_names); }
static spw_status stacks(spw_values *out) { return add_presets(out, spw_stack_names); }
static spw_status time_stacks(spw_values *out) { return add_presets(out, spw_time_stack_names); }

static spw_status all_stacks(spw_values *out) {
    spw_status status = stacks(out);
    for (const char *const *name = spw_time_stack_names; *name != NULL && status == SPW_OK; name++) {
        const char *there = strstr(out->words, *name);
        if (there == NULL) status = add_word(out, *name); /* one name is a stack of both kinds */
    }
    return status == SPW_OK ? add_presets(out, spw_megatron_names) : status;
}

static spw_status schemes(spw_values *out) {
    spw_status status = SPW_OK;
    for (size_t i = 0; spw_scheme_types[i] != NULL && status == SPW_OK; i++)
        status = add_word(out, spw_scheme_types[i]->name);
    return status;
}

static spw_status distributions(spw_values *out) {
    spw_status status = SPW_OK;
    for (size_t i = 0; spw_distribution_name(i) != NULL && status == SPW_OK; i++)
        status = add_word(out, spw_distribution_name(i));
    return status;
}

static spw_status formats(spw_values *out) {
    spw_status status = SPW_OK;
    size_t count = 0;
    const spw_importer *list = spw_importer_list(&count);
    for (size_t i = 0; i < count && status == SPW_OK; i++) status = add_word(out, list[i].name);
    return status;
}

/* Lists that an argument names by a word in capitals. */
static const struct {
    const char *option, *argument; /* the option's name; the word; NULL: any */
    spw_status (*add)(spw_values *out);
    const char *endings;
} lists[] = {
    {"model", "NAME", models, "json"},
    {NULL, "PRESET", models, ""},
    {"cluster", "NAME", clusters, "yaml"},
    {"stack", "NAME", all_stacks, "yaml"},
    {"from", "NAME", stacks, "yaml"},
    {"time-stack", "NAME", time_stacks, "yaml"},
    {"scheme", "NAME", schemes, ""},
    {"routing", "NAME", distributions, ""},
    {"distribution", "NAME", distributions, ""},
    {NULL, "FORMAT", formats, ""},
    {"job", "FILE", NULL, "yaml"},
};

static const spw_setting *find_setting(const spw_setting *rows, const char *option) {
    for (; rows->key != NULL; rows++) {
        if (rows->option != NULL && strcmp(rows->option, option) == 0) return rows;
        const spw_setting *below =
            rows->kind == SPW_SETTING_GROUP ? find_setting(rows->fields, option) : NULL;
        if (below != NULL) return below;
    }
    return NULL;
}

static bool is_choice(const spw_choice *choices, const char *name) {
    while (choices->name != NULL && strcmp(choices->name, name) != 0) choices++;
    return choices->name != NULL;
}

/* The words of a key of the job. */
static spw_status add_choices(const char *option, spw_values *out) {
    const spw_setting *row = find_setting(spw_job_settings(), option);
    spw_status status = SPW_OK;
    if (row != NULL && row->kind == SPW_SETTING_GROUP && row->fields->kind == SPW_SETTING_CHOICE)
        row = row->fields; /* one word for all fields: --precision fp32 */
    if (row == NULL || row->kind != SPW_SETTING_CHOICE) return SPW_OK;
    for (const spw_choice *c = row->choices; c->name != NULL && status == SPW_OK; c++)
        status = add_word(out, c->name);
    for (const spw_choice *c = row->parts; c != NULL && c->name != NULL && status == SPW_OK; c++)
        if (!is_choice(row->choices, c->name)) status = add_word(out, c->name);
    return status;
}

/* One alternative of an argument. */
static spw_status add_alternative(const char *option, const char *word, spw_values *out) {
    const char *dot = strrchr(word, '.');
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].option != NULL && (option == NULL || strcmp(lists[i].option, option) != 0)) continue;
        if (strcmp(lists[i].argument, word) != 0) continue;
        spw_status status = lists[i].add != NULL ? lists[i].add(out) : SPW_OK;
        if (status == SPW_OK && lists[i].endings[0] != '\0')
            status = values_add(out->endings, sizeof out->endings, lists[i].endings);
        return status;
    }
    if (dot != NULL && dot[1] != '\0' && isupper((unsigned char)word[0]))
        return strstr(out->endings, dot + 1) != NULL ? SPW_OK
                                                     : values_add(out->endings, sizeof out->endings, dot + 1);
    if (strcmp(word, "DIR") == 0 || strcmp(word, "FOLDER") == 0)
        return values_add(out->endings, sizeof out->endings, "/");
    if ((strcmp(word, "FILE") == 0 || strcmp(word, "INPUT") == 0) && out->endings[0] == '\0')
        return values_add(out->endings, sizeof out->endings, "*");
    if (strcmp(word, "NAME") == 0 && option != NULL) return add_choices(option, out);
    if (!islower((unsigned char)word[0])) return SPW_OK;
    const char *value = strchr(word, '='); /* "step=X": the beginning is known */
    char known[64];
    (void)snprintf(known, sizeof known, "%.*s", value != NULL ? (int)(value - word) + 1 : (int)strlen(word),
                   word);
    return add_word(out, known);
}

spw_status spw_values_of(const char *option, const char *argument, spw_values *out) {
    char copy[160], *rest = NULL;
    spw_status status = SPW_OK;
    size_t length = 0;
    *out = (spw_values){.words = ""};
    for (size_t depth = 0; *argument != '\0' && length + 1 < sizeof copy;
         argument++) { /* without what is in [] */
        depth += *argument == '[';
        if (depth == 0) copy[length++] = *argument;
        depth -= *argument == ']';
    }
    copy[length] = '\0';
    for (char *word = strtok_r(copy, "|", &rest); word != NULL && status == SPW_OK;
         word = strtok_r(NULL, "|", &rest))
        status = add_alternative(option, word, out);
    return status;
}

spw_status spw_values_of_usage(const char *usage, spw_values *out) {
    char copy[256], *rest = NULL;
    bool of_option = false;
    char argument[256] = "";
    if (usage == NULL) return spw_values_of(NULL, "", out);
    (void)snprintf(copy, sizeof copy, "%s", usage);
    for (char *word = strtok_r(copy, " \n[]", &rest); word != NULL; word = strtok_r(NULL, " \n[]", &rest)) {
        char *dots = strstr(word, "...");
        if (dots != NULL) *dots = '\0';
        if (!of_option && word[0] != '-' && word[0] != '\0') {
            const size_t used = strlen(argument);
            (void)snprintf(argument + used, sizeof argument - used, "%s%s", used > 0 ? "|" : "", word);
        }
        of_option = word[0] == '-';
    }
    return spw_values_of(NULL, argument, out);
}
