#include "sim/plan/search_log.h"

#include "base/memory.h"

#include <string.h>

/* Of a block; behind it stand the records. */
typedef struct log_head {
    size_t job, gpus, records, bytes; /* bytes: of a record */
} log_head;

/* Whose fit a reason is of: pointers do not outlive a program. */
static const char *const FITS[] = {"memory", "time"};

void spw_search_log_destroy(spw_search_log *log) {
    spw_free(log->record);
    log->record = NULL;
    log->records = log->room = 0;
}

static spw_status make_room(spw_search_log *log, size_t records) {
    spw_search_record *more = NULL;
    const size_t room = records > 2 * log->room ? records : 2 * log->room;
    if (records <= log->room) return SPW_OK;
    const spw_status status = SPW_ALLOC(room, &more);
    if (status != SPW_OK) return status;
    if (log->records > 0) memcpy(more, log->record, log->records * sizeof *more);
    spw_free(log->record);
    log->record = more;
    log->room = room;
    return SPW_OK;
}

static spw_status damaged(void) {
    return spw_fail(SPW_EFORMAT, "the checkpoint has another replay than the search makes next; remove it");
}

/* Pointers of records that were read. */
static spw_status mend(spw_search_log *log) {
    for (size_t r = 0; r < log->records; r++) {
        spw_outside_fit *fit = &log->record[r].outside;
        if (fit->count > SPW_OUTSIDE_ITEMS) return damaged();
        for (size_t i = 0; i < fit->count; i++) {
            spw_outside_item *item = &fit->item[i];
            const size_t of = (size_t)(uintptr_t)item->of;
            if (of >= sizeof FITS / sizeof *FITS || memchr(item->feature, '\0', sizeof item->feature) == NULL)
                return damaged();
            item->of = FITS[of];
        }
    }
    return SPW_OK;
}

spw_status spw_search_log_begin(spw_search_log *log, size_t job, size_t gpus, bool *known) {
    size_t units = 0, bytes = 0;
    char *block = NULL;
    log_head head;
    spw_status status = SPW_OK;
    *known = false;
    log->records = 0;
    if (log->checkpoint == NULL) return SPW_OK;
    SPW_TRY(spw_checkpoint_next(log->checkpoint, &units, &bytes));
    if (units == 0) return SPW_OK;
    SPW_TRY(SPW_ALLOC(bytes + 1, &block));
    SPW_TRY(spw_checkpoint_get(log->checkpoint, block));
    if (bytes < sizeof head) SPW_TRY(damaged());
    memcpy(&head, block, sizeof head);
    if (head.job != job || head.gpus != gpus || head.bytes != sizeof *log->record ||
        head.records != (bytes - sizeof head) / head.bytes || (bytes - sizeof head) % head.bytes != 0)
        SPW_TRY(damaged());
    SPW_TRY(make_room(log, head.records));
    memcpy(log->record, block + sizeof head, head.records * sizeof *log->record);
    log->records = head.records;
    SPW_TRY(mend(log));
    *known = true;

cleanup:
    spw_free(block);
    return status;
}

spw_status spw_search_log_note(spw_search_log *log, const spw_search_record *record) {
    if (log->checkpoint == NULL) return SPW_OK;
    const spw_status status = make_room(log, log->records + 1);
    if (status == SPW_OK) log->record[log->records++] = *record;
    return status;
}

spw_status spw_search_log_end(spw_search_log *log, size_t job, size_t gpus) {
    const log_head head = {job, gpus, log->records, sizeof *log->record};
    const size_t bytes = sizeof head + log->records * sizeof *log->record;
    char *block = NULL;
    spw_status status = SPW_OK;
    if (log->checkpoint == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(bytes, &block));
    for (size_t r = 0; r < log->records; r++)
        for (size_t i = 0; i < log->record[r].outside.count; i++) {
            spw_outside_item *item = &log->record[r].outside.item[i];
            item->of = (const char *)(uintptr_t)(strcmp(item->of, FITS[0]) != 0);
        }
    memcpy(block, &head, sizeof head);
    if (log->records > 0) memcpy(block + sizeof head, log->record, log->records * sizeof *log->record);
    SPW_TRY(spw_checkpoint_put(log->checkpoint, 1, block, bytes));

cleanup:
    spw_free(block);
    return status;
}
