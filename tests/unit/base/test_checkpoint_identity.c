/* What a checkpoint knows its inputs by: every byte of a file of up to 16 MiB, size and time of larger ones and of a folder's files.
 * argv[1]: a scratch folder. */
#include "base/checkpoint.h"
#include "tests/unit/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* A file of so many bytes, all 7 but that at `other`, always with the same time of change. */
static void make(const char *path, off_t bytes, off_t other) {
    static const unsigned char eight = 8;
    static unsigned char seven[MIB];
    const struct timespec times[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t i = 0; i < sizeof seven; i++) seven[i] = 7;
    for (off_t at = 0; at < bytes; at += MIB)
        CHECK(write(file, seven, bytes - at < MIB ? (size_t)(bytes - at) : MIB) > 0);
    if (other >= 0) CHECK(pwrite(file, &eight, 1, other) == 1);
    CHECK(futimens(file, times) == 0);
    CHECK(close(file) == 0);
}

static uint64_t number_of(const char *path, off_t bytes, off_t other) {
    make(path, bytes, other);
    return spw_checkpoint_hash_file(0, path);
}

int main(int argc, char **argv) {
    static const off_t sizes[] = {1, 4095, MIB, 3 * MIB + 5, 16 * MIB};
    char path[1100], folder[1024];
    if (argc < 2) return 2;
    (void)snprintf(folder, sizeof folder, "%s/identity", argv[1]);
    (void)snprintf(path, sizeof path, "%s/file", folder);
    CHECK(mkdir(folder, 0700) == 0 || access(folder, W_OK) == 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const off_t size = sizes[i], places[] = {0, size / 2, size > MIB ? MIB : size - 1, size - 1};
        const uint64_t number = number_of(path, size, -1);
        CHECK(number == number_of(path, size, -1));
        CHECK(number != number_of(path, size + 1, -1));
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
            CHECK(number != number_of(path, size, places[p]));
    }
    const uint64_t large = number_of(path, 17 * MIB, -1), inside = spw_checkpoint_hash_file(0, folder);
    CHECK(large == number_of(path, 17 * MIB, 5) && inside == spw_checkpoint_hash_file(0, folder));
    CHECK(large != number_of(path, 17 * MIB + 1, -1) && inside != spw_checkpoint_hash_file(0, folder));
    make(path, 17 * MIB, -1);
    CHECK(utimensat(AT_FDCWD, path, NULL, 0) == 0);
    CHECK(large != spw_checkpoint_hash_file(0, path) && inside != spw_checkpoint_hash_file(0, folder));
    CHECK(spw_checkpoint_hash_file(1, path) != spw_checkpoint_hash_file(0, path));
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    return check_done();
}
