#include "sim/score/megatron/measured_batch.h"

#include "base/memory.h"
#include "sim/job/job.h"
#include "sim/routing/compose.h"
#include "traces/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

size_t spw_measured_capacity(const spw_measured_shape *shape, double factor) {
    const double share = (double)(shape->tokens * shape->top_k) / (double)shape->experts;
    return (size_t)ceil(share * factor);
}

/* --- Composed by rule --- */

/* Whole turns over the experts first, so that the time does not depend on the tokens. */
static void compose_balanced(const spw_measured_shape *s, uint64_t *routed) {
    const size_t stride = s->experts / s->top_k, turns = s->tokens / s->experts;
    for (size_t row = 0; row < s->layers * s->ranks; row++) {
        uint64_t *n = routed + row * s->experts;
        for (size_t x = 0; x < s->experts; x++) n[x] += turns * s->top_k;
        for (size_t t = 0; t < s->tokens % s->experts; t++) {
            for (size_t j = 0; j < s->top_k; j++) n[(t + j * stride) % s->experts]++;
        }
    }
}

static void compose_hot(const spw_measured_shape *s, uint64_t *routed) {
    const size_t local = s->experts / s->ranks, assignments = s->tokens * s->top_k;
    for (size_t row = 0; row < s->layers * s->ranks; row++) {
        for (size_t x = 0; x < local; x++)
            routed[row * s->experts + x] = assignments / local + (x < assignments % local ? 1 : 0);
    }
}

/* --- Composed from a trace --- */

/* A job with this shape; the composer reads nothing else of it. */
static spw_job job_of(const spw_measured_shape *s) {
    spw_job job = {.expert = s->ranks, .fsdp = 1, .pipeline = 1, .tensor = 1, .sequence_length = s->tokens};
    job.model = (spw_model){.layers = s->layers,
                            .moe_layers = s->layers,
                            .hidden = s->hidden,
                            .experts = s->experts,
                            .top_k = s->top_k};
    (void)snprintf(job.model.name, sizeof job.model.name, "the measured stack");
    job.cluster.nodes = 1;
    job.cluster.gpus_per_node = s->ranks;
    return job;
}

static spw_status fill_from(spw_trace *trace, const spw_measured_shape *s, size_t step, uint64_t *routed,
                            bool *known) {
    const spw_job job = job_of(s);
    const size_t sequences = 1;
    const spw_placement placement = {
        .ranks = s->ranks, .group_ranks = s->ranks, .gpus_per_node = s->ranks, .experts = s->experts};
    spw_composer *composer = NULL;
    spw_counts *counts = NULL;
    spw_status status = SPW_OK;
    SPW_TRY(spw_composer_create(&(spw_composer_request){.trace = trace,
                                                        .job = &job,
                                                        .sequences = &sequences,
                                                        .batches = 1,
                                                        .step_begin = step,
                                                        .step_end = step + 1},
                                &composer));
    SPW_TRY(spw_counts_create(placement, sequences, &counts));
    SPW_TRY(spw_composer_begin(composer, 0));
    const size_t cells = s->ranks * s->experts;
    for (size_t l = 0; l < s->layers; l++) {
        spw_trace_record record;
        const spw_layout *layout = NULL;
        SPW_TRY(spw_composer_layer(composer, l % spw_composer_layers(composer), 0, &record, &layout));
        SPW_TRY(spw_counts_fill(counts, &record, layout));
        for (size_t i = 0; i < cells; i++) routed[l * cells + i] = counts->routed[i]; /* a line a rank */
        for (size_t r = 0; r < s->ranks; r++) *known = *known && counts->tokens[r] == s->tokens;
    }

cleanup:
    spw_counts_destroy(counts);
    spw_composer_destroy(composer);
    return status;
}

