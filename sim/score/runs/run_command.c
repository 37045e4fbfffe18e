#include "sim/score/runs/run_command.h"

#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* The next word, cut off in place; *word is NULL at the end. Quotes are taken out. */
static spw_status next_word(const char *where, char **at, char **word) {
    char *from = *at + strspn(*at, " \t"), *to = from;
    bool quoted = false;
    *word = *from != '\0' ? from : NULL;
    while (*from != '\0' && (quoted || (*from != ' ' && *from != '\t'))) {
        if (*from == '\'')
            quoted = !quoted;
        else
            *to++ = *from;
        from++;
    }
    if (quoted) return spw_fail(SPW_ECONFIG, "%s: command: a quote without its end", where);
    *at = *from != '\0' ? from + 1 : from;
    *to = '\0';
    return SPW_OK;
}

/* Options of a job's keys that no column of a table of runs says. */
static const struct {
    const char *option, *key;
} options[] = {{"--optimizer", "optimizer"}, {"--expert-tensor", "parallel.expert_tensor"},
               {"--fsdp", "parallel.fsdp"},  {"--data", "parallel.data"},
               {"--precision", "precision"}, {"--memory-fraction", "memory_fraction"}};

static const char *key_of(const char *option) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (strcmp(options[i].option, option) == 0) return options[i].key;
    return NULL;
}

/* key NULL: `text` is KEY=VALUE, of --set. */
static spw_status put_set(const char *where, const char *key, char *text, spw_run_command *out) {
    char *equals = key == NULL ? strchr(text, '=') : NULL;
    if (key == NULL && (equals == NULL || equals == text))
        return spw_fail(SPW_ECONFIG, "%s: command: --set '%.60s'; write KEY=VALUE", where, text);
    if (out->sets == SPW_RUN_COMMAND_SETS)
        return spw_fail(SPW_ECONFIG, "%s: command: more than %d values of keys", where,
                        (int)SPW_RUN_COMMAND_SETS);
    if (equals != NULL) *equals = '\0';
    out->set[out->sets].key = key != NULL ? key : text;
    out->set[out->sets++].value = equals != NULL ? equals + 1 : text;
    return SPW_OK;
}

static spw_status read_words(const char *where, spw_run_command *out) {
    char *at = out->text, *word = NULL;
    spw_status status = next_word(where, &at, &word);
    while (status == SPW_OK && word != NULL) {
        const char *option = word, *key = key_of(word);
        const bool set = strcmp(word, "--set") == 0 || key != NULL;
        const char **target = strcmp(word, "--model") == 0    ? &out->model
                              : strcmp(word, "--scheme") == 0 ? &out->scheme
                                                              : NULL;
        status = next_word(where, &at, &word);
        if (status != SPW_OK || (!set && target == NULL)) continue;
        if (word == NULL) return spw_fail(SPW_ECONFIG, "%s: command: %s without a value", where, option);
        if (set)
            status = put_set(where, key, word, out);
        else
            *target = word;
        if (status == SPW_OK) status = next_word(where, &at, &word);
    }
    return status;
}

spw_status spw_run_command_read(const char *where, const char *text, spw_run_command *out) {
    spw_status status = SPW_OK;
    *out = (spw_run_command){.sets = 0};
    if (text == NULL || text[0] == '\0') return SPW_OK;
    SPW_TRY(SPW_ALLOC(strlen(text) + 1, &out->text));
    memcpy(out->text, text, strlen(text) + 1);
    SPW_TRY(read_words(where, out));

cleanup:
    if (status != SPW_OK) spw_run_command_close(out);
    return status;
}

void spw_run_command_close(spw_run_command *command) {
    spw_free(command->text);
    *command = (spw_run_command){.sets = 0};
}
