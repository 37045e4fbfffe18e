/* The event list of bare Megatron-Core layers: one step by pencil and paper, then the list against the closed form for random
 * rows, then the allocator over steps. */
#include "sim/memory/tensors/bare_layers.h"

#include "base/memory.h"
#include "tests/unit/check.h"
#include "tests/unit/memory/replays.h"

#include <string.h>

enum { LAYERS = 6, MOST_SLOTS = 1024 };

static spw_megatron_shape small_shape(spw_recompute recompute) {
    return (spw_megatron_shape){.layers = LAYERS,
                                .tokens = 1024,
                                .top_k = 8,
                                .experts = 64,
                                .experts_per_rank = 16,
                                .hidden = 512,
                                .ffn = 192,
                                .recompute = recompute};
}

/* T = 4, K = 1, E = e = 1, H = 2, F = 1, one layer of M = 4, N = 4:
 *   saved = 2 4 (2 + 3) + 16 + 32 + 48 + 16 + 16 + 128 = 296
 *   forward = 296 - 16 + 16 + 4 (4 + 12) = 360, and the kept tensors are replaced by as large ones */
static void test_by_hand(void) {
    const spw_megatron_shape shape = {
        .layers = 1, .tokens = 4, .top_k = 1, .experts = 1, .experts_per_rank = 1, .hidden = 2, .ffn = 1};
    const uint64_t rows[] = {4};
    const spw_megatron_bytes closed = spw_megatron_closed_form(&shape, rows, rows);
    CHECK(closed.after_forward_bytes == 296);
    CHECK(closed.forward_bytes == 360);
    CHECK(closed.backward_bytes == 296 + 8 + 8);
    spw_bare_layers *bare = NULL;
    spw_event_list list = {.events = 0};
    CHECK_OK(spw_bare_layers_create(&shape, &bare));
    CHECK_OK(spw_bare_layers_begin(bare, &list));
    for (int step = 0; step < 2; step++) {
        CHECK_OK(spw_bare_layers_step(bare, &(spw_megatron_rows){rows, rows, NULL}, &list));
        const spw_list_peak peak = spw_event_list_peak(&list);
        const int64_t kept = step == 0 ? 4 * 4 + 4 + 8 * 4 : 0; /* the first step has nothing to replace */
        CHECK(peak.after_forward_bytes == 296 + kept);
    }
    spw_event_list_destroy(&list);
    spw_bare_layers_destroy(bare);
}

static void test_closed_form(void) {
    uint64_t state = 11;
    for (int round = 0; round < 60; round++) {
        const spw_recompute recompute = round % 2 == 0 ? SPW_RECOMPUTE_NONE : SPW_RECOMPUTE_MOE_ACT;
        spw_megatron_shape shape = small_shape(recompute);
        shape.padded = round % 6 >= 4;
        shape.capacity = shape.padded ? 160 : 0;
        uint64_t received[LAYERS], sent[LAYERS];
        spw_bare_layers *bare = NULL;
        spw_event_list list = {.events = 0};
        CHECK_OK(spw_bare_layers_create(&shape, &bare));
        CHECK_OK(spw_bare_layers_begin(bare, &list));
        for (int step = 0; step < 3; step++) {
            for (size_t l = 0; l < LAYERS; l++) {
                sent[l] = shape.padded ? shape.experts * shape.capacity : shape.tokens * shape.top_k;
                received[l] = shape.padded ? sent[l] : 2048 + next_random(&state) % 30000;
            }
            CHECK_OK(spw_bare_layers_step(bare, &(spw_megatron_rows){received, sent, NULL}, &list));
            if (step == 0) continue;
            const spw_list_peak peak = spw_event_list_peak(&list);
            const spw_megatron_bytes closed = spw_megatron_closed_form(&shape, received, sent);
            CHECK(peak.after_forward_bytes == (int64_t)closed.after_forward_bytes);
            CHECK(peak.forward_bytes == (int64_t)closed.forward_bytes);
            CHECK(peak.peak_bytes == (int64_t)closed.peak_bytes);
            int64_t bytes[SPW_TENSOR_KINDS], sum = 0;
            spw_event_list_waterfall(&list, &peak, bytes);
            for (size_t k = 0; k < SPW_TENSOR_KINDS; k++) sum += bytes[k];
            CHECK(sum == peak.peak_bytes);
        }
        spw_event_list_destroy(&list);
        spw_bare_layers_destroy(bare);
    }
}

