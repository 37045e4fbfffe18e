/* What a configuration file of any kind says, as one flat list: a name, its value and its line. One reader a kind of file; none of
 * them runs, fetches or opens anything that the text names. */
#ifndef SPW_SIM_FRAMEWORKS_FILE_ENTRIES_H
#define SPW_SIM_FRAMEWORKS_FILE_ENTRIES_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { SPW_ENTRY_NAME = 256, SPW_ENTRY_VALUE = 2048, SPW_ENTRIES = 16384, SPW_ENTRY_FILE_BYTES = 1 << 20 };

typedef struct spw_file_entry {
    char
        *name; /* "parallelism.tensor_parallel_degree": what encloses it and it, between points; '-' is '_' */
    char *value;  /* as written, without quotes; items of a list between commas; "" where there is none */
    size_t line;  /* from 1 */
    bool nothing; /* null, None: said to be nothing */
    bool bare;    /* an argument without a value, --bf16 */
    bool unknown; /* the value has a variable in it that the file does not set */
} spw_file_entry;

typedef enum spw_file_kind {
    SPW_FILE_SHELL, /* shell scripts and command lines */
    SPW_FILE_LOG,   /* the argument block of a log of Megatron-LM */
    SPW_FILE_YAML,
    SPW_FILE_JSON,
    SPW_FILE_TOML
} spw_file_kind;

typedef struct spw_file_entries {
    const char *where; /* of messages; borrowed */
    spw_file_kind kind;
    spw_file_entry *entry;
    size_t count, room;
} spw_file_entries;

/* The kind is that of the contents, and for what could be several, of the end of the name. SPW_ECONFIG: "file:line: what; what would be
 * right"; also for a text with a zero byte, of more than SPW_ENTRIES values, or with a name or a value that is too long. *out
 * is closed by spw_file_entries_close, whatever this returned. */
SPW_MUST_CHECK spw_status spw_file_entries_read(const char *where, const char *text, size_t length,
                                                spw_file_entries *out);
void spw_file_entries_close(spw_file_entries *entries); /* a zeroed one is fine */

/* Appends a copy. `like` says all but the texts. */
SPW_MUST_CHECK spw_status spw_file_entries_add(spw_file_entries *entries, const char *name, const char *value,
                                               spw_file_entry like);

/* The readers. Each appends what the text says. */
SPW_MUST_CHECK spw_status spw_entries_of_shell(const char *text, spw_file_entries *out);
SPW_MUST_CHECK spw_status spw_entries_of_log(const char *text, spw_file_entries *out);
SPW_MUST_CHECK spw_status spw_entries_of_yaml(const char *text, size_t length, size_t first_line,
                                              spw_file_entries *out);
SPW_MUST_CHECK spw_status spw_entries_of_json(const char *text, size_t length, spw_file_entries *out);
SPW_MUST_CHECK spw_status spw_entries_of_toml(const char *text, spw_file_entries *out);

#endif
