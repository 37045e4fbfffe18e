/* What torchtitan's layers keep under selective activation checkpointing beside what a full checkpoint does, to the byte as measured on
 * a CPU (notebooks_data/measured/torchtitan_saved_cpu.csv, made by torchtitan_saved.py with its configurations beside it); that it
 * waits, and is not there beside a layer at work; what is refused. argv: the folder of the table. */
#include "sim/job/job.h"
#include "sim/job/recipe/remat.h"
#include "sim/memory/kept/selective_ops.h"
#include "sim/memory/live/footprint.h"
#include "sim/memory/live/footprint_check.h"
#include "sim/read/csv.h"
#include "sim/schemes/point.h"
#include "tests/unit/check.h"
#include "tests/unit/csv_number.h"
#include "tests/unit/scheme_of.h"

#include <stdlib.h>
#include <string.h>

enum { MODELS = 5, WAYS = 3 };

static spw_job job_of(const char *model, const char *remat) {
    char text[512];
    spw_job job = {.sequence_length = 0};
    (void)snprintf(text, sizeof text,
                   "model: %s\ncluster: h100:1x2\nparallel: {expert: 2, fsdp: 1}\n"
                   "batch: {sequences_per_gpu: 1, sequence_length: 384}\noptimizer: sharded\nremat: %s\n"
                   "schemes: [torchtitan]\n",
                   model, remat);
    CHECK_OK(spw_job_parse("job", NULL, text, strlen(text), &job));
    return job;
}

static double kept_of(const spw_job *job, const spw_scheme *scheme) {
    const spw_layer_shape shape = spw_point_of(job, scheme, 1).shape;
    return (double)(job->model.layers - job->model.moe_layers) * spw_selective_ops_kept(job, &shape, false) +
           (double)job->model.moe_layers * spw_selective_ops_kept(job, &shape, true);
}

/* Rows none, full, selective_op of a model. Of the peaks, that of the last layer's backward pass is the greatest: the others wait. */
static void measured(const spw_csv *csv, size_t row, const char *folder, const spw_scheme *scheme) {
    char path[4096];
    const char *name = spw_csv_field(csv, row, "case");
    (void)snprintf(path, sizeof path, "%s/torchtitan_saved_cpu/%s.json", folder, name);
    const spw_job job = job_of(path, "selective_op");
    const spw_layer_shape shape = spw_point_of(&job, scheme, 1).shape;
    CHECK(strcmp(spw_csv_field(csv, row + 1, "remat"), "full") == 0 && number(csv, row, "tokens") == 384);
    CHECK(strcmp(spw_csv_field(csv, row + 2, "remat"), "selective_op") == 0);
    const double more =
                     (double)number(csv, row + 2, "kept_bytes") - (double)number(csv, row + 1, "kept_bytes"),
                 peak =
                     (double)number(csv, row + 2, "peak_bytes") - (double)number(csv, row + 1, "peak_bytes"),
                 ours = kept_of(&job, scheme), waits = ours - spw_selective_ops_kept(&job, &shape, true);
    CHECK(ours == more && waits == peak);
    if (ours != more || waits != peak)
        fprintf(stderr, "%s: measured %.0f and %.0f, predicted %.0f and %.0f\n", name, more, peak, ours,
                waits);
}

static void table(const char *folder) {
    const spw_scheme scheme = scheme_of("torchtitan");
    char path[4096];
    spw_csv *csv = NULL;
    (void)snprintf(path, sizeof path, "%s/torchtitan_saved_cpu.csv", folder);
    CHECK_OK(spw_csv_read(path, &csv));
    CHECK(csv != NULL && spw_csv_rows(csv) == MODELS * WAYS);
    for (size_t i = 0; csv != NULL && i + WAYS <= spw_csv_rows(csv); i += WAYS)
        measured(csv, i, folder, &scheme);
    spw_csv_close(csv);
}

/* By hand, of Qwen3's 48 layers of 384 tokens: queries, keys and values; attention's output and log-sum-exp; 8 choices. Of two
 * micro-batches: all gradients are there, and the last layer's backward pass is the fullest. */
static void whole_footprints(void) {
    const spw_scheme scheme = scheme_of("torchtitan");
    spw_job full = job_of("qwen3-30b-a3b", "full"), ops = job_of("qwen3-30b-a3b", "selective_op");
    full.micro_batches = ops.micro_batches = 2;
    const spw_point a = spw_point_of(&full, &scheme, 2), b = spw_point_of(&ops, &scheme, 2);
    const uint64_t each = 384 * (2 * (32 + 2 * 4) * 128 + 2 * 32 * 128 + 4 * 32 + 12 * 8);
    spw_footprint f, s;
    CHECK_OK(spw_footprint_compute(&a, NULL, &f));
    CHECK_OK(spw_footprint_compute(&b, NULL, &s));
    CHECK(f.waiting.at[SPW_MOMENT_MOE_LAYER].there && s.waiting.at[SPW_MOMENT_LOSS].there);
    CHECK(s.waiting.at[SPW_MOMENT_LOSS].bytes - f.waiting.at[SPW_MOMENT_LOSS].bytes == 48 * each);
    CHECK(s.waiting.at[SPW_MOMENT_MOE_LAYER].bytes - f.waiting.at[SPW_MOMENT_MOE_LAYER].bytes == 47 * each);
    CHECK(s.saved.all == 0 && s.live_set.backward_bytes == f.live_set.backward_bytes);
}

/* Products with a bias are kept and not counted: the output's is the first that is. */
static void biased(void) {
    const spw_scheme scheme = scheme_of("torchtitan");
    spw_job job = job_of("qwen3-30b-a3b", "selective_op");
    job.model.attention_bias = true;
    const spw_layer_shape shape = spw_point_of(&job, &scheme, 1).shape;
    CHECK(spw_selective_ops_kept(&job, &shape, true) ==
          384.0 * (2 * ((32 + 2 * 4) * 128 + 2048) + 2 * 32 * 128 + 4 * 32 + 12 * 8));
}

static void refused(const char *model, const char *remat, const char *scheme, const char *words) {
    const spw_job job = job_of(model, remat);
    const spw_scheme parsed = scheme_of(scheme);
    CHECK_STATUS(spw_footprint_check(&job, &parsed), SPW_ECONFIG);
    CHECK(strstr(spw_last_error(), words) != NULL);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    table(argv[1]);
    whole_footprints();
    biased();
    refused("qwen3-30b-a3b", "selective_op", "torchtitan-hybridep", "torchtitan's, of whole models");
    refused("qwen3-30b-a3b", "selective_op", "megatron-alltoall", "torchtitan's, of whole models");
    refused("qwen3-next-80b-a3b", "selective_op", "torchtitan", "grouped and latent attention");
    refused("deepseek-v3.2", "selective_op", "torchtitan", "grouped and latent attention");
    return check_done();
}
