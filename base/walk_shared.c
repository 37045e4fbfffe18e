#include "base/walk_shared.h"

#include "base/failure.h"
#include "base/memory.h"
#include "base/processes.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096, MOST_WAITING = 1 << 14 };
static const double RANGE_S = 0.1;                          /* of work in a range */
static const double KEEP_FIRST_S = 0.02, KEEP_MOST_S = 1.0; /* between two blocks of a checkpoint */

/* In front of the records of a range. */
typedef struct range_head {
    uint64_t units;
    double seconds; /* that they took */
} range_head;

/* In front of every record. */
typedef struct unit_head {
    uint64_t unit, bytes, status; /* status not SPW_OK: the bytes are the message */
} unit_head;

/* What the first process says at the end. */
typedef struct end_note {
    uint64_t status, bytes; /* of what was found */
    char message[MESSAGE_BYTES];
} end_note;

/* --- Units --- */

/* A unit with its head; its failure is a record too, and counts when its turn comes. */
static spw_status compute_unit(const spw_walk *walk, size_t unit, spw_note *range) {
    const size_t at = range->bytes;
    void *place = NULL;
    spw_status status = spw_note_add(range, sizeof(unit_head), &place), found;
    if (status != SPW_OK) return status;
    found = walk->compute(walk->context, unit, range);
    if (found != SPW_OK) {
        range->bytes = at + sizeof(unit_head);
        status = spw_note_add(range, MESSAGE_BYTES, &place);
        if (status != SPW_OK) return status;
        (void)snprintf(place, MESSAGE_BYTES, "%s", spw_last_error());
    }
    const unit_head head = {unit, range->bytes - at - sizeof(unit_head), (uint64_t)found};
    memcpy(range->data + at, &head, sizeof head);
    return SPW_OK;
}

/* Units [begin, end) as a message. */
static spw_status compute_range(const spw_walk *walk, size_t begin, size_t end, spw_note *range) {
    const spw_process_link *link = spw_processes_link();
    const double start_s = spw_clock_s();
    void *place = NULL;
    spw_status status = SPW_OK;
    range->bytes = 0;
    SPW_TRY(spw_note_add(range, sizeof(range_head), &place));
    for (size_t unit = begin; unit < end; unit++) {
        SPW_TRY(compute_unit(walk, unit, range));
        if (link != NULL && !spw_process_is_first()) (void)link->sent();
    }
    const range_head head = {end - begin, spw_clock_s() - start_s};
    memcpy(range->data, &head, sizeof head);

cleanup:
    return status;
}

static spw_status take_record(const spw_walk *walk, size_t unit, const char *record) {
    unit_head head;
    memcpy(&head, record, sizeof head);
    if (head.unit != unit) return spw_fail(SPW_EFORMAT, "unit %zu has no record", unit);
    spw_note_reader reader = {record + sizeof head, (size_t)head.bytes};
    if (head.status != SPW_OK)
        return spw_fail((spw_status)head.status, "%.*s", MESSAGE_BYTES - 1, reader.data);
    return walk->take(walk->context, unit, &reader);
}

/* The next record; its bytes are all there. */
static spw_status next_record(spw_note_reader *reader, const char **record, unit_head *head) {
    const void *at = NULL;
    *record = reader->data;
    spw_status status = spw_note_next(reader, sizeof *head, &at);
    if (status != SPW_OK) return status;
    memcpy(head, at, sizeof *head);
    return spw_note_next(reader, (size_t)head->bytes, &at);
}

/* --- The first process --- */

/* A message that came. */
typedef struct arrival {
    char *data;
    size_t left; /* of its records, and 1 while it arrives */
} arrival;

typedef struct place {
    const char *record; /* NULL: it has not come */
    arrival *of;
} place;

