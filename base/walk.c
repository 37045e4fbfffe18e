#include "base/walk.h"

#include "base/memory.h"
#include "base/processes.h"
#include "base/progress.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = sizeof(double), MESSAGE_BYTES = 4096, MOST_ROUND_BYTES = 64 << 20 };
static const double ROUND_S = 1.0;
static const size_t ROUND_COPIES = 4; /* mine, as it grows, and those of all */

/* The records of a round: fewer where memory is limited. */
static size_t most_round_bytes(size_t limit) {
    enum { PART = 32 };
    return limit > 0 && limit / PART < MOST_ROUND_BYTES ? limit / PART : MOST_ROUND_BYTES;
}

size_t spw_walk_record_bytes(size_t record, size_t limit) {
    const size_t round = limit > 0 ? most_round_bytes(limit) : 0;
    return ROUND_COPIES * (record > round ? record : round);
}

/* In front of every record. */
typedef struct unit_head {
    uint64_t unit, bytes, status; /* status not SPW_OK: the bytes are the message */
} unit_head;

/* What the first process says of a round. */
typedef struct round_head {
    uint64_t units, stored_bytes; /* stored_bytes > 0: an earlier run has computed it */
} round_head;

/* --- Records --- */

spw_status spw_note_add(spw_note *record, size_t bytes, void **at) {
    const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (padded < bytes || padded > SIZE_MAX / 4 - record->bytes)
        return spw_fail(SPW_ENOMEM, "a record of %zu bytes is too large", bytes);
    if (record->capacity - record->bytes < padded) {
        const size_t capacity = 2 * (record->bytes + padded);
        char *larger = NULL;
        const spw_status status = SPW_ALLOC(capacity, &larger);
        if (status != SPW_OK) return status;
        if (record->bytes > 0) memcpy(larger, record->data, record->bytes);
        spw_free(record->data);
        record->data = larger;
        record->capacity = capacity;
    }
    *at = record->data + record->bytes;
    memset(*at, 0, padded);
    record->bytes += padded;
    return SPW_OK;
}

spw_status spw_note_next(spw_note_reader *reader, size_t bytes, const void **at) {
    const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (padded > reader->bytes)
        return spw_fail(SPW_EFORMAT, "a record of finished work has %zu bytes where %zu must follow",
                        reader->bytes, padded);
    *at = reader->data;
    reader->data += padded;
    reader->bytes -= padded;
    return SPW_OK;
}

spw_status spw_state_part(const spw_state *state, void *data, size_t bytes) {
    void *to = NULL;
    const void *from = NULL;
    spw_status status = SPW_OK;
    if (state->out != NULL) {
        SPW_TRY(spw_note_add(state->out, bytes, &to));
        if (to != NULL && bytes > 0) memcpy(to, data, bytes);
    } else {
        SPW_TRY(spw_note_next(state->in, bytes, &from));
        if (from != NULL && bytes > 0) memcpy(data, from, bytes);
    }

cleanup:
    return status;
}

/* --- One process --- */

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

/* --- Several --- */

/* A unit with its head; its failure is a record too, and counts when its turn comes. */
static spw_status compute_unit(const spw_walk *walk, size_t unit, spw_note *round) {
    const size_t at = round->bytes;
    void *place = NULL;
    spw_status status = spw_note_add(round, sizeof(unit_head), &place), found;
    if (status != SPW_OK) return status;
    found = walk->compute(walk->context, unit, round);
    if (found != SPW_OK) {
        round->bytes = at + sizeof(unit_head);
        status = spw_note_add(round, MESSAGE_BYTES, &place);
        if (status != SPW_OK) return status;
        (void)snprintf(place, MESSAGE_BYTES, "%s", spw_last_error());
    }
    const unit_head head = {unit, round->bytes - at - sizeof(unit_head), (uint64_t)found};
    memcpy(round->data + at, &head, sizeof head);
    return SPW_OK;
}

static int by_unit(const void *a, const void *b) {
    unit_head left, right;
    memcpy(&left, *(char *const *)a, sizeof left);
    memcpy(&right, *(char *const *)b, sizeof right);
    return left.unit < right.unit ? -1 : left.unit > right.unit;
}

