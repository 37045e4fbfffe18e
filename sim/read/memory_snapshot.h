/* A snapshot of PyTorch's memory, as JSON: json.dump(torch.cuda.memory._snapshot(), file), recorded by
 * torch.cuda.memory._record_memory_history(max_entries=..., context=None) from before the model is built. */
#ifndef SPW_SIM_READ_MEMORY_SNAPSHOT_H
#define SPW_SIM_READ_MEMORY_SNAPSHOT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block is allocated, or can be used again. */
typedef struct spw_snapshot_event {
    uint64_t bytes; /* requested */
    uint32_t block; /* in the order of their births */
    bool born;
} spw_snapshot_event;

typedef struct spw_memory_snapshot {
    spw_snapshot_event *event; /* first the blocks that lived before the recording began */
    size_t events, blocks;
    size_t earlier; /* blocks that lived before */
} spw_memory_snapshot;

enum { SPW_SNAPSHOT_MEGABYTES = 2048 }; /* most that a file may have */

/* SPW_ECONFIG: not such a file, events of more than one device, a run that ran out of memory, or nothing recorded; the
 * message says what would be right. SPW_EIO: the file cannot be read. */
SPW_MUST_CHECK spw_status spw_memory_snapshot_read(const char *path, spw_memory_snapshot *out);
void spw_memory_snapshot_destroy(spw_memory_snapshot *snapshot); /* leaves an empty one */

#endif
