/* From ordered records to the file. */
#include "traces/importers/assembly_internal.h"

#include "base/memory.h"
#include "traces/trace.h"
#include "traces/write/trace_write.h"
#include "traces/write/trace_write_internal.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_NAMES = 2000, MOST_TEXT = 3 * MOST_NAMES };

/* The buffers of one step. */
typedef struct workspace {
    uint64_t capacity; /* tokens */
    bool weighted;     /* the records have weights */
    uint16_t *expert_id, *weight, *row, *source_rank;
    int32_t *sequence, *position;
    uint64_t *sum;                       /* [experts] */
    uint32_t *routed, *by_rank, *counts; /* [experts], [ranks][experts], [experts] */
    uint8_t *chosen;                     /* token rows of the step that some layer has a choice of */
    int64_t next_sequence;
    int32_t *micro; /* [steps] */
} workspace;

static void clear(workspace *w) {
    void *owned[] = {w->expert_id, w->weight, w->row,     w->source_rank, w->sequence, w->position,
                     w->sum,       w->routed, w->by_rank, w->counts,      w->micro,    w->chosen};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) spw_free(owned[i]);
}

static const spw_part *part_at(const spw_assembly *assembly, size_t step, size_t layer, size_t source) {
    return &assembly->part[(step * assembly->layers + layer) * assembly->shape.ranks + source];
}

/* --- Ids --- */

static spw_status grow(workspace *w, const spw_assembly *assembly, uint64_t tokens) {
    spw_status status = SPW_OK;
    size_t choices = 0;
    if (tokens == 0) tokens = 1; /* arrays that are there */
    if (tokens <= w->capacity) return SPW_OK;
    void **arrays[] = {(void **)&w->expert_id, (void **)&w->weight,      (void **)&w->row,
                       (void **)&w->chosen,    (void **)&w->source_rank, (void **)&w->sequence,
                       (void **)&w->position};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        spw_free(*arrays[i]);
        *arrays[i] = NULL;
    }
    w->capacity = 0;
    if (!spw_mul_size((size_t)tokens, 2 * assembly->shape.top_k, &choices))
        SPW_TRY(spw_fail(SPW_ENOMEM, "a step of %" PRIu64 " tokens", tokens));
    SPW_TRY(SPW_ALLOC(choices / 2, &w->expert_id));
    if (w->weighted) SPW_TRY(SPW_ALLOC(choices / 2, &w->weight));
    SPW_TRY(SPW_ALLOC(w->weighted ? choices : choices / 2, &w->row));
    SPW_TRY(SPW_ALLOC((size_t)tokens, &w->chosen));
    SPW_TRY(SPW_ALLOC((size_t)tokens, &w->source_rank));
    SPW_TRY(SPW_ALLOC((size_t)tokens, &w->sequence));
    SPW_TRY(SPW_ALLOC((size_t)tokens, &w->position));
    w->capacity = tokens;

cleanup:
    return status;
}

/* Row of token `t` of `tokens` where sequences follow each other. */
static uint64_t row_of(const spw_assembly_shape *shape, uint64_t t, uint64_t tokens) {
    if (shape->sequences == 0 || !shape->interleaved) return t;
    return t % shape->sequences * (tokens / shape->sequences) + t / shape->sequences;
}

static spw_status fill_columns(workspace *w, const spw_assembly *assembly, size_t step) {
    const spw_assembly_shape *shape = &assembly->shape;
    uint64_t at = 0;
    for (size_t source = 0; source < shape->ranks; source++) {
        const spw_part *part = part_at(assembly, step, 0, source);
        const uint64_t sequences = shape->sequences > 0 ? shape->sequences : 1,
                       length = part->rows / sequences;
        if (part->rows % sequences != 0) {
            return spw_assembly_fail(assembly->settings, &part->place,
                                     "%" PRIu64 " tokens are not %" PRIu64 " sequences of one length",
                                     part->rows, sequences);
        }
        if (w->next_sequence > INT32_MAX - (int64_t)sequences || length > INT32_MAX)
            return spw_assembly_fail(assembly->settings, &part->place, "more than %d sequences", INT32_MAX);
        for (uint64_t t = 0; t < part->rows; t++, at++) {
            w->source_rank[at] = (uint16_t)source;
            w->sequence[at] = (int32_t)(w->next_sequence + (int64_t)(t / length));
            w->position[at] = (int32_t)(t % length);
        }
        w->next_sequence += (int64_t)sequences;
    }
    return SPW_OK;
}

