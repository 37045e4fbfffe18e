/* From records in the order of the files to [steps][layers][ranks], none missing and none twice. */
#include "traces/importers/assembly_internal.h"

#include "base/memory.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 1 << 22, MOST_RECORDS_OF_PLACE = 1 << 17 };

#define COMPARE(a, b) \
    if ((a) != (b)) return (a) < (b) ? -1 : 1

static int compare_layers(const spw_assembly_place *a, const spw_assembly_place *b) {
    COMPARE(a->block, b->block);
    COMPARE(a->depth, b->depth);
    COMPARE(a->layer, b->layer);
    return 0;
}

/* The records of one (step, layer, source) together, as they came. */
static int compare_groups(const void *left, const void *right) {
    const spw_part *a = left, *b = right;
    COMPARE(a->dropped, b->dropped);
    COMPARE(a->place.step, b->place.step);
    const int layers = compare_layers(&a->place, &b->place);
    if (layers != 0) return layers;
    COMPARE(a->source, b->source);
    COMPARE(a->arrival, b->arrival);
    return 0;
}

static int compare_places(const void *left, const void *right) {
    const spw_part *a = left, *b = right;
    COMPARE(a->dropped, b->dropped);
    COMPARE(a->place.step, b->place.step);
    COMPARE(a->micro, b->micro);
    const int layers = compare_layers(&a->place, &b->place);
    if (layers != 0) return layers;
    COMPARE(a->source, b->source);
    return 0;
}

/* Takes what is dropped, at the end after a sort, off the list. */
static void trim(spw_assembly *assembly) {
    while (assembly->parts > 0 && assembly->part[assembly->parts - 1].dropped) assembly->parts--;
}

/* Sources, and layers of pipeline stages numbered through the model. */
static spw_status number_ranks(spw_assembly *assembly) {
    const spw_index_list *first = &assembly->settings->stage_first;
    const size_t ranks = assembly->shape.ranks, stages = first->count > 0 ? first->count : 1;
    for (size_t i = 0; i < assembly->parts; i++) {
        spw_part *part = &assembly->part[i];
        const size_t stage = part->place.rank / ranks;
        if (stage >= stages) {
            return spw_assembly_fail(assembly->settings, &part->place,
                                     "--ranks says that %zu ranks record a layer, and there %s %zu pipeline "
                                     "stage%s (--stage-first); ranks 0 to %zu would be right",
                                     ranks, stages == 1 ? "is" : "are", stages, stages == 1 ? "" : "s",
                                     ranks * stages - 1);
        }
        part->source = (uint32_t)(part->place.rank % ranks);
        if (first->count > 0 && part->place.block == 0) part->place.layer += first->value[stage];
    }
    return SPW_OK;
}

static spw_status same_content(spw_assembly *assembly, const spw_part *a, const spw_part *b, bool *same) {
    spw_status status = SPW_OK;
    unsigned char *left = NULL, *right = NULL;
    const size_t bytes = spw_assembly_bytes(assembly, a);
    *same = false;
    if (a->hash != b->hash || a->rows != b->rows || a->weighted != b->weighted || a->first != b->first)
        return SPW_OK;
    SPW_TRY(SPW_ALLOC(bytes, &left));
    SPW_TRY(SPW_ALLOC(bytes, &right));
    SPW_TRY(spw_assembly_read(assembly, a, left));
    SPW_TRY(spw_assembly_read(assembly, b, right));
    *same = memcmp(left, right, bytes) == 0;

cleanup:
    spw_free(left);
    spw_free(right);
    return status;
}

/* Every record of the group is there twice: the later one of each pair is dropped. */
static spw_status drop_copies(spw_assembly *assembly, spw_part *group, size_t count) {
    spw_status status = SPW_OK;
    bool *paired = NULL, same = false;
    SPW_TRY(SPW_ALLOC(count, &paired));
    for (size_t i = 0; i < count; i++) {
        same = false;
        for (size_t j = i; j-- > 0 && !same;) {
            if (paired[j] || group[j].dropped) continue;
            SPW_TRY(same_content(assembly, &group[j], &group[i], &same));
            if (same) paired[j] = true;
        }
        group[i].dropped = same;
    }
    for (size_t i = 0; i < count; i++) {
        if (group[i].dropped || paired[i]) continue;
        SPW_TRY(
            spw_assembly_fail(assembly->settings, &group[i].place,
                              "has no second record with the same routing; with --recompute every record is "
                              "there twice"));
    }

cleanup:
    spw_free(paired);
    return status;
}

