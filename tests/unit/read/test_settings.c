/* Every key of every table by itself: another value changes the field of its row and no other byte, and one line of what is printed of it;
 * no two keys have a field in common. A row tied to another struct is refused. */
#include "sim/job/job.h"
#include "sim/machine/cluster.h"
#include "sim/read/settings.h"
#include "sim/read/settings_json.h"

#include "base/memory.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 128, MARGIN = 64, MOST_BYTES = 1 << 17, CANARY = 0xA5 };

/* What a walk needs: the text in which everything that is required stands, and who wrote which byte. */
typedef struct walk {
    const spw_setting *table;
    const char *text;
    unsigned char base[MOST_BYTES + MARGIN];
    uint16_t owner[MOST_BYTES]; /* number of the key that changes the byte; 0: none */
    uint16_t keys;
} walk;

static spw_status read_with(const walk *w, const char *path, const char *value, unsigned char *out) {
    spw_settings *settings = NULL;
    memset(out, 0, w->table->within);
    memset(out + w->table->within, CANARY, MARGIN);
    spw_status status = spw_settings_open("keys.yaml", w->text, strlen(w->text), &settings);
    if (status == SPW_OK && path != NULL) status = spw_settings_put(settings, path, value, "a value");
    if (status == SPW_OK) status = spw_settings_read(settings, w->table, out);
    spw_settings_close(settings);
    return status;
}

/* Two values of which one is not the one that stands in the text. */
static void values_of(const spw_setting *row, char out[2][PATH]) {
    static const char *const plain[][2] = {[SPW_SETTING_FLAG] = {"true", "false"},
                                           [SPW_SETTING_TEXT] = {"x", "y"},
                                           [SPW_SETTING_TEXTS] = {"[x]", "[y, x]"}};
    const spw_choice *last = row->choices;
    switch (row->kind) {
    case SPW_SETTING_COUNT:
    case SPW_SETTING_REAL:
    case SPW_SETTING_COUNTS:
        (void)snprintf(out[0], PATH, "%g", row->maximum < 2 ? row->maximum : row->minimum + 2);
        (void)snprintf(out[1], PATH, "%g", row->minimum);
        return;
    case SPW_SETTING_CHOICE:
        while (last[1].name != NULL) last++;
        (void)snprintf(out[0], PATH, "%s", last->name);
        (void)snprintf(out[1], PATH, "%s", row->choices->name);
        return;
    default:
        for (int i = 0; i < 2; i++) (void)snprintf(out[i], PATH, "%s", plain[row->kind][i]);
    }
}

static size_t bytes_of(const spw_setting *row) {
    const size_t one = row->kind == SPW_SETTING_FLAG                                       ? sizeof(bool)
                       : row->kind == SPW_SETTING_COUNT || row->kind == SPW_SETTING_COUNTS ? sizeof(size_t)
                       : row->kind == SPW_SETTING_REAL                                     ? sizeof(double)
                                                                                           : row->size;
    return one * (row->kind == SPW_SETTING_COUNTS || row->kind == SPW_SETTING_TEXTS ? row->limit : 1);
}

/* Lines of JSON that differ: values of keys, and keys that only one has. */
static size_t lines_apart(json_t *a, json_t *b) {
    const char *key;
    json_t *value;
    size_t apart = 0;
    json_object_foreach(a, key, value) {
        json_t *other = json_object_get(b, key);
        apart += json_is_object(value) && other != NULL ? lines_apart(value, other)
                                                        : other == NULL || !json_equal(value, other);
    }
    json_object_foreach(b, key, value) apart += json_object_get(a, key) == NULL;
    return apart;
}

/* What is printed of the struct differs from the first in the line of `path` alone, and reads as the struct again. */
static void check_json(const walk *w, const char *path, const unsigned char *changed) {
    spw_json json = {.failed = false};
    json_t *base = spw_settings_json(&json, w->table, w->base),
           *now = spw_settings_json(&json, w->table, changed), *was = base, *is = now;
    unsigned char *again = calloc(1, MOST_BYTES);
    spw_settings *settings = NULL;
    char name[PATH], *rest = NULL;
    CHECK(!json.failed && again != NULL);
    CHECK(lines_apart(base, now) == 1);
    (void)snprintf(name, sizeof name, "%s", path);
    for (char *part = strtok_r(name, ".", &rest); part != NULL; part = strtok_r(NULL, ".", &rest)) {
        was = json_object_get(was, part);
        is = json_object_get(is, part);
    }
    CHECK(was == NULL || is == NULL || !json_equal(was, is));
    CHECK(was != NULL || is != NULL);
    char *text = json_dumps(now, JSON_COMPACT);
    CHECK_OK(spw_settings_open("again.yaml", text, strlen(text), &settings));
    CHECK_OK(spw_settings_read(settings, w->table, again));
    CHECK(memcmp(again, changed, w->table->within) == 0);
    spw_settings_close(settings);
    free(text);
    free(again);
    json_decref(base);
    json_decref(now);
}

