#include "sim/command/trace/trace_overload.h"

#include "base/memory.h"
#include "base/walk.h"
#include "sim/print/plural.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <string.h>

typedef struct reading {
    spw_trace *trace;
    const spw_trace_info *info;
    size_t groups, group_ranks;
    bool by_source;         /* groups are of source ranks */
    uint32_t *counted;      /* [experts], or [ranks][experts] where counts by rank are read */
    uint64_t *rows;         /* [groups][group_ranks] of one layer, in its record */
    const uint16_t *source; /* of the tokens of step `begun`; NULL: not said */
    size_t begun;           /* SIZE_MAX: none */
    spw_overload sums;
    spw_overload_run *run;
} reading;

static bool divides(const spw_trace_info *info, size_t ranks) {
    for (size_t l = 0; l < info->layers; l++) {
        if (ranks == 0 || info->layer_experts[l] % ranks != 0) return false;
    }
    return true;
}

static void count_tokens(reading *r, const spw_trace_record *record, const uint16_t *source, size_t experts) {
    const size_t local = experts / r->group_ranks;
    const uint8_t *narrow = record->expert_id;
    const uint16_t *wide = record->expert_id;
    const size_t ranks = r->group_ranks, all = r->groups * ranks;
    uint64_t *rows = r->rows;
#pragma omp parallel for schedule(static) reduction(+ : rows[:all]) if (record->tokens > 4096)
    for (size_t token = 0; token < record->tokens; token++) {
        const size_t first = source != NULL ? source[token] / ranks * ranks : 0;
        for (size_t k = token * record->top_k; k < (token + 1) * record->top_k; k++) {
            const size_t id = record->id_bytes == 1 ? narrow[k] : wide[k];
            if (id < experts) rows[first + id / local]++;
        }
    }
}

/* counted [sources][experts] */
static void count_counts(reading *r, size_t sources, size_t experts, size_t stride) {
    const size_t local = experts / r->group_ranks;
    for (size_t s = 0; s < sources; s++) {
        uint64_t *rows = r->rows + (r->by_source ? s / r->group_ranks * r->group_ranks : 0);
        for (size_t x = 0; x < experts; x++) rows[x / local] += r->counted[s * stride + x];
    }
}

/* A unit is a layer of a step. */
static spw_status note_layer(void *context, size_t unit, spw_note *out) {
    reading *r = context;
    const spw_trace_info *info = r->info;
    const size_t step = unit / info->layers, layer = unit % info->layers,
                 experts = info->layer_experts[layer];
    spw_status status = SPW_OK;
    spw_trace_record record;
    void *rows = NULL;
    SPW_TRY(spw_note_add(out, r->groups * r->group_ranks * sizeof *r->rows, &rows));
    r->rows = rows;
    if (step != r->begun && r->by_source && info->has_tokens) {
        spw_trace_columns columns;
        SPW_TRY(spw_trace_read_columns(r->trace, step, 1, &columns));
        r->source = columns.source_rank;
    }
    r->begun = step;
    if (info->has_tokens && info->step_offset[step + 1] > info->step_offset[step] &&
        (r->source != NULL || !r->by_source)) {
        SPW_TRY(spw_trace_read_record(r->trace, step, 1, layer, false, &record));
        count_tokens(r, &record, r->source, experts);
    } else if (r->by_source && info->has_by_rank) {
        SPW_TRY(spw_trace_read_by_rank(r->trace, step, layer, r->counted));
        count_counts(r, info->ranks, experts, info->experts);
    } else if (!r->by_source && info->has_routed) {
        SPW_TRY(spw_trace_read_routed(r->trace, step, layer, r->counted));
        count_counts(r, 1, experts, info->experts);
    }

cleanup:
    return status;
}

static spw_status take_layer(void *context, size_t unit, spw_note_reader *record) {
    reading *r = context;
    const size_t layers = r->info->layers, layer = unit % layers;
    const void *rows = NULL;
    double factor[SPW_OVERLOADS];
    spw_status status = SPW_OK;
    SPW_TRY(spw_note_next(record, r->groups * r->group_ranks * sizeof(uint64_t), &rows));
    if (layer == 0) spw_overload_begin(&r->sums);
    for (size_t g = 0; g < r->groups; g++)
        spw_overload_add(&r->sums, layer, 0, g * r->group_ranks, (const uint64_t *)rows + g * r->group_ranks);
    if (layer + 1 < layers) goto cleanup;
    spw_overload_end(&r->sums, factor);
    spw_overload_run_add(r->run, factor, r->info->step_id[unit / layers]);

cleanup:
    return status;
}

static spw_status found(void *context, const spw_state *state) {
    const reading *r = context;
    spw_status status = spw_overload_state(&r->sums, state);
    return status == SPW_OK ? spw_state_part(state, r->run, sizeof *r->run) : status;
}

/* Does the trace say which rank chose what? */
static spw_status knows_sources(spw_trace *trace, const spw_trace_info *info, bool *out) {
    spw_trace_columns columns = {.source_rank = NULL};
    const spw_status status =
        info->has_tokens && info->steps > 0 ? spw_trace_read_columns(trace, 0, 1, &columns) : SPW_OK;
    *out = info->has_by_rank || columns.source_rank != NULL;
    return status;
}