static spw_status fail_count(const spw_assembly *assembly, const spw_part *group, size_t count, size_t want) {
    const spw_assembly_shape *shape = &assembly->shape;
    const spw_part *part = count > want ? &group[want] : &group[count - 1];
    if (!shape->repeats) return spw_assembly_fail(assembly->settings, &part->place, "is there twice");
    return spw_assembly_fail(
        assembly->settings, &part->place,
        "%zu record%s where --micro-batches %zu%s would leave %s%zu; gradient accumulation "
        "(--micro-batches N) and recomputation (--recompute) write several",
        count, count == 1 ? "" : "s", shape->micro_batches, shape->recompute ? " and --recompute" : "",
        shape->number_steps ? "a multiple of " : "", want);
}

/* Numbers the records of one (step, layer, source). */
static spw_status number_group(spw_assembly *assembly, spw_part *group, size_t count) {
    spw_status status = SPW_OK;
    const spw_assembly_shape *shape = &assembly->shape;
    const size_t copies = shape->recompute ? 2 : 1, want = shape->micro_batches * copies;
    uint64_t micro = 0;
    for (size_t i = 1; i < count; i++) {
        if (group[i].place.rank == group[0].place.rank) continue;
        SPW_TRY(
            spw_assembly_fail(assembly->settings, &group[i].place,
                              "rank %u of another pipeline stage has this layer too; --ranks says how many "
                              "ranks record a layer, --stage-first where each stage begins",
                              group[0].place.rank));
    }
    if (shape->number_steps ? count % want != 0 : count != want)
        SPW_TRY(fail_count(assembly, group, count, want));
    if (count > MOST_RECORDS_OF_PLACE)
        SPW_TRY(spw_assembly_fail(assembly->settings, &group[0].place, "%zu records; at most %d are read",
                                  count, MOST_RECORDS_OF_PLACE));
    if (shape->recompute) SPW_TRY(drop_copies(assembly, group, count));
    for (size_t i = 0; i < count; i++) {
        if (group[i].dropped) continue;
        if (shape->number_steps) group[i].place.step = (int64_t)(micro / shape->micro_batches);
        group[i].micro = micro++ % shape->micro_batches;
    }

cleanup:
    return status;
}

static bool same_group(const spw_part *a, const spw_part *b) {
    return a->place.step == b->place.step && compare_layers(&a->place, &b->place) == 0 &&
           a->source == b->source;
}

static spw_status number_micro_batches(spw_assembly *assembly) {
    spw_status status = SPW_OK;
    size_t begin = 0;
    for (size_t end = 1; end <= assembly->parts; end++) {
        if (end < assembly->parts && same_group(&assembly->part[begin], &assembly->part[end])) continue;
        SPW_TRY(number_group(assembly, assembly->part + begin, end - begin));
        begin = end;
    }

cleanup:
    return status;
}

static int compare_places_of_layers(const void *left, const void *right) {
    return compare_layers(left, right);
}

/* assembly->layer = the distinct layers of all records, in order. */
static spw_status list_layers(spw_assembly *assembly) {
    spw_assembly_place *list = NULL;
    spw_status status = SPW_ALLOC(assembly->parts, &list);
    if (status != SPW_OK) return status;
    assembly->layer = list;
    for (size_t i = 0; i < assembly->parts; i++) list[i] = assembly->part[i].place;
    qsort(list, assembly->parts, sizeof *list, compare_places_of_layers);
    for (size_t i = 0; i < assembly->parts; i++) {
        if (assembly->layers == 0 || compare_layers(&list[assembly->layers - 1], &list[i]) != 0)
            list[assembly->layers++] = list[i];
    }
    if (assembly->layers <= SPW_TRACE_MAX_LAYERS) return SPW_OK;
    return spw_assembly_fail(assembly->settings, &list[SPW_TRACE_MAX_LAYERS],
                             "%zu layers; at most %d are read", assembly->layers, SPW_TRACE_MAX_LAYERS);
}

