/* A job of three layers of a small scheme, and its steps through the allocator: of tests of reserved memory. */
#ifndef SPW_TESTS_MEMORY_RESERVED_JOB_H
#define SPW_TESTS_MEMORY_RESERVED_JOB_H

#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/step/reserved_memory.h"
#include "sim/schemes/layer_builder.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"

#include <string.h>

enum { RANKS = 4, LAYERS = 3 };
static const double GIB = 1024.0 * 1024.0 * 1024.0;

static inline bool same_bytes(const void *a, const void *b, size_t size) { return memcmp(a, b, size) == 0; }

/* x [rows, H] and h [rows, 2 F] are needed by the backward pass, y [rows, H] and dx [rows, H] are not. */
static inline void arriving_layer(const spw_scheme *scheme, const spw_layer_shape *shape,
                                  spw_layer_builder *b) {
    static const spw_tensor x = {"x", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN},
                            h = {"h", SPW_ROWS_HELD, SPW_WIDTH_FFN, .times = 2},
                            y = {"y", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN},
                            dx = {"dx", SPW_ROWS_HELD, SPW_WIDTH_HIDDEN};
    (void)scheme, (void)shape;
    spw_layer_born(b, "step", x);
    spw_layer_born(b, "step", h);
    spw_layer_dies(b, "step", "x");
    spw_layer_born(b, "step", y);
    spw_layer_dies(b, "step", "h");
    spw_layer_dies(b, "step", "y");
    spw_layer_pass(b, SPW_PHASE_RECOMPUTE);
    spw_layer_born(b, "step", x);
    spw_layer_born(b, "step", h);
    spw_layer_pass(b, SPW_PHASE_BACKWARD);
    spw_layer_born(b, "step", dx);
    spw_layer_dies(b, "step", "h");
    spw_layer_dies(b, "step", "x");
    spw_layer_dies(b, "step", "dx");
}
static const spw_scheme_option options[] = {{.name = NULL}};
static const spw_scheme_type type = {
    .name = "arrives", .options = options, .about.section = "test", .memory.layer = arriving_layer};
static const spw_scheme scheme = {.type = &type, .text = "arrives"};

static inline uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline spw_job make_job(spw_remat remat, double hbm_gib) {
    spw_job job = {.expert = RANKS,
                   .fsdp = 1,
                   .pipeline = 1,
                   .tensor = 1,
                   .sequences_per_gpu = {1},
                   .batches = 1,
                   .sequence_length = 1024,
                   .part = SPW_PART_EXPERT_LAYERS,
                   .precision = {2, 4, 4, 2},
                   .remat = remat,
                   .memory_fraction = 1.0};
    job.model = (spw_model){
        .layers = LAYERS, .moe_layers = LAYERS, .hidden = 1024, .experts = 8, .top_k = 2, .expert_ffn = 512};
    job.cluster.nodes = 1;
    job.cluster.gpus_per_node = RANKS;
    job.cluster.hbm_gib.value = hbm_gib;
    return job;
}

/* asked: its steps, and what is to be done. allocated [steps] */
static inline void replay_steps(const spw_job *job, const uint64_t *held, spw_reserved_request asked,
                                spw_reserved_summary *out, uint64_t *allocated) {
    const spw_point point = spw_point_of(job, &scheme, 1);
    spw_footprint f;
    spw_reserved_memory *memory = NULL;
    spw_reserved_request request = asked;
    request.point = &point;
    request.footprint = &f;
    static const uint64_t live[RANKS] = {1, 1, 1, 1}; /* so few ranks are all followed */
    request.ranks = RANKS;
    request.layers = LAYERS;
    CHECK_OK(spw_footprint_compute(&point, NULL, &f));
    CHECK_OK(spw_reserved_memory_create(&request, &memory));
    for (size_t step = 0; step < asked.steps; step++) {
        for (size_t rank = 0; rank < RANKS; rank++) {
            for (size_t l = 0; l < LAYERS; l++) {
                uint64_t state = held[step] + 977 * rank + 31 * l + 1;
                for (int i = 0; i < 8; i++) (void)next_random(&state);
                const uint64_t rows = held[step] / 2 + next_random(&state) % (held[step] + 1);
                spw_reserved_memory_note(memory, l, 0, rank, (spw_rank_rows){rows, rows, rows});
            }
        }
        CHECK_OK(spw_reserved_memory_end_step(memory, step, live));
        allocated[step] = spw_reserved_memory_allocated(memory, step);
        CHECK(allocated[step] <= spw_reserved_memory_reserved(memory, step));
    }
    CHECK_OK(spw_reserved_memory_finish(memory, out));
    spw_reserved_memory_destroy(memory);
}

#endif
