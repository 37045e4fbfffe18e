#include "base/checkpoint.h"

#include "base/memory.h"
#include "base/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char mark[16] = "spillway-check1";

typedef struct file_head {
    char mark[16];
    uint64_t run;
} file_head;

typedef struct block_head {
    uint64_t units, bytes, sum; /* sum: hash of the bytes */
} block_head;

struct spw_checkpoint {
    char *path;
    int file;
    off_t at, end; /* of the blocks of an earlier run: next, and behind the last */
    off_t size;    /* of the file when it was opened, until the blocks in it have been looked at */
    bool claimed;  /* by a walk */
    int slot;      /* where the next block is saved, of two */
};

uint64_t spw_checkpoint_hash(uint64_t before, const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint64_t sum = before ^ (bytes * 0x9e3779b97f4a7c15u), word = 0;
    while (bytes > 0) {
        const size_t part = bytes < sizeof word ? bytes : sizeof word;
        word = 0;
        memcpy(&word, at, part);
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 32;
        at += part, bytes -= part;
    }
    return sum;
}

/* Of a large file or a folder's entry: what tells of a change without reading it. */
static uint64_t hash_entry(uint64_t before, const struct stat *entry) {
    const int64_t about[] = {entry->st_size, entry->st_mtim.tv_sec, entry->st_mtim.tv_nsec};
    return spw_checkpoint_hash(before, about, sizeof about);
}

static uint64_t hash_folder(uint64_t sum, const char *path) {
    struct dirent **entry = NULL;
    struct stat about;
    const int entries = scandir(path, &entry, NULL, alphasort), folder = open(path, O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < entries; i++) {
        const char *name = entry[i]->d_name;
        if (fstatat(folder, name, &about, 0) == 0 && S_ISREG(about.st_mode))
            sum = hash_entry(spw_checkpoint_hash(sum, name, strlen(name)), &about);
        free(entry[i]);
    }
    free(entry);
    if (folder >= 0) (void)close(folder);
    return sum;
}

uint64_t spw_checkpoint_hash_file(uint64_t before, const char *path) {
    enum { PART = 1 << 20, WHOLE = 16 };
    struct stat entry;
    char *part = NULL;
    uint64_t sum = before;
    if (stat(path, &entry) != 0) return sum;
    if (S_ISDIR(entry.st_mode)) return hash_folder(sum, path);
    const int file = S_ISREG(entry.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || SPW_ALLOC(PART, &part) != SPW_OK) goto cleanup;
    sum = spw_checkpoint_hash(sum, &entry.st_size, sizeof entry.st_size);
    if (entry.st_size > (off_t)WHOLE * PART) {
        sum = hash_entry(sum, &entry);
        goto cleanup;
    }
    for (ssize_t got = read(file, part, PART); got > 0; got = read(file, part, PART))
        sum = spw_checkpoint_hash(sum, part, (size_t)got);

cleanup:
    spw_free(part);
    if (file >= 0) (void)close(file);
    return sum;
}

/* All of it, or an error. */
static bool move(int file, void *data, size_t bytes, off_t at, bool write_it) {
    for (size_t done = 0; done < bytes;) {
        char *next = (char *)data + done;
        const ssize_t part = write_it ? pwrite(file, next, bytes - done, at + (off_t)done)
                                      : pread(file, next, bytes - done, at + (off_t)done);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return false;
        done += (size_t)part;
    }
    return true;
}

/* Where whole blocks end: what is behind them was under way when the run was killed. */
static spw_status find_end(spw_checkpoint *c) {
    const off_t size = c->size;
    spw_status status = SPW_OK;
    c->size = 0;
    char *data = NULL;
    block_head head;
    while (c->end + (off_t)sizeof head <= size && move(c->file, &head, sizeof head, c->end, false)) {
        if (head.units == 0 || head.bytes > (uint64_t)(size - c->end) - sizeof head) break;
        spw_free(data);
        data = NULL;
        SPW_TRY(SPW_ALLOC((size_t)head.bytes, &data));
        if (!move(c->file, data, (size_t)head.bytes, c->end + (off_t)sizeof head, false)) break;
        if (spw_checkpoint_hash(head.units, data, (size_t)head.bytes) != head.sum) break;
        c->end += (off_t)(sizeof head + head.bytes);
    }
    if (ftruncate(c->file, c->end) != 0)
        status = spw_fail(SPW_EIO, "%s: cannot be cut to what is whole: %s", c->path, strerror(errno));

cleanup:
    spw_free(data);
    return status;
}

