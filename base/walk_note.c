/* Records of a walk, and how much of them is held. */
#include "base/memory.h"
#include "base/walk_shared.h"

#include <stdint.h>
#include <string.h>

enum { ALIGNMENT = sizeof(double), MOST_RECORD_BYTES = 64 << 20 };
static const size_t COPIES = 4; /* what came and is not taken, what is kept, what is computed, as it grows */

size_t spw_walk_most_bytes(size_t limit) {
    enum { PART = 32 };
    return limit > 0 && limit / PART < MOST_RECORD_BYTES ? limit / PART : MOST_RECORD_BYTES;
}

size_t spw_walk_record_bytes(size_t record, size_t limit) {
    const size_t most = limit > 0 ? spw_walk_most_bytes(limit) : 0;
    return COPIES * (record > most ? record : most);
}

/* --- Records --- */

/* Room behind what is there, not set. */
static spw_status make_room(spw_note *record, size_t bytes, void **at) {
    const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (padded < bytes || padded > SIZE_MAX / 4 - record->bytes)
        return spw_fail(SPW_ENOMEM, "a record of %zu bytes is too large", bytes);
    if (record->capacity - record->bytes < padded) {
        const size_t capacity = 2 * (record->bytes + padded);
        const spw_status status = SPW_RESIZE(capacity, &record->data);
        if (status != SPW_OK) return status;
        record->capacity = capacity;
    }
    *at = record->data + record->bytes;
    record->bytes += padded;
    return SPW_OK;
}

spw_status spw_note_add(spw_note *record, size_t bytes, void **at) {
    const size_t before = record->bytes;
    const spw_status status = make_room(record, bytes, at);
    if (status == SPW_OK && *at != NULL) memset(*at, 0, record->bytes - before);
    return status;
}

spw_status spw_note_again(spw_note *record, size_t begin, size_t bytes) {
    const size_t before = record->bytes;
    void *at = NULL;
    const spw_status status = make_room(record, bytes, &at);
    if (status != SPW_OK || at == NULL) return status; /* NULL: of no bytes */
    memcpy(at, record->data + begin, bytes);
    memset(record->data + before + bytes, 0, record->bytes - before - bytes);
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