typedef struct first {
    const spw_walk *walk;
    spw_checkpoint *checkpoint;
    spw_progress *progress;
    size_t taken, next,
        end; /* units [taken, next) are given away and not taken; nothing is given from `end` on */
    size_t own, own_end; /* units that the first has given to itself and not computed */
    size_t here;         /* units that came, with those before `taken` */
    size_t others;       /* processes that do not know yet that nothing is left */
    size_t largest;      /* bytes of a record */
    size_t timed;
    double seconds; /* that so many units took */
    place *waiting; /* [MOST_WAITING] of units by their number */
    spw_note kept;  /* records that the checkpoint does not have yet */
    size_t kept_units;
    double kept_s, pause_s; /* when it got the last ones, and how long it waits for the next */
} first;

/* How many units may be given away now. Before the first record came nothing is known of their size. */
static size_t room(const first *f) {
    const size_t out = f->next - f->taken, left = f->end - f->next, limit = spw_memory_limited(),
                 group = limit == 0 && f->walk->group > 0 ? f->walk->group : 1,
                 sharers = 3 * spw_processes() * group * f->largest;
    size_t bytes = spw_walk_most_bytes(limit), most = 2 * spw_processes() * group;
    if (limit == 0 && sharers > bytes) bytes = sharers;
    if (f->largest > 0) most = bytes / f->largest + 1;
    if (most > MOST_WAITING) most = MOST_WAITING;
    const size_t more = most > out ? most - out : 0;
    return more < left ? more : left;
}

/* Of what may be given: some work, whole groups if they are not too large, as what a group needs is then read once; and few units at
 * the end, so that all finish together. */
static size_t range_of(const first *f) {
    enum { PARTS_A_PROCESS = 4 };
    const size_t group = f->walk->group > 0 ? f->walk->group : 1, space = room(f),
                 fair = (f->end - f->next) / (PARTS_A_PROCESS * spw_processes()) + 1;
    size_t units = space / PARTS_A_PROCESS + 1;
    const double by_time =
        f->timed > 0 ? RANGE_S * (double)f->timed / (f->seconds > 1e-9 ? f->seconds : 1e-9) : 1.0;
    if (by_time < (double)units) units = by_time > 1.0 ? (size_t)by_time : 1;
    if (units > fair) units = fair;
    const size_t down = (f->next + units) / group * group, up = (f->next + units + group - 1) / group * group;
    if (up - f->next <= space && up - f->next <= fair + group / 2) return up - f->next;
    return down > f->next ? down - f->next : units;
}

static void serve(first *f) {
    const spw_process_link *link = spw_processes_link();
    int who = 0;
    while (f->others > 0 && (f->next == f->end || room(f) > 0) && link->is_asked(&who)) {
        const size_t begin = f->next;
        if (f->next < f->end) f->next += range_of(f);
        f->others -= begin == f->next;
        link->answer(who, begin, f->next);
    }
}

static void let_go(arrival *of) {
    if (of == NULL || --of->left > 0) return;
    spw_free(of->data);
    spw_free(of);
}

/* Puts the records of a message where they wait for their turn. `data` belongs to them from now on. */
static spw_status arrive(first *f, char *data, size_t bytes) {
    spw_note_reader reader = {data, bytes};
    const void *at = NULL;
    const char *record = NULL;
    arrival *of = NULL;
    range_head range = {.units = 0};
    unit_head head;
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_next(&reader, sizeof range, &at));
    memcpy(&range, at, sizeof range);
    f->here += (size_t)range.units;
    f->timed += (size_t)range.units;
    f->seconds += range.seconds;
    SPW_TRY(SPW_ALLOC(1, &of));
    *of = (arrival){data, 1};
    while (reader.bytes > 0) {
        SPW_TRY(next_record(&reader, &record, &head));
        place *mine = &f->waiting[head.unit % MOST_WAITING];
        if (head.unit < f->taken || head.unit >= f->next || mine->record != NULL || of->left > range.units)
            SPW_TRY(spw_fail(SPW_EFORMAT, "a record of unit %zu comes unasked for", (size_t)head.unit));
        *mine = (place){record, of};
        of->left++;
        if (sizeof head + head.bytes > f->largest) f->largest = sizeof head + (size_t)head.bytes;
    }

