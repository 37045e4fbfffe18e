/* Runs a fuzz target over its corpus as an ordinary test: every argument is a file, or a folder of files. */
#include "base/file.h"
#include "base/memory.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 26 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many inputs ran; 0 on failure. The bytes are copied so that a read behind the end is seen by asan. */
static size_t replay_file(const char *path) {
    char *text = NULL;
    uint8_t *data = NULL;
    size_t length = 0;
    spw_status status = spw_file_read(path, LARGEST, &text, &length);
    if (status == SPW_OK) data = malloc(length > 0 ? length : 1);
    if (data == NULL) {
        fprintf(stderr, "%s: %s\n", path, spw_last_error());
        return 0;
    }
    memcpy(data, text, length);
    (void)LLVMFuzzerTestOneInput(data, length);
    free(data);
    spw_free(text);
    return 1;
}

static size_t replay(const char *path) {
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) return replay_file(path);
    size_t done = 0;
    for (int i = 0; i < count; i++) {
        char inside[4096];
        (void)snprintf(inside, sizeof inside, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') done += replay_file(inside);
        free(entries[i]);
    }
    free(entries);
    return done;
}

int main(int argc, char **argv) {
    size_t done = 0;
    for (int i = 1; i < argc; i++) {
        size_t inputs = replay(argv[i]);
        if (inputs == 0) return 1;
        done += inputs;
    }
    printf("%zu inputs replayed\n", done);
    return done > 0 ? 0 : 1;
}