/* The records of units [first, first + units) in any order; each is there once. */
static spw_status take_round(const spw_walk *walk, size_t first, size_t units, const char *data,
                             size_t bytes) {
    spw_status status = SPW_OK;
    const char **record = NULL;
    spw_note_reader reader = {data, bytes};
    size_t found = 0;
    unit_head head = {.unit = SIZE_MAX};
    SPW_TRY(SPW_ALLOC(units, &record));
    for (const void *at = NULL; reader.data != NULL && reader.bytes > 0; found++) {
        if (found == units) SPW_TRY(spw_fail(SPW_EFORMAT, "more records than the %zu of a round", units));
        record[found] = reader.data;
        memcpy(&head, record[found], reader.bytes < sizeof head ? reader.bytes : sizeof head);
        SPW_TRY(spw_note_next(&reader, sizeof head, &at));
        SPW_TRY(spw_note_next(&reader, (size_t)head.bytes, &at));
    }
    if (found > 0) qsort(record, found, sizeof *record, by_unit);
    for (size_t i = 0; i < units; i++) {
        if (i < found) memcpy(&head, record[i], sizeof head);
        if (i >= found || head.unit != first + i)
            SPW_TRY(spw_fail(SPW_EFORMAT, "unit %zu of a round has no record", first + i));
        reader = (spw_note_reader){record[i] + sizeof head, (size_t)head.bytes};
        if (head.status != SPW_OK)
            SPW_TRY(spw_fail((spw_status)head.status, "%.*s", MESSAGE_BYTES - 1, reader.data));
        SPW_TRY(walk->take(walk->context, first + i, &reader));
    }

cleanup:
    spw_free(record);
    return status;
}

/* Computes units [first, first + units) together and gathers their records. */
static spw_status compute_round(const spw_walk *walk, size_t first, size_t units, char **all,
                                size_t *all_bytes) {
    spw_status status = SPW_OK;
    spw_note round = {.data = NULL};
    spw_turns turns;
    size_t turn = 0;
    spw_turns_begin(&turns, units);
    while (spw_turns_next(&turns, &turn)) {
        if (status == SPW_OK) status = compute_unit(walk, first + turn, &round);
    }
    if (status == SPW_OK) status = spw_processes_gather(round.data, round.bytes, all, all_bytes);
    spw_free(round.data);
    return status;
}

/* Units of the next round: about a second of work, and not too many bytes. */
static size_t next_units(size_t units, double seconds, size_t bytes) {
    const double by_time = ROUND_S / (seconds > 1e-3 ? seconds : 1e-3),
                 by_bytes = (double)most_round_bytes(spw_memory_limited()) / (double)(bytes > 0 ? bytes : 1),
                 times = by_time < by_bytes ? by_time : by_bytes;
    const double next = (double)units * (times < 4.0 ? times : 4.0);
    return next > 1.0 ? (size_t)next : 1;
}

/* Asks the checkpoint what is done already. */
static spw_status head_of(spw_checkpoint *checkpoint, size_t units, round_head *head) {
    size_t stored = 0, bytes = 0;
    *head = (round_head){.units = units};
    const spw_status status = checkpoint != NULL ? spw_checkpoint_next(checkpoint, &stored, &bytes) : SPW_OK;
    if (status != SPW_OK) return status;
    if (stored > 0) *head = (round_head){.units = stored, .stored_bytes = bytes};
    return spw_processes_tell(head, sizeof *head);
}

static spw_status stored_round(spw_checkpoint *checkpoint, const round_head *head, char **out,
                               size_t *bytes) {
    spw_status status = SPW_OK;
    *bytes = (size_t)head->stored_bytes;
    SPW_TRY(SPW_ALLOC(*bytes, out));
    if (spw_process_is_first()) SPW_TRY(spw_checkpoint_get(checkpoint, *out));
    SPW_TRY(spw_processes_tell(*out, *bytes));

cleanup:
    return status;
}