cleanup:
    if (of == NULL) spw_free(data);
    let_go(of);
    return status;
}

static spw_status receive(first *f) {
    const spw_process_link *link = spw_processes_link();
    spw_status status = SPW_OK;
    for (char *data = NULL; link != NULL && status == SPW_OK;) {
        size_t bytes = 0;
        status = link->receive(&data, &bytes);
        if (status != SPW_OK || data == NULL) break;
        status = arrive(f, data, bytes);
    }
    return status;
}

/* --- What a checkpoint keeps --- */

/* Goes on where an earlier run has kept what it had found: behind units [0, taken). */
static spw_status restore(first *f) {
    const spw_walk *walk = f->walk;
    spw_status status = SPW_OK;
    spw_note found = {.data = NULL};
    uint64_t units = 0;
    SPW_TRY(walk->state(walk->context, &(spw_state){.out = &found}));
    SPW_TRY(spw_checkpoint_load(f->checkpoint, found.data, found.bytes, &units));
    if (units == 0) goto cleanup;
    if (units >= walk->units || units % walk->group != 0)
        SPW_TRY(spw_fail(SPW_EFORMAT, "the checkpoint ends where no step does"));
    SPW_TRY(walk->state(walk->context, &(spw_state){.in = &(spw_note_reader){found.data, found.bytes}}));
    f->taken = (size_t)units;

cleanup:
    spw_free(found.data);
    return status;
}

/* Takes the records that an earlier run has kept. */
static spw_status take_stored(first *f) {
    spw_status status = SPW_OK;
    char *data = NULL;
    for (;;) {
        size_t units = 0, bytes = 0;
        SPW_TRY(spw_checkpoint_next(f->checkpoint, &units, &bytes));
        if (units == 0) break;
        if (units > f->walk->units - f->taken)
            SPW_TRY(spw_fail(SPW_EFORMAT, "the checkpoint holds more units of work than there are"));
        SPW_TRY(SPW_ALLOC(bytes, &data));
        SPW_TRY(spw_checkpoint_get(f->checkpoint, data));
        spw_note_reader reader = {data, bytes};
        for (size_t i = 0; i < units; i++, f->taken++) {
            const char *record = NULL;
            unit_head head;
            SPW_TRY(next_record(&reader, &record, &head));
            SPW_TRY(take_record(f->walk, f->taken, record));
        }
        spw_free(data);
        data = NULL;
    }

cleanup:
    spw_free(data);
    return status;
}

static spw_status keep_state(first *f) {
    spw_note found = {.data = NULL};
    spw_status status = f->walk->state(f->walk->context, &(spw_state){.out = &found});
    if (status == SPW_OK) status = spw_checkpoint_save(f->checkpoint, f->taken, found.data, found.bytes);
    spw_free(found.data);
    return status;
}

static spw_status keep_record(first *f, const char *record) {
    unit_head head;
    void *at = NULL;
    memcpy(&head, record, sizeof head);
    const spw_status status = spw_note_add(&f->kept, sizeof head + (size_t)head.bytes, &at);
    if (status == SPW_OK) memcpy(at, record, sizeof head + (size_t)head.bytes);
    f->kept_units++;
    return status;
}

static spw_status put_records(first *f) {
    const spw_status status =
        f->kept_units > 0 ? spw_checkpoint_put(f->checkpoint, f->kept_units, f->kept.data, f->kept.bytes)
                          : SPW_OK;
    f->kept.bytes = 0;
    f->kept_units = 0;
    return status;
}

/* Soon at first, then once a second. */
static spw_status keep(first *f, const char *record) {
    enum { PARTS = 4 };
    const double now_s = spw_clock_s();
    const bool states = f->walk->state != NULL, last = f->taken == f->walk->units;
    spw_status status = SPW_OK;
    if (!states) SPW_TRY(keep_record(f, record));
    if (now_s - f->kept_s < f->pause_s &&
        (states || f->kept.bytes < spw_walk_most_bytes(spw_memory_limited()) / PARTS))
        goto cleanup;
    if (states && (f->taken % f->walk->group != 0 || last)) goto cleanup;
    SPW_TRY(states ? keep_state(f) : put_records(f));
    f->kept_s = spw_clock_s();
    if (f->pause_s < KEEP_MOST_S) f->pause_s *= 2.0;

cleanup:
    return status;
}

