#include "sim/score/megatron/measured_batch.h"

#include "base/memory.h"
#include "sim/routing/compose.h"
#include "traces/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        for (size_t i = 0; i < cells; i++) routed[l * cells + i] = counts->routed[i];
        for (size_t r = 0; r < s->ranks; r++) *known = *known && counts->tokens[r] == s->tokens;
    }

cleanup:
    spw_counts_destroy(counts);
    spw_composer_destroy(composer);
    return status;
}

static spw_status compose_step(const spw_measured_shape *s, int64_t id, const char *traces, uint64_t *routed,
                               bool *known) {
    static const char *const names[] = {"training_aux_e64.h5", "training_aux_e64_slice.h5"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        char path[4096];
        const int length = snprintf(path, sizeof path, "%s/%s", traces, names[n]);
        if (length < 0 || (size_t)length >= sizeof path || access(path, R_OK) != 0) continue;
        spw_trace *trace = NULL;
        spw_status status = spw_trace_open(path, &trace);
        if (status != SPW_OK) return status;
        const spw_trace_info *info = spw_trace_get_info(trace);
        for (size_t step = 0; step < info->steps && status == SPW_OK && !*known; step++) {
            if (info->step_id[step] != id || info->experts != s->experts || info->top_k != s->top_k) continue;
            *known = true;
            status = fill_from(trace, s, step, routed, known);
        }
        spw_trace_close(trace);
        if (status != SPW_OK || *known) return status;
    }
    return SPW_OK;
}

spw_status spw_measured_batch(const spw_measured_shape *shape, const char *routing, const char *traces,
                              uint64_t *routed, bool *known) {
    static const char prefix[] = "aux:";
    *known = false;
    memset(routed, 0, shape->layers * shape->ranks * shape->experts * sizeof *routed);
    if (strcmp(routing, "balanced") == 0) {
        compose_balanced(shape, routed);
        *known = true;
    } else if (strcmp(routing, "hot1") == 0) {
        compose_hot(shape, routed);
        *known = true;
    } else if (strncmp(routing, prefix, sizeof prefix - 1) == 0 && traces != NULL) {
        char *end = NULL;
        errno = 0;
        const long long id = strtoll(routing + sizeof prefix - 1, &end, 10);
        if (errno != 0 || end == routing + sizeof prefix - 1 || *end != '\0')
            return spw_fail(SPW_EFORMAT, "routing \"%s\": aux: and the id of a step", routing);
        return compose_step(shape, id, traces, routed, known);
    }
    return SPW_OK;
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
