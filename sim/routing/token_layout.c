#include "sim/routing/token_layout.h"

#include "sim/job/grid.h"
#include "sim/job/job.h"
#include "sim/routing/counts.h"
#include "traces/trace.h"

#include <gsl/gsl_rng.h>
#include <inttypes.h>

/* Tries to give every job rank `per_rank` source ranks. *done says whether their tokens suffice: exactly when
 * the ranks are the job's own, at least when they are folded. */
static spw_status lay_out_by_rank(const spw_token_layout *t, size_t per_rank, bool *done) {
    const size_t want = t->sequences * spw_grid_sequence_tokens(t->job),
                 length = spw_grid_sequence_tokens(t->job);
    *done = false;
    for (size_t rank = 0; rank < t->ranks; rank++) {
        const size_t begin = spw_token_runs_first(t->runs, rank * per_rank),
                     end = spw_token_runs_first(t->runs, (rank + 1) * per_rank);
        const uint64_t have = spw_token_runs_tokens(t->runs, begin, end);
        if (per_rank == 1 ? have != want : have < want) return SPW_OK;
    }
    if (t->info->has_sequences && !spw_token_runs_have_length(t->runs, length)) {
        spw_assume(t->found,
                   "the trace's sequences are not %zu tokens long: they are cut to the job's, and so are "
                   "capacity groups",
                   length);
    }
    for (size_t rank = 0; rank < t->ranks; rank++) {
        const size_t begin = spw_token_runs_first(t->runs, rank * per_rank),
                     end = spw_token_runs_first(t->runs, (rank + 1) * per_rank);
        const spw_status status = spw_token_runs_take(t->runs, begin, end, want, length, rank, t->layout);
        if (status != SPW_OK) return status;
    }
    spw_layout_close(t->layout);
    *done = true;
    return SPW_OK;
}

/* The sequence has what the one `kinds` before it has; *from: its first segment, then that behind it. */
static spw_status repeat_sequence(const spw_token_layout *t, size_t rank, size_t sequence, size_t *from) {
    spw_status status = SPW_OK;
    while (status == SPW_OK && t->layout->segment[*from].sequence == sequence - t->kinds) {
        spw_segment again = t->layout->segment[(*from)++];
        again.sequence = (uint32_t)sequence;
        status = spw_layout_put(t->layout, rank, again);
    }
    return status;
}

/* Fills every sequence of the job with whole sequences of the trace; the last one is cut. They are dealt in
 * order while the trace's suffice and it knows no ranks, else drawn. */
spw_status spw_token_layout_draw(const spw_token_layout *t) {
    const size_t length = spw_grid_sequence_tokens(t->job);
    const uint64_t want = (uint64_t)t->ranks * t->sequences * spw_grid_sequence_tokens(t->job);
    size_t next =
        t->info->ranks == 0 && spw_token_runs_tokens(t->runs, 0, t->runs->runs) >= want ? 0 : t->runs->pieces;
    size_t repeated = 0; /* the segment that is repeated next */
    bool drew = false, dealt = next == 0;
    gsl_rng *random = gsl_rng_alloc(gsl_rng_mt19937);
    if (random == NULL) return spw_fail(SPW_ENOMEM, "cannot allocate a random number generator");
    gsl_rng_set(random, (unsigned long)(t->seed * 1000003 + t->step * 1009 + t->sequences));
    spw_status status = SPW_OK;
    for (size_t i = 0; i < t->ranks * t->sequences && status == SPW_OK; i++) {
        size_t rank = i / t->sequences, sequence = i % t->sequences;
        if (sequence == 0) repeated = t->layout->begin[rank];
        if (sequence >= t->kinds) {
            status = repeat_sequence(t, rank, sequence, &repeated);
            continue;
        }
        for (size_t filled = 0; filled < length && status == SPW_OK;) {
            size_t part = 0;
            drew = drew || next == t->runs->pieces;
            const size_t index =
                next < t->runs->pieces ? next++ : gsl_rng_uniform_int(random, t->runs->pieces);
            status =
                spw_token_runs_take_piece(t->runs, index, length - filled, rank, sequence, t->layout, &part);
            filled += part;
        }
    }
    spw_layout_close(t->layout);
    gsl_rng_free(random);
    spw_match_worsen(t->match, SPW_MATCH_RESAMPLED);
    if (!spw_grid_is_plain(t->job))
        spw_assume(t->found,
                   "what the GPUs of a tensor x context group have of a sequence is taken from the trace GPU "
                   "by GPU, in "
                   "parts of %zu tokens",
                   length);
    if (dealt) spw_assume(t->found, "the trace knows no source ranks: whole sequences are dealt to ranks");
    if (drew) {
        spw_assume(t->found,
                   "micro-batches are composed of whole sequences of the trace, drawn with seed %" PRIu64,
                   t->seed);
    }
    return status;
}

