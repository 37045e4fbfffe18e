/* Speed of the allocator's replay on one core: the tensors of 60 expert layers of DeepSeek-V3's size over 1000 steps, each
 * with other rows, beside the making of their list. The bar is 10 seconds. */
#include "sim/command/command.h"

#include "base/memory.h"
#include "base/progress.h"
#include "sim/command/bench/bench_common.h"
#include "sim/command/job_options.h"
#include "sim/memory/allocator/event_list.h"
#include "sim/memory/tensors/bare_layers.h"
#include "sim/print/table.h"

#include <stdio.h>

enum {
    LAYERS = 60,
    TOKENS = 4096,
    TOP_K = 8,
    EXPERTS = 256,
    LOCAL = 32,
    HIDDEN = 7168,
    FFN = 2048,
    STEPS = 1000
};

typedef struct bench_options {
    size_t steps;
    spw_bench_common common;
} bench_options;

static const struct argp_option own_options[] = {
    {"steps", 'n', "N", 0, "steps (default: 1000)", 0},
    {0},
};

static error_t bench_allocator_parse(int key, char *text, struct argp_state *state) {
    bench_options *o = state->input;
    uint64_t steps = 0;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &o->common; return 0;
    case 'n':
        if (o->common.status == SPW_OK) o->common.status = spw_parse_count("--steps", text, 1 << 20, &steps);
        o->steps = steps;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{.argp = &spw_bench_format_argp}, {0}};

static const struct argp argp = {
    .options = own_options,
    .children = children,
    .parser = bench_allocator_parse,
    .doc = "The replay of PyTorch's caching allocator on one core: 60 MoE layers of DeepSeek-V3 on one of 8 "
           "ranks, 4096 "
           "tokens a rank, Megatron-Core's tensors, rows drawn anew for every step and layer.",
};

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One column of the table. */
typedef struct run {
    const char *name;
    bool replays;
    spw_allocator_settings settings;
} run;

typedef struct tally {
    double seconds;
    uint64_t events, reserved, allocated;
} tally;

static spw_status measure(const run *what, size_t steps, tally *out) {
    const spw_megatron_shape shape = {LAYERS, TOKENS, TOP_K, EXPERTS,           LOCAL, HIDDEN, FFN,
                                      0,      false,  false, SPW_RECOMPUTE_NONE};
    spw_bare_layers *bare = NULL;
    spw_allocator *allocator = NULL;
    spw_allocation *live = NULL;
    spw_event_list list = {.events = 0};
    spw_list_replay replay;
    uint64_t received[LAYERS], sent[LAYERS], state = 20;
    spw_status status = SPW_OK;
    *out = (tally){.seconds = 0.0};
    SPW_TRY(spw_bare_layers_create(&shape, &bare));
    SPW_TRY(spw_allocator_create(&what->settings, &allocator));
    SPW_TRY(SPW_ALLOC(spw_bare_layers_slots(bare), &live));
    for (size_t i = 0; i < spw_bare_layers_slots(bare); i++) live[i].block = SPW_ALLOCATION_EMPTY;
    SPW_TRY(spw_bare_layers_begin(bare, &list));
    SPW_TRY(spw_event_list_replay(&list, allocator, live, &replay));
    const double start = spw_clock_s();
    for (size_t step = 0; step < steps; step++) {
        for (size_t l = 0; l < LAYERS; l++) {
            sent[l] = (uint64_t)TOKENS * TOP_K;
            received[l] = sent[l] / 2 + next_random(&state) % (2 * sent[l]);
        }
        SPW_TRY(spw_bare_layers_step(bare, &(spw_megatron_rows){received, sent, NULL}, &list));
        out->events += list.events;
        if (!what->replays) continue;
        SPW_TRY(spw_event_list_replay(&list, allocator, live, &replay));
        out->reserved = replay.after.reserved_peak_bytes;
        out->allocated = replay.after.allocated_peak_bytes > out->allocated
                             ? replay.after.allocated_peak_bytes
                             : out->allocated;
    }
    out->seconds = spw_clock_s() - start;

cleanup:
    spw_free(live);
    spw_allocator_destroy(allocator);
    spw_event_list_destroy(&list);
    spw_bare_layers_destroy(bare);
    return status;
}

spw_status spw_command_bench_allocator(int argc, char **argv) {
    static const run runs[] = {{"the list alone", false, {0}},
                               {"replayed", true, {0}},
                               {"replayed, expandable segments", true, {.expandable_segments = true}}};
    bench_options o = {.steps = STEPS};
    spw_table *table = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_command_parse(&argp, argc, argv, &o));
    SPW_TRY(o.common.status);
    if (o.steps == 0) SPW_TRY(spw_fail(SPW_EARG, "--steps 0 measures nothing: write 1 or more"));
    SPW_TRY(spw_table_create(NULL, &table));
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        tally t;
        SPW_TRY(measure(&runs[i], o.steps, &t));
        spw_table_text(spw_table_in(table, "what", "what"), runs[i].name);
        spw_table_real(spw_table_in(table, "seconds", "seconds"), t.seconds, "%.2f");
        spw_table_count(spw_table_in(table, "events", "events"), t.events);
        spw_table_scaled(spw_table_in(table, "events_per_s", "million/s"),
                         t.seconds > 0.0 ? (double)t.events / t.seconds : 0.0, 1e6, "%.1f");
        spw_table_count_of(spw_table_in(table, "allocated_bytes", "allocated GB"), runs[i].replays,
                           t.allocated, 1e9, "%.1f");
        spw_table_count_of(spw_table_in(table, "reserved_bytes", "reserved GB"), runs[i].replays, t.reserved,
                           1e9, "%.1f");
    }
    SPW_TRY(spw_table_print(table, o.common.format, stdout));

cleanup:
    spw_table_destroy(table);
    return status;
}
