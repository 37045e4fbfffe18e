#include "sim/replay/replay.h"

#include "base/saturate.h"
#include "base/walk.h"
#include "sim/job/job.h"
#include "sim/replay/replay_ranks.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "traces/trace.h"

#include <omp.h>

enum {
    WORD = sizeof(uint64_t),
    COUNT = sizeof(uint32_t),
    LAYER_ARRAYS = 4, /* rows, bytes sent and received, drops: of every layer and rank */
    NOTED = 12,       /* words that a record has of a rank: those, what memory follows, its time */
    OF_A_PART = 3,    /* words of a rank, stage and part: kept rows for memory and for overload factors */
    OF_A_USE = 5,     /* words of a rank, layer and micro-batch: its rows, and what they take */
    OF_A_RANK = 64,   /* words of a rank: other sums of a row */
    OF_A_LOAD = 16,   /* words that a step time needs of a rank and layer */
    OF_A_STEP = 16,   /* words of a step: its peak, and what PyTorch's allocator did */
    OF_AN_ALLOCATOR =
        96 << 10,       /* of a rank's blocks and segments, in each of two settings: measured, and doubled */
    OF_A_SEGMENT = 96,  /* bytes: in the layout, of micro-batches, as a piece that may be counted once */
    OF_A_ROW = 1 << 20, /* what does not grow: its tensors, its stages */
    OF_A_PRINT = 48 << 10 /* of a row on its way out, as JSON: measured, and doubled */
};

static uint64_t sum(uint64_t a, uint64_t b) { return spw_saturated_sum(a, b); }
static uint64_t times(uint64_t a, uint64_t b) { return spw_saturated_product(a, b); }

/* What the sizes of one place need: a split with a batch. */
typedef struct place {
    uint64_t ranks, sequences, experts, choices; /* choices: of a rank; sequences: of a micro-batch */
    uint64_t group, layers, steps, parts, stages;
    bool repeats; /* the trace has fewer tokens than the job: some are counted once for many ranks */
} place;

/* Choices by sequence and by rank, and destinations. */
static uint64_t counts_bytes(const place *p) {
    const uint64_t of_rank = sum(times(p->experts, p->sequences + 1), 2 * p->group + 8);
    return times(COUNT, times(p->ranks, of_rank));
}

static uint64_t place_bytes(const place *p, bool keeps) {
    const uint64_t counts = counts_bytes(p), segments = times(p->ranks, p->sequences),
                   selection = sum(times(COUNT, times(segments, p->experts)),
                                   times(WORD, times(p->ranks, p->group + 4)));
    uint64_t bytes = sum(sum(counts, selection), times(segments, OF_A_SEGMENT));
    if (p->repeats) bytes = sum(bytes, times(4, counts));
    if (keeps) /* experts and weights of a group, marks and ids of all */
        bytes = sum(bytes, sum(counts, times(p->choices, sum(times(8, p->group), times(3, p->ranks)))));
    return bytes;
}

/* What one layer of a step leaves of one row. */
static uint64_t record_bytes(const spw_replay_request *q, const place *p) {
    const uint64_t links = q->sink.state != NULL || q->sink.elsewhere ? p->group : 0;
    return times(times(p->ranks, spw_job_micro_batches(q->job)), times(WORD, NOTED + links));
}

static uint64_t row_bytes(const spw_replay_request *q, const place *p) {
    const bool listens = q->sink.state != NULL || q->sink.elsewhere;
    const uint64_t arrays = times(LAYER_ARRAYS + (listens ? LAYER_ARRAYS : 0), p->layers),
                   uses = times(times(OF_A_USE, p->layers),
                                times(p->parts, q->job->offload.modules != 0 ? p->stages : 1)),
                   loads = q->time_stack != NULL || q->megatron != NULL || q->listed
                               ? times(OF_A_LOAD, p->layers)
                               : 0,
                   of_rank =
                       sum(sum(arrays, sum(loads, uses)), sum(times(OF_A_PART, times(p->stages, p->parts)),
                                                              OF_A_RANK + (listens ? p->group : 0)));
    uint64_t bytes = times(WORD, sum(times(p->ranks, of_rank), times(OF_A_STEP, p->steps)));
    return sum(bytes, OF_A_ROW);
}

/* A row that is finished, and is kept until all are printed. */
static uint64_t kept_bytes(const place *p) {
    const uint64_t of_layers = times(p->layers, sizeof(spw_result_layer) + sizeof(spw_rank_rows)),
                   of_stages = times(p->stages, sizeof(spw_result_stage));
    return sum(sizeof(spw_result_row) + OF_A_PRINT, sum(of_layers, of_stages));
}