typedef struct slice {
    size_t offset, tokens; /* in the whole sequence */
} slice;

/* What a rank has of the sequences of its data-parallel rank: part t of `parts` of what context rank c has. */
typedef struct member {
    size_t replica, c, t, parts;
} member;

/* In Megatron-Core's grid the GPUs of a data-parallel rank follow each other; in MaxText's mesh the experts' axis is the fastest,
 * and the GPUs of a tensor group count as one. */
static member member_of(const spw_token_layout *t, size_t rank) {
    const spw_grid g = spw_grid_of(t->job);
    if (g.mesh_context > 1)
        return (member){rank / (g.expert * g.context) * g.expert + rank % g.expert,
                        rank / g.expert % g.context, 0, 1};
    const size_t parts = g.sequence_tensor;
    return (member){rank / (parts * g.context), rank / parts % g.context, rank % parts, parts};
}

/* Context rank c has pieces c and 2 CP - 1 - c of the sequence, one behind the other, of which tensor rank t takes the t-th
 * part; a part may touch both. */
static slice slice_of(const member *m, size_t context, size_t length, bool second) {
    const size_t own = length / (m->parts * context);
    if (context == 1) return second ? (slice){0, 0} : (slice){m->t * own, own};
    const size_t piece = length / (2 * context), begin = m->t * own, end = begin + own;
    const size_t low = second ? piece : 0, high = low + piece;
    const size_t from = begin > low ? begin : low, to = end < high ? end : high;
    const size_t first = second ? (2 * context - 1 - m->c) * piece : m->c * piece;
    return from < to ? (slice){first + from - low, to - from} : (slice){0, 0};
}

/* A trace by data-parallel rank: the GPUs of a tensor x context group share the sequences of one source rank. */
static spw_status lay_out_by_replica(const spw_token_layout *t, bool *done) {
    const spw_grid g = spw_grid_of(t->job);
    const size_t length = t->job->sequence_length, sequences = t->sequences, share = t->ranks / g.data;
    spw_status status = SPW_OK;
    *done = false;
    for (size_t d = 0; d < t->ranks / share; d++) {
        const size_t begin = spw_token_runs_first(t->runs, d), end = spw_token_runs_first(t->runs, d + 1);
        if (spw_token_runs_tokens(t->runs, begin, end) != sequences * length) return SPW_OK;
    }
    for (size_t i = 0; i < t->ranks * sequences * 2; i++) {
        const size_t rank = i / 2 / sequences, sequence = i / 2 % sequences;
        const member m = member_of(t, rank);
        const slice s = slice_of(&m, g.context, length, i % 2 == 1);
        const spw_token_place place = {rank, sequence, sequence * length + s.offset, s.tokens};
        SPW_TRY(
            spw_token_runs_take_part(t->runs, spw_token_runs_first(t->runs, m.replica), &place, t->layout));
    }
    spw_layout_close(t->layout);
    spw_assume(t->found,
               "source ranks of the trace are the job's data-parallel ranks: the %zu GPUs of a tensor x "
               "context group "
               "share their sequences",
               share);
    *done = true;

cleanup:
    return status;
}

spw_status spw_token_layout_deal(const spw_token_layout *t) {
    const size_t source = t->info->ranks;
    bool done = false;
    spw_status status = SPW_OK;
    spw_layout_clear(t->layout);
    if (source == t->ranks) {
        status = lay_out_by_rank(t, 1, &done);
    } else if (source > 0 && source < t->ranks && source == spw_grid_of(t->job).data) {
        status = lay_out_by_replica(t, &done);
    } else if (source > t->ranks && source % t->ranks == 0) {
        status = lay_out_by_rank(t, source / t->ranks, &done);
        if (done) {
            spw_match_worsen(t->match, SPW_MATCH_FOLDED);
            spw_assume(t->found, "%zu source ranks of the trace are folded onto %zu GPUs", source, t->ranks);
        }
    }
    return status;
}
