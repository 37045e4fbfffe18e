#include "sim/read/memory_snapshot.h"

#include "base/file.h"
#include "base/memory.h"

#include <jansson.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

/* A block that lives, in a tree by address. */
typedef struct live_block {
    int64_t address;
    uint32_t block;
} live_block;

typedef struct reading {
    const char *path;
    spw_memory_snapshot *out;
    size_t capacity;
    void *live; /* tree of live_block */
} reading;

static int by_address(const void *a, const void *b) {
    const int64_t x = ((const live_block *)a)->address, y = ((const live_block *)b)->address;
    return x < y ? -1 : x > y;
}

static spw_status append(reading *r, spw_snapshot_event event) {
    spw_memory_snapshot *s = r->out;
    if (s->events == r->capacity) {
        spw_snapshot_event *larger = NULL;
        const spw_status status = SPW_ALLOC(r->capacity * 2 + 1024, &larger);
        if (status != SPW_OK) return status;
        if (s->events > 0) memcpy(larger, s->event, s->events * sizeof *larger);
        spw_free(s->event);
        s->event = larger;
        r->capacity = r->capacity * 2 + 1024;
    }
    s->event[s->events++] = event;
    return SPW_OK;
}

static spw_status add_block(reading *r, int64_t address, uint64_t bytes) {
    spw_memory_snapshot *s = r->out;
    live_block *block = NULL;
    if (s->blocks >= UINT32_MAX / 4)
        return spw_fail(SPW_ECONFIG, "%s: more than %zu allocations", r->path, s->blocks);
    spw_status status = SPW_ALLOC(1, &block);
    if (status != SPW_OK) return status;
    *block = (live_block){address, (uint32_t)s->blocks};
    live_block **found = tsearch(block, &r->live, by_address);
    if (found == NULL || *found != block) spw_free(block);
    if (found == NULL) return spw_fail(SPW_ENOMEM, "out of memory: a tree of live blocks");
    (*found)->block = (uint32_t)s->blocks; /* an address that is given out twice: its free was not recorded */
    return append(r, (spw_snapshot_event){bytes, (uint32_t)s->blocks++, true});
}

static void forget(reading *r, int64_t address) {
    live_block key = {.address = address}, **found = tfind(&key, &r->live, by_address), *block;
    if (found == NULL) return;
    block = *found;
    (void)tdelete(&key, &r->live, by_address);
    spw_free(block);
}

static bool lives(const reading *r, int64_t address, uint32_t *block) {
    live_block key = {.address = address}, **found = tfind(&key, &r->live, by_address);
    if (found != NULL) *block = (*found)->block;
    return found != NULL;
}

/* --- Events --- */

/* A block that another stream uses can be used again some time after it was freed, `free_completed`, which depends on the clock:
 * the program's own order is that of the requests. */
typedef enum action { ALLOC, FREE, OUT_OF_MEMORY, OTHER } action;

static action action_of(const char *name) {
    static const struct {
        const char *name;
        action is;
    } actions[] = {{"alloc", ALLOC}, {"free_requested", FREE}, {"free", FREE}, {"oom", OUT_OF_MEMORY}};
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, name) == 0) return actions[i].is;
    return OTHER;
}

typedef struct one_event {
    action is;
    int64_t address;
    uint64_t bytes;
} one_event;

static spw_status read_event(const reading *r, const json_t *value, size_t number, one_event *out) {
    const json_t *name = json_object_get(value, "action"), *address = json_object_get(value, "addr"),
                 *size = json_object_get(value, "size");
    *out = (one_event){.is = OTHER};
    if (!json_is_string(name))
        return spw_fail(SPW_ECONFIG, "%s: event %zu has no `action`; must be a snapshot of torch.cuda.memory",
                        r->path, number);
    out->is = action_of(json_string_value(name));
    if (out->is == OTHER) return SPW_OK;
    if (out->is == OUT_OF_MEMORY)
        return spw_fail(SPW_ECONFIG,
                        "%s: event %zu: the recorded run ran out of memory; record one that does not",
                        r->path, number);
    if (!json_is_integer(address) || !json_is_integer(size) || json_integer_value(size) < 0 ||
        json_integer_value(size) > INT64_C(1) << 50)
        return spw_fail(SPW_ECONFIG, "%s: event %zu: `addr` and `size` must be whole numbers", r->path,
                        number);
    out->address = json_integer_value(address);
    out->bytes = (uint64_t)json_integer_value(size);
    return SPW_OK;
}