/* PyTorch's allocator is replayed for schemes that allocate what arrives. */
static uint64_t allocator_bytes(const spw_replay_request *q, const place *p, const spw_job *job,
                                size_t sequences) {
    uint64_t bytes = 0;
    for (size_t s = 0; s < q->schemes && q->allocator; s++) {
        const spw_point point = spw_point_of(job, &q->scheme[s], sequences);
        spw_layer layer = {.tensors = 0};
        const bool built = spw_layer_build(&q->scheme[s], &point.shape, SPW_FLAVOUR_LIVE, &layer) == SPW_OK;
        if (!built || spw_layer_is_dynamic(&layer)) bytes = sum(bytes, times(p->ranks, OF_AN_ALLOCATOR));
        spw_layer_destroy(&layer);
    }
    return bytes;
}

/* The most tokens of the steps that are replayed: all that is read at once, but where steps of inference are pooled. */
static uint64_t most_tokens(const spw_replay_request *q, const spw_trace_info *info) {
    const size_t end = q->step_end > 0 && q->step_end < info->steps ? q->step_end : info->steps;
    uint64_t most = 0;
    for (size_t s = q->step_begin; info->step_offset != NULL && s < end; s++) {
        const uint64_t tokens = info->step_offset[s + 1] - info->step_offset[s];
        most = tokens > most ? tokens : most;
    }
    return most;
}

static place place_of(const spw_replay_request *q, const spw_trace_info *info, size_t split, size_t batch) {
    const spw_job *job = &q->job[split];
    const spw_pipeline pipeline = spw_pipeline_of(job);
    const size_t sequences = job->sequences_per_gpu[batch];
    const spw_layer_shape shape = spw_layer_shape_of(job, sequences / pipeline.micro_batches);
    const size_t end = q->layer_end > 0 ? q->layer_end : info->layers;
    place p = {.ranks = spw_replay_ranks(q),
               .sequences = shape.sequences,
               .experts = shape.experts,
               .choices = shape.assignments,
               .group = shape.ranks,
               .layers = end > q->layer_begin ? end - q->layer_begin : 0,
               .steps = (q->step_end > 0 ? q->step_end : info->steps) - q->step_begin,
               .parts = times(pipeline.micro_batches, pipeline.chunks),
               .stages = pipeline.stages};
    p.repeats = info->step_offset == NULL ||
                most_tokens(q, info) < times(p.ranks, shape.tokens * pipeline.micro_batches);
    return p;
}

/* Choices that are drawn from the counts of every rank: those of all, and of a rank that a thread draws once more, in another order,
 * with the places of its tokens in both. */
static uint64_t drawing_bytes(const spw_replay_request *q, const spw_trace_info *info, uint64_t choices) {
    const uint64_t ranks = spw_replay_ranks(q), threads = (uint64_t)omp_get_max_threads(),
                   of_rank = choices / (ranks > 0 ? ranks : 1),
                   tokens = of_rank / (info->top_k > 0 ? info->top_k : 1);
    return sum(
        sum(times(2, choices), times(COUNT, times(info->ranks + 1, 3 * info->experts))),
        times(threads < ranks ? threads : ranks, sum(times(2, of_rank), times(2, times(COUNT, tokens)))));
}

spw_status spw_replay_fit_memory(const spw_replay_request *q) {
    const spw_trace_info *info = spw_trace_get_info(q->trace);
    const size_t splits = q->splits > 0 ? q->splits : 1;
    uint64_t tables = 0, records = 0, job_tokens = 0, drawn = 0, kept = 0;
    bool keeps = false;
    if (q->memory == NULL) return SPW_OK;
    for (size_t s = 0; s < q->schemes; s++)
        keeps = keeps || spw_scheme_drop_rule(&q->scheme[s]) != SPW_DROP_BY_LIMIT;
    for (size_t i = 0; i < splits * q->job->batches; i++) {
        const place p = place_of(q, info, i / q->job->batches, i % q->job->batches);
        const uint64_t choices = times(times(p.ranks, p.choices), p.parts);
        tables = sum(tables, sum(place_bytes(&p, keeps), times(q->schemes, row_bytes(q, &p))));
        tables = sum(tables, allocator_bytes(q, &p, &q->job[i / q->job->batches],
                                             q->job->sequences_per_gpu[i % q->job->batches]));
        records = sum(records, times(q->schemes, record_bytes(q, &p)));
        drawn = choices > drawn ? choices : drawn;
        kept = kept_bytes(&p) > kept ? kept_bytes(&p) : kept;
    }
    tables = sum(tables, times(q->kept_rows, kept));
    job_tokens = drawn / (info->top_k > 0 ? info->top_k : 1);
    if (info->step_offset == NULL) tables = sum(tables, drawing_bytes(q, info, drawn));
    if (info->has_by_rank) tables = sum(tables, times(COUNT, times(info->ranks, 2 * info->experts)));
    const uint64_t most = most_tokens(q, info);
    const spw_memory_work work = {.tokens = info->ranks == 0 ? sum(most, job_tokens) : most,
                                  .weights =
                                      info->has_weights && spw_schemes_need_weights(q->scheme, q->schemes),
                                  .tables = (size_t)tables,
                                  .records = (size_t)records,
                                  .shared = !spw_walk_is_plain(q->checkpoint)};
    return spw_trace_fit_memory(q->trace, &work, q->memory);
}
