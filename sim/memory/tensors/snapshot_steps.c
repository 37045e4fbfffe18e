#include "sim/memory/tensors/snapshot_steps.h"

#include "base/memory.h"

#include <string.h>

enum { NOT_ALIGNED = -1, MOST_CELLS = 400 << 20, NEEDED_TENTHS = 9 };

struct spw_snapshot_steps {
    spw_snapshot_event *event; /* of the recording */
    uint32_t *birth;           /* [blocks] number of the block's birth, counted without the earlier blocks */
    size_t events, earlier, births;
    size_t begin;       /* event with which the last step begins */
    size_t first_birth; /* of that step */
    size_t step_births;
    size_t ages;      /* a block dies at most ages - 1 steps after that of its birth */
    int32_t *aligned; /* [step_births] birth of the list, or NOT_ALIGNED */
    spw_snapshot_match match;
};

/* --- The step --- */

/* Two events are alike when both are births, or both deaths, of blocks of so many bytes. */
static uint64_t word_of(const spw_snapshot_event *e) { return e->bytes << 1 | !e->born; }

/* How many events the shortest step has with which the recording ends twice; 0: none with `least` births. */
static size_t find_step(const uint64_t *word, size_t events, size_t least, size_t *same) {
    size_t left = 0,
           right = 0; /* Z function of the reversed words: same[i] of them equal those from the end */
    for (size_t i = 1; i < events; i++) {
        size_t n = i < right ? (same[i - left] < right - i ? same[i - left] : right - i) : 0;
        while (i + n < events && word[events - 1 - n] == word[events - 1 - i - n]) n++;
        same[i] = n;
        if (i + n > right) left = i, right = i + n;
        if (n < i) continue;
        size_t births = 0;
        for (size_t k = 0; k < i; k++) births += (word[events - 1 - k] & 1) == 0;
        if (births >= least) return i;
    }
    return 0;
}

static spw_status cut(spw_snapshot_steps *s, size_t least) {
    spw_status status = SPW_OK;
    uint64_t *word = NULL;
    size_t *same = NULL, births = 0, length = 0;
    SPW_TRY(SPW_ALLOC(s->events, &word));
    SPW_TRY(SPW_ALLOC(s->events, &same));
    for (size_t i = 0; i < s->events; i++) {
        const uint32_t block = s->event[i].block;
        if (s->event[i].born && block >= s->earlier) s->birth[block] = (uint32_t)births++;
        word[i] = word_of(&s->event[i]);
    }
    s->births = births;
    length = find_step(word, s->events, least, same);
    if (length == 0)
        SPW_TRY(spw_fail(
            SPW_ECONFIG,
            "the snapshot does not end with two equal steps of at least %zu allocations; record three "
            "or more balanced steps from before the model is built, and dump right after a step",
            least));
    s->begin = s->events - length;
    s->first_birth = births;
    s->ages = 1;
    for (size_t i = s->begin; i < s->events; i++) s->first_birth -= s->event[i].born;
    s->step_births = births - s->first_birth;
    for (size_t i = s->begin; i < s->events && s->step_births > 0; i++) {
        const uint32_t block = s->event[i].block;
        if (s->event[i].born || block < s->earlier || s->birth[block] >= s->first_birth) continue;
        const size_t age = (s->first_birth - s->birth[block] - 1) / s->step_births + 1;
        if (age + 1 > s->ages) s->ages = age + 1;
    }

cleanup:
    spw_free(word);
    spw_free(same);
    return status;
}

/* --- Alignment --- */

typedef struct births {
    uint64_t *bytes;
    bool *routed; /* bytes that follow the rows; those of the balanced list alone */
    size_t count;
} births;

static spw_status births_of(const spw_event_list *list, births *out) {
    spw_status status = SPW_ALLOC(list->events + 1, &out->bytes);
    out->count = 0;
    for (size_t i = 0; i < list->events && status == SPW_OK; i++)
        if (list->event[i].born) out->bytes[out->count++] = list->event[i].bytes;
    return status;
}

/* The common subsequence that weighs most. A tensor that follows the routing weighs more than two that do not, and with its MiB: frameworks
 * differ in the order of weight gradients and of small tensors. way [a + 1][b + 1]: where the heaviest of the first i and j came from. */