/* --- The walk --- */

static spw_status take_next(first *f) {
    place *mine = &f->waiting[f->taken % MOST_WAITING];
    const place now = *mine;
    spw_status status = take_record(f->walk, f->taken, now.record);
    *mine = (place){.record = NULL};
    f->taken++;
    if (status == SPW_OK && f->checkpoint != NULL) status = keep(f, now.record);
    let_go(now.of);
    if (status == SPW_OK) spw_progress_update(f->progress, f->taken);
    return status;
}

/* One unit, so that no record waits for long. */
static spw_status compute_own(first *f) {
    spw_note range = {.data = NULL};
    if (f->own == f->own_end) {
        f->own = f->next;
        f->own_end = f->next += range_of(f);
    }
    const spw_status status = compute_range(f->walk, f->own, f->own + 1, &range);
    if (status != SPW_OK) {
        spw_free(range.data);
        return status;
    }
    f->own++;
    return arrive(f, range.data, range.bytes);
}

static spw_status walk_as_first(first *f) {
    spw_status status = SPW_OK;
    long waited_us = 0;
    while (f->taken < f->walk->units && status == SPW_OK) {
        serve(f);
        status = receive(f);
        if (status != SPW_OK) break;
        const bool came = f->taken < f->next && f->waiting[f->taken % MOST_WAITING].record != NULL;
        if (!came && f->own == f->own_end && room(f) == 0) {
            spw_processes_rest(&waited_us);
            continue;
        }
        waited_us = 0;
        status = came ? take_next(f) : compute_own(f);
    }
    return status;
}

static void drop_waiting(first *f) {
    for (size_t i = 0; i < MOST_WAITING && f->waiting != NULL; i++) {
        let_go(f->waiting[i].of);
        f->waiting[i] = (place){.record = NULL};
    }
}

/* Nobody computes for this walk any more, and no message is on its way. */
static bool is_drained(const first *f) {
    return spw_processes_link() == NULL || (f->others == 0 && f->here >= f->next);
}

/* Nothing is given away any more; what was is waited for, so that nobody is left with a message that nobody takes. A message that
 * has no room may have it when no other is kept; where it has not, it is left. */
static spw_status finish(first *f) {
    spw_status status = SPW_OK;
    bool stuck = false;
    long waited_us = 0;
    f->end = f->next;
    f->here += f->own_end - f->own;
    while (!is_drained(f) && !stuck) {
        const size_t here = f->here;
        serve(f);
        const spw_status now = receive(f);
        stuck = now != SPW_OK && status != SPW_OK && f->here == here;
        if (now == SPW_OK) spw_processes_rest(&waited_us);
        if (now != SPW_OK) drop_waiting(f);
        if (status == SPW_OK) status = now;
    }
    drop_waiting(f);
    spw_free(f->waiting);
    spw_free(f->kept.data);
    return status;
}

/* Tells the others how the walk has ended, and what it has found. */
static spw_status tell_end(const spw_walk *walk, spw_status ended) {
    spw_note found = {.data = NULL};
    spw_status status = SPW_OK;
    end_note end = {.status = (uint64_t)ended};
    if (spw_processes_link() == NULL) return ended;
    if (ended == SPW_OK) ended = walk->found(walk->context, &(spw_state){.out = &found});
    end.status = (uint64_t)ended;
    end.bytes = found.bytes;
    if (ended != SPW_OK) (void)snprintf(end.message, sizeof end.message, "%s", spw_last_error());
    SPW_TRY(spw_processes_tell(&end, sizeof end));
    if (ended == SPW_OK) SPW_TRY(spw_processes_tell(found.data, found.bytes));

cleanup:
    spw_free(found.data);
    return ended != SPW_OK ? ended : status;
}