/* Experts one after the other hold the same bytes in more pieces: equal after the forward pass and at its peak. */
static void test_sequential(void) {
    uint64_t state = 23, received[LAYERS], sent[LAYERS], of_expert[LAYERS * 16];
    spw_megatron_shape shape = small_shape(SPW_RECOMPUTE_NONE);
    spw_bare_layers *grouped = NULL, *sequential = NULL;
    spw_event_list one = {.events = 0}, other = {.events = 0};
    CHECK_OK(spw_bare_layers_create(&shape, &grouped));
    shape.sequential = true;
    CHECK_OK(spw_bare_layers_create(&shape, &sequential));
    for (int step = 0; step < 4; step++) {
        for (size_t l = 0; l < LAYERS; l++) {
            received[l] = 0;
            sent[l] = shape.tokens * shape.top_k;
            for (size_t x = 0; x < 16; x++) {
                of_expert[16 * l + x] = (x + (size_t)step) % 5 == 0 ? 0 : next_random(&state) % 3000;
                received[l] += of_expert[16 * l + x];
            }
        }
        CHECK_OK(spw_bare_layers_step(grouped, &(spw_megatron_rows){received, sent, NULL}, &one));
        CHECK_OK(spw_bare_layers_step(sequential, &(spw_megatron_rows){received, sent, of_expert}, &other));
        const spw_list_peak a = spw_event_list_peak(&one), b = spw_event_list_peak(&other);
        CHECK(a.after_forward_bytes == b.after_forward_bytes);
        CHECK(a.forward_bytes == b.forward_bytes);
        CHECK(other.events > one.events);
    }
    CHECK_STATUS(spw_bare_layers_step(sequential, &(spw_megatron_rows){received, sent, NULL}, &other),
                 SPW_EARG);
    of_expert[5]++;
    CHECK_STATUS(spw_bare_layers_step(sequential, &(spw_megatron_rows){received, sent, of_expert}, &other),
                 SPW_EARG);
    spw_event_list_destroy(&one);
    spw_event_list_destroy(&other);
    spw_bare_layers_destroy(grouped);
    spw_bare_layers_destroy(sequential);
    shape.recompute = SPW_RECOMPUTE_MOE_ACT;
    CHECK_STATUS(spw_bare_layers_create(&shape, &sequential), SPW_EARG);
}

typedef struct outcome {
    uint64_t allocated_peak, reserved_peak;
} outcome;