static spw_status align(const uint64_t *a, size_t na, const births *b, int32_t *aligned) {
    enum { SKIP_A, SKIP_B, TAKE, ROUTED_WEIGHT = 3, MIB_BITS = 20 };
    spw_status status = SPW_OK;
    const size_t width = b->count + 1;
    uint8_t *way = NULL;
    uint64_t *row = NULL; /* weights of the last row, then of this one */
    size_t cells = 0;
    if (!spw_mul_size(na + 1, width, &cells) || cells > MOST_CELLS)
        return spw_fail(SPW_ECONFIG,
                        "a step of %zu allocations beside %zu of the expert layers: too many to align", na,
                        b->count);
    SPW_TRY(SPW_ALLOC(cells, &way));
    SPW_TRY(SPW_ALLOC(width, &row));
    for (size_t i = 1; i <= na; i++) {
        uint64_t diagonal = 0; /* of the last row, one to the left */
        for (size_t j = 1; j < width; j++) {
            const uint64_t above = row[j];
            uint8_t from = row[j - 1] > above ? SKIP_B : SKIP_A;
            uint64_t best = row[j - 1] > above ? row[j - 1] : above;
            const uint64_t taken =
                diagonal + (b->routed[j - 1] ? ROUTED_WEIGHT + (b->bytes[j - 1] >> MIB_BITS) : 1);
            if (a[i - 1] == b->bytes[j - 1] && taken > best) best = taken, from = TAKE;
            way[i * width + j] = from;
            row[j] = best;
            diagonal = above;
        }
    }
    for (size_t i = 0; i < na; i++) aligned[i] = NOT_ALIGNED;
    for (size_t i = na, j = b->count; i > 0 && j > 0;) {
        const uint8_t from = way[i * width + j];
        if (from == TAKE) aligned[i - 1] = (int32_t)(j - 1);
        i -= from != SKIP_B;
        j -= from != SKIP_A;
    }

cleanup:
    spw_free(way);
    spw_free(row);
    return status;
}

/* The list of the expert layers when every layer has `received` rows. */
static spw_status layers_of(spw_recorded_layers *layers, uint64_t received, births *out) {
    spw_event_list list = {.events = 0};
    spw_status status = spw_recorded_layers_even(layers, received, &list);
    if (status == SPW_OK) status = births_of(&list, out);
    spw_event_list_destroy(&list);
    return status;
}

static spw_status judge(spw_snapshot_steps *s, const births *balanced) {
    spw_snapshot_match *m = &s->match;
    m->births = s->births;
    m->step_births = s->step_births;
    for (size_t j = 0; j < balanced->count; j++) {
        if (!balanced->routed[j]) continue;
        m->layer_births++;
        m->layer_bytes += balanced->bytes[j];
    }
    for (size_t i = 0; i < s->step_births; i++) {
        const int32_t j = s->aligned[i];
        if (j == NOT_ALIGNED || !balanced->routed[j]) continue;
        m->layer_matched++;
        m->matched_bytes += balanced->bytes[j];
    }
    if (m->matched_bytes / NEEDED_TENTHS * 10 >= m->layer_bytes) return SPW_OK;
    return spw_fail(
        SPW_ECONFIG,
        "only %zu of the %zu tensors that follow the routing are found in the snapshot's step (%.0f %% of "
        "their bytes); must be recorded with balanced routing, the all-to-all dispatcher, grouped experts in "
        "bf16, and the job's layers, tokens, experts a rank, hidden and ffn sizes",
        m->layer_matched, m->layer_births,
        100.0 * (double)m->matched_bytes / (double)(m->layer_bytes > 0 ? m->layer_bytes : 1));
}

static spw_status align_step(spw_snapshot_steps *s, const births *balanced) {
    spw_status status = SPW_OK;
    uint64_t *bytes = NULL;
    SPW_TRY(SPW_ALLOC(s->step_births + 1, &bytes));
    SPW_TRY(SPW_ALLOC(s->step_births + 1, &s->aligned));
    for (size_t i = s->begin, n = 0; i < s->events; i++)
        if (s->event[i].born) bytes[n++] = s->event[i].bytes;
    SPW_TRY(align(bytes, s->step_births, balanced, s->aligned));
    SPW_TRY(judge(s, balanced));

cleanup:
    spw_free(bytes);
    return status;
}

spw_status spw_snapshot_steps_create(const spw_memory_snapshot *snapshot, spw_recorded_layers *layers,
                                     uint64_t rows, spw_snapshot_steps **out) {
    spw_status status = SPW_OK;
    spw_snapshot_steps *s = NULL;
    births balanced = {.count = 0}, skewed = {.count = 0};
    *out = NULL;
    SPW_TRY(layers_of(layers, rows, &balanced));
    SPW_TRY(layers_of(layers, rows + 1, &skewed));
    if (balanced.count != skewed.count) SPW_TRY(spw_fail(SPW_EARG, "the layers' list depends on their rows"));
    SPW_TRY(SPW_ALLOC(balanced.count + 1, &balanced.routed));
    for (size_t j = 0; j < balanced.count; j++) balanced.routed[j] = balanced.bytes[j] != skewed.bytes[j];
    SPW_TRY(SPW_ALLOC(1, &s));
    s->events = snapshot->events;
    s->earlier = snapshot->earlier;
    SPW_TRY(SPW_ALLOC(snapshot->events + 1, &s->event));
    SPW_TRY(SPW_ALLOC(snapshot->blocks + 1, &s->birth));
    memcpy(s->event, snapshot->event, snapshot->events * sizeof *s->event);
    SPW_TRY(cut(s, balanced.count / 2));
    SPW_TRY(align_step(s, &balanced));
    *out = s;
    s = NULL;

cleanup:
    spw_free(balanced.bytes);
    spw_free(balanced.routed);
    spw_free(skewed.bytes);
    spw_snapshot_steps_destroy(s);
    return status;
}

