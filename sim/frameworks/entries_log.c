/* The argument block of a log. Megatron-LM prints "  name ........ value" between two rulers (megatron/training/arguments.py
 * _print_args), Megatron-Bridge its configuration as YAML behind "Task Configuration" (training/setup.py). */
#include "sim/frameworks/file_entries.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static size_t line_of(const char *text, const char *at) {
    size_t line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

/* Lines may begin with a rank: "[default0]: ", "0: ". The name is the last word before the points. */
static spw_status read_line(const char *line, size_t length, size_t number, spw_file_entries *out) {
    char name[SPW_ENTRY_NAME], value[SPW_ENTRY_VALUE];
    const char *end = line + length, *points = NULL;
    for (const char *at = line; at + 2 < end && points == NULL; at++)
        if (at[0] == ' ' && at[1] == '.' && (at[2] == '.' || at[2] == ' ')) points = at;
    if (points == NULL) return SPW_OK;
    const char *begin = points;
    while (begin > line && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
    const char *from = points + 1;
    while (from < end && *from == '.') from++;
    while (from < end && *from == ' ') from++;
    while (end > from && isspace((unsigned char)end[-1])) end--;
    if (begin == points || points - begin >= (ptrdiff_t)sizeof name || end - from >= (ptrdiff_t)sizeof value)
        return SPW_OK;
    (void)snprintf(name, sizeof name, "%.*s", (int)(points - begin), begin);
    (void)snprintf(value, sizeof value, "%.*s", (int)(end - from), from);
    size_t used = 0;
    for (const char *c = value; *c != '\0'; c++) /* Python's lists: ['core_attn', 'moe_act'] */
        if (strchr("'[] ", *c) == NULL || value[0] != '[') value[used++] = *c;
    value[used] = '\0';
    return spw_file_entries_add(out, name, value,
                                (spw_file_entry){.line = number, .nothing = strcmp(value, "None") == 0});
}

/* The YAML behind the ruler, up to the next one. */
static spw_status read_task(const char *text, const char *ruler, spw_file_entries *out) {
    const char *begin = strchr(ruler, '\n'), *end = NULL;
    if (begin == NULL) return SPW_OK;
    for (end = ++begin; *end != '\0' && strncmp(end, "----", 4) != 0;) {
        const char *next = strchr(end, '\n');
        end = next != NULL ? next + 1 : end + strlen(end);
    }
    out->kind = SPW_FILE_YAML;
    return spw_entries_of_yaml(begin, (size_t)(end - begin), line_of(text, begin), out);
}

spw_status spw_entries_of_log(const char *text, spw_file_entries *out) {
    const char *ruler = strstr(text, "- Task Configuration -");
    if (ruler != NULL) return read_task(text, ruler, out);
    const char *at = strstr(text, " arguments ---"), *end = strstr(at, "end of arguments");
    size_t number = line_of(text, at);
    for (at = strchr(at, '\n'); at != NULL && (end == NULL || at < end); at = strchr(at, '\n')) {
        at++;
        number++;
        const spw_status status = read_line(at, strcspn(at, "\n"), number, out);
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}
