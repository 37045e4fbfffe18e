#include "reference/fabric.h"

#include "base/memory.h"

#include <string.h>

/* What one rank has sent to another and that one has not yet taken: bytes [taken, filled) of data. */
typedef struct mailbox {
    char *data;
    size_t taken, filled, capacity;
} mailbox;

struct spw_fabric {
    size_t ranks, exchanges, current;
    const char *name[SPW_FABRIC_EXCHANGES];
    uint64_t *bytes; /* [SPW_FABRIC_EXCHANGES][ranks][ranks] from, to */
    mailbox *box;    /* [ranks][ranks] from, to */
};

spw_status spw_fabric_create(size_t ranks, spw_fabric **out) {
    spw_fabric *fabric = NULL;
    size_t pairs = 0;
    spw_status status = SPW_OK;
    *out = NULL;
    if (!spw_mul_size(ranks, ranks, &pairs)) return spw_fail(SPW_EARG, "%zu ranks are too many", ranks);
    SPW_TRY(SPW_ALLOC(1, &fabric));
    fabric->ranks = ranks;
    SPW_TRY(spw_alloc(pairs, SPW_FABRIC_EXCHANGES * sizeof *fabric->bytes, (void **)&fabric->bytes));
    SPW_TRY(SPW_ALLOC(pairs, &fabric->box));
    *out = fabric;
    return SPW_OK;
cleanup:
    spw_fabric_destroy(fabric);
    return status;
}

void spw_fabric_destroy(spw_fabric *fabric) {
    if (fabric == NULL) return;
    for (size_t i = 0; fabric->box != NULL && i < fabric->ranks * fabric->ranks; i++)
        spw_free(fabric->box[i].data);
    spw_free(fabric->box), spw_free(fabric->bytes), spw_free(fabric);
}

static size_t find(const spw_fabric *fabric, const char *exchange) {
    size_t i = 0;
    while (i < fabric->exchanges && strcmp(fabric->name[i], exchange) != 0) i++;
    return i;
}

spw_status spw_fabric_begin(spw_fabric *fabric, const char *exchange) {
    for (size_t i = 0; i < fabric->ranks * fabric->ranks; i++) {
        const mailbox *box = &fabric->box[i];
        if (box->taken == box->filled) continue;
        return spw_fail(SPW_EMISMATCH, "%zu bytes from rank %zu to rank %zu were never received before %s",
                        box->filled - box->taken, i / fabric->ranks, i % fabric->ranks, exchange);
    }
    const size_t i = find(fabric, exchange);
    if (i == SPW_FABRIC_EXCHANGES) return spw_fail(SPW_EARG, "no room for exchange %s", exchange);
    if (i == fabric->exchanges) fabric->name[fabric->exchanges++] = exchange;
    fabric->current = i;
    return SPW_OK;
}

static spw_status make_room(mailbox *box, size_t bytes) {
    if (bytes <= box->capacity - box->filled) return SPW_OK;
    size_t capacity = box->capacity > 0 ? box->capacity : 256;
    char *grown = NULL;
    while (capacity - box->filled < bytes) {
        if (!spw_mul_size(capacity, 2, &capacity)) return spw_fail(SPW_ENOMEM, "a message overflows size_t");
    }
    const spw_status status = SPW_ALLOC(capacity, &grown);
    if (status != SPW_OK) return status;
    if (box->filled > 0) memcpy(grown, box->data, box->filled);
    spw_free(box->data);
    box->data = grown;
    box->capacity = capacity;
    return SPW_OK;
}

spw_status spw_fabric_send(spw_fabric *fabric, size_t from, size_t to, const void *data, size_t count,
                           size_t size, uint64_t wire_bytes) {
    const size_t pair = from * fabric->ranks + to, bytes = count * size;
    mailbox *box = &fabric->box[pair];
    if (count == 0) return SPW_OK;
    const spw_status status = make_room(box, bytes);
    if (status != SPW_OK) return status;
    memcpy(box->data + box->filled, data, bytes);
    box->filled += bytes;
    fabric->bytes[fabric->current * fabric->ranks * fabric->ranks + pair] += count * wire_bytes;
    return SPW_OK;
}

spw_status spw_fabric_receive(spw_fabric *fabric, size_t to, size_t from, void *data, size_t count,
                              size_t size) {
    mailbox *box = &fabric->box[from * fabric->ranks + to];
    const size_t bytes = count * size;
    if (box->filled - box->taken < bytes) {
        return spw_fail(SPW_EMISMATCH, "rank %zu expects %zu bytes from rank %zu in %s, %zu are there", to,
                        bytes, from, fabric->name[fabric->current], box->filled - box->taken);
    }
    if (bytes == 0) return SPW_OK;
    memcpy(data, box->data + box->taken, bytes);
    box->taken += bytes;
    if (box->taken ==
        box->filled) { /* empty: hand the memory back, a rank's buffers are meant to be in the arena */
        spw_free(box->data);
        *box = (mailbox){0};
    }
    return SPW_OK;
}

size_t spw_fabric_waiting(const spw_fabric *fabric, size_t to, size_t from) {
    const mailbox *box = &fabric->box[from * fabric->ranks + to];
    return box->filled - box->taken;
}

uint64_t spw_fabric_bytes(const spw_fabric *fabric, const char *exchange, size_t from, size_t to) {
    const size_t i = find(fabric, exchange), pairs = fabric->ranks * fabric->ranks;
    return i == fabric->exchanges ? 0 : fabric->bytes[i * pairs + from * fabric->ranks + to];
}

size_t spw_fabric_exchanges(const spw_fabric *fabric) { return fabric->exchanges; }
const char *spw_fabric_exchange(const spw_fabric *fabric, size_t i) { return fabric->name[i]; }