void spw_snapshot_steps_destroy(spw_snapshot_steps *s) {
    if (s == NULL) return;
    spw_free(s->event);
    spw_free(s->birth);
    spw_free(s->aligned);
    spw_free(s);
}

spw_snapshot_match spw_snapshot_steps_match(const spw_snapshot_steps *s) { return s->match; }

/* --- Lists --- */

/* Earlier blocks, then births that no step frees, then as many turns of the step as blocks live at most. */
size_t spw_snapshot_steps_slots(const spw_snapshot_steps *s) {
    return s->earlier + s->first_birth + s->ages * s->step_births;
}

/* Births that later steps may free begin with this one, less what would lie before the recording. */
static uint64_t turn_of(const spw_snapshot_steps *s, uint64_t birth) {
    return birth + (s->ages - 1) * s->step_births - s->first_birth;
}

static bool turns(const spw_snapshot_steps *s, uint64_t birth) {
    return birth + (s->ages - 1) * s->step_births >= s->first_birth;
}

/* `later` births after the recorded one. */
static uint32_t slot_of(const spw_snapshot_steps *s, const spw_snapshot_event *e, uint64_t later) {
    if (e->block < s->earlier) return e->block;
    const uint64_t birth = s->birth[e->block] + later;
    const size_t slot =
        turns(s, birth) ? s->first_birth + turn_of(s, birth) % (s->ages * s->step_births) : birth;
    return (uint32_t)(s->earlier + slot);
}

spw_status spw_snapshot_steps_begin(const spw_snapshot_steps *s, spw_event_list *list) {
    spw_status status = SPW_OK;
    spw_event_list_clear(list);
    for (size_t i = 0; i < s->begin && status == SPW_OK; i++) {
        const spw_snapshot_event *e = &s->event[i];
        status = spw_event_list_append(
            list, (spw_memory_event){.bytes = e->bytes, .slot = slot_of(s, e, 0), .born = e->born});
    }
    return status;
}

/* bytes [step_births]: what a step's births take. A block that outlives its step is taken to have the same bytes then. */
static uint64_t bytes_of(const spw_snapshot_steps *s, const spw_snapshot_event *e, const uint64_t *bytes) {
    if (e->block < s->earlier || !turns(s, s->birth[e->block])) return e->bytes;
    return bytes[turn_of(s, s->birth[e->block]) % s->step_births];
}

spw_status spw_snapshot_steps_step(const spw_snapshot_steps *s, size_t step, const spw_event_list *layers,
                                   spw_event_list *list) {
    spw_status status = SPW_OK;
    births now = {.count = 0};
    uint64_t *bytes = NULL;
    spw_memory_event *of = NULL; /* births of `layers` */
    SPW_TRY(births_of(layers, &now));
    SPW_TRY(SPW_ALLOC(now.count + 1, &of));
    SPW_TRY(SPW_ALLOC(s->step_births + 1, &bytes));
    for (size_t i = 0, n = 0; i < layers->events; i++)
        if (layers->event[i].born) of[n++] = layers->event[i];
    for (size_t i = s->begin, n = 0; i < s->events; i++) {
        if (!s->event[i].born) continue;
        const int32_t j = s->aligned[n];
        bytes[n++] = j != NOT_ALIGNED && (size_t)j < now.count ? now.bytes[j] : s->event[i].bytes;
    }
    spw_event_list_clear(list);
    for (size_t i = s->begin, n = 0; i < s->events; i++) {
        const spw_snapshot_event *e = &s->event[i];
        const int32_t j = e->born ? s->aligned[n++] : NOT_ALIGNED;
        const bool there = j != NOT_ALIGNED && (size_t)j < now.count;
        SPW_TRY(spw_event_list_append(
            list, (spw_memory_event){.bytes = bytes_of(s, e, bytes),
                                     .slot = slot_of(s, e, (uint64_t)step * s->step_births),
                                     .layer = there ? of[j].layer : 0,
                                     .micro_batch = there ? of[j].micro_batch : 0,
                                     .backward = there && of[j].backward,
                                     .born = e->born}));
    }

cleanup:
    spw_free(now.bytes);
    spw_free(of);
    spw_free(bytes);
    return status;
}
