#include "sim/plan/search_log.h"

#include "base/grow.h"
#include "base/memory.h"

#include <string.h>

/* Of a block; behind it stand the records. */
typedef struct log_head {
    size_t job, gpus, records, bytes; /* bytes: of a record */
} log_head;

/* Whose fit a reason is of. */
static const char *const FITS[] = {"memory", "time"};
enum { FIT_COUNT = sizeof FITS / sizeof *FITS };

/* A record as it stands in a file: a pointer does not outlive a program. */
typedef struct kept_reason {
    size_t of; /* place in FITS */
    char feature[SPW_OUTSIDE_FEATURE];
} kept_reason;
typedef struct kept_record {
    size_t row, taken;
    spw_replay_prospect prospect;
    spw_search_point point;
    size_t reasons;
    kept_reason reason[SPW_OUTSIDE_ITEMS];
} kept_record;

void spw_search_log_destroy(spw_search_log *log) {
    spw_free(log->record);
    log->record = NULL;
    log->records = log->room = 0;
}

static spw_status damaged(void) {
    return spw_fail(SPW_EFORMAT, "the checkpoint has another replay than the search makes next; remove it");
}

/* --- Into a file, and out of it --- */

static void keep(const spw_search_record *from, kept_record *to) {
    memset(to, 0, sizeof *to);
    to->row = from->row;
    to->taken = from->taken;
    to->prospect = from->prospect;
    to->point = from->point;
    to->reasons = from->outside.count;
    for (size_t i = 0; i < to->reasons; i++) {
        to->reason[i].of = strcmp(from->outside.item[i].of, FITS[0]) != 0;
        memcpy(to->reason[i].feature, from->outside.item[i].feature, sizeof to->reason[i].feature);
    }
}

/* No file makes a value that a type does not have. */
static bool is_flag(const bool *flag) {
    unsigned char byte = 0;
    memcpy(&byte, flag, 1);
    return byte <= 1;
}

static bool have_flags(const spw_result_drops *drops) {
    return is_flag(&drops->lost_unknown) && is_flag(&drops->at_least);
}

static bool is_text(const char *text, size_t size) {
    const char *end = memchr(text, '\0', size);
    for (const char *c = text; end != NULL && c < end; c++)
        if ((unsigned char)*c < ' ') return false;
    return end != NULL && end > text;
}

static bool take(const kept_record *from, spw_search_record *to) {
    const spw_search_point *p = &from->point;
    bool good = from->taken <= 1 && have_flags(&from->prospect.drops) && have_flags(&p->drops) &&
                is_flag(&p->timed) && is_flag(&p->surely_fits) && is_flag(&p->budget.listed) &&
                (unsigned)p->kind <= SPW_MEMORY_ARENA && (unsigned)p->verdict <= SPW_VERDICT_OOM &&
                p->outside.count == 0 && from->reasons <= SPW_OUTSIDE_ITEMS;
    if (!good) return false;
    *to = (spw_search_record){
        .row = from->row, .taken = from->taken == 1, .prospect = from->prospect, .point = *p};
    for (; to->outside.count < from->reasons && good; to->outside.count++) {
        const kept_reason *reason = &from->reason[to->outside.count];
        spw_outside_item *item = &to->outside.item[to->outside.count];
        good = reason->of < FIT_COUNT && is_text(reason->feature, sizeof reason->feature);
        item->of = FITS[good ? reason->of : 0];
        memcpy(item->feature, reason->feature, sizeof item->feature);
    }
    return good;
}

/* The next block of the file as records. */
static spw_status take_block(spw_search_log *log, const char *block, size_t records) {
    kept_record *kept = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &kept));
    SPW_TRY(SPW_GROW(log->records, records, &log->room, &log->record));
    for (; log->records < records; log->records++) {
        memcpy(kept, block + log->records * sizeof *kept, sizeof *kept);
        if (!take(kept, &log->record[log->records])) SPW_TRY(damaged());
    }

cleanup:
    spw_free(kept);
    return status;
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
    if (head.job != job || head.gpus != gpus || head.bytes != sizeof(kept_record) ||
        head.records != (bytes - sizeof head) / head.bytes || (bytes - sizeof head) % head.bytes != 0)
        SPW_TRY(damaged());
    SPW_TRY(take_block(log, block + sizeof head, head.records));
    *known = true;

cleanup:
    spw_free(block);
    return status;
}

spw_status spw_search_log_note(spw_search_log *log, const spw_search_record *record) {
    if (log->checkpoint == NULL) return SPW_OK;
    const spw_status status = SPW_GROW(log->records, log->records + 1, &log->room, &log->record);
    if (status == SPW_OK) log->record[log->records++] = *record;
    return status;
}

spw_status spw_search_log_end(spw_search_log *log, size_t job, size_t gpus) {
    const log_head head = {job, gpus, log->records, sizeof(kept_record)};
    const size_t bytes = sizeof head + log->records * head.bytes;
    kept_record *kept = NULL;
    char *block = NULL;
    spw_status status = SPW_OK;
    if (log->checkpoint == NULL) return SPW_OK;
    SPW_TRY(SPW_ALLOC(1, &kept));
    SPW_TRY(SPW_ALLOC(bytes, &block));
    memcpy(block, &head, sizeof head);
    for (size_t r = 0; r < log->records; r++) {
        keep(&log->record[r], kept);
        memcpy(block + sizeof head + r * sizeof *kept, kept, sizeof *kept);
    }
    SPW_TRY(spw_checkpoint_put(log->checkpoint, 1, block, bytes));

cleanup:
    spw_free(kept), spw_free(block);
    return status;
}