/* The next round ends with a group where it reaches the end of one: what was found can be kept there. */
static size_t fit_group(const spw_walk *walk, size_t first, size_t units) {
    if (units > walk->units - first) units = walk->units - first;
    if (walk->state == NULL) return units;
    const size_t end = (first + units) / walk->group * walk->group;
    return end > first ? end - first : units;
}

/* Goes on where an earlier run has kept what it had found: behind units [0, *first). */
static spw_status restore(const spw_walk *walk, spw_checkpoint *checkpoint, size_t *first) {
    spw_status status = SPW_OK;
    spw_note found = {.data = NULL};
    uint64_t units = 0;
    SPW_TRY(walk->state(walk->context, &(spw_state){.out = &found}));
    if (checkpoint != NULL) SPW_TRY(spw_checkpoint_load(checkpoint, found.data, found.bytes, &units));
    SPW_TRY(spw_processes_tell(&units, sizeof units));
    if (units == 0) goto cleanup;
    if (units >= walk->units || units % walk->group != 0)
        SPW_TRY(spw_fail(SPW_EFORMAT, "the checkpoint ends where no step does"));
    SPW_TRY(spw_processes_tell(found.data, found.bytes));
    SPW_TRY(walk->state(walk->context, &(spw_state){.in = &(spw_note_reader){found.data, found.bytes}}));
    *first = (size_t)units;

cleanup:
    spw_free(found.data);
    return status;
}

static spw_status keep(const spw_walk *walk, spw_checkpoint *checkpoint, size_t units) {
    spw_note found = {.data = NULL};
    if (checkpoint == NULL || units % walk->group != 0 || units == walk->units) return SPW_OK;
    spw_status status = walk->state(walk->context, &(spw_state){.out = &found});
    if (status == SPW_OK) status = spw_checkpoint_save(checkpoint, units, found.data, found.bytes);
    spw_free(found.data);
    return status;
}

static spw_status walk_shared(const spw_walk *walk, spw_checkpoint *checkpoint, spw_progress *progress) {
    spw_status status = SPW_OK;
    char *all = NULL;
    size_t units = 2 * spw_processes(), bytes = 0, first = 0;
    if (walk->state != NULL) SPW_TRY(restore(walk, checkpoint, &first));
    spw_progress_skip(progress, first);
    while (first < walk->units) {
        round_head head;
        const double start_s = spw_clock_s();
        units = fit_group(walk, first, units);
        SPW_TRY(head_of(walk->state == NULL ? checkpoint : NULL, units, &head));
        if (head.units > walk->units - first)
            SPW_TRY(spw_fail(SPW_EFORMAT, "the checkpoint holds more units of work than there are"));
        if (head.stored_bytes > 0) {
            SPW_TRY(stored_round(checkpoint, &head, &all, &bytes));
        } else {
            SPW_TRY(compute_round(walk, first, (size_t)head.units, &all, &bytes));
        }
        SPW_TRY(take_round(walk, first, (size_t)head.units, all, bytes));
        if (checkpoint != NULL && head.stored_bytes == 0 && walk->state == NULL)
            SPW_TRY(spw_checkpoint_put(checkpoint, (size_t)head.units, all, bytes));
        spw_free(all);
        all = NULL;
        first += (size_t)head.units;
        if (walk->state != NULL) SPW_TRY(keep(walk, checkpoint, first));
        if (head.stored_bytes == 0) {
            units = next_units(units, spw_clock_s() - start_s, bytes);
        } else {
            spw_progress_skip(progress, first);
        }
        spw_progress_update(progress, first);
    }

cleanup:
    spw_free(all);
    return status;
}

spw_status spw_walk_run(const spw_walk *walk, spw_checkpoint *checkpoint) {
    spw_progress progress = spw_progress_begin(walk->what, walk->unit, walk->units);
    spw_checkpoint *own = checkpoint != NULL && spw_checkpoint_claim(checkpoint) ? checkpoint : NULL;
    const spw_status status =
        spw_walk_is_plain(own) ? walk_plain(walk, &progress) : walk_shared(walk, own, &progress);
    spw_progress_end(&progress);
    return status;
}
