/* Work in numbered units that many processes share (base/processes.h) and that may be gone on with after a kill. What a unit
 * finds is a record of bytes; records are taken in order of their units by the first process, so that what is made of them does not
 * depend on who computed what, to the last bit. At the end the others are told what was found, so that all of them go on alike. */
#ifndef SPW_BASE_WALK_H
#define SPW_BASE_WALK_H

#include "base/checkpoint.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A record under way. */
typedef struct spw_note {
    char *data;
    size_t bytes, capacity;
} spw_note;

/* *at = `bytes` more, zeroed, aligned as a double is; valid until the next call. */
SPW_MUST_CHECK spw_status spw_note_add(spw_note *record, size_t bytes, void **at);
/* What stands in the record from `begin` on, once more. */
SPW_MUST_CHECK spw_status spw_note_again(spw_note *record, size_t begin, size_t bytes);

/* A record that is read, front to back. */
typedef struct spw_note_reader {
    const char *data;
    size_t bytes;
} spw_note_reader;

/* The next `bytes` as they were added; SPW_EFORMAT when there are fewer. */
SPW_MUST_CHECK spw_status spw_note_next(spw_note_reader *reader, size_t bytes, const void **at);

/* What a walk has found so far, on its way into a record (`out`) or back (`in`): one list of parts serves both. */
typedef struct spw_state {
    spw_note *out; /* NULL: `in` is read */
    spw_note_reader *in;
} spw_state;

/* The next part of it. */
SPW_MUST_CHECK spw_status spw_state_part(const spw_state *state, void *data, size_t bytes);

typedef struct spw_walk {
    const char *what, *unit; /* for the progress: what is done, and what a unit is called, as "layers" */
    size_t units;
    void *context;
    /* What one unit finds. Units of a process rise, with gaps; between two units others may be taken. */
    spw_status (*compute)(void *context, size_t unit, spw_note *out);
    /* Units 0, 1, ... one after the other, by the first process alone. */
    spw_status (*take)(void *context, size_t unit, spw_note_reader *record);
    /* All parts of what was found when a multiple of `group` units has been taken, always as many bytes: a checkpoint keeps no
     * more. NULL: a checkpoint keeps the record of every unit. */
    spw_status (*state)(void *context, const spw_state *state);
    size_t group; /* 0: none; units of a group go to one process where they can */
    /* All parts of what the walk has found, when it is over, for processes that have taken nothing. */
    spw_status (*found)(void *context, const spw_state *state);
} spw_walk;

/* What a walk whose largest record has `record` bytes holds of records at most, in a process of at most `limit` bytes; 0: one that
 * takes each record right after it was computed. */
size_t spw_walk_record_bytes(size_t record, size_t limit);

/* Is a unit taken right after it was computed? Else `compute` runs ahead of `take`. */
bool spw_walk_is_plain(const spw_checkpoint *checkpoint);

/* Together. checkpoint: of the first process, or NULL, as the others have it; the first walk of it alone is kept. A failure is that of
 * the first unit that fails, on all processes. */
SPW_MUST_CHECK spw_status spw_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint);

/* Together: the first process alone works, and tells the others what it found. */
SPW_MUST_CHECK spw_status spw_walk_alone(spw_status (*work)(void *context),
                                         spw_status (*found)(void *context, const spw_state *state),
                                         void *context);

#endif
