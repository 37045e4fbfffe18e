/* How a walk of two processes ends when the first cannot take what the other sends: the other hears why, whatever comes later. The link
 * is a stand-in, and so is the other process. */
#include "base/processes.h"
#include "base/walk_shared.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { UNITS = 100, AHEAD = 2, FOR_EVER = 1 << 30 };

/* It asks one range ahead, and sends nothing before it has two. */
static struct other {
    size_t begin[AHEAD], end[AHEAD], ranges; /* that it has not sent */
    size_t bad,
        no_room; /* messages that say nothing of their units; times that the first has no memory for one */
    bool knows_end;
    struct {
        uint64_t status, bytes;
        char message[4096];
    } heard;
    bool hears;
} other;

static spw_status join(int *number, int *count) {
    *number = 0, *count = 2;
    return SPW_OK;
}

static spw_status tell(void *data, size_t bytes) {
    if (other.hears) return SPW_OK;
    CHECK(bytes == sizeof other.heard);
    if (bytes == sizeof other.heard) memcpy(&other.heard, data, bytes);
    other.hears = true;
    return SPW_OK;
}

/* How many units, their seconds, and for each of them a record of nothing: its number, bytes and status. */
static spw_status make_message(uint64_t **out, size_t *bytes) {
    const size_t units = other.end[0] - other.begin[0], words = other.bad > 0 ? 3 : 2 + 3 * units;
    const spw_status status = SPW_ALLOC(words, out);
    if (status != SPW_OK) return status;
    (*out)[0] = units;
    for (size_t i = 2; i < words; i += 3) (*out)[i] = other.begin[0] + (i - 2) / 3;
    *bytes = words * sizeof **out;
    return SPW_OK;
}

static spw_status receive(char **out, size_t *bytes) {
    uint64_t *message = NULL;
    *out = NULL;
    if (other.ranges < AHEAD && !(other.knows_end && other.ranges > 0)) return SPW_OK;
    if (other.no_room > 0) {
        other.no_room--;
        return spw_fail(SPW_ENOMEM, "no room");
    }
    const spw_status status = make_message(&message, bytes);
    if (status != SPW_OK) return status;
    other.bad -= other.bad > 0;
    other.begin[0] = other.begin[1];
    other.end[0] = other.end[1];
    other.ranges--;
    *out = (char *)message;
    return SPW_OK;
}

static bool is_asked(int *who) {
    *who = 1;
    return !other.knows_end && other.ranges < AHEAD;
}

static void answer(int who, size_t begin, size_t end) {
    CHECK(who == 1 && begin <= end);
    other.knows_end = begin == end;
    if (other.knows_end) return;
    other.begin[other.ranges] = begin;
    other.end[other.ranges++] = end;
}

static const spw_process_link link = {
    .join = join, .tell = tell, .receive = receive, .is_asked = is_asked, .answer = answer};

static spw_status compute(void *context, size_t unit, spw_note *out) {
    (void)context, (void)unit, (void)out;
    return SPW_OK;
}

static spw_status take(void *context, size_t unit, spw_note_reader *record) {
    (void)unit, (void)record;
    ++*(size_t *)context;
    return SPW_OK;
}

static spw_status find(void *context, const spw_state *state) {
    (void)context, (void)state;
    return SPW_OK;
}

static spw_status run(size_t bad, size_t no_room) {
    size_t taken = 0;
    const spw_walk walk = {
        .units = UNITS, .context = &taken, .compute = compute, .take = take, .found = find};
    spw_progress progress = spw_progress_begin("walk", "units", UNITS);
    const size_t held = spw_memory_held();
    memset(&other, 0, sizeof other);
    other.bad = bad;
    other.no_room = no_room;
    const spw_status status = spw_walk_share(&walk, NULL, &progress);
    CHECK(spw_memory_held() == held);
    CHECK((taken == UNITS) == (status == SPW_OK));
    if (!other.hears) return status;
    CHECK(other.knows_end && other.ranges == 0);
    CHECK(other.heard.status == (uint64_t)status);
    CHECK(status == SPW_OK || strcmp(other.heard.message, spw_last_error()) == 0);
    return status;
}

static void test_ends(void) {
    static const struct {
        size_t bad, no_room;
        spw_status status;
        bool hears;
    } cases[] = {{0, 0, SPW_OK, true},
                 {1, 0, SPW_EFORMAT, true}, /* what comes behind it is taken */
                 {2, 0, SPW_EFORMAT, true}, /* and is as bad */
                 {0, 1, SPW_ENOMEM, true},
                 {0, 2, SPW_ENOMEM, true},         /* room is there when nothing is kept */
                 {0, FOR_EVER, SPW_ENOMEM, false}, /* it never is: the other stays with its message */
                 {1, FOR_EVER, SPW_ENOMEM, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(run(cases[i].bad, cases[i].no_room), cases[i].status);
        CHECK(other.hears == cases[i].hears);
    }
}

/* Wherever the first runs out of memory. */
static void test_memory(void) {
    spw_status status = SPW_ENOMEM;
    int failures = 0;
    for (; failures < 1000 && status != SPW_OK; failures++) {
        spw_alloc_fail_after(failures);
        status = run(0, 0);
        CHECK(status == SPW_OK || status == SPW_ENOMEM);
        CHECK(other.hears && status == spw_settle(status));
        spw_alloc_fail_after(-1);
    }
    CHECK(failures > 3 && status == SPW_OK);
}

/* An eighth of the wait, between a tenth of a millisecond and one. */
static void test_rests(void) {
    long waited_us = 0, before = 0;
    spw_processes_rest(&waited_us);
    CHECK(waited_us == 100);
    for (waited_us = before = 4000; waited_us < 20000; before = waited_us) {
        spw_processes_rest(&waited_us);
        CHECK(waited_us - before == (before < 8000 ? before / 8 : 1000));
    }
}

int main(void) {
    CHECK(setenv("OMPI_COMM_WORLD_SIZE", "2", 1) == 0);
    CHECK_OK(spw_processes_begin(&link));
    test_ends();
    test_memory();
    test_rests();
    return check_done();
}
