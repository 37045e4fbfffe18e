#include "tests/fuzz/fuzz_input.h"

#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOTS = 8 };

static char folder[64], path[SLOTS][128];
static pid_t owner; /* a child removes nothing */

void spw_fuzz_refusal(spw_status status) {
    const char *message = spw_last_error();
    if (status != SPW_OK && (message[0] == '\0' || strchr(message, '\n') != NULL)) abort();
}

static void remove_folder(void) {
    DIR *listed = owner == getpid() ? opendir(folder) : NULL;
    if (listed == NULL) return;
    for (const struct dirent *entry = readdir(listed); entry != NULL; entry = readdir(listed))
        (void)unlinkat(dirfd(listed), entry->d_name, 0);
    (void)closedir(listed);
    (void)rmdir(folder);
}

static void make_folder(void) {
    if (folder[0] != '\0' && owner == getpid()) return;
    (void)snprintf(folder, sizeof folder, "%s/spw_fuzz.XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(folder) == NULL) abort();
    owner = getpid();
    (void)atexit(remove_folder);
}

const char *spw_fuzz_path(int slot, const char *name) {
    make_folder();
    spw_file_forget_reads(); /* every input is a run of its own */
    (void)snprintf(path[slot], sizeof path[slot], "%s/%s", folder, name);
    return path[slot];
}

const char *spw_fuzz_file(int slot, const char *name, const uint8_t *data, size_t size) {
    const char *made = spw_fuzz_path(slot, name);
    const int descriptor = open(made, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (descriptor < 0 || write(descriptor, data, size) != (ssize_t)size || close(descriptor) != 0) abort();
    return made;
}
