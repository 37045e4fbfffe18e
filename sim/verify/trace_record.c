#include "sim/verify/trace_record.h"

#include "base/file.h"
#include "base/memory.h"
#include "kernels/record/record.h"
#include "sim/job/job.h"
#include "sim/routing/compose.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/selection.h"
#include "sim/verify/trace_group.h"
#include "traces/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIDDEN = 64 };

static const struct {
    const char *text;
    spw_record_rule rule;
} schemes[] = {
    {"dense:capacity_factor=1.25", SPW_RECORD_CAPACITY}, {"gmm", SPW_RECORD_SOURCE},
    {"gmm:buffer_factor=1", SPW_RECORD_SOURCE},          {"gmm:buffer_factor=0.75", SPW_RECORD_SOURCE},
    {"ring:buffer_factor=0.75", SPW_RECORD_EXPERT},      {"gmm-deepep", SPW_RECORD_TOKEN},
};

/* Bytes of the first tensor that has so many rows: of the buffer that the rows of a rank are held in, or of what it receives. */
static spw_status buffer_bytes(const spw_scheme *scheme, const spw_layer_shape *shape, spw_rows rows,
                               uint64_t *out) {
    spw_layer layer;
    const spw_status status = spw_layer_build(scheme, shape, SPW_FLAVOUR_LIVE, &layer);
    *out = 0;
    if (status != SPW_OK) return status;
    for (size_t i = 0; i < layer.tensors && *out == 0; i++) {
        const spw_layer_tensor *tensor = &layer.tensor[i];
        if (tensor->rows == rows && tensor->width == SPW_WIDTH_HIDDEN) *out = spw_layer_bytes(tensor, NULL);
    }
    spw_layer_destroy(&layer);
    return SPW_OK;
}

static spw_status predict(size_t which, const spw_layer_shape *shape, const spw_counts *counts, size_t group,
                          spw_record_scheme *out) {
    spw_status status = SPW_OK;
    spw_scheme scheme;
    spw_flow flow = {.wire = NULL};
    spw_exchange exchange[SPW_SCHEME_EXCHANGES];
    uint64_t rows[SPW_RECORD_RANKS], dropped[SPW_RECORD_RANKS];
    SPW_TRY(spw_scheme_parse(schemes[which].text, &scheme));
    SPW_TRY(SPW_ALLOC(shape->ranks, &flow.wire));
    SPW_TRY(SPW_ALLOC(shape->ranks * shape->ranks, &flow.line));
    SPW_TRY(SPW_ALLOC(shape->ranks * shape->sequences * shape->experts, &flow.limit));
    flow.rows = rows, flow.dropped = dropped;
    scheme.type->routing.flow(&(spw_routed_group){&scheme, shape, counts, group}, &flow);
    SPW_TRY(spw_flow_check(&scheme, &flow));
    (void)snprintf(out->text, sizeof out->text, "%s", schemes[which].text);
    out->rule = schemes[which].rule;
    const double factor = spw_scheme_factor(&scheme);
    out->factor_thousandths = isnan(factor) ? 0 : (size_t)lround(1000 * factor);
    const bool received = out->rule == SPW_RECORD_TOKEN;
    out->buffer_rows =
        received ? shape->ranks * shape->tokens : scheme.type->memory.buffer_rows(&scheme, shape);
    uint64_t x_bytes = 0;
    SPW_TRY(buffer_bytes(&scheme, shape, received ? SPW_ROWS_GATHERED : SPW_ROWS_BUFFER, &x_bytes));
    out->buffer_bytes = x_bytes;
    const size_t exchanges = scheme.type->traffic.exchanges(&scheme, shape, exchange);
    for (size_t i = exchanges; i-- > 0;) { /* the first one each way stays: the forward pass's */
        size_t *bytes = exchange[i].back ? &out->back_bytes : &out->row_bytes;
        *bytes = exchange[i].row_bytes;
    }
    for (size_t r = 0; r < shape->ranks; r++) {
        out->rows[r] = rows[r], out->dropped[r] = dropped[r];
        for (size_t d = 0; d < shape->ranks; d++) out->wire[r][d] = flow.wire[r][d];
    }
cleanup:
    spw_free(flow.wire), spw_free(flow.line), spw_free(flow.limit);
    return status;
}