static spw_status begin(reading *r, size_t asked, spw_trace_overload *out) {
    const spw_trace_info *info = r->info;
    const size_t ranks = asked > 0 ? asked : info->ranks;
    spw_status status = SPW_OK;
    SPW_TRY(knows_sources(r->trace, info, &r->by_source));
    r->by_source = r->by_source && info->ranks > ranks && info->ranks % ranks == 0;
    r->group_ranks = ranks;
    r->groups = r->by_source ? info->ranks / ranks : 1;
    const spw_overload_shape shape = {r->groups * ranks, ranks, info->layers, NULL, {1, 1, 1}};
    SPW_TRY(spw_overload_create(&shape, &r->sums));
    SPW_TRY(SPW_ALLOC((info->ranks > 1 ? info->ranks : 1) * info->experts, &r->counted));
    SPW_TRY(SPW_ALLOC(info->layers, &out->layer));

cleanup:
    return status;
}

static void end(reading *r, spw_trace_overload *out) {
    spw_overload_run_finish(&out->run);
    for (size_t l = 0; l < r->info->layers; l++) out->layer[l] = spw_overload_run_layer(&r->sums, l);
    out->run_rank = spw_overload_run_rank(&r->sums);
    out->group_ranks = r->group_ranks;
    out->groups = r->groups;
}

spw_status spw_trace_overload_read(spw_trace *trace, size_t asked, spw_layer_statistics *statistics,
                                   spw_trace_overload *out) {
    const spw_trace_info *info = spw_trace_get_info(trace);
    spw_status status = SPW_OK;
    reading r = {.trace = trace, .info = info, .begun = SIZE_MAX, .run = &out->run};
    const spw_walk walk = {.context = &r, .compute = note_layer, .take = take_layer, .found = found};
    const bool counts = divides(info, asked > 0 ? asked : info->ranks);
    *out = (spw_trace_overload){.asked = asked > 0};
    if (asked > 0 && !counts)
        return spw_fail(SPW_EARG,
                        "--expert-parallel %zu: must divide the experts of every layer, at most %zu", asked,
                        info->experts);
    if (counts) SPW_TRY(begin(&r, asked, out));
    SPW_TRY(spw_trace_statistics(trace, counts ? &walk : NULL, statistics));
    if (counts) end(&r, out);

cleanup:
    spw_overload_destroy(&r.sums);
    spw_free(r.counted);
    return status;
}

void spw_trace_overload_clear(spw_trace_overload *overload) {
    spw_free(overload->layer);
    *overload = (spw_trace_overload){.layer = NULL};
}

/* --- Printing --- */

spw_status spw_trace_overload_print(const spw_trace_overload *o, const spw_trace_info *info, FILE *out) {
    static const spw_column columns[] = {
        {"of", "overload"}, {"mean", "mean"}, {"worst", "worst"}, {"step", "at step"}, {NULL, NULL}};
    spw_table *table = NULL;
    if (o->group_ranks == 0) {
        fputs(
            "\nOverload factors need a number of expert-parallel ranks, which the trace does not have: give "
            "--expert-parallel N.\n",
            out);
        return SPW_OK;
    }
    spw_status status = spw_table_create(columns, &table);
    if (status != SPW_OK) return status;
    fprintf(out,
            "\nOverload factors: rows of the fullest of %zu expert-parallel ranks over their mean, in %zu "
            "group%s "
            "(%s).\nMeans and worst are over steps; of a layer, over steps and groups:\n",
            o->group_ranks, o->groups, spw_plural(o->groups),
            o->asked ? "--expert-parallel" : "the trace's source ranks");
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        spw_table_text(table, spw_overload_name(i));
        spw_table_real(table, o->run.mean[i], "%.3f");
        spw_table_real(table, o->run.worst[i], "%.3f");
        spw_table_whole(table, o->run.worst_step[i]);
    }
    for (size_t l = 0; l < info->layers; l++) {
        char name[32];
        (void)snprintf(name, sizeof name, "layer %" PRId32, info->layer_id[l]);
        spw_table_text(table, name);
        spw_table_real(table, o->layer[l].average, "%.3f");
        spw_table_real(table, o->layer[l].max, "%.3f");
        spw_table_none(table);
    }
    status = spw_table_print(table, SPW_FORMAT_TABLE, out);
    if (status == SPW_OK)
        fprintf(out, "The same rank in all steps together: %.3f (slowest_rank of the run).\n", o->run_rank);
    spw_table_destroy(table);
    return status;
}

json_t *spw_trace_overload_json(spw_json *json, const spw_trace_overload *o, const spw_trace_info *info) {
    if (o->group_ranks == 0) return json_null();
    json_t *object = json_object(), *layers = json_array();
    spw_json_put(json, object, "ranks", spw_json_count(o->group_ranks));
    spw_json_put(json, object, "groups", spw_json_count(o->groups));
    spw_json_put(json, object, "ranks_from", spw_json_text(o->asked ? "option" : "trace"));
    for (int i = 0; i < SPW_OVERLOADS; i++) {
        json_t *factor = json_object();
        spw_json_put(json, factor, "mean", spw_json_real(o->run.mean[i]));
        spw_json_put(json, factor, "worst", spw_json_real(o->run.worst[i]));
        spw_json_put(json, factor, "worst_step", json_integer(o->run.worst_step[i]));
        spw_json_put(json, object, spw_overload_name(i), factor);
    }
    spw_json_put(json, object, "slowest_rank_of_run", spw_json_real(o->run_rank));
    for (size_t l = 0; l < info->layers; l++) {
        json_t *layer = json_object();
        spw_json_put(json, layer, "layer", json_integer(info->layer_id[l]));
        spw_json_put(json, layer, "average", spw_json_real(o->layer[l].average));
        spw_json_put(json, layer, "max", spw_json_real(o->layer[l].max));
        spw_json_add(json, layers, layer);
    }
    spw_json_put(json, object, "layers", layers);
    return object;
}
