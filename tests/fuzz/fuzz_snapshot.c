/* libFuzzer target of a recording of PyTorch's allocator, as JSON: what is read has events of blocks that there are. */
#include "sim/read/memory_snapshot.h"
#include "tests/fuzz/fuzz_input.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spw_memory_snapshot snapshot = {.events = 0};
    if (size > 1 << 18) return 0;
    const spw_status status = spw_memory_snapshot_read(spw_fuzz_file(0, "rank0.json", data, size), &snapshot);
    spw_fuzz_refusal(status);
    for (size_t i = 0; status == SPW_OK && i < snapshot.events; i++)
        if (snapshot.event[i].block >= snapshot.blocks) abort();
    spw_memory_snapshot_destroy(&snapshot);
    return 0;
}