/* The ids of a layer, and weights, in the order of the trace. */
static spw_status read_layer(workspace *w, spw_assembly *assembly, size_t step, size_t layer) {
    spw_status status = SPW_OK;
    const size_t top_k = assembly->shape.top_k;
    uint64_t at = 0;
    for (size_t source = 0; source < assembly->shape.ranks; source++) {
        const spw_part *part = part_at(assembly, step, layer, source);
        SPW_TRY(spw_assembly_read(assembly, part, w->row));
        for (uint64_t t = 0; t < part->rows; t++) {
            const uint64_t to = (at + row_of(&assembly->shape, t, part->rows)) * top_k;
            memcpy(w->expert_id + to, w->row + t * top_k, top_k * sizeof *w->row);
            if (w->weighted)
                memcpy(w->weight + to, w->row + (part->rows + t) * top_k, top_k * sizeof *w->row);
        }
        at += part->rows;
    }

cleanup:
    return status;
}

/* chosen [tokens]: whether a token has an expert in any layer. *kept: how many have. */
static spw_status find_chosen(workspace *w, spw_assembly *assembly, size_t step, uint64_t tokens,
                              uint64_t *kept) {
    spw_status status = SPW_OK;
    const size_t top_k = assembly->shape.top_k;
    memset(w->chosen, 0, (size_t)tokens);
    *kept = 0;
    for (size_t layer = 0; layer < assembly->layers; layer++) {
        SPW_TRY(read_layer(w, assembly, step, layer));
        for (uint64_t i = 0; i < tokens * top_k; i++)
            if (w->expert_id[i] != SPW_TRACE_MISSING) w->chosen[i / top_k] = 1;
    }
    for (uint64_t t = 0; t < tokens; t++) *kept += w->chosen[t];
    if (*kept == 0)
        SPW_TRY(
            spw_assembly_fail(assembly->settings, &part_at(assembly, step, 0, 0)->place,
                              "no token of the step has a choice; --drop-padding would leave nothing of it"));

cleanup:
    return status;
}

/* Moves the columns of chosen tokens together. */
static void keep_columns(workspace *w, uint64_t tokens) {
    for (uint64_t t = 0, to = 0; t < tokens; t++) {
        if (w->chosen[t] == 0) continue;
        w->source_rank[to] = w->source_rank[t];
        w->sequence[to] = w->sequence[t];
        w->position[to++] = w->position[t];
    }
}

static void keep_ids(workspace *w, uint64_t tokens, size_t top_k) {
    for (uint64_t t = 0, to = 0; t < tokens; t++) {
        if (w->chosen[t] == 0) continue;
        memmove(w->expert_id + to * top_k, w->expert_id + t * top_k, top_k * sizeof *w->expert_id);
        if (w->weighted) memmove(w->weight + to * top_k, w->weight + t * top_k, top_k * sizeof *w->weight);
        to++;
    }
}

/* tokens: of the step, as recorded. */
static spw_status write_ids(workspace *w, spw_assembly *assembly, size_t step, uint64_t tokens,
                            spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    for (size_t layer = 0; layer < assembly->layers; layer++) {
        SPW_TRY(read_layer(w, assembly, step, layer));
        if (assembly->settings->drop_padding) keep_ids(w, tokens, assembly->shape.top_k);
        SPW_TRY(spw_trace_writer_put_layer(writer, layer, w->expert_id, w->weight));
    }

cleanup:
    return status;
}

/* --- Counts --- */