static spw_status begin(spw_checkpoint *c, uint64_t run) {
    struct stat entry;
    file_head head = {.run = run};
    memcpy(head.mark, mark, sizeof mark);
    if (fstat(c->file, &entry) != 0 || !S_ISREG(entry.st_mode))
        return spw_fail(SPW_EIO, "%s: no regular file; a checkpoint must be one", c->path);
    if (flock(c->file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return spw_fail(SPW_EIO, "%s: another run has this checkpoint open", c->path);
    c->at = c->end = sizeof head;
    if (entry.st_size == 0) {
        if (move(c->file, &head, sizeof head, 0, true) && fsync(c->file) == 0) return SPW_OK;
        return spw_fail(SPW_EIO, "%s: cannot be written: %s", c->path, strerror(errno));
    }
    file_head there = {.run = 0};
    const bool read = move(c->file, &there, sizeof there, 0, false);
    if (!read && entry.st_size < (off_t)sizeof head && entry.st_size > 0 &&
        move(c->file, &there, (size_t)entry.st_size, 0, false) &&
        memcmp(&there, &head, (size_t)entry.st_size) == 0) { /* killed while it was begun */
        return move(c->file, &head, sizeof head, 0, true)
                   ? SPW_OK
                   : spw_fail(SPW_EIO, "%s: cannot be written: %s", c->path, strerror(errno));
    }
    if (!read || memcmp(there.mark, mark, sizeof mark) != 0)
        return spw_fail(SPW_EFORMAT, "%s: no checkpoint; name a file that does not exist yet", c->path);
    if (there.run != run)
        return spw_fail(SPW_EARG,
                        "%s: a checkpoint of another command, of other inputs or of another version; name "
                        "another file, or remove it",
                        c->path);
    c->size = entry.st_size;
    return SPW_OK;
}

spw_status spw_checkpoint_open(const char *path, uint64_t run, spw_checkpoint **out) {
    spw_status status = SPW_OK;
    spw_checkpoint *c = NULL;
    *out = NULL;
    SPW_TRY(spw_file_check_output(path));
    SPW_TRY(SPW_ALLOC(1, &c));
    c->file = -1;
    SPW_TRY(SPW_ALLOC(strlen(path) + 1, &c->path));
    memcpy(c->path, path, strlen(path) + 1);
    c->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (c->file < 0) SPW_TRY(spw_fail(SPW_EIO, "%s: %s", path, strerror(errno)));
    SPW_TRY(begin(c, run));
    *out = c;
    c = NULL;

cleanup:
    spw_checkpoint_close(c);
    return status;
}

void spw_checkpoint_close(spw_checkpoint *c) {
    if (c == NULL) return;
    if (c->file >= 0) (void)close(c->file);
    spw_free(c->path);
    spw_free(c);
}

void spw_checkpoint_finish(spw_checkpoint *c) {
    if (c == NULL) return;
    (void)unlink(c->path);
    spw_checkpoint_close(c);
}

bool spw_checkpoint_claim(spw_checkpoint *c) {
    const bool first = !c->claimed;
    c->claimed = true;
    return first;
}

spw_status spw_checkpoint_next(spw_checkpoint *c, size_t *units, size_t *bytes) {
    block_head head = {.units = 0};
    const spw_status status = c->size > 0 ? find_end(c) : SPW_OK;
    if (c->at < c->end && !move(c->file, &head, sizeof head, c->at, false)) head = (block_head){.units = 0};
    *units = (size_t)head.units;
    *bytes = (size_t)head.bytes;
    return status;
}

spw_status spw_checkpoint_get(spw_checkpoint *c, void *data) {
    block_head head;
    if (!move(c->file, &head, sizeof head, c->at, false) ||
        !move(c->file, data, (size_t)head.bytes, c->at + (off_t)sizeof head, false))
        return spw_fail(SPW_EIO, "%s: cannot be read: %s", c->path, strerror(errno));
    c->at += (off_t)(sizeof head + head.bytes);
    return SPW_OK;
}

spw_status spw_checkpoint_put(spw_checkpoint *c, size_t units, const void *data, size_t bytes) {
    block_head head = {units, bytes, spw_checkpoint_hash(units, data, bytes)};
    const bool whole = move(c->file, &head, sizeof head, c->end, true) &&
                       move(c->file, (void *)data, bytes, c->end + (off_t)sizeof head, true) &&
                       fdatasync(c->file) == 0;
    if (!whole) return spw_fail(SPW_EIO, "%s: cannot be written: %s", c->path, strerror(errno));
    c->end += (off_t)(sizeof head + bytes);
    c->at = c->end;
    return SPW_OK;
}

/* --- One block, in two slots by turns --- */

static off_t slot_at(int slot, size_t bytes) {
    return (off_t)sizeof(file_head) + slot * (off_t)(sizeof(block_head) + bytes);
}

spw_status spw_checkpoint_save(spw_checkpoint *c, uint64_t units, const void *data, size_t bytes) {
    block_head head = {units, bytes, spw_checkpoint_hash(units, data, bytes)};
    const off_t at = slot_at(c->slot, bytes);
    const bool whole = move(c->file, (void *)data, bytes, at + (off_t)sizeof head, true) &&
                       move(c->file, &head, sizeof head, at, true) && fdatasync(c->file) == 0;
    if (!whole) return spw_fail(SPW_EIO, "%s: cannot be written: %s", c->path, strerror(errno));
    c->slot = 1 - c->slot;
    return SPW_OK;
}

spw_status spw_checkpoint_load(spw_checkpoint *c, void *data, size_t bytes, uint64_t *units) {
    spw_status status = SPW_OK;
    char *found = NULL;
    *units = 0;
    SPW_TRY(SPW_ALLOC(bytes, &found));
    for (int slot = 0; slot < 2; slot++) {
        block_head head = {.units = 0};
        const off_t at = slot_at(slot, bytes);
        if (!move(c->file, &head, sizeof head, at, false) || head.bytes != bytes || head.units <= *units ||
            !move(c->file, found, bytes, at + (off_t)sizeof head, false) ||
            spw_checkpoint_hash(head.units, found, bytes) != head.sum)
            continue;
        memcpy(data, found, bytes);
        *units = head.units;
        c->slot = 1 - slot;
    }

cleanup:
    spw_free(found);
    return status;
}