/* The row's own bytes are those that change, and nobody's else. `group`: where its struct begins. */
static void check_key(walk *w, const spw_setting *row, const char *path, size_t group) {
    unsigned char *changed = malloc(MOST_BYTES + MARGIN);
    char value[2][PATH];
    size_t differ = 0, outside = 0, shared = 0;
    values_of(row, value);
    w->keys++;
    for (int i = 0; i < 2 && differ == 0; i++) {
        CHECK_OK(read_with(w, path, value[i], changed));
        for (size_t at = 0; at < w->table->within; at++) {
            const size_t own = group + row->offset, count = group + row->count_offset;
            const bool list = row->kind == SPW_SETTING_COUNTS || row->kind == SPW_SETTING_TEXTS;
            if (changed[at] == w->base[at]) continue;
            differ++;
            outside += !(at >= own && at < own + bytes_of(row)) &&
                       !(list && at >= count && at < count + sizeof(size_t));
            shared += w->owner[at] != 0 && w->owner[at] != w->keys;
            w->owner[at] = w->keys;
        }
        for (size_t at = 0; at < MARGIN; at++) outside += changed[w->table->within + at] != CANARY;
    }
    CHECK(differ > 0 && outside == 0 && shared == 0);
    if (differ > 0) check_json(w, path, changed);
    if (differ == 0 || outside > 0 || shared > 0)
        fprintf(stderr, "  %s: %zu bytes changed, %zu of them not its own, %zu of another key\n", path,
                differ, outside, shared);
    free(changed);
}

static void check_keys(walk *w, const spw_setting *table, const char *prefix, size_t group) {
    for (; table->key != NULL; table++) {
        char path[PATH];
        (void)snprintf(path, sizeof path, "%s%s", prefix, table->key);
        if (table->kind != SPW_SETTING_GROUP) {
            check_key(w, table, path, group);
            continue;
        }
        (void)snprintf(path, sizeof path, "%s%s.", prefix, table->key);
        check_keys(w, table->fields, path, group + table->offset);
    }
}

static void check_all(const spw_setting *table, const char *text, uint16_t keys) {
    walk *w = calloc(1, sizeof *w);
    w->table = table;
    w->text = text;
    CHECK(table->within <= MOST_BYTES);
    CHECK_OK(read_with(w, NULL, NULL, w->base));
    check_keys(w, table, "", 0);
    CHECK(w->keys >= keys);
    free(w);
}

#define FIGURE "{value: 1e12, evidence: assumed, source: here}"
static const char cluster[] =
    "name: c\nnodes: 1\ngpus_per_node: 1\nhbm_gib: {value: 80, evidence: assumed, source: here}\n"
    "bf16_flops: " FIGURE "\nfp8_flops: " FIGURE "\nhbm_bytes_per_s: " FIGURE "\nlink_bytes_per_s: " FIGURE
    "\nnic_bytes_per_s: " FIGURE "\nlaunch_s: {value: 0, evidence: assumed, source: here}\n";

/* One struct of two, whose rows are those of another one. */
typedef struct small {
    size_t number;
} small;
typedef struct large {
    small inner;
    size_t number, more;
} large;

static void test_unlike_structs(void) {
    static const spw_setting inner[] = {{.key = "number",
                                         .kind = SPW_SETTING_COUNT,
                                         SPW_SETTING_OF(large, number, size_t),
                                         .maximum = 9,
                                         .fallback = "1"},
                                        {.key = NULL}},
                             outer[] = {{.key = "inner",
                                         .kind = SPW_SETTING_GROUP,
                                         SPW_SETTING_GROUP_OF(large, inner),
                                         .fields = inner,
                                         .fallback = "{}"},
                                        {.key = NULL}};
    large read = {.number = 0};
    spw_settings *settings = NULL;
    CHECK_OK(
        spw_settings_open("keys.yaml", "inner: {number: 3}\n", strlen("inner: {number: 3}\n"), &settings));
    CHECK_STATUS(spw_settings_read(settings, outer, &read), SPW_EARG);
    CHECK(strstr(spw_last_error(), "'number' is of a struct of 24 bytes, not 8") != NULL);
    spw_settings_close(settings);
}

int main(void) {
    check_all(spw_job_settings(),
              "model: a\ncluster: b\nparallel: {expert: 1, fsdp: 1}\n"
              "batch: {sequences_per_gpu: 1, sequence_length: 1}\n",
              50);
    check_all(spw_cluster_settings(), cluster, 60);
    test_unlike_structs();
    return check_done();
}