/* *tokens of counts [experts] that sum to tokens x top_k, none above tokens. */
static spw_status tokens_of(const spw_assembly *assembly, const spw_part *part, const char *whose,
                            const uint64_t *count, uint64_t *tokens) {
    const size_t top_k = assembly->shape.top_k;
    uint64_t sum = 0;
    for (size_t i = 0; i < assembly->shape.experts; i++) sum += count[i];
    *tokens = sum / top_k;
    if (sum % top_k != 0) {
        return spw_assembly_fail(assembly->settings, &part->place,
                                 "%s counts sum to %" PRIu64
                                 ", which is no multiple of --top-k %zu; counts after "
                                 "drops or with padding cannot be imported",
                                 whose, sum, top_k);
    }
    for (size_t i = 0; i < assembly->shape.experts; i++) {
        if (count[i] <= *tokens && count[i] <= UINT32_MAX) continue;
        return spw_assembly_fail(assembly->settings, &part->place,
                                 "expert %zu is chosen %" PRIu64 " times by %" PRIu64
                                 " tokens (%s counts / --top-k %zu); a token chooses it once at most",
                                 i, count[i], *tokens, whose, top_k);
    }
    return SPW_OK;
}

/* The counts of one layer: w->routed, w->by_rank, and their tokens. */
static spw_status read_counts(workspace *w, spw_assembly *assembly, size_t step, size_t layer,
                              uint64_t *tokens) {
    spw_status status = SPW_OK;
    const spw_assembly_shape *shape = &assembly->shape;
    memset(w->sum, 0, shape->experts * sizeof *w->sum);
    if (w->by_rank != NULL) memset(w->by_rank, 0, shape->ranks * shape->experts * sizeof *w->by_rank);
    for (size_t source = 0; source < shape->ranks; source++) {
        const spw_part *part = part_at(assembly, step, layer, source);
        SPW_TRY(spw_assembly_read(assembly, part, w->counts));
        for (size_t i = 0; i < part->rows; i++) {
            w->sum[part->first + i] += w->counts[i];
            if (w->by_rank != NULL) w->by_rank[source * shape->experts + part->first + i] = w->counts[i];
        }
    }
    SPW_TRY(tokens_of(assembly, part_at(assembly, step, layer, 0), "the", w->sum, tokens));
    for (size_t i = 0; i < shape->experts; i++) w->routed[i] = (uint32_t)w->sum[i];

cleanup:
    return status;
}

/* The tokens of a step by the counts of its layers, which must agree, rank by rank where the ranks are sources. */
static spw_status count_tokens(workspace *w, spw_assembly *assembly, size_t step, uint64_t *tokens) {
    spw_status status = SPW_OK;
    const spw_assembly_shape *shape = &assembly->shape;
    for (size_t source = 0; shape->sources && source < shape->ranks; source++) {
        uint64_t first = 0, of_rank = 0;
        for (size_t layer = 0; layer < assembly->layers; layer++) {
            const spw_part *part = part_at(assembly, step, layer, source);
            memset(w->sum, 0, shape->experts * sizeof *w->sum);
            SPW_TRY(spw_assembly_read(assembly, part, w->counts));
            for (size_t i = 0; i < part->rows; i++) w->sum[part->first + i] = w->counts[i];
            SPW_TRY(tokens_of(assembly, part, "its", w->sum, &of_rank));
            if (layer == 0) first = of_rank;
            if (of_rank == first) continue;
            SPW_TRY(spw_assembly_fail(assembly->settings, &part->place,
                                      "counts of %" PRIu64 " tokens; the layers before have %" PRIu64,
                                      of_rank, first));
        }
    }
    for (size_t layer = 0; layer < assembly->layers; layer++) {
        uint64_t of_layer = 0;
        SPW_TRY(read_counts(w, assembly, step, layer, &of_layer));
        if (layer == 0) *tokens = of_layer;
        if (of_layer == *tokens) continue;
        SPW_TRY(spw_assembly_fail(assembly->settings, &part_at(assembly, step, layer, 0)->place,
                                  "counts of %" PRIu64 " tokens; the layers before have %" PRIu64
                                  " (padding, drops, or a layer without experts?)",
                                  of_layer, *tokens));
    }

cleanup:
    return status;
}

/* --- Steps --- */

