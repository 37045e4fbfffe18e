#include "traces/shard_set.h"

#include "base/memory.h"
#include "traces/shard_names.h"
#include "traces/trace_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool spw_shard_set_is(const char *path) {
    static const char end[] = ".shards";
    const size_t length = strlen(path), tail = sizeof end - 1;
    struct stat entry;
    if (length > tail && strcmp(path + length - tail, end) == 0) return true;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

void spw_shard_set_clear(spw_shard_set *set) {
    for (size_t i = 0; i < set->shards && set->shard != NULL; i++) {
        void *owned[] = {set->shard[i].path,      set->shard[i].step_id,    set->shard[i].step_tokens,
                         set->shard[i].step_rows, set->shard[i].step_phase, set->shard[i].rank_id};
        for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) spw_free(owned[k]);
    }
    spw_free(set->shard);
    spw_trace_close(set->first);
    *set = (spw_shard_set){.shards = 0};
}

/* --- What one shard says --- */

static spw_status copy(const void *from, size_t bytes, void **out) {
    const spw_status status = spw_alloc(bytes, 1, out);
    if (status == SPW_OK) memcpy(*out, from, bytes);
    return status;
}

static spw_status note_shard(const char *path, const spw_trace_info *info, spw_shard *shard) {
    spw_status status = SPW_OK;
    const size_t steps = info->steps;
    shard->steps = steps;
    shard->ranks = info->ranks;
    SPW_TRY(copy(path, strlen(path) + 1, (void **)&shard->path));
    SPW_TRY(copy(info->step_id, steps * sizeof *info->step_id, (void **)&shard->step_id));
    SPW_TRY(copy(info->step_tokens, steps * sizeof *info->step_tokens, (void **)&shard->step_tokens));
    SPW_TRY(copy(info->step_phase, steps, (void **)&shard->step_phase));
    if (info->ranks > 0)
        SPW_TRY(copy(info->rank_id, info->ranks * sizeof *info->rank_id, (void **)&shard->rank_id));
    SPW_TRY(SPW_ALLOC(steps, &shard->step_rows));
    for (size_t s = 0; s < steps && info->step_offset != NULL; s++)
        shard->step_rows[s] = info->step_offset[s + 1] - info->step_offset[s];

cleanup:
    return status;
}

static spw_status compare_layers(const spw_trace_info *a, const spw_trace_info *b, const char *path_a,
                                 const char *path_b) {
    for (size_t l = 0; l < a->layers; l++) {
        if (a->layer_id[l] != b->layer_id[l] || a->layer_experts[l] != b->layer_experts[l] ||
            a->layer_top_k[l] != b->layer_top_k[l])
            return spw_fail(SPW_EFORMAT,
                            "%s and %s are no shards of one trace: layer position %zu is layer %" PRId32
                            ", top-%u of %u, there and layer %" PRId32 ", top-%u of %u, here",
                            path_a, path_b, l, a->layer_id[l], a->layer_top_k[l], a->layer_experts[l],
                            b->layer_id[l], b->layer_top_k[l], b->layer_experts[l]);
    }
    return SPW_OK;
}

/* Everything but steps, ranks and tokens is said alike by all shards. */
static spw_status compare(const spw_trace_info *a, const spw_trace_info *b, const char *path_a,
                          const char *path_b) {
    const struct {
        const char *what;
        size_t a, b;
    } numbers[] = {{"layers", a->layers, b->layers},
                   {"experts", a->experts, b->experts},
                   {"top-k", a->top_k, b->top_k},
                   {"bytes of an expert's number", a->id_bytes, b->id_bytes},
                   {"missing_value", a->missing, b->missing},
                   {"/tokens (1: it has them)", a->has_tokens, b->has_tokens},
                   {"router weights (1: it has them)", a->has_weights, b->has_weights},
                   {"sequences (1: it has them)", a->has_sequences, b->has_sequences},
                   {"/counts/routed (1: it has them)", a->has_routed, b->has_routed},
                   {"/counts/by_rank (1: it has them)", a->has_by_rank, b->has_by_rank},
                   {"source ranks (1: it knows them)", a->ranks > 0, b->ranks > 0},
                   {"layers of the model", a->model_layers, b->model_layers},
                   {"hidden size of the model", a->model_hidden, b->model_hidden},
                   {"expert width of the model", a->model_ffn, b->model_ffn},
                   {"sequence length", a->sequence_length, b->sequence_length},
                   {"GPUs of a node", a->gpus_per_node, b->gpus_per_node}};
    const struct {
        const char *what, *a, *b;
    } texts[] = {{"model", a->model_name, b->model_name}, {"content", a->content, b->content}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].a != numbers[i].b)
            return spw_fail(SPW_EFORMAT, "%s and %s are no shards of one trace: %s is %zu there and %zu here",
                            path_a, path_b, numbers[i].what, numbers[i].a, numbers[i].b);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].a, texts[i].b) != 0)
            return spw_fail(SPW_EFORMAT,
                            "%s and %s are no shards of one trace: %s is '%.60s' there and '%.60s' here",
                            path_a, path_b, texts[i].what, texts[i].a, texts[i].b);
    }
    return compare_layers(a, b, path_a, path_b);
}