/* Rank r takes tokens [r T, (r + 1) T) of the trace, all its steps in order. */
static spw_status fill_from_all(spw_trace *trace, const spw_measured_shape *s, uint64_t *routed,
                                bool *known) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    const size_t want = s->ranks * s->tokens;
    size_t steps = 0;
    spw_status status = SPW_OK;
    *known = info->tokens >= want;
    if (!*known) return SPW_OK;
    while (info->step_offset[steps] < want) steps++;
    for (size_t l = 0; l < s->layers; l++) {
        spw_trace_record record;
        SPW_TRY(spw_trace_read_record(trace, 0, steps, l % info->layers, false, &record));
        const uint8_t *narrow = record.expert_id;
        const uint16_t *wide = record.expert_id;
        for (size_t i = 0; i < want * record.top_k; i++) {
            const size_t x = record.id_bytes == 1 ? narrow[i] : wide[i], rank = i / record.top_k / s->tokens;
            if (x < s->experts) routed[(l * s->ranks + rank) * s->experts + x]++;
        }
    }

cleanup:
    return status;
}

spw_status spw_measured_batch(const spw_measured_shape *shape, const char *routing,
                              spw_measured_traces *traces, uint64_t *routed, bool *known) {
    spw_measured_source source;
    spw_trace *trace = NULL;
    size_t step = 0;
    *known = false;
    memset(routed, 0, shape->layers * shape->ranks * shape->experts * sizeof *routed);
    if (strcmp(routing, "balanced") == 0) {
        compose_balanced(shape, routed);
        *known = true;
        return SPW_OK;
    }
    if (strcmp(routing, "hot1") == 0) {
        compose_hot(shape, routed);
        *known = true;
        return SPW_OK;
    }
    bool named = false;
    spw_status status = spw_measured_source_read(routing, &source, &named);
    if (status != SPW_OK || !named) return status;
    status = spw_measured_traces_find(traces, &source, shape->experts, shape->top_k, &trace, &step);
    if (status != SPW_OK || trace == NULL) return status;
    *known = true;
    return source.all ? fill_from_all(trace, shape, routed, known)
                      : fill_from(trace, shape, step, routed, known);
}

/* --- Rows --- */

static uint64_t rows_kept(const spw_measured_shape *s, uint64_t assignments) {
    if (s->capacity == 0 || (s->capacity > s->tokens && !s->padded)) return assignments;
    return s->padded || assignments > s->capacity ? s->capacity : assignments;
}

spw_measured_rows spw_measured_rows_of(const spw_measured_shape *s, const uint64_t *routed, size_t layer,
                                       size_t rank) {
    const size_t local = s->experts / s->ranks;
    const uint64_t *n = routed + layer * s->ranks * s->experts;
    spw_measured_rows out = {0};
    for (size_t x = 0; x < s->experts; x++) {
        const uint64_t assignments = n[rank * s->experts + x], kept = rows_kept(s, assignments);
        const bool here = x / local == rank;
        out.sent += kept;
        out.dropped += s->capacity > 0 && assignments > s->capacity ? assignments - s->capacity : 0;
        out.kept_local += here ? kept : 0;
        out.sent_off_rank += here ? 0 : kept;
    }
    for (size_t x = rank * local; x < (rank + 1) * local; x++) {
        uint64_t of_expert = 0;
        for (size_t source = 0; source < s->ranks; source++) {
            const uint64_t assignments = n[source * s->experts + x], kept = rows_kept(s, assignments);
            out.assignments_received += assignments;
            of_expert += kept;
            out.received_off_rank += source == rank ? 0 : kept;
        }
        out.received += of_expert;
        out.most_of_expert = of_expert > out.most_of_expert ? of_expert : out.most_of_expert;
    }
    return out;
}

void spw_measured_expert_rows(const spw_measured_shape *s, const uint64_t *routed, size_t layer, size_t rank,
                              uint64_t *of_expert) {
    const size_t local = s->experts / s->ranks;
    const uint64_t *n = routed + layer * s->ranks * s->experts;
    for (size_t i = 0; i < local; i++) {
        of_expert[i] = 0;
        for (size_t source = 0; source < s->ranks; source++)
            of_expert[i] += rows_kept(s, n[source * s->experts + rank * local + i]);
    }
}