static spw_status write_step(workspace *w, spw_assembly *assembly, size_t step, uint8_t phase,
                             spw_trace_writer *writer) {
    spw_status status = SPW_OK;
    const spw_assembly_shape *shape = &assembly->shape;
    const spw_part *first = part_at(assembly, step, 0, 0);
    spw_trace_write_step begun = {.id = first->place.step, .phase = phase, .tokens_kept = !shape->counts};
    uint64_t ignored = 0, recorded = 0;
    w->micro[step] = (int32_t)first->micro;
    if (shape->counts) {
        SPW_TRY(count_tokens(w, assembly, step, &begun.tokens));
    } else {
        for (size_t source = 0; source < shape->ranks; source++)
            begun.tokens += part_at(assembly, step, 0, source)->rows;
        SPW_TRY(grow(w, assembly, begun.tokens));
        SPW_TRY(fill_columns(w, assembly, step));
        recorded = begun.tokens;
        if (assembly->settings->drop_padding) {
            SPW_TRY(find_chosen(w, assembly, step, recorded, &begun.tokens));
            keep_columns(w, recorded);
        }
        begun.source_rank = shape->sources ? w->source_rank : NULL;
        begun.sequence = w->sequence;
        begun.position = w->position;
    }
    SPW_TRY(spw_trace_writer_begin_step(writer, &begun));
    if (!shape->counts) SPW_TRY(write_ids(w, assembly, step, recorded, writer));
    for (size_t layer = 0; shape->counts && layer < assembly->layers; layer++) {
        SPW_TRY(read_counts(w, assembly, step, layer, &ignored));
        SPW_TRY(spw_trace_writer_put_counts(writer, layer, w->routed, w->by_rank));
    }
    SPW_TRY(spw_trace_writer_end_step(writer));

cleanup:
    return status;
}

static const char *order_of(const spw_assembly *assembly) {
    if (assembly->settings->order != NULL) return assembly->settings->order;
    if (assembly->shape.order != NULL) return assembly->shape.order;
    return assembly->ascending && assembly->shape.top_k > 1 ? "ascending_id" : "unspecified";
}

/* names [MOST_NAMES] = the inputs without their folders. */
static void list_names(const spw_import_settings *settings, char *names) {
    size_t used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < settings->inputs; i++) {
        char plain[256];
        const char *slash = strrchr(settings->input[i], '/');
        spw_plain_text(slash != NULL ? slash + 1 : settings->input[i], plain, sizeof plain);
        if (used + strlen(plain) + 32 > MOST_NAMES) {
            (void)snprintf(names + used, MOST_NAMES - used, ", and %zu more", settings->inputs - i);
            return;
        }
        used += (size_t)snprintf(names + used, MOST_NAMES - used, "%s%s", i > 0 ? ", " : "", plain);
    }
}

/* Where a trace comes from, in words. `names`: its files. */
static spw_status set_texts(spw_trace_writer *writer, const spw_assembly *assembly,
                            const spw_importer *importer, const char *names) {
    const struct {
        const char *name, *text;
    } texts[] = {{"import_format", importer->name},
                 {"import_program", importer->program},
                 {"import_files", names},
                 {"import_lost", importer->lost},
                 {"import_facts", assembly->settings->facts_text}};
    spw_status status = SPW_OK;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && status == SPW_OK; i++) {
        if (texts[i].text != NULL && texts[i].text[0] != '\0')
            status = spw_trace_writer_set_text(writer, "/", texts[i].name, texts[i].text);
    }
    return status;
}

