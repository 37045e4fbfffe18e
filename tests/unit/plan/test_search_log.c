/* What a search keeps of its replays: it comes back as it was, without a pointer in the file, and a file whose sums are right but whose
 * values no search writes is refused. */
#include "sim/plan/search_log.h"
#include "tests/unit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOB = 7, GPUS = 64, RECORDS = 2, RUN = 11 };

static char path[512];

static spw_search_record record_of(size_t row) {
    spw_search_record r = {.row = row, .taken = row > 0};
    r.prospect.row = row;
    r.point.verdict = SPW_VERDICT_TIGHT;
    r.point.timed = r.point.surely_fits = true;
    r.point.peak_bytes = 1000 + row;
    r.outside.count = 2;
    r.outside.item[0].of = "memory";
    r.outside.item[1].of = "time";
    (void)strcpy(r.outside.item[0].feature, "a model");
    (void)strcpy(r.outside.item[1].feature, "exchanges between nodes");
    return r;
}

static spw_checkpoint *opened(void) {
    spw_checkpoint *checkpoint = NULL;
    CHECK_OK(spw_checkpoint_open(path, RUN, &checkpoint));
    return checkpoint;
}

/* The block of two records, as a search writes it. */
static char *written(size_t *bytes) {
    spw_search_log log = {.checkpoint = opened()};
    size_t units = 0;
    char *block = NULL;
    bool known = true;
    CHECK_OK(spw_search_log_begin(&log, JOB, GPUS, &known));
    CHECK(!known);
    for (size_t r = 0; r < RECORDS; r++) {
        const spw_search_record record = record_of(r);
        CHECK_OK(spw_search_log_note(&log, &record));
    }
    CHECK_OK(spw_search_log_end(&log, JOB, GPUS));
    spw_checkpoint_close(log.checkpoint);
    spw_search_log_destroy(&log);
    spw_checkpoint *again = opened();
    CHECK_OK(spw_checkpoint_next(again, &units, bytes));
    CHECK(units == 1);
    block = malloc(*bytes);
    CHECK(block != NULL);
    CHECK_OK(spw_checkpoint_get(again, block));
    spw_checkpoint_finish(again);
    return block;
}

/* What a search makes of such a block in a file of its own; *log has the records. */
static spw_status reading(const char *block, size_t bytes, spw_search_log *log) {
    spw_checkpoint *checkpoint = opened();
    bool known = false;
    CHECK_OK(spw_checkpoint_put(checkpoint, 1, block, bytes));
    spw_checkpoint_close(checkpoint);
    *log = (spw_search_log){.checkpoint = opened()};
    const spw_status status = spw_search_log_begin(log, JOB, GPUS, &known);
    CHECK(known == (status == SPW_OK));
    spw_checkpoint_finish(log->checkpoint);
    return status;
}

static void test_back(const char *block, size_t bytes) {
    spw_search_log log;
    CHECK_OK(reading(block, bytes, &log));
    CHECK(log.records == RECORDS);
    for (size_t r = 0; r < log.records; r++) {
        const spw_search_record want = record_of(r), *got = &log.record[r];
        CHECK(got->row == r && got->taken == want.taken && got->prospect.row == r);
        CHECK(got->point.verdict == want.point.verdict && got->point.peak_bytes == want.point.peak_bytes);
        CHECK(got->outside.count == want.outside.count);
        for (size_t i = 0; i < want.outside.count; i++)
            CHECK(strcmp(got->outside.item[i].of, want.outside.item[i].of) == 0 &&
                  strcmp(got->outside.item[i].feature, want.outside.item[i].feature) == 0);
    }
    spw_search_log_destroy(&log);
}

/* The first place of `what` in the block. */
static size_t place_of(const char *block, size_t bytes, const void *what, size_t size) {
    size_t at = 0;
    while (at + size <= bytes && memcmp(block + at, what, size) != 0) at++;
    CHECK(at + size <= bytes);
    return at;
}

static void refused(const char *block, size_t bytes, size_t at, unsigned char value) {
    spw_search_log log;
    char *forged = malloc(bytes);
    CHECK(forged != NULL);
    memcpy(forged, block, bytes);
    forged[at] = (char)value;
    CHECK_STATUS(reading(forged, bytes, &log), SPW_EFORMAT);
    spw_search_log_destroy(&log);
    free(forged);
}

static void test_forged(const char *block, size_t bytes) {
    static const size_t head =
        4 * sizeof(size_t); /* in front of the first record: its row, then whether it is taken */
    spw_search_record shown = record_of(0);
    const size_t point = place_of(block, bytes, &shown.point, sizeof shown.point);
    refused(block, bytes, head + sizeof(size_t), 2);
    refused(block, bytes, point + offsetof(spw_search_point, verdict), 3);
    refused(block, bytes, point + offsetof(spw_search_point, kind), 2);
    refused(block, bytes, point + offsetof(spw_search_point, timed), 2);
    refused(block, bytes, point + offsetof(spw_search_point, surely_fits), 255);
    refused(block, bytes, point + offsetof(spw_search_point, drops.at_least), 2);
    refused(block, bytes, point + offsetof(spw_search_point, outside.count), 1);
    const size_t text = place_of(block, bytes, "a model", 8);
    refused(block, bytes, text + 1, '\n');
    refused(block, bytes, text, '\0');
    refused(block, bytes, text - sizeof(size_t), 2); /* whose fit it is of */
    refused(block, bytes, text - 2 * sizeof(size_t), SPW_OUTSIDE_ITEMS + 1);
}

int main(int argc, char **argv) {
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/test_search_log.ck", argc > 1 ? argv[1] : ".");
    (void)unlink(path);
    char *block = written(&bytes);
    test_back(block, bytes);
    test_forged(block, bytes);
    free(block);
    return check_done();
}