/* What says how the datasets are to be read. */
static spw_status compare_attributes(const spw_trace *a, const spw_trace *b) {
    for (size_t i = SPW_TRACE_ORDER; i < SPW_TRACE_TEXTS; i++) {
        if (strcmp(a->text[i], b->text[i]) != 0)
            return spw_fail(
                SPW_EFORMAT,
                "%s and %s are no shards of one trace: an attribute is '%.60s' there and '%.60s' here",
                a->path, b->path, a->text[i], b->text[i]);
    }
    return SPW_OK;
}

/* --- The grid --- */

static int64_t first_rank(const spw_shard *s) { return s->ranks > 0 ? s->rank_id[0] : 0; }
static int64_t last_rank(const spw_shard *s) { return s->ranks > 0 ? s->rank_id[s->ranks - 1] : 0; }
static int64_t last_step(const spw_shard *s) { return s->step_id[s->steps - 1]; }

static int by_place(const void *left, const void *right) {
    const spw_shard *a = left, *b = right;
    if (a->step_id[0] != b->step_id[0]) return a->step_id[0] < b->step_id[0] ? -1 : 1;
    return first_rank(a) < first_rank(b) ? -1 : first_rank(a) > first_rank(b);
}

static bool same_steps(const spw_shard *a, const spw_shard *b) {
    return a->steps == b->steps && memcmp(a->step_id, b->step_id, a->steps * sizeof *a->step_id) == 0;
}

static bool same_ranks(const spw_shard *a, const spw_shard *b) {
    return a->ranks == b->ranks &&
           (a->ranks == 0 || memcmp(a->rank_id, b->rank_id, a->ranks * sizeof *a->rank_id) == 0);
}

static spw_status missing_ranks(const spw_shard *row, int64_t from, int64_t to) {
    return spw_fail(SPW_EFORMAT,
                    "a shard is missing: none holds ranks %" PRId64 " to %" PRId64 " at steps %" PRId64
                    " to %" PRId64,
                    from, to, row->step_id[0], last_step(row));
}

/* The shards [count] from `row` on that hold the same steps; ranks rise from 0 by one. */
static spw_status check_row(const spw_shard *row, size_t count) {
    int64_t next = 0;
    for (size_t c = 0; c < count; c++) {
        const spw_shard *s = &row[c];
        if (!same_steps(row, s))
            return spw_fail(
                SPW_EFORMAT,
                "%s has %zu steps from %" PRId64 " to %" PRId64 ", but %s has %zu from there to %" PRId64
                "; shards of the same steps must hold all of them",
                row->path, row->steps, row->step_id[0], last_step(row), s->path, s->steps, last_step(s));
        if (memcmp(row->step_phase, s->step_phase, row->steps) != 0)
            return spw_fail(SPW_EFORMAT, "%s and %s do not agree on the phases of their steps", row->path,
                            s->path);
        if (c > 0 && s->ranks == 0)
            return spw_fail(SPW_EFORMAT,
                            "%s and %s overlap: both hold step %" PRId64 ", and neither says of which ranks",
                            s[-1].path, s->path, s->step_id[0]);
        if (c > 0 && first_rank(s) < next)
            return spw_fail(SPW_EFORMAT, "%s and %s overlap: both hold rank %" PRId64 " at step %" PRId64,
                            s[-1].path, s->path, first_rank(s), s->step_id[0]);
        if (count > 1 && first_rank(s) > next) return missing_ranks(row, next, first_rank(s) - 1);
        for (size_t r = 1; r < s->ranks && count > 1; r++) {
            if (s->rank_id[r] != s->rank_id[r - 1] + 1)
                return missing_ranks(row, s->rank_id[r - 1] + 1, s->rank_id[r] - 1);
        }
        next = last_rank(s) + 1;
    }
    return SPW_OK;
}