/* Whether the layers are those of --layers; arrays name them by it instead. */
static spw_status check_layers(const spw_assembly *assembly) {
    const spw_index_list *want = &assembly->settings->layers;
    if (want->count == 0 || assembly->shape.names_layers) return SPW_OK;
    for (size_t i = 0; i < want->count || i < assembly->layers; i++) {
        const bool extra =
            i >= want->count || (i < assembly->layers && assembly->layer_id[i] < want->value[i]);
        if (!extra && i < assembly->layers && want->value[i] == assembly->layer_id[i]) continue;
        return spw_fail(SPW_EFORMAT, "%s: layer %d is %s", assembly->settings->input[0],
                        extra ? assembly->layer_id[i] : want->value[i],
                        extra ? "recorded, but not among --layers"
                              : "among --layers, but nothing is recorded of it");
    }
    return SPW_OK;
}

/* Ids of the trace: the decoder's layers keep theirs, others are numbered behind them. */
static spw_status name_layers(spw_assembly *assembly) {
    spw_status status = SPW_OK;
    SPW_TRY(list_layers(assembly));
    SPW_TRY(SPW_ALLOC(assembly->layers, &assembly->layer_id));
    SPW_TRY(SPW_ALLOC(assembly->layers, &assembly->layer_block));
    for (size_t i = 0; i < assembly->layers; i++) {
        const bool behind = assembly->layer[i].block != 0 && i > 0;
        assembly->layer_block[i] = (uint8_t)assembly->layer[i].block;
        assembly->layer_id[i] = behind ? assembly->layer_id[i - 1] + 1 : assembly->layer[i].layer;
    }
    SPW_TRY(check_layers(assembly));

cleanup:
    return status;
}

/* part: of the step that lacks a record of (layer, source). */
static spw_status fail_missing(const spw_assembly *assembly, const spw_part *part, size_t layer,
                               size_t source) {
    spw_assembly_place place = assembly->layer[layer];
    place.step = part->place.step;
    place.file = part->place.file;
    place.line = 0;
    place.rank =
        (uint32_t)(place.rank / assembly->shape.ranks * assembly->shape.ranks + source); /* in its stage */
    return spw_assembly_fail(
        assembly->settings, &place,
        "no record; %zu layers of %zu ranks are expected in every step and micro-batch, and "
        "the files of all ranks as inputs",
        assembly->layers, assembly->shape.ranks);
}

/* Whether the sorted parts are [steps][layers][ranks]. */
static spw_status check_complete(spw_assembly *assembly) {
    const size_t ranks = assembly->shape.ranks, of_step = assembly->layers * ranks;
    if (of_step == 0) return spw_fail(SPW_EARG, "a step of no layers or ranks");
    for (size_t i = 0; i < assembly->parts; i++) {
        const spw_part *part = &assembly->part[i], *first = &assembly->part[i - i % of_step];
        const size_t layer = i % of_step / ranks, source = i % ranks;
        if (part->place.step != first->place.step || part->micro != first->micro || part->source != source ||
            compare_layers(&part->place, &assembly->layer[layer]) != 0)
            return fail_missing(assembly, first, layer, source);
        if (!assembly->shape.counts && part->rows != first[source].rows) {
            return spw_assembly_fail(assembly->settings, &part->place,
                                     "%" PRIu64 " tokens; the layers before have %" PRIu64
                                     " of this rank and step",
                                     part->rows, first[source].rows);
        }
    }
    if (assembly->parts % of_step != 0) {
        const size_t i = assembly->parts;
        return fail_missing(assembly, &assembly->part[i - 1], i % of_step / ranks, i % ranks);
    }
    assembly->steps = assembly->parts / of_step;
    if (assembly->steps > MOST_STEPS)
        return spw_fail(SPW_EFORMAT, "%s: %zu steps and micro-batches; at most %d are read",
                        assembly->settings->input[0], assembly->steps, MOST_STEPS);
    return SPW_OK;
}

spw_status spw_assembly_order(spw_assembly *assembly) {
    spw_status status = SPW_OK;
    if (fflush(assembly->spool) != 0)
        SPW_TRY(spw_fail(SPW_EIO, "%s: cannot be written (disk full?)", assembly->spool_file.temporary));
    SPW_TRY(number_ranks(assembly));
    if (assembly->parts > 0) qsort(assembly->part, assembly->parts, sizeof *assembly->part, compare_groups);
    trim(assembly);
    if (assembly->parts == 0) SPW_TRY(spw_fail(SPW_EFORMAT, "%s: no records", assembly->settings->input[0]));
    SPW_TRY(number_micro_batches(assembly));
    qsort(assembly->part, assembly->parts, sizeof *assembly->part, compare_places);
    trim(assembly);
    SPW_TRY(name_layers(assembly));
    SPW_TRY(check_complete(assembly));

cleanup:
    return status;
}
