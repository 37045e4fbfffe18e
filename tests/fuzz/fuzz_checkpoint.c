/* libFuzzer target of a checkpoint that a kill, a full disk or a stranger has left: it is refused and stays as it is, or its blocks are
 * read, no larger than the file, and what is appended is found behind them. */
#include "base/checkpoint.h"
#include "base/memory.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>
#include <string.h>

enum { RUN = 42, LARGEST = 1 << 16, SAVED = 16 };
static const char mark[] = "appended";

/* Units of all blocks that are there; *last: the last one is the mark. */
static size_t read_blocks(spw_checkpoint *checkpoint, size_t most, bool *last) {
    size_t all = 0, units = 0, bytes = 0;
    for (*last = false;; all += units) {
        void *block = NULL;
        spw_status status = spw_checkpoint_next(checkpoint, &units, &bytes);
        spw_fuzz_refusal(status);
        if (status != SPW_OK || units == 0) return all;
        if (bytes > most) abort();
        if (spw_alloc(bytes, 1, &block) != SPW_OK) abort();
        status = spw_checkpoint_get(checkpoint, block);
        spw_fuzz_refusal(status);
        *last = status == SPW_OK && bytes == sizeof mark && memcmp(block, mark, sizeof mark) == 0;
        spw_free(block);
        if (status != SPW_OK) return all;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spw_checkpoint *checkpoint = NULL;
    char saved[SAVED];
    uint64_t units = 0;
    bool last = false;
    if (size > LARGEST) return 0;
    const char *path = spw_fuzz_file(0, "checkpoint", data, size);
    spw_status status = spw_checkpoint_open(path, RUN, &checkpoint);
    spw_fuzz_refusal(status);
    if (status != SPW_OK) return 0;
    (void)read_blocks(checkpoint, size, &last);
    status = spw_checkpoint_put(checkpoint, 3, mark, sizeof mark);
    spw_fuzz_refusal(status);
    spw_checkpoint_close(checkpoint);
    if (status != SPW_OK) return 0;
    if (spw_checkpoint_open(path, RUN, &checkpoint) != SPW_OK) abort();
    if (read_blocks(checkpoint, size + 2 * sizeof mark, &last) < 3 || !last) abort();
    spw_checkpoint_close(checkpoint);
    if (spw_checkpoint_open(spw_fuzz_file(1, "saved", data, size), RUN, &checkpoint) != SPW_OK) abort();
    spw_fuzz_refusal(spw_checkpoint_load(checkpoint, saved, sizeof saved, &units));
    spw_checkpoint_close(checkpoint);
    return 0;
}
