/* A walk (base/walk.h) whose units several processes compute, or that a checkpoint keeps. The others ask the first for ranges of units
 * and send it their records, a message a range; it takes them in order while they go on, and computes units itself when no record
 * waits. It gives away only so many units that the records which wait for earlier ones stay few. */
#ifndef SPW_BASE_WALK_SHARED_H
#define SPW_BASE_WALK_SHARED_H

#include "base/progress.h"
#include "base/walk.h"

/* Records that wait, in a process of at most `limit` bytes; 0: as much as there is. */
size_t spw_walk_most_bytes(size_t limit);

/* Together. checkpoint: NULL, or one that the walk has claimed. */
SPW_MUST_CHECK spw_status spw_walk_share(const spw_walk *walk, spw_checkpoint *checkpoint,
                                         spw_progress *progress);

#endif