/* A row that lacks a range of ranks which the first row has, or has one more. */
static spw_status compare_rows(const spw_shard *first, size_t columns, const spw_shard *row, size_t count) {
    for (size_t c = 0; c < columns || c < count; c++) {
        if (c < columns && c < count && same_ranks(&first[c], &row[c])) continue;
        if (c < columns && (c >= count || first_rank(&row[c]) > first_rank(&first[c])))
            return missing_ranks(row, first_rank(&first[c]), last_rank(&first[c]));
        if (c >= columns || first_rank(&row[c]) < first_rank(&first[c]))
            return missing_ranks(first, first_rank(&row[c]), last_rank(&row[c]));
        return spw_fail(SPW_EFORMAT,
                        "%s holds ranks %" PRId64 " to %" PRId64 ", but %s %" PRId64 " to %" PRId64
                        "; every range of steps must be cut into the same ranges of ranks",
                        first[c].path, first_rank(&first[c]), last_rank(&first[c]), row[c].path,
                        first_rank(&row[c]), last_rank(&row[c]));
    }
    return SPW_OK;
}

/* How far apart all steps inside of shards lie; 0 where they differ, or no shard has two. */
static int64_t stride_of(const spw_shard_set *set) {
    int64_t stride = 0;
    for (size_t i = 0; i < set->shards; i += set->columns) {
        const spw_shard *s = &set->shard[i];
        for (size_t k = 1; k < s->steps; k++) {
            const int64_t apart = s->step_id[k] - s->step_id[k - 1];
            if (stride != 0 && apart != stride) return 0;
            stride = apart;
        }
    }
    return stride;
}

static spw_status check_steps(const spw_shard_set *set) {
    const int64_t stride = stride_of(set);
    for (size_t i = set->columns; i < set->shards; i += set->columns) {
        const spw_shard *before = &set->shard[i - set->columns], *s = &set->shard[i];
        if (s->step_id[0] <= last_step(before))
            return spw_fail(SPW_EFORMAT,
                            "%s and %s overlap: one ends with step %" PRId64
                            ", the other begins with %" PRId64,
                            before->path, s->path, last_step(before), s->step_id[0]);
        if (stride > 0 && s->step_id[0] > last_step(before) + stride)
            return spw_fail(SPW_EFORMAT,
                            "a shard is missing: none holds steps %" PRId64 " to %" PRId64
                            ", between %s and %s, and all other steps lie %" PRId64 " apart",
                            last_step(before) + stride, s->step_id[0] - stride, before->path, s->path,
                            stride);
    }
    return SPW_OK;
}

static spw_status check_grid(spw_shard_set *set) {
    spw_status status = SPW_OK;
    qsort(set->shard, set->shards, sizeof *set->shard, by_place);
    for (size_t begin = 0, end = 0; begin < set->shards; begin = end) {
        const spw_shard *row = &set->shard[begin];
        for (end = begin + 1; end < set->shards && set->shard[end].step_id[0] == row->step_id[0];) end++;
        SPW_TRY(check_row(row, end - begin));
        if (begin == 0) set->columns = end;
        SPW_TRY(compare_rows(set->shard, set->columns, row, end - begin));
        set->rows++;
    }
    SPW_TRY(check_steps(set));

cleanup:
    return status;
}

spw_status spw_shard_set_read(const char *path, spw_shard_set *out) {
    spw_status status = SPW_OK;
    spw_shard_names names = {.count = 0};
    spw_trace *trace = NULL;
    spw_shard_set set = {.shards = 0};
    *out = set;
    SPW_TRY(spw_shard_names_read(path, &names));
    SPW_TRY(SPW_ALLOC(names.count, &set.shard));
    set.shards = names.count;
    for (size_t i = 0; i < names.count; i++) {
        if (spw_shard_set_is(names.path[i]))
            SPW_TRY(spw_fail(SPW_EFORMAT, "%s: a set of shards cannot be a shard", names.path[i]));
        SPW_TRY(spw_trace_open_file(names.path[i], NULL, &trace));
        const spw_trace_info *info = spw_trace_get_info(trace);
        SPW_TRY(note_shard(names.path[i], info, &set.shard[i]));
        if (i > 0) {
            SPW_TRY(compare(spw_trace_get_info(set.first), info, names.path[0], names.path[i]));
            SPW_TRY(compare_attributes(set.first, trace));
            spw_trace_close(trace);
        } else {
            set.first = trace;
        }
        trace = NULL;
    }
    status = check_grid(&set);
    if (status == SPW_EFORMAT) SPW_TRY(spw_fail_within(status, "%s", path));
    SPW_TRY(status);
    *out = set;
    set = (spw_shard_set){.shards = 0};

cleanup:
    spw_trace_close(trace);
    spw_shard_set_clear(&set);
    spw_shard_names_clear(&names);
    return status;
}
