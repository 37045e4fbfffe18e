/* The footprint of torchtitan's bare layers beside those measured (notebooks_data/measured/torchtitan_h200.csv): the most requested
 * bytes of steps whose layers have equal rows, to the byte. Measured layers were given their scores: they had neither a router
 * nor, as nothing else reads it backward, the norm's output after the forward pass; what the program around them held is
 * torchtitan_gpu.py's. Where layers differ a footprint says the fullest at any place and is no less. argv: the folder of the
 * table. */
#include "sim/job/job.h"
#include "sim/memory/live/footprint.h"
#include "sim/read/csv.h"
#include "sim/schemes/layer.h"
#include "sim/schemes/point.h"
#include "sim/schemes/scheme.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/scheme_of.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4 };

static spw_job job_of(const spw_csv *csv, size_t row) {
    static const char text[] = "model: olmoe-1b-7b\ncluster: h200:1x2\nparallel: {expert: 2, fsdp: 1}\n"
                               "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                               "precision: {weights: bf16, gradients: bf16, activations: bf16}\n"
                               "remat: none\nmodel_part: expert_layers\nlayers: 4\nschemes: [torchtitan]\n";
    spw_job job = {.sequence_length = 0};
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
    job.model.hidden = number(csv, row, "hidden");
    job.model.expert_ffn = number(csv, row, "ffn");
    job.sequence_length = number(csv, row, "tokens_per_rank");
    CHECK(job.model.experts == number(csv, row, "experts") && job.model.top_k == number(csv, row, "top_k"));
    CHECK(job.model.moe_layers == LAYERS);
    return job;
}

/* What a footprint has beyond the measured layers, and they beyond it. */
static uint64_t beyond(const spw_layer_shape *s) {
    return LAYERS * (2 * s->tokens * s->hidden + 2 * 2 * s->experts * s->hidden);
}
static uint64_t around(const spw_layer_shape *s) {
    const uint64_t rstd = 4 * s->tokens, offsets = 4 * s->experts_per_rank, counts = 8 * s->experts,
                   ids = 8 * s->assignments, scores = 4 * s->assignments;
    return LAYERS * (rstd + offsets + counts + ids + scores);
}

static bool read_rows(const spw_csv *csv, size_t row, uint64_t held[LAYERS]) {
    const char *text = spw_csv_field(csv, row, "rows_received_per_layer");
    bool equal = true;
    char *after = NULL;
    for (size_t l = 0; l < LAYERS; l++, text = *after == ';' ? after + 1 : after) {
        held[l] = strtoull(text, &after, 10);
        CHECK(after != text);
        equal = equal && held[l] == held[0];
    }
    return equal;
}

static bool compare(const spw_csv *csv, size_t row, const spw_scheme *scheme) {
    const spw_job job = job_of(csv, row);
    const spw_point point = spw_point_of(&job, scheme, 1);
    spw_layer layer = {.tensors = 0};
    spw_routed_memory routed = {.saved = {.all = 0}};
    spw_footprint f;
    uint64_t held[LAYERS];
    const bool equal = read_rows(csv, row, held);
    CHECK_OK(spw_layer_build(scheme, &point.shape, SPW_FLAVOUR_LIVE, &layer));
    for (size_t l = 0; l < LAYERS; l++) {
        const spw_rank_rows rows = {.held = held[l], .received = held[l], .sent = point.shape.assignments};
        const uint64_t saved = spw_layer_live_set(&layer, &rows).saved_bytes;
        if (l == 0 || held[l] > routed.rows.held) routed.rows = rows;
        if (saved > routed.saved.last)
            routed.saved.last = saved; /* of the fullest layer, which all are taken for */
    }
    CHECK_OK(spw_footprint_compute(&point, &routed, &f));
    const bool in_forward =
        strcmp(f.step, "weight") == 0; /* where RoutedExperts.forward still names its experts' counts */
    const uint64_t ours = f.peak_bytes - beyond(&point.shape) + around(&point.shape) +
                          (in_forward ? 8 * point.shape.experts_per_rank : 0),
                   theirs = number(csv, row, "requested_peak_bytes");
    CHECK(equal ? ours == theirs : ours >= theirs);
    if (equal && ours != theirs)
        fprintf(stderr, "row %zu: measured %zu, predicted %zu\n", row + 2, (size_t)theirs, (size_t)ours);
    spw_layer_destroy(&layer);
    return equal;
}

int main(int argc, char **argv) {
    const spw_scheme scheme = scheme_of("torchtitan");
    char path[4096];
    spw_csv *csv = NULL;
    size_t equal = 0;
    CHECK(argc == 2);
    (void)snprintf(path, sizeof path, "%s/torchtitan_h200.csv", argv[1]);
    CHECK_OK(spw_csv_read(path, &csv));
    for (size_t i = 0; csv != NULL && i < spw_csv_rows(csv); i++) equal += compare(csv, i, &scheme) ? 1 : 0;
    CHECK(equal == 40); /* balanced, and all rows on one rank */
    spw_csv_close(csv);
    return check_done();
}