/* Blocks that are freed and were never allocated lived before the recording began; so did those that `segments` has. */
static spw_status read_earlier(reading *r, const json_t *root, const json_t *trace) {
    spw_status status = SPW_OK;
    reading seen = {.path = r->path, .out = &(spw_memory_snapshot){.events = 0}};
    size_t i = 0, j = 0;
    json_t *value = NULL, *block = NULL;
    uint32_t unused = 0;
    json_array_foreach(trace, i, value) {
        one_event e;
        SPW_TRY(read_event(r, value, i, &e));
        if (e.is == ALLOC) SPW_TRY(add_block(&seen, e.address, e.bytes));
        if (e.is == FREE && !lives(&seen, e.address, &unused)) SPW_TRY(add_block(r, e.address, e.bytes));
        if (e.is == FREE) forget(&seen, e.address);
    }
    json_array_foreach(json_object_get(root, "segments"), i, value) {
        json_array_foreach(json_object_get(value, "blocks"), j, block) {
            const json_t *address = json_object_get(block, "address"),
                         *size = json_object_get(block, "requested_size"),
                         *state = json_object_get(block, "state");
            if (!json_is_integer(address) || !json_is_integer(size) || json_integer_value(size) < 0 ||
                !json_is_string(state) || strcmp(json_string_value(state), "active_allocated") != 0 ||
                lives(&seen, json_integer_value(address), &unused))
                continue;
            SPW_TRY(add_block(r, json_integer_value(address), (uint64_t)json_integer_value(size)));
        }
    }
    r->out->earlier = r->out->blocks;

cleanup:
    tdestroy(seen.live, spw_free);
    spw_memory_snapshot_destroy(seen.out);
    return status;
}

static spw_status read_trace(reading *r, const json_t *trace) {
    size_t i = 0;
    json_t *value = NULL;
    json_array_foreach(trace, i, value) {
        one_event e;
        uint32_t block = 0;
        spw_status status = read_event(r, value, i, &e);
        if (status == SPW_OK && e.is == ALLOC) status = add_block(r, e.address, e.bytes);
        if (status == SPW_OK && e.is == FREE && lives(r, e.address, &block)) {
            status = append(r, (spw_snapshot_event){e.bytes, block, false});
            forget(r, e.address);
        }
        if (status != SPW_OK) return status;
    }
    return SPW_OK;
}

/* The one device that has events. */
static spw_status find_trace(const char *path, const json_t *root, const json_t **out) {
    const json_t *traces = json_object_get(root, "device_traces");
    size_t i = 0;
    json_t *value = NULL;
    *out = NULL;
    if (!json_is_array(traces))
        return spw_fail(SPW_ECONFIG,
                        "%s: no list `device_traces`; must be json.dump(torch.cuda.memory._snapshot(), file)",
                        path);
    json_array_foreach(traces, i, value) {
        if (json_array_size(value) == 0) continue;
        if (*out != NULL)
            return spw_fail(SPW_ECONFIG, "%s: events of several devices; must be of one rank on one GPU",
                            path);
        *out = value;
    }
    if (*out == NULL)
        return spw_fail(SPW_ECONFIG,
                        "%s: nothing recorded; torch.cuda.memory._record_memory_history() begins a recording",
                        path);
    return SPW_OK;
}

spw_status spw_memory_snapshot_read(const char *path, spw_memory_snapshot *out) {
    spw_status status = SPW_OK;
    reading r = {.path = path, .out = out};
    char *text = NULL;
    size_t length = 0;
    json_error_t error;
    json_t *root = NULL;
    const json_t *trace = NULL;
    *out = (spw_memory_snapshot){.events = 0};
    SPW_TRY(spw_file_read(path, (size_t)SPW_SNAPSHOT_MEGABYTES << 20, &text, &length));
    root = json_loadb(text, length, 0, &error);
    if (root == NULL && json_error_code(&error) == json_error_out_of_memory)
        SPW_TRY(spw_fail(SPW_ENOMEM, "%s: out of memory", path));
    if (!json_is_object(root))
        SPW_TRY(spw_fail(SPW_ECONFIG,
                         "%s:%d: %s; must be the JSON of torch.cuda.memory._snapshot() (a pickle: load it in "
                         "Python and json.dump() it)",
                         path, error.line, root == NULL ? error.text : "not an object"));
    SPW_TRY(find_trace(path, root, &trace));
    SPW_TRY(read_earlier(&r, root, trace));
    SPW_TRY(read_trace(&r, trace));

cleanup:
    tdestroy(r.live, spw_free);
    json_decref(root);
    spw_free(text);
    if (status != SPW_OK) spw_memory_snapshot_destroy(out);
    return status;
}

void spw_memory_snapshot_destroy(spw_memory_snapshot *snapshot) {
    spw_free(snapshot->event);
    *snapshot = (spw_memory_snapshot){.events = 0};
}