static spw_status begin_first(first *f) {
    const double now_s = spw_clock_s();
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(MOST_WAITING, &f->waiting));
    if (f->checkpoint != NULL) SPW_TRY(f->walk->state != NULL ? restore(f) : take_stored(f));
    f->next = f->here = f->taken;
    f->kept_s = now_s;
    f->pause_s = KEEP_FIRST_S;
    spw_progress_skip(f->progress, f->taken);
    spw_progress_update(f->progress, f->taken);

cleanup:
    return status;
}

static spw_status share_as_first(const spw_walk *walk, spw_checkpoint *checkpoint, spw_progress *progress) {
    first f = {.walk = walk,
               .checkpoint = checkpoint,
               .progress = progress,
               .end = walk->units,
               .others = spw_processes() - 1};
    /* what the others still send must not hide why the walk has ended */
    spw_failure failure = SPW_NO_FAILURE;
    const spw_status begun = begin_first(&f);
    spw_failure_note(&failure, 0, begun == SPW_OK ? walk_as_first(&f) : begun);
    spw_failure_note(&failure, 1, finish(&f));
    const spw_status ended = spw_failure_tell(&failure);
    return is_drained(&f) ? tell_end(walk, ended) : ended; /* who is left with a message does not listen */
}

/* --- The others --- */

static void wait_sent(const spw_process_link *link) {
    long waited_us = 0;
    while (!link->sent()) spw_processes_rest(&waited_us);
}

/* Computes what it is given: one request ahead, and one message on its way. */
static spw_status walk_as_other(const spw_walk *walk) {
    enum { PARTS = 4 };
    const spw_process_link *link = spw_processes_link();
    const size_t most = spw_walk_most_bytes(spw_memory_limited()) / PARTS;
    spw_note range[2] = {{.data = NULL}, {.data = NULL}};
    spw_status status = SPW_OK;
    link->ask();
    for (size_t turn = 0;; turn++) {
        spw_note *mine = &range[turn % 2];
        size_t begin = 0, end = 0;
        long waited_us = 0;
        while (!link->hear(&begin, &end)) spw_processes_rest(&waited_us);
        if (begin == end) break;
        link->ask();
        SPW_TRY(compute_range(walk, begin, end, mine));
        wait_sent(link);
        SPW_TRY(link->send(mine->data, mine->bytes));
        if (mine->bytes > most) wait_sent(link);
    }

cleanup:
    if (status == SPW_OK) wait_sent(link);
    if (status == SPW_OK) spw_free(range[0].data), spw_free(range[1].data);
    return status;
}

static spw_status hear_end(const spw_walk *walk) {
    end_note end = {.status = SPW_OK};
    spw_note found = {.data = NULL};
    void *at = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_processes_tell(&end, sizeof end));
    if (end.status != SPW_OK)
        SPW_TRY(spw_fail((spw_status)end.status, "%.*s", MESSAGE_BYTES - 1, end.message));
    SPW_TRY(spw_note_add(&found, (size_t)end.bytes, &at));
    SPW_TRY(spw_processes_tell(found.data, (size_t)end.bytes));
    status =
        walk->found(walk->context, &(spw_state){.in = &(spw_note_reader){found.data, (size_t)end.bytes}});

cleanup:
    spw_free(found.data);
    return status;
}

spw_status spw_walk_alone(spw_status (*work)(void *context),
                          spw_status (*found)(void *context, const spw_state *state), void *context) {
    const spw_walk walk = {.context = context, .found = found};
    return spw_process_is_first() ? tell_end(&walk, work(context)) : hear_end(&walk);
}

spw_status spw_walk_share(const spw_walk *walk, spw_checkpoint *checkpoint, spw_progress *progress) {
    if (spw_process_is_first()) return share_as_first(walk, checkpoint, progress);
    const spw_status status = walk_as_other(walk);
    return status == SPW_OK ? hear_end(walk) : status;
}