/* Six steps, their rows drawn from `seeds`; one outcome a step. */
static void replay(spw_recompute recompute, const uint64_t seeds[6], bool expandable, outcome out[6]) {
    spw_megatron_shape shape = small_shape(recompute);
    shape.tokens = 4096; /* sizes beside which a page of 20 MiB is small */
    shape.hidden = 2048;
    shape.ffn = 1024;
    spw_bare_layers *bare = NULL;
    spw_event_list list = {.events = 0};
    spw_allocator *allocator = NULL;
    spw_allocation *live = NULL;
    spw_list_replay result;
    CHECK_OK(spw_bare_layers_create(&shape, &bare));
    CHECK_OK(spw_allocator_create(&(spw_allocator_settings){.expandable_segments = expandable}, &allocator));
    CHECK_OK(SPW_ALLOC(spw_bare_layers_slots(bare), &live));
    for (size_t i = 0; i < spw_bare_layers_slots(bare); i++) live[i].block = SPW_ALLOCATION_EMPTY;
    CHECK_OK(spw_bare_layers_begin(bare, &list));
    CHECK_OK(spw_event_list_replay(&list, allocator, live, &result));
    for (size_t step = 0; step < 6; step++) {
        uint64_t state = seeds[step], received[LAYERS], sent[LAYERS];
        for (size_t l = 0; l < LAYERS; l++) {
            received[l] = next_random(&state) % 120000;
            sent[l] = shape.tokens * shape.top_k;
        }
        CHECK_OK(spw_bare_layers_step(bare, &(spw_megatron_rows){received, sent, NULL}, &list));
        const spw_list_peak peak = spw_event_list_peak(&list);
        CHECK_OK(spw_event_list_replay(&list, allocator, live, &result));
        CHECK((int64_t)(result.after.requested_peak_bytes - result.before.requested_bytes) ==
              peak.peak_bytes);
        CHECK((int64_t)(result.after_forward.requested_bytes - result.before.requested_bytes) ==
              peak.after_forward_bytes);
        CHECK(step == 0 || recompute == SPW_RECOMPUTE_MOE ||
              result.after.requested_bytes == result.before.requested_bytes);
        CHECK(result.after.allocated_peak_bytes <= result.after.reserved_bytes);
        out[step] = (outcome){result.after.allocated_peak_bytes, result.after.reserved_bytes};
    }
    for (size_t i = 0; i < spw_bare_layers_slots(bare); i++) CHECK_OK(spw_allocator_free(allocator, live[i]));
    CHECK(spw_allocator_get_stats(allocator).allocated_bytes == 0);
    CHECK_OK(spw_allocator_empty_cache(allocator));
    CHECK(spw_allocator_get_stats(allocator).reserved_bytes == 0);
    spw_free(live);
    spw_allocator_destroy(allocator);
    spw_event_list_destroy(&list);
    spw_bare_layers_destroy(bare);
}

static void test_allocator(void) {
    const uint64_t seeds[6] = {3, 5, 7, 11, 13, 17}, equal[6] = {5, 5, 5, 5, 5, 5};
    for (int r = SPW_RECOMPUTE_NONE; r <= (int)SPW_RECOMPUTE_MOE; r++) {
        outcome one[6], two[6], grown[6];
        replay((spw_recompute)r, seeds, false, one);
        replay((spw_recompute)r, seeds, false, two);
        CHECK(memcmp(one, two, sizeof one) == 0);
        replay((spw_recompute)r, seeds, true, grown);
        for (size_t i = 0; i < 6; i++) CHECK(grown[i].reserved_peak <= one[i].reserved_peak);
        CHECK(one[5].reserved_peak > one[0].reserved_peak); /* changing rows strand blocks */
        replay((spw_recompute)r, equal, false, one);
        CHECK(one[5].reserved_peak == one[2].reserved_peak); /* equal steps do not */
        CHECK(one[5].allocated_peak == one[4].allocated_peak);
    }
}

static void test_refusals(void) {
    spw_bare_layers *bare = NULL;
    spw_megatron_shape shape = small_shape(SPW_RECOMPUTE_NONE);
    shape.padded = true;
    CHECK_STATUS(spw_bare_layers_create(&shape, &bare), SPW_EARG);
    shape = small_shape(SPW_RECOMPUTE_NONE);
    shape.hidden = 0;
    CHECK_STATUS(spw_bare_layers_create(&shape, &bare), SPW_EARG);
    shape = small_shape(SPW_RECOMPUTE_NONE);
    for (int n = 0; n < 4; n++) {
        spw_event_list list = {.events = 0};
        spw_alloc_fail_after(n);
        spw_status status = spw_bare_layers_create(&shape, &bare);
        if (status == SPW_OK) status = spw_bare_layers_begin(bare, &list);
        spw_alloc_fail_after(-1);
        CHECK(status == (n < 4 ? SPW_ENOMEM : SPW_OK));
        spw_event_list_destroy(&list);
        spw_bare_layers_destroy(bare);
        bare = NULL;
    }
}

int main(void) {
    test_by_hand();
    test_closed_form();
    test_sequential();
    test_allocator();
    test_refusals();
    return check_done();
}
