#include "base/walk.h"

#include "base/memory.h"
#include "base/processes.h"
#include "base/progress.h"
#include "base/walk_shared.h"

bool spw_walk_is_plain(const spw_checkpoint *checkpoint) {
    return spw_processes() == 1 && checkpoint == NULL;
}

static spw_status walk_plain(const spw_walk *walk, spw_progress *progress) {
    spw_status status = SPW_OK;
    spw_note record = {.data = NULL};
    for (size_t unit = 0; unit < walk->units; unit++) {
        record.bytes = 0;
        SPW_TRY(walk->compute(walk->context, unit, &record));
        SPW_TRY(walk->take(walk->context, unit, &(spw_note_reader){record.data, record.bytes}));
        spw_progress_update(progress, unit + 1);
    }

cleanup:
    spw_free(record.data);
    return status;
}

spw_status spw_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint) {
    spw_progress progress = spw_progress_begin(walk->what, walk->unit, walk->units);
    spw_checkpoint *own = checkpoint != NULL && spw_checkpoint_claim(checkpoint) ? checkpoint : NULL;
    const spw_status status =
        spw_walk_is_plain(own) ? walk_plain(walk, &progress) : spw_walk_share(walk, own, &progress);
    spw_progress_end(&progress);
    return status;
}
