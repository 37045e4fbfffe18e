/* One entry more, for every kind of file. */
#include "base/memory.h"
#include "sim/frameworks/file_entries.h"

#include <ctype.h>
#include <string.h>

static spw_status copy_text(const char *text, char **out) {
    const size_t size = strlen(text) + 1;
    spw_status status = SPW_ALLOC(size, out);
    if (status == SPW_OK) memcpy(*out, text, size);
    return status;
}

static spw_status grow(spw_file_entries *e) {
    spw_file_entry *more = NULL;
    const size_t room = e->room > 0 ? 2 * e->room : 64;
    const spw_status status = SPW_ALLOC(room, &more);
    if (status != SPW_OK) return status;
    if (e->count > 0) memcpy(more, e->entry, e->count * sizeof *more);
    spw_free(e->entry);
    e->entry = more;
    e->room = room;
    return SPW_OK;
}

/* 32_000, as YAML 1.1, TOML and Python write 32000: digits on both sides of every underscore. */
static void join_digits(char *value) {
    const char *at = value + (*value == '-' || *value == '+');
    char before = '\0';
    for (const char *c = at; *c != '\0'; before = *c++)
        if (*c == '_' ? !isdigit((unsigned char)before) || !isdigit((unsigned char)c[1])
                      : !isdigit((unsigned char)*c))
            return;
    char *out = value;
    for (const char *c = value; *c != '\0'; c++)
        if (*c != '_') *out++ = *c;
    *out = '\0';
}

spw_status spw_file_entries_add(spw_file_entries *e, const char *name, const char *value,
                                spw_file_entry like) {
    spw_status status = SPW_OK;
    if (e->count == SPW_ENTRIES)
        return spw_fail(SPW_ECONFIG, "%s:%zu: more than %d values in one file", e->where, like.line,
                        SPW_ENTRIES);
    if (strlen(name) >= SPW_ENTRY_NAME || strlen(value) >= SPW_ENTRY_VALUE)
        return spw_fail(SPW_ECONFIG, "%s:%zu: a name or a value of more than %d or %d characters", e->where,
                        like.line, SPW_ENTRY_NAME - 1, SPW_ENTRY_VALUE - 1);
    if (e->count == e->room && (status = grow(e)) != SPW_OK) return status;
    spw_file_entry *entry = &e->entry[e->count];
    *entry = like;
    entry->name = entry->value = NULL;
    e->count++;
    status = copy_text(name, &entry->name);
    if (status == SPW_OK) status = copy_text(value, &entry->value);
    if (status != SPW_OK) return status;
    join_digits(entry->value);
    for (char *c = entry->name; *c != '\0'; c++) *c = (char)(*c == '-' ? '_' : *c);
    return SPW_OK;
}