static spw_status create_writer(spw_assembly *assembly, const spw_importer *importer,
                                spw_trace_writer **out) {
    spw_status status = SPW_OK;
    const spw_import_settings *settings = assembly->settings;
    const spw_assembly_shape *shape = &assembly->shape;
    uint32_t *experts = NULL, *top_k = NULL;
    char names[MOST_NAMES], source[MOST_TEXT], note[MOST_TEXT], generator[64];
    uint64_t tokens = 0;
    list_names(settings, names);
    (void)snprintf(source, sizeof source, "%s: %s", importer->program, names);
    (void)snprintf(note, sizeof note, "imported from %s, %s; not known: %s", importer->program,
                   importer->reads, importer->lost);
    (void)snprintf(generator, sizeof generator, "spillway trace import %s", importer->name);
    SPW_TRY(SPW_ALLOC(assembly->layers, &experts));
    SPW_TRY(SPW_ALLOC(assembly->layers, &top_k));
    for (size_t i = 0; i < assembly->layers; i++) {
        experts[i] = (uint32_t)shape->experts;
        top_k[i] = (uint32_t)shape->top_k;
    }
    for (size_t i = 0; !shape->counts && i < assembly->parts; i += assembly->layers * shape->ranks) {
        for (size_t source_rank = 0; source_rank < shape->ranks; source_rank++)
            tokens += assembly->part[i + source_rank].rows;
    }
    const spw_trace_info info = {.layers = assembly->layers,
                                 .experts = shape->experts,
                                 .top_k = shape->top_k,
                                 .ranks = shape->sources ? shape->ranks : 0,
                                 .has_tokens = !shape->counts,
                                 .has_weights = assembly->parts > 0 && assembly->part[0].weighted,
                                 .has_sequences = shape->sequences > 0,
                                 .has_by_rank = shape->sources,
                                 .layer_id = assembly->layer_id,
                                 .layer_experts = experts,
                                 .layer_top_k = top_k,
                                 .source = source,
                                 .license = settings->license,
                                 .generator = generator,
                                 .note = note,
                                 .model_name = settings->model,
                                 .model_layers = settings->model_layers};
    const spw_trace_write_settings write = {
        .info = &info, .order = order_of(assembly), .tokens = settings->drop_padding ? 0 : tokens};
    SPW_TRY(spw_trace_writer_create(settings->output, &write, out));
    SPW_TRY(set_texts(*out, assembly, importer, names));
    if (info.has_weights && shape->weight_kind != NULL)
        SPW_TRY(spw_trace_writer_set_text(*out, "tokens/weight", "weight_kind", shape->weight_kind));
    SPW_TRY(spw_trace_write_array(*out, "model/block", H5T_STD_U8LE, H5T_NATIVE_UINT8, assembly->layers,
                                  assembly->layer_block));

cleanup:
    spw_free(experts);
    spw_free(top_k);
    return status;
}

static spw_status create_workspace(const spw_assembly *assembly, workspace *w) {
    spw_status status = SPW_OK;
    const spw_assembly_shape *shape = &assembly->shape;
    w->weighted = assembly->parts > 0 && assembly->part[0].weighted;
    for (size_t i = 1; i < assembly->parts; i++) {
        const spw_part *part = &assembly->part[i];
        if (part->weighted != w->weighted)
            return spw_assembly_fail(assembly->settings, &part->place, "%s weights, unlike others",
                                     part->weighted ? "has" : "has no");
    }
    SPW_TRY(SPW_ALLOC(assembly->steps, &w->micro));
    if (!shape->counts) goto cleanup;
    SPW_TRY(SPW_ALLOC(shape->experts, &w->sum));
    SPW_TRY(SPW_ALLOC(shape->experts, &w->routed));
    SPW_TRY(SPW_ALLOC(shape->experts, &w->counts));
    if (shape->sources) SPW_TRY(SPW_ALLOC(shape->ranks * shape->experts, &w->by_rank));

cleanup:
    return status;
}

spw_status spw_assembly_write(spw_assembly *assembly, const spw_importer *importer) {
    spw_status status = SPW_OK;
    spw_trace_writer *writer = NULL;
    workspace w = {.capacity = 0};
    const uint8_t phase =
        assembly->settings->phase >= 0 ? (uint8_t)assembly->settings->phase : importer->phase;
    SPW_TRY(spw_assembly_order(assembly));
    SPW_TRY(create_workspace(assembly, &w));
    SPW_TRY(create_writer(assembly, importer, &writer));
    for (size_t step = 0; step < assembly->steps; step++)
        SPW_TRY(write_step(&w, assembly, step, phase, writer));
    if (assembly->shape.micro_batches > 1) {
        SPW_TRY(spw_trace_write_array(writer, "steps/microbatch", H5T_STD_I32LE, H5T_NATIVE_INT32,
                                      assembly->steps, w.micro));
    }
    status = spw_trace_writer_finish(writer);
    writer = NULL;

cleanup:
    spw_trace_writer_abandon(writer);
    clear(&w);
    return status;
}