/* The layer begun, as a record. */
static spw_status fill(spw_composer *composer, const spw_job *job, size_t group, spw_record *out) {
    spw_status status = SPW_OK;
    spw_trace_record record;
    const spw_layout *layout = NULL;
    spw_counts *counts = NULL;
    const spw_layer_shape shape = spw_layer_shape_of(job, job->sequences_per_gpu[0]);
    const size_t ranks = shape.ranks * job->fsdp;
    if (shape.ranks > SPW_RECORD_RANKS)
        SPW_TRY(spw_fail(SPW_EARG, "--expert-parallel %zu; a record holds at most %d ranks", shape.ranks,
                         SPW_RECORD_RANKS));
    SPW_TRY(spw_composer_layer(composer, 0, 0, &record, &layout));
    SPW_TRY(SPW_ALLOC(shape.ranks * shape.assignments, &out->expert));
    spw_group_choices(&record, layout, group * shape.ranks, &shape, out->expert, NULL);
    SPW_TRY(spw_counts_create((spw_placement){ranks, shape.ranks, job->cluster.gpus_per_node, shape.experts},
                              shape.sequences, &counts));
    SPW_TRY(spw_counts_fill(counts, &record, layout));
    out->ranks = shape.ranks, out->experts = shape.experts, out->top_k = shape.top_k;
    out->sequences = shape.sequences, out->sequence_length = shape.sequence_length;
    out->hidden = shape.hidden;
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (shape.ranks == 1 && schemes[i].rule != SPW_RECORD_CAPACITY) continue; /* nothing is exchanged */
        SPW_TRY(predict(i, &shape, counts, group, &out->scheme[out->schemes]));
        out->schemes++;
    }
cleanup:
    spw_counts_destroy(counts);
    return status;
}

static spw_status print(FILE *out, const void *record) { return spw_record_write(record, out); }

spw_status spw_trace_record_make(const char *trace_path, const spw_trace_record_settings *settings,
                                 spw_record *out) {
    spw_status status = SPW_OK;
    spw_trace *trace = NULL;
    spw_composer *composer = NULL;
    spw_job *job = NULL;
    const spw_trace_group_settings group = {settings->expert_parallel, 64, 1, 1};
    *out = (spw_record){.ranks = 0};
    SPW_TRY(spw_trace_open(trace_path, &trace));
    const spw_trace_info *info = spw_trace_get_info(trace);
    if (settings->step >= info->steps || settings->layer >= info->layers)
        SPW_TRY(spw_fail(SPW_EARG, "--step %zu --layer %zu: the trace has %zu steps and %zu layers",
                         settings->step, settings->layer, info->steps, info->layers));
    SPW_TRY(SPW_ALLOC(1, &job));
    SPW_TRY(spw_trace_group_job(info, &group, job));
    job->model.hidden = HIDDEN;
    if (settings->group >= job->fsdp)
        SPW_TRY(spw_fail(SPW_EARG, "--group %zu: the trace has %zu groups of %zu ranks", settings->group,
                         job->fsdp, job->expert));
    const spw_composer_request request = {.trace = trace,
                                          .job = job,
                                          .sequences = job->sequences_per_gpu,
                                          .batches = 1,
                                          .step_begin = settings->step,
                                          .step_end = settings->step + 1,
                                          .layer_begin = settings->layer,
                                          .layer_end = settings->layer + 1,
                                          .seed = 1};
    SPW_TRY(spw_composer_create(&request, &composer));
    SPW_TRY(spw_composer_begin(composer, 0));
    const char *name = strrchr(trace_path, '/');
    (void)snprintf(out->origin, sizeof out->origin, "%.60s, step %lld, layer %d, group %zu",
                   name != NULL ? name + 1 : trace_path, (long long)spw_composer_step_id(composer, 0),
                   (int)spw_composer_layer_id(composer, 0), settings->group);
    SPW_TRY(fill(composer, job, settings->group, out));
cleanup:
    if (status != SPW_OK) spw_record_destroy(out);
    spw_composer_destroy(composer);
    spw_trace_close(trace);
    spw_free(job);
    return status;
}

spw_status spw_trace_record_save(const char *trace_path, const char *record_path,
                                 const spw_trace_record_settings *settings) {
    spw_record *record = NULL;
    spw_status status = SPW_ALLOC(1, &record);
    if (status == SPW_OK) status = spw_trace_record_make(trace_path, settings, record);
    if (status == SPW_OK) status = spw_file_print(record_path, print, record);
    if (record != NULL) spw_record_destroy(record);
    spw_free(record);
    return status;
}
