/* TOML as configurations of training use it: tables, dotted keys, strings, numbers, booleans, arrays, inline tables; no dates, no
 * escapes beyond \" and \\. */
#include "sim/frameworks/file_entries.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { NESTED = 16 };

typedef struct toml_reader {
    spw_file_entries *out;
    const char *at;
    size_t line;
    char table[SPW_ENTRY_NAME];
} toml_reader;

static spw_status wrong(const toml_reader *r, const char *what) {
    return spw_fail(SPW_ECONFIG, "%s:%zu: not TOML (%s); write 'key = value' lines under [section]",
                    r->out->where, r->line, what);
}

static void skip(toml_reader *r, bool lines) {
    for (;;) {
        r->at += strspn(r->at, " \t\r");
        if (*r->at == '#') r->at += strcspn(r->at, "\n");
        if (*r->at != '\n' || !lines) return;
        r->at++, r->line++;
    }
}

/* A dotted name, of bare words and of quoted ones. */
static spw_status read_name(toml_reader *r, char out[SPW_ENTRY_NAME]) {
    size_t used = 0;
    for (;;) {
        skip(r, false);
        const char quote = (char)(*r->at == '"' || *r->at == '\'' ? *r->at++ : '\0');
        const size_t begin = used;
        while (quote != '\0' ? *r->at != quote && *r->at != '\0' && *r->at != '\n'
                             : isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-') {
            if (used + 2 >= SPW_ENTRY_NAME) return wrong(r, "a name that is too long");
            out[used++] = *r->at++;
        }
        if (used == begin || (quote != '\0' && *r->at++ != quote)) return wrong(r, "a name is missing");
        skip(r, false);
        if (*r->at != '.') break;
        r->at++;
        out[used++] = '.';
    }
    out[used] = '\0';
    return SPW_OK;
}

static spw_status put(toml_reader *r, char *out, size_t *used, char c) {
    if (*used + 1 >= SPW_ENTRY_VALUE) return wrong(r, "a value that is too long");
    out[(*used)++] = c;
    out[*used] = '\0';
    return SPW_OK;
}

static spw_status read_string(toml_reader *r, char *out, size_t *used) {
    const char quote = *r->at;
    const bool triple = r->at[1] == quote && r->at[2] == quote;
    spw_status status = SPW_OK;
    r->at += triple ? 3 : 1;
    while (status == SPW_OK && *r->at != '\0') {
        if (triple ? strncmp(r->at, (const char[]){quote, quote, quote, '\0'}, 3) == 0 : *r->at == quote) {
            r->at += triple ? 3 : 1;
            return SPW_OK;
        }
        if (*r->at == '\n' && !triple) break;
        r->line += *r->at == '\n';
        if (quote == '"' && r->at[0] == '\\' && (r->at[1] == '"' || r->at[1] == '\\')) r->at++;
        status = put(r, out, used, *r->at++);
    }
    return status == SPW_OK ? wrong(r, "a string without an end") : status;
}

static spw_status read_value(toml_reader *r, const char *name, size_t depth);

/* Items between commas. Tables within an array are kept as text. */
static spw_status read_array(toml_reader *r, char *out, size_t *used, size_t depth) {
    spw_status status = SPW_OK;
    if (depth > NESTED) return wrong(r, "arrays that are nested too deep");
    r->at++;
    for (bool first = true; status == SPW_OK; first = false) {
        skip(r, true);
        if (*r->at == ',') r->at++;
        skip(r, true);
        if (*r->at == ']') break;
        if (*r->at == '\0') return wrong(r, "an array without an end");
        if (!first) status = put(r, out, used, ',');
        if (status != SPW_OK) break;
        if (*r->at == '[') {
            status = read_array(r, out, used, depth + 1);
        } else if (*r->at == '"' || *r->at == '\'') {
            status = read_string(r, out, used);
        } else {
            const size_t length = strcspn(r->at, ",]\n#");
            if (length == 0) return wrong(r, "an item is missing");
            for (size_t i = 0; i < length && status == SPW_OK; i++, r->at++)
                if (!isspace((unsigned char)*r->at)) status = put(r, out, used, *r->at);
        }
    }
    r->at++;
    return status;
}

static spw_status read_inline_table(toml_reader *r, const char *name, size_t depth) {
    char key[SPW_ENTRY_NAME], path[2 * SPW_ENTRY_NAME];
    spw_status status = SPW_OK;
    r->at++;
    for (;;) {
        skip(r, true);
        if (*r->at == ',') r->at++;
        skip(r, true);
        if (*r->at == '}') break;
        status = read_name(r, key);
        if (status != SPW_OK) return status;
        if (*r->at++ != '=') return wrong(r, "'=' is missing");
        (void)snprintf(path, sizeof path, "%s.%s", name, key);
        status = read_value(r, path, depth + 1);
        if (status != SPW_OK) return status;
    }
    r->at++;
    return SPW_OK;
}

static spw_status read_value(toml_reader *r, const char *name, size_t depth) {
    char value[SPW_ENTRY_VALUE] = "";
    size_t used = 0;
    const size_t line = r->line;
    spw_status status = SPW_OK;
    if (depth > NESTED) return wrong(r, "tables that are nested too deep");
    skip(r, false);
    if (*r->at == '{') return read_inline_table(r, name, depth);
    if (*r->at == '"' || *r->at == '\'') {
        status = read_string(r, value, &used);
    } else if (*r->at == '[') {
        status = read_array(r, value, &used, depth);
    } else {
        while (status == SPW_OK && *r->at != '\0' && strchr("\n#,}", *r->at) == NULL) {
            if (!isspace((unsigned char)*r->at) && *r->at != '_') status = put(r, value, &used, *r->at);
            r->at++;
        }
        if (used == 0) return wrong(r, "a value is missing");
    }
    if (status != SPW_OK) return status;
    return spw_file_entries_add(r->out, name, value, (spw_file_entry){.line = line});
}

static spw_status read_line(toml_reader *r) {
    char key[SPW_ENTRY_NAME], path[2 * SPW_ENTRY_NAME];
    spw_status status = SPW_OK;
    if (*r->at == '[') {
        const bool array = r->at[1] == '[';
        r->at += array ? 2 : 1;
        status = read_name(r, r->table);
        if (status != SPW_OK) return status;
        if (*r->at != ']' || (array && r->at[1] != ']')) return wrong(r, "']' is missing");
        r->at += array ? 2 : 1;
    } else {
        status = read_name(r, key);
        if (status != SPW_OK) return status;
        if (*r->at != '=') return wrong(r, "'=' is missing");
        r->at++;
        (void)snprintf(path, sizeof path, "%s%s%s", r->table, r->table[0] != '\0' ? "." : "", key);
        status = read_value(r, path, 0);
        if (status != SPW_OK) return status;
    }
    skip(r, false);
    return *r->at == '\0' || *r->at == '\n' ? SPW_OK : wrong(r, "something behind the value");
}

spw_status spw_entries_of_toml(const char *text, spw_file_entries *out) {
    toml_reader r = {.out = out, .at = text, .line = 1, .table = ""};
    spw_status status = SPW_OK;
    for (;;) {
        skip(&r, true);
        if (*r.at == '\0' || status != SPW_OK) return status;
        status = read_line(&r);
    }
}
