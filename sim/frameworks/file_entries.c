#include "sim/frameworks/file_entries.h"

#include "base/memory.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

void spw_file_entries_close(spw_file_entries *e) {
    for (size_t i = 0; i < e->count; i++) {
        spw_free(e->entry[i].name);
        spw_free(e->entry[i].value);
    }
    spw_free(e->entry);
    *e = (spw_file_entries){.where = e->where};
}

/* --- Which kind --- */

static bool ends_in(const char *name, const char *const *ends) {
    for (; *ends != NULL; ends++) {
        const size_t length = strlen(name), tail = strlen(*ends);
        if (length >= tail && strcmp(name + length - tail, *ends) == 0) return true;
    }
    return false;
}

/* The first letter that is no blank and in no comment; 0: none. */
static char first_letter(const char *text) {
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (*text != '#') return *text;
        text += strcspn(text, "\n");
    }
}

/* "[section]" alone in a line. */
static bool has_section(const char *text) {
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += strspn(line, "\n");
        const char *at = line + strspn(line, " \t");
        if (*at != '[') continue;
        const size_t length =
            strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
        if (length > 0 && at[1 + length] == ']' && strchr("\r\n# ", at[2 + length]) != NULL) return true;
    }
    return false;
}

/* Is every line that is not indented "key: value", "key:" or an item of a list, whatever the file is called? */
static bool has_keys_alone(const char *text) {
    size_t keys = 0;
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        const size_t word = strspn(line, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
        if (strchr(" \t\r\n#", *line) != NULL || strncmp(line, "---", 3) == 0 || strncmp(line, "- ", 2) == 0)
            continue;
        if (word == 0 || line[word] != ':' || line[word + 1] == '\0' ||
            strchr(" \t\r\n", line[word + 1]) == NULL)
            return false;
        keys++;
    }
    return keys > 0;
}

static spw_file_kind kind_of(const char *where, const char *text) {
    static const char *const yaml[] = {".yaml", ".yml", NULL}, *const json[] = {".json", NULL},
                             *const toml[] = {".toml", NULL};
    if (ends_in(where, json) || first_letter(text) == '{') return SPW_FILE_JSON;
    if (ends_in(where, toml)) return SPW_FILE_TOML;
    if (ends_in(where, yaml)) return SPW_FILE_YAML;
    if (strstr(text, " arguments ---") != NULL || strstr(text, "- Task Configuration -") != NULL)
        return SPW_FILE_LOG;
    if (has_section(text)) return SPW_FILE_TOML;
    return has_keys_alone(text) ? SPW_FILE_YAML : SPW_FILE_SHELL;
}

spw_status spw_file_entries_read(const char *where, const char *text, size_t length, spw_file_entries *out) {
    *out = (spw_file_entries){.where = where};
    text = spw_text_skip_mark(text, &length);
    if (length > SPW_ENTRY_FILE_BYTES)
        return spw_fail(SPW_ECONFIG, "%s: larger than the %d bytes allowed", where, SPW_ENTRY_FILE_BYTES);
    const char *zero = memchr(text, '\0', length);
    if (zero != NULL)
        return spw_fail(SPW_ECONFIG, "%s: a zero byte at %zu; give a text", where, (size_t)(zero - text));
    out->kind = kind_of(where, text);
    switch (out->kind) {
    case SPW_FILE_LOG: return spw_entries_of_log(text, out);
    case SPW_FILE_YAML: return spw_entries_of_yaml(text, length, 1, out);
    case SPW_FILE_JSON: return spw_entries_of_json(text, length, out);
    case SPW_FILE_TOML: return spw_entries_of_toml(text, out);
    default: return spw_entries_of_shell(text, out);
    }
}
