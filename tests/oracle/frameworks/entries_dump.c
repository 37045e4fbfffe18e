/* Reads paths, one a line, and prints for each what the file says, as a list in JSON: [name, value, line, nothing, bare, unknown]; or why
 * it is refused, as a text. */
#include "sim/frameworks/file_entries.h"

#include "base/file.h"
#include "base/memory.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *list_of(const spw_file_entries *entries) {
    json_t *list = json_array();
    for (size_t i = 0; i < entries->count; i++) {
        const spw_file_entry *e = &entries->entry[i];
        (void)json_array_append_new(list, json_pack("[ssIbbb]", e->name, e->value, (json_int_t)e->line,
                                                    e->nothing, e->bare, e->unknown));
    }
    return list;
}

int main(void) {
    char path[4096];
    while (fgets(path, sizeof path, stdin) != NULL) {
        char *text = NULL;
        size_t length = 0;
        spw_file_entries entries = {.count = 0};
        path[strcspn(path, "\n")] = '\0';
        spw_status status = spw_file_read(path, SPW_ENTRY_FILE_BYTES, &text, &length);
        if (status == SPW_OK) status = spw_file_entries_read(path, text, length, &entries);
        json_t *said = status == SPW_OK ? list_of(&entries) : json_string(spw_last_error());
        char *line = json_dumps(said, JSON_COMPACT | JSON_ENCODE_ANY);
        if (line == NULL) return 1;
        (void)puts(line);
        free(line);
        json_decref(said);
        spw_file_entries_close(&entries);
        spw_free(text);
    }
    return 0;
}
